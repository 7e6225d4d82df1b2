"""Notices of packages: the distributed events of a publisher, read from the event topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mailboat.clock import moment_of
from mailboat.config.receivers import EventSeverity
from mailboat.journal.port import Journal, JournalReader, ReadLimits, Record
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.model.messages import EVENT_TOPIC, DistributedEvent
from mailboat.model.positions import LogIdentity
from mailboat.telemetry.notices import (
    ALL_EVENTS,
    EventFilter,
    Notice,
    NoticeReader,
    RecordNotices,
    UntrustedText,
    agent_of,
    missed_severity,
)
from mailboat.wire.event_documents import event_document, readable_event

EVENT_TYPE: Final = "dev.mailboat.package.distributed.v1"

_READ: Final = ReadLimits(max_records=50)
_NAMED: Final = 5


class PackageEvents:
    """`NoticeSource` of the packages of a publisher that a filter accepts."""

    def __init__(
        self, journal: Journal, publisher: AgentName, chosen: EventFilter = ALL_EVENTS, topic: TopicName = EVENT_TOPIC
    ) -> None:
        """Read nothing yet."""
        self.topic = topic
        self._journal = journal
        self._publisher = publisher
        self._filter = chosen

    def identity(self) -> LogIdentity:
        return self._journal.identity(self.topic)

    def first(self) -> Offset:
        return self._journal.bounds(self.topic).earliest_offset

    def open(self, start: Offset) -> NoticeReader:
        return _PackageEventReader(self._journal.reader(self.topic, start), self._publisher, self._filter)


class _PackageEventReader:
    def __init__(self, reader: JournalReader, publisher: AgentName, chosen: EventFilter) -> None:
        self._reader = reader
        self._publisher = publisher
        self._filter = chosen

    def read(self, wait_seconds: float) -> Sequence[RecordNotices]:
        records = self._reader.read(_READ, wait_seconds).records
        return [RecordNotices(record.offset, self._notices(record)) for record in records]

    def _notices(self, record: Record) -> Sequence[Notice]:
        event = readable_event(record.headers, record.value)
        if event is None or event.pub_agent_name != self._publisher or not self._filter.accepts(event):
            return ()
        return (package_notice(event, record.appended_ms),)

    def interrupt(self) -> None:
        self._reader.interrupt()

    def close(self) -> None:
        self._reader.close()


def package_notice(event: DistributedEvent, raised_ms: int) -> Notice:
    """The notice of an event; `raised_ms` is when the log took it."""
    severities = [missed_severity(missed.reason) for missed in event.missed]
    severity = EventSeverity.ERROR if EventSeverity.ERROR in severities else EventSeverity.WARNING
    where = {"package": event.package_id, "offset": event.offset}
    return Notice(
        severity if event.missed else EventSeverity.INFO, _sentence(event), _cloud_event(event, raised_ms), where
    )


def _sentence(event: DistributedEvent) -> list[str]:
    parts: list[str] = [UntrustedText(event.pub_agent_name), ": "]
    for number, path in enumerate(event.paths[:_NAMED]):
        parts += [", "] * bool(number) + [UntrustedText(path)]
    more = len(event.paths) - _NAMED
    parts += ["a package"] * (not event.paths) + [f" and {more} more"] * (more > 0)
    parts.append(f" (offset {event.offset}) ")
    if not event.missed:
        return [*parts, "is distributed to all subscribers"]
    parts.append("is missing at ")
    for number, missed in enumerate(event.missed[:_NAMED]):
        parts += [", "] * bool(number) + [UntrustedText(agent_of(missed.subscriber)), f" ({missed.reason})"]
    others = len(event.missed) - _NAMED
    return [*parts, *[f" and {others} more"] * (others > 0)]


def _cloud_event(event: DistributedEvent, raised_ms: int) -> dict[str, object]:
    """A CloudEvent 1.0 in the structured JSON mode of the HTTP binding.

    `source` and `id` together identify the event permanently, so a receiver can skip a repeat.
    Source: https://github.com/cloudevents/spec, CloudEvents 1.0.2, its JSON format, and the distributed tracing
    extension.
    """
    document: dict[str, object] = {
        "specversion": "1.0",
        "id": event.package_id,
        "source": f"/mailboat/publishers/{event.pub_agent_name}",
        "type": EVENT_TYPE,
        "time": moment_of(raised_ms).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
    }
    if event.paths:
        document["subject"] = event.paths[0]
    if event.trace_parent is not None:
        document["traceparent"] = event.trace_parent
    return {**document, "data": event_document(event)}
