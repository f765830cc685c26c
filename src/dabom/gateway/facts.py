"""What the gateway knows of a request: enough to route and to log it, nothing that anyone said or showed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from dabom.families import Options, read_options
from dabom.gateway import scan
from dabom.gateway.parts import KINDS, Media, Place, describe, text_bytes
from dabom.gateway.routing.settings import Modality

if TYPE_CHECKING:
    from collections.abc import Callable

    from dabom.gateway.scan import Skeleton

T = TypeVar("T")

MAX_MEDIA, MAX_LOOKS = 1024, 16_384
"""Media that are described, and messages and parts that are looked at: a body may hold millions of them."""
_MAY_SHOW = re.compile(rb'"(?:%b)"|"[a-z_]*\\u00[4-7]' % "|".join(KINDS).encode())
"""What may be a media part: its type or its key, or one that is written with escapes."""
_PROMPTS = (
    *("messages", "input", "prompt"),
    *("query", "queries", "documents", "items", "data_1", "data_2", "text_1", "text_2"),
)
"""Fields of a body that hold what a model is shown; the second row is of scores and rankings."""
_MAX_DEPTH = 4
"""Parts inside parts: a tool's result holds parts of its own."""
_NULL = msgspec.Raw(b"null")
NO_OPTIONS = Options()
_TYPES = {b'"%b"' % name.encode(): kind for name, kind in KINDS.items()}
_TEXT_TYPES = frozenset({b'"text"', b'"input_text"', b'"output_text"'})
_NO_KINDS: frozenset[Modality] = frozenset()


class Message(msgspec.Struct, frozen=True):
    """One message. `role` is `user`, `assistant`, `tool`, `system`, or empty for any other.

    `text_bytes` is about the UTF-8 size of its text, tool calls included; `kinds` what it holds besides.
    """

    role: str = ""
    text_bytes: int = 0
    kinds: frozenset[Modality] = _NO_KINDS


class Facts(msgspec.Struct, frozen=True):
    """The facts of one request. `places` has the place of each of `media`, `messages` those looked at.

    `max_tokens` is the longest answer that is asked for, `choices` how many; `text_bytes` is about the UTF-8
    size of all text of the prompt, with the descriptions of tools; `thinking` is
    `chat_template_kwargs.enable_thinking`; `model_place` is the place of the model's JSON string, with its
    quotes. `unread`: there are so many parts that media may be among those that were not looked at.
    """

    size: int = 0
    model: str | None = None
    stream: bool = False
    media: tuple[Media, ...] = ()
    places: tuple[Place, ...] = ()
    messages: tuple[Message, ...] = ()
    max_tokens: int | None = None
    choices: int = 1
    tools: bool = False
    thinking: bool = False
    text_bytes: int = 0
    model_place: tuple[int, int] | None = None
    options: Options = NO_OPTIONS
    unread: bool = False


class _Body(msgspec.Struct):
    model: msgspec.Raw = _NULL
    stream: msgspec.Raw = _NULL
    messages: msgspec.Raw = _NULL
    input: msgspec.Raw = _NULL
    prompt: msgspec.Raw = _NULL
    query: msgspec.Raw = _NULL
    queries: msgspec.Raw = _NULL
    documents: msgspec.Raw = _NULL
    items: msgspec.Raw = _NULL
    data_1: msgspec.Raw = _NULL
    data_2: msgspec.Raw = _NULL
    text_1: msgspec.Raw = _NULL
    text_2: msgspec.Raw = _NULL
    tools: msgspec.Raw = _NULL
    max_tokens: msgspec.Raw = _NULL
    max_completion_tokens: msgspec.Raw = _NULL
    max_output_tokens: msgspec.Raw = _NULL
    n: msgspec.Raw = _NULL
    chat_template_kwargs: msgspec.Raw = _NULL
    mm_processor_kwargs: msgspec.Raw = _NULL
    media_io_kwargs: msgspec.Raw = _NULL


class _Message(msgspec.Struct):
    role: msgspec.Raw = _NULL
    content: msgspec.Raw = _NULL
    output: msgspec.Raw = _NULL
    tool_calls: msgspec.Raw = _NULL


