"""Answers with personal data over real sockets: whole, streamed, of several choices, of tools, in batches."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.gateway.conftest import CHAT

from dabom.testing import (
    Close,
    Send,
    WaitFor,
    chat_answer,
    chunk,
    error_reply,
    head,
    json_reply,
    raw_reply,
    sse_event,
    sse_reply,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.gateway.conftest import Answer, Behind

NUMBER, MASKED = "900101-1123459", "900101-1******"
MASK = {"mask": ["resident_number"]}
STREAM = {**CHAT, "stream": True}


def event(index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "qwen",
        "choices": [choice],
    }


def events(answer: Answer) -> list[dict[str, Any]]:
    lines = [line[6:] for line in answer.body.splitlines() if line.startswith(b"data: {")]
    return [msgspec.json.decode(line) for line in lines]


def texts(answer: Answer, name: str = "content", index: int = 0) -> str:
    choices = [choice for one in events(answer) for choice in one["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get(name) or "" for choice in choices)


def cut(text: str, size: int) -> Iterable[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


async def test_a_whole_answer_is_masked(behind: Behind) -> None:
    script = json_reply(chat_answer(f"번호는 {NUMBER}입니다"))
    async with behind(script, **MASK) as (_, gw):
        answer = await gw.ask("/chat", CHAT)
        assert answer.json() == chat_answer(f"번호는 {MASKED}입니다")
        assert answer.whole
        page = (await gw.ask("/metrics")).body
        assert b'dabom_masked_total{kind="resident_number"} 1.0' in page


async def test_without_it_nothing_is_changed(behind: Behind) -> None:
    async with behind(json_reply(chat_answer(NUMBER))) as (upstream, gw):
        answer = await gw.ask("/chat", CHAT, headers={"accept-encoding": "gzip"})
        assert answer.json() == chat_answer(NUMBER)
        assert upstream.seen[0].header("accept-encoding") == "gzip"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 40])
async def test_a_number_in_several_events_is_masked(behind: Behind, size: int) -> None:
    text = f"주민등록번호는 {NUMBER}이고 전화는 010-1234-5678입니다"
    script = sse_reply(
        [event(role="assistant"), *(event(content=c) for c in cut(text, size)), event(0, "stop")]
    )
    async with behind(script, **MASK) as (_, gw):
        answer = await gw.ask("/chat", STREAM)
        assert texts(answer) == text.replace(NUMBER, MASKED)
        assert NUMBER[7:] not in texts(answer)
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert answer.whole


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
async def test_events_that_come_in_pieces_are_masked(behind: Behind, size: int) -> None:
    octets = b"".join(sse_event(event(content=c)) for c in cut(NUMBER, 4)) + sse_event("[DONE]")
    kind = ("content-type", "text/event-stream")
    pieces = [octets[start : start + size] for start in range(0, len(octets), size)]
    async with behind(raw_reply(pieces, headers=[kind], chunked=True), **MASK) as (_, gw):
        assert texts(await gw.ask("/chat", STREAM)) == MASKED


async def test_events_without_a_number_are_the_bytes_that_came(behind: Behind) -> None:
    odd = b'data: {"choices":[{"index":0,"delta":{"content":"12.50\\u0020ok 1e3 "}}], "x" : 1.0}\n\n'
    script = sse_reply([b": hello\n\n", odd, b"event: ping\r\ndata: {}\r\n\r\n"])
    async with behind(script, **MASK) as (_, gw):
        body = (await gw.ask("/chat", STREAM)).body
        assert body == b": hello\n\n" + odd + b"event: ping\r\ndata: {}\r\n\r\ndata: [DONE]\n\n"


async def test_whole_answers_without_a_number_are_the_bytes_that_came(behind: Behind) -> None:
    odd = b'{ "choices" : [{"message":{"content":"\\uc548\\ub155 1"}}], "n": 1.00 }'
    async with behind(raw_reply(odd, headers=[("content-type", "application/json")]), **MASK) as (_, gw):
        answer = await gw.ask("/chat", CHAT)
        assert answer.body == odd


async def test_a_word_is_not_held_back(behind: Behind) -> None:
    opened = asyncio.Event()
    start = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
    script = [
        Send(head(200, start)),
        Send(chunk(sse_event(event(content="안녕")))),
        WaitFor(opened),
        Send(chunk(sse_event("[DONE]"))),
        Send(chunk(b"")),
    ]
    async with behind(script, **MASK) as (_, gw), gw.wire() as wire:
        await wire.request(
            "/chat", msgspec.json.encode(STREAM), headers=[("content-type", "application/json")]
        )
        await wire.until("안녕".encode())
        opened.set()
        assert (await wire.rest()).whole


async def test_each_choice_is_a_text_of_its_own(behind: Behind) -> None:
    mixed = [event(index, content=c) for c in cut(NUMBER, 3) for index in (0, 1)]
    script = sse_reply([*mixed, event(1, "stop"), event(0, content=" 끝", finish="length")])
    async with behind(script, **MASK) as (_, gw):
        answer = await gw.ask("/chat", {**STREAM, "n": 2})
        assert texts(answer, index=0) == f"{MASKED} 끝"
        assert texts(answer, index=1) == MASKED
        ends = [c["finish_reason"] for e in events(answer) for c in e["choices"] if c["finish_reason"]]
        assert ends == ["stop", "length"]


async def test_thoughts_and_the_last_event_with_text_are_masked(behind: Behind) -> None:
    thoughts = [event(reasoning_content=c) for c in cut(f"생각 {NUMBER}", 5)]
    last = [event(content=NUMBER[:9]), event(0, "stop", content=NUMBER[9:])]
    async with behind(sse_reply([*thoughts, *last]), **MASK) as (_, gw):
        answer = await gw.ask("/chat", STREAM)
        assert texts(answer, "reasoning_content") == f"생각 {MASKED}"
        assert texts(answer) == MASKED


async def test_the_arguments_of_tools_are_masked_and_stay_json(behind: Behind) -> None:
    given = {0: f'{{"id": "{NUMBER}", "n": 9001011123459}}', 1: '{"n": 9001011123459}'}

    def call(index: int, text: str) -> dict[str, Any]:
        return event(tool_calls=[{"index": index, "function": {"arguments": text}}])

    script = sse_reply(
        [call(index, c) for index, text in given.items() for c in cut(text, 4)] + [event(0, "tool_calls")]
    )
    async with behind(script, **MASK) as (_, gw):
        answer = await gw.ask("/chat", STREAM)
        got = {0: "", 1: ""}
        for one in events(answer):
            for part in one["choices"][0]["delta"].get("tool_calls", []):
                got[part["index"]] += part["function"]["arguments"]
        assert msgspec.json.decode(got[0]) == {"id": MASKED, "n": 9001011000000}
        assert msgspec.json.decode(got[1]) == {"n": 9001011000000}


async def test_a_whole_answer_of_a_tool_is_masked(behind: Behind) -> None:
    calls = [{"id": "call-1", "function": {"name": "f", "arguments": '{"n": 9001011123459}'}}]
    message = {"role": "assistant", "content": [{"type": "text", "text": NUMBER}], "tool_calls": calls}
    async with behind(json_reply({"choices": [{"index": 0, "message": message}]}), **MASK) as (_, gw):
        got = (await gw.ask("/chat", CHAT)).json()["choices"][0]["message"]
        assert got["content"][0]["text"] == MASKED
        assert got["tool_calls"][0]["function"]["arguments"] == '{"n": 9001011000000}'


async def test_what_tells_the_text_by_tokens_is_left_out(behind: Behind) -> None:
    body = chat_answer(NUMBER)
    body["choices"][0]["logprobs"] = {"content": [{"token": "900101"}, {"token": "-1123459"}]}
    async with behind(json_reply(body), **MASK) as (_, gw):
        answer = await gw.ask("/chat", CHAT)
        assert answer.json()["choices"][0]["logprobs"] is None
        assert b"1123459" not in answer.body


async def test_completions_and_responses_are_masked(behind: Behind) -> None:
    plain = [{"choices": [{"index": 0, "text": c, "finish_reason": None}]} for c in cut(NUMBER, 4)]
    async with behind(sse_reply(plain), **MASK) as (_, gw):
        answer = await gw.ask("/v1/completions", {"model": "qwen", "prompt": "x", "stream": True})
        assert "".join(one["choices"][0]["text"] for one in events(answer)) == MASKED
    kind = {"item_id": "m", "output_index": 0, "content_index": 0}
    deltas = [{"type": "response.output_text.delta", **kind, "delta": c} for c in cut(NUMBER, 4)]
    done = {"type": "response.output_text.done", **kind, "text": NUMBER}
    other = {"type": "response.in_progress", "response": {"id": "r"}}
    script = sse_reply([*deltas[:2], other, *deltas[2:], done], done=False)
    async with behind(script, **MASK) as (_, gw):
        answer = await gw.ask("/v1/responses", {"model": "qwen", "input": "x", "stream": True})
        assert "".join(one.get("delta", "") for one in events(answer)) == MASKED
        assert events(answer)[-1]["text"] == MASKED


async def test_items_of_a_batch_are_masked(behind: Behind) -> None:
    async with behind(json_reply(chat_answer(NUMBER)), **MASK) as (_, gw):
        answer = await gw.ask("/chat/batch", {"items": [{"id": 1, "body": CHAT}, {"id": 2, "body": CHAT}]})
        assert answer.body.count(MASKED.encode()) == 2
        assert NUMBER.encode() not in answer.body


async def test_an_error_that_quotes_the_request_is_masked(behind: Behind) -> None:
    async with behind(error_reply(400, f"bad prompt: {NUMBER}"), **MASK) as (_, gw):
        answer = await gw.ask("/chat", CHAT)
        assert (answer.status, answer.error["message"]) == (400, f"bad prompt: {MASKED}")


async def test_the_upstream_is_asked_for_plain_text(behind: Behind) -> None:
    async with behind(json_reply(chat_answer()), **MASK) as (upstream, gw):
        await gw.ask("/chat", CHAT, headers={"accept-encoding": "gzip, br"})
        await gw.ask("/chat/batch", {"items": [{"id": 1, "body": CHAT}]}, headers={"accept-encoding": "gzip"})
        assert [seen.header("accept-encoding") for seen in upstream.seen] == ["identity", "identity"]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_what_comes_encoded_is_not_given_out(behind: Behind, kind: str) -> None:
    octets = gzip.compress(msgspec.json.encode(chat_answer(NUMBER)))
    script = raw_reply(octets, headers=[("content-type", kind), ("content-encoding", "gzip")])
    async with behind(script, **MASK) as (_, gw):
        answer = await gw.ask("/chat", CHAT)
        assert (answer.status, answer.error["code"]) == (502, "upstream_broken")


async def test_what_is_held_is_given_out_before_an_error(behind: Behind) -> None:
    start = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
    script = [Send(head(200, start)), Send(chunk(sse_event(event(content="번호 900101")))), Close()]
    async with behind(script, **MASK) as (_, gw):
        answer = await gw.ask("/chat", STREAM)
        *before, error = events(answer)
        assert "".join(one["choices"][0]["delta"]["content"] for one in before) == "번호 900101"
        assert error["error"]["code"] == "upstream_broken"
        assert not answer.whole


async def test_an_answer_too_large_to_be_held_is_cut(behind: Behind) -> None:
    script = json_reply(chat_answer("x" * 5000))
    async with behind(script, max_answer_bytes=2048, **MASK) as (_, gw):
        answer = await gw.ask("/chat", CHAT, headers={"x-request-id": "big"})
        assert not answer.whole
        assert (await gw.line("big"))["code"] == "upstream_broken"


async def test_pictures_and_sounds_pass(behind: Behind) -> None:
    octets = bytes(range(256)) * 4 + NUMBER.encode()
    async with behind(raw_reply(octets, headers=[("content-type", "audio/wav")]), **MASK) as (_, gw):
        assert (await gw.ask("/v1/audio/speech", CHAT)).body == octets
