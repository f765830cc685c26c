"""An upstream that cannot be reached, breaks off, hangs or refuses, and what the client is told."""

from __future__ import annotations

import asyncio
import gzip
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from openai import APIStatusError, AsyncOpenAI

from dabom.testing import (
    Close,
    Reset,
    Send,
    Stall,
    Wait,
    WaitFor,
    chat_answer,
    chunk,
    cut_at,
    drip,
    error_reply,
    hanging_upstream,
    head,
    in_turn,
    json_reply,
    raw_reply,
    recording,
    refusing_upstream,
    sent_bytes,
)
from dabom.testing.recorded import load_recording

if TYPE_CHECKING:
    from tests.gateway.conftest import Answer, Behind, Run

    from dabom.testing import Step

JSON = [("content-type", "application/json")]
WHOLE = json_reply(chat_answer("끝까지 온 답"))
CHUNKED = json_reply(chat_answer("끝까지 온 답"), chunked=True)
ENDS: dict[str, Step] = {"FIN": Close(), "RST": Reset()}
BROKEN_BEFORE_HEAD: dict[str, list[Step]] = {
    "FIN at once": [Close()],
    "RST at once": [Reset()],
    "half a head, FIN": cut_at(WHOLE, 30, Close()),
    "half a head, RST": cut_at(WHOLE, 30),
    "no HTTP": [Send(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"), Stall()],
    "HTTP that is none": [Send(b"HTTP/1.1 abc OK\r\n\r\n"), Stall()],
    "wrong header": [Send(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), Stall()],
    "two lengths": [Send(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"), Stall()],
}


def told(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """The error, which must be a whole answer in OpenAI's shape."""
    assert (answer.status, answer.error["code"], answer.whole) == (status, code, True)
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.header("content-type") == "application/json"
    assert answer.header("x-request-id")
    return answer.error


@pytest.fixture(params=["whole", "stream"])
def asked(request: pytest.FixtureRequest, chat: dict[str, Any]) -> dict[str, Any]:
    return {**chat, "stream": True} if request.param == "stream" else chat


async def test_unreachable(running_gateway: Run, asked: dict[str, Any]) -> None:
    with refusing_upstream() as url:
        async with running_gateway(url) as gw:
            for path in ("/chat", "/v1/chat/completions", "/v1/embeddings"):
                told(await gw.ask(path, asked), 502, "upstream_unreachable")
            told(await gw.ask("/v1/models"), 502, "upstream_unreachable")


async def test_a_name_that_does_not_resolve_is_unreachable(
    running_gateway: Run, chat: dict[str, Any]
) -> None:
    async with running_gateway("http://no-such-host.invalid:8000/v1") as gw:
        told(await gw.ask("/chat", chat), 502, "upstream_unreachable")


async def test_connect_timeout(running_gateway: Run, asked: dict[str, Any]) -> None:
    with hanging_upstream() as url:
        async with running_gateway(url, connect_timeout_s=0.2) as gw:
            began = time.monotonic()
            told(await gw.ask("/chat", asked), 504, "connect_timeout")
            assert time.monotonic() - began >= 0.199


@pytest.mark.parametrize("how", BROKEN_BEFORE_HEAD)
async def test_broken_before_its_head(behind: Behind, asked: dict[str, Any], how: str) -> None:
    async with behind(BROKEN_BEFORE_HEAD[how]) as (upstream, gw):
        told(await gw.ask("/chat", asked), 502, "upstream_broken")
        assert len(upstream.seen) == 1  # it may have begun to work: asking again is the client's decision


async def test_broken_while_it_reads(behind: Behind) -> None:
    body = b'{"messages":[],"pad":"%b"}' % (b"x" * 2_000_000)
    async with behind(upstream={"before_body": [Reset()], "read_body": False}) as (_, gw):
        told(await gw.ask("/chat", body), 502, "upstream_broken")


async def test_first_byte_timeout(behind: Behind, asked: dict[str, Any]) -> None:
    async with behind([Stall()], first_byte_timeout_s=0.2) as (upstream, gw):
        began = time.monotonic()
        told(await gw.ask("/chat", asked), 504, "first_byte_timeout")
        assert time.monotonic() - began >= 0.199
        await upstream.wait_closed()  # nobody works for a client who has been told of the end


async def test_a_body_that_nobody_reads_runs_into_the_first_byte_clock(behind: Behind) -> None:
    body = b'{"messages":[],"pad":"%b"}' % (b"x" * 20_000_000)
    unread = {"before_body": [Stall()], "read_body": False}
    async with behind(upstream=unread, first_byte_timeout_s=0.3) as (_, gw):
        told(await gw.ask("/chat", body), 504, "first_byte_timeout")


async def test_total_timeout_before_the_head(behind: Behind, asked: dict[str, Any]) -> None:
    async with behind([Stall()], total_timeout_s=0.2) as (_, gw):
        began = time.monotonic()
        told(await gw.ask("/chat", asked), 504, "total_timeout")
        assert time.monotonic() - began >= 0.199


async def test_the_seeds_name_sets_the_total(
    behind: Behind, chat: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_TIMEOUT_SECONDS", "0.2")
    async with behind([Stall()]) as (_, gw):
        told(await gw.ask("/chat", chat), 504, "total_timeout")


async def test_the_clocks_start_with_the_permit(behind: Behind, chat: dict[str, Any]) -> None:
    gate = asyncio.Event()
    slow_then_quick = in_turn([WaitFor(gate), *WHOLE], WHOLE)
    async with (
        behind(slow_then_quick, concurrency=1, total_timeout_s=5, first_byte_timeout_s=5) as (upstream, gw),
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(gw.ask("/chat", chat))
        await upstream.wait_seen(1)
        second = group.create_task(gw.ask("/chat", chat, headers=[("x-request-id", "second")]))
        await gw.until(lambda: gw.permits.waiting == 1)
        await asyncio.sleep(0.3)
        gate.set()
        assert [(await first).status, (await second).status] == [200, 200]
        line = await gw.line("second")
        assert line["queue_ms"] >= 290
        assert line["first_byte_ms"] < line["total_ms"] - 280


async def test_a_steady_answer_outlives_the_idle_clock(behind: Behind, chat: dict[str, Any]) -> None:
    body = msgspec.json.encode(chat_answer("가" * 100))
    steps = drip(raw_reply(body, headers=JSON), 40, 0.05)
    async with behind(steps, idle_timeout_s=0.5) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert (answer.body, answer.whole) == (body, True)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("end", ENDS)
async def test_an_answer_that_breaks_off_never_ends_as_a_whole_one(
    behind: Behind, chat: dict[str, Any], framing: str, end: str
) -> None:
    script = CHUNKED if framing == "chunked" else WHOLE
    size = len(sent_bytes(script))
    first_body_byte = len(script[0].octets) if framing == "chunked" else size - 60  # type: ignore[attr-defined]
    for octets in (first_body_byte, size - 30, size - 7, size - 1):
        async with behind(cut_at(script, octets, ENDS[end])) as (_, gw):
            answer = await gw.ask("/chat", chat, headers=[("x-request-id", "cut")])
            assert not answer.whole or answer.status == 502, f"cut after {octets} bytes"
            line = await gw.line("cut")
            assert line["code"] == "upstream_broken"


@pytest.mark.parametrize("end", ENDS)
async def test_what_came_before_the_break_is_not_called_json(
    behind: Behind, chat: dict[str, Any], end: str
) -> None:
    """A client that reads to the end of the connection must see that it was cut: by length or by chunks."""
    big = raw_reply(b"[" + b"1," * 200_000 + b"1]", headers=JSON)
    async with behind(cut_at(big, 300_000, ENDS[end])) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert not answer.whole
        assert int(answer.header("content-length") or 0) == 400_003
        assert len(answer.body) < 400_003


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_an_answer_that_hangs_half_way_is_cut_by_the_idle_clock(
    behind: Behind, chat: dict[str, Any], framing: str
) -> None:
    script = CHUNKED if framing == "chunked" else WHOLE
    hanging = cut_at(script, len(sent_bytes(script)) - 10, Stall())
    async with behind(hanging, idle_timeout_s=0.2) as (upstream, gw):
        began = time.monotonic()
        answer = await gw.ask("/chat", chat, headers=[("x-request-id", "idle")])
        assert time.monotonic() - began >= 0.199
        assert (answer.status, answer.whole) == (200, False)
        assert (await gw.line("idle"))["code"] == "idle_timeout"
        await upstream.wait_closed()


async def test_an_answer_without_framing_ends_with_its_connection(
    behind: Behind, chat: dict[str, Any]
) -> None:
    body = msgspec.json.encode(chat_answer())
    script = [Send(head(200, [*JSON, ("connection", "close")])), Send(body), Close()]
    async with behind(script) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert (answer.body, answer.whole) == (body, True)
    async with behind([*script[:-1], Reset()]) as (_, gw):
        assert not (await gw.ask("/chat", chat)).whole


@pytest.mark.parametrize(
    "name",
    ["vllm_error_bad_image", "vllm_error_unknown_model", "vllm_error_overload", "llama_cpp_error_too_long"],
)
async def test_upstream_errors_pass_verbatim(behind: Behind, asked: dict[str, Any], name: str) -> None:
    recorded = load_recording(name)
    async with behind(recording(name)) as (_, gw):
        answer = await gw.ask("/v1/chat/completions", asked)
        assert (answer.status, answer.body.decode(), answer.whole) == (recorded.status, recorded.body, True)


@pytest.mark.parametrize("chunked", [False, True])
async def test_upstream_errors_are_cut_at_one_megabyte(
    behind: Behind, asked: dict[str, Any], chunked: bool
) -> None:
    for size in (2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20):
        body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
        script = raw_reply(body, status=500, headers=[("content-type", "text/plain")], chunked=chunked)
        async with behind(script) as (_, gw):
            answer = await gw.ask("/chat", asked)
            assert (answer.status, answer.whole) == (500, True)
            assert answer.body == body[: 2**20]
            assert answer.header("content-length") == str(min(size, 2**20))


async def test_an_error_without_an_end_is_cut_too(behind: Behind, chat: dict[str, Any]) -> None:
    endless = [Send(head(500, [("transfer-encoding", "chunked")])), *[Send(chunk(b"x" * 4096))] * 3, Stall()]
    async with behind(endless, max_error_bytes=10_000) as (upstream, gw):
        answer = await gw.ask("/chat", chat)
        assert (answer.status, answer.body, answer.whole) == (500, b"x" * 10_000, True)
        await upstream.wait_closed()


async def test_an_error_that_breaks_off_is_ours(behind: Behind, asked: dict[str, Any]) -> None:
    script = raw_reply(b"x" * 100, status=500)
    async with behind(cut_at(script, len(sent_bytes(script)) - 50, Close())) as (_, gw):
        told(await gw.ask("/chat", asked), 502, "upstream_broken")


async def test_an_error_that_hangs_is_ours(behind: Behind, asked: dict[str, Any]) -> None:
    script = raw_reply(b"x" * 100, status=500)
    hanging = cut_at(script, len(sent_bytes(script)) - 50, Stall())
    async with behind(hanging, idle_timeout_s=0.2) as (_, gw):
        told(await gw.ask("/chat", asked), 504, "idle_timeout")


async def test_a_packed_error_stays_packed(behind: Behind, chat: dict[str, Any]) -> None:
    packed = gzip.compress(b'{"error":{"message":"no"}}')
    async with behind(raw_reply(packed, status=422, headers=[*JSON, ("content-encoding", "gzip")])) as (
        _,
        gw,
    ):
        answer = await gw.ask("/chat", chat)
        assert (answer.header("content-encoding"), answer.body) == ("gzip", packed)


async def test_nothing_is_sent_before_the_upstreams_head(behind: Behind, asked: dict[str, Any]) -> None:
    gate = asyncio.Event()
    refusal = [WaitFor(gate), *error_reply(400, "no such image")]
    async with behind(refusal, keepalive_comment_s=0.02) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(asked), headers=JSON)
        await upstream.wait_seen(1)
        with pytest.raises(TimeoutError):
            await wire.head(0.15)
        gate.set()
        answer = await wire.rest()
        assert (answer.status, answer.error["message"], answer.whole) == (400, "no such image", True)


async def test_a_connection_that_the_upstream_has_closed_is_not_used(
    behind: Behind, chat: dict[str, Any]
) -> None:
    async with behind([*WHOLE, Close()]) as (upstream, gw):
        for count in range(1, 4):
            assert (await gw.ask("/chat", chat)).status == 200
            await upstream.wait_closed()
            assert upstream.connections_total == count


async def test_connections_are_used_again(behind: Behind, chat: dict[str, Any]) -> None:
    async with behind() as (upstream, gw):
        for _ in range(5):
            assert (await gw.ask("/chat", chat)).status == 200
        assert upstream.connections_total == 1


async def test_after_a_fault_the_next_request_is_served(behind: Behind, chat: dict[str, Any]) -> None:
    script = in_turn([Reset()], cut_at(WHOLE, 100, Close()), [Stall()], WHOLE)
    async with behind(script, concurrency=1, first_byte_timeout_s=0.2) as (_, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(chat), headers=JSON)
        assert (await wire.rest()).status == 502
        await wire.request("/chat", msgspec.json.encode(chat), headers=JSON)  # on the same connection
        assert (await wire.rest()).status in (200, 502)
        assert (await gw.ask("/chat", chat)).error["code"] == "first_byte_timeout"
        assert (await gw.ask("/chat", chat)).whole


async def test_errors_never_show_what_was_asked_or_answered(behind: Behind) -> None:
    secret = "주민등록번호-900101"
    body = {"messages": [{"role": "user", "content": secret}]}
    leaking = [Send(f"HTTP/1.1 {secret}\r\n{secret}\r\n\r\n".encode()), Close()]
    async with behind(leaking) as (_, gw):
        answer = await gw.ask("/chat", body, headers=[("x-request-id", "quiet")])
        assert answer.error["code"] == "upstream_broken"
        assert secret.encode() not in answer.body
        await gw.line("quiet")
        assert secret not in gw.log.text.decode()


async def test_openais_client_sees_our_own_faults(running_gateway: Run) -> None:
    with refusing_upstream() as url:
        async with (
            running_gateway(url) as gw,
            AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="k", max_retries=0) as client,
        ):
            with pytest.raises(APIStatusError) as caught:
                await client.chat.completions.create(model="qwen", messages=[])
            assert (caught.value.status_code, caught.value.code) == (502, "upstream_unreachable")


async def test_a_slow_head_is_no_fault(behind: Behind, chat: dict[str, Any]) -> None:
    slow = [Wait(0.3), *WHOLE]
    async with behind(slow, idle_timeout_s=0.1, connect_timeout_s=0.1) as (_, gw):
        assert (await gw.ask("/chat", chat)).whole
