"""The embedded journal: one SQLite file for all topics, shared by all processes of a machine.

It keeps every promise of the port: an append is durable when it returns (write-ahead log, synchronous=FULL), is seen
whole or not at all, and wakes waiting readers in other processes within milliseconds. Why it is built this way:
`docs/decisions/0002-sqlite-journal.md`. The file must lie on a local disk, for the shared memory of SQLite's log.
"""

from __future__ import annotations

import sqlite3
import threading
import uuid
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

from mailboat.clock import Clock, milliseconds_now
from mailboat.config.topic_settings import TopicSettings
from mailboat.frozen import Frozen
from mailboat.journal.embedded_topics import differences_of, first_within, settings_as_text
from mailboat.journal.header_codec import decode_headers
from mailboat.journal.port import Border, NewRecord, Record, Start, TopicDifference
from mailboat.journal.refusals import journal_closed, out_of_range, topic_missing
from mailboat.journal.sqlite_connection import connect, connect_for_reading, mapped_errors
from mailboat.journal.sqlite_reader import SqliteReader, SqliteReaderSettings
from mailboat.journal.sqlite_schema import create_file, open_file, record_table, record_table_ddl
from mailboat.journal.sqlite_writer import BUSY_WAIT_SECONDS, SqliteWriter, WriterCounts, file_identity, find_topic
from mailboat.journal.start_offset import starting_offset
from mailboat.journal.wakeup import Listener
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds, LogIdentity, Position

_T = TypeVar("_T")

_REMOVED_AT_ONCE: Final = 1000
"""How many records one transaction removes, so that appenders get their turn between two of them."""
# Of 4 KiB: a step moves 2 MB through the write-ahead log, which an almost full disk has room for. All give 40 MB back.
_VACUUMED_PAGES: Final = 500
_VACUUM_STEPS: Final = 20


class SqliteSettings(Frozen):
    """How the journal's file is used.

    Attributes:
        busy_timeout_seconds: How long to wait for another process that writes.
        poll_seconds: A waiting reader polls after that time, should a wake-up be lost.
        synchronous: FULL makes each commit durable. NORMAL may lose the last ones at a power cut, not at a crash of
            the process: then readers find the log shorter than their position.
    """

    busy_timeout_seconds: float = 10.0
    poll_seconds: float = 1.0
    synchronous: Literal["FULL", "NORMAL"] = "FULL"


