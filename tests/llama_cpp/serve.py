"""llama.cpp's own HTTP server: `python serve.py PORT MODEL.gguf [MMPROJ.gguf]`; ends on SIGTERM."""

from __future__ import annotations

import signal
import sys

import xllamacpp


def serve(port: int, model: str, mmproj: str | None) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 32_768  # 16,384 per slot: a reply that long lasts seconds, so that it can be left
    params.n_parallel = 2
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = params.endpoint_slots = True
    params.use_jinja = True
    if mmproj:
        params.mmproj.path = mmproj
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # before the server's threads inherit the mask
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 - tells the parent that it listens
    signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
