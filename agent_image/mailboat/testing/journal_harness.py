"""What the contract suite of the journal needs around its tests: a harness for each adapter."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import JournalUnavailableError, MailboatError
from mailboat.journal.port import Journal, JournalReader, NewRecord, ReadLimits, Record
from mailboat.model.identifiers import TopicName
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until

_T = TypeVar("_T")

FOREVER: Final = TopicSettings(retention_seconds=None)


@dataclass(frozen=True)
class JournalHarness:
    """What the suite needs to know of an adapter.

    Attributes:
        open: Another handle on the same log; the test closes it.
        delete_topic: Removes a topic with its records, by whatever means the log has.
        reads_ahead: Whether a reader may still give what it had fetched before it was removed from the log.
    """

    open: Callable[[], Journal]
    delete_topic: Callable[[TopicName], None]
    reads_ahead: bool = False


def new_topic_name() -> TopicName:
    """A name that no other test uses."""
    return TopicName(f"contract-{uuid.uuid4().hex}")


def values_of(records: Sequence[Record]) -> list[bytes]:
    """The values, in order."""
    return [record.value for record in records]


def read_to_end(reader: JournalReader, limits: ReadLimits | None = None) -> list[Record]:
    """All that is there from the reader's position on, read in batches."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        batch = reader.read(limits or ReadLimits(), 0.0)
        records += batch.records
        if batch.is_at_end:
            return records
    raise AssertionError(f"the reader found no end; it stands at {reader.next_offset}")


def read_count(reader: JournalReader, count: int) -> list[Record]:
    """The next records, at least `count`, waited for."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(records) < count:
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(records)} of {count} records came; the reader stands at {reader.next_offset}")
        records += reader.read(ReadLimits(), 1.0).records
    return records


def read_without_gap(reader: JournalReader) -> None:
    """Read a log without holes to its end, or until the reader refuses: a gap may not come."""
    is_at_end = False
    while not is_at_end:
        position = reader.next_offset
        records, _, is_at_end = reader.read(ReadLimits(max_records=1), PATIENCE_SECONDS)
        for record in records:
            if record.offset != position:
                raise AssertionError(f"after offset {position - 1} came {record.offset}")


def once_available(call: Callable[[], _T]) -> _T:
    """What a call gives, made again as long as it says that the journal is away: brokers take seconds to be back."""
    answers: list[_T] = []

    def is_answered() -> bool:
        with suppress(JournalUnavailableError):
            answers.append(call())
        return bool(answers)

    wait_until(is_answered, "the journal to be there again")
    return answers[0]


@contextmanager
def in_background(call: Callable[[], _T]) -> Iterator[Future[_T]]:
    """Run something in another thread; its end is waited for."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


def some_records(count: int, prefix: str = "value") -> list[NewRecord]:
    """Return distinguishable records."""
    return [NewRecord(f"{prefix}-{number}".encode()) for number in range(count)]


def outcome_of(read: Callable[[], object]) -> str:
    """Return the outcome of a read that closing ended: it may find nothing, or be refused."""
    try:
        read()
    except MailboatError:
        return "refused"
    return "nothing"
