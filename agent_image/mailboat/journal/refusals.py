"""The errors of the journal port, built in one place, so that every adapter says the same thing in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from mailboat.errors import (
    JournalCorruptError,
    JournalReplacedError,
    JournalUnavailableError,
    MessageTooLargeError,
    PositionOutOfRangeError,
    TopicMissingError,
)
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds, LogIdentity, Position


def check_sizes(topic: TopicName, records: Sequence[NewRecord], max_message_bytes: int) -> None:
    """Refuse a batch with a too large value before any write. Raises: MessageTooLargeError."""
    for index, record in enumerate(records):
        if len(record.value) > max_message_bytes:
            raise MessageTooLargeError(
                f"record {index + 1} of {len(records)} for topic {topic} has {len(record.value)} bytes, "
                f"the topic takes {max_message_bytes}",
                topic=topic,
                limit=max_message_bytes,
            )


def topic_missing(topic: TopicName, journal: str) -> TopicMissingError:
    """The topic was never made, or was deleted."""
    return TopicMissingError(
        f"the journal {journal} has no topic {topic}", next_step="mailboat journal ensure", topic=topic
    )


def topic_replaced(topic: TopicName, known_id: str) -> JournalReplacedError:
    """The topic that a reader was opened on is gone; another one may have its name."""
    return JournalReplacedError(
        f"topic {topic} with id {known_id} was deleted or recreated while it was read", topic=topic
    )


def position_of_another_log(topic: TopicName, position: Position, identity: LogIdentity) -> JournalReplacedError:
    """A reader was asked to go on at a position that means nothing here."""
    return JournalReplacedError(
        f"offset {position.next_offset} is a position in {position.identity}, topic {topic} is {identity}",
        topic=topic,
        offset=position.next_offset,
    )


def out_of_range(topic: TopicName, position: Offset, bounds: Bounds) -> PositionOutOfRangeError:
    """A position below the head or beyond the end."""
    side = "below the oldest record" if position < bounds.earliest_offset else "beyond the end"
    return PositionOutOfRangeError(
        f"offset {position} of topic {topic} is {side}",
        topic=topic,
        offset=position,
        earliest=bounds.earliest_offset,
        next=bounds.next_offset,
    )


def written_anew(topic: TopicName, position: Offset, known: int, found: int) -> PositionOutOfRangeError:
    """A log that lost its tail and grew again: another record stands where the reader was."""
    return PositionOutOfRangeError(
        f"the record before offset {position} of topic {topic} is of epoch {found}, not {known} as it was",
        topic=topic,
        offset=position,
    )


def records_missing(topic: TopicName, first: Offset, resumes: Offset) -> JournalCorruptError:
    """A log whose offsets have no holes has one: the records from `first` to before `resumes` are gone."""
    which = f"record {first} is" if resumes == first + 1 else f"records {first} to {resumes - 1} are"
    return JournalCorruptError(
        f"{which} missing in topic {topic}, within its bounds", topic=topic, offset=first, resumes=resumes
    )


def journal_closed(what: str) -> JournalUnavailableError:
    """Return the error of a use after `close`."""
    return JournalUnavailableError(f"{what} is closed")
