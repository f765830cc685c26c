"""A GGUF served until SIGTERM or the end of the input."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

_MOST_TOKENS = 2**31 - 1
"""llama.cpp counts the context of all slots in 32 bits."""


def main() -> int:
    """Serve until a signal; 1 when it cannot be served, 2 when there is no wheel or no file."""
    given = _read_arguments()
    for file in (given.model, given.mmproj):
        if file is not None and not file.is_file():
            return _refuse(f"{file} is no file")
    if given.slots * given.context > _MOST_TOKENS:
        told = f"{given.slots} slots of {given.context:,} tokens are too much"
        return _refuse(f"{told}; llama.cpp takes {_MOST_TOKENS:,} tokens in all")
    try:
        import xllamacpp
    except ImportError:
        return _refuse("the wheel xllamacpp is not installed; install dabom[llama-cpp]")
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # before the server's threads inherit the mask
    if given.with_parent:
        threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        server = xllamacpp.Server(_params(xllamacpp.CommonParams(), given))
    except RuntimeError:  # llama.cpp has told the reason on standard error
        _refuse(f"{given.model} cannot be served on port {given.port}")
        return 1
    sys.stderr.write(f"llama.cpp listens on {server.listening_address}\n")
    signal.sigwait([signal.SIGTERM])
    return 0


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dabom.llama_cpp", description="llama.cpp for one GGUF.")
    parser.add_argument("--model", type=Path, required=True, metavar="FILE", help="the GGUF")
    parser.add_argument("--mmproj", type=Path, metavar="FILE", help="its vision part")
    parser.add_argument("--alias", default="model", help="the model's name in /v1/models")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, default=4, help="requests at a time")
    parser.add_argument("--context", type=int, default=8192, help="tokens of each request, with its answer")
    parser.add_argument(
        "--with-parent", action="store_true", help="end when the standard input, which a parent holds, ends"
    )
    return parser.parse_args()


def _params(params: Any, given: argparse.Namespace) -> Any:
    """xllamacpp's `CommonParams` with what the command line says."""
    params.model.path = str(given.model)
    params.model_alias = {given.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = given.port
    params.n_parallel = given.slots
    params.n_ctx = given.slots * given.context  # llama.cpp divides it among the slots
    params.endpoint_metrics = params.use_jinja = True
    if given.mmproj is not None:
        params.mmproj.path = str(given.mmproj)
    return params


def _end_with_input() -> None:
    """Ask this process to end once its parent has: the system closes the pipe that the parent held."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _refuse(reason: str) -> int:
    sys.stderr.write(f"dabom.llama_cpp: {reason}\n")
    return 2
