from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from dabom.gateway.media_options import (
    Listener,
    MediaOptions,
    Policy,
    Verdict,
    judge_options,
    read_media_options,
)
from dabom.gateway.media_settings import MediaSettings
from dabom.gateway.scan import scan

OMNI = Listener(vllm=True, omni=True)
STRICT = Listener(vllm=True, omni=True, trusts_options=False)


def judge(
    processor: dict[str, Any],
    loader: dict[str, Any] | None = None,
    *,
    silent: tuple[int, ...] = (),
    listener: Listener = OMNI,
    policy: Policy = "fix",
) -> Verdict:
    places = {"mm_processor_kwargs": (1, 2)} if processor else {}
    options = MediaOptions(processor, loader or {}, places, 1)
    return judge_options(options, 2, silent, listener, policy)


def test_options_and_their_places_are_read() -> None:
    prompt = '"messages":[{"content":"\\"mm_processor_kwargs\\": 1"}]'
    text = "{" + prompt + ',  "mm_processor_kwargs" : {"fps": 2.0 }, "x":1}'
    options = read_media_options(scan(text.encode()))
    start, end = options.places["mm_processor_kwargs"]
    assert json.loads(text[start:end]) == options.processor == {"fps": 2.0}
    assert (options.loader, options.start) == ({}, 1)
    assert read_media_options(scan(b' {"a":1}')).start == 2


@pytest.mark.parametrize(
    "text", [b"[]", b'"a"', b'{"mm_processor_kwargs": 5}', b'{"mm_processor_kwargs": null}']
)
def test_odd_options_are_left_to_the_upstream(text: bytes) -> None:
    assert not read_media_options(scan(text)).given


@pytest.mark.parametrize(
    ("processor", "loader", "fixed"),
    [
        ({"fps": 2.0}, {}, None),
        ({"fps": 4}, {"video": {"fps": 4.0}}, None),
        ({}, {"video": {"fps": 1}}, None),
        ({}, {"video": {"num_frames": 8}}, None),
        ({"use_audio_in_video": True}, {}, {"use_audio_in_video": True, "fps": 2.0}),
        ({"fps": 1.0}, {}, {"fps": 2.0}),
        ({"fps": 2.0}, {"video": {"fps": 3}}, {"fps": 3.0}),
        ({"videos_kwargs": {"fps": 1}}, {}, {"videos_kwargs": {"fps": 2.0}, "fps": 2.0}),
        ({"fps": True}, {"video": 7}, {"fps": 2.0}),
    ],
)
def test_the_rate_is_told_in_both_places(
    processor: dict[str, Any], loader: dict[str, Any], fixed: dict[str, Any] | None
) -> None:
    verdict = judge(processor, loader)
    if fixed is None:
        assert verdict == Verdict()
        return
    assert verdict == Verdict({"mm_processor_kwargs": fixed}, ("fps_set",))
    assert judge(processor, loader, policy="warn") == Verdict(warnings=("fps_mismatch",))
    refusal = judge(processor, loader, policy="refuse").refusal
    assert refusal is not None
    assert "would drift apart" in refusal.message


def test_nothing_is_added_for_an_upstream_of_which_nothing_is_known() -> None:
    assert judge({}) == Verdict(warnings=("fps_mismatch",))
    assert judge({}, policy="refuse") == Verdict(warnings=("fps_mismatch",))
    trusting = Listener(vllm=True, omni=True, trusts_options=True)
    assert judge({}, listener=trusting).warnings == ("fps_set",)
    assert judge({"fps": 9}, listener=Listener()) == Verdict()
    assert judge({"fps": 9}, listener=Listener(vllm=True)) == Verdict()


def test_options_that_the_upstream_would_refuse() -> None:
    assert judge({"fps": 2.0}, listener=STRICT, policy="warn") == Verdict(warnings=("options_untrusted",))
    assert judge({"fps": 2.0}, listener=STRICT) == Verdict(
        {"mm_processor_kwargs": None}, ("options_left_out",)
    )
    policies: tuple[Policy, ...] = ("fix", "refuse")
    for policy in policies:
        refusal = judge({"use_audio_in_video": True}, listener=STRICT, policy=policy).refusal
        assert refusal is not None
        assert "--trust-request-mm-kwargs" in refusal.message


def test_clips_without_sound() -> None:
    heard = {"use_audio_in_video": True, "fps": 2.0}
    assert judge(heard) == Verdict()
    assert judge(heard, silent=(0, 3)) == Verdict({"mm_processor_kwargs": {"fps": 2.0}}, ("sound_left_out",))
    assert judge(heard, silent=(3,), policy="warn").warnings == ("clip_without_sound",)
    some = judge(heard, silent=(3,)).refusal
    assert some is not None
    assert "media part 4" in some.message
    assert judge({"fps": 2.0}, silent=(0, 3)) == Verdict()


@pytest.mark.parametrize("entry", ["http://nas", "nas/x", "10.0.0.0/99", "", "a b", "nas:80", "*"])
def test_an_entry_of_the_allow_list_is_a_host_or_a_network(entry: str) -> None:
    with pytest.raises(ValidationError, match="is no host"):
        MediaSettings(allow=(entry,))


def test_hosts_domains_and_networks_are_taken() -> None:
    given = ("NAS.example", "*.broadcast.example", "10.20.0.0/16", "fd00::/8", "192.168.0.7")
    assert MediaSettings(allow=given).allow == tuple(entry.lower() for entry in given)
