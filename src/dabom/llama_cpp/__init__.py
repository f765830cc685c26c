"""llama.cpp's own HTTP server in a process of its own, from the wheel `xllamacpp`: serves one GGUF."""

from dabom.llama_cpp.server import main

__all__ = ["main"]
