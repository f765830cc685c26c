"""Numbers in streams of every form, cut at every place: no two pieces that a client gets make one."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.errors import UpstreamBroken
from dabom.gateway import Metrics
from dabom.gateway.masking import Masking, ResidentNumber, mask_text
from dabom.testing import sse_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NUMBER, HIDDEN, MASKED = "900101-1123459", "123459", "900101-1******"
CUTS = [(NUMBER[:first], NUMBER[first:]) for first in range(1, len(NUMBER))]
STREAM = [(b"content-type", b"text/event-stream")]
DONE = sse_event("[DONE]")


def masking() -> Masking:
    return Masking([ResidentNumber()], Metrics(), 2**26)


def streamed(octets: Iterable[bytes]) -> bytes:
    mask = masking().begin(STREAM)[1]
    assert mask is not None
    return b"".join(mask.add(piece) for piece in octets) + mask.end()


def values(stream: bytes) -> Iterator[Any]:
    for line in stream.splitlines():
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


def leaves(value: Any) -> Iterator[str]:
    """All texts of an event, in their order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)


def joined(stream: bytes) -> str:
    return "".join(itertools.chain.from_iterable(leaves(value) for value in values(stream)))


def delta(**inner: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": inner}]}


FORMS: dict[str, Callable[[str], dict[str, Any]]] = {
    "content": lambda text: delta(content=text),
    "thoughts": lambda text: delta(reasoning_content=text),
    "parts": lambda text: delta(content=[{"type": "text", "text": text}]),
    "function": lambda text: delta(function_call={"arguments": text}),
    "tool": lambda text: delta(tool_calls=[{"index": 0, "function": {"arguments": text}}]),
    "sound": lambda text: delta(audio={"transcript": text}),
    "completion": lambda text: {"choices": [{"index": 0, "text": text}]},
    "response": lambda text: {"type": "response.output_text.delta", "item_id": "a", "delta": text},
    "message": lambda text: {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    },
    "input": lambda text: {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": text},
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_wherever_a_number_is_cut_its_end_is_hidden(form: str) -> None:
    for cut in CUTS:
        stream = streamed([*(sse_event(FORMS[form](text)) for text in cut), DONE])
        assert HIDDEN[-1] not in joined(stream).replace(NUMBER[:8], ""), cut
        assert joined(stream).count("*") == 6, cut
        assert stream.endswith(DONE)


@pytest.mark.parametrize(
    "between",
    [
        b": keep-alive\n\n",
        sse_event({"object": "progress"}),
        sse_event({"choices": []}),
        sse_event({"choices": [], "usage": None}),
        sse_event({"choices": [{"index": 1, "delta": {"content": "7"}, "finish_reason": "stop"}]}),
        sse_event({"type": "ping"}),
        sse_event("hello"),
        sse_event("null"),
        sse_event("7"),
    ],
)
def test_what_stands_between_two_pieces_does_not_part_them(between: bytes) -> None:
    for cut in CUTS:
        first, second = (sse_event(delta(content=text)) for text in cut)
        stream = streamed([first, between, second, DONE])
        texts = [
            choice["delta"]["content"]
            for value in values(stream)
            for choice in value.get("choices", ())
            if choice["index"] == 0
        ]
        assert "".join(texts) == MASKED, cut


@pytest.mark.parametrize("spoiled", ['"\\ud83d"', "NaN", "-Infinity", "1" * 5000])
def test_what_is_no_strict_json_is_masked_all_the_same(spoiled: str) -> None:
    line = '{"choices":[{"index":0,"delta":{"content":"%s"},"odd":%s}]}'
    for first, second in CUTS:
        escaped = "".join(f"\\u{ord(character):04x}" for character in second)
        octets = [b"data: %b\n\n" % (line % (text, spoiled)).encode() for text in (first, escaped)]
        shown = streamed([*octets, DONE])
        assert joined(shown).replace("\ud83d", "") == MASKED, first


@pytest.mark.parametrize("spoiled", ['"\\ud83d"', "NaN", "1" * 5000])
def test_a_whole_answer_that_is_no_strict_json_is_masked(spoiled: str) -> None:
    escaped = "".join(f"\\u{ord(character):04x}" for character in NUMBER)
    shown = masking().whole(f'{{"a":{spoiled},"b":"{escaped}"}}'.encode())
    assert json.loads(shown)["b"] == MASKED


def test_names_are_masked_too() -> None:
    shown = masking().whole(msgspec.json.encode({"detail": [{"input": {NUMBER: 1, "other": NUMBER}}]}))
    assert json.loads(shown) == {"detail": [{"input": {MASKED: 1, "other": MASKED}}]}


@pytest.mark.parametrize(
    "kind", ["application/x-ndjson", "application/jsonl", "application/yaml", "application/xml", "text/csv"]
)
def test_text_of_any_type_is_masked(kind: str) -> None:
    _, mask = masking().begin([(b"content-type", kind.encode())])
    assert mask is not None
    escaped = "".join(f"\\u{ord(character):04x}" for character in NUMBER)
    line = msgspec.json.encode({"b": NUMBER}) + b"\n"
    more = f'{{"b": "{escaped}"}}\n'.encode() if "json" in kind else b""
    shown = mask.add(line + more) + mask.end()
    assert HIDDEN.encode() not in shown
    assert escaped.encode() not in shown
    assert shown.count(MASKED.encode()) == (2 if more else 1)


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"x-unknown", b"gzip, identity"])
def test_an_encoding_that_cannot_be_read_is_refused(encoding: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        masking().begin([(b"content-type", b"application/json"), (b"content-encoding", encoding)])


def test_numbers_without_end_cost_their_length() -> None:
    """A megabyte that is all numbers, whole and as one delta: a second is enough for any machine."""
    text = f"{NUMBER}, " * 65_000
    began = time.perf_counter()
    shown = mask_text(text, [ResidentNumber()], lambda _: None)
    stream = streamed([sse_event(delta(content=text)), DONE])
    assert time.perf_counter() - began < 3
    assert shown == text.replace(NUMBER, MASKED)
    assert joined(stream) == shown


def test_a_large_event_in_small_pieces_costs_its_length() -> None:
    event = sse_event(delta(content="가나다라 " * 800_000 + NUMBER))
    pieces = [event[start : start + 65_536] for start in range(0, len(event), 65_536)]
    began = time.perf_counter()
    stream = streamed([*pieces, DONE])
    assert time.perf_counter() - began < 3
    assert joined(stream).endswith(MASKED)


@pytest.mark.parametrize("kind", ["content_block_delta", "response.output_text.delta"])
def test_what_goes_out_late_has_the_name_of_its_event(kind: str) -> None:
    """Clients of these interfaces tell events by the line `event:`."""
    form = FORMS["message" if kind.startswith("content") else "response"]
    named = [f"event: {kind}\n".encode() + sse_event(form(text)) for text in ("번호 ", NUMBER[:9])]
    stream = streamed([*named, b"event: message_stop\n" + sse_event({"type": "message_stop"})])
    assert [line for line in stream.splitlines() if line.startswith(b"event")] == [
        f"event: {kind}".encode(),
        f"event: {kind}".encode(),
        f"event: {kind}".encode(),
        b"event: message_stop",
    ]
    assert (
        "".join(
            value["delta"]["text"] if "index" in value else value.get("delta", "") for value in values(stream)
        )
        == f"번호 {NUMBER[:9]}"
    )


def test_the_name_of_a_tool_comes_whole() -> None:
    call = delta(
        tool_calls=[{"index": 0, "id": "call_1", "function": {"name": "look_2024", "arguments": ""}}]
    )
    octets = sse_event(call)
    assert streamed([octets]) == octets
