"""Appends the events of jobs to the event topic: each once, in the order of the job topic, over restarts.

The records are what a webhook posts. They are appended first and the cursor is stored after that, so a crash loses
none; what was appended but not noted is found on the event topic at the next start. Of several processes with one state
only the one with the lease appends. Started by the agent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from mailboat.clock import Clock
from mailboat.config.receivers import WebhookFormat
from mailboat.errors import JobLogIncompleteError, PositionOutOfRangeError
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.journal.port import Journal, NewRecord, ReadLimits
from mailboat.model.identifiers import Offset, TopicName
from mailboat.publisher.distributed_memory import EventCursor, EventMemory
from mailboat.telemetry.notice_formats import encode_notice
from mailboat.telemetry.notices import NoticeReader, NoticeSource, RecordNotices
from mailboat.wire.events import JOB_EVENT_HEADERS
from mailboat.workers import Worker, WorkerOptions

JOB_EVENT_READER: Final = "jobs-topic"
_LOG: Final = logging.getLogger(__name__)
_READ: Final = ReadLimits(max_records=200)
_AT_ONCE: Final = 500
"""Events that are appended together, about 300 bytes each."""
_WAIT_SECONDS: Final = 1.0
_LEASE_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class JobEventLogPorts:
    """What appending works with; nothing of it is closed."""

    journal: Journal
    memory: EventMemory
    clock: Clock
    failpoints: Failpoints


class JobEventLog:
    """Appends between `start` and `stop`."""

    def __init__(self, source: NoticeSource, event_topic: TopicName, ports: JobEventLogPorts) -> None:
        """Read nothing yet."""
        self._source = source
        self._topic = event_topic
        self._ports = ports
        self._reader: NoticeReader | None = None
        options = WorkerOptions("appending events of jobs", interrupt=self._interrupt, where={"topic": event_topic})
        self._worker = Worker("job-events", self._turn, ports.clock, options)

    def start(self) -> None:
        """Append what happens from now on, or after the stored place. Raises: the journal's and state's errors."""
        self._cursor()
        self._worker.start()

    def stop(self, timeout_seconds: float = _STOP_SECONDS) -> None:
        """End the thread."""
        self._worker.stop(timeout_seconds)

    def _interrupt(self) -> None:
        # a local: the thread clears the attribute meanwhile
        reader = self._reader
        if reader is not None:
            reader.interrupt()

    def _turn(self) -> float:
        with self._ports.memory.lease(JOB_EVENT_READER) as is_ours:
            if is_ours:
                self._append_until_stopped()
        return _LEASE_SECONDS

    def _append_until_stopped(self) -> None:
        cursor = self._cursor()
        appended = self._appended_since(cursor.event_offset)
        try:
            with closing(self._source.open(cursor.next_offset)) as reader:
                self._reader = reader
                try:
                    while not self._worker.is_stopping:
                        self._append_all(reader.read(_WAIT_SECONDS), appended)
                        self._worker.succeeded()
                finally:
                    self._reader = None
        except (PositionOutOfRangeError, JobLogIncompleteError) as error:
            first = self._source.first()
            _LOG.warning("events of jobs were removed before they were appended: %s", error)
            self._ports.memory.restart(JOB_EVENT_READER, self._source.identity(), self._at(first))

    def _append_all(self, records: Sequence[RecordNotices], appended: set[bytes]) -> None:
        values: list[bytes] = []
        for record in records:
            bodies = (encode_notice(notice, WebhookFormat.CLOUDEVENTS) for notice in record.notices)
            values += [body for body in bodies if body not in appended]
            if len(values) >= _AT_ONCE or record is records[-1]:
                if values:
                    new = [NewRecord(value, JOB_EVENT_HEADERS) for value in values]
                    self._ports.journal.append(self._topic, new)
                    self._ports.failpoints.reach(Failpoint.JOB_EVENTS_APPENDED)
                    values.clear()
                next_offset = Offset(record.offset + 1)
                self._ports.memory.advance(JOB_EVENT_READER, self._source.identity(), self._at(next_offset))

    def _at(self, next_offset: Offset) -> EventCursor:
        return EventCursor(next_offset, self._ports.journal.bounds(self._topic).next_offset)

    def _appended_since(self, start: Offset) -> set[bytes]:
        """Events behind the cursor: an earlier process appended them and did not store that."""
        bounds = self._ports.journal.bounds(self._topic)
        start = Offset(min(max(start, bounds.earliest_offset), bounds.next_offset))
        found: set[bytes] = set()
        with closing(self._ports.journal.reader(self._topic, start)) as reader:
            while records := reader.read(_READ, 0.0).records:
                found.update(each.value for each in records if tuple(each.headers) == JOB_EVENT_HEADERS)
        return found

    def _cursor(self) -> EventCursor:
        identity = self._source.identity()
        found = self._ports.memory.cursor(JOB_EVENT_READER, identity)
        if found is None:
            found = self._at(self._ports.journal.bounds(self._source.topic).next_offset)
            self._ports.memory.advance(JOB_EVENT_READER, identity, found)
        return found
