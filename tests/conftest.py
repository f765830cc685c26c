"""What the tests need of the process that runs them."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell that runs tests in the background has them ignore Ctrl-C, and their children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
