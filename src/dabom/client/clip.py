"""The clip request of broadcast analysis: a short video, or its frames and sound, and one strict answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dabom.client.parts import Part, Source, audio, image, video
from dabom.client.request import Request, request, schema_format, user

if TYPE_CHECKING:
    from collections.abc import Sequence

PROMPT = "이 영상의 시각과 음성을 한국어로 분석해줘."


def _field(description: str, max_length: int) -> msgspec.Meta:
    return msgspec.Meta(description=description, max_length=max_length)


class AnalysisResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a clip shows and sounds like; a field is empty when there is nothing to tell."""

    scene: Annotated[str, _field("장면: 장소, 인물, 행동을 한국어로 서술. 검은 화면이면 그렇게 적는다.", 600)]
    on_screen_text: Annotated[
        str, _field("화면에 보이는 글자(자막, 간판, 점수판)를 그대로. 없으면 빈 문자열.", 600)
    ]
    speech: Annotated[str, _field("들리는 말을 한국어로 요약하거나 받아 적는다. 없으면 빈 문자열.", 600)]
    sound: Annotated[str, _field("말이 아닌 소리: 음악, 함성, 효과음. 없으면 빈 문자열.", 300)]


@dataclass(frozen=True, slots=True)
class ClipOptions:
    """How a clip is asked about. `num_frames`, when set, takes the place of `fps`.

    `mm_kwargs=False` leaves the per-request sampling out: vLLM refuses it unless it runs with
    `--trust-request-mm-kwargs`.
    """

    model: str | None = None
    prompt: str = PROMPT
    fps: float = 2.0
    num_frames: int | None = None
    sound: bool = True
    max_tokens: int = 1024
    temperature: float = 0.3
    strict: bool = True
    mm_kwargs: bool = True


def analysis_schema() -> dict[str, Any]:
    """The JSON Schema of `AnalysisResult`, flat: no `$ref`, no title."""
    schema = msgspec.json.schema(AnalysisResult)["$defs"]["AnalysisResult"]
    keep = ("type", "properties", "required", "additionalProperties")
    return {name: schema[name] for name in keep}


async def clip_request(clip: Source, options: ClipOptions | None = None) -> Request:
    """One video as a `video_url` part and the prompt; sound and picture stay aligned in the container."""
    options = options or ClipOptions()
    sampling = {"num_frames": options.num_frames} if options.num_frames else {"fps": options.fps}
    media = {
        "media_io_kwargs": {"video": sampling},
        "mm_processor_kwargs": {"use_audio_in_video": True} if options.sound else None,
    }
    return _ask_about([await video(clip)], options, media if options.mm_kwargs else {})


async def frames_request(
    frames: Sequence[Source], sound: Source | None = None, options: ClipOptions | None = None
) -> Request:
    """The second form: pictures in order as `image_url` parts, then the sound as `input_audio`.

    For models that read no video, or no sound inside a video.
    """
    if not frames:
        raise ValueError("frames_request needs at least one frame")
    parts = list(await asyncio.gather(*map(image, frames)))
    if sound is not None:
        parts.append(await audio(sound))
    return _ask_about(parts, options or ClipOptions(), {})


def _ask_about(parts: Sequence[Part], options: ClipOptions, media: dict[str, Any]) -> Request:
    return request(
        user(*parts, options.prompt),
        model=options.model,
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        response_format=schema_format(analysis_schema(), "clip_analysis") if options.strict else None,
        **media,
        chat_template_kwargs={"enable_thinking": False},
    )
