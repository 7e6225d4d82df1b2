"""Where a reader stands in a log, and which log that is."""

from __future__ import annotations

from dataclasses import dataclass

from mailboat.frozen import Frozen
from mailboat.model.identifiers import Offset


class LogIdentity(Frozen):
    """Which log an offset belongs to. Stored with every position, so that a replaced log is noticed.

    Attributes:
        cluster_id: Kafka's cluster id, or the uuid of the SQLite file.
        topic_id: Kafka's topic id (KIP-516), or the uuid that the topic got when it was made.
    """

    cluster_id: str
    topic_id: str

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.topic_id}"


@dataclass(frozen=True, slots=True)
class Position:
    """A reader's position.

    Attributes:
        identity: The log that the offset belongs to.
        next_offset: The offset to read next; everything below it is done.
        leader_epoch: The epoch of the leader, or of the writer process, that wrote the last record done (KIP-320); None
            if absent.
    """

    identity: LogIdentity
    next_offset: Offset
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a topic holds at this moment.

    Attributes:
        earliest_offset: The first record still there; equal to `next_offset` in an empty topic.
        next_offset: The offset that the next record will get.
    """

    earliest_offset: Offset
    next_offset: Offset

    @property
    def count(self) -> int:
        """How many offsets lie between: the number of records where the log has no holes."""
        return self.next_offset - self.earliest_offset
