"""Offsets of each publisher's packages in the log: one sorted column for each, about two bytes a package.

The size of a queue is the number of a publisher's offsets after a position, which binary searches give exactly, however
many others lie between. The columns cover one stretch of the log, grow at its end while packages come, and at its
beginning while the past is counted; both cost the same whatever the columns hold. Memory is bounded: beyond it the
oldest offsets are forgotten, the stretch begins later, and sizes that reach back farther are not exact.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.positions import Bounds
from mailboat.queues.entries import QueueEntry

MAX_BYTES: Final = 32 * 1024**2
"""Fifteen million packages."""

# The distance to the beginning of a chunk fits two bytes.
_CHUNK_BITS: Final = 16
_CHUNK_OFFSETS: Final = 1 << _CHUNK_BITS
_CHUNK_BYTES: Final = 100
_ROW_BYTES: Final = 2.25  # an array grows by an eighth


@dataclass(frozen=True, slots=True)
class QueueSize:
    """How many packages are in a queue.

    Attributes:
        count: The number; the most it can be while it is not exact.
        is_exact: False as long as the log before the stretch that is known has not been counted.
    """

    count: int
    is_exact: bool


class _Column:
    """Ascending offsets in chunks of 65,536 neighbours, each offset as its distance within its chunk."""

    __slots__ = ("_chunks", "_count", "_numbers")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._chunks: list[array[int]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        return int(self._count * _ROW_BYTES) + _CHUNK_BYTES * len(self._chunks)

    @property
    def last(self) -> int | None:
        return (self._numbers[-1] << _CHUNK_BITS) + self._chunks[-1][-1] if self._chunks else None

    def append(self, offset: int) -> None:
        """Add one behind all others."""
        number, distance = offset >> _CHUNK_BITS, offset & (_CHUNK_OFFSETS - 1)
        if not self._numbers or self._numbers[-1] != number:
            self._numbers.append(number)
            self._chunks.append(array("H"))
        self._chunks[-1].append(distance)
        self._count += 1

    def prepend(self, offsets: Sequence[int]) -> None:
        """Add some before all others: only the chunk where both meet is copied."""
        earlier = _Column()
        for offset in offsets:
            earlier.append(offset)
        if earlier._numbers and self._numbers and earlier._numbers[-1] == self._numbers[0]:
            self._chunks[0] = earlier._chunks.pop() + self._chunks[0]
            earlier._numbers.pop()
        self._numbers[:0] = earlier._numbers
        self._chunks[:0] = earlier._chunks
        self._count += len(offsets)

    def trim(self, before: int) -> None:
        """Remove all below an offset."""
        place = bisect_left(self._numbers, before >> _CHUNK_BITS)
        self._count -= sum(map(len, self._chunks[:place]))
        del self._numbers[:place], self._chunks[:place]
        if self._numbers and self._numbers[0] == before >> _CHUNK_BITS:
            rows = bisect_left(self._chunks[0], before & (_CHUNK_OFFSETS - 1))
            self._count -= rows
            del self._chunks[0][:rows]
            if not self._chunks[0]:
                del self._numbers[0], self._chunks[0]

    def count_from(self, offset: int) -> int:
        """How many there are at an offset and after it."""
        place, row = self._place_of(offset)
        return sum(map(len, self._chunks[place:])) - row

    def nth_from(self, offset: int, number: int) -> int | None:
        """The `number`-th, from 0, at an offset or after it; None where there are not so many."""
        place, row = self._place_of(offset)
        row += number
        for index in range(place, len(self._chunks)):
            if row < len(self._chunks[index]):
                return (self._numbers[index] << _CHUNK_BITS) + self._chunks[index][row]
            row -= len(self._chunks[index])
        return None

    def _place_of(self, offset: int) -> tuple[int, int]:
        """The chunk, and the row in it, of the first at an offset or after it."""
        place = bisect_left(self._numbers, offset >> _CHUNK_BITS)
        if place < len(self._numbers) and self._numbers[place] == offset >> _CHUNK_BITS:
            return place, bisect_left(self._chunks[place], offset & (_CHUNK_OFFSETS - 1))
        return place, 0


class OffsetColumns:
    """The offsets of some publishers' packages between `known_from` and `known_to`. Not safe for several threads."""

    def __init__(self, publishers: Collection[AgentName], known: Offset, max_bytes: int = MAX_BYTES) -> None:
        """Know nothing but that the stretch begins and ends at `known`."""
        self._columns: Mapping[AgentName, _Column] = {publisher: _Column() for publisher in publishers}
        self._pieces = _Column()
        self._max_bytes = max_bytes
        self.is_full = False
        self.known_from = known
        self.known_to = known

    def extend(self, entries: Iterable[QueueEntry], known_to: Offset, pieces: Iterable[Offset] = ()) -> None:
        """Append what follows at the end, up to `known_to`."""
        for offset in pieces:
            self._pieces.append(offset)
        for entry in entries:
            self._columns[entry.publisher].append(entry.offset)
        self.known_to = known_to
        self._forget_beyond_budget()

    def extend_back(self, entries: Iterable[QueueEntry], known_from: Offset, pieces: Iterable[Offset] = ()) -> None:
        """Prepend what lies before the beginning, from `known_from` on."""
        self._pieces.prepend(list(pieces))
        earlier: dict[AgentName, list[int]] = {publisher: [] for publisher in self._columns}
        for entry in entries:
            earlier[entry.publisher].append(entry.offset)
        for publisher, offsets in earlier.items():
            self._columns[publisher].prepend(offsets)
        self.known_from = known_from
        self._forget_beyond_budget()

    def trim(self, before: Offset) -> None:
        """Forget what the log no longer holds."""
        self._forget_before(before)
        self.known_to = max(self.known_to, before)
        # Hysteresis: counting the past resumes only at half of the budget, else it would fill up at once.
        self.is_full = self.is_full and self.size_bytes > self._max_bytes // 2

    def size_after(self, publisher: AgentName, last_done: int, bounds: Bounds) -> QueueSize:
        """How many packages of a publisher follow an offset."""
        first_waiting = max(last_done + 1, bounds.earliest_offset)
        unknown = max(0, self.known_from - first_waiting)
        # Each offset that is not counted may be a package of this publisher: the size is the most that it can be.
        return QueueSize(self._columns[publisher].count_from(first_waiting) + unknown, not unknown)

    def messages_from(self, offset: int, bounds: Bounds) -> int:
        """How many messages the log holds from an offset on, without the pieces of packages that are known."""
        first = max(offset, bounds.earliest_offset)
        return max(0, bounds.next_offset - first - self._pieces.count_from(first))

    def next_from(self, publisher: AgentName, offset: int) -> Offset | None:
        """The first package of a publisher at an offset or after it, in the stretch that is known; None without."""
        found = self._columns[publisher].nth_from(offset, 0)
        return None if found is None else Offset(found)

    def nth_after(self, publisher: AgentName, last_done: int, number: int) -> Offset | None:
        """The offset of the `number`-th package (from 1) after a position, in the stretch that is known."""
        found = self._columns[publisher].nth_from(last_done + 1, number - 1)
        return None if found is None else Offset(found)

    def last(self, publisher: AgentName) -> Offset | None:
        """The newest package of a publisher, in the stretch that is known."""
        found = self._columns[publisher].last
        return None if found is None else Offset(found)

    @property
    def size_bytes(self) -> int:
        """What the columns cost."""
        return self._pieces.size_bytes + sum(column.size_bytes for column in self._columns.values())

    def _forget_beyond_budget(self) -> None:
        """Forget the oldest offsets, a sixteenth of the known stretch at a time."""
        while self.size_bytes > self._max_bytes and self.known_from < self.known_to:
            self.is_full = True
            # Not one by one: at the limit each new package would trim all columns.
            step = max(1, (self.known_to - self.known_from) // 16)
            self._forget_before(Offset(self.known_from + step))

    def _forget_before(self, before: Offset) -> None:
        for column in (*self._columns.values(), self._pieces):
            column.trim(before)
        self.known_from = max(self.known_from, before)
