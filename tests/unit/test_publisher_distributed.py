"""Distributed events: when a package counts as distributed, whatever subscribers and processes do meanwhile."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import JournalUnavailableError
from mailboat.failpoints import Failpoint, NoFailpoints
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import Edge, NewRecord, ReadLimits, TopicSettings
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import (
    Action,
    DiscoveryMessage,
    DistributedEvent,
    Missed,
    MissedReason,
    PackageMessage,
    PackageStatus,
    StatusMessage,
    SubscriberState,
    TopicRole,
)
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity
from mailboat.publisher.distributed import MAX_FAILED, MAX_MEMBERS, Audience, Verdicts
from mailboat.publisher.distributed_memory import TOPIC_READER, EventCursor, EventMemory
from mailboat.publisher.distributed_notifier import DistributedNotifier, NotifierPorts
from mailboat.publisher.distributed_run import EventPorts, EventRun, EventSettings
from mailboat.queues.announced import RETAINED_ANNOUNCEMENTS
from mailboat.queues.names import QueueName
from mailboat.testing.clocks import ManualClock
from mailboat.wire.events import decode_event
from mailboat.wire.messages import encode_message

AUTHOR = AgentName("author")
SLING = SlingId("5a1e0000-0000-4000-8000-000000000001")
SETTINGS = EventSettings(AUTHOR, silent_seconds=300.0)
SETTLED = 1.1
SILENT = 301.0


class CrashError(BaseException):
    """The process would be dead now."""


@dataclass
class CrashingFailpoints:
    """Crashes at the next time that the step is reached."""

    at: Failpoint | None = None

    def reach(self, failpoint: Failpoint) -> None:
        if failpoint is self.at:
            self.at = None
            raise CrashError(failpoint)


def name_of(subscriber: str) -> str:
    return f"{SLING}-{subscriber}"


@dataclass
class World:
    """A publisher's log and whoever speaks on it."""

    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)
    failpoints: CrashingFailpoints = field(default_factory=CrashingFailpoints)

    def __post_init__(self) -> None:
        self.journal = MemoryJournal(self.clock)
        for role in TopicRole:
            self.journal.ensure_topic(TopicName(role), TopicSettings(retention_seconds=None))
        self.memory = EventMemory(self.folder / "author.db", "OFF")
        self.run: EventRun | None = None
        self.start()

    def stop(self) -> None:
        if self.run is not None:
            self.run.close()
        self.run = None

    def start(self) -> None:
        self.stop()
        self.run = EventRun(SETTINGS, EventPorts(self.journal, self.memory, self.clock, self.failpoints))

    def step(self) -> list[DistributedEvent]:
        assert self.run is not None
        return list(self.run.step(0.0))

    def settle(self) -> list[DistributedEvent]:
        """What is raised now, and after positions had time to settle."""
        found = self.step()
        self.clock.advance(SETTLED)
        return found + self.step()

    def publish(self, action: Action = Action.ADD, publisher: str = "author") -> Offset:
        end = self.journal.bounds(TopicName("package")).next_offset
        message = PackageMessage(
            SLING, PackageId(f"dstrpck-{end}"), action, "tree", AgentName(publisher), paths=(NodePath(f"/p{end}"),)
        )
        return self.append("package", message)

    def announce(self, subscriber: str, next_offset: int, identity: LogIdentity | None = None) -> None:
        states = (SubscriberState(AUTHOR, next_offset - 1),)
        self.append("discovery", DiscoveryMessage(SLING, AgentName(subscriber), states, log_identity=identity))

    def announce_all(self, subscriber: str, next_offset: int) -> None:
        """As one that follows all, and has seen nothing of this publisher yet."""
        states = (SubscriberState(AgentName("other"), next_offset - 1),)
        message = DiscoveryMessage(
            SLING, AgentName(subscriber), states, next_offset=Offset(next_offset), follows_all=True
        )
        self.append("discovery", message)

    def say(self, subscriber: str, offset: int, status: PackageStatus) -> None:
        self.append("status", StatusMessage(SLING, AgentName(subscriber), AUTHOR, Offset(offset), status))

    def append(self, topic: str, message: PackageMessage | DiscoveryMessage | StatusMessage) -> Offset:
        headers, value = encode_message(message)
        return self.journal.append(TopicName(topic), [NewRecord(value, headers)])[0]

    def events(self) -> list[DistributedEvent]:
        reader = self.journal.reader(TopicName("event"), Edge.EARLIEST)
        records = reader.read(ReadLimits(100_000, 1 << 30), 0.0).records
        reader.close()
        return [decode_event(record.headers, record.value) for record in records]

    def close(self) -> None:
        if self.run is not None:
            self.run.close()
        self.memory.close()
        self.journal.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_package_is_distributed_when_all_known_subscribers_are_past_it(world: World) -> None:
    world.announce("a", 0)
    world.announce("b", 0)
    world.step()
    offset = world.publish()
    world.announce("a", 1)
    assert world.settle() == []
    world.announce("b", 1)
    assert world.settle() == [
        DistributedEvent(AUTHOR, PackageId("dstrpck-0"), offset, (NodePath("/p0"),)),
    ]


