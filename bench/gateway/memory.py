"""Peak memory of the gateway while large batches run through it.

The body is made while it is sent. Every id has to come back exactly once, with status 200 and the stub's
answer. Each case gets a new gateway. The table goes to stdout; exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import uvloop

from bench.gateway.launch import LaunchError, Running, stub_launch
from bench.gateway.load import build_body
from bench.gateway.peers import PEERS, Unavailable, all_peers
from bench.gateway.report import LATEST, PAGE, describe_machine, now, write_between
from bench.gateway.stub import ANSWER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PIECE_BYTES: Final = 262_144
_LIMIT_S: Final = 300.0
_CLIP_MB: Final = 1.25


class BatchError(Exception):
    """An answer to a batch that is not whole or not right."""


@dataclass(frozen=True)
class Case:
    """One batch. `late` reads the answer only when everything has been sent."""

    title: str
    items: int
    ndjson: bool = False
    late: bool = False

    def limit_mb(self, body_bytes: int) -> float:
        """The bar."""
        return 150.0 if self.ndjson else 1.2 * body_bytes / 1e6 + 100


@dataclass(frozen=True)
class Found:
    """What a case took; sizes in MB of 10^6 bytes."""

    title: str
    body_mb: float
    idle_mb: float
    peak_mb: float
    limit_mb: float
    seconds: float
    wrong: str

    @property
    def passed(self) -> bool:
        return not self.wrong and self.peak_mb <= self.limit_mb


def pieces(case: Case, body: bytes) -> Iterator[bytes]:
    """The batch, item by item; no more than one item exists at a time."""
    for number in range(case.items):
        head = b'{"id":"i-%d","body":' % number
        if case.ndjson:
            yield head + body + b"}\n"
        else:
            yield (b"," if number else b'{"items":[') + head + body + b"}"
    if not case.ndjson:
        yield b"]}"


def batch_bytes(case: Case, body: bytes) -> int:
    """Length of the whole batch."""
    return sum(len(piece) for piece in pieces(case, body))


async def _send(writer: asyncio.StreamWriter, case: Case, body: bytes, total: int) -> None:
    kind = "application/x-ndjson" if case.ndjson else "application/json"
    size = "Transfer-Encoding: chunked" if case.ndjson else f"Content-Length: {total}"
    lines = (
        "POST /chat/batch HTTP/1.1",
        "Host: bench",
        f"Content-Type: {kind}",
        size,
        *all_peers()["dabom"].headers(""),
    )
    writer.write("\r\n".join((*lines, "", "")).encode())
    for piece in pieces(case, body):
        for at in range(0, len(piece), _PIECE_BYTES):
            part = piece[at : at + _PIECE_BYTES]
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if case.ndjson else part)
            await writer.drain()
    if case.ndjson:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _read(reader: asyncio.StreamReader) -> list[dict[str, Any]]:
    """The lines of the answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        rest = await asyncio.wait_for(reader.read(300), 5)
        raise BatchError(_told(head, rest))
    payload = bytearray()
    while size := int((await reader.readline()).split(b";")[0], 16):
        payload += await reader.readexactly(size)
        await reader.readexactly(2)
    return [json.loads(line) for line in payload.splitlines() if line.strip()]


def _told(head: bytes, rest: bytes) -> str:
    return f"{head.splitlines()[0].decode('latin-1')}: {rest.decode(errors='replace')}"


def check_lines(lines: Sequence[dict[str, Any]], items: int) -> str:
    """What is wrong with the lines of an answer; empty when nothing is."""
    ids = [str(line.get("id")) for line in lines]
    missing = {f"i-{number}" for number in range(items)} - set(ids)
    if missing or len(ids) != items:
        return f"{len(ids)} lines for {items} items, {len(missing)} ids missing"
    answer = json.loads(ANSWER)
    failed = [line for line in lines if line.get("status") != 200 or line.get("body") != answer]
    return f"{len(failed)} wrong lines, the first: {json.dumps(failed[0])[:200]}" if failed else ""


async def _exchange(port: int, case: Case, body: bytes, total: int) -> str:
    """Sends one batch and checks its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if case.late:
            await _send(writer, case, body, total)
            return check_lines(await _read(reader), case.items)
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(writer, case, body, total))
            lines = group.create_task(_read(reader))
        return check_lines(lines.result(), case.items)
    finally:
        writer.close()


def run_case(case: Case, concurrency: int) -> Found:
    """One case against a new gateway and a new stub."""
    body = build_body(str(_CLIP_MB), stream=False)
    total = batch_bytes(case, body)
    logs = PEERS / "logs"
    with Running(stub_launch(), logs / "memory-stub.log") as stub:
        launch = all_peers()["dabom"].launch(stub.base.removeprefix("http://"))
        launch.env["VLLM_CONCURRENCY"] = str(concurrency)
        with Running(launch, logs / "memory-dabom.log") as gateway:
            idle_mb = gateway.peak_rss_mb()
            began = time.monotonic()
            wrong = uvloop.run(_bounded(launch.port, case, body, total))
            seconds = time.monotonic() - began
            peak_mb = gateway.peak_rss_mb()
    limit_mb = case.limit_mb(total)
    title = f"{case.items} items {case.title}"
    return Found(title, total / 1e6, idle_mb, peak_mb, limit_mb, seconds, wrong)


async def _bounded(port: int, case: Case, body: bytes, total: int) -> str:
    try:
        return await asyncio.wait_for(_exchange(port, case, body, total), _LIMIT_S)
    except TimeoutError:
        return f"no whole answer within {_LIMIT_S:g} s"
    except (BatchError, OSError, asyncio.IncompleteReadError) as error:
        return str(error)
    except BaseExceptionGroup as group:
        return "; ".join(str(error) for error in group.exceptions)


def as_markdown(found: Sequence[Found], command: str) -> str:
    """The table."""
    rows = [
        f"| {row.title} | {row.body_mb:.0f} | {row.idle_mb:.0f} | {row.peak_mb:.0f} | {row.limit_mb:.0f} "
        f"| {row.seconds:.1f} | {'PASS' if row.passed else 'FAIL'}{' ' + row.wrong if row.wrong else ''} |"
        for row in found
    ]
    head = "| batch | body MB | idle MB | peak MB | bar MB | s | |\n|---|---:|---:|---:|---:|---:|---|"
    return "\n".join([f"{now()}; {describe_machine()}. Command: `{command}`\n", head, *rows]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Peak memory of the gateway with large batches.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the items; for a first look")
    parser.add_argument("--concurrency", type=int, default=4, help="permits of the gateway")
    args = parser.parse_args(argv)
    part = 10 if args.quick else 1
    cases = [
        Case("as one JSON batch", 128 // part),
        Case("as NDJSON, read while sending", 500 // part, ndjson=True),
        Case("as NDJSON, read after sending", 500 // part, ndjson=True, late=True),
    ]
    found: list[Found] = []
    try:
        all_peers()["dabom"].install()
        for case in cases:
            found.append(run_case(case, args.concurrency))
            print(
                f"{found[-1].title}: {found[-1].peak_mb:.0f} MB {found[-1].wrong}",
                file=sys.stderr,
                flush=True,
            )
    except (Unavailable, LaunchError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = as_markdown(found, "python -m bench.gateway.memory" + (" --quick" if args.quick else ""))
    print(text)
    if not args.quick:
        LATEST.parent.mkdir(parents=True, exist_ok=True)
        (LATEST.parent / "memory.json").write_text(
            json.dumps([asdict(row) for row in found], indent=1) + "\n"
        )
        write_between(PAGE, "memory", text)
    return 0 if all(row.passed for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
