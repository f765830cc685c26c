from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dabom.media.headers import picture_size, sniff, video_facts

if TYPE_CHECKING:
    from pathlib import Path


def encode(size: tuple[int, int], kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "teal").save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
@pytest.mark.parametrize("size", [(1, 1), (640, 360), (3000, 17)])
def test_size_is_read_from_the_first_bytes(kind: str, size: tuple[int, int]) -> None:
    assert picture_size(encode(size, kind)[:4096]) == size


def test_every_webp_flavour_is_read() -> None:
    assert picture_size(encode((301, 77), "WEBP", lossless=True)[:64]) == (301, 77)
    alpha = io.BytesIO()
    Image.new("RGBA", (55, 66), (1, 2, 3, 4)).save(alpha, "WEBP", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0")
    assert picture_size(alpha.getvalue()[:64]) == (55, 66)


def test_progressive_jpeg_behind_a_long_exif_block_is_read() -> None:
    content = encode((123, 45), "JPEG", progressive=True, exif=b"Exif\0\0" + bytes(2000))
    assert picture_size(content[:4096]) == (123, 45)
    assert picture_size(content[:1000]) is None


def test_other_bytes_have_no_size() -> None:
    assert picture_size(b"") is None
    assert picture_size(b"<svg width='5' height='6'/>") is None
    assert picture_size(encode((4, 4), "PNG")[:20]) is None


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8L"]),
)
def test_no_bytes_make_it_raise(tail: bytes, head: bytes) -> None:
    size = picture_size(head + tail)
    assert size is None or len(size) == 2
    video = video_facts(b"\0\0\0\x10ftypisom" + tail)
    assert video is None or video.duration_s is None or video.duration_s > 0


def test_kind_is_told_by_the_bytes_alone(clip: bytes, files: Path) -> None:
    assert sniff(clip) == "video/mp4"
    assert sniff((files / "cmyk.jpg").read_bytes()) == "image/jpeg"
    assert sniff(b"RIFF\0\0\0\0WAVEfmt ") == "audio/wav"
    assert sniff(b"RIFX\0\0\0\0WAVEfmt ") is None
    assert sniff(b"ID3\x04") == "audio/mpeg"
    assert sniff(b"#EXTM3U\n") is None


def test_mp4_head_tells_size_and_duration(clip: bytes, turned_clip: bytes) -> None:
    facts = video_facts(clip[:4096])
    assert facts is not None
    assert (facts.width, facts.height) == (640, 360)
    assert facts.duration_s == pytest.approx(6.0, abs=0.1)
    turned = video_facts(turned_clip[:4096])
    assert turned is not None
    assert (turned.width, turned.height) == (360, 640)


def test_head_that_ends_before_the_boxes_tells_what_it_holds(clip: bytes) -> None:
    assert video_facts(clip[:40]) is None
    only_movie = video_facts(clip[: clip.index(b"mvhd") + 108])
    assert only_movie is not None
    assert only_movie.width is None
    assert only_movie.duration_s == pytest.approx(6.0, abs=0.1)


def test_headers_load_no_decoder() -> None:
    script = (
        "import sys, dabom.media.headers, dabom.media;"
        "print(sorted({'av', 'PIL', 'numpy'} & set(sys.modules)), dabom.media.read_picture.__name__)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["[]", "read_picture"]
