"""Who is there, by the discovery topic: what is retained, what comes, and what anyone may write to it."""

from __future__ import annotations

import itertools

import pytest
from mailboat.config.topic_settings import TopicSettings
from mailboat.discovery.roster import Roster, RosterFollower
from mailboat.discovery.topology import MAX_SUBSCRIBERS, REMEMBERED_SECONDS, WINDOW_MS, Rate
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord, Record
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.messages import DiscoveryMessage, PingMessage, SubscriberState
from mailboat.model.positions import LogIdentity
from mailboat.model.registrations import RegistryMessage
from mailboat.queues.announced import ALIVE_SECONDS, MAX_ANNOUNCEMENT_BYTES, RETAINED_ANNOUNCEMENTS
from mailboat.testing.clocks import ManualClock
from mailboat.testing.journal_harness import in_background
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS
from mailboat.wire.messages import encode_message

TOPIC, AUTHOR, SLING_ID = TopicName("discovery"), AgentName("author"), SlingId("5" * 36)


def announcement(name: str = "edge", offset: int = 0, sling_id: str = SLING_ID) -> DiscoveryMessage:
    return DiscoveryMessage(SlingId(sling_id), AgentName(name), (SubscriberState(AUTHOR, offset),))


def new_record(message: DiscoveryMessage | PingMessage) -> NewRecord:
    headers, value = encode_message(message)
    return NewRecord(value, headers)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def journal(clock: ManualClock) -> MemoryJournal:
    journal = MemoryJournal(clock)
    journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=None))
    return journal


@pytest.fixture
def roster(clock: ManualClock) -> Roster:
    return Roster(clock)


def now_ms(clock: ManualClock) -> int:
    return int(clock.now().timestamp() * 1000)


def apply(
    roster: Roster,
    message: DiscoveryMessage | PingMessage | RegistryMessage,
    appended_ms: int = 0,
    *,
    is_retained: bool = False,
) -> None:
    headers, value = encode_message(message)
    roster.apply(Record(Offset(0), value, headers, None, appended_ms), is_retained=is_retained)


def names(roster: Roster) -> list[str]:
    return [subscriber.queue_name.agent_name for subscriber in roster.subscribers()]


class TestRoster:
    def test_the_registry_of_retention_is_no_announcement_that_can_not_be_understood(self, roster: Roster) -> None:
        apply(roster, RegistryMessage(LogIdentity("cluster", "topic"), Offset(0)))
        assert roster.unreadable == 0
        roster.apply(Record(Offset(1), b"\xff", (("type", b"1"), ("version", b"1"))), is_retained=False)
        assert roster.unreadable == 1

    def test_the_newest_announcement_counts_also_when_its_offset_is_lower(self, roster: Roster) -> None:
        apply(roster, announcement(offset=9))
        apply(roster, announcement(offset=4))
        (known,) = roster.subscribers()
        assert known.announcement.states[0].offset == 4

    def test_one_that_comes_now_is_heard_now_whatever_its_log_says_of_time(
        self, roster: Roster, clock: ManualClock
    ) -> None:
        apply(roster, announcement(), appended_ms=1)
        (known,) = roster.subscribers()
        assert known.heard_ms == now_ms(clock)

    def test_one_that_was_there_before_is_as_old_as_the_log_says(self, roster: Roster, clock: ManualClock) -> None:
        apply(roster, announcement(), now_ms(clock) - 40_000, is_retained=True)
        (known,) = roster.subscribers()
        assert not known.is_alive(now_ms(clock))

    def test_one_from_the_future_lives_no_longer_than_any_other(self, roster: Roster, clock: ManualClock) -> None:
        for is_retained in (True, False):
            apply(roster, announcement(), 2**62, is_retained=is_retained)
            (known,) = roster.subscribers()
            assert known.is_alive(now_ms(clock))
            assert not known.is_alive(now_ms(clock) + int(ALIVE_SECONDS * 1000) + 1)

    def test_the_silent_are_remembered_for_a_while_and_then_really_removed(
        self, roster: Roster, clock: ManualClock
    ) -> None:
        apply(roster, announcement("quiet"))
        clock.advance(REMEMBERED_SECONDS)
        assert names(roster) == ["quiet"]
        apply(roster, announcement("loud"))
        clock.advance(0.01)
        assert names(roster) == ["loud"]
        assert len(roster._topology._rates) == 1

    def test_who_takes_leave_for_good_is_forgotten_at_once(self, roster: Roster) -> None:
        apply(roster, announcement("edge"))
        apply(roster, DiscoveryMessage(SLING_ID, AgentName("edge"), ()))
        apply(roster, DiscoveryMessage(SLING_ID, AgentName("nobody"), ()))
        assert names(roster) == []

    def test_invented_subscribers_are_bounded_and_displace_no_live_one(self, roster: Roster) -> None:
        for number in range(MAX_SUBSCRIBERS + 1000):
            apply(roster, announcement(f"forged-{number}"))
            if number % 500 == 0:
                apply(roster, announcement("real"))
        assert len(roster.subscribers()) == MAX_SUBSCRIBERS
        assert "real" in names(roster)

    def test_a_thousand_times_the_same_is_one(self, roster: Roster) -> None:
        for _ in range(1000):
            apply(roster, announcement())
        assert names(roster) == ["edge"]

    def test_the_same_name_in_two_instances_is_two(self, roster: Roster) -> None:
        apply(roster, announcement(sling_id="1" * 36))
        apply(roster, announcement(sling_id="2" * 36))
        assert names(roster) == ["edge", "edge"]

    @pytest.mark.parametrize(
        "message",
        [
            announcement("-"),
            announcement(""),
            announcement("edge\x1b[2J"),
            announcement("x" * 64),
            announcement(sling_id="short"),
            announcement(sling_id="\n" * 36),
            DiscoveryMessage(
                SLING_ID, AgentName("edge"), (SubscriberState(AUTHOR, 0),), target="x" * MAX_ANNOUNCEMENT_BYTES
            ),
            PingMessage(),
        ],
    )
    def test_what_no_one_can_be_is_counted_and_not_taken_in(
        self, roster: Roster, message: DiscoveryMessage | PingMessage
    ) -> None:
        headers, value = encode_message(message)
        roster.apply(Record(Offset(0), value or b"?", headers), is_retained=False)
        assert (names(roster), roster.unreadable) == ([], 1)

    def test_garbage_is_counted_and_tombstones_are_not(self, roster: Roster) -> None:
        roster.apply(Record(Offset(0), b"\xff", (("type", b"1"), ("version", b"1"))), is_retained=False)
        roster.apply(Record(Offset(1), b""), is_retained=False)
        assert roster.unreadable == 1

    def test_a_tombstone_is_the_leave_of_the_agent_that_its_key_names(self, roster: Roster) -> None:
        apply(roster, announcement("edge"))
        apply(roster, announcement("other"))
        roster.apply(Record(Offset(1), b"", (), f"{SLING_ID}-edge".encode()), is_retained=False)
        assert names(roster) == ["other"]

    def test_its_version_grows_with_what_is_heard_and_with_what_is_removed(
        self, roster: Roster, clock: ManualClock
    ) -> None:
        apply(roster, announcement())
        heard = roster.version
        assert roster.subscribers()
        assert roster.version == heard
        clock.advance(REMEMBERED_SECONDS + 1)
        assert not roster.subscribers()
        assert roster.version > heard


