"""The search of the documentation site, in a browser: what operators look for first."""

from __future__ import annotations

import contextlib
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as BrowserTimeoutError
from support.browser import chromium, page_in

ROOT = Path(__file__).resolve().parents[2]
SEARCHES = {
    "unblock a subscriber": "unblock-a-subscriber",
    "add a region": "add-a-region",
    "back up and restore": "back-up-and-restore",
    "upgrade": "upgrade",
    "size a broker": "size-it",
    "subscriber blocked": "unblock-a-subscriber",
    "new region": "add-a-region",
    "backup": "back-up-and-restore",
    "sizing": "size-it",
    "restore": "back-up-and-restore",
}
"""The page of each. Neighbours have different ones, so that hits of the last search are not taken for the next ones."""

FOCUSED = """() => {
    let element = document.activeElement;
    while (element?.shadowRoot) element = element.shadowRoot.activeElement;
    return element?.tagName === "INPUT";
}"""


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    """The URL of the built site."""
    subprocess.run([sys.executable, "tools/build_site.py"], cwd=ROOT, check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(ROOT / "build/site")))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def open_search(page: Page) -> None:
    """Press the key until a script listens to it: on a slow machine that is after the network is idle."""
    for _ in range(10):
        page.keyboard.press("Control+k")
        with contextlib.suppress(BrowserTimeoutError):
            page.wait_for_function(FOCUSED, timeout=10_000)
            return
    raise AssertionError("the search was not opened")


def check_first_hit(page: Page, words: str, name: str) -> None:
    page.keyboard.press("Control+a")
    page.keyboard.type(words)
    hit = page.locator(f'a[href*="?h={words.replace(" ", "+")}"]').filter(visible=True).first
    expect(hit).to_have_attribute("href", re.compile(rf"/how-to/{name}\.html"))


@pytest.mark.long("docs-search")
def test_the_first_hit_of_a_search_is_the_page_that_answers_it(site: str) -> None:
    with chromium() as browser, page_in(browser) as page:
        page.goto(f"{site}index.html", wait_until="networkidle")
        open_search(page)
        for words, name in SEARCHES.items():
            check_first_hit(page, words, name)
