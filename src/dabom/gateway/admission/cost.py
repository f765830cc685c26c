"""What a request costs at one upstream, in tokens, before it is sent there.

Pictures, clips and sounds are counted exactly when the model's family is known and their headers can be read
(`dabom.families`); else they are estimated from above, as Qwen3 would count them. Text cannot be counted
without the model's tokenizer. It is estimated from its bytes: with the vocabulary of Qwen, measured on Korean
and English prose, Markdown and source code, a token has 3.0 to 5.2 bytes of UTF-8 (Hangul 4.1), so a third of
the bytes is an upper estimate. Numbers are the exception: Qwen gives every digit a token of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dabom import families
from dabom.errors import PromptTooLong
from dabom.families import VideoFacts
from dabom.gateway.admission.claims import Claim, Priority

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.families import Cost, Family, Options
    from dabom.gateway.facts import Facts
    from dabom.gateway.parts import Media
    from dabom.gateway.settings import UpstreamSettings
    from dabom.media import MediaFacts

Kind = Literal["text", "image", "video", "audio", "file", "answer"]

BYTES_PER_TOKEN = 3
MOST_BYTES_PER_TOKEN = 16
"""No text of words has so many bytes to a token: a text surely needs more tokens than that."""
_TEMPLATE_TOKENS = 6
"""What a chat template adds to a message: its role and two marks."""
_STAND_IN = "qwen3-omni"
_CLIP_STAND_IN = "qwen3-vl"
_UNKNOWN_PICTURE = 2_700
"""A picture of 1920 x 1080 where a token has 28 x 28 pixels."""
_UNKNOWN_CLIP = 12_290
"""The most that a clip of a few seconds costs with Qwen3-VL."""
_UNKNOWN_FILE = 4_096
_SOUND_TOKENS_PER_S = 25
_LEAST_SOUND_BYTES_PER_S = 4_000
_LONGEST_SOUND_S = 600
_NO_OPTIONS = families.Options()
_DEAF = frozenset({"llama_cpp"})
"""Kinds of upstreams that do not read `mm_processor_kwargs` and `media_io_kwargs`."""
_WHAT_TO_DO = {
    "text": "shorten the text or leave old messages out",
    "image": "send a smaller picture",
    "video": "send a shorter or smaller clip, or ask for fewer frames (media_io_kwargs.video.fps)",
    "audio": "send a shorter sound",
    "file": "send a smaller file",
    "answer": "ask for fewer max_tokens",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the cost: all text, a medium, or the answer. `number` counts the media from 1."""

    kind: Kind
    tokens: int
    number: int = 0
    exact: bool = True

    @property
    def name(self) -> str:
        """Such as `video 2`."""
        return f"{self.kind} {self.number}" if self.number else self.kind


@dataclass(frozen=True, slots=True)
class RequestCost:
    """`prompt_tokens` and `answer_tokens` are what is reserved.

    `least_prompt` and `least_answer` (of one answer; there may be several `choices`) are what is surely
    needed. `exact` says that all media are counted exactly; the text never is. `known` says that the family
    of the model is.
    """

    prompt_tokens: int
    answer_tokens: int
    least_prompt: int
    least_answer: int
    choices: int
    exact: bool
    known: bool
    parts: tuple[Part, ...]

    @property
    def tokens(self) -> int:
        """What the request holds while it runs."""
        return self.prompt_tokens + self.answer_tokens

    @property
    def predicted(self) -> int | None:
        """Tokens of the prompt, to be compared with what the upstream reports; None without a family."""
        return self.prompt_tokens if self.known else None

    def claim(self, priority: Priority = Priority.NORMAL, key: str = "") -> Claim:
        """What the request claims of its target."""
        return Claim(self.tokens, priority, key)


