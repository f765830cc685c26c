"""The page of metrics: what is counted, by which labels, and that no client can make one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.conftest import CHAT

from dabom.gateway import Metrics
from dabom.gateway.metrics import LABELS
from dabom.gateway.series import MAX_SERIES, Gauge, Spread, Tally
from dabom.gateway.usage import Tail, read_usage
from dabom.testing import chat_answer, error_reply, json_reply, sse_event, sse_reply

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, RunningGateway

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)


async def page(gw: RunningGateway) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """All samples: name, then sorted labels, then the value."""
    text = (await gw.ask("/metrics")).body.decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def total(samples: dict[tuple[tuple[str, str], ...], float], **labels: str) -> float:
    return sum(value for key, value in samples.items() if labels.items() <= dict(key).items())


async def test_no_client_makes_a_series(behind: Behind) -> None:
    wild: list[dict[str, Any]] = [{**CHAT, "model": f"invented-{n}", "stream": n % 2 == 0} for n in range(5)]
    wild.append({"model": "m", "messages": [{"role": "user", "content": [{"type": "invented-part"}]}]})
    async with behind() as (upstream, gw):
        for number, body in enumerate(wild):
            given = {
                "x-request-id": f"invented-{number}",
                "authorization": f"Bearer invented-{number}",
                "user-agent": f"invented-{number}",
            }
            await gw.ask("/chat", body, headers=given)
            await gw.ask(f"/v1/invented-{number}", body, headers=given)
            await gw.ask(f"/invented-{number}", body, headers=given)
            await gw.ask(f"/admin/invented-{number}", body, headers=given)
            await gw.ask("/chat", CHAT, headers=given | {"x-dabom-priority": f"invented-{number}"})
            await gw.ask(
                "/chat/batch", {"items": [{"id": f"invented-{number}", "body": body}]}, headers=given
            )
        text = (await gw.ask("/metrics")).body.decode()
        assert "invented" not in text
        paths = set(re.findall(r'path="([^"]*)"', text))
        assert paths <= set(re.findall(r"`([^`]*)`", LABELS["path"]))
        assert set(re.findall(r'upstream="([^"]*)"', text)) <= {"", f"127.0.0.1:{upstream.port}"}


async def test_requests_are_counted_by_modality_and_tokens_by_what_the_upstream_tells(behind: Behind) -> None:
    picture = {"type": "image_url", "image_url": {"url": PIXEL}}
    body = {"model": "qwen", "messages": [{"role": "user", "content": [picture]}]}
    answer = chat_answer("x") | {"usage": {"prompt_tokens": 70, "completion_tokens": 5, "total_tokens": 75}}
    async with behind(json_reply(answer)) as (_, gw):
        await gw.ask("/chat", body)
        await gw.ask("/chat/batch", {"items": [{"id": 1, "body": body}]})
        found = await page(gw)
        assert total(found["dabom_requests_total"], modality="image", path="/chat", status="200") == 1
        assert total(found["dabom_requests_total"], modality="image", path="/chat/batch item") == 1
        assert total(found["dabom_tokens_total"], modality="image", kind="prompt") == 140
        assert total(found["dabom_tokens_total"], modality="image", kind="answer") == 10
        assert total(found["dabom_first_byte_seconds_count"], modality="image") == 2


async def test_the_usage_of_a_stream_is_read_from_its_last_events(behind: Behind) -> None:
    events = [{"choices": [{"index": 0, "delta": {"content": "x" * 50}}], "usage": None}] * 200
    usage = {"prompt_tokens": 12, "total_tokens": 212, "completion_tokens": 200}
    async with behind(sse_reply([*events, {"choices": [], "usage": usage}])) as (_, gw):
        await gw.ask("/chat", {**CHAT, "stream": True}, headers={"x-request-id": "s"})
        line = await gw.line("s")
        assert (line["prompt_tokens"], line["answer_tokens"]) == (12, 200)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b'{"usage":{"prompt_tokens":7,"completion_tokens":3}}', (7, 3)),
        (b'{"usage": {\n "completion_tokens" : 3, "prompt_tokens" : 7}}', (7, 3)),
        (b'{"usage":{"input_tokens":7,"output_tokens":3}}', (7, 3)),
        (b'{"usage":{"prompt_tokens":7,"total_tokens":7}}', (7, None)),
        (b'{"usage":null,"prompt_tokens":7}', (None, None)),
        (b'{"content":"\\"usage\\":{\\"prompt_tokens\\":7}"}', (None, None)),
        (b'"usage":{"prompt_tokens":1,"completion_tokens":1}"usage":{"prompt_tokens":2}', (2, None)),
        (b"", (None, None)),
    ],
)
def test_usage_is_what_the_upstream_says_and_not_what_an_answer_quotes(
    tail: bytes, expected: tuple[int | None, int | None]
) -> None:
    assert read_usage(tail) == expected


def test_the_tail_is_bounded() -> None:
    tail = Tail()
    for _ in range(100):
        tail.add(b"x" * 100_000)
    tail.add(sse_event("[DONE]"))
    assert len(tail.bytes()) == 4096
    assert tail.bytes().endswith(b"data: [DONE]\n\n")


def test_a_family_that_is_full_counts_the_rest_as_other() -> None:
    tally, spread = Tally("a", "b", "x"), Spread("c", "d", (1,), ("x",))
    for number in range(MAX_SERIES + 50):
        tally.add(str(number))
        tally.add(str(number))
        spread.add(0.5, str(number))
    assert len(tally.family().samples) == MAX_SERIES + 1
    assert tally.value("other") == 100
    assert len({sample.labels["x"] for sample in spread.family().samples}) == MAX_SERIES + 1


def test_labels_must_be_those_of_the_family() -> None:
    with pytest.raises(ValueError, match="has the labels"):
        Tally("a", "b", "x", "y").add("only one")


def test_a_gauge_reads_when_somebody_asks_and_forgets() -> None:
    gauge, value = Gauge("a", "b", "upstream"), [1.0]
    gauge.watch("u", read=lambda: value[0])
    value[0] = 5
    assert [sample.value for sample in gauge.family().samples] == [5]
    gauge.forget("u")
    gauge.forget("nobody")
    assert gauge.family().samples == []


def test_an_upstream_that_is_gone_is_shown_no_more() -> None:
    metrics = Metrics()
    metrics.breaker.watch("old", read=lambda: 2)
    metrics.breaker.watch("new", read=lambda: 0)
    metrics.fallbacks.add("text", "old", "http_503")
    metrics.forget("old")
    text = metrics.text().decode()
    assert 'dabom_breaker_state{upstream="old"}' not in text
    assert 'dabom_breaker_state{upstream="new"} 0.0' in text
    assert 'dabom_fallbacks_total{code="http_503",route="text",upstream="old"} 1.0' in text


def test_names_are_dabom_s_own_and_every_label_is_explained() -> None:
    every = list(Metrics().all())
    assert len({series.name for series in every}) == len(every) > 25
    assert all(series.name.startswith("dabom_") for series in every)
    assert {label for series in every for label in series.labels} == LABELS.keys()


@pytest.mark.parametrize("status", [400, 404, 429, 500])
async def test_what_an_upstream_refuses_is_an_error_by_its_status(behind: Behind, status: int) -> None:
    item = {"items": [{"id": 1, "body": CHAT}]}
    async with behind(error_reply(status)) as (_, gw):
        assert (await gw.ask("/chat", CHAT)).status == status
        assert (await gw.ask("/chat/batch", item)).status == 200
        name = gw.gateway.fleet.upstreams[0].name
        page = (await gw.ask("/metrics")).body.decode()
        assert f'dabom_errors_total{{code="http_{status}",route="",upstream="{name}"}} 2.0' in page
