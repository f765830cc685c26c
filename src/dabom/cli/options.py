"""Commands whose options are the fields of one frozen value."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def takes(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Give a command the fields of the dataclass `options` as its arguments and options.

    Typer reads a function's signature; this makes one from the fields, so that a command with ten options
    stays a function of one parameter.
    """
    hints = get_type_hints(options, include_extras=True)

    def wrap(command: Callable[[T], None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            command(options(**given))

        parameters = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(field.default, field.default_factory),
                annotation=hints[field.name],
            )
            for field in fields(options)  # type: ignore[arg-type]  # a dataclass, by the contract above
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {name: hints[name] for name in (field.name for field in parameters)}
        run.__name__ = command.__name__
        run.__doc__ = command.__doc__
        return run

    return wrap


def _default(value: Any, factory: Any) -> Any:
    if value is not MISSING:
        return value
    return inspect.Parameter.empty if factory is MISSING else factory()
