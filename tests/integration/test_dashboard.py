"""The dashboard in a real browser: its views, actions, rights, size, barriers, hostile texts and broken connections."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any, NoReturn

import pytest
from aiohttp import web
from mailboat.api.confirmations import SUSPEND
from mailboat.api.dashboard_files import DASHBOARD_PATHS, dashboard_answer
from mailboat.api.records import (
    BuildFollowerView,
    BuildProgressView,
    BuildView,
    CauseView,
    GivenUpPage,
    StatusView,
)
from mailboat.clock import SystemClock, moment_of
from mailboat.config.document import HttpConfig, TokenConfig, Verb
from mailboat.config.storage import Secret
from mailboat.control.job_service import JobService
from mailboat.control.lag_history import SAMPLE_SECONDS, SAMPLES, LagHistory
from mailboat.errors import AgentUnreachableError, JournalUnavailableError
from mailboat.http import event_stream
from mailboat.journal.memory import MemoryJournal
from mailboat.model.jobs import NewJob, QueueSettings, parse_pattern, parse_topic
from mailboat.model.paths import parse_path
from mailboat.model.requests import parse_request
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat_operator.fleet_page import FleetPage, Look
from mailboat_operator.fleet_status import AgentState, merge_states
from playwright.sync_api import Browser, Page, Route, expect
from support.browser import barriers, chromium, page_in, save
from support.fake_control import FakeControl, FakeSubscriber

NOW = moment_of(1_767_225_600_000)
FIRST_LOAD_BYTES = 200_000
CAUSE = CauseView("StorageFull", "no space left on device", "/content/images", "Traceback\n  File x\nOSError: 28")
SILENT = AgentUnreachableError("no answer within 4 seconds")
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def alive_browser() -> Iterator[Callable[[], Browser]]:
    with ExitStack() as opened:
        running: Browser | None = None

        def alive() -> Browser:
            nonlocal running
            # It has died between two tests, and all later ones failed with it.
            if running is None or not running.is_connected():
                opened.close()
                running = opened.enter_context(chromium())
            return running

        yield alive


@pytest.fixture
def browser(alive_browser: Callable[[], Browser]) -> Browser:
    return alive_browser()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    faults: list[str] = []
    with page_in(browser, viewport={"width": 1280, "height": 900}) as shown:
        shown.on("pageerror", lambda error: faults.append(str(error)))
        shown.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
        yield shown
    assert faults == []


def fleet(count: int = 12) -> FakeControl:
    """A publisher with 30 packages, and subscribers of which one retries, one has given up a package, and some lag."""
    control = FakeControl(*(FakeSubscriber(f"edge-{n}") for n in range(1, count + 1)))
    for number in range(30):
        control.distribute("author", parse_request("ADD", (f"/content/page-{number}",), user_id="ops"))
    for number, one in enumerate(control.subscribers.values()):
        one.next_offset = 30 if number % 4 else 30 - number % 12
    control.subscribers["edge-1"].next_offset = 12
    control.subscribers["edge-1"].error = CAUSE
    control.give_up("edge-2", 20, CAUSE)
    return control


def job_service() -> JobService:
    clock = SystemClock()
    journal = MemoryJournal(clock)
    return JobService(lambda: journal, clock, random.Random(1))


def build(build_id: str) -> BuildView:
    follower = BuildFollowerView("edge-1", 30, "importing", pending=10)
    return BuildView(build_id, "author", "publishing", 40, 100, 12_000_000, 0, 39, NOW, NOW, (follower,))


def recorded_hour(control: FakeControl) -> LagHistory:
    """An hour in which everything was behind after a third of it, and caught up until the present state."""
    present, clock = control.status(), ManualClock(datetime.now(UTC) - timedelta(hours=1))
    behind = 0

    def status() -> StatusView:
        moved = [
            replace(subscriber, lag=(subscriber.lag or 0) + behind, next_offset=5_000 - behind)
            for subscriber in present.subscribers
        ]
        return replace(present, subscribers=tuple(moved))

    history = LagHistory(status, clock)
    for number in range(SAMPLES):
        behind = max(0, 20 * (number % 40 - 20)) if number < SAMPLES // 3 else max(0, 400 - 2 * (number - SAMPLES // 3))
        history.sample()
        clock.advance(SAMPLE_SECONDS - 0.05)
    return history


def test_overview_shows_a_change_without_reloading(page: Page, serve: Any) -> None:
    control = fleet()
    page.goto(serve(control, history=recorded_hour(control)).url)
    expect(page.get_by_label("Subscribers by state")).to_contain_text("12 subscribers")
    expect(page.get_by_role("img", name="Lag of all subscribers: now 30 packages, highest 4,8")).to_be_visible()
    expect(page.get_by_role("row", name="edge-1 18")).to_be_visible()
    assert barriers(page) == []
    save(page, "overview")
    control.subscribers["edge-1"].error = None
    control.subscribers["edge-1"].next_offset = 30
    expect(page.get_by_role("row", name="retrying")).to_have_count(0)


def test_subscriber_shows_what_blocks_it_and_its_queue_is_cleared(page: Page, serve: Any) -> None:
    control = fleet()
    page.goto(serve(control, history=recorded_hour(control)).url + "/#/subscribers/edge-1")
    expect(page.get_by_role("img", name="Lag: now 18 packages, highest 418 packages since")).to_be_visible()
    blocked = page.get_by_role("region", name="What blocks it").or_(page.get_by_role("region", name="What is retried"))
    expect(blocked).to_contain_text("StorageFull no space left on device")
    expect(blocked).to_contain_text("Meaning and next step")
    expect(page.get_by_role("table", name="Queue of author").get_by_role("row")).to_have_count(19)
    assert barriers(page) == []
    save(page, "subscriber")
    page.get_by_role("button", name="Clear queue…").click()
    dialog = page.get_by_role("dialog", name="Drop 18 packages of author from the queue of edge-1?")
    expect(dialog).to_be_visible()
    assert barriers(page) == []
    dialog.get_by_role("button", name="Cancel").click()
    assert control.subscribers["edge-1"].next_offset == 12
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    expect(page.get_by_role("status")).to_contain_text("done: 1 package dropped")
    page.get_by_role("button", name="Clear queue…").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    expect(page.get_by_text("The queue is empty.")).to_be_visible()
    assert control.subscribers["edge-1"].next_offset == 30


def test_subscriber_is_suspended_and_resumed(page: Page, serve: Any) -> None:
    control = fleet()
    page.goto(serve(control).url + "/#/subscribers/edge-3")
    page.get_by_role("combobox", name="Suspend").select_option("for 8 hours")
    page.get_by_role("button", name="Suspend imports…").click()
    dialog = page.get_by_role("dialog", name="Suspend imports of edge-3 for 8 hours?")
    expect(dialog).to_contain_text(SUSPEND.consequences)
    dialog.get_by_role("button", name="Suspend", exact=True).click()
    expect(page.get_by_role("region", name="Imports are suspended")).to_contain_text("until")
    assert barriers(page) == []
    page.get_by_role("button", name="Resume imports").click()
    expect(page.get_by_role("button", name="Suspend imports…")).to_be_visible()


def test_failed_package_is_redriven(page: Page, serve: Any) -> None:
    control = fleet()
    page.goto(serve(control).url + "/#/errors")
    expect(page.get_by_role("main")).to_contain_text("offset 20 of author, 11 attempts")
    assert barriers(page) == []
    page.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("No package is in an error queue.")).to_be_visible()


def test_counts_and_sizes_read_well(page: Page, serve: Any) -> None:
    page.goto(serve(fleet()).url)
    shown = """import("/dashboard/dom.js").then(({ bytes, count }) => [
      ...[999, 999499, 999500, 1000000, 99960000, 2e15].map(bytes),
      count(1, "entry"), count(2, "entry"), count(2, "package")])"""
    assert page.evaluate(shown) == [
        *("999 B", "999 kB", "1.00 MB", "1.00 MB", "100 MB", "2000 TB"),
        *("1 entry", "2 entries", "2 packages"),
    ]


def test_hook_that_is_called_again_takes_no_redrive(page: Page, serve: Any) -> None:
    control = fleet()
    (failed,) = control.errors().items
    calls = tuple(replace(failed, kind="hook-retrying", offset=20 + number, attempts=1) for number in range(3))
    control.errors = lambda *_: GivenUpPage(calls)  # type: ignore[method-assign]
    page.goto(serve(control).url + "/#/errors")
    expect(page.get_by_role("main")).to_contain_text("offset 22 of author, imported; its hook after is called again")
    expect(page.get_by_role("button", name="Redrive")).to_have_count(0)


def test_test_message_is_published_without_a_path(page: Page, serve: Any) -> None:
    control = fleet()
    page.goto(serve(control).url + "/#/packages")
    page.get_by_text("Publish", exact=True).click()
    page.get_by_role("button", name="Publish…").click()
    expect(page.get_by_role("status")).to_contain_text("not published: a path is missing")
    page.get_by_role("combobox", name="Action").select_option("TEST")
    page.get_by_role("button", name="Publish…").click()
    page.get_by_role("dialog", name="TEST as author?").get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("published at offset 30")
    assert (control.ordered[-1].action, control.ordered[-1].paths) == ("TEST", ())


def test_package_is_published_and_its_way_is_shown(page: Page, serve: Any) -> None:
    control = fleet()
    page.goto(serve(control).url + "/#/packages")
    expect(page.get_by_role("table", name="Packages").get_by_role("row")).to_have_count(21)
    assert barriers(page) == []
    page.get_by_text("Publish", exact=True).click()
    page.get_by_label("Paths, one a line").fill("/news/1\n/news/2")
    page.get_by_role("button", name="Publish…").click()
    page.get_by_role("dialog", name="ADD as author?").get_by_role("button", name="Publish").click()
    expect(page.get_by_role("status")).to_contain_text("published at offset 30")
    page.get_by_role("link", name="/news/1 /news/2").click()
    expect(page.get_by_role("heading", name="ADD at offset 30")).to_be_visible()
    expect(page.get_by_role("heading", name="Waiting: 12")).to_be_visible()
    assert barriers(page) == []


@pytest.mark.parametrize(
    ("action", "dialog", "asked", "published"),
    [
        ("CHANGED", "Publish what changed as author?", "1 package: 1 node, ", "published 1 package up to offset 30"),
        ("DELETE", "DELETE as author?", "/news for 12 subscribers.", "published at offset 30"),
        ("INVALIDATE", "INVALIDATE as author?", "/news for 12 subscribers.", "published at offset 30"),
        ("TEST", "TEST as author?", "/news for 12 subscribers.", "published at offset 30"),
    ],
)
def test_each_action_is_published_once_confirmed(
    page: Page, serve: Any, action: str, dialog: str, asked: str, published: str
) -> None:
    control = fleet()
    control.changed = [parse_path("/news/a"), parse_path("/old")]
    page.goto(serve(control).url + "/#/packages")
    page.get_by_text("Publish", exact=True).click()
    page.get_by_role("combobox", name="Action").select_option(action)
    page.get_by_label("Paths, one a line").fill("/news")
    for button, count in (("Cancel", 30), ("Publish", 31)):
        page.get_by_role("button", name="Publish…").click()
        question = page.get_by_role("dialog", name=dialog)
        expect(question).to_contain_text(asked)
        assert len(control.ordered) == count - (button == "Publish")
        question.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("status")).to_contain_text(published)
    assert len(control.ordered) == 31
    assert control.ordered[-1].action == ("ADD" if action == "CHANGED" else action)


def test_jobs_show_why_they_wait_and_are_stopped_and_retried(page: Page, serve: Any) -> None:
    jobs = job_service()
    jobs.set_queue(QueueSettings("cdn", (parse_pattern("purge.**"),), max_parallel=4))
    jobs.add([NewJob(parse_topic("purge.cdn"), b'{"path": "/news"}')] * 3)
    page.goto(serve(fleet(2), jobs=jobs).url + "/#/jobs")
    queue = page.get_by_role("table", name="Queues").get_by_role("row", name="cdn")
    expect(queue).to_contain_text("at most 4")
    expect(page.get_by_text("no live worker takes the topic purge.cdn")).to_have_count(3)
    assert barriers(page) == []
    save(page, "jobs")
    queue.get_by_role("button", name="Suspend").click()
    page.get_by_role("dialog", name="Suspend cdn?").get_by_role("button", name="Suspend").click()
    expect(queue).to_contain_text("suspended")
    queue.get_by_role("button", name="Resume").click()
    expect(queue).not_to_contain_text("suspended")
    page.get_by_role("link", name="1-0").click()
    expect(page.get_by_role("main")).to_contain_text("Why it waits")
    expect(page.get_by_role("main")).to_contain_text('"path": "/news"')
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog", name="Stop job 1-0?").get_by_role("button", name="Stop").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("stopped")
    page.get_by_role("button", name="Retry").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("added as")
    assert sum(queue.queued for queue in jobs.queues()) == 3


def test_builds_and_storage_are_shown_and_blobs_swept(page: Page, serve: Any) -> None:
    control = fleet(2)
    control.known_builds = [build("release-42")]
    url = serve(control).url
    page.goto(f"{url}/#/builds")
    expect(page.get_by_role("row", name="release-42")).to_contain_text("75 %")
    page.get_by_role("link", name="release-42").click()
    expect(page.get_by_role("table", name="Subscribers of the build")).to_contain_text("edge-1")
    assert barriers(page) == []
    page.goto(f"{url}/#/storage")
    expect(page.get_by_role("table", name="Topics")).to_contain_text("package")
    expect(page.get_by_role("table", name="Snapshots")).to_contain_text("blob:site")
    expect(page.get_by_role("button", name="Sweep…")).to_be_disabled()
    page.get_by_role("button", name="Count blobs").click()
    expect(page.get_by_role("table", name="Blobs")).to_contain_text("removable")
    assert barriers(page) == []
    page.get_by_role("button", name="Sweep…").click()
    page.get_by_role("dialog", name="Remove 1 blob?").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status")).to_contain_text("1 blob removed")


class Gone(FakeControl):
    """A fleet of which one subscriber was killed."""

    def status(self) -> StatusView:
        seen = super().status()
        silent = [replace(subscriber, state="silent", target="sqlite:/site.db") for subscriber in seen.subscribers]
        return replace(seen, subscribers=tuple(silent))


def test_subscriber_is_removed_snapshots_are_stored_and_removed_and_a_job_queue_is_cleared(
    page: Page, serve: Any
) -> None:
    def confirm(button: str, outcome: str) -> None:
        page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()
        expect(page.get_by_role("status")).to_contain_text(outcome)

    control, jobs = Gone(FakeSubscriber("edge-1"), FakeSubscriber("edge-2")), job_service()
    jobs.add([NewJob(parse_topic("purge.cdn"), b"{}")] * 3)
    url = serve(control, jobs=jobs).url
    page.goto(f"{url}/#/subscribers/edge-2")
    page.get_by_role("button", name="Remove subscriber…").click()
    confirm("Remove", "edge-2 was removed")
    assert control.subscribers.keys() == {"edge-1"}

    page.goto(f"{url}/#/storage")
    for name, outcome in (("site", "as new already"), ("nightly", "the snapshot was stored")):
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_role("button", name="Store snapshot").click()
        expect(page.get_by_role("status")).to_contain_text(outcome)
    page.get_by_role("table", name="Snapshots").get_by_role("button", name="Restore…").click()
    page.get_by_label("Type edge-1 to confirm").fill("edge-1")
    confirm("Restore", "edge-1 has the content of blob:site, and goes on at offset 3")
    page.get_by_role("table", name="Snapshots").get_by_role("button", name="Remove").click()
    confirm("Remove", "blob:site was removed")

    page.goto(f"{url}/#/jobs")
    page.get_by_role("row", name="0-1").get_by_role("button", name="Remove").click()
    confirm("Remove", "job 0-1 was removed")
    page.get_by_role("table", name="Queues").get_by_role("button", name="Clear…").click()
    confirm("Drop", "done: 2 jobs dropped")
    assert [queue.queued for queue in jobs.queues()] == [0]


def test_error_queue_of_a_subscriber_leads_to_what_it_does_not_show(page: Page, serve: Any) -> None:
    control = fleet()
    found = control.errors().items
    control.errors = lambda *_: GivenUpPage(found, "next")  # type: ignore[method-assign]
    page.goto(serve(control).url + "/#/subscribers/edge-2")
    expect(page.get_by_role("main")).to_contain_text("More are in all error queues.")


def test_document_that_cannot_be_loaded_again_is_named(page: Page, serve: Any) -> None:
    control = fleet()
    page.goto(serve(control).url + "/#/errors")
    expect(page.get_by_role("main")).to_contain_text("offset 20 of author")

    def away(*_: Any) -> NoReturn:
        raise JournalUnavailableError("the brokers are away")

    control.errors = away  # type: ignore[method-assign]
    expect(page.get_by_role("alert")).to_contain_text("not up to date: the brokers are away")
    expect(page.get_by_role("main")).to_contain_text("offset 20 of author")


def test_filter_that_a_person_set_follows_a_click_on_a_queue(page: Page, serve: Any) -> None:
    jobs = job_service()
    jobs.set_queue(QueueSettings("cdn"))
    page.goto(serve(fleet(), jobs=jobs).url + "/#/jobs")
    chosen = page.get_by_role("combobox", name="Queue")
    chosen.select_option("default")
    chosen.select_option("all")
    page.get_by_role("button", name="cdn", exact=True).click()
    expect(chosen).to_have_value("cdn")


def test_overview_counts_who_is_current(page: Page, serve: Any) -> None:
    control = FakeControl(FakeSubscriber("edge-1"), FakeSubscriber("edge-2"))
    shown = control.status()
    new = replace(shown.subscribers[1], state="new", next_offset=None, lag=None)
    control.status = lambda: replace(shown, subscribers=(shown.subscribers[0], new))  # type: ignore[method-assign]
    page.goto(serve(control).url)
    expect(page.get_by_role("main")).to_contain_text("Nothing needs attention. 1 of 2 subscribers is current.")


def test_publishing_counts_the_subscribers_that_follow(page: Page, serve: Any) -> None:
    control = FakeControl(FakeSubscriber("edge-1"), FakeSubscriber("edge-2"))
    shown = control.status()
    other = replace(shown.subscribers[1], follow=("other",))
    control.status = lambda: replace(shown, subscribers=(shown.subscribers[0], other))  # type: ignore[method-assign]
    page.goto(serve(control).url + "/#/packages/author")
    page.get_by_text("Publish", exact=True).click()
    page.get_by_role("combobox", name="Action").select_option("TEST")
    page.get_by_role("button", name="Publish…").click()
    expect(page.get_by_role("dialog")).to_contain_text("for 1 subscriber.")


def test_all_failed_packages_of_a_subscriber_are_redriven(page: Page, serve: Any) -> None:
    control = fleet()
    control.give_up("edge-2", 21, CAUSE)
    page.goto(serve(control).url + "/#/errors")
    page.get_by_role("button", name="Redrive all 2…").click()
    page.get_by_role("dialog", name="Retry 2 packages at edge-2?").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("No package is in an error queue.")).to_be_visible()
    assert control.subscribers["edge-2"].given_up == {}


def test_500_subscribers_are_paged_filtered_and_loaded_within_the_limit(page: Page, serve: Any) -> None:
    loaded: list[int] = []
    page.on("response", lambda answer: loaded.append(len(answer.body())) if "/api/" not in answer.url else None)
    control = fleet(500)
    for number in range(40, 500, 37):
        control.subscribers[f"edge-{number}"].error = CAUSE
    page.goto(serve(control).url)
    expect(page.get_by_text("Page 1 of 20")).to_be_visible()
    attention = page.get_by_role("region", name="Needs attention")
    expect(attention).to_contain_text("14 subscribers ▲retrying StorageFull: no space left on device: edge-1")
    expect(attention.get_by_role("listitem")).to_have_count(2)
    expect(page.get_by_role("list", name="Subscribers, those").get_by_role("listitem")).to_have_count(500)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("Page 2 of 20")).to_be_visible()
    page.get_by_label("Name or error contains").fill("edge-499")
    expect(page.get_by_role("table", name="Subscribers").get_by_role("row")).to_have_count(2)
    assert barriers(page) == []
    assert sum(loaded) <= FIRST_LOAD_BYTES


def test_broken_connection_is_stale_until_it_is_back(page: Page, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(event_stream, "LONGEST_SECONDS", 1.0)  # the stream ends, and the page connects again
    page.goto(serve(fleet()).url)
    expect(page.get_by_text("live as local")).to_be_visible()
    page.route("**/api/v1/events", lambda route: route.abort())
    expect(page.get_by_role("alert")).to_contain_text("stale since")
    page.unroute("**/api/v1/events")
    expect(page.get_by_text("live as local")).to_be_visible()


def test_streams_that_end_at_once_are_opened_with_growing_pauses(page: Page, serve: Any) -> None:
    begun = "performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/events')).map((e) => e.startTime)"
    page.route(
        "**/api/v1/events",
        lambda route: route.fulfill(status=200, content_type="text/event-stream", body=": heartbeat\n\n"),
    )
    page.goto(serve(fleet()).url)
    while len(page.evaluate(begun)) < 4:
        page.wait_for_timeout(100)
    milliseconds = page.evaluate(begun)
    assert milliseconds[3] - milliseconds[2] >= 2000, milliseconds  # after 500 and 1000


COUNT_READS = """
globalThis.reads = 0;
const read = ReadableStreamDefaultReader.prototype.read;
ReadableStreamDefaultReader.prototype.read = async function () {
  const found = await read.call(this);
  globalThis.reads += 1;
  return found;
};"""
"""What the page has read of its streams, heartbeats too."""


def test_page_is_stale_since_the_last_heartbeat(page: Page, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events come with changes only: the last one of an idle fleet may be hours old when the agent hangs."""
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.2)
    page.clock.install(time=NOW)
    page.add_init_script(COUNT_READS)
    page.goto(serve(fleet()).url)
    expect(page.get_by_text("live as local")).to_be_visible()
    page.clock.fast_forward("00:30")  # less than the page waits for a heartbeat
    idle_until, read = page.evaluate("[new Date().toLocaleTimeString('en-GB'), reads]")
    with page.expect_request("**/api/v1/events"):  # aborted without an answer
        wait_until(lambda: page.evaluate("reads") > read, "a heartbeat")
        monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 1000.0)
        page.route("**/api/v1/**", lambda route: route.abort())
        page.wait_for_timeout(500)
        page.clock.fast_forward("00:45")
    expect(page.get_by_role("alert")).to_contain_text("stale since")
    [alert] = page.get_by_role("alert").all_inner_texts()
    assert idle_until <= alert.removeprefix("stale since ").partition(",")[0], alert


