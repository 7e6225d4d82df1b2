"""Sends events of packages, or of jobs, to one receiver: at least once, in order, over restarts.

The receiver is a webhook, a mailbox, or a topic, which has each event once. Its queue is the topic of its source behind
its cursor, so a receiver that is down delays nothing else: each receiver has a cursor, a lease and a thread of its own.
What the receiver rejects as such is logged and skipped, since it would be rejected each time; everything else is
retried, after the requested or a growing pause. Of several processes only the one with the lease sends. Started by the
agent.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, Protocol

from mailboat.clock import Clock
from mailboat.errors import (
    JobLogIncompleteError,
    MailboatError,
    PositionOutOfRangeError,
)
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.journal.port import Journal
from mailboat.model.identifiers import AgentName, Offset
from mailboat.publisher.distributed_memory import JOB_EVENT_READER, WEBHOOK_READER, EventCursor, EventMemory
from mailboat.telemetry.notices import Notice, NoticeSource, RecordNotices
from mailboat.workers import LeasedWorker, WorkerOptions, heartbeat

_LOG: Final = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 15.0


class EventSender(Protocol):
    """Brings notices to a receiver. Used by one thread.

    Attributes:
        place: The receiver, for the log; without secrets.
        max_notices: How many one call takes.
        pause_seconds: Least time between the end of a call and the next one.
        timeout_seconds: How long one call may take.
    """

    @property
    def place(self) -> str: ...

    @property
    def max_notices(self) -> int: ...

    @property
    def pause_seconds(self) -> float: ...

    @property
    def timeout_seconds(self) -> float: ...

    def end(self) -> Offset:
        """Where the receiver ends, for one that is a topic. Raises: RetryableError."""
        ...

    def resume(self, end: Offset) -> None:
        """Begin to send; `end` is what `end` said when the cursor was stored. Raises: RetryableError."""
        ...

    def send(self, notices: Sequence[Notice], now: datetime) -> bool:
        """Send. Returns: false if the receiver rejects this message as such. Raises: RetryableError: send it again."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class EventReceiver(NamedTuple):
    """Whose events go where.

    Attributes:
        publisher: The publisher whose state has the cursor.
        name: The receiver's name in the configuration.
        kind: `webhook`, `mail` or `topic`.
    """

    publisher: AgentName
    name: str
    kind: str = WEBHOOK_READER

    @property
    def reader(self) -> str:
        """Name of its cursor and its lease. `webhook` is that of earlier versions, which had one webhook."""
        if self.kind == "topic":  # of earlier versions, too: with another name, an upgrade would lose events
            return JOB_EVENT_READER
        return self.name if self.name == self.kind == WEBHOOK_READER else f"{self.kind}-{self.name}"


@dataclass(frozen=True, slots=True)
class DeliveryPorts:
    """What a delivery works with; it closes the sender only."""

    journal: Journal
    memory: EventMemory
    clock: Clock
    source: NoticeSource
    sender: EventSender
    failpoints: Failpoints = field(default_factory=NoFailpoints)
    random: random.Random = field(default_factory=random.SystemRandom)


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    """Counts of this process: events that were delivered, failures that are retried, and events that were refused.

    `waiting` is the number of records on the topic that stand behind the event that could not be sent, with it:
    what a receiver that is away holds up. 0 while events are taken.
    """

    delivered: int = 0
    failed: int = 0
    refused: int = 0
    waiting: int = 0


