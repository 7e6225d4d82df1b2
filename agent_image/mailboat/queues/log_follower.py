"""Keeps a log view current: follows the end of the topic, and counts its past in the background.

Both read the journal in bounded steps, each with a reader of its own, and touch the view only when a step is done; so
reads of a queue never block on them. Counting the past only makes sizes exact. A view is a cache: when the
log was replaced or lost its end, or a batch could not be added, it starts over, which its counts show.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from mailboat.errors import JournalReplacedError, PositionOutOfRangeError
from mailboat.journal.port import Journal, JournalReader, ReadLimits, records_of
from mailboat.model.identifiers import Offset
from mailboat.queues.entries import decode_entries
from mailboat.queues.log_view import LogView

STEP_LIMITS: Final = ReadLimits(max_records=500, max_bytes=4 * 1024 * 1024)


class LogFollower:
    """Brings a view what is appended. Belongs to one thread, except for `interrupt`."""

    def __init__(self, view: LogView, journal: Journal, limits: ReadLimits = STEP_LIMITS) -> None:
        """Follow from where the view ends."""
        self._view = view
        self._journal = journal
        self._limits = limits
        self._reader: JournalReader = journal.reader(view.topic, view.known_to)

    def follow(self, wait_seconds: float) -> int:
        """Read once, waiting at most so long for something new; how many records came.

        Raises:
            JournalUnavailableError: Try again; nothing was lost.
        """
        if self._reader.next_offset > self._view.known_to:  # the last batch was read, but not applied
            self._restart()
            return 0
        try:
            batch = self._reader.read(self._limits, wait_seconds)
        except (PositionOutOfRangeError, JournalReplacedError):
            self._restart()
            return 0
        self._view.extend(decode_entries(batch.records, self._view.publishers), batch.next_offset)
        self._view.trim(self._journal.bounds(self._view.topic).earliest_offset)
        return len(batch.records)

    def interrupt(self) -> None:
        """End the current or the next `follow`, from any thread."""
        self._reader.interrupt()

    def close(self) -> None:
        """Release the reader."""
        self._reader.close()

    def _restart(self) -> None:
        bounds = self._journal.bounds(self._view.topic)
        reader = self._journal.reader(self._view.topic, bounds.next_offset)  # until there is one, the old one is asked
        self._reader.close()
        self._view.restart(bounds)
        self._reader = reader


def count_past(view: LogView, journal: Journal, step_offsets: int = 2000) -> bool:
    """Count one step of the past, just before the stretch that is known; whether there is more.

    Several threads may do it at once, though it is of no use: only the first to finish a step counts.

    Raises:
        JournalUnavailableError: Try again.
    """
    end = view.known_from
    begin = Offset(max(view.bounds.earliest_offset, end - step_offsets))
    if begin >= end or view.is_past_counted:
        return False
    # Read before the log: after a restart meanwhile the step does not count.
    generation = view.generation
    try:
        with closing(records_of(journal, view.topic, begin, end)) as records:
            decoded = decode_entries(records, view.publishers)
    except PositionOutOfRangeError:  # retention was faster
        view.trim(journal.bounds(view.topic).earliest_offset)
        return not view.is_past_counted
    view.extend_back(decoded, begin, end, generation)
    return not view.is_past_counted
