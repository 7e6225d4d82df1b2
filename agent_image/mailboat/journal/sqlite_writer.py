"""Writes to the SQLite journal: one connection, one lock, one transaction for everyone who waits.

Group commit: a thread that appends puts its records into the queue and takes the lock. The thread that has the lock
writes all that is queued in one transaction, so threads that wait for the disk meanwhile share the next commit; each
finds its result when it gets the lock. A lone thread does not wait. Between processes SQLite's own lock decides.

Each writer draws an epoch and marks its records with it, so that after a restore from an
older copy, followed by new appends, a reader finds another epoch at its position (as KIP-320 does
with the epochs of leaders).
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from mailboat.clock import Clock, milliseconds_now
from mailboat.errors import JournalReplacedError, JournalUnavailableError, MailboatError
from mailboat.journal.header_codec import HeaderCodec
from mailboat.journal.port import NewRecord
from mailboat.journal.refusals import check_sizes, journal_closed, topic_missing
from mailboat.journal.sqlite_connection import is_busy, mapped_errors
from mailboat.journal.sqlite_schema import record_table
from mailboat.journal.wakeup import ring
from mailboat.model.identifiers import Offset, TopicName

BUSY_WAIT_SECONDS: Final = 0.02
"""How long SQLite itself waits for the write lock of another process, before it is asked again."""

_MAX_EPOCH: Final = 2**31 - 1  # as in Kafka, so that positions look the same

_FIND_TOPIC: Final = "SELECT number, uuid, earliest_offset, next_offset, max_message_bytes FROM topic WHERE name = ?"
_MOVE_END: Final = "UPDATE topic SET next_offset = ? WHERE number = ?"


class TopicRow(NamedTuple):
    """A topic as stored."""

    number: int
    topic_id: str
    earliest_offset: Offset
    next_offset: Offset
    max_message_bytes: int


@dataclass(slots=True)
class WriterCounts:
    """What a writer did since it was opened."""

    commits: int = 0
    records: int = 0


@dataclass(slots=True)
class _Append:
    """The request of one thread to append, and its result."""

    topic: TopicName
    records: Sequence[NewRecord]
    headers: Sequence[bytes]
    offsets: Sequence[Offset] | None = None
    error: MailboatError | None = None

    @property
    def is_done(self) -> bool:
        return self.offsets is not None or self.error is not None

    def succeed(self, offsets: Sequence[Offset]) -> None:
        self.offsets = offsets

    def fail(self, error: MailboatError) -> None:
        """Keep the error; the first one stays."""
        self.error = self.error or error


@dataclass(slots=True)
class SqliteWriter:
    """The writing side of one journal in one process. Safe to use from several threads."""

    path: Path
    connection: sqlite3.Connection
    clock: Clock
    bells: Callable[[int], str]
    """The named pipe of a topic's number (see `wakeup`)."""
    busy_timeout_seconds: float
    epoch: int = field(default_factory=lambda: int.from_bytes(os.urandom(8)) & _MAX_EPOCH)
    counts: WriterCounts = field(default_factory=WriterCounts)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _queue: deque[_Append] = field(default_factory=deque)
    _headers: HeaderCodec = field(default_factory=HeaderCodec)
    _place: str = field(init=False)
    _file: tuple[int, int] = field(init=False)
    _is_closed: bool = False

    def __post_init__(self) -> None:
        """Remember which file this is."""
        self._place = os.fspath(self.path)
        self._file = file_identity(self._place)

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        request = _Append(topic, records, [self._headers.encode(record.headers) for record in records])
        # Queued before the lock is taken: the thread that holds the lock may commit this request with its own group.
        self._queue.append(request)
        with self._lock:
            if not request.is_done:
                # The length is read once: requests that arrive during the commit form the next group.
                self._append_all([self._queue.popleft() for _ in range(len(self._queue))])
        if request.error is not None:
            raise request.error
        return request.offsets or ()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection in a transaction of its own; committed at the end, rolled back on any error."""
        with self._lock, self._transaction():
            yield self.connection

    @contextmanager
    def idle_connection(self) -> Iterator[sqlite3.Connection]:
        """The connection outside of any transaction, for upkeep."""
        with self._lock, mapped_errors(self.path):
            self._check_usable()
            yield self.connection

    def when_free(self, statement: Callable[[], object]) -> None:
        """Run what takes SQLite's write lock: by many short waits, as the pauses of one long wait grow to 100 ms.

        In a block of `idle_connection`. Raises: sqlite3.OperationalError.
        """
        for tries_left in reversed(range(max(1, round(self.busy_timeout_seconds / BUSY_WAIT_SECONDS)))):
            try:
                statement()
            except sqlite3.OperationalError as error:
                if not tries_left or not is_busy(error):
                    raise
            else:
                return

    def close(self) -> None:
        """Close the connection; appends that still wait fail."""
        with self._lock:
            self._is_closed = True
            self.connection.close()

    def _append_all(self, requests: list[_Append]) -> None:
        """Write the requests in one transaction. What fails for one request alone is that request's error."""
        results: list[tuple[_Append, Sequence[Offset]]] = []
        touched: set[int] = set()
        try:
            with self._transaction():
                for request in requests:
                    try:
                        number, offsets = self._insert(request)
                    except MailboatError as error:
                        request.fail(error)
                    else:
                        touched.add(number)
                        results.append((request, offsets))
        except BaseException as error:
            shared = error if isinstance(error, MailboatError) else _shared_failure(error, self.path)
            for request in requests:
                # These requests left the queue: without an error their threads would return no offsets as a success.
                request.fail(shared)
            raise
        # Only after COMMIT: until then the whole group may be rolled back.
        for request, offsets in results:
            request.succeed(offsets)
            self.counts.records += len(offsets)
        # After COMMIT: a reader that wakes up earlier finds nothing and sleeps again.
        for number in touched:
            ring(self.bells(number))

    def _insert(self, request: _Append) -> tuple[int, Sequence[Offset]]:
        topic = find_topic(self.connection, request.topic, self.path)
        # All checks come before the first INSERT: a refused request leaves no rows in the group's transaction.
        check_sizes(request.topic, request.records, topic.max_message_bytes)
        appended_ms = milliseconds_now(self.clock)
        first = topic.next_offset
        self.connection.executemany(
            f"INSERT INTO {record_table(topic.number)} (offset, appended_ms, epoch, key, headers, value) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            [
                (offset, appended_ms, self.epoch, record.key, headers, record.value)
                for offset, (record, headers) in enumerate(zip(request.records, request.headers, strict=True), first)
            ],
        )
        after = first + len(request.records)
        self.connection.execute(_MOVE_END, (after, topic.number))
        return topic.number, [Offset(offset) for offset in range(first, after)]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with mapped_errors(self.path):
            self._check_usable()
            # A deferred transaction fails at its first write, without a wait, if another process has committed since
            # its first read: https://sqlite.org/rescode.html#busy_snapshot
            self.when_free(lambda: self.connection.execute("BEGIN IMMEDIATE"))
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                # After some errors (a full disk) SQLite has rolled back: https://sqlite.org/lang_transaction.html
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
        self.counts.commits += 1

    def _check_usable(self) -> None:
        """Refuse to write into a file that has lost its path. Raises: JournalReplacedError."""
        if self._is_closed:
            raise journal_closed(f"the journal {self.path}")
        check_same_file(self._place, self._file)


