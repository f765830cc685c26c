"""Where a picture has text-like structure: many strong, fine edges side by side on a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFilter

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELL_PX = 4
MAX_REGIONS = 40
_EDGE = 40
_MIN_HEIGHT_PX = 9


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


def find_regions(gray: Image.Image) -> list[Region]:
    """Boxes that may hold a line of text, top to bottom; at most MAX_REGIONS, the widest first kept."""
    cells = _edge_cells(gray)
    found = [box for box in _components(cells) if _may_be_text(box, cells)]
    regions = [_to_pixels(box, gray.size) for box in _join_lines(found)]
    regions = [
        region for region in regions if region.height >= _MIN_HEIGHT_PX and region.width >= region.height
    ]
    widest = sorted(regions, key=lambda region: -region.width)[:MAX_REGIONS]
    return sorted(widest, key=lambda region: (region.top, region.left))


def _edge_cells(gray: Image.Image) -> NDArray[np.bool_]:
    pixels = np.asarray(gray, np.int16)
    across = np.zeros(pixels.shape, np.uint8)
    across[:, 1:] = np.abs(np.diff(pixels, axis=1)) > _EDGE
    rows, columns = pixels.shape[0] // CELL_PX, pixels.shape[1] // CELL_PX
    trimmed = across[: rows * CELL_PX, : columns * CELL_PX]
    counts = trimmed.reshape(rows, CELL_PX, columns, CELL_PX).sum((1, 3)).astype(np.uint8)
    # A cell belongs to text when its neighbourhood on the same line is busy, not it alone.
    busy = Image.fromarray((np.minimum(counts, 8) * 31).astype(np.uint8))
    dense = np.asarray(busy.filter(ImageFilter.BoxBlur((4, 0))))
    return dense > 60


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


def _to_pixels(box: tuple[int, int, int, int], size: tuple[int, int]) -> Region:
    left, top, right, bottom = (edge * CELL_PX for edge in box)
    pad = max(CELL_PX, (bottom - top) // 4)
    return Region(
        max(0, left - pad), max(0, top - pad), min(size[0], right + pad), min(size[1], bottom + pad)
    )
