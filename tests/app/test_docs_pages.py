"""The API pages in a real browser: they show the operations and ask nobody but the gateway."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, async_playwright

from dabom.testing import free_port, running_gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [  # without these the browser itself looks for its maker's servers
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP gateway.test 127.0.0.1, MAP * ~NOTFOUND",
]
OPERATIONS = ("/healthz", "/readyz", "/chat", "/chat/batch", "/v1/chat/completions", "/v1/models", "/metrics")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine; `make setup` installs it where it may"
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[str]:
    """A gateway of its own process in front of an upstream that is not there: the pages need none."""
    with running_gateway(f"http://127.0.0.1:{free_port()}/v1") as root:
        yield root.replace("127.0.0.1", "gateway.test")  # pages may behave otherwise on the loopback address


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        try:
            yield await browser.new_page(viewport={"width": 1280, "height": 1600})
        finally:
            await browser.close()


@pytest.mark.parametrize(
    ("path", "ready"), [("/docs", ".opblock-summary"), ("/redoc", "[data-section-id^='operation/']")]
)
async def test_page_shows_the_operations_and_asks_nobody_else(
    gateway: str, page: Page, path: str, ready: str
) -> None:
    asked: list[str] = []
    faults: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: faults.append(f"failed: {request.url}"))
    page.on("pageerror", lambda error: faults.append(f"script: {error}"))

    await page.goto(gateway + path)
    await page.wait_for_selector(ready, timeout=20_000)
    await page.wait_for_load_state("networkidle")
    text = await page.inner_text("body")
    if folder := os.environ.get("DABOM_SCREENSHOTS"):
        await page.screenshot(path=Path(folder) / f"{path.strip('/')}.png")

    assert [url for url in asked if not url.startswith((f"{gateway}/", "data:", "blob:"))] == []
    assert faults == []
    assert await page.locator(ready).count() >= len(OPERATIONS)
    if path == "/docs":
        shown = {
            span.replace("\u200b", "")
            for span in await page.locator(".opblock-summary-path").all_inner_texts()
        }
        assert set(OPERATIONS) <= shown, text
