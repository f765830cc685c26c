from __future__ import annotations

import pytest

from dabom.clips.windows import Window, plan_windows, read_clock, read_name
from dabom.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"), [("600", 600), ("10:00", 600), ("1:02:03", 3723), ("0:01.5", 1.5), ("90.25", 90.25)]
)
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    assert read_clock(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "-5", "1:2:3:4", "1:", "5s"])
def test_what_is_no_time_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="is no time; write seconds"):
        read_clock(text)


def test_the_benchmark_window_has_a_hundred_clips_of_the_known_names() -> None:
    windows = plan_windows(600, 1200, 6, 2910)
    assert len(windows) == 100
    assert windows[0].name == "0001_0600-0606.mp4"
    assert windows[99].name == "0100_1194-1200.mp4"
    assert read_name("0100_1194-1200") == (1194, 1200)


def test_names_of_times_that_are_no_whole_seconds() -> None:
    name = Window(2, 0.5, 1.0).name
    assert name == "0002_0000.500-0001.mp4"
    assert read_name(name.removesuffix(".mp4")) == (0.5, 1)
    assert read_name("holiday") is None


def test_the_recording_ends_before_the_window_does() -> None:
    assert len(plan_windows(0, 600, 6, 20)) == 4
    assert len(plan_windows(0, None, 6, 18.01)) == 3
    assert len(plan_windows(0, 20, 6, 600)) == 3


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((10, 5, 6, 60), "is not after --start"),
        ((60, None, 6, 60), "after the end of the recording"),
        ((0, None, 6, None), "say where to stop with --end"),
        ((0, 3, 6, 60), "no room for a clip"),
        ((0, None, 0.01, 60), "at least 0.1 s"),
        ((0, None, 0.1, 1e6), "raise --every"),
    ],
)
def test_windows_that_cannot_be(asked: tuple[float, float | None, float, float | None], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan_windows(*asked)
