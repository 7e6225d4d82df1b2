"""A journal in memory, for one process: gone when it ends.

It keeps every promise of the port except durability, so it serves unit tests, dry runs and examples. Records are held
as they were given; nothing is bounded but by truncation and retention.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from mailboat.clock import Clock, milliseconds_now
from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.embedded_topics import differences_of, first_within, settings_as_text
from mailboat.journal.port import (
    Border,
    NewRecord,
    ReadLimits,
    Record,
    RecordBatch,
    Start,
    TopicDifference,
)
from mailboat.journal.refusals import check_sizes, journal_closed, out_of_range, topic_missing, topic_replaced
from mailboat.journal.start_offset import starting_offset
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds, LogIdentity


class _Topic:
    """The records of one topic, contiguous from `earliest` on. Guarded by the journal's lock."""

    __slots__ = ("earliest", "is_deleted", "name", "readers", "records", "settings", "topic_id")

    def __init__(self, name: TopicName, settings: TopicSettings) -> None:
        self.name = name
        self.settings = settings
        self.topic_id = str(uuid.uuid4())
        self.earliest = 0
        self.records: list[Record] = []
        self.readers: weakref.WeakSet[MemoryReader] = weakref.WeakSet()
        self.is_deleted = False

    def bounds(self) -> Bounds:
        return Bounds(Offset(self.earliest), Offset(self.earliest + len(self.records)))

    def change(self, settings: TopicSettings) -> None:
        self.settings = settings

    def delete(self) -> None:
        # Readers hold this object, not the name: they notice the deletion also when the name is used again.
        self.is_deleted = True
        self.wake_readers()

    def wake_readers(self) -> None:
        for reader in self.readers:
            reader.wake()

    def remove_before(self, offset: int) -> int:
        gone = max(0, offset - self.earliest)
        del self.records[:gone]
        self.earliest += gone
        return gone


class _Log:
    """What all handles on one log share: the place of SQLite's file."""

    __slots__ = ("cluster_id", "lock", "topics")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.topics: dict[TopicName, _Topic] = {}
        self.cluster_id = str(uuid.uuid4())


