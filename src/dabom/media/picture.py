"""Pictures: any common still format to upright 8-bit RGB."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

from PIL import Image, ImageOps, UnidentifiedImageError

from dabom.errors import InvalidMedia
from dabom.kinds import sniff
from dabom.media.headers import picture_size
from dabom.media.limits import MAX_PIXELS

_HEAD_BYTES = 65_536
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
_KINDS = "PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF"


@dataclass(frozen=True)
class Picture:
    """An upright picture in RGB; `frames` counts those of an animation, of which the first is kept."""

    image: Image.Image
    format: str
    frames: int

    @property
    def width(self) -> int:
        """Pixels after the EXIF orientation has been applied."""
        return self.image.width

    @property
    def height(self) -> int:
        """Pixels after the EXIF orientation has been applied."""
        return self.image.height


def read_picture(content: bytes, max_pixels: int = MAX_PIXELS) -> Picture:
    """Decode one picture; transparency is laid on white, the first frame of an animation is taken.

    The pixel limit is checked on the header, before anything is decoded. Raises InvalidMedia.
    """
    if not content:
        raise InvalidMedia("picture is empty: 0 bytes")
    size = picture_size(content[:_HEAD_BYTES])
    if size is not None:
        _check_size(*size, max_pixels)
    found = sniff(content[:512])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=_FORMATS) as source:
                _check_size(source.width, source.height, max_pixels)
                frames = int(getattr(source, "n_frames", 1))
                source.seek(0)
                source.load()
                return Picture(_upright_rgb(source), source.format or "?", frames)
    except InvalidMedia:
        raise
    except UnidentifiedImageError as fault:
        raise InvalidMedia(
            f"not a readable picture: found {found or 'unknown bytes'}; {_KINDS} is read"
        ) from fault
    except Image.DecompressionBombError as fault:
        raise InvalidMedia(f"picture is too large; the limit is {max_pixels:,} pixels") from fault
    except Exception as fault:
        raise InvalidMedia(f"picture is damaged or cut off ({found or 'unknown bytes'})") from fault


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise InvalidMedia(f"picture has no pixels: {width}x{height}")
    if width * height > max_pixels:
        raise InvalidMedia(f"picture has {width * height:,} pixels; the limit is {max_pixels:,}")


def _upright_rgb(source: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(source)
    if upright.mode == "RGB":
        return upright.copy() if upright is source else upright
    if upright.mode.startswith("I"):
        # 16 bits a channel: convert() would clip at 255 instead of scaling.
        wide = upright.convert("I")
        return wide.point(lambda value: value * (1 / 257)).convert("L").convert("RGB")
    if upright.has_transparency_data:
        clear = upright.convert("RGBA")
        white = Image.new("RGBA", clear.size, "white")
        return Image.alpha_composite(white, clear).convert("RGB")
    return upright.convert("RGB")
