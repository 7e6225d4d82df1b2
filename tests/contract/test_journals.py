"""Every journal adapter of this distribution passes the suite of the port, and keeps retention by its own clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import Edge, NewRecord, ReadLimits
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import TopicName
from mailboat.testing.clocks import ManualClock
from mailboat.testing.journal_contract import JournalContract
from mailboat.testing.journal_harness import JournalHarness, read_to_end, values_of

EmbeddedJournal = MemoryJournal | SqliteJournal


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def harness(self) -> JournalHarness:
        log = MemoryJournal(SystemClock())
        return JournalHarness(log.another_handle, log.delete_topic)


class TestSqliteJournal(JournalContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> JournalHarness:
        path = tmp_path / "journal.db"

        def delete_topic(topic: TopicName) -> None:
            with SqliteJournal(path, SystemClock()) as journal:
                journal.delete_topic(topic)

        return JournalHarness(lambda: SqliteJournal.create(path, SystemClock()), delete_topic)


class TestRetention:
    """What Kafka does by itself, the embedded journals do when they are asked."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture(params=["memory", "sqlite"])
    def journal(self, request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedJournal]:
        with MemoryJournal(clock) if request.param == "memory" else SqliteJournal.create(tmp_path / "j", clock) as made:
            yield made

    def test_records_older_than_the_retention_time_go(self, journal: EmbeddedJournal, clock: ManualClock) -> None:
        topic = TopicName("package")
        journal.ensure_topic(topic, TopicSettings(retention_seconds=60.0))
        journal.append(topic, [NewRecord(b"old")] * 2500)
        clock.advance(50.0)
        journal.append(topic, [NewRecord(b"young")])
        assert journal.remove_expired() == 0
        clock.advance(11.0)
        assert journal.remove_expired() == 2500
        with closing(journal.reader(topic, Edge.EARLIEST)) as reader:
            assert values_of(read_to_end(reader)) == [b"young"]
        clock.advance(1000.0)
        assert journal.remove_expired() == 1
        assert journal.bounds(topic).earliest_offset == journal.bounds(topic).next_offset == 2501

    def test_a_topic_without_retention_time_keeps_all(self, journal: EmbeddedJournal, clock: ManualClock) -> None:
        topic = TopicName("package")
        journal.ensure_topic(topic, TopicSettings(retention_seconds=None))
        journal.append(topic, [NewRecord(b"old")])
        clock.advance(10**9)
        assert journal.remove_expired() == 0
        assert journal.bounds(topic).count == 1

    def test_the_oldest_records_beyond_the_size_go_and_the_newest_stays(self, journal: EmbeddedJournal) -> None:
        topic = TopicName("package")
        journal.ensure_topic(topic, TopicSettings(retention_seconds=None, retention_bytes=1000))
        journal.append(topic, [NewRecord(bytes(100))] * 10)
        assert journal.remove_expired() == 0
        journal.append(topic, [NewRecord(bytes(150))])
        assert journal.remove_expired() == 2
        assert journal.bounds(topic).earliest_offset == 2
        journal.append(topic, [NewRecord(bytes(5000))])
        assert journal.remove_expired() == 9
        assert journal.bounds(topic).count == 1

    def test_of_age_and_size_the_one_that_removes_more_counts(
        self, journal: EmbeddedJournal, clock: ManualClock
    ) -> None:
        topic = TopicName("package")
        journal.ensure_topic(topic, TopicSettings(retention_seconds=60.0, retention_bytes=500))
        journal.append(topic, [NewRecord(bytes(100))] * 3)
        clock.advance(61.0)
        journal.append(topic, [NewRecord(bytes(100))] * 2)
        assert journal.remove_expired() == 3
        journal.append(topic, [NewRecord(bytes(100))] * 6)
        assert journal.remove_expired() == 3

    def test_a_clock_that_jumped_back_never_removes_what_follows_a_younger_record(
        self, journal: EmbeddedJournal, clock: ManualClock
    ) -> None:
        topic = TopicName("package")
        journal.ensure_topic(topic, TopicSettings(retention_seconds=60.0))
        journal.append(topic, [NewRecord(b"stamped young")])
        clock.jump(-1000.0)
        journal.append(topic, [NewRecord(b"stamped old")])
        clock.jump(1010.0)
        assert journal.remove_expired() == 0
        assert journal.bounds(topic).count == 2

    def test_record_from_the_future_is_as_old_as_the_records_behind_it(
        self, journal: EmbeddedJournal, clock: ManualClock
    ) -> None:
        topic = TopicName("package")
        journal.ensure_topic(topic, TopicSettings(retention_seconds=60.0))
        clock.jump(10_000.0)
        journal.append(topic, [NewRecord(b"stamped too late")])
        clock.jump(-10_000.0)
        assert journal.remove_expired() == 0
        clock.advance(100.0)
        assert journal.remove_expired() == 0
        journal.append(topic, [NewRecord(b"next")])
        assert journal.remove_expired() == 0
        clock.advance(61.0)
        assert journal.remove_expired() == 2

    def test_records_of_a_clock_that_was_ahead_stay_without_an_older_one_behind_them(
        self, journal: EmbeddedJournal, clock: ManualClock
    ) -> None:
        topic = TopicName("package")
        journal.ensure_topic(topic, TopicSettings(retention_seconds=60.0))
        journal.append(topic, [NewRecord(b"old")])
        clock.jump(10_000.0)
        journal.append(topic, [NewRecord(b"stamped too late")] * 2)
        clock.jump(-9_900.0)
        journal.append(topic, [NewRecord(b"young")])
        assert journal.remove_expired() == 1
        assert journal.bounds(topic).count == 3

    def test_records_are_stamped_by_the_clock(self, journal: EmbeddedJournal, clock: ManualClock) -> None:
        topic = TopicName("package")
        journal.ensure_topic(topic, TopicSettings())
        journal.append(topic, [NewRecord(b"now")])
        with closing(journal.reader(topic, Edge.EARLIEST)) as reader:
            (record,) = reader.read(ReadLimits(), 0.0).records
        assert record.appended_ms == clock.now().timestamp() * 1000
