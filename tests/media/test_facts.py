"""Facts of generated files beside what PyAV finds by decoding them."""

from __future__ import annotations

import base64
import io
import random
import struct
import time
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.media.make_clips import Clip, copy_cut, decode, make, with_edits

from dabom.media import BytesSource, FileSource, MediaFacts, read_facts, read_text_facts
from dabom.media.sources import Base64Source

if TYPE_CHECKING:
    from pathlib import Path

NTSC = Fraction(30_000, 1001)
UNEVEN = tuple(n / 30 for n in range(60) if n % 7 and n % 3 != 1)


def facts_of(content: bytes) -> MediaFacts:
    return read_facts(BytesSource(content))


def agree(content: bytes) -> MediaFacts:
    """Facts that must be what decoding gives."""
    facts, truth = facts_of(content), decode(content)
    assert (facts.frames, facts.audio_samples) == (truth.frames, truth.samples)
    assert facts.audio_rate == truth.rate or not truth.rate
    assert facts.fps == pytest.approx(truth.fps, abs=1e-6)
    assert facts.problem == ""
    return facts


@pytest.mark.parametrize("bframes", [0, 2])
@pytest.mark.parametrize("fps", [Fraction(30), NTSC, Fraction(25), Fraction(10)])
@pytest.mark.parametrize("frames", [1, 2, 29, 77])
def test_frames_and_rate_of_clips(bframes: int, fps: Fraction, frames: int) -> None:
    facts = agree(make(Clip(frames=frames, fps=fps, bframes=bframes)))
    assert (facts.kind, facts.mime, facts.width, facts.height) == ("video", "video/mp4", 64, 48)
    assert facts.seconds == pytest.approx(frames / fps, abs=0.002)
    assert not facts.estimated
    assert not facts.vfr


@pytest.mark.parametrize("bframes", [0, 2])
def test_uneven_frames(bframes: int) -> None:
    assert agree(make(Clip(frames=0, times=UNEVEN, bframes=bframes))).vfr


@pytest.mark.parametrize("codec", ["mpeg4", "libx265"])
def test_other_codecs(codec: str) -> None:
    agree(make(Clip(codec=codec)))


def test_index_at_the_start_or_the_end(tmp_path: Path) -> None:
    last = make(Clip(frames=50, bframes=2, sound="aac"))
    first = make(
        Clip(frames=50, bframes=2, sound="aac", options={"movflags": "faststart"}), tmp_path / "fast.mp4"
    )
    assert last.index(b"moov") > last.index(b"mdat")
    assert first.index(b"moov") < first.index(b"mdat")
    assert agree(first) == agree(last)


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("seconds", [0.1, 2.345])
@pytest.mark.parametrize("layout", ["mono", "stereo"])
def test_samples_of_aac_keep_the_padding_at_the_end(rate: int, seconds: float, layout: str) -> None:
    facts = agree(make(Clip(frames=0, sound="aac", rate=rate, seconds=seconds, layout=layout)))
    assert (facts.kind, facts.mime, facts.audio_samples % 1024) == ("audio", "audio/mp4", 0)
    assert facts.audio_samples >= rate * seconds


def test_six_seconds_of_aac_at_16_khz() -> None:
    assert agree(make(Clip(frames=0, sound="aac", seconds=6.0))).audio_samples == 96_256


@pytest.mark.parametrize(
    ("form", "codec", "rate"),
    [
        ("mp4", "alac", 44_100),
        ("mp4", "flac", 48_000),
        ("mp4", "libopus", 48_000),
        ("mp4", "libmp3lame", 44_100),
        ("mp4", "ac3", 48_000),
        ("mov", "pcm_s16le", 44_100),
        ("wav", "pcm_s16le", 16_000),
        ("wav", "pcm_f32le", 44_100),
        ("flac", "flac", 44_100),
        ("mp3", "libmp3lame", 44_100),
        ("mp3", "libmp3lame", 16_000),
        ("ogg", "libopus", 48_000),
    ],
)
def test_samples_of_other_sounds(form: str, codec: str, rate: int) -> None:
    assert not agree(make(Clip(frames=0, sound=codec, rate=rate, seconds=2.345, format=form))).estimated


@pytest.mark.parametrize("bframes", [0, 2])
@pytest.mark.parametrize("span", [(0.0, 2.0), (1.3, 4.0), (2.5, 5.9), (0.033, 0.5)])
def test_a_piece_cut_without_encoding_hides_its_lead_in(bframes: int, span: tuple[float, float]) -> None:
    whole = make(Clip(frames=180, bframes=bframes, gop=30, sound="aac", seconds=6.0, rate=48_000))
    facts = agree(copy_cut(whole, *span))
    assert facts.estimated or span[0] == 0.0


