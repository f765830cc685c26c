"""The servers that the gateway itself starts: the built-in reader, and GGUF files through llama.cpp."""

from dabom.app.local.children import Children
from dabom.app.local.kinds import complete, find_children

__all__ = ["Children", "complete", "find_children"]