def test_a_subscriber_that_took_leave_is_neither_waited_for_nor_named(world: World) -> None:
    world.announce("a", 0)
    world.announce("gone", 0)
    world.step()
    world.publish()
    world.append("discovery", DiscoveryMessage(SLING, AgentName("gone"), ()))
    world.announce("a", 1)
    assert [one.missed for one in world.settle()] == [()]


def test_a_package_waits_for_somebody_where_nobody_is_known(world: World) -> None:
    world.publish()
    assert world.settle() == []
    world.announce("late", 1)
    assert [one.offset for one in world.settle()] == [0]


def test_a_position_counts_once_its_statuses_must_be_there(world: World) -> None:
    world.publish()
    world.announce("a", 1)
    assert world.step() == []
    world.say("a", 0, PackageStatus.REMOVED_FAILED)
    (event,) = world.step()
    assert event.missed == (Missed(name_of("a"), MissedReason.FAILED),)


def test_a_confirmed_package_needs_no_time_to_settle(world: World) -> None:
    world.publish()
    world.announce("a", 1)
    world.say("a", 0, PackageStatus.IMPORTED)
    assert [one.offset for one in world.step()] == [0]


def test_a_cleared_package_says_who_does_not_have_it(world: World) -> None:
    world.publish()
    world.publish()
    world.say("a", 0, PackageStatus.REMOVED)
    world.say("a", 1, PackageStatus.IMPORTED)
    world.announce("a", 2)
    first, second = world.settle()
    assert first.missed == (Missed(name_of("a"), MissedReason.REMOVED),)
    assert second.missed == ()


def test_a_package_that_was_driven_again_counts_as_imported(world: World) -> None:
    world.publish()
    world.say("a", 0, PackageStatus.REMOVED_FAILED)
    world.say("a", 0, PackageStatus.IMPORTED)
    world.announce("a", 1)
    (event,) = world.settle()
    assert event.missed == ()


def test_a_subscriber_that_falls_silent_is_waited_for_and_then_named(world: World) -> None:
    world.announce("a", 0)
    world.announce("b", 0)
    world.step()
    world.publish()
    world.announce("a", 1)
    assert world.settle() == []
    world.clock.advance(SETTINGS.silent_seconds - 10)
    world.announce("a", 1)
    assert world.settle() == []
    world.clock.advance(10)
    (event,) = world.settle()
    assert event.missed == (Missed(name_of("b"), MissedReason.ABSENT),)


