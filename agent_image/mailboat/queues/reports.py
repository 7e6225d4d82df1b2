"""What subscribers reported about packages that they did not import: a fold over the status topic.

A subscriber sends REMOVED or REMOVED_FAILED for each package that it passes without importing it, in the order of the
log, and IMPORTED when it is editable or when a package was redriven. Kept are the packages that were not imported,
as ranges of offsets. Only neighbours with the same reason share a range: the packages between two others may have been
imported without a status, while the subscriber was not editable. The newest status of a package counts.

Anyone may write to that topic, so ranges and subscribers are bounded. What is forgotten is never taken for imported:
`are_complete` says from which package on all reports of a subscriber are here.
"""

from __future__ import annotations

import enum
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName
from mailboat.model.messages import Message, PackageStatus, StatusMessage
from mailboat.queues.queue_names import QueueName

MAX_RANGES: Final = 250_000
"""About 4 MB: a range takes 17 bytes."""

MAX_QUEUES: Final = 10_000


class ReportedReason(enum.IntEnum):
    """Why a package was not imported, as its subscriber reported."""

    DROPPED = 0
    """A clear command dropped it."""

    SKIPPED = 1
    """The golden subscriber did not import it."""

    GIVEN_UP = 2
    """It failed until its retries were used up."""


class QueueReports(NamedTuple):
    """What is known of one subscriber's reports about one publisher's packages.

    Attributes:
        report: Why it did not import the package; None where it reported no such thing.
        golden: The golden subscriber that it last named.
        first: The lowest offset that it sent a status about; -1 when none.
        last: The highest one; -1 when none.
        are_complete: Whether no report about the package was forgotten.
    """

    report: ReportedReason | None = None
    golden: AgentName | None = None
    first: int = -1
    last: int = -1
    are_complete: bool = True


@dataclass(slots=True)
class _Queue:
    """Ranges of one queue, ascending: `firsts[n]` to `lasts[n]` for the reason `reports[n]`."""

    complete_from: int
    first: int
    last: int = -1
    golden: AgentName | None = None
    # Arrays: 8 bytes for each bound instead of the 40 of an int in a list.
    firsts: array[int] = field(default_factory=lambda: array("q"))
    lasts: array[int] = field(default_factory=lambda: array("q"))
    reports: bytearray = field(default_factory=bytearray)

    def hear(self, status: StatusMessage) -> None:
        """Note what the subscriber says of a package, in place of what it said before."""
        offset = status.offset
        # Its first status since queues were forgotten, this one perhaps among them: earlier reports may be missing.
        if self.complete_from < 0:
            self.complete_from = offset
        self.first = offset if self.first < 0 else min(self.first, offset)
        self.last = max(self.last, offset)
        self.golden = status.staged_behind or self.golden
        report = _report_of(status)
        place = self.place_of(offset)
        if place is not None:
            if self.reports[place] == report:
                return
            self.take_out(offset)
        if report is not None:
            self.put_in(offset, report)

    def place_of(self, offset: int) -> int | None:
        """The range that holds an offset."""
        place = bisect_right(self.firsts, offset) - 1
        return place if place >= 0 and offset <= self.lasts[place] else None

    def take_out(self, offset: int) -> None:
        """The package is in no range any more."""
        place = self.place_of(offset)
        if place is None:
            return
        first, last, report = self.firsts[place], self.lasts[place], self.reports[place]
        self._delete(place, place + 1)
        if last > offset:
            self._insert(place, offset + 1, last, report)
        if first < offset:
            self._insert(place, first, offset - 1, report)

    def put_in(self, offset: int, report: ReportedReason) -> None:
        """Add a package that is in no range yet."""
        place = bisect_left(self.firsts, offset)
        # Only with the range before it: statuses come in the order of the log.
        if place and self.reports[place - 1] == report and self.lasts[place - 1] == offset - 1:
            self.lasts[place - 1] = offset
        else:
            self._insert(place, offset, offset, report)

    def forget(self, places: int) -> None:
        """Forget the first ranges; what they held is not known any more."""
        if places:
            self.complete_from = max(self.complete_from, self.lasts[places - 1] + 1)
            self._delete(0, places)

    def trim(self, before: int) -> None:
        """Packages below an offset are left in no log; asked about all the same, they are unknown, never imported."""
        self.complete_from = max(self.complete_from, before)
        self._delete(0, bisect_left(self.lasts, before))

    def _insert(self, place: int, first: int, last: int, report: int) -> None:
        self.firsts.insert(place, first)
        self.lasts.insert(place, last)
        self.reports.insert(place, report)

    def _delete(self, begin: int, end: int) -> None:
        del self.firsts[begin:end], self.lasts[begin:end], self.reports[begin:end]


