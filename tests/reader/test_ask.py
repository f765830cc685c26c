from __future__ import annotations

import json
from typing import Any

import pytest

from dabom.errors import ClientError, ModelNotFound
from dabom.reader.answers import Answer, make_answer
from dabom.reader.ask import Ask, read_ask

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def read(body: dict[str, Any]) -> Ask:
    return read_ask(json.dumps(body).encode(), max_parts=4)


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


def test_the_clip_request_of_the_seed() -> None:
    clip = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AA=="}}
    ask = read(
        user(
            [clip, {"type": "text", "text": "분석해줘"}],
            model="qwen",
            temperature=0.3,
            max_tokens=1024,
            media_io_kwargs={"video": {"fps": 1.0}},
            mm_processor_kwargs={"use_audio_in_video": True},
            chat_template_kwargs={"enable_thinking": False},
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "a", "strict": True, "schema": {"x": 1e5}},
            },
        )
    )
    assert (ask.model, ask.max_tokens, ask.stream, ask.text) == ("qwen", 1024, False, "분석해줘")
    assert (ask.job.fps, ask.job.sound_asked, ask.job.language) == (1.0, True, "ko")
    assert json.loads(ask.job.schema) == {"x": 1e5}
    assert [part.kind for part in ask.job.parts] == ["video"]


@pytest.mark.parametrize("model", ["reader", "qwen"])
def test_both_names_are_served(model: str) -> None:
    assert read(user("hi", model=model)).model == model


@pytest.mark.parametrize("fields", [{}, {"model": None}, {"model": ""}])
def test_without_a_name_the_reader_answers(fields: dict[str, Any]) -> None:
    assert read(user("hi", **fields)).model == "reader"


def test_the_last_user_text_decides_the_language() -> None:
    messages = [
        {"role": "system", "content": "한국어로 답하라"},
        {"role": "user", "content": "What is this?"},
        {"role": "assistant", "content": "모름"},
    ]
    assert read({"messages": messages}).job.language == "en"
    assert read(user([PICTURE])).job.language == "ko"


def test_sampling_like_vllm() -> None:
    def sampled(**video: Any) -> tuple[float, int | None]:
        job = read(user("x", media_io_kwargs={"video": video})).job
        return job.fps, job.num_frames

    assert sampled() == (2.0, None)
    assert sampled(num_frames=8) == (2.0, 8)
    assert sampled(fps=4, num_frames=8) == (4.0, None)
    assert sampled(num_frames=-1) == (2.0, 256)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"messages": []}, "empty conversation"),
        (user("x", n=2), "n must be 1"),
        (user("x", max_tokens=0), "max_tokens must be at least 1"),
        (user("x", temperature=-1), "non-negative"),
        (user("x", response_format={"type": "yaml"}), "json_schema"),
        (user("x", media_io_kwargs={"video": {"fps": 0}}), "fps must be above 0"),
        (user("x", media_io_kwargs={"video": {"num_frames": 0}}), "num_frames"),
        (user("x", media_io_kwargs={"video": {"duration": -1}}), "duration must be above 0"),
        (user([{"type": "file"}]), "Unknown part type: file"),
        (user([{"type": "image_url"}]), "needs a data: URI"),
        (user([{"type": "input_audio", "input_audio": "x"}]), "base64"),
        (user([PICTURE] * 5), "At most 4 media parts"),
        ({"messages": "x"}, "validation error"),
        ({}, "validation error"),
    ],
)
def test_refusals(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        read(body)


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ModelNotFound, match="`gpt-4` does not exist"):
        read(user("x", model="gpt-4"))


def test_a_validation_error_does_not_show_the_body() -> None:
    with pytest.raises(ClientError) as caught:
        read_ask(b'{"messages": [{"role": "user", "content": {"secret": "canary"}}]}', 4)
    assert "canary" not in caught.value.message


def answer(content: str, **fields: Any) -> Answer:
    return make_answer(read(user("ab cd", **fields)), content, media_tokens=10)


def test_usage_adds_up() -> None:
    usage = answer("one two three").usage
    assert usage["prompt_tokens"] == 12
    assert usage["completion_tokens"] == 3
    assert usage["total_tokens"] == 15


def test_max_tokens_cuts_and_says_so() -> None:
    cut = answer("one two three", max_tokens=2)
    assert (cut.content, cut.finish_reason, cut.usage["completion_tokens"]) == ("one two", "length", 2)
    assert answer("one two three", max_tokens=3).finish_reason == "stop"
    assert answer("one two three", max_completion_tokens=1, max_tokens=9).content == "one"


def test_the_first_stop_word_ends_the_answer() -> None:
    stopped = answer("one two three", stop=["three", " two"])
    assert (stopped.content, stopped.finish_reason, stopped.stop_reason) == ("one", "stop", " two")