class EventDelivery:
    """Sends events to a receiver between `start` and `stop`."""

    def __init__(self, receiver: EventReceiver, ports: DeliveryPorts) -> None:
        """Send what is raised from now on, or from where an earlier process was."""
        self._receiver = receiver
        self._ports = ports
        self._source = ports.source
        self._sender = ports.sender
        self._beat = heartbeat(ports.clock)
        self.statistics = DeliveryStatistics()
        """A snapshot, from any thread."""
        options = WorkerOptions(
            f"sending events of {receiver.publisher} to the {receiver.kind} {receiver.name}",
            longest_pause_seconds=_LONGEST_PAUSE_SECONDS,
            jitter=ports.random,
            on_end=self._sender.close,
            on_failure=self._count_failure,
            where=self._where(),
        )
        name = f"{receiver.kind}-{receiver.publisher}-{receiver.name}"
        lease = partial(ports.memory.lease, receiver.reader)
        self._worker = LeasedWorker(name, lease, self._send_until_stopped, ports.clock, options)

    def start(self) -> None:
        """Remember where the first event will stand, and send from now on. Raises: the journal's and state's errors."""
        # Before the thread: what is raised from now on must be sent, even if the thread starts late.
        self._cursor()
        self._worker.start()

    def ask_to_stop(self) -> None:
        """Let the thread end after the current message."""
        self._worker.ask_to_stop()

    def stop(self, timeout_seconds: float = _STOP_SECONDS) -> None:
        """End the thread after the current message."""
        self._worker.stop(timeout_seconds)

    def _send_until_stopped(self) -> None:
        cursor = self._cursor()
        self._sender.resume(cursor.event_offset)
        try:
            with self._worker.using(self._source.open(cursor.next_offset)) as reader:
                while not self._worker.is_stopping:
                    self._deliver_all(reader.read(_WAIT_SECONDS))
        # Retention was faster than the receiver. Going on is right here: these are notifications, no content is lost.
        except (PositionOutOfRangeError, JobLogIncompleteError) as error:
            first = self._source.first()
            _LOG.warning("events were removed before the receiver took them: %s", error, extra=self._where())
            self._ports.memory.restart(self._receiver.reader, self._source.identity(), self._at(first))

    def _deliver_all(self, records: Sequence[RecordNotices]) -> None:
        pending: list[Notice] = []
        for record in records:
            pending += record.notices
            is_last = record is records[-1]
            # A sender of single events notes each; one that bundles takes all that were read.
            if pending and (is_last or self._sender.max_notices == 1):
                size = self._sender.max_notices
                for start in range(0, len(pending), size):
                    if self._worker.is_stopping:
                        # nothing of this record is noted, so the next start sends it
                        return
                    self._send(pending[start : start + size])
                    self._ports.failpoints.reach(Failpoint.DELIVERY_SENT)
                pending = []
            # After the messages: a crash in between sends the events of the record twice, and loses none. Records
            # without events are noted together, as each note is an fsync.
            if not pending and (record.notices or is_last):
                self._note(Offset(record.offset + 1))
                self._ports.failpoints.reach(Failpoint.DELIVERY_NOTED)
            if self.statistics.waiting:
                self.statistics = replace(self.statistics, waiting=0)
            # a turn lasts as long as the lease, so each success is reported here, not at its end
            self._worker.succeeded()
        if self._sender.pause_seconds and any(record.notices for record in records):
            self._worker.rest(self._sender.pause_seconds)  # after the note: a crash while resting repeats nothing

    def _send(self, notices: Sequence[Notice]) -> None:
        counted = self.statistics
        self._beat(self._sender.timeout_seconds)  # else a receiver that hangs for minutes looks like a stuck thread
        try:
            is_taken = self._sender.send(notices, self._ports.clock.now())
        except MailboatError as error:
            # For the log line of the worker: which package or job the receiver does not take.
            error.with_facts(**notices[0].where)
            raise
        if is_taken:
            self.statistics = replace(counted, delivered=counted.delivered + len(notices))
        else:
            self.statistics = replace(counted, refused=counted.refused + len(notices))
            where = {**self._where(), **notices[0].where}
            _LOG.error("%s rejected %d event(s) permanently; skipped", self._sender.place, len(notices), extra=where)

    def _cursor(self) -> EventCursor:
        memory, reader, identity = self._ports.memory, self._receiver.reader, self._source.identity()
        found = memory.cursor(reader, identity)
        if found is not None:
            return found
        # A topic that was created again holds nothing that this receiver was sent. One that it was not for before may
        # hold anything: its filter was changed from packages to jobs, or back.
        is_replaced = memory.is_created_again(reader, identity, self._ports.journal)
        end = self._ports.journal.bounds(self._source.topic).next_offset
        return self._note(self._source.first() if is_replaced else end)

    def _note(self, next_offset: Offset) -> EventCursor:
        cursor = self._at(next_offset)
        self._ports.memory.advance(self._receiver.reader, self._source.identity(), cursor)
        return cursor

    def _at(self, next_offset: Offset) -> EventCursor:
        return EventCursor(next_offset, self._sender.end())

    def _count_failure(self, _: Exception) -> None:
        waiting = self.statistics.waiting
        with suppress(MailboatError):  # the journal may be what failed
            end = self._ports.journal.bounds(self._source.topic).next_offset
            waiting = max(0, end - self._cursor().next_offset)
        self.statistics = replace(self.statistics, failed=self.statistics.failed + 1, waiting=waiting)

    def _where(self) -> dict[str, object]:
        known = {"publisher": self._receiver.publisher, self._receiver.kind: self._receiver.name}
        return {**known, "topic": self._source.topic}
