"""All queues of a publisher: what announcements and statuses make of them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import QueueMissingError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import (
    Action,
    FailureCause,
    Message,
    PackageMessage,
    PackageStatus,
    PingMessage,
    StatusMessage,
)
from mailboat.queues.error_queues import ErrorQueue, FailedPackages, FailurePlace
from mailboat.queues.log_follower import count_past
from mailboat.queues.log_view import LogView
from mailboat.queues.publisher_queues import PublisherQueues, QueueSources
from mailboat.queues.queue_names import QueueName
from mailboat.queues.queue_pages import PageReader
from mailboat.queues.queue_state import QueuePosition, QueueState, decide_agent_state
from mailboat.queues.statuses import StatusFollower
from mailboat.queues.subscriber_queue import SubscriberQueue
from mailboat.testing.clocks import ManualClock
from mailboat.testing.journal_harness import in_background
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS
from mailboat.wire.messages import encode_message

PACKAGES, STATUSES = TopicName("package"), TopicName("status")
AUTHOR, OTHER = AgentName("author"), AgentName("other")
SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")
EDGE, WEST = QueueName(SLING_ID, AgentName("edge")), QueueName(SLING_ID, AgentName("west"))
CAUSE = FailureCause("StorageFull", "no space left on device", "/content/a", "Traceback …")


def record_of(message: Message) -> NewRecord:
    headers, value = encode_message(message)
    return NewRecord(value, headers)


def package(publisher: AgentName = AUTHOR) -> NewRecord:
    return record_of(PackageMessage(SLING_ID, PackageId("p"), Action.ADD, "tree", publisher))


def status(
    offset: int,
    kind: PackageStatus = PackageStatus.REMOVED_FAILED,
    name: QueueName = EDGE,
    publisher: AgentName = AUTHOR,
) -> StatusMessage:
    return StatusMessage(
        name.sling_id, name.agent_name, publisher, Offset(offset), kind, PackageId(f"package {offset}"), CAUSE, 4
    )


@pytest.fixture
def journal() -> MemoryJournal:
    journal = MemoryJournal(ManualClock())
    for topic in (PACKAGES, STATUSES):
        journal.ensure_topic(topic, TopicSettings(retention_seconds=None))
    return journal


@pytest.fixture
def failed() -> FailedPackages:
    return FailedPackages()


@pytest.fixture
def sources(journal: MemoryJournal, failed: FailedPackages) -> QueueSources:
    """Twenty packages, the odd ones of another publisher."""
    journal.append(PACKAGES, [package(AUTHOR), package(OTHER)] * 10)
    view = LogView(PACKAGES, {AUTHOR, OTHER}, journal.bounds(PACKAGES))
    count_past(view, journal)
    return QueueSources(view, PageReader(view, journal), failed)


class TestAnnouncements:
    @pytest.mark.parametrize(("last_done", "count"), [(-(2**63), 10), (2**63 - 1, 0)])
    def test_absurd_numbers_do_no_harm(self, sources: QueueSources, last_done: int, count: int) -> None:
        queue = SubscriberQueue(QueuePosition(EDGE, AUTHOR, last_done, 2**31), sources.view, sources.pages)
        assert queue.size().count == count
        assert len(queue.page().items) == count

    @given(states=st.lists(st.sampled_from([QueueState.IDLE, QueueState.RUNNING, QueueState.BLOCKED])))
    def test_the_worst_queue_is_the_agents_state(self, states: list[QueueState]) -> None:
        order = [QueueState.IDLE, QueueState.RUNNING, QueueState.BLOCKED]
        assert decide_agent_state(states) is max(states, key=order.index, default=QueueState.IDLE)


class TestQueuesOfAPublisher:
    @pytest.fixture
    def standings(self) -> list[QueuePosition]:
        return [
            QueuePosition(WEST, AUTHOR, 18, max_retries=0),
            QueuePosition(EDGE, AUTHOR, 3, attempts=5),
            QueuePosition(EDGE, OTHER, 19),
        ]

    @pytest.fixture
    def queues(self, sources: QueueSources, standings: list[QueuePosition]) -> PublisherQueues:
        return PublisherQueues(AUTHOR, sources, standings)

    def test_each_follower_has_a_queue_and_an_error_queue_if_it_ever_gives_up(self, queues: PublisherQueues) -> None:
        assert [queue.name for queue in queues.all()] == [
            f"{SLING_ID}-{name}" for name in ("edge", "west", "west-error")
        ]

    def test_a_queue_is_found_by_its_name(self, queues: PublisherQueues) -> None:
        edge, west_errors = queues.find(f"{SLING_ID}-edge"), queues.find(f"{SLING_ID}-west-error")
        assert isinstance(edge, SubscriberQueue)
        assert edge.size().count == 8
        assert isinstance(west_errors, ErrorQueue)
        assert west_errors.name == f"{SLING_ID}-west-error"

    @pytest.mark.parametrize("name", [f"{SLING_ID}-north", f"{SLING_ID}-edge-error", f"{'x' * 36}-edge"])
    def test_a_queue_that_is_not_there_is_named(self, queues: PublisherQueues, name: str) -> None:
        with pytest.raises(QueueMissingError, match=name):
            queues.find(name)

    def test_a_queue_is_found_by_its_subscribers_name(self, queues: PublisherQueues) -> None:
        edge, west_errors = queues.find("edge"), queues.find("west-error")
        assert edge.name == f"{SLING_ID}-edge"
        assert isinstance(west_errors, ErrorQueue)
        assert west_errors.name == f"{SLING_ID}-west-error"

    @pytest.mark.parametrize("name", ["north", "edge-error", "", "x" * 300, "-error"])
    def test_a_name_that_no_one_has_is_answered_with_those_there_are(self, queues: PublisherQueues, name: str) -> None:
        with pytest.raises(QueueMissingError, match="queues: edge, west"):
            queues.find(name)

    def test_a_name_that_several_have_is_not_guessed(
        self, queues: PublisherQueues, standings: list[QueuePosition]
    ) -> None:
        other = SlingId("1" * 36)
        standings.append(QueuePosition(QueueName(other, AgentName("edge")), AUTHOR, -1))
        with pytest.raises(QueueMissingError, match="2 subscribers are called edge"):
            queues.find("edge")
        assert queues.find(f"{other}-edge").name == f"{other}-edge"

    def test_an_agent_whose_name_looks_like_an_error_queue_is_found(
        self, queues: PublisherQueues, standings: list[QueuePosition]
    ) -> None:
        standings.append(QueuePosition(QueueName(SLING_ID, AgentName("edge-error")), AUTHOR, -1))
        found = queues.find(f"{SLING_ID}-edge-error")
        assert isinstance(found, SubscriberQueue)
        assert found.size().count == 10

    def test_of_two_standings_of_one_subscriber_the_last_counts(
        self, queues: PublisherQueues, standings: list[QueuePosition]
    ) -> None:
        standings.append(QueuePosition(EDGE, AUTHOR, 17))
        assert [queue.size().count for queue in queues.subscriber_queues()] == [1, 0]


class TestErrorQueues:
    @pytest.fixture
    def errors(self, sources: QueueSources) -> ErrorQueue:
        return ErrorQueue(EDGE, AUTHOR, sources.failed, sources.view)

    def test_without_failures_it_is_empty(self, errors: ErrorQueue, sources: QueueSources) -> None:
        assert errors.size().count == 0
        assert errors.page(sources.pages) == []

    def test_it_is_passive_and_can_not_be_edited(self, errors: ErrorQueue, failed: FailedPackages) -> None:
        failed.apply(status(4))
        assert errors.state() is QueueState.PASSIVE
        assert errors.capabilities == frozenset()

    def test_attempts_are_unknown_where_the_status_names_none(self, failed: FailedPackages) -> None:
        """Sling's statuses have no attempts."""
        failed.apply(replace(status(4), attempts=0))
        found = failed.find(FailurePlace(AUTHOR, EDGE, Offset(4)))
        assert found is not None
        assert found.attempts is None

    def test_packages_given_up_are_in_it_by_offset_with_their_cause(
        self, errors: ErrorQueue, failed: FailedPackages, sources: QueueSources
    ) -> None:
        for offset in (8, 4):
            failed.apply(status(offset))
        first, second = errors.page(sources.pages)
        assert (str(first.id), str(second.id)) == ("package-0@4", "package-0@8")
        assert (first.failed.cause, first.failed.attempts, first.failed.package_id) == (CAUSE, 4, "package 4")
        assert first.entry is not None
        assert first.entry.offset == 4
        assert [item.id.offset for item in errors.page(sources.pages, 5)] == [8]
        assert [item.id.offset for item in errors.page(sources.pages, 0, 1)] == [4]

    def test_only_what_was_given_up_counts(self, errors: ErrorQueue, failed: FailedPackages) -> None:
        failed.apply(status(4, PackageStatus.IMPORTED))
        failed.apply(status(6, PackageStatus.REMOVED))
        failed.apply(status(8, name=WEST))
        failed.apply(status(9, publisher=OTHER))
        assert errors.size().count == 0

    def test_the_same_failure_twice_is_one(self, errors: ErrorQueue, failed: FailedPackages) -> None:
        failed.apply(status(4))
        failed.apply(status(4))
        assert errors.size().count == 1

    def test_a_package_that_was_imported_after_all_leaves_it(self, errors: ErrorQueue, failed: FailedPackages) -> None:
        failed.apply(status(4))
        failed.apply(status(6))
        failed.apply(status(4, PackageStatus.IMPORTED))
        assert errors.size().count == 1

    def test_what_retention_removed_is_neither_shown_nor_counted(
        self, errors: ErrorQueue, failed: FailedPackages, sources: QueueSources
    ) -> None:
        for offset in (2, 4, 8):
            failed.apply(status(offset))
        sources.view.trim(Offset(4))
        assert errors.size().count == 2
        assert [item.id.offset for item in errors.page(sources.pages)] == [4, 8]
        failed.trim(Offset(8))
        assert failed.of(AUTHOR, EDGE, Offset(0))[0].offset == 8

    def test_a_status_for_an_offset_that_never_was_has_no_entry(
        self, errors: ErrorQueue, failed: FailedPackages, sources: QueueSources
    ) -> None:
        failed.apply(status(2**62))
        (item,) = errors.page(sources.pages)
        assert item.entry is None

    def test_invented_failures_do_not_fill_the_memory(self) -> None:
        failed = FailedPackages(max_bytes=50_000)
        for number, offset in itertools.product(range(30), range(10)):
            failed.apply(status(offset, name=QueueName(SLING_ID, AgentName(f"agent{number}"))))
            assert failed.size_bytes <= 50_000
        places = failed.places(Offset(0))
        assert failed.forgotten_count == 300 - len(places)
        assert 3 <= len({place.queue_name for place in places}) < 10
        assert failed.may_have_forgotten(AUTHOR, QueueName(SLING_ID, AgentName("agent0")), 9)
        assert not failed.may_have_forgotten(AUTHOR, QueueName(SLING_ID, AgentName("agent29")), 10)

    def test_a_full_queue_loses_texts_first_and_then_its_oldest_entries(self, sources: QueueSources) -> None:
        failed = FailedPackages(max_queue_bytes=400_000)
        errors = ErrorQueue(EDGE, AUTHOR, failed, sources.view)
        for offset in range(2_000):
            failed.apply(replace(status(offset), cause=FailureCause("StorageFull", "m" * 1_000, "/a", "t" * 2_000)))
            failed.apply(status(offset, name=WEST)) if offset < 10 else None
        of_edge, of_west = failed.of(AUTHOR, EDGE, Offset(0)), failed.of(AUTHOR, WEST, Offset(0))
        assert failed.size_bytes <= 450_000
        assert (len(of_edge) + failed.forgotten_count, of_edge[-1].offset) == (2_000, 1_999)
        assert of_edge[0].cause == FailureCause("StorageFull", "", is_truncated=True)
        assert [item.cause == CAUSE for item in of_west] == [True] * 10
        assert not errors.size().is_exact
        assert failed.may_have_forgotten(AUTHOR, EDGE, of_edge[0].offset - 1)
        assert not failed.may_have_forgotten(AUTHOR, EDGE, of_edge[0].offset)
        assert not failed.may_have_forgotten(AUTHOR, WEST, 0)
        failed.trim(Offset(2_000))
        assert failed.size_bytes == 0

    def test_they_are_rebuilt_from_the_status_topic(self, journal: MemoryJournal, failed: FailedPackages) -> None:
        garbage = NewRecord(b"\xff", (("type", b"3"), ("version", b"1")))
        journal.append(STATUSES, [record_of(status(4)), garbage, record_of(PingMessage()), record_of(status(6))])
        follower = StatusFollower([failed], journal, STATUSES, ManualClock())
        assert follower.follow(0.0) == 4
        assert [item.offset for item in failed.of(AUTHOR, EDGE, Offset(0))] == [4, 6]
        journal.append(STATUSES, [record_of(status(4, PackageStatus.IMPORTED))])
        follower.follow(0.0)
        assert [item.offset for item in failed.of(AUTHOR, EDGE, Offset(0))] == [6]
        follower.close()

    def test_a_status_topic_that_was_made_again_is_read_again(
        self, journal: MemoryJournal, failed: FailedPackages
    ) -> None:
        journal.append(STATUSES, [record_of(status(4))])
        follower = StatusFollower([failed], journal, STATUSES, ManualClock())
        follower.follow(0.0)
        journal.delete_topic(STATUSES)
        journal.ensure_topic(STATUSES, TopicSettings())
        journal.append(STATUSES, [record_of(status(6))])
        follower.follow(0.0)
        follower.follow(0.0)
        assert [item.offset for item in failed.of(AUTHOR, EDGE, Offset(0))] == [6]

    def test_a_follower_that_waits_can_be_interrupted(self, journal: MemoryJournal, failed: FailedPackages) -> None:
        follower = StatusFollower([failed], journal, STATUSES, ManualClock())
        with in_background(lambda: follower.follow(LONG_WAIT_SECONDS)) as following:
            follower.interrupt()
            assert following.result(PATIENCE_SECONDS) == 0
