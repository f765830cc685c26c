"""Every error that Dabom raises on purpose. One tree, drawn here:

DabomError                        500 internal_error
├── ClientError                   400 invalid_request      the caller must change something
│   ├── InvalidJson               400 invalid_json
│   ├── InvalidMedia              400 invalid_media
│   │   ├── MediaUnsupported      400 media_unsupported
│   │   ├── MediaMismatch         400 media_mismatch
│   │   ├── MediaTooLarge         400 media_too_large
│   │   └── UrlRefused            400 url_refused
│   ├── Unauthorized              401 unauthorized
│   │   └── KeyExpired            401 key_expired
│   ├── RouteForbidden            403 route_forbidden
│   ├── NotFound                  404 not_found
│   ├── ModelNotFound             404 model_not_found
│   ├── ModalityNotServed         400 modality_not_served
│   ├── MethodNotAllowed          405 method_not_allowed
│   ├── UploadTimeout             408 upload_timeout
│   ├── HeaderTimeout             408 header_timeout
│   ├── PromptTooLong             400 prompt_too_long
│   ├── BodyTooLarge              413 body_too_large
│   ├── BatchTooLarge             413 batch_too_large
│   ├── TooManyItems              413 too_many_items
│   ├── UnsupportedMediaType      415 unsupported_media_type
│   ├── ReloadRefused             422 reload_refused
│   └── HeadersTooLarge           431 headers_too_large
├── UpstreamError                 502 upstream_broken      the model server failed
│   ├── UpstreamUnreachable       502 upstream_unreachable
│   ├── UpstreamBroken            502 upstream_broken
│   └── UpstreamTimeout           504 total_timeout
│       ├── ConnectTimeout        504 connect_timeout
│       ├── FirstByteTimeout      504 first_byte_timeout
│       ├── IdleTimeout           504 idle_timeout
│       └── TotalTimeout          504 total_timeout
├── TooManyRequests               429 too_many_requests    this caller must wait
│   ├── RateLimited               429 rate_limited
│   ├── KeyConcurrency            429 key_concurrency
│   └── QueueFull                 429 queue_full
├── Unavailable                   503 unavailable          try again later
│   ├── QueueTimeout              503 queue_timeout
│   ├── AuditUnavailable          503 audit_unavailable
│   └── Draining                  503 draining
├── ClientGone                    499 client_gone          nobody is left to answer
├── ConfigError                   500 invalid_config       raised before anything listens
├── StartFailed                   500 start_failed         raised by the commands that start a gateway
├── StoreError                    500 store_failed         a database or folder cannot be read or written
│   └── StoreTooNew               500 store_too_new
└── AskError                      500 ask_failed           what `dabom.client` raises for a failed request
    ├── ConnectFailed             502 connect_failed
    ├── AnswerBroken              502 answer_broken
    ├── AnswerTimeout             504 answer_timeout
    └── Refused                   the status and code of the answer

`status` is the HTTP status that the gateway answers with, `code` the stable word that programs compare.
A message says what was found, what is allowed and what to do; it never holds media or prompt text.
"""

from __future__ import annotations

from typing import Any, ClassVar


class DabomError(Exception):
    """Something that Dabom can name went wrong."""

    status: int = 500
    code: str = "internal_error"
    type: ClassVar[str] = "internal_error"
    retry_after_s: float | None = None
    """When it makes sense to try again; sent as `Retry-After`."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


class ClientError(DabomError):
    """The request cannot be served as it is."""

    status, code, type = 400, "invalid_request", "invalid_request_error"


class InvalidJson(ClientError):
    """The body is not one well-formed JSON value."""

    code = "invalid_json"


class InvalidMedia(ClientError):
    """A picture, video or sound cannot be decoded, is empty, or is of a kind that is not read."""

    code = "invalid_media"


class MediaUnsupported(InvalidMedia):
    """A picture moves, has pages or is of no kind that is read; or a recording's sound has no decoder."""

    code = "media_unsupported"


class MediaMismatch(InvalidMedia):
    """The bytes are of another kind than the request says."""

    code = "media_mismatch"


class MediaTooLarge(InvalidMedia):
    """A picture has more pixels, or a request more pictures, clips or sounds, than the limit."""

    code = "media_too_large"


class UrlRefused(InvalidMedia):
    """An outside URL is not on the allow-list, or could not be fetched within the limits."""

    code = "url_refused"


class Unauthorized(ClientError):
    """The key is missing or wrong."""

    status, code, type = 401, "unauthorized", "authentication_error"


class KeyExpired(Unauthorized):
    """The key was right, but its time is over."""

    code = "key_expired"


class RouteForbidden(ClientError):
    """The key may not use the model or the route that the request asks for."""

    status, code, type = 403, "route_forbidden", "permission_error"


class NotFound(ClientError):
    """No such path."""

    status, code = 404, "not_found"


class ModelNotFound(ClientError):
    """No configured upstream serves the model that the request names."""

    status, code, type = 404, "model_not_found", "NotFoundError"


class ModalityNotServed(ClientError):
    """No model that the request may go to takes what it holds: pictures, clips, sounds or files."""

    code = "modality_not_served"


