"""One family of models: what a picture, a clip and a sound cost in its prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dabom.families import sampling, sound
from dabom.families.facts import Cost, Edges, Kind, Options, Refusal, Step, VideoFacts
from dabom.families.limits import MAX_PIXELS, MAX_SOUND_S, Limits, from_files
from dabom.families.resize import MAX_RATIO, Size, clip_size, picture_size, too_long

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKERS = 2
"""A start and an end around every item."""
_NOTHING = Options()


@dataclass(frozen=True, slots=True)
class Family:
    """The rules of one family with the limits of one checkpoint. Methods are pure and take microseconds.

    `whole_clip` says that clips are Qwen3-VL's: one size for the whole clip, a time before each pair of
    frames. `hearing` is how it counts sound, None when it takes none.
    """

    name: str
    limits: Limits
    whole_clip: bool = False
    hearing: sound.Hearing | None = None

    @property
    def factor(self) -> int:
        """The side of the square of pixels that one token stands for."""
        return self.limits.factor

    def with_files(self, image: Mapping[str, Any], video: Mapping[str, Any] | None = None) -> Family:
        """This family with the limits of a checkpoint's files (`read_files`). Raises ValueError."""
        return replace(self, limits=from_files(self.limits, image, video))

    def picture_size(self, width: int, height: int, options: Options = _NOTHING) -> Size:
        """The pixels to which the server scales a picture."""
        return picture_size(width, height, self.factor, *_limits(options.image, self.limits.image))

    def image(self, width: int, height: int, options: Options = _NOTHING) -> Cost:
        """A picture of `width` x `height` pixels."""
        refusal = self._refuses(options.image, width, height, may_lack=self.whole_clip)
        if refusal is not None:
            return Cost({}, 0, refusal=refusal)
        size = self.picture_size(width, height, options)
        tokens = self._area(size)
        resized = self._resized("picture", (width, height), size, _limits(options.image, self.limits.image))
        return Cost({"image": tokens}, tokens + MARKERS, (resized, self._grid(size), _sum(tokens)))

    def video(self, clip: VideoFacts, options: Options = _NOTHING) -> Cost:
        """A clip; with `options.use_audio_in_video` its sound too, woven into it."""
        cost = self._seen(clip, options)
        if options.use_audio_in_video and cost.refusal is None:
            cost = self._heard(clip, cost)
        if not clip.estimated:
            return cost
        return replace(cost, estimated=True, steps=(*cost.steps, Step("estimated", {})))

    def audio(self, samples: int, rate: int) -> Cost:
        """A sound of `samples` per channel at `rate` Hz."""
        refusal, tokens, step = self._sound(samples, rate)
        if refusal is not None:
            return Cost({}, 0, refusal=refusal)
        return Cost({"audio": tokens}, tokens + MARKERS, (*step, _sum(tokens)))

    def _seen(self, clip: VideoFacts, options: Options) -> Cost:
        scoped = options.video.scoped
        fills = self.whole_clip or (self.hearing is not None and not scoped)
        refusal = self._refuses(options.video, clip.width, clip.height, may_lack=fills)
        if refusal is not None:
            return Cost({}, 0, refusal=refusal)
        places, sampled = self._sample(clip, options)
        taken = len(places)
        if taken < (2 if self.whole_clip else 1):
            status = 400 if self.whole_clip else 500
            return Cost({}, 0, refusal=Refusal("too_few_frames", status, {"frames": clip.frames}))
        missing = self.limits.video if scoped else self.limits.video_asked
        pixels = _limits(options.video, self.limits.video, missing)
        found = (clip.width, clip.height)
        size, pairs, texts = picture_size(*found, self.factor, *pixels), (taken + 1) // 2, 0
        if self.whole_clip:
            size = clip_size(taken, found, self.factor, *pixels)
            times = sampling.stamps(places, clip.fps)
            texts = sum(sampling.stamp_tokens(second) + MARKERS for second in times)
        each = self._area(size)
        tokens = pairs * each + texts
        steps = [*sampled, self._resized("clip" if self.whole_clip else "frame", found, size, pixels)]
        steps += [self._grid(size), Step("pairs", {"pairs": pairs, "each": each, "tokens": pairs * each})]
        if texts:
            steps.append(Step("stamps", {"pairs": pairs, "tokens": texts}))
        return Cost({"video": tokens}, tokens + MARKERS, (*steps, _sum(tokens)), taken)

    def _heard(self, clip: VideoFacts, seen: Cost) -> Cost:
        if clip.audio_samples is None and self.hearing is not None:
            return Cost({}, 0, refusal=Refusal("no_sound_track", 400, {}))
        refusal, heard, step = self._sound(clip.audio_samples or 0, clip.audio_rate)
        if refusal is not None:
            return Cost({}, 0, refusal=refusal)
        span = seen.tokens["video"] + heard + MARKERS
        woven = Step("woven", {"video": seen.tokens["video"], "audio": heard, "span": span})
        both: dict[Kind, int] = {"video": span, "audio": span}
        return Cost(both, span + MARKERS, (*seen.steps[:-1], *step, woven, _sum(span)), seen.frames_sampled)

    def _sound(self, samples: int, rate: int) -> tuple[Refusal | None, int, tuple[Step, ...]]:
        hearing = self.hearing
        if hearing is None:
            return Refusal("no_sound", 400, {"family": self.name}), 0, ()
        at_16khz = sound.at_16khz(samples, rate) if rate > 0 else 0
        windows = sound.windows(at_16khz)
        if windows < hearing.least:
            told = {"samples": at_16khz, "least": hearing.least_samples}
            return Refusal("sound_too_short", 400, told), 0, ()
        if samples > MAX_SOUND_S * rate:
            return Refusal("sound_too_long", 400, {"seconds": samples / rate, "most": MAX_SOUND_S}), 0, ()
        kept = windows if hearing.most is None else min(windows, hearing.most)
        tokens = hearing.tokens(kept)
        told = {"samples": samples, "rate": rate, "at_16khz": at_16khz, "windows": kept, "tokens": tokens}
        return None, tokens, (Step("sound", told),)

    def _refuses(self, edges: Edges, width: int, height: int, may_lack: bool) -> Refusal | None:
        """`may_lack`: vLLM fills in an edge that `size` lacks; of Omni in clips only, and not in a scope."""
        if width < 1 or height < 1:
            return Refusal("no_pixels", 400, {"width": width, "height": height})
        if width * height > MAX_PIXELS:
            return Refusal("too_many_pixels", 400, {"pixels": width * height, "most": MAX_PIXELS})
        if too_long(width, height):
            ratio = max(width, height) / min(width, height)
            return Refusal("too_long", 400, {"ratio": ratio, "most": MAX_RATIO})
        one_edge = edges.given and not edges.flat and None in (edges.min_pixels, edges.max_pixels)
        if one_edge and not may_lack:
            return Refusal("one_edge", 400, {"family": self.name})
        return None

    def _sample(self, clip: VideoFacts, options: Options) -> tuple[list[int], list[Step]]:
        """The places of the frames that the model sees."""
        if clip.frames < 1 or (clip.fps <= 0 and not self.whole_clip):
            return [], []
        rate = sampling.asked_rate(options.fps)
        told: dict[str, Any] = {"frames": clip.frames, "fps": clip.fps, "rate": rate}
        if self.whole_clip:
            places = sampling.spread_places(clip.frames, sampling.spread(clip.frames, clip.fps, rate))
        else:
            places = sampling.arange_places(clip.frames, sampling.arange(clip.frames, clip.fps, rate))
        steps = [Step("sampled", {**told, "taken": len(places)})]
        if clip.decodable is not None and clip.decodable < clip.frames:
            places = [place for place in places if place < clip.decodable]
            steps.append(Step("missing", {"decodable": clip.decodable, "taken": len(places)}))
        if len(places) == clip.frames and self.limits.again is not None:
            fps, least, most = self.limits.again
            fps = options.processor_fps or fps
            taken = sampling.spread(clip.frames, clip.fps, fps, least, most)
            places = sampling.spread_places(clip.frames, taken)
            steps.append(Step("sampled_again", {**told, "rate": fps, "taken": taken}))
        return places, steps

    def _area(self, size: Size) -> int:
        return size.width * size.height // self.factor**2

    def _grid(self, size: Size) -> Step:
        across, down = size.width // self.factor, size.height // self.factor
        return Step("grid", {"across": across, "down": down, "tokens": across * down})

    def _resized(self, what: str, found: tuple[int, int], size: Size, limits: tuple[int, int]) -> Step:
        told = {"width": found[0], "height": found[1], "wide": size.width, "high": size.height}
        return Step(what, {**told, "factor": self.factor, "least": limits[0], "most": limits[1]})


def _limits(edges: Edges, own: tuple[int, int], asked: tuple[int, int] | None = None) -> tuple[int, int]:
    if not edges.given:
        return own
    missing = asked or own
    return edges.min_pixels or missing[0], edges.max_pixels or missing[1]


def _sum(tokens: int) -> Step:
    return Step("sum", {"tokens": tokens, "prompt": tokens + MARKERS})
