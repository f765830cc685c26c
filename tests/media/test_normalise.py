from __future__ import annotations

import io
import math
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dabom.errors import InvalidMedia, MediaTooLarge, MediaUnsupported
from dabom.media.normalise import Scaled, fit, scale_picture

if TYPE_CHECKING:
    from pathlib import Path

LIMIT, FACTOR, DECODED = 64 * 64, 8, 10_000_000


def encode(picture: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def halves(mode: str, size: tuple[int, int] = (200, 100)) -> Image.Image:
    """Red on the left, blue on the right."""
    picture = Image.new("RGB", size, (220, 0, 0))
    picture.paste((0, 0, 220), (size[0] // 2, 0, *size))
    return picture.convert(mode)


def scale(content: bytes) -> tuple[Scaled, Image.Image]:
    scaled = scale_picture(content, LIMIT, FACTOR, DECODED)
    picture = Image.open(io.BytesIO(scaled.content))
    picture.load()
    assert picture.size == scaled.size
    assert picture.width * picture.height <= LIMIT
    assert picture.width % FACTOR == picture.height % FACTOR == 0
    return scaled, picture


@given(st.integers(1, 9000), st.integers(1, 9000), st.sampled_from([1, 28, 32]), st.integers(3136, 2_000_000))
def test_a_size_fits_the_limit_and_the_grid(width: int, height: int, factor: int, limit: int) -> None:
    wide, high = fit(width, height, limit, factor)
    if width * height <= limit:
        assert (wide, high) == (width, height)
        return
    assert wide * high <= limit
    assert wide <= width
    assert high <= height
    assert wide % factor == 0 or wide == width
    assert high % factor == 0 or high == height
    if min(wide, high) >= 8 * factor:  # a strip a few steps high cannot keep its ratio on the grid
        assert math.isclose(wide / high, width / height, rel_tol=0.15)


@pytest.mark.parametrize(
    ("kind", "mime"),
    [
        ("JPEG", "image/jpeg"),
        ("PNG", "image/png"),
        ("WEBP", "image/webp"),
        ("BMP", "image/png"),
        ("TIFF", "image/png"),
        ("GIF", "image/png"),
    ],
)
def test_a_picture_stays_of_its_kind(kind: str, mime: str) -> None:
    scaled, picture = scale(encode(halves("RGB"), kind))
    assert (scaled.mime, scaled.was, scaled.size) == (mime, (200, 100), (88, 40))
    colours = picture.convert("RGB")
    left, right = colours.getpixel((10, 20)), colours.getpixel((78, 20))
    assert left[0] > 200 > 50 > left[2]  # type: ignore[index]
    assert right[2] > 200 > 50 > right[0]  # type: ignore[index]


def test_webp_without_loss_stays_without_loss() -> None:
    scaled, picture = scale(encode(halves("RGB"), "WEBP", lossless=True))
    assert b"VP8L" in scaled.content[:64]
    assert picture.convert("RGB").getpixel((10, 20)) == (220, 0, 0)
    assert b"VP8L" not in scale(encode(halves("RGB"), "WEBP"))[0].content[:64]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_orientation_is_applied_once(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    turns = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    stored = halves("RGB")
    for turn in turns.get(orientation, []):
        stored = stored.transpose(turn)
    scaled, picture = scale(encode(stored, kind, exif=exif))
    assert (scaled.was, scaled.size) == ((200, 100), (88, 40))
    assert picture.getexif().get(0x112, 1) == 1
    left = picture.convert("RGB").getpixel((10, 20))
    assert left[0] > 200 > 50 > left[2]  # type: ignore[index]


def test_transparency_stays() -> None:
    clear = halves("RGBA")
    clear.putalpha(Image.new("L", clear.size, 90))
    for kind in ("PNG", "WEBP"):
        _, picture = scale(encode(clear, kind))
        assert picture.mode == "RGBA"
        assert picture.getpixel((10, 20))[3] == 90  # type: ignore[index]


def test_a_palette_with_a_hole_stays_transparent(files: Path) -> None:
    content = (files / "palette-alpha.png").read_bytes()
    scaled = scale_picture(content, 32 * 32, 8, DECODED)
    picture = Image.open(io.BytesIO(scaled.content))
    assert picture.mode == "RGBA"
    assert picture.getchannel("A").getextrema()[0] == 0


def test_cmyk_becomes_the_colours_that_it_shows(files: Path) -> None:
    scaled, picture = scale((files / "cmyk.jpg").read_bytes())
    assert (scaled.mime, picture.mode) == ("image/jpeg", "RGB")
    assert picture.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0)) == pytest.approx((30, 5, 7), abs=8)


def test_sixteen_bits_become_eight(files: Path) -> None:
    _, flag = scale((files / "rgb16.png").read_bytes())
    assert flag.mode == "RGB"
    top, bottom = flag.getpixel((40, 5)), flag.getpixel((40, flag.height - 5))
    assert top[0] > 150 > top[2]  # type: ignore[index]
    assert bottom[2] > 100 > bottom[0]  # type: ignore[index]
    grey = Image.new("I;16", (200, 100), 32_768)
    _, picture = scale(encode(grey, "PNG"))
    assert picture.mode == "L"
    assert picture.getpixel((40, 20)) == pytest.approx(128, abs=1)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_every_mode_of_png(mode: str) -> None:
    scale(encode(halves(mode), "PNG"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_picture_that_is_cut_off_is_refused(kind: str) -> None:
    noise = Image.effect_noise((400, 300), 90).convert("RGB")
    content = encode(noise, kind)
    with pytest.raises(InvalidMedia, match="damaged or cut off"):
        scale_picture(content[: len(content) // 2], LIMIT, FACTOR, DECODED)


def test_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    content = bytearray(encode(Image.new("1", (8, 8)), "PNG"))
    for size in (60_000, 4_000):
        content[16:24] = size.to_bytes(4, "big") * 2
        content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
        with pytest.raises(MediaTooLarge, match="pixels"):
            scale_picture(bytes(content), LIMIT, FACTOR, DECODED)


def test_what_moves_and_what_is_no_picture(files: Path) -> None:
    with pytest.raises(MediaUnsupported, match="moves"):
        scale_picture((files / "animated-apng.png").read_bytes(), LIMIT, FACTOR, DECODED)
    with pytest.raises(MediaUnsupported, match="no picture"):
        scale_picture(b"<svg/>", LIMIT, FACTOR, DECODED)
    with pytest.raises(InvalidMedia):
        scale_picture((files / "bomb-text-chunk.png").read_bytes(), LIMIT, FACTOR, DECODED)
