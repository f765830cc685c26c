"""What a fleet takes over from the one before it, when settings are loaded anew."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from dabom.gateway.routing import target_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from dabom.gateway.admission import Permits
    from dabom.gateway.settings import GatewaySettings, UpstreamSettings


def concurrency_of(one: UpstreamSettings, general: GatewaySettings) -> int:
    """The permits of an upstream."""
    return one.concurrency or general.concurrency


class Pools:
    """The permits of all servers that are asked, by settings of now or by older ones whose requests run.

    A server is its address. Where several upstreams have one address, each has permits of its own.
    """

    def __init__(self) -> None:
        self._held: WeakValueDictionary[tuple[str, str], Permits] = WeakValueDictionary()

    def keep(self, one: UpstreamSettings, permits: Permits) -> None:
        """Remember whose permits these are, as long as anyone uses them."""
        self._held[one.url, target_name(one)] = permits

    def find(self, one: UpstreamSettings, names: Collection[str]) -> Permits | None:
        """The permits of an upstream that comes back, or that had a name before which is none of `names`."""
        former = [(url, name) for url, name in self._held if url == one.url and name not in names]
        for place in ((one.url, target_name(one)), *former):
            found = self._held.pop(place, None)
            if found is not None:
                return found
        return None


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
