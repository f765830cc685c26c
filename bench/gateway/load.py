"""A closed-loop load generator: each client sends its next request when the last answer is whole.

Every answer is compared with the stub's, byte for byte. A status other than 200, a short or wrong answer, a
stream without `[DONE]`, a lost connection and a silent one all count as errors, not as requests.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import random
import struct
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import SplitResult, urlsplit

import uvloop

from bench.gateway.stub import ANSWER, DONE, EVENT, MODEL, whole_stream

_TEXT: Final = "한국어로 자기소개를 한 문장으로 해줘."
_CLIP_TEXT: Final = "이 영상의 시각과 음성을 한국어로 분석해줘."
_CLIP: Final = Path(__file__).resolve().parents[2] / "samples/clips/news/broadcast/0001_0000-0006.mp4"
_RETRY_PAUSE_S: Final = 0.05
_KINDS_OF_ERROR_KEPT: Final = 5


class WrongAnswer(Exception):
    """An answer that is not what the stub sent; the message names the difference."""


@dataclass(frozen=True)
class Plan:
    """One measurement."""

    url: str
    kind: str = "text"
    clients: int = 1
    seconds: float = 3.0
    warm_s: float = 0.5
    stream: bool = False
    headers: tuple[str, ...] = ()
    events: int = 64
    loose: bool = False
    silent_s: float = 30.0
    stub: str | None = None


@dataclass
class Seen:
    """What the clients saw inside the measured span."""

    latencies_s: list[float] = field(default_factory=list)
    first_bytes_s: list[float] = field(default_factory=list)
    events: int = 0
    errors: int = 0
    first_errors: list[str] = field(default_factory=list)
    closing: bool = False

    def add_error(self, words: str) -> None:
        self.errors += 1
        if words not in self.first_errors and len(self.first_errors) < _KINDS_OF_ERROR_KEPT:
            self.first_errors.append(words)


def build_clip(size: int) -> bytes:
    """A real clip of six seconds, made larger by a box of noise that players pass over."""
    clip = _CLIP.read_bytes()
    noise = random.Random(1).randbytes(size - len(clip) - 8)
    return clip + struct.pack(">I4s", len(noise) + 8, b"free") + noise


def build_body(kind: str, stream: bool) -> bytes:
    """A chat request: `text`, or a clip of `kind` megabytes before base64. The same bytes in every run."""
    content: list[dict[str, Any]] = [{"type": "text", "text": _TEXT}]
    if kind != "text":
        clip = base64.b64encode(build_clip(int(float(kind) * 1e6))).decode()
        url = {"url": f"data:video/mp4;base64,{clip}"}
        content = [{"type": "video_url", "video_url": url}, {"type": "text", "text": _CLIP_TEXT}]
    messages = [{"role": "user", "content": content}]
    request = {"model": MODEL, "messages": messages, "temperature": 0.3, "max_tokens": 64}
    if stream:
        request["stream"] = True
    return json.dumps(request, ensure_ascii=False).encode()


def build_request(url: SplitResult, body: bytes, headers: tuple[str, ...]) -> bytes:
    """The request as it goes on the wire."""
    lines = [
        f"POST {url.path} HTTP/1.1",
        f"Host: {url.hostname}:{url.port}",
        "Content-Type: application/json",
    ]
    lines += [*headers, f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def join_chunks(framed: bytes) -> bytes | None:
    """The payload of a whole chunked body, or None while the last chunk is missing."""
    pieces: list[bytes] = []
    at = 0
    while True:
        end = framed.find(b"\r\n", at)
        if end < 0:
            return None
        try:
            size = int(framed[at:end].split(b";", 1)[0], 16)
        except ValueError as error:
            raise WrongAnswer("broken chunk framing") from error
        start = end + 2
        if len(framed) < start + size + 2:
            return None
        if size == 0:
            return b"".join(pieces)
        pieces.append(framed[start : start + size])
        at = start + size + 2


def check_answer(payload: bytes, plan: Plan) -> int:
    """Number of events in a right answer (0 when it is not a stream); raises `WrongAnswer`."""
    if not plan.stream:
        if payload == ANSWER:
            return 0
        if plan.loose and _content(payload) == "hello":
            return 0
        raise WrongAnswer(f"body of {len(payload)} bytes is not the {len(ANSWER)} that the stub sent")
    if payload == whole_stream(plan.events):
        return plan.events
    found = [part for part in payload.split(b"\n\n") if part.startswith(b"data: ")]
    if not found or found[-1] + b"\n\n" != DONE:
        raise WrongAnswer("stream without [DONE]")
    count = len(found) - 1
    if count < plan.events or (count > plan.events and not plan.loose):
        raise WrongAnswer(f"stream of {count} events, not {plan.events}")
    if not plan.loose and any(part + b"\n\n" != EVENT for part in found[:-1]):
        raise WrongAnswer("stream with an event that the stub did not send")
    return plan.events


def _content(payload: bytes) -> Any:
    try:
        return json.loads(payload)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        return None


class Client(asyncio.Protocol):
    """One connection of one client: sends a request, collects its answer, sends the next."""

    def __init__(self, request: bytes, plan: Plan, seen: Seen, lost: asyncio.Future[None]) -> None:
        self._request = request
        self._plan = plan
        self._seen = seen
        self._lost = lost
        self._active = True
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class has no common base
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            if self._active:
                self._seen.add_error("connection lost before the answer was whole")
            self._lost.set_result(None)

    def abort(self, words: str) -> None:
        """Gives the connection up and counts it as an error."""
        self._active = False
        self._seen.add_error(words)
        self._transport.abort()

    def close(self) -> None:
        """The measurement is over."""
        self._active = False
        self._transport.abort()

    def _send(self) -> None:
        self._head = b""
        self._body: list[bytes] = []
        self._tail = b""
        self._got = 0
        self._length: int | None = None
        self._first_s = 0.0
        self._active = True
        self.sent_at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, received: bytes) -> None:
        if not self._active:
            return
        try:
            payload = self._collect(received)
            if payload is None:
                return
            events = check_answer(payload, self._plan)
        except (WrongAnswer, ValueError) as error:
            self.abort(str(error))
            return
        now = time.perf_counter()
        self._seen.latencies_s.append(now - self.sent_at)
        self._seen.first_bytes_s.append(self._first_s)
        self._seen.events += events
        if self._closes or self._seen.closing:
            self.close()
        else:
            self._send()

    def _collect(self, received: bytes) -> bytes | None:
        """The payload once it is whole."""
        if not self._first_s:
            received = self._head + received
            end = received.find(b"\r\n\r\n")
            if end < 0:
                self._head = received
                return None
            self._read_head(received[:end].lower())
            received = received[end + 4 :]
        self._body.append(received)
        self._got += len(received)
        if self._length is not None:
            if self._got < self._length:
                return None
            if self._got > self._length:
                raise WrongAnswer("bytes after the end of the answer")
            return b"".join(self._body)
        self._tail = (self._tail + received[-5:])[-5:]
        if self._tail == b"0\r\n\r\n":
            return join_chunks(b"".join(self._body))
        return None

    def _read_head(self, head: bytes) -> None:
        self._first_s = time.perf_counter() - self.sent_at
        if not head.startswith(b"http/1.1 200"):
            raise WrongAnswer(head.split(b"\r\n", 1)[0].decode("latin-1"))
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            self._length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        elif b"\r\ntransfer-encoding: chunked" not in head:
            raise WrongAnswer("answer without a length")
        self._closes = b"\r\nconnection: close" in head


def _same(client: Client) -> Client:
    return client


async def _run_client(url: SplitResult, request: bytes, plan: Plan, seen: Seen) -> None:
    """One client until the measurement closes; connects again when its connection ends."""
    loop = asyncio.get_running_loop()
    while not seen.closing:
        lost: asyncio.Future[None] = loop.create_future()
        client = Client(request, plan, seen, lost)
        try:
            await loop.create_connection(partial(_same, client), url.hostname or "", url.port or 80)
        except OSError as error:
            seen.add_error(f"connect: {error.strerror or type(error).__name__}")
            await asyncio.sleep(_RETRY_PAUSE_S)
            continue
        errors_before = seen.errors
        try:
            while not lost.done():
                await asyncio.wait([lost], timeout=min(1.0, plan.silent_s))
                if not lost.done() and time.perf_counter() - client.sent_at > plan.silent_s:
                    client.abort(f"no whole answer within {plan.silent_s:g} s")
        finally:
            client.close()
        if seen.errors != errors_before:
            await asyncio.sleep(_RETRY_PAUSE_S)


async def _fetch(url: str) -> bytes:
    """A GET whose answer ends with its Content-Length."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        return await reader.readexactly(length)
    finally:
        writer.close()


