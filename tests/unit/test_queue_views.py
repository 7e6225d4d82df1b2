"""Queues as views over the log: pages, sizes, states and plans, checked against a plain list."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mailboat.errors import JournalUnavailableError, UsageError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import JournalReader, NewRecord, ReadLimits, RecordBatch, Start, TopicSettings
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import Action, FailureCause, PackageMessage, PingMessage
from mailboat.model.paths import parse_path
from mailboat.model.pieces import PieceMessage
from mailboat.model.positions import Bounds
from mailboat.queues.entries import DecodedRecords, decode_entries
from mailboat.queues.following import LogFollower, count_past
from mailboat.queues.log_view import LogView, Stretch
from mailboat.queues.names import EntryId, QueueName
from mailboat.queues.offsets import QueueSize
from mailboat.queues.pages import PageLimits, PageReader
from mailboat.queues.standing import Capability, ItemState, QueueState, Standing
from mailboat.queues.subscriber_queue import RemovalRefusedError, SubscriberQueue
from mailboat.testing.clocks import ManualClock
from mailboat.testing.journal_harness import LONG_WAIT_SECONDS, PATIENCE_SECONDS, in_background
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.messages import encode_message
from mailboat.wire.pieces import encode_piece

TOPIC = TopicName("package")
A, B = AgentName("a"), AgentName("b")
SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")
QUEUE = QueueName(SLING_ID, AgentName("edge"))


def package_record(
    publisher: AgentName | None, action: Action = Action.ADD, paths: Sequence[str] = ("/a",)
) -> NewRecord:
    message = PackageMessage(
        SLING_ID,
        PackageId(f"dstrpck-1-{uuid.uuid4()}"),
        action,
        "tree",
        publisher,
        7,
        b"payload",
        paths=tuple(parse_path(path) for path in paths),
        user_id="ann",
    )
    headers, value = encode_message(message)
    return NewRecord(value, headers)


def ping_record() -> NewRecord:
    headers, value = encode_message(PingMessage())
    return NewRecord(value, headers)


GARBAGE = NewRecord(b"\xff\xff", (("type", b"2"), ("version", b"1")))
FOREIGN = NewRecord(b"?", (("type", b"99"), ("version", b"1")))


class Counting(MemoryJournal):
    """A journal that counts the records that are read from it."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.records_read = 0
        self.readers_open = 0

    def reader(self, topic: TopicName, start: Start) -> CountingReader:  # type: ignore[override]
        return CountingReader(self, super().reader(topic, start))


class CountingReader:
    def __init__(self, journal: Counting, reader: JournalReader) -> None:
        self.journal = journal
        self.reader = reader
        journal.readers_open += 1

    @property
    def next_offset(self) -> Offset:
        return self.reader.next_offset

    def read(self, limits: ReadLimits, wait_seconds: float) -> RecordBatch:
        batch = self.reader.read(limits, wait_seconds)
        self.journal.records_read += len(batch.records)
        return batch

    def interrupt(self) -> None:
        self.reader.interrupt()

    def close(self) -> None:
        self.journal.readers_open -= 1
        self.reader.close()


@pytest.fixture
def journal() -> Counting:
    journal = Counting()
    journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=None))
    return journal


def view_of(journal: MemoryJournal, budget_bytes: int = 10**7) -> LogView:
    return LogView(TOPIC, {A, B}, journal.bounds(TOPIC), budget_bytes)


def counted_view_of(journal: MemoryJournal) -> LogView:
    view = view_of(journal)
    while count_past(view, journal):
        pass
    return view


def queue_of(journal: MemoryJournal, view: LogView, done: int = -1, **standing: object) -> SubscriberQueue:
    values = Standing(QUEUE, A, done, **standing)  # type: ignore[arg-type]
    return SubscriberQueue(values, view, PageReader(view, journal))


def offsets_of(queue: SubscriberQueue, at_once: int = 100) -> list[int]:
    """All of a queue, page by page."""
    found: list[int] = []
    position = 0
    while True:
        page = queue.page(position, at_once)
        assert len(page.items) <= at_once
        found += [item.entry.offset for item in page.items]
        if page.is_last:
            return found
        assert page.next_offset > position
        position = page.next_offset


