"""Findings in sentences, Korean or English. Nothing is said that was not measured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dabom.reader.findings import Caption, Heard, Look, Watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.reader.findings import Finding, Light, Span, TextLine

KO, EN = "ko", "en"
_HANGUL = re.compile(r"[가-힣ㄱ-ㅎㅏ-ㅣ]")
_COLOURS_KO = {
    "red": "빨강", "orange": "주황", "yellow": "노랑", "green": "초록", "cyan": "청록", "blue": "파랑",
    "purple": "보라", "pink": "분홍", "brown": "갈색", "grey": "회색", "white": "흰색", "black": "검정",
}  # fmt: skip
_MAX_LINES = 40

ABOUT = {
    KO: (
        "저는 다봄에 내장된 판독기(dabom-reader)입니다. 언어 모델이 아니므로 대화하거나 글을 짓지 못합니다. "
        "사진, 영상, 소리를 data: URI로 보내면 CPU에서 직접 측정한 것만 말합니다: "
        "사진은 크기·색·밝기·선명도·글자, 영상은 길이·장면 전환·움직임·자막·검은 화면, "
        "소리는 길이·크기·무음·말소리 위치입니다. response_format의 JSON 스키마에 맞춘 답도 합니다."
    ),
    EN: (
        "I am the reader built into Dabom (dabom-reader). I am not a language model, so I cannot converse or "
        "write. Send pictures, video or sound as data: URIs and I say only what I measured on the CPU: size, "
        "colours, brightness, sharpness and text of pictures; duration, cuts, motion, captions and black "
        "pictures of video; duration, loudness, silence and speech of sound. I also answer in the JSON "
        "schema of response_format."
    ),
}


def language_of(text: str) -> str:
    """ko when a text has Hangul or nothing at all, else en."""
    return EN if text.strip() and not _HANGUL.search(text) else KO


def describe(findings: Sequence[Finding], language: str) -> str:
    """The whole answer: one paragraph for each media part, numbered when there are several."""
    if not findings:
        return ABOUT[language]
    parts = [describe_one(finding, language) for finding in findings]
    if len(parts) == 1:
        return parts[0]
    return "\n\n".join(f"[{number}] {part}" for number, part in enumerate(parts, 1))


def describe_one(finding: Finding, language: str) -> str:
    """One media part, one statement a line."""
    if isinstance(finding, Look):
        return "\n".join([_picture_head(finding, language), *picture_lines(finding, language)])
    if isinstance(finding, Watched):
        lines = [
            _video_head(finding, language),
            *scene_lines(finding, language),
            text_line(finding, language),
        ]
        return "\n".join([*lines, *video_sound_lines(finding, language)])
    return "\n".join([sound_line(finding, language), speech_line(finding, language)])


def _picture_head(look: Look, language: str) -> str:
    first = f", 첫 장만 보았습니다(모두 {look.frames}장)" if look.frames > 1 else ""
    if language == KO:
        return f"사진: {look.width}x{look.height} 픽셀, {look.format}{first}."
    first = f", first of {look.frames} frames" if look.frames > 1 else ""
    return f"Picture: {look.width}x{look.height} pixels, {look.format}{first}."


def picture_lines(look: Look, language: str) -> list[str]:
    """What a picture shows, without its size."""
    lines = [light_line(look.light, language)]
    if not look.light.black and not look.light.blank:
        lines.append(_read_text(look.lines, language))
    return lines


def light_line(light: Light, language: str) -> str:
    """Black, blank, or brightness, colours and sharpness."""
    colours = colour_names(light, language)
    if light.black:
        return "검은 화면입니다." if language == KO else "It is a black picture."
    if light.blank:
        return (
            f"한 가지 색뿐인 빈 화면입니다: {colours}."
            if language == KO
            else f"It is blank, one colour only: {colours}."
        )
    percent = round(light.brightness * 100)
    sharp = 0 if light.sharpness < 30 else 1 if light.sharpness < 120 else 2
    if language == KO:
        return f"밝기 {percent}%, {('흐림', '보통 선명도', '선명함')[sharp]}. 주요 색: {colours}."
    return (
        f"Brightness {percent}%, {('blurred', 'moderately sharp', 'sharp')[sharp]}. Main colours: {colours}."
    )


def colour_names(light: Light, language: str) -> str:
    """Colour names with their shares."""
    named = [(_COLOURS_KO[name] if language == KO else name, share) for name, share in light.colours]
    return ", ".join(f"{name} {round(share * 100)}%" for name, share in named)


def _read_text(lines: Sequence[TextLine], language: str) -> str:
    if not lines:
        return "읽을 수 있는 글자가 없습니다." if language == KO else "No text could be read."
    listed = "\n".join(f'- "{line.text}" [{", ".join(map(str, line.box))}]' for line in lines[:_MAX_LINES])
    more = len(lines) - _MAX_LINES
    if language == KO:
        return f"읽은 글자(상자는 왼쪽, 위, 오른쪽, 아래 픽셀):\n{listed}" + (
            f"\n- 외 {more}줄" if more > 0 else ""
        )
    return f"Text read (boxes are left, top, right, bottom in pixels):\n{listed}" + (
        f"\n- and {more} more lines" if more > 0 else ""
    )


def _video_head(seen: Watched, language: str) -> str:
    rate = f"{seen.fps:g}" if seen.fps else "?"
    if language == KO:
        cut = "" if seen.whole else " 파일이 손상되었거나 잘려 있어 읽힌 곳까지만 보았습니다."
        return (
            f"영상: {seen.duration_s:g}초, {seen.width}x{seen.height}, 초당 {rate}프레임. "
            f"{seen.decoded}프레임 중 {seen.sampled}장을 골라 보았습니다.{cut}"
        )
    cut = "" if seen.whole else " The file is damaged or cut off; only what could be decoded was seen."
    return (
        f"Video: {seen.duration_s:g} s, {seen.width}x{seen.height}, {rate} frames a second. "
        f"Of {seen.decoded} frames {seen.sampled} were looked at.{cut}"
    )


def scene_lines(seen: Watched, language: str) -> list[str]:
    """Black picture, or light, cuts and motion."""
    if seen.light.black:
        return [
            f"처음부터 끝까지 검은 화면입니다(본 {seen.sampled}장 모두)."
            if language == KO
            else f"It is a black picture from beginning to end (all {seen.sampled} frames looked at)."
        ]
    lines = [light_line(seen.light, language)]
    if seen.black_frames:
        lines.append(
            f"본 {seen.sampled}장 중 {seen.black_frames}장은 검은 화면입니다."
            if language == KO
            else f"{seen.black_frames} of the {seen.sampled} frames looked at are black."
        )
    times = ", ".join(f"{cut:g}" for cut in seen.cuts_s)
    level = 0 if seen.motion < 0.15 else 1 if seen.motion < 1.5 else 2 if seen.motion < 5 else 3
    if language == KO:
        cuts = f"장면 전환 {len(seen.cuts_s)}회: {times}초." if seen.cuts_s else "장면 전환은 없습니다."
        return [*lines, f"{cuts} 움직임: {('거의 없음', '적음', '보통', '많음')[level]}."]
    cuts = f"Cuts: {len(seen.cuts_s)}, at {times} s." if seen.cuts_s else "No cuts."
    return [*lines, f"{cuts} Motion: {('hardly any', 'little', 'moderate', 'much')[level]}."]


def text_line(seen: Watched, language: str) -> str:
    """The captions with their times."""
    if not seen.captions:
        return "화면에서 읽은 글자가 없습니다." if language == KO else "No on-screen text was read."
    listed = "\n".join(_caption(caption, seen, language) for caption in seen.captions[:_MAX_LINES])
    if not seen.text_complete or len(seen.captions) > _MAX_LINES:
        listed += "\n- 글자가 많아 일부만 적었습니다." if language == KO else "\n- There was more text."
    return f"화면 글자:\n{listed}" if language == KO else f"On-screen text:\n{listed}"


def _caption(caption: Caption, seen: Watched, language: str) -> str:
    middle = (caption.box[1] + caption.box[3]) / 2 / max(1, seen.height)
    row = 0 if middle < 1 / 3 else 1 if middle < 2 / 3 else 2
    place = ("위", "가운데", "아래")[row] if language == KO else ("top", "middle", "bottom")[row]
    unit = "초" if language == KO else " s"
    return f'- "{caption.text}" ({caption.start_s:g}-{caption.end_s:g}{unit}, {place})'


def video_sound_lines(seen: Watched, language: str) -> list[str]:
    """The sound of a video, as far as it was asked for."""
    if seen.heard:
        return [sound_line(seen.heard, language), speech_line(seen.heard, language)]
    if not seen.sound_asked:
        if not seen.has_sound:
            return []
        return [
            "소리는 요청에 없어 듣지 않았습니다(use_audio_in_video)."
            if language == KO
            else "The sound was not asked for (use_audio_in_video)."
        ]
    return ["소리 트랙이 없습니다." if language == KO else "There is no sound track."]


def sound_line(heard: Heard, language: str) -> str:
    """Duration, loudness and silence."""
    if heard.loudness_dbfs is None:
        return (
            f"소리: {heard.duration_s:g}초, 완전한 무음입니다."
            if language == KO
            else f"Sound: {heard.duration_s:g} s of digital silence."
        )
    silence = round(heard.silence_share * 100)
    if language == KO:
        cut = "" if heard.whole else " 파일이 손상되어 읽힌 곳까지만 들었습니다."
        return (
            f"소리: {heard.duration_s:g}초, 평균 {heard.loudness_dbfs:g} dBFS, "
            f"최고 {heard.peak_dbfs:g} dBFS, 무음 {silence}%.{cut}"
        )
    cut = "" if heard.whole else " The file is damaged; only what could be decoded was heard."
    return (
        f"Sound: {heard.duration_s:g} s, mean {heard.loudness_dbfs:g} dBFS, peak {heard.peak_dbfs:g} dBFS, "
        f"{silence}% silence.{cut}"
    )


def speech_line(heard: Heard, language: str) -> str:
    """Whether and where somebody speaks, and what, when it was transcribed."""
    if not heard.speech:
        return "음성: 말소리가 없습니다." if language == KO else "Speech: none was heard."
    where = spans(heard.speech, language)
    if heard.transcript is not None:
        said = f'"{heard.transcript}"'
        return (
            f"음성: {where}에 말소리가 들립니다: {said}"
            if language == KO
            else f"Speech: heard at {where}: {said}"
        )
    if language == KO:
        return f"음성: {where}에 말소리가 들립니다. 받아쓰기 모델이 설정되지 않아 내용은 받아쓰지 않았습니다."
    return f"Speech: heard at {where}. It was not transcribed, as no speech model is configured."


def spans(found: Sequence[Span], language: str) -> str:
    """Stretches of time, as "0.3-1.2, 2-3 s"."""
    listed = ", ".join(f"{span.start_s:g}-{span.end_s:g}" for span in found)
    return f"{listed}초" if language == KO else f"{listed} s"
