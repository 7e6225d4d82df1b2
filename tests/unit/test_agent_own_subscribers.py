"""What an agent without a publisher knows of the commands that it sent, and what it reads of the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from mailboat.agent import own_subscribers
from mailboat.agent.own_subscribers import MAX_REMEMBERED, OwnSubscribers
from mailboat.agent.tasks import TaskReport
from mailboat.api.stream_events import EventType
from mailboat.clock import SystemClock
from mailboat.composition.home import create_home
from mailboat.composition.places import open_target
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import Config, SubscriberAgentConfig
from mailboat.control import command_sender
from mailboat.control.event_feed import differences
from mailboat.errors import CommandMissingError
from mailboat.journal.port import JournalReader, NewRecord, ReadLimits, Start, records_of
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.messages import (
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    PackageMessage,
    PoolBacklog,
    SuspendMessage,
    TopicRole,
)
from mailboat.model.positions import Position
from mailboat.queues.queue_pages import PageLimits, PageReader
from mailboat.testing.clocks import ManualClock
from mailboat.testing.target_contract import an_entry
from mailboat.wire.messages import decode_message, encode_message
from support.memory_imports import message

AUTHOR, EDGE = AgentName("author"), AgentName("edge")
FAILED = range(MAX_REMEMBERED + 20)
"""Offsets in the error queue: more commands of one request than are remembered of several."""


class Announced:
    """The task of a subscriber that runs, and announces itself so."""

    def __init__(self, said: DiscoveryMessage | None) -> None:
        self.said = said

    def report(self) -> TaskReport:
        return TaskReport(self.said, is_running=True, is_over=False, cause=None)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with initialise(create_home(tmp_path / "boat", Config())) as made:
        yield made


@pytest.fixture
def own(workspace: Workspace, tmp_path: Path) -> Iterator[OwnSubscribers]:
    target, identity = f"files:{tmp_path / 'edge'}", workspace.journal.identity(workspace.package_topic)
    with closing(open_target(target)) as opened, opened.batch() as batch:
        for offset in FAILED:
            batch.give_up(an_entry(offset))
        batch.commit(Position(identity, Offset(0)))
    task: Any = Announced(
        DiscoveryMessage(
            *(workspace.home.sling_id, EDGE, ()),
            is_editable=True,
            target=target,
            next_offset=Offset(0),
            log_identity=identity,
            follows_all=True,
        )
    )
    made = OwnSubscribers(workspace, [(SubscriberAgentConfig(EDGE, target), task)], SystemClock())
    yield made
    made.close()


def test_the_queue_of_a_subscriber_that_has_not_opened_its_target_begins_at_the_position_in_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    target, identity = f"files:{tmp_path / 'edge'}", workspace.journal.identity(workspace.package_topic)
    append(workspace, *(message(f"p{number}", paths=()) for number in range(3)))
    with closing(open_target(target)) as opened, opened.batch() as batch:
        batch.commit(Position(identity, Offset(3)))
    waits: Any = Announced(None)
    config = SubscriberAgentConfig(EDGE, target, editable=True)
    with closing(OwnSubscribers(workspace, [(config, waits)], SystemClock())) as own:
        assert own.queue(AUTHOR, EDGE, 0, 10).queue.count == 0
        assert own.clear(AUTHOR, EDGE).look()[0].state == "done"


def answer(workspace: Workspace, command_id: str) -> None:
    result = CommandResult(
        *(command_id, workspace.home.sling_id, EDGE, CommandVerb.REDRIVE, Offset(0), CommandState.DONE), AUTHOR
    )
    headers, value = encode_message(result)
    workspace.journal.append(workspace.topic(TopicRole.STATUS), [NewRecord(value, headers)])


def append(workspace: Workspace, *packages: PackageMessage) -> None:
    records = [encode_message(package) for package in packages]
    workspace.journal.append(workspace.package_topic, [NewRecord(value, headers) for headers, value in records])


def test_answers_to_a_redrive_of_many_packages_are_found(workspace: Workspace, own: OwnSubscribers) -> None:
    earlier = own.suspend(EDGE, None).look()[0].id
    sent = own.redrive(EDGE, FAILED)
    ids = [view.id for view in sent.look()]
    assert len(set(ids)) == len(FAILED)
    for command_id in ids:
        answer(workspace, command_id)
    assert {view.state for view in sent.look()} == {"done"}
    assert own.command(ids[0]) is own.command(ids[-1]) is sent
    with pytest.raises(CommandMissingError):
        own.command(earlier)
    own.resume(EDGE)
    with pytest.raises(CommandMissingError):
        own.command(ids[-1])


def test_error_queues_are_listed_while_the_journal_is_unavailable(
    workspace: Workspace, own: OwnSubscribers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read from the targets of this process."""
    monkeypatch.setattr(workspace.journal, "bounds", lambda _: pytest.fail("the journal was asked"))
    assert [item.offset for item in own.errors(EDGE, None, 3).items] == [0, 1, 2]


