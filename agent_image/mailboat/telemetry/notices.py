"""Notices, the filter that selects them, and the ports that they are read from.

A notice has the same content for each receiver; a format (`notice_formats.py`) makes a message of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Protocol

from mailboat.config.receivers import EventKind, EventSeverity
from mailboat.errors import UsageError
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.messages import DistributedEvent, MissedReason
from mailboat.model.path_patterns import PathPattern
from mailboat.model.positions import LogIdentity
from mailboat.queues.queue_names import parse_queue_name


class UntrustedText(str):
    """Text that a stranger may have written: a format shows it without markup, links and mentions."""

    __slots__ = ()


class Notice(NamedTuple):
    """One event for receivers.

    Attributes:
        severity: How much it matters.
        text: Its sentence in parts; each foreign part is `UntrustedText`.
        document: The CloudEvent.
        where: Names it in the log.
    """

    severity: EventSeverity
    text: Sequence[str]
    document: Mapping[str, object]
    where: Mapping[str, object]


class RecordNotices(NamedTuple):
    """The notices of one record of a topic, in order; many records have none. `offset` is that of the record."""

    offset: Offset
    notices: Sequence[Notice]


class NoticeReader(Protocol):
    """To be used by one thread, except for `interrupt`."""

    def read(self, wait_seconds: float) -> Sequence[RecordNotices]:
        """What is new. Raises: PositionOutOfRangeError, JobLogIncompleteError: records were removed; and others."""
        ...

    def interrupt(self) -> None:
        """End the current or the next wait. From any thread."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class NoticeSource(Protocol):
    """The events in one topic."""

    @property
    def topic(self) -> TopicName:
        """Where the events are."""
        ...

    def identity(self) -> LogIdentity:
        """Which log the offsets belong to. Raises: the journal's errors."""
        ...

    def first(self) -> Offset:
        """The first offset that can be read from. Raises: the journal's errors."""
        ...

    def open(self, start: Offset) -> NoticeReader:
        """Read from an offset on. Raises: as `NoticeReader.read`."""
        ...


class EventFilter(NamedTuple):
    """Which events a receiver gets: those that match every attribute that is not empty.

    Attributes:
        severity: Least severity.
        kinds: What happened.
        subscribers: Patterns of names: only packages that one of these does not have.
        patterns: Only packages with a path below one of them.
        jobs: Patterns of topics of jobs.
    """

    severity: EventSeverity = EventSeverity.INFO
    kinds: frozenset[EventKind] = frozenset()
    subscribers: tuple[str, ...] = ()
    patterns: tuple[PathPattern, ...] = ()
    jobs: tuple[str, ...] = ()

    def accepts(self, event: DistributedEvent) -> bool:
        """Whether the event of a package is sent."""
        deep = frozenset(event.deep_paths)
        is_below = not self.patterns or any(
            pattern.covers(path) or (path in deep and pattern.lies_below(path))
            for path in event.paths
            for pattern in self.patterns
        )
        if not is_below:
            return False
        if not event.missed:
            return not self.subscribers and self.accepts_kind(EventKind.DISTRIBUTED, EventSeverity.INFO)
        return any(
            self.accepts_kind(EventKind(missed.reason), missed_severity(missed.reason))
            and self._names(missed.subscriber)
            for missed in event.missed
        )

    def accepts_kind(self, kind: EventKind, severity: EventSeverity) -> bool:
        """Whether events of this kind and severity are sent."""
        return severity.reaches(self.severity) and (not self.kinds or kind in self.kinds)

    def _names(self, subscriber: str) -> bool:
        name = agent_of(subscriber)
        return not self.subscribers or any(fnmatchcase(name, pattern) for pattern in self.subscribers)


ALL_EVENTS: Final = EventFilter()


def missed_severity(reason: MissedReason) -> EventSeverity:
    """How much it matters that a subscriber does not have a package."""
    return EventSeverity.ERROR if reason is MissedReason.FAILED else EventSeverity.WARNING


def agent_of(subscriber: str) -> str:
    """The subscriber's name of a queue's name; the whole text where it is not one."""
    try:
        return parse_queue_name(subscriber).agent_name
    except UsageError:
        return subscriber
