"""The description of the relayed paths, which FastAPI never sees."""

from __future__ import annotations

from typing import Any

DESCRIPTION = """One OpenAI-compatible gateway in front of vLLM, llama.cpp and MLX servers.

Bodies pass through byte for byte. Every answer has `X-Request-Id`; the id goes upstream and into the log.
Errors are `{"error": {"message", "type", "param", "code"}}`; an upstream's own 4xx and 5xx pass through.
"""

_CHAT = {
    "model": "qwen",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "한국어로 자기소개를 한 문장으로 해줘."}]}
    ],
}
_CLIP = {
    "model": "qwen",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,..."}},
                {"type": "text", "text": "이 영상의 시각과 음성을 한국어로 분석해줘."},
            ],
        }
    ],
    "temperature": 0.3,
    "max_tokens": 1024,
    "media_io_kwargs": {"video": {"fps": 2.0}},
    "mm_processor_kwargs": {"use_audio_in_video": True},
    "chat_template_kwargs": {"enable_thinking": False},
}
_ANSWER = {
    "id": "chatcmpl-a4e66116bd600be3",
    "object": "chat.completion",
    "model": "qwen",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "안녕하세요."}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 23, "completion_tokens": 4, "total_tokens": 27},
}
_ITEMS = [{"id": "0001_0600-0606", "body": _CHAT}, {"id": "0002_0606-0612", "body": _CHAT}]
_EVENTS = 'data: {"choices":[{"index":0,"delta":{"content":"안녕"}}]}\n\ndata: [DONE]\n\n'
_LINES = (
    '{"id":"0002_0606-0612","status":200,"elapsed_ms":3104,"body":{"choices":[]}}\n'
    '{"id":"0001_0600-0606","status":503,"elapsed_ms":0,"error":"no permit","code":"queue_timeout"}\n'
)
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}
_FAULTS = {
    "400": ("Malformed JSON, or a batch that is none", "invalid_json"),
    "401": ("Not the admin key", "unauthorized"),
    "404": ("No `admin_key` is set, so there is no such path", "not_found"),
    "408": ("The body stopped arriving", "upload_timeout"),
    "413": ("Too large", "body_too_large"),
    "415": ("Not JSON", "unsupported_media_type"),
    "422": ("A mistake in the file; the settings stay as they are", "reload_refused"),
    "502": ("The upstream cannot be reached, or broke off", "upstream_unreachable"),
    "503": ("No permit came free, or the gateway is shutting down", "queue_timeout"),
    "504": ("A clock ran out", "first_byte_timeout"),
}


def add_relayed_paths(schema: dict[str, Any]) -> None:
    """Write the relayed paths into an OpenAPI document."""
    schema.setdefault("components", {}).setdefault("schemas", {})["Error"] = _ERROR
    paths = schema["paths"]
    paths["/chat"] = {"post": _chat("relayChat", "Relay one chat request")}
    paths["/v1/chat/completions"] = {
        "post": _chat("relayCompletions", "Relay one chat request (OpenAI's path)")
    }
    paths["/chat/batch"] = {"post": _batch()}
    paths["/v1/models"] = {
        "get": {
            "operationId": "listModels",
            "tags": ["models"],
            "summary": "The models of all upstreams",
            "responses": {
                "200": _json("The list", {"object": "list", "data": [{"id": "qwen", "object": "model"}]}),
                **_faults("502"),
            },
        }
    }
    paths["/admin/reload"] = {"post": _reload()}
    paths["/v1/{path}"] = {method: _through(method) for method in ("get", "post")}


def _chat(operation: str, summary: str) -> dict[str, Any]:
    return {
        "operationId": operation,
        "tags": ["chat"],
        "summary": summary,
        "description": "The body goes to the upstream byte for byte; status, body and content type come "
        "back as the upstream gave them. With `stream: true` the answer is server-sent events.",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"type": "object", "required": ["messages"], "additionalProperties": True},
                    "examples": {"text": {"value": _CHAT}, "clip": {"value": _CLIP}},
                }
            },
        },
        "responses": {
            "200": {
                "description": "The upstream's answer",
                "headers": {"X-Request-Id": {"schema": {"type": "string"}}},
                "content": {
                    "application/json": {"schema": {"type": "object"}, "example": _ANSWER},
                    "text/event-stream": {"schema": {"type": "string"}, "example": _EVENTS},
                },
            },
            **_faults("400", "408", "413", "415", "502", "503", "504"),
        },
    }


def _batch() -> dict[str, Any]:
    lines = {
        "schema": {"type": "string"},
        "example": '{"id":"1","body":{"messages":[]}}\n{"id":"2","body":{"messages":[]}}',
    }
    return {
        "operationId": "relayBatch",
        "tags": ["chat"],
        "summary": "Many items in one request",
        "description": "Answers come as one JSON line per item, in the order in which they finish. As "
        "`application/x-ndjson`, one item a line, items are dispatched while the body is still uploading and "
        "their number is not limited; `X-Batch-Total` is then left out.",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["items"],
                        "properties": {
                            "items": {
                                "type": "array",
                                "minItems": 1,
                                "items": {
                                    "type": "object",
                                    "required": ["id", "body"],
                                    "properties": {
                                        "id": {"type": ["string", "integer"]},
                                        "body": {"type": "object", "additionalProperties": True},
                                    },
                                },
                            }
                        },
                    },
                    "example": {"items": _ITEMS},
                },
                "application/x-ndjson": lines,
            },
        },
        "responses": {
            "200": {
                "description": "One line per item",
                "headers": {
                    "X-Batch-Total": {"schema": {"type": "integer"}, "description": "items received"}
                },
                "content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": _LINES}},
            },
            **_faults("400", "408", "413", "415"),
        },
    }


def _reload() -> dict[str, Any]:
    return {
        "operationId": "reload",
        "tags": ["operation"],
        "summary": "Read the settings anew",
        "description": "Wants the admin key as `Authorization: Bearer`. Requests that run end on the "
        "settings that they began with. `after_restart` names changes that wait for a restart.",
        "responses": {
            "200": _json("The settings hold", {"reloaded": True, "after_restart": ["port"]}),
            **_faults("401", "404", "422"),
        },
    }


def _through(method: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"relayOther{method.title()}",
        "tags": ["models"],
        "summary": "Any other path of the upstreams",
        "parameters": [{"name": "path", "in": "path", "required": True, "schema": {"type": "string"}}],
        "responses": {"200": _json("The upstream's answer", {}), **_faults("502", "503", "504")},
    }
    if method == "post":
        content = {
            "application/json": {"schema": {"type": "object"}, "example": {"model": "qwen", "prompt": "안녕"}}
        }
        operation["requestBody"] = {"content": content}
    return operation


def _json(description: str, example: object) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}, "example": example}}
    return {"description": description, "content": content}


def _faults(*statuses: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    answers = {}
    for status in statuses:
        description, code = _FAULTS[status]
        example = {"error": {"message": description, "type": "error", "param": None, "code": code}}
        answers[status] = {
            "description": description,
            "content": {"application/json": {"schema": schema, "example": example}},
        }
    return answers
