"""A check of one JSON value while its bytes arrive, and a short form of it to read facts from.

A clip is one base64 string of megabytes inside a few hundred bytes of JSON. The scanner runs over the strings
with `bytes.find`, checks what is inside them in C, and keeps everything but the inside of long strings. The
short form, the *skeleton*, is then decoded by msgspec, which also says whether the JSON is well formed.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

import msgspec
import numpy as np

from dabom.errors import BodyTooLarge, InvalidJson

T = TypeVar("T")

LONG_STRING = 1024
"""Bytes from which on the inside of a string is left out of the skeleton."""
HEAD_BYTES = 8192
"""Bytes kept of the start of a long string: enough for the headers of pictures and most mp4 boxes."""
TAIL_BYTES = 12
"""Bytes kept of the end of a long string: the padding of base64, even when it is escaped."""
DIGEST_BYTES = 16384
"""Bytes of a long string that its digest covers; all of a clip would cost nearly as much as relaying it."""

WHOLE_BYTES = 65536
"""A text up to this size is its own skeleton."""

_SHORT_STRINGS = re.compile(rb'(?:[^"]*+"(?:[^"\\]{1,127}+|\\.){0,8}+")*+', re.DOTALL)
"""Strings that are below `LONG_STRING` and what is between them: a body may be millions of them."""
_TEXT = re.compile(rb'(?:[^\\"\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_ESCAPE_BYTES = 6
_NEAR_BYTES = 4096
_LEAST_BASE64 = ord("+")  # the quote, the space and all control characters lie below it


@dataclass(slots=True)
class LongString:
    """Where a string stands in the body (without its quotes), how it begins and how it ends.

    `surplus` counts the bytes that the escapes of `/`, `+` and `=` add to base64.
    """

    start: int
    end: int = -1
    head: bytes = b""
    tail: bytes = b""
    digest: str = ""
    surplus: int = 0


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A JSON text whose long strings are replaced by marks; `size` is that of the whole text."""

    text: bytes
    size: int
    strings: dict[bytes, LongString] = field(default_factory=dict)
    _cuts: tuple[tuple[int, int], ...] = ()

    def locate(self, offset: int) -> int:
        """The place in the body of a place in the skeleton that is not inside a mark."""
        cut = bisect_right(self._cuts, (offset, self.size + 1)) - 1
        return offset if cut < 0 else offset + self._cuts[cut][1]


class Scanner:
    """Feed it the chunks of one JSON text, then `finish`. Raises `InvalidJson` as soon as it knows."""

    def __init__(self, max_string_bytes: int | None = None) -> None:
        self.size = 0
        self._max_string_bytes = max_string_bytes
        self._kept = bytearray()
        self._strings: dict[bytes, LongString] = {}
        self._cuts: list[tuple[int, int]] = []
        self._mark = b""
        self._open: _OpenString | None = None

    def feed(self, chunk: bytes | memoryview) -> None:
        """Take the next bytes of the text."""
        came = len(chunk)
        if self._open is not None:
            chunk = self._swallow(self._open, chunk)
        if isinstance(chunk, memoryview):
            chunk = bytes(chunk)  # what is no plain base64 is searched, and only bytes can be
        kept, position, size = self._kept, 0, len(chunk)
        while position < size:
            if self._open is not None:
                position = self._resume(chunk)
                continue
            run = _SHORT_STRINGS.match(chunk, position)
            if run is not None and run.end() > position:
                kept += run[0]
                position = run.end()
            quote = chunk.find(b'"', position)
            if quote < 0:
                kept += chunk[position:]
                break
            end = _closing_quote(chunk, quote + 1)
            if 0 <= end <= quote + LONG_STRING:
                kept += chunk[position : end + 1]
                position = end + 1
                continue
            kept += chunk[position : quote + 1]
            self._open = _OpenString(self.size + came - size + quote + 1)
            position = self._continue(chunk, quote + 1, end)
        self.size += came

    def finish(self) -> Skeleton:
        """The skeleton of the whole text, not yet decoded."""
        if self._open is not None:
            raise InvalidJson(f"the JSON ends inside a string after {self.size:,} bytes; was the body cut?")
        return Skeleton(bytes(self._kept), self.size, self._strings, tuple(self._cuts))

    def _swallow(self, string: _OpenString, chunk: bytes | memoryview) -> bytes | memoryview:
        """Take what is base64 beyond doubt; what is left of the chunk. Strings end near the end of a body."""
        for stop in (len(chunk), len(chunk) - _NEAR_BYTES):
            if stop > 0 and string.swallow(chunk[:stop]):
                self._continued(string, stop)
                return chunk[stop:]
        return chunk

    def _resume(self, chunk: bytes) -> int:
        string = self._open
        start = 1 if string is not None and string.escaped else 0
        return self._continue(chunk, 0, _closing_quote(chunk, start))

    def _continue(self, chunk: bytes, start: int, end: int) -> int:
        """Take the part of the open string that this chunk holds; the position behind it."""
        string = self._open
        if string is None:
            return start
        stop = len(chunk) if end < 0 else end
        string.take(chunk, start, stop)
        self._continued(string, stop)
        if end < 0:
            return stop
        self._close(string)
        return end + 1

    def _continued(self, string: _OpenString, stop: int) -> int:
        if self._max_string_bytes is not None and string.size > self._max_string_bytes:
            raise BodyTooLarge(
                f"one value has more than {self._max_string_bytes:,} bytes, which is the limit"
            )
        return stop

    def _close(self, string: _OpenString) -> None:
        self._open = None
        text = string.close()
        if string.size <= LONG_STRING:
            self._kept += text + b'"'
            return
        if not self._mark:
            self._mark = secrets.token_hex(8).encode()
        mark = b"%s-%d" % (self._mark, len(self._strings))
        end = string.start + string.size
        self._strings[mark] = LongString(
            string.start, end, text, string.tail, string.digest(), string.surplus
        )
        self._kept += mark
        self._cuts.append((len(self._kept), end - len(self._kept)))
        self._kept += b'"'


