"""What the processes of the events' crash tests do: raise a day's events, or post them, until they die or are done.

Each function is the whole of a child process, and finds in its folder what an earlier one has left.
"""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Final

from mailboat.clock import SystemClock
from mailboat.config.receivers import WebhookConfig
from mailboat.config.topic_settings import TopicSettings
from mailboat.control.job_service import JobService
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.journal.port import Edge, NewRecord, ReadLimits, records_of
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.jobs import NewJob
from mailboat.model.messages import (
    JOB_TOPIC,
    Action,
    DiscoveryMessage,
    DistributedEvent,
    PackageMessage,
    PackageStatus,
    ReportStart,
    StatusMessage,
    SubscriberState,
    TopicRole,
)
from mailboat.model.paths import NodePath
from mailboat.publisher.distributed_memory import WEBHOOK_READER, EventMemory
from mailboat.publisher.distributed_notifier import EventPorts, EventRun, EventSettings
from mailboat.telemetry.event_delivery import DeliveryPorts, EventDelivery, EventReceiver
from mailboat.telemetry.job_events import JobEvents
from mailboat.telemetry.notices import EventFilter
from mailboat.telemetry.package_events import PackageEvents
from mailboat.telemetry.topic_sender import TopicSender
from mailboat.telemetry.webhook_client import WebhookSender
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat.wire.event_documents import decode_event
from mailboat.wire.messages import encode_message
from support.crashes import KillingFailpoints

AUTHOR: Final = AgentName("author")
EDGE: Final = AgentName("edge")
SLING_ID: Final = SlingId("5a1e0000-0000-4000-8000-000000000001")
PACKAGES: Final = 250
JOB_BATCH: Final = 250
JOB_BATCHES: Final = 3
"""More events than are appended together."""
EVENTS: Final = TopicName(TopicRole.EVENT)
_MOST_SECONDS: Final = PATIENCE_SECONDS
_SETTLED_SECONDS: Final = 1.5


def prepare(folder: Path) -> None:
    """A publisher that has started, and then 250 packages that one subscriber has imported or given up."""
    with SqliteJournal.create(folder / "journal.db", ManualClock()) as journal:
        for role in TopicRole:
            journal.ensure_topic(TopicName(role), TopicSettings(retention_seconds=None))
    raise_events(str(folder))
    with SqliteJournal(folder / "journal.db", ManualClock()) as journal:
        for number in range(PACKAGES):
            paths = (NodePath(f"/page-{number}"),)
            _append(journal, PackageMessage(SLING_ID, PackageId(f"p{number}"), Action.ADD, "tree", AUTHOR, paths=paths))
        _append(journal, StatusMessage(SLING_ID, EDGE, AUTHOR, Offset(7), PackageStatus.REMOVED_FAILED))
        state = SubscriberState(AUTHOR, PACKAGES - 1, reports=ReportStart(Offset(0)))
        _append(journal, DiscoveryMessage(SLING_ID, EDGE, (state,)))


def raise_events(folder: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Raise all events that are due; at the n-th time that `failpoint` is reached, die."""
    clock, memory = ManualClock(), EventMemory(Path(folder) / "author.db")
    with SqliteJournal(Path(folder) / "journal.db", clock) as journal:
        run = EventRun(EventSettings(AUTHOR), EventPorts(journal, memory, clock, _failpoints(failpoint, count)))
        run.step(0.0)
        clock.advance(_SETTLED_SECONDS)
        run.step(0.0)
        run.close()
    memory.close()


def post_events(folder: str, url: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Post all events that are there; at the n-th time that `failpoint` is reached, die."""
    clock, memory = SystemClock(), EventMemory(Path(folder) / "author.db")
    with SqliteJournal(Path(folder) / "journal.db", clock) as journal:
        source, sender = PackageEvents(journal, AUTHOR, topic=EVENTS), WebhookSender(WebhookConfig("crm"), url)
        ports = DeliveryPorts(journal, memory, clock, source, sender, _failpoints(failpoint, count))
        delivery = EventDelivery(EventReceiver(AUTHOR, WEBHOOK_READER), ports)
        delivery.start()
        _await_end(journal, EVENTS, memory, WEBHOOK_READER)
        delivery.stop()
    memory.close()


def add_jobs(folder: Path) -> list[str]:
    """Add jobs whose events need two appends; their ids."""
    clock = SystemClock()
    with SqliteJournal(folder / "journal.db", clock) as journal:
        service = JobService(lambda: journal, clock, random.Random(1))
        added = [item.job for _ in range(JOB_BATCHES) for item in service.add([NewJob("mail")] * JOB_BATCH)]
        service.close()
    return added


def append_job_events(folder: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Append the events of all jobs that are there to the event topic; at the n-th append, die."""
    clock, memory = SystemClock(), EventMemory(Path(folder) / "author.db")
    file = Path(folder) / "journal.db"
    with SqliteJournal(file, clock) as journal, SqliteJournal(file, clock) as own:
        source, sender = JobEvents(journal, EventFilter(jobs=("**",)), JOB_TOPIC), TopicSender(own, EVENTS)
        receiver = EventReceiver(AUTHOR, EVENTS, "topic")
        ports = DeliveryPorts(own, memory, clock, source, sender, _failpoints(failpoint, count))
        delivery = EventDelivery(receiver, ports)
        delivery.start()
        _await_end(journal, JOB_TOPIC, memory, receiver.reader)
        delivery.stop()
    memory.close()


def job_events_of(folder: Path) -> list[str]:
    """The jobs whose events stand in the log."""
    with SqliteJournal(folder / "journal.db", ManualClock()) as journal:
        return [json.loads(record.value)["subject"] for record in records_of(journal, EVENTS)]


def events_of(folder: Path) -> list[DistributedEvent]:
    """The events that stand in the log."""
    with SqliteJournal(folder / "journal.db", ManualClock()) as journal:
        reader = journal.reader(EVENTS, Edge.EARLIEST)
        records = reader.read(ReadLimits(100_000, 1 << 30), 0.0).records
        reader.close()
    return [decode_event(record.headers, record.value) for record in records]


def _append(journal: SqliteJournal, message: PackageMessage | StatusMessage | DiscoveryMessage) -> None:
    headers, value = encode_message(message)
    role = {PackageMessage: TopicRole.PACKAGE, StatusMessage: TopicRole.STATUS}.get(type(message), TopicRole.DISCOVERY)
    journal.append(TopicName(role), [NewRecord(value, headers)])


def _await_end(journal: SqliteJournal, topic: TopicName, memory: EventMemory, reader: str) -> None:
    """Wait until the reader has stored the end of the topic."""
    identity, end = journal.identity(topic), journal.bounds(topic).next_offset
    clock, never = SystemClock(), threading.Event()
    started = clock.monotonic()
    while clock.monotonic() - started < _MOST_SECONDS:
        cursor = memory.cursor(reader, identity)
        if cursor is not None and cursor.next_offset >= end:
            break
        never.wait(0.02)


def _failpoints(failpoint: Failpoint | None, count: int) -> Failpoints:
    return NoFailpoints() if failpoint is None else KillingFailpoints(failpoint, count)
