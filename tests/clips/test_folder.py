from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from dabom.clips import Clip, add_line
from dabom.clips.folder import add_controls, category_of, find_items
from dabom.errors import InvalidMedia

CLIP = Clip(
    "0001.mp4", 600, 606, 60, 10, 640, 360, 96_256, 16_000, 9, "sha", "b", "c", {"qwen3-omni": {"video": 9}}
)


def put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def test_any_folder_of_mp4_files_will_do(tmp_path: Path) -> None:
    put(tmp_path, "b/2.mp4", "b/1.mp4", "a/0.mp4", "top.mp4", "a/notes.txt", ".hidden/3.mp4", "a/.half.mp4")
    items = find_items(tmp_path)
    assert [item.name for item in items] == ["top", "a/0", "b/1", "b/2"]
    assert [item.position for item in items] == [0, 1, 2, 3]
    assert [item.category for item in items] == [tmp_path.name, "a", "b", "b"]
    assert items[1].sha256 == hashlib.sha256(b"a/0.mp4").hexdigest()
    assert items[1].file == "a/0.mp4"


def test_a_manifest_tells_about_its_clips_and_controls(tmp_path: Path) -> None:
    put(tmp_path, "0001.mp4", "0002.mp4", "black/0001.mp4")
    add_line(tmp_path, CLIP)
    add_line(tmp_path / "black", replace(CLIP, control="blackout", origin="0001.mp4", sha256="other"))
    known, unlisted, control = find_items(tmp_path)
    assert (known.sha256, known.facts["start_s"], known.facts["end_s"]) == ("sha", 600, 606)
    assert known.facts["tokens"] == {"qwen3-omni": {"video": 9}}
    assert (unlisted.name, unlisted.facts) == ("0002", {"bytes": 8})
    assert (control.name, control.control, control.origin, control.sha256) == (
        "black/0001",
        "blackout",
        "0001",
        "other",
    )


def test_controls_follow_every_so_many_clips(tmp_path: Path) -> None:
    put(tmp_path, *(f"{number}.mp4" for number in range(5)))
    items = add_controls(find_items(tmp_path), ["blackout", "mute"], 2)
    assert [item.name for item in items] == [
        *("0", "0#blackout", "0#mute", "1", "2", "2#blackout", "2#mute", "3", "4", "4#blackout", "4#mute")
    ]
    assert [item.position for item in items] == list(range(11))
    made = items[1]
    assert (made.control, made.origin, made.file, made.sha256) == ("blackout", "0", "0.mp4", items[0].sha256)
    assert made.facts["made"] is True


def test_a_folder_without_a_clip_is_told(tmp_path: Path) -> None:
    put(tmp_path, "a.mov")
    with pytest.raises(InvalidMedia, match="holds no clip"):
        find_items(tmp_path)


@pytest.mark.parametrize(
    ("folder", "path", "category"),
    [
        ("/d/clips", "/d/clips/news/kbs/1.mp4", "news"),
        ("/d/clips/news", "/d/clips/news/kbs/1.mp4", "news"),
        ("/d/clips/news/kbs", "/d/clips/news/kbs/1.mp4", "news"),
        ("/d/clips", "/d/clips/1.mp4", "clips"),
        ("/d/x", "/d/x/docu/1.mp4", "docu"),
        ("/d/x", "/d/x/1.mp4", "x"),
    ],
)
def test_the_category_is_told_by_the_tree(folder: str, path: str, category: str) -> None:
    assert category_of(Path(folder), Path(path)) == category
