"""Distributed events: the thread that raises them, beside another process and over a journal that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.errors import JournalUnavailableError
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.messages import (
    DistributedEvent,
)
from mailboat.publisher.distributed_memory import TOPIC_READER, EventCursor, EventMemory
from mailboat.publisher.distributed_notifier import DistributedNotifier, EventPorts
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.event_world import SETTINGS, World


def notifier(world: World, memory: EventMemory | None = None, **changes: object) -> DistributedNotifier:
    ports = EventPorts(world.journal, memory or world.memory, world.clock)
    return DistributedNotifier(SETTINGS, ports, **changes)  # type: ignore[arg-type]  # the tests' own keywords


def wait_in(world: World, condition: Callable[[], bool]) -> None:
    """Wait until it is so, while the world's time goes on."""

    def look() -> bool:
        world.clock.advance(0.05)  # no one is silent before a thread was held up for half a minute
        return condition()

    wait_until(look)


def test_what_is_published_right_after_the_first_start_has_its_event(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, work = threading.Event(), DistributedNotifier._raise_until_stopped

    def late(one: DistributedNotifier) -> None:
        assert go_on.wait(PATIENCE_SECONDS)
        work(one)

    monkeypatch.setattr(DistributedNotifier, "_raise_until_stopped", late)
    with closing(EventMemory(tmp_path / "new.db", "OFF")) as memory:
        one = notifier(world, memory)
        one.start()
        world.publish()
        go_on.set()
        world.announce("a", 1)
        wait_in(world, lambda: len(world.events()) == 1)
        one.stop()


def test_of_two_processes_that_begin_at_once_the_first_one_says_where(world: World, tmp_path: Path) -> None:
    identity = world.journal.identity(SETTINGS.package_topic)
    with closing(EventMemory(tmp_path / "new.db", "OFF")) as memory:
        for end in (5, 6):
            memory.begin(TOPIC_READER, identity, EventCursor(Offset(end), Offset(0)))
        assert memory.cursor(TOPIC_READER, identity) == (5, 0)


def test_of_two_processes_one_raises_events_and_the_other_takes_over(world: World, tmp_path: Path) -> None:
    second_memory = EventMemory(tmp_path / "author.db", "OFF")
    first, second = notifier(world), notifier(world, second_memory)
    first.start()
    wait_in(world, lambda: first.statistics.is_raising)
    second.start()
    world.publish()
    world.announce("a", 1)
    wait_in(world, lambda: len(world.events()) == 1)
    assert not second.statistics.is_raising
    first.stop()
    world.publish()
    world.announce("a", 2)
    wait_in(world, lambda: second.statistics.is_raising and len(world.events()) == 2)
    second.stop()
    second_memory.close()
    assert [event.offset for event in world.events()] == [0, 1]


def test_a_journal_that_fails_is_waited_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[DistributedEvent] = []
    working = world.journal.append
    failures = iter([JournalUnavailableError("away"), JournalUnavailableError("away")])

    def append(topic: TopicName, records: list[NewRecord]) -> object:
        error = next(failures, None) if topic == "event" else None
        if error is not None:
            raise error
        return working(topic, records)

    monkeypatch.setattr(world.journal, "append", append)
    one = notifier(world, listener=heard.extend)
    one.start()
    wait_in(world, lambda: one.statistics.is_raising)
    world.publish()
    world.announce("a", 1)
    wait_in(world, lambda: bool(heard))
    one.stop()
    assert one.statistics.failures == 2
    assert one.statistics.raised == 1
    assert [event.offset for event in world.events()] == [0]
