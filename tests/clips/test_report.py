from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright
from tests.clips.stored import answer, attempt, put_clips, stored_run

from dabom.cli.clips_report import _looker
from dabom.clips.report import Seen, report
from dabom.clips.report_words import WORDS, Language
from dabom.clips.results import read_results, summary
from dabom.media import picture_size
from dabom.media.strip import strip
from dabom.store import open_runs

if TYPE_CHECKING:
    from dabom.clips.results import Result
    from dabom.store import Run

CLIP = Path(__file__).parents[2] / "samples/clips/news/broadcast/0001_0000-0006.mp4"
EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>"


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Run, list[Result]]:
    put_clips(tmp_path / "clips/뉴스", "1.mp4", "2.mp4", "3.mp4", "4.mp4")
    runs = open_runs(str(tmp_path / "runs.db"))
    run = stored_run(runs, tmp_path / "clips", controls=("mute",), every=4)
    (control,) = [item for item in runs.items(run.id) if item.control]
    assert control.position == 1
    runs.record(run.id, attempt(2, answer(EVIL, speech="말한다")), "done")
    runs.record(run.id, replace(attempt(3, "", "invalid_media"), usage={"error": EVIL}), "failed")
    found = runs.find(run.id), read_results(runs, run)
    runs.close()
    return found


def page(kept: tuple[Run, list[Result]], language: Language = "ko", link: str | None = None) -> str:
    run, results = kept
    seen = Seen(strip(CLIP.read_bytes()), link)
    return "".join(report(run, results, summary(run, results), lambda _: seen, language))


def test_it_needs_nothing_from_outside(kept: tuple[Run, list[Result]]) -> None:
    html = page(kept)
    assert [link for link in re.findall(r'(?:src|href)="([^"]*)"', html) if link[0] != "#"] != []
    for link in re.findall(r'(?:src|href)="([^"]*)"', html):
        assert link.startswith(("data:image/jpeg;base64,", "#"))
    assert "@import" not in html
    assert "url(" not in html


def test_what_a_model_or_a_server_says_is_text(kept: tuple[Run, list[Result]]) -> None:
    html = page(kept)
    assert EVIL not in html
    assert html.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;") >= 2
    assert html.count("<script>") == 1


@pytest.mark.parametrize("language", ["ko", "en"])
def test_it_speaks_both_languages(kept: tuple[Run, list[Result]], language: Language) -> None:
    html = page(kept, language)
    side = 0 if language == "ko" else 1
    for key in ("title", "by_category", "codes", "times", "worst", "gallery", "scene"):
        assert WORDS[key][side] in html
        assert f">{WORDS[key][1 - side]}<" not in html
    assert f'<html lang="{language}">' in html


def test_the_worst_come_first(kept: tuple[Run, list[Result]]) -> None:
    listed = re.search(r"<ol>.*?</ol>", page(kept))
    assert listed is not None
    assert re.findall(r'href="#i(\d)"', listed[0]) == ["1", "3"]


def test_a_player_is_there_when_the_clip_lies_beside_the_report(
    kept: tuple[Run, list[Result]], tmp_path: Path
) -> None:
    run, results = kept
    (tmp_path / "clips/뉴스/1.mp4").write_bytes(CLIP.read_bytes())
    beside = _looker(run, tmp_path / "clips/report.html", lambda: None)(results[0])
    assert beside.link == "뉴스/1.mp4"
    assert beside.strip is not None
    assert _looker(run, tmp_path / "out/report.html", lambda: None)(results[0]).link is None
    assert _looker(run, tmp_path / "clips/report.html", lambda: None)(results[2]) == Seen()  # no clip
    assert "<video" not in page(kept)
    assert 'src="%EB%89%B4%EC%8A%A4/1.mp4"' in page(kept, link=beside.link)


def test_a_strip_is_a_few_frames_in_a_row() -> None:
    assert picture_size(strip(CLIP.read_bytes())) == (4 * 144, 81)


def test_it_fits_a_desk_and_a_phone(kept: tuple[Run, list[Result]], tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no Chromium on this machine; make setup installs it where it may")
    file = tmp_path / "report.html"
    file.write_text(page(kept), encoding="utf-8")
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium)
        for width in (1280, 390):
            tab = browser.new_page(viewport={"width": width, "height": 900})
            faults: list[object] = []

            def note(fault: object, faults: list[object] = faults) -> None:
                faults.append(fault)

            tab.on("console", note)
            tab.on("pageerror", note)
            tab.on("dialog", note)
            tab.goto(file.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            tab.select_option("select[name=state]", "failed")
            assert tab.locator(".item:visible").count() == 2
            assert faults == []
        browser.close()
