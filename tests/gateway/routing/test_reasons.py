"""Which failures lead on, and which would be the same anywhere."""

from __future__ import annotations

import pytest

from dabom.errors import (
    BodyTooLarge,
    ClientGone,
    ConnectTimeout,
    DabomError,
    Draining,
    FirstByteTimeout,
    IdleTimeout,
    InvalidMedia,
    KeyConcurrency,
    PromptTooLong,
    QueueFull,
    QueueTimeout,
    TotalTimeout,
    UpstreamBroken,
    UpstreamUnreachable,
)
from dabom.gateway.routing.fallback import (
    Cause,
    cause_of_error,
    cause_of_status,
    room_of,
    status_of_event,
)
from dabom.testing.recorded import load_recording

TOO_LONG = {
    "vllm 0.32": (load_recording("vllm_error_too_long").body, 4096),
    "llama.cpp": (load_recording("llama_cpp_error_too_long").body, 2048),
    "vllm, with an answer": (
        (
            "This model's maximum context length is 32768 tokens. However, you requested 33000 tokens "
            "(32000 in the messages, 1000 in the completion)."
        ),
        32768,
    ),
    "vllm, media": (
        (
            "The decoder prompt (length 40000) is longer than the maximum model length of 32768. Make sure "
            "that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens."
        ),
        32768,
    ),
    "openai": ('{"error":{"code":"context_length_exceeded","message":"too long"}}', None),
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_prompt_that_is_too_long_is_known_by_its_words(name: str) -> None:
    text, room = TOO_LONG[name]
    assert cause_of_status(400, text.encode()) == "long"
    assert room_of(text.encode()) == room
    assert cause_of_status(422, text.encode()) is None


@pytest.mark.parametrize(
    "name",
    ["vllm_error_bad_image", "vllm_error_bad_json", "vllm_error_unknown_model", "vllm_error_media_url"],
)
def test_other_refusals_of_vllm_lead_nowhere(name: str) -> None:
    recorded = load_recording(name)
    assert cause_of_status(recorded.status, recorded.body.encode()) is None


def test_the_status_tells_the_rest() -> None:
    causes = {status: cause_of_status(status, b"") for status in range(400, 600)}
    assert {status for status, cause in causes.items() if cause == "failed"} == {500, 502, 504}
    assert {status for status, cause in causes.items() if cause == "busy"} == {429, 503}
    assert sum(cause is not None for cause in causes.values()) == 5


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (UpstreamUnreachable("x"), "failed"),
        (ConnectTimeout("x"), "failed"),
        (UpstreamBroken("x"), "failed"),
        (FirstByteTimeout("x"), "failed"),
        (IdleTimeout("x"), "failed"),
        (QueueTimeout("x"), "busy"),
        (QueueFull("x", retry_after_s=1), "busy"),
        (PromptTooLong("x", needed=2, limit=1), "long"),
        (TotalTimeout("x"), None),  # there is no time left
        (Draining("x"), None),
        (ClientGone("x"), None),
        (KeyConcurrency("x", retry_after_s=1), None),
        (InvalidMedia("x"), None),
        (BodyTooLarge("x"), None),
    ],
)
def test_errors_of_the_gateway(error: DabomError, cause: Cause | None) -> None:
    assert cause_of_error(error) == cause


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (b'data: {"error":{"message":"x","code":503}}\n\n', 503),
        (b'data: {"error":{"message":"x","code":400}}\n\n', 400),
        (b'data: {"error":{"message":"x","code":"server_error"}}\n\n', 500),
        (b'data: {"error":{"message":"x","code":null}}\n\n', 500),
        (b'data: {"error":{"message":"x","code":7}}\n\n', 500),
        (b'data: {"error":"x"}\n\n', 500),
        (b'event: error\r\ndata: {"error":{"code":429}}\r\n\r\n', 429),
        (b"data: {\n\n", 500),
    ],
)
def test_the_error_that_a_stream_begins_with(event: bytes, status: int) -> None:
    assert status_of_event(event)[0] == status
