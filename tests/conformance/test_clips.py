"""Clips that Dabom cuts, and their controls, on a real server: what it counts is what the manifest says."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.test_tokens import ask

from dabom.clips.controls import KINDS, make_control
from dabom.clips.cut import Cut, cut_clips
from dabom.clips.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Callable

    from dabom.clips.manifest import Clip

pytestmark = pytest.mark.conformance

BROADCAST = Path(__file__).parents[2] / "samples" / "broadcast.mp4"
# With its media cache, vLLM loses the sound of a second clip that sounds the same, as controls do.
FLAGS = ("--max-model-len", "32768", "--max-num-batched-tokens", "32768", "--mm-processor-cache-gb", "0")


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Clip]:
    """Every clip of the sample in two profiles, and the controls of one."""
    folder = tmp_path_factory.mktemp("clips")
    found: dict[Path, Clip] = {}
    for name in ("lean", "seed"):
        out = folder / name
        made = cut_clips(Cut(BROADCAST, out, profile=PROFILES[name])).made
        found |= {out / clip.clip: clip for clip in made}
    first, other, *_ = sorted(found)
    for kind in KINDS:
        control = make_control(first, folder / kind, kind, other)
        found[folder / kind / control.clip] = control
    return found


@pytest.mark.parametrize("family", ["qwen3-omni", "qwen3-vl"])
def test_the_server_counts_what_the_manifest_says(
    serve: Callable[..., Any], clips: dict[Path, Clip], family: str
) -> None:
    processor = {"use_audio_in_video": True, "fps": 2.0} if family == "qwen3-omni" else {}
    assert len(clips) == 14
    with serve(f"exact-{family}", *FLAGS) as (server, _):
        for path, clip in clips.items():
            encoded = base64.b64encode(path.read_bytes()).decode()
            part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{encoded}"}}
            status, answer = asyncio.run(ask(server, [part], processor, {"video": {"fps": 2.0}}))
            assert status == 200, (path, answer)
            counted = answer["usage"]["prompt_tokens_details"]["multimodal_tokens"]
            assert {kind: number for kind, number in counted.items() if number} == clip.tokens[family], path
