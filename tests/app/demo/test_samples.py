from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dabom.app.demo import find_samples
from dabom.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_reads_the_layout_of_the_seed(samples_root: Path) -> None:
    samples = find_samples(samples_root)
    assert [clip.stem[:4] for clip in samples.clips] == ["0001", "0002", "0003"]
    assert samples.black is not None
    assert samples.first.stem == samples.black.stem == "0002_0006-0012"
    assert samples.first.parent.parent.parent.name == "clips"


def test_takes_clips_in_a_row_of_one_film(samples_root: Path) -> None:
    other = samples_root / "clips" / "baseball" / "b"
    other.mkdir(parents=True)
    (other / "0001_0000-0006.mp4").write_bytes(b"x")
    assert {clip.parent.name for clip in find_samples(samples_root).clips} == {"n"}
    for number in range(20):
        (samples_root / "clips" / "news" / "n" / f"9{number:03d}.mp4").write_bytes(b"x")
    assert len(find_samples(samples_root).clips) == 12


def test_the_repositorys_own_are_found() -> None:
    samples = find_samples()
    assert len(samples.clips) >= 5
    assert samples.black is not None


def test_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no clips found"):
        find_samples(tmp_path)
    (tmp_path / "clips").mkdir()
    with pytest.raises(ConfigError, match=r"holds no \.mp4 file"):
        find_samples(tmp_path)
