"""The steps of a calculation and the reasons of a refusal, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from dabom.families.facts import Refusal, Step

Language: TypeAlias = Literal["en", "ko"]

# name or code: (English, Korean)
SENTENCES = {
    "picture": (
        "{width}x{height} to {wide}x{high}: multiples of {factor}, {least:,} to {most:,} pixels",
        "{width}x{height} → {wide}x{high}: {factor}의 배수, {least:,}~{most:,}픽셀",
    ),
    "frame": (
        "each frame {width}x{height} to {wide}x{high}: multiples of {factor}, {least:,} to {most:,} pixels",
        "프레임마다 {width}x{height} → {wide}x{high}: {factor}의 배수, {least:,}~{most:,}픽셀",
    ),
    "clip": (
        "frames {width}x{height} to {wide}x{high}: multiples of {factor}, {least:,} to {most:,} in all",
        "프레임 {width}x{height} → {wide}x{high}: {factor}의 배수, 영상 전체에서 {least:,}~{most:,}픽셀",
    ),
    "grid": ("{across} x {down} = {tokens:,} tokens", "{across} x {down} = {tokens:,}토큰"),
    "sampled": (
        "{frames:,} frames at {fps:g} fps, {rate:g} a second asked for: {taken:,} frames taken",
        "{frames:,}프레임({fps:g} fps)에서 초당 {rate:g}프레임 요청: {taken:,}프레임 사용",
    ),
    "missing": (
        "only {decodable:,} frames decode: {taken:,} of them are left",
        "실제로 디코딩되는 프레임은 {decodable:,}개: 그중 {taken:,}프레임이 남음",
    ),
    "sampled_again": (
        "every frame was taken, so the processor samples again at {rate:g} a second: {taken:,} frames",
        "모든 프레임이 뽑혀 모델의 전처리기가 초당 {rate:g}프레임으로 다시 뽑음: {taken:,}프레임",
    ),
    "pairs": (
        "{pairs:,} pairs of frames x {each:,} = {tokens:,} tokens",
        "프레임 {pairs:,}쌍 x {each:,} = {tokens:,}토큰",
    ),
    "stamps": (
        "times and markers of {pairs:,} pairs: {tokens:,} tokens",
        "{pairs:,}쌍의 시각과 표시: {tokens:,}토큰",
    ),
    "sound": (
        "{samples:,} samples at {rate:,} Hz, {at_16khz:,} at 16 kHz: {windows:,} x 10 ms, {tokens:,} tokens",
        "{rate:,} Hz 표본 {samples:,}개, 16 kHz로 {at_16khz:,}개: 10 ms 구간 {windows:,}개, {tokens:,}토큰",
    ),
    "woven": (
        "video {video:,} + sound {audio:,} + 2 markers = {span:,}; the server reports it under both",
        "영상 {video:,} + 소리 {audio:,} + 표시 2 = {span:,}. 서버는 두 항목에 같은 값을 적음",
    ),
    "sum": (
        "{tokens:,} + 2 markers = {prompt:,} tokens in the prompt",
        "{tokens:,} + 표시 2 = 프롬프트에서 {prompt:,}토큰",
    ),
    "estimated": (
        "an estimate: the file does not tell surely how many frames and samples the server will find",
        "어림값: 서버가 찾을 프레임과 표본 수를 파일이 확실히 알려 주지 않음",
    ),
    "no_pixels": (
        "the picture is {width}x{height}; each side needs at least one pixel",
        "그림이 {width}x{height}입니다. 각 변은 1픽셀 이상이어야 합니다",
    ),
    "too_many_pixels": (
        "{pixels:,} pixels; the server takes {most:,}: scale the picture down",
        "{pixels:,}픽셀입니다. 서버는 {most:,}픽셀까지 받습니다. 줄여서 보내세요",
    ),
    "too_long": (
        "the long side is {ratio:.1f} times the short one; at most {most} is accepted: crop or cut it",
        "긴 변이 짧은 변의 {ratio:.1f}배입니다. {most}배까지 받습니다. 잘라서 보내세요",
    ),
    "one_edge": (
        "{family} needs both edges of size; give shortest_edge and longest_edge",
        "{family}은 size의 두 값이 모두 필요합니다. shortest_edge와 longest_edge를 함께 주세요",
    ),
    "too_few_frames": (
        "the clip has {frames} shown frames; at least 2 are needed: send it as a picture",
        "보이는 프레임이 {frames}개입니다. 2개 이상 필요합니다. 그림으로 보내세요",
    ),
    "no_sound_track": (
        "the clip has no sound track; leave use_audio_in_video out or add a silent track",
        "영상에 소리가 없습니다. use_audio_in_video를 빼거나 무음 트랙을 넣으세요",
    ),
    "no_sound": (
        "{family} takes no sound; use an Omni model",
        "{family}은 소리를 받지 않습니다. Omni 모델을 쓰세요",
    ),
    "sound_too_long": (
        "the sound lasts {seconds:.1f} s; the server takes {most} s: cut it",
        "소리가 {seconds:.1f}초입니다. 서버는 {most}초까지 받습니다. 잘라서 보내세요",
    ),
    "sound_too_short": (
        "the sound has {samples} samples at 16 kHz; at least {least} are needed",
        "소리가 16 kHz에서 {samples}표본입니다. {least}표본 이상 필요합니다",
    ),
}


def sentence(told: Step | Refusal, language: Language = "en") -> str:
    """One step or one refusal as a sentence."""
    pattern = SENTENCES[told[0]][0 if language == "en" else 1]
    return pattern.format(**told.values)
