"""What a run asks and how: its settings, kept with the run, so that a resumed run asks in the same way."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from dabom.client import analysis_schema
from dabom.client.clip import PROMPT
from dabom.families import FAMILIES, find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dabom.families import Family

Form: TypeAlias = Literal["video", "frames"]
CONTROLS = ("blackout", "mute", "freeze")
"""The kinds of control that a run can make of one clip alone."""


@dataclass(frozen=True)
class RunSettings:
    """How every clip of a run is asked about.

    `family` is a family's name, or empty when nobody knows the model: then it is asked as Omni is, and its
    token counts are not checked. `schema` is a JSON Schema, None the four fields of `AnalysisResult`.
    """

    model: str
    family: str = ""
    prompt: str = PROMPT
    schema: dict[str, Any] | None = None
    fps: float = 2.0
    form: Form = "video"
    sound: bool = True
    temperature: float = 0.3
    seed: int = 0
    max_tokens: int = 1024
    controls: tuple[str, ...] = ()
    every: int = 10

    @property
    def known_family(self) -> Family | None:
        """The family, when it is known."""
        return FAMILIES.get(self.family)

    @property
    def hears(self) -> bool:
        """The sound is asked about: it is wanted, and the family is not one without ears."""
        family = self.known_family
        return self.sound and (family is None or family.hearing is not None)

    @property
    def protocol(self) -> str:
        """How picture and sound reach the model. Results of two protocols are never compared."""
        if self.form == "frames":
            return "separate" if self.hears else "frames"
        return "interleaved" if self.hears else "video"

    @property
    def answer_schema(self) -> dict[str, Any]:
        """The JSON Schema of an answer."""
        return analysis_schema() if self.schema is None else self.schema

    @property
    def prompt_sha256(self) -> str:
        """What tells two prompts apart."""
        return hashlib.sha256(self.prompt.encode()).hexdigest()

    @property
    def schema_sha256(self) -> str:
        """What tells two schemas apart, whatever the order of their keys."""
        return hashlib.sha256(msgspec.json.encode(self.answer_schema, order="sorted")).hexdigest()

    def stored(self) -> dict[str, Any]:
        """As it is written with the run."""
        return asdict(self)


def stored_settings(stored: Mapping[str, Any]) -> RunSettings:
    """The settings of a run that was written before."""
    return msgspec.convert(dict(stored), RunSettings)


def family_name(model: str) -> str:
    """The family of a model's name; empty when it is not known."""
    family = find(model)
    return "" if family is None else family.name
