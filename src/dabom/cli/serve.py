"""`dabom serve`: the gateway as a process."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  # typer reads it
from typing import Annotated

import typer

from dabom.app import Settings, load_settings, serve
from dabom.cli.language import choose_language, tell
from dabom.cli.options import takes
from dabom.errors import ConfigError


@dataclass(frozen=True)
class ServeOptions:
    """Where `dabom serve` listens and what it reads."""

    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="주소 · address to listen on (127.0.0.1)")
    ] = None
    port: Annotated[
        int | None, typer.Option(metavar="N", help="포트 · port to listen on (8001)", min=0, max=65535)
    ] = None
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="설정 파일 · YAML file with settings")
    ] = None


@takes(ServeOptions)
def serve_gateway(options: ServeOptions) -> None:
    """게이트웨이를 띄웁니다. · Start the gateway.

    업스트림은 VLLM_BASE_URL이나 설정 파일로 정합니다. 없으면 내장 리더를 함께 띄웁니다.
    SIGHUP을 보내면 요청을 끊지 않고 설정을 다시 읽습니다.
    · Upstreams come from VLLM_BASE_URL or the file; without any, the built-in reader is started too.
    SIGHUP reads the settings anew and drops no request.
    """

    def load() -> Settings:
        return load_settings(options.config, host=options.host, port=options.port)

    try:
        serve(load(), load)
    except ConfigError as error:
        sys.stderr.write(tell(error, choose_language(None, os.environ), "") + "\n")
        raise typer.Exit(2) from None
