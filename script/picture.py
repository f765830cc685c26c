"""Runs `dabom demo --once --json` and draws its rows as the picture of the README, in English and Korean.

Needs Chromium and a Korean font. Run by `make picture`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import async_playwright

ROOT = Path(__file__).parents[1]
PICTURES = {"en": ROOT / "docs" / "images" / "demo.png", "ko": ROOT / "docs" / "images" / "demo.ko.png"}
HEADS = {
    "en": ("Item", "Route", "What is checked", "Result", "Verdict"),
    "ko": ("항목", "경로", "검증 내용", "핵심 결과", "판정"),
}
STYLE = """
body { margin: 0; background: #0f1720; }
main { display: inline-block; padding: 22px 26px; background: #0f1720; color: #d7dee7;
       font: 15px/1.5 'DejaVu Sans', 'NanumGothic', 'Noto Sans CJK KR', sans-serif; }
code { font: 14px 'DejaVu Sans Mono', monospace; color: #9fb4c7; }
table { border-collapse: collapse; width: 1120px; margin-top: 12px; }
th { text-align: left; color: #8fa3b5; font-weight: normal; border-bottom: 1px solid #3a4a5a; }
td { border-bottom: 1px solid #223040; vertical-align: top; }
th, td { padding: 7px 14px 7px 0; }
td { word-break: keep-all; }
td:first-child, td:last-child, td code { white-space: nowrap; }
.pass { color: #57d28f; font-weight: bold; }
.fail { color: #ff7b72; font-weight: bold; }
"""


def report(language: str) -> dict[str, Any]:
    """What the demo found, as it says it in that language."""
    with TemporaryDirectory() as out:
        command = [str(Path(sys.executable).with_name("dabom")), "demo", "--once", "--json"]
        command += ["--lang", language, "--out", out]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout.replace(out, "var/demo"))
    return found


def as_page(found: dict[str, Any], language: str) -> str:
    head = "".join(f"<th>{name}</th>" for name in HEADS[language])
    rows = ""
    for row in found["rows"]:
        verdict = "pass" if row["passed"] else "fail"
        cells = f"<td>{escape(row['item'])}</td><td><code>{escape(row['route'])}</code></td>"
        cells += f"<td>{escape(row['checks'])}</td><td>{escape(row['result'])}</td>"
        rows += f"<tr>{cells}<td class={verdict}>{verdict.upper()}</td></tr>"
    table = f"<table><tr>{head}</tr>{rows}</table>"
    return f"<!doctype html><style>{STYLE}</style><main><code>$ dabom demo --once</code>{table}</main>"


async def draw(page_text: str, picture: Path) -> None:
    chromium = shutil.which("chromium") or sys.exit("picture: Chromium is missing; run make setup")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=quiet)
        page = await browser.new_page(viewport={"width": 1300, "height": 900})
        await page.set_content(page_text)
        await page.locator("main").screenshot(path=picture)
        await browser.close()


def main() -> None:
    for language, picture in PICTURES.items():
        picture.parent.mkdir(parents=True, exist_ok=True)
        asyncio.run(draw(as_page(report(language), language), picture))
        print(f"wrote {picture.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
