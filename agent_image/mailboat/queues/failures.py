"""The packages that subscribers gave up: error queues, rebuilt from the status topic.

A REMOVED_FAILED status puts a package in, an IMPORTED one for the same package (it was driven again) takes it out.
What the package topic no longer holds is not shown and not counted. The number is bounded, the longest known go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import FailureCause, Message, PackageStatus, StatusMessage
from mailboat.queues.entries import Entry
from mailboat.queues.log_view import LogView
from mailboat.queues.names import EntryId, QueueName
from mailboat.queues.offsets import QueueSize
from mailboat.queues.pages import PageReader
from mailboat.queues.standing import Capability, QueueState

MAX_FAILURES: Final = 100_000


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
        attempts: How often it was tried.
        cause: Why it failed; None from agents that don't say.
        given_up_ms: When, milliseconds since 1970 UTC; None from agents that don't say.
    """

    offset: Offset
    package_id: PackageId | None
    attempts: int
    cause: FailureCause | None
    given_up_ms: int | None = None


class FailedPackages:
    """A fold over the status topic. Safe to use from several threads."""

    def __init__(self, max_failures: int = MAX_FAILURES) -> None:
        """Know of no failure yet."""
        self.forgotten_count = 0
        self._max = max_failures
        self._lock = threading.Lock()
        self._packages: OrderedDict[FailurePlace, FailedPackage] = OrderedDict()
        self._queues: dict[tuple[AgentName, QueueName], dict[Offset, FailedPackage]] = {}

    def hear(self, status: Message) -> None:
        """Take in a status; other messages of the topic mean nothing here."""
        if not isinstance(status, StatusMessage):
            return
        queue_name = QueueName(status.sub_sling_id, status.sub_agent_name)
        place = FailurePlace(status.pub_agent_name, queue_name, status.offset)
        with self._lock:
            if status.status is PackageStatus.IMPORTED:
                self._remove(place)
            elif status.status is PackageStatus.REMOVED_FAILED:
                failed = FailedPackage(
                    status.offset, status.package_id, status.attempts, status.cause, status.created_ms
                )
                self._add(place, failed)

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

    def all(self, earliest: Offset) -> list[tuple[FailurePlace, FailedPackage]]:
        """What all subscribers gave up of all publishers' packages, from `earliest` on."""
        with self._lock:
            return [(place, failed) for place, failed in self._packages.items() if place.offset >= earliest]

    def find(self, place: FailurePlace) -> FailedPackage | None:
        """The package that was given up there; None when it was not."""
        with self._lock:
            return self._packages.get(place)

    def _add(self, place: FailurePlace, failed: FailedPackage) -> None:
        self._remove(place)
        self._packages[place] = failed
        self._queues.setdefault((place.publisher, place.queue_name), {})[place.offset] = failed
        while len(self._packages) > self._max:
            self._remove(next(iter(self._packages)))
            self.forgotten_count += 1

    def _remove(self, place: FailurePlace) -> None:
        if self._packages.pop(place, None) is None:
            return
        key = (place.publisher, place.queue_name)
        del self._queues[key][place.offset]
        if not self._queues[key]:
            del self._queues[key]


class ErrorItem(NamedTuple):
    """A package in an error queue; `entry` is None when the log was trimmed a moment ago."""

    id: EntryId
    failed: FailedPackage
    entry: Entry | None


class ErrorQueue:
    """The view of what one subscriber gave up of one publisher's packages."""

    def __init__(self, queue_name: QueueName, publisher: AgentName, failed: FailedPackages, view: LogView) -> None:
        """Look at `failed`, as far as the log of `view` still holds the packages."""
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
        """Nothing can be done to the queue as a whole; single packages are driven again at the subscriber."""
        return frozenset()

    def size(self) -> QueueSize:
        """How many packages are in it."""
        return QueueSize(len(self._failures()), is_exact=True)

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
        return self._failed.of(self._publisher, self.queue_name, self._view.bounds.earliest_offset)
