"""Error queues: the packages that subscribers gave up, rebuilt from the status topic.

A REMOVED_FAILED status puts a package in, an IMPORTED status for the same package (after a redrive) takes it out.
Packages that the package topic no longer holds are neither shown nor counted. Every subscriber may write to the topic,
so memory is bounded in bytes, for one queue and for all. Beyond that the oldest causes lose their texts
(`FailureCause.is_truncated`), then the oldest entries go, and `may_have_forgotten` says for which packages.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import FailureCause, Message, PackageStatus, StatusMessage
from mailboat.queues.entries import QueueEntry
from mailboat.queues.log_view import LogView
from mailboat.queues.offsets import QueueSize
from mailboat.queues.queue_names import EntryId, QueueName
from mailboat.queues.queue_pages import PageReader
from mailboat.queues.queue_state import Capability, QueueState

MAX_BYTES: Final = 32 * 1024**2
"""Of all error queues."""

MAX_QUEUE_BYTES: Final = 8 * 1024**2
"""What one subscriber gave up of one publisher's packages: 16,000, the last thousands of them with the whole cause."""

_QUEUE_BYTES: Final = 1_200  # measured: the objects without their texts, and their places in dictionaries
_ENTRY_BYTES: Final = 450
_CAUSE_BYTES: Final = 450


class FailurePlace(NamedTuple):
    """Which package of which publisher, at which subscriber."""

    publisher: AgentName
    queue_name: QueueName
    offset: Offset


class FailedPackage(NamedTuple):
    """A package that a subscriber gave up.

    Attributes:
        offset: Its place in the package topic.
        package_id: As the status says; None from agents that don't.
        attempts: How often it was tried; None from agents that don't say, as those of Sling.
        cause: Why it failed; None from agents that don't say.
        given_up_ms: When, milliseconds since 1970 UTC; None from agents that don't say.
    """

    offset: Offset
    package_id: PackageId | None
    attempts: int | None
    cause: FailureCause | None
    given_up_ms: int | None = None


class _QueueKey(NamedTuple):
    publisher: AgentName
    queue_name: QueueName


@dataclass(slots=True)
class _Queue:
    """One error queue: the entries in the order of their statuses, and which of them have a whole cause."""

    packages: OrderedDict[Offset, FailedPackage] = field(default_factory=OrderedDict)
    explained: OrderedDict[Offset, None] = field(default_factory=OrderedDict)
    size_bytes: int = _QUEUE_BYTES
    forgotten_to: int = -1

    def complete(self) -> None:
        """Nothing that the log still has was forgotten."""
        self.forgotten_to = -1

    def put(self, failed: FailedPackage) -> None:
        self.remove(failed.offset)
        self.packages[failed.offset] = failed
        self.size_bytes += _cost(failed)
        if failed.cause is not None:
            self.explained[failed.offset] = None

    def remove(self, offset: Offset) -> None:
        gone = self.packages.pop(offset, None)
        self.explained.pop(offset, None)
        self.size_bytes -= 0 if gone is None else _cost(gone)

    def shrink(self) -> int:
        """Give up the oldest texts, or else the oldest entry; how many entries were forgotten."""
        if self.explained:
            offset, _ = self.explained.popitem(last=False)
            failed = self.packages[offset]
            shorter = failed._replace(cause=None if failed.cause is None else _without_texts(failed.cause))
            self.packages[offset] = shorter
            self.size_bytes -= _cost(failed) - _cost(shorter)
            return 0
        offset = next(iter(self.packages))
        self.remove(offset)
        self.forgotten_to = max(self.forgotten_to, offset)
        return 1


