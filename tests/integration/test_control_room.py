"""The control room on a home: what publishers know of subscribers, and what a person can do about them.

Subscribers are played: what they announce, confirm and answer is appended to the topics as they would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mailboat.agent.composition import Workspace, initialise
from mailboat.agent.control.distributions import Distributions
from mailboat.agent.control.room import ControlRoom
from mailboat.agent.control.views import DistributionOrder, DistributionView, QueueView, SubscriberStatusView
from mailboat.agent.home import create_home
from mailboat.agent.inspection import records_of
from mailboat.clock import Deadline, SystemClock
from mailboat.config.document import (
    Config,
    PublisherAgentConfig,
    PublisherConfig,
    ThrottleConfig,
    Transfer,
)
from mailboat.discovery.topology import MAX_SUBSCRIBERS
from mailboat.errors import (
    AgentMissingError,
    CommandMissingError,
    DistributionMissingError,
    JournalUnavailableError,
    LimitExceededError,
    PathRefusedError,
    QueueNotClearableError,
    RequestConflictError,
    SourceMissingError,
    ThrottledError,
    UsageError,
)
from mailboat.journal.port import NewRecord, ReadLimits
from mailboat.journal.sqlite_reader import SqliteReader
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import (
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    FailureCause,
    Message,
    PackageStatus,
    RedriveMessage,
    StatusMessage,
    SubscriberState,
    TopicRole,
)
from mailboat.model.pieces import PieceMessage
from mailboat.queues.claims import SETTLING_SECONDS
from mailboat.queues.publisher_queues import QueueMissingError
from mailboat.queues.subscriber_queue import RemovalRefusedError
from mailboat.wire.messages import decode_message, encode_message

SLING_ID = SlingId("5a1e0000-0000-4000-8000-000000000001")
AUTHOR, OTHER = AgentName("author"), AgentName("other")
CAUSE = FailureCause("StorageFull", "no space left on device", "/a", "Traceback …")
IMPORTED, REMOVED, FAILED = PackageStatus.IMPORTED, PackageStatus.REMOVED, PackageStatus.REMOVED_FAILED
PATIENCE_SECONDS = 20.0


@dataclass
class Played:
    """A subscriber that a test plays."""

    append: Callable[[TopicRole, Message], None]
    name: str = "edge"
    publishers: tuple[AgentName, ...] = (AUTHOR,)
    sling_id: SlingId = SLING_ID
    is_editable: bool = False
    max_retries: int | None = 3
    last_done: int = -1
    heard: list[object] = field(default_factory=list)

    @property
    def queue_name(self) -> str:
        return f"{self.sling_id}-{self.name}"

    def announce(self, last_done: int | None = None, **facts: object) -> None:
        """Say where it stands."""
        self.last_done = self.last_done if last_done is None else last_done
        retries = facts.pop("retries", 0)
        states = tuple(SubscriberState(one, self.last_done, retries) for one in self.publishers)  # type: ignore[arg-type]
        known = {"state": "importing", "max_retries": self.max_retries, "is_editable": self.is_editable} | facts
        message = DiscoveryMessage(self.sling_id, AgentName(self.name), states, **known)  # type: ignore[arg-type]
        self.append(TopicRole.DISCOVERY, message)

    def tell(self, offset: int, status: PackageStatus, publisher: AgentName = AUTHOR) -> None:
        """Say what became of a package."""
        cause = CAUSE if status is FAILED else None
        message = StatusMessage(
            self.sling_id, AgentName(self.name), publisher, Offset(offset), status, None, cause, 4, 1_700_000_000_000
        )
        self.append(TopicRole.STATUS, message)

    def answer(self, command: CommandMessage | RedriveMessage, removed: int, message: str | None = None) -> None:
        """Answer a command."""
        is_clear = isinstance(command, CommandMessage)
        result = CommandResult(
            command.command_id or "",
            self.sling_id,
            AgentName(self.name),
            CommandVerb.CLEAR if is_clear else CommandVerb.REDRIVE,
            command.clear_up_to_offset if isinstance(command, CommandMessage) else command.offset,
            CommandState.DONE,
            command.pub_agent_name,
            removed,
            message,
        )
        self.append(TopicRole.STATUS, result)


class ForwardClock(SystemClock):
    """The machine's clock, put forward by the test."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


class Harbour:
    """A home with a source, its control room, and played subscribers."""

    def __init__(self, folder: Path, publisher: PublisherConfig) -> None:
        self._opened = ExitStack()
        self.source = folder / "site"
        self.source.mkdir()
        for number in range(5):
            (self.source / f"{number}.html").write_text(f"<p>{number}</p>")
        self.home = create_home(folder / "home", Config(publisher=publisher))
        initialise(self.home).__exit__(None, None, None)
        self.clock = ForwardClock()
        self.workspace = self._opened.enter_context(Workspace(self.home, self.clock))
        self.agents = [PublisherAgentConfig(AUTHOR, str(self.source)), PublisherAgentConfig(OTHER)]

    def room(self, *, is_running: bool = False) -> ControlRoom:
        """A control room; one of an agent keeps itself current."""
        room = ControlRoom(self.workspace, self.agents)
        self._opened.callback(room.close)
        if is_running:
            room.start()
        return room

    def append(self, role: TopicRole, message: Message) -> None:
        """Write what anybody may write."""
        headers, value = encode_message(message)
        self.workspace.journal.append(self.workspace.topic(role), [NewRecord(value, headers)])

    def subscriber(self, name: str = "edge", **facts: object) -> Played:
        return Played(self.append, name, **facts)  # type: ignore[arg-type]

    def commands(self) -> list[CommandMessage | RedriveMessage]:
        """What subscribers were told."""
        records = records_of(self.workspace.journal, self.workspace.topic(TopicRole.COMMAND))
        return [decode_message(one.headers, one.value) for one in records]  # type: ignore[misc]

    def close(self) -> None:
        self._opened.close()


