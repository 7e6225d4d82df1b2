"""Threads that live as long as the process does go on after a defect, and tell of it with its trace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mailboat.config.receivers import WebhookConfig
from mailboat.config.topic_settings import TopicSettings
from mailboat.discovery.announcer import announcer
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import RecordBatch
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.messages import DiscoveryMessage
from mailboat.model.positions import LogIdentity, Position
from mailboat.publisher.distributed_memory import EventCursor
from mailboat.publisher.distributed_notifier import DistributedNotifier, EventPorts, EventSettings
from mailboat.subscriber.commands import CommandListener
from mailboat.subscriber.subscriber_settings import SubscriberSettings
from mailboat.telemetry.event_delivery import DeliveryPorts, EventDelivery, EventReceiver
from mailboat.telemetry.package_events import PackageEvents
from mailboat.telemetry.webhook_client import WebhookSender
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.wait import PATIENCE_SECONDS

AUTHOR, EDGE, TOPIC = AgentName("author"), AgentName("edge"), TopicName("topic")


class FailingMemory:
    """A memory whose first lease fails by a defect."""

    def __init__(self) -> None:
        self.asked = 0
        self.again = threading.Event()

    @contextmanager
    def lease(self, *_: object) -> Iterator[bool]:
        self.asked += 1
        if self.asked == 1:
            raise RecursionError("a defect")
        self.again.set()
        yield False

    def cursor(self, *_: object) -> EventCursor:
        return EventCursor(Offset(0), Offset(0))


def log() -> MemoryJournal:
    journal = MemoryJournal(SkippingClock())
    journal.ensure_topic(TOPIC, TopicSettings())
    return journal


def test_a_defect_does_not_end_a_publishers_events(caplog: pytest.LogCaptureFixture) -> None:
    memory: Any = FailingMemory()
    notifier = DistributedNotifier(EventSettings(AUTHOR, TOPIC), EventPorts(log(), memory, SkippingClock()))
    notifier.start()
    assert memory.again.wait(PATIENCE_SECONDS)
    notifier.stop(PATIENCE_SECONDS)
    assert notifier.statistics.failures == 1
    assert "RecursionError" in caplog.text


def test_a_defect_does_not_end_a_delivery(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    memory: Any = FailingMemory()
    monkeypatch.setattr(EventDelivery, "_cursor", lambda _: EventCursor(Offset(0), Offset(0)))
    journal, sender = log(), WebhookSender(WebhookConfig("crm"), "http://127.0.0.1:9/")
    source = PackageEvents(journal, AUTHOR, topic=TOPIC)
    delivery = EventDelivery(
        EventReceiver(AUTHOR, "crm"), DeliveryPorts(journal, memory, SkippingClock(), source, sender)
    )
    delivery.start()
    assert memory.again.wait(PATIENCE_SECONDS)
    delivery.stop(PATIENCE_SECONDS)
    assert delivery.statistics.failed == 1
    assert "RecursionError" in caplog.text


def test_a_defect_does_not_end_announcements(caplog: pytest.LogCaptureFixture) -> None:
    failures, again = iter([RecursionError("a defect")]), threading.Event()

    def compose() -> DiscoveryMessage:
        for failure in failures:
            raise failure
        again.set()
        return DiscoveryMessage(SlingId("s" * 36), EDGE, ())

    worker = announcer(log(), TOPIC, compose, SkippingClock())
    worker.start()
    assert again.wait(PATIENCE_SECONDS)
    worker.stop(PATIENCE_SECONDS)
    assert worker.failures == 1
    assert "RecursionError" in caplog.text


def test_a_defect_does_not_end_the_hearing_of_commands(caplog: pytest.LogCaptureFixture) -> None:
    again = threading.Event()
    listener = CommandListener(SubscriberSettings(EDGE, SlingId("s" * 36)), TOPIC, log(), SkippingClock(), lambda: None)
    listener.catch_up(Position(LogIdentity("", ""), Offset(0)))
    read, failures = listener._read, iter([RecursionError("a defect")])

    def reading(wait_seconds: float) -> RecordBatch:
        for failure in failures:
            raise failure
        again.set()
        return read(wait_seconds)

    listener._read = reading  # type: ignore[method-assign]  # a defect can't be made from outside
    listener.start()
    assert again.wait(PATIENCE_SECONDS)
    listener.close()
    assert "RecursionError" in caplog.text
