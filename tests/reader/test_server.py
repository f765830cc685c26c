"""The reader as a process of its own, over a real socket."""

from __future__ import annotations

import base64
import io
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import openai
import psutil
import pytest
from PIL import Image

from dabom.client import analysis_schema
from dabom.reader import tokens
from dabom.testing import free_port, running

if TYPE_CHECKING:
    from typing import Protocol

    class Server(Protocol):
        url: str

        def get(self, path: str) -> tuple[int, bytes]: ...
        def post(self, body: Any) -> tuple[int, bytes]: ...
        def ask(self, body: Any) -> dict[str, Any]: ...
        def refusal(self, body: Any) -> tuple[int, dict[str, Any]]: ...


SAMPLES = Path(__file__).parents[2] / "samples"
ANALYZE = "이 영상의 시각과 음성을 한국어로 분석해줘."
CLIP = SAMPLES / "clips/news/broadcast/0001_0000-0006.mp4"
BLACK = SAMPLES / "blackout/news/broadcast/0001_0000-0006.mp4"
SOUND: dict[str, Any] = {"mm_processor_kwargs": {"use_audio_in_video": True}}


def media(content: bytes, kind: str, mime: str) -> dict[str, Any]:
    return {"type": kind, kind: {"url": f"data:{mime};base64," + base64.b64encode(content).decode()}}


def body(*parts: dict[str, Any], text: str = ANALYZE, **fields: Any) -> dict[str, Any]:
    content = [*parts, {"type": "text", "text": text}]
    return {"model": "qwen", "messages": [{"role": "user", "content": content}], **fields}


def clip_body(path: Path = CLIP, **fields: Any) -> dict[str, Any]:
    return body(media(path.read_bytes(), "video_url", "video/mp4"), **fields)


def content_of(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])


def test_it_says_what_it_is(server: Server) -> None:
    status, listed = server.get("/v1/models")
    models = json.loads(listed)["data"]
    assert status == 200
    assert [model["id"] for model in models] == ["reader", "qwen"]
    assert {model["owned_by"] for model in models} == {"dabom-reader"}
    assert all(model["max_model_len"] > 100_000 for model in models)
    assert server.get("/health") == (200, b"")


def test_text_alone_is_answered_honestly(server: Server) -> None:
    korean = server.ask(body(text="한국어로 자기소개를 한 문장으로 해줘."))
    assert "언어 모델이 아니" in content_of(korean)
    english = server.ask(body(text="Who won the game?"))
    assert "not a language model" in content_of(english)
    usage = english["usage"]
    assert usage["completion_tokens"] == tokens.count(content_of(english))
    assert usage["prompt_tokens"] == tokens.count("Who won the game?")
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_clip_with_its_sound(server: Server) -> None:
    said = content_of(server.ask(clip_body(**SOUND)))
    assert "서울 첫눈, 출근길 빙판 주의" in said
    assert "장면 전환 1회: 3.2초" in said
    assert "말소리가 들립니다" in said
    assert "받아쓰지 않았습니다" in said
    assert "640x360" in said


def test_the_sound_is_not_heard_unasked(server: Server) -> None:
    said = content_of(server.ask(clip_body()))
    assert "듣지 않았습니다" in said
    assert "dBFS" not in said


def test_a_black_picture_still_has_its_speech(server: Server) -> None:
    said = content_of(server.ask(clip_body(BLACK, **SOUND)))
    assert "검은 화면" in said
    assert "말소리가 들립니다" in said
    english = content_of(server.ask(clip_body(BLACK, text="Describe it.", **SOUND)))
    assert "black picture" in english
    assert "Speech: heard at" in english


def test_the_strict_schema_of_a_clip(server: Server) -> None:
    wanted = {
        "type": "json_schema",
        "json_schema": {"name": "a", "strict": True, "schema": analysis_schema()},
    }
    for path in (CLIP, BLACK):
        document = json.loads(content_of(server.ask(clip_body(path, response_format=wanted, **SOUND))))
        jsonschema.validate(document, analysis_schema())
        assert "말소리" in document["speech"]
    assert "검은 화면" in document["scene"]
    assert document["on_screen_text"] == ""


def test_a_picture_and_a_sound_in_one_request(server: Server) -> None:
    wav = base64.b64encode((SAMPLES / "speech.wav").read_bytes()).decode()
    sound = {"type": "input_audio", "input_audio": {"data": wav, "format": "wav"}}
    picture = media((SAMPLES / "caption.png").read_bytes(), "image_url", "image/png")
    answer = server.ask(body(picture, sound))
    said = content_of(answer)
    assert said.startswith("[1] 사진: 640x360")
    assert "[2] 소리: 6초" in said
    assert answer["usage"]["prompt_tokens"] == 20 * 12 + 75 + tokens.count(ANALYZE)


