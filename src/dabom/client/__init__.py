"""An async client for any OpenAI-compatible endpoint. Every workflow reaches a model through it."""

from dabom.client.answer import Answer, Delta, Health, Line, Model, Usage
from dabom.client.batch import Item, Lines
from dabom.client.client import Client
from dabom.client.clip import AnalysisResult, ClipOptions, analysis_schema, clip_request, frames_request
from dabom.client.connection import Clocks, Retry
from dabom.client.parts import Part, audio, image, text, video
from dabom.client.request import Message, Request, request, schema_format, system, user

__all__ = [
    "AnalysisResult",
    "Answer",
    "Client",
    "ClipOptions",
    "Clocks",
    "Delta",
    "Health",
    "Item",
    "Line",
    "Lines",
    "Message",
    "Model",
    "Part",
    "Request",
    "Retry",
    "Usage",
    "analysis_schema",
    "audio",
    "clip_request",
    "frames_request",
    "image",
    "request",
    "schema_format",
    "system",
    "text",
    "user",
    "video",
]
