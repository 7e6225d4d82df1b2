"""The packages that subscribers gave up: error queues, rebuilt from the status topic.

A REMOVED_FAILED status puts a package in, an IMPORTED one for the same package (it was driven again) takes it out.
What the package topic no longer holds is not shown and not counted. The number is bounded, the longest known go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from mailboat.errors import JournalReplacedError, MessageCorruptError, PositionOutOfRangeError
from mailboat.journal.port import Edge, Journal, JournalReader, ReadLimits
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.messages import FailureCause, PackageStatus, StatusMessage
from mailboat.queues.entries import Entry
from mailboat.queues.log_view import LogView
from mailboat.queues.names import EntryId, QueueName
from mailboat.queues.pages import PageReader
from mailboat.queues.standing import Capability, QueueState
from mailboat.wire.messages import decode_message

MAX_FAILURES: Final = 100_000


class _Place(NamedTuple):
    publisher: AgentName
    queue_name: QueueName
    offset: Offset


class FailedPackage(NamedTuple):
    """A package that a subscriber gave up.

    Attributes:
        offset: Its place in the package topic.
        package_id: As the status says; None from agents that don't.
        attempts: How often it was tried.
        cause: Why it failed; None from agents that don't say.
    """

    offset: Offset
    package_id: PackageId | None
    attempts: int
    cause: FailureCause | None


class FailedPackages:
    """A fold over the status topic. Safe to use from several threads."""

    def __init__(self, max_failures: int = MAX_FAILURES) -> None:
        """Know of no failure yet."""
        self.forgotten_count = 0
        self._max = max_failures
        self._lock = threading.Lock()
        self._packages: OrderedDict[_Place, FailedPackage] = OrderedDict()
        self._queues: dict[tuple[AgentName, QueueName], dict[Offset, FailedPackage]] = {}

    def hear(self, status: StatusMessage) -> None:
        """Take in a status."""
        queue_name = QueueName(status.sub_sling_id, status.sub_agent_name)
        place = _Place(status.pub_agent_name, queue_name, status.offset)
        with self._lock:
            if status.status is PackageStatus.IMPORTED:
                self._remove(place)
            elif status.status is PackageStatus.REMOVED_FAILED:
                self._add(place, FailedPackage(status.offset, status.package_id, status.attempts, status.cause))

    def trim(self, earliest: Offset) -> None:
        """Forget the packages that retention removed."""
        with self._lock:
            for place in [place for place in self._packages if place.offset < earliest]:
                self._remove(place)

    def clear(self) -> None:
        """Forget all: the status topic is another one."""
        with self._lock:
            self._packages.clear()
            self._queues.clear()

    def of(self, publisher: AgentName, queue_name: QueueName, earliest: Offset) -> list[FailedPackage]:
        """What one subscriber gave up of one publisher's packages, from `earliest` on, by offset."""
        with self._lock:
            failures = list(self._queues.get((publisher, queue_name), {}).values())
        return sorted((one for one in failures if one.offset >= earliest), key=lambda one: one.offset)

    def _add(self, place: _Place, failed: FailedPackage) -> None:
        self._remove(place)
        self._packages[place] = failed
        self._queues.setdefault((place.publisher, place.queue_name), {})[place.offset] = failed
        while len(self._packages) > self._max:
            self._remove(next(iter(self._packages)))
            self.forgotten_count += 1

    def _remove(self, place: _Place) -> None:
        if self._packages.pop(place, None) is None:
            return
        key = (place.publisher, place.queue_name)
        del self._queues[key][place.offset]
        if not self._queues[key]:
            del self._queues[key]


class FailureFollower:
    """Brings the failures from the status topic, from its beginning on. Belongs to one thread, but for `interrupt`."""

    def __init__(self, failed: FailedPackages, journal: Journal, topic: TopicName) -> None:
        """Begin at the oldest status that is kept."""
        self._failed = failed
        self._journal = journal
        self._topic = topic
        self._reader: JournalReader = journal.reader(topic, Edge.EARLIEST)

    def follow(self, wait_seconds: float) -> int:
        """Read once, waiting at most so long; how many records came. Raises: JournalUnavailableError."""
        try:
            batch = self._reader.read(ReadLimits(max_records=500), wait_seconds)
        except (PositionOutOfRangeError, JournalReplacedError):
            self._restart()
            return 0
        for record in batch.records:
            try:
                message = decode_message(record.headers, record.value)
            except MessageCorruptError:
                continue  # other readers of the topic report it
            if isinstance(message, StatusMessage):
                self._failed.hear(message)
        return len(batch.records)

    def interrupt(self) -> None:
        """End the current or the next `follow`, from any thread."""
        self._reader.interrupt()

    def close(self) -> None:
        """Release the reader."""
        self._reader.close()

    def _restart(self) -> None:
        self._reader.close()
        self._failed.clear()
        self._reader = self._journal.reader(self._topic, Edge.EARLIEST)


class ErrorItem(NamedTuple):
    """A package in an error queue; `entry` is None when the log was trimmed a moment ago."""

    id: EntryId
    failed: FailedPackage
    entry: Entry | None


class ErrorQueue:
    """The view of what one subscriber gave up of one publisher's packages."""

    def __init__(self, queue_name: QueueName, publisher: AgentName, failed: FailedPackages, view: LogView) -> None:
        """Look at `failed`, as far as the log of `view` still holds the packages."""
        self._queue_name = queue_name._replace(is_error_queue=False)
        self._publisher = publisher
        self._failed = failed
        self._view = view

    @property
    def name(self) -> str:
        """The queue's name."""
        return str(self._queue_name._replace(is_error_queue=True))

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Nothing can be done to the queue as a whole; single packages are driven again at the subscriber."""
        return frozenset()

    def size(self) -> int:
        """How many packages are in it."""
        return len(self._failures())

    def state(self) -> QueueState:
        """Always PASSIVE: nobody works through it."""
        return QueueState.PASSIVE

    def page(self, pages: PageReader, from_offset: int = 0, max_items: int = 100) -> list[ErrorItem]:
        """The items at an offset or after it, in order. Raises: JournalUnavailableError."""
        shown = [one for one in self._failures() if one.offset >= from_offset][:max_items]
        return [
            ErrorItem(EntryId(self._view.topic, one.offset), one, pages.entry(self._publisher, one.offset))
            for one in shown
        ]

    def _failures(self) -> list[FailedPackage]:
        return self._failed.of(self._publisher, self._queue_name, self._view.bounds.earliest_offset)
