from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from dabom.cli.language import Language, choose_language
from dabom.testing import (
    Close,
    ScriptedUpstream,
    Stall,
    Step,
    chat_events,
    error_reply,
    refusing_upstream,
    sse_reply,
)

if TYPE_CHECKING:
    from pathlib import Path

_RUN = "import typer; from dabom.cli.chat import chat; typer.run(chat)"


async def _start(*args: str, lang: str = "en", key: str = "") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _RUN,
        *args,
        "--lang",
        lang,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "DABOM_API_KEY": key, "NO_COLOR": "1"},
    )


async def _chat(*args: str, lang: str = "en", key: str = "") -> tuple[int | None, str, str]:
    process = await _start(*args, lang=lang, key=key)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_prints_the_answer_and_sends_what_was_given(tmp_path: Path) -> None:
    clip = tmp_path / "a.mp4"
    clip.write_bytes(b"\0\0\0\x18ftypisom" + bytes(64))
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    args = ("무엇이 보이나", "--video", str(clip), "--schema", str(schema), "--fps", "1", "--max-tokens", "9")
    async with ScriptedUpstream(sse_reply(chat_events("검은 ", "화면")), models=["m1", "m2"]) as upstream:
        code, out, err = await _chat(*args, "--url", upstream.root, key="k")
    assert (code, out, err) == (0, "검은 화면\n", "")
    body = upstream.seen[0].json()
    assert upstream.seen[0].header("authorization") == "Bearer k"
    assert [part["type"] for part in body["messages"][0]["content"]] == ["video_url", "text"]
    assert body["model"] == "m1"
    assert body["max_tokens"] == 9
    assert body["media_io_kwargs"] == {"video": {"fps": 1.0}}
    assert body["mm_processor_kwargs"] == {"use_audio_in_video": True}
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}


async def test_json_is_one_object() -> None:
    async with ScriptedUpstream(sse_reply(chat_events("예"))) as upstream:
        code, out, _ = await _chat("안녕", "--json", "--model", "m", "--url", upstream.url)
    answer = json.loads(out)
    assert code == 0
    assert (answer["text"], answer["finish_reason"]) == ("예", "stop")
    assert upstream.seen[0].json()["model"] == "m"


async def test_prints_pieces_as_they_come() -> None:
    script: list[Step] = [*sse_reply(chat_events("먼저"), done=False)[:-1], Stall()]
    async with ScriptedUpstream(script) as upstream:
        process = await _start("안녕", "--url", upstream.root)
        assert process.stdout is not None
        assert (await process.stdout.readexactly(len("먼저".encode()))).decode() == "먼저"
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert process.returncode == 130
    assert out == b"\n"
    assert err.decode().strip() == "interrupted"


async def test_a_cut_answer_fails_after_what_came() -> None:
    async with ScriptedUpstream(sse_reply(chat_events("반쪽"), done=False)) as upstream:
        code, out, err = await _chat("안녕", "--url", upstream.root, lang="ko")
    assert (code, out) == (1, "반쪽\n")
    assert "끊겼거나" in err
    assert "Traceback" not in err


async def test_refusals_say_what_and_what_to_do() -> None:
    script = error_reply(401, "wrong key", headers=[("X-Request-Id", "r1")])
    async with ScriptedUpstream(script) as upstream:
        code, out, err = await _chat("비밀 질문입니다", "--url", upstream.root)
    assert (code, out) == (1, "")
    assert "HTTP 401" in err
    assert "DABOM_API_KEY" in err
    assert "X-Request-Id: r1" in err
    assert "비밀" not in err


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Per-request media_io_kwargs are disabled by default. Start with --trust-request-mm-kwargs", True),
        ("send a shorter clip, or ask for fewer frames (media_io_kwargs.video.fps)", False),
    ],
)
async def test_the_advice_on_vllms_options_is_given_when_they_are_the_reason(
    message: str, told: bool
) -> None:
    async with ScriptedUpstream(error_reply(400, message)) as upstream:
        _, _, err = await _chat("안녕", "--url", upstream.root)
    assert ("start vLLM with" in err) is told


async def test_nobody_there_names_the_address() -> None:
    with refusing_upstream() as url:
        code, _, err = await _chat("안녕", "--url", url, lang="ko")
    assert code == 1
    assert url in err
    assert "dabom serve" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--image", "/nowhere/a.png"], "no such file"),
        (["--url", "ftp://host"], "http://HOST:PORT"),
        (["--schema", "/nowhere/schema.json"], "cannot be read"),
        (["--max-tokens", "0"], "max-tokens"),
    ],
)
async def test_wrong_use_is_2(args: list[str], words: str) -> None:
    async with ScriptedUpstream([Close()]) as upstream:
        code, out, err = await _chat("안녕", "--url", upstream.root, *args)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err
    assert upstream.seen == []


@pytest.mark.parametrize(
    ("given", "environ", "language"),
    [
        ("en", {"LANG": "ko_KR.UTF-8"}, "en"),
        (None, {"LANG": "ko_KR.UTF-8"}, "ko"),
        (None, {"LC_ALL": "C", "LANG": "ko_KR.UTF-8"}, "en"),
        (None, {"LC_ALL": "", "LANG": "ko"}, "ko"),
        (None, {}, "en"),
    ],
)
def test_language_follows_the_locale(
    given: Language | None, environ: dict[str, str], language: Language
) -> None:
    assert choose_language(given, environ) == language
