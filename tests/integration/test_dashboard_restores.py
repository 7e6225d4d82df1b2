"""Restores in the dashboard, in a real browser: which subscriber, what it means, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from mailboat.api.archive import RestoreView, SnapshotView
from mailboat.api.confirmations import RESTORE, RESTORE_BACK, RESTORE_FORWARD, Confirmation
from mailboat.clock import moment_of
from playwright.sync_api import Page, Route, expect
from support.browser import barriers, chromium, page_in, save
from support.fake_control import FakeArchive, FakeControl, FakeSubscriber

SNAPSHOT = SnapshotView(
    "blob:site", "ab" * 32, 52_000_000, "sqlite:/one.db", moment_of(1_795_781_700_000), 3, "log-1", ()
)
CORRUPT = SnapshotView(
    "blob:bad", error="SnapshotCorrupt", message="can't be understood: <b>1</b> byte", next_step="--remove bad"
)
NEW = RestoreView("two", "sqlite:/two.db", "done", "blob:new", next_offset=3)
UNREAD = RestoreView("two", "sqlite:/two.db", "unknown", error="TargetCorrupt")


class Restored(FakeArchive):
    """Two subscribers, and a restore of the second one that ends as a test says."""

    def __init__(self, control: FakeControl) -> None:
        super().__init__(control)
        self.begun = RestoreView("two", "sqlite:/two.db", "restoring", "blob:site", begun_at=moment_of(1_000))
        self.after = replace(self.begun, state="done", phase=None, next_offset=3, given_up=0)
        self.asked: list[tuple[str, str]] = []

    def snapshots(self) -> Sequence[SnapshotView]:
        part = replace(SNAPSHOT, snapshot="blob:part", next_offset=9, roots=("/content/de", "/content/fr"))
        return [CORRUPT, part, SNAPSHOT]

    def restores(self) -> Sequence[RestoreView]:
        return [
            RestoreView("one", "sqlite:/one.db"),
            self.after if self.asked else RestoreView("two", "sqlite:/two.db"),
        ]

    def restore_snapshot(self, name: str, target: str, *, is_replacing: bool = False) -> RestoreView:
        assert is_replacing
        self.asked.append((name, target))
        return self.begun


class Placed(FakeControl):
    """A fleet whose subscribers have targets."""

    def status(self) -> Any:
        seen = super().status()
        placed = [
            replace(subscriber, target=f"sqlite:/{subscriber.name}.db", next_offset=6)
            for subscriber in seen.subscribers
        ]
        return replace(seen, subscribers=tuple(placed))


class Unplaced(Placed):
    """A fleet whose subscribers have not announced a position."""

    def status(self) -> Any:
        seen = super().status()
        return replace(seen, subscribers=tuple(replace(known, next_offset=None) for known in seen.subscribers))


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser, page_in(browser, viewport={"width": 1280, "height": 900}) as shown:
        yield shown


@pytest.fixture
def archive(page: Page, serve: Any) -> Restored:
    control = Placed(FakeSubscriber("one"), FakeSubscriber("two"))
    archive = Restored(control)
    page.goto(f"{serve(control, archive=archive).url}/#/storage")
    return archive


def row_of(page: Page, snapshot: str) -> Any:
    return page.get_by_role("table", name="Snapshots").get_by_role("row", name=snapshot)


def plain(asked: Confirmation) -> str:
    """The consequences as a page shows them: names of settings are set as code."""
    return asked.consequences.replace("`", "")


def ask(page: Page) -> None:
    page.get_by_label("Subscriber to restore").select_option("two")
    row_of(page, "blob:site").get_by_role("button", name="Restore…").click()
    page.get_by_label("Type two to confirm").fill("two")


def begin(page: Page) -> None:
    ask(page)
    page.get_by_role("button", name="Restore", exact=True).click()


def test_the_chosen_subscriber_is_restored_and_the_dialog_says_what_that_means(page: Page, archive: Restored) -> None:
    row_of(page, "blob:site").get_by_role("button", name="Restore…").click()
    dialog = page.get_by_role("dialog", name="Replace content, position and error queue of sqlite:/one.db by those of")
    expect(dialog).to_contain_text("blob:site, a copy of sqlite:/one.db at offset 3")
    expect(dialog).to_contain_text(plain(RESTORE_BACK).format(position=6, next_offset=3))
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_label("Subscriber to restore").select_option("two")
    row_of(page, "blob:part").get_by_role("button", name="Restore…").click()
    dialog = page.get_by_role(
        "dialog", name="error queue of sqlite:/two.db by those of blob:part, a copy of sqlite:/one.db"
    )
    expect(dialog).to_contain_text(plain(RESTORE_FORWARD).format(position=6, next_offset=9))
    assert barriers(page) == []
    dialog.get_by_role("button", name="Cancel").click()
    begin(page)
    expect(page.get_by_role("status")).to_contain_text("two has the content of blob:site, and goes on at offset 3")
    assert archive.asked == [("site", "sqlite:/two.db")]
    save(page, "storage")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (
            replace(NEW, begun_at=moment_of(2_500)),
            "another restore into the target of two began after that of blob:site",
        ),
        (
            RestoreView("two", "sqlite:/two.db"),
            "the agent ended before blob:site was restored: the target of two is as it was before",
        ),
        (
            replace(UNREAD, message="<b>damaged</b>", next_step="restore again"),
            "restored into the target of two is not known: <b>damaged</b> (restore again)",
        ),
    ],
)
def test_the_outcome_of_another_restore_is_not_shown(
    page: Page, archive: Restored, after: RestoreView, words: str
) -> None:
    archive.after = after
    begin(page)
    expect(page.get_by_role("status")).to_contain_text(words)
    expect(page.get_by_role("status")).not_to_contain_text("goes on at offset")


def test_a_restore_is_followed_over_a_broken_connection(page: Page, archive: Restored) -> None:
    def broken(route: Route) -> None:
        refused.append(route.request.url)
        if len(refused) > 8:
            route.continue_()
        elif len(refused) % 4 < 2:  # two after each other: one of the table, one of the restore
            route.abort()
        else:
            route.fulfill(status=503, json={"title": "stopping", "detail": "the agent is stopping"})

    refused: list[str] = []
    ask(page)
    page.route("**/api/v1/restores", broken)
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("two has the content of blob:site, and goes on at offset 3")
    page.unroute("**/api/v1/restores")
    assert len(refused) > 8


def test_an_agent_that_stays_away_is_named_with_what_was_restored(page: Page, serve: Any) -> None:
    control = Placed(FakeSubscriber("one"), FakeSubscriber("two"))
    archive = Restored(control)
    # also the first answer, which may be the only one before the connection breaks
    archive.begun = archive.after = replace(archive.begun, phase="fetching", done_bytes=5, total_bytes=9)
    assert page.context.browser is not None
    with page_in(page.context.browser) as own:
        own.clock.install()
        own.goto(f"{serve(control, archive=archive).url}/#/storage")
        begin(own)
        expect(own.get_by_role("table", name="Restores")).to_contain_text("fetching")
        own.route("**/api/v1/**", lambda route: route.abort())
        own.clock.fast_forward("00:45")  # longer than the pause between two heartbeats
        expect(own.get_by_role("alert")).to_contain_text("stale since")
        assert own.get_by_text("has not answered since").count() == 0
        own.clock.fast_forward("00:20")  # a minute since the last heartbeat
        away = own.get_by_role("alert").filter(has_text="The agent has not answered since")
        expect(away).to_contain_text("Check whether its process or pod runs")
        expect(away).to_contain_text("restore of blob:site into the target of two was last restoring (fetching)")
        assert barriers(own) == []
        archive.after = replace(archive.begun, state="done", phase=None, next_offset=3, given_up=0)
        own.unroute("**/api/v1/**")
        expect(own.get_by_role("status")).to_contain_text("two has the content of blob:site, and goes on at offset 3")
        own.clock.fast_forward("00:20")  # the longest pause of the stream between two attempts
        expect(away).to_have_count(0)
        own.clock.fast_forward("10:00")
        expect(own.get_by_role("status")).to_contain_text("two has the content of blob:site")  # for slow readers, too
        own.get_by_role("button", name="Dismiss").click()
        expect(own.get_by_role("status")).to_be_empty()
        expect(own.get_by_role("main")).to_be_focused()


def test_dialog_says_all_consequences_where_no_position_is_known(page: Page, serve: Any) -> None:
    control = Unplaced(FakeSubscriber("one"))
    page.goto(f"{serve(control, archive=Restored(control)).url}/#/storage")
    row_of(page, "blob:site").get_by_role("button", name="Restore…").click()
    dialog = page.get_by_role("dialog", name="by those of blob:site")
    expect(dialog).to_contain_text(plain(RESTORE))
    dialog.get_by_role("button", name="Cancel").click()


def test_a_snapshot_that_cannot_be_read_has_its_reason_and_no_restore(page: Page, archive: Restored) -> None:
    bad, part = row_of(page, "blob:bad"), row_of(page, "blob:part")
    expect(bad).to_contain_text("can't be understood: <b>1</b> byte (--remove bad)")
    expect(bad.get_by_role("button", name="Remove")).to_be_enabled()
    assert bad.get_by_role("button", name="Restore…").count() == 0
    expect(part).to_contain_text("sqlite:/one.db, below /content/de, /content/fr only")
    expect(row_of(page, "blob:site").get_by_role("button", name="Restore…")).to_be_enabled()
    assert barriers(page) == []
    assert archive.asked == []
