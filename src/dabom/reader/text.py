"""Text in pictures: Korean and Latin, with Tesseract models that ship in the package."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tesserocr
from PIL import Image, ImageOps

from dabom.reader.findings import TextLine
from dabom.reader.regions import Region, find_regions

_LINE_PX = 48
_BORDER_PX = 10
_MIN_CONFIDENCE = 60.0
_SURE = 85.0
_PAGE_SIDE_PX = 2400
_PAGE_MIN_REGIONS = 6
_WORD = re.compile(r"[0-9A-Za-z가-힣ㄱ-ㅎㅏ-ㅣ]")


@dataclass(frozen=True)
class _Word:
    text: str
    confidence: float
    spaced: bool


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
        """The lines of a still picture, top to bottom: as a page when it looks like one, else line by line."""
        gray = _at_most(image.convert("L"), _PAGE_SIDE_PX)
        factor = image.width / gray.width
        regions = find_regions(gray)
        if len(regions) >= _PAGE_MIN_REGIONS and _is_paper(gray):
            lines = self.read_page(gray)
        else:
            lines = [line for region in regions if (line := self.read_region(gray, region))]
        return lines if factor == 1.0 else [_scaled(line, factor) for line in lines]

    def read_region(self, gray: Image.Image, region: Region) -> TextLine | None:
        """The text in one region; None when nothing readable is there."""
        crop = _prepare(gray.crop((region.left, region.top, region.right, region.bottom)))
        words = self._read(self._mixed, crop)
        if any(word.confidence < _SURE for word in words):
            words = _better(words, self._read(self._korean, crop))
        kept = [word for word in words if _WORD.search(word.text) or len(words) > 2]
        text = _join(kept).strip(" |_[]{}'`~")
        letters = sum(len(word.text) for word in kept)
        if not letters or len(_WORD.findall(text)) < max(1, len(text.replace(" ", "")) // 2):
            return None
        confidence = sum(word.confidence * len(word.text) for word in kept) / letters
        if confidence < _MIN_CONFIDENCE:
            return None
        return TextLine(text, (region.left, region.top, region.right, region.bottom), round(confidence, 1))

    def read_page(self, gray: Image.Image) -> list[TextLine]:
        """The lines of a page, found by Tesseract's own layout analysis."""
        self._mixed.SetPageSegMode(tesserocr.PSM.AUTO)
        try:
            self._mixed.SetImage(gray)
            self._mixed.Recognize()
            level = tesserocr.RIL.TEXTLINE
            lines = []
            for item in tesserocr.iterate_level(self._mixed.GetIterator(), level):
                if item.Empty(level):
                    continue
                text, box = " ".join(item.GetUTF8Text(level).split()), item.BoundingBox(level)
                if box and _WORD.search(text) and item.Confidence(level) >= _MIN_CONFIDENCE:
                    lines.append(TextLine(text, tuple(box), round(item.Confidence(level), 1)))
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
        words = [(item.GetUTF8Text(level), item.Confidence(level)) for item in found if not item.Empty(level)]
        return _space(words, " ".join(api.GetUTF8Text().split()))


def _space(words: list[tuple[str, float]], line: str) -> list[_Word]:
    """Words with the spaces of the line: Tesseract makes words of single Hangul syllables that have none between."""
    spaced, at = [], 0
    for text, confidence in words:
        gap = line.startswith(" ", at) or not line.startswith(text, at)
        at += gap
        spaced.append(_Word(text, confidence, gap))
        at += len(text)
    return spaced


def _join(words: list[_Word]) -> str:
    return "".join(f" {word.text}" if word.spaced else word.text for word in words).strip()


def _better(mixed: list[_Word], korean: list[_Word]) -> list[_Word]:
    """Word by word the surer of two readings of one line.

    The mixed model sometimes reads a Hangul word as Latin letters; the Korean one never reads Latin well.
    """
    if len(mixed) != len(korean):
        return mixed
    pairs = zip(mixed, korean, strict=True)
    return [
        one if one.confidence >= other.confidence else replace(other, spaced=one.spaced)
        for one, other in pairs
    ]


def _prepare(crop: Image.Image) -> Image.Image:
    """Dark text on a light ground, of a height that the models were trained for, with a border."""
    levels = np.asarray(crop)
    factor = max(1.0, _LINE_PX / crop.height)
    if factor > 1.0:
        crop = crop.resize((int(crop.width * factor), int(crop.height * factor)), Image.Resampling.BICUBIC)
    if np.median(levels) < 128:
        crop = ImageOps.invert(crop)
    crop = ImageOps.autocontrast(crop)
    return ImageOps.expand(crop, _BORDER_PX, fill=int(np.median(np.asarray(crop))))


def _is_paper(gray: Image.Image) -> bool:
    levels = np.asarray(gray)
    return bool((levels > 200).mean() > 0.6)


def _at_most(gray: Image.Image, side: int) -> Image.Image:
    if max(gray.size) <= side:
        return gray
    smaller = gray.copy()
    smaller.thumbnail((side, side), Image.Resampling.LANCZOS)
    return smaller


def _scaled(line: TextLine, factor: float) -> TextLine:
    left, top, right, bottom = (int(edge * factor) for edge in line.box)
    return TextLine(line.text, (left, top, right, bottom), line.confidence)