def test_explanations_are_loaded_again_after_a_break(page: Page, serve: Any) -> None:
    def broken(route: Route) -> None:
        asked.append(route)
        if len(asked) == 1:
            route.abort()
        else:
            route.continue_()

    asked: list[Route] = []
    page.route("**/explanations.json", broken)
    page.goto(serve(fleet()).url + "/#/subscribers/edge-1")
    expect(page.get_by_text("Meaning and next step").first).to_be_visible()
    page.unroute("**/explanations.json")
    assert len(asked) == 2


def test_token_with_view_only_reads_and_a_wrong_one_is_refused(page: Page, serve: Any, tmp_path: Path) -> None:
    (tmp_path / "reader").write_text("reader-token-0123456789abcdef")
    token = TokenConfig("reader", Secret(file=str(tmp_path / "reader")), (Verb.VIEW,))
    page.goto(serve(fleet(), HttpConfig(tokens=(token,))).url + "/#/subscribers/edge-1")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert barriers(page) == []
    token_field = page.get_by_label("Token of this agent")
    token_field.fill("wrong")
    token_field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not accept this token")
    token_field.fill("reader-token-0123456789abcdef")
    token_field.press("Enter")
    expect(page.get_by_text("live as reader")).to_be_visible()
    expect(page.get_by_role("button", name="Clear queue…")).to_be_disabled()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_hostile_texts_stay_text(page: Page, serve: Any) -> None:
    hostile = CauseView("StorageFull", HOSTILE, HOSTILE, HOSTILE)
    control = FakeControl(FakeSubscriber(HOSTILE, error=hostile, is_editable=True), FakeSubscriber("edge"))
    path = "/" + HOSTILE.replace("/", "").replace(" ", "")
    sent = control.distribute("author", parse_request("ADD", (path,), user_id=HOSTILE, request_id=path))
    control.give_up("edge", 0, hostile)
    control.known_builds = [build(HOSTILE)]
    jobs = job_service()
    (added,) = jobs.add([NewJob(parse_topic("purge.cdn"), json.dumps({"path": HOSTILE}).encode(), key=HOSTILE)])
    url = serve(control, jobs=jobs).url
    views = (
        "",
        "errors",
        "packages",
        f"packages/author/{sent.package_id}",
        "subscribers/edge",
        "builds",
        f"jobs/{added.job}",
    )
    for view in (*(f"#/{view}" for view in views), "#/subscribers/" + HOSTILE.replace("/", "%2F")):
        page.goto(f"{url}/{view}")
        expect(page.get_by_role("main")).to_contain_text("onerror=")
        assert page.locator("img, main script").count() == 0
    expect(page).to_have_title("(2) Mailboat")