class TestSizesAndPages:
    def test_the_queue_is_what_lies_after_the_position(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A) for _ in range(10)])
        view = counted_view_of(journal)
        assert queue_of(journal, view).size() == QueueSize(10, is_exact=True)
        assert queue_of(journal, view, 3).size() == QueueSize(6, is_exact=True)
        assert offsets_of(queue_of(journal, view, 3)) == [4, 5, 6, 7, 8, 9]
        assert queue_of(journal, view, 9).size() == QueueSize(0, is_exact=True)

    def test_others_packages_tests_and_strange_records_are_neither_counted_nor_shown(self, journal: Counting) -> None:
        records = [
            package_record(A),
            package_record(B),
            package_record(A, Action.TEST),
            package_record(None, Action.TEST),
            package_record(A, Action.INVALIDATE),
            GARBAGE,
            FOREIGN,
            ping_record(),
            package_record(AgentName("stranger")),
            package_record(A, Action.DELETE),
        ]
        journal.append(TOPIC, records)
        queue = queue_of(journal, counted_view_of(journal))
        assert queue.size() == QueueSize(3, is_exact=True)
        assert [item.entry.action for item in queue.page().items] == [Action.ADD, Action.INVALIDATE, Action.DELETE]

    def test_an_item_tells_what_the_package_is(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A, paths=("/content/one", "/content/two"))])
        (item,) = queue_of(journal, view_of(journal)).page().items
        assert str(item.id) == "package-0@0"
        assert (item.entry.first_path, item.entry.path_count) == ("/content/one", 2)
        assert (item.entry.user_id, item.entry.length_bytes, item.entry.publisher) == ("ann", 7, A)
        assert item.entry.appended_ms == ManualClock().now().timestamp() * 1000

    def test_all_paths_are_read_from_the_message(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A, paths=[f"/content/{n}" for n in range(50)]), GARBAGE])
        pages = PageReader(view_of(journal), journal)
        message = pages.message(Offset(0))
        assert message is not None
        assert len(message.paths) == 50
        assert pages.message(Offset(1)) is None
        assert pages.message(Offset(2)) is None
        assert pages.message(Offset(-1)) is None

    def test_before_the_past_is_counted_a_size_is_what_it_can_be_at_most(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A), package_record(B)] * 50)
        view = view_of(journal)
        assert queue_of(journal, view, 9).size() == QueueSize(90, is_exact=False)
        assert count_past(view, journal, 60) is True
        assert queue_of(journal, view, 9).size() == QueueSize(60, is_exact=False)
        assert queue_of(journal, view, 39).size() == QueueSize(30, is_exact=True)
        assert count_past(view, journal, 60) is False
        assert queue_of(journal, view, 9).size() == QueueSize(45, is_exact=True)
        assert count_past(view, journal, 60) is False

    def test_the_first_page_of_a_long_log_does_not_read_it_all(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A) for _ in range(20_000)])
        queue = queue_of(journal, view_of(journal), 4999)
        assert [item.entry.offset for item in queue.page(0, 100).items] == list(range(5000, 5100))
        assert journal.records_read <= 512

    def test_a_page_among_others_packages_goes_no_farther_than_its_limit(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(B)] * 3000 + [package_record(A)])
        view = view_of(journal)
        queue = SubscriberQueue(Standing(QUEUE, A, -1), view, PageReader(view, journal, PageLimits(1000)))
        page = queue.page(0, 10)
        assert page.items == []
        assert not page.is_last
        assert 1000 <= page.next_offset < 1300
        assert offsets_of(queue) == [3000]

    def test_where_offsets_are_known_a_page_jumps_over_others_packages(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] + [package_record(B)] * 3000 + [package_record(A)])
        view = counted_view_of(journal)
        journal.records_read = 0
        assert offsets_of(queue_of(journal, view)) == [0, 3001]
        assert journal.records_read <= 600

    def test_where_offsets_are_known_nothing_is_read_after_the_last_package(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] + [package_record(B)] * 3000)
        view = counted_view_of(journal)
        journal.records_read = 0
        assert offsets_of(queue_of(journal, view, 0)) == []
        assert journal.records_read == 0

    def test_a_page_that_was_read_once_is_not_read_again(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] * 1000)
        view = view_of(journal)
        first = queue_of(journal, view, 99).page(0, 100)
        journal.records_read = 0
        assert queue_of(journal, view, 99).page(0, 100) == first
        assert journal.records_read == 0

    def test_what_is_followed_is_not_read_again(self, journal: Counting) -> None:
        view = view_of(journal)
        follower = LogFollower(view, journal)
        journal.append(TOPIC, [package_record(A)] * 700)
        while follower.follow(0.0):
            pass
        journal.records_read = 0
        assert offsets_of(queue_of(journal, view)) == list(range(700))
        assert journal.records_read == 0

    def test_the_budget_of_details_is_kept_and_pages_still_come(self, journal: Counting) -> None:
        budget_bytes = 100_000
        view = view_of(journal, budget_bytes)
        follower = LogFollower(view, journal)
        journal.append(TOPIC, [package_record(A)] * 5000)
        while follower.follow(0.0):
            assert view.size_bytes <= budget_bytes + 9 * 5000
        assert view.counts.evicted_blocks > 0
        assert queue_of(journal, view).size() == QueueSize(5000, is_exact=True)
        assert offsets_of(queue_of(journal, view)) == list(range(5000))
        assert view.size_bytes <= budget_bytes + 9 * 5000

    @pytest.mark.parametrize("is_counted", [True, False])
    @pytest.mark.parametrize("skipped", [0, 1, 30, 49, 50, 51, 10_000])
    def test_a_page_can_leave_out_a_number_of_items(self, journal: Counting, is_counted: bool, skipped: int) -> None:
        journal.append(TOPIC, [package_record(A), package_record(B)] * 50)
        queue = queue_of(journal, counted_view_of(journal) if is_counted else view_of(journal))
        found = [item.entry.offset for item in queue.page(queue.skip(skipped)).items]
        assert found == list(range(0, 100, 2))[skipped:]

    def test_large_packages_are_read_in_small_portions(self, journal: Counting) -> None:
        large = package_record(A)
        journal.append(TOPIC, [large] * 300)
        view = view_of(journal)
        limits = PageLimits(read=ReadLimits(max_records=256, max_bytes=3 * len(large.value)))
        pages = PageReader(view, journal, limits)
        assert [one.offset for one in pages.page(A, 5, 10).entries] == list(range(5, 15))
        journal.records_read = 0
        assert [one.offset for one in pages.page(A, 5, 10).entries] == list(range(5, 15))
        assert journal.records_read == 0

    def test_readers_are_given_back(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A), package_record(B)] * 300)
        view = counted_view_of(journal)
        queue = queue_of(journal, view)
        offsets_of(queue, 7)
        queue.find(EntryId(TOPIC, Offset(2)))
        assert journal.readers_open == 0


