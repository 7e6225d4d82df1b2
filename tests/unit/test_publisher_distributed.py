"""Distributed events: when a package counts as distributed, whatever subscribers and processes do meanwhile."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.config.topic_settings import TopicSettings
from mailboat.failpoints import Failpoint
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.messages import (
    Action,
    DiscoveryMessage,
    DistributedEvent,
    Missed,
    MissedReason,
    PackageMessage,
    PackageStatus,
    ReportStart,
    StatusMessage,
)
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity
from mailboat.publisher.distributed import AwaitedSubscribers
from mailboat.publisher.distributed_memory import TOPIC_READER, EventCursor, EventMemory
from mailboat.publisher.distributed_notifier import begin_events
from mailboat.queues.announced import RETAINED_ANNOUNCEMENTS
from mailboat.queues.queue_names import QueueName
from mailboat.testing.clocks import ManualClock
from mailboat.wire.messages import encode_message
from support.event_world import AUTHOR, SETTINGS, SETTLED, SILENT, SLING, CrashError, World, name_of


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
    assert [action.missed for action in world.settle()] == [()]


def test_a_package_waits_where_no_subscriber_is_known(world: World) -> None:
    world.publish()
    assert world.settle() == []
    world.announce("late", 1)
    assert [action.offset for action in world.settle()] == [0]


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
    assert [item.offset for item in world.step()] == [0]


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


def test_nothing_is_distributed_to_no_one(world: World) -> None:
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
    assert [action.offset for action in world.settle()] == [1]
    world.publish()
    world.announce("a", 3)
    assert world.settle() == []
    world.announce("stale", 3)
    assert [action.offset for action in world.settle()] == [2]


def test_a_target_that_was_restored_holds_back_only_what_had_no_event(world: World) -> None:
    for _ in range(2):
        world.publish()
    world.announce("a", 1)
    assert [action.offset for action in world.settle()] == [0]
    world.announce("a", 2)
    world.step()
    world.announce("a", 0)
    assert world.settle() == []
    world.announce("a", 2)
    assert [action.offset for action in world.settle()] == [1]


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
    assert [action.offset for action in world.settle()] == wanted


def test_what_was_published_before_the_first_start_has_no_event(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.memory.close()
    world.publish()
    world.memory = EventMemory(tmp_path / "another.db")
    world.start()
    world.publish()
    world.announce("a", 2)
    assert [action.offset for action in world.settle()] == [1]
    world.close()


def test_events_missed_while_away_are_raised_after_the_start(world: World) -> None:
    world.announce("a", 0)
    world.step()
    for _ in range(250):
        world.publish()
    world.announce("a", 250)
    world.start()
    assert [action.offset for action in world.settle()] == list(range(250))
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
    assert [action.offset for action in world.settle()] == [0]


def test_one_that_follows_all_is_waited_for_with_the_first_package_of_a_new_publisher(world: World) -> None:
    world.announce("a", 0)
    world.announce_all("b", 0)
    world.step()
    world.publish()
    world.announce("a", 1)
    assert world.settle() == []
    world.announce_all("b", 1)
    assert [action.offset for action in world.settle()] == [0]


def test_announcements_are_noted_also_while_nothing_happens(world: World) -> None:
    world.announce("a", 0)
    world.step()
    for _ in range(2000):
        world.announce("a", 0)
    world.settle()
    discovery = world.journal.identity(TopicName("discovery"))
    assert world.memory.heard_to(discovery) == 2001


def test_a_subscriber_is_not_silent_because_the_clock_of_the_brokers_is_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.journal, "_clock", ManualClock())
    world.clock.advance(2 * SILENT)
    world.publish()
    for next_offset in (0, 0, 1):
        world.announce("a", next_offset)
        world.clock.advance(10)
        found = world.settle()
    assert [event.missed for event in found] == [()]


def test_what_is_said_of_the_past_counts_no_one(world: World) -> None:
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
    assert [event.offset for event in world.events()] == list(range(150))
    with closing(open_job_topic(world.journal)) as topic:
        while not topic.follow():
            pass
        jobs = [topic.job(job) for job in topic.fold.table.all()]
    assert [json.loads(job.payload)["offset"] for job in jobs if job is not None] == list(range(150))


def test_an_event_topic_that_was_created_again_repeats_no_event(world: World) -> None:
    for _ in range(3):
        world.publish()
    world.announce("a", 3)
    world.settle()
    world.journal.upkeep.delete_topic(TopicName("event"))
    world.journal.ensure_topic(TopicName("event"), TopicSettings(retention_seconds=None))
    for _ in range(2):
        world.publish()
    world.announce("a", 5)
    world.step()
    world.clock.advance(SETTLED)
    world.failpoints.at = Failpoint.EVENTS_APPENDED
    with pytest.raises(CrashError):
        world.step()
    world.start()
    world.announce("a", 5)
    world.settle()
    assert [event.offset for event in world.events()] == [3, 4]


def test_packages_of_a_topic_that_was_created_again_have_events(world: World) -> None:
    world.publish()
    world.announce("a", 1)
    assert [event.offset for event in world.settle()] == [0]
    world.stop()
    world.journal.upkeep.delete_topic(TopicName("package"))
    world.journal.ensure_topic(TopicName("package"), TopicSettings(retention_seconds=None))
    for _ in range(2):
        world.publish()
    world.start()
    world.announce("a", 2)
    assert [event.offset for event in world.settle()] == [0, 1]


def test_packages_of_another_prefix_that_were_there_before_have_no_events(world: World) -> None:
    world.publish()
    world.stop()
    renamed = replace(SETTINGS, package_topic=TopicName("eu-package"))
    world.journal.ensure_topic(renamed.package_topic, TopicSettings(retention_seconds=None))
    message = PackageMessage(SLING, PackageId("dstrpck-old"), Action.ADD, "tree", AUTHOR, paths=(NodePath("/old"),))
    world.append(renamed.package_topic, message)
    assert begin_events(renamed, world.journal, world.memory).next_offset == 1


def test_an_event_that_is_too_long_for_a_message_names_the_subtree_of_its_paths(world: World) -> None:
    """A path may have characters that JSON escapes, so an event can be longer than its package's message."""
    deep = ("/" + '"' * 250) * 8
    paths = tuple(NodePath(f"/content/site/{number}{deep}") for number in range(300))
    package = PackageId("dstrpck-long")
    world.publish()
    world.append("package", PackageMessage(SLING, package, Action.DELETE, "tree", AUTHOR, paths=paths))
    world.publish()
    world.announce("a", 3)
    raised = world.settle()
    assert [event.offset for event in raised] == [0, 1, 2]
    assert raised[1].paths == raised[1].deep_paths == ("/content/site",)
    assert world.events() == raised


