"""What a publisher remembers of its events: how far they were raised and posted, who is waited for, and who may do it.

Kept in the publisher's state, by a connection of its own. The lease is a lock of the kernel on a file beside it, so the
process that raises events holds it until it ends in whatever way, and no second one does it at the same time
(SLING-12639). A cursor never goes back.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.positions import LogIdentity
from mailboat.publisher.database import Synchronous, open_database, translated_failures
from mailboat.publisher.distributed import StoredMember
from mailboat.queues.names import QueueName

TOPIC_READER: Final = "topic"
WEBHOOK_READER: Final = "webhook"


class EventCursor(NamedTuple):
    """How far a reader of one log is.

    Attributes:
        next_offset: Everything below it is dealt with.
        event_offset: Where the event topic ended at that time: what stands behind it was appended later.
    """

    next_offset: Offset
    event_offset: Offset


class EventMemory:
    """The events' part of a publisher's state. Safe to use from several threads."""

    def __init__(self, path: Path, synchronous: Synchronous = "FULL") -> None:
        """Open the file of the publisher's state, or make it. Raises: see `open_database`."""
        self.path = path
        self._connection = open_database(path, synchronous)
        self._guard = threading.Lock()

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    @contextmanager
    def lease(self, purpose: str = TOPIC_READER) -> Iterator[bool]:
        """Whether this process is the one that may raise events, for as long as it stays inside."""
        file = self.path.with_name(f"{self.path.name}.{purpose}-events-lock")
        with translated_failures(self.path):
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            yield _is_locked(handle)
        finally:
            os.close(handle)

    def cursor(self, reader: str, identity: LogIdentity) -> EventCursor | None:
        """How far a reader is in that log; None when it never was there."""
        with self._guard, translated_failures(self.path):
            row = self._connection.execute(
                "SELECT next_offset, event_offset FROM event_cursors"
                " WHERE reader = ? AND cluster_id = ? AND topic_id = ?",
                (reader, identity.cluster_id, identity.topic_id),
            ).fetchone()
        return None if row is None else EventCursor(Offset(row[0]), Offset(row[1]))

    def restart(self, reader: str, identity: LogIdentity, cursor: EventCursor) -> None:
        """Put the cursor anywhere, also back: the log has lost its end, and offsets begin anew."""
        with self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO event_cursors VALUES (?, ?, ?, ?, ?)",
                (reader, identity.cluster_id, identity.topic_id, *cursor),
            )

    def advance(
        self,
        reader: str,
        identity: LogIdentity,
        cursor: EventCursor,
        audience: Iterable[StoredMember] | None = None,
    ) -> None:
        """Move the cursor forward, and note the audience, in one durable step."""
        with self._transaction():
            self._connection.execute(
                "INSERT INTO event_cursors VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET next_offset = max(next_offset, excluded.next_offset),"
                " event_offset = max(event_offset, excluded.event_offset)",
                (reader, identity.cluster_id, identity.topic_id, *cursor),
            )
            if audience is not None:
                self._connection.execute("DELETE FROM event_audience")
                self._connection.executemany(
                    "INSERT OR REPLACE INTO event_audience VALUES (?, ?, ?, ?, ?)",
                    [
                        (one.queue_name.sling_id, one.queue_name.agent_name, one.since_ms, one.left_ms, one.next_offset)
                        for one in audience
                    ],
                )

    def audience(self) -> Sequence[StoredMember]:
        """Who was waited for, and who no longer was, when it was last noted."""
        with self._guard, translated_failures(self.path):
            rows = self._connection.execute(
                "SELECT sling_id, name, since_ms, left_ms, next_offset FROM event_audience ORDER BY left_ms, name"
            ).fetchall()
        return [StoredMember(QueueName(SlingId(row[0]), AgentName(row[1])), *row[2:]) for row in rows]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._guard, translated_failures(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
