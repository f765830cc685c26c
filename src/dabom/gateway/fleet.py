"""All upstreams: which ones may serve a request, what they offer together, and how they are."""

from __future__ import annotations

import asyncio
from random import uniform
from typing import TYPE_CHECKING, Any

from dabom.errors import DabomError, ModelNotFound, UpstreamUnreachable
from dabom.gateway.admission import Meter, Permits
from dabom.gateway.facts import Facts
from dabom.gateway.health import BreakerState, Health
from dabom.gateway.offers import ask_offers
from dabom.gateway.plan import Plan, Way
from dabom.gateway.routing import (
    Need,
    affinity_key,
    choose_route,
    model_names,
    names_of,
    order_targets,
    target_name,
)
from dabom.gateway.routing.turns import modalities
from dabom.gateway.succession import Pools, concurrency_of, same_server, unchanged
from dabom.gateway.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from dabom.gateway.metrics import Metrics
    from dabom.gateway.offers import Offer
    from dabom.gateway.routing import Decision, Target
    from dabom.gateway.settings import GatewaySettings, UpstreamSettings

_REFRESH_S = 60.0
"""What an upstream offers is asked anew at least this often, also while its answers tell that it is well."""
_MAX_DECISIONS, _MAX_NAME_CHARS = 1024, 256
_ASK_AGAIN_S = 1.0
_JITTER = 0.2
_CLOCK_GRAIN_S = 0.01
_NOTHING = Facts()


