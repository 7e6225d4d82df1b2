"""The control service on a home: what publishers know of subscribers, and how it follows what they say."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import pytest
from mailboat.api.records import SubscriberStatusView
from mailboat.clock import Deadline, SystemClock
from mailboat.config.document import (
    PublisherConfig,
    Transfer,
)
from mailboat.control.journal_state import JournalState
from mailboat.control.service import ControlService
from mailboat.discovery.topology import MAX_SUBSCRIBERS
from mailboat.errors import (
    JournalUnavailableError,
)
from mailboat.journal.port import Journal, NewRecord, ReadLimits
from mailboat.journal.sqlite_reader import SqliteReader
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.messages import (
    Action,
    DiscoveryMessage,
    PackageMessage,
    PoolBacklog,
    SubscriberState,
    TopicRole,
)
from mailboat.model.pieces import PieceMessage
from mailboat.operations import journal_inspection
from mailboat.operations.journal_inspection import recent_publishers
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.messages import encode_message
from support.control_harbour import (
    AUTHOR,
    CAUSE,
    FAILED,
    OTHER,
    SLING_ID,
    Harbour,
    count_records,
    publish,
    queue_of,
    seen,
)


class TestStatus:
    def test_a_subscriber_appears_by_itself_with_all_that_it_says(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service, 5)
        harbour.subscriber(is_editable=True).announce(
            1, retries=2, state="retrying", cause=CAUSE, given_up=3, is_ready=False, ready_reason="blocked", target="t"
        )
        found = seen(service)
        assert found.announced_at is not None
        assert found.error is not None
        assert (found.error.code, found.error.path) == ("StorageFull", "/a")
        assert replace(found, announced_at=None, error=None) == SubscriberStatusView(
            "edge",
            "retrying",
            SLING_ID,
            next_offset=2,
            lag=3,
            attempts=2,
            max_retries=3,
            given_up=3,
            editable=True,
            ready=False,
            ready_reason="blocked",
            target="t",
            follow=(AUTHOR,),
        )

    def test_rate_and_time_left_come_from_its_announcements(self, harbour: Harbour, service: ControlService) -> None:
        publish(service, 5)
        edge = harbour.subscriber()
        edge.announce(0)
        service.status()
        threading.Event().wait(0.02)  # time that the rate is of
        edge.announce(1)
        found = seen(service)
        assert found.rate_per_second is not None
        assert found.eta_seconds == pytest.approx(3 / found.rate_per_second)
        edge.announce(state="waiting-for golden")
        assert seen(service).eta_seconds is None  # golden decides when it goes on
        edge.announce(retries=1)
        blocked = seen(service)
        assert (blocked.rate_per_second, blocked.eta_seconds) == (None, None)

    def test_publishers_tell_their_state_their_source_and_when_they_published(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service)
        harbour.subscriber().announce(-1, retries=3)
        harbour.subscriber("west", publishers=(OTHER,)).announce(0)
        author, other = service.status().publishers
        assert (author.name, author.state, author.source) == ("author", "blocked", str(harbour.source))
        assert author.last_published_at is not None
        assert (other.name, other.state, other.last_published_at) == ("other", "idle", None)

    def test_times_of_publications_are_read_where_the_log_has_grown(
        self, service: ControlService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An open page asks twice a second, and a reader of Kafka is a new client."""
        looks = list[int]()

        def looked(journal: Journal, topic: TopicName) -> Mapping[AgentName, datetime]:
            looks.append(journal.bounds(topic).next_offset)
            return recent_publishers(journal, topic)

        monkeypatch.setattr(journal_inspection, "recent_publishers", looked)
        assert service.status().publishers[0].last_published_at is None
        publish(service)
        for _ in range(3):
            assert service.status().publishers[0].last_published_at is not None
        assert looks == [0, 1]

    def test_packages_that_retention_removes_meanwhile_were_published_by_no_one(
        self, harbour: Harbour, service: ControlService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(service, 3)
        journal, topic = harbour.workspace.journal, harbour.workspace.package_topic
        before = journal.bounds(topic)
        journal.truncate(topic, Offset(2))
        monkeypatch.setattr(journal, "bounds", lambda _: before)
        assert recent_publishers(journal, topic) == {}

    def test_one_that_was_current_before_the_last_packages_came_is_importing_them(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        harbour.subscriber().announce(-1, state="current", next_offset=Offset(0))
        harbour.subscriber("stuck").announce(-1, state="retrying")
        assert seen(service).state == "current"
        publish(service, 2)
        assert (seen(service).state, seen(service, "stuck").state) == ("importing", "retrying")

    def test_announced_offsets_may_go_backwards_and_are_believed(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service, 3)
        edge = harbour.subscriber()
        edge.announce(2)
        assert (seen(service).lag, queue_of(service).count) == (0, 0)
        edge.announce(0)
        assert (seen(service).lag, queue_of(service).count) == (2, 2)

    def test_lag_of_a_shared_pool_is_what_no_member_has_imported(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service, 6)
        # at offset 1; the packages at 1 and 3 are in the queue, that at 2 is done, two are not in the queue yet
        harbour.subscriber().announce(0, next_offset=Offset(1), backlog=PoolBacklog(Offset(4), 2))
        assert seen(service).lag == 4

    @pytest.mark.parametrize("is_running", [True, False])
    def test_lag_counts_packages_and_not_their_pieces(self, harbour: Harbour, is_running: bool) -> None:
        harbour.home.config = replace(harbour.home.config, publisher=PublisherConfig(transfer=Transfer.CHUNKS))
        for number in range(5):
            harbour.append(TopicRole.PACKAGE, PieceMessage(SLING_ID, AUTHOR, PackageId("p"), number, b"x"))
        service = harbour.service(is_running=is_running)
        publish(service, 2)
        harbour.subscriber().announce(-1, next_offset=Offset(0))
        wait_until(lambda: [subscriber.lag for subscriber in service.status().subscribers] == [2])

    def test_time_left_counts_pieces_as_the_rate_does(self, harbour: Harbour) -> None:
        harbour.home.config = replace(harbour.home.config, publisher=PublisherConfig(transfer=Transfer.CHUNKS))
        for number in range(100):
            harbour.append(TopicRole.PACKAGE, PieceMessage(SLING_ID, AUTHOR, PackageId("p"), number, b"x"))
        service = harbour.service()
        publish(service, 2)
        edge = harbour.subscriber()
        edge.announce(9, next_offset=Offset(10))
        service.status()
        threading.Event().wait(0.02)  # time that the rate is of
        edge.announce(19, next_offset=Offset(20))
        found = seen(service)
        assert found.lag == 2
        assert found.rate_per_second is not None
        assert found.eta_seconds == pytest.approx(82 / found.rate_per_second)

    @pytest.mark.parametrize("is_running", [False, True], ids=["home", "agent"])
    def test_lag_counts_packages_of_followed_publishers_only(self, harbour: Harbour, is_running: bool) -> None:
        service = harbour.service(is_running=is_running)
        publish(service, 2)
        publish(service, 3, OTHER)
        harbour.subscriber(publishers=(AUTHOR,)).announce(0)  # as Sling, it tells its position now and then only
        wait_until(lambda: service.status().subscribers and seen(service).lag == 1)
        harbour.subscriber(publishers=(AUTHOR,)).announce(1)
        wait_until(lambda: seen(service).lag == 0)

    @pytest.mark.parametrize("is_running", [False, True], ids=["home", "agent"])
    def test_lag_of_a_follower_of_publishers_elsewhere(self, harbour: Harbour, is_running: bool) -> None:
        """Packages of other publishers are no lag, also where this process serves none that it follows."""
        far = AgentName("far")
        service = harbour.service(is_running=is_running)
        publish(service, 3)
        harbour.subscriber("none", publishers=(AgentName("nobody"),)).announce(-1, next_offset=Offset(0))
        harbour.subscriber("some", publishers=(far, AUTHOR)).announce(-1, next_offset=Offset(2))
        wait_until(lambda: [subscriber.lag for subscriber in service.status().subscribers] == [0, 1])
        harbour.append(TopicRole.PACKAGE, PackageMessage(SLING_ID, PackageId("p"), Action.DELETE, "tree", far))
        assert [subscriber.lag for subscriber in service.status().subscribers] == [0, 2]

    def test_who_follows_all_is_waited_for_by_a_publisher_it_has_not_seen(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        (made,) = publish(service)
        harbour.subscriber(publishers=(OTHER,)).announce(-1, next_offset=Offset(0), follows_all=True)
        assert seen(service).follow == ()
        assert service.distribution(AUTHOR, made.package_id).waiting == ("edge",)
        assert [queue.count for queue in service.queues(AUTHOR) if queue.state != "passive"] == [1]

    def test_who_asks_for_each_of_many_queues_in_turn_looks_at_everyone_once(
        self, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        service = harbour.service(is_running=True)
        for number in range(50):
            harbour.subscriber(f"edge-{number}").announce(-1)
        wait_until(lambda: len(service.queues(AUTHOR)) == 100)
        looks: list[int] = []
        look = type(service._directory).members
        monkeypatch.setattr(type(service._directory), "members", lambda one: (looks.append(1), look(one))[1])
        monkeypatch.setattr(harbour.clock, "monotonic", lambda: 1e9)
        for queue in service.queues(AUTHOR):
            service.queue(AUTHOR, queue.name)
        assert len(looks) == 1
        harbour.subscriber("late").announce(-1)
        wait_until(lambda: len(service.queues(AUTHOR)) == 102)

    def test_absurd_announcements_are_shown_and_do_no_harm(self, harbour: Harbour, service: ControlService) -> None:
        publish(service, 3)
        harbour.subscriber("beyond").announce(2**62)
        harbour.subscriber("before", publishers=(AUTHOR,)).announce(-(2**62))
        harbour.subscriber("stranger", publishers=(AgentName("nobody"),)).announce(0)
        status = service.status()
        assert [(subscriber.name, subscriber.lag) for subscriber in status.subscribers] == [
            ("before", None),
            ("beyond", None),
            ("stranger", 0),
        ]
        assert [(queue.subscriber, queue.count) for queue in service.queues(AUTHOR) if queue.state != "passive"] == [
            ("before", 3),
            ("beyond", 0),
        ]

    def test_what_can_not_be_understood_is_counted(self, harbour: Harbour, service: ControlService) -> None:
        topic = harbour.workspace.topic(TopicRole.DISCOVERY)
        harbour.workspace.journal.append(topic, [NewRecord(b"\xff", (("type", b"1"), ("version", b"1")))])
        harbour.subscriber("\x1b[2J").announce()
        assert service.status().unreadable_announcements == 2

    def test_a_thousand_forged_names_cost_no_more_than_the_bound(self, harbour: Harbour) -> None:
        records = []
        for number in range(1500):
            states = (SubscriberState(AUTHOR, 0),)
            headers, value = encode_message(DiscoveryMessage(SLING_ID, AgentName(f"forged-{number}"), states))
            records.append(NewRecord(value, headers))
        service = harbour.service()
        service.status()
        for _ in range(2):
            harbour.workspace.journal.append(harbour.workspace.topic(TopicRole.DISCOVERY), records)
        harbour.subscriber("real").announce(0)
        status = service.status()
        assert len(status.subscribers) <= MAX_SUBSCRIBERS
        assert seen(service, "real").lag is None


class TestTopologyAfterARestart:
    def test_a_publisher_that_has_just_started_knows_who_is_there_from_what_is_retained(self, harbour: Harbour) -> None:
        publish(harbour.service(), 2)
        harbour.subscriber().announce(0)
        assert queue_of(harbour.service()).count == 1

    def test_one_that_starts_while_no_one_spoke_knows_all_within_one_announcement(self, harbour: Harbour) -> None:
        service = harbour.service(is_running=True)
        publish(service, 2)
        harbour.subscriber().announce(0)
        wait_until(lambda: [subscriber.name for subscriber in service.status().subscribers] == ["edge"])
        wait_until(lambda: queue_of(service).count == 1)  # its own reader of packages may be behind by a moment

    def test_first_pages_come_without_reading_all_of_a_long_log(
        self, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(harbour.service(), 1)
        topic = harbour.workspace.package_topic
        (record,) = harbour.workspace.journal.reader(topic, Offset(0)).read(ReadLimits(), 0.0).records
        for _ in range(10):
            harbour.workspace.journal.append(topic, [NewRecord(record.value, record.headers)] * 2000)
        harbour.subscriber().announce(5000)
        service = ControlService(harbour.workspace, harbour.agents)
        read = count_records(monkeypatch)
        service._journal_state.hear_announcements()
        monkeypatch.setattr(JournalState, "is_followed", True)  # as in an agent whose threads come late
        page = service.queue(AUTHOR, "edge", max_items=50)
        assert [item.offset for item in page.items] == list(range(5001, 5051))
        assert (page.queue.count, page.queue.exact) == (15_000, False)
        assert read["package"] <= 600
        monkeypatch.undo()
        service.close()


class TestAnAgentsRoom:
    def test_verbs_do_not_wait_for_the_threads_and_the_threads_end_within_the_deadline(self, harbour: Harbour) -> None:
        before = set(threading.enumerate())
        service = harbour.service(is_running=True)
        service.start()  # again, which does nothing
        started = sorted(item.name for item in set(threading.enumerate()) - before if item.name.startswith("mailboat-"))
        assert started == ["mailboat-log", "mailboat-log-past", "mailboat-statuses", "mailboat-topology"]
        service.stop(Deadline(SystemClock(), PATIENCE_SECONDS))
        assert not {item for item in set(threading.enumerate()) - before if item.name.startswith("mailboat-")}

    def test_it_follows_all_that_happens(self, harbour: Harbour) -> None:
        service = harbour.service(is_running=True)
        edge = harbour.subscriber()
        edge.announce(-1)
        publish(service, 3)
        wait_until(lambda: [queue.count for queue in service.queues(AUTHOR)] == [3, 0])
        edge.tell(0, FAILED)
        edge.announce(1)
        wait_until(lambda: [queue.count for queue in service.queues(AUTHOR)] == [1, 1])

    def test_a_journal_that_fails_for_a_while_is_followed_again(
        self, harbour: Harbour, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        read, failures = SqliteReader.read, [4]

        def failing(self: SqliteReader, *arguments: object) -> object:
            if failures[0]:
                failures[0] -= 1
                raise JournalUnavailableError("the disk is away")
            return read(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(SqliteReader, "read", failing)
        service = harbour.service(is_running=True)
        harbour.subscriber().announce(-1)
        wait_until(lambda: bool(service._journal_state.roster.subscribers()))
        assert "the disk is away" in caplog.text