def test_one_that_was_past_the_package_before_it_fell_silent_is_not_named(world: World) -> None:
    world.announce("a", 0)
    world.announce("b", 0)
    world.step()
    world.publish()
    world.announce("b", 1)
    world.clock.advance(SILENT)
    world.announce("a", 1)
    (event,) = world.settle()
    assert event.missed == ()


def test_nothing_is_distributed_to_nobody(world: World) -> None:
    world.announce("a", 0)
    world.step()
    world.publish()
    world.clock.advance(SILENT)
    assert world.settle() == []
    world.announce("new", 1)
    (event,) = world.settle()
    assert event.missed == (Missed(name_of("a"), MissedReason.ABSENT),)


def test_one_that_joins_late_neither_delays_nor_repeats_events(world: World) -> None:
    world.announce("a", 0)
    world.step()
    world.publish()
    world.announce("a", 1)
    assert len(world.settle()) == 1
    world.publish()
    world.clock.advance(1)
    world.announce("stale", 0)
    world.announce("a", 2)
    assert [one.offset for one in world.settle()] == [1]
    world.publish()
    world.announce("a", 3)
    assert world.settle() == []
    world.announce("stale", 3)
    assert [one.offset for one in world.settle()] == [2]


def test_a_target_that_was_restored_holds_back_only_what_had_no_event(world: World) -> None:
    for _ in range(2):
        world.publish()
    world.announce("a", 1)
    assert [one.offset for one in world.settle()] == [0]
    world.announce("a", 2)
    world.step()
    world.announce("a", 0)
    assert world.settle() == []
    world.announce("a", 2)
    assert [one.offset for one in world.settle()] == [1]


@pytest.mark.parametrize("claim", [2, 10**6, 2**63 - 1])
def test_a_position_beyond_the_end_of_the_log_is_not_believed(world: World, claim: int) -> None:
    world.publish()
    world.announce("a", claim)
    assert world.settle() == []


def test_a_position_in_another_log_is_not_believed(world: World) -> None:
    world.publish()
    world.announce("a", 1, LogIdentity("other", "log"))
    assert world.settle() == []
    world.announce("a", 1, world.journal.identity(TopicName("package")))
    assert len(world.settle()) == 1


def test_only_content_of_this_publisher_has_events(world: World) -> None:
    world.publish(Action.TEST)
    world.publish(publisher="other")
    wanted = [world.publish(action) for action in (Action.ADD, Action.DELETE, Action.INVALIDATE)]
    world.journal.append(TopicName("package"), [NewRecord(b"\xff\xff"), NewRecord(b"")])
    world.announce("a", 7)
    assert [one.offset for one in world.settle()] == wanted