class TestTrimmingAndReplacement:
    def test_what_retention_removed_leaves_size_and_pages(self, journal: Counting) -> None:
        view = view_of(journal)
        follower = LogFollower(view, journal)
        journal.append(TOPIC, [package_record(A)] * 600)
        journal.truncate(TOPIC, Offset(300))
        journal.append(TOPIC, [package_record(A)])
        while follower.follow(0.0):
            pass
        # the follower itself stood below the head and began anew
        assert view.counts.restarts == 1
        while count_past(view, journal):
            pass
        assert queue_of(journal, view).size() == QueueSize(301, is_exact=True)
        journal.truncate(TOPIC, Offset(500))
        journal.append(TOPIC, [package_record(A)])
        follower.follow(0.0)
        assert queue_of(journal, view).size() == QueueSize(102, is_exact=True)
        assert offsets_of(queue_of(journal, view)) == list(range(500, 602))

    def test_a_page_that_is_overtaken_by_retention_begins_with_what_is_left(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] * 600)
        view = view_of(journal)
        journal.truncate(TOPIC, Offset(400))
        assert offsets_of(queue_of(journal, view)) == list(range(400, 600))
        assert view.bounds.earliest_offset == 400
        assert PageReader(view, journal).entry(A, Offset(3)) is None

    def test_a_view_that_is_overtaken_by_retention_goes_on_where_the_log_begins(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] * 1000)
        view = LogView(TOPIC, {A}, Bounds(Offset(0), Offset(0)))
        view.extend(decode_entries(journal.reader(TOPIC, Offset(0)).read(ReadLimits(10), 0.0).records, {A}), Offset(10))
        view.trim(Offset(700))
        view.extend(
            decode_entries(journal.reader(TOPIC, Offset(700)).read(ReadLimits(300), 0.0).records, {A}),
            Offset(1000),
        )
        assert queue_of(journal, view).size() == QueueSize(300, is_exact=True)
        assert offsets_of(queue_of(journal, view)) == list(range(700, 1000))

    def test_counting_that_is_overtaken_by_retention_goes_on(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] * 600)
        view = view_of(journal)
        journal.truncate(TOPIC, Offset(400))
        while count_past(view, journal, 500):
            pass
        assert queue_of(journal, view).size() == QueueSize(200, is_exact=True)

    def test_a_log_that_was_made_anew_begins_anew(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] * 10)
        view = counted_view_of(journal)
        follower = LogFollower(view, journal)
        journal.delete_topic(TOPIC)
        journal.ensure_topic(TOPIC, TopicSettings())
        journal.append(TOPIC, [package_record(A)] * 3)
        follower.follow(0.0)
        journal.append(TOPIC, [package_record(A)])
        follower.follow(0.0)
        while count_past(view, journal):
            pass
        assert view.counts.restarts == 1
        assert queue_of(journal, view).size() == QueueSize(4, is_exact=True)

    def test_what_was_read_of_the_old_log_is_not_taken_in(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] * 10)
        view = view_of(journal)
        generation = view.generation
        view.restart(journal.bounds(TOPIC))
        view.offer_details(Stretch((), Offset(0), Offset(10)), generation)
        assert view.find_details(A, 0, 1) is None
        assert view.extend_back(DecodedRecords((), 0), Offset(0), Offset(10), generation) is False

    def test_pieces_of_packages_are_no_messages(self, journal: Counting) -> None:
        piece = NewRecord(encode_piece(PieceMessage(SLING_ID, A, PackageId("p"), 0, b"x")), PIECE_HEADERS)
        journal.append(TOPIC, [package_record(A), *[piece] * 5, package_record(B)])
        view = view_of(journal)
        assert view.messages_from(0) == 7  # nothing is counted yet
        count_past(view, journal)
        journal.append(TOPIC, [piece, piece, package_record(A)])
        LogFollower(view, journal).follow(0.0)
        assert [view.messages_from(offset) for offset in (0, 1, 3, 7, 9, 10)] == [3, 2, 2, 1, 1, 0]
        journal.truncate(TOPIC, Offset(3))
        view.trim(Offset(3))
        assert view.messages_from(0) == 2
        assert queue_of(journal, view).size() == QueueSize(1, is_exact=True)

    def test_a_log_that_is_shorter_than_the_view_ends_the_page(self, journal: Counting) -> None:
        view = view_of(journal)
        view.extend(DecodedRecords((), 0), Offset(50))
        page = queue_of(journal, view, 20).page()
        assert page.items == []
        assert page.is_last

    def test_a_position_beyond_the_end_is_an_empty_queue(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] * 5)
        view = counted_view_of(journal)
        queue = queue_of(journal, view, 2**62)
        assert queue.size() == QueueSize(0, is_exact=True)
        assert queue.page().items == []
        assert queue.head() is None
        assert queue.state() is QueueState.IDLE


