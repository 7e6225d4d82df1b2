"""What a publisher remembers of its events: how far they were raised and posted, who is waited for, and who may do it.

Kept in the publisher's state, by a connection of its own. The lease is a kernel lock on a file in its folder, so the
process that raises events holds it until it ends in whatever way, and no second one does it at the same time
(SLING-12639). A cursor never goes back, but that of the audience: it follows the discovery topic wherever that goes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from mailboat.errors import JournalAccessDeniedError, TopicMissingError, UsageError
from mailboat.folder_handle import PRIVATE_FILE
from mailboat.journal.port import Journal
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.positions import LogIdentity
from mailboat.publisher.distributed import StoredSubscriber
from mailboat.publisher.state_file import StateFile, Synchronous, columns_of, translated_failures, try_lock
from mailboat.queues.queue_names import QueueName

TOPIC_READER: Final = "topic"
WEBHOOK_READER: Final = "webhook"
JOB_EVENT_READER: Final = "jobs-topic"
_AUDIENCE: Final = "audience"

_CURSOR: Final = (
    "SELECT next_offset, event_offset FROM event_cursors WHERE reader = ? AND cluster_id = ? AND topic_id = ?"
)
_EARLIER: Final = "SELECT topic_id FROM event_cursors WHERE reader = ? AND cluster_id = ? AND topic_id <> ?"
_PUT: Final = "INSERT OR REPLACE INTO event_cursors VALUES (?, ?, ?, ?, ?)"
_BEGIN: Final = "INSERT INTO event_cursors VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_ADVANCE: Final = (
    "INSERT INTO event_cursors VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
    " SET next_offset = max(next_offset, excluded.next_offset), event_offset = max(event_offset, excluded.event_offset)"
)


class EventCursor(NamedTuple):
    """How far a reader of one log is.

    Attributes:
        next_offset: Everything below it is dealt with.
        event_offset: Where the event topic ended at that time: what stands behind it was appended later.
    """

    next_offset: Offset
    event_offset: Offset


class StoredSubscribers(NamedTuple):
    """The awaited subscribers, by all announcements below an offset of a discovery topic."""

    members: Sequence[StoredSubscriber]
    discovery: LogIdentity
    next_offset: Offset


class EventMemory:
    """The events' part of a publisher's state. Safe to use from several threads."""

    def __init__(self, path: Path, synchronous: Synchronous = "FULL") -> None:
        """Open the file of the publisher's state, or make it. Raises: see `open_database`."""
        self.path = path
        self._file = StateFile(path, synchronous)

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def lease(self, purpose: str = TOPIC_READER) -> Iterator[bool]:
        """Whether this process is the one that may raise events, for as long as it stays inside."""
        file = self.path.with_name(f"{self.path.name}.{purpose}-events-lock")
        with translated_failures(self.path):
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
        try:
            yield try_lock(handle)
        finally:
            os.close(handle)

    def cursor(self, reader: str, identity: LogIdentity) -> EventCursor | None:
        """How far a reader is in that log; None when it never was there."""
        rows = self._file.rows(_CURSOR, (reader, *columns_of(identity)))
        return EventCursor(Offset(rows[0][0]), Offset(rows[0][1])) if rows else None

    def earlier_topics(self, reader: str, identity: LogIdentity) -> frozenset[str]:
        """The ids of the other topics of that log's cluster in which a reader has a cursor."""
        rows = self._file.rows(_EARLIER, (reader, *columns_of(identity)))
        return frozenset(topic_id for (topic_id,) in rows)

    def is_created_again(self, reader: str, identity: LogIdentity, journal: Journal) -> bool:
        """Whether a topic without a cursor replaces one that had it: an earlier topic of the reader is gone.

        An earlier topic that exists was left: by another prefix, or another filter. Raises: the journal's errors.
        """
        gone = set(self.earlier_topics(reader, identity))
        # Asked only when a topic is new to a reader that was in others, so a call per topic is not too many.
        for topic in journal.topics() if gone else ():
            # UsageError: a topic of another program, with several partitions
            with suppress(TopicMissingError, JournalAccessDeniedError, UsageError):
                gone.discard(journal.identity(topic).topic_id)
        return bool(gone)

    def begin(self, reader: str, identity: LogIdentity, cursor: EventCursor) -> None:
        """Set the cursor of a new reader of that log; of several at once the first counts."""
        with self._file.transaction() as connection:
            connection.execute(_BEGIN, (reader, *columns_of(identity), *cursor))

    def restart(self, reader: str, identity: LogIdentity, cursor: EventCursor) -> None:
        """Put the cursor anywhere, also back: the log has lost its end, and offsets are reused."""
        with self._file.transaction() as connection:
            connection.execute(_PUT, (reader, *columns_of(identity), *cursor))

    def advance(
        self,
        reader: str,
        identity: LogIdentity,
        cursor: EventCursor,
        awaited: StoredSubscribers | None = None,
    ) -> None:
        """Move the cursor forward, and note the audience, in one durable step."""
        with self._file.transaction() as connection:
            connection.execute(_ADVANCE, (reader, *columns_of(identity), *cursor))
            if awaited is not None:
                members, discovery, heard_to = awaited
                connection.execute(_PUT, (_AUDIENCE, *columns_of(discovery), heard_to, 0))
                # Replaced as a whole, in the cursor's transaction: members and position are always consistent.
                connection.execute("DELETE FROM event_audience")
                rows = [
                    (*member.queue_name[:2], member.since_ms, member.left_ms, member.next_offset) for member in members
                ]
                connection.executemany("INSERT OR REPLACE INTO event_audience VALUES (?, ?, ?, ?, ?)", rows)

    def awaited(self) -> Sequence[StoredSubscriber]:
        """The awaited subscribers and the dropped ones, when they were last noted."""
        rows = self._file.rows(
            "SELECT sling_id, name, since_ms, left_ms, next_offset FROM event_audience ORDER BY left_ms, name"
        )
        return [StoredSubscriber(QueueName(SlingId(row[0]), AgentName(row[1])), *row[2:]) for row in rows]

    def heard_to(self, discovery: LogIdentity) -> Offset | None:
        """What of the discovery topic is not in the audience yet begins there; None where that was never noted."""
        found = self.cursor(_AUDIENCE, discovery)
        return None if found is None else found.next_offset