class _Part(msgspec.Struct):
    type: msgspec.Raw = _NULL
    text: msgspec.Raw = _NULL
    image_url: msgspec.Raw = _NULL
    image: msgspec.Raw = _NULL
    input_image: msgspec.Raw = _NULL
    video_url: msgspec.Raw = _NULL
    video: msgspec.Raw = _NULL
    audio_url: msgspec.Raw = _NULL
    input_audio: msgspec.Raw = _NULL
    file: msgspec.Raw = _NULL
    content: msgspec.Raw = _NULL
    output: msgspec.Raw = _NULL


class _Source(msgspec.Struct):
    url: msgspec.Raw = _NULL
    data: msgspec.Raw = _NULL
    file_data: msgspec.Raw = _NULL


class _Kwargs(msgspec.Struct):
    enable_thinking: msgspec.Raw = _NULL


_ROLES = {b'"%b"' % role.encode(): role for role in ("user", "assistant", "tool", "system", "developer")}


class FactsReader:
    """Reads the facts of bodies. Holds the decoders, which are costly to make."""

    def __init__(self) -> None:
        self._body = msgspec.json.Decoder(_Body)
        self._text = msgspec.json.Decoder(str)
        self._number = msgspec.json.Decoder(int)
        self._kwargs = msgspec.json.Decoder(_Kwargs)
        self._object = msgspec.json.Decoder(dict[str, object])
        self._decoders = _Decoders()

    def read(self, skeleton: Skeleton, locate: Callable[[int], int] | None = None) -> Facts:
        """Raises `InvalidJson`; a field of an unexpected type is left to the upstream to complain about.

        `locate` tells the place in the body of a place in the skeleton, when the skeleton itself cannot.
        """
        body = scan.decode(skeleton.text, self._body)
        walk = _Walk(self._decoders, skeleton, locate or skeleton.locate)
        model = None if body.model is _NULL else _lenient(body.model, self._text)
        try:
            walk.all(body)
            model_place = None if model is None else walk.place_of_scalar(body.model)
        except _Moved:
            return self.read(replace(skeleton, text=scan.mend(skeleton.text)), locate)
        tools = body.tools is not _NULL and bytes(body.tools) not in (b"[]", b"null")
        return Facts(
            size=skeleton.size,
            model=model,
            stream=bytes(body.stream) == b"true",
            media=tuple(walk.media),
            places=tuple(walk.places),
            messages=tuple(walk.messages),
            max_tokens=self._max_tokens(body),
            choices=self._natural(body.n) or 1,
            tools=tools,
            thinking=self._thinks(body.chat_template_kwargs),
            text_bytes=walk.text_bytes + (len(body.tools) if tools else 0),
            model_place=model_place,
            options=self._options(body),
            unread=walk.unread,
        )

    def _max_tokens(self, body: _Body) -> int | None:
        for raw in (body.max_completion_tokens, body.max_tokens, body.max_output_tokens):
            found = self._natural(raw)
            if found is not None:
                return found
        return None

    def _natural(self, raw: msgspec.Raw) -> int | None:
        number = None if raw is _NULL else _lenient(raw, self._number)
        return number if number is not None and number >= 0 else None

    def _options(self, body: _Body) -> Options:
        processor, loader = body.mm_processor_kwargs, body.media_io_kwargs
        if processor is _NULL and loader is _NULL:
            return NO_OPTIONS
        return read_options(_lenient(processor, self._object), _lenient(loader, self._object))

    def _thinks(self, raw: msgspec.Raw) -> bool:
        kwargs = None if raw is _NULL else _lenient(raw, self._kwargs)
        return kwargs is not None and bytes(kwargs.enable_thinking) == b"true"


class _Moved(Exception):
    """What was decoded is a mended copy of the skeleton, so that places cannot be told."""


class _Decoders:
    def __init__(self) -> None:
        self.list = msgspec.json.Decoder(list[msgspec.Raw])
        self.message = msgspec.json.Decoder(_Message)
        self.part = msgspec.json.Decoder(_Part)
        self.source = msgspec.json.Decoder(_Source)


