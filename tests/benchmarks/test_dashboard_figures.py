"""What open dashboards cost an agent, and how long an event takes to reach them: 50 pages, 500 subscribers."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from mailboat.api.client import HttpControl
from support.browser import chromium
from support.fake_control import FakeControl, FakeSubscriber

DASHBOARDS: Final = 50
SUBSCRIBERS: Final = 500
CHANGES_PER_SECOND: Final = 4

READER: Final = """
import socket, sys, threading
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def read():
    client = socket.create_connection((host, port))
    head = f"Host: {host}:{port}\\r\\nAccept-Encoding: gzip"
    client.sendall(f"GET /api/v1/events HTTP/1.1\\r\\n{head}\\r\\n\\r\\n".encode())
    while client.recv(65536): pass
for _ in range(count): threading.Thread(target=read, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def dashboards(url: str) -> Iterator[None]:
    """Clients that read the event stream, in a process of their own."""
    host, port = url.removeprefix("http://").split(":")
    command = [sys.executable, "-c", READER, host, port, str(DASHBOARDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()


def test_open_dashboards_cost_little(bench: Any, serve: Any) -> None:
    control = FakeControl(*(FakeSubscriber(f"edge-{n}") for n in range(SUBSCRIBERS)))
    server = serve(control)
    seconds, pause = float(bench.length(4, 30)), threading.Event()
    with dashboards(server.url):
        while server.connections < DASHBOARDS:
            pause.wait(0.05)
        pause.wait(1.0)  # the first snapshots are sent
        began, cpu = time.monotonic(), time.process_time()
        number = 0
        while time.monotonic() - began < seconds:
            control.subscribers[f"edge-{number % SUBSCRIBERS}"].next_offset += 1
            number += 1
            pause.wait(1 / CHANGES_PER_SECOND)
        share = 100 * (time.process_time() - cpu) / (time.monotonic() - began)
    bench.report_count(
        "open_dashboards", share, target=5.0, gate=8.0, unit="% of a core", dashboards=DASHBOARDS, subscribers=500
    )


WATCH: Final = """
  window.seen = {};
  const look = () => {
    const now = performance.now();
    if (!seen.content && document.querySelector("nav a")) seen.content = now;
    if (seen.tiles || document.querySelectorAll(".tiles li").length < %d) return;
    // after the frame is painted
    requestAnimationFrame(() => setTimeout(() => { seen.tiles ??= performance.now(); }));
  };
  new MutationObserver(look).observe(document, {childList: true, subtree: true});
"""
"""Taken in the page: Playwright looks up to half a second apart."""


def test_first_content_on_a_slow_line(bench: Any, serve: Any) -> None:
    """1.6 Mbit/s with 150 ms per round trip, as browsers call fast 3G: until the page stands, and all subscribers."""
    url = serve(FakeControl(*(FakeSubscriber(f"edge-{n}") for n in range(SUBSCRIBERS)))).url
    samples, whole = list[float](), list[float]()
    with chromium() as browser:
        for _ in range(bench.length(2, 10)):
            context = browser.new_context()
            page = context.new_page()
            line = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 200_000}
            context.new_cdp_session(page).send("Network.emulateNetworkConditions", line)
            page.add_init_script(WATCH % SUBSCRIBERS)
            page.goto(url, wait_until="commit")
            page.get_by_label("Subscribers, those that need attention").locator("li").nth(SUBSCRIBERS - 1).wait_for()
            page.get_by_text("Page 1 of").wait_for()
            seen = page.evaluate("new Promise((done) => setTimeout(() => done(window.seen), 200))")
            samples.append(seen["content"] / 1000)
            whole.append(seen["tiles"] / 1000)
            context.close()
    bench.report_count("first_topology", min(whole), target=1.5, gate=4.0, unit="s", subscribers=SUBSCRIBERS)
    bench.report_count("first_content", min(samples), target=1.0, gate=3.0, unit="s", subscribers=SUBSCRIBERS)


def test_event_reaches_a_client_soon(bench: Any, serve: Any) -> None:
    control = FakeControl(*(FakeSubscriber(f"edge-{n}") for n in range(SUBSCRIBERS)))
    samples = []
    with HttpControl(serve(control).url) as client:
        stream = client.events()
        next(stream)
        for number in range(bench.length(5, 50)):
            began = time.monotonic()
            control.subscribers[f"edge-{number}"].next_offset += 1
            assert next(stream).data["name"] == f"edge-{number}"
            samples.append(time.monotonic() - began)
        stream.close()
    bench.report_count(
        "event_to_client", statistics.median(samples), target=1.0, gate=3.0, unit="s", subscribers=SUBSCRIBERS
    )
