"""A chat request as the reader understands it, and its refusals in vLLM's words and shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from dabom.errors import ClientError, ModelNotFound
from dabom.media.limits import DEFAULT_FPS, MAX_SAMPLED, MAX_SECONDS
from dabom.reader.findings import Job, MediaPart
from dabom.reader.settings import MAX_MODEL_LEN, MODEL_ALIAS, MODEL_ID
from dabom.reader.words import language_of

_MEDIA = {"image_url": "picture", "video_url": "video", "audio_url": "sound"}
_MAX_FPS = 60.0


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None


class _JsonSchema(msgspec.Struct, rename={"schema_": "schema"}):
    schema_: msgspec.Raw = msgspec.Raw(b"{}")


class _Format(msgspec.Struct):
    type: str = "text"
    json_schema: _JsonSchema | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    temperature: float | None = None
    response_format: _Format | None = None
    media_io_kwargs: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None


@dataclass(frozen=True)
class Ask:
    """One valid request. `text` is all prompt text, for counting; `model` the name to answer with."""

    model: str
    text: str
    job: Job
    stream: bool
    include_usage: bool
    max_tokens: int | None
    stop: tuple[str, ...]


def read_ask(body: bytes, max_parts: int) -> Ask:
    """Parse and check a request body. Raises ClientError, or ModelNotFound for a name that is not served."""
    try:
        found = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        # The parser's message names a path and a type, never a value.
        raise ClientError(f"1 validation error: {fault}", param="body") from fault
    model = _check_model(found.model)
    _check_numbers(found)
    texts, parts = _read_messages(found.messages)
    if len(parts) > max_parts:
        raise ClientError(f"At most {max_parts} media parts may be provided in one prompt, got {len(parts)}.")
    last_user = next(
        (texts[at] for at in reversed(range(len(texts))) if found.messages[at].role == "user"), ""
    )
    video = _read_video_kwargs(found.media_io_kwargs)
    fps, frames = _read_sampling(video)
    job = Job(
        parts=parts,
        language=language_of(last_user),
        fps=fps,
        num_frames=frames,
        duration_s=_read_duration(video),
        sound_asked=(found.mm_processor_kwargs or {}).get("use_audio_in_video") is True,
        json_mode=_json_mode(found.response_format),
        schema=_read_schema(found.response_format),
    )
    options = found.stream_options
    return Ask(
        model=model,
        text="\n".join(texts),
        job=job,
        stream=bool(found.stream),
        include_usage=bool(options and options.include_usage),
        max_tokens=found.max_completion_tokens
        if found.max_completion_tokens is not None
        else found.max_tokens,
        stop=_read_stop(found.stop),
    )


def _check_model(name: str | None) -> str:
    if name in {MODEL_ID, MODEL_ALIAS}:
        return str(name)
    if not name:
        return MODEL_ID
    raise ModelNotFound(
        f"The model `{name[:200]}` does not exist. Valid aliases: {MODEL_ID}, {MODEL_ALIAS}.", param="model"
    )


def _check_numbers(found: _Body) -> None:
    if not found.messages:
        raise ClientError(
            "Cannot apply chat template to an empty conversation. Provide at least one message."
        )
    if found.n is not None and found.n != 1:
        raise ClientError(f"n must be 1, got {found.n}: the reader gives one answer.", param="n")
    for name in ("max_tokens", "max_completion_tokens"):
        value = getattr(found, name)
        if value is not None and value < 1:
            raise ClientError(
                f"{name} must be at least 1, got {value}. (parameter={name}, value={value})", param=name
            )
        if value is not None and value > MAX_MODEL_LEN:
            raise ClientError(
                f"{name}={value} is more than the context of {MAX_MODEL_LEN} tokens. (parameter={name})",
                param=name,
            )
    if found.temperature is not None and found.temperature < 0:
        raise ClientError(f"temperature must be non-negative, got {found.temperature}.", param="temperature")


def _read_messages(messages: list[_Message]) -> tuple[list[str], list[MediaPart]]:
    texts: list[str] = []
    parts: list[MediaPart] = []
    for message in messages:
        if isinstance(message.content, str) or message.content is None:
            texts.append(message.content or "")
            continue
        spoken = []
        for part in message.content:
            if part.get("type") in {"text", "input_text"}:
                spoken.append(_text_of(part))
            else:
                parts.append(_media_of(part))
        texts.append("\n".join(spoken))
    return texts, parts


def _text_of(part: dict[str, Any]) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        raise ClientError("a text part needs a string under `text`", param="messages")
    return text


def _media_of(part: dict[str, Any]) -> MediaPart:
    name = part.get("type")
    if name == "input_audio":
        sound = part.get("input_audio")
        if not isinstance(sound, dict) or not isinstance(sound.get("data"), str):
            raise ClientError("an input_audio part needs base64 under `input_audio.data`", param="messages")
        return MediaPart("sound", sound["data"], is_uri=False)
    if not isinstance(name, str) or name not in _MEDIA:
        allowed = ", ".join(["text", *_MEDIA, "input_audio"])
        raise ClientError(
            f"Unknown part type: {str(name)[:40]}. The reader takes {allowed}.", param="messages"
        )
    holder = part.get(name)
    url = holder.get("url") if isinstance(holder, dict) else holder
    if not isinstance(url, str) or not url:
        raise ClientError(f"a part of type {name} needs a data: URI under `{name}.url`", param="messages")
    return MediaPart(_MEDIA[name], url)


def _read_video_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    video = (kwargs or {}).get("video") or {}
    if not isinstance(video, dict):
        raise ClientError("media_io_kwargs.video must be an object", param="media_io_kwargs")
    return video


def _read_sampling(video: dict[str, Any]) -> tuple[float, int | None]:
    fps, frames = _read_number(video, "fps", _MAX_FPS), video.get("num_frames")
    if frames is not None and (type(frames) is not int or frames < -1 or frames == 0):
        raise ClientError(
            "media_io_kwargs.video.num_frames must be -1 or at least 1", param="media_io_kwargs"
        )
    # As in vLLM: fps decides when it is given, and -1 means "as many as there are".
    if frames is None or fps is not None:
        return fps or DEFAULT_FPS, None
    return DEFAULT_FPS, MAX_SAMPLED if frames == -1 else frames


def _read_duration(video: dict[str, Any]) -> float | None:
    """The duration of a clip that comes as a list of pictures."""
    return _read_number(video, "duration", MAX_SECONDS)


def _read_number(video: dict[str, Any], name: str, most: float) -> float | None:
    value = video.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise ClientError(
            f"media_io_kwargs.video.{name} must be above 0, at most {most:g}", param="media_io_kwargs"
        )
    return float(value)


def _json_mode(wanted: _Format | None) -> bool:
    if wanted is not None and wanted.type not in {"text", "json_object", "json_schema"}:
        raise ClientError(
            "response_format.type must be text, json_object or json_schema", param="response_format"
        )
    return wanted is not None and wanted.type == "json_object"


def _read_schema(wanted: _Format | None) -> bytes:
    if wanted is None or wanted.type != "json_schema":
        return b""
    if wanted.json_schema is None:
        raise ClientError("response_format.json_schema is missing", param="response_format")
    return bytes(wanted.json_schema.schema_)


def _read_stop(stop: str | list[str] | None) -> tuple[str, ...]:
    found = (stop,) if isinstance(stop, str) else tuple(stop or ())
    return tuple(each for each in found if each)
