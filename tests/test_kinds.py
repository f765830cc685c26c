from __future__ import annotations

import pytest

from dabom.kinds import sniff


@pytest.mark.parametrize(
    ("head", "mime"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"RIFF\0\0\0\0AVI LIST", "video/x-msvideo"),
        (b"RIFF\0\0\0\0????", None),
        (b"RIFX\0\0\0\0WAVEfmt ", None),
        (b"#EXTM3U\n", None),
        (b"\0\0\0\x14ftypqt  ", "video/quicktime"),
        (b"\0\0\0\x18ftypM4A ", "audio/mp4"),
        (b"\0\0\0\x18ftypavif", "image/avif"),
        (b"\0\0\0\x18ftypmp42", "video/mp4"),
        (b"\x1a\x45\xdf\xa3\0\0\0\0\x42\x82\x84webm", "video/webm"),
        (b"\x1a\x45\xdf\xa3\0\0\0\0\x42\x82\x88matroska", "video/x-matroska"),
        (b"\x47" + bytes(187) + b"\x47", "video/mp2t"),
        (b"\xff\xfb\x90\0", "audio/mpeg"),
        (b"ID3\4", "audio/mpeg"),
        (b"OggS", "audio/ogg"),
        (b"GIF89a", "image/gif"),
        (b"", None),
        (b"hello", None),
        (b"Good morning", None),
        (b"\xff\xf1\x50\x80", "audio/aac"),
        (b"\0\0\0\x18ftypheic", "image/heic"),
    ],
)
def test_first_bytes_tell_the_type(head: bytes, mime: str | None) -> None:
    assert sniff(head) == mime