class FailedPackages:
    """A fold over the status topic. Safe to use from several threads."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_queue_bytes: int = MAX_QUEUE_BYTES) -> None:
        """Know of no failure yet."""
        self.forgotten_count = 0
        self._max_bytes = max_bytes
        self._max_queue_bytes = max_queue_bytes
        self._lock = threading.Lock()
        self._queues: OrderedDict[_QueueKey, _Queue] = OrderedDict()
        self._bytes = 0
        self._forgotten_to = -1

    @property
    def size_bytes(self) -> int:
        """What the queues cost, estimated from above."""
        return self._bytes

    def apply(self, status: Message) -> None:
        """Apply a status; other messages of the topic are ignored."""
        if not isinstance(status, StatusMessage):
            return
        key = _QueueKey(status.pub_agent_name, QueueName(status.sub_sling_id, status.sub_agent_name))
        with self._lock:
            if status.status is PackageStatus.IMPORTED:
                self._remove(key, [status.offset])
            elif status.status is PackageStatus.REMOVED_FAILED:
                failed = FailedPackage(
                    status.offset, status.package_id, status.attempts or None, status.cause, status.created_ms
                )
                self._add(key, failed)

    def trim(self, earliest: Offset) -> None:
        """Forget the packages that retention removed."""
        with self._lock:
            for key, queue in list(self._queues.items()):
                if queue.forgotten_to < earliest:
                    # Retention removed what was forgotten, so the queue is complete again.
                    queue.complete()
                self._remove(key, [offset for offset in queue.packages if offset < earliest])

    def clear(self) -> None:
        """Forget all: the status topic is another one."""
        with self._lock:
            self._queues.clear()
            self._bytes = 0
            self._forgotten_to = -1

    def of(self, publisher: AgentName, queue_name: QueueName, earliest: Offset) -> list[FailedPackage]:
        """What one subscriber gave up of one publisher's packages, from `earliest` on, by offset."""
        with self._lock:
            queue = self._queues.get(_QueueKey(publisher, queue_name))
            failures = [] if queue is None else list(queue.packages.values())
        # Outside of the lock: the thread that reads statuses does not wait for a sort.
        return sorted((failure for failure in failures if failure.offset >= earliest), key=lambda one: one.offset)

    def places(self, earliest: Offset) -> list[FailurePlace]:
        """Where packages were given up, by all subscribers, from `earliest` on; in no order."""
        with self._lock:
            return [
                FailurePlace(*key, offset)
                for key, queue in self._queues.items()
                for offset in queue.packages
                if offset >= earliest
            ]

    def find(self, place: FailurePlace) -> FailedPackage | None:
        """The package that was given up there; None when it was not."""
        with self._lock:
            queue = self._queues.get(_QueueKey(place.publisher, place.queue_name))
            return None if queue is None else queue.packages.get(place.offset)

    def may_have_forgotten(self, publisher: AgentName, queue_name: QueueName, from_offset: int) -> bool:
        """Whether entries of that queue, at an offset or after it, may have been dropped to bound memory."""
        with self._lock:
            queue = self._queues.get(_QueueKey(publisher, queue_name))
            return max(self._forgotten_to, -1 if queue is None else queue.forgotten_to) >= from_offset

    def _add(self, key: _QueueKey, failed: FailedPackage) -> None:
        queue = self._queues.get(key)
        if queue is None:
            name_bytes = sum(map(sys.getsizeof, (key.publisher, *key.queue_name[:2])))
            queue = self._queues[key] = _Queue(size_bytes=_QUEUE_BYTES + name_bytes)
            self._bytes += queue.size_bytes
        # The first queue is the one without a status for longest: over the budget it is shortened first.
        self._queues.move_to_end(key)
        before = queue.size_bytes
        queue.put(failed)
        self._bytes += queue.size_bytes - before
        while queue.size_bytes > self._max_queue_bytes:
            self._shrink(queue)
        while self._bytes > self._max_bytes:  # the queue without a report for longest
            oldest_key, oldest = next(iter(self._queues.items()))
            if oldest.packages:
                self._shrink(oldest)
            if not oldest.packages:
                # With the queue goes what it says of itself: from here on it holds for all queues.
                self._forgotten_to = max(self._forgotten_to, oldest.forgotten_to)
                self._drop(oldest_key)

    def _shrink(self, queue: _Queue) -> None:
        before = queue.size_bytes
        self.forgotten_count += queue.shrink()
        self._bytes += queue.size_bytes - before

    def _remove(self, key: _QueueKey, offsets: list[Offset]) -> None:
        queue = self._queues.get(key)
        if queue is None:
            return
        before = queue.size_bytes
        for offset in offsets:
            queue.remove(offset)
        self._bytes += queue.size_bytes - before
        if not queue.packages and queue.forgotten_to < 0:
            self._drop(key)

    def _drop(self, key: _QueueKey) -> None:
        self._bytes -= self._queues.pop(key).size_bytes


def _cost(failed: FailedPackage) -> int:
    cause = failed.cause
    texts = (cause.code, cause.message, cause.path, cause.trace_excerpt) if cause is not None else ()
    explained = _CAUSE_BYTES if cause is not None and (cause.message or cause.path or cause.trace_excerpt) else 0
    return _ENTRY_BYTES + explained + sum(map(sys.getsizeof, (failed.package_id, *texts)))


def _without_texts(cause: FailureCause) -> FailureCause:
    return FailureCause(sys.intern(cause.code), "", is_truncated=True)


class ErrorItem(NamedTuple):
    """A package in an error queue; `entry`: None when the log was trimmed a moment ago."""

    id: EntryId
    failed: FailedPackage
    entry: QueueEntry | None


class ErrorQueue:
    """The view of what one subscriber gave up of one publisher's packages."""

    def __init__(self, queue_name: QueueName, publisher: AgentName, failed: FailedPackages, view: LogView) -> None:
        """Show `failed`, as far as the log of `view` still holds the packages."""
        self.queue_name = queue_name._replace(is_error_queue=False)
        self._publisher = publisher
        self._failed = failed
        self._view = view

    @property
    def name(self) -> str:
        """The queue's name."""
        return str(self.queue_name._replace(is_error_queue=True))

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Nothing can be done to the queue as a whole; single packages are redriven at the subscriber."""
        return frozenset()

    def size(self) -> QueueSize:
        """How many packages are in it."""
        earliest = self._view.bounds.earliest_offset
        is_exact = not self._failed.may_have_forgotten(self._publisher, self.queue_name, earliest)
        return QueueSize(len(self._failures()), is_exact)

    def state(self) -> QueueState:
        """Always passive: it is not processed in order."""
        return QueueState.PASSIVE

    def page(self, pages: PageReader, from_offset: int = 0, max_items: int = 100) -> list[ErrorItem]:
        """The items at an offset or after it, in order. Raises: JournalUnavailableError."""
        shown = [failure for failure in self._failures() if failure.offset >= from_offset][:max_items]
        return [
            ErrorItem(EntryId(self._view.topic, entry.offset), entry, pages.entry(self._publisher, entry.offset))
            for entry in shown
        ]

    def _failures(self) -> list[FailedPackage]:
        return self._failed.of(self._publisher, self.queue_name, self._view.bounds.earliest_offset)