class ForgedState(FakeControl):
    """Its subscribers announce a state that is a member of every object of JavaScript."""

    def status(self) -> StatusView:
        known = super().status()
        return replace(
            known, subscribers=tuple(replace(subscriber, state="constructor") for subscriber in known.subscribers)
        )


def test_unknown_states_and_errors_are_shown_as_text(page: Page, serve: Any) -> None:
    cause = CauseView("constructor", "of a stranger", None, None)
    control = ForgedState(FakeSubscriber("edge", error=cause))
    control.distribute("author", parse_request("ADD", ("/a",)))
    control.give_up("edge", 0, cause)
    url = serve(control).url
    page.goto(url)
    expect(page.get_by_role("row", name="constructor edge")).to_be_visible()
    page.goto(f"{url}/#/subscribers/edge")
    expect(page.get_by_role("heading", level=1)).to_contain_text("constructor")
    expect(page.get_by_role("main")).to_contain_text("constructor of a stranger")
    page.goto(f"{url}/#/errors")
    expect(page.get_by_role("main")).to_contain_text("constructor of a stranger")


FORGED_FORM = """url => {
  const form = document.createElement("form");
  Object.assign(form, {action: url, method: "post"});
  for (const [name, value] of [["action", "DELETE"], ["path", "/"]]) {
    form.append(Object.assign(document.createElement("input"), {name, value}));
  }
  document.body.append(form);
  form.submit();
}"""


