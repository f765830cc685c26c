"""What a fleet takes over from the one before it, when settings are loaded anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dabom.gateway.settings import GatewaySettings, UpstreamSettings


def concurrency_of(one: UpstreamSettings, general: GatewaySettings) -> int:
    """The permits of an upstream."""
    return one.concurrency or general.concurrency


def same_server(one: UpstreamSettings, other: UpstreamSettings) -> bool:
    """Whether two settings mean the same process: its permits are then counted together."""
    return one.url == other.url


def unchanged(
    one: UpstreamSettings, general: GatewaySettings, other: UpstreamSettings, former: GatewaySettings
) -> bool:
    """Whether nothing but permits differs between two settings of an upstream."""
    pools = {"concurrency": None, "token_budget": None}
    return (
        one.model_copy(update=pools) == other.model_copy(update=pools)
        and (one.clocks or general.clocks) == (other.clocks or former.clocks)
        and general.routing.health == former.routing.health
        and general.admission.default_answer_tokens == former.admission.default_answer_tokens
    )
