"""Retention by consumption over a real journal: the head follows the slowest subscriber that counts, in any process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.config.storage import RetentionConfig
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import JournalUnavailableError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import JournalReader, NewRecord, Start
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import Action, DiscoveryMessage, PackageMessage, SubscriberState
from mailboat.retention.head_plan import Reason
from mailboat.retention.task import RETURN_SECONDS, RetentionSettings, RetentionTask, Turn
from mailboat.testing.clocks import ManualClock
from mailboat.wire.messages import encode_message
from support.retention import retention_section

SLING_ID = SlingId("a" * 36)
PACKAGES, DISCOVERY = TopicName("package"), TopicName("discovery")
SETTINGS = RetentionSettings(
    PACKAGES, DISCOVERY, retention_section(min_seconds=0, subscriber_timeout_seconds=7 * 86_400)
)
DAY = 86_400.0


class Log:
    """A journal with a clock that stands still."""

    def __init__(self, journal: MemoryJournal | SqliteJournal, clock: ManualClock) -> None:
        self.journal = journal
        self.clock = clock
        for topic in (PACKAGES, DISCOVERY):
            journal.ensure_topic(topic, TopicSettings(retention_seconds=7 * DAY))

    def publish(self, count: int = 1) -> None:
        message = PackageMessage(SLING_ID, PackageId("p"), Action.TEST, "tree", AgentName("author"))
        headers, value = encode_message(message)
        self.journal.append(PACKAGES, [NewRecord(value, headers)] * count)

    def announce(self, name: str, next_offset: int, *, is_durable: bool = True) -> None:
        message = DiscoveryMessage(
            SLING_ID,
            AgentName(name),
            (SubscriberState(AgentName("author"), next_offset - 1),),
            is_durable=is_durable,
            next_offset=Offset(next_offset),
            log_identity=self.journal.identity(PACKAGES),
        )
        headers, value = encode_message(message)
        self.journal.append(DISCOVERY, [NewRecord(value, headers, f"{SLING_ID}-{name}".encode())])

    def leave(self, name: str) -> None:
        self.journal.append(DISCOVERY, [NewRecord(b"", (), f"{SLING_ID}-{name}".encode())])

    def keeper(self, settings: RetentionSettings = SETTINGS) -> RetentionTask:
        return RetentionTask(self.journal, settings, self.clock)

    @property
    def head(self) -> int:
        return self.journal.bounds(PACKAGES).earliest_offset


@pytest.fixture(params=["memory", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    clock = ManualClock()
    if request.param == "memory":
        yield Log(MemoryJournal(clock), clock)
        return
    with SqliteJournal.create(tmp_path / "journal.db", clock) as journal:
        yield Log(journal, clock)


def test_the_head_follows_the_slowest_subscriber_turn_by_turn(log: Log) -> None:
    log.publish(10)
    log.announce("slow", 3)
    log.announce("fast", 9)
    keeper = log.keeper()
    turn = keeper.turn()
    assert (log.head, turn.plan.holders) == (3, ("slow",))
    assert turn.freed_bytes > 0
    log.announce("slow", 8)
    keeper.turn()
    assert log.head == 8
    log.publish(5)
    log.announce("slow", 15)
    log.announce("fast", 15)
    keeper.turn()
    assert log.head == 15
    keeper.close()


def test_a_turn_for_show_moves_nothing(log: Log) -> None:
    log.publish(10)
    log.announce("edge", 7)
    keeper = log.keeper()
    assert keeper.turn(is_applied=False).plan.head == 7
    assert (log.head, log.journal.bounds(DISCOVERY).next_offset) == (0, 1)
    keeper.close()


def test_a_turn_with_nothing_new_writes_nothing(log: Log) -> None:
    log.publish(10)
    log.announce("edge", 7)
    keeper = log.keeper()
    keeper.turn()
    before = log.journal.bounds(DISCOVERY)
    keeper.turn()
    assert log.journal.bounds(DISCOVERY) == before
    assert keeper.figures.moves == 1
    keeper.close()


def test_two_keepers_do_no_more_than_one(log: Log) -> None:
    log.publish(10)
    log.announce("edge", 7)
    keepers = [log.keeper(), log.keeper()]
    for keeper in keepers:
        keeper.turn()
    assert log.head == 7
    assert keepers[1].figures.moves == 0
    log.announce("edge", 9)
    for keeper in keepers:
        keeper.turn()
        keeper.close()
    assert log.head == 9


def test_a_durable_subscriber_is_still_known_when_the_log_forgot_its_announcement(log: Log) -> None:
    log.publish(10)
    log.announce("away", 2)
    settings = replace(SETTINGS, config=retention_section(min_seconds=0, subscriber_timeout_seconds=None))
    first = log.keeper(settings)
    for _ in range(20):
        log.announce("here", 10)
        first.turn()
        log.clock.advance(DAY)
        log.journal.truncate(DISCOVERY, Offset(max(0, log.journal.bounds(DISCOVERY).next_offset - 3)))
    first.close()
    second = log.keeper(settings)
    assert second.turn().plan.holders == ("away",)
    assert log.head == 2
    second.close()


def test_a_dead_subscriber_is_dropped_with_a_word_and_the_head_goes_on(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.publish(10)
    log.announce("dead", 2)
    keeper = log.keeper()
    keeper.turn()
    log.clock.advance(7 * DAY + 1)
    log.announce("alive", 10)
    turn = keeper.turn()
    assert [item.name for item in turn.dropped] == ["dead"]
    assert "dead was silent for too long" in caplog.text
    assert log.head == 10
    keeper.close()


def test_who_takes_leave_is_waited_for_no_more(log: Log) -> None:
    log.publish(10)
    log.announce("gone", 2)
    log.announce("here", 10)
    log.leave("gone")
    keeper = log.keeper()
    keeper.turn()
    assert log.head == 10
    keeper.close()


def test_who_leaves_while_the_registry_is_written_is_not_brought_back_by_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.publish(10)
    log.announce("here", 10)
    log.announce("gone", 0)
    keeper = log.keeper()
    apply = keeper._apply

    def leave_first(turn: Turn) -> None:
        log.leave("gone")
        apply(turn)

    with monkeypatch.context() as patch:
        patch.setattr(keeper, "_apply", leave_first)
        keeper.turn()
    log.announce("here", 10)
    keeper.turn()
    assert [one.name for one, _ in keeper.turn().registrations] == ["here"]
    assert log.head == 10
    keeper.close()


def test_after_an_outage_a_guest_has_time_to_announce_itself(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.publish(10)
    log.announce("guest", 4, is_durable=False)
    keeper = log.keeper()
    keeper.turn()
    log.clock.advance(300)

    def fail(_: object) -> object:
        raise JournalUnavailableError("down")

    with monkeypatch.context() as patch:
        patch.setattr(log.journal, "identity", fail)
        with pytest.raises(JournalUnavailableError):
            keeper.turn()
    assert keeper.turn().plan.holders == ("guest",)
    log.clock.advance(31)
    assert keeper.turn().plan.holders == ()
    keeper.close()


@pytest.mark.parametrize("is_outage", [False, True], ids=["start", "outage"])
def test_durable_subscribers_have_time_to_return(log: Log, monkeypatch: pytest.MonkeyPatch, is_outage: bool) -> None:
    def fail(_: object) -> object:
        raise JournalUnavailableError("down")

    log.publish(10)
    for name, next_offset in (("late", 4), ("dead", 2)):
        log.announce(name, next_offset)
    log.clock.advance(8 * DAY)  # all were away, for longer than silence is borne with
    log.announce("early", 9)
    keeper = log.keeper()
    if is_outage:
        with monkeypatch.context() as patch:
            patch.setattr(log.journal, "identity", fail)
            with pytest.raises(JournalUnavailableError):
                keeper.turn()
    else:
        keeper.await_announcements()
    assert (keeper.turn().dropped, log.head) == ((), 2)
    log.announce("late", 4)
    log.clock.advance(RETURN_SECONDS + 1)
    assert [item.name for item in keeper.turn().dropped] == ["dead"]
    assert log.head == 4
    keeper.close()


def test_a_registry_that_the_size_of_its_topic_removed_is_carried_forward_again(log: Log) -> None:
    log.publish(10)
    log.announce("away", 2)
    keeper = log.keeper()
    keeper.turn()
    log.journal.truncate(DISCOVERY, log.journal.bounds(DISCOVERY).next_offset)
    keeper.turn()
    keeper.close()
    restarted = log.keeper()
    assert restarted.turn().plan.holders == ("away",)
    restarted.close()


def test_the_ceiling_takes_packages_from_a_laggard_and_says_so(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.publish(10)
    log.announce("laggard", 2)
    log.clock.advance(3600)
    log.publish(5)
    keeper = log.keeper(replace(SETTINGS, config=retention_section(min_seconds=0, max_seconds=1800)))
    turn = keeper.turn()
    assert turn.plan.reason is Reason.CEILING
    assert "laggard at offset 2 loses the packages before" in caplog.text
    assert log.head == 9  # the newest that is too old stays as the place to cut
    keeper.close()


def test_a_changed_policy_holds_from_the_first_turn_after_a_start(log: Log) -> None:
    log.publish(10)
    log.announce("edge", 10)
    careful = log.keeper(replace(SETTINGS, config=retention_section(min_seconds=DAY)))
    assert careful.turn().plan.reason is Reason.FLOOR
    careful.close()
    assert log.head == 0
    changed = log.keeper()
    changed.turn()
    changed.close()
    assert log.head == 10


def test_without_consumption_age_and_size_alone_move_the_head(log: Log) -> None:
    log.publish(10)
    log.announce("edge", 9)
    log.clock.advance(DAY)
    log.publish(5)
    settings = replace(SETTINGS, config=RetentionConfig(package_seconds=DAY / 2), is_by_consumption=False)
    keeper = log.keeper(settings)
    turn = keeper.turn()
    keeper.close()
    assert (log.head, turn.plan.reason, turn.plan.losers) == (9, Reason.EXPIRED, ())  # the newest of the old stays
    assert (keeper.figures.removed, keeper.figures.losses) == (9, 0)


def test_what_is_no_announcement_is_passed_by(log: Log) -> None:
    log.publish(10)
    log.journal.append(DISCOVERY, [NewRecord(b"\xff", (("type", b"1"), ("version", b"1"))), NewRecord(b"", ())])
    log.announce("edge", 4)
    keeper = log.keeper()
    keeper.turn()
    assert log.head == 4
    keeper.close()


@pytest.mark.parametrize("missing", [PACKAGES, DISCOVERY])
def test_a_keeper_that_could_not_open_a_reader_begins_again(
    log: Log, missing: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.publish(10)
    log.announce("away", 3)
    keeper, opened = log.keeper(), log.journal.reader

    def reader(topic: TopicName, start: Start) -> JournalReader:
        if topic == missing:
            raise JournalUnavailableError("an outage")
        return opened(topic, start)

    with monkeypatch.context() as patch:
        patch.setattr(log.journal, "reader", reader)
        with pytest.raises(JournalUnavailableError):
            keeper.turn()
    assert (keeper.turn().plan.holders, log.head) == (("away",), 3)
    keeper.close()


def test_durable_subscribers_are_known_over_a_discovery_topic_that_was_created_again(log: Log) -> None:
    log.publish(10)
    log.announce("away", 3)
    log.announce("edge", 8)
    keeper = log.keeper()
    keeper.turn()
    log.journal.upkeep.delete_topic(DISCOVERY)
    log.journal.ensure_topic(DISCOVERY, TopicSettings())
    log.announce("edge", 10)
    assert (keeper.turn().plan.holders, log.head) == (("away",), 3)
    keeper.close()
    another = log.keeper()  # knows it from the registry, which was carried into the new topic
    assert (another.turn().plan.holders, log.head) == (("away",), 3)
    log.announce("away", 9)
    log.leave("edge")
    another.turn()
    assert log.head == 9
    another.close()


def test_a_keeper_that_retention_overtook_starts_again(log: Log) -> None:
    log.publish(10)
    log.announce("edge", 10)
    keeper = log.keeper(replace(SETTINGS, config=retention_section(min_seconds=10**9)))
    keeper.turn()
    log.publish(10)
    log.journal.truncate(PACKAGES, Offset(15))
    turn = keeper.turn()
    assert (turn.bounds.earliest_offset, turn.plan.head) == (15, 15)
    keeper.close()
