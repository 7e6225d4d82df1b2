"""The event feed: differences of the status, resuming, and the bounds of its buffer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mailboat.api.records import JournalView, StatusView, SubscriberStatusView
from mailboat.api.stream_events import StreamEvent, encode_end, read_events
from mailboat.clock import moment_of
from mailboat.config.topic_settings import TopicSettings
from mailboat.control import event_feed
from mailboat.control.event_feed import EventFeed, EventTopic
from mailboat.errors import AgentDefectError, JournalUnavailableError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.messages import DistributedEvent
from mailboat.testing.clocks import ManualClock
from mailboat.wire.event_documents import encode_event

EDGE = SubscriberStatusView("edge", "importing", "instance", 0, 3)
FIRST = StatusView(JournalView("memory", 0, 3), (), (EDGE,))


class Looks:
    """A status that the test changes, or an error."""

    def __init__(self) -> None:
        self.status: StatusView | Exception = FIRST

    def __call__(self) -> StatusView:
        if isinstance(self.status, Exception):
            raise self.status
        return self.status

    def change(self, **facts: Any) -> None:
        self.status = replace(FIRST, subscribers=(replace(EDGE, **facts),))


def decoded(frames: bytes) -> list[StreamEvent]:
    return list(read_events(frames.decode().split("\n")))


def new_events(feed: EventFeed, place: int) -> list[tuple[str, Any]]:
    feed.poll()
    found = feed.after(place, 1_000_000)
    assert found is not None
    return [(item.type, item.data) for item in decoded(found[1])]


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def feed(looks: Looks) -> EventFeed:
    made = EventFeed(looks, "epoch")
    made.poll()
    return made


def test_snapshot_holds_the_whole_status(feed: EventFeed) -> None:
    _, frame = feed.snapshot(is_gap=True)
    (event,) = decoded(frame)
    assert (event.type, event.data["gap"], event.data["problem"]) == ("snapshot", True, None)
    assert event.data["status"]["subscribers"][0]["name"] == "edge"


def test_changed_subscriber_is_one_event_and_an_announcement_is_none(feed: EventFeed, looks: Looks) -> None:
    place, _ = feed.snapshot(is_gap=False)
    looks.change(announced_at=moment_of(1))
    assert new_events(feed, place) == []
    looks.change(next_offset=2, lag=1)
    ((kind, data),) = new_events(feed, place)
    assert (kind, data["lag"]) == ("subscriber", 1)


def test_removed_subscriber_and_moved_journal_are_events(feed: EventFeed, looks: Looks) -> None:
    place, _ = feed.snapshot(is_gap=False)
    looks.status = StatusView(JournalView("memory", 0, 4), (), ())
    kinds = [kind for kind, _ in new_events(feed, place)]
    assert kinds == ["journal", "subscriber-removed"]


@pytest.mark.parametrize("figure", ["unreadable_announcements", "dropped_subscribers"])
def test_figure_without_an_event_of_its_own_comes_with_a_snapshot(figure: str, feed: EventFeed, looks: Looks) -> None:
    place, _ = feed.snapshot(is_gap=False)
    looks.status = replace(FIRST, **{figure: 1})
    ((kind, data),) = new_events(feed, place)
    assert (kind, data["gap"], data["problem"]) == ("snapshot", False, None)
    assert data["status"][figure] == 1
    looks.status = replace(FIRST, **{figure: 2})
    assert [kind for kind, _ in new_events(feed, place + 1)] == ["snapshot"]
    looks.status = replace(FIRST, **{figure: 3})
    assert new_events(feed, place + 2) == []


def test_client_resumes_after_its_last_event(feed: EventFeed, looks: Looks) -> None:
    _, frame = feed.snapshot(is_gap=False)
    (snapshot,) = decoded(frame)
    looks.change(lag=2)
    feed.poll()
    looks.change(lag=1)
    feed.poll()
    place = feed.place_after(snapshot.id)
    assert place is not None
    found = feed.after(place, 1)
    assert found is not None
    assert [item.data["lag"] for item in decoded(found[1])] == [2]
    following = feed.place_after(decoded(found[1])[0].id)
    assert following is not None
    assert [data["lag"] for _, data in new_events(feed, following)] == [1]


@pytest.mark.parametrize("last_id", [None, "", "epoch", "other-0", "epoch-99", "epoch--1", "epoch-" + "9" * 5000])
def test_unknown_id_needs_a_snapshot(feed: EventFeed, last_id: str | None) -> None:
    assert feed.place_after(last_id) is None


def test_buffer_is_bounded_and_a_client_behind_it_is_told(
    feed: EventFeed, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "MAX_EVENTS", 5)
    place, _ = feed.snapshot(is_gap=False)
    for lag in range(20):
        looks.change(lag=lag + 10)
        feed.poll()
    assert feed.after(place, 1_000) is None
    assert feed.place_after(f"epoch-{place - 1}") is None
    monkeypatch.setattr(event_feed, "MAX_BYTES", 700)
    looks.change(lag=1)
    feed.poll()
    assert feed.held_bytes <= 700


def test_unreadable_journal_is_one_event_until_it_is_readable(feed: EventFeed, looks: Looks) -> None:
    place, _ = feed.snapshot(is_gap=False)
    looks.status = JournalUnavailableError("no answer")
    feed.poll()
    ((kind, data),) = new_events(feed, place)
    assert (kind, data["title"]) == ("problem", "JournalUnavailable")
    _, frame = feed.snapshot(is_gap=False)
    assert decoded(frame)[0].data["problem"]["title"] == "JournalUnavailable"
    looks.change(lag=0)
    assert [(kind, data is None) for kind, data in new_events(feed, place)][1:] == [
        ("problem", True),
        ("subscriber", False),
    ]


def test_distributed_events_come_from_the_end_of_the_topic_on(looks: Looks) -> None:
    journal, topic = MemoryJournal(ManualClock()), TopicName("event")
    journal.ensure_topic(topic, TopicSettings())

    def raise_event(offset: int) -> None:
        headers, value = encode_event(DistributedEvent(AgentName("author"), PackageId("p"), Offset(offset)))
        journal.append(topic, [NewRecord(value, headers), NewRecord(b"not an event", ())])

    raise_event(1)
    feed = EventFeed(looks, "epoch", EventTopic(journal, topic))
    feed.poll()
    raise_event(2)
    assert [(kind, data["offset"]) for kind, data in new_events(feed, 1)] == [("distributed", 2)]


def test_event_topic_continues_where_retention_has_left_records(looks: Looks) -> None:
    journal, topic = MemoryJournal(ManualClock()), TopicName("event")
    journal.ensure_topic(topic, TopicSettings())
    source = EventTopic(journal, topic)
    assert source.read() == []
    for offset in range(3):
        headers, value = encode_event(DistributedEvent(AgentName("author"), PackageId("p"), Offset(offset)))
        journal.append(topic, [NewRecord(value, headers)])
    journal.truncate(topic, Offset(2))
    assert [item["offset"] for item in source.read()] == [2]


def test_event_topic_that_was_created_again_is_followed_from_its_beginning() -> None:
    journal, topic = MemoryJournal(ManualClock()), TopicName("event")
    journal.ensure_topic(topic, TopicSettings())
    source = EventTopic(journal, topic)
    assert source.read() == []
    journal.upkeep.delete_topic(topic)
    journal.ensure_topic(topic, TopicSettings())
    for offset in range(2):
        headers, value = encode_event(DistributedEvent(AgentName("author"), PackageId("p"), Offset(offset)))
        journal.append(topic, [NewRecord(value, headers)])
    assert [item["offset"] for item in source.read()] == [0, 1]


def test_stream_with_comments_and_unknown_fields_is_read() -> None:
    lines = ": heartbeat\n\nid: 1\nretry: 5\nevent: x\ndata: [1,\ndata: 2]\n\n" + encode_end("renew").decode()
    assert decoded(lines.encode()) == [StreamEvent("1", "x", [1, 2]), StreamEvent("", "end", {"reason": "renew"})]


def test_event_that_is_not_json_is_a_defect_of_the_agent() -> None:
    with pytest.raises(AgentDefectError, match="not JSON"):
        decoded(b"data: {\n\n")


def test_reader_that_lost_events_goes_on_with_the_whole_status(
    looks: Looks, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "MAX_EVENTS", 1)
    place, _ = feed.snapshot(is_gap=False)
    for lag in (2, 1):
        looks.change(lag=lag)
        feed.poll()
    place, frame = feed.after_or_gap(place, 1_000_000)
    (event,) = decoded(frame)
    assert (event.type, event.data["gap"]) == ("snapshot", True)
    assert feed.after_or_gap(place, 1_000_000) == (place, b"")
