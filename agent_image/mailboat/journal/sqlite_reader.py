"""Reads one topic of the SQLite journal: one prepared range scan a batch, on a connection of its own.

The import of packages runs through here, so a record costs one tuple and one dictionary look-up. Rows are taken one by
one until a limit is reached: at most `max_bytes` and one record are in memory, however large the records are.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Final, NamedTuple

from mailboat.clock import Clock
from mailboat.journal.header_codec import HeaderCodec
from mailboat.journal.port import ReadLimits, Record, RecordBatch
from mailboat.journal.refusals import journal_closed, out_of_range, records_missing, topic_replaced, written_anew
from mailboat.journal.sqlite_connection import mapped_errors
from mailboat.journal.sqlite_schema import record_table
from mailboat.journal.sqlite_writer import check_same_file
from mailboat.journal.wakeup import Listener
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds

_LARGEST: Final = 2**63 - 1  # beyond it SQLite has no integers
_BOUNDS: Final = "SELECT earliest_offset, next_offset FROM topic WHERE number = ?"


class SqliteReaderSettings(NamedTuple):
    """The journal and topic of a reader.

    Attributes:
        path: The journal's file.
        file: What the file was when the journal was opened (`sqlite_writer.file_identity`).
        topic: Its name.
        topic_id: Its uuid.
        topic_number: Its number in the file.
        poll_seconds: How long a lost wake-up, or a swapped file, may go unnoticed.
        epoch_before: The epoch of the record before the start; None where it is unknown.
    """

    path: Path
    file: tuple[int, int]
    topic: TopicName
    topic_id: str
    topic_number: int
    poll_seconds: float
    epoch_before: int | None = None


class SqliteReader:
    """The reader port over one topic's table."""

    def __init__(
        self,
        settings: SqliteReaderSettings,
        connection: sqlite3.Connection,
        listener: Listener,
        clock: Clock,
        start: Offset,
    ) -> None:
        """Use `SqliteJournal.reader`. The reader owns the connection and the listener."""
        self._settings = settings
        self._connection = connection
        self._listener = listener
        self._clock = clock
        self.next_offset = start
        self._epoch_before = settings.epoch_before
        self._headers = HeaderCodec()
        self._select = (
            f"SELECT offset, value, headers, key, appended_ms, epoch FROM {record_table(settings.topic_number)} "
            "WHERE offset >= ? ORDER BY offset LIMIT ?"
        )
        self._select_place = (
            "SELECT earliest_offset, next_offset, "
            f"(SELECT min(offset) FROM {record_table(settings.topic_number)} WHERE offset >= ?) "
            "FROM topic WHERE number = ?"
        )
        self._select_epoch = f"SELECT epoch FROM {record_table(settings.topic_number)} WHERE offset = ?"
        self._in_use = threading.Lock()
        self._is_interrupted = False
        self._is_closed = False

    def read(self, limits: ReadLimits, wait_seconds: float) -> RecordBatch:
        with self._in_use:
            if self._epoch_before is not None:
                self._check_epoch(self._epoch_before)
            batch = self._fetch(limits)
            if not batch.records and wait_seconds > 0:
                batch = self._wait(limits, self._clock.monotonic() + wait_seconds)
            # The flag is checked before the pipe is emptied: the pipe costs a system call for each read.
            if self._is_interrupted:
                self._is_interrupted = False
                self._listener.heard_interrupt()
            self.next_offset = batch.next_offset
            return batch

    def interrupt(self) -> None:
        self._listener.interrupt()
        self._is_interrupted = True  # last: a read that sees it also takes the interrupt from the listener

    def close(self) -> None:
        """See `JournalReader.close`. From another thread it ends the read that is going on."""
        if self._is_closed:
            return
        # Before the lock is taken: the interrupted read sees the flag and ends.
        self._is_closed = True
        self._listener.interrupt()
        with self._in_use:
            self._connection.close()
            self._listener.close()

    def _check_epoch(self, known: int) -> None:
        """Once, at the start: is the record before it the one that was read then? Raises: PositionOutOfRangeError."""
        before = Offset(self.next_offset - 1)
        with mapped_errors(self._settings.path):
            row = self._execute(self._select_epoch, (min(before, _LARGEST),)).fetchone()
        if row is not None and row[0] != known:
            raise written_anew(self._settings.topic, self.next_offset, known, row[0])
        self._epoch_before = None

    def _wait(self, limits: ReadLimits, ends: float) -> RecordBatch:
        """Read until a record is found, the timeout ends, or an interrupt."""
        while True:
            self._listener.arm()
            batch = self._fetch(limits)  # what was appended before the listener was armed
            left_seconds = ends - self._clock.monotonic()
            if batch.records or left_seconds <= 0 or self._is_interrupted or self._is_closed:
                break
            self._listener.wait(min(left_seconds, self._settings.poll_seconds))
            # A replaced file never rings this bell, so the file is compared after each wait.
            check_same_file(self._settings.path, self._settings.file)
        if batch.records:
            self._listener.found_something()
        return batch

    def _fetch(self, limits: ReadLimits) -> RecordBatch:
        position = self.next_offset
        if self._is_closed:
            raise journal_closed(f"the reader of {self._settings.topic}")
        if position > _LARGEST:
            raise out_of_range(self._settings.topic, position, self._bounds())
        records = self._rows(position, limits)
        if not records or records[-1].offset - position + 1 != len(records):
            records = self._before_hole(position, records)
        after = Offset(position + len(records))
        # The bounds are of a later snapshot than the rows: an append in between only makes `is_at_end` False.
        return RecordBatch(records, after, after == self._bounds().next_offset)

    def _before_hole(self, position: Offset, records: list[Record]) -> list[Record]:
        """Those of the records that follow on the position without a gap: offsets of this journal have no holes.

        Raises:
            PositionOutOfRangeError: The position is not within the bounds.
            JournalCorruptError: It is, and its record is missing. A hole is never skipped.
        """
        topic = self._settings.topic
        with mapped_errors(self._settings.path):
            # One statement is one snapshot: bounds and first record agree, whatever other processes do meanwhile.
            row = self._execute(self._select_place, (position, self._settings.topic_number)).fetchone()
        if row is None:
            raise topic_replaced(topic, self._settings.topic_id)
        bounds, present = Bounds(*row[:2]), row[2]
        if not bounds.earliest_offset <= position <= bounds.next_offset:
            raise out_of_range(topic, position, bounds)
        if position < bounds.next_offset and present != position:
            raise records_missing(topic, position, bounds.next_offset if present is None else present)
        return [record for place, record in enumerate(records, position) if record.offset == place]

    def _rows(self, position: Offset, limits: ReadLimits) -> list[Record]:
        """The records within the limits."""
        records: list[Record] = []
        left_bytes = limits.max_bytes
        decode, new = self._headers.decode, tuple.__new__
        with mapped_errors(self._settings.path):
            rows = self._execute(self._select, (position, limits.max_records))
            try:
                for offset, value, headers, key, appended_ms, epoch in rows:
                    left_bytes -= len(value)
                    if left_bytes < 0 and records:
                        return records
                    records.append(new(Record, (offset, value, decode(headers), key, appended_ms, epoch)))
            finally:
                rows.close()  # an open statement would hold back the check-points
        return records

    def _bounds(self) -> Bounds:
        with mapped_errors(self._settings.path):
            row = self._execute(_BOUNDS, (self._settings.topic_number,)).fetchone()
        if row is None:
            raise topic_replaced(self._settings.topic, self._settings.topic_id)
        return Bounds(*row)

    def _execute(self, statement: str, values: tuple[int, ...]) -> sqlite3.Cursor:
        try:
            return self._connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # no such table: it went with its topic
                raise topic_replaced(self._settings.topic, self._settings.topic_id) from error
            raise
