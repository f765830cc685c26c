"""Make torchvision importable beside a CPU build of torch; run with the Python of that environment.

Its compiled part wants CUDA and does not load, and the import then dies on two operators that are not known.
Declaring them is enough: the transforms that image processors use are pure torch.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

MARK = "# declared for a CPU build of torch"
DECLARATION = f"""{MARK}
from torchvision.extension import _has_ops as _compiled
if not _compiled():
    _library = torch.library.Library("torchvision", "DEF")
    _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


"""


def patch(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    if MARK in source:
        return
    places = [source.index(start) for start in ("@functools.lru_cache", "def ") if start in source]
    first = min(places)
    path.write_text(source[:first] + DECLARATION + source[first:], encoding="utf-8")


if __name__ == "__main__":
    found = importlib.util.find_spec("torch")  # torchvision itself cannot be imported yet
    if found is None or found.origin is None:
        raise SystemExit("torch is not installed here")
    patch(Path(found.origin).parents[1] / "torchvision" / "_meta_registrations.py")