class TestConcurrency:
    def test_no_page_waits_for_the_counting_of_the_past(self, journal: Counting) -> None:
        """The original lets all readers of a queue wait while one fetches the head (SLING-9162)."""
        journal.append(TOPIC, [package_record(A)] * 3000)
        view = view_of(journal)
        in_the_middle, go_on = threading.Event(), threading.Event()

        class Slow(Counting):
            def reader(self, topic: TopicName, start: Start) -> CountingReader:
                in_the_middle.set()
                assert go_on.wait(PATIENCE_SECONDS)
                return journal.reader(topic, start)

        with in_background(lambda: count_past(view, Slow())) as counting:
            assert in_the_middle.wait(PATIENCE_SECONDS)
            assert len(queue_of(journal, view).page(0, 10).items) == 10
            go_on.set()
            assert counting.result(PATIENCE_SECONDS) is True

    def test_counting_a_log_with_holes_takes_no_package_twice(self, journal: Counting) -> None:
        """A log may have holes, so a step may meet records that lie after it."""
        journal.append(TOPIC, [package_record(A)] * 20)
        view = LogView(TOPIC, {A}, Bounds(Offset(0), Offset(7)))

        class Holey(Counting):
            def reader(self, topic: TopicName, start: Start) -> CountingReader:
                reader = journal.reader(topic, start)
                inner = reader.read

                def read(limits: ReadLimits, wait_seconds: float) -> RecordBatch:
                    batch = inner(ReadLimits(20), wait_seconds)
                    return batch._replace(records=[one for one in batch.records if one.offset % 5 == 0])

                reader.read = read  # type: ignore[method-assign]
                return reader

        assert count_past(view, Holey()) is False
        assert view.size_after(A, -1) == QueueSize(2, is_exact=True)

    def test_many_may_count_the_same_past_at_once(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A), package_record(B)] * 2000)
        view = view_of(journal)

        def count_all(_: int) -> None:
            while count_past(view, journal, 300):
                pass

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count_all, range(4)))
        assert queue_of(journal, view).size() == QueueSize(2000, is_exact=True)

    def test_a_follower_that_waits_can_be_interrupted(self, journal: Counting) -> None:
        follower = LogFollower(view_of(journal), journal)
        with in_background(lambda: follower.follow(LONG_WAIT_SECONDS)) as following:
            follower.interrupt()
            assert following.result(PATIENCE_SECONDS) == 0
        follower.close()

    def test_a_log_that_does_not_answer_in_time_is_unavailable(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] * 3)
        view = view_of(journal)

        class Silent(Counting):
            def reader(self, topic: TopicName, start: Start) -> CountingReader:
                reader = journal.reader(topic, start)
                reader.read = lambda *_: RecordBatch((), reader.next_offset, is_at_end=False)  # type: ignore[method-assign]
                return reader

        with pytest.raises(JournalUnavailableError):
            PageReader(view, Silent()).page(A, 0, 10)


