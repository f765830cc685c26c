from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.clips.stored import put_clips, stored_run

from dabom.clips import Clip, add_line, read_manifest
from dabom.clips.folder import sha256_of
from dabom.clips.purge import purge, read_age
from dabom.errors import ConfigError, StoreError
from dabom.store import open_audit, open_runs, verify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dabom.store import Runs

CLIP = Clip("", 600, 606, 60, 10, 640, 360, 96_256, 16_000, 9, "", "b", "c")
LATER = time.time() + 40 * 86_400


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    found = open_runs(str(tmp_path / "runs.db"))
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data/clips/news/kbs"
    put_clips(folder, "0001.mp4", "0002.mp4", "0003.mp4")
    for path in sorted(folder.glob("*.mp4")):
        add_line(folder, replace(CLIP, clip=path.name, sha256=sha256_of(path)))
    return folder


def chain(tmp_path: Path) -> list[dict[str, object]]:
    found = open_audit(str(tmp_path / "runs.db"), read_only=True)
    assert verify(found).fault_count == 0
    records = [json.loads(row.record) for row in found.rows()]
    found.close()
    return [record for record in records if record["kind"] == "purge"]


def test_an_old_run_goes_with_its_clips_and_is_told(runs: Runs, folder: Path, tmp_path: Path) -> None:
    run = stored_run(runs, folder.parents[1])
    (found,) = purge(runs, LATER, LATER)
    assert (found.run, len(found.media), found.media_bytes, found.items) == (run.id, 3, 3 * 1280, 3)
    assert runs.all() == []
    assert not folder.exists()
    assert not folder.parents[1].exists()
    assert (tmp_path / "data").exists()
    (record,) = chain(tmp_path)
    assert (record["run"], record["items"], record["media_removed"]) == (run.id, 3, 3)
    assert "앵커" not in json.dumps(record, ensure_ascii=False)


def test_a_dry_run_removes_nothing(runs: Runs, folder: Path, tmp_path: Path) -> None:
    stored_run(runs, folder)
    (found,) = purge(runs, LATER, LATER, dry_run=True)
    assert len(found.media) == 3
    assert len(runs.all()) == 1
    assert len(read_manifest(folder)) == 3
    open_audit(str(tmp_path / "runs.db")).close()
    assert chain(tmp_path) == []


def test_a_young_run_stays(runs: Runs, folder: Path) -> None:
    stored_run(runs, folder)
    assert purge(runs, time.time() - 30 * 86_400, time.time()) == []
    assert len(runs.all()) == 1


def test_what_is_not_the_clip_any_more_stays(runs: Runs, folder: Path) -> None:
    stored_run(runs, folder)
    (folder / "0001.mp4").write_bytes(b"another recording")
    (folder / "0002.mp4").unlink()
    (folder / "notes.txt").write_text("mine")
    (found,) = purge(runs, LATER, LATER)
    assert (len(found.media), found.changed, found.missing) == (1, 1, 1)
    assert sorted(path.name for path in folder.iterdir()) == ["0001.mp4", "manifest.jsonl", "notes.txt"]
    assert [clip.clip for clip in read_manifest(folder)] == ["0001.mp4"]
    assert (folder / "manifest.jsonl").read_text().count("\n") == 1


def test_what_a_younger_run_asks_about_stays(runs: Runs, folder: Path) -> None:
    old = stored_run(runs, folder)
    runs.set_state(old.id, "finished")
    time.sleep(0.01)
    limit = time.time()
    (folder / "0003.mp4").rename(folder.parent / "0003.mp4")
    young = stored_run(runs, folder)
    runs.set_state(young.id, "finished")
    (found,) = purge(runs, limit, time.time())
    assert (found.kept, found.missing, found.media) == (2, 1, ())
    assert [run.id for run in runs.all()] == [young.id]


def test_a_run_that_somebody_works_on_is_skipped(runs: Runs, folder: Path) -> None:
    run = stored_run(runs, folder)
    with runs.held(run.id):
        (found,) = purge(runs, LATER, LATER)
    assert "another process works on" in found.skipped
    assert len(runs.items(run.id)) == 3
    assert len(list(folder.glob("*.mp4"))) == 3


def test_a_purge_that_was_cut_off_is_finished_by_the_next(
    runs: Runs, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored_run(runs, folder)

    def broken(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "erase", broken)
        with pytest.raises(StoreError):
            purge(runs, LATER, LATER)
    (found,) = purge(runs, LATER, LATER)
    assert (found.missing, len(found.media)) == (3, 0)
    assert runs.all() == []
    assert len(chain(tmp_path)) == 1


@pytest.mark.parametrize(("text", "seconds"), [("12h", 43_200), ("30d", 2_592_000), ("2w", 1_209_600)])
def test_ages(text: str, seconds: int) -> None:
    assert read_age(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "1.5d", "-1d", "30 days"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="30d"):
        read_age(text)
