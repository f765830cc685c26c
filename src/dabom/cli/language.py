"""The language that a command speaks, and what it says when something fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from dabom.errors import DabomError, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

Language: TypeAlias = Literal["ko", "en"]

_FAULTS = {
    "connect_failed": (
        "서버에 연결할 수 없습니다: {url}\n  {message}\n  서버를 띄우거나(dabom serve) --url을 바꾸세요.",
        "cannot connect to {url}\n  {message}\n  start a server (dabom serve) or change --url",
    ),
    "answer_broken": (
        "답이 중간에 끊겼거나 형식이 맞지 않습니다: {message}\n  서버 기록을 확인하고 다시 시도하세요.",
        "the answer is broken: {message}\n  look at the server's log and try again",
    ),
    "answer_timeout": (
        "시간 안에 답이 오지 않았습니다: {message}\n  서버 상태를 확인하세요(/readyz).",
        "no answer in time: {message}\n  look at the server's state (/readyz)",
    ),
    "invalid_media": (
        "미디어 파일을 쓸 수 없습니다: {message}",
        "this media file cannot be used: {message}",
    ),
    "body_too_large": (
        "파일이나 요청이 너무 큽니다: {message}",
        "the file or the request is too large: {message}",
    ),
    "start_failed": (
        "게이트웨이가 뜨지 않았습니다: {message}",
        "the gateway did not start: {message}",
    ),
    "invalid_config": (
        "설정이 맞지 않습니다: {message}",
        "a setting is wrong: {message}",
    ),
}
_REFUSED = (
    "서버가 요청을 거절했습니다(HTTP {status}, {code}): {message}",
    "the server refused the request (HTTP {status}, {code}): {message}",
)
_ANY = ("실패했습니다({code}): {message}", "failed ({code}): {message}")
_HINTS = {
    401: ("  DABOM_API_KEY에 올바른 키를 넣으세요.", "  put the right key into DABOM_API_KEY"),
    404: (
        "  --model 이름과 --url 주소를 확인하세요.",
        "  check the name of --model and the address of --url",
    ),
    503: ("  잠시 뒤 다시 시도하세요.", "  try again in a moment"),
}
_KWARGS = (
    "  vLLM을 --trust-request-mm-kwargs로 띄우거나 --no-sound를 붙이고 --fps를 빼세요.",
    "  start vLLM with --trust-request-mm-kwargs, or give --no-sound and no --fps",
)


def choose_language(given: Language | None, environ: Mapping[str, str]) -> Language:
    """What was asked for, else Korean in a Korean locale, else English."""
    if given is not None:
        return given
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "ko" if locale.lower().startswith("ko") else "en"


def tell(error: DabomError, language: Language, url: str = "") -> str:
    """What was found, what is allowed and what to do, in that language."""
    side = 0 if language == "ko" else 1
    pattern = _FAULTS.get(error.code, _ANY)
    if isinstance(error, Refused):
        pattern = _REFUSED
    lines = [pattern[side].format(url=url, message=error.message, status=error.status, code=error.code)]
    if isinstance(error, Refused):
        if error.status in _HINTS:
            lines.append(_HINTS[error.status][side])
        if "trust-request-mm-kwargs" in error.message:
            lines.append(_KWARGS[side])
        if error.request_id:
            lines.append(f"  X-Request-Id: {error.request_id}")
    return "\n".join(lines)
