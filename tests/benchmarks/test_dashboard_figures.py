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
from mailboat.api.records import StatusView
from support.browser import chromium
from support.fake_control import FakeControl, FakeSubscriber
from yardstick import Pace

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
    """CPU of this process, where the server is, by seconds: without the samples of the pace, and at its reference."""
    control = FakeControl(*(FakeSubscriber(f"edge-{n}") for n in range(SUBSCRIBERS)))
    server = serve(control)
    shares, pause = list[float](), threading.Event()
    with dashboards(server.url), Pace(0.5) as pace:
        while server.connections < DASHBOARDS:
            pause.wait(0.05)
        pause.wait(1.0)  # the first snapshots are sent
        for second in range(bench.length(5, 30)):
            began, cpu = time.monotonic(), time.process_time() - pace.cpu_seconds
            for number in range(CHANGES_PER_SECOND):
                control.subscribers[f"edge-{second * CHANGES_PER_SECOND + number}"].next_offset += 1
                pause.wait(1 / CHANGES_PER_SECOND)
            shares.append(100 * (time.process_time() - pace.cpu_seconds - cpu) / (time.monotonic() - began))
    share = statistics.median(shares) / pace.slowness
    facts = {"dashboards": DASHBOARDS, "subscribers": SUBSCRIBERS, "slowness": round(pace.slowness, 2)}
    bench.report_count("open_dashboards", share, target=5.0, unit="% of a core", **facts)


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


class CountedControl(FakeControl):
    """Counts how often its status was read."""

    looks = 0

    def status(self) -> StatusView:
        self.looks += 1
        return super().status()


def test_event_reaches_a_client_soon(bench: Any, serve: Any) -> None:
    """The first read of the status that begins after a change brings it; there are two a second."""
    control = CountedControl(*(FakeSubscriber(f"edge-{n}") for n in range(SUBSCRIBERS)))
    looks, seconds = list[int](), list[float]()
    with HttpControl(serve(control).url) as client:
        stream = client.events()
        next(stream)
        for number in range(bench.length(5, 50)):
            began, before = time.monotonic(), control.looks
            control.subscribers[f"edge-{number}"].next_offset += 1
            assert next(stream).data["name"] == f"edge-{number}"
            looks.append(control.looks - before)
            seconds.append(round(time.monotonic() - began, 2))
        stream.close()
    facts = {"subscribers": SUBSCRIBERS, "seconds": statistics.median(seconds)}
    bench.report_count("event_to_client", statistics.median(looks), target=1, unit="reads of the status", **facts)
