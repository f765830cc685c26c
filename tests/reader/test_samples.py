"""What the reader measures on the samples, against the truth that their maker wrote down."""

from __future__ import annotations

from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dabom.media import Sampling, read_picture, read_sound
from dabom.reader.watching import watch

if TYPE_CHECKING:
    from dabom.reader.findings import Span, Watched
    from dabom.reader.listening import Listener
    from dabom.reader.text import TextReader

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture(scope="module")
def watched(truth: dict[str, Any], text_reader: TextReader, listener: Listener) -> list[Watched]:
    files = [SAMPLES / clip["file"] for clip in truth["clips"]]
    return [watch(file.read_bytes(), Sampling(), text_reader, listener) for file in files]


def likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one.replace(" ", ""), other.replace(" ", "")).ratio()


def covered(spans: list[Span], start_s: float, end_s: float) -> float:
    """The share of a stretch that the spans cover."""
    shared = sum(max(0.0, min(span.end_s, end_s) - max(span.start_s, start_s)) for span in spans)
    return shared / (end_s - start_s)


def test_every_caption_is_read_at_its_time(truth: dict[str, Any], watched: list[Watched]) -> None:
    for clip, seen in zip(truth["clips"], watched, strict=True):
        for caption in [*clip["captions"], {"text": clip["logo"], "start_s": 0.0, "end_s": 6.0}]:
            best = max(seen.captions, key=lambda found: likeness(found.text, caption["text"]))
            assert likeness(best.text, caption["text"]) >= 0.9, (clip["file"], caption["text"])
            assert abs(best.start_s - caption["start_s"]) <= 0.5
            assert abs(best.end_s - caption["end_s"]) <= 0.5


def test_nothing_is_read_that_is_not_there(truth: dict[str, Any], watched: list[Watched]) -> None:
    for clip, seen in zip(truth["clips"], watched, strict=True):
        shown = [caption["text"] for caption in clip["captions"]] + [clip["logo"]]
        for found in seen.captions:
            assert max(likeness(found.text, text) for text in shown) >= 0.8, found


def test_cuts_are_found_and_no_others(truth: dict[str, Any], watched: list[Watched]) -> None:
    for clip, seen in zip(truth["clips"], watched, strict=True):
        assert seen.cuts_s == pytest.approx(clip["cuts_s"], abs=0.1), clip["file"]


def test_speech_is_found_where_it_is_and_nowhere_else(truth: dict[str, Any], watched: list[Watched]) -> None:
    for clip, seen in zip(truth["clips"], watched, strict=True):
        assert seen.heard is not None
        said = clip["speech"]
        assert bool(seen.heard.speech) == bool(said), clip["file"]
        for stretch in said:
            assert covered(seen.heard.speech, stretch["start_s"], stretch["end_s"]) > 0.75
        for span in seen.heard.speech:
            assert any(span.start_s < each["end_s"] and span.end_s > each["start_s"] for each in said)


def test_silence_after_the_last_sentence_is_heard(truth: dict[str, Any], watched: list[Watched]) -> None:
    heard = watched[-1].heard
    assert heard is not None
    end_of_speech = truth["clips"][-1]["speech"][-1]["end_s"]
    assert covered(heard.silences, end_of_speech + 0.2, 5.9) > 0.95
    assert heard.silence_share > 0.4


def test_black_picture_with_the_same_speech(
    truth: dict[str, Any], watched: list[Watched], text_reader: TextReader, listener: Listener
) -> None:
    black = watch((SAMPLES / truth["blackout"]["file"]).read_bytes(), Sampling(), text_reader, listener)
    assert black.light.black
    assert black.black_frames == black.sampled == 12
    assert black.captions == []
    assert black.cuts_s == []
    assert black.heard is not None
    assert watched[0].heard is not None
    assert black.heard.speech == watched[0].heard.speech


def test_still_and_sound(truth: dict[str, Any], text_reader: TextReader, listener: Listener) -> None:
    picture = read_picture((SAMPLES / truth["still"]["file"]).read_bytes())
    lines = text_reader.read_picture(picture.image)
    assert [line.text for line in lines] == [truth["still"]["logo"], *truth["still"]["captions"]]
    left, top, right, bottom = lines[1].box
    assert 0 <= left < 40
    assert right < 420
    assert 280 < top < bottom < 345
    sound = read_sound((SAMPLES / truth["sound"]["file"]).read_bytes())
    assert sound is not None
    stretch = truth["sound"]["speech"][0]
    assert covered(listener.listen(sound).speech, stretch["start_s"], stretch["end_s"]) > 0.75


def test_samples_are_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 3_000_000