class TestStates:
    @pytest.mark.parametrize(
        ("done", "attempts", "expected"),
        [
            (-1, 0, QueueState.RUNNING),
            (-1, 1, QueueState.RUNNING),
            (-1, 2, QueueState.RUNNING),
            (-1, 3, QueueState.BLOCKED),
            (-1, 100, QueueState.BLOCKED),
            (4, 0, QueueState.IDLE),
            (4, 3, QueueState.IDLE),
        ],
    )
    def test_a_queue_is_blocked_from_the_third_attempt_on(
        self, journal: Counting, done: int, attempts: int, expected: QueueState
    ) -> None:
        journal.append(TOPIC, [package_record(A)] * 5)
        assert queue_of(journal, counted_view_of(journal), done, attempts=attempts).state() is expected

    def test_only_the_head_has_attempts_and_a_cause(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)] * 5)
        cause = FailureCause("StorageFull", "no space left", "/content/a")
        queue = queue_of(journal, view_of(journal), 1, attempts=2, cause=cause)
        items = queue.page().items
        assert [(item.state, item.attempts) for item in items] == [
            (ItemState.ERROR, 2),
            (ItemState.QUEUED, 0),
            (ItemState.QUEUED, 0),
        ]
        assert [item.cause for item in items] == [cause, None, None]
        assert queue.head() == items[0]
        assert queue.page(3).items == items[1:]
        assert queue.find(items[0].id) == items[0]
        assert queue.find(items[2].id) == items[2]

    def test_a_subscriber_without_failures_has_no_cause(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)])
        cause = FailureCause("StorageFull", "an old one")
        head = queue_of(journal, view_of(journal), cause=cause).head()
        assert head is not None
        assert (head.state, head.cause) == (ItemState.QUEUED, None)

    def test_what_is_not_in_the_queue_is_not_found(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A), package_record(A), package_record(B)])
        queue = queue_of(journal, view_of(journal), 0)
        assert queue.find(EntryId(TOPIC, Offset(1))) is not None
        for strange in (
            EntryId(TOPIC, Offset(0)),
            EntryId(TOPIC, Offset(2)),
            EntryId(TOPIC, Offset(3)),
            EntryId(TOPIC, Offset(2**62)),
            EntryId(TopicName("status"), Offset(1)),
        ):
            assert queue.find(strange) is None

    def test_a_publisher_of_another_process_is_refused(self, journal: Counting) -> None:
        queue = SubscriberQueue(
            Standing(QUEUE, AgentName("stranger"), -1), view_of(journal), PageReader(view_of(journal), journal)
        )
        for call in (queue.size, queue.page, queue.head):
            with pytest.raises(UsageError, match="stranger"):
                call()


