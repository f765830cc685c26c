"""Real parts for tests, docs and demos: an upstream that plays back scripts and recorded answers."""

from dabom.testing.ports import hanging_upstream, refusing_upstream
from dabom.testing.processes import free_port, running, running_gateway
from dabom.testing.recorded import recording
from dabom.testing.replies import (
    chat_answer,
    chat_events,
    chunk,
    cut_at,
    drip,
    error_reply,
    head,
    json_reply,
    raw_reply,
    sent_bytes,
    sse_event,
    sse_reply,
)
from dabom.testing.seen import Seen
from dabom.testing.steps import AwaitBody, Close, Reset, Send, Stall, Step, Wait, WaitFor
from dabom.testing.upstream import ScriptedUpstream, in_turn

__all__ = [
    "AwaitBody",
    "Close",
    "Reset",
    "ScriptedUpstream",
    "Seen",
    "Send",
    "Stall",
    "Step",
    "Wait",
    "WaitFor",
    "chat_answer",
    "chat_events",
    "chunk",
    "cut_at",
    "drip",
    "error_reply",
    "free_port",
    "hanging_upstream",
    "head",
    "in_turn",
    "json_reply",
    "raw_reply",
    "recording",
    "refusing_upstream",
    "running",
    "running_gateway",
    "sent_bytes",
    "sse_event",
    "sse_reply",
]
