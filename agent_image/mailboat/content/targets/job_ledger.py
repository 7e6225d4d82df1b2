"""Jobs that a target keeps until they are in the job topic: each as the record that adds it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.pending_jobs import PendingJob
from mailboat.errors import MessageCorruptError, TargetCorruptError
from mailboat.model.jobs import JobsAdded, NewJob
from mailboat.wire.headers import JOBS_ADDED, headers_for
from mailboat.wire.job_records import decode_job_record, encode_job_record

JOB_SCHEMA: Final = ("CREATE TABLE pending_job (sequence INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL)",)
"""What version 8 of the schema adds."""


def note_jobs(connection: sqlite3.Connection, jobs: Iterable[NewJob]) -> None:
    """Store jobs in the transaction that is open on the connection."""
    rows = [(encode_job_record(JobsAdded([job]))[1],) for job in jobs]
    connection.executemany("INSERT INTO pending_job (record) VALUES (?)", rows)


class TargetJobs:
    """See `PendingJobs`. Shares connection and lock with the target's ledger."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock, uri: str) -> None:
        """Serve from a connection that no other code uses without the lock."""
        self._connection = connection
        self._lock = lock
        self._uri = uri

    def pending(self, limit: int) -> Sequence[PendingJob]:
        sql = "SELECT sequence, record FROM pending_job ORDER BY sequence LIMIT ?"
        with self._lock, TranslatedFailures(self._uri):
            rows = self._connection.execute(sql, (limit,)).fetchall()
        return [PendingJob(sequence, self._job(record)) for sequence, record in rows]

    def forget(self, up_to_sequence: int) -> None:
        with self._lock, TranslatedFailures(self._uri):
            self._connection.execute("DELETE FROM pending_job WHERE sequence <= ?", (up_to_sequence,))

    def _job(self, record: bytes) -> NewJob:
        try:
            decoded = decode_job_record(headers_for(JOBS_ADDED), record)
        except MessageCorruptError as error:
            raise TargetCorruptError(f"{self._uri} holds a job that cannot be read: {error.message}") from error
        if not isinstance(decoded, JobsAdded):
            raise TargetCorruptError(f"{self._uri} holds a job that cannot be read")
        return decoded.jobs[0]
