"""Where each publisher's packages lie in the log: one sorted column of offsets for each, eight bytes a package.

That is all that is needed for the size of any queue: it is the number of a publisher's offsets after a position, which
a binary search gives exactly, whatever lies between. The columns cover one stretch of the log, grow at its end while
packages come, and at its beginning while the past is counted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.positions import Bounds
from mailboat.queues.entries import Entry


@dataclass(frozen=True, slots=True)
class QueueSize:
    """How many packages are in a queue.

    Attributes:
        count: The number; the most it can be while it is not exact.
        is_exact: False as long as the log before the stretch that is known has not been counted.
    """

    count: int
    is_exact: bool


class OffsetColumns:
    """The offsets of some publishers' packages between `known_from` and `known_to`. Not safe for several threads."""

    def __init__(self, publishers: Collection[AgentName], known: Offset) -> None:
        """Know nothing but that the stretch begins and ends at `known`."""
        self._columns: Mapping[AgentName, array[int]] = {publisher: array("q") for publisher in publishers}
        self._pieces = array("q")
        self.known_from = known
        self.known_to = known

    def extend(self, entries: Iterable[Entry], known_to: Offset, pieces: Iterable[Offset] = ()) -> None:
        """Take in what follows at the end, up to `known_to`."""
        self._pieces.extend(pieces)
        for entry in entries:
            self._columns[entry.publisher].append(entry.offset)
        self.known_to = known_to

    def extend_back(self, entries: Iterable[Entry], known_from: Offset, pieces: Iterable[Offset] = ()) -> None:
        """Take in what lies before the beginning, from `known_from` on."""
        self._pieces = array("q", pieces) + self._pieces
        earlier = {publisher: array("q") for publisher in self._columns}
        for entry in entries:
            earlier[entry.publisher].append(entry.offset)
        self._columns = {publisher: earlier[publisher] + later for publisher, later in self._columns.items()}
        self.known_from = known_from

    def trim(self, before: Offset) -> None:
        """Forget what the log no longer holds."""
        for column in (*self._columns.values(), self._pieces):
            del column[: bisect_left(column, before)]
        self.known_from = max(self.known_from, before)
        self.known_to = max(self.known_to, before)

    def size_after(self, publisher: AgentName, last_done: int, bounds: Bounds) -> QueueSize:
        """How many packages of a publisher follow an offset."""
        column = self._columns[publisher]
        first_waiting = max(last_done + 1, bounds.earliest_offset)
        count = len(column) - bisect_left(column, first_waiting)
        unknown = max(0, self.known_from - first_waiting)
        return QueueSize(count + unknown, not unknown)

    def messages_from(self, offset: int, bounds: Bounds) -> int:
        """How many messages the log holds from an offset on, without the pieces of packages that are known."""
        first = max(offset, bounds.earliest_offset)
        pieces = len(self._pieces) - bisect_left(self._pieces, first)
        return max(0, bounds.next_offset - first - pieces)

    def next_from(self, publisher: AgentName, offset: int) -> Offset | None:
        """The first package of a publisher at an offset or after it, in the stretch that is known; None without."""
        column = self._columns[publisher]
        place = bisect_left(column, offset)
        return Offset(column[place]) if place < len(column) else None

    def nth_after(self, publisher: AgentName, last_done: int, number: int) -> Offset | None:
        """The offset of the `number`-th package (from 1) after a position, in the stretch that is known."""
        column = self._columns[publisher]
        place = bisect_right(column, last_done) + number - 1
        return Offset(column[place]) if place < len(column) else None

    def last(self, publisher: AgentName) -> Offset | None:
        """The newest package of a publisher, in the stretch that is known."""
        column = self._columns[publisher]
        return Offset(column[-1]) if column else None

    @property
    def size_bytes(self) -> int:
        """What the columns cost."""
        columns = (*self._columns.values(), self._pieces)
        return sum(column.buffer_info()[1] * column.itemsize for column in columns)
