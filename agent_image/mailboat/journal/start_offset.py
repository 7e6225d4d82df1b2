"""Where a reader begins: what an adapter's `reader` makes of a `Start`."""

from __future__ import annotations

from collections.abc import Callable

from mailboat.journal.port import Edge, Start
from mailboat.journal.refusals import position_of_another_log
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds, LogIdentity, Position


def starting_offset(topic: TopicName, start: Start, bounds: Callable[[], Bounds], identity: LogIdentity) -> Offset:
    """The offset to read first.

    Args:
        topic: For messages.
        start: What the reader was asked for.
        bounds: Asks what the topic holds; called only for an edge.
        identity: The identity of the current log.

    Raises:
        JournalReplacedError: `start` is a position in another log.
    """
    if isinstance(start, Position):
        if start.identity != identity:
            raise position_of_another_log(topic, start, identity)
        return start.next_offset
    if isinstance(start, Edge):
        return bounds().earliest_offset if start is Edge.EARLIEST else bounds().next_offset
    return start
