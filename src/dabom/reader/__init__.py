"""The built-in upstream: reads pictures, video and sound on a CPU and says only what it measured.

It is no language model, and says so. `ReaderApp` is an ASGI app; `python -m dabom.reader` serves it.
"""

from __future__ import annotations

from dabom.reader.app import ReaderApp
from dabom.reader.settings import MODEL_ALIAS, MODEL_ID, ReaderSettings

__all__ = ["MODEL_ALIAS", "MODEL_ID", "ReaderApp", "ReaderSettings"]
