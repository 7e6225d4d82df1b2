"""Members of a shared pool import each package once, in order where packages touch the same content."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mailboat.blobs.memory import MemoryBlobStore
from mailboat.clock import Deadline, SystemClock
from mailboat.config.document import SubscriberConfig, Transfer
from mailboat.config.topic_settings import TopicSettings
from mailboat.content.locations import opened_ledger
from mailboat.content.sources.folder import FolderSource
from mailboat.control.job_service import JobService
from mailboat.errors import (
    BlobStoreUnavailableError,
    FollowWidenedError,
    JournalAccessDeniedError,
    JournalCorruptError,
    JournalReplacedError,
    JournalShorterError,
    JournalTrimmedError,
    JournalUnavailableError,
    MailboatError,
    ProcessorFailedError,
    TargetBusyError,
    UsageError,
)
from mailboat.failpoints import Failpoint, NoFailpoints
from mailboat.jobs.job_worker import Call
from mailboat.jobs.leases import RULES
from mailboat.jobs.source import Offer
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.memory import MemoryJournal, MemoryReader
from mailboat.journal.port import NewRecord, RecordBatch, Start
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.job_rules import JobRule
from mailboat.model.jobs import (
    AttemptOutcome,
    Feed,
    JobId,
    NewJob,
    QueueSettings,
    Token,
    WorkerSeen,
    pool_queue,
    pool_topic,
)
from mailboat.model.messages import CommandMessage, CommandState, PackageStatus, RedriveMessage, SuspendMessage
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.positions import LogIdentity
from mailboat.model.requests import add_request
from mailboat.pools.member import PoolForgottenError
from mailboat.pools.package_follower import FedPackages, PackageFollower
from mailboat.pools.package_import import OTHER_TARGET_STEP, PackageImport, PoolTargetDiffersError, PoolView
from mailboat.pools.package_order import MAX_UNFINISHED, Package, encode_queued
from mailboat.pools.shared_target import SharedTarget, instance_of
from mailboat.subscriber.admission import StopSignal
from mailboat.subscriber.commands import SubscriberSuspendedError
from mailboat.subscriber.continuity import ANY_PUBLISHER, MAX_PASSED_OVER
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.importer import decode_record
from mailboat.subscriber.subscriber_settings import ProcessedPackage, Processors
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.engines import AUTHOR, COMMANDS, PACKAGES, Engine, EngineParts, digest_of, page_source
from support.pool_scenario import LEASE_MS, POOL, Freeze, Members, Stores, open_target, pool_settings


@pytest.fixture
def log() -> MemoryJournal:
    return MemoryJournal(SystemClock())


@pytest.fixture
def engine(tmp_path: Path, log: MemoryJournal) -> Iterator[Engine]:
    parts, blobs = EngineParts(synchronous="OFF"), MemoryBlobStore(SystemClock())
    with Engine(tmp_path / "home", parts, journal=log, blobs=blobs) as made:
        yield made


@pytest.fixture
def stores(engine: Engine, tmp_path: Path) -> Stores:
    return Stores(engine.journal, engine.blobs, tmp_path / "shared")


@pytest.fixture
def members() -> Iterator[Members]:
    made = Members()
    yield made
    made.stop()


def publish(engine: Engine, *paths: str) -> None:
    publisher, source = engine.publisher(), page_source(*paths)
    for path in paths:
        publisher.publish(add_request([NodePath(path)]), source)


def outcomes(engine: Engine) -> list[tuple[int, PackageStatus]]:
    return sorted((status.offset, status.status) for status in engine.statuses())


def is_free(stores: Stores) -> bool:
    """Whether no member has the target open at this moment."""
    try:
        stores.open_target().close()
    except TargetBusyError:
        return False
    return True


def has_answers(engine: Engine, count: int) -> bool:
    return len(engine.results()) == count


class Hook:
    """A hook that notes packages, and fails or waits for some paths."""

    def __init__(self, failing: str = "", holding: str = "") -> None:
        self.seen: list[int] = []
        self.held = threading.Event()
        self.release = threading.Event()
        self._failing = failing
        self._holding = holding

    def process(self, package: ProcessedPackage) -> None:
        self.seen.append(package.offset)
        if self._holding and self._holding in package.paths:
            self.held.set()
            self.release.wait(PATIENCE_SECONDS)
        if self._failing and self._failing in package.paths:
            raise ProcessorFailedError("refused by the test")


class BeatingClock(SystemClock):
    """A clock that monitors threads, as that of an agent does."""

    def __init__(self) -> None:
        self.beats = 0

    def began(self, name: str, stall_seconds: float | None) -> None:
        pass

    def beat(self, wait_seconds: float = 0.0) -> None:
        assert wait_seconds <= 30.0
        self.beats += threading.current_thread().name.startswith("Thread-")

    def ended(self) -> None:
        pass


def test_a_member_beats_while_it_has_nothing_to_do(engine: Engine, stores: Stores, members: Members) -> None:
    stores.clock = clock = BeatingClock()
    member = stores.member("m1")
    members.start(member)
    wait_until(lambda: member.statistics.phase is SubscriberPhase.CURRENT)
    beats = clock.beats
    wait_until(lambda: clock.beats > beats)
    assert engine.statuses() == []


def test_two_members_import_each_package_once_and_confirm_it_once(
    engine: Engine, stores: Stores, members: Members
) -> None:
    paths = [f"/content/{number}" for number in range(20)]
    publish(engine, *paths)
    members.start(stores.member("m1"), stores.member("m2"), is_endless=False)
    ended = members.join()
    assert sum(item.imported for item in ended) == len(paths)
    assert {item.lag_offsets for item in ended} == {0}
    assert outcomes(engine) == [(offset, PackageStatus.IMPORTED) for offset in range(len(paths))]
    assert {status.sub_agent_name for status in engine.statuses()} == {POOL}
    assert len({status.sub_sling_id for status in engine.statuses()}) == 1
    assert digest_of(FolderSource(stores.place)) == digest_of(page_source(*paths))


def test_hooks_of_packages_run_side_by_side_and_those_of_one_path_in_order(
    engine: Engine, stores: Stores, members: Members
) -> None:
    publish(engine, "/a", "/a/x", "/b")
    hook = Hook(holding="/a")
    members.start(stores.member("m1", processors=Processors(before=hook)))
    wait_until(lambda: outcomes(engine) == [(2, PackageStatus.IMPORTED)])
    assert sorted(hook.seen) == [0, 2], "what touches the same content waits"
    hook.release.set()
    wait_until(lambda: len(engine.statuses()) == 3)
    assert hook.seen[-1] == 1


def test_a_member_that_stood_still_beyond_its_lease_changes_nothing(
    engine: Engine, stores: Stores, members: Members
) -> None:
    freeze, stores.lease_ms = Freeze(Failpoint.JOBS_BEFORE_HANDLER), LEASE_MS
    publish(engine, "/a")
    frozen = stores.member("m1", failpoints=freeze)
    members.start(frozen)
    assert freeze.frozen.wait(PATIENCE_SECONDS)
    publish(engine, "/a/x", "/b")
    members.start(stores.member("m2"))
    wait_until(lambda: len(engine.statuses()) == 3)
    freeze.go_on()
    members.stop()
    assert outcomes(engine) == [(offset, PackageStatus.IMPORTED) for offset in range(3)]
    assert frozen.statistics.imported == 0
    assert not members.errors


def test_a_package_that_fails_is_given_up_and_holds_up_only_what_it_touches(
    engine: Engine, stores: Stores, members: Members
) -> None:
    publish(engine, "/a", "/a/x", "/b")
    hook = Hook(failing="/a")
    members.start(stores.member("m1", processors=Processors(before=hook)), is_endless=False)
    members.join()
    assert outcomes(engine) == [
        (0, PackageStatus.REMOVED_FAILED),
        (1, PackageStatus.IMPORTED),
        (2, PackageStatus.IMPORTED),
    ]
    assert Counter(hook.seen) == {0: 3, 1: 1, 2: 1}
    assert hook.seen.index(1) > 2
    with_error = next(status for status in engine.statuses() if status.offset == 0)
    assert with_error.attempts == 3


def test_a_package_whose_members_die_each_time_is_given_up(engine: Engine, stores: Stores, members: Members) -> None:
    freeze, stores.lease_ms = Freeze(Failpoint.JOBS_BEFORE_HANDLER), LEASE_MS
    publish(engine, "/a")
    stores.settings = pool_settings(config=replace(pool_settings().config, max_retries=0))
    members.start(stores.member("m1", failpoints=freeze))
    assert freeze.frozen.wait(PATIENCE_SECONDS)
    members.start(stores.member("m2"))
    wait_until(lambda: outcomes(engine) == [(0, PackageStatus.REMOVED_FAILED)])
    freeze.go_on()
    (status,) = engine.statuses()
    assert status.cause is not None
    assert status.cause.code == "ImporterLost"


def test_a_clear_drops_waiting_packages_and_is_answered_when_all_before_it_are_done(
    engine: Engine, stores: Stores, members: Members
) -> None:
    publish(engine, "/a", "/a/x", "/a/y")
    hook = Hook(holding="/a")
    member = stores.member("m1", processors=Processors(before=hook))
    members.start(member)
    assert hook.held.wait(PATIENCE_SECONDS)
    sling_id = member.sling_id
    assert sling_id is not None
    engine.send(COMMANDS, CommandMessage(sling_id, POOL, Offset(1), AUTHOR, "c1", 1))
    wait_until(lambda: stores.open_commands() == 1)
    hook.release.set()
    wait_until(lambda: len(engine.statuses()) == 3 and len(engine.results()) == 1)
    assert [status for _, status in outcomes(engine)] == [
        PackageStatus.REMOVED,
        PackageStatus.REMOVED,
        PackageStatus.IMPORTED,
    ]
    (answer,) = engine.results()
    assert (answer.state, answer.removed) == (CommandState.DONE, 2)


@pytest.mark.parametrize("max_retries", [None, 0])
def test_a_clear_drops_a_package_whose_hook_fails_each_time(
    engine: Engine, stores: Stores, members: Members, max_retries: int | None
) -> None:
    stores.settings = pool_settings(config=SubscriberConfig(max_retries=max_retries, first_pause_seconds=0.01))
    publish(engine, "/a", "/a/x")
    hook = Hook(failing="/a", holding="/a")
    member = stores.member("m1", processors=Processors(before=hook))
    members.start(member)
    assert hook.held.wait(PATIENCE_SECONDS)
    sling_id = member.sling_id
    assert sling_id is not None
    engine.send(COMMANDS, CommandMessage(sling_id, POOL, Offset(0), AUTHOR, "c1", 1))
    wait_until(lambda: stores.open_commands() == 1)
    hook.release.set()
    wait_until(lambda: len(engine.statuses()) == 2 and len(engine.results()) == 1)
    assert [status for _, status in outcomes(engine)] == [PackageStatus.REMOVED, PackageStatus.IMPORTED]
    (answer,) = engine.results()
    assert (answer.state, answer.removed) == (CommandState.DONE, 1)


def test_a_member_shows_a_failure_for_as_long_as_its_package_is_tried(
    engine: Engine, stores: Stores, members: Members
) -> None:
    stores.settings = pool_settings(config=SubscriberConfig(max_retries=None, first_pause_seconds=0.01))
    publish(engine, "/a")
    hook = Hook(failing="/a")
    member = stores.member("m1", processors=Processors(before=hook))
    members.start(member)
    wait_until(lambda: member.statistics.attempts > 1)
    publish(engine, "/b")
    wait_until(lambda: len(engine.statuses()) == 1)
    wait_until(lambda: member.statistics.imported == 1)
    assert (member.statistics.phase, member.statistics.attempts > 1) == (SubscriberPhase.RETRYING, True)
    hook._failing = ""  # the receiver of the hook works again
    wait_until(lambda: member.statistics.phase is SubscriberPhase.CURRENT)
    assert (member.statistics.cause, member.statistics.attempts) == (None, 0)


def test_a_package_that_was_given_up_is_no_failure_of_the_pool(
    engine: Engine, stores: Stores, members: Members
) -> None:
    publish(engine, "/a")
    member = stores.member("m1", processors=Processors(before=Hook(failing="/a")))
    members.start(member)
    wait_until(lambda: [status for _, status in outcomes(engine)] == [PackageStatus.REMOVED_FAILED])
    wait_until(lambda: member.statistics.phase is SubscriberPhase.CURRENT)
    assert (member.statistics.cause, member.statistics.attempts, member.statistics.failed) == (None, 0, 1)


def test_a_publisher_that_a_pool_passed_over_is_missed_when_the_pool_follows_it(
    engine: Engine, stores: Stores, members: Members
) -> None:
    stores.settings = pool_settings(follow=(AgentName("other"),))
    publish(engine, "/a", "/b")
    member = stores.member("m1")
    members.start(member)
    wait_until(lambda: member.statistics.stored_offset == 2)
    members.stop()
    with pytest.raises(FollowWidenedError):
        stores.member("m2", pool_settings(follow=(AgentName("other"), AUTHOR))).run(is_endless=False)


def publish_as(engine: Engine, publisher: AgentName, path: str) -> None:
    settings = engine.publishing_with(name=publisher)
    engine.publisher(settings).publish(add_request([NodePath(path)]), page_source(path))


def test_a_package_that_is_given_up_notes_the_publishers_that_its_commit_passes(
    engine: Engine, stores: Stores, members: Members
) -> None:
    other, freeze = AgentName("other"), Freeze(Failpoint.SUBSCRIBER_COMMITTED)
    stores.settings = pool_settings(follow=(other,), config=SubscriberConfig(max_retries=0, first_pause_seconds=0.01))
    publish(engine, "/a")
    publish_as(engine, other, "/b")
    members.start(stores.member("m1", failpoints=freeze, processors=Processors(before=Hook(failing="/b"))))
    assert freeze.frozen.wait(PATIENCE_SECONDS)
    try:
        with opened_ledger(f"{stores.kind}:{stores.place}") as ledger:
            assert ledger.given_up_count == 1
            assert ledger.passed_over == {AUTHOR}
    finally:
        freeze.go_on()


def test_a_redrive_notes_the_publishers_that_its_commit_passes(engine: Engine, stores: Stores) -> None:
    publish(engine, "/a")
    settings = pool_settings(follow=frozenset({AUTHOR}))
    stores.member("m1", settings, processors=Processors(before=Hook(failing="/a"))).run(is_endless=False)
    publish_as(engine, AgentName("other"), "/b")
    with closing(stores.open_target()) as target:
        target.ledger.request_redrive(Offset(0))
        marker = target.ledger.pool.marker()
    assert marker is not None
    ports = stores.ports(NoFailpoints(), random.Random(1))
    shared = SharedTarget(partial(open_target, stores.kind, stores.place, ports.failpoints), ports.clock, ports.random)
    settings = replace(settings, sling_id=instance_of(marker))
    handler = PackageImport(settings, marker, ports, shared, StopSignal(), lambda _: None)
    handler.show(PoolView(engine.journal.identity(PACKAGES), Offset(2), frozenset({"other"})))
    handler.serve_commands(is_read=False)
    with closing(stores.open_target()) as target:
        position = target.ledger.position()
        assert position is not None
        assert (position.next_offset, target.ledger.given_up_count) == (2, 0)
        assert target.ledger.passed_over == {"other"}


def test_beyond_so_many_publishers_that_a_pool_passes_over_any_may_be_missed(engine: Engine) -> None:
    publish(engine, "/a")
    message = decode_record(engine.records()[0])
    names = [AgentName(f"p{number}") for number in range(MAX_PASSED_OVER + 2)]
    engine.send(PACKAGES, *(message._replace(pub_agent_name=name) for name in names))
    fed = FedPackages(engine.journal, pool_settings(follow=frozenset({AUTHOR})), lambda: None)
    assert list(fed.offsets(Offset(0), engine.journal.bounds(PACKAGES).next_offset)) == [0]
    assert fed.passed_over == {*names[:MAX_PASSED_OVER], ANY_PUBLISHER}


def test_a_package_topic_that_is_created_again_is_noticed_while_the_memory_of_a_member_is_full(
    engine: Engine, log: MemoryJournal
) -> None:
    engine.journal.append(PACKAGES, [NewRecord(b"", ())] * MAX_UNFINISHED)
    follower = PackageFollower(engine.journal, pool_settings(), SystemClock(), lambda: None)
    follower.start(engine.position(0))
    try:
        wait_until(lambda: len(follower.unfed(Offset(0)).packages) == MAX_UNFINISHED)
        log.delete_topic(PACKAGES)
        engine.journal.ensure_topic(PACKAGES, TopicSettings())
        with pytest.raises(JournalReplacedError):
            wait_until(lambda: not follower.unfed(Offset(0)))
    finally:
        follower.close()


@pytest.mark.parametrize("error", [JournalCorruptError("a record is missing"), JournalAccessDeniedError("no right")])
def test_a_member_learns_of_an_error_of_its_reader_that_no_retry_helps(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: MailboatError
) -> None:
    follower = PackageFollower(engine.journal, pool_settings(), SystemClock(), lambda: None)

    def fail(*_: object) -> RecordBatch:
        raise error

    monkeypatch.setattr(MemoryReader, "read", fail)
    follower.start(engine.position(0))
    try:
        with pytest.raises(type(error)):
            wait_until(lambda: not follower.unfed(Offset(0)))
    finally:
        follower.close()


def test_packages_of_another_log_or_target_are_left_to_members_that_know_it(engine: Engine, stores: Stores) -> None:
    ports = stores.ports(NoFailpoints(), random.Random(1))
    shared = SharedTarget(partial(open_target, stores.kind, stores.place, ports.failpoints), ports.clock, ports.random)
    handler = PackageImport(pool_settings(), "mine.2", ports, shared, StopSignal(), lambda _: None)
    log = engine.journal.identity(PACKAGES)
    handler.show(PoolView(log, Offset(0)))
    ours = Feed(POOL, 1, Offset(0), log, "mine.2")
    for feed in (ours._replace(log=LogIdentity("another", "log")), ours._replace(target="mine.3")):
        payload = encode_queued(feed, Package(Offset(0), (ROOT,)))
        result = handler(Call({JobId(1): NewJob(pool_topic(POOL), payload)}, Token(1), 1))
        assert result.outcome is AttemptOutcome.SNOOZE


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_content_that_a_package_replaces_counts_as_removed(engine: Engine, tmp_path: Path, kind: str) -> None:
    publish(engine, "/a/x")
    publish(engine, "/a")
    place = tmp_path / "shared"
    place.mkdir()
    assert Stores(engine.journal, engine.blobs, place, kind).member("m1").run(is_endless=False).removed == 1


def test_a_member_that_is_stopped_while_another_one_has_the_target_ends_as_stopped(
    engine: Engine, stores: Stores, members: Members
) -> None:
    with closing(stores.open_target()):
        member = stores.member("m1")
        members.start(member)
        member.stop(Deadline(SystemClock(), 0.0))
        assert members.join()[0].phase is SubscriberPhase.STOPPED


def test_a_redrive_is_refused_where_a_newer_package_above_the_position_is_done(
    engine: Engine, stores: Stores, members: Members
) -> None:
    hook = Hook(failing="/a", holding="/h")
    publish(engine, "/h", "/a", "/a", "/b")
    member = stores.member("m1", processors=Processors(before=hook))
    members.start(member)
    wait_until(lambda: len(engine.statuses()) == 3)
    assert member.statistics.stored_offset == 0, "retention must keep /h, which is not imported"
    sling_id = member.sling_id
    assert sling_id is not None
    hook._failing = ""  # the receiver of the hook works again
    publish(engine, "/a/x")
    wait_until(lambda: len(engine.statuses()) == 4)
    for offset in (1, 2):
        engine.send(COMMANDS, RedriveMessage(sling_id, POOL, Offset(offset), AUTHOR, f"r{offset}", 1))
    wait_until(lambda: len(engine.results()) == 2)
    assert {result.state for result in engine.results()} == {CommandState.REFUSED}
    assert all("PackageSuperseded" in (result.message or "") for result in engine.results())
    hook.release.set()


def test_a_suspended_pool_imports_nothing_until_it_is_resumed(engine: Engine, stores: Stores, members: Members) -> None:
    member = stores.member("m1")
    members.start(member, stores.member("m2"))
    wait_until(lambda: member.statistics.phase is SubscriberPhase.CURRENT)
    sling_id = member.sling_id
    assert sling_id is not None
    engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=True, command_id="s1"))
    wait_until(lambda: {item.statistics.phase for item in members.all()} == {SubscriberPhase.SUSPENDED})
    publish(engine, "/a")
    with pytest.raises(SubscriberSuspendedError):
        stores.member("m3").run(is_endless=False)
    assert engine.statuses() == []
    engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=False, command_id="s2"))
    wait_until(lambda: len(engine.statuses()) == 1)


def suspend_and_resume(engine: Engine, stores: Stores, members: Members, hook: Hook, failing: str = "") -> None:
    """While the first member is held by the hook, another one takes both commands: nothing is done in between."""
    (member,) = members.all()
    # The first one asks for commands twice a second; before it does, only the target has the suspension.
    other = stores.member("m2", processors=Processors(before=Hook(failing=failing)))
    members.start(other)
    wait_until(lambda: other.sling_id is not None)
    assert other.sling_id is not None
    engine.send(COMMANDS, SuspendMessage(other.sling_id, POOL, suspended=True, command_id="s1"))
    wait_until(lambda: [result.state for result in engine.results()] == [CommandState.DONE])
    hook.release.set()
    wait_until(lambda: member.statistics.phase is SubscriberPhase.SUSPENDED)
    assert engine.statuses() == []
    engine.send(COMMANDS, SuspendMessage(other.sling_id, POOL, suspended=False, command_id="s2"))


def test_an_import_that_began_before_the_pool_was_suspended_ends_after_it_is_resumed(
    engine: Engine, stores: Stores, members: Members
) -> None:
    hook = Hook(holding="/a")
    publish(engine, "/a")
    members.start(stores.member("m1", processors=Processors(before=hook)))
    assert hook.held.wait(PATIENCE_SECONDS)
    suspend_and_resume(engine, stores, members, hook)
    wait_until(lambda: len(engine.statuses()) == 1)


def test_a_package_that_fails_after_the_pool_was_suspended_is_given_up_once_it_is_resumed(
    engine: Engine, stores: Stores, members: Members
) -> None:
    stores.settings = pool_settings(config=SubscriberConfig(max_retries=0, first_pause_seconds=0.01))
    hook = Hook(failing="/a", holding="/a")
    publish(engine, "/a")
    members.start(stores.member("m1", processors=Processors(before=hook)))
    assert hook.held.wait(PATIENCE_SECONDS)
    suspend_and_resume(engine, stores, members, hook, failing="/a")
    wait_until(lambda: [status for _, status in outcomes(engine)] == [PackageStatus.REMOVED_FAILED])


class AwayBlobs:
    """A blob store that cannot be reached for a while."""

    def __init__(self, inner: Any) -> None:
        self.is_away = True
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if self.is_away:
            raise BlobStoreUnavailableError("the blob store is away")
        return getattr(self._inner, name)


class AwayJournal:
    """A journal whose packages cannot be read one by one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def record_at(self, *_: object) -> Any:
        raise JournalUnavailableError("the journal is away")


