"""`dabom keys`: make a key for a client, and see what a key is good for."""

from __future__ import annotations

import os
import secrets
import sys
from getpass import getpass
from pathlib import Path  # typer reads it
from typing import Annotated, NoReturn

import msgspec
import typer
from pydantic import ValidationError

from dabom.app import load_settings
from dabom.cli.language import Language, choose_language, tell
from dabom.errors import DabomError
from dabom.gateway import Keys, KeySettings, Metrics, hash_line

PREFIX = "dabom-"
"""By it a scanner for secrets knows a key that has been published by mistake."""
_RANDOM_BYTES = 32
_LEAST_CHARS = 20

_Id = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="키 이름 · name of the key, as logs have it")
]
_Existing = Annotated[
    bool,
    typer.Option("--existing", help="쓰던 키를 입력받음 · take a key that is in use, from standard input"),
]
_Admin = Annotated[
    bool, typer.Option("--admin", help="관리자 키 · the key for /admin, the setting admin_key")
]
_Config = Annotated[Path | None, typer.Option(metavar="FILE", help="설정 파일 · YAML file with settings")]
_Json = Annotated[bool, typer.Option("--json", help="JSON 하나 · one JSON object")]
_Lang = Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")]

_WORDS = {
    "once": (
        "키(다시 볼 수 없습니다): {key}\n다음 줄을 설정 파일의 {where} 넣으세요.",
        "the key (it is not shown again): {key}\nput this {where} the settings file",
    ),
    "where": ("keys: 아래에", "below keys: of"),
    "where_admin": ("맨 위 단계에", "into"),
    "id": (
        "--id는 영문자, 숫자, 점, 밑줄, 붙임표로 64자까지입니다.",
        "--id takes up to 64 letters, digits, dots, underscores and hyphens",
    ),
    "short": (
        "키가 {found}자입니다. {least}자 이상이어야 합니다. 짐작할 수 있는 키는 해시로 지킬 수 없습니다.",
        "the key has {found} characters; it needs {least}: a hash cannot protect a key that can be guessed",
    ),
    "ask": ("키: ", "key: "),
    "none": (
        "설정에 있는 어떤 키와도 맞지 않습니다.",
        "this is none of the keys of the settings",
    ),
    "open": (
        "설정에 키가 없습니다. 루프백에서는 누구나 물을 수 있습니다.",
        "there are no keys in the settings; on loopback everybody may ask",
    ),
}

keys = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="클라이언트 키를 만들고 확인합니다. · Make and check keys of clients.",
)


@keys.command()
def new(
    ident: _Id = None,
    *,
    admin: _Admin = False,
    existing: _Existing = False,
    as_json: _Json = False,
    lang: _Lang = None,
) -> None:
    """키를 만들어 설정에 넣을 줄을 출력합니다. · Make a key; print its lines for the settings.

    설정에는 해시만 들어갑니다. 키는 한 번, 표준 오류로만 나오므로 표준 출력을 파일에 이어 붙여도 됩니다.
    · The settings hold its hash only. The key itself is shown once, on standard error: the output can go
    into a file.
    """
    language = choose_language(lang, os.environ)
    key = _read_key(language) if existing else PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    if len(key) < _LEAST_CHARS:
        _fail(language, "short", found=len(key), least=_LEAST_CHARS)
    try:
        made = KeySettings(id=ident or f"key-{secrets.token_hex(3)}", hash=hash_line(key))
    except ValidationError:
        _fail(language, "id")
    if as_json:
        line: dict[str, str] = {"id": made.id, "hash": made.hash} | ({} if existing else {"key": key})
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        return
    if not existing:
        where = _say(language, "where_admin" if admin else "where")
        sys.stderr.write(_say(language, "once", key=key, where=where) + "\n")
    lines = f"admin_key: {made.hash}\n" if admin else f"  - id: {made.id}\n    hash: {made.hash}\n"
    sys.stdout.write(lines)


@keys.command()
def check(config: _Config = None, *, as_json: _Json = False, lang: _Lang = None) -> None:
    """키가 설정에서 무엇을 할 수 있는지 보입니다. · Show what a key may do by the settings.

    키는 표준 입력에서 읽습니다. 맞는 키가 없으면 1로 끝납니다.
    · The key is read from standard input. It ends with 1 when the settings have no such key.
    """
    language = choose_language(lang, os.environ)
    try:
        known = Keys(load_settings(config).gateway(), Metrics())
        if not known.holders:
            _fail(language, "open")
        found = known.find_key(_read_key(language))
    except DabomError as error:
        sys.stderr.write(tell(error, language) + "\n")
        raise typer.Exit(2) from None
    if found is None:
        _fail(language, "none", code=1)
    told = found.model_dump(mode="json", exclude={"hash"}, exclude_none=True)
    if as_json:
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        return
    for name, value in told.items():
        shown = ", ".join(sorted(value)) if isinstance(value, list) else value
        sys.stdout.write(f"{name}: {shown}\n")


def _read_key(language: Language) -> str:
    if sys.stdin.isatty():
        return getpass(_say(language, "ask")).strip()
    return sys.stdin.readline().strip()


def _say(language: Language, word: str, **values: object) -> str:
    return _WORDS[word][0 if language == "ko" else 1].format(**values)


def _fail(language: Language, word: str, *, code: int = 2, **values: object) -> NoReturn:
    sys.stderr.write(_say(language, word, **values) + "\n")
    raise typer.Exit(code)
