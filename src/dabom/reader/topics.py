"""What was measured, by topic, and which topic a property of a schema is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dabom.reader import words
from dabom.reader.findings import Heard, Look, Watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.reader.findings import Finding

# The first row whose words are in a property's name wins; then the same over its description.
_TOPICS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("has_speech", ("has_speech", "is_speech", "speaking", "말소리_여부", "음성_여부")),
    ("black", ("black", "블랙", "검은")),
    ("duration", ("duration", "length_s", "seconds", "길이", "재생시간")),
    ("width", ("width", "너비", "가로")),
    ("height", ("height", "높이", "세로")),
    ("fps", ("fps", "frame_rate")),
    ("cuts", ("cuts", "cut_times", "shots", "transitions", "장면전환", "장면_전환")),
    ("cut_count", ("cut", "shot_count")),
    ("colours", ("color", "colour", "색")),
    ("brightness", ("brightness", "밝기")),
    ("loudness", ("loudness", "volume", "dbfs", "음량")),
    ("language", ("language", "언어")),
    (
        "text",
        ("on_screen", "onscreen", "ocr", "caption", "subtitle", "text", "자막", "글자", "텍스트", "문자"),
    ),
    (
        "speech",
        ("speech", "transcript", "dialog", "utterance", "spoken", "voice", "대사", "음성", "발화", "말"),
    ),
    ("sound", ("sound", "audio", "music", "noise", "소리", "음향", "배경음", "효과음", "오디오")),
    (
        "scene",
        ("scene", "visual", "descri", "picture", "image", "장면", "화면", "영상", "시각", "설명", "묘사"),
    ),
    ("summary", ("summary", "answer", "content", "result", "요약", "답", "내용", "결과")),
)


def topic_of(text: str) -> str | None:
    """The topic that a name or a description is about."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower().replace("-", "_").replace(" ", "_")
    for topic, signs in _TOPICS:
        if any(sign in name for sign in signs):
            return topic
    return None


def measure_topics(findings: Sequence[Finding], language: str) -> dict[str, Any]:
    """Topic to value; a topic that was not measured is absent. Text, cuts and colours are lists."""
    topics: dict[str, Any] = {}
    scenes: list[str] = []
    texts: list[str] = []
    heard: list[Heard] = []
    for finding in findings:
        if isinstance(finding, Heard):
            heard.append(finding)
            topics.setdefault("duration", finding.duration_s)
            continue
        topics.update(_sight(finding))
        if isinstance(finding, Look):
            scenes.append(words.light_line(finding.light, language))
            texts += [line.text for line in finding.lines]
        else:
            scenes += words.scene_lines(finding, language)
            texts += list(dict.fromkeys(caption.text for caption in finding.captions))
            if finding.heard:
                heard.append(finding.heard)
    if scenes:
        topics["scene"] = " ".join(dict.fromkeys(scenes))
        topics["text"] = list(dict.fromkeys(texts))
    if heard:
        topics.update(_hearing(heard, language))
    elif any(isinstance(finding, Watched) and finding.sound_asked for finding in findings):
        topics["sound"] = "소리 트랙이 없습니다." if language == words.KO else "There is no sound track."
    if findings:
        topics["summary"] = words.describe(findings, language)
    return topics


def _sight(finding: Look | Watched) -> dict[str, Any]:
    found: dict[str, Any] = {
        "width": finding.width,
        "height": finding.height,
        "black": finding.light.black,
        "brightness": round(finding.light.brightness, 3),
        "colours": [name for name, _ in finding.light.colours],
    }
    if isinstance(finding, Watched):
        found |= {"duration": finding.duration_s, "cuts": finding.cuts_s, "cut_count": len(finding.cuts_s)}
        if finding.fps:
            found["fps"] = finding.fps
    return found


def _hearing(heard: Sequence[Heard], language: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "sound": " ".join(words.sound_line(each, language) for each in heard),
        "has_speech": any(each.speech for each in heard),
    }
    spoken = [each for each in heard if each.speech]
    if spoken:
        said = [each.transcript or words.speech_line(each, language) for each in spoken]
        found["speech"] = " ".join(said)
    loud = [each.loudness_dbfs for each in heard if each.loudness_dbfs is not None]
    if loud:
        found["loudness"] = loud[0]
    return found