class TestRosterFollower:
    def test_what_is_retained_is_known_without_waiting_for_an_announcement(
        self, journal: MemoryJournal, roster: Roster
    ) -> None:
        journal.append(TOPIC, [new_record(announcement("edge")), new_record(announcement("west"))])
        follower = RosterFollower(roster, journal, TOPIC)
        assert follower.follow(0.0) == 2
        assert names(roster) == ["edge", "west"]
        journal.append(TOPIC, [new_record(announcement("north"))])
        assert follower.follow(0.0) == 1
        assert names(roster) == ["edge", "north", "west"]
        follower.close()

    def test_only_a_bounded_number_of_the_past_is_read(self, journal: MemoryJournal, roster: Roster) -> None:
        old = [new_record(announcement("old"))] * 300
        journal.append(TOPIC, [*old, *[new_record(announcement("edge"))] * RETAINED_ANNOUNCEMENTS])
        follower = RosterFollower(roster, journal, TOPIC)
        read = list(itertools.takewhile(bool, (follower.follow(0.0) for _ in itertools.count())))
        assert sum(read) == RETAINED_ANNOUNCEMENTS
        assert names(roster) == ["edge"]
        follower.close()

    def test_a_topic_that_was_made_again_is_another_world(self, journal: MemoryJournal, roster: Roster) -> None:
        journal.append(TOPIC, [new_record(announcement("edge"))])
        follower = RosterFollower(roster, journal, TOPIC)
        follower.follow(0.0)
        journal.delete_topic(TOPIC)
        journal.ensure_topic(TOPIC, TopicSettings())
        journal.append(TOPIC, [new_record(announcement("west"))])
        follower.follow(0.0)
        follower.follow(0.0)
        assert names(roster) == ["west"]
        follower.close()

    def test_one_that_waits_can_be_interrupted(self, journal: MemoryJournal, roster: Roster) -> None:
        follower = RosterFollower(roster, journal, TOPIC)
        with in_background(lambda: follower.follow(LONG_WAIT_SECONDS)) as following:
            follower.interrupt()
            assert following.result(PATIENCE_SECONDS) == 0
        follower.close()


class TestRates:
    def test_the_rate_is_that_of_the_last_minute(self) -> None:
        rate = Rate()
        for second in range(121):
            rate.apply(second * 1000, second * (1 if second <= 60 else 3))
        assert rate.per_second() == pytest.approx((360 - 60) / 60)

    @pytest.mark.parametrize("positions", [[], [5], [5, 5], [9, 4]])
    def test_without_progress_there_is_no_rate(self, positions: list[int]) -> None:
        rate = Rate()
        for second, position in enumerate(positions):
            rate.apply(second * 1000, position)
        assert rate.per_second() is None

    def test_a_flood_of_announcements_costs_no_more_than_its_window(self) -> None:
        rate = Rate()
        for ms in range(0, 3 * WINDOW_MS, 10):
            rate.apply(ms, ms)
        assert len(rate._samples) <= 1.1 * WINDOW_MS / 500
        assert rate.per_second() == pytest.approx(1000)