def test_a_member_claims_nothing_for_a_growing_time_while_its_journal_or_storage_fails(
    engine: Engine, stores: Stores
) -> None:
    stores.clock = clock = ManualClock()
    away: Any = AwayJournal(engine.journal)
    ports = stores.ports(NoFailpoints(), random.Random(1), away)
    shared = SharedTarget(partial(open_target, stores.kind, stores.place, ports.failpoints), clock, ports.random)
    settings = pool_settings(config=SubscriberConfig(first_pause_seconds=1.0))
    handler = PackageImport(settings, "mine.1", ports, shared, StopSignal(), lambda _: None)
    log = engine.journal.identity(PACKAGES)
    handler.show(PoolView(log, Offset(0)))
    payload = encode_queued(Feed(POOL, 1, Offset(0), log, "mine.1"), Package(Offset(0), (ROOT,)))
    call = Call({JobId(1): NewJob(pool_topic(POOL), payload)}, Token(1), 1)
    for longest in (1.0, 2.0, 4.0):
        assert not handler.pause.holds
        results = [handler(call) for _ in range(3)]  # as of calls side by side
        assert {(result.outcome, result.delay_seconds) for result in results} == {(AttemptOutcome.SNOOZE, 1.0)}
        clock.advance(0.49 * longest)
        assert handler.pause.holds
        clock.advance(0.52 * longest)
    assert handler.counts.failure[0] == 0


