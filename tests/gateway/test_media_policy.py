"""Whole bodies through the media policy: what is refused, what is changed, and that the rest stays."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from tests.media.make_clips import Clip, make

from dabom import families
from dabom.errors import ClientError, InvalidMedia, MediaMismatch, MediaTooLarge, MediaUnsupported, UrlRefused
from dabom.gateway.facts import FactsReader
from dabom.gateway.media_options import Listener, read_media_options
from dabom.gateway.media_plan import MediaTarget
from dabom.gateway.media_policy import Edited, MediaPolicy, target_of
from dabom.gateway.media_settings import MediaSettings
from dabom.gateway.scan import scan
from dabom.gateway.settings import UpstreamSettings
from dabom.gateway.splice import splice
from dabom.media import Pieces

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = MediaTarget(max_pixels=320 * 180, factor=4)
VLLM = Listener(vllm=True, omni=True)


def encode(size: tuple[int, int] = (64, 48), kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.effect_noise(size, 50).convert("RGB").save(out, kind, **options)
    return out.getvalue()


def uri(content: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def video(url: str) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": url}}


def body_of(*parts: dict[str, Any], **fields: Any) -> bytes:
    message = {"role": "user", "content": [{"type": "text", "text": "뭐가 보여?"}, *parts]}
    return json.dumps({"model": "m", "messages": [message], **fields}, ensure_ascii=False).encode()


async def run(body: bytes, settings: MediaSettings | None = None, target: MediaTarget = TARGET) -> Edited:
    """The whole road of one body, in chunks as an upload brings them."""
    chunks = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
    pieces, skeleton = Pieces(chunks), scan(body)
    facts, options = FactsReader().read(skeleton), read_media_options(skeleton)
    policy = MediaPolicy(settings or MediaSettings())
    try:
        parts = await policy.read(pieces.read, facts.media, facts.places)
        edited = await policy.fit(pieces.read, parts, options, target)
    finally:
        await policy.close()
    json.loads(b"".join(splice(chunks, edited.edits)))
    return edited


def changed(body: bytes, edited: Edited) -> Any:
    return json.loads(b"".join(splice([body[:99], body[99:]], edited.edits)))


async def test_what_fits_is_not_touched() -> None:
    sound = make(Clip(frames=0, sound="pcm_s16le", format="wav"))
    body = body_of(
        image(uri(encode(), "image/png")),
        video(uri(make(Clip(sound="aac")), "video/mp4")),
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(sound).decode(), "format": "wav"}},
    )
    edited = await run(body)
    assert (edited.edits, edited.header) == ((), "")
    assert [(one.kind, one.audio_samples) for one in edited.facts] == [
        ("image", 0),
        ("video", 16_384),
        ("audio", 16_000),
    ]
    assert b"".join(splice([body], edited.edits)) == body


@pytest.mark.parametrize(
    ("kind", "mime"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")]
)
async def test_a_large_picture_is_scaled_and_only_its_span_changes(kind: str, mime: str) -> None:
    small = uri(encode(), "image/png")
    body = body_of(image(small), image(uri(encode((640, 360), kind), mime)), image(small), user="끝 ")
    edited = await run(body)
    assert edited.header == "1;was=640x360;now=320x180"
    assert [(one.width, one.height) for one in edited.facts] == [(64, 48), (320, 180), (64, 48)]
    (edit,) = edited.edits
    text = b"".join(splice([body], edited.edits))
    assert text.startswith(body[: edit.start])
    assert text.endswith(body[edit.end :])
    head, _, rest = edit.text.partition(b",")
    assert head == f"data:{mime};base64".encode()
    shown = Image.open(io.BytesIO(base64.b64decode(rest, validate=True)))
    assert (shown.size, shown.format) == ((320, 180), kind)


async def test_the_reported_size_is_the_upright_one() -> None:
    exif = Image.Exif()
    exif[0x112] = 6
    body = body_of(image(uri(encode((640, 360), "JPEG", exif=exif), "image/jpeg")))
    assert (await run(body)).header == "0;was=360x640;now=180x320"


def turned(kind: str) -> bytes:
    """A picture of 300 x 200 that says in an unusual place that it stands upright."""
    exif = Image.Exif()
    exif[274] = 6
    if kind == "xmp":
        return encode((300, 200), "JPEG", xmp=b'<x:xmpmeta><a tiff:Orientation="6"/></x:xmpmeta>')
    if kind == "avif":
        return encode((300, 200), "AVIF", exif=exif)
    content, text = encode((300, 200)), b"eXIf" + exif.tobytes().removeprefix(b"Exif\0\0")
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    return content[:-12] + chunk + content[-12:]


@pytest.mark.parametrize(("kind", "mime"), [("xmp", "jpeg"), ("avif", "avif"), ("late", "png")])
async def test_the_reported_size_is_the_one_that_the_decoder_saw(kind: str, mime: str) -> None:
    edited = await run(body_of(image(uri(turned(kind), f"image/{mime}"))), target=MediaTarget(20_000, 32))
    assert edited.header == "0;was=200x300;now=96x160"


async def test_slashes_that_are_escaped() -> None:
    body = body_of(image(uri(encode((640, 360)), "image/png"))).replace(b"/", b"\\/")
    edited = await run(body)
    assert edited.header == "0;was=640x360;now=320x180"
    assert changed(body, edited)["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png")


async def test_low_detail_is_a_square_of_512() -> None:
    url = uri(encode((1280, 720)), "image/png")
    target = MediaTarget(factor=32)
    assert (await run(body_of(image(url)), target=target)).header == ""
    assert (await run(body_of(image(url, detail="high")), target=target)).header == ""
    low = await run(body_of(image(url, detail="low")), target=target)
    assert low.header == "0;was=1280x720;now=672x384"
    beside = {"type": "input_image", "detail": "low", "image_url": url}
    assert (await run(body_of(beside), target=target)).header == "0;was=1280x720;now=672x384"


async def test_scaling_can_be_off() -> None:
    body = body_of(image(uri(encode((640, 360)), "image/png")))
    assert (await run(body, MediaSettings(normalise=False))).edits == ()


def moving() -> bytes:
    return encode(kind="GIF", save_all=True, append_images=[Image.new("RGB", (64, 48), "red")])


@pytest.mark.parametrize(
    ("part", "error", "why"),
    [
        (lambda: image("data:image/png;base64,"), InvalidMedia, "0 bytes"),
        (lambda: image("data:image/png;base64,!!!!"), InvalidMedia, "base64"),
        (lambda: image(uri(encode()[:-30], "image/png")), InvalidMedia, "cut off"),
        (lambda: image(uri(encode(kind="JPEG"), "image/png")), MediaMismatch, "holds image/jpeg"),
        (lambda: image(uri(make(Clip()), "image/png")), MediaMismatch, "holds video/mp4"),
        (lambda: video(uri(encode(), "video/mp4")), MediaMismatch, "holds image/png"),
        (lambda: image(uri(moving(), "image/gif")), MediaUnsupported, "2 frames"),
        (lambda: image(uri(b"<svg xmlns='x'/>", "image/svg+xml")), MediaUnsupported, "svg"),
        (lambda: image(uri(b"\0\0\0\x18ftypheic" + bytes(99), "image/heic")), MediaUnsupported, "heic"),
        (lambda: image(uri(b"hello world", "image/png")), MediaUnsupported, "no known kind"),
        (lambda: video(uri(make(Clip())[:-200], "video/mp4")), InvalidMedia, "cut off"),
        (lambda: image("file:///etc/passwd"), UrlRefused, "never opened"),
        (lambda: image("http://169.254.169.254/meta"), UrlRefused, "not opened"),
        (lambda: video("https:\\/\\/example.com/a.mp4"), UrlRefused, "backslashes"),
    ],
)
async def test_what_is_refused(
    part: Callable[[], dict[str, Any]], error: type[ClientError], why: str
) -> None:
    with pytest.raises(error, match=why) as caught:
        await run(body_of(part()))
    assert type(caught.value) is error
    assert caught.value.status == 400


async def test_a_moving_picture_may_go_as_a_clip() -> None:
    assert (await run(body_of(video(uri(moving(), "image/gif"))))).edits == ()


async def test_checks_can_be_off() -> None:
    body = body_of(image(uri(encode(kind="JPEG"), "image/png")), image(uri(b"hello world", "image/png")))
    assert (await run(body, MediaSettings(check=False))).edits == ()


async def test_a_bomb_is_refused_by_its_header() -> None:
    content = bytearray(encode())
    content[16:24] = (65_536).to_bytes(4, "big") * 2
    with pytest.raises(MediaTooLarge, match="4,294,967,296 pixels"):
        await run(body_of(image(uri(bytes(content), "image/png"))))


async def test_numbers_of_pictures_and_clips_are_limited() -> None:
    picture = image(uri(encode(), "image/png"))
    settings = MediaSettings(max_images=2, max_videos=0)
    await run(body_of(picture, picture), settings)
    with pytest.raises(MediaTooLarge, match="3 pictures; the limit is 2"):
        await run(body_of(picture, picture, picture), settings)
    with pytest.raises(MediaTooLarge, match="1 clips; the limit is 0"):
        await run(body_of(video("data:,")), settings)


async def test_an_outside_url_becomes_a_data_uri_and_is_scaled_too() -> None:
    content = encode((640, 360), "JPEG")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a.jpg"
    settings = MediaSettings(allow=("127.0.0.0/8",))
    async with server:
        body = body_of(image(url))
        plain = await run(body, settings, MediaTarget())
        small = await run(body, settings)
    assert plain.header == "0;fetched=image/jpeg"
    assert changed(body, plain)["messages"][0]["content"][1] == image(uri(content, "image/jpeg"))
    assert small.header == "0;fetched=image/jpeg, 0;was=640x360;now=320x180"
    assert changed(body, small)["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/jpeg")


async def test_options_are_corrected_in_the_body() -> None:
    clip = video(uri(make(Clip(sound="aac")), "video/mp4"))
    target = MediaTarget(listener=VLLM)
    options = {"mm_processor_kwargs": {"use_audio_in_video": True}, "media_io_kwargs": {"video": {"fps": 4}}}
    body = body_of(clip, **options)
    assert (await run(body, target=target)).header == "warning=fps_mismatch"
    fixed = await run(body, MediaSettings(omni="fix"), target)
    assert fixed.header == "warning=fps_set"
    want = {**json.loads(body), "mm_processor_kwargs": {"use_audio_in_video": True, "fps": 4.0}}
    assert changed(body, fixed) == want


async def test_options_that_are_missing_are_added() -> None:
    clip = video(uri(make(Clip(sound="aac")), "video/mp4"))
    body = b"  " + body_of(clip)
    target = MediaTarget(listener=Listener(vllm=True, omni=True, trusts_options=True))
    fixed = await run(body, MediaSettings(omni="fix"), target)
    assert changed(body, fixed) == {**json.loads(body), "mm_processor_kwargs": {"fps": 2.0}}


async def test_a_clip_without_sound() -> None:
    clip = video(uri(make(Clip()), "video/mp4"))
    body = body_of(clip, mm_processor_kwargs={"use_audio_in_video": True, "fps": 2.0})
    target = MediaTarget(listener=VLLM)
    assert (await run(body, target=target)).header == "warning=clip_without_sound"
    fixed = await run(body, MediaSettings(omni="fix"), target)
    assert fixed.header == "warning=sound_left_out"
    assert changed(body, fixed)["mm_processor_kwargs"] == {"fps": 2.0}
    with pytest.raises(InvalidMedia, match="without a sound track"):
        await run(body, MediaSettings(omni="refuse"), target)


def test_a_target_of_an_upstream() -> None:
    settings = UpstreamSettings(
        url="http://127.0.0.1:1/v1",
        kind="vllm",
        family="qwen3-omni",
        max_pixels=900,
        trusts_media_options=True,
    )
    assert target_of(settings, families.find("qwen3-omni"), 800) == MediaTarget(
        800, 32, Listener(vllm=True, omni=True, trusts_options=True)
    )
    plain = UpstreamSettings(url="http://127.0.0.1:1/v1")
    assert target_of(plain, families.find("Qwen/Qwen2.5-VL-7B-Instruct")) == MediaTarget(None, 28, Listener())
    assert target_of(plain, None) == MediaTarget(None, 1, Listener())
