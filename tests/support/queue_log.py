"""A log of packages that counts what is read of it, and queues as views over it: for tests of queues."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import JournalReader, NewRecord, ReadLimits, RecordBatch, Start
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import Action, PackageMessage, PingMessage
from mailboat.model.paths import parse_path
from mailboat.queues.log_follower import count_past
from mailboat.queues.log_view import LogView
from mailboat.queues.queue_names import QueueName
from mailboat.queues.queue_pages import PageReader
from mailboat.queues.queue_state import QueuePosition
from mailboat.queues.subscriber_queue import SubscriberQueue
from mailboat.testing.clocks import ManualClock
from mailboat.wire.messages import encode_message

TOPIC = TopicName("package")
A, B = AgentName("a"), AgentName("b")
SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")
QUEUE = QueueName(SLING_ID, AgentName("edge"))


def package_record(
    publisher: AgentName | None, action: Action = Action.ADD, paths: Sequence[str] = ("/a",)
) -> NewRecord:
    """A package of seven bytes."""
    message = PackageMessage(
        SLING_ID,
        PackageId(f"dstrpck-1-{uuid.uuid4()}"),
        action,
        "tree",
        publisher,
        7,
        b"payload",
        paths=tuple(parse_path(path) for path in paths),
        user_id="ann",
    )
    headers, value = encode_message(message)
    return NewRecord(value, headers)


def ping_record() -> NewRecord:
    """A caller that only wakes readers."""
    headers, value = encode_message(PingMessage())
    return NewRecord(value, headers)


GARBAGE = NewRecord(b"\xff\xff", (("type", b"2"), ("version", b"1")))
FOREIGN = NewRecord(b"?", (("type", b"99"), ("version", b"1")))


class CountingJournal(MemoryJournal):
    """A journal that counts the records that are read from it."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.ensure_topic(TOPIC, TopicSettings(retention_seconds=None))
        self.records_read = 0
        self.readers_open = 0

    def reader(self, topic: TopicName, start: Start) -> CountingReader:  # type: ignore[override]  # a reader by its shape
        return CountingReader(self, super().reader(topic, start))


class CountingReader:
    """A reader of the journal that counts."""

    def __init__(self, journal: CountingJournal, reader: JournalReader) -> None:
        self.journal = journal
        self.reader = reader
        journal.readers_open += 1

    @property
    def next_offset(self) -> Offset:
        return self.reader.next_offset

    def read(self, limits: ReadLimits, wait_seconds: float) -> RecordBatch:
        batch = self.reader.read(limits, wait_seconds)
        self.journal.records_read += len(batch.records)
        return batch

    def interrupt(self) -> None:
        self.reader.interrupt()

    def close(self) -> None:
        self.journal.readers_open -= 1
        self.reader.close()


def view_of(journal: MemoryJournal, budget_bytes: int = 10**7) -> LogView:
    """The log as it is now, with its past uncounted."""
    return LogView(TOPIC, {A, B}, journal.bounds(TOPIC), budget_bytes)


def counted_view_of(journal: MemoryJournal) -> LogView:
    """The log as it is now, counted to its beginning."""
    view = view_of(journal)
    while count_past(view, journal):
        pass
    return view


def queue_of(journal: MemoryJournal, view: LogView, done: int = -1, **standing: Any) -> SubscriberQueue:
    """The queue of a subscriber that has done so much of what A published."""
    values = QueuePosition(QUEUE, A, done, **standing)
    return SubscriberQueue(values, view, PageReader(view, journal))


def offsets_of(queue: SubscriberQueue, at_once: int = 100) -> list[int]:
    """All of a queue, page by page. Raises: ValueError: A page is too long, or leads nowhere."""
    found: list[int] = []
    position = 0
    while True:
        page = queue.page(position, at_once)
        if len(page.items) > at_once or not (page.is_last or page.next_offset > position):
            raise ValueError(f"{len(page.items)} items from {position} on, and then {page.next_offset}")
        found += [item.entry.offset for item in page.items]
        if page.is_last:
            return found
        position = page.next_offset
