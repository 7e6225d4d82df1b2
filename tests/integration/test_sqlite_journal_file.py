"""The SQLite journal in one process: what its transactions cost, what its readers hold, how it sleeps."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import JournalUnavailableError, MessageTooLargeError, TopicMissingError
from mailboat.journal.port import Edge, NewRecord, ReadLimits
from mailboat.journal.sqlite import SqliteJournal, SqliteSettings
from mailboat.journal.sqlite_connection import connect_for_reading
from mailboat.journal.sqlite_reader import SqliteReader
from mailboat.model.identifiers import Offset, TopicName
from mailboat.testing.journal_harness import in_background, read_to_end
from mailboat.testing.wait import wait_until

TOPIC = TopicName("package")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal.create(path, SystemClock()) as journal:
        journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=None))
        yield journal


@pytest.fixture
def other_writer(path: Path, journal: SqliteJournal) -> Iterator[sqlite3.Connection]:
    """Another process that holds the write lock, until it is rolled back."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_a_batch_is_one_commit(journal: SqliteJournal) -> None:
    before = journal.counts.commits
    for _ in range(10):
        journal.append(TOPIC, [NewRecord(b"value")] * 100)
    assert journal.counts.commits - before == 10
    assert journal.counts.records == 1000


def test_appenders_that_wait_for_the_disk_share_the_next_commit(
    journal: SqliteJournal, other_writer: sqlite3.Connection
) -> None:
    before = journal.counts.commits
    with ThreadPoolExecutor(16) as pool:
        first = pool.submit(journal.append, TOPIC, [NewRecord(b"first")])
        wait_until(lambda: journal._writer._lock.locked() and not journal._writer._queue, "the first to lead")
        others = [pool.submit(journal.append, TOPIC, [NewRecord(b"%d" % number)]) for number in range(15)]
        wait_until(lambda: len(journal._writer._queue) == 15, "the others to queue")
        other_writer.execute("ROLLBACK")
        offsets = [first.result()[0], *sorted(future.result()[0] for future in others)]
    assert offsets == list(range(16))
    assert journal.counts.commits - before == 2


def test_one_bad_append_does_not_fail_those_that_share_its_transaction(
    journal: SqliteJournal, other_writer: sqlite3.Connection
) -> None:
    with ThreadPoolExecutor(4) as pool:
        leader = pool.submit(journal.append, TOPIC, [NewRecord(b"leader")])
        wait_until(lambda: journal._writer._lock.locked() and not journal._writer._queue, "the leader")
        good = [pool.submit(journal.append, TOPIC, [NewRecord(b"good")])]
        too_large = pool.submit(journal.append, TOPIC, [NewRecord(b"fits"), NewRecord(bytes(2_000_000))])
        misplaced = pool.submit(journal.append, TopicName("nowhere"), [NewRecord(b"lost")])
        wait_until(lambda: len(journal._writer._queue) == 3, "the others to queue")
        other_writer.execute("ROLLBACK")
        assert [future.result()[0] for future in [leader, *good]] == [0, 1]
        with pytest.raises(MessageTooLargeError):
            too_large.result()
        with pytest.raises(TopicMissingError):
            misplaced.result()
    assert journal.bounds(TOPIC).next_offset == 2


def test_a_reader_of_large_records_holds_no_more_than_its_limit_and_one_record(journal: SqliteJournal) -> None:
    record_bytes, limits = 900_000, ReadLimits(max_records=100, max_bytes=2_000_000)
    for _ in range(20):
        journal.append(TOPIC, [NewRecord(bytes(record_bytes))])
    reader = journal.reader(TOPIC, Edge.EARLIEST)
    reader.read(limits, 0.0)
    tracemalloc.start()
    try:
        while not reader.read(limits, 0.0).is_at_end:
            pass
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes <= 2 * limits.max_bytes + 2 * record_bytes  # a batch, and the one before it on its way out


def test_a_batch_that_was_cut_short_does_not_hold_back_the_check_points(journal: SqliteJournal, path: Path) -> None:
    journal.append(TOPIC, [NewRecord(bytes(10_000))] * 50)
    reader = journal.reader(TOPIC, Edge.EARLIEST)
    assert len(reader.read(ReadLimits(max_bytes=20_000), 0.0).records) == 2
    other = sqlite3.connect(path, isolation_level=None)
    (busy, _, _) = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    other.close()
    assert busy == 0


def test_a_reader_that_waits_looks_no_more_often_than_it_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    real_fetch = SqliteReader._fetch

    def counted_fetch(self: SqliteReader, limits: ReadLimits) -> object:
        nonlocal looks
        looks += 1
        return real_fetch(self, limits)

    monkeypatch.setattr(SqliteReader, "_fetch", counted_fetch)
    settings = SqliteSettings(poll_seconds=0.1)
    with SqliteJournal.create(path, SystemClock(), settings) as journal:
        journal.ensure_topic(TOPIC, TopicSettings())
        journal.ensure_topic(TopicName("status"), TopicSettings())
        reader = journal.reader(TOPIC, Edge.NEXT)
        with in_background(lambda: reader.read(ReadLimits(), 0.5)) as reading:
            for _ in range(50):  # other topics wake no one here
                journal.append(TopicName("status"), [NewRecord(b"status")])
            assert not reading.result().records
    assert looks <= 7