def test_packages_that_wait_for_their_event_are_bounded_in_bytes(world: World) -> None:
    paths = tuple(NodePath(f"/{number}" + ("/" + "x" * 250) * 15) for number in range(250))
    message = PackageMessage(SLING, PackageId("dstrpck-long"), Action.DELETE, "tree", AUTHOR, paths=paths)
    headers, value = encode_message(message)
    world.journal.append(TopicName("package"), [NewRecord(value, headers)] * 14)
    world.announce("slow", 0)
    world.announce("fast", 14)
    assert world.settle() == []
    assert world.run is not None
    assert len(world.run._pending) < 14
    world.announce("slow", 14)
    assert len(world.settle()) == 14


def test_a_forged_event_keeps_nothing_from_being_raised(world: World) -> None:
    world.publish()
    world.announce("a", 1)
    world.step()
    forged = b'{"pubAgentName":"author","packageId":"another","deepPaths":[],"paths":[],"offset":0}'
    world.journal.append(TopicName("event"), [NewRecord(forged), NewRecord(b"{")])
    world.start()
    assert [action.package_id for action in world.settle()] == ["dstrpck-0"]


def test_what_retention_removed_is_passed_over_and_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        world.publish()
    world.journal.truncate(TopicName("package"), Offset(3))
    world.start()
    world.announce("a", 5)
    assert [action.offset for action in world.settle()] == [3, 4]
    assert "events of author go on at offset 3 instead of 0" in caplog.text


