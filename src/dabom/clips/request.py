"""The request about one clip, in either form, and what it is going to cost."""

from __future__ import annotations

import asyncio
import io
import wave
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dabom.client import Request, audio, image, request, schema_format, user, video
from dabom.errors import InvalidMedia
from dabom.families import Options, VideoFacts
from dabom.media import BytesSource, Sampling, open_video, read_facts, read_sound
from dabom.media.counted import count
from dabom.media.sound import RATE_HZ

if TYPE_CHECKING:
    from dabom.client import Part
    from dabom.clips.plan import RunSettings

_JPEG_QUALITY = 90
_MAX_FRAME_PIXELS = 1_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that can be sent.

    `sound` says that the model is given the clip's sound. `predicted` is what vLLM will report as
    `multimodal_tokens`; empty when the family is not known. `notes` are codes about the clip.
    """

    request: Request
    sound: bool
    predicted: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


async def ask_about(content: bytes, settings: RunSettings, seed: int, max_tokens: int) -> Asked:
    """The request about a clip whose file holds `content`. Raises InvalidMedia, BodyTooLarge."""
    if settings.form == "frames":
        parts, media, told = await _frames(content, settings)
    else:
        parts, media, told = await _video(content, settings)
    body = request(
        user(*parts, settings.prompt),
        model=settings.model or None,
        temperature=settings.temperature,
        seed=seed,
        max_tokens=max_tokens,
        response_format=schema_format(settings.answer_schema, "clip_analysis"),
        **media,
        chat_template_kwargs={"enable_thinking": False},
    )
    return Asked(body, *told)


_Told = tuple[bool, dict[str, int], tuple[str, ...]]


async def _video(content: bytes, settings: RunSettings) -> tuple[list[Part], dict[str, Any], _Told]:
    facts = await asyncio.to_thread(_facts, content)
    sound = settings.hears and facts.audio_samples is not None
    # vLLM samples at the first rate, Omni's processor spaces picture and sound by the second one: without it,
    # it believes in one frame a second
    processor = {"use_audio_in_video": True, "fps": settings.fps} if sound else {}
    media: dict[str, Any] = {"media_io_kwargs": {"video": {"fps": settings.fps}}}
    if processor:
        media["mm_processor_kwargs"] = processor
    predicted: dict[str, int] = {}
    if (family := settings.known_family) is not None:
        options = Options(
            fps=settings.fps, processor_fps=processor.get("fps"), use_audio_in_video=bool(processor)
        )
        predicted = {str(kind): tokens for kind, tokens in family.video(facts, options).tokens.items()}
    return [await video(content)], media, (sound, predicted, _notes(settings, sound))


async def _frames(content: bytes, settings: RunSettings) -> tuple[list[Part], dict[str, Any], _Told]:
    pictures, wav, samples = await asyncio.to_thread(_taken_apart, content, settings)
    parts = list(await asyncio.gather(*map(image, pictures)))
    predicted: dict[str, int] = {}
    if wav is not None:
        parts.append(await audio(wav))
        if (family := settings.known_family) is not None:
            predicted = {str(kind): n for kind, n in family.audio(samples, RATE_HZ).tokens.items()}
    sound = wav is not None
    return parts, {}, (sound, predicted, _notes(settings, sound))


def _notes(settings: RunSettings, sound: bool) -> tuple[str, ...]:
    return ("no_sound_track",) if settings.hears and not sound else ()


def _facts(content: bytes) -> VideoFacts:
    """The headers tell it; a clip whose headers do not is decoded."""
    found = read_facts(BytesSource(content))
    if found.problem or found.kind != "video" or found.estimated or not found.frames:
        counted = count(content)
        if counted.clip is None:
            raise InvalidMedia(f"is no clip but {counted.kind}; give MP4 files with a picture")
        return counted.clip
    width, height = found.upright
    samples = found.audio_samples or None
    return VideoFacts(width, height, found.frames, found.fps, samples, found.audio_rate)


def _taken_apart(content: bytes, settings: RunSettings) -> tuple[list[bytes], bytes | None, int]:
    """The sampled frames as JPEG, and the sound as WAV with its number of samples at 16 kHz."""
    pictures = list[bytes]()
    with open_video(content, Sampling(fps=settings.fps)) as clip:
        for frame in clip.frames:
            if frame.sampled:
                file = io.BytesIO()
                frame.picture(_MAX_FRAME_PIXELS).save(file, "JPEG", quality=_JPEG_QUALITY)
                pictures.append(file.getvalue())
    sound = read_sound(content) if settings.hears else None
    if sound is None:
        return pictures, None, 0
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(RATE_HZ)
        wav.writeframes((np.clip(sound.samples, -1, 1) * 32767).astype("<i2").tobytes())
    return pictures, file.getvalue(), len(sound.samples)
