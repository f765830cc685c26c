"""A stub upstream that costs next to nothing, so that a gateway in front of it is what gets measured.

A POST is answered with one fixed completion, or with SSE when its body says `"stream": true`. GET answers
`/v1/models`, `/health`, `/stats` (what arrived) and `/arm` (take the SHA-256 of the next body). The
stream flag is looked for near the borders of what each read brings, never inside megabytes of base64.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Final, cast

import uvloop

MODEL: Final = "qwen"
ANSWER: Final = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1780911108,"model":"qwen","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":23,"total_tokens":28,"completion_tokens":5}}'
)
EVENT: Final = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1780911108,"model":"qwen",'
    b'"choices":[{"index":0,"delta":{"content":"tok "},"finish_reason":null}]}\n\n'
)
DONE: Final = b"data: [DONE]\n\n"
MODELS: Final = (
    b'{"object":"list","data":[{"id":"qwen","object":"model","created":1780911108,"owned_by":"vllm",'
    b'"root":"qwen","max_model_len":32768}]}'
)
_STREAM_MARKS: Final = (b'"stream":true', b'"stream": true')
_MARK_REACH: Final = max(len(mark) for mark in _STREAM_MARKS) - 1
_REACH: Final = 2_048
_MAX_HEAD_BYTES: Final = 65_536


@dataclass(frozen=True)
class Pace:
    """How the stub answers: time before an answer, events of a stream, time between events."""

    latency_s: float = 0.0
    events: int = 64
    gap_s: float = 0.0


@dataclass
class Tally:
    """What arrived since the stub started."""

    requests: int = 0
    body_bytes: int = 0
    armed: bool = False
    last_sha256: str = ""
    last_bytes: int = 0

    def as_json(self) -> bytes:
        return json.dumps(self.__dict__).encode()


def whole_stream(events: int) -> bytes:
    """All bytes of a streamed answer, without chunk framing."""
    return EVENT * events + DONE


def frame(payload: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def answer_head(length: int | None, content_type: bytes) -> bytes:
    """The head of a 200; chunked when the length is not known."""
    size = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n" % (content_type, size)


@dataclass
class _Request:
    """One request while it arrives."""

    verb: bytes
    path: bytes
    left: int
    chunked: bool
    streams: bool = False
    tail: bytes = b""
    pieces: list[bytes] = field(default_factory=list)
    keep: bool = False
    size: int = 0

    def take(self, piece: bytes) -> None:
        """Counts a piece of the body and looks for the stream flag, also across the border of two pieces."""
        self.size += len(piece)
        if self.keep:
            self.pieces.append(piece)
        if self.streams:
            return
        near = (
            self.tail + piece
            if len(piece) <= 2 * _REACH
            else self.tail + piece[:_REACH] + b"\n" + piece[-_REACH:]
        )
        self.streams = any(mark in near for mark in _STREAM_MARKS)
        self.tail = near[-_MARK_REACH:]


class StubProtocol(asyncio.Protocol):
    """One connection. Requests may be pipelined; answers leave in order, one at a time."""

    def __init__(self, pace: Pace, tally: Tally) -> None:
        self._pace = pace
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._answer = answer_head(len(ANSWER), b"application/json") + ANSWER
        self._stream_head = answer_head(None, b"text/event-stream; charset=utf-8")
        self._event = frame(EVENT)
        self._end = frame(DONE) + b"0\r\n\r\n"
        self._rest = b""
        self._request: _Request | None = None
        self._waiting: deque[_Request] = deque()
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class has no common base

    def data_received(self, received: bytes) -> None:
        if self._rest:
            received, self._rest = self._rest + received, b""
        while received and not self._transport.is_closing():
            request = self._request
            if request is None:
                received = self._read_head(received)
            elif request.chunked:
                received = self._read_chunks(request, received)
            else:
                received = self._read_counted(request, received)

    def _read_head(self, received: bytes) -> bytes:
        end = received.find(b"\r\n\r\n")
        if end < 0:
            self._rest = received
            if len(received) > _MAX_HEAD_BYTES:
                self._transport.close()
            return b""
        head = received[:end].lower()
        verb, path = head.split(b" ", 2)[:2]
        if b"\r\nexpect: 100-continue" in head:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        chunked = b"\r\ntransfer-encoding: chunked" in head
        at = head.find(b"\r\ncontent-length:")
        left = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        self._request = _Request(verb, path, left, chunked, keep=self._tally.armed and verb == b"post")
        if not chunked and left == 0:
            self._whole(self._request)
        return received[end + 4 :]

    def _read_counted(self, request: _Request, received: bytes) -> bytes:
        if len(received) < request.left:
            request.left -= len(received)
            request.take(received)
            return b""
        piece, rest = received[: request.left], received[request.left :]
        request.take(piece)
        self._whole(request)
        return rest

    def _read_chunks(self, request: _Request, received: bytes) -> bytes:
        """Reads as much as is there. `left` counts what is missing of a chunk, its closing CRLF included."""
        at, length = 0, len(received)
        while at < length:
            if request.left:
                step = min(request.left, length - at)
                if request.left > 2:
                    request.take(received[at : at + min(step, request.left - 2)])
                request.left -= step
                at += step
                continue
            end = received.find(b"\r\n", at)
            if end < 0:
                break
            size = int(received[at:end].split(b";", 1)[0], 16)
            if size:
                request.left = size + 2
                at = end + 2
            elif length < end + 4:
                break
            else:
                self._whole(request)
                return received[end + 4 :]
        self._rest = received[at:]
        return b""

    def _whole(self, request: _Request) -> None:
        self._request = None
        if request.verb == b"post":
            self._tally.requests += 1
            self._tally.body_bytes += request.size
            if request.keep:
                digest = hashlib.sha256(b"".join(request.pieces))
                request.pieces.clear()
                self._tally.last_sha256, self._tally.last_bytes = digest.hexdigest(), request.size
                self._tally.armed = False
        if self._busy:
            self._waiting.append(request)
        else:
            self._reply(request)

    def _reply(self, request: _Request) -> None:
        if request.verb != b"post":
            self._write_page(request.path)
        elif self._pace.latency_s:
            self._busy = True
            self._loop.call_later(self._pace.latency_s, self._reply_now, request)
        else:
            self._reply_now(request)

    def _reply_now(self, request: _Request) -> None:
        if self._transport.is_closing():
            return
        if request.streams:
            self._busy = True
            self._transport.write(self._stream_head)
            self._loop.call_soon(self._write_event, self._pace.events)
            return
        self._transport.write(self._answer)
        self._next()

    def _write_event(self, left: int) -> None:
        if self._transport.is_closing():
            return
        if left == 0:
            self._transport.write(self._end)
            self._next()
            return
        self._transport.write(self._event)
        if self._pace.gap_s:
            self._loop.call_later(self._pace.gap_s, self._write_event, left - 1)
        else:
            self._loop.call_soon(self._write_event, left - 1)

    def _write_page(self, path: bytes) -> None:
        page = b'{"ok": true}'
        if path.startswith(b"/v1/models"):
            page = MODELS
        elif path == b"/arm":
            self._tally.armed = True
        elif path == b"/stats":
            page = self._tally.as_json()
        self._transport.write(answer_head(len(page), b"application/json") + page)
        self._next()

    def _next(self) -> None:
        self._busy = False
        if self._waiting:
            self._loop.call_soon(self._reply, self._waiting.popleft())
            self._busy = True


async def listen(host: str, port: int, pace: Pace) -> asyncio.Server:
    """Starts the stub on the running loop; port 0 takes a free one."""
    tally = Tally()
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: StubProtocol(pace, tally), host, port, backlog=4096)


async def _serve(host: str, port: int, pace: Pace) -> None:
    server = await listen(host, port, pace)
    print(f"listening on {host}:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="Stub OpenAI upstream for benchmarks.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9100)
    parser.add_argument(
        "--latency-ms", type=float, default=0.0, help="time before the first byte of an answer"
    )
    parser.add_argument(
        "--events", type=int, default=64, help="events of a streamed answer, [DONE] not counted"
    )
    parser.add_argument("--gap-ms", type=float, default=0.0, help="time between two events")
    args = parser.parse_args()
    pace = Pace(args.latency_ms / 1000, args.events, args.gap_ms / 1000)
    uvloop.run(_serve(args.host, args.port, pace))


if __name__ == "__main__":
    main()
