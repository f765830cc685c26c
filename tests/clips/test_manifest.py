from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dabom.clips import MANIFEST, Clip, add_line, read_manifest, write_manifest
from dabom.errors import InvalidMedia

if TYPE_CHECKING:
    from pathlib import Path

CLIP = Clip("0001_0600-0606.mp4", 600, 606, 60, 10, 640, 360, 96_256, 16_000, 9, "a", "b", "c")


def put(folder: Path, *names: str) -> list[Clip]:
    for name in names:
        (folder / name).write_bytes(b"clip")
    return [replace(CLIP, clip=name) for name in names]


def test_what_is_written_is_read_by_name(tmp_path: Path) -> None:
    first, second = put(tmp_path, "0001.mp4", "0002.mp4")
    second = replace(second, tokens={"qwen3-omni": {"video": 9, "audio": 9}}, problems=("no_sound",))
    add_line(tmp_path, second)
    add_line(tmp_path, first)
    assert read_manifest(tmp_path) == [first, second]
    write_manifest(tmp_path, [second, first])
    assert read_manifest(tmp_path) == [first, second]
    assert (tmp_path / MANIFEST).read_text().count("\n") == 2


def test_the_later_line_of_a_clip_holds(tmp_path: Path) -> None:
    (clip,) = put(tmp_path, "0001.mp4")
    add_line(tmp_path, clip)
    add_line(tmp_path, replace(clip, sha256="new"))
    assert [found.sha256 for found in read_manifest(tmp_path)] == ["new"]


def test_a_half_written_last_line_is_passed_over_and_cut_away_by_the_next(tmp_path: Path) -> None:
    first, second = put(tmp_path, "0001.mp4", "0002.mp4")
    add_line(tmp_path, first)
    with (tmp_path / MANIFEST).open("ab") as file:
        file.write(b'{"clip":"0002.mp4","sta')
    assert read_manifest(tmp_path) == [first]
    add_line(tmp_path, second)
    assert read_manifest(tmp_path) == [first, second]


def test_a_damaged_line_in_the_middle_is_told(tmp_path: Path) -> None:
    (clip,) = put(tmp_path, "0001.mp4")
    (tmp_path / MANIFEST).write_bytes(b"{}\n")
    add_line(tmp_path, clip)
    with pytest.raises(InvalidMedia, match="line 1 is no clip"):
        read_manifest(tmp_path)


def test_a_clip_that_is_not_there_is_not_listed(tmp_path: Path) -> None:
    add_line(tmp_path, CLIP)
    assert read_manifest(tmp_path) == []
    assert read_manifest(tmp_path / "nowhere") == []