async def _sees_same_body(plan: Plan, url: SplitResult, request: bytes, body: bytes) -> bool:
    """Sends one request while the stub takes the SHA-256 of what it gets."""
    await _fetch(f"{plan.stub}/arm")
    reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=2**22)
    try:
        writer.write(request)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), plan.silent_s)
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        return False
    finally:
        writer.close()
    told = json.loads(await _fetch(f"{plan.stub}/stats"))
    return bool(told["last_sha256"] == hashlib.sha256(body).hexdigest())


def summarise(plan: Plan, seen: Seen, span_s: float) -> dict[str, Any]:
    """What a measurement found, with times in milliseconds."""
    latencies = sorted(seen.latencies_s)
    firsts = sorted(seen.first_bytes_s)
    count = len(latencies)

    def at(times: list[float], part: float) -> float | None:
        return round(times[min(count - 1, int(count * part))] * 1e3, 4) if count else None

    return {
        "kind": plan.kind,
        "clients": plan.clients,
        "stream": plan.stream,
        "seconds": round(span_s, 3),
        "requests": count,
        "requests_per_s": round(count / span_s, 2),
        "p50_ms": at(latencies, 0.5),
        "p99_ms": at(latencies, 0.99),
        "first_byte_p50_ms": at(firsts, 0.5),
        "events_per_s": round(seen.events / span_s, 1),
    }


