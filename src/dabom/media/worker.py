"""A process that makes pictures smaller: base64 in on stdin, base64 out on stdout.

A process of its own, because some decoders keep the interpreter to themselves for longer than a stream may
wait for its next token, and because what hostile bytes do to it ends with it.
Each message is a line of JSON, which tells the size of the text that follows.
"""

from __future__ import annotations

import argparse
import binascii
import ctypes
import os
import resource
import signal
import sys
from typing import BinaryIO

import msgspec

from dabom.errors import InvalidMedia
from dabom.media.sources import unescape

_PR_SET_PDEATHSIG = 1
_MAX_BYTES = 4 * 2**30
"""Address space: a picture of 100 million pixels needs a good part of it, and nothing needs more."""


class Job(msgspec.Struct, frozen=True):
    """What to do with the `size` characters of base64 that follow, which may hold escapes of JSON."""

    size: int
    max_pixels: int
    factor: int
    max_decoded_pixels: int


class Done(msgspec.Struct, frozen=True):
    """What became of it: `size` characters of base64 follow, or `fault` says why there are none."""

    size: int = 0
    mime: str = ""
    sides: tuple[int, int] = (0, 0)
    was: tuple[int, int] = (0, 0)
    fault: str = ""
    code: str = ""


def work(job: Job, text: bytes) -> tuple[Done, bytes]:
    """Do one job."""
    from dabom.media.normalise import scale_picture  # Pillow is loaded in the process that decodes

    try:
        content = binascii.a2b_base64(unescape(text), strict_mode=True)
        scaled = scale_picture(content, job.max_pixels, job.factor, job.max_decoded_pixels)
    except binascii.Error:
        return Done(fault="the picture is not valid base64", code=InvalidMedia.code), b""
    except InvalidMedia as fault:
        return Done(fault=fault.message, code=fault.code), b""
    found = binascii.b2a_base64(scaled.content, newline=False)
    return Done(len(found), scaled.mime, scaled.size, scaled.was), found


def serve(jobs: BinaryIO, results: BinaryIO) -> None:
    """Do jobs until the pipe closes."""
    while line := jobs.readline():
        job = msgspec.json.decode(line, type=Job)
        done, text = work(job, jobs.read(job.size))
        results.write(msgspec.json.encode(done) + b"\n")
        results.write(text)
        results.flush()


def _end_with_parent() -> None:
    """Ask Linux to end this process when its parent ends; elsewhere the closed pipe has to do."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit(1)


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nice", type=int, default=5)
    given = parser.parse_args()
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(given.nice)  # the tokens of a stream come first where there are few cores
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not break the framing
    serve(sys.stdin.buffer, results)


if __name__ == "__main__":
    main()