@pytest.mark.parametrize("sound", [False, True])
def test_any_edit_list(sound: bool) -> None:
    rng = random.Random(7)
    clip = (
        Clip(frames=0, sound="aac", rate=48_000, seconds=2.0) if sound else Clip(frames=60, bframes=2, gop=15)
    )
    content, ticks = make(clip), 96_000 if sound else 30_720
    for _ in range(15):
        edits = [
            (rng.randrange(1, 2200), rng.choice([-1, 0, rng.randrange(ticks)]))
            for _ in range(rng.randint(1, 3))
        ]
        changed = with_edits(content, edits)
        facts, truth = facts_of(changed), decode(changed)
        assert (facts.frames, facts.audio_samples) == (truth.frames, truth.samples), edits


def test_fragments_are_counted_and_called_an_estimate() -> None:
    content = make(Clip(frames=50, sound="aac", options={"movflags": "frag_keyframe+empty_moov"}))
    assert agree(content).estimated


@pytest.mark.parametrize("form", ["matroska", "avi"])
def test_containers_without_tables_are_estimated(form: str) -> None:
    codec = "mpeg4" if form == "avi" else "libx264"
    facts = facts_of(
        make(Clip(frames=45, codec=codec, sound="libmp3lame", rate=48_000, seconds=1.5, format=form))
    )
    assert facts.kind == "video"
    assert facts.estimated
    assert (facts.width, facts.height) == (64, 48)
    assert abs(facts.frames - 45) <= 1
    assert facts.seconds == pytest.approx(1.5, abs=0.1)


def test_a_clip_without_sound_is_known(files: Path) -> None:
    assert facts_of(make(Clip())).audio_samples == 0
    assert facts_of((files / "audio-only.mp4").read_bytes()).audio_samples == 45_056  # written by faac


def test_a_turned_clip(turned_clip: bytes, clip: bytes) -> None:
    assert facts_of(clip).orientation == 1
    turned = facts_of(turned_clip)
    assert turned.orientation == 6
    assert turned.upright == (turned.height, turned.width)


@pytest.mark.parametrize("where", [0.2, 0.6, 0.98])
@pytest.mark.parametrize("fast", [False, True])
def test_a_clip_that_is_cut_off(where: float, fast: bool, tmp_path: Path) -> None:
    options = {"movflags": "faststart"} if fast else {}
    content = make(Clip(frames=60, options=options, size=(320, 240)), tmp_path / "a.mp4" if fast else None)
    facts = facts_of(content[: int(len(content) * where)])
    assert (facts.kind, facts.problem) == ("video", "truncated")


def picture(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (123, 45), 5).save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_pictures(kind: str) -> None:
    content = picture(kind)
    facts = facts_of(content)
    assert (facts.kind, facts.width, facts.height, facts.frames) == ("image", 123, 45, 1)
    assert (facts.orientation, facts.problem, facts.estimated) == (1, "", False)
    if kind not in {"TIFF", "AVIF"}:
        assert facts_of(content[:-20]).problem == "truncated"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", [2, 6, 8])
def test_orientation(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    content = picture(kind, exif=exif) if kind != "TIFF" else picture(kind, tiffinfo={0x112: orientation})
    assert facts_of(content).orientation == orientation
    assert facts_of(content).upright == ((45, 123) if orientation > 4 else (123, 45))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "TIFF"])
def test_animations_and_pages(kind: str) -> None:
    more = [Image.new("RGB", (123, 45), colour) for colour in ("red", "blue")]
    assert facts_of(picture(kind, save_all=True, append_images=more)).frames == 3


def test_a_camera_that_writes_behind_the_end_of_its_jpeg() -> None:
    assert facts_of(picture("JPEG") + bytes(10_000)).problem == ""


@pytest.mark.parametrize(
    ("content", "mime", "problem"),
    [
        (b"", "", "empty"),
        (b"hello, this is text", "", "unknown_format"),
        (b"<?xml version='1.0'?><svg width='4'/>", "image/svg+xml", "unsupported"),
        (b"%PDF-1.7", "application/pdf", "unsupported"),
        (b"\0\0\0\x18ftypheic", "image/heic", "unsupported"),
        (b"\x89PNG\r\n\x1a\n", "image/png", "damaged"),
    ],
)
def test_what_cannot_be_used_says_why(content: bytes, mime: str, problem: str) -> None:
    facts = facts_of(content)
    assert (facts.mime, facts.problem) == (mime, problem)


