"""Whole jobs, from the media to the sentence."""

from __future__ import annotations

import base64
import io
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from PIL import Image, ImageDraw

from dabom.errors import InvalidMedia
from dabom.reader.findings import Job, MediaPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.reader.reading import Reader

FILES = Path(__file__).parents[1] / "media/files"


def part(content: bytes, kind: str) -> MediaPart:
    return MediaPart(kind, base64.b64encode(content).decode(), is_uri=False)


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def film(pictures: Sequence[Image.Image], fps: int = 10) -> bytes:
    """An mp4 without sound."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = pictures[0].width, pictures[0].height, "yuv420p"
        for index, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, fps)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return out.getvalue()


def said(reader: Reader, content: bytes, kind: str, language: str = "ko", *, sound: bool = False) -> str:
    return reader.read(Job([part(content, kind)], language, sound_asked=sound)).content


def test_black_and_silent_is_said_so(reader: Reader) -> None:
    content = (FILES / "silent-black-10s.mp4").read_bytes()
    korean = said(reader, content, "video", sound=True)
    assert "검은 화면" in korean
    assert "완전한 무음" in korean
    assert "말소리가 없습니다" in korean
    english = said(reader, content, "video", "en", sound=True)
    assert "black picture" in english
    assert "digital silence" in english


def test_a_film_without_sound_track(reader: Reader) -> None:
    content = film([Image.new("RGB", (64, 48), "green")] * 10)
    assert "소리 트랙이 없습니다" in said(reader, content, "video", sound=True)
    assert "no sound track" in said(reader, content, "video", "en", sound=True)
    assert "소리" not in said(reader, content, "video")


def test_the_part_of_a_film_that_is_black_is_counted(reader: Reader) -> None:
    pictures = [Image.new("RGB", (64, 48), colour) for colour in ["green"] * 10 + ["black"] * 10]
    korean = said(reader, film(pictures), "video")
    assert "본 4장 중 2장은 검은 화면" in korean
    assert "장면 전환 1회: 1초" in korean


def test_one_colour_is_blank(reader: Reader) -> None:
    white = png(Image.new("RGB", (300, 200), "white"))
    assert "빈 화면입니다: 흰색 100%" in said(reader, white, "picture")
    assert "It is blank" in said(reader, white, "picture", "en")


def test_texture_is_not_read_as_text(reader: Reader) -> None:
    noise = np.random.default_rng(5).integers(0, 255, (240, 320, 3), dtype=np.uint8)
    assert "읽을 수 있는 글자가 없습니다" in said(reader, png(Image.fromarray(noise)), "picture")


def test_latin_text_has_its_box_in_the_pixels_of_the_picture(reader: Reader) -> None:
    image = Image.new("RGB", (3000, 600), "white")
    ImageDraw.Draw(image).text((600, 200), "Quarter 2026", fill="black", font_size=120)
    found = said(reader, png(image), "picture", "en")
    assert "Quarter 2026" in found
    left, top, right, bottom = map(int, found.split("[")[1].split("]")[0].split(","))
    assert 520 < left < 620
    assert 150 < top < 240
    assert 1250 < right < 1500
    assert 290 < bottom < 400


def test_an_animation_says_that_one_frame_was_seen(reader: Reader) -> None:
    content = (FILES / "animated-apng.png").read_bytes()
    assert "모두 5장" in said(reader, content, "picture")


def test_a_sound_asked_of_a_picture_only_file_is_refused(reader: Reader) -> None:
    with pytest.raises(InvalidMedia, match="no sound track"):
        said(reader, film([Image.new("RGB", (64, 48))] * 3), "sound")


def test_pictures_in_a_list_last_as_long_as_is_said(reader: Reader) -> None:
    still = base64.b64encode(png(Image.new("RGB", (64, 48), "red"))).decode()
    uri = "data:video/jpeg;base64," + ",".join([still] * 4)
    assert "영상: 2초" in reader.read(Job([MediaPart("video", uri)], "ko")).content
    assert "영상: 6초" in reader.read(Job([MediaPart("video", uri)], "ko", duration_s=6.0)).content
    assert (
        "영상: 0.5초" in reader.read(Job([MediaPart("video", uri.split(",")[0] + "," + still)], "ko")).content
    )
