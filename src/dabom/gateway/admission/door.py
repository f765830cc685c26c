"""From a request that has been received to its claim at one target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.gateway.admission.claims import Claim, read_priority
from dabom.gateway.admission.contents import read_contents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.gateway.admission.cost import Meter, RequestCost
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.facts import Facts
    from dabom.media import MediaFacts

_ONE_PROMPT = ("/chat/completions", "/responses")
"""Paths whose body is one prompt; others, such as /embeddings, hold many that share no limit."""


def weigh(
    meter: Meter,
    facts: Facts,
    body: Sequence[bytes | memoryview],
    path: str,
    contents: Sequence[MediaFacts | None] | None = None,
) -> RequestCost:
    """What the request costs at the upstream of `meter`. Raises `PromptTooLong` when it can never fit.

    `contents` are the headers of its media as the upstream will see them, when somebody has read them.
    """
    if contents is None:
        contents = read_contents(facts, body) if meter.exacting else ()
    cost = meter.cost(facts, contents)
    if path.startswith(_ONE_PROMPT):
        meter.check(cost)
    return cost


def claim_of(cost: RequestCost, exchange: Exchange, *, item: bool = False) -> Claim:
    """The claim of the request, or of an `item` of a batch: its tokens, its priority and its key.

    Raises `ClientError` for a priority that is none.
    """
    priority = read_priority(exchange.headers, exchange.key.priority, items=item)
    return cost.claim(priority, exchange.key.id)
