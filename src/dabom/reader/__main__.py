"""`python -m dabom.reader`: serve the reader."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import uvicorn

from dabom.reader.app import ReaderApp
from dabom.reader.settings import ReaderSettings

_PARENT_CHECK_S = 0.5


def main() -> int:
    """Serve until a signal; 2 when the Whisper directory cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m dabom.reader", description="The built-in upstream of Dabom."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument(
        "--workers", type=int, default=None, help="processes that look at media; default: one a core"
    )
    parser.add_argument(
        "--whisper-model", type=Path, help="directory of a faster-whisper model, for speech to text"
    )
    parser.add_argument(
        "--with-parent",
        type=int,
        metavar="PID",
        help="end when the parent process ends; its PID, as it may end while this one starts",
    )
    given = parser.parse_args()
    if given.with_parent is not None:
        _end_with_parent(given.with_parent)
    if given.whisper_model is not None:
        problem = _whisper_problem(given.whisper_model)
        if problem:
            sys.stderr.write(f"dabom.reader: {problem}\n")
            return 2
    chosen = {"workers": given.workers} if given.workers else {}
    settings = ReaderSettings(whisper_model=given.whisper_model, **chosen)
    config = uvicorn.Config(
        ReaderApp(settings),
        given.host,
        given.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt):  # uvicorn raises it again once it has stopped in order
        server.run()
    return 0 if server.started else 1


def _end_with_parent(parent: int) -> None:
    """Ask this process to end once its parent has.

    Watched from a thread: Linux's own signal would also come when only the thread that started us ends.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _whisper_problem(folder: Path) -> str | None:
    if not (folder / "model.bin").is_file():
        return f"{folder} holds no model.bin of a faster-whisper model"
    if find_spec("faster_whisper") is None:
        return "faster-whisper is not installed; install dabom[whisper]"
    return None


if __name__ == "__main__":
    sys.exit(main())
