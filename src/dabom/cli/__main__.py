"""`python -m dabom.cli`."""

from dabom.cli import main

main()