def test_removed_space_is_given_back(journal: SqliteJournal, path: Path) -> None:
    journal.append(TOPIC, [NewRecord(bytes(500_000))] * 40)
    journal.remove_expired()
    full_bytes = path.stat().st_size
    journal.truncate(TOPIC, Offset(40))
    journal.remove_expired()
    assert full_bytes > 20_000_000
    assert path.stat().st_size < full_bytes / 20


def test_removing_large_records_does_not_write_them_again(journal: SqliteJournal, path: Path) -> None:
    last = journal.append(TOPIC, [NewRecord(bytes(900_000))] * 20)[-1]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    journal.truncate(TOPIC, Offset(last + 1))
    assert path.with_name(f"{path.name}-wal").stat().st_size < 2_000_000


def test_a_topic_that_is_deleted_leaves_no_space_behind(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailboat.journal.sqlite._VACUUMED_PAGES", 100)  # several steps
    before = journal.upkeep.size_bytes()
    assert before is not None
    topic = TopicName("large")
    journal.ensure_topic(topic, TopicSettings())
    for _ in range(20):
        journal.append(topic, [NewRecord(b"x" * 100_000)] * 2)
    journal.upkeep.delete_topic(topic)
    assert (journal.upkeep.size_bytes() or 0) <= before + 100_000
    assert path.stat().st_size <= before + 100_000


def test_truncating_much_lets_others_append_in_between(journal: SqliteJournal) -> None:
    journal.append(TOPIC, [NewRecord(b"x")] * 10_000)
    before = journal.counts.commits
    journal.truncate(TOPIC, Offset(9_500))
    assert journal.counts.commits - before >= 10
    assert [record.offset for record in read_to_end(journal.reader(TOPIC, Edge.EARLIEST))] == list(range(9_500, 10_000))


def test_offsets_go_on_after_a_restart_of_an_emptied_journal(path: Path) -> None:
    with SqliteJournal.create(path, SystemClock()) as journal:
        journal.ensure_topic(TOPIC, TopicSettings())
        journal.append(TOPIC, [NewRecord(b"x")] * 3)
        identity = journal.identity(TOPIC)
        journal.truncate(TOPIC, Offset(3))
    with SqliteJournal(path, SystemClock()) as journal:
        assert journal.identity(TOPIC) == identity
        assert journal.append(TOPIC, [NewRecord(b"x")]) == [3]


def test_making_a_journal_at_once_makes_one(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        journals = list(pool.map(lambda _: SqliteJournal.create(path, SystemClock()), range(8)))
    journals[0].ensure_topic(TOPIC, TopicSettings())
    assert len({journal.identity(TOPIC) for journal in journals}) == 1
    for journal in journals:
        journal.close()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["journal.db"]


def test_a_topic_with_its_settings_is_ensured_without_writing(journal: SqliteJournal) -> None:
    before = journal.counts.commits
    journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=None))
    assert journal.counts.commits == before


def test_a_file_of_the_first_form_is_brought_to_this_one_with_all_it_holds(path: Path) -> None:
    with SqliteJournal.create(path, SystemClock()) as journal:
        journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=60.0))
        journal.append(TOPIC, [NewRecord(b"kept")])
        identity = journal.identity(TOPIC)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE topic DROP COLUMN retention_bytes")
        connection.execute("PRAGMA user_version = 1")
    for _ in range(2):
        with SqliteJournal(path, SystemClock()) as journal:
            assert journal.identity(TOPIC) == identity
            assert journal.upkeep.differences(TOPIC, TopicSettings(retention_seconds=60.0)) == []
            journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=60.0, retention_bytes=1000))
            assert read_to_end(journal.reader(TOPIC, Edge.EARLIEST))[0].value == b"kept"
            journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=60.0))


def test_reader_made_while_the_journal_closes_is_closed_too(
    path: Path, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[sqlite3.Connection] = []

    def connect_late(file: Path, busy_timeout_seconds: float) -> sqlite3.Connection:
        made.append(connect_for_reading(file, busy_timeout_seconds))
        journal.close()
        return made[0]

    monkeypatch.setattr("mailboat.journal.sqlite.connect_for_reading", connect_late)
    with pytest.raises(JournalUnavailableError, match="closed"):
        journal.reader(TOPIC, Edge.EARLIEST)
    with pytest.raises(sqlite3.ProgrammingError):
        made[0].execute("SELECT 1")