class TestPlans:
    @pytest.fixture
    def queue(self, journal: Counting) -> SubscriberQueue:
        """The packages 2, 4, 6, 8 of A wait; those of B lie between."""
        journal.append(TOPIC, [package_record(A), package_record(B)] * 5)
        return queue_of(journal, counted_view_of(journal), 0, is_editable=True)

    def test_a_clear_of_some_ends_with_the_last_of_them(self, queue: SubscriberQueue) -> None:
        plan = queue.plan_clear(3)
        assert plan is not None
        assert (plan.up_to_offset, plan.size) == (6, QueueSize(3, is_exact=True))

    @pytest.mark.parametrize("max_entries", [None, 4, 5, 1000])
    def test_a_clear_of_all_ends_with_the_last_package(self, queue: SubscriberQueue, max_entries: int | None) -> None:
        plan = queue.plan_clear(max_entries)
        assert plan is not None
        assert (plan.up_to_offset, plan.size.count) == (8, 4)

    def test_a_clear_of_nothing_is_no_plan(self, queue: SubscriberQueue, journal: Counting) -> None:
        assert queue.plan_clear(0) is None
        assert queue.plan_clear(-5) is None
        empty = queue_of(journal, counted_view_of(journal), 8, is_editable=True)
        assert empty.plan_clear() is None
        assert empty.plan_clear(3) is None

    def test_a_clear_while_the_past_is_not_counted_walks_to_its_end(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A), package_record(B)] * 2000)
        queue = queue_of(journal, view_of(journal), 0, is_editable=True)
        plan = queue.plan_clear(1500)
        assert plan is not None
        assert plan.up_to_offset == 3000
        assert not plan.size.is_exact
        everything = queue.plan_clear()
        assert everything is not None
        assert everything.up_to_offset == 3999

    def test_the_head_can_be_removed_alone(self, queue: SubscriberQueue) -> None:
        plan = queue.plan_remove([EntryId(TOPIC, Offset(2))])
        assert plan is not None
        assert (plan.up_to_offset, plan.size.count) == (2, 1)

    def test_another_entry_can_not_be_removed_alone(self, queue: SubscriberQueue) -> None:
        with pytest.raises(RemovalRefusedError, match="package-0@4") as refused:
            queue.plan_remove([EntryId(TOPIC, Offset(4))])
        assert refused.value.next_step == f"name those before it too: mailboat queue show {queue.name}"

    def test_a_set_is_removed_with_all_before_its_last(self, queue: SubscriberQueue) -> None:
        plan = queue.plan_remove([EntryId(TOPIC, Offset(6)), EntryId(TOPIC, Offset(4))])
        assert plan is not None
        assert (plan.up_to_offset, plan.size.count) == (6, 3)

    @pytest.mark.parametrize("offsets", [(2, 999), (2, 3), (0,), (0, 4), (2**62,)])
    def test_what_is_not_in_the_queue_any_more_is_named_and_nothing_is_removed(
        self, queue: SubscriberQueue, offsets: tuple[int, ...]
    ) -> None:
        with pytest.raises(RemovalRefusedError, match="is not in"):
            queue.plan_remove([EntryId(TOPIC, Offset(offset)) for offset in offsets])

    def test_a_removal_of_nothing_is_no_plan(self, queue: SubscriberQueue) -> None:
        assert queue.plan_remove([]) is None

    def test_a_removal_names_a_bounded_number_of_entries(self, queue: SubscriberQueue) -> None:
        with pytest.raises(RemovalRefusedError, match="10000"):
            queue.plan_remove([EntryId(TOPIC, Offset(2))] * 10_001)

    def test_without_an_editable_subscriber_nothing_can_be_removed(self, journal: Counting) -> None:
        journal.append(TOPIC, [package_record(A)])
        queue = queue_of(journal, view_of(journal))
        assert queue.capabilities == frozenset()
        for call in (queue.plan_clear, lambda: queue.plan_remove([EntryId(TOPIC, Offset(0))])):
            with pytest.raises(match="edge"):
                call()

    def test_an_editable_subscribers_queue_says_so(self, queue: SubscriberQueue) -> None:
        assert queue.capabilities == {Capability.CLEARABLE, Capability.REMOVABLE}


