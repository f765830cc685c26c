from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from dabom.client import audio, image, text, video
from dabom.client import parts as parts_module
from dabom.errors import BodyTooLarge, InvalidMedia

if TYPE_CHECKING:
    from pathlib import Path


def _value(part: parts_module.Part) -> Any:
    return json.loads(part.json)


def _payload(url: str, mime: str) -> bytes:
    head = f"data:{mime};base64,"
    assert url.startswith(head)
    return base64.b64decode(url.removeprefix(head), validate=True)


def test_text_is_escaped_as_json() -> None:
    assert _value(text('그는 "예"\n')) == {"type": "text", "text": '그는 "예"\n'}


async def test_bytes_and_paths_become_data_uris_with_their_own_type(
    tmp_path: Path, png: bytes, mp4: bytes
) -> None:
    misnamed = tmp_path / "picture.mp4"
    misnamed.write_bytes(png)
    assert _payload(_value(await image(misnamed))["image_url"]["url"], "image/png") == png
    assert _payload(_value(await video(mp4))["video_url"]["url"], "video/mp4") == mp4


async def test_wav_is_input_audio_and_flac_a_url(wav: Path, wav_bytes: bytes) -> None:
    part = _value(await audio(wav))
    assert part["type"] == "input_audio"
    assert part["input_audio"]["format"] == "wav"
    assert base64.b64decode(part["input_audio"]["data"]) == wav_bytes
    flac = b"fLaC" + bytes(60)
    assert _payload(_value(await audio(flac))["audio_url"]["url"], "audio/flac") == flac


@pytest.mark.parametrize("url", ["https://host/a.png", "data:image/png;base64,AAAA"])
async def test_urls_stay_as_they_are(url: str) -> None:
    assert _value(await image(url)) == {"type": "image_url", "image_url": {"url": url}}
    assert _value(await audio(url)) == {"type": "audio_url", "audio_url": {"url": url}}


async def test_errors_say_what_was_found(tmp_path: Path, mp4: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidMedia, match="no such file"):
        await image(tmp_path / "none.png")
    with pytest.raises(InvalidMedia, match="is a folder"):
        await image(tmp_path)
    (tmp_path / "empty.png").write_bytes(b"")
    with pytest.raises(InvalidMedia, match=r"empty\.png: the file is empty"):
        await image(tmp_path / "empty.png")
    (tmp_path / "notes.txt").write_text("secret words of a note")
    with pytest.raises(InvalidMedia, match=r"notes\.txt.*PNG, JPEG") as caught:
        await image(tmp_path / "notes.txt")
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidMedia, match="is video/mp4; as image give"):
        await image(mp4)
    monkeypatch.setattr(parts_module, "MAX_MEDIA_BYTES", 1000)
    with pytest.raises(BodyTooLarge, match="at most 1,000 fit"):
        await video(mp4)
    (tmp_path / "big.mp4").write_bytes(mp4)
    with pytest.raises(BodyTooLarge, match=r"big\.mp4: has 2,072 bytes"):
        await video(tmp_path / "big.mp4")


async def test_repr_shows_no_content(png: bytes) -> None:
    assert "iVBOR" not in repr(await image(png))
    assert "비밀" not in repr(text("비밀"))