def test_frames_as_a_list_of_pictures(server: Server) -> None:
    frames = []
    for colour in ("red", "blue"):
        out = io.BytesIO()
        Image.new("RGB", (64, 48), colour).save(out, "JPEG")
        frames.append(base64.b64encode(out.getvalue()).decode())
    part = {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + ",".join(frames)}}
    said = content_of(server.ask(body(part, text="What is shown?")))
    assert "Video: 1 s, 64x48" in said
    assert "Cuts: 1, at 0.5 s" in said


def test_a_stream_says_the_same(server: Server) -> None:
    request = clip_body(**SOUND)
    whole = server.ask(request)
    status, raw = server.post({**request, "stream": True, "stream_options": {"include_usage": True}})
    assert status == 200
    events = [line.removeprefix("data: ") for line in raw.decode().split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert said == content_of(whole)
    assert len(chunks) > 8
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_the_openai_client_understands_it(server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "안녕?"}]
        answer = client.chat.completions.create(model="reader", messages=messages, max_tokens=5)
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5
        with client.chat.completions.create(model="reader", messages=messages, stream=True) as stream:
            said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert "판독기" in said
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="gpt-4", messages=messages)


BAD_MEDIA = {
    "truncated mp4": media(CLIP.read_bytes()[:1500], "video_url", "video/mp4"),
    "truncated png": media((SAMPLES / "caption.png").read_bytes()[:3000], "image_url", "image/png"),
    "text as a picture": media(b"hello, not a png", "image_url", "image/png"),
    "a clip as a picture": media(CLIP.read_bytes(), "image_url", "image/png"),
    "a picture as a video": media((SAMPLES / "caption.png").read_bytes(), "video_url", "video/mp4"),
    "empty": media(b"", "image_url", "image/png"),
    "not base64": {"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}},
    "an address": {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}},
    "a file": {"type": "video_url", "video_url": {"url": "file:///etc/hostname"}},
    "a sound that is none": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
}


@pytest.mark.parametrize("name", BAD_MEDIA)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_media_are_refused_in_the_shape_of_vllm(server: Server, name: str, stream: bool) -> None:
    status, error = server.refusal(body(BAD_MEDIA[name], stream=stream))
    assert (status, error["code"], error["type"]) == (400, 400, "BadRequestError")
    assert len(error["message"]) > 15


def test_a_wrongly_declared_type_does_not_matter(server: Server) -> None:
    part = media((SAMPLES / "caption.png").read_bytes(), "image_url", "image/jpeg")
    assert "PNG" in content_of(server.ask(body(part)))


def test_requests_that_are_wrong(server: Server) -> None:
    assert server.refusal({"model": "x", "messages": [{"role": "user", "content": "hi"}]})[0] == 404
    assert server.refusal(b"{")[0] == 400
    assert server.refusal(b"[1]")[0] == 400
    assert server.refusal(body(n=2))[1]["param"] == "n"
    impossible = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}}
    assert server.refusal(body(response_format=impossible))[1]["param"] == "response_format"
    assert server.get("/v1/nothing") == (404, b'{"detail":"Not Found"}')
    assert server.get("/v1/chat/completions") == (405, b'{"detail":"Method Not Allowed"}')


def test_a_client_that_leaves_a_real_socket_frees_its_place() -> None:
    port = free_port()
    command = [sys.executable, "-m", "dabom.reader", "--port", str(port), "--workers", "1"]
    slow = body(
        *[media((SAMPLES / "broadcast.mp4").read_bytes(), "video_url", "video/mp4")] * 20,
        media_io_kwargs={"video": {"fps": 60}},
    )
    raw = json.dumps(slow).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
    with running(command, f"http://127.0.0.1:{port}/health") as child:
        worker = psutil.Process(child.pid).children()[0]
        wait_for(lambda: worker.memory_info().rss > 100_000_000 and worker.status() == psutil.STATUS_SLEEPING)
        before = worker.cpu_times().user
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(head.encode() + raw)
            wait_for(lambda: worker.cpu_times().user > before + 0.3)
        # It had minutes of work before it; the place is freed by ending the process.
        wait_for(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


def test_it_ends_with_its_parent() -> None:
    port = free_port()
    script = (
        "import os, subprocess, sys, time;"
        "command = [sys.executable, '-m', 'dabom.reader', '--with-parent', str(os.getpid())];"
        f"child = subprocess.Popen([*command, '--port', '{port}']);"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        reader = int(parent.stdout.readline())
        wait_for(lambda: listens(port))
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: not is_alive(reader))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_without_a_traceback(number: signal.Signals) -> None:
    port = free_port()
    command = [sys.executable, "-m", "dabom.reader", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        wait_for(lambda: listens(port))
        child.send_signal(number)
        _, told = child.communicate(timeout=20)
    assert told == ""


def test_a_whisper_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dabom.reader", "--whisper-model", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "model.bin" in ran.stderr


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