class TestAgainstAPlainList:
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_any_history_gives_the_same_as_a_plain_list(self, data: st.DataObject) -> None:
        """Appends, retention, following, counting and looking in any order, with little room for details."""
        journal = Counting()
        journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=None))
        kinds = {"a": package_record(A), "b": package_record(B), "t": package_record(A, Action.TEST), "?": GARBAGE}
        stretches = st.builds(
            lambda kinds, times: list(kinds * times), st.text("abt?", min_size=1, max_size=5), st.integers(1, 80)
        )
        log: list[str] = data.draw(stretches, "already there")
        journal.append(TOPIC, [kinds[kind] for kind in log])
        view = view_of(journal, data.draw(st.sampled_from([0, 3000, 10**6]), "budget"))
        limits = PageLimits(
            data.draw(st.sampled_from([1, 50, 5000]), "walk"), ReadLimits(data.draw(st.sampled_from([1, 7, 256])))
        )
        pages, follower, known = PageReader(view, journal, limits), LogFollower(view, journal), len(log)

        def append() -> None:
            more = data.draw(stretches, "more")
            journal.append(TOPIC, [kinds[kind] for kind in more])
            log.extend(more)

        def trim() -> None:
            before = data.draw(st.integers(0, len(log)), "before")
            journal.truncate(TOPIC, Offset(before))
            view.trim(journal.bounds(TOPIC).earliest_offset)

        def follow() -> None:
            nonlocal known
            while follower.follow(0.0):
                pass
            known = len(log)

        def look() -> None:
            publisher = data.draw(st.sampled_from([A, B]), "publisher")
            done = data.draw(st.integers(-1, len(log) + 2), "done")
            at_once = data.draw(st.integers(1, 40), "at once")
            earliest = journal.bounds(TOPIC).earliest_offset
            expected = [n for n in range(max(earliest, done + 1), known) if log[n] == str(publisher)]
            queue = SubscriberQueue(Standing(QUEUE, publisher, done, is_editable=True), view, pages)
            assert offsets_of(queue, at_once) == expected
            size = queue.size()
            assert size.count == len(expected) if size.is_exact else size.count >= len(expected)
            first = queue.plan_clear(at_once)
            assert (None if first is None else first.up_to_offset) == (expected[:at_once] or [None])[-1]

        steps = [append, trim, follow, lambda: count_past(view, journal, data.draw(st.integers(1, 100), "step"))]
        for step in data.draw(st.lists(st.sampled_from(steps), min_size=2, max_size=10), "steps"):
            step()
            look()
        follow()
        look()
        while count_past(view, journal, 64):
            pass
        look()
        assert journal.readers_open == 1
