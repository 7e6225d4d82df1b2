"""What the engine needs of a persisted log, and nothing else.

A topic is one ordered sequence of records (Kafka: one partition). Offsets grow, are never used twice, and may have
holes. Every adapter passes `mailboat.testing.journal_contract`. Journals are safe to use from several threads; a
reader belongs to one thread, except for `interrupt`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from mailboat.config.topic_settings import TopicSettings
from mailboat.frozen import Frozen
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds, LogIdentity, Position

Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    """A record as read.

    Attributes:
        offset: Its place.
        value: Its bytes; empty for a tombstone.
        headers: In the order written.
        key: For topics whose newest record per key matters (discovery); None elsewhere.
        appended_ms: When the log took it, milliseconds since 1970 UTC.
        leader_epoch: Of the leader, or the writer process, that took it (KIP-320); None where the log has none.
    """

    offset: Offset
    value: bytes
    headers: Headers = ()
    key: bytes | None = None
    appended_ms: int = 0
    leader_epoch: int | None = None


class NewRecord(NamedTuple):
    """A record to append."""

    value: bytes
    headers: Headers = ()
    key: bytes | None = None


class Edge(enum.Enum):
    """The two places of a topic that can be named without knowing an offset."""

    EARLIEST = "earliest"
    NEXT = "next"


Border = Callable[[TopicName, Offset], Offset]
"""Moves a place for a topic's head back to where nothing that belongs together is cut through."""

Start = Offset | Edge | Position
"""Where a reader begins. A position is an offset that is checked: that it is of this log and, where the log has epochs
(KIP-320), that the log did not lose its tail since and grow again with other records."""


class RecordBatch(NamedTuple):
    """What one read gave.

    Attributes:
        records: In order; empty when nothing came in time, or the reader was interrupted.
        next_offset: Where the next read goes on, also over holes.
        is_at_end: At the moment of the read there was nothing after these records.
    """

    records: Sequence[Record]
    next_offset: Offset
    is_at_end: bool


class ReadLimits(Frozen):
    """How much one read may give. A single record larger than `max_bytes` is still given, alone."""

    max_records: int = 100
    max_bytes: int = 4 * 1024 * 1024


class TopicDifference(NamedTuple):
    """A setting of a topic that is not as it should be; `found`: None where the topic has no such setting."""

    name: str
    wanted: str
    found: str | None


class JournalReader(Protocol):
    """Reads one topic from a position on, in order, every record once."""

    @property
    def next_offset(self) -> Offset:
        """The offset to read next."""

    def read(self, limits: ReadLimits, wait_seconds: float) -> RecordBatch:
        """Read available records; without any, wait up to `wait_seconds` for the first one.

        Never waits for a batch to fill: a single new record is returned at once.

        Raises:
            PositionOutOfRangeError: The position is below the head or beyond the end, or the records before it are
                not those that were read; it is not moved. A reader that fetches ahead may first give, without a gap,
                what it had fetched before it was removed.
            JournalReplacedError: The topic is not the one that the reader was opened on.
            JournalCorruptError: A record is missing that must be there; in a log whose offsets may have holes, none is.
            JournalUnavailableError: Try again.
        """

    def interrupt(self) -> None:
        """Make the current or the next `read` return at once, from any thread."""

    def close(self) -> None:
        """Release what the reader holds."""