class _Walk:
    """One walk over the messages of a body and their parts."""

    def __init__(self, decoders: _Decoders, skeleton: Skeleton, locate: Callable[[int], int]) -> None:
        self.media: list[Media] = []
        self.places: list[Place] = []
        self.messages: list[Message] = []
        self.text_bytes = 0
        self.unread = False
        self._decoders = decoders
        self._text = skeleton.text
        self._strings = skeleton.strings
        self._locate = locate
        self._base: int | None = None
        self._looks = MAX_LOOKS

    def all(self, body: _Body) -> None:
        """Walk over what may hold a prompt: of a chat, a response, a completion; of a score or a ranking."""
        for name in _PROMPTS:
            raw: msgspec.Raw = getattr(body, name)
            if raw is _NULL:
                continue
            text = bytes(raw)
            if text.startswith(b'"'):
                self.text_bytes += text_bytes(text, self._strings)
            elif raw is body.prompt:
                self.text_bytes += len(text)
            elif text.startswith(b"["):
                for message in _lenient(raw, self._decoders.list) or ():
                    self._walk_message(message)
            elif text.startswith(b"{"):
                self._walk_message(raw)

    def place_of_scalar(self, raw: msgspec.Raw) -> tuple[int, int]:
        """Where a short value stands in the body; most stand there once, and are found at once."""
        value = bytes(raw)
        start = self._text.index(value) if self._text.count(value) == 1 else self._offset(raw)
        return self._locate(start), self._locate(start + len(value) - 1) + 1

    def _walk_message(self, raw: msgspec.Raw) -> None:
        self._looks -= 1
        if self._looks < 0:
            self.text_bytes += self._pass_over(raw)
            return
        message = _lenient(raw, self._decoders.message)
        if message is None:
            self.messages.append(Message())
            return
        kinds: set[Modality] = set()
        size = self._walk_content(message.content, kinds, _MAX_DEPTH)
        if message.output is not _NULL:
            size += self._walk_content(message.output, kinds, _MAX_DEPTH)
        if message.tool_calls is not _NULL:
            size += len(message.tool_calls)
        role = _ROLES.get(bytes(message.role), "")
        self.messages.append(Message(role, size, frozenset(kinds) if kinds else _NO_KINDS))
        self.text_bytes += size

    def _walk_content(self, content: msgspec.Raw, kinds: set[Modality], depth: int) -> int:
        """The size of the text of a content, which is a string or a list of parts."""
        text = bytes(content)
        if text.startswith(b'"'):
            return text_bytes(text, self._strings)
        if not text.startswith(b"["):
            return 0
        size = 0
        for raw in _lenient(content, self._decoders.list) or ():
            self._looks -= 1
            if self._looks < 0:
                size += self._pass_over(raw)
                continue
            part = _lenient(raw, self._decoders.part)
            if part is None:
                continue
            if part.text is not _NULL:
                size += text_bytes(bytes(part.text), self._strings)
            for inner in (part.content, part.output):
                if inner is not _NULL:
                    size += self._walk_content(inner, kinds, depth - 1) if depth else self._pass_over(inner)
            if bytes(part.type) not in _TEXT_TYPES:
                self._walk_part(part, raw, kinds)
        return size

    def _pass_over(self, raw: msgspec.Raw) -> int:
        self.unread = self.unread or _MAY_SHOW.search(bytes(raw)) is not None
        return len(raw)

    def _walk_part(self, part: _Part, raw: msgspec.Raw, kinds: set[Modality]) -> None:
        kind = _TYPES.get(bytes(part.type))
        if kind is not None:
            kinds.add(kind)
        for name, kind in KINDS.items():
            value: msgspec.Raw = getattr(part, name)
            if value is _NULL:
                continue
            source = _lenient(value, self._decoders.source)
            if source is not None:
                texts = (source.url, source.data, source.file_data)
                value = next((r for r in texts if bytes(r).startswith(b'"')), _NULL)
            text = bytes(value)
            if not text.startswith(b'"'):
                continue
            kinds.add(kind)
            if len(self.media) < MAX_MEDIA:
                self.media.append(describe(kind, text[1:-1], self._strings))
                self.places.append(self._place(value, raw))
            else:
                self.unread = True

    def _place(self, value: msgspec.Raw, part: msgspec.Raw) -> Place:
        first, outer = self._offset(value), self._offset(part)
        return Place(
            self._locate(first) + 1,
            self._locate(first + len(value) - 1),
            self._locate(outer),
            self._locate(outer + len(part) - 1) + 1,
            len(self.messages),
        )

    def _offset(self, raw: msgspec.Raw) -> int:
        """Where a value stands in the skeleton: it is a view of it, and msgspec does not tell where."""
        if self._base is None:
            self._base = _address(self._text)
        offset = _address(raw) - self._base
        if not 0 <= offset < len(self._text):
            raise _Moved
        return offset


def _address(view: bytes | msgspec.Raw) -> int:
    found: int = np.frombuffer(view, np.uint8).ctypes.data
    return found


def _lenient(raw: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T | None:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
