"""The words of the report, Korean and English."""

from __future__ import annotations

from typing import Literal, TypeAlias

Language: TypeAlias = Literal["ko", "en"]

WORDS = {
    "title": ("클립 실행 보고서", "Report of a run of clips"),
    "run": ("실행", "run"),
    "model": ("모델", "model"),
    "protocol": ("프로토콜", "protocol"),
    "server": ("서버", "server"),
    "began": ("시작", "began"),
    "prompt": ("프롬프트", "prompt"),
    "prompt_sha256": ("프롬프트 해시", "prompt hash"),
    "schema_sha256": ("스키마 해시", "schema hash"),
    "version": ("다봄 버전", "Dabom"),
    "items": ("클립과 대조 클립", "clips and controls"),
    "done": ("완료", "done"),
    "failed": ("실패", "failed"),
    "open": ("남음", "open"),
    "attempts": ("요청", "requests"),
    "a_minute": ("분당 처리", "a minute"),
    "prompt_tokens": ("프롬프트 토큰", "prompt tokens"),
    "completion_tokens": ("답 토큰", "answer tokens"),
    "by_category": ("카테고리별", "By category"),
    "category": ("카테고리", "category"),
    "clips": ("클립", "clips"),
    "success": ("성공률 (95 %)", "success (95 %)"),
    "codes": ("코드별 건수", "Codes"),
    "code": ("코드", "code"),
    "all": ("전체", "all"),
    "no_codes": ("발견된 문제가 없습니다.", "Nothing was found."),
    "times": ("순차와 배치", "One by one, and as a batch"),
    "sequential": ("하나씩 물었다면(응답 시간의 합)", "one by one (the sum of the answers' times)"),
    "batch": ("배치로 걸린 시간", "as a batch, measured"),
    "ratio": ("배치가 {ratio:.1f}배 빠름", "{ratio:.1f} times faster as a batch"),
    "times_note": (
        "합은 배치 중에 잰 값이라 서버가 붐빈 만큼 깁니다. 멈춰 있던 시간은 세지 않습니다.",
        "The sum was measured during the batch: longer as the server was busier. Interruptions do not count.",
    ),
    "controls": ("대조 클립", "Controls"),
    "control": ("대조", "control"),
    "claim": ("판정", "claim"),
    "rate": ("비율 (95 %)", "rate (95 %)"),
    "sees": ("보인다고 함", "claims to see"),
    "hears_speech": ("말이 들린다고 함", "claims speech"),
    "worst": ("먼저 볼 것", "Look at these first"),
    "none_bad": ("실패도 의심도 없습니다.", "No failure, and nothing suspicious."),
    "gallery": ("모든 클립", "Every clip"),
    "show": ("보기", "show"),
    "everything": ("모두", "everything"),
    "scene": ("장면", "scene"),
    "on_screen_text": ("화면 글자", "on screen"),
    "speech": ("말", "speech"),
    "sound": ("소리", "sound"),
    "answer": ("답", "answer"),
    "raw": ("받은 그대로", "as it came"),
    "claims": ("대조 클립이 없는 것을 말함", "claims what is not there"),
    "no_picture": ("클립 파일이 없습니다", "the clip's file is gone"),
    "seconds": ("초", "s"),
}


CODES = {
    "empty": ("빈 답", "empty answer"),
    "cut_at_length": ("max_tokens에서 잘림", "cut at max_tokens"),
    "invalid_schema": ("스키마에 맞지 않음", "not valid against the schema"),
    "template_leak": ("템플릿 찌꺼기를 뗌", "template leak, stripped"),
    "foreign_script": ("한자·가나·키릴 문자 섞임", "Han, kana or Cyrillic in Korean text"),
    "repetition": ("같은 말 반복", "repeats itself"),
    "sound_missing": ("소리가 쓰이지 않음", "the sound was not used"),
    "sound_unlike": ("소리 토큰 수가 예측과 다름", "sound tokens unlike the prediction"),
    "picture_unlike": ("화면 토큰 수가 예측과 다름", "picture tokens unlike the prediction"),
    "sound_unproven": ("소리 토큰을 서버가 알려 주지 않음", "the server does not tell the sound's tokens"),
    "no_sound_track": ("소리 트랙 없음", "no sound track"),
    "same_as_neighbour": ("이웃 클립과 같은 답", "same answer as the neighbour's"),
    "connection": ("배치가 끊김", "the batch broke off"),
    "unreadable": ("읽을 수 없는 클립", "the clip cannot be read"),
    "clip_changed": ("실행 뒤 바뀐 클립", "the clip was changed after the run began"),
}


def code_words(code: str, side: int) -> str:
    """A code in words, Korean with 0 and English with 1; one of the server's as it is."""
    return f"{code} ({CODES[code][side]})" if code in CODES else code


def say(key: str, language: Language) -> str:
    """A word in that language."""
    return WORDS[key][0 if language == "ko" else 1]
