"""What the check says, in Korean and English."""

from __future__ import annotations

from typing import Literal, TypeAlias

Language: TypeAlias = Literal["ko", "en"]

_WORDS: dict[str, tuple[str, str]] = {
    "title": ("다봄 점검 결과", "Dabom check"),
    "item": ("항목", "Item"),
    "route": ("경로", "Route"),
    "checks": ("검증 내용", "What is checked"),
    "result": ("핵심 결과", "Result"),
    "verdict": ("판정", "Verdict"),
    "health": ("상태 조회", "Health"),
    "health_checks": ("게이트웨이 생존·X-Request-Id", "Gateway is up, X-Request-Id"),
    "health_ok": ("x-request-id 부여 ({id})", "x-request-id given ({id})"),
    "health_no_id": ("x-request-id 없음", "no x-request-id"),
    "health_bad": ("HTTP {status}", "HTTP {status}"),
    "text": ("단일·텍스트", "Single, text"),
    "text_checks": ("텍스트 추론 기본 동작", "A text question is answered"),
    "text_ok": (
        "{model}: 정상 (prompt {prompt}·completion {completion})",
        "{model}: answered (prompt {prompt}, completion {completion})",
    ),
    "empty": ("빈 답", "empty answer"),
    "clip": ("단일·영상", "Single, clip"),
    "clip_checks": ("영상+음성 통합 분석", "Picture and sound in one answer"),
    "clip_ok": ("한국어 장면 분석: {text}", "Korean scene analysis: {text}"),
    "not_korean": ("한국어 답이 아님: {text}", "the answer is not Korean: {text}"),
    "not_strict": ("4필드 JSON이 아님: {text}", "not the JSON of four fields: {text}"),
    "black": ("단일·블랙아웃", "Single, blackout"),
    "black_checks": ("화면 가려도 음성 반영(통제)", "Sound still counts when the picture is black"),
    "black_ok": ("검은 화면 인식 + 음성 포착: {text}", "black picture seen, speech heard: {text}"),
    "black_missing": ("블랙아웃 클립 없음 (blackout/**/*.mp4)", "no black clip (blackout/**/*.mp4)"),
    "black_unseen": ("검은 화면을 알아보지 못함: {text}", "the black picture was not seen: {text}"),
    "black_unheard": ("음성을 알아듣지 못함: {text}", "the speech was not heard: {text}"),
    "batch": ("배치", "Batch"),
    "batch_checks": ("다건 동시·완료순 스트리밍", "Many at once, lines as they finish"),
    "batch_ok": (
        "{ok}/{count} 성공, X-Batch-Total={total}, {times}, {order}",
        "{ok}/{count} ok, X-Batch-Total={total}, {times}, {order}",
    ),
    "times": (
        "순차 {sequential}ms·배치 {batch}ms = {ratio:.2f}배",
        "one by one {sequential} ms, batch {batch} ms = {ratio:.2f}x",
    ),
    "order_differs": ("완료순≠입력순 ({arrival})", "arrival differs from input ({arrival})"),
    "order_same": ("완료순=입력순", "arrival equals input"),
    "saved": ("결과 저장", "Results"),
    "saved_checks": ("호출별 응답·처리 통계 기록", "Every call's answer and figures are kept"),
    "saved_ok": ("{count}건 → {path}", "{count} calls in {path}"),
    "saved_bad": ("쓸 수 없음: {path} ({reason})", "cannot write {path} ({reason})"),
    "failed": ("{code}: {message}", "{code}: {message}"),
    "starting": ("게이트웨이를 띄우는 중", "starting the gateway"),
    "sequential": ("순차 /chat", "one by one, /chat"),
    "progress": ("점검", "check"),
    "all_passed": ("모두 통과했습니다.", "every row passed"),
    "some_failed": ("통과하지 못한 항목이 있습니다.", "a row failed"),
    "running": (
        "게이트웨이가 계속 실행 중입니다. 끝내려면 Ctrl-C를 누르세요.",
        "the gateway keeps running; Ctrl-C stops it",
    ),
    "docs": ("API 문서", "API pages"),
    "try": ("호출해 보기", "try it"),
    "log": ("게이트웨이 기록", "gateway log"),
    "interrupted": ("중단했습니다.", "interrupted"),
}


def say(language: Language, key: str, **values: object) -> str:
    """The words for `key` in that language."""
    return _WORDS[key][0 if language == "ko" else 1].format(**values)
