"""The thread that raises a publisher's distributed events, and what it does in one turn.

Of several processes of one publisher agent only the one with the lease raises events; the others try for it every few
seconds, so one takes over when that process ends in whatever way. Events are appended first and the cursor is stored
after that, so a crash loses none. At a start the event topic is read from where it ended when the cursor was stored:
what was appended but not noted is found there and not appended again. A failing journal or state is waited out. Started
and stopped by the agent.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mailboat.clock import Clock, milliseconds_now
from mailboat.errors import MessageTooLargeError
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.journal.added_jobs import append_jobs, ensure_job_topic
from mailboat.journal.port import Journal, NewRecord, ReadLimits, Record, records_of
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.job_rules import JobRule, PackageEvent
from mailboat.model.messages import (
    DISCOVERY_TOPIC,
    EVENT_TOPIC,
    PACKAGE_TOPIC,
    STATUS_TOPIC,
    Action,
    DistributedEvent,
)
from mailboat.model.paths import common_ancestor
from mailboat.publisher.distributed import (
    MAX_MEMBERS,
    AwaitedSubscribers,
    Candidate,
    Distributed,
    KnownReports,
    SubscriberFacts,
)
from mailboat.publisher.distributed_memory import (
    TOPIC_READER,
    EventCursor,
    EventMemory,
    StoredSubscribers,
)
from mailboat.queues.announced import RETAINED_ANNOUNCEMENTS, Announced, KnownLog, read_announcement
from mailboat.queues.entries import readable_package
from mailboat.queues.reports import PackageReports
from mailboat.queues.statuses import StatusFollower
from mailboat.wire.event_documents import encode_event, readable_event
from mailboat.workers import LeasedWorker, WorkerOptions, heartbeat

_WAIT_SECONDS: Final = 1.0
# An announcement is about to count: its event must not wait for a longer read.
_SETTLING_WAIT_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class EventStatistics:
    """A snapshot. Counts are of this process.

    Attributes:
        is_raising: This process has the lease.
        next_offset: Everything below has had its event; None before that is known.
        raised: Events appended.
        missed: Events among them that name subscribers without the content.
        failures: Times that journal or state could not be used.
    """

    is_raising: bool = False
    next_offset: Offset | None = None
    raised: int = 0
    missed: int = 0
    failures: int = 0


class DistributedNotifier:
    """Raises the events of one publisher between `start` and `stop`."""

    def __init__(
        self,
        settings: EventSettings,
        ports: EventPorts,
        listener: Callable[[Sequence[DistributedEvent]], None] | None = None,
    ) -> None:
        """Nothing is read before `start`; `listener` receives events once they are durable."""
        self._settings = settings
        self._ports = ports
        self._listener = listener
        self.statistics = EventStatistics()
        """A snapshot, from any thread."""
        options = WorkerOptions(
            f"raising events of {settings.publisher}",
            on_failure=self._count_failure,
            where={"publisher": settings.publisher},
        )
        name = f"events-{settings.publisher}"
        self._worker = LeasedWorker(name, ports.memory.lease, self._raise_until_stopped, ports.clock, options)

    def start(self) -> None:
        """Raise the events of what is published from now on, or from where an earlier process was.

        Raises: the journal's errors, and those of the publisher's state.
        """
        begin_events(self._settings, self._ports.journal, self._ports.memory)  # the thread may be late
        self._worker.start()

    def ask_to_stop(self) -> None:
        self._worker.ask_to_stop()

    def stop(self, timeout_seconds: float = _STOP_SECONDS) -> None:
        """End the thread; what is not raised by then is raised after the next start."""
        self._worker.stop(timeout_seconds)

    def _raise_until_stopped(self) -> None:
        run = EventRun(self._settings, self._ports)
        try:
            with self._worker.using(run):
                while not self._worker.is_stopping:
                    self._record(run.step(_SETTLING_WAIT_SECONDS if run.is_settling else _WAIT_SECONDS), run)
        finally:
            # without the lease another process may be raising them
            self.statistics = replace(self.statistics, is_raising=False)

    def _record(self, events: Sequence[DistributedEvent], run: EventRun) -> None:
        self._worker.succeeded()
        before = self.statistics
        self.statistics = replace(
            before,
            is_raising=True,
            next_offset=run.next_offset,
            raised=before.raised + len(events),
            missed=before.missed + sum(bool(event.missed) for event in events),
        )
        if events and self._listener is not None:
            self._listener(events)

    def _count_failure(self, _: Exception) -> None:
        self.statistics = replace(self.statistics, is_raising=False, failures=self.statistics.failures + 1)


_LOG: Final = logging.getLogger(__name__)
_READ: Final = ReadLimits(max_records=200)
_MOST_PENDING: Final = 500
_MOST_PENDING_BYTES: Final = 8 * 1024 * 1024
"""Of paths: a message may have a megabyte of them."""

_MISSED_OF_LONG_EVENT: Final = 50
_EVENTS_AT_ONCE: Final = 100
_ANNOUNCEMENTS: Final = ReadLimits(max_records=1000)
_IDLE_STRIDE: Final = 1000
"""The cursor is stored at the latest after so many packages or announcements that needed no event."""


@dataclass(frozen=True, slots=True)
class EventSettings:
    """The settings of a publisher's events.

    Attributes:
        publisher: Whose packages.
        package_topic: Where they are.
        status_topic: Where subscribers say what they gave up.
        discovery_topic: Where they announce how far they are.
        event_topic: Where events go.
        silent_seconds: So long an event waits for a subscriber that says nothing.
        job_rules: Jobs to add with the events.
    """

    publisher: AgentName
    package_topic: TopicName = PACKAGE_TOPIC
    status_topic: TopicName = STATUS_TOPIC
    discovery_topic: TopicName = DISCOVERY_TOPIC
    event_topic: TopicName = EVENT_TOPIC
    silent_seconds: float = 300.0
    job_rules: tuple[JobRule, ...] = ()


@dataclass(frozen=True, slots=True)
class EventPorts:
    """What raising events works with; nothing of it is closed."""

    journal: Journal
    memory: EventMemory
    clock: Clock
    failpoints: Failpoints = field(default_factory=NoFailpoints)


def begin_events(settings: EventSettings, journal: Journal, memory: EventMemory) -> EventCursor:
    """Where the cursor stands; in a log that never had one, it stands from now on where the log ends now.

    In a package topic that was created again it is the beginning: nothing there has had an event. One of another
    prefix may hold packages of any age.

    Raises: the journal's errors, and those of the publisher's state.
    """
    identity = journal.identity(settings.package_topic)
    found = memory.cursor(TOPIC_READER, identity)
    if found is not None:
        return found
    events, packages = journal.bounds(settings.event_topic), journal.bounds(settings.package_topic)
    is_replaced = memory.is_created_again(TOPIC_READER, identity, journal)
    first = EventCursor(packages.earliest_offset if is_replaced else packages.next_offset, events.next_offset)
    memory.begin(TOPIC_READER, identity, first)
    # Read back: another process may have begun first, and its cursor counts.
    return memory.cursor(TOPIC_READER, identity) or first


class EventRun:
    """Raises events from where the cursor stands."""

    def __init__(self, settings: EventSettings, ports: EventPorts) -> None:
        """Find the place. Raises: the journal's errors, and those of the publisher's state."""
        self._settings = settings
        self._ports = ports
        journal, clock = ports.journal, ports.clock
        self._beat = heartbeat(clock)
        self._identity = journal.identity(settings.package_topic)
        cursor = self._start()
        self._noted = cursor.next_offset
        self._event_offset = cursor.event_offset
        # Behind the cursor the topic may have events of a process that died before it stored the cursor.
        self._appended = self._appended_already(cursor)
        self._pending: deque[Candidate] = deque()
        self._pending_bytes = 0
        self._looked_seconds = clock.monotonic()
        self._awaited = AwaitedSubscribers(ports.memory.awaited(), clock.monotonic())
        self._reports = PackageReports(lambda one: one == settings.publisher, max_queues=2 * MAX_MEMBERS)
        self._log = KnownLog(journal, settings.package_topic)
        self._discovery = journal.identity(settings.discovery_topic)
        discovery = journal.bounds(settings.discovery_topic)
        # Where announcements end now: no event is raised before they were read up to here, see `step`.
        self._announced_to = discovery.next_offset
        # The first new one, and so far back that all live subscribers are found.
        noted, recent = ports.memory.heard_to(self._discovery), discovery.next_offset - RETAINED_ANNOUNCEMENTS
        self._heard_to = Offset(max(discovery.earliest_offset, recent if noted is None else min(noted, recent)))
        self._packages = journal.reader(settings.package_topic, cursor.next_offset)
        self._announcements = journal.reader(settings.discovery_topic, self._heard_to)
        self._statuses = StatusFollower([self._reports], journal, settings.status_topic, clock)
        self._known = KnownReports(settings.publisher, self._reports, self._statuses.are_complete_since)

    @property
    def next_offset(self) -> Offset:
        """Everything below has had its event, or needs none."""
        return self._pending[0].offset if self._pending else self._packages.next_offset

    @property
    def is_settling(self) -> bool:
        """Whether something will count in a moment."""
        return self._awaited.is_settling(self._looked_seconds)

    def interrupt(self) -> None:
        """End the current or the next wait, from any thread."""
        self._announcements.interrupt()

    def close(self) -> None:
        self._packages.close()
        self._announcements.close()
        self._statuses.close()

    def step(self, wait_seconds: float) -> Sequence[DistributedEvent]:
        """Read new announcements, waiting so long at most, and raise due events; returns those.

        Raises: the journal's errors, and those of the publisher's state. Make a new run then.
        """
        has_changed = self._receive(wait_seconds)
        if self._announcements.next_offset < self._announced_to:
            return ()  # a subscriber that the package has to wait for may have joined
        # Statuses after announcements: a position counts only with the statuses that belong to it.
        while self._statuses.follow(0.0) or not self._statuses.is_caught_up:
            pass
        # After the announcements: a subscriber that announced itself just now is not silent.
        has_changed = self._drop_silent() or has_changed
        self._fill()
        raised: list[DistributedEvent] = []
        self._looked_seconds = self._ports.clock.monotonic()
        while ready := self._awaited.plan(self._pending, self._known, self._looked_seconds, _EVENTS_AT_ONCE):
            raised += self._raise(ready)
            self._fill()
        if self._awaited.has_absent and not self._pending:
            bounds = self._ports.journal.bounds(self._settings.package_topic)
            # Only at the end of the log: a package that is not read yet may have to name them.
            if self._packages.next_offset >= bounds.next_offset:
                self._awaited.forget_absent()
        unnoted = max(self.next_offset - self._noted, self._announcements.next_offset - self._heard_to)
        if has_changed or unnoted >= _IDLE_STRIDE:
            self._note()
        return raised

    # ------------------------------------------------------------------------------------------------------- reading

    def _receive(self, wait_seconds: float) -> bool:
        has_changed = False
        records = self._announcements.read(_ANNOUNCEMENTS, wait_seconds).records
        for record in records:
            announced = read_announcement(record)
            if announced is not None and announced.message is None:
                has_changed = self._awaited.leave(announced.queue_name) or has_changed
            elif announced is not None and announced.follows(self._settings.publisher):
                # Of those that come now the last one is from now, whatever the clock of the brokers says.
                is_new = record.offset >= self._announced_to
                now_ms = records[-1].appended_ms if is_new else milliseconds_now(self._ports.clock)
                has_changed = self._receive_one(announced, now_ms) or has_changed
        return has_changed

    def _receive_one(self, announced: Announced, now_ms: int) -> bool:
        clock = self._ports.clock
        now_seconds = clock.now().timestamp()
        age_seconds = max(0.0, (now_ms - announced.appended_ms) / 1000)
        position = self._log.believed(announced, announced.claimed_for(self._settings.publisher))
        # not later than now: the clock of the brokers may be ahead
        heard_ms = min(announced.appended_ms, int(now_seconds * 1000))
        message = announced.message
        facts = SubscriberFacts()
        if message is not None:
            facts = SubscriberFacts(message.is_editable, message.reports_of(self._settings.publisher))
        return self._awaited.apply(announced.queue_name, position, heard_ms, clock.monotonic() - age_seconds, facts)

    def _drop_silent(self) -> bool:
        clock = self._ports.clock
        now_ms = milliseconds_now(clock)
        gone = self._awaited.drop_silent(now_ms, clock.monotonic(), self._settings.silent_seconds)
        for queue in gone:
            _LOG.warning(
                "events of %s no longer wait for %s, which was silent for %g s",
                self._settings.publisher,
                queue,
                self._settings.silent_seconds,
                extra={"publisher": self._settings.publisher, "subscriber": queue.agent_name},
            )
        return bool(gone)

    def _fill(self) -> None:
        """Read packages up to the highest position that a subscriber claims."""
        # No package above the highest position can be distributed yet, so none is read.
        # One silent subscriber holds back all packages for `silent_seconds`: they must not fill the memory.
        while (
            len(self._pending) < _MOST_PENDING
            and self._pending_bytes < _MOST_PENDING_BYTES
            and self._packages.next_offset < self._awaited.horizon()
        ):
            batch = self._packages.read(_READ, 0.0)
            for record in batch.records:
                candidate = self._candidate(record)
                if candidate is not None:
                    self._pending.append(candidate)
                    self._pending_bytes += _path_bytes(candidate)
            if not batch.records:
                return

    def _candidate(self, record: Record) -> Candidate | None:
        message = readable_package(record)
        if message is None or message.action is Action.TEST:
            return None
        if message.pub_agent_name != self._settings.publisher:
            return None
        # Without the payload: up to `_MOST_PENDING` packages wait in memory.
        return Candidate(record.offset, record.appended_ms, message._replace(payload=None, binaries=()))

    # ------------------------------------------------------------------------------------------------------- raising

    def _raise(self, ready: Sequence[Distributed]) -> Sequence[DistributedEvent]:
        events = [_event(distributed, self._settings.publisher) for distributed in ready]
        # Jobs, events, cursor, in this order: after a crash the earlier ones are appended again or found, never lost.
        self._add_jobs(ready)
        fresh = [event for event in events if self._appended.get(event.offset) != event.package_id]
        appended = self._append(fresh) if fresh else ()
        self._beat(0.0)
        # A backlog of events is one long step: the beat above keeps the liveness probe from calling it stuck.
        self._ports.failpoints.reach(Failpoint.EVENTS_APPENDED)
        # `plan` returns the first of `_pending`, in order
        for _ in ready:
            self._pending_bytes -= _path_bytes(self._pending.popleft())
        self._note()
        self._ports.failpoints.reach(Failpoint.EVENTS_CURSOR_STORED)
        return appended

    def _append(self, events: Sequence[DistributedEvent]) -> Sequence[DistributedEvent]:
        """Append events in order; they are returned as appended: what is too long for a message is shortened."""
        try:
            records = [NewRecord(value, headers) for headers, value in map(encode_event, events)]
            self._event_offset = Offset(self._ports.journal.append(self._settings.event_topic, records)[-1] + 1)
        except MessageTooLargeError:  # before anything was written
            if len(events) > 1:
                return [appended for event in events for appended in self._append([event])]
            (event,) = events
            shortened = shortened_event(event)
            if shortened == event:
                raise
            _LOG.warning(
                "the event of package %s at offset %d is too long for topic %s; it names %s instead of %d paths",
                event.package_id,
                event.offset,
                self._settings.event_topic,
                shortened.paths[0] if shortened.paths else "none",
                len(event.paths),
                extra={"publisher": self._settings.publisher, "offset": event.offset},
            )
            return self._append([shortened])
        return events

    def _add_jobs(self, ready: Sequence[Distributed]) -> None:
        """Append the jobs before the events are noted; after a crash again, which the job topic's fold counts once."""
        jobs = [
            job
            for distributed in ready
            for rule in self._settings.job_rules
            if (job := rule.job(_package(distributed.candidate)))
        ]
        if jobs:
            ensure_job_topic(self._ports.journal)
            append_jobs(self._ports.journal, jobs)
            self._beat(0.0)

    def _note(self) -> None:
        self._noted, self._heard_to = self.next_offset, self._announcements.next_offset
        cursor = EventCursor(self._noted, self._event_offset)
        # Cursor and awaited subscribers are stored together: a newer cursor alone would forget whom later packages wait
        # for.
        awaited = StoredSubscribers(self._awaited.stored(), self._discovery, self._heard_to)
        self._ports.memory.advance(TOPIC_READER, self._identity, cursor, awaited)
        # After the cursor is stored: reports below it are not asked for again.
        self._reports.trim(self._noted)

    # ------------------------------------------------------------------------------------------------------ the start

    def _start(self) -> EventCursor:
        journal, memory, identity = self._ports.journal, self._ports.memory, self._identity
        found = begin_events(self._settings, journal, memory)
        events, bounds = journal.bounds(self._settings.event_topic), journal.bounds(self._settings.package_topic)
        # within the log: retention may have passed the cursor, or the log lost its end
        start = Offset(min(max(found.next_offset, bounds.earliest_offset), bounds.next_offset))
        # An end behind that of the topic is of an earlier one: events of this one may be anywhere.
        is_of_topic = found.event_offset <= events.next_offset
        event_offset = max(found.event_offset, events.earliest_offset) if is_of_topic else events.earliest_offset
        if start != found.next_offset:
            _LOG.warning(
                "events of %s go on at offset %d instead of %d: the log %s does not hold what is between",
                self._settings.publisher,
                start,
                found.next_offset,
                identity,
                extra={
                    "publisher": self._settings.publisher,
                    "topic": self._settings.package_topic,
                    "offset": start,
                },
            )
            memory.restart(TOPIC_READER, identity, EventCursor(start, event_offset))
        return EventCursor(start, event_offset)

    def _appended_already(self, cursor: EventCursor) -> dict[Offset, PackageId]:
        found: dict[Offset, PackageId] = {}
        for record in records_of(self._ports.journal, self._settings.event_topic, cursor.event_offset):
            self._beat(0.0)
            event = readable_event(record.headers, record.value)
            if event is not None and event.pub_agent_name == self._settings.publisher:
                found[event.offset] = event.package_id
        # Others in this part of the topic are of packages below the cursor, which are not raised again.
        return {offset: package_id for offset, package_id in found.items() if offset >= cursor.next_offset}


def _path_bytes(candidate: Candidate) -> int:
    return sum(map(len, candidate.message.paths))


def _package(candidate: Candidate) -> PackageEvent:
    message = candidate.message
    publisher = message.pub_agent_name
    return PackageEvent(
        "distributed",
        publisher or AgentName(""),
        candidate.offset,
        message.package_id,
        message.action,
        publisher,
        message.paths,
        message.deep_paths,
    )


def shortened_event(event: DistributedEvent) -> DistributedEvent:
    """The event with one common subtree instead of its paths, and fewer subscribers that lack it."""
    top = (common_ancestor(event.paths),) if event.paths else ()
    return replace(event, paths=top, deep_paths=top, missed=event.missed[:_MISSED_OF_LONG_EVENT])


def _event(one: Distributed, publisher: AgentName) -> DistributedEvent:
    message = one.candidate.message
    return DistributedEvent(
        publisher,
        message.package_id,
        one.candidate.offset,
        message.paths,
        message.deep_paths,
        one.missed,
        message.trace_parent,
    )
