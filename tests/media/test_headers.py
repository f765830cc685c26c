from __future__ import annotations

import io
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dabom.media.headers import picture_size


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


def test_headers_load_no_decoder() -> None:
    script = (
        "import sys, dabom.media.headers, dabom.media;"
        "print(sorted({'av', 'PIL', 'numpy'} & set(sys.modules)), dabom.media.read_picture.__name__)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["[]", "read_picture"]
