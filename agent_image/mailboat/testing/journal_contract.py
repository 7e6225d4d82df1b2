"""What every journal adapter must do, as tests. Needs pytest and hypothesis.

An adapter's test module derives a class from `JournalContract` and gives it a fixture `harness`:

    class TestSqliteJournal(JournalContract):
        @pytest.fixture
        def harness(self, tmp_path): ...

Nothing is assumed beyond the port: offsets may have holes and need not begin at 0, topics may share a broker with
those of other tests (each test uses new names), and an empty read may come before the end is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import pytest

from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import (
    JournalReplacedError,
    MailboatError,
    MessageTooLargeError,
    PositionOutOfRangeError,
    TopicMissingError,
)
from mailboat.journal.port import Edge, Journal, JournalReader, NewRecord, ReadLimits, Start
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import LogIdentity, Position
from mailboat.testing.journal_harness import (
    FOREVER,
    JournalHarness,
    in_background,
    new_topic_name,
    outcome_of,
    read_count,
    read_to_end,
    read_without_gap,
    some_records,
    values_of,
)
from mailboat.testing.journal_model import check_against_model
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS

ReadFrom = Callable[[Start], JournalReader]


class JournalContract:
    """The suite. See the module."""

    @pytest.fixture
    def harness(self) -> JournalHarness:
        """The adapter under test; each adapter's class gives its own."""
        raise NotImplementedError

    @pytest.fixture
    def journal(self, harness: JournalHarness) -> Iterator[Journal]:
        """A handle on the log."""
        with harness.open() as journal:
            yield journal

    @pytest.fixture
    def topic(self, journal: Journal) -> TopicName:
        """A new, empty topic."""
        name = new_topic_name()
        journal.ensure_topic(name, FOREVER)
        return name

    @pytest.fixture
    def read_from(self, journal: Journal, topic: TopicName) -> Iterator[ReadFrom]:
        """Makes readers of the topic; they are closed when the test ends."""
        with ExitStack() as readers:
            yield lambda start: readers.enter_context(closing(journal.reader(topic, start)))

    # ------------------------------------------------------------------------------------------------- appending

    def test_records_are_read_in_the_order_in_which_they_were_appended(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        records = some_records(25)
        offsets = [*journal.append(topic, records[:10]), *journal.append(topic, records[10:])]
        found = read_to_end(read_from(Edge.EARLIEST))
        assert values_of(found) == [record.value for record in records]
        assert [record.offset for record in found] == offsets
        assert offsets == sorted(set(offsets))

    def test_an_append_is_seen_by_another_handle(
        self, harness: JournalHarness, journal: Journal, topic: TopicName
    ) -> None:
        with harness.open() as other, closing(other.reader(topic, Edge.EARLIEST)) as reader:
            offsets = journal.append(topic, some_records(3))
            assert other.bounds(topic) == journal.bounds(topic)
            assert [record.offset for record in read_to_end(reader)] == list(offsets)
            assert topic in other.topics()

    def test_appending_nothing_changes_nothing(self, journal: Journal, topic: TopicName) -> None:
        before = journal.bounds(topic)
        assert list(journal.append(topic, [])) == []
        assert journal.bounds(topic) == before

    def test_headers_and_keys_come_back_as_they_were_given(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        headers = (("type", b"2"), ("type", b""), ("naïve ☃", bytes(range(256))), ("", b"no name"))
        given = [
            NewRecord(b"both", headers, b"key"),
            NewRecord(b"an empty key is a key", (), b""),
            NewRecord(b"no key", (("version", b"1"),)),
        ]
        journal.append(topic, given)
        found = read_to_end(read_from(Edge.EARLIEST))
        assert [NewRecord(record.value, record.headers, record.key) for record in found] == given

    def test_a_tombstone_is_a_record_without_bytes(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        journal.append(topic, [NewRecord(b"", (), b"gone")])
        (found,) = read_to_end(read_from(Edge.EARLIEST))
        assert (found.value, found.key) == (b"", b"gone")

    def test_any_bytes_are_kept(self, journal: Journal, topic: TopicName, read_from: ReadFrom) -> None:
        values = [bytes(range(256)) * 100, b"\x00", "text ☃".encode(), b"x" * 900_000]
        journal.append(topic, [NewRecord(value) for value in values])
        assert values_of(read_to_end(read_from(Edge.EARLIEST))) == values

    def test_a_record_tells_when_the_log_took_it(self, journal: Journal, topic: TopicName, read_from: ReadFrom) -> None:
        journal.append(topic, some_records(2))
        stamps = [record.appended_ms for record in read_to_end(read_from(Edge.EARLIEST))]
        assert 0 < stamps[0] <= stamps[1]

    def test_a_message_that_is_too_large_is_refused_with_its_whole_batch(self, journal: Journal) -> None:
        topic = new_topic_name()
        journal.ensure_topic(topic, TopicSettings(max_message_bytes=5000))
        journal.append(topic, [NewRecord(b"x" * 5000)])
        before = journal.bounds(topic)
        with pytest.raises(MessageTooLargeError, match="5000") as refused:
            journal.append(topic, [NewRecord(b"fits"), NewRecord(b"x" * 5001)])
        assert refused.value.where["topic"] == topic
        assert journal.bounds(topic) == before

    def test_concurrent_appenders_lose_nothing_and_keep_their_own_order(
        self, harness: JournalHarness, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        def append_many(name: str, through: Journal) -> list[Offset]:
            return [offset for record in some_records(40, name) for offset in through.append(topic, [record])]

        with harness.open() as other, ThreadPoolExecutor(4) as pool:
            names = ["a", "b", "c", "d"]
            offsets = list(pool.map(append_many, names, [journal, journal, other, other]))
        found = {record.offset: record.value for record in read_to_end(read_from(Edge.EARLIEST))}
        for name, own in zip(names, offsets, strict=True):
            assert own == sorted(own)
            assert [found[offset] for offset in own] == [record.value for record in some_records(40, name)]
        assert len(found) == 160

    # --------------------------------------------------------------------------------------------------- reading

    def test_an_empty_topic_gives_an_empty_batch_at_its_end(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        bounds = journal.bounds(topic)
        assert bounds.earliest_offset == bounds.next_offset
        reader = read_from(Edge.EARLIEST)
        assert read_to_end(reader) == []
        assert reader.next_offset == bounds.next_offset

    def test_a_reader_begins_at_the_offset_asked_for(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        offsets = journal.append(topic, some_records(10))
        found = read_to_end(read_from(offsets[4]))
        assert [record.offset for record in found] == list(offsets[4:])

    def test_a_reader_from_the_end_sees_only_what_comes(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        journal.append(topic, some_records(3, "old"))
        reader = read_from(Edge.NEXT)
        assert reader.next_offset == journal.bounds(topic).next_offset
        journal.append(topic, some_records(2, "new"))
        assert values_of(read_to_end(reader)) == [b"new-0", b"new-1"]

    def test_the_place_of_the_end_is_fixed_when_the_reader_is_made(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        """A message that arrives between making the reader and its first read is not lost."""
        reader = read_from(Edge.NEXT)
        (offset,) = journal.append(topic, some_records(1))
        assert read_count(reader, 1)[0].offset == offset

    def test_a_position_survives_its_reader(self, journal: Journal, topic: TopicName, read_from: ReadFrom) -> None:
        journal.append(topic, some_records(10))
        first = read_from(Edge.EARLIEST)
        seen = list(first.read(ReadLimits(max_records=4), PATIENCE_SECONDS).records)
        first.close()
        rest = read_to_end(read_from(first.next_offset))
        assert values_of([*seen, *rest]) == [record.value for record in some_records(10)]

    def test_a_batch_keeps_to_the_number_of_records(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        journal.append(topic, some_records(10))
        reader = read_from(Edge.EARLIEST)
        batch = reader.read(ReadLimits(max_records=3), PATIENCE_SECONDS)
        assert 1 <= len(batch.records) <= 3
        assert not batch.is_at_end
        assert batch.next_offset == reader.next_offset
        assert len(batch.records) + len(read_to_end(reader, ReadLimits(max_records=3))) == 10

    def test_a_batch_keeps_to_the_number_of_bytes(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        journal.append(topic, [NewRecord(bytes(1000)) for _ in range(10)])
        limits = ReadLimits(max_bytes=3500)
        reader = read_from(Edge.EARLIEST)
        seen = 0
        while seen < 10:
            batch = reader.read(limits, PATIENCE_SECONDS)
            assert sum(len(record.value) for record in batch.records) <= 3500
            seen += len(batch.records)
        assert seen == 10

    def test_a_record_larger_than_the_limit_is_given_alone(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        journal.append(topic, [NewRecord(b"small"), NewRecord(b"x" * 50_000), NewRecord(b"after")])
        reader = read_from(Edge.EARLIEST)
        batches = [reader.read(ReadLimits(max_bytes=100), PATIENCE_SECONDS).records for _ in range(3)]
        assert [values_of(batch) for batch in batches] == [[b"small"], [b"x" * 50_000], [b"after"]]

    def test_the_end_is_said_with_the_last_record(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        journal.append(topic, some_records(6))
        reader = read_from(Edge.EARLIEST)
        assert len(read_to_end(reader, ReadLimits(max_records=3))) == 6
        assert reader.next_offset == journal.bounds(topic).next_offset
        journal.append(topic, some_records(1))
        assert len(read_to_end(reader)) == 1

    def test_a_reader_goes_on_at_a_stored_position_of_this_log_only(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        journal.append(topic, some_records(5))
        first = read_from(Edge.EARLIEST)
        seen = first.read(ReadLimits(max_records=2), PATIENCE_SECONDS).records
        stored = Position(journal.identity(topic), first.next_offset, seen[-1].leader_epoch)
        assert len(seen) + len(read_to_end(read_from(stored))) == 5
        foreign = Position(LogIdentity(stored.identity.cluster_id, "another"), stored.next_offset)
        with pytest.raises(JournalReplacedError, match=topic):
            read_from(foreign)

    def test_readers_do_not_disturb_each_other(self, journal: Journal, topic: TopicName, read_from: ReadFrom) -> None:
        journal.append(topic, some_records(6))
        first, second = read_from(Edge.EARLIEST), read_from(Edge.EARLIEST)
        first.read(ReadLimits(max_records=5), PATIENCE_SECONDS)
        assert len(read_to_end(second)) == 6

    # --------------------------------------------------------------------------------------------------- waiting

    def test_a_waiting_reader_is_woken_by_an_append(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        reader = read_from(Edge.NEXT)
        with in_background(lambda: reader.read(ReadLimits(), LONG_WAIT_SECONDS)) as reading:
            journal.append(topic, some_records(1))
            batch = reading.result(PATIENCE_SECONDS)
        assert values_of(batch.records) == [b"value-0"]

    def test_a_waiting_reader_is_woken_by_another_handle(
        self, harness: JournalHarness, topic: TopicName, read_from: ReadFrom
    ) -> None:
        reader = read_from(Edge.NEXT)
        with harness.open() as other, in_background(lambda: read_count(reader, 20)) as reading:
            for record in some_records(20):
                other.append(topic, [record])
            assert values_of(reading.result(PATIENCE_SECONDS)) == [record.value for record in some_records(20)]

    def test_a_reader_does_not_wait_for_its_batch_to_fill(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        journal.append(topic, some_records(1))
        reader = read_from(Edge.EARLIEST)
        with in_background(lambda: reader.read(ReadLimits(max_records=100), LONG_WAIT_SECONDS)) as reading:
            assert len(reading.result(PATIENCE_SECONDS).records) == 1

    def test_a_wait_ends_without_anything_to_read(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        reader = read_from(Edge.NEXT)
        assert not reader.read(ReadLimits(), 0.01).records
        assert reader.next_offset == journal.bounds(topic).next_offset

    def test_an_interrupt_ends_the_read_that_waits(self, read_from: ReadFrom) -> None:
        reader = read_from(Edge.NEXT)
        with in_background(lambda: reader.read(ReadLimits(), LONG_WAIT_SECONDS)) as reading:
            reader.interrupt()
            assert not reading.result(PATIENCE_SECONDS).records

    def test_an_interrupt_ends_the_next_read_and_no_more(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        reader = read_from(Edge.NEXT)
        reader.interrupt()
        with in_background(lambda: reader.read(ReadLimits(), LONG_WAIT_SECONDS)) as reading:
            assert not reading.result(PATIENCE_SECONDS).records
        with in_background(lambda: reader.read(ReadLimits(), LONG_WAIT_SECONDS)) as reading:
            journal.append(topic, some_records(1))
            assert reading.result(PATIENCE_SECONDS).records

    def test_closing_the_reader_ends_its_read(self, read_from: ReadFrom) -> None:
        reader = read_from(Edge.NEXT)
        with in_background(lambda: outcome_of(lambda: reader.read(ReadLimits(), LONG_WAIT_SECONDS))) as reading:
            reader.close()
            assert reading.result(PATIENCE_SECONDS) in {"nothing", "refused"}

    # -------------------------------------------------------------------------------------- bounds and truncation

    def test_truncation_moves_the_head_and_nothing_else(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        offsets = journal.append(topic, some_records(10))
        bounds = journal.truncate(topic, offsets[6])
        assert bounds == journal.bounds(topic)
        assert bounds.earliest_offset == offsets[6]
        assert values_of(read_to_end(read_from(Edge.EARLIEST))) == [
            b"value-6",
            b"value-7",
            b"value-8",
            b"value-9",
        ]

    def test_truncation_below_the_head_does_nothing(self, journal: Journal, topic: TopicName) -> None:
        offsets = journal.append(topic, some_records(5))
        bounds = journal.truncate(topic, offsets[3])
        assert journal.truncate(topic, offsets[1]) == bounds

    def test_truncation_beyond_the_end_is_refused(self, journal: Journal, topic: TopicName) -> None:
        journal.append(topic, some_records(2))
        before = journal.bounds(topic)
        with pytest.raises(PositionOutOfRangeError):
            journal.truncate(topic, Offset(before.next_offset + 1))
        assert journal.bounds(topic) == before

    def test_offsets_are_not_used_again_after_all_was_removed(
        self, harness: JournalHarness, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        last = journal.append(topic, some_records(5))[-1]
        bounds = journal.truncate(topic, journal.bounds(topic).next_offset)
        assert bounds.earliest_offset == bounds.next_offset > last
        assert read_to_end(read_from(Edge.EARLIEST)) == []
        with harness.open() as other:
            assert other.bounds(topic) == bounds
            assert other.append(topic, some_records(1))[0] >= bounds.next_offset

    def test_a_reader_below_the_head_is_told_so_and_not_moved(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        offsets = journal.append(topic, some_records(10))
        journal.truncate(topic, offsets[5])
        reader = read_from(offsets[4])
        with pytest.raises(PositionOutOfRangeError):
            reader.read(ReadLimits(), PATIENCE_SECONDS)
        with pytest.raises(PositionOutOfRangeError) as refused_again:
            reader.read(ReadLimits(), PATIENCE_SECONDS)
        where = refused_again.value.where
        assert (where["topic"], where["offset"], where["earliest"]) == (topic, offsets[4], offsets[5])
        assert reader.next_offset == offsets[4]

    def test_a_reader_that_is_overtaken_by_truncation_is_told_so(
        self, harness: JournalHarness, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        offsets = journal.append(topic, some_records(10))
        reader = read_from(Edge.EARLIEST)
        reader.read(ReadLimits(max_records=2), PATIENCE_SECONDS)
        journal.truncate(topic, offsets[8])
        journal.append(topic, some_records(3))
        with suppress(PositionOutOfRangeError) if harness.reads_ahead else pytest.raises(PositionOutOfRangeError):
            read_without_gap(reader)

    @pytest.mark.parametrize("distance", [1, 1000, 2**40])
    def test_a_reader_beyond_the_end_is_told_so_and_not_moved(
        self, journal: Journal, topic: TopicName, distance: int, read_from: ReadFrom
    ) -> None:
        journal.append(topic, some_records(3))
        beyond = Offset(journal.bounds(topic).next_offset + distance)
        reader = read_from(beyond)
        with pytest.raises(PositionOutOfRangeError) as refused:
            reader.read(ReadLimits(), PATIENCE_SECONDS)
        assert refused.value.where["offset"] == beyond
        assert reader.next_offset == beyond

    def test_a_reader_at_the_end_is_at_home(self, journal: Journal, topic: TopicName, read_from: ReadFrom) -> None:
        journal.append(topic, some_records(3))
        assert read_to_end(read_from(journal.bounds(topic).next_offset)) == []

    def test_a_reader_at_the_head_of_a_trimmed_topic_is_at_home(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        offsets = journal.append(topic, some_records(3))
        journal.truncate(topic, offsets[2])
        assert values_of(read_to_end(read_from(offsets[2]))) == [b"value-2"]

    def test_removing_what_expired_keeps_what_did_not(self, journal: Journal, topic: TopicName) -> None:
        journal.append(topic, some_records(3))
        before = journal.bounds(topic)
        assert journal.remove_expired() == 0
        assert journal.bounds(topic) == before

    def test_one_record_is_looked_up_by_its_offset(
        self, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        headers = (("type", b"2"), ("version", b"1"))
        offsets = journal.append(topic, [*some_records(2), NewRecord(b"third", headers, b"key")])
        found = journal.record_at(topic, offsets[2])
        assert found is not None
        assert (found.offset, found.value, found.headers, found.key) == (offsets[2], b"third", headers, b"key")
        first = journal.record_at(topic, offsets[0])
        assert first == read_to_end(read_from(offsets[0]))[0]

    def test_a_record_that_is_not_there_is_none(self, journal: Journal, topic: TopicName) -> None:
        offsets = journal.append(topic, some_records(3))
        journal.truncate(topic, offsets[1])
        for missing in (offsets[0], offsets[2] + 1, offsets[2] + 1000):
            assert journal.record_at(topic, Offset(missing)) is None
        assert journal.record_at(topic, offsets[1]) is not None

    def test_a_look_up_in_a_topic_made_anew_finds_the_new_record(
        self, harness: JournalHarness, journal: Journal, topic: TopicName
    ) -> None:
        (offset,) = journal.append(topic, [NewRecord(b"old")])
        assert journal.record_at(topic, offset) is not None
        journal.upkeep.delete_topic(topic)
        with pytest.raises(TopicMissingError):
            journal.record_at(topic, offset)
        journal.ensure_topic(topic, FOREVER)
        with harness.open() as other:
            offset = other.append(topic, [NewRecord(b"new")])[0]
        found = journal.record_at(topic, offset)
        assert found is not None
        assert found.value == b"new"

    # ----------------------------------------------------------------------------------------- topics and identity

    def test_a_topic_differs_from_other_settings_and_not_from_its_own(self, journal: Journal, topic: TopicName) -> None:
        assert list(journal.upkeep.differences(topic, FOREVER)) == []
        wanted = TopicSettings(retention_seconds=3600.0, retention_bytes=50_000_000, max_message_bytes=2_000_000)
        found = journal.upkeep.differences(topic, wanted)
        assert len(found) >= 3
        assert all(difference.wanted != difference.found for difference in found)
        journal.ensure_topic(topic, wanted)
        assert list(journal.upkeep.differences(topic, wanted)) == []

    def test_a_missing_topic_has_no_differences_but_is_missing(self, journal: Journal) -> None:
        with pytest.raises(TopicMissingError):
            journal.upkeep.differences(new_topic_name(), FOREVER)

    def test_ensuring_a_topic_again_keeps_its_records(self, journal: Journal, topic: TopicName) -> None:
        journal.append(topic, some_records(3))
        identity, bounds = journal.identity(topic), journal.bounds(topic)
        journal.ensure_topic(topic, FOREVER)
        assert (journal.identity(topic), journal.bounds(topic)) == (identity, bounds)

    def test_ensuring_a_topic_again_applies_the_settings(self, journal: Journal, topic: TopicName) -> None:
        journal.ensure_topic(topic, TopicSettings(max_message_bytes=2000))
        with pytest.raises(MessageTooLargeError):
            journal.append(topic, [NewRecord(bytes(3000))])
        journal.ensure_topic(topic, TopicSettings(max_message_bytes=4000))
        journal.append(topic, [NewRecord(bytes(3000))])

    def test_topics_are_independent(self, journal: Journal, topic: TopicName) -> None:
        other = new_topic_name()
        journal.ensure_topic(other, FOREVER)
        journal.append(topic, some_records(3))
        assert journal.bounds(other).count == 0
        assert {topic, other} <= set(journal.topics())

    def test_identity_is_stable_and_tells_topics_apart(
        self, harness: JournalHarness, journal: Journal, topic: TopicName
    ) -> None:
        other_topic = new_topic_name()
        journal.ensure_topic(other_topic, FOREVER)
        first, second = journal.identity(topic), journal.identity(other_topic)
        assert first.cluster_id == second.cluster_id
        assert first.topic_id != second.topic_id
        with harness.open() as other:
            assert other.identity(topic) == first

    def test_a_topic_that_was_made_anew_is_another_log(
        self, harness: JournalHarness, journal: Journal, topic: TopicName
    ) -> None:
        journal.append(topic, some_records(3))
        before = journal.identity(topic)
        harness.delete_topic(topic)
        journal.ensure_topic(topic, FOREVER)
        assert journal.identity(topic).topic_id != before.topic_id
        assert journal.bounds(topic).count == 0

    def test_a_reader_notices_that_its_topic_was_made_anew(
        self, harness: JournalHarness, journal: Journal, topic: TopicName, read_from: ReadFrom
    ) -> None:
        journal.append(topic, some_records(3))
        reader = read_from(Edge.EARLIEST)
        read_to_end(reader)
        harness.delete_topic(topic)
        journal.ensure_topic(topic, FOREVER)
        journal.append(topic, some_records(8))
        with pytest.raises(JournalReplacedError):
            reader.read(ReadLimits(), PATIENCE_SECONDS)

    def test_a_topic_that_is_not_there_is_named(self, journal: Journal) -> None:
        missing = new_topic_name()
        calls: list[Callable[[], object]] = [
            lambda: journal.bounds(missing),
            lambda: journal.identity(missing),
            lambda: journal.append(missing, some_records(1)),
            lambda: journal.truncate(missing, Offset(0)),
            lambda: journal.reader(missing, Edge.EARLIEST),
        ]
        for call in calls:
            with pytest.raises(TopicMissingError, match=missing):
                call()

    # --------------------------------------------------------------------------------------------------- closing

    def test_a_closed_journal_says_so(self, harness: JournalHarness, topic: TopicName) -> None:
        journal = harness.open()
        reader = journal.reader(topic, Edge.EARLIEST)
        journal.close()
        journal.close()
        calls: list[Callable[[], object]] = [
            lambda: journal.append(topic, some_records(1)),
            lambda: journal.bounds(topic),
            lambda: reader.read(ReadLimits(), 0.0),
        ]
        for call in calls:
            with pytest.raises(MailboatError, match="closed"):
                call()

    def test_closing_the_journal_ends_its_waiting_readers(self, harness: JournalHarness, topic: TopicName) -> None:
        journal = harness.open()
        reader = journal.reader(topic, Edge.NEXT)
        with in_background(lambda: outcome_of(lambda: reader.read(ReadLimits(), LONG_WAIT_SECONDS))) as reading:
            journal.close()
            assert reading.result(PATIENCE_SECONDS) in {"nothing", "refused"}

    def test_a_closed_reader_says_so(self, read_from: ReadFrom) -> None:
        reader = read_from(Edge.EARLIEST)
        reader.close()
        reader.close()
        with pytest.raises(MailboatError, match="closed"):
            reader.read(ReadLimits(), 0.0)

    def test_the_description_names_the_kind(self, journal: Journal) -> None:
        assert journal.description

    # ---------------------------------------------------------------------------------------------- all together

    def test_any_sequence_of_calls_agrees_with_a_plain_list(self, harness: JournalHarness) -> None:
        check_against_model(harness)
