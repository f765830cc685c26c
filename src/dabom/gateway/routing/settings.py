"""What `dabom.yaml` says of the fleet: models, routes and the rules of `auto`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dabom.gateway.health import HealthSettings

Modality = Literal["text", "image", "video", "audio", "file"]
Task = Literal["auto", "fast", "precise", "thinking", "agent", "coding"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RouteSettings(_Frozen):
    """An ordered list of targets. A request falls back from one step to the next."""

    steps: tuple[tuple[str, ...], ...] = Field(
        min_length=1, description="names of upstreams; those of one step are replicas and share the load"
    )
    max_pixels: int | None = Field(None, ge=1, description="larger pictures are scaled down to this")


class AutoRule(_Frozen):
    """Where a request goes that names no model. The first rule that matches counts."""

    route: str = Field(description="a route, a model or an upstream")
    modalities: frozenset[Modality] | None = Field(
        None, description="matches when the request needs any of these; unset: any request"
    )
    tasks: frozenset[Task] | None = Field(
        None, description="matches these tasks (`auto-fast` asks for `fast`); unset: any task"
    )


class RoutingSettings(_Frozen):
    """How a model name becomes targets."""

    models: dict[str, str] = Field(
        default_factory=dict, description="public names: a route or an upstream for each"
    )
    routes: dict[str, RouteSettings] = Field(default_factory=dict, description="ordered targets by name")
    auto: tuple[AutoRule, ...] = Field((), description="the rules of `auto`, `auto-fast`, ...")
    default_route: str | None = Field(None, description="for model names that nobody knows; unset: 404")
    affinity_margin_tokens: int = Field(
        8192,
        ge=0,
        description="a replica that has seen the same media is preferred unless it has this many more tokens "
        "in flight than the least busy",
    )
    media_turns: int = Field(
        3,
        ge=1,
        description="turns of the user, counted from the last, whose pictures, clips and sounds decide on "
        "the route; a model that does not take older ones is told that they are left out",
    )
    retries: int = Field(
        1, ge=0, description="further rounds along a route when no upstream of it could be connected to"
    )
    health: HealthSettings = Field(
        HealthSettings(), description="when an upstream is passed over, and when it is asked again"
    )
