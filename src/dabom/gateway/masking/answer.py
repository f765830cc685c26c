"""Masking of one answer, whatever form it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import AfterValidator

from dabom.errors import UpstreamBroken
from dabom.gateway import headers as head
from dabom.gateway import sse
from dabom.gateway.masking.events import EventMask
from dabom.gateway.masking.notation import read, write
from dabom.gateway.masking.resident import ResidentNumber
from dabom.gateway.masking.text import mask_text
from dabom.gateway.masking.values import mask_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dabom.gateway.asgi import Headers
    from dabom.gateway.masking.detect import Detector
    from dabom.gateway.masking.text import Found
    from dabom.gateway.metrics import Metrics

_LINES = (b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/x-jsonlines")
_TEXTS = (b"application/xml", b"application/yaml", b"application/x-yaml", b"application/javascript")
SHIPPED: Mapping[str, type[Detector]] = {ResidentNumber.kind: ResidentNumber}


def _check_names(names: frozenset[str]) -> frozenset[str]:
    unknown = sorted(names - SHIPPED.keys())
    if unknown:
        raise ValueError(f"there is no detector {unknown[0]}; there is {', '.join(sorted(SHIPPED))}")
    return names


MaskNames = Annotated[frozenset[str], AfterValidator(_check_names)]
"""Names of detectors."""


class AnswerMask(Protocol):
    """Takes the bytes of one answer as they come and gives those that the client gets."""

    def add(self, chunk: bytes) -> bytes:
        """What can be sent now."""

    def end(self) -> bytes:
        """The rest."""


class Masking:
    """Masks answers with some detectors. What cannot be read, and so not be masked, is not given out."""

    def __init__(self, detectors: Iterable[Detector], metrics: Metrics, max_answer_bytes: int) -> None:
        self._detectors = tuple(detectors)
        self._found: Found = metrics.masked.add
        self._max_bytes = max_answer_bytes

    @classmethod
    def by_names(cls, names: frozenset[str], metrics: Metrics, max_answer_bytes: int) -> Masking | None:
        """With the shipped detectors of these names; None when there are none: nothing is looked at then."""
        if not names:
            return None
        return cls((SHIPPED[name]() for name in sorted(names)), metrics, max_answer_bytes)

    def begin(self, headers: Headers) -> tuple[Headers, AnswerMask | None]:
        """The headers for the client and the mask of an answer; None for a picture, a sound or other bytes.

        Raises `UpstreamBroken` for an encoding that was not asked for.
        """
        kind = head.media_type(head.find(headers, b"content-type"))
        lines, json = kind in _LINES, head.is_json(kind)
        if not (lines or json or kind.startswith(b"text/") or kind in _TEXTS or kind.endswith(b"+xml")):
            return headers, None
        encoding = head.find(headers, b"content-encoding")
        if encoding not in (None, b"identity"):
            found = (encoding or b"")[:32].decode("ascii", "replace")
            raise UpstreamBroken(
                f"the upstream encodes its answer as {found}, and was told not to; it cannot be masked"
            )
        kept = [pair for pair in headers if pair[0] not in (b"content-length", b"etag", b"content-md5")]
        if kind == sse.MEDIA_TYPE:
            return kept, _Safely(EventMask(self._detectors, self._found))
        return kept, _Safely(_LinesMask(self) if lines else _WholeMask(self, json=json))

    def whole(self, text: bytes, *, json: bool = True) -> bytes:
        """A whole answer, the very same bytes when there is nothing to mask."""
        if json:
            try:
                value: Any = read(text)
            except ValueError:
                return self._plain(text)
            if isinstance(value, dict | list):
                return write(value) if mask_value(value, self._detectors, self._found) else text
        return self._plain(text)

    def item(self, text: bytes) -> bytes:
        """The answer to an item of a batch. Raises `UpstreamBroken` for one that is nested too deeply."""
        mask = _Safely(_WholeMask(self, json=True))
        return mask.add(text) + mask.end()

    def _plain(self, text: bytes) -> bytes:
        line = text.decode("utf-8", "surrogateescape")
        masked = mask_text(line, self._detectors, self._found)
        return text if masked is line else masked.encode("utf-8", "surrogateescape")

    @property
    def max_answer_bytes(self) -> int:
        """How much of an answer that is no stream is held."""
        return self._max_bytes


class _WholeMask:
    """An answer that is no stream is held until it is whole."""

    def __init__(self, masking: Masking, *, json: bool) -> None:
        self._masking = masking
        self._json = json
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> bytes:
        self._size += len(chunk)
        if self._size > self._masking.max_answer_bytes:
            raise UpstreamBroken(
                f"an answer of more than {self._masking.max_answer_bytes:,} bytes cannot be masked; "
                "ask for a stream, or raise max_answer_bytes"
            )
        self._parts.append(chunk)
        return b""

    def end(self) -> bytes:
        text, self._parts, self._size = b"".join(self._parts), [], 0
        return self._masking.whole(text, json=self._json) if text else b""


class _LinesMask:
    """An answer of which each line is a JSON value."""

    def __init__(self, masking: Masking) -> None:
        self._masking = masking
        self._line = _WholeMask(masking, json=True)

    def add(self, chunk: bytes) -> bytes:
        *whole, rest = chunk.split(b"\n")
        shown = [self._line.add(line) + self._line.end() + b"\n" for line in whole]
        return b"".join(shown) + self._line.add(rest)

    def end(self) -> bytes:
        return self._line.end()


class _Safely:
    """What cannot be masked is not given out; an error that the gateway itself tells afterwards is."""

    def __init__(self, mask: AnswerMask) -> None:
        self._mask: AnswerMask | None = mask

    def add(self, chunk: bytes) -> bytes:
        mask = self._mask
        return chunk if mask is None else self._try(lambda: mask.add(chunk))

    def end(self) -> bytes:
        return b"" if self._mask is None else self._try(self._mask.end)

    def _try(self, step: Callable[[], bytes]) -> bytes:
        try:
            return step()
        except RecursionError:
            self._mask = None
            raise UpstreamBroken("the answer is nested too deeply to be masked") from None
        except UpstreamBroken:
            self._mask = None
            raise


def ask_plain(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Headers for an upstream whose answer must be read: no encoding, whatever the client would take."""
    kept = [pair for pair in headers if pair[0] != b"accept-encoding"]
    return [*kept, (b"accept-encoding", b"identity")]