class _OpenString:
    """A string whose end is not known yet: its size, its head, and the check of what is inside."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.size = 0
        self.escaped = False  # the next byte belongs to a backslash
        self.tail = b""
        self.surplus = 0
        self._head = bytearray()
        self._hash = hashlib.sha256()
        self._rest = b""  # an escape or a character that the last chunk cut

    def take(self, chunk: bytes, start: int, stop: int) -> None:
        """Take a part of a chunk in which the string does not end."""
        part = memoryview(chunk)[start:stop]
        if not len(part):
            return
        self._note(part)
        # one pass in C: as signed bytes, control characters and everything beyond ASCII lie below the space
        plain = int(np.frombuffer(part, np.int8).min()) >= 0x20 and chunk.find(b"\\", start, stop) < 0
        if self._rest or not plain:
            self._check(self._rest + part)

    def swallow(self, chunk: bytes | memoryview) -> bool:
        """Take a whole chunk if it is base64 beyond doubt: then no quote needs to be looked for."""
        if self._rest or not len(chunk) or int(np.frombuffer(chunk, np.int8).min()) < _LEAST_BASE64:
            return False
        # as one string of numpy's, which is searched as fast as bytes are and which any buffer can be
        if int(np.strings.find(np.frombuffer(chunk, np.dtype(("S", len(chunk)))), b"\\")[0]) >= 0:
            return False
        self._note(memoryview(chunk))
        return True

    def _note(self, part: memoryview) -> None:
        if self.size < DIGEST_BYTES:
            self._hash.update(part[: DIGEST_BYTES - self.size])
        if len(self._head) < HEAD_BYTES:
            self._head += part[: HEAD_BYTES - len(self._head)]
        self.size += len(part)
        self.tail = (self.tail + part[-TAIL_BYTES:])[-TAIL_BYTES:]

    def close(self) -> bytes:
        """The head of the string, all of it when it is short."""
        if self._rest:
            raise InvalidJson(
                f"a string that starts at byte {self.start} ends inside an escape or a character"
            )
        return bytes(self._head)

    def digest(self) -> str:
        return self._hash.hexdigest()[:16]

    def _check(self, part: bytes) -> None:
        match = _TEXT.match(part)
        good = match.end() if match else 0
        rest = part[good:]
        if len(rest) >= _ESCAPE_BYTES or (rest and not rest.startswith(b"\\")):
            raise InvalidJson(
                f"a string that starts at byte {self.start} holds a control character or a wrong escape"
            )
        self.surplus += part.count(b"\\/", 0, good) + part.count(b"\\u00", 0, good) * 5
        self.escaped = rest == b"\\"
        try:
            part[:good].decode()
            self._rest = rest
        except UnicodeDecodeError as error:
            if rest or error.reason != "unexpected end of data":
                raise InvalidJson(f"a string that starts at byte {self.start} is not UTF-8") from None
            self._rest = part[error.start :]


def _closing_quote(chunk: bytes, start: int) -> int:
    """The position of the quote that ends a string, or -1 when the chunk ends before it."""
    end = chunk.find(b'"', start)
    while end > start and chunk[end - 1] == 0x5C:
        run = end - 1
        while run > start and chunk[run - 1] == 0x5C:
            run -= 1
        if (end - run) % 2 == 0:
            break
        end = chunk.find(b'"', end + 1)
    return end


def scan(text: bytes) -> Skeleton:
    """The skeleton of a text that is there as a whole."""
    if len(text) <= WHOLE_BYTES:
        return Skeleton(text, len(text))
    scanner = Scanner()
    scanner.feed(text)
    return scanner.finish()


def decode(text: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a skeleton, or raise `InvalidJson`.

    msgspec takes a lone surrogate for a cut text and passes over wrong UTF-8 in what it skips; both are put
    right here. Whatever it calls malformed is judged again by the standard library before it is refused.
    """
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise InvalidJson(f"the JSON is not UTF-8 at byte {error.start}") from None
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise InvalidJson("the body must be a JSON object") from None
    except (msgspec.DecodeError, RecursionError):
        _judge(text)
    try:
        return decoder.decode(mend(text))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidJson(f"the JSON cannot be read: {error}") from None


def mend(text: bytes) -> bytes:
    """The same text, byte for byte as long, with U+FFFD where half of a surrogate pair stands alone."""
    if not _SURROGATE.search(text):
        return text
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], text)


def _judge(text: bytes) -> None:
    try:
        # as a str, else it guesses UTF-16; numbers stay text, else one of 5,000 digits is a ValueError
        json.loads(text.decode(), parse_constant=_refuse_constant, parse_int=len, parse_float=len)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"the body is not well-formed JSON: {error.msg} (byte {error.pos})") from None
    except RecursionError:
        raise InvalidJson("the JSON is nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not a JSON value")