def test_form_of_another_site_changes_nothing(browser: Browser, serve: Any) -> None:
    control = fleet(2)
    known = len(control.ordered)
    url = serve(control).url
    with page_in(browser, bypass_csp=True) as page:  # as a site without a policy
        page.goto(url.replace("127.0.0.1", "localhost"))  # to a browser another site than 127.0.0.1
        target = f"{url}/libs/sling/distribution/services/agents/author"
        with page.expect_response(target) as answered:
            page.evaluate(FORGED_FORM, target)
        assert answered.value.request.headers["content-type"] == "application/x-www-form-urlencoded"
        assert answered.value.status == 403
    assert len(control.ordered) == known


@contextmanager
def other_site(pages: dict[str, str]) -> Iterator[str]:
    """A site of a stranger without any policy; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(pages.get(self.path, "").encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


def test_page_in_a_frame_of_another_site_shows_nothing(browser: Browser, serve: Any) -> None:
    async def look() -> StatusView:
        return fleet(2).status()

    agent = serve(fleet(2)).url
    with operator_page(look, "fleet-token-0123456789") as operator, page_in(browser) as page:
        framed = {"/agent": agent, "/operator": operator, "/own": "/framed"}
        pages = {path: f'<iframe src="{url}"></iframe>' for path, url in framed.items()}
        with other_site(pages | {"/framed": "<title>Mailboat</title>"}) as site:
            for path, url in (("/agent", agent), ("/operator", operator)):
                with page.expect_console_message(lambda said, url=url: is_refused_in_frames(said.text, url)):
                    page.goto(site + path)
                assert "<title>Mailboat" not in page.frames[1].content()
            page.goto(site + "/own")
            assert "<title>Mailboat" in page.frames[1].content(), "a page without a policy would be shown"


def is_refused_in_frames(said: str, url: str) -> bool:
    return "frame-ancestors 'none'" in said and url in said


FOREIGN_REQUESTS = """async agent => {
  const api = agent + "/api/v1", requests = api + "/publishers/author/distributions";
  const json = {"Content-Type": "application/json"}, body = JSON.stringify({action: "DELETE", paths: ["/"]});
  const outcome = (sent) => sent.then(() => "read", () => "refused");
  const opened = () => new Promise((done) => {
    const stream = new EventSource(api + "/events");
    stream.onopen = () => done("read");
    stream.onerror = () => done("refused");
  });
  return [
    await outcome(fetch(api + "/status")), await opened(),
    await outcome(fetch(requests, {method: "POST", headers: json, body})),
    await outcome(fetch(api + "/subscribers/edge-1", {method: "DELETE"})),
    await fetch(requests, {method: "POST", mode: "no-cors", body}).then((answer) => answer.type),
  ];
}"""
"""What scripts of a site try; the last one is sent without asking, as a form would be, and its answer is opaque."""


def test_scripts_of_another_site_read_and_change_nothing(page: Page, serve: Any) -> None:
    control = fleet(2)
    known = len(control.ordered)
    agent = serve(control).url
    with other_site({"/": "<title>elsewhere</title>"}) as site:
        page.goto(site)
        assert page.evaluate(FOREIGN_REQUESTS, agent) == ["refused"] * 4 + ["opaque"]
    assert (len(control.ordered), len(control.subscribers)) == (known, 2)


def test_rebound_name_shows_nothing(page: Page, serve: Any) -> None:
    page.goto(serve(fleet(2)).url.replace("127.0.0.1", "rebound.example"))  # leads to this machine, see support.browser
    expect(page.get_by_role("alert")).to_contain_text("answers at a loopback address only")
    assert "edge-1" not in page.content()


def test_narrow_and_dark_page_has_no_barriers_and_does_not_scroll_sideways(browser: Browser, serve: Any) -> None:
    control = fleet()
    url = serve(control, history=recorded_hour(control)).url
    views = {"": "Overview", "#/subscribers/edge-1": "edge-1", "#/packages": "Packages", "#/errors": "Error queues"}
    with page_in(browser, viewport={"width": 360, "height": 740}, color_scheme="dark") as page:
        for view, heading in views.items():
            page.goto(f"{url}/{view}")
            expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
            expect(page.get_by_text("live as local")).to_be_visible()
            expect(page.get_by_text("Loading…")).to_have_count(0)
            assert barriers(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        page.goto(url)
        save(page, "phone")


def test_keyboard_reaches_the_subscribers(page: Page, serve: Any) -> None:
    page.goto(serve(fleet()).url)
    expect(page.get_by_role("link", name="edge-1", exact=True).first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("edge-")


def test_skip_link_keeps_the_view(page: Page, serve: Any) -> None:
    page.goto(serve(fleet()).url + "/#/packages")
    expect(page.get_by_role("heading", level=1, name="Packages")).to_be_visible()
    page.get_by_role("link", name="Skip to content").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("/#/packages")


@contextmanager
def operator_page(look: Look, token: str, agent_url: str | None = None) -> Iterator[str]:
    """The operator's page in a thread; its URL."""
    loop, started = asyncio.new_event_loop(), Queue[str]()

    async def serve_page() -> None:
        app = web.Application()
        FleetPage(look, token, agent_url).add_to(app.router)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await web.SockSite(runner, listening).start()
            started.put("http://{}:{}/".format(*listening.getsockname()))
            await ending.wait()
            # Chromium opens connections ahead, and CPython loses one that it accepted just before its server is closed
            # (https://github.com/python/cpython/issues/109564): it makes the transport one turn of the loop later, and
            # aiohttp sees it after one more.
            loop.remove_reader(listening)
            for _ in range(2):
                await asyncio.sleep(0)
            await runner.cleanup()
        await asyncio.sleep(0)

    ending = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve_page(),))
    thread.start()
    try:
        yield started.get(timeout=PATIENCE_SECONDS)
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(PATIENCE_SECONDS)
        loop.close()


