"""The known subscribers, from the discovery topic: reads retained records, then follows its end.

Anyone may write to the topic; `queues/announced.py` says what is accepted. Times in announcements are not
trusted: a retained record has the age that the log says, and none is younger than now; a new record is from now. So a
record from the future lives as long as any other, and clock skew hides no subscriber.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from mailboat.clock import Clock, milliseconds_now
from mailboat.discovery.topology import MAX_SUBSCRIBERS, KnownSubscriber, Topology
from mailboat.errors import JournalReplacedError, PositionOutOfRangeError
from mailboat.journal.port import Edge, Journal, JournalReader, ReadLimits, Record
from mailboat.model.identifiers import Offset, TopicName
from mailboat.queues.announced import RETAINED_ANNOUNCEMENTS, read_announcement
from mailboat.wire.headers import REGISTRY, message_type_of

_READ: Final = ReadLimits(max_records=500)


class Roster:
    """The subscribers known in this process. Safe to use from several threads."""

    def __init__(self, clock: Clock, max_subscribers: int = MAX_SUBSCRIBERS) -> None:
        """Start without subscribers."""
        self._clock = clock
        self._lock = threading.Lock()
        self._max = max_subscribers
        self._topology = Topology(max_subscribers)
        self.unreadable = 0
        """Records of the topic that are no announcement that can be understood."""
        self.version = 0
        """Grows with each announcement and each removal."""

    @property
    def dropped(self) -> int:
        """Subscribers that were dropped to bound memory; they come back with their next announcement."""
        return self._topology.dropped_count

    def apply(self, record: Record, *, is_retained: bool) -> None:
        """Apply a record of the discovery topic, an old or a new one."""
        # Decoded before the lock: readers of the roster wait for the change only.
        announced = read_announcement(record)
        now_ms = milliseconds_now(self._clock)
        with self._lock:
            self.version += 1
            if announced is None:
                # Registrations for retention share the topic, and only retention reads them.
                self.unreadable += bool(record.value) and message_type_of(record.headers) != REGISTRY
            elif announced.message is None:
                self._topology.leave(announced.queue_name)
            else:
                # A retained record counts from its append; the clock of the broker may be ahead of ours.
                heard_ms = min(record.appended_ms, now_ms) if is_retained else now_ms
                self._topology.apply(announced.message, heard_ms)

    def subscribers(self) -> Sequence[KnownSubscriber]:
        """All that are known, alive or silent, by name; who is silent for too long is removed before."""
        now_ms = milliseconds_now(self._clock)
        with self._lock:
            self.version += bool(self._topology.remove_expired(now_ms))
            return self._topology.subscribers()

    def clear(self) -> None:
        """Forget all: the topic is another one."""
        with self._lock:
            self.version += 1
            self._topology = Topology(self._max)


class RosterFollower:
    """Brings a roster the discovery topic. Belongs to one thread, but for `interrupt`."""

    def __init__(self, roster: Roster, journal: Journal, topic: TopicName) -> None:
        """Start reading so far back that every live subscriber is included."""
        self._roster = roster
        self._journal = journal
        self._topic = topic
        self._reader = self._begin()

    def follow(self, wait_seconds: float) -> int:
        """Read once, waiting at most so long; how many records came. Raises: JournalUnavailableError."""
        try:
            batch = self._reader.read(_READ, wait_seconds)
        except (PositionOutOfRangeError, JournalReplacedError):
            reader = self._begin()  # until there is one, the old one is asked
            self._reader.close()
            self._roster.clear()
            self._reader = reader
            return 0
        for record in batch.records:
            self._roster.apply(record, is_retained=record.offset < self._retained_to)
        return len(batch.records)

    def interrupt(self) -> None:
        """End the current or the next `follow`, from any thread."""
        self._reader.interrupt()

    def close(self) -> None:
        """Release the reader."""
        self._reader.close()

    def _begin(self) -> JournalReader:
        # Before the reader is opened: what is appended in between counts as new, not as retained.
        bounds = self._journal.bounds(self._topic)
        self._retained_to = bounds.next_offset
        if bounds.count <= RETAINED_ANNOUNCEMENTS:
            return self._journal.reader(self._topic, Edge.EARLIEST)
        return self._journal.reader(self._topic, Offset(bounds.next_offset - RETAINED_ANNOUNCEMENTS))