class MethodNotAllowed(ClientError):
    """The path exists, but not for this method."""

    status, code = 405, "method_not_allowed"


class UploadTimeout(ClientError):
    """The body stopped arriving before its end."""

    status, code = 408, "upload_timeout"


class HeaderTimeout(ClientError):
    """The request's head did not arrive in time."""

    status, code = 408, "header_timeout"


class PromptTooLong(ClientError):
    """Prompt and answer have more tokens than the model or the token budget of its upstream takes."""

    code = "prompt_too_long"

    def __init__(self, message: str, *, needed: int, limit: int, largest: str = "") -> None:
        super().__init__(message, param="messages")
        self.numbers = {"needed": needed, "limit": limit, "largest": largest}

    def body(self) -> dict[str, Any]:
        """With the numbers: tokens that are `needed`, their `limit`, and the name of the `largest` part."""
        told = super().body()
        told["error"].update(self.numbers)
        return told


class BodyTooLarge(ClientError):
    """A request, or one item of a batch, has more bytes than the limit."""

    status, code = 413, "body_too_large"


class BatchTooLarge(ClientError):
    """A JSON batch has more bytes than the limit."""

    status, code = 413, "batch_too_large"


class TooManyItems(ClientError):
    """A JSON batch has more items than the limit."""

    status, code = 413, "too_many_items"


class UnsupportedMediaType(ClientError):
    """The Content-Type is none that this path reads."""

    status, code = 415, "unsupported_media_type"


class ReloadRefused(ClientError):
    """The settings that were to be loaded anew have a mistake; those that hold go on."""

    status, code = 422, "reload_refused"


class HeadersTooLarge(ClientError):
    """The request's head has more bytes than the limit."""

    status, code = 431, "headers_too_large"


class UpstreamError(DabomError):
    """The upstream failed; the request itself may be fine."""

    status, code, type = 502, "upstream_broken", "upstream_error"


class UpstreamUnreachable(UpstreamError):
    """No connection to the upstream could be made."""

    code = "upstream_unreachable"


class UpstreamBroken(UpstreamError):
    """The upstream closed the connection or sent something that is not HTTP before its answer was whole."""


class UpstreamTimeout(UpstreamError):
    """One of the four clocks of an upstream ran out."""

    status, code = 504, "total_timeout"


class ConnectTimeout(UpstreamTimeout):
    """The connection to the upstream was not made in time."""

    code = "connect_timeout"


class FirstByteTimeout(UpstreamTimeout):
    """The upstream took the request and sent no first byte in time."""

    code = "first_byte_timeout"


class IdleTimeout(UpstreamTimeout):
    """The upstream fell silent in the middle of its answer."""

    code = "idle_timeout"


class TotalTimeout(UpstreamTimeout):
    """The upstream did not finish in time."""


class TooManyRequests(DabomError):
    """The caller has asked for more than it may have now."""

    status, code, type = 429, "too_many_requests", "rate_limit_error"

    def __init__(self, message: str, *, retry_after_s: float, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class RateLimited(TooManyRequests):
    """The key has used up its requests or its tokens of this minute."""

    code = "rate_limited"


class KeyConcurrency(TooManyRequests):
    """The key has as many requests at work as it may have."""

    code = "key_concurrency"


class QueueFull(TooManyRequests):
    """As many requests wait for a permit as may wait."""

    code = "queue_full"


class Unavailable(DabomError):
    """The gateway cannot take the request now."""

    status, code, type = 503, "unavailable", "unavailable_error"


class QueueTimeout(Unavailable):
    """No permit came free in time."""

    code = "queue_timeout"


class AuditUnavailable(Unavailable):
    """The audit cannot be written, and the settings say that nothing may be served without it."""

    code = "audit_unavailable"


class Draining(Unavailable):
    """The gateway is shutting down."""

    code = "draining"


class ClientGone(DabomError):
    """The client closed its connection or stopped reading; the status is for logs only."""

    status, code = 499, "client_gone"


class ConfigError(DabomError):
    """A setting is missing, wrong or contradicts another."""

    code = "invalid_config"


class StartFailed(DabomError):
    """A process that Dabom started ended, or was not ready in time; its log tells why."""

    code = "start_failed"


class StoreError(DabomError):
    """A database or a folder of clips cannot be opened, read or written. No value is in the message."""

    code = "store_failed"


class StoreTooNew(StoreError):
    """A newer Dabom has changed the tables of a database; this one would misread them."""

    code = "store_too_new"


class AskError(DabomError):
    """A request that `dabom.client` made has failed; `request_id` is the endpoint's, when it gave one."""

    code = "ask_failed"

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


class ConnectFailed(AskError):
    """The endpoint could not be reached."""

    status, code = 502, "connect_failed"


class AnswerBroken(AskError):
    """The answer was cut, or is not what the protocol says."""

    status, code = 502, "answer_broken"


class AnswerTimeout(AskError):
    """One of the client's clocks ran out."""

    status, code = 504, "answer_timeout"


class Refused(AskError):
    """The endpoint answered with an error; `status`, `code` and `message` are the endpoint's own."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, request_id=request_id)
        self.status = status
        self.code = code or "refused"
        self.retry_after_s = retry_after_s
