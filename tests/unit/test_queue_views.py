"""Queues as views over the log: sizes, pages, and a log that is trimmed or made again, for many readers at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import JournalUnavailableError
from mailboat.journal.port import NewRecord, ReadLimits, RecordBatch, Start
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.messages import Action
from mailboat.model.pieces import PieceMessage
from mailboat.model.positions import Bounds
from mailboat.queues.entries import DecodedRecords, decode_entries
from mailboat.queues.log_follower import LogFollower, count_past
from mailboat.queues.log_view import LogView, Stretch
from mailboat.queues.offsets import QueueSize
from mailboat.queues.queue_names import EntryId
from mailboat.queues.queue_pages import PageLimits, PageReader
from mailboat.queues.queue_state import QueuePosition, QueueState
from mailboat.queues.subscriber_queue import SubscriberQueue
from mailboat.testing.clocks import ManualClock
from mailboat.testing.journal_harness import in_background
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.piece_messages import encode_piece
from support.queue_log import (
    FOREIGN,
    GARBAGE,
    QUEUE,
    SLING_ID,
    TOPIC,
    A,
    B,
    CountingJournal,
    CountingReader,
    counted_view_of,
    offsets_of,
    package_record,
    ping_record,
    queue_of,
    view_of,
)


@pytest.fixture
def journal() -> CountingJournal:
    return CountingJournal()


class TestSizesAndPages:
    def test_the_queue_is_what_lies_after_the_position(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A) for _ in range(10)])
        view = counted_view_of(journal)
        assert queue_of(journal, view).size() == QueueSize(10, is_exact=True)
        assert queue_of(journal, view, 3).size() == QueueSize(6, is_exact=True)
        assert offsets_of(queue_of(journal, view, 3)) == [4, 5, 6, 7, 8, 9]
        assert queue_of(journal, view, 9).size() == QueueSize(0, is_exact=True)

    def test_others_packages_tests_and_strange_records_are_neither_counted_nor_shown(
        self, journal: CountingJournal
    ) -> None:
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

    def test_an_item_tells_what_the_package_is(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A, paths=("/content/one", "/content/two"))])
        (item,) = queue_of(journal, view_of(journal)).page().items
        assert str(item.id) == "package-0@0"
        assert (item.entry.first_path, item.entry.path_count) == ("/content/one", 2)
        assert (item.entry.user_id, item.entry.length_bytes, item.entry.publisher) == ("ann", 7, A)
        assert item.entry.appended_ms == ManualClock().now().timestamp() * 1000

    def test_before_the_past_is_counted_a_size_is_what_it_can_be_at_most(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A), package_record(B)] * 50)
        view = view_of(journal)
        assert queue_of(journal, view, 9).size() == QueueSize(90, is_exact=False)
        assert count_past(view, journal, 60) is True
        assert queue_of(journal, view, 9).size() == QueueSize(60, is_exact=False)
        assert queue_of(journal, view, 39).size() == QueueSize(30, is_exact=True)
        assert count_past(view, journal, 60) is False
        assert queue_of(journal, view, 9).size() == QueueSize(45, is_exact=True)
        assert count_past(view, journal, 60) is False

    def test_the_first_page_of_a_long_log_does_not_read_it_all(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A) for _ in range(20_000)])
        queue = queue_of(journal, view_of(journal), 4999)
        assert [item.entry.offset for item in queue.page(0, 100).items] == list(range(5000, 5100))
        assert journal.records_read <= 512

    def test_a_page_among_others_packages_goes_no_farther_than_its_limit(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(B)] * 3000 + [package_record(A)])
        view = view_of(journal)
        queue = SubscriberQueue(QueuePosition(QUEUE, A, -1), view, PageReader(view, journal, PageLimits(1000)))
        page = queue.page(0, 10)
        assert page.items == []
        assert not page.is_last
        assert 1000 <= page.next_offset < 1300
        assert offsets_of(queue) == [3000]

    def test_where_offsets_are_known_a_page_jumps_over_others_packages(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)] + [package_record(B)] * 3000 + [package_record(A)])
        view = counted_view_of(journal)
        journal.records_read = 0
        assert offsets_of(queue_of(journal, view)) == [0, 3001]
        assert journal.records_read <= 600

    def test_where_offsets_are_known_nothing_is_read_after_the_last_package(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)] + [package_record(B)] * 3000)
        view = counted_view_of(journal)
        journal.records_read = 0
        assert offsets_of(queue_of(journal, view, 0)) == []
        assert journal.records_read == 0

    def test_a_page_that_was_read_once_is_not_read_again(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)] * 1000)
        view = view_of(journal)
        first = queue_of(journal, view, 99).page(0, 100)
        journal.records_read = 0
        assert queue_of(journal, view, 99).page(0, 100) == first
        assert journal.records_read == 0

    def test_what_is_followed_is_not_read_again(self, journal: CountingJournal) -> None:
        view = view_of(journal)
        follower = LogFollower(view, journal)
        journal.append(TOPIC, [package_record(A)] * 700)
        while follower.follow(0.0):
            pass
        journal.records_read = 0
        assert offsets_of(queue_of(journal, view)) == list(range(700))
        assert journal.records_read == 0

    def test_the_budget_of_details_is_kept_and_pages_still_come(self, journal: CountingJournal) -> None:
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

    def test_large_packages_are_read_in_small_portions(self, journal: CountingJournal) -> None:
        large = package_record(A)
        journal.append(TOPIC, [large] * 300)
        view = view_of(journal)
        limits = PageLimits(read=ReadLimits(max_records=256, max_bytes=3 * len(large.value)))
        pages = PageReader(view, journal, limits)
        assert [entry.offset for entry in pages.page(A, 5, 10).entries] == list(range(5, 15))
        journal.records_read = 0
        assert [entry.offset for entry in pages.page(A, 5, 10).entries] == list(range(5, 15))
        assert journal.records_read == 0

    def test_readers_are_given_back(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A), package_record(B)] * 300)
        view = counted_view_of(journal)
        queue = queue_of(journal, view)
        offsets_of(queue, 7)
        queue.find(EntryId(TOPIC, Offset(2)))
        assert journal.readers_open == 0


class TestTrimmingAndReplacement:
    def test_what_retention_removed_leaves_size_and_pages(self, journal: CountingJournal) -> None:
        view = view_of(journal)
        follower = LogFollower(view, journal)
        journal.append(TOPIC, [package_record(A)] * 600)
        journal.truncate(TOPIC, Offset(300))
        journal.append(TOPIC, [package_record(A)])
        while follower.follow(0.0):
            pass
        # the follower itself stood below the head and began again
        assert view.counts.restarts == 1
        while count_past(view, journal):
            pass
        assert queue_of(journal, view).size() == QueueSize(301, is_exact=True)
        journal.truncate(TOPIC, Offset(500))
        journal.append(TOPIC, [package_record(A)])
        follower.follow(0.0)
        assert queue_of(journal, view).size() == QueueSize(102, is_exact=True)
        assert offsets_of(queue_of(journal, view)) == list(range(500, 602))

    def test_a_page_that_is_overtaken_by_retention_begins_with_what_is_left(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)] * 600)
        view = view_of(journal)
        journal.truncate(TOPIC, Offset(400))
        assert offsets_of(queue_of(journal, view)) == list(range(400, 600))
        assert view.bounds.earliest_offset == 400
        assert PageReader(view, journal).entry(A, Offset(3)) is None

    def test_a_view_that_is_overtaken_by_retention_goes_on_where_the_log_begins(self, journal: CountingJournal) -> None:
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

    def test_counting_that_is_overtaken_by_retention_goes_on(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)] * 600)
        view = view_of(journal)
        journal.truncate(TOPIC, Offset(400))
        while count_past(view, journal, 500):
            pass
        assert queue_of(journal, view).size() == QueueSize(200, is_exact=True)

    def test_a_log_that_was_made_again_begins_again(self, journal: CountingJournal) -> None:
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

    def test_what_was_read_of_the_old_log_is_not_taken_in(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)] * 10)
        view = view_of(journal)
        generation = view.generation
        view.restart(journal.bounds(TOPIC))
        view.offer_details(Stretch((), Offset(0), Offset(10)), generation)
        assert view.find_details(A, 0, 1) is None
        assert view.extend_back(DecodedRecords((), 0), Offset(0), Offset(10), generation) is False

    def test_pieces_of_packages_are_no_messages(self, journal: CountingJournal) -> None:
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

    def test_a_log_that_is_shorter_than_the_view_ends_the_page(self, journal: CountingJournal) -> None:
        view = view_of(journal)
        view.extend(DecodedRecords((), 0), Offset(50))
        page = queue_of(journal, view, 20).page()
        assert page.items == []
        assert page.is_last

    def test_a_position_beyond_the_end_is_an_empty_queue(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)] * 5)
        view = counted_view_of(journal)
        queue = queue_of(journal, view, 2**62)
        assert queue.size() == QueueSize(0, is_exact=True)
        assert queue.page().items == []
        assert queue.head() is None
        assert queue.state() is QueueState.IDLE


class TestConcurrency:
    def test_no_page_waits_for_the_counting_of_the_past(self, journal: CountingJournal) -> None:
        """The original lets all readers of a queue wait while one fetches the head (SLING-9162)."""
        journal.append(TOPIC, [package_record(A)] * 3000)
        view = view_of(journal)
        in_the_middle, go_on = threading.Event(), threading.Event()

        class Slow(CountingJournal):
            def reader(self, topic: TopicName, start: Start) -> CountingReader:
                in_the_middle.set()
                assert go_on.wait(PATIENCE_SECONDS)
                return journal.reader(topic, start)

        with in_background(lambda: count_past(view, Slow())) as counting:
            assert in_the_middle.wait(PATIENCE_SECONDS)
            assert len(queue_of(journal, view).page(0, 10).items) == 10
            go_on.set()
            assert counting.result(PATIENCE_SECONDS) is True

    def test_counting_a_log_with_holes_takes_no_package_twice(self, journal: CountingJournal) -> None:
        """A log may have holes, so a step may meet records that lie after it."""
        journal.append(TOPIC, [package_record(A)] * 20)
        view = LogView(TOPIC, {A}, Bounds(Offset(0), Offset(7)))

        class Holey(CountingJournal):
            def reader(self, topic: TopicName, start: Start) -> CountingReader:
                reader = journal.reader(topic, start)
                inner = reader.read

                def read(limits: ReadLimits, wait_seconds: float) -> RecordBatch:
                    batch = inner(ReadLimits(20), wait_seconds)
                    return batch._replace(records=[record for record in batch.records if record.offset % 5 == 0])

                reader.read = read  # type: ignore[method-assign]
                return reader

        assert count_past(view, Holey()) is False
        assert view.size_after(A, -1) == QueueSize(2, is_exact=True)

    def test_many_may_count_the_same_past_at_once(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A), package_record(B)] * 2000)
        view = view_of(journal)

        def count_all(_: int) -> None:
            while count_past(view, journal, 300):
                pass

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count_all, range(4)))
        assert queue_of(journal, view).size() == QueueSize(2000, is_exact=True)

    def test_a_follower_that_waits_can_be_interrupted(self, journal: CountingJournal) -> None:
        follower = LogFollower(view_of(journal), journal)
        with in_background(lambda: follower.follow(LONG_WAIT_SECONDS)) as following:
            follower.interrupt()
            assert following.result(PATIENCE_SECONDS) == 0
        follower.close()

    def test_a_log_that_does_not_answer_in_time_is_unavailable(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)] * 3)
        view = view_of(journal)

        class Silent(CountingJournal):
            def reader(self, topic: TopicName, start: Start) -> CountingReader:
                reader = journal.reader(topic, start)
                reader.read = lambda *_: RecordBatch((), reader.next_offset, is_at_end=False)  # type: ignore[method-assign]
                return reader

        with pytest.raises(JournalUnavailableError):
            PageReader(view, Silent()).page(A, 0, 10)