def test_what_was_published_before_the_first_start_has_no_event(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.memory.close()
    world.publish()
    world.memory = EventMemory(tmp_path / "another.db")
    world.start()
    world.publish()
    world.announce("a", 2)
    assert [one.offset for one in world.settle()] == [1]
    world.close()


def test_events_missed_while_away_are_raised_after_the_start(world: World) -> None:
    world.announce("a", 0)
    world.step()
    for _ in range(250):
        world.publish()
    world.announce("a", 250)
    world.start()
    assert [one.offset for one in world.settle()] == list(range(250))
    world.start()
    assert world.settle() == []


def test_those_who_are_known_are_waited_for_over_a_restart(world: World) -> None:
    world.announce("a", 0)
    world.announce("b", 0)
    world.step()
    world.publish()
    world.journal.truncate(TopicName("discovery"), Offset(2))
    world.announce("a", 1)
    world.start()
    assert world.settle() == []
    world.clock.advance(SILENT)
    world.announce("a", 1)
    (event,) = world.settle()
    assert event.missed == (Missed(name_of("b"), MissedReason.ABSENT),)


def test_one_that_joined_while_the_publisher_was_away_is_waited_for(world: World) -> None:
    world.announce("a", 0)
    world.step()
    world.stop()
    world.clock.advance(5)
    world.announce("joined", 0)
    world.clock.advance(400)
    world.publish()
    for _ in range(2 * RETAINED_ANNOUNCEMENTS):
        world.announce("a", 1)
    world.clock.advance(10)
    world.announce("joined", 0)
    world.announce("a", 1)
    world.start()
    assert [world.settle() for _ in range(4)] == [[]] * 4
    world.announce("joined", 1)
    assert [one.offset for one in world.settle()] == [0]


def test_one_that_follows_all_is_waited_for_with_the_first_package_of_a_new_publisher(world: World) -> None:
    world.announce("a", 0)
    world.announce_all("b", 0)
    world.step()
    world.publish()
    world.announce("a", 1)
    assert world.settle() == []
    world.announce_all("b", 1)
    assert [one.offset for one in world.settle()] == [0]


def test_announcements_are_noted_also_while_nothing_happens(world: World) -> None:
    world.announce("a", 0)
    world.step()
    for _ in range(2000):
        world.announce("a", 0)
    world.settle()
    discovery = world.journal.identity(TopicName("discovery"))
    assert world.memory.heard_to(discovery) == 2001


def test_what_is_said_of_the_past_counts_nobody(world: World) -> None:
    world.announce("gone", 0)
    world.clock.advance(SILENT)
    world.publish()
    world.announce("a", 1)
    (event,) = world.settle()
    assert event.missed == ()


@pytest.mark.parametrize("failpoint", [Failpoint.EVENTS_APPENDED, Failpoint.EVENTS_CURSOR_STORED])
def test_a_crash_anywhere_loses_no_event_and_repeats_none(world: World, failpoint: Failpoint) -> None:
    for _ in range(150):
        world.publish()
    world.announce("a", 150)
    world.step()
    world.clock.advance(SETTLED)
    world.failpoints.at = failpoint
    with pytest.raises(CrashError):
        world.step()
    world.start()
    world.announce("a", 150)
    world.settle()
    assert [one.offset for one in world.events()] == list(range(150))


def test_a_forged_event_keeps_nothing_from_being_raised(world: World) -> None:
    world.publish()
    world.announce("a", 1)
    world.step()
    forged = b'{"pubAgentName":"author","packageId":"another","deepPaths":[],"paths":[],"offset":0}'
    world.journal.append(TopicName("event"), [NewRecord(forged), NewRecord(b"{")])
    world.start()
    assert [one.package_id for one in world.settle()] == ["dstrpck-0"]


def test_what_retention_removed_is_passed_over_and_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        world.publish()
    world.journal.truncate(TopicName("package"), Offset(3))
    world.start()
    world.announce("a", 5)
    assert [one.offset for one in world.settle()] == [3, 4]
    assert "events of author go on at offset 3 instead of 0" in caplog.text


def test_a_log_that_lost_its_end_begins_anew_there(world: World, caplog: pytest.LogCaptureFixture) -> None:
    identity = world.journal.identity(TopicName("package"))
    world.memory.advance(TOPIC_READER, identity, EventCursor(Offset(40), Offset(9)))
    world.start()
    world.publish()
    world.announce("a", 1)
    assert [one.offset for one in world.settle()] == [0]
    assert "offset 0 instead of 40" in caplog.text


def test_a_cursor_never_goes_back(tmp_path: Path) -> None:
    memory, identity = EventMemory(tmp_path / "author.db"), LogIdentity("c", "t")
    memory.advance(TOPIC_READER, identity, EventCursor(Offset(7), Offset(3)))
    memory.advance(TOPIC_READER, identity, EventCursor(Offset(5), Offset(2)))
    assert memory.cursor(TOPIC_READER, identity) == EventCursor(Offset(7), Offset(3))
    assert memory.cursor("webhook", identity) is None
    memory.close()


def test_invented_names_do_not_push_out_those_who_are_known() -> None:
    audience = Audience()
    world_names = [f"forged-{number}" for number in range(5000)]
    audience.hear(QueueName(SLING, AgentName("real")), 1, 0, 0.0)
    for name in world_names:
        audience.hear(QueueName(SLING, AgentName(name)), 0, 0, 0.0)
    stored = audience.stored()
    assert len(stored) == 2000
    assert stored[0].queue_name.agent_name == "real"


def test_verdicts_are_bounded_by_names_and_forgotten_below_the_cursor() -> None:
    verdicts = Verdicts(AUTHOR)
    for number in range(6000):
        status = StatusMessage(SLING, AgentName(f"s{number}"), AUTHOR, Offset(3), PackageStatus.REMOVED_FAILED)
        verdicts.hear(status)
    assert len(verdicts.missed(Offset(3))) == 4000
    verdicts.forget_below(4)
    assert verdicts.missed(Offset(3)) == []


# ----------------------------------------------------------------------------------------------------- any history


@dataclass
class Known:
    """What the oracle knows of a subscriber: since when, how far, when it was last heard."""

    since_ms: int
    position: int
    heard_ms: int


OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 4)),
    st.tuples(st.just("announce"), st.sampled_from("abc"), st.integers(0, 12)),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 2.0, 100.0, 301.0, 1000.0])),
    st.tuples(st.just("fail"), st.sampled_from("abc")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("crash"), st.sampled_from([Failpoint.EVENTS_APPENDED, Failpoint.EVENTS_CURSOR_STORED])),
)


