"""Media on their way through a route: refused before anyone is asked, made to fit whoever is asked."""

from __future__ import annotations

import base64
import io
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from PIL import Image

from dabom.testing import ScriptedUpstream, chat_answer, error_reply, json_reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.gateway.conftest import Run, RunningGateway

    from dabom.testing import Seen

OK = json_reply(chat_answer())
SMALL = {"max_pixels": 320 * 240}


def picture(width: int, height: int) -> dict[str, Any]:
    file = io.BytesIO()
    Image.effect_noise((width, height), 40).save(file, "PNG")
    return shown(file.getvalue())


def shown(octets: bytes, mime: str = "image/png") -> dict[str, Any]:
    url = f"data:{mime};base64,{base64.b64encode(octets).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def ask(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}], **more}


def size_of(part: dict[str, Any]) -> tuple[int, int]:
    octets = base64.b64decode(part["image_url"]["url"].partition(",")[2])
    return Image.open(io.BytesIO(octets)).size


def sent(seen: Seen) -> list[tuple[int, int]]:
    return [size_of(part) for part in seen.json()["messages"][0]["content"]]


@pytest.fixture
def route(running_gateway: Run) -> Any:
    """The model `m`: first `one`, which takes small pictures and is busy, then `two`, which takes all."""

    @asynccontextmanager
    async def start(**settings: Any) -> AsyncIterator[tuple[list[ScriptedUpstream], RunningGateway]]:
        busy = error_reply(503)
        async with ScriptedUpstream(busy, models=["m"]) as one, ScriptedUpstream(OK, models=["m"]) as two:
            upstreams = [{"url": one.url, "name": "one", **SMALL}, {"url": two.url, "name": "two"}]
            given = {"routes": {"r": {"steps": [["one"], ["two"]]}}, "models": {"m": "r"}} | settings
            async with running_gateway(upstreams=upstreams, **given) as gw:
                yield [one, two], gw

    return start


async def test_a_picture_fits_whoever_is_asked(route: Any) -> None:
    body = msgspec.json.encode(ask(picture(640, 480), picture(64, 48)))
    async with route() as (ups, gw):
        answer = await gw.ask("/chat", body)
        assert answer.status == 200
        assert sent(ups[0].seen[0]) == [(320, 240), (64, 48)]
        assert ups[1].seen[0].body == body
        assert answer.header("x-dabom-media") is None  # of the one that has answered
        page = (await gw.ask("/metrics")).body.decode()
        assert 'dabom_pictures_normalised_total{kind="scaled",route="m"} 1.0' in page


async def test_the_scale_is_told(running_gateway: Run) -> None:
    """Coordinates in an answer are those of the smaller picture."""
    async with ScriptedUpstream(OK) as up:
        upstream = [{"url": up.url, "name": "one", **SMALL}]
        async with running_gateway(upstreams=upstream) as gw:
            answer = await gw.ask("/chat", ask(picture(640, 480)))
        assert answer.header("x-dabom-media") == "0;was=640x480;now=320x240"
        assert sent(up.seen[0]) == [(320, 240)]
        assert int(up.seen[0].header("content-length") or 0) == up.seen[0].body_bytes


async def test_the_limit_of_the_route_holds_too(route: Any) -> None:
    routes = {"r": {"steps": [["two"]], "max_pixels": 160 * 120}}
    async with route(routes=routes) as (ups, gw):
        assert (await gw.ask("/chat", ask(picture(640, 480)))).status == 200
        assert sent(ups[1].seen[0]) == [(160, 120)]


async def test_pictures_of_a_batch_fit_too(route: Any) -> None:
    items = [{"id": n, "body": ask(picture(640 + n, 480))} for n in range(3)]
    async with route() as (ups, gw):
        answer = await gw.ask("/chat/batch", {"items": items})
        assert [line["status"] for line in map(msgspec.json.decode, answer.body.splitlines())] == [200] * 3
        assert all(width <= 320 for seen in ups[0].seen for width, _ in sent(seen))
        assert sorted(sent(seen)[0] for seen in ups[1].seen) == [(640, 480), (641, 480), (642, 480)]


@pytest.mark.parametrize("path", ["/chat", "/chat/batch"])
async def test_options_that_are_left_out_do_not_count(running_gateway: Run, path: str) -> None:
    """With them the picture would have 3,936 tokens and not fit; without, it has 300."""
    body = ask(picture(640, 480), mm_processor_kwargs={"min_pixels": 4_000_000}, max_tokens=8)
    async with ScriptedUpstream(OK) as up:
        upstream = {"url": up.url, "kind": "vllm", "family": "qwen3-vl", "max_model_len": 1000}
        upstream |= {"trusts_media_options": False}
        async with running_gateway(upstreams=[upstream], media={"omni": "fix"}) as gw:
            answer = await gw.ask(path, {"items": [{"id": 1, "body": body}]} if "batch" in path else body)
        assert b"prompt_too_long" not in answer.body
        assert "mm_processor_kwargs" not in {name for name, value in up.seen[0].json().items() if value}


@pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions", "/chat/batch"])
@pytest.mark.parametrize(
    ("part", "code"),
    [
        (shown(b""), "invalid_media"),
        (shown(b"<svg/>", "image/svg+xml"), "media_unsupported"),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "url_refused"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "url_refused"),
    ],
)
async def test_what_nobody_can_take_reaches_nobody(
    route: Any, path: str, part: dict[str, Any], code: str
) -> None:
    async with route() as (ups, gw):
        if path == "/chat/batch":
            answer = await gw.ask(path, {"items": [{"id": 1, "body": ask(part)}]})
            line = msgspec.json.decode(answer.body)
            assert (line["status"], line["code"]) == (400, code)
        else:
            answer = await gw.ask(path, ask(part))
            assert (answer.status, answer.error["code"]) == (400, code)
        assert not ups[0].seen + ups[1].seen


async def test_old_pictures_that_are_left_out_are_not_scaled(running_gateway: Run) -> None:
    old = {"role": "user", "content": [picture(640, 480)]}
    said = {"role": "assistant", "content": "a cat"}
    talk = [old, said, *[{"role": "user", "content": "and?"}, said] * 3, {"role": "user", "content": "hi"}]
    async with ScriptedUpstream(OK, models=["m"]) as up, ScriptedUpstream(OK, models=["x"]) as other:
        upstreams = [
            {"url": up.url, "name": "one", "modalities": [], **SMALL},
            {"url": other.url, "name": "two"},
        ]
        async with running_gateway(upstreams=upstreams, models={"m": "one"}) as gw:
            answer = await gw.ask("/chat", {"model": "m", "messages": talk})
            assert (answer.header("x-dabom-route"), answer.header("x-dabom-media")) == (
                "m;reason=model;left_out=1, one;status=200",
                None,
            )
            assert up.seen[0].json()["messages"][0]["content"][0]["type"] == "text"


async def test_the_grid_is_that_of_a_family_that_was_learned(running_gateway: Run) -> None:
    async with ScriptedUpstream(OK, models=["Qwen/Qwen3-VL-8B-Instruct"]) as up:
        async with running_gateway(upstreams=[{"url": up.url, "name": "one", **SMALL}]) as gw:
            assert (await gw.ask("/readyz")).status == 200
            asked = ask(picture(1000, 700)) | {"model": "Qwen/Qwen3-VL-8B-Instruct"}
            assert (await gw.ask("/chat", asked)).status == 200
        ((width, height),) = sent(up.seen[-1])
        assert (width % 32, height % 32) == (0, 0)