class SqliteJournal:
    """The journal port over one SQLite file. Safe for several threads and processes; not over a fork."""

    def __init__(self, path: Path, clock: Clock, settings: SqliteSettings | None = None) -> None:
        """Open a journal that is there; see `create` for a new one.

        Raises:
            JournalMissingError, JournalCorruptError, JournalTooNewError, JournalUnavailableError.
        """
        self._path = path
        self._clock = clock
        self._settings = settings or SqliteSettings()
        busy_seconds = self._settings.busy_timeout_seconds
        self._queries, self._uuid = open_file(path, busy_seconds)
        # One connection serves all queries, and only one thread at a time may use it.
        self._queries_lock = threading.Lock()
        # SQLite's own wait is short here: the writer itself retries, with pauses that grow (`sqlite_writer`).
        writing = connect(path, BUSY_WAIT_SECONDS, self._settings.synchronous)
        self._writer = SqliteWriter(path, writing, clock, self._bell, busy_seconds)
        # Device and inode: readers open the path again later, and must notice when it is another file by then.
        self._file = file_identity(path)
        # Weak references: a reader that its owner forgot is freed, with its descriptors (`Listener`).
        self._readers: weakref.WeakSet[SqliteReader] = weakref.WeakSet()
        self._is_closed = False

    @classmethod
    def create(cls, path: Path, clock: Clock, settings: SqliteSettings | None = None) -> Self:
        """Open the journal at `path`, and make it first when there is no file."""
        create_file(path, clock)
        return cls(path, clock, settings)

    @property
    def description(self) -> str:
        return f"sqlite {self._path}"

    @property
    def counts(self) -> WriterCounts:
        """What was written through this object: transactions (each one fsync) and records."""
        return self._writer.counts

    @property
    def upkeep(self) -> SqliteJournal:
        return self

    @property
    def is_automatic(self) -> bool:
        return False

    @property
    def are_appends_seen_at_once(self) -> bool:
        return True

    def differences(self, topic: TopicName, settings: TopicSettings) -> Sequence[TopicDifference]:
        row = self._settings_row(topic)
        if row is None:
            raise topic_missing(topic, self.description)
        seconds, max_message_bytes, kept_bytes = row
        return differences_of(settings, settings_as_text(TopicSettings(seconds, max_message_bytes, kept_bytes)))

    def ensure_topic(self, topic: TopicName, settings: TopicSettings) -> None:
        wanted = (settings.retention_seconds, settings.max_message_bytes, settings.retention_bytes)
        if self._settings_row(topic) == wanted:
            return
        with self._writer.transaction() as connection:
            # Another process may have made the topic since `_settings_row`: then no row returns, and only settings
            # change.
            made = connection.execute(
                "INSERT INTO topic (name, uuid, retention_seconds, max_message_bytes, retention_bytes) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING RETURNING number",
                (topic, str(uuid.uuid4()), *wanted),
            ).fetchall()
            for (number,) in made:
                connection.execute(record_table_ddl(number))
            connection.execute(
                "UPDATE topic SET retention_seconds = ?, max_message_bytes = ?, retention_bytes = ? WHERE name = ?",
                (*wanted, topic),
            )

    def delete_topic(self, topic: TopicName) -> None:
        with self._writer.transaction() as connection:
            # Row and table go in one transaction. The number is never used again, so no reader of the old table reads a
            # new one.
            number = find_topic(connection, topic, self._path).number
            connection.execute("DELETE FROM topic WHERE number = ?", (number,))
            connection.execute(f"DROP TABLE {record_table(number)}")
        # Readers that listen at the removed pipe notice the deletion within `poll_seconds`.
        Path(self._bell(number)).unlink(missing_ok=True)
        free = self._give_back()
        while free and free > (free := self._give_back()):
            pass  # in steps, so that appenders get their turn

    def topics(self) -> Sequence[TopicName]:
        rows = self._query(lambda c: c.execute("SELECT name FROM topic ORDER BY name").fetchall())
        return [TopicName(name) for (name,) in rows]

    def identity(self, topic: TopicName) -> LogIdentity:
        return LogIdentity(self._uuid, self._query(lambda c: find_topic(c, topic, self._path)).topic_id)

    def bounds(self, topic: TopicName) -> Bounds:
        found = self._query(lambda c: find_topic(c, topic, self._path))
        return Bounds(found.earliest_offset, found.next_offset)

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        """See `Journal.append`. The whole batch is written, or nothing."""
        return self._writer.append(topic, records)

    def reader(self, topic: TopicName, start: Start) -> SqliteReader:
        found = self._query(lambda c: find_topic(c, topic, self._path))
        bounds, identity = Bounds(found.earliest_offset, found.next_offset), LogIdentity(self._uuid, found.topic_id)
        offset = starting_offset(topic, start, lambda: bounds, identity)
        settings = SqliteReaderSettings(
            self._path,
            self._file,
            topic,
            found.topic_id,
            found.number,
            self._settings.poll_seconds,
            start.leader_epoch if isinstance(start, Position) else None,
        )
        connection = connect_for_reading(self._path, self._settings.busy_timeout_seconds)
        try:
            # Made before the reader, which then owns both; on a failure nothing else would close the connection.
            listener = Listener(Path(self._bell(found.number)))
        except BaseException:
            connection.close()
            raise
        reader = SqliteReader(settings, connection, listener, self._clock, offset)
        with self._queries_lock:
            is_late = self._is_closed  # `close` did not see this reader, and nothing else would close it
            if not is_late:
                self._readers.add(reader)
        if is_late:
            reader.close()
            raise journal_closed(self.description)
        return reader

    def record_at(self, topic: TopicName, offset: Offset) -> Record | None:
        number = self._query(lambda c: find_topic(c, topic, self._path)).number
        row = self._query(
            lambda c: c.execute(
                f"SELECT value, headers, key, appended_ms, epoch FROM {record_table(number)} WHERE offset = ?",
                (offset,),
            ).fetchone()
        )
        if row is None:
            return None
        value, headers, key, appended_ms, epoch = row
        return Record(offset, value, decode_headers(headers), key, appended_ms, epoch)

    def truncate(self, topic: TopicName, before: Offset) -> Bounds:
        """See `Journal.truncate`. The head moves in whole steps, so that appenders get their turn."""
        bounds = self.bounds(topic)
        if before > bounds.next_offset:
            raise out_of_range(topic, before, bounds)
        self._remove_before(topic, before)
        return self.bounds(topic)

    def remove_expired(self, border: Border | None = None) -> int:
        """See `Journal.remove_expired`. Also gives freed space back to the file system."""
        removed = 0
        for topic, before in self._expired():
            # `border` reads the log, to keep packages whole: it is asked only where something would go.
            is_asked = border is not None and before > self.bounds(topic).earliest_offset
            removed += self._remove_before(topic, border(topic, before) if border and is_asked else before)
        self._give_back()
        return removed

    def _give_back(self) -> int:
        """Give some of the free space back to the file system; how many pages of it are left."""
        left = 0
        for _ in range(_VACUUM_STEPS):
            with self._writer.idle_connection() as connection:
                # `execute` would do one page
                vacuum = partial(connection.executescript, f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})")
                # The vacuum is a write: while another process writes it has to wait, as an append does.
                self._writer.when_free(vacuum)
                # The vacuum is in the write-ahead log first: only a checkpoint makes the file itself shorter.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                left = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
            if not left:
                break
        return left

    def size_bytes(self) -> int | None:
        """See `JournalUpkeep.size_bytes`: of the file and of the write-ahead log."""
        files = (self._path, self._path.with_name(f"{self._path.name}-wal"))
        # With the write-ahead log, which holds what the last checkpoint has not moved yet.
        return sum(file.stat().st_size for file in files if file.exists())

    def synchronisations(self) -> int | None:
        """See `JournalUpkeep.synchronisations`: each transaction once."""
        return self._writer.counts.commits

    def find_damage(self) -> Sequence[str]:
        """See `JournalUpkeep.find_damage`: in SQLite's words, in a time that grows with the file."""
        rows = self._query(lambda c: c.execute("PRAGMA integrity_check(20)").fetchall())
        return [text for (text,) in rows if text != "ok"]

    def close(self) -> None:
        with self._queries_lock:
            if self._is_closed:
                return
            self._is_closed = True
            readers = list(self._readers)
            self._queries.close()
        # Outside of the lock: a reader's `close` waits for its current read.
        for reader in readers:
            reader.close()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _bell(self, topic_number: int) -> str:
        return f"{self._path}.wake/{topic_number}"

    def _query(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._queries_lock, mapped_errors(self._path):
            if self._is_closed:
                raise journal_closed(self.description)
            return ask(self._queries)

    def _settings_row(self, topic: TopicName) -> tuple[float | None, int, int | None] | None:
        row: tuple[float | None, int, int | None] | None = self._query(
            lambda c: c.execute(
                "SELECT retention_seconds, max_message_bytes, retention_bytes FROM topic WHERE name = ?", (topic,)
            ).fetchone()
        )
        return row

    def _expired(self) -> list[tuple[TopicName, Offset]]:
        """For each topic with a retention, the first offset to keep."""
        now_ms = milliseconds_now(self._clock)
        kept = self._query(
            lambda c: c.execute(
                "SELECT name, number, next_offset, retention_seconds, retention_bytes FROM topic "
                "WHERE retention_seconds IS NOT NULL OR retention_bytes IS NOT NULL"
            ).fetchall()
        )
        expired = []
        for name, number, next_offset, seconds, size in kept:
            young = 0 if seconds is None else self._first_young(number, int(seconds * 1000), now_ms, next_offset)
            fitting = 0 if size is None else self._first_within(number, size, next_offset)
            expired.append((TopicName(name), Offset(max(young, fitting))))
        return expired

    def _first_within(self, number: int, kept_bytes: int, next_offset: Offset) -> Offset:
        """The first record that the size limit keeps, searched from the end: SQLite reads no value for its length."""
        return self._query(
            lambda c: first_within(
                c.execute(
                    f"SELECT offset, length(headers) + length(value) FROM {record_table(number)} ORDER BY offset DESC"
                ),
                kept_bytes,
                next_offset,
            )
        )

    def _first_young(self, number: int, kept_ms: int, now_ms: int, next_offset: Offset) -> Offset:
        """The first record that is young enough, looked for from the head, so that the cost is that of removing.

        A record from the future was stamped by a clock that was wrong: it is as old as the records that follow it.
        """
        offsets = f"SELECT offset FROM {record_table(number)} WHERE"
        first_young = f"{offsets} appended_ms BETWEEN ? AND ? ORDER BY offset LIMIT 1"
        last_old = f"{offsets} offset < ? AND appended_ms < ? ORDER BY offset DESC LIMIT 1"

        def ask(connection: sqlite3.Connection) -> Offset:
            young = connection.execute(first_young, (now_ms - kept_ms, now_ms)).fetchone()
            end = next_offset if young is None else young[0]
            old = connection.execute(last_old, (end, now_ms - kept_ms)).fetchone()
            return Offset(0 if old is None else old[0] + 1)

        return self._query(ask)

    def _remove_before(self, topic: TopicName, before: Offset) -> int:
        removed = 0
        while True:
            with self._writer.transaction() as connection:
                # Read again for each step: another process may have moved the head since.
                found = find_topic(connection, topic, self._path)
                step = min(before, found.earliest_offset + _REMOVED_AT_ONCE)
                if step <= found.earliest_offset:
                    return removed
                connection.execute(f"DELETE FROM {record_table(found.number)} WHERE offset < ?", (step,))
                connection.execute("UPDATE topic SET earliest_offset = ? WHERE number = ?", (step, found.number))
                removed += step - found.earliest_offset
