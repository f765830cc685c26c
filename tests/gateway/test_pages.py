"""The pages that the gateway answers itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from openapi_spec_validator import validate

from dabom.testing import ScriptedUpstream, Stall, error_reply, refusing_upstream

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, Run

ROUTES = {
    ("get", "/healthz"),
    ("get", "/readyz"),
    ("get", "/metrics"),
    ("post", "/chat"),
    ("post", "/chat/batch"),
    ("post", "/v1/chat/completions"),
    ("get", "/v1/models"),
    ("get", "/v1/{path}"),
    ("post", "/v1/{path}"),
    ("post", "/admin/reload"),
}
WITHOUT_BODY = {("post", "/admin/reload")}
KEY = [("authorization", "Bearer sk-gate")]


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(method, path): op for path, item in document["paths"].items() for method, op in item.items()}


def example_in(content: dict[str, Any]) -> bool:
    return "example" in content or "examples" in content


async def test_the_openapi_document_is_valid(behind: Behind) -> None:
    async with behind() as (_, gw):
        answer = await gw.ask("/openapi.json")
        assert answer.header("content-type") == "application/json"
        validate(answer.json())
        assert (await gw.ask("/openapi.json")).body == answer.body


async def test_every_route_is_described(behind: Behind) -> None:
    async with behind() as (_, gw):
        described = operations((await gw.ask("/openapi.json")).json())
        assert set(described) >= ROUTES
        for operation in described.values():
            assert operation["summary"]
            assert operation["responses"]["200"]["description"]


@pytest.mark.parametrize("route", sorted(ROUTES), ids=" ".join)
async def test_every_route_has_an_example(behind: Behind, route: tuple[str, str]) -> None:
    async with behind() as (_, gw):
        operation = operations((await gw.ask("/openapi.json")).json())[route]
        contents = list(operation["responses"]["200"]["content"].values())
        if route[0] == "post" and route not in WITHOUT_BODY:
            contents += operation["requestBody"]["content"].values()
        assert contents
        assert all(map(example_in, contents)), contents


async def test_examples_of_requests_are_taken(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        described = operations((await gw.ask("/openapi.json")).json())
        for path in ("/chat", "/v1/chat/completions"):
            content = described["post", path]["requestBody"]["content"]["application/json"]
            for example in content["examples"].values():
                shown = msgspec.json.encode(example["value"]).replace(b"base64,...", b"base64,AAAA")
                assert (await gw.ask(path, shown)).status == 200
        batch = described["post", "/chat/batch"]["requestBody"]["content"]
        answer = await gw.ask("/chat/batch", batch["application/json"]["example"])
        assert (answer.status, answer.body.count(b"\n")) == (
            200,
            len(batch["application/json"]["example"]["items"]),
        )
        lines = batch["application/x-ndjson"]["example"].encode()
        answer = await gw.ask("/chat/batch", lines, headers=[("content-type", "application/x-ndjson")])
        assert (answer.status, answer.body.count(b"\n")) == (200, 2)
        assert len(upstream.seen) == 2 * 2 + 2 + 2


async def test_descriptions_of_errors_are_true(behind: Behind) -> None:
    async with behind() as (_, gw):
        document = (await gw.ask("/openapi.json")).json()
        for operation in operations(document).values():
            for status, response in operation["responses"].items():
                if int(status) >= 400 and "content" in response:
                    example = response["content"]["application/json"].get("example", {})
                    if "error" in example:
                        assert set(example["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
async def test_pages_ask_no_other_host(behind: Behind, page: str) -> None:
    async with behind() as (_, gw):
        answer = await gw.ask(page)
        assert (answer.header("content-type") or "").startswith("text/html")
        html = answer.body.decode()
        assert "openapi.json" in html
        loaded = re.findall(r"""(?:src|href|url)\s*[=:(]\s*["']?([^"'\s>)]+)""", html)
        assert loaded
        assert not [url for url in loaded if "//" in url]
        for url in loaded:
            if url.startswith("/"):
                asset = await gw.ask(url)
                assert asset.status == 200, url
                assert asset.body


async def test_health_asks_nobody(running_gateway: Run) -> None:
    with refusing_upstream() as url:
        async with running_gateway(url) as gw:
            answer = await gw.ask("/healthz")
            assert (answer.status, answer.json()) == (200, {"ok": True})
    async with ScriptedUpstream([Stall()]) as upstream, running_gateway(upstream.url) as gw:
        assert (await gw.ask("/healthz")).status == 200
        assert not upstream.connections_total


async def test_ready_tells_the_state_of_each(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        name = f"127.0.0.1:{upstream.port}"
        answer = await gw.ask("/readyz")
        assert (answer.status, answer.json()) == (
            200,
            {"ready": True, "draining": False, "upstreams": {name: "ok"}},
        )
        await upstream.__aexit__()
        answer = await gw.ask("/readyz")
        assert answer.status == 503
        assert answer.json() == {
            "ready": False,
            "draining": False,
            "upstreams": {name: "upstream_unreachable"},
        }


async def test_ready_is_over_when_the_gateway_drains(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        gw.gateway.drain()
        answer = await gw.ask("/readyz")
        assert (answer.status, answer.json()["ready"], answer.json()["draining"]) == (503, False, True)
        assert answer.json()["upstreams"] == {f"127.0.0.1:{upstream.port}": "ok"}


async def test_an_upstream_that_refuses_its_list_is_not_ready(behind: Behind) -> None:
    async with behind(error_reply(401), upstream={"models": None}) as (_, gw):
        answer = await gw.ask("/readyz")
        assert (answer.status, list(answer.json()["upstreams"].values())) == (503, ["upstream_broken"])


async def test_metrics_are_prometheus_text(behind: Behind, chat: dict[str, Any]) -> None:
    async with behind() as (upstream, gw):
        await gw.ask("/chat", chat)
        answer = await gw.ask("/metrics")
        assert answer.header("content-type") == "text/plain; version=0.0.4; charset=utf-8"
        name = f"127.0.0.1:{upstream.port}"
        labels = f'modality="text",path="/chat",route="",status="200",upstream="{name}"'
        assert f"dabom_requests_total{{{labels}}} 1.0" in answer.body.decode().splitlines()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_pages_take_get_alone(behind: Behind, method: str) -> None:
    async with behind() as (_, gw):
        for page in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
            answer = await gw.ask(page, b"", method=method)
            assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    "path", ["/", "/chat/", "/v2/models", "/v1", "/chat/batch/x", "/console", "/%2e%2e/etc"]
)
async def test_what_does_not_exist_is_told(behind: Behind, path: str) -> None:
    async with behind() as (upstream, gw):
        answer = await gw.ask(path)
        assert (answer.status, answer.error["code"], answer.error["type"]) == (
            404,
            "not_found",
            "invalid_request_error",
        )
        assert not upstream.seen


@pytest.mark.parametrize("given", [[], [("authorization", "Bearer wrong")], [("authorization", "Basic c2s=")],
                                   [("authorization", "")], [("authorization", "Bearer sk-gateX")],
                                   [("x-api-key", "sk-other")]])  # fmt: skip
async def test_the_gateways_key_is_asked_for(
    behind: Behind, chat: dict[str, Any], given: list[tuple[str, str]]
) -> None:
    async with behind(api_key="sk-gate") as (upstream, gw):
        posts = [
            ("/chat", chat),
            ("/v1/chat/completions", chat),
            ("/v1/embeddings", chat),
            ("/chat/batch", chat),
        ]
        gets = ["/v1/models", "/v1/files", "/metrics", "/docs", "/redoc", "/openapi.json", "/nothing"]
        for path, body in [*posts, *((path, None) for path in gets)]:
            answer = await gw.ask(path, body, headers=given)
            assert (answer.status, answer.error["code"]) == (401, "unauthorized"), path
            assert answer.error["type"] == "authentication_error"
            assert b"sk-gate" not in answer.body
        assert not upstream.seen + upstream.probes


async def test_the_key_opens_everything(behind: Behind, chat: dict[str, Any]) -> None:
    async with behind(api_key="sk-gate") as (upstream, gw):
        assert (await gw.ask("/chat", chat, headers=KEY)).status == 200
        for path in ("/v1/models", "/metrics", "/docs", "/redoc", "/openapi.json"):
            assert (await gw.ask(path, headers=KEY)).status == 200
        assert not [value for _, value in upstream.seen[0].headers if "sk-gate" in value]


async def test_health_and_readiness_need_no_key(behind: Behind) -> None:
    async with behind(api_key="sk-gate") as (_, gw):
        assert [(await gw.ask(path)).status for path in ("/healthz", "/readyz")] == [200, 200]


async def test_the_environment_sets_the_key(
    behind: Behind, chat: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DABOM_API_KEY", "sk-gate")
    async with behind() as (_, gw):
        assert (await gw.ask("/chat", chat)).status == 401
        assert (await gw.ask("/chat", chat, headers=KEY)).status == 200


async def test_a_large_body_without_a_key_is_not_taken(behind: Behind) -> None:
    async with behind(api_key="sk-gate") as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b"", headers=[("content-type", "application/json")], length=50_000_000)
        assert (await wire.rest()).status == 401
        assert not upstream.seen


async def test_the_scheme_of_a_key_has_no_case(behind: Behind) -> None:
    async with behind(api_key="sk-gate") as (_, gw):
        assert (await gw.ask("/v1/models", headers=[("authorization", "bearer  sk-gate")])).status == 200
        assert (await gw.ask("/v1/models", headers=[("authorization", "sk-gate")])).status == 401
