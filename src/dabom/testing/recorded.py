"""Answers of real servers, recorded; `recordings/README.md` says which and when."""

from __future__ import annotations

from importlib import resources

import msgspec

from dabom.testing.replies import chunk, head, raw_reply
from dabom.testing.steps import Close, Send, Stall, Step, Wait

_FRAMING = {"content-length", "transfer-encoding", "connection"}


class Recording(msgspec.Struct, frozen=True):
    """One answer. `then` is what the server did after it: `keep` the connection, `close` it, or `stall`."""

    server: str
    status: int
    headers: list[tuple[str, str]]
    body: str
    then: str = "keep"

    @property
    def streamed(self) -> bool:
        return any(k.lower() == "content-type" and v.startswith("text/event-stream") for k, v in self.headers)


def recording_names() -> list[str]:
    """All recordings, sorted."""
    folder = resources.files("dabom.testing") / "recordings"
    return sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json"))


def load_recording(name: str) -> Recording:
    """A recording by its name, for example `vllm_text`."""
    path = resources.files("dabom.testing") / "recordings" / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=Recording)


def recording(name: str, *, gap_s: float = 0) -> list[Step]:
    """A script that plays a recorded answer; a stream goes out event by event, `gap_s` apart."""
    answer = load_recording(name)
    headers = [(k, v) for k, v in answer.headers if k.lower() not in _FRAMING]
    if not answer.streamed:
        return raw_reply(answer.body.encode(), status=answer.status, headers=headers)
    steps: list[Step] = [Send(head(answer.status, [*headers, ("transfer-encoding", "chunked")]))]
    for event in answer.body.split("\n\n")[:-1]:
        steps += [Wait(gap_s), Send(chunk(f"{event}\n\n".encode()))]
    if answer.then == "stall":
        return [*steps, Stall()]
    steps.append(Send(chunk(b"")))
    return [*steps, Close()] if answer.then == "close" else steps
