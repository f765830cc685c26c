"""What is known of a request, against a plain reading of the whole of it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dabom.errors import InvalidJson
from dabom.gateway.facts import Facts, FactsReader
from dabom.gateway.parts import Media
from dabom.gateway.scan import DIGEST_BYTES, Scanner, scan

_KINDS = {
    "image_url": "image",
    "image": "image",
    "input_image": "image",
    "video_url": "video",
    "video": "video",
    "audio_url": "audio",
    "input_audio": "audio",
    "file": "file",
}


def _read(text: bytes, step: int | None = None) -> Facts:
    if step is None:
        return FactsReader().read(scan(text))
    scanner = Scanner()
    for start in range(0, len(text), step):
        scanner.feed(text[start : start + step])
    return FactsReader().read(scanner.finish())


def _picture(kind: str, width: int, height: int) -> bytes:
    noise = random.Random(width).randbytes(width * height * 3)
    file = io.BytesIO()
    Image.frombytes("RGB", (width, height), noise).save(file, kind)
    return file.getvalue()


def _uri(octets: bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{base64.b64encode(octets).decode()}"


def _asked(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"model": "qwen", "messages": [{"role": "user", "content": list(parts)}], **more}


def _plain_media(value: Any, kind: str) -> dict[str, Any] | None:
    """Kind, MIME type, decoded size and whether it is remote, read the slow way."""
    if isinstance(value, dict):
        value = next((value[n] for n in ("url", "data", "file_data") if isinstance(value.get(n), str)), None)
    if not isinstance(value, str):
        return None
    if not value.startswith("data:"):
        if ":" in value[:16]:
            return {"kind": kind, "mime": "", "bytes": 0, "remote": True}
        return {
            "kind": kind,
            "mime": "",
            "bytes": len(base64.b64decode(value, validate=True)),
            "remote": False,
        }
    head, _, data = value.partition(",")
    mime = head[5:].split(";")[0]
    mime = "" if mime == "x/y" else mime  # no usual type
    return {"kind": kind, "mime": mime, "bytes": len(base64.b64decode(data, validate=True)), "remote": False}


def _plain_facts(text: bytes) -> dict[str, Any]:
    body = json.loads(text)
    media = []
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else []:
            for name, kind in _KINDS.items():
                found = _plain_media(part.get(name), kind) if isinstance(part, dict) else None
                if found is not None:
                    media.append(found)
    model = body.get("model")
    return {
        "size": len(text),
        "model": model if isinstance(model, str) else None,
        "stream": body.get("stream") is True,
        "media": media,
    }


def _short(facts: Facts) -> dict[str, Any]:
    media = [{"kind": m.kind, "mime": m.mime, "bytes": m.bytes, "remote": m.remote} for m in facts.media]
    return {"size": facts.size, "model": facts.model, "stream": facts.stream, "media": media}


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_octets = st.integers(0, 5000).map(lambda n: random.Random(n).randbytes(n))
_uris = st.builds(_uri, _octets, st.sampled_from(("image/png", "video/mp4", "audio/wav", "x/y;codecs=a")))
_texts = (
    _uris | _octets.map(lambda o: base64.b64encode(o).decode()) | st.just("https://example.com/a.png?s=1")
)
_sources = _texts | st.fixed_dictionaries(
    {},
    optional={
        "url": _texts | st.none(),
        "data": _texts,
        "file_data": _texts,
        "format": st.just("wav"),
        "detail": _junk,
    },
)
_parts = _junk | st.dictionaries(st.sampled_from(("type", "text", *_KINDS)), _sources | _junk, max_size=3)
_messages = st.lists(
    _junk | st.fixed_dictionaries({"content": st.lists(_parts, max_size=3) | _junk, "role": _junk}),
    max_size=3,
)
_bodies = st.fixed_dictionaries(
    {},
    optional={
        "model": st.text(max_size=20) | _junk,
        "stream": st.booleans() | _junk,
        "messages": _messages | _junk,
        "tools": _junk,
    },
)


@settings(max_examples=250, deadline=None)
@given(_bodies, st.booleans(), st.sampled_from((None, 2, 4)), st.integers(7, 4000))
def test_facts_are_those_of_a_plain_reading(
    body: dict[str, Any], ascii_only: bool, indent: int | None, step: int
) -> None:
    text = json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    try:
        expected = _plain_facts(text)
    except (ValueError, UnicodeDecodeError):
        return  # a text that stands where media would, and is none
    assert _short(_read(text)) == expected
    assert _short(_read(text, step)) == expected


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
@pytest.mark.parametrize("size", [(7, 5), (640, 360)])
@pytest.mark.parametrize("step", [None, 4096, 65_536])
def test_a_picture_is_described_from_its_first_bytes(
    kind: str, size: tuple[int, int], step: int | None
) -> None:
    octets = _picture(kind, *size)
    uri = _uri(octets, f"image/{kind.lower()}")
    facts = _read(json.dumps(_asked({"type": "image_url", "image_url": {"url": uri}})).encode(), step)
    digest = hashlib.sha256(uri.encode()[:DIGEST_BYTES]).hexdigest()[:16]
    assert facts.media == (Media("image", f"image/{kind.lower()}", len(octets), digest, *size),)


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("blocks", [3, 40_000])
@pytest.mark.parametrize("style", ["plain", "slashes", "equals"])
def test_the_size_is_that_of_the_decoded_media(padding: int, blocks: int, style: str) -> None:
    octets = random.Random(5).randbytes(blocks * 3 - padding)
    text = json.dumps(_asked({"type": "video_url", "video_url": {"url": _uri(octets, "video/mp4")}})).encode()
    if style == "slashes":  # as PHP writes JSON
        text = text.replace(b"/", b"\\/")
    elif style == "equals":  # as Gson writes it
        text = text.replace(b"=", b"\\u003d")
    for step in (None, 1000, 65_536):
        (media,) = _read(text, step).media
        assert (media.kind, media.mime, media.bytes) == ("video", "video/mp4", len(octets))


def test_a_picture_with_escaped_slashes_still_has_a_size() -> None:
    octets = _picture("PNG", 64, 48)
    text = json.dumps(_asked({"type": "image_url", "image_url": {"url": _uri(octets)}}))
    (media,) = _read(text.replace("/", "\\/").encode()).media
    assert (media.width, media.height, media.mime) == (64, 48, "image/png")


def test_sound_and_files_come_as_bare_base64() -> None:
    sound = base64.b64encode(b"RIFF" + bytes(5000)).decode()
    facts = _read(
        json.dumps(
            _asked(
                {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}},
                {
                    "type": "file",
                    "file": {"file_data": _uri(b"%PDF-1.7", "application/pdf"), "filename": "secret"},
                },
            )
        ).encode()
    )
    assert [(m.kind, m.mime, m.bytes) for m in facts.media] == [
        ("audio", "", 5004),
        ("file", "application/pdf", 8),
    ]
    assert "secret" not in repr(facts)


def test_an_outside_url_is_only_counted() -> None:
    url = "https://user:secret@example.com/clip.mp4?token=secret"
    facts = _read(json.dumps(_asked({"type": "video_url", "video_url": {"url": url}})).encode())
    assert facts.media == (Media("video", remote=True),)
    assert "secret" not in repr(facts)


def test_the_last_of_two_equal_names_counts() -> None:
    assert _read(b'{"model":"a","stream":false,"stream":true,"model":"b"}').model == "b"
    assert _read(b'{"model":"a","stream":false,"stream":true,"model":"b"}').stream


def test_a_model_with_half_a_surrogate_pair_leaves_the_rest_as_it_is() -> None:
    assert _read(b'{"model":"\\ud83d\\ude00 \\\\ud800","x":"\\ud800"}').model == "😀 \\ud800"


@pytest.mark.parametrize("text", [b"[]", b'"a"', b"1", b"null", b"", b"{", b"{}{}", b'{"a":NaN}'])
def test_a_body_that_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidJson):
        _read(text)


def test_a_million_parts_are_not_all_described() -> None:
    part = b'{"image":"a"}'
    content = b"[" + b",".join([part] * 100_000) + b"]"
    assert len(_read(b'{"messages":[{"content":' + content + b"}]}").media) == 1024
    texts = b"[" + b",".join([b'{"text":"a"}'] * 100_000 + [part]) + b"]"
    assert _read(b'{"messages":[{"content":' + texts + b"}]}").media == ()
    messages = b"[" + b"{}," * 100_000 + b'{"content":[' + part + b"]}]"
    assert _read(b'{"messages":' + messages + b"}").media == ()


def _places(text: bytes, step: int | None = None) -> list[tuple[str, Any]]:
    """The string and the whole of each media part, cut out of the body where the facts say they stand."""
    return [
        (text[place.start : place.end].decode(), json.loads(text[place.part_start : place.part_end]))
        for place in _read(text, step).places
    ]


@pytest.mark.parametrize("blocks", [4, 400, 40_000])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("surrogate", ["", "\ud800"])  # half of a pair, so that a mended copy is read
def test_a_media_part_is_found_again_in_the_body(blocks: int, indent: int | None, surrogate: str) -> None:
    uri = _uri(random.Random(blocks).randbytes(blocks * 3), "video/mp4")
    parts = [
        {"type": "text", "text": uri},  # the same text, said and not shown
        {"text": uri, "image_url": {"detail": uri, "url": uri}},
        {"type": "video_url", "video_url": {"url": uri}, "uuid": "x"},
        {"type": "input_audio", "input_audio": {"data": uri, "format": "wav"}},
    ]
    text = json.dumps(_asked(*parts, user=surrogate), indent=indent).encode()
    for step in (None, 70_000):
        assert _places(text, step) == [(uri, part) for part in parts[1:]]


def test_parts_inside_a_tools_result_count() -> None:
    picture = {"type": "image_url", "image_url": {"url": _uri(_picture("PNG", 8, 8))}}
    body = {
        "messages": [
            {"role": "user", "content": "look"},
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "ok"}, picture]},
            {"role": "user", "content": [{"type": "tool_result", "content": [picture]}]},
        ]
    }
    text = json.dumps(body).encode()
    facts = _read(text)
    assert [media.kind for media in facts.media] == ["image", "image"]
    assert [place.message for place in facts.places] == [1, 2]
    assert [message.role for message in facts.messages] == ["user", "tool", "user"]
    assert [set(message.kinds) for message in facts.messages] == [set(), {"image"}, {"image"}]
    assert [part for _, part in _places(text)] == [picture, picture]


def test_the_items_of_a_response_are_messages_too() -> None:
    uri = _uri(_picture("PNG", 8, 8))
    shown = {"type": "input_image", "image_url": uri}
    body = {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "가나"}, shown]},
            {"type": "function_call_output", "call_id": "1", "output": [shown]},
        ],
        "max_output_tokens": 77,
    }
    facts = _read(json.dumps(body).encode())
    assert [media.kind for media in facts.media] == ["image", "image"]
    assert (facts.max_tokens, facts.text_bytes) == (77, 6)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image"}, "image"),
        ({"type": "image_url", "image_url": None, "uuid": "1"}, "image"),
        ({"type": "video"}, "video"),
        ({"type": "input_audio"}, "audio"),
        ({"type": "file", "file": {"file_id": "f1"}}, "file"),
        ({"image_url": "https://nas/a.png"}, "image"),
    ],
)
def test_a_part_without_bytes_still_needs_a_model_that_takes_it(part: dict[str, Any], kind: str) -> None:
    (message,) = _read(json.dumps(_asked(part)).encode()).messages
    assert set(message.kinds) == {kind}


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, (None, 1, False, False)),
        ({"max_tokens": 5}, (5, 1, False, False)),
        ({"max_tokens": 5, "max_completion_tokens": 6, "n": 3}, (6, 3, False, False)),
        ({"max_tokens": -1, "n": 0}, (None, 1, False, False)),
        ({"max_tokens": "5", "n": "x", "tools": []}, (None, 1, False, False)),
        ({"tools": [{"type": "function"}]}, (None, 1, True, False)),
        ({"chat_template_kwargs": {"enable_thinking": True}}, (None, 1, False, True)),
        ({"chat_template_kwargs": {"enable_thinking": False}}, (None, 1, False, False)),
        ({"chat_template_kwargs": ["enable_thinking"]}, (None, 1, False, False)),
    ],
)
def test_what_else_a_request_asks_for(more: dict[str, Any], found: tuple[Any, ...]) -> None:
    facts = _read(json.dumps(_asked(**more)).encode())
    assert (facts.max_tokens, facts.choices, facts.tools, facts.thinking) == found


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("times", [1, 2000])
def test_the_size_of_the_text_is_that_of_its_utf8(ascii_only: bool, times: int) -> None:
    said = "다봄은 본다.\n" * times
    body = {"messages": [{"role": "user", "content": said}, {"role": "assistant", "content": "예"}]}
    text = json.dumps(body, ensure_ascii=ascii_only).encode()
    for step in (None, 9000):
        first, second = _read(text, step).messages
        assert first.text_bytes == pytest.approx(len(said.encode()), rel=0.01)
        assert second.text_bytes == 3


@pytest.mark.parametrize("model", ["qwen", "user", "한", 'a"b', "x" * 70_000])
def test_the_place_of_the_model(model: str) -> None:
    body = {"user": model, "messages": [{"role": "user", "content": model}], "model": model}
    for text in (json.dumps(body).encode(), json.dumps(dict(reversed(body.items())), indent=1).encode()):
        place = _read(text, 5000).model_place
        assert place is not None
        assert json.loads(text[slice(*place)]) == model
        assert text[: place[0]].rstrip().endswith(b'"model":')


def test_the_facts_of_a_clip_take_less_than_two_milliseconds() -> None:
    clip = _uri(random.Random(1).randbytes(1_275_000), "video/mp4")
    text = json.dumps(_asked({"type": "video_url", "video_url": {"url": clip}})).encode()
    assert len(text) > 1_700_000
    reader, best = FactsReader(), 1.0
    for _ in range(30):  # the machine has other work, too
        began = time.perf_counter()
        scanner = Scanner()
        for start in range(0, len(text), 65_536):
            scanner.feed(text[start : start + 65_536])
        facts = reader.read(scanner.finish())
        best = min(best, time.perf_counter() - began)
        assert facts.places[0].end - facts.places[0].start == len(clip)
    assert best < 0.002


@pytest.mark.parametrize(
    ("declared", "mime"),
    [
        ("image/png", "image/png"),
        ("IMAGE/PNG", "image/png"),
        ("image/svg+xml", "image/svg+xml"),
        ("image/sk-secret", "image/other"),
        ("sk-secret", ""),
        ("", ""),
        ("chemical/x-pdb", ""),
    ],
)
def test_a_type_that_is_none_is_not_taken_over(declared: str, mime: str) -> None:
    """What is known of a request is logged, and a client may write anything where the type belongs."""
    (media,) = _read(json.dumps(_asked({"image_url": {"url": _uri(b"abc", declared)}})).encode()).media
    assert (media.mime, media.bytes) == (mime, 3)
