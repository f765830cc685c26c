"""The preprocessor files of a checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def read_files(folder: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What the server takes for pictures, and for clips when they have settings of their own.

    processor_config.json comes first when it holds both (transformers 5 writes it so), then
    preprocessor_config.json and video_preprocessor_config.json.
    Raises OSError when there are no such files, ValueError when one is no JSON object.
    """
    both = _read(folder / "processor_config.json") or {}
    image = both.get("image_processor") or _read(folder / "preprocessor_config.json")
    if image is None:
        raise FileNotFoundError(2, "holds no preprocessor_config.json", str(folder))
    return image, both.get("video_processor") or _read(folder / "video_preprocessor_config.json")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{path.name} is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is no JSON object")
    return found
