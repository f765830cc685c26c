"""Options of media that vLLM refuses or misreads, by each policy of docs/media.md."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.conftest import LARGE, SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.conformance.conftest import Media
    from tests.example_fleet import Answer, ExampleFleet

pytestmark = pytest.mark.conformance

_HEARD = {"mm_processor_kwargs": {"use_audio_in_video": True}}
_FASTER = {"media_io_kwargs": {"video": {"fps": 4}}}


@pytest.fixture(scope="module")
def fleets(fleet_of: Callable[..., Any]) -> Iterator[Mapping[str, ExampleFleet]]:
    """One for each policy."""
    with ExitStack() as stack:
        yield {
            policy: stack.enter_context(fleet_of(media={"omni": policy}))
            for policy in ("warn", "fix", "refuse")
        }


@pytest.mark.parametrize(
    ("policy", "status", "code", "told"),
    [
        ("warn", 400, None, "warning=options_untrusted"),
        ("fix", 200, None, "warning=options_left_out"),
        ("refuse", 400, "invalid_request", None),
    ],
)
async def test_options_that_the_server_does_not_trust(
    fleets: Mapping[str, ExampleFleet], exact_media: Media, policy: str, status: int, code: Any, told: Any
) -> None:
    answer = await _ask(fleets[policy], SMALL, exact_media.part("c75_10.mp4"), **_FASTER)
    _check(answer, status, code, told)
    if policy == "warn":  # what vLLM says reaches the client
        assert "--trust-request-mm-kwargs" in answer.error["message"]


@pytest.mark.parametrize(
    ("policy", "status", "code", "told"),
    [
        ("warn", 400, None, "warning=clip_without_sound, warning=fps_mismatch"),
        ("fix", 200, None, "warning=sound_left_out, warning=fps_set"),
        ("refuse", 400, "invalid_media", None),
    ],
)
async def test_a_silent_clip_that_shall_be_heard(
    fleets: Mapping[str, ExampleFleet], exact_media: Media, policy: str, status: int, code: Any, told: Any
) -> None:
    answer = await _ask(fleets[policy], LARGE, exact_media.part("c75_10.mp4"), **_HEARD)
    _check(answer, status, code, told)


@pytest.mark.parametrize(
    ("policy", "status", "code", "told"),
    [
        ("warn", 200, None, "warning=fps_mismatch"),
        ("fix", 200, None, "warning=fps_set"),
        ("refuse", 400, "invalid_request", None),
    ],
)
async def test_a_rate_that_is_told_in_one_place(
    fleets: Mapping[str, ExampleFleet], exact_media: Media, policy: str, status: int, code: Any, told: Any
) -> None:
    answer = await _ask(fleets[policy], LARGE, exact_media.part("s75_ntsc.mp4"), **_FASTER)
    _check(answer, status, code, told)


async def test_one_that_takes_no_options_can_still_be_fallen_back_to(
    fleets: Mapping[str, ExampleFleet], exact_media: Media
) -> None:
    """The first has no room for the clip at this rate. The second gets it at its own."""
    clip, fast = exact_media.part("c33_15.mp4"), {"media_io_kwargs": {"video": {"fps": 15}}}
    answer = await _ask(fleets["fix"], "vision-auto", clip, **fast)
    assert answer.status == 200, answer.body
    assert answer.hops[1:] == [f"{LARGE};failed=prompt_too_long", f"{SMALL};status=200"]
    assert answer.headers["X-Dabom-Media"] == "warning=options_left_out"


async def _ask(fleet: ExampleFleet, model: str, *parts: Any, **more: Any) -> Answer:
    content = [*parts, {"type": "text", "text": "What is it?"}]
    fixed = {"model": model, "temperature": 0, "max_tokens": 4}
    return await fleet.post({**fixed, "messages": [{"role": "user", "content": content}], **more})


def _check(answer: Answer, status: int, code: str | None, told: str | None) -> None:
    assert answer.status == status, answer.body
    if code is not None:
        assert answer.error["code"] == code
    assert answer.headers.get("X-Dabom-Media") == told
