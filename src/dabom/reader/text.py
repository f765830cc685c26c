"""Text in pictures: Korean and Latin, with Tesseract models that ship in the package."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tesserocr
from PIL import Image, ImageOps

from dabom.reader.findings import TextLine
from dabom.reader.regions import find_regions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.reader.regions import Region

_LINE_PX = 48
_BORDER_PX = 10
_MIN_CONFIDENCE = 60.0
_MIN_BLOCK_CONFIDENCE = 75.0
_HOPE = 30.0
_SURE = 85.0
_SHORT = 3
_SHADE = 48
_MAX_SIDE_PX = 2400
_BLOCK_PX = 120
_EDGE_SIGNS = " |_[]{}'`~"
_HANGUL = re.compile(r"[가-힣]")
# What a Hangul syllable is mistaken for.
_MISREAD = re.compile(r"[A-Za-z#/\\(]")
_WORD = re.compile(r"[0-9A-Za-z가-힣]")


@dataclass(frozen=True)
class _Word:
    text: str
    confidence: float
    left: int
    right: int
    spaced: bool = False


class TextReader:
    """Holds the recognisers, which take 0.1 s to load; not safe for use by two threads at once."""

    def __init__(self, folder: Path | None = None) -> None:
        path = str(folder or Path(__file__).parent / "tessdata")
        self._mixed: Any = tesserocr.PyTessBaseAPI(path=path, lang="kor+eng", psm=tesserocr.PSM.SINGLE_LINE)
        self._korean: Any = tesserocr.PyTessBaseAPI(path=path, lang="kor", psm=tesserocr.PSM.SINGLE_LINE)

    def close(self) -> None:
        """Free the recognisers."""
        self._mixed.End()
        self._korean.End()

    def read_picture(self, image: Image.Image) -> list[TextLine]:
        """The lines of a still picture, top to bottom."""
        gray = _at_most(image.convert("L"), _MAX_SIDE_PX)
        factor = image.width / gray.width
        lines: list[TextLine] = []
        for region in find_regions(gray):
            if any(_lies_in(region, line.box) for line in lines):
                continue
            if region.height > max(_BLOCK_PX, gray.height // 3):
                lines += self.read_block(gray, region)
            elif line := self.read_region(gray, region):
                lines.append(line)
        return lines if factor == 1.0 else [_scaled(line, factor) for line in lines]

    def read_region(self, gray: Image.Image, region: Region) -> TextLine | None:
        """The text in one region; None when nothing readable is there."""
        crop = gray.crop((region.left, region.top, region.right, region.bottom))
        ways = prepare(crop)
        text, confidence = self._read_line(next(ways))
        if confidence < _SURE and confidence >= _HOPE:
            # A texture cut to two shades is read as a few sure letters: only longer texts count here.
            others = [
                found for way in ways if len(_WORD.findall((found := self._read_line(way))[0])) > _SHORT
            ]
            text, confidence = max([(text, confidence), *others], key=lambda found: found[1])
        if not _is_readable(text, confidence):
            return None
        return TextLine(text, (region.left, region.top, region.right, region.bottom), round(confidence, 1))

    def _read_line(self, prepared: Image.Image) -> tuple[str, float]:
        words = self._read(self._mixed, prepared)
        text, confidence = _line_of(words)
        # The mixed model sometimes reads a Hangul word as Latin letters or signs, and is sure of it.
        if confidence < _SURE or (_HANGUL.search(text) and _MISREAD.search(text)):
            return _line_of(_better(words, self._read(self._korean, prepared)))
        return text, confidence

    def read_block(self, gray: Image.Image, region: Region) -> list[TextLine]:
        """The lines in a part of a picture that could not be parted into lines before."""
        self._mixed.SetPageSegMode(tesserocr.PSM.SINGLE_BLOCK)
        try:
            self._mixed.SetImage(gray.crop((region.left, region.top, region.right, region.bottom)))
            if not self._mixed.Recognize():
                return []
            level = tesserocr.RIL.TEXTLINE
            lines = []
            for item in tesserocr.iterate_level(self._mixed.GetIterator(), level):
                box = None if item.Empty(level) else item.BoundingBox(level)
                text = " ".join(item.GetUTF8Text(level).split()).strip(_EDGE_SIGNS) if box else ""
                confidence = float(item.Confidence(level)) if box else 0.0
                if box and confidence >= _MIN_BLOCK_CONFIDENCE and _is_readable(text, confidence):
                    left, top = region.left + box[0], region.top + box[1]
                    right, bottom = region.left + box[2], region.top + box[3]
                    lines.append(TextLine(text, (left, top, right, bottom), round(confidence, 1)))
            return lines
        finally:
            self._mixed.SetPageSegMode(tesserocr.PSM.SINGLE_LINE)

    @staticmethod
    def _read(api: Any, crop: Image.Image) -> list[_Word]:
        api.SetImage(crop)
        if not api.Recognize():
            return []
        level = tesserocr.RIL.WORD
        found = tesserocr.iterate_level(api.GetIterator(), level)
        words = []
        for item in found:
            box = None if item.Empty(level) else item.BoundingBox(level)
            if box:
                words.append(_Word(item.GetUTF8Text(level), item.Confidence(level), box[0], box[2]))
        return _space(words, " ".join(api.GetUTF8Text().split()))


def _space(words: list[_Word], line: str) -> list[_Word]:
    """Words with the spaces of the line: Tesseract also parts Hangul syllables that have none between."""
    spaced, at = [], 0
    for word in words:
        gap = line.startswith(" ", at) or not line.startswith(word.text, at)
        spaced.append(replace(word, spaced=gap))
        at += gap + len(word.text)
    return spaced


def _join(words: list[_Word]) -> str:
    return "".join(f" {word.text}" if word.spaced else word.text for word in words).strip()


def _is_readable(text: str, confidence: float) -> bool:
    """Texture is read as a few odd signs; text is mostly letters, and a short one has to be sure."""
    signs = len(_WORD.findall(text))
    if not signs or signs * 2 < len(text.replace(" ", "")):
        return False
    return confidence >= (_MIN_CONFIDENCE if signs > _SHORT else _SURE)


def _lies_in(region: Region, box: tuple[int, int, int, int]) -> bool:
    """Whether the middle of a region lies in the box of a text that was read already."""
    x, y = (region.left + region.right) / 2, (region.top + region.bottom) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _better(mixed: list[_Word], korean: list[_Word]) -> list[_Word]:
    """Word by word the surer of two readings of one line; a word of one may be several of the other."""
    better: list[_Word] = []
    for word in mixed:
        same = [other for other in korean if word.left <= (other.left + other.right) / 2 <= word.right]
        text = "".join(other.text for other in same)
        confidence = min((other.confidence for other in same), default=0.0)
        # The Korean model reads no Latin well, but where it surely sees Hangul there is some.
        if confidence > word.confidence or (
            confidence >= _SURE and _MISREAD.search(word.text) and _HANGUL.match(text)
        ):
            better.append(replace(word, text=text, confidence=confidence))
        else:
            better.append(word)
    return better


def _line_of(words: list[_Word]) -> tuple[str, float]:
    """The text of a line and its confidence, signs at its edges left away."""
    kept = [word for word in words if _WORD.search(word.text) or len(words) > 2]
    letters = sum(len(word.text) for word in kept)
    confidence = sum(word.confidence * len(word.text) for word in kept) / max(1, letters)
    return _join(kept).strip(_EDGE_SIGNS), confidence


def prepare(crop: Image.Image) -> Iterator[Image.Image]:
    """Ways to make dark text on a light ground, of the height that the models were trained for.

    First the whole crop with the rarer shade as text. Then, for outlined text on a busy ground, the brightest
    or the darkest shade alone.
    """
    factor = max(1.0, _LINE_PX / crop.height) if crop.height < _LINE_PX * 2 else _LINE_PX * 1.5 / crop.height
    size = (max(1, int(crop.width * factor)), max(1, int(crop.height * factor)))
    crop = ImageOps.autocontrast(crop.resize(size, Image.Resampling.BICUBIC))
    light = bool(np.median(np.asarray(crop)) >= 128)
    yield _framed(crop if light else ImageOps.invert(crop))
    bright = _framed(crop.point(lambda level: 0 if level > 255 - _SHADE else 255))
    dark = _framed(crop.point(lambda level: 0 if level < _SHADE else 255))
    yield from (dark, bright) if light else (bright, dark)


def _framed(crop: Image.Image) -> Image.Image:
    return ImageOps.expand(crop, _BORDER_PX, fill=int(np.median(np.asarray(crop))))


def _at_most(gray: Image.Image, side: int) -> Image.Image:
    if max(gray.size) <= side:
        return gray
    smaller = gray.copy()
    smaller.thumbnail((side, side), Image.Resampling.LANCZOS)
    return smaller


def _scaled(line: TextLine, factor: float) -> TextLine:
    left, top, right, bottom = (int(edge * factor) for edge in line.box)
    return TextLine(line.text, (left, top, right, bottom), line.confidence)
