"""The sound of a recording, sample by sample, into the windows of a cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import av
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_JUMP_S = 0.02
"""Times that jump by more are a hole or a splice; less is the rounding of a container."""
_CENTRE, _FRONT, _AROUND = 0.5, 0.2, 0.05
"""Weights of a downmix: people speak from the centre. The bass channel is left out."""
_USUAL = {6: "5.1", 8: "7.1"}
_WEIGHTS = {"FC": _CENTRE, "FL": _FRONT, "FR": _FRONT, "LFE": 0.0, "LFE2": 0.0}


class Heard(NamedTuple):
    """The sound of one window: float samples by channel, and how many of them the recording had."""

    window: int
    samples: NDArray[np.float32]
    filled: int


def channel_names(layout: Any) -> list[str]:
    """FL, FR, FC and so on. A file that does not tell which channel is which has the usual order."""
    names = [channel.name for channel in layout.channels]
    usual = _USUAL.get(len(names))
    if usual is not None and "FC" not in names:
        return [channel.name for channel in av.AudioLayout(usual).channels]
    return names


def downmix(names: Sequence[str], channels: int) -> NDArray[np.float32]:
    """The matrix from the channels so named (FL, FR, FC, LFE, BL, ...) to one or two.

    One or two channels are averaged or kept. Of more, the centre weighs most, because dialogue is there and
    an average over six would bury it; rows sum to one, so that nothing clips.
    """
    found = np.zeros((channels, len(names)), np.float32)
    if len(names) <= 2:
        found[:] = 1 / len(names)
        if channels == 2 and len(names) == 2:
            found[:] = np.eye(2)
        return found
    for column, name in enumerate(names):
        weight = _WEIGHTS.get(name, _AROUND)
        left, right = name.endswith("L") or name == "FLC", name.endswith("R") or name == "FRC"
        for row in range(channels):
            apart = channels == 2 and ((row == 0 and right) or (row == 1 and left))
            found[row, column] = 0.0 if apart else weight
    total = found.sum(1, keepdims=True)
    mixed: NDArray[np.float32] = (found / np.where(total == 0, 1, total)).astype(np.float32)
    return mixed


@dataclass(frozen=True)
class _Spans:
    """Where the windows are, in samples."""

    begins: tuple[int, ...]
    length: int


class Hearing:
    """Takes decoded sound in order and gives the windows that are whole.

    Samples have their place by the recording's clock: a hole stays silent, and what comes after it does not
    move. Within an unbroken stretch they are counted, so that no rounding of times tears them apart.
    """

    def __init__(self, starts: Sequence[float], seconds: float, rate: int, channels: int) -> None:
        self._rate, self._channels = rate, channels
        begins = tuple(round(start * rate) for start in starts)
        self._spans = _Spans(begins, round(seconds * rate))
        self._next = 0
        self._open: dict[int, tuple[NDArray[np.float32], int]] = {}
        self._at = 0
        self._due_s = -1e9
        self._kind: tuple[Any, ...] = ()
        self._resampler: Any = None
        self._matrix = np.ones((channels, 1), np.float32)

    @property
    def done(self) -> bool:
        """Every window was given."""
        return self._next >= len(self._spans.begins)

    def take(self, frame: Any, time_s: float) -> Iterator[Heard]:
        """One decoded frame that begins at `time_s` of the cut's clock."""
        kind = (frame.layout.name, frame.format.name, frame.sample_rate)
        if kind != self._kind or abs(time_s - self._due_s) > _JUMP_S:
            self._drain()
            self._begin(frame, kind, time_s)
        self._due_s += frame.samples / frame.sample_rate
        frame.pts = None  # the resampler would fill holes of its own
        for out in self._resampler.resample(frame):
            self._put(self._matrix @ out.to_ndarray())
        yield from self.until(self._at)

    def until(self, sample: int) -> Iterator[Heard]:
        """Give every window that ends at `sample` or before, as it is."""
        while not self.done and self._spans.begins[self._next] + self._spans.length <= sample:
            yield self._close(self._next)

    def give_up(self, time_s: float) -> Iterator[Heard]:
        """Give the windows that ended before `time_s`: the sound has stopped, or comes far too late."""
        yield from self.until(int(time_s * self._rate))

    def rest(self) -> Iterator[Heard]:
        """The recording has ended: give what is left."""
        self._drain()
        while not self.done:
            yield self._close(self._next)

    def _begin(self, frame: Any, kind: tuple[Any, ...], time_s: float) -> None:
        self._kind, self._at, self._due_s = kind, round(time_s * self._rate), time_s
        self._resampler = av.AudioResampler(format="fltp", layout=frame.layout, rate=self._rate)
        self._matrix = downmix(channel_names(frame.layout), self._channels)

    def _drain(self) -> None:
        if self._resampler is None:
            return
        for out in self._resampler.resample(None):
            self._put(self._matrix @ out.to_ndarray())
        self._resampler, self._kind = None, ()

    def _put(self, chunk: NDArray[np.float32]) -> None:
        first, last = self._at, self._at + chunk.shape[1]
        self._at = last
        window = self._next
        while window < len(self._spans.begins) and self._spans.begins[window] < last:
            begin = self._spans.begins[window]
            lower, upper = max(first, begin), min(last, begin + self._spans.length)
            if upper > lower:
                room, filled = self._open.get(window) or self._room()
                room[:, lower - begin : upper - begin] = chunk[:, lower - first : upper - first]
                self._open[window] = room, filled + upper - lower
            window += 1

    def _room(self) -> tuple[NDArray[np.float32], int]:
        return np.zeros((self._channels, self._spans.length), np.float32), 0

    def _close(self, window: int) -> Heard:
        self._next = window + 1
        room, filled = self._open.pop(window) if window in self._open else self._room()
        return Heard(window, room, min(filled, self._spans.length))
