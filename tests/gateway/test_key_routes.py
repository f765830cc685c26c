"""What a key may use: its models and the routes to which they lead, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.gateway.conftest import CHAT

from dabom.gateway.keys import hash_line
from dabom.testing import ScriptedUpstream, chat_answer, json_reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.gateway.conftest import Run, RunningGateway

ANNA, BORA = "dabom-anna-0123456789", "dabom-bora-0123456789"
AUTO, ALL = "dabom-auto-0123456789", "dabom-all-01234567890"


def key(ident: str, secret: str, **limits: Any) -> dict[str, Any]:
    return {"id": ident, "hash": hash_line(secret), **limits}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@pytest.fixture
async def two(running_gateway: Run) -> AsyncIterator[RunningGateway]:
    """Two upstreams, one for text alone, with a model, a route and a rule that lead to them."""
    answer = json_reply(chat_answer())
    async with ScriptedUpstream(answer, models=["t"]) as text, ScriptedUpstream(answer, models=["v"]) as sees:
        given: dict[str, Any] = {
            "upstreams": [
                {"name": "text", "url": text.url, "model": "t", "modalities": []},
                {"name": "vision", "url": sees.url, "model": "v"},
            ],
            "routes": {"writes": {"steps": [["text"]]}},
            "models": {"writer": "writes", "seer": "vision"},
            "auto": [{"modalities": ["image"], "route": "vision"}, {"route": "writes"}],
            "keys": [
                key("anna", ANNA, routes=["writes"]),
                key("bora", BORA, routes=["writer"]),
                key("auto", AUTO, routes=["auto"]),
                key("all", ALL),
            ],
        }
        async with running_gateway(**given) as gw:
            yield gw


_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_PICTURE = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}"}}]


@pytest.mark.parametrize(
    ("secret", "model", "picture", "allowed"),
    [
        (ANNA, "writer", False, True),  # the name of the route to which it leads
        (ANNA, "auto", False, True),
        (ANNA, "seer", False, False),
        (ANNA, "t", False, False),
        (ANNA, "auto", True, False),
        (BORA, "writer", False, True),
        (BORA, "writer", True, False),  # a name opens the way to its own route, and no other
        (BORA, "auto", False, False),
        (AUTO, "auto", True, True),
        (AUTO, "auto", False, True),
        (AUTO, "seer", False, False),
        (ALL, "writer", True, True),
    ],
)
async def test_a_key_opens_the_routes_that_it_names(
    two: RunningGateway, secret: str, model: str, *, picture: bool, allowed: bool
) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": _PICTURE if picture else "안녕"}]}
    answer = await two.ask("/chat", body, headers=bearer(secret))
    assert answer.status == (200 if allowed else 403), answer.body


@pytest.mark.parametrize(
    ("secret", "names"),
    [
        (ANNA, {"writer"}),
        (BORA, {"writer"}),
        (AUTO, {"auto"}),
        (ALL, {"t", "v", "writer", "seer", "auto"}),
    ],
)
async def test_models_that_a_key_may_not_use_are_not_listed(
    two: RunningGateway, secret: str, names: set[str]
) -> None:
    listed = (await two.ask("/v1/models", headers=bearer(secret))).json()["data"]
    assert {one["id"] for one in listed} >= names
    assert any(one["id"] == "auto-fast" for one in listed) == (secret in (ANNA, ALL))
    for one in listed:
        body = {"model": one["id"], "messages": [{"role": "user", "content": "안녕"}]}
        assert (await two.ask("/chat", body, headers=bearer(secret))).status == 200
    told = await two.ask("/chat", {**CHAT, "model": "nothing"}, headers=bearer(secret))
    assert told.error["code"] == "model_not_found"


async def test_a_model_that_a_key_may_not_use_is_none_for_it(two: RunningGateway) -> None:
    """Neither the error about an unknown name nor the list tells of others."""
    listed = (await two.ask("/v1/models", headers=bearer(BORA))).body
    assert b"seer" not in listed
    assert b'"v"' not in listed