class Fleet:
    """Opens its connections with `async with`.

    From the fleet `before`, which still serves what runs, it takes over the upstreams that stay: with their
    permits, so that a server never gets more requests than it may, and with what is known of them.
    """

    def __init__(self, settings: GatewaySettings, metrics: Metrics, before: Fleet | None = None) -> None:
        self._settings = settings
        self._routing = settings.routing
        self._metrics = metrics
        self._known: dict[str, Target] = {}
        self._decisions: dict[Need, Decision] = {}
        self._by_name: dict[str, Upstream] = {}
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._before = before
        self.pools: Pools = Pools() if before is None else before.pools
        self.upstreams: tuple[Upstream, ...] = ()

    async def __aenter__(self) -> Fleet:
        self.upstreams = tuple(self._take_over(one) or self._build(one) for one in self._settings.upstreams)
        self._before = None
        self._by_name = {upstream.name: upstream for upstream in self.upstreams}
        self._learn()
        for upstream in self.upstreams:
            self._show(upstream)
            self._probing[upstream.name] = asyncio.create_task(self._watch(upstream))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._probing.values(), *([self._asking] if self._asking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for upstream in self.upstreams:
            if upstream.name in self._probing:
                upstream.close()

    def hand_over(
        self, one: UpstreamSettings, general: GatewaySettings
    ) -> tuple[Permits, Upstream | None] | None:
        """What the next fleet takes over for an upstream: its permits, and all of it when nothing changes."""
        held = self._by_name.get(target_name(one))
        if held is None or not same_server(one, held.settings):
            return None
        held.permits.change(concurrency_of(one, general), one.token_budget, general.admission)
        if not unchanged(one, general, held.settings, self._settings):
            return held.permits, None
        if (probing := self._probing.pop(held.name, None)) is not None:
            probing.cancel()
        return held.permits, held

    def _take_over(self, one: UpstreamSettings) -> Upstream | None:
        taken = None if self._before is None else self._before.hand_over(one, self._settings)
        if taken is None:
            return None
        permits, held = taken
        if held is not None:
            held.settings = one
            return held
        return self._build(one, permits)

    def _build(self, one: UpstreamSettings, permits: Permits | None = None) -> Upstream:
        name, general = target_name(one), self._settings
        if permits is None:
            permits = self.pools.find(one, [target_name(other) for other in general.upstreams])
            if permits is not None:
                permits.change(concurrency_of(one, general), one.token_budget, general.admission)

        def changed(state: BreakerState) -> None:
            self._metrics.breaker_changes.add(name, state.name.lower())

        if permits is None:
            permits = Permits(concurrency_of(one, general), one.token_budget, general.admission)
        self.pools.keep(one, permits)
        meter = Meter(name, one, general.admission.default_answer_tokens)
        health = Health(self._routing.health, changed)
        return Upstream(one, permits, meter, one.clocks or general.clocks, health)

    def _show(self, upstream: Upstream) -> None:
        loop = asyncio.get_running_loop()
        self._metrics.show_permits(upstream.name, upstream.permits)
        self._metrics.breaker.watch(upstream.name, read=lambda: float(upstream.health.state(loop.time())))
        self._metrics.healthy.watch(upstream.name, read=lambda: float(upstream.health.fit(loop.time())))

    @property
    def only(self) -> Upstream | None:
        """The upstream, when there is one and no rule; it gets every request, whatever model it names."""
        routing = self._routing
        plain = not (routing.models or routing.auto or routing.default_route)
        return self.upstreams[0] if plain and len(self.upstreams) == 1 else None

    async def plan(self, facts: Facts) -> Plan:
        """Where a request may go. Raises `ModelNotFound` and `ModalityNotServed`."""
        only = self.only
        if only is not None:
            return Plan((only,))
        now, old = modalities(facts.messages, self._routing.media_turns)
        need = Need(facts.model, now, old, facts.thinking)
        return self._order(await self._decide(need), need, facts)

    def way(self, plan: Plan) -> Way:
        """The way of one request along its plan."""
        return Way(plan, self._routing.retries, self._metrics)

    async def any(self) -> Plan:
        """Where a request may go whose body is not read."""
        return await self.plan(_NOTHING)

    async def _decide(self, need: Need) -> Decision:
        found = self._decisions.get(need)
        if found is None:
            found = await self._choose(need)
            if len(self._decisions) < _MAX_DECISIONS and len(need.model or "") <= _MAX_NAME_CHARS:
                self._decisions[need] = found  # clients may invent names without end
        return found

    async def _choose(self, need: Need) -> Decision:
        try:
            if need.model is None and not any(one.serves for one in self._known.values()):
                await self._ask_all()
            return choose_route(need, self._routing, self._known)
        except ModelNotFound:
            await self._ask_all()
        if not any(one.serves for one in self._known.values()) and not self._routing.models:
            raise UpstreamUnreachable("no upstream can be reached")
        return choose_route(need, self._routing, self._known)

    def _order(self, decision: Decision, need: Need, facts: Facts) -> Plan:
        if len(decision.steps) == 1 and len(decision.steps[0]) == 1:
            return Plan((self._by_name[decision.steps[0][0]],), decision, need, self._routing.media_turns)
        now = asyncio.get_running_loop().time()
        states = {name: self._by_name[name].at(now) for step in decision.steps for name in step}
        key = affinity_key([(one.sha256_head, one.bytes) for one in facts.media if not one.remote])
        names = order_targets(decision.steps, states, key, self._routing.affinity_margin_tokens)
        targets = tuple(self._by_name[name] for name in names)
        return Plan(targets, decision, need, self._routing.media_turns)

    def _learn(self) -> None:
        self._decisions.clear()
        self._known = {upstream.name: upstream.known for upstream in self.upstreams}

    async def _ask_all(self) -> None:
        """Ask all upstreams what they serve; those who come meanwhile wait for the same answers.

        Once a second is enough when something is known: a client that goes on naming what nobody serves must
        not have every upstream asked, and judged by that, each time.
        """
        now = asyncio.get_running_loop().time()
        if now - self._asked_at < _ASK_AGAIN_S and any(one.serves for one in self._known.values()):
            return
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_each())
        await asyncio.shield(self._asking)

    async def _ask_each(self) -> None:
        await asyncio.gather(*(self.ask(upstream) for upstream in self.upstreams))
        self._asked_at = asyncio.get_running_loop().time()

    async def ask(self, upstream: Upstream) -> str:
        """Learn what an upstream serves; its state in one word for /readyz: `ok` or the code of the error."""
        loop, busy = asyncio.get_running_loop(), upstream.permits.held > 0
        began, timeout_s = loop.time(), self._routing.health.probe_timeout_s
        try:
            offers = await ask_offers(upstream, timeout_s)
        except DabomError as error:
            slow = loop.time() - began >= timeout_s - _CLOCK_GRAIN_S
            upstream.health.probed("slow" if slow else "down", loop.time(), busy=busy)
            return error.code
        upstream.health.probed("up", loop.time(), busy=busy)
        if upstream.learn(offers, loop.time()):
            self._learn()
        return "ok"

    async def _watch(self, upstream: Upstream) -> None:
        """Probe an upstream while its own answers do not tell how it is."""
        loop, interval_s = asyncio.get_running_loop(), self._routing.health.probe_interval_s
        if self.only is None:
            await self.ask(upstream)
        while True:
            await asyncio.sleep(interval_s * uniform(1 - _JITTER, 1 + _JITTER))  # noqa: S311 - no secret
            now = loop.time()
            quiet = now - upstream.health.answered_at >= interval_s * (1 - _JITTER)
            if quiet or now - upstream.learned_at >= _REFRESH_S:
                await self.ask(upstream)

    async def states(self) -> dict[str, str]:
        """The state of every upstream: `ok` or the code of the error."""
        words = await asyncio.gather(*(self.ask(upstream) for upstream in self.upstreams))
        return {upstream.name: word for upstream, word in zip(self.upstreams, words, strict=True)}

    async def models(self, may_use: Callable[[frozenset[str]], bool]) -> dict[str, Any]:
        """The lists of all upstreams as one, and the names of the settings that lead to them.

        `may_use` gets the names by which a key opens a model; what it may not use is left out, and so is an
        upstream that does not answer.
        """
        timeout_s = self._routing.health.probe_timeout_s
        answers: list[Mapping[str, Offer] | BaseException] = await asyncio.gather(
            *(ask_offers(one, timeout_s) for one in self.upstreams), return_exceptions=True
        )
        entries: dict[str, msgspec.Raw] = {}
        faults: list[BaseException] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                faults.append(answer)
            else:
                entries |= {name: offer.entry for name, offer in answer.items() if name not in entries}
        if len(faults) == len(answers):
            raise faults[0]
        ours = {name: _entry(name) for name in model_names(self._routing, {}) if name not in entries}
        shown = [one for name, one in (entries | ours).items() if may_use(names_of(name, self._routing))]
        return {"object": "list", "data": shown}


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "dabom"}
