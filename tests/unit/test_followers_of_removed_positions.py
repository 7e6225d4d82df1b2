"""A follower of a topic starts over when its position was removed, also if the journal is away at that moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from mailboat.clock import Clock, SystemClock
from mailboat.config.document import StagingConfig
from mailboat.config.topic_settings import TopicSettings
from mailboat.discovery.roster import Roster, RosterFollower
from mailboat.errors import JournalUnavailableError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import Journal, NewRecord
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.messages import CommandMessage, PackageStatus, StatusMessage
from mailboat.model.positions import Position
from mailboat.queues.log_follower import LogFollower
from mailboat.queues.log_view import LogView
from mailboat.queues.statuses import StatusFollower
from mailboat.subscriber.commands import CommandListener
from mailboat.subscriber.golden_watch import GoldenWatch
from mailboat.subscriber.subscriber_settings import SubscriberSettings
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat.wire.messages import encode_message

TOPIC = TopicName("topic")
NAME, GOLDEN, SLING_ID = AgentName("edge"), AgentName("golden"), SlingId("5" * 36)
Step = Callable[[], object]


class FlakyJournal:
    """A journal whose `reader` can't be reached as often as is said."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal
        self.outages = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def reader(self, *words: Any) -> Any:
        if self.outages:
            self.outages -= 1
            raise JournalUnavailableError("the journal is away")
        return self._journal.reader(*words)


def following_log(journal: Journal, _: ManualClock) -> Step:
    follower = LogFollower(LogView(TOPIC, {AgentName("author")}, journal.bounds(TOPIC)), journal)
    return lambda: follower.follow(0.0)


def following_statuses(journal: Journal, clock: ManualClock) -> Step:
    follower = StatusFollower([], journal, TOPIC, clock)
    return lambda: follower.follow(0.0)


def following_announcements(journal: Journal, clock: ManualClock) -> Step:
    follower = RosterFollower(Roster(clock), journal, TOPIC)
    return lambda: follower.follow(0.0)


def golden_watch(journal: Journal, clock: ManualClock) -> GoldenWatch:
    settings: Any = SimpleNamespace(status_topic=TOPIC, package_topic=TOPIC, discovery_topic=None)
    ports: Any = SimpleNamespace(journal=journal, clock=clock)
    return GoldenWatch(StagingConfig(GOLDEN), settings, ports)


def watching_golden(journal: Journal, clock: ManualClock) -> Step:
    watch = golden_watch(journal, clock)
    watch.start_at(Offset(0))
    return lambda: watch._read(0.0)


def memory_journal(clock: Clock) -> MemoryJournal:
    journal = MemoryJournal(clock)
    journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=None))
    journal.append(TOPIC, [NewRecord(b"1"), NewRecord(b"2"), NewRecord(b"3")])
    return journal


def lose_place(journal: MemoryJournal) -> None:
    """Put the head beyond everything that was there so far."""
    journal.append(TOPIC, [NewRecord(b"4"), NewRecord(b"5"), NewRecord(b"6")])
    journal.truncate(TOPIC, Offset(5))


@pytest.mark.parametrize(
    "begin", [following_log, following_statuses, following_announcements, watching_golden], ids=lambda one: one.__name__
)
def test_a_follower_starts_over_although_the_journal_was_away(
    begin: Callable[[Any, ManualClock], Step],
) -> None:
    clock = ManualClock()
    journal = memory_journal(clock)
    flaky = FlakyJournal(journal)
    step = begin(flaky, clock)
    lose_place(journal)
    flaky.outages = 1
    with pytest.raises(JournalUnavailableError, match="is away"):
        step()
    step()
    step()
    assert flaky.outages == 0


def test_a_staged_subscriber_that_goes_back_while_the_journal_is_away_hears_all_statuses_again() -> None:
    clock = ManualClock()
    journal = memory_journal(clock)
    golden = StatusMessage(SLING_ID, GOLDEN, AgentName("author"), Offset(0), PackageStatus.IMPORTED)
    headers, value = encode_message(golden)
    journal.append(TOPIC, [NewRecord(value, headers)])
    flaky: Any = FlakyJournal(journal)
    watch = golden_watch(flaky, clock)
    watch.start_at(Offset(3))
    watch._read(0.0)
    assert watch._statuses.of(Offset(3)) is None
    flaky.outages = 1
    with pytest.raises(JournalUnavailableError, match="is away"):
        watch.start_at(Offset(0))
    watch.start_at(Offset(0))
    watch._read(0.0)
    assert watch._statuses.of(Offset(0)) is PackageStatus.IMPORTED


def test_commands_are_heard_after_a_journal_was_away_while_the_topic_was_begun_again() -> None:
    journal = memory_journal(SystemClock())
    flaky: Any = FlakyJournal(journal)
    heard = threading.Event()
    listener = CommandListener(SubscriberSettings(NAME, SLING_ID), TOPIC, flaky, SystemClock(), heard.set)
    listener.catch_up(Position(journal.identity(TOPIC), Offset(0)))
    lose_place(journal)
    headers, value = encode_message(CommandMessage(SLING_ID, NAME, Offset(7)))
    journal.append(TOPIC, [NewRecord(value, headers)])
    flaky.outages = 1
    listener.start()
    try:
        assert heard.wait(PATIENCE_SECONDS)
    finally:
        listener.close()
