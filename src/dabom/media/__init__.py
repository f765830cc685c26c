"""Bytes in, facts or clean media out: the only package that decodes a picture, a video or a sound.

`headers` and `uris` need the standard library only. The decoders load Pillow or PyAV when first asked for,
so that the gateway can read the size in a header without paying for either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dabom.kinds import sniff
from dabom.media.headers import picture_size
from dabom.media.sources import Base64Source, BytesSource, FileSource, Pieces, Source
from dabom.media.uris import DataUri, read_data_uri
from dabom.media.values import MediaFacts

if TYPE_CHECKING:
    from dabom.media.facts import read_facts, read_text_facts
    from dabom.media.picture import Picture, read_picture
    from dabom.media.sound import Sound, read_sound
    from dabom.media.video import Frame, Sampling, Video, open_pictures, open_video

__all__ = [
    "Base64Source",
    "BytesSource",
    "DataUri",
    "FileSource",
    "Frame",
    "MediaFacts",
    "Picture",
    "Pieces",
    "Sampling",
    "Sound",
    "Source",
    "Video",
    "open_pictures",
    "open_video",
    "picture_size",
    "read_data_uri",
    "read_facts",
    "read_picture",
    "read_sound",
    "read_text_facts",
    "sniff",
]

_HOMES = {
    "Frame": "video",
    "Picture": "picture",
    "Sampling": "video",
    "Sound": "sound",
    "Video": "video",
    "open_pictures": "video",
    "open_video": "video",
    "read_facts": "facts",
    "read_picture": "picture",
    "read_sound": "sound",
    "read_text_facts": "facts",
}


def __getattr__(name: str) -> Any:
    """A decoder by name, imported when first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
