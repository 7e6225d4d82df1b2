"""The packages that left a queue without being imported, because a person cleared it: from the statuses REMOVED.

An editable subscriber confirms every package in order. So a run of REMOVED without another status between is kept as
one range of offsets, and the clear of a million packages costs as much as that of one. The number of ranges is bounded,
the longest known go first; what is forgotten counts as imported.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import Message, PackageStatus, StatusMessage
from mailboat.queues.names import QueueName

MAX_RANGES: Final = 100_000
MAX_QUEUES: Final = 10_000
"""Names cost more than ranges, and everybody may invent some."""


class _Queue(NamedTuple):
    publisher: AgentName
    name: QueueName


@dataclass(slots=True)
class _Ranges:
    """Ranges of one queue, ascending: `firsts[n]` to `lasts[n]`; the last one grows while `is_open`."""

    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    is_open: bool = False


class RemovedPackages:
    """A fold over the status topic. Safe to use from several threads."""

    def __init__(self, max_ranges: int = MAX_RANGES) -> None:
        """Know of no removal yet."""
        self._max = max_ranges
        self._lock = threading.Lock()
        self._queues: OrderedDict[_Queue, _Ranges] = OrderedDict()
        self._count = 0

    def hear(self, status: Message) -> None:
        """Take in a status."""
        if not isinstance(status, StatusMessage):
            return
        queue = _Queue(status.pub_agent_name, QueueName(status.sub_sling_id, status.sub_agent_name))
        with self._lock:
            if status.status is PackageStatus.REMOVED:
                self._add(queue, status.offset)
            elif (known := self._queues.get(queue)) is not None and status.offset > known.lasts[-1]:
                known.is_open = False

    def clear(self) -> None:
        """Forget all: the status topic is another one."""
        with self._lock:
            self._queues.clear()
            self._count = 0

    def is_removed(self, publisher: AgentName, queue_name: QueueName, offset: Offset) -> bool:
        """Whether the package left that subscriber's queue without being imported."""
        with self._lock:
            known = self._queues.get(_Queue(publisher, queue_name))
            place = -1 if known is None else bisect_right(known.firsts, offset) - 1
            return known is not None and place >= 0 and offset <= known.lasts[place]

    def _add(self, queue: _Queue, offset: Offset) -> None:
        known = self._queues.setdefault(queue, _Ranges())
        self._queues.move_to_end(queue)
        if known.lasts and offset <= known.lasts[-1]:
            return  # said before
        if known.is_open:
            known.lasts[-1] = offset
            return
        known.firsts.append(offset)
        known.lasts.append(offset)
        known.is_open = True
        self._count += 1
        while self._count > self._max or len(self._queues) > MAX_QUEUES:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        queue, ranges = next(iter(self._queues.items()))
        del ranges.firsts[0], ranges.lasts[0]
        if not ranges.firsts:
            del self._queues[queue]
        self._count -= 1
