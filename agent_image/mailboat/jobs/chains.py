"""The jobs of a queue that wait for one another: a chain for each key, about 12 bytes a job.

A chain is a ring of rows of the table: each row is linked with the next one, and the last with the first. An index
with open addressing holds the last row of each key. A dictionary of lists takes 900 bytes a key.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, count
from typing import Final

from mailboat.jobs.table import JobTable, RowHolder
from mailboat.model.jobs import JobId

_EMPTY: Final = -1
_REMOVED: Final = -2
_SMALLEST: Final = 8
_TOPIC_FACTOR: Final = 1_000_003
_ROWS_PER_SORTED_CHAIN: Final = 64
"""With more rows for each chain, sorting the chains takes less than a pass over the rows."""


class Chains(RowHolder):
    """The chains of one queue. A job is in at most one of them, once; its key is in the table."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._by_key = True
        self._by_topic = False
        self._lasts = array("i", [_EMPTY]) * _SMALLEST
        self._used = 0
        self._filled = 0
        """Places that are used, or were."""
        table.add_holder(self)

    def begin(self, *, by_key: bool, by_topic: bool) -> None:
        """End all chains, and take what the next ones are for: a key or all jobs, and one topic or all."""
        table = self._table
        for last in self._lasts if self._used else ():
            row = last
            while row >= 0:
                following = table.link(row)
                table.set_link(row, -1)
                row = following
        self._by_key, self._by_topic = by_key, by_topic
        self._lasts = array("i", [_EMPTY]) * _SMALLEST
        self._used = self._filled = 0

    def __len__(self) -> int:
        return self._used

    def size_bytes(self) -> int:
        """Estimated bytes of the index in memory."""
        return 4 * len(self._lasts) if self._used else 0

    def has(self, job: JobId) -> bool:
        """Whether a job that is there has a place in a chain."""
        return self._table.link(self._table.row(job)) >= 0

    def append(self, job: JobId) -> None:
        """Add a job, which is in no chain, behind the others of its key."""
        self.append_row(self._table.row(job))

    def fill(self, rows: Sequence[int]) -> bytearray:
        """Add the jobs of many rows where no chain is, each row once: a fifth of the time of as many appends.

        Returns: For each row of the table whether a chain begins there.
        """
        self._rebuild(2 * len(rows))
        table, lasts, begun = self._table, self._lasts, 0
        is_first = bytearray(table.row_count())
        # As `_hash`, without operations on numbers of 63 bits.
        by_key, by_topic, mask = self._by_key, self._by_topic, 2 * len(lasts) - 1
        keys = table.low_keys() if by_key else array("I")
        for row in rows:
            place = keys[row] & mask if by_key else 0
            if by_topic:
                place += 2 * table.topic_at(row) * _TOPIC_FACTOR
            place = (place & mask) >> 1
            if lasts[place] == _EMPTY:
                table.set_link(row, row)
                lasts[place] = row
                is_first[row] = 1
                begun += 1
            elif table.link(row) < 0 and self.append_row(row):
                is_first[row] = 1
        self._used += begun
        self._filled += begun
        if len(self._lasts) > 4 * self._used:
            self._rebuild(2 * self._used)
        return is_first

    def append_row(self, row: int) -> bool:
        """Add the job of a row, as `append` does; whether it is the first of its key."""
        table = self._table
        place = self._place(row)
        last = self._lasts[place]
        if last >= 0:
            table.set_link(row, table.link(last))
            table.set_link(last, row)
            self._lasts[place] = row
            return False
        table.set_link(row, row)
        self._lasts[place] = row
        self._used += 1
        if last == _EMPTY:
            self._filled += 1
            if self._filled * 3 > len(self._lasts) * 2:
                self._rebuild(2 * self._used)
        return True

    def first(self, job: JobId) -> JobId | None:
        """The first job of the key of this one; None without a chain."""
        last = self._lasts[self._place(self._table.row(job))]
        return self._table.job_at(self._table.link(last)) if last >= 0 else None

    def of(self, job: JobId) -> Iterator[JobId]:
        """The jobs of the key of this one, in their order."""
        last = self._lasts[self._place(self._table.row(job))]
        row = self._table.link(last) if last >= 0 else -1
        while row >= 0:
            yield self._table.job_at(row)
            row = self._table.link(row) if row != last else -1

    def advance(self, job: JobId, *, active_stay: bool) -> JobId | None:
        """Remove the first jobs of the key of this one that do not wait; the first one that does."""
        table, place = self._table, self._place(self._table.row(job))
        last = self._lasts[place]
        if last < 0:
            return None
        first = table.link(last)
        while not table.is_waiting(first, or_active=active_stay):
            following = table.link(first)
            table.set_link(first, -1)
            if first == last:
                self._lasts[place] = _REMOVED
                self._used -= 1
                return None
            table.set_link(last, following)
            first = following
        return table.job_at(first)

    def firsts(self) -> Iterator[JobId]:
        """The first jobs of all chains, in the order of their ids."""
        # Not in the order of the index, which is another one in each process.
        for row in self._first_rows():
            yield self._table.job_at(row)

    def _first_rows(self) -> Iterable[int]:
        table = self._table
        if self._used * _ROWS_PER_SORTED_CHAIN < table.row_count():
            # The rows of all queues may be many: a member of a shared pool asks for its few chains at each turn.
            return sorted([table.link(last) for last in self._lasts if last >= 0])
        is_first = bytearray(table.row_count())
        for last in self._lasts:
            if last >= 0:
                is_first[table.link(last)] = 1
        return compress(count(), is_first)

    def waiting(self, *, active_stay: bool) -> array[int]:
        """All jobs that wait, chain after chain."""
        table, found = self._table, array("q")
        for job in self.firsts():
            first = row = table.row(job)
            while True:
                if table.is_waiting(row, or_active=active_stay):
                    found.append(table.job_at(row))
                row = table.link(row)
                if row == first:
                    break
        return found

    # Rows

    def holds_rows(self) -> bool:
        return self._used > 0

    def leave_forgotten(self) -> None:
        for place, last in enumerate(self._lasts):
            if last >= 0:
                self._leave_forgotten_of(place, last)

    def _leave_forgotten_of(self, place: int, last: int) -> None:
        table = self._table
        kept = array("i")
        row = table.link(last)
        while row >= 0:
            following = table.link(row) if row != last else -1
            table.set_link(row, -1)
            if not table.is_forgotten(row):
                kept.append(row)
            row = following
        if kept:
            before = self._lasts[place] = kept[-1]
            for row in kept:
                table.set_link(before, row)
                before = row
        else:
            self._lasts[place] = _REMOVED
            self._used -= 1

    def move_rows(self, moved: Sequence[int]) -> None:
        for place, last in enumerate(self._lasts):
            if last >= 0:
                self._lasts[place] = moved[last]

    def move_topics(self) -> None:
        if self._by_topic:
            self._rebuild(2 * self._used)

    # The index

    def _place(self, row: int) -> int:
        """Where the last row of the key of this one is in the index, or belongs."""
        lasts, most = self._lasts, len(self._lasts) - 1
        rest = self._hash(row)
        place, removed = rest & most, -1
        while True:
            last = lasts[place]
            if last == _EMPTY:
                return removed if removed >= 0 else place
            if last == _REMOVED:
                if removed < 0:
                    removed = place
            elif self._is_same(last, row):
                return place
            # As dictionaries do: keys that share their lowest bits, which a caller can choose, go separate ways.
            rest >>= 5
            place = (5 * place + rest + 1) & most

    def _hash(self, row: int) -> int:
        # The lowest bit of keys is always set.
        found = self._table.key_at(row) >> 1 if self._by_key else 0
        return found + self._table.topic_at(row) * _TOPIC_FACTOR if self._by_topic else found

    def _is_same(self, row: int, other: int) -> bool:
        table = self._table
        if self._by_key and table.key_at(row) != table.key_at(other):
            return False
        return not self._by_topic or table.topic_at(row) == table.topic_at(other)

    def _rebuild(self, least: int) -> None:
        """Give the index at least so many places, without those that are no longer used."""
        size = _SMALLEST
        while size < least:
            size *= 2
        lasts, most = array("i", [_EMPTY]) * size, size - 1
        for last in self._lasts:
            if last >= 0:
                rest = self._hash(last)
                place = rest & most
                while lasts[place] != _EMPTY:
                    rest >>= 5
                    place = (5 * place + rest + 1) & most
                lasts[place] = last
        self._lasts, self._filled = lasts, self._used
