"""The thread that hears commands: how much it holds, and that an outage makes it miss nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mailboat.errors import JournalUnavailableError
from mailboat.model.identifiers import Offset
from mailboat.model.messages import (
    CommandMessage,
)
from mailboat.model.positions import Position
from mailboat.subscriber.commands import MOST_UNTAKEN, CommandHandler, CommandListener
from mailboat.subscriber.subscriber_settings import SubscriberPorts, SubscriberSettings
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.engines import AUTHOR, COMMANDS, EDGE, PACKAGES, SLING_ID, Engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path) as opened:
        yield opened


def clear(command_id: str) -> CommandMessage:
    return CommandMessage(SLING_ID, EDGE, Offset(0), AUTHOR, command_id)


def test_a_listener_holds_no_more_than_its_bound(engine: Engine) -> None:
    listener = CommandListener(
        SubscriberSettings(EDGE, SLING_ID), COMMANDS, engine.journal, engine.parts.clock, lambda: None
    )
    listener.catch_up(Position(engine.journal.identity(COMMANDS), Offset(0)))
    listener.start()
    try:
        for _ in range(5):
            engine.send(COMMANDS, *(clear(f"clear-{number}") for number in range(500)))
        wait_until(lambda: held(listener) >= MOST_UNTAKEN)
        assert held(listener) < 2 * MOST_UNTAKEN + 1
        total = 0
        while total < 2500:
            count = held(listener)
            listener.drop(count)
            total += count
        assert total == 2500
    finally:
        listener.close()


def test_a_listener_holds_no_more_than_its_bound_of_what_was_sent_before_its_start(engine: Engine) -> None:
    engine.send(COMMANDS, *(clear(f"clear-{number}") for number in range(2500)))
    listener = CommandListener(
        SubscriberSettings(EDGE, SLING_ID), COMMANDS, engine.journal, engine.parts.clock, lambda: None
    )
    try:
        listener.catch_up(Position(engine.journal.identity(COMMANDS), Offset(0)))
        listener.start()
        total, most = 0, 0
        while not listener.read_on() or held(listener):
            most = max(most, held(listener))
            total += held(listener)
            listener.drop(held(listener))
        assert total == 2500
        assert most < 2 * MOST_UNTAKEN
    finally:
        listener.close()


def held(listener: CommandListener) -> int:
    heard = listener.untaken()
    return 0 if heard is None else len(heard[0])


class Unreachable:
    """A journal whose readers fail for a while."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.is_down = False
        self.refusals = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def reader(self, topic: Any, start: Any) -> Any:
        return UnreachableReader(self, self._journal.reader(topic, start))


class UnreachableReader:
    """Reads in short looks, so that an outage is met soon."""

    def __init__(self, journal: Unreachable, reader: Any) -> None:
        self._journal = journal
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, limits: Any, wait_seconds: float) -> Any:
        if self._journal.is_down:
            self._journal.refusals += 1
            raise JournalUnavailableError("the journal is away")
        return self._reader.read(limits, min(wait_seconds, 0.02))


def test_a_listener_hears_what_was_sent_during_an_outage(engine: Engine) -> None:
    journal = Unreachable(engine.journal)
    listener = CommandListener(SubscriberSettings(EDGE, SLING_ID), COMMANDS, journal, SkippingClock(), lambda: None)
    listener.catch_up(Position(engine.journal.identity(COMMANDS), Offset(0)))
    listener.start()
    try:
        journal.is_down = True
        wait_until(lambda: journal.refusals > 0)
        engine.send(COMMANDS, clear("clear-1"))
        journal.is_down = False
        wait_until(lambda: held(listener) == 1)
    finally:
        listener.close()


def test_a_subscriber_listens_after_an_outage_at_its_start(engine: Engine) -> None:
    journal, heard = Unreachable(engine.journal), threading.Event()
    with closing(engine.target("sqlite")) as target:
        ports = SubscriberPorts(journal, engine.blobs, engine.parts.codecs, SkippingClock(), target=target)
        with closing(CommandHandler(engine.with_settings(command_topic=COMMANDS), ports, heard.set)) as handler:
            journal.is_down = True
            with pytest.raises(JournalUnavailableError):
                handler.listen()
            journal.is_down = False
            handler.listen()
            handler.take(Position(engine.journal.identity(PACKAGES), Offset(0)), lambda _: False)
            engine.send(COMMANDS, clear("clear-1"))
            assert heard.wait(PATIENCE_SECONDS)