def test_operator_shows_the_fleet_and_marks_what_is_stale(page: Page) -> None:
    answered = fleet().status()
    states = [AgentState("shop/author", answered, NOW), AgentState("news/author", fleet(4).status(), NOW, SILENT)]

    async def look() -> StatusView:
        return merge_states(states)

    with operator_page(look, "fleet-token-0123456789") as url:
        page.goto(url)
        page.get_by_label("Token").fill("fleet-token-0123456789")
        page.get_by_label("Token").press("Enter")
        expect(page.get_by_label("Subscribers by state")).to_contain_text("16 subscribers")
        expect(page.get_by_role("row", name="news/edge-3").first).to_contain_text("stale")
        attention = page.get_by_role("region", name="Needs attention")
        expect(attention).to_contain_text("news/author ?stale its agent does not answer")
        expect(attention).to_contain_text("4 subscribers of such agents are shown as last reported")
        expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(1)
        assert barriers(page) == []
        save(page, "fleet")
        page.get_by_role("link", name="news/edge-3").first.click()
        expect(page.get_by_role("region", name="What blocks it")).to_contain_text(
            "the agent news/author does not answer"
        )
        expect(page.get_by_role("button", name="Suspend imports…")).to_have_count(0)
        place = page.get_by_role("region", name="At the agent news/author")
        expect(place).to_contain_text("kubectl -n news port-forward statefulset/author 8080")
        expect(place.get_by_role("link")).to_have_attribute("href", "http://127.0.0.1:8080/#/subscribers/edge-3")
        assert barriers(page) == []
        page.goto("about:blank")


