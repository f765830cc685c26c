"""All upstreams: which one serves a request, what they offer together, and how they are."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from dabom.errors import DabomError, ModelNotFound, UpstreamBroken, UpstreamUnreachable
from dabom.gateway.admission import Meter, Permits
from dabom.gateway.routing import target_name
from dabom.gateway.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dabom.gateway.metrics import Metrics
    from dabom.gateway.settings import GatewaySettings, UpstreamSettings

_ASK_TIMEOUT_S = 3.0
_MAX_LIST_BYTES = 4 * 2**20


class _Model(msgspec.Struct):
    id: str


class _Room(msgspec.Struct):
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[msgspec.Raw]


def able(upstreams: Sequence[Upstream], model: str | None) -> list[Upstream]:
    """Those that serve `model`, the least busy first; the name makes ties repeatable."""
    serving = [u for u in upstreams if u.models and (model is None or model in u.models)]
    return sorted(serving, key=lambda u: (u.permits.held + u.permits.waiting, u.name))


def _longest(entries: Iterable[msgspec.Raw]) -> int | None:
    """The longest prompt and answer in tokens, when an upstream tells it as vLLM does."""
    found = []
    for entry in entries:
        with suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(entry, type=_Room).max_model_len or 0)
    return max(found, default=0) or None


class Fleet:
    """Opens its connections with `async with`."""

    def __init__(self, settings: GatewaySettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self.upstreams: tuple[Upstream, ...] = ()

    async def __aenter__(self) -> Fleet:
        connect_s = self._settings.clocks.connect_timeout_s
        self.upstreams = tuple(
            Upstream(one, self._permits(one), self._meter(one), connect_s) for one in self._settings.upstreams
        )
        for upstream in self.upstreams:
            self._metrics.show_permits(upstream.name, upstream.permits)
        return self

    def _permits(self, one: UpstreamSettings) -> Permits:
        concurrency = one.concurrency or self._settings.concurrency
        return Permits(concurrency, one.token_budget, self._settings.admission)

    def _meter(self, one: UpstreamSettings) -> Meter:
        return Meter(target_name(one), one, self._settings.admission.default_answer_tokens)

    async def __aexit__(self, *_: object) -> None:
        for upstream in self.upstreams:
            upstream.close()

    @property
    def only(self) -> Upstream | None:
        """The upstream, when there is one; it gets every request, whatever model it names."""
        return self.upstreams[0] if len(self.upstreams) == 1 else None

    async def choose(self, model: str | None) -> Upstream:
        """The upstream for a request. Raises `ModelNotFound`."""
        if self.only is not None:
            return self.only
        found = able(self.upstreams, model)
        if not found:
            await asyncio.gather(*(self.ask(upstream) for upstream in self.upstreams))
            found = able(self.upstreams, model)
        if not found:
            raise self._not_found(model)
        return found[0]

    def _not_found(self, model: str | None) -> DabomError:
        known = sorted({name for upstream in self.upstreams for name in upstream.models or ()})
        if not known:
            return UpstreamUnreachable("no upstream can be reached")
        return ModelNotFound(
            f"The model `{(model or '')[:128]}` does not exist; this gateway serves {', '.join(known)}",
            param="model",
        )

    async def ask(self, upstream: Upstream) -> str:
        """Learn what an upstream serves; its state in one word for /readyz."""
        try:
            offers = await self._offers(upstream)
            upstream.models = frozenset(offers)
            upstream.meter.learn(tuple(offers), _longest(offers.values()))
        except DabomError as error:
            upstream.models = None
            return error.code
        return "ok"

    async def states(self) -> dict[str, str]:
        """The state of every upstream: `ok` or the code of the error."""
        words = await asyncio.gather(*(self.ask(upstream) for upstream in self.upstreams))
        return {upstream.name: word for upstream, word in zip(self.upstreams, words, strict=True)}

    async def models(self) -> dict[str, Any]:
        """The lists of all upstreams as one; an upstream that does not answer is left out."""
        answers = await asyncio.gather(*(self._offers(u) for u in self.upstreams), return_exceptions=True)
        entries: dict[str, msgspec.Raw] = {}
        faults: list[BaseException] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                faults.append(answer)
            else:
                entries |= {name: entry for name, entry in answer.items() if name not in entries}
        if len(faults) == len(answers):
            raise faults[0]
        return {"object": "list", "data": list(entries.values())}

    async def _offers(self, upstream: Upstream) -> dict[str, msgspec.Raw]:
        """What an upstream says of its models, as it says it, by their names. Raises `UpstreamError`."""
        text = await self._list(upstream)
        try:
            models = msgspec.json.decode(text, type=_Models)
            return {msgspec.json.decode(entry, type=_Model).id: entry for entry in models.data}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UpstreamBroken(f"upstream {upstream.name} gives no list at GET /models") from None

    async def _list(self, upstream: Upstream) -> bytes:
        headers = [(b"accept", b"application/json")]
        if upstream.authorization is not None:
            headers.append((b"authorization", upstream.authorization))
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S):
                answer = await upstream.send("GET", "/models", headers)
                try:
                    if answer.status != 200:
                        raise UpstreamBroken(
                            f"upstream {upstream.name} answers {answer.status} to GET /models"
                        )
                    return await answer.read_all(_MAX_LIST_BYTES)
                finally:
                    answer.close()
        except TimeoutError:
            raise UpstreamUnreachable(
                f"upstream {upstream.name} does not answer in {_ASK_TIMEOUT_S:g} s"
            ) from None
