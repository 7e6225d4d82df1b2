"""Pages of a queue, by offset: from the view where it has the details, else from the log itself.

A caller reads its own stretch of the log with a reader of its own and never waits. What it read stays in the view
for the next one. Where the view has the offsets, a page jumps over other publishers' packages; where it does not, it
walks through them up to a limit, and returns where to go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from mailboat.errors import JournalUnavailableError, PositionOutOfRangeError
from mailboat.journal.port import Journal, JournalReader, ReadLimits
from mailboat.model.identifiers import AgentName, Offset
from mailboat.queues.columns import block_end
from mailboat.queues.entries import QueueEntry, decode_entries
from mailboat.queues.log_view import LogView, Stretch

MAX_PAGE_ENTRIES: Final = 1000

_READ_WAIT_SECONDS: Final = 5.0
"""For what is known to be there; logs with a network between may need a moment."""


class Page(NamedTuple):
    """A piece of a queue.

    Attributes:
        entries: In order; at most as many as asked for.
        next_offset: Where the next page begins.
        is_last: There was nothing after these entries. Without it, even an empty page has a next one.
    """

    entries: list[QueueEntry]
    next_offset: Offset
    is_last: bool


@dataclass(frozen=True, slots=True)
class PageLimits:
    """What one page may cost.

    Attributes:
        max_walked_records: How many records are read, at most, before the page is given as it is.
        read: The size of one read from the log.
    """

    max_walked_records: int = 5000
    read: ReadLimits = field(default_factory=ReadLimits)


class PageReader:
    """Reads pages of the queues over one view. Safe to use from several threads."""

    def __init__(self, view: LogView, journal: Journal, limits: PageLimits | None = None) -> None:
        """Read what the view does not have from `journal`."""
        self._view = view
        self._journal = journal
        self._limits = limits or PageLimits()

    def page(self, publisher: AgentName, from_offset: int, max_entries: int) -> Page:
        """The first entries of a publisher at an offset or after it.

        Where retention was faster, the page begins with what is left.

        Raises:
            JournalUnavailableError: Try again.
        """
        wanted = min(max_entries, MAX_PAGE_ENTRIES)
        end = self._view.known_to  # as far as sizes count
        entries: list[QueueEntry] = []
        with _Walk(self._view, self._journal, self._limits) as walk:
            position = self._next_candidate(publisher, from_offset)
            # A limit of records: a publisher with few packages in a long log would have one page read all of it.
            while position < end and len(entries) < wanted and walk.walked_records < self._limits.max_walked_records:
                left = wanted - len(entries)
                stretch = self._view.find_details(publisher, position, left) or walk.read(position)
                entries += [entry for entry in stretch.entries if entry.publisher == publisher and entry.offset < end]
                if stretch.covers_to <= position:  # the log became shorter
                    return Page(entries, Offset(position), is_last=True)
                position = self._next_candidate(publisher, stretch.covers_to)
        # A stretch that was read from the log is not cut: the next page begins with what is too much.
        if len(entries) > wanted:
            return Page(entries[:wanted], Offset(entries[wanted].offset), is_last=False)
        return Page(entries, Offset(position), is_last=position >= end)

    def entry(self, publisher: AgentName, offset: Offset) -> QueueEntry | None:
        """The entry at an offset; None when there is no such entry of that publisher (any more)."""
        if not self._view.bounds.earliest_offset <= offset < self._view.known_to:
            return None
        found = self._view.find_details(publisher, offset, 1)
        if found is None:
            with _Walk(self._view, self._journal, self._limits) as walk:
                found = walk.read(offset, 1)
        return next((entry for entry in found.entries if entry.offset == offset and entry.publisher == publisher), None)

    def _next_candidate(self, publisher: AgentName, offset: int) -> int:
        return self._view.skip_to_next(publisher, max(offset, self._view.bounds.earliest_offset))


class _Walk:
    """One caller's way through the log: keeps its reader while the next stretch follows the one before."""

    def __init__(self, view: LogView, journal: Journal, limits: PageLimits) -> None:
        self._view = view
        self._journal = journal
        self._limits = limits
        # Taken before the first read: what was read of a log that restarted since is not kept.
        self._generation = view.generation
        self._reader: JournalReader | None = None
        self.walked_records = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.close()

    def read(self, position: int, max_records: int | None = None) -> Stretch:
        """Read from a position, at most to the end of its block; a stretch without extent means the end of the log."""
        end = Offset(block_end(position))
        records = min(max_records or self._limits.read.max_records, end - position)
        limits = ReadLimits(records, self._limits.read.max_bytes)
        try:
            batch = self._reader_at(Offset(position)).read(limits, _READ_WAIT_SECONDS)
        except PositionOutOfRangeError:
            # Retention was faster: the page goes on where the log begins now; beyond its end there is nothing.
            earliest = self._journal.bounds(self._view.topic).earliest_offset
            self._view.trim(earliest)
            return Stretch((), Offset(position), max(Offset(position), earliest))
        if not batch.records and not batch.is_at_end:
            raise JournalUnavailableError(
                "a read from the journal took too long", topic=self._view.topic, offset=position
            )
        self.walked_records += len(batch.records)
        entries = [
            entry for entry in decode_entries(batch.records, self._view.publishers).entries if entry.offset < end
        ]
        stretch = Stretch(entries, Offset(position), min(end, batch.next_offset))
        self._view.offer_details(stretch, self._generation)
        return stretch

    def _reader_at(self, position: Offset) -> JournalReader:
        if self._reader is None or self._reader.next_offset != position:
            if self._reader is not None:
                self._reader.close()
            self._reader = self._journal.reader(self._view.topic, position)
        return self._reader
