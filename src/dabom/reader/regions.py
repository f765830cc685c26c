"""Where a picture has text-like structure: many strong, fine edges side by side on a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFilter

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELL_PX = 4
MAX_REGIONS = 60
_EDGE = 40
_MIN_HEIGHT_PX = 9
# Large letters have few edges for their size: they are looked for again in a picture a third as wide.
_COARSE = 3
_COARSE_MIN_SIDE_PX = 240
_LARGE_PX = 72
# Between two lines of text the rows have fewer edges than this share of the busiest row.
_VALLEY = 0.12


@dataclass(frozen=True)
class Region:
    """A box in pixels: left, top, right, bottom; right and bottom are outside."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""
        return self.bottom - self.top

    @property
    def width(self) -> int:
        """Pixels from left to right."""
        return self.right - self.left


def find_regions(gray: Image.Image, limit: int = MAX_REGIONS) -> list[Region]:
    """Boxes that may hold a line of text, top to bottom; at most `limit`, of which the widest are kept."""
    found = _find_at(gray)
    if min(gray.size) >= _COARSE_MIN_SIDE_PX:
        small = gray.resize((gray.width // _COARSE, gray.height // _COARSE), Image.Resampling.BOX)
        coarse = [region for region in _find_at(small) if region.height > _MIN_HEIGHT_PX * 2]
        for region in (_enlarge(each, gray.size) for each in coarse):
            inside = [each for each in found if _lies_in(each, region)]
            if region.height >= _LARGE_PX and sum(map(_area, inside)) < 0.7 * _area(region):
                found = [region, *(each for each in found if each not in inside)]
    widest = sorted(found, key=lambda region: -region.width)[:limit]
    return sorted(widest, key=lambda region: (region.top, region.left))


def _find_at(gray: Image.Image) -> list[Region]:
    edges = _edges(gray)
    cells = _busy_cells(edges)
    boxes = _join_lines([box for box in _components(cells) if _may_be_text(box, cells)])
    lines = [line for box in boxes for line in _split_rows(box, edges)]
    regions = [_to_pixels(line, gray.size) for line in lines]
    return [each for each in regions if each.height >= _MIN_HEIGHT_PX and each.width >= each.height]


def _edges(gray: Image.Image) -> NDArray[np.bool_]:
    pixels = np.asarray(gray, np.int16)
    across = np.zeros(pixels.shape, bool)
    across[:, 1:] = np.abs(np.diff(pixels, axis=1)) > _EDGE
    return across


def _busy_cells(edges: NDArray[np.bool_]) -> NDArray[np.bool_]:
    rows, columns = edges.shape[0] // CELL_PX, edges.shape[1] // CELL_PX
    if not rows or not columns:
        return np.zeros((rows, columns), bool)
    trimmed = edges[: rows * CELL_PX, : columns * CELL_PX]
    counts = trimmed.reshape(rows, CELL_PX, columns, CELL_PX).sum((1, 3)).astype(np.uint8)
    # A cell belongs to text when its neighbourhood on the same line is busy, not it alone.
    busy = Image.fromarray((np.minimum(counts, 8) * 31).astype(np.uint8))
    dense = np.asarray(busy.filter(ImageFilter.BoxBlur((4, 0))))
    return dense > 60


def _split_rows(box: tuple[int, int, int, int], edges: NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    """A box of cells as boxes of pixels, one for each line of text in it."""
    left, top, right, bottom = (edge * CELL_PX for edge in box)
    counts = edges[top:bottom, left:right].sum(1)
    inked = np.concatenate(([False], counts > counts.max(initial=0) * _VALLEY, [False]))
    turns = np.flatnonzero(np.diff(inked.astype(np.int8)))
    lines = [(int(first), int(last)) for first, last in zip(turns[::2], turns[1::2], strict=True)]
    tall = [line for line in lines if line[1] - line[0] >= _MIN_HEIGHT_PX - 2]
    if len(tall) < 2:
        return [(left, top, right, bottom)]
    return [(left, top + first, right, top + last) for first, last in tall]


def _enlarge(region: Region, size: tuple[int, int]) -> Region:
    left, top, right, bottom = (
        edge * _COARSE for edge in (region.left, region.top, region.right, region.bottom)
    )
    return Region(left, top, min(size[0], right), min(size[1], bottom))


def _lies_in(one: Region, other: Region) -> bool:
    x, y = (one.left + one.right) / 2, (one.top + one.bottom) / 2
    return other.left <= x <= other.right and other.top <= y <= other.bottom


def _area(region: Region) -> int:
    return region.width * region.height


def _components(cells: NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    rows, columns = cells.shape
    unseen = cells.copy()
    boxes = []
    for row, column in np.argwhere(cells):
        if not unseen[row, column]:
            continue
        stack, box = [(int(row), int(column))], [int(column), int(row), int(column), int(row)]
        unseen[row, column] = False
        while stack:
            y, x = stack.pop()
            box = [min(box[0], x), min(box[1], y), max(box[2], x), max(box[3], y)]
            for near_y, near_x in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1), (y, x - 2), (y, x + 2)):
                if 0 <= near_y < rows and 0 <= near_x < columns and unseen[near_y, near_x]:
                    unseen[near_y, near_x] = False
                    stack.append((near_y, near_x))
        boxes.append((box[0], box[1], box[2] + 1, box[3] + 1))
    return boxes


def _may_be_text(box: tuple[int, int, int, int], cells: NDArray[np.bool_]) -> bool:
    left, top, right, bottom = box
    filled = float(cells[top:bottom, left:right].mean())
    return right - left >= 4 and bottom - top >= 2 and filled > 0.45


def _join_lines(boxes: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Boxes on the same line, near each other, become one."""
    joined: list[tuple[int, int, int, int]] = []
    for box in sorted(boxes, key=lambda each: each[0]):
        for at, other in enumerate(joined):
            height = min(box[3] - box[1], other[3] - other[1])
            overlap = min(box[3], other[3]) - max(box[1], other[1])
            if overlap > 0.6 * height and box[0] - other[2] <= 2 * max(box[3] - box[1], other[3] - other[1]):
                joined[at] = (
                    min(box[0], other[0]),
                    min(box[1], other[1]),
                    max(box[2], other[2]),
                    max(box[3], other[3]),
                )
                break
        else:
            joined.append(box)
    return joined


def _to_pixels(line: tuple[int, int, int, int], size: tuple[int, int]) -> Region:
    left, top, right, bottom = line
    pad = max(CELL_PX, (bottom - top) // 4)
    return Region(
        max(0, left - pad), max(0, top - pad), min(size[0], right + pad), min(size[1], bottom + pad)
    )