def test_a_pool_waits_for_its_blob_store_without_a_counted_attempt(
    engine: Engine, stores: Stores, members: Members
) -> None:
    settings = engine.publishing_with(inline_package_bytes=1, transfer=Transfer.REFERENCE)
    engine.publisher(settings).publish(add_request([NodePath("/a")]), page_source("/a"))
    away: Any = AwayBlobs(stores.blobs)
    stores.blobs = away
    member = stores.member("m1")
    members.start(member)
    wait_until(lambda: member.statistics.phase is SubscriberPhase.WAITING)
    assert (member.statistics.attempts, member.statistics.cause is not None) == (0, True)
    away.is_away = False
    wait_until(lambda: member.statistics.phase is SubscriberPhase.CURRENT)


class UnreadJournal:
    """A journal whose packages cannot be read one after another."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.is_away = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def reader(self, topic: TopicName, start: Start) -> Any:
        reader = self._inner.reader(topic, start)
        read = reader.read

        def read_unless_away(*limits: object) -> Any:
            if self.is_away and topic == PACKAGES:
                raise JournalUnavailableError("the leader of this topic is away")
            return read(*limits)

        reader.read = read_unless_away
        return reader


def test_a_pool_waits_while_its_packages_cannot_be_read(engine: Engine, stores: Stores, members: Members) -> None:
    publish(engine, "/a")
    away: Any = UnreadJournal(engine.journal)
    member = stores.member("m1", journal=away)
    members.start(member)
    wait_until(lambda: member.statistics.phase is SubscriberPhase.WAITING)
    away.is_away = False
    wait_until(lambda: member.statistics.phase is SubscriberPhase.CURRENT)
    assert member.statistics.cause is None


def test_a_suspended_pool_redrives_a_package_once_it_is_resumed(
    engine: Engine, stores: Stores, members: Members
) -> None:
    hook = Hook(failing="/a")
    publish(engine, "/a")
    member = stores.member("m1", processors=Processors(before=hook))
    members.start(member)
    wait_until(lambda: [status for _, status in outcomes(engine)] == [PackageStatus.REMOVED_FAILED])
    hook._failing = ""  # the receiver of the hook works again
    sling_id = member.sling_id
    assert sling_id is not None
    engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=True, command_id="s1"))
    engine.send(COMMANDS, RedriveMessage(sling_id, POOL, Offset(0), AUTHOR, "r1", 1))
    wait_until(lambda: [result.command_id for result in engine.results()] == ["s1"])
    wait_until(lambda: stores.open_commands() == 1)
    engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=False, command_id="s2"))
    wait_until(lambda: len(engine.results()) == 3)
    assert {result.state for result in engine.results()} == {CommandState.DONE}
    assert (stores.place / "a").exists()


def test_a_package_in_pieces_is_imported_whole_by_one_member(engine: Engine, stores: Stores, members: Members) -> None:
    text = "page " * 40_000
    source = page_source("/big", text=text)
    settings = engine.publishing_with(transfer=Transfer.CHUNKS, inline_package_bytes=1_000, piece_bytes=40_000)
    offset = engine.publisher(settings).publish(add_request([NodePath("/big")]), source).offset
    assert offset > 1
    publish(engine, "/small")
    members.start(stores.member("m1"), stores.member("m2"), is_endless=False)
    ended = members.join()
    assert sum(item.imported for item in ended) == 2
    assert (stores.place / "big").read_text() == f"{text} of /big"
    assert outcomes(engine) == [(offset, PackageStatus.IMPORTED), (offset + 1, PackageStatus.IMPORTED)]


def test_jobs_of_rules_are_added_once_by_the_pool(engine: Engine, stores: Stores, members: Members) -> None:
    publish(engine, "/content/a", "/content/b")
    stores.settings = pool_settings(job_rules=(JobRule("/content/**", "purge.cdn"),))
    members.start(stores.member("m1"), stores.member("m2"), is_endless=False)
    members.join()
    with_jobs = stores.jobs_of("purge.cdn")
    assert len(with_jobs) == 2


def test_requests_about_jobs_do_not_touch_the_packages_of_a_pool(
    engine: Engine, stores: Stores, members: Members, log: MemoryJournal
) -> None:
    publish(engine, "/a")
    members.start(stores.member("m1"), is_endless=False)
    members.join()
    service, queue = JobService(log.another_handle, SystemClock(), random.Random(1)), pool_queue(POOL)
    refused = [
        lambda: service.set_queue(QueueSettings(queue)),
        lambda: service.remove_queue(queue),
        lambda: service.clear(queue),
        lambda: service.poll(Offer("w", 1, (pool_topic(POOL),)), 1, ()),
        lambda: service.add([NewJob(pool_topic(POOL))]),
    ]
    for request in refused:
        with pytest.raises(UsageError):
            request()
    assert service.queue(queue).due == 0


def test_a_member_with_another_target_is_refused(
    engine: Engine, stores: Stores, members: Members, tmp_path: Path
) -> None:
    publish(engine, "/a")
    members.start(stores.member("m1"), is_endless=False)
    members.join()
    other = Stores(engine.journal, engine.blobs, tmp_path / "another")
    with pytest.raises(PoolTargetDiffersError):
        other.member("m2").run(is_endless=False)
    accepted = replace(pool_settings(), is_gap_accepted=True)
    assert other.member("m3", accepted).run(is_endless=False).imported == 1
    assert outcomes(engine) == [(0, PackageStatus.IMPORTED)] * 2, "another target is another instance"


def suspend_with_two_versions(engine: Engine, stores: Stores, members: Members) -> SlingId:
    """Import a page, and leave its next version in the queue of a pool whose members have ended."""
    publish(engine, "/a")
    member = stores.member("m1")
    members.start(member)
    wait_until(lambda: len(engine.statuses()) == 1)
    sling_id = member.sling_id
    assert sling_id is not None
    engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=True, command_id="s1"))
    wait_until(lambda: member.statistics.phase is SubscriberPhase.SUSPENDED)
    engine.publisher().publish(add_request([NodePath("/a")]), page_source("/a", text="newer"))
    wait_until(lambda: member.statistics.backlog is not None and member.statistics.backlog.queued == 1)
    members.stop()
    return sling_id


@pytest.mark.parametrize("is_same", [True, False], ids=["an older copy", "another target"])
def test_a_pool_that_goes_back_in_the_log_imports_what_is_in_its_queue_in_order(
    engine: Engine, stores: Stores, members: Members, tmp_path: Path, *, is_same: bool
) -> None:
    stores.member("m0").run(is_endless=False)
    shutil.copytree(stores.place, tmp_path / "copy")
    suspend_with_two_versions(engine, stores, members)
    shutil.rmtree(stores.place)
    shutil.copytree(tmp_path / "copy", stores.place)
    settings = pool_settings()
    if not is_same:
        stores, settings = (
            Stores(engine.journal, engine.blobs, tmp_path / "another"),
            pool_settings(is_gap_accepted=True),
        )
    assert stores.member("m2", settings).run(is_endless=False).imported == 2
    assert (stores.place / "a").read_text() == "newer of /a"


def test_a_pool_on_an_older_copy_of_its_target_imports_what_the_copy_lacks(
    engine: Engine, stores: Stores, members: Members, tmp_path: Path
) -> None:
    publish(engine, "/a")
    stores.member("m1").run(is_endless=False)
    shutil.copytree(stores.place, tmp_path / "copy")
    publish(engine, "/b", "/c")
    member = stores.member("m2")
    members.start(member)
    wait_until(lambda: member.statistics.stored_offset == 3)
    shutil.rmtree(stores.place)
    shutil.copytree(tmp_path / "copy", stores.place)
    assert stores.member("m3").run(is_endless=False).imported == 2
    assert digest_of(FolderSource(stores.place)) == digest_of(page_source("/a", "/b", "/c"))
    # It has read the packages that came again, and would leave them out.
    members.join()
    assert [type(error) for error in members.errors] == [PoolForgottenError]


@pytest.mark.parametrize("is_emptied", [False, True], ids=["an older copy", "an empty target"])
def test_a_member_whose_target_is_replaced_stops_before_it_imports_into_it(
    engine: Engine, stores: Stores, members: Members, tmp_path: Path, *, is_emptied: bool
) -> None:
    stores.member("m0").run(is_endless=False)
    shutil.copytree(stores.place, tmp_path / "copy")
    publish(engine, "/a")
    member = stores.member("m1")
    members.start(member)
    wait_until(lambda: member.statistics.stored_offset == 1)
    shutil.rmtree(stores.place)
    if not is_emptied:
        shutil.copytree(tmp_path / "copy", stores.place)
    publish(engine, "/b")
    members.join()
    assert [type(error) for error in members.errors] == [PoolTargetDiffersError]
    assert (members.errors[0].next_step == OTHER_TARGET_STEP) is is_emptied
    settings = pool_settings(is_gap_accepted=is_emptied)
    assert stores.member("m2", settings).run(is_endless=False).imported == 2


def test_a_member_notices_an_older_copy_of_its_target_while_a_package_holds_the_position(
    engine: Engine, stores: Stores, members: Members, tmp_path: Path
) -> None:
    stores.member("m0").run(is_endless=False)
    shutil.copytree(stores.place, tmp_path / "copy")
    hook = Hook(holding="/h")
    publish(engine, "/h", "/a")
    members.start(stores.member("m1", processors=Processors(before=hook)))
    wait_until(lambda: len(engine.statuses()) == 1 and is_free(stores))
    shutil.rmtree(stores.place)
    shutil.copytree(tmp_path / "copy", stores.place)
    publish(engine, "/b")
    hook.release.set()
    members.join()
    assert [type(error) for error in members.errors] == [PoolTargetDiffersError]
    assert stores.member("m2").run(is_endless=False).imported == 3


def test_a_member_of_a_former_begin_of_the_pool_changes_nothing(engine: Engine, stores: Stores) -> None:
    publish(engine, "/a")
    stores.member("m1").claim()
    stopped = list[MailboatError]()
    ports = stores.ports(NoFailpoints(), random.Random(1))
    shared = SharedTarget(partial(open_target, stores.kind, stores.place, ports.failpoints), ports.clock, ports.random)
    handler = PackageImport(pool_settings(), "former.1", ports, shared, StopSignal(), stopped.append)
    log = engine.journal.identity(PACKAGES)
    handler.show(PoolView(log, Offset(0)))
    payload = encode_queued(Feed(POOL, 1, Offset(0), log, ""), Package(Offset(0), (ROOT,)))
    result = handler(Call({JobId(1): NewJob(pool_topic(POOL), payload)}, Token(1), 1))
    assert (result.outcome, [type(error) for error in stopped]) == (AttemptOutcome.SNOOZE, [PoolTargetDiffersError])
    assert not (stores.place / "a").exists()


def test_the_lost_job_of_a_package_that_is_done_holds_up_no_member(
    engine: Engine, stores: Stores, members: Members
) -> None:
    sling_id = suspend_with_two_versions(engine, stores, members)
    with closing(stores.open_target()) as target:
        position = target.ledger.position()
        assert position is not None
        with target.batch() as batch:  # its member died before it reported
            batch.commit(position, {Offset(1): Token(1)})
    with closing(open_job_topic(engine.journal, topic=stores.job_topic)) as topic:
        while not topic.follow():
            pass
        as_of = topic.next_offset
        topic.write_checkpoint()
    engine.journal.truncate(stores.job_topic, as_of)
    member = stores.member("m2")
    members.start(member)
    engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=False, command_id="r1"))
    wait_until(lambda: member.statistics.phase is SubscriberPhase.CURRENT)
    assert not members.errors


def test_a_pool_whose_queue_lost_a_package_takes_it_from_the_log(
    engine: Engine, stores: Stores, members: Members
) -> None:
    sling_id = suspend_with_two_versions(engine, stores, members)
    with closing(open_job_topic(engine.journal, topic=stores.job_topic)) as topic:
        while not topic.follow():
            pass
        as_of = topic.next_offset
        topic.write_checkpoint()
    engine.journal.truncate(stores.job_topic, as_of)
    member = stores.member("m2")
    members.start(member)
    wait_until(lambda: member.statistics.phase is SubscriberPhase.SUSPENDED)
    engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=False, command_id="r1"))
    wait_until(lambda: len(engine.statuses()) == 2)
    assert (stores.place / "a").read_text() == "newer of /a"


def test_a_suspended_pool_appends_nothing_for_the_packages_in_its_queue(
    engine: Engine, stores: Stores, members: Members
) -> None:
    member = stores.member("m1")
    members.start(member)
    wait_until(lambda: member.statistics.phase is SubscriberPhase.CURRENT)
    sling_id = member.sling_id
    assert sling_id is not None
    engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=True, command_id="s1"))
    wait_until(lambda: member.statistics.phase is SubscriberPhase.SUSPENDED)
    publish(engine, *(f"/{number}" for number in range(20)))
    wait_until(lambda: member.statistics.backlog is not None and member.statistics.backlog.queued == 20)
    before = engine.journal.bounds(stores.job_topic).next_offset
    for answers, command_id in enumerate(("s2", "s3"), len(engine.results()) + 1):  # half a second each
        engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=True, command_id=command_id))
        wait_until(partial(has_answers, engine, answers))
    assert engine.journal.bounds(stores.job_topic).next_offset - before < 5
    engine.send(COMMANDS, SuspendMessage(sling_id, POOL, suspended=False, command_id="r1"))
    wait_until(lambda: len(engine.statuses()) == 20)


def test_a_pool_that_has_imported_all_outlives_the_retention_of_its_last_package(
    engine: Engine, stores: Stores, members: Members
) -> None:
    publish(engine, "/a")
    member = stores.member("m1")
    members.start(member)
    wait_until(lambda: member.statistics.stored_offset == 1)
    members.stop()
    publish(engine, "/b")
    assert stores.member("m2").run(is_endless=False).stored_offset == 2
    engine.journal.truncate(PACKAGES, Offset(2))
    assert stores.member("m3").run(is_endless=False).imported == 0


def test_a_trimmed_or_replaced_log_is_a_named_state(
    engine: Engine, stores: Stores, members: Members, log: MemoryJournal
) -> None:
    publish(engine, "/a", "/b")
    members.start(stores.member("m1"), is_endless=False)
    members.join()
    publish(engine, "/c", "/d")
    engine.journal.truncate(PACKAGES, Offset(3))
    with pytest.raises(JournalTrimmedError):
        stores.member("m2").run(is_endless=False)
    accepted = replace(pool_settings(), is_gap_accepted=True)
    assert stores.member("m3", accepted).run(is_endless=False).imported == 1
    log.delete_topic(PACKAGES)
    engine.journal.ensure_topic(PACKAGES, TopicSettings())
    with pytest.raises(JournalReplacedError):
        stores.member("m4").run(is_endless=False)


def test_a_pool_that_imported_what_its_log_lost_stops_and_takes_what_comes_there(
    engine: Engine, stores: Stores
) -> None:
    publish(engine, "/a", "/b")
    stores.member("m1").run(is_endless=False)
    with closing(stores.open_target()) as target:
        position = target.ledger.position()
        assert position is not None
        with target.batch() as batch:  # of a package that the log lost, behind one that is tried again
            batch.commit(position, {Offset(2): Token(1)})
    with pytest.raises(JournalShorterError):
        stores.member("m2").run(is_endless=False)
    stores.member("m3", pool_settings(is_gap_accepted=True)).run(is_endless=False)
    publish(engine, "/c")
    assert stores.member("m4").run(is_endless=False).imported == 1


def test_a_pool_whose_job_topic_is_gone_imports_nothing_twice(
    engine: Engine, stores: Stores, members: Members, log: MemoryJournal
) -> None:
    publish(engine, "/h", "/a", "/b")
    hook = Hook(holding="/h")
    members.start(stores.member("m1", processors=Processors(before=hook)))
    wait_until(lambda: len(engine.statuses()) == 2)
    log.delete_topic(stores.job_topic)
    hook.release.set()
    members.stop()
    stores.member("m2").run(is_endless=False)
    assert outcomes(engine) == [(offset, PackageStatus.IMPORTED) for offset in range(3)]


def test_a_pool_that_was_forgotten_begins_again_at_the_position_of_its_target(
    engine: Engine, stores: Stores, members: Members, log: MemoryJournal
) -> None:
    publish(engine, "/a", "/b")
    first = stores.member("m1")
    members.start(first)
    wait_until(lambda: first.statistics.phase is SubscriberPhase.CURRENT)
    service = JobService(log.another_handle, SystemClock(), random.Random(1))
    service.forget_pool(POOL, ["another target"])
    assert pool_queue(POOL) in {queue.queue for queue in service.queues()}
    assert first.sling_id is not None
    service.forget_pool(POOL, [first.sling_id])
    members.join()
    assert [type(error) for error in members.errors] == [PoolForgottenError]
    members.errors.clear()
    publish(engine, "/c")
    assert stores.member("m2").run(is_endless=False).imported == 1
    assert outcomes(engine) == [(offset, PackageStatus.IMPORTED) for offset in range(3)]
    service.close()


def test_the_lag_of_a_pool_leaves_out_what_is_done_above_its_position(
    engine: Engine, stores: Stores, members: Members
) -> None:
    publish(engine, "/h", "/a", "/b", "/c")
    hook = Hook(holding="/h")
    member = stores.member("m1", processors=Processors(before=hook))
    members.start(member)
    wait_until(lambda: len(engine.statuses()) == 3)
    wait_until(lambda: member.statistics.lag_offsets == 1)
    assert member.statistics.next_offset == 0
    hook.release.set()


class LateJournal:
    """A journal whose packages are not read before a moment; `asked` is set with the first read."""

    def __init__(self, inner: Any, moment: threading.Event, asked: threading.Event | None = None) -> None:
        self._inner = inner
        self._moment = moment
        self.asked = asked or threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def reader(self, topic: str, start: object) -> Any:
        made = self._inner.reader(topic, start)
        return LateJournal(made, self._moment, self.asked) if topic == PACKAGES else made

    def read(self, *how: object) -> Any:
        self.asked.set()
        self._moment.wait(PATIENCE_SECONDS)
        return self._inner.read(*how)


def test_a_member_that_starts_shows_its_lag_before_it_has_read_a_package(engine: Engine, stores: Stores) -> None:
    publish(engine, "/a", "/b", "/c")
    shown: list[SubscriberStatistics] = []
    has_shown = threading.Event()

    def show(statistics: SubscriberStatistics) -> None:
        shown.append(statistics)
        if statistics.lag_offsets is not None:
            has_shown.set()

    late: Any = LateJournal(engine.journal, has_shown)
    assert stores.member("m1", journal=late, when_changed=show).run(is_endless=False).imported == 3
    first = next(each for each in shown if each.lag_offsets is not None)
    assert (first.lag_offsets, first.phase, first.is_ready) == (3, SubscriberPhase.IMPORTING, False)
    assert shown[-1].is_ready


def test_a_member_that_starts_reads_what_its_pool_has_done_without_the_target(
    engine: Engine, stores: Stores, members: Members
) -> None:
    hook, moment = Hook(holding="/h"), threading.Event()
    publish(engine, "/h", "/a", "/b")
    members.start(stores.member("m1", processors=Processors(before=hook)))
    wait_until(lambda: len(engine.statuses()) == 2)
    late: Any = LateJournal(engine.journal, moment)
    members.start(stores.member("m2", journal=late))
    assert late.asked.wait(PATIENCE_SECONDS)

    wait_until(lambda: is_free(stores))
    moment.set()
    hook.release.set()
    wait_until(lambda: len(engine.statuses()) == 3)


class NotedWaits:
    """A journal that notes how long reads of the job topic may wait."""

    def __init__(self, inner: Any, waits: list[float]) -> None:
        self._inner = inner
        self._waits = waits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def reader(self, topic: str, start: object) -> Any:
        made = self._inner.reader(topic, start)
        return made if topic == PACKAGES else NotedWaits(made, self._waits)

    def read(self, limits: object, wait_seconds: float) -> Any:
        self._waits.append(wait_seconds)
        return self._inner.read(limits, wait_seconds)


def test_a_member_looks_again_after_the_grace_for_packages_that_it_leaves_to_another_one(
    engine: Engine, stores: Stores, members: Members
) -> None:
    publish(engine, "/a")
    with closing(open_job_topic(engine.journal, topic=stores.job_topic)) as topic:
        topic.append(WorkerSeen("a-member-that-died", 1, (pool_topic(POOL),), RULES))
    waits: list[float] = []
    noted: Any = NotedWaits(engine.journal, waits)
    members.start(stores.member("m1", journal=noted))
    wait_until(lambda: len(engine.statuses()) == 1)
    assert 0.5 in waits


def test_a_member_of_a_newer_version_is_ready_while_it_waits_for_older_ones(
    engine: Engine, stores: Stores, members: Members
) -> None:
    # A rollout replaces the next older member only once the newer one is ready.
    publish(engine, "/a")
    with closing(open_job_topic(engine.journal, topic=stores.job_topic)) as topic:
        topic.append(WorkerSeen("old", 1, (pool_topic(POOL),)))  # as a version before the number appends it
        shown: list[SubscriberStatistics] = []
        members.start(stores.member("m1", when_changed=shown.append))
        wait_until(lambda: any(each.ready_reason == "older-members" for each in shown))
        held_up = shown[-1]
        assert (held_up.is_ready, held_up.imported, held_up.lag_offsets) == (True, 0, 1)
        topic.append(WorkerSeen("old", 0, ()))
    wait_until(lambda: (shown[-1].imported, shown[-1].ready_reason) == (1, "caught-up"))


def test_what_is_done_is_forgotten_when_the_position_has_passed_it(
    engine: Engine, stores: Stores, members: Members
) -> None:
    publish(engine, *(f"/{number}" for number in range(5)))
    members.start(stores.member("m1"), is_endless=False)
    members.join()
    publish(engine, "/last")
    stores.member("m2").run(is_endless=False)
    target = open_target("files", stores.place, NoFailpoints(), is_known=False)
    try:
        position = target.ledger.position()
        assert position is not None
        assert position.next_offset >= 5
        assert not target.ledger.pool.is_done(Offset(0))
    finally:
        target.close()
