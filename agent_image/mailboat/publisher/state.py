"""The state of a publisher over restarts, in one SQLite file, with kernel locks on files in its folder.

An intent says: under this request id a message may stand in the log, at or after this offset. It is stored before the
append; the receipt, with the offset, replaces it afterwards. So after a crash in between, a search of the log decides
which of the two happened. Receipts live as long as the messages that they name. `PublisherLocks` orders the threads and
processes of one publisher; the kernel releases a lock when its process dies, so nothing has to be repaired.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mailboat.clock import Clock, Deadline, SystemClock
from mailboat.folder_handle import PRIVATE_FILE
from mailboat.model.identifiers import Offset, PackageId, RequestId
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity
from mailboat.publisher.published import PublishedTrees
from mailboat.publisher.state_file import (
    BUSY_TIMEOUT_SECONDS,
    PublisherBusyError,
    StateFile,
    Synchronous,
    columns_of,
    translated_failures,
    try_lock,
)


@dataclass(frozen=True, slots=True)
class Intent:
    """A request before its append: its message, if any, is at `scan_from` or later."""

    request_id: RequestId
    fingerprint: bytes
    package_id: PackageId
    identity: LogIdentity
    scan_from: Offset


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """That a request's message stands in the log at `offset`."""

    request_id: RequestId
    fingerprint: bytes
    package_id: PackageId
    identity: LogIdentity
    offset: Offset


class PublisherState:
    """The durable memory of one publisher agent. Several processes may use one file; each opens its own."""

    def __init__(self, path: Path, clock: Clock | None = None, synchronous: Synchronous = "FULL") -> None:
        """Open the file, or make it. Raises: see `open_database`."""
        self.path = path
        self._clock = SystemClock() if clock is None else clock
        self._synchronous = synchronous
        self._file = StateFile(path, synchronous)
        self._opening = threading.Lock()
        self._reads: StateFile | None = None
        # One guard for locks and file: threads of this process wait for it, and only processes poll for the kernel's
        # lock.
        self.locks = PublisherLocks(path, self._clock, self._file.guard)
        self.published = PublishedTrees(self._file, self._clock)

    def close(self) -> None:
        with self._opening:
            if self._reads is not None:
                self._reads.close()
        self._file.close()

    def receipt(self, request_id: RequestId, identity: LogIdentity) -> StoredReceipt | None:
        rows = self._file.rows(
            "SELECT fingerprint, package_id, at_offset FROM receipts"
            " WHERE request_id = ? AND cluster_id = ? AND topic_id = ?",
            (request_id, *columns_of(identity)),
        )
        if not rows:
            return None
        fingerprint, package_id, offset = rows[0]
        return StoredReceipt(request_id, fingerprint, PackageId(package_id), identity, Offset(offset))

    def locate(self, identifier: str, identity: LogIdentity) -> Offset | None:
        """Offset of a request id, else of a package id, in that log, by the receipts.

        From any thread, and never waits for a publication: those hold the guard of their file for as long as they last.
        """
        with self._opening:
            self._reads = reads = self._reads or StateFile(self.path, self._synchronous)
        rows = reads.rows(
            "SELECT at_offset FROM receipts WHERE (request_id = ? OR package_id = ?)"
            " AND cluster_id = ? AND topic_id = ? ORDER BY request_id = ? DESC LIMIT 1",
            (identifier, identifier, *columns_of(identity), identifier),
        )
        return Offset(rows[0][0]) if rows else None

    def intents(self, identity: LogIdentity) -> Sequence[Intent]:
        """Requests of which it is not known whether they were appended to that log, by where to look for them."""
        rows = self._file.rows(
            "SELECT request_id, fingerprint, package_id, scan_from FROM intents"
            " WHERE cluster_id = ? AND topic_id = ? ORDER BY scan_from",
            columns_of(identity),
        )
        return [Intent(RequestId(row[0]), row[1], PackageId(row[2]), identity, Offset(row[3])) for row in rows]

    def store_intents(self, intents: Sequence[Intent]) -> None:
        """Store what is about to be appended, in one durable step."""
        with self._file.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO intents VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (one.request_id, one.fingerprint, one.package_id, *columns_of(one.identity), one.scan_from)
                    for one in intents
                ],
            )

    def store_receipts(self, receipts: Sequence[StoredReceipt]) -> None:
        """Replace intents by receipts, and take over what was staged with them, in one durable step."""
        with self._file.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (one.request_id, *columns_of(one.identity), one.fingerprint, one.package_id, one.offset)
                    for one in receipts
                ],
            )
            # In the transaction of the receipts: a crash leaves a request either as an intent, to be searched for, or
            # as published.
            for receipt in receipts:
                connection.execute("DELETE FROM intents WHERE request_id = ?", (receipt.request_id,))
                self.published.take_over(receipt.package_id, receipt.offset)

    def take_over(self, package_id: PackageId, offset: Offset, doubted: Sequence[int] = ()) -> None:
        """What was staged for a package that stands in the log is published, in one durable step.

        Of the `doubted` sources, nothing counts as published any more; see `PublishedTrees.doubt`.
        """
        with self._file.transaction():
            self.published.take_over(package_id, offset)
            for source_id in doubted:
                self.published.doubt(source_id)

    def drop_intents(self, intents: Sequence[Intent]) -> None:
        """Forget requests that were not appended, and what was staged with them."""
        with self._file.transaction() as connection:
            for intent in intents:
                connection.execute("DELETE FROM intents WHERE request_id = ?", (intent.request_id,))
                # What was staged with it was never published: the next `--changed` has to find these changes again.
                self.published.discard(intent.package_id)

    def doubt(self, doubts: Mapping[int, Sequence[NodePath]]) -> None:
        """Take nothing of some sources for published any more, in one durable step; see `PublishedTrees.doubt`."""
        with self._file.transaction():
            for source_id, paths in doubts.items():
                self.published.doubt(source_id, paths)

    def has_published(self, uri: str, identity: LogIdentity) -> bool:
        """Whether a package or a node of a source was published; not where its first publication was interrupted."""
        return bool(
            self._file.rows(
                "SELECT 1 FROM sources WHERE uri = ? AND cluster_id = ? AND topic_id = ? AND (package_id IS NOT NULL"
                " OR EXISTS (SELECT 1 FROM published WHERE source_id = sources.id))",
                (uri, *columns_of(identity)),
            )
        )

    def prune(self, identity: LogIdentity, earliest_offset: Offset) -> int:
        """Forget receipts of messages that the log has removed; how many."""
        with self._file.transaction() as connection:
            return connection.execute(
                # Below the head a receipt cannot be checked against the log any more, so its id counts as new.
                "DELETE FROM receipts WHERE cluster_id = ? AND topic_id = ? AND at_offset < ?",
                (*columns_of(identity), earliest_offset),
            ).rowcount