class History:
    """Plays operations and checks each event against what subscribers had said by then."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.known: dict[str, Known] = {}
        self.appended: list[int] = []
        self.failed: set[tuple[str, int]] = set()
        self.checked = 0

    def now_ms(self) -> int:
        return int(self.world.clock.now().timestamp() * 1000)

    def play(self, operation: tuple[object, ...]) -> None:
        match operation:
            case ("publish", int(count)):
                for _ in range(count):
                    self.world.publish()
                    self.appended.append(self.now_ms())
            case ("announce", str(name), int(position)):
                self.announce(name, min(position, len(self.appended)))
            case ("pass", float(seconds)):
                self.world.clock.advance(seconds)
            case ("fail", str(name)):
                self.fail(name)
            case ("restart",):
                self.world.start()
            case ("stop",):
                self.world.stop()
            case ("crash", Failpoint() as failpoint):
                self.world.failpoints.at = failpoint
        self.step()

    def announce(self, name: str, position: int) -> None:
        self.world.announce(name, position)
        before = self.known.get(name)
        is_new = before is None or self.now_ms() - before.heard_ms > 300_000
        self.known[name] = Known(
            self.now_ms() if is_new or before is None else before.since_ms, position, self.now_ms()
        )

    def fail(self, name: str) -> None:
        known = self.known.get(name)
        if known is not None and known.position < len(self.appended):
            self.failed.add((name, known.position))
            self.world.say(name, known.position, PackageStatus.REMOVED_FAILED)
            self.announce(name, known.position + 1)

    def step(self) -> None:
        if self.world.run is None:
            return
        try:
            self.world.step()
        except CrashError:
            self.world.start()
        events = self.world.events()
        assert [one.offset for one in events] == list(range(len(events)))  # each once, in order
        for event in events[self.checked :]:
            self.check(event)
        self.checked = len(events)

    def check(self, event: DistributedEvent) -> None:
        appended_ms = self.appended[event.offset]
        missed = {one.subscriber: one.reason for one in event.missed}
        here = {name: one for name, one in self.known.items() if self.now_ms() - one.heard_ms <= 300_000}
        counted = {name: one for name, one in here.items() if one.since_ms <= appended_ms}
        assert here, "an event without anybody to have it"
        assert any(one.position > event.offset for one in here.values())
        for name, one in counted.items():
            assert one.position > event.offset, f"{name} is at {one.position}, and not past {event.offset}"
        for name, offset in self.failed:
            if offset == event.offset and name in counted:
                assert missed[name_of(name)] is MissedReason.FAILED
        for name, one in self.known.items():
            if name not in here and one.since_ms <= appended_ms and one.position <= event.offset:
                is_left_before = appended_ms > one.heard_ms + 300_000
                assert is_left_before or name_of(name) in missed

    def finish(self) -> None:
        """When everybody is past everything and time has passed, every package has had its event."""
        self.world.failpoints.at = None
        if self.world.run is None:
            self.world.start()
        for name in "abc":
            self.announce(name, len(self.appended))
        self.step()
        self.world.clock.advance(SETTLED)
        for name in "abc":
            self.announce(name, len(self.appended))
        self.step()
        assert len(self.world.events()) == len(self.appended)


@settings(deadline=None, max_examples=60)
@given(st.lists(OPERATIONS, max_size=40))
def test_in_any_history_each_package_has_one_event_in_order_and_never_early(
    operations: list[tuple[object, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        for operation in operations:
            history.play(operation)
        history.finish()
        history.world.close()


# -------------------------------------------------------------------------------------------------------- the thread


def notifier(world: World, memory: EventMemory | None = None, **changes: object) -> DistributedNotifier:
    ports = NotifierPorts(world.journal, memory or world.memory, world.clock, NoFailpoints(), **changes)  # type: ignore[arg-type]  # the tests' own keywords
    return DistributedNotifier(SETTINGS, ports)


def await_true(condition: object, world: World) -> None:
    deadline = time.monotonic() + 20
    while not condition():  # type: ignore[operator]  # a function of the test
        assert time.monotonic() < deadline
        world.clock.advance(0.5)
        time.sleep(0.01)


def test_of_two_processes_one_raises_events_and_the_other_takes_over(world: World, tmp_path: Path) -> None:
    second_memory = EventMemory(tmp_path / "author.db", "OFF")
    first, second = notifier(world), notifier(world, second_memory)
    first.start()
    await_true(lambda: first.statistics.is_raising, world)
    second.start()
    world.publish()
    world.announce("a", 1)
    await_true(lambda: len(world.events()) == 1, world)
    assert not second.statistics.is_raising
    first.stop()
    world.publish()
    world.announce("a", 2)
    await_true(lambda: second.statistics.is_raising and len(world.events()) == 2, world)
    second.stop()
    second_memory.close()
    assert [one.offset for one in world.events()] == [0, 1]


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
    await_true(lambda: one.statistics.is_raising, world)
    world.publish()
    world.announce("a", 1)
    await_true(lambda: bool(heard), world)
    one.stop()
    assert one.statistics.failures == 2
    assert one.statistics.raised == 1
    assert [event.offset for event in world.events()] == [0]


def given_up(sling_id: str, offset: int) -> StatusMessage:
    return StatusMessage(
        SlingId(sling_id), AgentName("edge"), AUTHOR, Offset(offset), PackageStatus.REMOVED_FAILED, PackageId("p")
    )


def test_failures_of_invented_packages_are_bounded_in_sum() -> None:
    verdicts = Verdicts(AUTHOR)
    for subscriber in range(7):
        for offset in range(20_000):
            verdicts.hear(given_up(f"{subscriber:036}", 10**12 + offset))
    verdicts.forget_below(1000)
    assert sum(map(len, verdicts._failed.values())) == verdicts._failed_count <= MAX_FAILED


def test_invented_subscribers_hide_no_failure() -> None:
    verdicts = Verdicts(AUTHOR)
    for number in range(3 * MAX_MEMBERS):
        verdicts.hear(given_up(f"{number:036}", 1))
    verdicts.hear(given_up(SLING, 5))
    assert [one.subscriber for one in verdicts.missed(Offset(5))] == [name_of("edge")]
    assert len(verdicts._confirmed) == 2 * MAX_MEMBERS
