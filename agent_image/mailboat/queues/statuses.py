"""Follows the status topic, and passes subscribers' messages about packages and commands to listeners.

The topic is read once for all listeners. They are folds that can start over: when the topic was replaced, or retention
was faster than the reader, they forget all and get it from its beginning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

from mailboat.clock import Clock
from mailboat.errors import JournalReplacedError, PositionOutOfRangeError
from mailboat.journal.port import Edge, Journal, JournalReader, ReadLimits, RecordBatch, Start
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.messages import Message
from mailboat.wire.messages import readable_message
from mailboat.workers import heartbeat

_READ: Final = ReadLimits(max_records=500)
_NEVER: Final = Offset(1 << 63)


class StatusListener(Protocol):
    """What is made of the messages of the status topic."""

    def apply(self, status: Message) -> None:
        """Apply a message; unrelated messages are ignored."""

    def clear(self) -> None:
        """Forget all: the topic is another one, or is read from its beginning."""


class StatusFollower:
    """Brings listeners the status topic. Belongs to one thread, but for `interrupt`."""

    def __init__(
        self,
        listeners: Sequence[StatusListener],
        journal: Journal,
        topic: TopicName,
        clock: Clock,
        start: Start = Edge.EARLIEST,
    ) -> None:
        """Begin at the oldest status that is kept, or at `start`."""
        self._listeners = listeners
        self._journal = journal
        self._topic = topic
        self._clock = clock
        self._beat = heartbeat(clock)
        self._reader: JournalReader = journal.reader(topic, start)
        self._next_offset = self._reader.next_offset
        self._unheard: RecordBatch | None = None
        self._unread_to_ms = self._begun_ms()
        self._caught_up_at = Offset(0)

    @property
    def next_offset(self) -> Offset:
        """The status that is read next; listeners have those before it."""
        return self._next_offset

    def are_complete_since(self, appended_ms: int) -> bool:
        """Whether no status is missing that was appended after that time, by the log's clock, and before the last read.

        Statuses before the first one that was read have an older time, or the same.
        """
        return self.is_caught_up and appended_ms > self._unread_to_ms

    @property
    def is_caught_up(self) -> bool:
        """Whether listeners have again all that the topic held when they had to start over."""
        return self._next_offset >= self._caught_up_at

    def follow(self, wait_seconds: float) -> int:
        """Read once, waiting at most so long; how many records came.

        After a failure of a listener, all listeners get the batch again the next time.

        Raises:
            JournalUnavailableError: Try again; nothing was lost.
        """
        try:
            batch = self._unheard or self._reader.read(_READ, wait_seconds)
        except (PositionOutOfRangeError, JournalReplacedError):
            self._restart()
            return 0
        # Kept until every listener has it: the reader would not give it again.
        self._unheard = batch
        if batch.records:
            self._unread_to_ms = min(self._unread_to_ms, batch.records[0].appended_ms)
        for record in batch.records:
            message = readable_message(record.headers, record.value)
            if message is not None:
                for listener in self._listeners:
                    listener.apply(message)
        if batch.records:
            self._beat(0.0)
        self._unheard = None
        # Only now: other threads take everything below it as passed to the listeners.
        self._next_offset = self._reader.next_offset
        return len(batch.records)

    def interrupt(self) -> None:
        """End the current or the next `follow`, from any thread."""
        self._reader.interrupt()

    def close(self) -> None:
        """Release the reader."""
        self._reader.close()

    def _restart(self) -> None:
        reader = self._journal.reader(self._topic, Edge.EARLIEST)  # until there is one, the old one is asked
        self._reader.close()
        self._caught_up_at = _NEVER  # before anything is forgotten: other threads ask meanwhile
        for listener in self._listeners:
            listener.clear()
        self._reader = reader
        self._next_offset = self._reader.next_offset
        self._unread_to_ms = self._begun_ms()
        # Set last: from here on `is_caught_up` may become True again.
        self._caught_up_at = self._journal.bounds(self._topic).next_offset

    def _begun_ms(self) -> float:
        """Until a record is read: statuses up to this moment may be unread, unless reading begins with the first."""
        return -math.inf if self._next_offset == 0 else self._clock.now().timestamp() * 1000
