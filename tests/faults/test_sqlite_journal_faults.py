"""The SQLite journal when the disk, the file or another process is not as it should be."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import (
    JournalCorruptError,
    JournalMissingError,
    JournalReplacedError,
    JournalTooNewError,
    JournalUnavailableError,
    MailboatError,
    PositionOutOfRangeError,
    RetryableError,
    StorageFullError,
    StorageReadOnlyError,
)
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.job_worker import Call, JobWorker, WorkerSettings
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.port import Edge, NewRecord, ReadLimits
from mailboat.journal.sqlite import SqliteJournal, SqliteSettings
from mailboat.journal.sqlite_connection import map_sqlite_error, mapped_errors
from mailboat.journal.sqlite_writer import SqliteWriter
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.jobs import JobState, NewJob, Token
from mailboat.model.messages import JOB_TOPIC
from mailboat.model.positions import Position
from mailboat.testing.journal_harness import in_background
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS, wait_until

TOPIC = TopicName("package")
IMPATIENT = SqliteSettings(busy_timeout_seconds=0.02, poll_seconds=0.02)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal.create(path, SystemClock(), IMPATIENT) as journal:
        journal.ensure_topic(TOPIC, TopicSettings())
        journal.append(TOPIC, [NewRecord(b"first")])
        yield journal


def test_a_full_disk_rolls_the_batch_back_and_a_later_append_succeeds(journal: SqliteJournal) -> None:
    connection = journal._writer.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageFullError, match=r"journal\.db"):
        journal.append(TOPIC, [NewRecord(b"small"), NewRecord(bytes(500_000))])
    assert journal.bounds(TOPIC).next_offset == 1
    connection.execute("PRAGMA max_page_count = 1000000")
    assert journal.append(TOPIC, [NewRecord(bytes(500_000))]) == [1]


def test_a_worker_on_a_full_disk_reports_once_there_is_room(journal: SqliteJournal) -> None:
    """Meanwhile its results wait, nothing is claimed, and nothing runs twice."""
    connection, clock, ran = journal._writer.connection, SystemClock(), list[Token]()

    def fill(call: Call) -> None:
        ran.append(call.token)
        if len(ran) == 1:
            connection.execute("PRAGMA max_page_count = 1")  # as many as there are
            for size in (2_000, 1):  # the last page as well
                with suppress(StorageFullError):
                    for _ in range(1_000):
                        journal.append(JOB_TOPIC, [NewRecord(bytes(size))])

    source = LogSource(open_job_topic(journal), clock, random.Random(1), NoFailpoints())
    worker = JobWorker(source, WorkerSettings("worker", 1, {"**": fill}), clock, random.Random(1), NoFailpoints())
    added = source.topic.add([NewJob("work", keep=True)] * 2)
    while not worker._ended:
        with suppress(StorageFullError):
            worker.turn()
    for _ in range(3):
        with pytest.raises(StorageFullError):
            worker.turn()
    assert len(ran) == 1
    connection.execute("PRAGMA max_page_count = 1000000")
    table = source.topic.fold.table
    while not all(table.state(job) is JobState.SUCCEEDED for job in added):
        worker.turn()
    assert ([table.tries(job) for job in added], len(ran)) == ([1, 1], 2)
    worker.stop(5.0)


def test_a_full_disk_is_told_to_all_who_share_the_transaction(journal: SqliteJournal, path: Path) -> None:
    connection = journal._writer.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    journal._writer.busy_timeout_seconds = PATIENCE_SECONDS
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(3) as pool:
        leader = pool.submit(journal.append, TOPIC, [NewRecord(b"leader")])
        wait_until(lambda: journal._writer._lock.locked() and not journal._writer._queue, "the leader")
        others = [pool.submit(journal.append, TOPIC, [NewRecord(bytes(400_000))]) for _ in range(2)]
        wait_until(lambda: len(journal._writer._queue) == 2, "the others to queue")
        other.execute("ROLLBACK")
        assert leader.result() == [1]
        for future in others:
            with pytest.raises(StorageFullError):
                future.result()
    other.close()
    assert journal.bounds(TOPIC).next_offset == 2


def test_a_read_only_file_refuses_to_append_and_can_be_read(journal: SqliteJournal) -> None:
    journal._writer.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageReadOnlyError):
        journal.append(TOPIC, [NewRecord(b"second")])
    assert len(journal.reader(TOPIC, Edge.EARLIEST).read(ReadLimits(), 0.0).records) == 1


def test_a_locked_journal_is_unavailable_and_can_be_used_later(journal: SqliteJournal, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalUnavailableError, match="locked") as refused:
        journal.append(TOPIC, [NewRecord(b"second")])
    assert isinstance(refused.value.__cause__, sqlite3.OperationalError)
    assert len(journal.reader(TOPIC, Edge.EARLIEST).read(ReadLimits(), 0.0).records) == 1
    other.execute("ROLLBACK")
    other.close()
    assert journal.append(TOPIC, [NewRecord(b"second")]) == [1]


def test_a_thread_that_is_interrupted_while_it_writes_for_others_tells_them(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    journal._writer.busy_timeout_seconds = PATIENCE_SECONDS
    other.execute("BEGIN IMMEDIATE")
    real_insert = SqliteWriter._insert

    def insert(self: SqliteWriter, request: object) -> object:
        if request.records[0].value == b"bad":  # type: ignore[attr-defined]
            raise ZeroDivisionError("a bug")
        return real_insert(self, request)  # type: ignore[arg-type]

    monkeypatch.setattr(SqliteWriter, "_insert", insert)
    with ThreadPoolExecutor(3) as pool:
        leader = pool.submit(journal.append, TOPIC, [NewRecord(b"leader")])
        wait_until(lambda: journal._writer._lock.locked() and not journal._writer._queue, "the leader")
        pool.submit(journal.append, TOPIC, [NewRecord(b"bad")])
        pool.submit(journal.append, TOPIC, [NewRecord(b"good")])
        wait_until(lambda: len(journal._writer._queue) == 2, "the others to queue")
        shared = list(journal._writer._queue)
        other.execute("ROLLBACK")
        assert leader.result() == [1]
    other.close()
    for request in shared:
        assert isinstance(request.error, JournalUnavailableError)
        assert isinstance(request.error.__cause__, ZeroDivisionError)
    assert journal.append(TOPIC, [NewRecord(b"after")]) == [2]


def test_a_missing_journal_is_not_made_in_silence(path: Path) -> None:
    with pytest.raises(JournalMissingError, match="init"):
        raise_with_next_step(path)
    assert not path.exists()


def raise_with_next_step(path: Path) -> None:
    try:
        SqliteJournal(path, SystemClock())
    except MailboatError as error:
        raise type(error)(f"{error}: {error.next_step}") from error


@pytest.mark.parametrize("content", [b"", b"not a database" * 100, b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_is_no_journal_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for make in (SqliteJournal, SqliteJournal.create):
        with pytest.raises(JournalCorruptError, match=r"journal\.db"):
            make(path, SystemClock())
    assert path.read_bytes() == content


def test_a_database_of_something_else_is_refused(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE journal (uuid TEXT)")
    connection.close()
    with pytest.raises(JournalCorruptError, match="no Mailboat journal"):
        SqliteJournal(path, SystemClock())


@pytest.mark.parametrize("statement", ["DELETE FROM journal", "INSERT INTO journal VALUES ('another', 0)"])
def test_a_journal_without_one_identity_is_refused(journal: SqliteJournal, path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()
    with pytest.raises(JournalCorruptError, match="identities"):
        SqliteJournal(path, SystemClock())


def test_a_journal_of_a_newer_version_is_refused(journal: SqliteJournal, path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(JournalTooNewError, match="99"):
        SqliteJournal(path, SystemClock())


def test_damaged_pages_are_found_and_never_read_as_records(path: Path) -> None:
    with SqliteJournal.create(path, SystemClock()) as journal:
        journal.ensure_topic(TOPIC, TopicSettings())
        journal.append(TOPIC, [NewRecord(b"%d" % number + bytes(1000)) for number in range(200)])
    size_bytes = path.stat().st_size
    with path.open("r+b") as file:
        for position in range(6 * 4096, size_bytes, 4096):
            file.seek(position)
            file.write(b"\xff" * 64)
    with SqliteJournal(path, SystemClock()) as journal:
        assert journal.find_damage()
        with pytest.raises(JournalCorruptError, match="damaged"):
            read_all(journal)


def read_all(journal: SqliteJournal) -> None:
    reader = journal.reader(TOPIC, Edge.EARLIEST)
    while not reader.read(ReadLimits(), 0.0).is_at_end:
        pass


def remove_records(path: Path, where: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"DELETE FROM record_1 WHERE {where}")
    connection.close()


@pytest.mark.parametrize(
    ("where", "first", "last"),
    [("offset = 2", 2, 2), ("offset = 0", 0, 0), ("offset IN (2, 3)", 2, 3), ("offset >= 3", 3, 4)],
    ids=["in the middle", "at the head", "two", "at the end"],
)
@pytest.mark.parametrize("max_records", [1, 2, 100])
def test_a_reader_stops_at_a_missing_record_and_names_it(
    journal: SqliteJournal, path: Path, where: str, first: int, last: int, max_records: int
) -> None:
    journal.append(TOPIC, [NewRecord(b"%d" % number) for number in range(1, 5)])
    remove_records(path, where)
    reader = journal.reader(TOPIC, Edge.EARLIEST)
    limits = ReadLimits(max_records)
    seen: list[int] = []
    while len(seen) < first:
        batch = reader.read(limits, 0.0)
        assert not batch.is_at_end
        seen.extend(record.offset for record in batch.records)
    assert seen == list(range(first))
    for _ in range(2):
        with pytest.raises(JournalCorruptError, match="missing in topic package") as caught:
            reader.read(limits, LONG_WAIT_SECONDS)
        assert caught.value.where == {"topic": TOPIC, "offset": first, "resumes": last + 1}
    assert reader.next_offset == first


def test_a_sound_journal_has_no_damage(journal: SqliteJournal) -> None:
    assert journal.find_damage() == []


def swap(path: Path, other: Path) -> None:
    with SqliteJournal.create(other, SystemClock()) as made:
        made.ensure_topic(TOPIC, TopicSettings())
    other.replace(path)


def test_a_file_that_was_swapped_takes_no_appends(journal: SqliteJournal, path: Path) -> None:
    swap(path, path.with_name("other.db"))
    with pytest.raises(JournalReplacedError, match="replaced"):
        journal.append(TOPIC, [NewRecord(b"lost")])
    with pytest.raises(JournalReplacedError):
        journal.remove_expired()


def test_a_reader_that_waits_notices_that_the_file_was_swapped(journal: SqliteJournal, path: Path) -> None:
    reader = journal.reader(TOPIC, Edge.NEXT)
    with in_background(lambda: reader.read(ReadLimits(), LONG_WAIT_SECONDS)) as reading:
        swap(path, path.with_name("other.db"))
        with pytest.raises(JournalReplacedError):
            reading.result(PATIENCE_SECONDS)


def test_a_file_that_was_removed_takes_no_appends(journal: SqliteJournal, path: Path) -> None:
    path.unlink()
    with pytest.raises(JournalUnavailableError, match="reached"):
        journal.append(TOPIC, [NewRecord(b"lost")])


def test_a_journal_that_lost_its_tail_is_noticed_by_who_stands_beyond(
    journal: SqliteJournal, path: Path, tmp_path: Path
) -> None:
    """The file alone, without its write-ahead log, as a careless copy has it: shorter, but the same log."""
    connection = journal._writer.connection
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.append(TOPIC, [NewRecord(b"only in the write-ahead log")] * 3)
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    with SqliteJournal(copy, SystemClock()) as shorter:
        assert shorter.identity(TOPIC) == journal.identity(TOPIC)
        reader = shorter.reader(TOPIC, journal.bounds(TOPIC).next_offset)
        with pytest.raises(PositionOutOfRangeError, match="beyond the end"):
            reader.read(ReadLimits(), 0.0)


def test_a_restored_journal_that_grew_beyond_a_position_refuses_it(path: Path) -> None:
    """The offsets are the same and so is the log: only the epoch of the writer tells the records apart."""
    copy = path.with_name("copy.db")
    with SqliteJournal.create(path, SystemClock()) as journal:
        journal.ensure_topic(TOPIC, TopicSettings())
        journal.append(TOPIC, [NewRecord(b"kept")] * 2)
    shutil.copy(path, copy)
    with SqliteJournal(path, SystemClock()) as journal:
        journal.append(TOPIC, [NewRecord(b"lost")] * 2)
        records = journal.reader(TOPIC, Edge.EARLIEST).read(ReadLimits(), 0.0).records
        positions = [
            Position(journal.identity(TOPIC), Offset(record.offset + 1), record.leader_epoch) for record in records
        ]
        assert len({position.leader_epoch for position in positions}) == 2
    for leftover in path.parent.glob("journal.db-*"):
        leftover.unlink()
    copy.replace(path)
    with SqliteJournal(path, SystemClock()) as journal:
        journal.append(TOPIC, [NewRecord(b"other")] * 5)
        for position in positions[:2]:
            assert read_values(journal, position) == [b"kept"] * (2 - position.next_offset) + [b"other"] * 5
        for position in positions[2:]:
            with pytest.raises(PositionOutOfRangeError, match="epoch") as caught:
                read_values(journal, position)
            assert caught.value.where["offset"] == position.next_offset
        assert read_values(journal, replace(positions[2], leader_epoch=None)) == [b"other"] * 4
        journal.truncate(TOPIC, Offset(4))
        assert read_values(journal, positions[3]) == [b"other"] * 3  # nothing is left to compare with


def read_values(journal: SqliteJournal, start: Position) -> list[bytes]:
    reader = journal.reader(TOPIC, start)
    return [record.value for _ in range(2) for record in reader.read(ReadLimits(), 0.0).records]


def test_a_folder_that_can_not_hold_a_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JournalUnavailableError, match="file"):
        SqliteJournal.create(tmp_path / "file" / "journal.db", SystemClock())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, StorageFullError),
        (sqlite3.SQLITE_READONLY, StorageReadOnlyError),
        (sqlite3.SQLITE_READONLY_DBMOVED, StorageReadOnlyError),
        (sqlite3.SQLITE_CORRUPT, JournalCorruptError),
        (sqlite3.SQLITE_CORRUPT_VTAB, JournalCorruptError),
        (sqlite3.SQLITE_NOTADB, JournalCorruptError),
        (sqlite3.SQLITE_BUSY, JournalUnavailableError),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, JournalUnavailableError),
        (sqlite3.SQLITE_LOCKED, JournalUnavailableError),
        (sqlite3.SQLITE_IOERR_FSYNC, JournalUnavailableError),
        (sqlite3.SQLITE_CANTOPEN, JournalUnavailableError),
    ],
)
def test_sqlites_errors_mean_ours(code: int, expected: type[MailboatError]) -> None:
    error = sqlite3.OperationalError("something")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_SOMETHING"
    mapped = map_sqlite_error(error, Path("journal.db"))
    assert type(mapped) is expected
    assert "journal.db" in str(mapped)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(28, "No space left on device"), StorageFullError),
        (OSError(30, "Read-only file system"), StorageReadOnlyError),
        (OSError(5, "Input/output error"), JournalUnavailableError),
    ],
)
def test_the_systems_errors_mean_ours(error: OSError, expected: type[RetryableError]) -> None:
    with pytest.raises(expected) as mapped, mapped_errors(Path("journal.db")):
        raise error
    assert mapped.value.__cause__ is error
