"""What a publisher remembers over restarts, in one SQLite file: intents, receipts and what was last published.

An intent says: under this request id a message may stand in the log, at or after this offset. It is stored before the
append; the receipt, with the offset, replaces it afterwards. So after a crash in between, a look into the log tells
which of the two happened. Receipts live as long as the messages that they speak of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mailboat.clock import Clock, SystemClock
from mailboat.model.identifiers import Offset, PackageId, RequestId
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity
from mailboat.publisher.database import StateFile, Synchronous
from mailboat.publisher.locks import PublisherLocks
from mailboat.publisher.published import PublishedTrees


@dataclass(frozen=True, slots=True)
class Intent:
    """That a request is about to be appended; its message, if there is one, has `scan_from` or a later offset."""

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
        self._file = StateFile(path, synchronous)
        self.locks = PublisherLocks(path, self._clock, self._file.guard)
        self.published = PublishedTrees(self._file.connection, path, self._clock)

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def receipt(self, request_id: RequestId, identity: LogIdentity) -> StoredReceipt | None:
        """The receipt of a request in that log."""
        rows = self._file.rows(
            "SELECT fingerprint, package_id, at_offset FROM receipts"
            " WHERE request_id = ? AND cluster_id = ? AND topic_id = ?",
            (request_id, identity.cluster_id, identity.topic_id),
        )
        if not rows:
            return None
        fingerprint, package_id, offset = rows[0]
        return StoredReceipt(request_id, fingerprint, PackageId(package_id), identity, Offset(offset))

    def locate(self, identifier: str, identity: LogIdentity) -> Offset | None:
        """Where the message of that request id, or else of that package id, stands in that log, as receipts say."""
        rows = self._file.rows(
            "SELECT at_offset FROM receipts WHERE (request_id = ? OR package_id = ?)"
            " AND cluster_id = ? AND topic_id = ? ORDER BY request_id = ? DESC LIMIT 1",
            (identifier, identifier, *_pair(identity), identifier),
        )
        return Offset(rows[0][0]) if rows else None

    def intents(self, identity: LogIdentity) -> Sequence[Intent]:
        """Requests of which it is not known whether they were appended to that log, by where to look for them."""
        rows = self._file.rows(
            "SELECT request_id, fingerprint, package_id, scan_from FROM intents"
            " WHERE cluster_id = ? AND topic_id = ? ORDER BY scan_from",
            (identity.cluster_id, identity.topic_id),
        )
        return [Intent(RequestId(row[0]), row[1], PackageId(row[2]), identity, Offset(row[3])) for row in rows]

    def store_intents(self, intents: Sequence[Intent]) -> None:
        """Store what is about to be appended, in one durable step."""
        with self._file.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO intents VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (one.request_id, one.fingerprint, one.package_id, *_pair(one.identity), one.scan_from)
                    for one in intents
                ],
            )

    def store_receipts(self, receipts: Sequence[StoredReceipt]) -> None:
        """Replace intents by receipts, and take over what was staged with them, in one durable step."""
        with self._file.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (one.request_id, *_pair(one.identity), one.fingerprint, one.package_id, one.offset)
                    for one in receipts
                ],
            )
            for one in receipts:
                self.published.take_over(one.package_id, one.offset)
                connection.execute("DELETE FROM intents WHERE request_id = ?", (one.request_id,))

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
            for one in intents:
                connection.execute("DELETE FROM intents WHERE request_id = ?", (one.request_id,))
                self.published.discard(one.package_id)

    def doubt(self, doubts: Mapping[int, Sequence[NodePath]]) -> None:
        """Take nothing of some sources for published any more, in one durable step; see `PublishedTrees.doubt`."""
        with self._file.transaction():
            for source_id, paths in doubts.items():
                self.published.doubt(source_id, paths)

    def prune(self, identity: LogIdentity, earliest_offset: Offset) -> int:
        """Forget receipts of messages that the log has removed; how many."""
        with self._file.transaction() as connection:
            return connection.execute(
                "DELETE FROM receipts WHERE cluster_id = ? AND topic_id = ? AND at_offset < ?",
                (*_pair(identity), earliest_offset),
            ).rowcount


def _pair(identity: LogIdentity) -> tuple[str, str]:
    return identity.cluster_id, identity.topic_id