_Key = tuple[AgentName, QueueName]


class PackageReports:
    """The fold. Safe to use from several threads."""

    def __init__(
        self,
        is_wanted: Callable[[AgentName], bool] = lambda _: True,
        max_ranges: int = MAX_RANGES,
        max_queues: int = MAX_QUEUES,
    ) -> None:
        """Keep reports about packages of wanted publishers; begin without any."""
        self._is_wanted = is_wanted
        self._max_ranges = max_ranges
        self._max_queues = max_queues
        self._lock = threading.Lock()
        self._queues: OrderedDict[_Key, _Queue] = OrderedDict()
        self._range_count = 0
        self._has_forgotten_queues = False

    @property
    def range_count(self) -> int:
        """How many ranges are kept of all subscribers."""
        return self._range_count

    def apply(self, status: Message) -> None:
        """Apply a status; other messages of the topic are ignored."""
        if not isinstance(status, StatusMessage) or not self._is_wanted(status.pub_agent_name):
            return
        with self._lock:
            queue = self._queue_of((status.pub_agent_name, QueueName(status.sub_sling_id, status.sub_agent_name)))
            before = len(queue.firsts)
            queue.hear(status)
            self._range_count += len(queue.firsts) - before
            if self._range_count > self._max_ranges:
                self._forget_half()

    def clear(self) -> None:
        """Forget all: the status topic is read again from its beginning."""
        with self._lock:
            self._queues.clear()
            self._range_count = 0
            self._has_forgotten_queues = False

    def trim(self, before: int) -> None:
        """Forget what concerns packages below an offset: they are no longer of interest."""
        with self._lock:
            for queue in self._queues.values():
                count = len(queue.firsts)
                queue.trim(before)
                self._range_count += len(queue.firsts) - count

    def find(self, publisher: AgentName, queue_name: QueueName, offset: int) -> QueueReports:
        """What a subscriber reported about a package."""
        with self._lock:
            queue = self._queues.get((publisher, queue_name))
            if queue is None:
                return QueueReports(are_complete=not self._has_forgotten_queues)
            place = queue.place_of(offset)
            report = None if place is None else ReportedReason(queue.reports[place])
            return QueueReports(report, queue.golden, queue.first, queue.last, offset >= queue.complete_from)

    def edges(self, publisher: AgentName, queue_name: QueueName, first: int, last: int) -> list[int]:
        """Offsets at which `find` may change its answer, for packages between two offsets, both included."""
        with self._lock:
            queue = self._queues.get((publisher, queue_name))
            if queue is None:
                return []
            begin, end = bisect_left(queue.lasts, first), bisect_right(queue.firsts, last)
            ranges = [*queue.firsts[begin:end], *(last + 1 for last in queue.lasts[begin:end])]
            return [queue.complete_from, queue.first, queue.last + 1, *ranges]

    def last(self, publisher: AgentName, queue_name: QueueName) -> int:
        """The highest offset that the subscriber has sent a status about; -1 when none."""
        with self._lock:
            queue = self._queues.get((publisher, queue_name))
            return -1 if queue is None else queue.last

    def without(self, publisher: AgentName, offset: int) -> Iterator[QueueName]:
        """The subscribers that reported that they did not import the package."""
        with self._lock:
            found = [
                name
                for (one, name), queue in self._queues.items()
                if one == publisher and queue.place_of(offset) is not None
            ]
        return iter(found)

    def _queue_of(self, key: _Key) -> _Queue:
        queue = self._queues.get(key)
        if queue is None:
            # -1 until the first status: what was said before may be forgotten
            queue = self._queues[key] = _Queue(-1 if self._has_forgotten_queues else 0, -1)
            while len(self._queues) > self._max_queues:
                _, gone = self._queues.popitem(last=False)
                self._range_count -= len(gone.firsts)
                self._has_forgotten_queues = True
        # The first queue is the one without a status for longest: at the limit it is forgotten.
        self._queues.move_to_end(key)
        return queue

    def _forget_half(self) -> None:
        """Of the subscriber with most: many reports of one subscriber must not displace those of others."""
        queue = max(self._queues.values(), key=lambda one: len(one.firsts))
        places = (len(queue.firsts) + 1) // 2
        queue.forget(places)
        self._range_count -= places


def _report_of(status: StatusMessage) -> ReportedReason | None:
    match status.status:
        case PackageStatus.IMPORTED:
            return None
        case PackageStatus.REMOVED_FAILED:
            return ReportedReason.GIVEN_UP
        case PackageStatus.REMOVED:
            return ReportedReason.DROPPED if status.staged_behind is None else ReportedReason.SKIPPED
