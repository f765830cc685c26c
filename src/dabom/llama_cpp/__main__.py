"""`python -m dabom.llama_cpp --model FILE --port N`: serve a GGUF."""

from __future__ import annotations

import sys

from dabom.llama_cpp.server import main

if __name__ == "__main__":
    sys.exit(main())
