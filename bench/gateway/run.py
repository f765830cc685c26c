"""Compares the gateway with its peers, kind by kind, round by round.

The gateway under test has one core, stub and load have another. Gateways take turns inside a round, so that a
slow minute of the machine hits all of them, and the median of the rounds counts. Tables go to stdout,
progress to stderr; exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

from bench.gateway.bars import DIRECT, OURS, Kind, Rounds, Sample, all_kinds, judge
from bench.gateway.launch import ROOT, LaunchError, Running, on_core, stub_launch
from bench.gateway.peers import PEERS, Peer, Unavailable, all_peers
from bench.gateway.report import Outcome, as_markdown, describe_machine, now, write

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFAULT: Final = (DIRECT, OURS, "bare", "nginx", "vllm-router", "smg")
_LOGS: Final = PEERS / "logs"
_MEMORY_LATENCY_MS: Final = 200.0
_MEMORY_S: Final = 3.0


@dataclass(frozen=True)
class Options:
    """What to measure and for how long."""

    gateways: tuple[str, ...]
    kinds: tuple[Kind, ...]
    seconds: float
    rounds: int
    gateway_core: int | None
    load_core: int | None


@dataclass
class Bench:
    """The running servers of one comparison and what was found so far."""

    options: Options
    stack: ExitStack
    stub: Running
    running: dict[str, Running] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def upstream(self) -> str:
        return self.stub.base.removeprefix("http://")

    def start(self, peer: Peer) -> None:
        """Installs and starts a peer; one that fails is told about and left out."""
        try:
            self.versions[peer.name] = peer.install()
            self.running[peer.name] = self._launch(peer)
        except (Unavailable, LaunchError) as error:
            self.missing[peer.name] = str(error)
            say(f"{peer.name}: not available: {error}")

    def restart(self, peer: Peer) -> None:
        """A new process of a peer."""
        self.running[peer.name].stop()
        self.running[peer.name] = self._launch(peer)

    def _launch(self, peer: Peer) -> Running:
        running = Running(peer.launch(self.upstream), _LOGS / f"{peer.name}.log", self.options.gateway_core)
        self.stack.callback(running.stop)
        return running

    def sample(self, kind: Kind, peer: Peer | None) -> Sample:
        """One measurement; without a peer the load goes straight to the stub."""
        running = self.stub if peer is None else self.running[peer.name]
        cpu_before, served_before = running.cpu_s(), served(self.stub)
        seconds = ("--seconds", str(self.options.seconds))
        sample = run_load(self, running, peer, (*kind.load, *seconds, "--stub", self.stub.base))
        count = served(self.stub) - served_before
        cost_ms = (running.cpu_s() - cpu_before) / count * 1000 if count and peer else None
        return sample | {"cpu_ms": cost_ms}


def say(words: str) -> None:
    """A line of progress."""
    print(words, file=sys.stderr, flush=True)


def served(stub: Running) -> int:
    """Requests that the stub has got so far."""
    return int(stub.ask("/stats")["requests"])


def run_load(bench: Bench, running: Running, peer: Peer | None, options: Sequence[str]) -> Sample:
    """Runs the load generator in its own process against a server."""
    argv = [sys.executable, "-m", "bench.gateway.load", f"{running.base}/v1/chat/completions", *options]
    if peer is not None:
        for header in peer.headers(bench.upstream):
            argv += ["--header", header]
        argv += ["--loose"] if peer.loose else []
    done = subprocess.run(
        on_core(tuple(argv), bench.options.load_core), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise LaunchError(f"the load generator failed: {done.stderr[-400:]}")
    found: Sample = json.loads(done.stdout)
    return found


def run_rounds(bench: Bench) -> Rounds:
    """All kinds of work; inside a kind the gateways take turns."""
    rounds: Rounds = {}
    peers = all_peers()
    for kind in bench.options.kinds:
        by_gateway = rounds.setdefault(kind.name, {})
        for turn in range(bench.options.rounds):
            for name in bench.options.gateways:
                if name in bench.missing:
                    continue
                peer = peers.get(name)
                if peer is not None and peer.restarts:
                    bench.restart(peer)
                sample = bench.sample(kind, peer)
                by_gateway.setdefault(name, []).append(sample)
                say(f"{kind.title}, round {turn + 1}, {name}: {describe(kind, sample)}")
    return rounds


def describe(kind: Kind, sample: Sample) -> str:
    """A sample in a few words."""
    cost = f", {sample['cpu_ms']:.3f} ms CPU" if sample["cpu_ms"] is not None else ""
    errors = f", {sample['errors']} errors {sample['first_errors']}" if sample["errors"] else ""
    return f"{sample[kind.number]}{cost}{errors}"


def measure_memory(bench: Bench) -> dict[str, float]:
    """Peak RSS of a fresh process of each gateway while 8 clips of 3 MB wait for a slow stub."""
    peaks: dict[str, float] = {}
    with Running(stub_launch(_MEMORY_LATENCY_MS), _LOGS / "slow-stub.log", bench.options.load_core) as slow:
        upstream = slow.base.removeprefix("http://")
        for name in bench.options.gateways:
            peer = all_peers().get(name)
            if peer is None or name in bench.missing:
                continue
            log = _LOGS / f"{name}-memory.log"
            with Running(peer.launch(upstream), log, bench.options.gateway_core) as running:
                inner = Bench(bench.options, bench.stack, slow)
                run_load(inner, running, peer, ("--kind", "3", "--clients", "8", "--seconds", str(_MEMORY_S)))
                peaks[name] = running.peak_rss_mb()
            say(f"peak RSS with 8 clips of 3 MB in flight, {name}: {peaks[name]:.0f} MB")
    return peaks


def compare(options: Options, command: str) -> Outcome:
    """One whole comparison; every server is stopped at the end, however it ends."""
    began = now()
    with ExitStack() as stack:
        stub = stack.enter_context(Running(stub_launch(), _LOGS / "stub.log", options.load_core))
        bench = Bench(options, stack, stub)
        peers = all_peers()
        for name in options.gateways:
            if name != DIRECT:
                bench.start(peers[name])
        rounds = run_rounds(bench)
        peaks = measure_memory(bench)
    found = judge(rounds, peaks)
    return Outcome(
        command, describe_pins(options), began, bench.versions, bench.missing, rounds, peaks, found
    )


def describe_pins(options: Options) -> str:
    """The machine, and which core did what."""
    if options.gateway_core is None:
        return f"{describe_machine()}; nothing was pinned to a core, so the numbers are rough"
    pins = f"gateway on core {options.gateway_core}, stub and load on core {options.load_core}"
    return f"{describe_machine()}; {pins}"


def choose_cores() -> tuple[int | None, int | None]:
    """One core for the gateway, another for stub and load; none where the machine cannot pin."""
    if not hasattr(os, "sched_getaffinity") or shutil.which("taskset") is None:
        return None, None
    cores = sorted(os.sched_getaffinity(0))
    return (cores[1], cores[0]) if len(cores) > 1 else (None, None)


def parse(argv: Sequence[str] | None = None) -> tuple[Options, bool]:
    """The options, and whether the page in docs is written."""
    kinds = all_kinds()
    parser = argparse.ArgumentParser(description="Compare the gateway with other gateways.")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 0.7 s")
    parser.add_argument("--only", metavar="NAMES", help=f"gateways, of: {', '.join([DIRECT, *all_peers()])}")
    parser.add_argument("--with", dest="more", default="", metavar="NAMES", help="more gateways")
    parser.add_argument("--kinds", default=",".join(kinds), metavar="NAMES", help="default: %(default)s")
    parser.add_argument("--seconds", type=float, help="of each measurement; default 2")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--write", action="store_true", help="write docs/bench.md after a partial run too")
    args = parser.parse_args(argv)
    names = tuple(filter(None, [*(args.only.split(",") if args.only else _DEFAULT), *args.more.split(",")]))
    wanted = tuple(filter(None, args.kinds.split(",")))
    if wrong := [name for name in names if name != DIRECT and name not in all_peers()]:
        parser.error(f"no such gateway: {', '.join(wrong)}")
    if wrong := [name for name in wanted if name not in kinds]:
        parser.error(f"no such kind: {', '.join(wrong)}; there are {', '.join(kinds)}")
    seconds = args.seconds or (0.7 if args.quick else 2.0)
    rounds = args.rounds or (3 if args.quick else 5)
    options = Options(names, tuple(kinds[name] for name in wanted), seconds, rounds, *choose_cores())
    thorough = seconds >= 2 and rounds >= 5
    whole = thorough and set(_DEFAULT) <= set(names) and len(wanted) == len(kinds)
    return options, args.write or whole


def _end(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, _end)
    options, with_page = parse(argv)
    command = shlex.join(["python", "-m", "bench.gateway.run", *(sys.argv[1:] if argv is None else argv)])
    try:
        outcome = compare(options, command)
    except KeyboardInterrupt:
        say("stopped")
        return 130
    except LaunchError as error:
        say(f"error: {error}")
        return 1
    print(as_markdown(outcome))
    write(outcome, with_page and OURS in outcome.gateways)
    return 1 if any(verdict.passed is False for verdict in outcome.verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
