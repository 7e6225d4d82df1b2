"""Where a head may be put without cutting through a package whose pieces stand on both sides.

For removal by age, by size or by hand; retention by consumption samples marks while it reads the log. Each record is
read once for this: when it is about to go. Called by the agent's upkeep and `mailboat journal truncate`.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from mailboat.clock import Clock, milliseconds_now
from mailboat.errors import PositionOutOfRangeError
from mailboat.journal.port import Journal, ReadLimits
from mailboat.model.identifiers import Offset, TopicName
from mailboat.retention.marks import LogMarks

_READ: Final = ReadLimits(max_records=500, max_bytes=8 * 1024 * 1024)


def whole_package_border(journal: Journal, topic: TopicName, before: Offset, clock: Clock) -> Offset:
    """The last place at `before` or in front of it where no package is cut through.

    Pieces that are being appended hold their place; those whose publisher died an hour ago or earlier hold nothing.

    Raises: JournalUnavailableError, TopicMissingError.
    """
    bounds = journal.bounds(topic)
    if before <= bounds.earliest_offset:
        return before
    marks = LogMarks(bounds.earliest_offset)
    try:
        _look(journal, topic, marks, (before, bounds.next_offset))
    except PositionOutOfRangeError:  # somebody else removed records meanwhile: the next time
        return bounds.earliest_offset
    marks.forget_orphans(milliseconds_now(clock))
    return max(bounds.earliest_offset, marks.border(before))


def _look(journal: Journal, topic: TopicName, marks: LogMarks, until: tuple[Offset, Offset]) -> None:
    """Read to `before`, and on until every package that began before it has ended, or the log has."""
    before, end = until
    with closing(journal.reader(topic, marks.next_offset)) as reader:
        while marks.next_offset < end and (marks.next_offset < before or marks.is_undecided(before)):
            batch = reader.read(_READ, 0.0)
            marks.see(batch.records, batch.next_offset)
            if batch.is_at_end:
                return
