from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from dabom.errors import InvalidMedia
from dabom.media import read_picture

if TYPE_CHECKING:
    from pathlib import Path


def means(content: bytes) -> list[float]:
    return [float(mean) for mean in np.asarray(read_picture(content).image).mean((0, 1))]


def test_exif_orientation_is_applied_once(files: Path) -> None:
    turned = read_picture((files / "exif-orientation-6.jpg").read_bytes())
    upright = read_picture((files / "upright-no-exif.jpg").read_bytes())
    difference = np.abs(np.asarray(turned.image, float) - np.asarray(upright.image, float)).mean()
    assert difference < 12


def test_cmyk_has_its_colours(files: Path) -> None:
    red, green, blue = means((files / "cmyk.jpg").read_bytes())
    assert (red, green, blue) == pytest.approx((30, 5, 7), abs=3)


def test_sixteen_bits_are_scaled_not_clipped(files: Path) -> None:
    flag = np.asarray(read_picture((files / "rgb16.png").read_bytes()).image)
    assert flag[100, 450] == pytest.approx([174, 28, 40], abs=12)
    assert flag[300, 450].min() > 240
    gray = io.BytesIO()
    Image.fromarray(np.full((8, 8), 32896, np.uint16)).save(gray, "PNG")
    assert means(gray.getvalue()) == pytest.approx([128, 128, 128], abs=1)


def test_transparency_is_laid_on_white(files: Path) -> None:
    picture = read_picture((files / "palette-alpha.png").read_bytes())
    assert picture.image.mode == "RGB"
    assert picture.image.getpixel((32, 32)) == (255, 255, 255)


def test_first_frame_of_an_animation_is_taken(files: Path) -> None:
    picture = read_picture((files / "animated-apng.png").read_bytes())
    assert picture.frames == 5
    assert picture.image.getpixel((5, 5)) == (255, 0, 0)


def test_a_bomb_is_refused_by_its_header() -> None:
    header = struct.pack(">IIBBBBB", 65536, 65536, 1, 0, 0, 0, 0)
    chunk = b"IHDR" + header
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    with pytest.raises(InvalidMedia, match="4,294,967,296 pixels; the limit is 50,000,000"):
        read_picture(png)


def test_limit_holds_for_formats_whose_header_only_pillow_reads() -> None:
    out = io.BytesIO()
    Image.new("RGB", (200, 200)).save(out, "BMP")
    with pytest.raises(InvalidMedia, match="40,000 pixels; the limit is 10,000"):
        read_picture(out.getvalue(), max_pixels=10_000)


@pytest.mark.parametrize("name", ["truncated.jpg", "bomb-text-chunk.png"])
def test_damaged_files_are_refused(files: Path, name: str) -> None:
    with pytest.raises(InvalidMedia, match="damaged or cut off"):
        read_picture((files / name).read_bytes())


def test_other_kinds_are_refused_by_what_they_are(clip: bytes) -> None:
    with pytest.raises(InvalidMedia, match="found video/mp4"):
        read_picture(clip)
    with pytest.raises(InvalidMedia, match="found unknown bytes"):
        read_picture(b"<svg/>")
    with pytest.raises(InvalidMedia, match="0 bytes"):
        read_picture(b"")
