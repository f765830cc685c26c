"""Frames of a recording, made into pictures of one size: scaled, turned upright, framed in black."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import av

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.media.recording import Recording
    from dabom.media.shape import Shape

_TURNS = {0: (), 1: ("transpose=cclock",), 2: ("hflip", "vflip"), 3: ("transpose=clock",)}
_NO_TYPE = 0


def fit(recording: Recording, width: int, height: int) -> tuple[int, int]:
    """The largest even size of the upright picture inside `width` x `height`, its pixels made square."""
    wide, high = float(recording.width * recording.aspect), float(recording.height)
    if recording.turns % 2:
        wide, high = high, wide
    factor = min(width / wide, height / high)
    return max(2, round(wide * factor / 2) * 2), max(2, round(high * factor / 2) * 2)


class Canvas:
    """Draws frames at the size of a shape, by FFmpeg's own filters."""

    def __init__(self, recording: Recording, shape: Shape) -> None:
        self._recording, self._shape = recording, shape
        self._kind: tuple[Any, ...] = ()
        self._graph: Any = None

    def draw(self, frame: Any) -> Any:
        """The picture, in yuv420p. It may be the frame itself when nothing has to change."""
        kind = (frame.width, frame.height, frame.format.name)
        if kind != self._kind:
            self._kind = kind
            self._graph = self._filters(frame)
        if self._graph is not None:
            self._graph.push(frame)
            frame = self._graph.pull()
        frame.pict_type = _NO_TYPE  # else the coder would make key frames where the recording has them
        return frame

    def _filters(self, frame: Any) -> Any:
        shape, turns = self._shape, self._recording.turns
        size = (shape.width, shape.height)
        if not turns and (frame.width, frame.height, frame.format.name) == (*size, "yuv420p"):
            return None
        wide, high = size if shape.native else fit(self._recording, *size)
        before = (high, wide) if turns % 2 else (wide, high)
        steps = [("scale", f"{before[0]}:{before[1]}"), ("format", "yuv420p")]
        for turn in _TURNS[turns]:
            name, _, value = turn.partition("=")
            steps.append((name, value))
        if (wide, high) != size:
            steps.append(("pad", f"{shape.width}:{shape.height}:(ow-iw)/2:(oh-ih)/2"))
        return _linked(frame, steps)


class Deinterlacer:
    """FFmpeg's bwdif, one frame for each: only frames that are marked as interlaced are changed."""

    def __init__(self) -> None:
        self._graph: Any = None
        self._kind: tuple[Any, ...] = ()

    def take(self, frame: Any) -> Iterator[Any]:
        """One decoded frame in, those that are ready out."""
        kind = (frame.width, frame.height, frame.format.name)
        if kind != self._kind:
            yield from self.rest()
            self._kind = kind
            self._graph = _linked(frame, [("bwdif", "mode=send_frame:deint=interlaced")])
        self._graph.push(frame)
        yield from self._ready()

    def rest(self) -> Iterator[Any]:
        """The last frame, which waited for one more."""
        if self._graph is not None:
            self._graph.push(None)
            yield from self._ready()
            self._graph = None

    def _ready(self) -> Iterator[Any]:
        while True:
            try:
                yield self._graph.pull()
            except (av.FFmpegError, EOFError):
                return


def _linked(frame: Any, steps: list[tuple[str, str]]) -> Any:
    graph = av.filter.Graph()
    # The pixels' own aspect is left out: the size that they are drawn at has taken it in.
    nodes = [
        graph.add_buffer(
            width=frame.width, height=frame.height, format=frame.format.name, time_base=frame.time_base
        )
    ]
    nodes += [graph.add(name, value or None) for name, value in steps]
    nodes.append(graph.add("buffersink"))
    graph.link_nodes(*nodes).configure()
    return graph
