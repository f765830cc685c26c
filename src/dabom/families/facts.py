"""What is asked and what is answered: facts of a clip, the options of a request, the cost of one item."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind: TypeAlias = Literal["image", "video", "audio"]


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """What the cost of a clip depends on.

    `frames` are those that a player shows, not those that a header states: an edit list hides some. `fps` is
    the average rate, frames by seconds, also where the rate varies. `audio_samples` are counted per channel
    at `audio_rate` Hz, with the padding that the coder added; None when there is no sound track. `estimated`
    says that the numbers come from a header that cannot tell them surely. `decodable` is set where fewer
    frames decode than the server believes there are: those it asks for behind them are left out.
    """

    width: int
    height: int
    frames: int
    fps: float
    audio_samples: int | None = None
    audio_rate: int = 0
    estimated: bool = False
    decodable: int | None = None


@dataclass(frozen=True, slots=True)
class Edges:
    """Pixel limits that a request asks for: of a picture, of a frame, or of a whole clip.

    `flat` says that they came as `min_pixels` and `max_pixels`, which may be given one by one; else as
    `size` with `shortest_edge` and `longest_edge` (which are areas in pixels, whatever their names). `scoped`
    says that they came inside `images_kwargs` or `videos_kwargs`.
    """

    min_pixels: int | None = None
    max_pixels: int | None = None
    flat: bool = True
    scoped: bool = False

    @property
    def given(self) -> bool:
        """Anything was asked for."""
        return self.min_pixels is not None or self.max_pixels is not None


@dataclass(frozen=True, slots=True)
class Options:
    """What a request may say about its media: `mm_processor_kwargs` and `media_io_kwargs` of vLLM.

    `fps` is the loader's, `processor_fps` the processor's, which counts only where Qwen3-VL samples again.
    """

    fps: float | None = None
    processor_fps: float | None = None
    image: Edges = field(default_factory=Edges)
    video: Edges = field(default_factory=Edges)
    use_audio_in_video: bool = False


class Step(NamedTuple):
    """One step of a calculation: a name and its numbers. `dabom.families.explain` puts it into words."""

    name: str
    values: Mapping[str, Any]


class Refusal(NamedTuple):
    """Why the server would refuse the item: a stable code, the HTTP status of vLLM, and its numbers."""

    code: str
    status: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one item costs, in tokens.

    `tokens` is what vLLM reports in `usage.prompt_tokens_details.multimodal_tokens`, by modality. A clip
    that is heard too shows the same span under `video` and `audio`: they must not be added.
    `prompt_tokens` is all that the item adds to the prompt, the markers around it included; 0 when refused.
    """

    tokens: Mapping[Kind, int]
    prompt_tokens: int
    steps: tuple[Step, ...] = ()
    frames_sampled: int | None = None
    estimated: bool = False
    refusal: Refusal | None = None

    @property
    def explain(self) -> list[str]:
        """How the number comes about, in English."""
        from dabom.families.words import sentence  # only a person who reads needs the words

        return [sentence(step) for step in self.steps]

    @property
    def error(self) -> str | None:
        """Why the server would refuse the item, and what to do; None when it would not."""
        from dabom.families.words import sentence

        return None if self.refusal is None else sentence(self.refusal)
