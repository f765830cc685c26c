"""One family of models: what a picture, a clip and a sound cost in its prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dabom.families import sampling, sound
from dabom.families.facts import Cost, Edges, Kind, Options, Refusal, Step, VideoFacts
from dabom.families.limits import Limits, from_files
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
    frames. `hears` says that it takes sound. `fixed_video` is the Omni rule of `limits.from_files`.
    """

    name: str
    limits: Limits
    whole_clip: bool = False
    hears: bool = False

    @property
    def factor(self) -> int:
        """The side of the square of pixels that one token stands for."""
        return self.limits.factor

    def with_files(self, image: Mapping[str, Any], video: Mapping[str, Any] | None = None) -> Family:
        """This family with the limits of a checkpoint's preprocessor files; `video` is None without one."""
        return replace(self, limits=from_files(self.limits, image, video, fixed_video=self.hears))

    def picture_size(self, width: int, height: int, options: Options = _NOTHING) -> Size:
        """The pixels to which the server scales a picture."""
        least, most = _limits(options.image, self.limits.image, self.limits.image)
        return picture_size(width, height, self.factor, least, most)

    def image(self, width: int, height: int, options: Options = _NOTHING) -> Cost:
        """A picture of `width` x `height` pixels."""
        refusal = self._refuses(options.image, width, height)
        if refusal is not None:
            return _refused(refusal)
        least, most = _limits(options.image, self.limits.image, self.limits.image)
        size = picture_size(width, height, self.factor, least, most)
        tokens = self._area(size)
        steps = (
            self._resized("picture", (width, height), size, (least, most)),
            self._grid(size),
            _sum(tokens),
        )
        return Cost({"image": tokens}, tokens + MARKERS, steps)

    def video(self, clip: VideoFacts, options: Options = _NOTHING) -> Cost:
        """A clip; with `options.use_audio_in_video` its sound too, woven into it."""
        refusal = self._refuses(options.video, clip.width, clip.height)
        if refusal is not None:
            return _refused(refusal, clip.estimated)
        taken, steps = self._sample(clip, sampling.asked_rate(options.fps))
        if taken < (2 if self.whole_clip else 1):
            status = 400 if self.whole_clip else 500
            return _refused(Refusal("too_few_frames", status, {"frames": clip.frames}), clip.estimated)
        seen = self._clip(clip, taken, options)
        tokens, steps = seen[0], [*steps, *seen[1]]
        if not options.use_audio_in_video:
            steps.append(_sum(tokens))
            return Cost({"video": tokens}, tokens + MARKERS, tuple(steps), taken, clip.estimated)
        if clip.audio_samples is None:
            return _refused(Refusal("no_sound_track", 400, {}), clip.estimated)
        heard = self.audio(clip.audio_samples, clip.audio_rate)
        if heard.refusal is not None:
            return _refused(heard.refusal, clip.estimated)
        span = tokens + heard.tokens["audio"] + MARKERS
        steps += [
            heard.steps[0],
            Step("woven", {"video": tokens, "audio": heard.tokens["audio"], "span": span}),
        ]
        steps.append(_sum(span))
        both: dict[Kind, int] = {"video": span, "audio": span}
        return Cost(both, span + MARKERS, tuple(steps), taken, clip.estimated)

    def audio(self, samples: int, rate: int) -> Cost:
        """A sound of `samples` per channel at `rate` Hz."""
        if not self.hears:
            return _refused(Refusal("no_sound", 400, {"family": self.name}))
        at_16khz = sound.at_16khz(samples, rate) if rate > 0 else 0
        if at_16khz < sound.MIN_SAMPLES:
            return _refused(
                Refusal("sound_too_short", 400, {"samples": at_16khz, "least": sound.MIN_SAMPLES})
            )
        windows = sound.windows(at_16khz)
        tokens = self._sound_tokens(windows)
        told = {"samples": samples, "rate": rate, "at_16khz": at_16khz, "windows": windows, "tokens": tokens}
        return Cost({"audio": tokens}, tokens + MARKERS, (Step("sound", told), _sum(tokens)))

    def _refuses(self, edges: Edges, width: int, height: int) -> Refusal | None:
        if width < 1 or height < 1:
            return Refusal("no_pixels", 400, {"width": width, "height": height})
        if too_long(width, height):
            ratio = max(width, height) / min(width, height)
            return Refusal("too_long", 400, {"ratio": ratio, "most": MAX_RATIO})
        one_edge = edges.given and not edges.flat and None in (edges.min_pixels, edges.max_pixels)
        if one_edge and not self.whole_clip:
            return Refusal("one_edge", 400, {"family": self.name})
        return None

    def _sample(self, clip: VideoFacts, rate: float) -> tuple[int, list[Step]]:
        told: dict[str, Any] = {"frames": clip.frames, "fps": clip.fps, "rate": rate}
        if clip.frames < 1 or (clip.fps <= 0 and not self.whole_clip):
            return 0, []
        if not self.whole_clip:
            taken = sampling.arange(clip.frames, clip.fps, rate)
            return taken, [Step("sampled", {**told, "taken": taken})]
        taken = sampling.spread(clip.frames, clip.fps, rate)
        steps = [Step("sampled", {**told, "taken": taken})]
        if taken == clip.frames and self.limits.again is not None:
            fps, least, most = self.limits.again
            taken = sampling.spread(clip.frames, clip.fps, fps, least, most)
            steps.append(Step("sampled_again", {**told, "rate": fps, "taken": taken}))
        return taken, steps

    def _clip(self, clip: VideoFacts, taken: int, options: Options) -> tuple[int, list[Step]]:
        """Tokens of what is seen, without the markers around the clip."""
        pixels = _limits(options.video, self.limits.video, self.limits.video_asked)
        pairs = (taken + 1) // 2
        if not self.whole_clip:
            size = picture_size(clip.width, clip.height, self.factor, *pixels)
            tokens = pairs * self._area(size)
            steps = [self._resized("frame", (clip.width, clip.height), size, pixels), self._grid(size)]
            return tokens, [
                *steps,
                Step("pairs", {"pairs": pairs, "each": self._area(size), "tokens": tokens}),
            ]
        size = clip_size(taken, (clip.width, clip.height), self.factor, *pixels)
        seconds = sampling.stamps(clip.frames, clip.fps, taken)
        texts = sum(sampling.stamp_tokens(second) + MARKERS for second in seconds)
        tokens = pairs * self._area(size) + texts
        told = {"pairs": pairs, "each": self._area(size), "tokens": pairs * self._area(size)}
        steps = [self._resized("clip", (clip.width, clip.height), size, pixels), self._grid(size)]
        return tokens, [*steps, Step("pairs", told), Step("stamps", {"pairs": pairs, "tokens": texts})]

    def _area(self, size: Size) -> int:
        return size.width * size.height // self.factor**2

    def _grid(self, size: Size) -> Step:
        across, down = size.width // self.factor, size.height // self.factor
        return Step("grid", {"across": across, "down": down, "tokens": across * down})

    def _resized(self, what: str, found: tuple[int, int], size: Size, limits: tuple[int, int]) -> Step:
        told = {"width": found[0], "height": found[1], "wide": size.width, "high": size.height}
        return Step(what, {**told, "factor": self.factor, "least": limits[0], "most": limits[1]})

    def _sound_tokens(self, windows: int) -> int:
        return sound.sound_tokens(windows)


def _limits(edges: Edges, own: tuple[int, int], asked: tuple[int, int]) -> tuple[int, int]:
    if not edges.given:
        return own
    return edges.min_pixels or asked[0], edges.max_pixels or asked[1]


def _sum(tokens: int) -> Step:
    return Step("sum", {"tokens": tokens, "prompt": tokens + MARKERS})


def _refused(refusal: Refusal, estimated: bool = False) -> Cost:
    return Cost({}, 0, refusal=refusal, estimated=estimated)
