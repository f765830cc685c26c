"""Cuts ten minutes of 1080p into a hundred clips: `dabom clips cut` against a hundred seeks of ffmpeg.

Both write the same sizes, rates, numbers of frames and codings, with the same settings of x264. They run in
turns of half a second, the other one stopped, so that a slow minute of the machine hits both; the time of
each is the sum of its turns. Peak memory is that of the process that cuts. The table goes to stdout, progress
to stderr; exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

CLIP_S = 6
_BARS = {"lean": 0.75, "seed": 0.9}
_MOST_MB = 400
_MB = 1e6
_TURN_S = 0.5
_SHAPES = {
    "lean": (
        *("-vf", "fps=10,scale=640:360", "-frames:v", "60", "-c:v", "libx264", "-preset", "veryfast"),
        *("-crf", "25", "-bf", "0", "-g", "60", "-c:a", "aac", "-ar", "16000", "-ac", "1", "-b:a", "64k"),
    ),
    "seed": (
        *("-frames:v", "180", "-c:v", "libx264", "-preset", "veryfast", "-b:v", "1500k", "-bf", "0"),
        *("-g", "180", "-c:a", "aac", "-b:a", "128k"),
    ),
}


@dataclass
class Taken:
    """Seconds of the turns, seconds of CPU, peak memory in MB of 10^6 bytes."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0


@dataclass(frozen=True)
class Row:
    """One profile: what both took, and how many clips each made."""

    profile: str
    gop: int
    clips: int
    ffmpeg: Taken
    ours: Taken

    @property
    def ratio(self) -> float:
        """Our time by that of ffmpeg."""
        return self.ours.wall_s / self.ffmpeg.wall_s

    @property
    def passed(self) -> bool:
        """The bars of time and of memory are met."""
        return self.ratio <= _BARS[self.profile] and self.ours.peak_mb < _MOST_MB


def make_source(path: Path, minutes: float, gop: int) -> None:
    """A moving picture with a tone, 1080p at 29.97 frames a second, H.264 of 6 Mb/s; a minute, repeated."""
    minute = path.with_name(f"minute-{gop}.mp4")
    _ffmpeg(
        *("-f", "lavfi", "-i", "testsrc2=s=1920x1080:r=30000/1001:d=60"),
        *("-f", "lavfi", "-i", "sine=f=440:r=48000:d=60"),
        *("-ac", "2", "-c:v", "libx264", "-preset", "veryfast", "-b:v", "6M", "-g", str(gop)),
        *("-pix_fmt", "yuv420p", "-c:a", "aac", "-b:a", "128k", str(minute)),
    )
    loops = str(max(0, round(minutes) - 1))
    _ffmpeg("-stream_loop", loops, "-i", str(minute), "-c", "copy", "-t", str(minutes * 60), str(path))


def seek(source: Path, out: Path, profile: str, clips: int) -> None:
    """`clips` calls of ffmpeg, each with its own seek."""
    out.mkdir()
    for index in range(clips):
        place = ("-ss", str(index * CLIP_S), "-i", str(source), "-t", str(CLIP_S))
        target = str(out / f"{index:04d}.mp4")
        _ffmpeg(*place, *_SHAPES[profile], "-movflags", "+faststart", target)


def take_turns(commands: list[list[str]]) -> list[Taken]:
    """Run all commands in turns, the others stopped, until each has ended."""
    children = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) for command in commands
    ]
    taken = [Taken() for _ in commands]
    for child in children:
        os.killpg(child.pid, signal.SIGSTOP)
    alive = list(range(len(children)))
    while alive:
        for number in list(alive):
            if _turn(children[number], taken[number]):
                alive.remove(number)
    return taken


def _turn(child: subprocess.Popen[bytes], taken: Taken) -> bool:
    """One turn; whether the command has ended in it."""
    began = time.monotonic()
    os.killpg(child.pid, signal.SIGCONT)
    while time.monotonic() - began < _TURN_S:
        pid, status, used = os.wait4(child.pid, os.WNOHANG)
        if pid:
            taken.wall_s += time.monotonic() - began
            taken.cpu_s, taken.peak_mb = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / _MB
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                sys.exit(f"{child.args!r} ended with {child.returncode}")
            return True
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGSTOP)
    taken.wall_s += time.monotonic() - began
    return False


def measure(profile: str, gop: int, minutes: float, folder: Path) -> Row:
    """Both ways for one profile, and a check that they made the same number of clips."""
    source = folder / f"source-{gop}.mp4"
    if not source.exists():
        _say(f"making {minutes:g} minutes of 1080p with a key frame every {gop} frames")
        make_source(source, minutes, gop)
    clips = int(minutes * 60 / CLIP_S)
    ours, theirs = folder / "ours", folder / "theirs"
    for made in (ours, theirs):
        shutil.rmtree(made, ignore_errors=True)
    _say(f"{profile}: {clips} clips, both ways")
    cut = [sys.executable, "-m", "dabom.cli", "clips", "cut", str(source), str(ours), "--profile", profile]
    cut += ["--end", str(clips * CLIP_S), "--lang", "en"]
    seeks = [sys.executable, "-m", "bench.clips.run", "--seek", str(source), str(theirs), profile, str(clips)]
    found = take_turns([cut, seeks])
    counts = [len(list(made.glob("*.mp4"))) for made in (ours, theirs)]
    if counts != [clips, clips]:
        sys.exit(f"{profile}: made {counts} clips instead of {clips}")
    return Row(profile, gop, clips, found[1], found[0])


def as_markdown(rows: list[Row]) -> str:
    """The table of the docs."""
    lines = [
        "| profile | clips | key frame every | seeks | one pass | ratio | bar | CPU | peak memory |",
        "|---|---:|---:|---:|---:|---:|---|---:|---:|",
    ]
    for row in rows:
        bar = f"{_BARS[row.profile]:g} {'met' if row.passed else 'MISSED'}"
        cpu = f"{row.ffmpeg.cpu_s:.0f} s, {row.ours.cpu_s:.0f} s ({row.ours.cpu_s / row.ffmpeg.cpu_s:.2f})"
        lines.append(
            f"| `{row.profile}` | {row.clips} | {row.gop} frames | {row.ffmpeg.wall_s:.1f} s "
            f"| {row.ours.wall_s:.1f} s | {row.ratio:.2f} | {bar} | {cpu} | {row.ours.peak_mb:.0f} MB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--profiles", default="lean,seed")
    parser.add_argument("--gops", default="250", help="frames from one key frame to the next, by commas")
    parser.add_argument(
        "--seek", nargs=4, metavar=("SOURCE", "OUT", "PROFILE", "CLIPS"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.seek:
        source, out, profile, clips = options.seek
        seek(Path(source), Path(out), profile, int(clips))
        return
    if shutil.which("ffmpeg") is None:
        sys.exit("the program ffmpeg is needed: apt-get install ffmpeg")
    with tempfile.TemporaryDirectory(prefix="dabom-bench-") as folder:
        rows = [
            measure(profile, int(gop), options.minutes, Path(folder))
            for gop in options.gops.split(",")
            for profile in options.profiles.split(",")
        ]
    stamp = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    version = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True)
    print(f"{stamp}; {os.cpu_count()} cores; {' '.join(version.stdout.split()[:3])}\n")
    print(as_markdown(rows))
    sys.exit(0 if all(row.passed for row in rows) else 1)


def _ffmpeg(*args: str) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-y", *args], check=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