@given(st.integers(0, 400), st.integers(0, 255), st.sampled_from([0, 1, 2]))
def test_no_bytes_make_it_raise(place: int, value: int, which: int) -> None:
    files = (_CLIP, _PNG, _JPEG)
    content = bytearray(files[which])
    content[-(place % len(content)) - 1 if which == 0 else place % len(content)] = value
    facts = facts_of(bytes(content))
    assert facts.frames >= 0
    assert facts.audio_samples >= 0


_CLIP = make(Clip(frames=3, sound="aac", seconds=0.2))
_PNG, _JPEG = picture("PNG"), picture("JPEG")


def test_a_table_that_claims_billions_costs_nothing() -> None:
    content = bytearray(make(Clip(frames=3)))
    for name in (b"stts", b"stsz"):
        at = content.index(name) + 12
        content[at : at + 4] = b"\xff\xff\xff\x00"
    began = time.perf_counter()
    facts_of(bytes(content))
    assert time.perf_counter() - began < 0.5


def test_base64_is_decoded_only_where_it_is_read(clip: bytes) -> None:
    text = base64.b64encode(clip + bytes(1_700_000))
    seen = 0

    def read_text(start: int, end: int) -> bytes:
        nonlocal seen
        seen += end - start
        return text[start:end]

    declared, facts = read_text_facts(read_text, len(text))
    assert declared == ""
    assert facts == facts_of(clip + bytes(1_700_000))
    assert seen < 40_000


@pytest.mark.parametrize("head", ["data:video/mp4;base64,", "DATA:video/mp4;x=y;base64,", ""])
def test_data_uris(head: str, clip: bytes) -> None:
    text = head.encode() + base64.b64encode(clip)
    declared, facts = read_text_facts(lambda start, end: text[start:end], len(text))
    assert declared == ("video/mp4" if head else "")
    assert facts == facts_of(clip)


@pytest.mark.parametrize(
    "text", [b"data:image/png,abcd", b"AAAA!AAA", b"AAA", b"data:image/png;base64,A\nAA"]
)
def test_what_is_no_base64(text: bytes) -> None:
    assert read_text_facts(lambda start, end: text[start:end], len(text))[1].problem == "not_base64"


def test_a_clip_as_pictures() -> None:
    text = b"data:video/jpeg;base64," + b",".join([base64.b64encode(_JPEG)] * 5)
    declared, facts = read_text_facts(lambda start, end: text[start:end], len(text))
    assert (declared, facts.kind, facts.frames, facts.width) == ("video/jpeg", "video", 5, 123)


def test_a_file_is_read_like_bytes(tmp_path: Path, clip: bytes) -> None:
    (tmp_path / "clip.mp4").write_bytes(clip)
    with (tmp_path / "clip.mp4").open("rb") as file:
        assert read_facts(FileSource(file)) == facts_of(clip)


def test_the_facts_of_a_large_body_take_less_than_two_milliseconds(clip: bytes) -> None:
    text = base64.b64encode(clip + bytes(1_200_000))
    best = 1.0
    for _ in range(20):
        began = time.perf_counter()
        read_text_facts(lambda start, end: text[start:end], len(text))
        best = min(best, time.perf_counter() - began)
    assert best < 0.002


def _exif(count: int) -> bytes:
    return b"MM\0*\0\0\0\x08" + struct.pack(">H", count) + bytes(12 * count)


def _hostile(kind: str) -> bytes:
    """Headers that cost much to read: the same thing very many times, and a list that begins anew."""
    if kind == "png":
        piece = struct.pack(">I", 65_000) + b"eXIf" + _exif(5000).ljust(65_000, b"\0") + bytes(4)
        header = struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 64, 64) + bytes(9)
        return b"\x89PNG\r\n\x1a\n" + header + piece * 60 + b"\0\0\0\0IEND\xaeB`\x82"
    if kind == "jpeg":
        piece = b"\xff\xe1\xff\xff" + (b"Exif\0\0" + _exif(5000)).ljust(65_533, b"\0")
        return b"\xff\xd8" + piece * 60 + b"\xff\xc0\0\x11\x08\0\x40\0\x40\3\xff\xd9"
    entries = 65_535
    return b"II*\0" + struct.pack("<IH", 8, entries) + bytes(entries * 12) + struct.pack("<I", 8)


@pytest.mark.parametrize("kind", ["png", "jpeg", "tiff"])
def test_hostile_headers_cost_little(kind: str) -> None:
    text = base64.b64encode(_hostile(kind))
    source = Base64Source(lambda start, end: text[start:end], len(text))
    read_facts(source)
    began = time.process_time()
    read_facts(source)
    assert time.process_time() - began < 0.05
