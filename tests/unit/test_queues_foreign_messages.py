"""Queues over a log that others write to: a message that is refused is counted, and hides no other."""

from __future__ import annotations

import pytest
from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.messages import Action, Message, PackageMessage, PackageStatus, StatusMessage
from mailboat.model.paths import NodePath
from mailboat.queues import log_follower
from mailboat.queues.entries import DecodedRecords
from mailboat.queues.log_follower import LogFollower, count_past
from mailboat.queues.offsets import QueueSize
from mailboat.queues.queue_names import EntryId
from mailboat.queues.statuses import StatusFollower
from mailboat.testing.clocks import ManualClock
from mailboat.wire.messages import encode_message
from support.queue_log import (
    GARBAGE,
    QUEUE,
    SLING_ID,
    TOPIC,
    A,
    CountingJournal,
    counted_view_of,
    offsets_of,
    package_record,
    queue_of,
    view_of,
)

STATUS = TopicName("status")


def refused_record(path: str) -> NewRecord:
    """What a publisher may append that knows other rules for paths."""
    message = PackageMessage(SLING_ID, PackageId("foreign"), Action.ADD, "tree", A, paths=(NodePath(path),))
    headers, value = encode_message(message)
    return NewRecord(value, headers)


REFUSED = {
    "leads upwards": refused_record("/a/../b"),
    "has a backslash": refused_record("/a\\b"),
    "has a name too long": refused_record("/" + "a" * 256),
    "is no message": GARBAGE,
}


@pytest.fixture(params=REFUSED.values(), ids=REFUSED)
def refused(request: pytest.FixtureRequest) -> NewRecord:
    record: NewRecord = request.param
    return record


@pytest.fixture
def journal() -> CountingJournal:
    return CountingJournal()


class TestRefusedMessages:
    @pytest.mark.parametrize("is_counted", [True, False])
    def test_a_queue_shows_the_packages_around_one(
        self, journal: CountingJournal, refused: NewRecord, is_counted: bool
    ) -> None:
        journal.append(TOPIC, [package_record(A), refused, package_record(A)])
        queue = queue_of(journal, counted_view_of(journal) if is_counted else view_of(journal))
        assert offsets_of(queue) == [0, 2]
        assert queue.find(EntryId(TOPIC, Offset(1))) is None

    def test_it_is_counted_as_unreadable_and_not_as_waiting(self, journal: CountingJournal, refused: NewRecord) -> None:
        view = view_of(journal)
        journal.append(TOPIC, [package_record(A), refused, package_record(A)])
        assert LogFollower(view, journal).follow(0.0) == 3
        assert queue_of(journal, view).size() == QueueSize(2, is_exact=True)
        assert view.counts.unreadable_records == 1


class TestBatchesThatCanNotBeTakenIn:
    def test_the_log_is_counted_again_and_no_package_is_missing(
        self, journal: CountingJournal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal.append(TOPIC, [package_record(A)])
        view = counted_view_of(journal)
        follower = LogFollower(view, journal)
        journal.append(TOPIC, [package_record(A)] * 3)

        def fail(*_: object) -> DecodedRecords:
            raise ValueError("a defect")

        with monkeypatch.context() as defect:
            defect.setattr(log_follower, "decode_entries", fail)
            with pytest.raises(ValueError, match="a defect"):
                follower.follow(0.0)
        journal.append(TOPIC, [package_record(A)])
        while follower.follow(0.0):
            pass
        assert queue_of(journal, view).size() == QueueSize(5, is_exact=False)
        while count_past(view, journal):
            pass
        assert queue_of(journal, view).size() == QueueSize(5, is_exact=True)
        assert offsets_of(queue_of(journal, view)) == [0, 1, 2, 3, 4]
        follower.close()
        assert journal.readers_open == 0

    def test_a_batch_whose_details_fail_is_not_known(
        self, journal: CountingJournal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        view = view_of(journal)
        follower = LogFollower(view, journal)
        journal.append(TOPIC, [package_record(A)] * 300)

        def fail(*_: object) -> None:
            raise MemoryError

        with monkeypatch.context() as defect:
            defect.setattr("mailboat.queues.log_view.EntryBlock", fail)
            with pytest.raises(MemoryError):
                follower.follow(0.0)
        assert view.known_to == 0
        while follower.follow(0.0) or count_past(view, journal):
            pass
        assert queue_of(journal, view).size() == QueueSize(300, is_exact=True)
        assert offsets_of(queue_of(journal, view)) == list(range(300))

    def test_statuses_that_a_listener_failed_at_are_heard_again(self) -> None:
        journal = MemoryJournal(ManualClock())
        journal.ensure_topic(STATUS, TopicSettings(retention_seconds=None))
        listener = ForgetfulListener()
        follower = StatusFollower([listener], journal, STATUS, ManualClock())
        journal.append(STATUS, [status_record(0), status_record(1)])
        with pytest.raises(ValueError, match="not now"):
            follower.follow(0.0)
        assert follower.next_offset == 0
        journal.append(STATUS, [status_record(2)])
        while follower.follow(0.0):
            pass
        assert listener.heard == [0, 0, 1, 2]
        assert follower.next_offset == 3


class ForgetfulListener:
    """Fails once at the status of offset 1."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.has_failed = False

    def apply(self, status: Message) -> None:
        assert isinstance(status, StatusMessage)
        if status.offset == 1 and not self.has_failed:
            self.has_failed = True
            raise ValueError("not now")
        self.heard.append(status.offset)

    def clear(self) -> None:
        self.heard.clear()


def status_record(offset: int) -> NewRecord:
    message = StatusMessage(
        QUEUE.sling_id, QUEUE.agent_name, AgentName("author"), Offset(offset), PackageStatus.IMPORTED
    )
    headers, value = encode_message(message)
    return NewRecord(value, headers)