class JournalUpkeep(Protocol):
    """Operations for maintenance of a log and for recovery after a crash. No subscriber needs them."""

    @property
    def is_automatic(self) -> bool:
        """Whether the log applies the topics' retention, so that `remove_expired` need not be called."""

    @property
    def are_appends_seen_at_once(self) -> bool:
        """Whether an unacknowledged append, if the log has it, is readable at once.

        Where it is not, such an append may become readable later: on Kafka when enough replicas have it. An
        acknowledged later append proves that it is readable by then, or never will be.
        """

    def differences(self, topic: TopicName, settings: TopicSettings) -> Sequence[TopicDifference]:
        """What `ensure_topic` would or can't change. Raises: TopicMissingError, JournalUnavailableError."""

    def delete_topic(self, topic: TopicName) -> None:
        """Remove a topic; a later one of that name is another log. Raises: TopicMissingError."""

    def size_bytes(self) -> int | None:
        """What the log takes on disk; None where it does not say."""

    def synchronisations(self) -> int | None:
        """Number of fsyncs through this object so far; None if the log does not count them."""

    def find_damage(self) -> Sequence[str]:
        """What the log itself finds wrong with its storage; empty when all is well. May take long."""


class Journal(Protocol):
    """A persisted log with topics."""

    @property
    def description(self) -> str:
        """For people: kind and place, without secrets, such as `sqlite .mailboat/journal.db`."""

    @property
    def upkeep(self) -> JournalUpkeep:
        """The maintenance operations of the log."""

    def ensure_topic(self, topic: TopicName, settings: TopicSettings) -> None:
        """Make the topic, or apply the settings to the one that is there."""

    def topics(self) -> Sequence[TopicName]:
        """All topics, by name."""

    def identity(self, topic: TopicName) -> LogIdentity:
        """Which log this is. Raises: TopicMissingError, JournalUnavailableError."""

    def bounds(self, topic: TopicName) -> Bounds:
        """What the topic holds. Raises: TopicMissingError, JournalUnavailableError."""

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        """Append in order, and return the offsets once all are durable. All or none where the log can do so.

        Raises:
            MessageTooLargeError: Before anything is written.
            AppendUncertainError: No answer came in time; a beginning of the batch may be there, or come later.
            TopicMissingError, JournalUnavailableError, StorageFullError.
        """

    def reader(self, topic: TopicName, start: Start) -> JournalReader:
        """A reader from `start` on. An offset outside the bounds is reported by the first `read`.

        Raises:
            JournalReplacedError: `start` is a position in another log.
            TopicMissingError, JournalUnavailableError.
        """

    def record_at(self, topic: TopicName, offset: Offset) -> Record | None:
        """One record by its offset, without a reader; None if absent. Cheap where readers are dear.

        Raises: TopicMissingError, JournalUnavailableError, JournalCorruptError.
        """

    def truncate(self, topic: TopicName, before: Offset) -> Bounds:
        """Remove the records below `before`, and return the new bounds.

        Below the head it does nothing. Raises: PositionOutOfRangeError when `before` is beyond the end.
        """

    def remove_expired(self, border: Border | None = None) -> int:
        """Apply the topics' retention, where the log does not do so; return the number of records removed.

        Args:
            border: Asked for each topic that something would go from; None: every record stands for itself.
        """

    def close(self) -> None:
        """Release what the journal holds; readers become unusable."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


SCAN_LIMITS: Final = ReadLimits(max_records=500, max_bytes=8 * 1024 * 1024)
"""What one read of a pass over a topic takes: few round trips, and memory that no topic exceeds."""


def records_of(
    journal: Journal, topic: TopicName, start: Start = Edge.EARLIEST, end: Offset | None = None
) -> Generator[Record]:
    """The records of a topic from `start` on: those before `end`, or all that it has by then. Waits for none.

    Close the generator where it may not be read to its end: it holds a reader. Raises: as `JournalReader.read`.
    """
    with closing(journal.reader(topic, start)) as reader:
        while end is None or reader.next_offset < end:
            # no more than that: records may be large, and of a stretch often few are wanted
            most = SCAN_LIMITS.max_records if end is None else min(SCAN_LIMITS.max_records, end - reader.next_offset)
            batch = reader.read(ReadLimits(most, SCAN_LIMITS.max_bytes), 0.0)
            for record in batch.records:
                if end is not None and record.offset >= end:
                    return
                yield record
            if batch.is_at_end:
                return