async def measure(plan: Plan) -> dict[str, Any]:
    """Runs one measurement. `body_intact` is None when no stub was named."""
    url = urlsplit(plan.url)
    body = build_body(plan.kind, plan.stream)
    request = build_request(url, body, plan.headers)
    intact = await _sees_same_body(plan, url, request, body) if plan.stub else None
    seen = Seen()
    tasks = [asyncio.create_task(_run_client(url, request, plan, seen)) for _ in range(plan.clients)]
    await asyncio.sleep(plan.warm_s)
    warm_errors = seen.errors
    seen.latencies_s, seen.first_bytes_s, seen.events, seen.errors = [], [], 0, 0
    began = time.perf_counter()
    await asyncio.sleep(plan.seconds)
    result = summarise(plan, seen, time.perf_counter() - began)
    await _close(tasks, plan, seen)
    told = {"errors": seen.errors, "warm_errors": warm_errors, "first_errors": seen.first_errors}
    return result | told | {"body_bytes": len(body), "body_intact": intact}


async def _close(tasks: list[asyncio.Task[None]], plan: Plan, seen: Seen) -> None:
    """Lets every request that is under way come to its end; one that does not is an error."""
    seen.closing = True
    _, hanging = await asyncio.wait(tasks, timeout=plan.silent_s + 1)
    for task in hanging:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if hanging:
        seen.add_error(f"no whole answer within {plan.silent_s:g} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Closed-loop load; prints one JSON object.")
    parser.add_argument("url")
    parser.add_argument("--kind", default="text", help="'text' or the megabytes of a clip, such as 1.25")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm", type=float, default=0.5, metavar="SECONDS")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--header", action="append", default=[], metavar="NAME: VALUE")
    parser.add_argument("--events", type=int, default=64, help="events that the stub sends in a stream")
    parser.add_argument(
        "--loose", action="store_true", help="accept the same words in another JSON, and more events"
    )
    parser.add_argument(
        "--silent", type=float, default=30.0, metavar="SECONDS", help="longest wait for an answer"
    )
    parser.add_argument("--stub", help="base URL of the stub, to compare the SHA-256 of a body on both sides")
    args = parser.parse_args()
    plan = Plan(
        url=args.url,
        kind=args.kind,
        clients=args.clients,
        seconds=args.seconds,
        warm_s=args.warm,
        stream=args.stream,
        headers=tuple(args.header),
        events=args.events,
        loose=args.loose,
        silent_s=args.silent,
        stub=args.stub,
    )
    result = uvloop.run(measure(plan))
    print(json.dumps(result, ensure_ascii=False))
    sys.exit(1 if result["errors"] or not result["requests"] else 0)


if __name__ == "__main__":
    main()
