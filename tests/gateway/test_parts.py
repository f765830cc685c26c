"""However a media part is written, it is read; and no URL reaches an upstream in disguise."""

from __future__ import annotations

import base64
import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from dabom.gateway.facts import MAX_LOOKS, MAX_MEDIA, FactsReader
from dabom.gateway.scan import scan
from dabom.testing import ScriptedUpstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.gateway.conftest import Behind, Run, RunningGateway

OUTSIDE = "http://10.0.0.1/secret.png"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def noise(size: tuple[int, int]) -> str:
    out = io.BytesIO()
    Image.effect_noise(size, 90).convert("RGB").save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


NOISE = noise((300, 200))


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def body_of(*parts: dict[str, Any]) -> bytes:
    return json.dumps({"model": "qwen", "messages": [{"role": "user", "content": list(parts)}]}).encode()


def escaped(chars: str, form: str) -> Callable[[bytes], bytes]:
    """A writer of JSON that writes these characters of base64 otherwise."""

    def write(body: bytes) -> bytes:
        text = NOISE
        for char in chars:
            text = text.replace(char, form % ord(char) if "%" in form else form)
        return body.replace(NOISE.encode(), text.encode())

    return write


WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "System.Text.Json of .NET": escaped("+", "\\u%04X"),
    "PHP": escaped("/", "\\/"),
    "all of them": escaped("=+/", "\\u%04x"),
    "none": bytes,
}


@pytest.mark.parametrize("head", ["data:image/png;base64,", "DATA:image/png;base64,", "data:;base64,", ""])
@pytest.mark.parametrize("writer", WRITERS)
async def test_every_way_to_write_base64_is_read(running_gateway: Run, writer: str, head: str) -> None:
    body = WRITERS[writer](body_of(image(head + NOISE)))
    assert json.loads(body) == json.loads(body_of(image(head + NOISE)))
    (medium,) = FactsReader().read(scan(body)).media
    assert (medium.width, medium.height, medium.remote) == (300, 200, False)
    assert medium.bytes == len(base64.b64decode(NOISE))


@pytest.mark.parametrize("limit", [None, 20_000])
@pytest.mark.parametrize(
    "head", ["DATA:image/png;base64,", "data:;base64,", "data:image/png;a=b;base64,", ""]
)
@pytest.mark.parametrize("writer", WRITERS)
async def test_it_passes_or_is_scaled_however_it_is_written(
    upstreams: Any, limit: int | None, writer: str, head: str
) -> None:
    body = WRITERS[writer](body_of(image(head + NOISE)))
    async with upstreams(max_pixels=limit) as (up, gw):
        answer = await gw.ask("/chat", body)
        assert answer.status == 200, answer.body
        if limit is None:
            assert up.seen[-1].body == body
            return
        assert answer.header("x-dabom-media") == "0;was=300x200;now=160x96"
        url = up.seen[-1].json()["messages"][0]["content"][0]["image_url"]["url"]
        with Image.open(io.BytesIO(base64.b64decode(url.rpartition(",")[2]))) as picture:
            assert picture.size == (160, 96)


DISGUISES = {
    "plain": OUTSIDE,
    "upper case": OUTSIDE.upper(),
    "spaces before it": " " * 30 + OUTSIDE,
    "many spaces before it": " " * 600 + OUTSIDE,
    "control characters before it": "\x01\x1f\t" * 20 + OUTSIDE,
    "a tab in its scheme": OUTSIDE.replace("http", "ht\ttp"),
    "a long scheme": "x" * 40 + OUTSIDE,
    "no scheme": OUTSIDE.removeprefix("http:"),
    "a file": "file:///etc/passwd",
    "a file without slashes": "FILE:/etc/passwd",
}


@pytest.mark.parametrize(("path", "check"), [("/chat", True), ("/chat/batch", False)])
@pytest.mark.parametrize("escape", [False, True], ids=["", "escaped"])
@pytest.mark.parametrize("disguise", DISGUISES)
async def test_no_outside_url_reaches_an_upstream(
    behind: Behind, disguise: str, escape: bool, path: str, check: bool
) -> None:
    url = DISGUISES[disguise]
    text = "".join(f"\\u{ord(char):04x}" for char in url) if escape else json.dumps(url)[1:-1]
    async with behind(media={"check": check}) as (upstream, gw):
        for kind in ("image_url", "video_url", "audio_url", "file"):
            body = body_of({"type": kind, kind: {"url": "@"}}).replace(b'"@"', f'"{text}"'.encode())
            if path == "/chat/batch":
                answer = await gw.ask(path, b'{"items":[{"id":1,"body":%b}]}' % body)
                assert json.loads(answer.body)["status"] == 400
            else:
                assert (await gw.ask(path, body)).status == 400
        assert not upstream.seen


def too_many_pictures() -> list[dict[str, Any]]:
    return [image(f"data:image/png;base64,{PIXEL}")] * MAX_MEDIA


def too_many_words() -> list[dict[str, Any]]:
    return [{"type": "text", "text": "a"}] * MAX_LOOKS


@pytest.mark.parametrize("filling", [too_many_pictures, too_many_words])
@pytest.mark.parametrize("key", ["image_url", "image\\u005furl"])
async def test_no_url_hides_behind_very_many_parts(
    behind: Behind, filling: Callable[[], list[dict[str, Any]]], key: str
) -> None:
    body = body_of(*filling(), image(OUTSIDE))
    head, _, tail = body.rpartition(b'"type": "image_url", "image_url"')
    async with behind() as (upstream, gw):
        answer = await gw.ask("/chat", head + f'"{key}"'.encode() + tail)
        assert (answer.status, answer.error["code"]) == (400, "media_too_large")
        assert not upstream.seen


async def test_a_conversation_may_be_as_long_as_it_likes(behind: Behind) -> None:
    parts = [{"type": "text", "text": "그림 \\ image_url"}] * (MAX_LOOKS + 10)
    async with behind() as (upstream, gw):
        body = body_of(*parts)
        assert (await gw.ask("/chat", body)).status == 200
        assert upstream.seen[-1].body == body


@pytest.mark.parametrize("field", ["query", "queries", "documents", "data_1", "data_2"])
@pytest.mark.parametrize("many", [False, True])
async def test_scores_and_rankings_hold_media_too(behind: Behind, field: str, many: bool) -> None:
    shown = {"content": [image(OUTSIDE)]}
    async with behind() as (upstream, gw):
        answer = await gw.ask("/v1/score", {"model": "qwen", field: [shown] if many else shown})
        assert (answer.status, answer.error["code"]) == (400, "url_refused")
        assert not upstream.seen


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\r\n \t"])
@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream"])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions/", "/v1/chat%2Fcompletions"])
async def test_json_is_read_whatever_it_is_called(
    behind: Behind, path: str, kind: str, before: bytes
) -> None:
    async with behind() as (upstream, gw):
        answer = await gw.ask(path, before + body_of(image(OUTSIDE)), headers={"content-type": kind})
        assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
        assert not upstream.seen


@pytest.fixture
def upstreams(running_gateway: Run) -> Any:
    """`async with upstreams(max_pixels=9) as (upstream, gw)`: one upstream with these settings."""

    @asynccontextmanager
    async def start(**more: Any) -> AsyncIterator[tuple[ScriptedUpstream, RunningGateway]]:
        async with ScriptedUpstream() as up:
            one = {"url": up.url, "name": "vl", "kind": "vllm", "family": "qwen3-vl", **more}
            async with running_gateway(upstreams=[one]) as gw:
                yield up, gw

    return start
