"""The commands. One file each."""

from __future__ import annotations

import typer

from dabom.cli.chat import chat
from dabom.cli.demo import demo
from dabom.cli.serve import serve_gateway

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        help="다봄: 자체 하드웨어의 멀티모달 모델을 위한 게이트웨이 · a gateway for multimodal models",
    )
    app.command("serve")(serve_gateway)
    app.command("chat")(chat)
    app.command("demo")(demo)
    app()