_APPEND: Final = "append"
# flock(2) has no time-out, so the lock is polled
_POLL_SECONDS: Final = 0.01


class PublisherLocks:
    """The locks of one publisher's state."""

    def __init__(self, path: Path, clock: Clock, guard: threading.RLock) -> None:
        """Lock files lie in the folder of `path`; `guard` keeps the threads of this process apart."""
        self._path = path
        self._clock = clock
        self._guard = guard

    @contextmanager
    def exclusive(self, purpose: str = _APPEND) -> Iterator[None]:
        """Keep all other processes of this publisher out of the same `purpose`; the kernel lets go if we die.

        Raises: PublisherBusyError when another holds it for longer than `BUSY_TIMEOUT_SECONDS`.
        """
        # threads of this process first: only other processes are polled for
        with self._guard:
            handle = self._open(f"{purpose}-lock")
            try:
                if not try_lock(handle):
                    self._wait_for(handle, purpose)
                yield
            finally:
                os.close(handle)

    def yield_to_waiters(self, timeout_seconds: float = 5.0) -> None:
        """Yield to those that wait to append, while the patience lasts: for long work without hurry."""
        waiting = self._open(f"{_APPEND}-waiting")
        try:
            # Waiting processes hold this lock shared: it is free when none waits.
            with suppress(PublisherBusyError):
                self._lock(waiting, Deadline(self._clock, timeout_seconds), _APPEND)
        finally:
            os.close(waiting)

    @contextmanager
    def publication_under_way(self) -> Iterator[None]:
        """Signal to builds that a publication is being made; see `probe_publication`."""
        handle = self._open("publishing")
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)  # `probe_publication` holds it for an instant
            yield
        finally:
            os.close(handle)

    def probe_publication(self) -> bool:
        """Whether a publication holds the lock, here or in another process.

        A build takes small steps then. Two builds that probe at the same instant may take each other for one.
        """
        handle = self._open("publishing")
        try:
            return not try_lock(handle)
        finally:
            os.close(handle)

    def _open(self, name: str) -> int:
        with translated_failures(self._path):
            # never removed: with a new file two processes could lock two inodes
            file = self._path.with_name(f"{self._path.name}.{name}")
            return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)

    def _wait_for(self, handle: int, purpose: str) -> None:
        """Wait visibly: `yield_to_waiters` detects the wait."""
        waiting = self._open(f"{purpose}-waiting")
        try:
            fcntl.flock(waiting, fcntl.LOCK_SH)  # `yield_to_waiters` holds it for an instant
            self._lock(handle, Deadline(self._clock, BUSY_TIMEOUT_SECONDS), purpose)
        finally:
            os.close(waiting)

    def _lock(self, handle: int, deadline: Deadline, purpose: str) -> None:
        # an event that is never set: the clock waits on events, so that tests can move time
        never = threading.Event()
        while not try_lock(handle):
            if deadline.is_over():
                raise PublisherBusyError(f"another process holds {self._path} to {purpose}", retry_after_seconds=1.0)
            self._clock.wait(never, _POLL_SECONDS)
