"""What open dashboards cost an agent, and how long an event takes to reach them: 50 pages, 500 subscribers."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from mailboat.api.client import HttpControl
from mailboat.api.records import StatusView
from mailboat.model.requests import parse_request
from playwright.sync_api import Browser, expect
from support.browser import chromium, page_in
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
    requestAnimationFrame(() => setTimeout(() => { seen.tiles ??= performance.now(); window.painted?.(); }));
  };
  new MutationObserver(look).observe(document, {childList: true, subtree: true});
"""
"""Taken in the page: Playwright looks up to half a second apart."""


SCRIPT: Final = """
  document.body.innerHTML = `<nav><a href="/"></a></nav><ul class="tiles">${"<li>".repeat(COUNT)}</ul>`;
""".replace("COUNT", str(SUBSCRIBERS))
BARE: Final = {
    "/": ("text/html", '<!doctype html><script type="module" src="/script.js"></script>'),
    "/script.js": ("text/javascript", SCRIPT),
}
"""A page that shows as much with the least: a script, and no request for data."""


@contextmanager
def bare_page() -> Iterator[str]:
    """Serves it; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, text = BARE.get(self.path, ("text/plain", ""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def seconds_on_a_slow_line(browser: Browser, url: str) -> tuple[float, float]:
    """1.6 Mbit/s with 150 ms per round trip, as browsers call fast 3G: until the page stands, and all subscribers."""
    with page_in(browser) as page:
        line = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 200_000}
        page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", line)
        page.add_init_script(WATCH % SUBSCRIBERS)
        page.goto(url, wait_until="commit")
        seen = page.evaluate(
            "new Promise((done) => { window.painted = () => done(seen); window.seen.tiles && done(seen); })"
        )
        return seen["content"] / 1000, seen["tiles"] / 1000


def transferred_bytes(browser: Browser, url: str) -> int:
    """What a first load brings, with heads and the first events, until all subscribers are shown."""
    sizes: dict[str, int] = {}
    with page_in(browser) as page:
        session = page.context.new_cdp_session(page)
        # a stream never finishes: its parts count as they come
        session.on("Network.responseReceived", lambda one: add(sizes, one, one["response"]["encodedDataLength"]))
        session.on("Network.dataReceived", lambda one: add(sizes, one, one["encodedDataLength"]))
        session.on("Network.loadingFinished", lambda one: sizes.update({one["requestId"]: one["encodedDataLength"]}))
        session.send("Network.enable")
        page.goto(url)
        expect(page.locator(".tiles li")).to_have_count(SUBSCRIBERS)
        page.wait_for_timeout(500)
    return round(sum(sizes.values()))


def add(sizes: dict[str, int], event: Any, count: int) -> None:
    sizes[event["requestId"]] = sizes.get(event["requestId"], 0) + count


def test_first_content_on_a_slow_line(bench: Any, serve: Any) -> None:
    """A bare page next to each of ours, so that a busy machine slows both; the least of the samples of each."""
    url = serve(FakeControl(*(FakeSubscriber(f"edge-{n}") for n in range(SUBSCRIBERS)))).url
    ours, bare = list[tuple[float, float]](), list[tuple[float, float]]()
    with chromium() as browser, bare_page() as floor:
        for _ in range(bench.length(3, 10)):
            bare.append(seconds_on_a_slow_line(browser, floor))
            ours.append(seconds_on_a_slow_line(browser, url))
        kilobytes = transferred_bytes(browser, url) / 1000
    bench.report_count("first_load", kilobytes, target=200, unit="kB", subscribers=SUBSCRIBERS)
    for name, which, target, gate in (("first_topology", 1, 3.0, 6.0), ("first_content", 0, 2.0, 4.0)):
        seconds, least = min(sample[which] for sample in ours), min(sample[which] for sample in bare)
        facts = {"subscribers": SUBSCRIBERS, "seconds": round(seconds, 2), "bare": round(least, 2)}
        bench.report_count(name, seconds / least, target=target, gate=gate, unit="x a bare page", **facts)


NEXT_CHANGE: Final = """(name) => {
  const tile = () => document.querySelector(`.tiles a[href$="/${name}"]`)?.closest("li").outerHTML;
  const before = tile();
  window.changed = new Promise((done) => {
    const observer = new MutationObserver(() => {
      if (tile() === before) return;
      observer.disconnect();
      requestAnimationFrame(() => setTimeout(() => done(Date.now() / 1000))); // after the frame is painted
    });
    observer.observe(document, {childList: true, subtree: true, attributes: true, characterData: true});
  });
}"""


def test_event_reaches_an_open_page_soon(bench: Any, serve: Any) -> None:
    """From the change in the agent until a page with all subscribers has painted it."""
    control = FakeControl(*(FakeSubscriber(f"edge-{n}") for n in range(SUBSCRIBERS)))
    for number in range(3):
        control.distribute("author", parse_request("ADD", (f"/page-{number}",)))
    seconds = list[float]()
    with chromium() as browser, page_in(browser) as page:
        page.goto(serve(control).url)
        expect(page.locator(".tiles li")).to_have_count(SUBSCRIBERS)
        for number in range(bench.length(7, 50)):
            page.evaluate(NEXT_CHANGE, f"edge-{number}")
            page.wait_for_timeout(70 * number % 500)  # at any moment between two reads of the status
            began = time.time()
            control.subscribers[f"edge-{number}"].next_offset = 3
            seconds.append(page.evaluate("window.changed") - began)
    facts = {"subscribers": SUBSCRIBERS, "most": round(max(seconds), 2)}
    bench.report_count("event_to_page", statistics.median(seconds), target=1.0, gate=2.0, unit="s", **facts)


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
