"""A picture with too many pixels, made smaller: upright, in 8 bits, in the format that it came in.

Whoever has a picture within the limit keeps its bytes; nothing here is called for it.
"""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageOps, UnidentifiedImageError

from dabom.errors import InvalidMedia, MediaTooLarge, MediaUnsupported

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
_QUALITY = 92
_PNG_LEVEL = 3
_GAP = 2.0
"""How much larger than asked for a quick first reduction may leave the picture; Pillow's own advice."""
MIMES = {"JPEG": "image/jpeg", "WEBP": "image/webp", "PNG": "image/png"}


@dataclass(frozen=True)
class Scaled:
    """The new picture, its size, and the upright size that it had."""

    content: bytes
    mime: str
    size: tuple[int, int]
    was: tuple[int, int]


def fit(width: int, height: int, max_pixels: int, factor: int = 1) -> tuple[int, int]:
    """The size to which an upright picture goes: within `max_pixels`, the ratio kept, both sides on the grid.

    The same when it fits already. Both sides are rounded down to a multiple of `factor`, as smart resize
    does, so that the server has nothing left to scale; no side falls below one step of the grid.
    """
    if width * height <= max_pixels:
        return width, height
    shrink = math.sqrt(width * height / max_pixels)
    wide = max(factor, math.floor(width / shrink / factor) * factor)
    high = max(factor, math.floor(height / shrink / factor) * factor)
    # a strip that is thinner than the grid: what the short side gained, the long one gives
    if wide * high > max_pixels:
        wide, high = _trim(wide, high, max_pixels, factor)
    return min(wide, width), min(high, height)


def _trim(wide: int, high: int, max_pixels: int, factor: int) -> tuple[int, int]:
    if wide >= high:
        return max(factor, max_pixels // high // factor * factor), high
    return wide, max(factor, max_pixels // wide // factor * factor)


def scale_picture(content: bytes, max_pixels: int, factor: int, max_decoded_pixels: int) -> Scaled:
    """Decode one still picture, scale it to `fit` and encode it in kind. Takes tenths of a second.

    JPEG, PNG and WebP stay what they are; other formats become PNG. Transparency stays where the format has
    it; CMYK, palettes and 16 bits become plain 8-bit colours. Profiles and EXIF go, the orientation is
    applied. Raises InvalidMedia.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=_FORMATS) as source:
                _check(source, max_decoded_pixels)
                return _scale(source, max_pixels, factor)
    except InvalidMedia:
        raise
    except UnidentifiedImageError as fault:
        raise MediaUnsupported("the bytes are no picture that is read; send PNG, JPEG or WebP") from fault
    except Image.DecompressionBombError as fault:
        raise MediaTooLarge(f"the picture has more than {max_decoded_pixels:,} pixels, the limit") from fault
    except MemoryError as fault:
        raise MediaTooLarge("the picture needs more memory than its decoder may use") from fault
    except Exception as fault:
        raise InvalidMedia(f"the picture is damaged or cut off ({type(fault).__name__})") from fault


def _check(source: Image.Image, max_decoded_pixels: int) -> None:
    pixels = source.width * source.height
    if pixels > max_decoded_pixels:
        raise MediaTooLarge(f"the picture has {pixels:,} pixels; the limit is {max_decoded_pixels:,}")
    if int(getattr(source, "n_frames", 1)) > 1:
        raise MediaUnsupported("the picture moves or has pages; send a still one, or a clip as `video_url`")


def _scale(source: Image.Image, max_pixels: int, factor: int) -> Scaled:
    kind = source.format if source.format in MIMES else "PNG"
    turned = int(source.getexif().get(0x0112, 1)) >= 5
    lossless = kind == "WEBP" and _is_lossless(source)
    was = (source.height, source.width) if turned else source.size
    size = fit(*was, max_pixels, factor)
    stored = (size[1], size[0]) if turned else size
    if kind == "JPEG":
        source.draft(None, stored)  # lets the decoder leave out what the smaller size cannot show
    exif = source.getexif()
    source.load()
    small = _plain(source).resize(stored, Image.Resampling.LANCZOS, reducing_gap=_GAP)
    small.getexif()[0x0112] = exif.get(0x0112, 1)
    upright = ImageOps.exif_transpose(small)
    out = io.BytesIO()
    options: dict[str, Any] = {
        "JPEG": {"quality": _QUALITY},
        "PNG": {"compress_level": _PNG_LEVEL},
        "WEBP": {"lossless": lossless, "quality": 0 if lossless else _QUALITY, "method": 2},
    }[kind or "PNG"]
    _strip(upright, kind).save(out, kind, **options)
    return Scaled(out.getvalue(), MIMES[kind or "PNG"], upright.size, was)


def _is_lossless(source: Image.Image) -> bool:
    file: Any = getattr(source, "fp", None)
    if file is None:
        return False
    place = file.tell()
    file.seek(0)
    head = file.read(4096)
    file.seek(place)
    return b"VP8L" in head


def _plain(source: Image.Image) -> Image.Image:
    """8 bits a channel, with transparency where there is some."""
    if source.mode.startswith("I"):
        # 16 bits of grey: convert() would clip at 255 instead of scaling
        wide = source.convert("I")
        return wide.point(lambda value: value * (1 / 257)).convert("L")
    if source.mode in {"RGBA", "LA"}:
        return source
    if source.has_transparency_data:
        return source.convert("RGBA")
    if source.mode in {"RGB", "L"}:
        return source
    return source.convert("L" if source.mode in {"1", "F"} else "RGB")


def _strip(picture: Image.Image, kind: str | None) -> Image.Image:
    """Nothing but the pixels: what an encoder would copy out of `info` described the other picture."""
    bare = picture.copy()
    bare.info = {}
    if kind == "JPEG" and bare.mode not in {"RGB", "L"}:
        return bare.convert("RGB")
    return bare
