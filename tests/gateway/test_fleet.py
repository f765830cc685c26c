"""Several upstreams, the list of their models, and the other paths below /v1."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.gateway import fleet
from dabom.testing import (
    Close,
    ScriptedUpstream,
    Send,
    Stall,
    WaitFor,
    chat_answer,
    error_reply,
    json_reply,
    raw_reply,
    refusing_upstream,
)
from dabom.testing.recorded import load_recording

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.gateway.conftest import Behind, Run, RunningGateway

BINARY = bytes(range(256)) * 40
MULTIPART = b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\n' + BINARY + b"\r\n--b--\r\n"


def asks(model: str | None) -> dict[str, Any]:
    return {"messages": [], **({} if model is None else {"model": model})}


@pytest.fixture
def two(running_gateway: Run) -> Any:
    """Two upstreams, `alpha` and `beta`, that answer with their names."""

    @asynccontextmanager
    async def start(
        models: tuple[list[str], list[str]] = (["a", "shared"], ["b", "shared"]), **settings: Any
    ) -> AsyncIterator[tuple[ScriptedUpstream, ScriptedUpstream, RunningGateway]]:
        async with (
            ScriptedUpstream(json_reply(chat_answer("alpha")), models=models[0]) as alpha,
            ScriptedUpstream(json_reply(chat_answer("beta")), models=models[1]) as beta,
        ):
            upstreams = [{"url": alpha.url, "name": "alpha"}, {"url": beta.url, "name": "beta"}]
            async with running_gateway(upstreams=upstreams, **settings) as gw:
                yield alpha, beta, gw

    return start


async def answered_by(gw: RunningGateway, body: object, path: str = "/chat") -> str:
    answer = await gw.ask(path, body)
    assert answer.status == 200, answer
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


@pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions", "/v1/completions"])
async def test_a_request_goes_to_the_upstream_that_serves_its_model(two: Any, path: str) -> None:
    async with two() as (alpha, beta, gw):
        assert [await answered_by(gw, asks(model), path) for model in "abab"] == ["alpha", "beta"] * 2
        wanted = "/v1/chat/completions" if path == "/chat" else path
        assert {seen.path for seen in alpha.seen + beta.seen} == {wanted}


async def test_the_body_goes_as_it_came(two: Any) -> None:
    body = b'{ "messages":[],"n":1e5,  "m\\u006fdel" : "\\u0062" , "pad":"%b"}' % (b"x" * 300_000)
    async with two() as (alpha, beta, gw):
        assert await answered_by(gw, body) == "beta"
        assert [seen.sha256 for seen in beta.seen] == [hashlib.sha256(body).hexdigest()]
        assert not alpha.seen


async def test_the_items_of_a_batch_go_to_different_upstreams(two: Any) -> None:
    items = [{"id": f"{model}{n}", "body": asks(model)} for n in range(3) for model in ("a", "b", "nobody")]
    async with two() as (alpha, beta, gw):
        answer = await gw.ask("/chat/batch", {"items": items})
        lines = {line["id"]: line for line in map(msgspec.json.decode, answer.body.splitlines())}
        assert len(lines) == 9
        for ident, line in lines.items():
            if ident.startswith("nobody"):
                assert (line["status"], line["code"]) == (404, "model_not_found")
            else:
                said = line["body"]["choices"][0]["message"]["content"]
                assert said == {"a": "alpha", "b": "beta"}[ident[0]]
        assert (len(alpha.seen), len(beta.seen)) == (3, 3)


async def test_an_unknown_model_is_refused_as_vllm_does(two: Any) -> None:
    vllm = load_recording("vllm_error_unknown_model")
    theirs = msgspec.json.decode(vllm.body)["error"]
    async with two() as (alpha, beta, gw):
        answer = await gw.ask("/v1/chat/completions", asks("no-such-model"))
        assert answer.status == vllm.status == 404
        assert set(answer.error) == set(theirs)
        assert (answer.error["type"], answer.error["param"]) == (theirs["type"], theirs["param"])
        assert answer.error["message"].startswith("The model `no-such-model` does not exist")
        assert answer.error["code"] == "model_not_found"
        assert not alpha.seen + beta.seen


async def test_the_only_upstream_gets_every_model(behind: Behind) -> None:
    async with behind(error_reply(404, "The model `x` does not exist.", kind="NotFoundError")) as (_, gw):
        answer = await gw.ask("/chat", asks("x"))
        assert (answer.status, answer.error["message"]) == (404, "The model `x` does not exist.")


async def test_a_model_of_both_goes_to_the_less_busy(running_gateway: Run) -> None:
    gate = asyncio.Event()
    held = [WaitFor(gate), *json_reply(chat_answer())]
    async with ScriptedUpstream(held, models=["m"]) as one, ScriptedUpstream(held, models=["m"]) as other:
        upstreams = [{"url": one.url, "name": "one"}, {"url": other.url, "name": "other"}]
        async with running_gateway(upstreams=upstreams, concurrency=1) as gw, asyncio.TaskGroup() as group:
            for count in range(1, 7):
                group.create_task(gw.ask("/chat", asks("m")))
                pools = [upstream.permits for upstream in gw.gateway.fleet.upstreams]
                await gw.until(lambda: sum(p.held + p.waiting for p in pools) == count)  # noqa: B023
            assert [pool.held + pool.waiting for pool in pools] == [3, 3]
            gate.set()


async def test_a_request_without_a_model_goes_to_either(two: Any) -> None:
    async with two() as (_, _, gw):
        assert await answered_by(gw, asks(None)) in ("alpha", "beta")


async def test_a_model_that_is_loaded_later_is_found(two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_ASK_AGAIN_S", 0.0)
    async with two() as (_, beta, gw):
        assert (await gw.ask("/chat", asks("late"))).status == 404
        beta._models = ["b", "shared", "late"]
        assert await answered_by(gw, asks("late")) == "beta"


async def test_one_unreachable_upstream_does_not_stop_the_others(running_gateway: Run) -> None:
    with refusing_upstream() as dead:
        async with ScriptedUpstream(models=["a"]) as alive:
            upstreams = [{"url": dead, "name": "dead"}, {"url": alive.url, "name": "alive"}]
            async with running_gateway(upstreams=upstreams) as gw:
                assert (await gw.ask("/chat", asks("a"))).status == 200
                missing = await gw.ask("/chat", asks("of-the-dead-one"))
                assert (missing.status, missing.error["code"]) == (404, "model_not_found")
                ready = await gw.ask("/readyz")
                assert (ready.status, ready.json()["ready"]) == (200, True)
                assert ready.json()["upstreams"] == {"dead": "upstream_unreachable", "alive": "ok"}
                models = await gw.ask("/v1/models")
                assert [model["id"] for model in models.json()["data"]] == ["a"]


async def test_an_upstream_that_dies_later_is_unreachable(two: Any) -> None:
    async with two() as (alpha, _, gw):
        assert await answered_by(gw, asks("a")) == "alpha"
        await alpha.__aexit__()
        answer = await gw.ask("/chat", asks("a"))
        assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
        assert await answered_by(gw, asks("b")) == "beta"
        assert (await gw.ask("/readyz")).json()["upstreams"] == {
            "alpha": "upstream_unreachable",
            "beta": "ok",
        }
        again = await gw.ask("/chat", asks("a"))  # the model is known, and whoever serves it is away
        assert (again.status, again.error["code"]) == (502, "upstream_unreachable")


async def test_no_upstream_can_be_reached(running_gateway: Run) -> None:
    with refusing_upstream() as one, refusing_upstream() as other:
        async with running_gateway(upstreams=[{"url": one}, {"url": other}]) as gw:
            for path, body in (("/chat", asks("a")), ("/v1/models", None), ("/v1/files", None)):
                answer = await gw.ask(path, body)
                assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")


async def test_the_models_of_all_upstreams_are_one_list(two: Any) -> None:
    async with two() as (_, _, gw):
        answer = await gw.ask("/v1/models")
        assert answer.header("content-type") == "application/json"
        assert answer.json()["object"] == "list"
        assert [model["id"] for model in answer.json()["data"]] == ["a", "shared", "b"]
        assert {model["owned_by"] for model in answer.json()["data"]} == {"scripted"}


async def test_vllms_own_list_comes_through_whole(behind: Behind) -> None:
    recorded = load_recording("vllm_models").body
    script = raw_reply(recorded.encode(), headers=[("content-type", "application/json")])
    async with behind(script, upstream={"models": None}) as (_, gw):
        assert (await gw.ask("/v1/models")).json() == msgspec.json.decode(recorded)


@pytest.mark.parametrize(
    "broken", [b"<html>", b"[]", b'{"data":null}', b'{"data":[{"no":"id"}]}', b'{"data":[7]}']
)
async def test_a_list_that_is_none_is_told(behind: Behind, broken: bytes) -> None:
    async with behind(raw_reply(broken), upstream={"models": None}) as (_, gw):
        answer = await gw.ask("/v1/models")
        assert (answer.status, answer.error["code"]) == (502, "upstream_broken")
        ready = await gw.ask("/readyz")
        assert (ready.status, list(ready.json()["upstreams"].values())) == (503, ["upstream_broken"])


@pytest.mark.parametrize("script", [error_reply(500), error_reply(401), [Close()]], ids=["500", "401", "FIN"])
async def test_a_list_that_does_not_come_is_told(behind: Behind, script: Any) -> None:
    async with behind(script, upstream={"models": None}) as (_, gw):
        answer = await gw.ask("/v1/models")
        assert (answer.status, answer.error["code"]) == (502, "upstream_broken")


# every other path


async def test_embeddings_go_the_way_of_a_chat(two: Any) -> None:
    body = b'{"model":"b","input":"\\u00e9","dimensions":1e2}'
    async with two() as (_, beta, gw):
        answer = await gw.ask("/v1/embeddings", body)
        assert answer.status == 200
        assert (beta.seen[0].path, beta.seen[0].body) == ("/v1/embeddings", body)


async def test_a_sound_is_passed_on_unread(behind: Behind) -> None:
    kind = "multipart/form-data; boundary=b"
    async with behind(json_reply({"text": "첫눈"})) as (upstream, gw):
        answer = await gw.ask("/v1/audio/transcriptions", MULTIPART, headers=[("content-type", kind)])
        assert answer.json() == {"text": "첫눈"}
        seen = upstream.seen[0]
        assert (seen.method, seen.path, seen.body) == ("POST", "/v1/audio/transcriptions", MULTIPART)
        assert seen.header("content-type") == kind
        assert seen.header("content-length") == str(len(MULTIPART))


async def test_a_sound_comes_back_as_it_is(behind: Behind) -> None:
    async with behind(raw_reply(BINARY, headers=[("content-type", "audio/wav")], chunked=True)) as (_, gw):
        answer = await gw.ask("/v1/audio/speech", {"input": "안녕"})
        assert (answer.header("content-type"), answer.body) == ("audio/wav", BINARY)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files?limit=2&after=a%2Fb&q=%ED%95%9C",
        "/v1/models/org%2Fname",
        "/v1/models/org/name",
        "/v1/responses/r%20x",
        "/v1/a//b/",
        "/v1/x?",
        "/v1/x?q=..",
        "/v1/..x/y..",
    ],
)
async def test_a_path_arrives_as_it_was_written(behind: Behind, path: str) -> None:
    async with behind(json_reply({})) as (upstream, gw):
        assert (await gw.ask(path)).status == 200
        seen = upstream.seen[0]
        assert (seen.method, seen.path.rstrip("?")) == ("GET", path.rstrip("?"))
        assert seen.body_bytes == 0


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_other_methods_are_passed_on(behind: Behind, method: str) -> None:
    reply = raw_reply(b"" if method == "HEAD" else b"{}", headers=[("content-type", "application/json")])
    async with behind(reply) as (upstream, gw):
        answer = await gw.ask("/v1/files/f1", method=method)
        assert (answer.status, answer.whole) == (200, True)
        assert (upstream.seen[0].method, upstream.seen[0].path) == (method, "/v1/files/f1")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../metrics",
        "/v1/x/../../metrics",
        "/v1/%2e%2e/metrics",
        "/v1/..%2fmetrics",
        "/v1/%2E./metrics",
        "/v1/x/..",
        "/v1/..%5cmetrics",
        "/v1/..\\metrics",
    ],
)
async def test_a_path_cannot_climb_out(behind: Behind, path: str) -> None:
    async with behind(json_reply({})) as (upstream, gw):
        for body in (None, b"{}"):
            answer = await gw.ask(path, body)
            assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert not upstream.seen
        assert not upstream.probes


async def test_a_head_that_waits_is_asked_without_a_body(behind: Behind) -> None:
    async with behind([Stall()], total_timeout_s=0.2) as (_, gw):
        answer = await gw.ask("/v1/files")
        assert (answer.status, answer.error["code"]) == (504, "total_timeout")


async def test_another_body_has_the_same_limit(behind: Behind) -> None:
    kind = [("content-type", "multipart/form-data; boundary=b")]
    async with behind(max_body_bytes=4096) as (upstream, gw):
        answer = await gw.ask("/v1/audio/transcriptions", MULTIPART, headers=kind)
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        assert not upstream.seen


async def test_a_list_of_models_that_is_nested_too_deeply_is_no_mistake_of_ours(behind: Behind) -> None:
    deep = b"[" * 5000 + b"]" * 5000
    reply = raw_reply(
        b'{"data":[{"id":"a","x":' + deep + b"}]}", headers=[("content-type", "application/json")]
    )
    async with behind(reply, upstream={"models": None}) as (_, gw):
        ready = await gw.ask("/readyz")
        assert (ready.status, ready.json()["ready"]) == (503, False)


async def test_head_has_the_length_of_the_body_that_is_not_sent(behind: Behind) -> None:
    refusal = [Send(b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\ncontent-length: 77\r\n\r\n")]
    async with behind(refusal) as (_, gw):
        reader, writer = await asyncio.open_connection("127.0.0.1", gw.port)
        writer.write(b"HEAD /v1/models/x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert b"content-length: 77\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")