class MemoryJournal:
    """The journal port over lists. Safe to use from several threads of one process."""

    def __init__(self, clock: Clock, log: _Log | None = None) -> None:
        """Start empty, or on the log of another handle; `clock` stamps the records and decides which are expired."""
        self._clock = clock
        # What handles share is one object: closing one of them must leave the log to the others.
        self._log = _Log() if log is None else log
        # The lock belongs to the log: all handles must exclude each other.
        self._lock = self._log.lock
        self._readers: weakref.WeakSet[MemoryReader] = weakref.WeakSet()
        self._is_closed = False

    def another_handle(self) -> MemoryJournal:
        """A journal over the same log that is closed on its own, as another process has one."""
        return MemoryJournal(self._clock, self._log)

    @property
    def description(self) -> str:
        return "memory"

    def ensure_topic(self, topic: TopicName, settings: TopicSettings) -> None:
        with self._lock:
            self._check_open()
            self._log.topics.setdefault(topic, _Topic(topic, settings)).change(settings)

    @property
    def upkeep(self) -> MemoryJournal:
        return self

    @property
    def is_automatic(self) -> bool:
        return False

    @property
    def are_appends_seen_at_once(self) -> bool:
        return True

    def differences(self, topic: TopicName, settings: TopicSettings) -> Sequence[TopicDifference]:
        with self._lock:
            return differences_of(settings, settings_as_text(self._find(topic).settings))

    def size_bytes(self) -> int | None:
        """See `JournalUpkeep.size_bytes`: nothing is on disk."""
        return None

    def synchronisations(self) -> int | None:
        """See `JournalUpkeep.synchronisations`: nothing is on disk."""
        return None

    def find_damage(self) -> Sequence[str]:
        return ()

    def delete_topic(self, topic: TopicName) -> None:
        with self._lock:
            gone = self._find(topic)
            del self._log.topics[topic]
            gone.delete()

    def topics(self) -> Sequence[TopicName]:
        with self._lock:
            self._check_open()
            return sorted(self._log.topics)

    def identity(self, topic: TopicName) -> LogIdentity:
        with self._lock:
            return LogIdentity(self._log.cluster_id, self._find(topic).topic_id)

    def bounds(self, topic: TopicName) -> Bounds:
        with self._lock:
            return self._find(topic).bounds()

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        appended_ms = milliseconds_now(self._clock)
        with self._lock:
            target = self._find(topic)
            # Before the first record is added: a refused batch leaves nothing.
            check_sizes(topic, records, target.settings.max_message_bytes)
            first = target.earliest + len(target.records)
            target.records.extend(
                Record(Offset(offset), new.value, new.headers, new.key, appended_ms)
                for offset, new in enumerate(records, first)
            )
            target.wake_readers()
        return [Offset(offset) for offset in range(first, first + len(records))]

    def reader(self, topic: TopicName, start: Start) -> MemoryReader:
        with self._lock:
            found = self._find(topic)
            identity = LogIdentity(self._log.cluster_id, found.topic_id)
            reader = MemoryReader(self, found, starting_offset(topic, start, found.bounds, identity))
            # Under the lock of `append`, so no append falls between the position of the reader and its registration.
            found.readers.add(reader)
            self._readers.add(reader)
            return reader

    def record_at(self, topic: TopicName, offset: Offset) -> Record | None:
        with self._lock:
            found = self._find(topic)
            index = offset - found.earliest
            return found.records[index] if 0 <= index < len(found.records) else None

    def truncate(self, topic: TopicName, before: Offset) -> Bounds:
        with self._lock:
            found = self._find(topic)
            if before > found.bounds().next_offset:
                raise out_of_range(topic, before, found.bounds())
            found.remove_before(before)
            return found.bounds()

    def remove_expired(self, border: Border | None = None) -> int:
        now_ms = self._clock.now().timestamp() * 1000
        with self._lock:
            self._check_open()
            expired = [(name, self._first_kept(topic, now_ms)) for name, topic in self._log.topics.items()]
            heads = {name: topic.earliest for name, topic in self._log.topics.items()}
        # Without the lock, which can't be taken twice: the border may read from this journal.
        if border is not None:
            expired = [(name, border(name, first) if first > heads[name] else first) for name, first in expired]
        with self._lock:
            # The log may have been truncated since: `remove_before` ignores what is gone already.
            return sum(self._find(name).remove_before(first) for name, first in expired)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for reader in self._readers:
                # Woken, not closed: each reader raises in the thread that reads, where its owner expects it.
                reader.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _first_kept(self, topic: _Topic, now_ms: float) -> Offset:
        kept_seconds, kept_bytes = topic.settings.retention_seconds, topic.settings.retention_bytes
        end, first = topic.bounds().next_offset, Offset(topic.earliest)
        if kept_seconds is not None:
            oldest_ms = now_ms - kept_seconds * 1000
            # A record from the future was stamped by a wrong clock: it is as old as the records that follow it.
            for record in topic.records:
                if oldest_ms <= record.appended_ms <= now_ms:
                    break
                if record.appended_ms < oldest_ms:
                    first = Offset(record.offset + 1)
        if kept_bytes is not None:
            newest_first = ((record.offset, len(record.value)) for record in reversed(topic.records))
            first = max(first, first_within(newest_first, kept_bytes, end))
        return first

    def _find(self, topic: TopicName) -> _Topic:
        self._check_open()
        found = self._log.topics.get(topic)
        if found is None:
            raise topic_missing(topic, self.description)
        return found

    def _check_open(self) -> None:
        if self._is_closed:
            raise journal_closed(self.description)

    def _forget(self, topic: _Topic, reader: MemoryReader) -> None:
        with self._lock:
            topic.readers.discard(reader)

    def _take(self, topic: _Topic, position: Offset, limits: ReadLimits) -> RecordBatch:
        """Records from `position` on, within the limits; for readers."""
        with self._lock:
            self._check_open()
            if topic.is_deleted:
                raise topic_replaced(topic.name, topic.topic_id)
            bounds = topic.bounds()
            if not bounds.earliest_offset <= position <= bounds.next_offset:
                raise out_of_range(topic.name, position, bounds)
            begin = position - topic.earliest
            # Records and end under one lock: nothing is appended between them, so `is_at_end` is true of this batch.
            records = _within(topic.records[begin : begin + limits.max_records], limits.max_bytes)
        after = Offset(position + len(records))
        return RecordBatch(records, after, after == bounds.next_offset)


class MemoryReader:
    """The reader port over a memory topic."""

    def __init__(self, journal: MemoryJournal, topic: _Topic, start: Offset) -> None:
        """Use `MemoryJournal.reader`."""
        self._journal = journal
        self._topic = topic
        self.next_offset = start
        self._appended = threading.Event()
        self._is_interrupted = threading.Event()
        self._is_closed = False

    def read(self, limits: ReadLimits, wait_seconds: float) -> RecordBatch:
        clock = self._journal._clock  # noqa: SLF001 - one adapter in two classes, here and below
        ends = clock.monotonic() + wait_seconds
        while True:
            # Cleared before the records are taken: an append after that sets the event again, so no wake-up is lost.
            self._appended.clear()
            if self._is_closed:
                raise journal_closed(f"the reader of {self._topic.name}")
            batch = self._journal._take(self._topic, self.next_offset, limits)  # noqa: SLF001
            left_seconds = ends - clock.monotonic()
            if batch.records or left_seconds <= 0 or self._is_interrupted.is_set():
                break
            clock.wait(self._appended, left_seconds)
        self._is_interrupted.clear()
        self.next_offset = batch.next_offset
        return batch

    def interrupt(self) -> None:
        # The flag before the wake-up: `read` clears the event first, and then reads the flag.
        self._is_interrupted.set()
        self._appended.set()

    def close(self) -> None:
        self._is_closed = True
        self._journal._forget(self._topic, self)  # noqa: SLF001
        # last: a read that this wakes finds the flag
        self._appended.set()

    def wake(self) -> None:
        """Wake up and read: a record was appended, or the journal is closed."""
        self._appended.set()


def _within(records: list[Record], max_bytes: int) -> list[Record]:
    """As many of the first records as fit, but at least one."""
    size_bytes = 0
    for index, record in enumerate(records):
        size_bytes += len(record.value)
        # The first one in any case: a reader would never get past a record above its limit.
        if size_bytes > max_bytes and index:
            return records[:index]
    return records
