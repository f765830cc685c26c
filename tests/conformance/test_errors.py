"""Every kind of error that vLLM tells comes out of the gateway with its status, content type and body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.conformance

Build = Callable[[Any, Any], Any]
"""A request from the media and the function that builds one."""


def link(url: str) -> Any:
    return {"type": "image_url", "image_url": {"url": url}}


KINDS: dict[str, tuple[int, Build]] = {
    "not base64": (400, lambda m, r: r(["x", link("data:image/png;base64,%%%no%%%")])),
    "not an image": (400, lambda m, r: r(["x", m.image(b"no picture at all")])),
    "cut image": (400, lambda m, r: r(["x", m.image(m.octets("square.jpg")[:400], "image/jpeg")])),
    "bad clip": (400, lambda m, r: r([m.clip(b"no clip" * 20), "x"])),
    "cut clip": (400, lambda m, r: r([m.clip(m.octets("silent.mp4")[:2000]), "x"])),
    "too many images": (400, lambda m, r: r([*[m.image()] * 5, "x"])),
    "too many clips": (400, lambda m, r: r([*[m.clip()] * 2, "x"])),
    "sound to a model that cannot hear": (400, lambda m, r: r([m.sound(), "x"])),
    "unknown scheme": (400, lambda m, r: r(["x", link("ftp://example.invalid/a.png")])),
    "unknown part": (400, lambda m, r: r([{"type": "hologram", "hologram": "x"}])),
    "too long": (400, lambda m, r: r("word " * 6000)),
    "max_tokens too large": (400, lambda m, r: r("hi", max_tokens=100_000)),
    "max_tokens 0": (400, lambda m, r: r("hi", max_tokens=0)),
    "temperature": (400, lambda m, r: r("hi", temperature=-1)),
    "top_p": (400, lambda m, r: r("hi", top_p=7)),
    "n": (400, lambda m, r: r("hi", n=0)),
    "tool_choice without tools": (400, lambda m, r: r("hi", tool_choice="required")),
    "bad schema": (
        400,
        lambda m, r: r(
            "hi",
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "nonsense"}},
            },
        ),
    ),
    "no messages": (400, lambda m, r: {"model": "tiny"}),
    "empty messages": (400, lambda m, r: {"model": "tiny", "messages": []}),
    "stream of a bad image": (400, lambda m, r: r(["x", m.image(b"no")], stream=True)),
}


REFUSED: dict[str, str] = {
    "not base64": "invalid_media",
    "not an image": "media_unsupported",
    "cut image": "invalid_media",
    "cut clip": "invalid_media",
    "unknown scheme": "url_refused",
    "max_tokens too large": "prompt_too_long",
    "stream of a bad image": "media_unsupported",
}
"""What the gateway sees before vLLM does."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in REFUSED])
async def test_error(vl: Any, media: Any, request_of: Any, kind: str) -> None:
    status, build = KINDS[kind]
    answer = await vl.both(build(media, request_of))
    assert answer.status == status
    assert "error" in answer.json


@pytest.mark.parametrize("kind", REFUSED)
async def test_error_that_the_gateway_tells_first(vl: Any, media: Any, request_of: Any, kind: str) -> None:
    """vLLM would have refused it too."""
    status, build = KINDS[kind]
    body = build(media, request_of)
    direct, relayed = await vl.post(vl.server, body), await vl.post(vl.gateway, body)
    assert relayed.status == direct.status == status
    assert relayed.json["error"]["code"] == REFUSED[kind]


async def test_outside_url(vl: Any, request_of: Any) -> None:
    """vLLM fetches what a client names, from itself too; the gateway does not."""
    body = request_of(["x", link(f"{vl.server}/v1/nothing.png")])
    direct, relayed = await vl.post(vl.server, body), await vl.post(vl.gateway, body)
    assert direct.status == 422
    assert (relayed.status, relayed.json["error"]["code"]) == (400, "url_refused")


async def test_unknown_model(vl: Any, request_of: Any) -> None:
    """With one upstream the model's name is the upstream's business."""
    body = request_of("hi", model="no-such-model")
    direct, relayed = await vl.post(vl.server, body), await vl.post(vl.gateway, body)
    assert relayed.status == direct.status == 404


async def test_unknown_fields_and_roles_pass(vl: Any, request_of: Any) -> None:
    assert (await vl.both(request_of("hi", no_such_field=1))).status == 200
    wizard = {**request_of(""), "messages": [{"role": "wizard", "content": "x"}]}
    assert (await vl.both(wizard)).status == 200


async def test_unknown_path(vl: Any) -> None:
    direct = await vl.post(vl.server, {}, "/v1/nothing")
    relayed = await vl.post(vl.gateway, {}, "/v1/nothing")
    assert relayed.same == direct.same
    assert (relayed.status, relayed.json) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize("body", [b'{"model": "tiny", "messages": [', b""])
async def test_malformed_json_is_refused_by_the_gateway(vl: Any, body: bytes) -> None:
    direct, relayed = await vl.post(vl.server, body), await vl.post(vl.gateway, body)
    assert relayed.status == direct.status == 400
    assert relayed.json["error"]["code"] == "invalid_json"


async def test_wrong_content_type_is_refused_by_the_gateway(vl: Any, request_of: Any) -> None:
    answer = await vl.post(vl.gateway, request_of("hi"), content_type="text/plain")
    assert (answer.status, answer.json["error"]["code"]) == (415, "unsupported_media_type")


async def test_silent_clip_with_sound_asked_for(omni: Any, media: Any, request_of: Any) -> None:
    body = request_of([media.clip(), "x"], mm_processor_kwargs={"use_audio_in_video": True})
    assert (await omni.both(body)).status == 400


async def test_bad_sound(omni: Any, media: Any, request_of: Any) -> None:
    assert (await omni.both(request_of([media.sound(b"junk" * 50), "x"]))).status == 400


async def test_the_key_of_the_upstream_is_the_gateways_own(omni: Any, request_of: Any) -> None:
    """vLLM refuses who has no key; the gateway sends its own and not the client's."""
    direct = await omni.post(omni.server, request_of("hi"))
    assert (direct.status, direct.json) == (401, {"error": "Unauthorized"})
    relayed = await omni.post(omni.gateway, request_of("hi"), authorization="Bearer sk-of-the-client")
    assert relayed.status == 200