class Meter:
    """Counts for one upstream."""

    def __init__(self, name: str, settings: UpstreamSettings, default_answer_tokens: int) -> None:
        self._name = name
        self._settings = settings
        self._default_answer_tokens = default_answer_tokens
        self._given = families.find(settings.family or settings.model or "")
        self._family = self._capped(self._given)
        self.max_model_len = settings.max_model_len

    @property
    def family(self) -> Family | None:
        """The family by which it counts; None while it is not known."""
        return self._family

    @property
    def exacting(self) -> bool:
        """Whether it pays to read the headers of media: they are counted exactly, or bounded."""
        return self._family is not None or self._settings.token_budget is not None

    def learn(self, models: Sequence[str], max_model_len: int | None) -> None:
        """Take over what the upstream says of itself, where the settings say nothing."""
        if self._given is None and not self._settings.family:
            found = (families.find(model) for model in models)
            self._family = self._capped(next((family for family in found if family), None))
        if self._settings.max_model_len is None:
            self.max_model_len = max_model_len

    def cost(self, facts: Facts, media: Sequence[MediaFacts | None] = ()) -> RequestCost:
        """The cost of a request. `media` are the headers of `facts.media`, as far as they have been read."""
        text = -(-facts.text_bytes // BYTES_PER_TOKEN) + _TEMPLATE_TOKENS * max(1, len(facts.messages))
        least = facts.text_bytes // MOST_BYTES_PER_TOKEN
        parts, exact = [Part("text", text, exact=False)], True
        prompt = text
        options = _NO_OPTIONS if self._settings.kind in _DEAF else facts.options
        for index, medium in enumerate(facts.media):
            part = self._part(medium, media[index] if index < len(media) else None, options, index + 1)
            parts.append(part)
            prompt += part.tokens
            exact = exact and part.exact
            if part.exact:
                least += part.tokens
        asked = facts.max_tokens
        answer = self._default_answer_tokens if asked is None else asked
        parts.append(Part("answer", answer * facts.choices, exact=asked is not None))
        return RequestCost(
            prompt_tokens=prompt,
            answer_tokens=answer * facts.choices,
            least_prompt=least,
            least_answer=asked or 1,
            choices=facts.choices,
            exact=exact,
            known=self._family is not None,
            parts=tuple(parts),
        )

    def check(self, cost: RequestCost) -> None:
        """Raise `PromptTooLong` for a request that this upstream can never take, whoever else is there."""
        for needed, limit, what in (
            (cost.least_prompt + cost.least_answer, self.max_model_len, "its model takes"),
            (
                cost.least_prompt + cost.least_answer * cost.choices,
                self._settings.token_budget,
                "its token budget is",
            ),
        ):
            if limit is not None and needed > limit:
                raise self._too_long(cost, needed, limit, what)

    def _too_long(self, cost: RequestCost, needed: int, limit: int, what: str) -> PromptTooLong:
        largest = max(cost.parts, key=lambda part: part.tokens)
        about = "" if largest.exact else "about "
        return PromptTooLong(
            f"the request needs at least {needed:,} tokens, prompt and answer; upstream {self._name} cannot "
            f"take it: {what} {limit:,}; the largest part is {largest.name} with {about}{largest.tokens:,}; "
            f"{_WHAT_TO_DO[largest.kind]}",
            needed=needed,
            limit=limit,
            largest=largest.name,
        )

    def _capped(self, family: Family | None) -> Family | None:
        """The family with the server's own limit for pictures."""
        most = self._settings.max_pixels
        if family is None or most is None:
            return family
        least, shipped = family.limits.image
        return replace(family, limits=replace(family.limits, image=(least, min(shipped, most))))

    def _part(self, medium: Media, facts: MediaFacts | None, options: Options, number: int) -> Part:
        kind: Kind = "file" if medium.kind == "file" else _kind(medium, facts)
        cost = _counted(self._family, kind, medium, facts, options)
        if cost is not None and cost.error is None:
            return Part(kind, cost.prompt_tokens, number, exact=not cost.estimated)
        if self._family is not None and cost is not None:
            return Part(kind, 0, number, exact=False)  # the upstream refuses it, and says why
        stand_in = families.find(_CLIP_STAND_IN if kind == "video" else _STAND_IN)
        cost = _counted(stand_in, kind, medium, facts, options)
        tokens = cost.prompt_tokens if cost is not None and cost.error is None else _guess(kind, medium)
        return Part(kind, tokens, number, exact=False)


def _kind(medium: Media, facts: MediaFacts | None) -> Kind:
    """What the bytes are; else what the part says."""
    if facts is not None and facts.kind != "unknown":
        return facts.kind
    return medium.kind if medium.kind in ("image", "video", "audio") else "file"  # type: ignore[return-value]


def _counted(
    family: Family | None, kind: Kind, medium: Media, facts: MediaFacts | None, options: Options
) -> Cost | None:
    """The family's count; None when nothing is known to count by."""
    if family is None:
        return None
    if kind == "image":
        width, height = (facts.width, facts.height) if facts else (medium.width, medium.height)
        return family.image(width, height, options) if width and height else None
    if facts is None or facts.problem:
        return None
    if kind == "video" and facts.frames:
        clip = VideoFacts(
            facts.width,
            facts.height,
            facts.frames,
            facts.fps,
            facts.audio_samples or None,
            facts.audio_rate,
            facts.estimated or facts.vfr,  # the server guesses the frames where the rate varies
        )
        return family.video(clip, options)
    if kind == "audio" and facts.audio_samples:
        cost = family.audio(facts.audio_samples, facts.audio_rate)
        return replace(cost, estimated=facts.estimated)
    return None


def _guess(kind: Kind, medium: Media) -> int:
    if kind == "audio":
        seconds = min(medium.bytes / _LEAST_SOUND_BYTES_PER_S, _LONGEST_SOUND_S)
        return round(seconds * _SOUND_TOKENS_PER_S) + 2
    return {"image": _UNKNOWN_PICTURE, "video": _UNKNOWN_CLIP}.get(kind, _UNKNOWN_FILE)
