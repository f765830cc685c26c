"""Which files are asked about with which options, for each family."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from script.conformance.token_media import CLIPS, HEARD, MODES, SIZES, SOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FAMILIES = ("qwen3-vl", "qwen2.5-vl", "qwen3-omni")
CLIP, PICTURE = "c60_10.mp4", "p1280x720.png"


@dataclass(frozen=True)
class Case:
    """One request: its files in order, `mm_processor_kwargs` and `media_io_kwargs`."""

    family: str
    files: tuple[str, ...]
    processor: Mapping[str, Any] = field(default_factory=dict)
    loader: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """A name for reports."""
        options = {**self.processor, **self.loader}
        asked = json.dumps(options, separators=(",", ":")).replace('"', "") if options else ""
        return f"{self.family}-{'+'.join(self.files)}{asked}"


def fps(rate: float) -> dict[str, Any]:
    return {"video": {"fps": rate}}


def pictures(family: str) -> Iterator[Case]:
    names = [f"p{size}.png" for size in SIZES.split()]
    names += [f"turned{turn}.jpg" for turn in range(2, 9)] + ["turned6_12mp.jpg"]
    for mode in MODES:
        names.append(f"mode_{mode.replace(';', '')}.{'jpg' if mode == 'CMYK' else 'png'}")
    names += [f"kind.{suffix}" for suffix in ("webp", "bmp", "gif", "tiff")]
    yield from (Case(family, (name,)) for name in names)
    yield Case(family, ("p640x360.png", "p1x1.png", "p224x224.png"))
    yield Case(family, ("p1920x1080.png",) * 2)


def clips(family: str) -> Iterator[Case]:
    yield from (Case(family, (clip.name,)) for clip in CLIPS)
    yield Case(family, ("cut.mp4",))
    for rate in (0.5, 1, 1.5, 3, 4, 10, 30, 60):
        yield Case(family, (CLIP,), loader=fps(rate))
    yield Case(family, ("c191_24.mp4",), loader=fps(4))
    yield Case(family, ("c16_4.mp4",), loader=fps(4))
    yield Case(family, ("c240_60.mp4",), loader=fps(60))
    yield Case(family, ("v75_30.mkv",), loader=fps(4))
    yield Case(family, ("v70_15.mp4",), loader=fps(0.5))
    yield Case(family, ("p640x360.png", "c75_10.mp4"))
    yield Case(family, ("c75_10.mp4", "c30_10_tiny.mp4"))


def overrides(family: str) -> Iterator[Case]:
    both = {"shortest_edge": 200_000, "longest_edge": 400_000}
    asked: list[dict[str, Any]] = [
        {"max_pixels": 300_000},
        {"min_pixels": 2_000_000},
        {"min_pixels": 50_000, "max_pixels": 90_000},
        {"size": both},
        {"size": {"longest_edge": 400_000}},
        {"size": {"shortest_edge": 3_000_000}},
    ]
    for processor in asked:
        for name in (PICTURE, CLIP, "c16_4.mp4"):
            yield Case(family, (name,), processor)
    yield Case(family, (PICTURE,), {"images_kwargs": {"size": both}})
    yield Case(family, (CLIP,), {"videos_kwargs": {"size": both}})
    yield Case(family, (CLIP,), {"images_kwargs": {"size": both}})
    for scope, name in (("images_kwargs", PICTURE), ("videos_kwargs", "c16_4.mp4")):
        yield Case(family, (name,), {scope: {"size": {"longest_edge": 400_000}}})
        yield Case(family, (name,), {scope: {"max_pixels": 400_000}})
        yield Case(family, (name,), {scope: {"min_pixels": 600_000}})
    yield Case(family, ("c16_4.mp4",), {"fps": 4.0}, fps(4))


def sounds(family: str) -> Iterator[Case]:
    heard = {"use_audio_in_video": True}
    yield from (Case(family, (name,)) for name in SOUNDS)
    yield Case(family, ("a1s.wav", "a2s_stereo.wav"))
    yield Case(family, ("p224x224.png", "a6s.wav"))
    for clip in HEARD:
        yield Case(family, (clip.name,))
        yield Case(family, (clip.name,), heard)
    yield Case(family, ("s60_10.mp4",), {**heard, "fps": 1.0}, fps(1))
    yield Case(family, ("s60_10.mp4",), {**heard, "fps": 4.0}, fps(4))
    yield Case(family, ("s60_10.mp4",), {**heard, "max_pixels": 100_000})
    yield Case(family, (CLIP,), heard)


def deaf(family: str) -> Iterator[Case]:
    yield Case(family, ("a1s.wav",))
    yield Case(family, ("s60_10.mp4",), {"use_audio_in_video": True})


def cases() -> list[Case]:
    found: list[Case] = []
    for family in FAMILIES:
        found += [*pictures(family), *clips(family), *overrides(family)]
        found += sounds(family) if family == "qwen3-omni" else deaf(family)
    return found
