"""What the gateway writes into its log before it asks, against what real vLLM counts, for each item alone.

Its estimate of the text is taken away by asking for the text alone: what is left is the media, and exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.conftest import LARGE, SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.conftest import Media
    from tests.example_fleet import Answer, ExampleFleet

pytestmark = pytest.mark.conformance

_HEARD = {"mm_processor_kwargs": {"use_audio_in_video": True}}
_SLOW = {"mm_processor_kwargs": {"fps": 1.0}, "media_io_kwargs": {"video": {"fps": 1}}}
_TIGHT = {"mm_processor_kwargs": {"max_pixels": 200_000}}
_PICTURES = ("p640x360.png", "p1280x720.png", "turned3.jpg", "mode_RGBA.png", "kind.webp", "p2000x15.png")
_LARGE_PICTURES = ("p1920x1080.png", "turned6_12mp.jpg", "p4096x4096.png", "mode_CMYK.jpg")
_CLIPS = ("c60_10.mp4", "c179_ntsc.mp4", "c33_15.mp4", "cut.mp4")
_CASES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    *((model, (name,), {}) for model in (LARGE, SMALL) for name in (*_PICTURES, *_LARGE_PICTURES, *_CLIPS)),
    *((model, ("p640x360.png", "p1920x1080.png", "p1x1.png"), {}) for model in (LARGE, SMALL)),
    *((model, ("p640x360.png", "c75_10.mp4"), {}) for model in (LARGE, SMALL)),
    *((LARGE, (name,), {}) for name in ("a1s.wav", "a6s.wav", "a2s_stereo.wav", "s60_10.mp4")),
    *((LARGE, (name,), _HEARD) for name in ("s60_10.mp4", "s75_ntsc.mp4", "s40_10_longer.mp4")),
    (LARGE, ("p224x224.png", "a6s.wav"), {}),
    (LARGE, ("c60_10.mp4",), _SLOW),
    (LARGE, ("p1280x720.png",), _TIGHT),
    (LARGE, ("p4096x4096.png",), _TIGHT),
]
_UNTRUSTED: list[tuple[str, dict[str, Any]]] = [
    ("c60_10.mp4", _SLOW),
    ("c60_10.mp4", {"media_io_kwargs": {"video": {"fps": 8}}}),
    ("p1280x720.png", _TIGHT),
]


@pytest.fixture(scope="module")
def fixing(fleet_of: Callable[..., Any]) -> Iterator[ExampleFleet]:
    """Options that an upstream does not take are left out, those that go wrong are put right."""
    with fleet_of(media={"omni": "fix"}) as running_fleet:
        yield running_fleet


def _name(case: tuple[str, tuple[str, ...], dict[str, Any]]) -> str:
    return f"{case[0]}-{'+'.join(case[1])}{'-options' if case[2] else ''}"


@pytest.mark.parametrize("case", [pytest.param(case, id=_name(case)) for case in _CASES])
async def test_media_cost_what_was_predicted(fleet: ExampleFleet, exact_media: Media, case: Any) -> None:
    model, names, options = case
    seen = await fleet.post(_request(model, exact_media, names, **options))
    await _compare(fleet, seen, await fleet.post(_request(model, exact_media, (), **options)), len(names))


@pytest.mark.parametrize(("name", "options"), _UNTRUSTED)
async def test_options_that_are_left_out_cost_nothing(
    fixing: ExampleFleet, exact_media: Media, name: str, options: dict[str, Any]
) -> None:
    seen = await fixing.post(_request(SMALL, exact_media, (name,), **options))
    assert "warning=options_left_out" in seen.headers["X-Dabom-Media"]
    await _compare(fixing, seen, await fixing.post(_request(SMALL, exact_media, ())), 1)


async def test_a_silent_clip_costs_what_is_left_of_it(fixing: ExampleFleet, exact_media: Media) -> None:
    seen = await fixing.post(_request(LARGE, exact_media, ("c60_10.mp4",), **_HEARD))
    assert "warning=sound_left_out" in seen.headers["X-Dabom-Media"]
    await _compare(fixing, seen, await fixing.post(_request(LARGE, exact_media, ())), 1)


async def test_the_metrics_say_what_the_log_says(fleet: ExampleFleet, exact_media: Media) -> None:
    labels = {"route": LARGE, "upstream": LARGE, "modality": "video"}

    async def counted() -> list[float]:
        kinds = ("predicted", "prompt", "answer")
        return [await fleet.metric("dabom_tokens_total", **labels, kind=kind) for kind in kinds]

    before = await counted()
    answer = await fleet.post(_request(LARGE, exact_media, ("c60_10.mp4",)))
    line = await fleet.line(answer)
    told = [line[name] for name in ("predicted_tokens", "prompt_tokens", "answer_tokens")]
    assert [after - then for after, then in zip(await counted(), before, strict=True)] == told
    assert told[1:] == [answer.usage["prompt_tokens"], answer.usage["completion_tokens"]]


async def _compare(fleet: ExampleFleet, seen: Answer, bare: Answer, items: int) -> None:
    assert seen.status == bare.status == 200, seen.body + bare.body
    with_media, without = await fleet.line(seen), await fleet.line(bare)
    predicted = with_media["predicted_tokens"] - without["predicted_tokens"]
    assert predicted == with_media["prompt_tokens"] - without["prompt_tokens"]
    # a clip whose sound is heard is told under both kinds
    counted = seen.usage["prompt_tokens_details"]["multimodal_tokens"]
    kinds = {record["kind"] for record in (await fleet.record(seen))["media"]}
    told = [number for kind, number in counted.items() if kind in kinds]
    assert predicted == sum(told) + 2 * items


def _request(model: str, media: Media, names: tuple[str, ...], **more: Any) -> dict[str, Any]:
    parts = [*(media.part(name) for name in names), {"type": "text", "text": "What is this?"}]
    fixed = {"model": model, "temperature": 0, "max_tokens": 1}
    return {**fixed, "messages": [{"role": "user", "content": parts}], **more}
