"""What a request asks for, and what a target can take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dabom.gateway.routing.settings import Modality, Task
    from dabom.gateway.settings import UpstreamSettings

AUTO: Mapping[str, Task] = {
    "auto": "auto",
    "auto-fast": "fast",
    "auto-precise": "precise",
    "auto-thinking": "thinking",
    "auto-agent": "agent",
    "agent": "agent",
    "auto-coding": "coding",
    "coding": "coding",
}
"""Model names that leave the choice to the gateway, and what they ask for."""
TEXT: frozenset[Modality] = frozenset({"text"})


@dataclass(frozen=True, slots=True)
class Need:
    """What a request asks for.

    `modalities` are those besides text in the turns that count, `old` those that stand in older turns only.
    `thinking` is `chat_template_kwargs.enable_thinking`.
    """

    model: str | None = None
    modalities: frozenset[Modality] = frozenset()
    old: frozenset[Modality] = frozenset()
    thinking: bool = False

    @property
    def task(self) -> Task:
        """What `auto` is asked for. A name that says more than `auto` wins over `enable_thinking`."""
        task = AUTO.get(self.model or "auto", "auto")
        return "thinking" if task == "auto" and self.thinking else task

    @property
    def shown(self) -> str:
        """The modalities in words: `image+video`, or `text`."""
        return "+".join(sorted(self.modalities or TEXT))


@dataclass(frozen=True, slots=True)
class Target:
    """What is known of an upstream. `modalities` are those besides text; None: it takes everything.

    `serves` are the model names that it is known by, from the configuration and from its own list.
    """

    name: str
    modalities: frozenset[Modality] | None = None
    serves: frozenset[str] = frozenset()

    def takes(self, modalities: frozenset[Modality]) -> bool:
        """Whether it can take all of these."""
        return self.modalities is None or modalities <= self.modalities | TEXT


def target_name(settings: UpstreamSettings) -> str:
    """The name of an upstream in routes, logs and metrics: its own, or host and port."""
    return settings.name or urlsplit(settings.url).netloc


def configured_targets(upstreams: Iterable[UpstreamSettings]) -> dict[str, Target]:
    """What the configuration alone says of the upstreams, by name."""
    return {
        target_name(one): Target(
            target_name(one), one.modalities, frozenset({one.model}) if one.model else frozenset()
        )
        for one in upstreams
    }