@pytest.fixture
def throttle() -> ThrottleConfig:
    return ThrottleConfig()


@pytest.fixture
def harbour(tmp_path: Path, throttle: ThrottleConfig) -> Iterator[Harbour]:
    harbour = Harbour(tmp_path, PublisherConfig(throttle=throttle))
    yield harbour
    harbour.close()


@pytest.fixture
def room(harbour: Harbour) -> ControlRoom:
    return harbour.room()


def publish(room: ControlRoom, count: int = 1, publisher: str = AUTHOR) -> list[DistributionView]:
    """Requests that need no source."""
    return [room.distribute(publisher, DistributionOrder("INVALIDATE", (f"/page-{n}",))) for n in range(count)]


def seen(room: ControlRoom, name: str = "edge") -> SubscriberStatusView:
    (found,) = [one for one in room.status().subscribers if one.name == name]
    return found


def settle(harbour: Harbour, room: ControlRoom) -> None:
    """Let what was announced be heard, and so much time pass that it counts."""
    room.catch_up()
    harbour.clock.ahead += timedelta(seconds=2 * SETTLING_SECONDS)


def queue_of(room: ControlRoom, name: str = "edge", publisher: str = AUTHOR) -> QueueView:
    return room.queue(publisher, name).queue


class TestStatus:
    def test_a_subscriber_appears_by_itself_with_all_that_it_says(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 5)
        harbour.subscriber(is_editable=True).announce(
            1, retries=2, state="retrying", cause=CAUSE, given_up=3, is_ready=False, ready_reason="blocked", target="t"
        )
        found = seen(room)
        assert found.heard_ms is not None
        assert found.error is not None
        assert (found.error.code, found.error.path) == ("StorageFull", "/a")
        assert replace(found, heard_ms=None, error=None) == SubscriberStatusView(
            "edge",
            "retrying",
            SLING_ID,
            next_offset=2,
            lag=3,
            attempts=2,
            max_retries=3,
            given_up=3,
            is_editable=True,
            is_ready=False,
            ready_reason="blocked",
            target="t",
            follow=(AUTHOR,),
        )

    def test_rate_and_time_left_come_from_its_announcements(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 5)
        edge = harbour.subscriber()
        edge.announce(-1)
        room.status()
        threading.Event().wait(0.02)  # time that the rate is of
        edge.announce(1)
        found = seen(room)
        assert found.rate_per_second is not None
        assert found.eta_seconds == pytest.approx(3 / found.rate_per_second)
        edge.announce(retries=1)
        blocked = seen(room)
        assert (blocked.rate_per_second, blocked.eta_seconds) == (None, None)

    def test_publishers_tell_their_state_their_source_and_when_they_published(
        self, harbour: Harbour, room: ControlRoom
    ) -> None:
        publish(room)
        harbour.subscriber().announce(-1, retries=3)
        harbour.subscriber("west", publishers=(OTHER,)).announce(0)
        author, other = room.status().publishers
        assert (author.name, author.state, author.source) == ("author", "BLOCKED", str(harbour.source))
        assert author.last_published_ms is not None
        assert (other.name, other.state, other.last_published_ms) == ("other", "IDLE", None)

    def test_announced_offsets_may_go_backwards_and_are_believed(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 3)
        edge = harbour.subscriber()
        edge.announce(2)
        assert (seen(room).lag, queue_of(room).count) == (0, 0)
        edge.announce(0)
        assert (seen(room).lag, queue_of(room).count) == (2, 2)

    @pytest.mark.parametrize("is_running", [True, False])
    def test_lag_counts_packages_and_not_their_pieces(self, harbour: Harbour, is_running: bool) -> None:
        harbour.home.config = replace(harbour.home.config, publisher=PublisherConfig(transfer=Transfer.CHUNKS))
        for number in range(5):
            harbour.append(TopicRole.PACKAGE, PieceMessage(SLING_ID, AUTHOR, PackageId("p"), number, b"x"))
        room = harbour.room(is_running=is_running)
        publish(room, 2)
        harbour.subscriber().announce(-1, next_offset=Offset(0))
        await_until(lambda: [one.lag for one in room.status().subscribers] == [2])

    def test_who_follows_all_is_waited_for_by_a_publisher_it_has_not_seen(
        self, harbour: Harbour, room: ControlRoom
    ) -> None:
        (made,) = publish(room)
        harbour.subscriber(publishers=(OTHER,)).announce(-1, next_offset=Offset(0), follows_all=True)
        assert seen(room).follow == ()
        assert room.distribution(AUTHOR, made.package_id).waiting == ("edge",)
        assert [one.count for one in room.queues(AUTHOR) if one.state != "PASSIVE"] == [1]

    def test_who_asks_for_each_of_many_queues_in_turn_looks_at_everybody_once(
        self, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        room = harbour.room(is_running=True)
        for number in range(50):
            harbour.subscriber(f"edge-{number}").announce(-1)
        await_until(lambda: len(room.queues(AUTHOR)) == 100)
        looks: list[int] = []
        look = type(room._audience).members
        monkeypatch.setattr(type(room._audience), "members", lambda one: (looks.append(1), look(one))[1])
        monkeypatch.setattr(harbour.clock, "monotonic", lambda: 1e9)
        for one in room.queues(AUTHOR):
            room.queue(AUTHOR, one.name)
        assert len(looks) == 1
        harbour.subscriber("late").announce(-1)
        await_until(lambda: len(room.queues(AUTHOR)) == 102)

    def test_absurd_announcements_are_shown_and_do_no_harm(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 3)
        harbour.subscriber("beyond").announce(2**62)
        harbour.subscriber("before", publishers=(AUTHOR,)).announce(-(2**62))
        harbour.subscriber("stranger", publishers=(AgentName("nobody"),)).announce(0)
        status = room.status()
        assert [(one.name, one.lag) for one in status.subscribers] == [
            ("before", None),
            ("beyond", None),
            ("stranger", 2),
        ]
        assert [(one.subscriber, one.count) for one in room.queues(AUTHOR) if one.state != "PASSIVE"] == [
            ("before", 3),
            ("beyond", 0),
        ]

    def test_what_can_not_be_understood_is_counted(self, harbour: Harbour, room: ControlRoom) -> None:
        topic = harbour.workspace.topic(TopicRole.DISCOVERY)
        harbour.workspace.journal.append(topic, [NewRecord(b"\xff", (("type", b"1"), ("version", b"1")))])
        harbour.subscriber("\x1b[2J").announce()
        assert room.status().unreadable_announcements == 2

    def test_a_thousand_forged_names_cost_no_more_than_the_bound(self, harbour: Harbour) -> None:
        records = []
        for number in range(1500):
            states = (SubscriberState(AUTHOR, 0),)
            headers, value = encode_message(DiscoveryMessage(SLING_ID, AgentName(f"forged-{number}"), states))
            records.append(NewRecord(value, headers))
        room = harbour.room()
        room.status()
        for _ in range(2):
            harbour.workspace.journal.append(harbour.workspace.topic(TopicRole.DISCOVERY), records)
        harbour.subscriber("real").announce(0)
        status = room.status()
        assert len(status.subscribers) <= MAX_SUBSCRIBERS
        assert seen(room, "real").lag is None


class TestTopologyAfterARestart:
    def test_a_publisher_that_has_just_started_knows_who_is_there_from_what_is_retained(self, harbour: Harbour) -> None:
        publish(harbour.room(), 2)
        harbour.subscriber().announce(0)
        assert queue_of(harbour.room()).count == 1

    def test_one_that_starts_while_nobody_spoke_knows_all_within_one_announcement(self, harbour: Harbour) -> None:
        room = harbour.room(is_running=True)
        publish(room, 2)
        harbour.subscriber().announce(0)
        await_until(lambda: [one.name for one in room.status().subscribers] == ["edge"])
        assert queue_of(room).count == 1

    def test_first_pages_come_without_reading_all_of_a_long_log(
        self, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(harbour.room(), 1)
        topic = harbour.workspace.package_topic
        (record,) = harbour.workspace.journal.reader(topic, Offset(0)).read(ReadLimits(), 0.0).records
        for _ in range(10):
            harbour.workspace.journal.append(topic, [NewRecord(record.value, record.headers)] * 2000)
        harbour.subscriber().announce(5000)
        room = ControlRoom(harbour.workspace, harbour.agents)
        read = count_records(harbour, monkeypatch)
        monkeypatch.setattr(type(room._followers), "are_running", True)  # as in an agent whose threads come late
        room._picture.hear_announcements()
        page = room.queue(AUTHOR, "edge", max_items=50)
        assert [one.offset for one in page.items] == list(range(5001, 5051))
        assert (page.queue.count, page.queue.is_exact) == (15_000, False)
        assert read["package"] <= 600
        monkeypatch.undo()
        room.close()


def count_records(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many records are read of each topic from now on."""
    counts: dict[str, int] = dict.fromkeys(map(str, TopicRole), 0)
    read = SqliteReader.read

    def counting(self: SqliteReader, *arguments: object) -> object:
        batch = read(self, *arguments)  # type: ignore[arg-type]
        counts[self._settings.topic] += len(batch.records)
        return batch

    monkeypatch.setattr(SqliteReader, "read", counting)
    return counts


def await_until(is_so: Callable[[], bool]) -> None:
    deadline, never = Deadline(SystemClock(), PATIENCE_SECONDS), threading.Event()
    while not is_so():
        assert not deadline.is_over()
        never.wait(0.005)


class TestDistribute:
    def test_content_of_the_publishers_source_is_published(self, room: ControlRoom) -> None:
        order = DistributionOrder("ADD", ("/1.html",), ("/1.html",), "r1", "ann")
        done = room.distribute(AUTHOR, order)
        found = room.distribution(AUTHOR, done.package_id)
        assert (found.action, found.paths, found.deep_paths) == ("ADD", ("/1.html",), ("/1.html",))
        assert (found.request_id, found.user_id, found.offset) == ("r1", "ann", 0)
        assert found.package_bytes > 0
        assert found.published_ms is not None

    def test_the_same_request_id_is_the_same_request(self, room: ControlRoom) -> None:
        order = DistributionOrder("DELETE", ("/old",), request_id="r1")
        first, again = room.distribute(AUTHOR, order), room.distribute(AUTHOR, order)
        assert (again.offset, again.package_id, again.is_repeat) == (first.offset, first.package_id, True)
        with pytest.raises(RequestConflictError):
            room.distribute(AUTHOR, replace(order, paths=("/other",)))

    def test_deep_means_nothing_to_actions_without_depth(self, room: ControlRoom) -> None:
        order = DistributionOrder("DELETE", ("/old",), ("/old",))
        assert room.distribution(AUTHOR, room.distribute(AUTHOR, order).package_id).deep_paths == ()

    @pytest.mark.parametrize(
        ("order", "error"),
        [
            (DistributionOrder("PULL", ("/a",)), UsageError),
            (DistributionOrder("add", ("/a",)), UsageError),
            (DistributionOrder("ADD", ()), UsageError),
            (DistributionOrder("ADD", ("/1.html", "/1.html")), UsageError),
            (DistributionOrder("ADD", ("/1.html",), ("/2.html",)), UsageError),
            (DistributionOrder("ADD", ("/nowhere",)), SourceMissingError),
            (DistributionOrder("ADD", ("relative",)), PathRefusedError),
            (DistributionOrder("DELETE", ("/a/../../etc",)), PathRefusedError),
            (DistributionOrder("DELETE", ("/",)), UsageError),
            (DistributionOrder("DELETE", tuple(f"/{n}" for n in range(501))), LimitExceededError),
            (DistributionOrder("ADD", ("/1.html",), tuple(f"/{n}" for n in range(501))), LimitExceededError),
            (DistributionOrder("DELETE", ("/a",), request_id="with space"), UsageError),
            (DistributionOrder("DELETE", ("/a",), user_id="x" * 201), UsageError),
            (DistributionOrder("DELETE", ("/a",), user_id="line\nbreak"), UsageError),
        ],
    )
    def test_what_can_not_be_meant_is_refused_before_anything_is_written(
        self, harbour: Harbour, room: ControlRoom, order: DistributionOrder, error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            room.distribute(AUTHOR, order)
        assert harbour.workspace.journal.bounds(harbour.workspace.package_topic).next_offset == 0

    def test_a_publisher_without_a_source_takes_what_needs_none(self, room: ControlRoom) -> None:
        with pytest.raises(UsageError, match="no source"):
            room.distribute(OTHER, DistributionOrder("ADD", ("/1.html",)))
        assert publish(room, publisher=OTHER)[0].offset == 0

    def test_a_publisher_that_is_not_here_is_named_with_those_that_are(self, room: ControlRoom) -> None:
        for call in (lambda: publish(room, publisher="nobody"), lambda: room.queues("nobody")):
            with pytest.raises(AgentMissingError, match="'nobody' here; publishers: author, other"):
                call()

    def test_many_at_once_are_all_published_once_and_share_what_durability_costs(self, harbour: Harbour) -> None:
        room = harbour.room(is_running=True)
        before = harbour.workspace.journal.upkeep.synchronisations()

        def one(number: int) -> DistributionView:
            action, path = ("ADD", f"/{number % 5}.html") if number % 2 else ("DELETE", f"/gone-{number}")
            return room.distribute(AUTHOR, DistributionOrder(action, (path,), user_id=f"user-{number % 7}"))

        with ThreadPoolExecutor(24) as pool:
            done = list(pool.map(one, range(200)))
        assert sorted(one.offset for one in done) == list(range(200))
        after = harbour.workspace.journal.upkeep.synchronisations()
        if before is not None and after is not None:
            assert after - before < 200

    def test_a_request_that_fails_fails_alone(self, harbour: Harbour) -> None:
        room = harbour.room(is_running=True)

        def one(number: int) -> str:
            path = f"/{number}.html" if number % 5 < 4 and number < 5 else f"/missing-{number}"
            try:
                return room.distribute(AUTHOR, DistributionOrder("ADD", (path,))).state
            except SourceMissingError:
                return "missing"

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(one, range(40)))
        assert found == ["queued"] * 4 + ["missing"] * 36
        assert harbour.workspace.journal.bounds(harbour.workspace.package_topic).next_offset == 4


class TestThrottle:
    @pytest.fixture
    def throttle(self) -> ThrottleConfig:
        return ThrottleConfig(max_queue_entries=4, max_delay_seconds=20.0)

    def test_a_lagging_editable_subscriber_slows_publishing_down(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 6)
        harbour.subscriber(is_editable=True).announce(-1)
        harbour.subscriber("quick", is_editable=True).announce(5)
        room = harbour.room(is_running=True)
        await_until(lambda: room.status().publishers[0].delay_seconds == 10.0)
        with pytest.raises(ThrottledError) as refused:
            publish(room)
        assert refused.value.retry_after_seconds == 10.0
        assert harbour.workspace.journal.bounds(harbour.workspace.package_topic).next_offset == 6
        assert publish(room, publisher=OTHER)

    def test_one_that_can_not_be_cleared_slows_nobody_down(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 50)
        harbour.subscriber().announce(-1)
        harbour.subscriber("other", is_editable=True, publishers=(OTHER,)).announce(-1)
        assert publish(harbour.room(is_running=True))

    def test_a_repeat_is_answered_whatever_the_backlog(self, harbour: Harbour, room: ControlRoom) -> None:
        order = DistributionOrder("DELETE", ("/a",), request_id="r")
        room.distribute(AUTHOR, order)
        publish(room, 10)
        harbour.subscriber(is_editable=True).announce(-1)
        room = harbour.room(is_running=True)
        await_until(lambda: room.status().publishers[0].delay_seconds > 0)
        assert room.distribute(AUTHOR, order).is_repeat


class TestDistribution:
    def test_requests_are_listed_by_pages_the_newest_first(self, harbour: Harbour, room: ControlRoom) -> None:
        made = publish(room, 5)
        publish(room, 3, OTHER)
        made += publish(room, 2)
        harbour.subscriber().announce(made[2].offset)
        settle(harbour, room)
        seen, before, states = [], None, []
        while (page := room.distributions(AUTHOR, before, 3)).next_before is not None:
            seen += [one.package_id for one in page.items]
            states += [one.state for one in page.items]
            before = page.next_before
        seen += [one.package_id for one in page.items]
        states += [one.state for one in page.items]
        assert seen == [one.package_id for one in reversed(made)]
        assert states == ["queued"] * 4 + ["distributed"] * 3
        assert room.distributions(AUTHOR, 0).items == ()
        assert room.distributions(AUTHOR, 10**9, 1).items[0].offset == made[-1].offset

    def test_a_request_far_behind_those_of_others_is_listed_with_a_few_looks(
        self, room: ControlRoom, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (made,) = publish(room)
        publish(room, 100, OTHER)
        looks: list[object] = []
        between = Distributions._between

        def counted(*words: Any) -> Any:
            looks.append(words)
            return between(*words)

        monkeypatch.setattr(Distributions, "_between", counted)
        assert [one.offset for one in room.distributions(AUTHOR, None, 1).items] == [made.offset]
        assert len(looks) <= 7

    def test_everybodys_position_says_who_has_it(self, harbour: Harbour, room: ControlRoom) -> None:
        first, second = publish(room, 2)
        harbour.subscriber("ahead").announce(1)
        harbour.subscriber("behind").announce(0)
        harbour.subscriber("new").announce(-1)
        harbour.subscriber("elsewhere", publishers=(OTHER,)).announce(-1)
        settle(harbour, room)
        found = room.distribution(AUTHOR, first.package_id)
        assert (found.imported, found.waiting, found.state) == (("ahead", "behind"), ("new",), "queued")
        assert room.distribution(AUTHOR, second.package_id).waiting == ("behind", "new")

    def test_who_gave_it_up_or_dropped_it_did_not_import_it(self, harbour: Harbour, room: ControlRoom) -> None:
        (done,) = publish(room)
        failing, clearing = harbour.subscriber("failing"), harbour.subscriber("clearing", is_editable=True)
        failing.tell(0, FAILED)
        clearing.tell(0, REMOVED)
        for one in (failing, clearing, harbour.subscriber("fine")):
            one.announce(0)
        settle(harbour, room)
        found = room.distribution(AUTHOR, done.package_id)
        ((name, cause),) = found.failed
        assert (name, cause.code, found.removed, found.imported) == ("failing", "StorageFull", ("clearing",), ("fine",))
        assert (found.state, found.waiting) == ("failed", ())
        failing.tell(0, IMPORTED)
        assert room.distribution(AUTHOR, done.package_id).state == "distributed"

    def test_it_is_found_by_package_id_and_by_request_id_also_by_who_did_not_publish_it(
        self, harbour: Harbour, room: ControlRoom
    ) -> None:
        publish(room, 3)
        done = room.distribute(AUTHOR, DistributionOrder("DELETE", ("/x",), request_id="theirs"))
        publish(room, 3)
        unnamed = publish(room)[0]
        for file in harbour.home.publishers_path.glob("*"):
            file.unlink()
        stranger = harbour.room()
        assert stranger.distribution(AUTHOR, done.package_id).offset == 3
        assert stranger.distribution(AUTHOR, "theirs").offset == 3
        assert stranger.distribution(AUTHOR, unnamed.package_id).offset == 7

    def test_it_is_found_deep_in_a_long_log_by_the_time_in_its_id(
        self, harbour: Harbour, room: ControlRoom, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = harbour.workspace.package_topic
        noise = [NewRecord(b"\xff")] * 4_000

        def append_noise() -> None:
            for _ in range(3):
                harbour.workspace.journal.append(topic, noise)

        append_noise()
        threading.Event().wait(0.002)  # its id is of a later millisecond
        (done,) = publish(room)
        append_noise()
        monkeypatch.setattr("mailboat.agent.control.distributions._BUILDING_MS", 0)
        read = count_records(harbour, monkeypatch)
        assert harbour.room().distribution(AUTHOR, done.package_id).offset == 12_000
        assert read["package"] <= 11_000

    @pytest.mark.parametrize(
        "identifier", ["", "nobody", "dstrpck-1-x", f"dstrpck-{10**14}-x", "dstrpck-" + "9" * 30 + "-x", "%", "\x00"]
    )
    def test_what_was_never_published_is_missing(self, room: ControlRoom, identifier: str) -> None:
        publish(room, 3)
        with pytest.raises(DistributionMissingError):
            room.distribution(AUTHOR, identifier)

    def test_another_publishers_package_is_missing_here(self, room: ControlRoom) -> None:
        (done,) = publish(room)
        with pytest.raises(DistributionMissingError):
            room.distribution(OTHER, done.package_id)

    @pytest.mark.parametrize("is_running", [True, False])
    def test_a_wait_ends_with_the_last_import(self, harbour: Harbour, is_running: bool) -> None:
        room = harbour.room(is_running=is_running)
        edges = [harbour.subscriber(f"edge-{number}") for number in range(3)]
        for one in edges:
            one.announce(-1)
        (done,) = publish(room)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(room.distribution, AUTHOR, done.package_id, PATIENCE_SECONDS)
            for one in edges:
                one.announce(0)
            assert waiting.result(PATIENCE_SECONDS).state == "distributed"

    def test_a_wait_whose_time_is_over_says_who_is_missing(self, harbour: Harbour, room: ControlRoom) -> None:
        harbour.subscriber().announce(-1)
        (done,) = publish(room)
        assert room.distribution(AUTHOR, done.package_id, 0.05).waiting == ("edge",)

    def test_a_failure_that_was_told_before_the_position_is_never_taken_for_an_import(self, harbour: Harbour) -> None:
        room = harbour.room(is_running=True)
        edge = harbour.subscriber()
        edge.announce(-1)
        for offset, done in enumerate(publish(room, 10)):
            edge.tell(offset, FAILED)
            edge.announce(offset)
            assert room.distribution(AUTHOR, done.package_id, PATIENCE_SECONDS).state == "failed"

    def test_a_position_counts_a_moment_after_it_was_announced_or_once_the_package_is_confirmed(
        self, harbour: Harbour, room: ControlRoom
    ) -> None:
        (done,) = publish(room)
        harbour.subscriber("quiet").announce(0)
        sure = harbour.subscriber("sure", is_editable=True)
        sure.announce(0)
        sure.tell(0, IMPORTED)
        found = room.distribution(AUTHOR, done.package_id)
        assert (found.state, found.waiting, found.imported) == ("queued", ("quiet",), ("sure",))
        settle(harbour, room)
        found = room.distribution(AUTHOR, done.package_id)
        assert (found.state, found.imported) == ("distributed", ("quiet", "sure"))

    def test_a_package_that_was_given_up_is_not_distributed_while_statuses_are_read_late(
        self, harbour: Harbour, room: ControlRoom, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (done,) = publish(room)
        edge = harbour.subscriber()
        edge.tell(0, FAILED)
        edge.announce(0)
        with monkeypatch.context() as late:
            late.setattr(type(room._picture), "hear_statuses", lambda _: None)
            settle(harbour, room)
            assert room.distribution(AUTHOR, done.package_id).state == "queued"
        assert room.distribution(AUTHOR, done.package_id).state == "failed"


def test_looking_at_commands_again_and_again_does_not_read_the_topic_again(
    harbour: Harbour, room: ControlRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(room, 20)
    edge = harbour.subscriber()
    edge.announce(19)
    for offset in range(20):
        edge.tell(offset, FAILED)
    sent = room.redrive("edge", range(20))
    stranger = harbour.room()
    stranger.command(AUTHOR, sent[0].id)
    read = count_records(harbour, monkeypatch)
    for one in [*sent, *sent, *sent]:
        assert room.command(AUTHOR, one.id).state == "sent"
    assert stranger.command(AUTHOR, sent[0].id) == sent[0]
    assert read[TopicRole.COMMAND] == 0


class TestQueues:
    def test_a_queue_shows_what_its_subscriber_has_not_imported(self, harbour: Harbour, room: ControlRoom) -> None:
        for number in range(3):
            room.distribute(AUTHOR, DistributionOrder("DELETE", (f"/{number}", "/x"), user_id="ann"))
            publish(room, publisher=OTHER)
        edge = harbour.subscriber(publishers=(AUTHOR, OTHER), is_editable=True)
        edge.announce(1, retries=1, cause=CAUSE)
        page = room.queue(AUTHOR, edge.queue_name)
        assert [one.id for one in page.items] == ["package-0@2", "package-0@4"]
        head = page.items[0]
        assert (head.state, head.attempts, head.path, head.path_count, head.user_id) == ("ERROR", 1, "/1", 2, "ann")
        assert head.error is not None
        assert head.error.path == "/a"
        assert (page.items[1].state, page.items[1].attempts, page.items[1].error) == ("QUEUED", 0, None)
        assert (page.queue.state, page.queue.count, page.queue.head, page.next_offset) == ("RUNNING", 2, head, None)
        assert page.queue.capabilities == ("clearable", "removable")

    def test_a_queue_is_read_page_by_page(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 7)
        harbour.subscriber().announce(-1)
        offsets, at = [], 0
        while at is not None:
            page = room.queue(AUTHOR, "edge", at, 3)
            offsets.append([one.offset for one in page.items])
            at = page.next_offset  # type: ignore[assignment]
        assert offsets == [[0, 1, 2], [3, 4, 5], [6]]

    def test_all_queues_are_listed_each_with_its_error_queue(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 4)
        edge, west = harbour.subscriber(), harbour.subscriber("west", max_retries=None)
        edge.tell(0, FAILED)
        edge.announce(1, retries=3)
        west.announce(3)
        found = [(one.name, one.state, one.count, one.head and one.head.offset) for one in room.queues(AUTHOR)]
        assert found == [
            (edge.queue_name, "BLOCKED", 2, 2),
            (f"{edge.queue_name}-error", "PASSIVE", 1, 0),
            (west.queue_name, "IDLE", 0, None),
        ]

    def test_an_error_queue_has_pages_too(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 5)
        edge = harbour.subscriber()
        for offset in range(5):
            edge.tell(offset, FAILED)
        edge.announce(4)
        page = room.queue(AUTHOR, "edge-error", max_items=3)
        assert [(one.offset, one.attempts, one.error and one.error.code) for one in page.items] == [
            (0, 4, "StorageFull"),
            (1, 4, "StorageFull"),
            (2, 4, "StorageFull"),
        ]
        assert page.next_offset == 3
        assert [one.offset for one in room.queue(AUTHOR, "edge-error", 3).items] == [3, 4]

    def test_a_subscriber_that_is_silent_is_told_so_and_has_no_queue_until_it_is_back(
        self, harbour: Harbour, room: ControlRoom
    ) -> None:
        publish(room)
        edge = harbour.subscriber()
        edge.announce(0)
        assert seen(room).state == "importing"
        harbour.clock.ahead = timedelta(seconds=31)
        assert seen(room).state == "silent"
        with pytest.raises(QueueMissingError):
            room.queue(AUTHOR, "edge")
        edge.announce()
        assert queue_of(room).state == "IDLE"
        harbour.clock.ahead = timedelta(hours=2)
        assert room.status().subscribers == ()


class TestClear:
    @pytest.fixture
    def edge(self, harbour: Harbour, room: ControlRoom) -> Played:
        publish(room, 6)
        edge = harbour.subscriber(is_editable=True)
        edge.announce(1, retries=5)
        return edge

    @pytest.mark.parametrize(("max_items", "last"), [(None, 5), (1, 2), (3, 4), (100, 5)])
    @pytest.mark.usefixtures("edge")
    def test_a_clear_is_sent_to_its_subscriber_for_its_publisher_alone(
        self, harbour: Harbour, room: ControlRoom, max_items: int | None, last: int
    ) -> None:
        sent = room.clear(AUTHOR, "edge", max_items)
        (command,) = harbour.commands()
        assert isinstance(command, CommandMessage)
        assert (command.sub_sling_id, command.sub_agent_name) == (SLING_ID, "edge")
        assert (command.clear_up_to_offset, command.pub_agent_name, command.command_id) == (last, AUTHOR, sent.id)
        assert (sent.state, sent.verb, sent.offset, sent.removed) == ("sent", "clear", last, None)

    def test_a_clear_never_covers_what_another_publisher_published(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 3)
        publish(room, 3, OTHER)
        harbour.subscriber(publishers=(AUTHOR, OTHER), is_editable=True).announce(-1)
        assert room.clear(AUTHOR, "edge").offset == 2
        assert room.clear(OTHER, "edge").offset == 5
        assert [one.pub_agent_name for one in harbour.commands()] == [AUTHOR, OTHER]

    @pytest.mark.parametrize("is_running", [True, False])
    def test_the_subscribers_answer_is_waited_for(self, harbour: Harbour, edge: Played, is_running: bool) -> None:
        room = harbour.room(is_running=is_running)
        await_until(lambda: bool(room.status().subscribers))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(room.clear, AUTHOR, "edge", 2, PATIENCE_SECONDS)
            await_until(lambda: bool(harbour.commands()))
            edge.answer(harbour.commands()[0], 2, "2 packages dropped")
            done = waiting.result(PATIENCE_SECONDS)
        assert (done.state, done.removed, done.message) == ("done", 2, "2 packages dropped")

    def test_what_became_of_a_command_can_be_asked_later_by_anybody(
        self, harbour: Harbour, room: ControlRoom, edge: Played
    ) -> None:
        sent = room.clear(AUTHOR, "edge", 1)
        assert harbour.room().command(AUTHOR, sent.id) == sent
        edge.answer(harbour.commands()[0], 1)
        for one in (room, harbour.room()):
            assert (one.command(AUTHOR, sent.id).state, one.command(AUTHOR, sent.id).removed) == ("done", 1)
        for publisher, name in ((OTHER, sent.id), (AUTHOR, "nothing"), (AUTHOR, ""), (AUTHOR, "x" * 500)):
            with pytest.raises(CommandMissingError):
                room.command(publisher, name)

    @pytest.mark.usefixtures("edge")
    def test_a_forged_answer_of_another_subscriber_counts_for_nothing(
        self, harbour: Harbour, room: ControlRoom
    ) -> None:
        sent = room.clear(AUTHOR, "edge")
        harbour.subscriber("mallory").answer(harbour.commands()[0], 99)
        assert room.command(AUTHOR, sent.id).state == "sent"

    def test_an_empty_queue_needs_no_command(self, harbour: Harbour, room: ControlRoom, edge: Played) -> None:
        edge.announce(5)
        done = room.clear(AUTHOR, "edge")
        assert (done.state, done.removed) == ("done", 0)
        assert harbour.commands() == []

    def test_one_that_takes_no_commands_is_not_sent_any(self, harbour: Harbour, room: ControlRoom) -> None:
        publish(room, 2)
        edge = harbour.subscriber()
        edge.tell(0, FAILED)
        edge.announce(0)
        for call in (
            lambda: room.clear(AUTHOR, "edge"),
            lambda: room.remove(AUTHOR, "edge", ["package-0@1"]),
            lambda: room.clear(AUTHOR, "edge-error"),
        ):
            with pytest.raises(QueueNotClearableError):
                call()
        assert harbour.commands() == []

    @pytest.mark.parametrize(
        ("items", "last"), [(["package-0@2"], 2), (["package-0@4", "package-0@3"], 4), (["package-0@5"] * 2, 5)]
    )
    def test_items_are_removed_with_all_before_the_last_of_them(
        self, room: ControlRoom, edge: Played, items: list[str], last: int
    ) -> None:
        assert room.remove(AUTHOR, edge.queue_name, items).offset == last

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
        self, harbour: Harbour, room: ControlRoom, items: list[str], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            room.remove(AUTHOR, "edge", items)
        assert harbour.commands() == []

    @pytest.mark.parametrize("max_items", [0, -1, -(2**63)])
    @pytest.mark.usefixtures("edge")
    def test_a_clear_of_less_than_one_is_refused(self, room: ControlRoom, max_items: int) -> None:
        with pytest.raises(UsageError, match="at least one"):
            room.clear(AUTHOR, "edge", max_items)


class TestErrors:
    @pytest.fixture
    def edge(self, harbour: Harbour, room: ControlRoom) -> Played:
        publish(room, 4)
        edge = harbour.subscriber()
        edge.tell(1, FAILED)
        edge.tell(3, FAILED)
        edge.announce(3)
        return edge

    @pytest.mark.usefixtures("edge")
    def test_what_was_given_up_is_listed_with_its_cause(self, harbour: Harbour, room: ControlRoom) -> None:
        west = harbour.subscriber("west")
        west.tell(0, FAILED)
        west.announce(3)
        found = room.errors()
        assert [(one.subscriber, one.offset, one.paths) for one in found] == [
            ("edge", 1, ("/page-1",)),
            ("edge", 3, ("/page-3",)),
            ("west", 0, ("/page-0",)),
        ]
        assert found[0].error is not None
        assert (found[0].publisher, found[0].attempts, found[0].error.trace) == (AUTHOR, 4, "Traceback …")
        assert found[0].given_up_ms == 1_700_000_000_000
        for name in ("west", west.queue_name):
            assert [one.offset for one in room.errors(name)] == [0]

    @pytest.mark.usefixtures("edge")
    def test_nobodys_errors_are_asked_for_in_vain(self, room: ControlRoom) -> None:
        with pytest.raises(AgentMissingError, match="no subscriber 'nobody' is known; known are: edge"):
            room.errors("nobody")

    def test_given_up_packages_are_asked_for_again(self, harbour: Harbour, room: ControlRoom, edge: Played) -> None:
        first, second = room.redrive("edge", [3, 1])
        assert (first.verb, first.offset, first.state, second.offset) == ("redrive", 3, "sent", 1)
        command = harbour.commands()[0]
        assert isinstance(command, RedriveMessage)
        assert (command.offset, command.pub_agent_name, command.command_id) == (3, AUTHOR, first.id)
        edge.answer(command, 1)
        assert room.command(AUTHOR, first.id).state == "done"

    @pytest.mark.parametrize("offsets", [[], [0], [1, 2], [2**63], [-1], list(range(1001))])
    @pytest.mark.usefixtures("edge")
    def test_what_was_not_given_up_is_not_driven_again(
        self, harbour: Harbour, room: ControlRoom, offsets: list[int]
    ) -> None:
        with pytest.raises(UsageError):
            room.redrive("edge", offsets)
        assert harbour.commands() == []


class TestAnAgentsRoom:
    def test_verbs_do_not_wait_for_the_threads_and_the_threads_end_within_the_deadline(self, harbour: Harbour) -> None:
        before = set(threading.enumerate())
        room = harbour.room(is_running=True)
        room.start()  # again, which does nothing
        started = sorted(one.name for one in set(threading.enumerate()) - before if one.name.startswith("mailboat-"))
        assert started == ["mailboat-log", "mailboat-log-past", "mailboat-statuses", "mailboat-topology"]
        room.stop(Deadline(SystemClock(), PATIENCE_SECONDS))
        assert not {one for one in set(threading.enumerate()) - before if one.name.startswith("mailboat-")}

    def test_it_follows_all_that_happens(self, harbour: Harbour) -> None:
        room = harbour.room(is_running=True)
        edge = harbour.subscriber()
        edge.announce(-1)
        publish(room, 3)
        await_until(lambda: [one.count for one in room.queues(AUTHOR)] == [3, 0])
        edge.tell(0, FAILED)
        edge.announce(1)
        await_until(lambda: [one.count for one in room.queues(AUTHOR)] == [1, 1])

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
        room = harbour.room(is_running=True)
        harbour.subscriber().announce(-1)
        await_until(lambda: bool(room._picture.roster.subscribers()))
        assert "the disk is away" in caplog.text