def test_operator_s_page_leads_to_the_agent_that_can_act(page: Page) -> None:
    async def look() -> StatusView:
        return merge_states([AgentState("shop/author", fleet().status(), NOW)])

    with operator_page(look, "fleet-token-0123456789", "https://{publisher}.{namespace}.example.com") as url:
        page.goto(url)
        page.get_by_label("Token").fill("fleet-token-0123456789")
        page.get_by_label("Token").press("Enter")
        agent = "https://author.shop.example.com/#"
        expect(page.get_by_role("link", name="shop/author")).to_have_attribute("href", f"{agent}/packages/author")
        page.get_by_role("link", name="shop/edge-3", exact=True).click()
        open_at = page.get_by_role("link", name="Open shop/edge-3 at its agent")
        expect(open_at).to_have_attribute("href", f"{agent}/subscribers/edge-3")
        assert barriers(page) == []
        page.goto("about:blank")


def test_instances_of_one_name_are_on_one_page_of_the_operator(page: Page) -> None:
    known = fleet().status()
    first = replace(known.subscribers[0], build=BuildProgressView("spring", 3, 9))
    known = replace(known, subscribers=(first, replace(first, sling_id="2" * 36)))

    async def look() -> StatusView:
        return merge_states([AgentState("shop/author", known, NOW)])

    with operator_page(look, "fleet-token-0123456789") as url:
        page.goto(f"{url.rstrip('/')}/#/subscribers/shop%2F{first.name}")
        page.get_by_label("Token").fill("fleet-token-0123456789")
        page.get_by_label("Token").press("Enter")
        expect(page.get_by_role("region", name="What is retried")).to_have_count(2)
        expect(page.get_by_role("region", name="At the agent shop/author")).to_have_count(2)
        expect(page.get_by_text("spring: 3 of 9")).to_have_count(2)
        expect(page.get_by_role("link", name="spring")).to_have_count(0)  # builds are the agent's
        assert barriers(page) == []
        page.goto("about:blank")


def test_files_are_served_without_a_token_and_with_a_strict_policy(page: Page, serve: Any) -> None:
    url = serve(fleet(2)).url
    for path in DASHBOARD_PATHS:
        answer = page.request.get(url + path)
        assert answer.ok
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.body() == dashboard_answer(path, "")[0]
    first = set[str]()
    texts = {path.rpartition("/")[2]: dashboard_answer(path, "")[0].decode() for path in DASHBOARD_PATHS}
    found = {"app.js"}
    while found:
        first |= found
        named = "".join(texts[item] for item in found)
        found = set(re.findall(r'^import .* from "./(.*)";$', named, re.MULTILINE)) - first
    preloaded = set(re.findall(r'<link rel="modulepreload" href="/dashboard/(.*)">', texts[""]))
    assert preloaded == first - {"app.js"}, "the first view waits for a module that another one names"
    assert len(first) <= 5, "with the style six files, as many as a browser loads at the same time"
