"""A group of commands whose files are imported when a command is used: `--help` needs none of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Mapping


def build_group(commands: Mapping[str, tuple[str, str, str]], told: str) -> typer.Typer:
    """The group. By its name each command has its module, its function or group, and what `--help` says."""

    class Group(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            return name, command if name is None else _load(name, *commands[name][:2]), rest

    app = typer.Typer(
        cls=Group, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=told
    )
    for name, (_, _, words) in commands.items():
        app.command(name, help=words)(_stand_in)
    return app


def _stand_in() -> None:
    """What the list of commands shows; the group puts the real command in its place."""


def _load(name: str, module: str, function: str) -> Any:
    found = getattr(import_module(module), function)
    if isinstance(found, typer.Typer):  # a command with commands of its own
        return typer.main.get_command(found)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name)(found)
    return typer.main.get_command(app)