def test_a_suspension_lasts_its_seconds_from_the_time_of_its_command(
    workspace: Workspace, own: OwnSubscribers, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = count(1_000_000)  # each reading of the clock is later
    monkeypatch.setattr(command_sender, "milliseconds_now", lambda _: next(times))
    own.suspend(EDGE, 60.0)
    [record] = records_of(workspace.journal, workspace.topic(TopicRole.COMMAND), Offset(0))
    command = decode_message(record.headers, record.value)
    assert isinstance(command, SuspendMessage)
    assert command.until_ms == (command.sent_ms or 0) + 60_000


def test_a_command_whose_answer_comes_late_holds_no_reader_meanwhile(workspace: Workspace, own: OwnSubscribers) -> None:
    sent = own.suspend(EDGE, None)
    [view] = sent.look()
    assert (view.state, sent._follower is None) == ("sent", False)
    sent.rest()
    assert sent._follower is None
    answer(workspace, view.id)
    assert [seen.state for seen in sent.look()] == ["done"]
    sent.rest()
    assert ([seen.state for seen in sent.look()], sent._follower) == (["done"], None)


def test_clear_finds_packages_behind_many_of_other_publishers(
    workspace: Workspace, own: OwnSubscribers, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = PageLimits(max_walked_records=2, read=ReadLimits(max_records=1))
    monkeypatch.setattr(own_subscribers, "PageReader", partial(PageReader, limits=limits))
    others = [message(f"o{number}", pub_agent_name=AgentName("other")) for number in range(3)]
    wanted = [message(f"p{number}", paths=()) for number in range(3)]
    append(workspace, *others, wanted[0], *others, *wanted[1:])
    assert own.clear(AUTHOR, EDGE, 1).look()[0].offset == 3
    assert own.clear(AUTHOR, EDGE, 2).look()[0].offset == 7
    assert own.clear(AUTHOR, EDGE, 9).look()[0].offset == 8
    assert own.clear("ghost", EDGE, 9).look()[0].message == "the queue was empty"


def test_queue_of_a_shared_pool_begins_with_its_unfinished_package(workspace: Workspace) -> None:
    """As at the agent of its publisher: else the package that blocks the pool could not be removed."""
    append(workspace, *(message(f"p{number}", paths=()) for number in range(3)))
    said = DiscoveryMessage(
        *(SlingId("5" * 36), EDGE, ()),
        is_editable=True,
        follows_all=True,
        next_offset=Offset(1),
        backlog=PoolBacklog(Offset(3), 2),
    )
    task: Any = Announced(said)
    own = OwnSubscribers(workspace, [(SubscriberAgentConfig(EDGE, "files:edge"), task)], SystemClock())
    page = own.queue(AUTHOR, EDGE, 0, 10)
    assert ([item.offset for item in page.items], page.queue.head) == ([1, 2], page.items[0])
    assert own.remove(AUTHOR, EDGE, [page.items[0].id]).look()[0].offset == 1
    own.close()


def test_a_removal_of_many_packages_reads_them_at_once(
    workspace: Workspace, own: OwnSubscribers, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(workspace, *(message(f"p{number}", paths=()) for number in range(50)))
    ids = [item.id for item in own.queue(AUTHOR, EDGE, 0, 50).items]
    readers, open_reader = list[str](), workspace.journal.reader

    def reader(topic: TopicName, start: Start) -> JournalReader:
        readers.append(topic)
        return open_reader(topic, start)

    monkeypatch.setattr(workspace.journal, "reader", reader)
    assert own.remove(AUTHOR, EDGE, ids).look()[0].offset == 49
    assert readers.count(workspace.package_topic) == 1


def test_a_sample_of_the_history_opens_no_reader(
    workspace: Workspace, own: OwnSubscribers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of Kafka is a new client, and each subscriber of a fleet takes a sample every ten seconds."""
    append(workspace, *[message("p", paths=())] * 3)
    assert [view.lag for view in own.status().subscribers] == [3]
    monkeypatch.setattr(workspace.journal, "reader", lambda *_: pytest.fail("a reader was opened"))
    assert [view.lag for view in own.lags().subscribers] == [3]


def test_a_subscriber_that_does_nothing_is_no_event(workspace: Workspace) -> None:
    clock, importer = ManualClock(), SubscriberAgentConfig(EDGE, "files:edge")
    first, last = (DiscoveryMessage(SlingId("5" * 36), EDGE, (), next_offset=Offset(reads)) for reads in (1, 4))
    task: Any = Announced(DiscoveryMessage(SlingId("5" * 36), EDGE, ()))
    own = OwnSubscribers(workspace, [(importer, task)], clock)
    assert own.status().subscribers[0].rate_per_second is None
    clock.advance(2.0)
    task.said = first  # it has read its position, and imported nothing
    assert own.status().subscribers[0].rate_per_second is None
    clock.advance(2.0)
    task.said = last
    moved = own.status()
    assert moved.subscribers[0].rate_per_second == 1.5
    for _ in range(10):
        clock.advance(0.5)
        assert EventType.SUBSCRIBER not in dict(differences(moved, own.status()))
    clock.advance(120.0)
    assert own.status().subscribers[0].rate_per_second is None


def test_times_of_publications_are_read_once_in_five_seconds(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    task: Any = Announced(DiscoveryMessage(SlingId("5" * 36), EDGE, (), next_offset=Offset(0)))
    own = OwnSubscribers(workspace, [(SubscriberAgentConfig(EDGE, "files:edge"), task)], clock)
    open_reader, topics = workspace.journal.reader, list[str]()

    def reader(topic: TopicName, start: Start) -> JournalReader:
        topics.append(topic)
        return open_reader(topic, start)

    monkeypatch.setattr(workspace.journal, "reader", reader)
    for _ in range(20):
        append(workspace, message("p", paths=()))
        own.status()
        clock.advance(0.5)
    assert topics.count(workspace.package_topic) == 2
