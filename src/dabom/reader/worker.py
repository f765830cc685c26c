"""One worker process: takes jobs on stdin, looks, writes readings to stdout.

A process of its own, so that hostile media can neither hang nor kill the server, and so that a client that
leaves frees its place at once. Each message is four bytes of length and msgpack.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from dabom.errors import ClientError
from dabom.reader.findings import Job, Reading

if TYPE_CHECKING:
    from dabom.reader.reading import Reader

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends; elsewhere the closed pipe has to do."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit(1)


def serve(jobs: BinaryIO, readings: BinaryIO, reader: Reader) -> None:
    """Answer jobs until the pipe closes."""
    take, give = msgspec.msgpack.Decoder(Job), msgspec.msgpack.Encoder()
    while True:
        head = jobs.read(4)
        if len(head) < 4:
            return
        job = take.decode(jobs.read(int.from_bytes(head, "big")))
        try:
            found = reader.read(job)
        except ClientError as fault:
            found = Reading(fault=fault.message, param=fault.param)
        except MemoryError:
            found = Reading(fault="media needs more memory than the reader may use")
        except Exception as fault:  # noqa: BLE001 - a fault of the reader itself; its message could hold what was read
            found = Reading(fault=f"the reader failed ({type(fault).__name__})", broken=True)
        answer = give.encode(found)
        readings.write(len(answer).to_bytes(4, "big") + answer)
        readings.flush()


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--whisper-model", type=Path)
    parser.add_argument("--max-bytes", type=int, required=True)
    given = parser.parse_args()
    die_with_parent()
    # Workers run side by side: threads inside one would only take another's core.
    os.environ["OMP_THREAD_LIMIT"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if given.whisper_model is None:
        resource.setrlimit(resource.RLIMIT_AS, (given.max_bytes, given.max_bytes))
    readings = os.fdopen(os.dup(1), "wb")
    # Libraries that print must not break the framing.
    os.dup2(2, 1)
    from dabom.reader.reading import Reader

    serve(sys.stdin.buffer, readings, Reader(given.whisper_model))


if __name__ == "__main__":
    main()
