"""The control service on a home: queues, what a person can drop from them, and packages given up."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from typing import NoReturn

import pytest
from mailboat.clock import moment_of
from mailboat.control import command_sender
from mailboat.control.service import ControlService
from mailboat.errors import (
    AgentMissingError,
    CommandMissingError,
    JournalUnavailableError,
    QueueMissingError,
    QueueNotClearableError,
    UsageError,
)
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import Offset, SlingId, TopicName
from mailboat.model.messages import (
    AfterCall,
    CommandMessage,
    HookCalls,
    RedriveMessage,
    SuspendMessage,
    Suspension,
    TopicRole,
)
from mailboat.model.requests import parse_request
from mailboat.queues.log_follower import LogFollower
from mailboat.queues.subscriber_queue import RemovalRefusedError
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.control_harbour import (
    AUTHOR,
    CAUSE,
    FAILED,
    OTHER,
    SLING_ID,
    Harbour,
    PlayedSubscriber,
    count_records,
    publish,
    queue_of,
    seen,
)


def test_looking_at_commands_again_and_again_does_not_read_the_topic_again(
    harbour: Harbour, service: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(service, 20)
    edge = harbour.subscriber()
    edge.announce(19)
    for offset in range(20):
        edge.tell(offset, FAILED)
    sent = service.redrive("edge", range(20))
    stranger = harbour.service()
    stranger.command(AUTHOR, sent[0].id)
    read = count_records(monkeypatch)
    for item in [*sent, *sent, *sent]:
        assert service.command(AUTHOR, item.id).state == "sent"
    assert stranger.command(AUTHOR, sent[0].id) == sent[0]
    assert read[TopicRole.COMMAND] == 0


class TestQueues:
    def test_a_queue_shows_what_its_subscriber_has_not_imported(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        for number in range(3):
            service.distribute(AUTHOR, parse_request("DELETE", (f"/{number}", "/x"), user_id="ann"))
            publish(service, publisher=OTHER)
        edge = harbour.subscriber(publishers=(AUTHOR, OTHER), is_editable=True)
        edge.announce(1, retries=1, cause=CAUSE)
        page = service.queue(AUTHOR, edge.queue_name)
        assert [item.id for item in page.items] == ["package-0@2", "package-0@4"]
        head = page.items[0]
        assert (head.state, head.attempts, head.path, head.path_count, head.user_id) == ("error", 1, "/1", 2, "ann")
        assert head.error is not None
        assert head.error.path == "/a"
        assert (page.items[1].state, page.items[1].attempts, page.items[1].error) == ("queued", 0, None)
        assert (page.queue.state, page.queue.count, page.queue.head, page.next_offset) == ("running", 2, head, None)
        assert page.queue.capabilities == ("clearable", "removable")

    def test_a_queue_is_read_page_by_page(self, harbour: Harbour, service: ControlService) -> None:
        publish(service, 7)
        harbour.subscriber().announce(-1)
        offsets, at = [], 0
        while at is not None:
            page = service.queue(AUTHOR, "edge", at, 3)
            offsets.append([item.offset for item in page.items])
            at = page.next_offset  # type: ignore[assignment]
        assert offsets == [[0, 1, 2], [3, 4, 5], [6]]

    def test_all_queues_are_listed_each_with_its_error_queue(self, harbour: Harbour, service: ControlService) -> None:
        publish(service, 4)
        edge, west = harbour.subscriber(), harbour.subscriber("west", max_retries=None)
        edge.tell(0, FAILED)
        edge.announce(1, retries=3)
        west.announce(3)
        found = [
            (queue.name, queue.state, queue.count, queue.head and queue.head.offset) for queue in service.queues(AUTHOR)
        ]
        assert found == [
            (edge.queue_name, "blocked", 2, 2),
            (f"{edge.queue_name}-error", "passive", 1, 0),
            (west.queue_name, "idle", 0, None),
        ]

    def test_an_error_queue_has_pages_too(self, harbour: Harbour, service: ControlService) -> None:
        publish(service, 5)
        edge = harbour.subscriber()
        for offset in range(5):
            edge.tell(offset, FAILED)
        edge.announce(4)
        page = service.queue(AUTHOR, "edge-error", max_items=3)
        assert [(item.offset, item.attempts, item.error and item.error.code) for item in page.items] == [
            (0, 4, "StorageFull"),
            (1, 4, "StorageFull"),
            (2, 4, "StorageFull"),
        ]
        assert page.next_offset == 3
        assert [item.offset for item in service.queue(AUTHOR, "edge-error", 3).items] == [3, 4]

    def test_a_subscriber_that_is_silent_is_told_so_and_has_no_queue_until_it_is_back(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service)
        edge = harbour.subscriber()
        edge.announce(0)
        assert seen(service).state == "importing"
        harbour.clock.ahead = timedelta(seconds=31)
        assert seen(service).state == "silent"
        with pytest.raises(QueueMissingError):
            service.queue(AUTHOR, "edge")
        edge.announce()
        assert queue_of(service).state == "idle"
        harbour.clock.ahead = timedelta(hours=2)
        assert service.status().subscribers == ()


class TestClear:
    @pytest.fixture
    def edge(self, harbour: Harbour, service: ControlService) -> PlayedSubscriber:
        publish(service, 6)
        edge = harbour.subscriber(is_editable=True)
        edge.announce(1, retries=5)
        return edge

    @pytest.mark.parametrize(("max_items", "last"), [(None, 5), (1, 2), (3, 4), (100, 5)])
    @pytest.mark.usefixtures("edge")
    def test_a_clear_is_sent_to_its_subscriber_for_its_publisher_alone(
        self, harbour: Harbour, service: ControlService, max_items: int | None, last: int
    ) -> None:
        sent = service.clear(AUTHOR, "edge", max_items)
        (command,) = harbour.commands()
        assert isinstance(command, CommandMessage)
        assert (command.sub_sling_id, command.sub_agent_name) == (SLING_ID, "edge")
        assert (command.clear_up_to_offset, command.pub_agent_name, command.command_id) == (last, AUTHOR, sent.id)
        assert (sent.state, sent.verb, sent.offset, sent.removed) == ("sent", "clear", last, None)

    def test_a_clear_never_covers_what_another_publisher_published(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service, 3)
        publish(service, 3, OTHER)
        harbour.subscriber(publishers=(AUTHOR, OTHER), is_editable=True).announce(-1)
        assert service.clear(AUTHOR, "edge").offset == 2
        assert service.clear(OTHER, "edge").offset == 5
        assert [command.pub_agent_name for command in harbour.commands()] == [AUTHOR, OTHER]

    @pytest.mark.parametrize("is_running", [True, False])
    def test_the_subscribers_answer_is_waited_for(
        self, harbour: Harbour, edge: PlayedSubscriber, is_running: bool
    ) -> None:
        service = harbour.service(is_running=is_running)
        wait_until(lambda: bool(service.status().subscribers))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(service.clear, AUTHOR, "edge", 2, PATIENCE_SECONDS)
            wait_until(lambda: bool(harbour.commands()))
            edge.answer(harbour.commands()[0], 2, "2 packages dropped")
            done = waiting.result(PATIENCE_SECONDS)
        assert (done.state, done.removed, done.message) == ("done", 2, "2 packages dropped")

    @pytest.fixture
    def log_is_read(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
        """Until this is set, the thread that follows the log hears nothing."""
        opened, follow = threading.Event(), LogFollower.follow
        monkeypatch.setattr(
            LogFollower, "follow", lambda self, seconds: follow(self, seconds) if opened.wait(0.01) else 0
        )
        yield opened
        opened.set()

    def test_a_command_is_sent_although_the_answer_to_it_cannot_be_read(
        self, harbour: Harbour, service: ControlService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After an error the same clear would be sent again, and drop one more package."""
        publish(service, 2)
        harbour.subscriber(is_editable=True).announce(-1)
        journal = harbour.workspace.journal
        append = journal.append

        def away(_: TopicName) -> NoReturn:
            raise JournalUnavailableError("the brokers are away")

        def append_last(topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
            monkeypatch.setattr(journal, "bounds", away)
            return append(topic, records)

        monkeypatch.setattr(journal, "append", append_last)
        sent = service.clear(AUTHOR, "edge", 1)
        monkeypatch.undo()
        assert (sent.state, sent.offset, len(harbour.commands())) == ("sent", 0, 1)

    @pytest.mark.usefixtures("edge")
    def test_what_was_published_a_moment_ago_is_cleared_too(
        self, harbour: Harbour, log_is_read: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mailboat.control.service._CATCH_UP_SECONDS", PATIENCE_SECONDS)
        service = harbour.service(is_running=True)
        wait_until(lambda: bool(service.status().subscribers))
        publish(service)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(service.clear, AUTHOR, "edge")
            assert not wait([waiting], 0.1).done
            log_is_read.set()
            assert waiting.result(PATIENCE_SECONDS).offset == 6

    @pytest.mark.usefixtures("edge", "log_is_read")
    def test_nothing_is_cleared_while_the_end_of_the_log_can_not_be_seen(
        self, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mailboat.control.service._CATCH_UP_SECONDS", 0.1)
        service = harbour.service(is_running=True)
        wait_until(lambda: bool(service.status().subscribers))
        publish(service)
        with pytest.raises(JournalUnavailableError, match=r"the queues end at offset 6 .* and the log at 7"):
            service.clear(AUTHOR, "edge")
        assert harbour.commands() == []

    def test_the_outcome_of_a_command_can_be_queried_later_by_any_client(
        self, harbour: Harbour, service: ControlService, edge: PlayedSubscriber
    ) -> None:
        sent = service.clear(AUTHOR, "edge", 1)
        assert harbour.service().command(AUTHOR, sent.id) == sent
        edge.answer(harbour.commands()[0], 1)
        for item in (service, harbour.service()):
            assert (item.command(AUTHOR, sent.id).state, item.command(AUTHOR, sent.id).removed) == ("done", 1)
            assert item.command(None, sent.id) == item.command(AUTHOR, sent.id)
        for publisher, name in ((OTHER, sent.id), (AUTHOR, "nothing"), (AUTHOR, ""), (AUTHOR, "x" * 500)):
            with pytest.raises(CommandMissingError):
                service.command(publisher, name)

    @pytest.mark.usefixtures("edge")
    def test_a_forged_answer_of_another_subscriber_counts_for_nothing(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        sent = service.clear(AUTHOR, "edge")
        harbour.subscriber("mallory").answer(harbour.commands()[0], 99)
        assert service.command(AUTHOR, sent.id).state == "sent"

    def test_an_empty_queue_needs_no_command(
        self, harbour: Harbour, service: ControlService, edge: PlayedSubscriber
    ) -> None:
        edge.announce(5)
        done = service.clear(AUTHOR, "edge")
        assert (done.state, done.removed) == ("done", 0)
        assert harbour.commands() == []

    def test_one_that_takes_no_commands_is_not_sent_any(self, harbour: Harbour, service: ControlService) -> None:
        publish(service, 2)
        edge = harbour.subscriber()
        edge.tell(0, FAILED)
        edge.announce(0)
        for call in (
            lambda: service.clear(AUTHOR, "edge"),
            lambda: service.remove(AUTHOR, "edge", ["package-0@1"]),
            lambda: service.clear(AUTHOR, "edge-error"),
        ):
            with pytest.raises(QueueNotClearableError):
                call()
        assert harbour.commands() == []

    @pytest.mark.parametrize(
        ("items", "last"),
        [(["package-0@2"], 2), (["package-0@4", "package-0@3"], 4), (["package-0@5", "package-0@2"], 5)],
    )
    def test_items_are_removed_with_all_before_the_last_of_them(
        self, service: ControlService, edge: PlayedSubscriber, items: list[str], last: int
    ) -> None:
        assert service.remove(AUTHOR, edge.queue_name, items).offset == last

    @pytest.mark.parametrize(
        ("items", "error"),
        [
            (["package-0@3"], RemovalRefusedError),
            (["package-0@1"], RemovalRefusedError),
            (["package-0@2", "package-0@1"], RemovalRefusedError),
            (["package-0@2", "package-0@6"], RemovalRefusedError),
            ([f"package-0@{2**63 - 1}"], RemovalRefusedError),
            ([f"package-0@{2**63}"], UsageError),
            (["other-0@2"], RemovalRefusedError),
            (["package-1@2"], UsageError),
            (["2"], UsageError),
            ([""], UsageError),
            ([], UsageError),
        ],
    )
    @pytest.mark.usefixtures("edge")
    def test_what_is_stale_beyond_the_head_or_no_item_is_refused_and_nothing_is_sent(
        self, harbour: Harbour, service: ControlService, items: list[str], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            service.remove(AUTHOR, "edge", items)
        assert harbour.commands() == []

    @pytest.mark.parametrize("max_items", [0, -1, -(2**63)])
    @pytest.mark.usefixtures("edge")
    def test_a_clear_of_less_than_one_is_refused(self, service: ControlService, max_items: int) -> None:
        with pytest.raises(UsageError, match="at least one"):
            service.clear(AUTHOR, "edge", max_items)


class TestErrors:
    @pytest.fixture
    def edge(self, harbour: Harbour, service: ControlService) -> PlayedSubscriber:
        publish(service, 4)
        edge = harbour.subscriber()
        edge.tell(1, FAILED)
        edge.tell(3, FAILED)
        edge.announce(3)
        return edge

    @pytest.mark.usefixtures("edge")
    def test_what_was_given_up_is_listed_with_its_cause(self, harbour: Harbour, service: ControlService) -> None:
        west = harbour.subscriber("west")
        west.tell(0, FAILED)
        west.announce(3)
        found = service.errors().items
        assert [(item.subscriber, item.offset, item.paths) for item in found] == [
            ("edge", 1, ("/page-1",)),
            ("edge", 3, ("/page-3",)),
            ("west", 0, ("/page-0",)),
        ]
        assert found[0].error is not None
        assert (found[0].publisher, found[0].attempts, found[0].error.trace) == (AUTHOR, 4, "Traceback …")
        assert found[0].given_up_at == moment_of(1_700_000_000_000)
        for name in ("west", west.queue_name):
            assert [item.offset for item in service.errors(name).items] == [0]

    @pytest.mark.usefixtures("edge")
    def test_errors_of_an_unknown_subscriber_are_refused(self, service: ControlService) -> None:
        with pytest.raises(AgentMissingError, match="no subscriber 'nobody' is known; known: edge"):
            service.errors("nobody")

    def test_given_up_packages_are_asked_for_again(
        self, harbour: Harbour, service: ControlService, edge: PlayedSubscriber
    ) -> None:
        first, second = service.redrive("edge", [3, 1])
        assert (first.verb, first.offset, first.state, second.offset) == ("redrive", 3, "sent", 1)
        command = harbour.commands()[0]
        assert isinstance(command, RedriveMessage)
        assert (command.offset, command.pub_agent_name, command.command_id) == (3, AUTHOR, first.id)
        edge.answer(command, 1)
        assert service.command(AUTHOR, first.id).state == "done"

    def test_a_redrive_reaches_each_instance_that_gave_the_package_up(
        self, harbour: Harbour, service: ControlService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(service, 2)
        homes = [SlingId(f"{number}" * 36) for number in (5, 6, 7)]
        for home in homes:
            edge = harbour.subscriber(sling_id=home)
            edge.tell(0 if home == homes[2] else 1, FAILED)
            edge.announce(1)
        sent = service.redrive("edge", [1])
        assert [(command.sub_sling_id, command.offset) for command in harbour.commands()] == [
            (home, 1) for home in homes[:2]
        ]
        assert len({view.id for view in sent}) == len(sent) == 2
        monkeypatch.setattr(command_sender, "MAX_REMEMBERED", 1)
        with pytest.raises(UsageError, match="2 commands are too many at once"):
            service.redrive("edge", [1])

    def test_a_redrive_of_a_package_of_a_publisher_elsewhere_is_found_by_its_command(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service, 2, OTHER)
        edge = harbour.subscriber(publishers=(AUTHOR, OTHER))
        edge.tell(0, FAILED, OTHER)
        edge.announce(1)
        harbour.agents.pop()  # the agent of the other publisher is another process
        agent = harbour.service()
        (sent,) = agent.redrive("edge", [0])
        assert (sent.publisher, agent.command(OTHER, sent.id).state) == (OTHER, "sent")
        edge.answer(harbour.commands()[0], 1)
        assert agent.command(OTHER, sent.id).state == "done"

    def test_a_subscriber_is_suspended_and_resumed_by_name_or_queue_name(
        self, harbour: Harbour, service: ControlService, edge: PlayedSubscriber
    ) -> None:
        sent = service.suspend("edge", 60.0)
        assert (sent.verb, sent.state, sent.publisher, sent.offset) == ("suspend", "sent", "", -1)
        command = harbour.commands()[0]
        assert isinstance(command, SuspendMessage)
        assert command.until_ms == (command.sent_ms or 0) + 60_000
        edge.answer(command, 0, "imports are suspended")
        assert service.command(None, sent.id).state == "done"
        edge.announce(3, state="suspended", suspension=Suspension(5_000, 65_000))
        found = seen(service)
        assert (found.state, found.suspended_at, found.suspended_until) == (
            "suspended",
            moment_of(5_000),
            moment_of(65_000),
        )
        harbour.subscriber("edge", sling_id=SlingId("ffffffff-0000-4000-8000-000000000001")).announce(0)
        with pytest.raises(UsageError, match="2 subscribers have the name edge"):
            service.resume("edge")
        assert service.resume(edge.queue_name).verb == "resume"
        with pytest.raises(AgentMissingError, match="no subscriber 'nobody' is known"):
            service.suspend("nobody")
        gone = harbour.subscriber("edge", sling_id=SlingId("ffffffff-0000-4000-8000-000000000001"))
        gone.announce(0, state="stopped")
        with pytest.raises(UsageError, match="edge is suspended: a running subscriber") as refused:
            service.forget("edge")
        assert refused.value.next_step == f"stop it first, or name one that does not run: {gone.queue_name}"
        assert service.forget(gone.queue_name).instances == (gone.sling_id,)
        assert [one.sling_id for one in service.status().subscribers] == [edge.sling_id]
        for seconds in (1e-7, 0.999, 1e12):
            with pytest.raises(UsageError, match="1 second to 366 days"):
                service.suspend(edge.queue_name, seconds)

    def test_failed_hook_calls_of_another_home_are_listed_and_redriven(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        """The announcement names them, as the target cannot be read from here."""
        publish(service, 3)
        failed = (AfterCall(Offset(0), 2, CAUSE), AfterCall(Offset(2), 4, CAUSE, is_set_aside=True))
        harbour.subscriber().announce(2, after_calls=HookCalls(1, 1, CAUSE, failed))
        found = service.errors("edge").items
        assert [(item.offset, item.kind, item.attempts, item.paths) for item in found] == [
            (0, "hook-retrying", 2, ("/page-0",)),
            (2, "hook", 4, ("/page-2",)),
        ]
        assert found[0].error is not None
        assert found[0].error.code == CAUSE.code
        (sent,) = service.redrive("edge", [2])
        assert (sent.publisher, sent.offset, sent.state) == (AUTHOR, 2, "sent")
        assert [command.offset for command in harbour.commands() if isinstance(command, RedriveMessage)] == [2]

    @pytest.mark.parametrize("offsets", [[], [0], [1, 2], [2**63], [-1], list(range(1001))])
    @pytest.mark.usefixtures("edge")
    def test_what_was_not_given_up_is_not_driven_again(
        self, harbour: Harbour, service: ControlService, offsets: list[int]
    ) -> None:
        with pytest.raises(UsageError):
            service.redrive("edge", offsets)
        assert harbour.commands() == []
