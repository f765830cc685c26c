"""Which headers cross the gateway, and the id of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dabom.gateway import headers as head
from dabom.testing import (
    chat_answer,
    error_reply,
    json_reply,
    raw_reply,
    refusing_upstream,
    sse_reply,
)

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, Run

HOP_BY_HOP = [
    ("connection", "keep-alive, X-Private-Hop"),
    ("keep-alive", "timeout=9"),
    ("proxy-connection", "keep-alive"),
    ("proxy-authenticate", "Basic"),
    ("proxy-authorization", "Basic c2VjcmV0"),
    ("te", "trailers"),
    ("trailer", "x-sum"),
    ("x-private-hop", "secret"),
]
SANE = ["a", "abc", "9", "A.b:c_d-e", "0" * 128, "550e8400-e29b-41d4-a716-446655440000"]
INSANE = [
    "",
    " ",
    "-a",
    ".a",
    ":a",
    "a b",
    "a\tb",
    "a/b",
    "a;b",
    'a"b',
    "0" * 129,
    "\u00e9",
    "a\u00e9",
    "{}",
    "a,b",
]


def names(headers: list[tuple[str, str]]) -> set[str]:
    return {name.lower() for name, _ in headers}


async def test_hop_by_hop_headers_do_not_go_upstream(behind: Behind, chat: dict[str, Any]) -> None:
    async with behind() as (upstream, gw):
        await gw.ask("/chat", chat, headers=[*HOP_BY_HOP, ("x-stays", "1"), ("upgrade", "h2c")])
        arrived = upstream.seen[0]
        gone = (names(HOP_BY_HOP) | {"upgrade"}) - {"connection"}
        assert not gone & names(arrived.headers)
        assert "x-private-hop" not in (arrived.header("connection") or "").lower()
        assert arrived.header("x-stays") == "1"


async def test_hop_by_hop_headers_do_not_come_back(behind: Behind, chat: dict[str, Any]) -> None:
    script = json_reply(chat_answer(), headers=[*HOP_BY_HOP, ("upgrade", "h2c"), ("x-stays", "1")])
    async with behind(script) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert not (names(HOP_BY_HOP) | {"upgrade"}) & names(answer.headers)
        assert answer.header("x-stays") == "1"


@pytest.mark.parametrize("status", [200, 400])
async def test_other_headers_come_back_as_given(behind: Behind, chat: dict[str, Any], status: int) -> None:
    given = [
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("x-odd", "\u00e9"),
        ("etag", 'W/"1"'),
        ("vary", "Origin"),
    ]
    async with behind(json_reply({}, status, headers=given)) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert [(k, v) for k, v in answer.headers if k in names(given)] == given


async def test_framing_headers_appear_once(behind: Behind, chat: dict[str, Any]) -> None:
    for chunked in (False, True):
        async with behind(json_reply(chat_answer(), chunked=chunked)) as (_, gw):
            answer = await gw.ask("/chat", chat)
            framing = [k for k, _ in answer.headers if k in ("content-length", "transfer-encoding")]
            assert framing == ["transfer-encoding" if chunked else "content-length"]
            assert [k for k, _ in answer.headers].count("date") <= 1


async def test_other_headers_go_upstream_and_nothing_is_added(behind: Behind, chat: dict[str, Any]) -> None:
    given = [
        ("x-odd", "한글".encode().decode("latin-1")),
        ("x-twice", "1"),
        ("x-twice", "2"),
        ("openai-organization", "org"),
        ("cookie", "c=1"),
    ]
    async with behind() as (upstream, gw):
        await gw.ask("/chat", chat, headers=given)
        seen = upstream.seen[0]
        assert [(k, v) for k, v in seen.headers if k.lower() in names(given)] == given
        assert names(seen.headers) == names(given) | {
            "host",
            "content-type",
            "content-length",
            "x-request-id",
        }
        assert seen.header("host") == f"127.0.0.1:{upstream.port}"
        assert [k.lower() for k, _ in seen.headers].count("content-length") == 1


@pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions", "/v1/embeddings", "/chat/batch"])
async def test_the_clients_key_is_not_leaked(behind: Behind, chat: dict[str, Any], path: str) -> None:
    body = {"items": [{"id": "1", "body": chat}]} if path == "/chat/batch" else chat
    secret = [
        ("authorization", "Bearer sk-client"),
        ("x-api-key", "sk-client"),
        ("proxy-authorization", "sk-client"),
    ]
    async with behind() as (upstream, gw):
        assert (await gw.ask(path, body, headers=secret)).status == 200
        assert not [value for _, value in upstream.seen[0].headers if "sk-client" in value]


async def test_the_clients_key_goes_up_when_that_is_configured(behind: Behind, chat: dict[str, Any]) -> None:
    async with behind(forward_authorization=True) as (upstream, gw):
        await gw.ask("/chat", chat, headers=[("authorization", "Bearer sk-client")])
        await gw.ask("/v1/files", headers=[("authorization", "Bearer sk-client")])
        await gw.ask("/chat", chat)
        assert [seen.header("authorization") for seen in upstream.seen] == ["Bearer sk-client"] * 2 + [None]


@pytest.mark.parametrize("forward", [False, True])
async def test_the_upstreams_own_key_is_sent(behind: Behind, chat: dict[str, Any], forward: bool) -> None:
    async with behind(upstream_api_key="sk-up", forward_authorization=forward) as (upstream, gw):
        await gw.ask("/chat", chat, headers=[("authorization", "Bearer sk-client")])
        await gw.ask("/v1/files")
        await gw.ask("/chat/batch", {"items": [{"id": "1", "body": chat}]})
        await gw.ask("/v1/models")
        seen = [*upstream.seen, *upstream.probes]
        assert [one.header("authorization") for one in seen] == ["Bearer sk-up"] * 4
        assert not [v for one in seen for _, v in one.headers if "sk-client" in v]


async def test_expect_100_is_answered_here(behind: Behind) -> None:
    async with behind() as (upstream, gw), gw.wire() as wire:
        await wire.request(
            "/chat",
            b"",
            headers=[("content-type", "application/json"), ("expect", "100-continue")],
            length=15,
        )
        await wire.send(b'{"messages":[]}')
        assert (await wire.rest()).status == 200
        assert upstream.seen[0].header("expect") is None


@pytest.mark.parametrize("given", SANE)
async def test_a_sane_id_is_kept(behind: Behind, chat: dict[str, Any], given: str) -> None:
    async with behind() as (upstream, gw):
        answer = await gw.ask("/chat", chat, headers=[("x-request-id", given)])
        assert answer.header("x-request-id") == given
        assert upstream.seen[0].header("x-request-id") == given
        assert (await gw.line(given))["status"] == 200


@pytest.mark.parametrize("given", INSANE)
async def test_another_id_is_replaced(behind: Behind, chat: dict[str, Any], given: str) -> None:
    async with behind() as (upstream, gw):
        answer = await gw.ask("/chat", chat, headers=[("x-request-id", given)])
        made = answer.header("x-request-id") or ""
        assert made != given
        assert head.request_id([(b"x-request-id", made.encode())]) == made
        assert upstream.seen[0].header("x-request-id") == made


async def test_each_request_without_an_id_gets_its_own(behind: Behind, chat: dict[str, Any]) -> None:
    async with behind() as (upstream, gw):
        answers = [await gw.ask("/chat", chat) for _ in range(20)]
        made = [answer.header("x-request-id") for answer in answers]
        assert len(set(made)) == 20
        assert [seen.header("x-request-id") for seen in upstream.seen] == made


async def test_there_is_one_id_whatever_the_upstream_says(behind: Behind, chat: dict[str, Any]) -> None:
    for script in (
        json_reply(chat_answer(), headers=[("X-Request-Id", "theirs")]),
        error_reply(400, headers=[("x-request-id", "theirs")]),
        sse_reply([{"choices": []}], headers=[("x-request-id", "theirs")]),
    ):
        async with behind(script) as (_, gw):
            answer = await gw.ask("/chat", chat, headers=[("x-request-id", "mine")])
            assert [v for k, v in answer.headers if k == "x-request-id"] == ["mine"]


ANSWERS: dict[str, tuple[int, str, str, bytes | None, list[tuple[str, str]]]] = {
    "chat": (200, "POST", "/chat", b'{"messages":[]}', []),
    "batch": (200, "POST", "/chat/batch", b'{"items":[{"id":"1","body":{}}]}', []),
    "models": (200, "GET", "/v1/models", None, []),
    "other path": (200, "POST", "/v1/embeddings", b"{}", []),
    "health": (200, "GET", "/healthz", None, []),
    "ready": (200, "GET", "/readyz", None, []),
    "metrics": (200, "GET", "/metrics", None, []),
    "docs": (200, "GET", "/docs", None, []),
    "redoc": (200, "GET", "/redoc", None, []),
    "openapi": (200, "GET", "/openapi.json", None, []),
    "malformed": (400, "POST", "/chat", b"{", []),
    "empty": (400, "POST", "/chat", b"", []),
    "no items": (400, "POST", "/chat/batch", b'{"items":[]}', []),
    "climbing path": (400, "GET", "/v1/%2e%2e/metrics", None, []),
    "no such page": (404, "GET", "/nothing", None, []),
    "wrong method": (405, "GET", "/chat", None, []),
    "wrong method of a page": (405, "POST", "/healthz", b"", []),
    "wrong method of a batch": (405, "PUT", "/chat/batch", b"", []),
    "too large": (413, "POST", "/chat", b'{"messages":"%b"}' % (b"x" * 3000), []),
    "wrong type": (415, "POST", "/chat", b"{}", [("content-type", "text/plain")]),
    "compressed": (415, "POST", "/chat", b"{}", [("content-encoding", "gzip")]),
    "head too large": (431, "GET", "/healthz", None, [("x-long", "x" * 5000)]),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_every_kind_of_answer_has_the_id(behind: Behind, name: str) -> None:
    status, method, path, body, more = ANSWERS[name]
    async with behind(max_body_bytes=2048, max_header_bytes=4096) as (_, gw):
        answer = await gw.ask(path, body, method=method, headers=[("x-request-id", "mine"), *more])
        assert (answer.status, answer.header("x-request-id"), answer.whole) == (status, "mine", True)
        assert [k for k, _ in answer.headers].count("x-request-id") == 1
        if status >= 400:
            assert set(answer.error) == {"message", "type", "param", "code"}
            assert answer.header("content-type") == "application/json"


async def test_bytes_that_are_no_http_get_an_id_too(behind: Behind) -> None:
    async with behind() as (_, gw), gw.wire() as wire:
        wire.begin()
        await wire.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n")
        answer = await wire.rest()
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert answer.header("x-request-id")


async def test_faults_and_refusals_have_the_id(running_gateway: Run, chat: dict[str, Any]) -> None:
    mine = [("x-request-id", "mine")]
    with refusing_upstream() as url:
        async with running_gateway(url, api_key="sk-gate") as gw:
            answer = await gw.ask("/chat", chat, headers=mine)
            assert (answer.status, answer.header("x-request-id")) == (401, "mine")
            answer = await gw.ask("/chat", chat, headers=[*mine, ("authorization", "Bearer sk-gate")])
            assert (answer.status, answer.header("x-request-id")) == (502, "mine")
            answer = await gw.ask("/readyz", headers=mine)
            assert (answer.status, answer.header("x-request-id")) == (503, "mine")


async def test_a_full_queue_answers_with_the_id(behind: Behind, chat: dict[str, Any]) -> None:
    from dabom.testing import Stall

    async with behind([Stall()], concurrency=1, acquire_timeout_s=0.05) as (upstream, gw), gw.wire() as first:
        await first.request("/chat", b"{}")
        await upstream.wait_seen(1)
        answer = await gw.ask("/chat", chat, headers=[("x-request-id", "mine")])
        assert (answer.status, answer.header("x-request-id")) == (503, "mine")
        first.leave()


async def test_items_of_a_batch_carry_the_id_and_their_number(behind: Behind, chat: dict[str, Any]) -> None:
    items = [{"id": f"i{n}", "body": chat} for n in range(3)]
    async with behind() as (upstream, gw):
        await gw.ask("/chat/batch", {"items": items}, headers=[("x-request-id", "mine")])
        assert sorted(seen.header("x-request-id") or "" for seen in upstream.seen) == [
            "mine-1",
            "mine-2",
            "mine-3",
        ]


async def test_a_plain_answer_has_no_word_of_the_server(behind: Behind, chat: dict[str, Any]) -> None:
    script = raw_reply(b"{}", headers=[("server", "uvicorn/9"), ("date", "Thu, 01 Jan 1970 00:00:00 GMT")])
    async with behind(script) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert answer.header("server") is None
        assert "1970" not in (answer.header("date") or "")
