"""Keys of clients over real sockets: who is let in, to what, how often, and how many at a time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.gateway.conftest import CHAT

from dabom.app import load_settings
from dabom.errors import ConfigError, KeyConcurrency, RateLimited
from dabom.gateway import GatewaySettings, Metrics
from dabom.gateway.keys import Holder, Keys, KeySettings, hash_line
from dabom.testing import Stall, WaitFor, chat_answer, json_reply

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, RunningGateway

ANNA, BORA, ADMIN = "dabom-anna-0123456789", "dabom-bora-0123456789", "dabom-admin-012345678"
_JSON = ("content-type", "application/json")


def key(ident: str, secret: str, **limits: Any) -> dict[str, Any]:
    return {"id": ident, "hash": hash_line(secret), **limits}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions", "/chat/batch", "/v1/completions"])
async def test_each_key_is_let_in_and_nobody_else(behind: Behind, path: str) -> None:
    body = {"items": [{"id": 1, "body": CHAT}]} if path == "/chat/batch" else CHAT
    async with behind(keys=[key("anna", ANNA), key("bora", BORA)], api_key="sk-single") as (upstream, gw):
        for secret in (ANNA, BORA, "sk-single"):
            assert (await gw.ask(path, body, headers=bearer(secret))).status == 200
        for headers in ({}, bearer("nobody"), bearer(""), {"authorization": f"Basic {ANNA}"}):
            answer = await gw.ask(path, body, headers=headers)
            assert (answer.status, answer.error["code"]) == (401, "unauthorized")
        assert len(upstream.seen) == 3


async def test_the_line_of_a_request_names_its_key(behind: Behind) -> None:
    async with behind(keys=[key("anna", ANNA)]) as (_, gw):
        await gw.ask("/chat", CHAT, headers=bearer(ANNA) | {"x-request-id": "one"})
        assert (await gw.line("one"))["key"] == "anna"
        page = (await gw.ask("/metrics", headers=bearer(ANNA))).body.decode()
        assert 'dabom_key_requests_total{key="anna",status="200"} 1.0' in page
        assert 'dabom_key_running{key="anna"} 0.0' in page
        assert ANNA not in gw.log.text.decode() + page


async def test_a_hash_does_for_the_single_key_too_and_is_no_key_itself(behind: Behind) -> None:
    async with behind(api_key=hash_line(ANNA)) as (_, gw):
        assert (await gw.ask("/chat", CHAT, headers=bearer(ANNA))).status == 200
        assert (await gw.ask("/chat", CHAT, headers=bearer(hash_line(ANNA)))).status == 401


async def test_a_key_whose_time_is_over_is_refused(behind: Behind) -> None:
    now = datetime.now(UTC)
    keys = [
        key("old", ANNA, expires=(now - timedelta(seconds=1)).isoformat()),
        key("new", BORA, expires=(now + timedelta(hours=1)).isoformat()),
    ]
    async with behind(keys=keys) as (_, gw):
        refused = await gw.ask("/chat", CHAT, headers=bearer(ANNA))
        assert (refused.status, refused.error["code"]) == (401, "key_expired")
        assert (await gw.ask("/chat", CHAT, headers=bearer(BORA))).status == 200


async def test_more_requests_than_a_minute_has_are_told_when_to_come_back(behind: Behind) -> None:
    keys = [key("anna", ANNA, requests_per_minute=2), key("bora", BORA)]
    async with behind(keys=keys) as (upstream, gw):
        answers = [await gw.ask("/chat", CHAT, headers=bearer(ANNA)) for _ in range(3)]
        assert [one.status for one in answers] == [200, 200, 429]
        assert answers[2].error["code"] == "rate_limited"
        assert 25 <= int(answers[2].header("retry-after") or 0) <= 30
        assert (await gw.ask("/chat", CHAT, headers=bearer(BORA))).status == 200
        assert len(upstream.seen) == 3


async def test_a_request_that_reaches_no_upstream_costs_nothing(behind: Behind) -> None:
    async with behind(keys=[key("anna", ANNA, requests_per_minute=1)]) as (_, gw):
        for _ in range(3):
            assert (await gw.ask("/chat", b"{", headers=bearer(ANNA))).status == 400
        assert (await gw.ask("/chat", CHAT, headers=bearer(ANNA))).status == 200
        assert (await gw.ask("/chat", CHAT, headers=bearer(ANNA))).status == 429


async def test_states_and_pages_are_not_counted(behind: Behind) -> None:
    async with behind(keys=[key("anna", ANNA, requests_per_minute=1)]) as (_, gw):
        for path in ("/v1/models", "/metrics", "/docs") * 2:
            assert (await gw.ask(path, headers=bearer(ANNA))).status == 200
            assert (await gw.ask(path)).status == 401


async def test_a_key_has_so_many_requests_at_work_and_no_more(behind: Behind) -> None:
    opened = asyncio.Event()
    script = [WaitFor(opened), *json_reply(chat_answer())]
    async with behind(script, keys=[key("anna", ANNA, concurrency=2), key("bora", BORA)]) as (upstream, gw):
        asking = [asyncio.create_task(gw.ask("/chat", CHAT, headers=bearer(ANNA))) for _ in range(2)]
        await gw.until(lambda: len(upstream.seen) == 2)
        refused = await gw.ask("/chat", CHAT, headers=bearer(ANNA))
        assert (refused.status, refused.error["code"]) == (429, "key_concurrency")
        assert refused.header("retry-after") == "1"
        other = asyncio.create_task(gw.ask("/chat", CHAT, headers=bearer(BORA)))
        await gw.until(lambda: len(upstream.seen) == 3)
        opened.set()
        assert [one.status for one in await asyncio.gather(*asking, other)] == [200, 200, 200]
        assert (await gw.ask("/chat", CHAT, headers=bearer(ANNA))).status == 200


async def test_a_client_that_leaves_gives_its_place_back(behind: Behind) -> None:
    async with behind([Stall()], keys=[key("anna", ANNA, concurrency=1)]) as (upstream, gw):
        async with gw.wire() as wire:
            await wire.request("/chat", msgspec.json.encode(CHAT), headers=list(bearer(ANNA).items()))
            await gw.until(lambda: len(upstream.seen) == 1)
        await gw.until(lambda: not gw.gateway.running)
        async with gw.wire() as wire:
            await wire.request("/chat", msgspec.json.encode(CHAT), headers=list(bearer(ANNA).items()))
            await gw.until(lambda: len(upstream.seen) == 2)


async def test_without_an_admin_key_there_is_no_admin_path(behind: Behind) -> None:
    async with behind(keys=[key("anna", ANNA)]) as (_, gw):
        for headers in ({}, bearer(ANNA)):
            answer = await gw.ask("/admin/reload", b"", headers=headers)
            assert (answer.status, answer.error["code"]) == (404, "not_found")


async def test_only_the_admin_key_opens_the_admin_paths_and_it_asks_no_model(behind: Behind) -> None:
    async with behind(keys=[key("anna", ANNA)], admin_key=ADMIN) as (upstream, gw):
        for headers in ({}, bearer(ANNA)):
            answer = await gw.ask("/admin/reload", b"", headers=headers)
            assert (answer.status, answer.error["code"]) == (401, "unauthorized")
        assert (await gw.ask("/chat", CHAT, headers=bearer(ADMIN))).status == 401
        assert (await gw.ask("/metrics", headers=bearer(ADMIN))).status == 200
        assert upstream.seen == []


async def test_new_keys_hold_from_the_next_request_on_and_old_limits_are_kept(behind: Behind) -> None:
    before = [key("anna", ANNA, requests_per_minute=1), key("bora", BORA)]
    after = [key("anna", ANNA, requests_per_minute=1), key("cara", "dabom-cara-0123456789")]
    opened = asyncio.Event()
    script = [WaitFor(opened), *json_reply(chat_answer())]
    async with behind(script, keys=before) as (upstream, gw):
        asking = asyncio.create_task(gw.ask("/chat", CHAT, headers=bearer(BORA)))
        await gw.until(lambda: len(upstream.seen) == 1)
        settings = load_settings(None, base_url=upstream.url, keys=after)
        await gw.gateway.reload(settings.gateway())
        assert (await gw.ask("/chat", CHAT, headers=bearer(BORA))).status == 401
        opened.set()
        assert (await asking).status == 200
        statuses = [(await gw.ask("/chat", CHAT, headers=bearer(ANNA))).status for _ in range(2)]
        assert statuses == [200, 429]
        await gw.gateway.reload(settings.gateway())
        assert (await gw.ask("/chat", CHAT, headers=bearer(ANNA))).status == 429
        page = (await gw.ask("/metrics", headers=bearer("dabom-cara-0123456789"))).body.decode()
        assert 'key_running{key="bora"}' not in page
        assert 'key_running{key="cara"}' in page


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([{"id": "a", "hash": "sha256:12"}], "hash: a hash is sha256: and 64 hex digits"),
        ([{"id": "a b", "hash": hash_line(ANNA)}], "an id has up to 64 letters"),
        ([key("a", ANNA), key("a", BORA)], "two keys have the id a"),
        ([key("a", ANNA), key("b", ANNA)], "the key b is the same"),
        ([key("a", "")], "empty"),
        ([key("a", ANNA, requests_per_minute=0)], "requests_per_minute"),
        ([key("a", ANNA, rpm=3)], "rpm"),
    ],
)
def test_wrong_keys_are_told_by_name(wrong: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        load_settings(None, base_url="http://127.0.0.1:1/v1", keys=wrong)
    assert hash_line(ANNA) not in str(raised.value)


def test_a_key_in_the_place_of_its_hash_is_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(None, base_url="http://127.0.0.1:1/v1", keys=[{"id": "a", "hash": ANNA}])
    assert ANNA not in str(raised.value)


async def test_a_key_may_use_its_models_and_routes_only(behind: Behind) -> None:
    keys = [key("anna", ANNA, routes=["qwen"]), key("bora", BORA, routes=["else"])]
    async with behind(keys=keys) as (upstream, gw):
        assert (await gw.ask("/chat", CHAT, headers=bearer(ANNA))).status == 200
        refused = await gw.ask("/chat", CHAT, headers=bearer(BORA))
        assert (refused.status, refused.error["code"]) == (403, "route_forbidden")
        assert "it may use else" in refused.error["message"]
        batch = await gw.ask("/chat/batch", {"items": [{"id": 1, "body": CHAT}]}, headers=bearer(BORA))
        assert b"route_forbidden" in batch.body
        other = await gw.ask("/v1/files", b"x", headers=bearer(BORA) | {"content-type": "text/plain"})
        assert other.error["code"] == "route_forbidden"
        assert len(upstream.seen) == 1


async def test_tokens_that_an_upstream_reports_are_paid_for(behind: Behind) -> None:
    answer = chat_answer() | {"usage": {"prompt_tokens": 900, "completion_tokens": 300}}
    async with behind(json_reply(answer), keys=[key("anna", ANNA, tokens_per_minute=1000)]) as (_, gw):
        given = {**CHAT, "max_tokens": 10}
        assert (await gw.ask("/chat", given, headers=bearer(ANNA))).status == 200
        refused = await gw.ask("/chat", given, headers=bearer(ANNA))
        assert (refused.status, refused.error["code"]) == (429, "rate_limited")
        assert "1,000 tokens a minute" in refused.error["message"]
        assert 10 <= int(refused.header("retry-after") or 0) <= 14
        page = (await gw.ask("/metrics", headers=bearer(ANNA))).body.decode()
        assert 'dabom_key_tokens_total{key="anna",kind="prompt"} 900.0' in page


async def test_items_of_a_batch_wait_for_their_turn(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dabom.gateway.bucket._MINUTE_S", 0.4)
    items = [{"id": number, "body": CHAT} for number in range(4)]
    async with behind(keys=[key("anna", ANNA, requests_per_minute=2)]) as (upstream, gw):
        started = time.monotonic()
        answer = await gw.ask("/chat/batch", {"items": items}, headers=bearer(ANNA))
        assert answer.body.count(b'"status":200') == 4
        assert len(upstream.seen) == 4
        assert time.monotonic() - started > 0.3


def test_keys_let_others_reach_the_gateway() -> None:
    with pytest.raises(ConfigError, match="there is no key"):
        load_settings(None, base_url="http://127.0.0.1:1/v1", host="0.0.0.0")  # noqa: S104 - must be refused
    given = load_settings(None, base_url="http://127.0.0.1:1/v1", host="0.0.0.0", keys=[key("a", ANNA)])  # noqa: S104
    assert given.keys[0].id == "a"


def test_tokens_are_charged_before_and_settled_after() -> None:
    holder = Holder(KeySettings(id="a", hash=hash_line(ANNA), tokens_per_minute=1000), now=0)
    holder.begin(now=0, requests=1)
    holder.charge(800, now=0)
    with pytest.raises(RateLimited) as raised:
        holder.charge(800, now=0)
    assert raised.value.retry_after_s == pytest.approx(36)
    holder.settle(700, 0, now=0)
    holder.charge(900, now=0)
    with pytest.raises(RateLimited):
        holder.begin(now=0.01, requests=1)


def test_what_is_refused_takes_nothing() -> None:
    holder = Holder(KeySettings(id="a", hash=hash_line(ANNA), requests_per_minute=5, concurrency=1), now=0)
    holder.begin(now=0, requests=1)
    for _ in range(20):
        with pytest.raises(KeyConcurrency):
            holder.begin(now=0, requests=1)
    holder.running = 0
    for _ in range(4):
        holder.begin(now=0, requests=1)
        holder.running = 0


def test_a_thousand_keys_cost_no_more_than_one() -> None:
    def seconds(count: int) -> float:
        given = [KeySettings(id=f"k{n}", hash=hash_line(f"secret-{n}")) for n in range(count)]
        keys = Keys(GatewaySettings(upstreams=(), keys=tuple(given)), Metrics())
        headers = [(b"authorization", f"Bearer secret-{count - 1}".encode())]
        assert keys.find(headers, 0) is not None
        rounds = []
        for _ in range(20):
            started = time.perf_counter()
            for _ in range(100):
                keys.find(headers, 0)
            rounds.append(time.perf_counter() - started)
        return min(rounds)

    assert seconds(1000) < 5 * seconds(1)


async def test_items_that_are_refused_cost_nothing(behind: Behind) -> None:
    keys = [key("anna", ANNA, routes=["qwen"], requests_per_minute=2)]
    items = [{"id": number, "body": {**CHAT, "model": "else"}} for number in range(2)]
    async with behind(keys=keys) as (_, gw):
        batch = await gw.ask("/chat/batch", {"items": items}, headers=bearer(ANNA))
        assert batch.body.count(b"route_forbidden") == 2
        for _ in range(2):
            assert (await gw.ask("/chat", CHAT, headers=bearer(ANNA))).status == 200


def _left(gw: RunningGateway, ident: str) -> tuple[float, float]:
    """Requests and tokens that are left of the minute of a key."""
    holder = next(one for one in gw.gateway._stage.keys.holders if one.settings.id == ident)
    assert holder._requests is not None
    assert holder._tokens is not None
    return round(holder._requests.level), round(holder._tokens.level, -2)


@pytest.mark.parametrize("path", ["/chat", "/chat/batch"])
async def test_who_leaves_pays_for_what_was_under_way(behind: Behind, path: str) -> None:
    """Else a client would have answers made for nothing, by leaving just before they are there."""
    keys = [key("anna", ANNA, requests_per_minute=10, tokens_per_minute=100_000)]
    one = {**CHAT, "max_tokens": 5000}
    body = {"items": [{"id": number, "body": one} for number in range(4)]} if path == "/chat/batch" else one
    async with behind([Stall()], keys=keys, concurrency=1) as (upstream, gw):
        async with gw.wire() as wire:
            await wire.request(path, msgspec.json.encode(body), headers=[*bearer(ANNA).items(), _JSON])
            await upstream.wait_seen(1)
            wire.leave()
            await gw.until(lambda: gw.gateway.running == 0)
        assert _left(gw, "anna") == (9, 95_000)


async def test_who_leaves_the_line_pays_nothing(behind: Behind) -> None:
    keys = [key("anna", ANNA, requests_per_minute=10, tokens_per_minute=100_000), key("bora", BORA)]
    async with behind([Stall()], keys=keys, concurrency=1) as (upstream, gw), gw.wire() as first:
        await first.request("/chat", msgspec.json.encode(CHAT), headers=[*bearer(BORA).items(), _JSON])
        await upstream.wait_seen(1)
        async with gw.wire() as wire:
            body = msgspec.json.encode({**CHAT, "max_tokens": 5000})
            await wire.request("/chat", body, headers=[*bearer(ANNA).items(), _JSON])
            await gw.until(lambda: gw.permits.waiting == 1)
            wire.leave()
            await gw.until(lambda: gw.gateway.running == 1)
        assert _left(gw, "anna") == (10, 100_000)
        first.leave()
