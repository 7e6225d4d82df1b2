"""Records that were read and are not done yet, and in which portions they are tried.

Normally all are tried at once. After a failure the portions are smaller: what came before the failing record, then that
record alone. `ImportRun` owns one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from mailboat.journal.port import Record, RecordBatch
from mailboat.model.identifiers import Offset


class Backlog:
    """For one thread."""

    def __init__(self) -> None:
        """Nothing was read."""
        self._records: deque[Record] = deque()
        self._sizes: deque[int] = deque()
        self._end = Offset(0)

    def restart(self, next_offset: Offset) -> None:
        """Reading begins anew at an offset; the portions stay as they were."""
        self._records.clear()
        self._end = next_offset

    def add(self, batch: RecordBatch) -> None:
        """These were read."""
        self._records.extend(batch.records)
        self._end = batch.next_offset

    def portion(self) -> Sequence[Record]:
        """What is to be tried next."""
        size = min(self._sizes[0], len(self._records)) if self._sizes else len(self._records)
        return list(islice(self._records, size))

    def done(self, count: int) -> None:
        """So many of the first are done."""
        for _ in range(count):
            self._records.popleft()
        if self._sizes:
            rest = self._sizes.popleft() - count
            if rest > 0:
                self._sizes.appendleft(rest)

    def end_after(self, count: int) -> Offset:
        """Where reading goes on when the first `count` are done."""
        return self._end if count == len(self._records) else Offset(self._records[count - 1].offset + 1)

    def narrow(self, before: int) -> None:
        """Try the first `before` in one portion, and the next record alone."""
        self._sizes = deque([before, 1] if before else [1])

    def try_each(self, count: int) -> None:
        """Try the first `count` one by one."""
        self._sizes = deque([1] * count)

    def try_first_alone(self) -> None:
        """Try the first record alone, unless the portions say so already."""
        self._sizes = self._sizes or deque([1])

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)
