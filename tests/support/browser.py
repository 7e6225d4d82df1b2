"""Debian's Chromium, driven by Playwright, and axe-core, which looks for barriers in a page.

axe-core is one file of an npm package. `npm pack` fetches the package once into the cache; its digest stands here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from mailboat.testing.wait import PATIENCE_SECONDS
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support.machine_cache import filled_once

AXE_VERSION: Final = "4.14.1"
AXE_SHA256: Final = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
_AXE_FILE: Final = "package/axe.min.js"
_PATIENCE_MS: Final = PATIENCE_SECONDS * 1000


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser, closed at the end. What a page is expected to show may take as long as on a busy machine."""
    program = shutil.which("chromium")
    assert program is not None, "Chromium is missing (Debian: apt-get install chromium)"
    expect.set_options(timeout=_PATIENCE_MS)  # Playwright's default, 5 seconds, is too short for one busy core
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--host-resolver-rules=MAP rebound.example 127.0.0.1",
            ],
        )
        yield browser
        browser.close()


@contextmanager
def page_in(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page in a context of its own, without transitions: colours are final when axe-core measures them."""
    context = browser.new_context(reduced_motion="reduce", **options)
    try:
        context.set_default_timeout(_PATIENCE_MS)
        yield context.new_page()
    finally:
        context.close()


@cache
def axe_source() -> str:
    """The script of axe-core, from the cache."""
    archive = filled_once(f"axe-core-{AXE_VERSION}", _pack_axe) / f"axe-core-{AXE_VERSION}.tgz"
    with tarfile.open(archive) as opened:
        file = opened.extractfile(_AXE_FILE)
        assert file is not None
        return file.read().decode()


def _pack_axe(folder: Path) -> None:
    command = ["npm", "pack", "--silent", f"axe-core@{AXE_VERSION}", "--pack-destination", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    archive = folder / f"axe-core-{AXE_VERSION}.tgz"
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == AXE_SHA256, f"{archive} is not the package that is known"


def barriers(page: Page) -> list[str]:
    """What axe-core finds wrong with the page as it is shown; each rule with the elements concerned."""
    page.evaluate(axe_source())  # evaluated by the browser's debugger, which no content security policy concerns
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {[node['html'][:160] for node in violation['nodes'][:3]]}"
        for violation in found["violations"]
    ]


def save(page: Page, name: str) -> None:
    """Keep a screenshot where the documentation is generated; nothing in a test run."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        page.wait_for_timeout(2_500)
        page.screenshot(path=str(Path(folder) / f"dashboard-{name}.png"), full_page=True)
