from __future__ import annotations

import json

import pytest

from dabom.client.refusal import hide, refusal


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b'{"error":{"message":"too big","type":"x","code":"body_too_large"}}', "too big", "body_too_large"),
        (b'{"error":{"message":"no","type":"BadRequestError","code":400}}', "no", "BadRequestError"),
        (b'{"error":"Unauthorized"}', "Unauthorized", "refused"),
        (b'{"detail":"Not Found"}', "Not Found", "refused"),
        (b'{"detail":[{"loc":["body"],"msg":"missing"}]}', '[{"loc":["body"],"msg":"missing"}]', "refused"),
        (b'{"error":{"error":{"message":"inner","type":"X","code":400}},"code":null}', "inner", "X"),
        (b'{"error":"no permit","code":"queue_timeout"}', "no permit", "queue_timeout"),
        (b"<html><h1>502 Bad Gateway</h1></html>", "502 Bad Gateway", "refused"),
        (b"\xff\xfe", "\ufffd\ufffd", "refused"),
        (b"", "the endpoint answered 400 without a message", "refused"),
        (b"[1]", "[1]", "refused"),
    ],
)
def test_reads_the_shapes_that_servers_use(body: bytes, message: str, code: str) -> None:
    error = refusal(400, body)
    assert (error.status, error.message, error.code) == (400, message, code)


def test_takes_id_and_retry_after_from_the_head() -> None:
    error = refusal(503, b"{}", {"X-Request-Id": "r1", "Retry-After": "7"})
    assert (error.request_id, error.retry_after_s) == ("r1", 7)
    assert refusal(503, b"{}", {"Retry-After": "Fri, 01 Jan 2027 00:00:00 GMT"}).retry_after_s is None


def test_an_echo_of_the_prompt_or_media_is_hidden() -> None:
    prompt = "고객 주민번호 900101-1234567 을 읽어줘\n그리고 요약"
    for echo in (prompt, repr(prompt), json.dumps(prompt), prompt[3:25]):
        shown = hide(f"bad input: {echo} (type=dict)", [prompt])
        assert "900101" not in shown
        assert "주민" not in shown
        assert r"\uc8fc" not in shown
        assert shown.startswith("bad input:")
        assert shown.endswith("(type=dict)")
    assert hide("got data:image/png;base64,iVBORw0KGgo= here", []) == "got … here"
    assert "QUJD" not in hide("url " + "QUJD" * 40, [])
    assert hide("say 비밀이야!", ["비밀이야"]) == "say …!"
    assert len(hide("a b " * 1000, [])) == 500
