"""llama.cpp's own HTTP server in a process of its own, from the wheel `xllamacpp`: serves one GGUF."""
