"""What a request tells vLLM about its clips, and where that goes wrong.

vLLM takes `mm_processor_kwargs` and `media_io_kwargs` of a request only when it runs with
`--trust-request-mm-kwargs`. An Omni model wants the rate of the sampled frames in both, or sound and pictures
drift apart. A clip without a sound track fails a request that asks for `use_audio_in_video`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from dabom.errors import ClientError, InvalidMedia

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dabom.gateway.scan import Skeleton

Policy = Literal["warn", "fix", "refuse"]
PROCESSOR, LOADER = "mm_processor_kwargs", "media_io_kwargs"
HEARD = "use_audio_in_video"
LOADER_FPS = 2.0
"""Frames a second that vLLM samples when nothing is said."""
PROCESSOR_FPS = 1.0
"""Frames a second that the Omni processor takes them to be when nothing is said."""
_NULL = msgspec.Raw(b"null")


@dataclass(frozen=True)
class MediaOptions:
    """The two objects of a request.

    `places` are where their JSON stands in the body, `start` where a field can be put in, behind the first
    brace; None when it is not known.
    """

    processor: Mapping[str, Any] = field(default_factory=dict)
    loader: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    start: int | None = None

    @property
    def given(self) -> bool:
        """Whether anything is said."""
        return bool(self.processor or self.loader)

    @property
    def heard(self) -> bool:
        """Whether the sound of the clips is asked for."""
        return self.processor.get(HEARD) is True


@dataclass(frozen=True)
class Verdict:
    """What is done. `changes` are new values of the two objects, None to leave one out."""

    changes: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    refusal: ClientError | None = None


@dataclass(frozen=True)
class Listener:
    """The upstream: whether it is vLLM, an Omni model, and trusts options of a request (None: not known)."""

    vllm: bool = False
    omni: bool = False
    trusts_options: bool | None = None


class _Body(msgspec.Struct):
    mm_processor_kwargs: msgspec.Raw = _NULL
    media_io_kwargs: msgspec.Raw = _NULL


def read_media_options(skeleton: Skeleton, locate: Callable[[int], int] | None = None) -> MediaOptions:
    """The options of a request that has been checked; what is of the wrong type is left to the upstream."""
    text, place = skeleton.text, locate or skeleton.locate
    brace = text.find(b"{")
    start = place(brace) + 1 if brace >= 0 else None
    if not any(word in text for word in (PROCESSOR.encode(), LOADER.encode(), b"\\u")):
        return MediaOptions(start=start)
    try:
        body = msgspec.json.decode(text, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MediaOptions()
    base = _address(text)
    values: dict[str, Mapping[str, Any]] = {}
    places: dict[str, tuple[int, int]] = {}
    for name in (PROCESSOR, LOADER):
        raw: msgspec.Raw = getattr(body, name)
        if raw is _NULL:
            continue
        values[name] = _object(raw)
        offset = _address(raw) - base
        places[name] = (place(offset), place(offset + len(raw) - 1) + 1)
    return MediaOptions(values.get(PROCESSOR, {}), values.get(LOADER, {}), places, start)


def _object(raw: msgspec.Raw) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _address(view: bytes | msgspec.Raw) -> int:
    found: int = np.frombuffer(view, np.uint8).ctypes.data
    return found


def judge_options(
    options: MediaOptions, clips: int, silent: Sequence[int], listener: Listener, policy: Policy
) -> Verdict:
    """What becomes of the options of a request with `clips`; those of `silent` have no sound track."""
    if not listener.vllm:
        return Verdict()
    if options.given and listener.trusts_options is False:
        return _untrusted(options, clips, policy)
    changes: dict[str, Mapping[str, Any] | None] = {}
    warnings: list[str] = []
    if options.heard and silent:
        verdict = _silent(options, clips, silent, policy)
        if verdict.refusal is not None:
            return verdict
        changes.update(verdict.changes)
        warnings.extend(verdict.warnings)
    if listener.omni and clips:
        verdict = _rates(options, listener, policy, changes.get(PROCESSOR, options.processor) or {})
        if verdict.refusal is not None:
            return verdict
        changes.update(verdict.changes)
        warnings.extend(verdict.warnings)
    return Verdict(changes, tuple(warnings))


def _untrusted(options: MediaOptions, clips: int, policy: Policy) -> Verdict:
    told = f"the upstream takes no {PROCESSOR} or {LOADER} from a request"
    remedy = "leave them out, or start vLLM with --trust-request-mm-kwargs"
    if policy == "warn":
        return Verdict(warnings=("options_untrusted",))
    if policy == "refuse" or (options.heard and clips):
        return Verdict(refusal=ClientError(f"{told}; {remedy}", param=PROCESSOR))
    return Verdict(dict.fromkeys(options.places), ("options_left_out",))


def _silent(options: MediaOptions, clips: int, silent: Sequence[int], policy: Policy) -> Verdict:
    if policy == "warn":
        return Verdict(warnings=("clip_without_sound",))
    if policy == "fix" and len(silent) == clips:
        kept = {name: value for name, value in options.processor.items() if name != HEARD}
        return Verdict({PROCESSOR: kept}, ("sound_left_out",))
    numbers = ", ".join(str(number + 1) for number in silent)
    return Verdict(
        refusal=InvalidMedia(
            f"media part {numbers} is a clip without a sound track, and {HEARD} needs one in every clip; "
            "add a silent track, or leave the option out",
            param="messages",
        )
    )


def _rates(
    options: MediaOptions, listener: Listener, policy: Policy, processor: Mapping[str, Any]
) -> Verdict:
    """The rate that is sampled must be told in both places."""
    video = options.loader.get("video")
    video = video if isinstance(video, dict) else {}
    if "num_frames" in video and "fps" not in video:
        return Verdict()
    sampled = _rate(video.get("fps")) or LOADER_FPS
    inner = processor.get("videos_kwargs")
    taken = _rate(processor.get("fps")) or _rate(inner.get("fps") if isinstance(inner, dict) else None)
    if (taken or PROCESSOR_FPS) == sampled:
        return Verdict()
    if policy == "refuse" and options.given:
        return Verdict(
            refusal=ClientError(
                f"{LOADER}.video.fps is {sampled:g} and {PROCESSOR}.fps is {taken or PROCESSOR_FPS:g}: sound "
                f"and pictures would drift apart; send {PROCESSOR}.fps={sampled:g} too",
                param=PROCESSOR,
            )
        )
    # an upstream of which nothing is known is not sent options that the client did not send
    if policy == "fix" and (options.given or listener.trusts_options):
        changed = {**processor, "fps": sampled}
        if isinstance(inner, dict) and "fps" in inner:
            changed["videos_kwargs"] = {**inner, "fps": sampled}
        return Verdict({PROCESSOR: changed}, ("fps_set",))
    return Verdict(warnings=("fps_mismatch",))


def _rate(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if number else None
