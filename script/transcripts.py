"""Runs the commands of the READMEs and writes their real output below them; `--check` only compares.

A fenced block `console` after the comment `<!-- run -->` is run line by line: what follows `$ ` is a command,
the lines below it the output. A command that ends in `&` is a server: it is waited for, and ended at last.
Blocks run in the order of the page and share their servers. Ports of the page are replaced by free ones while
it runs. What changes from run to run (times, ids) is compared by its form only.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "README.ko.md")
BLOCK = re.compile(r"(?<=<!-- run -->\n```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
PORT = re.compile(r"(?:127\.0\.0\.1:|--port )(\d{4})\b")
DEFAULT_PORT = "8001"
STARTS_IN_S = 60

UNSTEADY = (
    (re.compile(r'("(?:elapsed_ms|created|queue_ms|total_ms|first_byte_ms)": ?)[\d.]+'), r"\g<1>0"),
    (re.compile(r"\d+(?:[.,]\d+)*(?= ?(?:ms|s|초|MB/s|req/s|x)\b)"), "0"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(?:Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"\b(?:[a-z]+-)?[0-9a-f]{8}[0-9a-f-]*\b"), "ID"),
    (re.compile(r"[ \t]+"), " "),
)


def steady(text: str) -> str:
    """The text without what differs between two runs."""
    for pattern, instead in UNSTEADY:
        text = pattern.sub(instead, text)
    return text.strip()


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def commands(block: str) -> list[str]:
    """The commands of a block; one may go on over lines that end in a backslash."""
    joined = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
    return [str(command) for command in joined]


@dataclass
class Shell:
    """Runs commands from the root of the repository, with the page's ports replaced by free ones."""

    ports: dict[str, str] = field(default_factory=lambda: {DEFAULT_PORT: free_port()})
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def translate(self, text: str, *, back: bool = False) -> str:
        for port in PORT.findall(text) if not back else ():
            self.ports.setdefault(port, free_port())
        for shown, real in self.ports.items():
            text = text.replace(real, shown) if back else re.sub(rf"\b{shown}\b", real, text)
        return text

    @property
    def environment(self) -> dict[str, str]:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "DABOM_"))
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        url = f"http://127.0.0.1:{self.ports[DEFAULT_PORT]}"
        return clean | {"PATH": path, "DABOM_URL": url, "COLUMNS": "100", "LANG": "C.UTF-8", "NO_COLOR": "1"}

    def run(self, command: str) -> str:
        if command.endswith(" &"):
            self.serve(command.removesuffix(" &"))
            return ""
        done = subprocess.run(
            ["bash", "-c", self.translate(command)],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{command}\nended with {done.returncode}\n{done.stderr.decode()}")
        return self.translate(done.stdout.decode(), back=True).rstrip("\n") + "\n"

    def serve(self, command: str) -> None:
        shown = PORT.findall(command)[-1] if "--port" in command else DEFAULT_PORT
        port = self.ports.setdefault(shown, free_port())
        words = shlex.split(self.translate(command)) + ([] if "--port" in command else ["--port", port])
        self.servers.append(
            subprocess.Popen(
                ["env", *words],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        deadline = time.monotonic() + STARTS_IN_S
        while not is_open(int(port)):
            if self.servers[-1].poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{command}\ndid not start")
            time.sleep(0.05)

    def stop(self) -> None:
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
        for server in self.servers:
            server.wait(timeout=30)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def shell() -> Iterator[Shell]:
    with ExitStack() as stack:
        opened = Shell()
        stack.callback(opened.stop)
        yield opened


def rerun(block: str, opened: Shell) -> str:
    return "".join(f"$ {command}\n{opened.run(command)}" for command in commands(block))


def differences(name: str, shown: str, real: str) -> list[str]:
    lines = (steady(shown).splitlines(), steady(real).splitlines())
    return list(difflib.unified_diff(*lines, f"{name} (shown)", f"{name} (real)", lineterm="", n=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when an output is another one"
    )
    check = parser.parse_args().check
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    with shell() as opened:
        real = {tuple(commands(block)): rerun(block, opened) for block in BLOCK.findall(texts[PAGES[0]])}
    found: list[str] = []
    for name, text in texts.items():
        if stray := [block for block in BLOCK.findall(text) if tuple(commands(block)) not in real]:
            sys.exit(f"{name} has a block that {PAGES[0]} has not:\n{stray[0]}")
        written = BLOCK.sub(lambda match: real[tuple(commands(match[0]))], text)
        found += differences(name, text, written)
        if not check:
            (ROOT / name).write_text(written, encoding="utf-8")
    print("\n".join(found), file=sys.stderr)
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
