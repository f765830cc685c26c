"""What the commands about runs of clips say, Korean and English, and how they open a database."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dabom.cli.language import Language, tell
from dabom.errors import AskError, DabomError, StoreError
from dabom.store import open_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.store import Runs

DATABASE = "var/clips.db"
"""Where runs are kept unless told otherwise; `var/` is kept out of the repository."""
INTERRUPTED = 130

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
CLAIMS = {"sees": ("보인다고 함", "claims to see"), "hears_speech": ("말이 들린다고 함", "claims speech")}


def code_words(code: str, side: int) -> str:
    """A code in words; one of the server's as it is."""
    return f"{code} ({CODES[code][side]})" if code in CODES else code


@contextmanager
def opened(database: str, language: Language, *, read_only: bool = False) -> Iterator[Runs]:
    """The runs of a database; what goes wrong is told on stderr and ends the command."""
    try:
        if database == DATABASE and not read_only:
            Path(database).parent.mkdir(parents=True, exist_ok=True)
        runs = open_runs(database, read_only=read_only)
        try:
            yield runs
        finally:
            runs.close()
    except DabomError as error:
        fail(error, language)
    except OSError as error:
        fail(StoreError(f"{error.filename}: {error.strerror}"), language)


def fail(error: DabomError, language: Language, url: str = "") -> None:
    """Tell it on stderr and end with 1, or with 2 when the command was used wrongly."""
    sys.stderr.write(tell(error, language, url) + "\n")
    used_rightly = isinstance(error, AskError | StoreError)
    raise typer.Exit(1 if used_rightly else 2) from None