def test_a_log_that_lost_its_end_begins_again_there(world: World, caplog: pytest.LogCaptureFixture) -> None:
    identity = world.journal.identity(TopicName("package"))
    world.memory.advance(TOPIC_READER, identity, EventCursor(Offset(40), Offset(9)))
    world.start()
    world.publish()
    world.announce("a", 1)
    assert [action.offset for action in world.settle()] == [0]
    assert "offset 0 instead of 40" in caplog.text


def test_a_cursor_never_goes_back(tmp_path: Path) -> None:
    memory, identity = EventMemory(tmp_path / "author.db"), LogIdentity("c", "t")
    memory.advance(TOPIC_READER, identity, EventCursor(Offset(7), Offset(3)))
    memory.advance(TOPIC_READER, identity, EventCursor(Offset(5), Offset(2)))
    assert memory.cursor(TOPIC_READER, identity) == EventCursor(Offset(7), Offset(3))
    assert memory.cursor("webhook", identity) is None
    memory.close()


def test_invented_names_do_not_push_out_those_who_are_known() -> None:
    awaited = AwaitedSubscribers()
    world_names = [f"forged-{number}" for number in range(5000)]
    awaited.apply(QueueName(SLING, AgentName("real")), 1, 0, 0.0)
    for name in world_names:
        awaited.apply(QueueName(SLING, AgentName(name)), 0, 0, 0.0)
    stored = awaited.stored()
    assert len(stored) == 2000
    assert stored[0].queue_name.agent_name == "real"


def test_a_skipped_package_names_who_skipped_it(world: World) -> None:
    world.publish()
    world.say("staged", 0, PackageStatus.REMOVED, golden="golden")
    world.announce("staged", 1)
    world.announce("golden", 1)
    (event,) = world.settle()
    assert event.missed == (Missed(name_of("staged"), MissedReason.SKIPPED),)


def test_a_subscriber_that_joined_the_publisher_later_skipped_what_was_before(world: World) -> None:
    world.announce("widened", 0, reports=ReportStart(Offset(2), is_first=True))
    world.step()
    for _ in range(3):
        world.publish()
    world.announce("widened", 3, reports=ReportStart(Offset(2), is_first=True))
    assert [[item.reason for item in event.missed] for event in world.settle()] == [["skipped"], ["skipped"], []]


def test_a_subscriber_that_does_not_report_is_named_as_unknown(world: World) -> None:
    world.publish()
    world.announce("foreign", 1, reports=None)
    (event,) = world.settle()
    assert event.missed == (Missed(name_of("foreign"), MissedReason.UNKNOWN),)


def test_statuses_that_retention_removed_make_an_import_unknown(world: World) -> None:
    world.publish()
    world.say("a", 0, PackageStatus.REMOVED)
    world.clock.advance(1)
    world.publish()
    world.say("a", 1, PackageStatus.IMPORTED)
    world.journal.truncate(TopicName("status"), Offset(1))
    world.start()
    world.announce("a", 2)
    first, second = world.settle()
    assert first.missed == (Missed(name_of("a"), MissedReason.UNKNOWN),)
    assert second.missed == (Missed(name_of("a"), MissedReason.UNKNOWN),)  # of the same moment as the first one read
    world.clock.advance(1)
    world.publish()
    world.announce("a", 3)
    assert [action.missed for action in world.settle()] == [()]


def test_reports_of_other_publishers_cost_nothing(world: World) -> None:
    world.append("status", StatusMessage(SLING, AgentName("a"), AgentName("other"), Offset(0), PackageStatus.REMOVED))
    world.step()
    assert world.run is not None
    assert world.run._reports.range_count == 0


def test_reports_are_forgotten_behind_the_cursor(world: World) -> None:
    for offset in range(3):
        world.publish()
        world.say("a", offset, PackageStatus.REMOVED_FAILED)
    world.announce("a", 3)
    assert len(world.settle()) == 3
    assert world.run is not None
    assert world.run._reports.range_count == 0


def test_subscribers_that_never_announce_are_named_by_what_they_report(world: World) -> None:
    world.publish()
    world.say("unheard", 0, PackageStatus.REMOVED_FAILED)
    world.announce("a", 1)
    (event,) = world.settle()
    assert event.missed == (Missed(name_of("unheard"), MissedReason.FAILED),)