def _shared_failure(error: BaseException, path: Path) -> JournalUnavailableError:
    """The error of a group's other threads when the thread that wrote for all of them was interrupted."""
    failure = JournalUnavailableError(f"the shared append to {path} failed: {error!r}", path=path)
    failure.__cause__ = error
    return failure


def find_topic(connection: sqlite3.Connection, topic: TopicName, path: Path) -> TopicRow:
    """The row of a topic. Raises: TopicMissingError."""
    row = connection.execute(_FIND_TOPIC, (topic,)).fetchone()
    if row is None:
        raise topic_missing(topic, f"sqlite {path}")
    return TopicRow._make(row)


def file_identity(path: Path | str) -> tuple[int, int]:
    """Device and inode, which differ when another file took the name. Raises: JournalUnavailableError."""
    try:
        found = os.stat(path)  # noqa: PTH116 - on the path of every append
    except OSError as error:
        raise JournalUnavailableError(f"the journal {path} can't be reached: {error.strerror}") from error
    return found.st_dev, found.st_ino


def check_same_file(path: Path | str, known: tuple[int, int]) -> None:
    """Detect a removed or swapped file. Raises: JournalReplacedError, JournalUnavailableError."""
    if file_identity(path) != known:
        raise JournalReplacedError(f"the file {path} was replaced since it was opened", path=path)
