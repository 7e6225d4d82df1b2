"""Staging: a package is imported only after the golden subscriber did, and nothing is guessed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.config.document import StagingConfig
from mailboat.config.topic_settings import TopicSettings
from mailboat.content.port import Target
from mailboat.content.watched_sources import namespaces_of
from mailboat.errors import JournalAccessDeniedError
from mailboat.journal.port import Journal, JournalReader, Start
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.messages import (
    Action,
    CommandMessage,
    DiscoveryMessage,
    PackageStatus,
    StatusMessage,
    SubscriberState,
)
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath
from mailboat.model.positions import Bounds, Position
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.subscriber.golden_watch import AdmissionDecision, GoldenStatuses, GoldenWatch, decide_precondition
from mailboat.subscriber.subscriber import Subscriber, Until
from mailboat.subscriber.subscriber_settings import SubscriberPorts
from mailboat.testing.examples import examples
from mailboat.testing.memory_content import MemorySource
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.package_messages import decode_package
from support.engines import (
    ANNOUNCEMENTS,
    AUTHOR,
    COMMANDS,
    EDGE,
    PACKAGES,
    SLING_ID,
    STATUSES,
    Engine,
    page_source,
)

GOLDEN = AgentName("golden")
GOLDEN_ID = SlingId("9090a000-0000-4000-8000-000000000001")
IMPORTED, REMOVED, FAILED = PackageStatus.IMPORTED, PackageStatus.REMOVED, PackageStatus.REMOVED_FAILED
ACCEPT, SKIP, WAIT = AdmissionDecision.IMPORT, AdmissionDecision.SKIP, AdmissionDecision.WAIT


# ---------------------------------------------------------------------------------------------------- the decision


@pytest.mark.parametrize(
    ("status", "is_lost", "golden_at", "expected"),
    [
        (IMPORTED, False, None, ACCEPT),
        (IMPORTED, True, 0, ACCEPT),
        (REMOVED, False, None, SKIP),
        (FAILED, False, 99, SKIP),
        (FAILED, True, 99, SKIP),
        (None, False, None, WAIT),
        (None, False, 99, WAIT),  # a gap: it is past the package and never said what became of it
        (None, True, None, WAIT),
        (None, True, 7, WAIT),
        (None, True, 8, ACCEPT),
    ],
)
def test_what_the_golden_subscriber_did_decides(
    status: PackageStatus | None, is_lost: bool, golden_at: int | None, expected: AdmissionDecision
) -> None:
    at = None if golden_at is None else Offset(golden_at)
    assert decide_precondition(status, Offset(7), is_status_lost=is_lost, golden_next_offset=at) is expected


@settings(deadline=None, max_examples=examples(100))
@given(
    base=st.integers(0, 50),
    notes=st.lists(st.tuples(st.integers(0, 100), st.sampled_from(PackageStatus)), max_size=60),
    trimmed=st.integers(0, 120),
)
def test_the_newest_status_of_each_package_is_known_and_nothing_below_the_position(
    base: int, notes: list[tuple[int, PackageStatus]], trimmed: int
) -> None:
    kept = GoldenStatuses(Offset(base))
    expected: dict[int, PackageStatus] = {}
    for offset, status in notes:
        kept.note(Offset(offset), status)
        expected[offset] = IMPORTED if status is IMPORTED else REMOVED
    kept.trim(Offset(trimmed))
    first = max(base, trimmed)
    for offset in range(120):
        assert kept.of(Offset(offset)) == (expected.get(offset) if offset >= first else None)
    assert len(kept) <= max([0, *(offset + 1 - first for offset in expected if offset >= first)])


# ------------------------------------------------------------------------------------------------------ with a log


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path) as opened:
        opened.subscribing = opened.with_settings(
            command_topic=COMMANDS,
            discovery_topic=ANNOUNCEMENTS,
            staging=StagingConfig(GOLDEN, 60.0),
            announcement_seconds=0.0,
        )
        yield opened


@pytest.fixture
def target(engine: Engine) -> Iterator[Target]:
    opened = engine.target("sqlite")
    yield opened
    opened.close()


def publish(engine: Engine, *paths: str) -> int:
    return engine.publisher().publish(add_request(map(NodePath, paths)), page_source(*paths)).offset


def says(engine: Engine, offset: int, status: PackageStatus = IMPORTED, name: AgentName = GOLDEN) -> None:
    engine.send(STATUSES, StatusMessage(GOLDEN_ID, name, AUTHOR, Offset(offset), status))


def announces(engine: Engine, next_offset: int, *, is_editable: bool = True, follows: AgentName = AUTHOR) -> None:
    states = (SubscriberState(follows, next_offset - 1),)
    message = DiscoveryMessage(GOLDEN_ID, GOLDEN, states, is_editable, next_offset=Offset(next_offset))
    engine.send(ANNOUNCEMENTS, message)


def catch_up(engine: Engine, target: Target, **settings: object) -> Any:
    return engine.subscriber(target, engine.with_settings(**settings)).run(Until.CAUGHT_UP)


def paths_in(target: Target) -> set[str]:
    source = target.source()
    try:
        return {node.path for node in source.walk(NodePath("/"))}
    finally:
        source.close()


def own_statuses(engine: Engine) -> dict[int, PackageStatus]:
    return {status.offset: status.status for status in engine.statuses() if status.sub_agent_name == EDGE}


class Running:
    """A subscriber in a thread of its own."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self._thread = threading.Thread(target=subscriber.run)

    def __enter__(self) -> Subscriber:
        self._thread.start()
        return self.subscriber

    def __exit__(self, *_: object) -> None:
        self.subscriber.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "a stop is not heard"


def waits(subscriber: Subscriber, next_offset: int = 0) -> bool:
    figures = subscriber.statistics()
    return figures.phase is SubscriberPhase.WAITING_FOR and (figures.next_offset or 0) == next_offset


def test_what_the_golden_subscriber_imported_is_imported_and_what_it_dropped_is_not(
    engine: Engine, target: Target
) -> None:
    for number, status in enumerate((IMPORTED, FAILED, REMOVED, IMPORTED)):
        says(engine, publish(engine, f"/page-{number}"), status)
    statistics = catch_up(engine, target)
    assert paths_in(target) == {"/page-0", "/page-3"}
    assert own_statuses(engine) == {0: IMPORTED, 1: REMOVED, 2: REMOVED, 3: IMPORTED}
    assert (statistics.imported, statistics.dropped) == (2, 2)


def test_namespaces_arrive_with_the_packages_that_the_golden_subscriber_imported(
    engine: Engine, target: Target
) -> None:
    for number, status in enumerate((IMPORTED, FAILED, IMPORTED)):
        page = Node(NodePath(f"/page-{number}"), f"p{number}:Page")
        source = MemorySource([page], namespaces={f"p{number}": (f"urn:{number}",)})
        says(engine, engine.publisher().publish(add_request([page.path]), source).offset, status)
    catch_up(engine, target)
    with closing(target.source()) as copy:
        assert dict(namespaces_of(copy) or {}) == {"p0": ("urn:0",), "p2": ("urn:2",)}


def test_one_that_may_not_read_the_confirmations_stops_and_gives_nothing_up(
    engine: Engine, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(engine, "/page")
    reader = engine.journal.reader

    def refuse(*_: object) -> Any:
        raise JournalAccessDeniedError("Topic authorization failed", topic=STATUSES)

    def readable_but_for_confirmations(topic: TopicName, start: Any) -> JournalReader:
        opened = reader(topic, start)
        if topic == STATUSES:
            monkeypatch.setattr(opened, "read", refuse)
        return opened

    monkeypatch.setattr(engine.journal, "reader", readable_but_for_confirmations)
    with pytest.raises(JournalAccessDeniedError):
        catch_up(engine, target)
    assert list(target.ledger.given_up()) == []
    assert (target.ledger.position() or engine.position(0)).next_offset == 0


@pytest.mark.parametrize("is_editable", [True, False])
def test_a_skipped_package_is_reported_with_the_golden_name(engine: Engine, target: Target, is_editable: bool) -> None:
    says(engine, publish(engine, "/page"), FAILED)
    catch_up(engine, target, is_editable=is_editable)
    assert paths_in(target) == set()
    own = [status for status in engine.statuses() if status.sub_agent_name == EDGE]
    assert [(item.status, item.staged_behind) for item in own] == [(REMOVED, GOLDEN)]


def test_imports_of_a_subscriber_that_is_not_editable_are_not_reported(engine: Engine, target: Target) -> None:
    says(engine, publish(engine, "/page"), IMPORTED)
    catch_up(engine, target, is_editable=False)
    assert paths_in(target) == {"/page"}
    assert own_statuses(engine) == {}


def test_a_package_waits_for_the_golden_subscriber_and_the_wait_is_no_attempt(engine: Engine, target: Target) -> None:
    first = publish(engine, "/page-0")
    second = publish(engine, "/page-1")
    announces(engine, 0)
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: waits(subscriber))
        figures = subscriber.statistics()
        assert (figures.state, figures.attempts, figures.cause) == ("waiting-for golden", 0, None)
        says(engine, first)
        wait_until(lambda: waits(subscriber, 1))
        assert paths_in(target) == {"/page-0"}
        says(engine, second)
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.CURRENT)
    assert paths_in(target) == {"/page-0", "/page-1"}
    assert target.ledger.attempt() is None


def test_a_gap_is_not_taken_for_an_import(engine: Engine, target: Target) -> None:
    first, second = publish(engine, "/page-0"), publish(engine, "/page-1")
    says(engine, second)
    announces(engine, 2)
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: waits(subscriber))
        says(engine, first, FAILED)
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.CURRENT)
    assert paths_in(target) == {"/page-1"}


@pytest.mark.parametrize(
    ("announce", "reason"),
    [
        (lambda _: None, "golden has not announced itself lately"),
        (lambda engine: announces(engine, 0, is_editable=False), "golden is not editable, so it confirms nothing"),
        (lambda engine: announces(engine, 0, follows=AgentName("other")), "golden does not follow author"),
    ],
)
def test_a_wait_that_may_be_in_vain_says_so(
    engine: Engine, target: Target, announce: Callable[[Engine], None], reason: str
) -> None:
    publish(engine, "/page")
    announce(engine)
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: waits(subscriber))
        cause = subscriber.statistics().cause
        assert cause is not None
        assert (cause.code, cause.message) == ("GoldenSilent", reason)


def test_a_clear_ends_the_wait(engine: Engine, target: Target) -> None:
    offset = publish(engine, "/page")
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: waits(subscriber))
        engine.send(COMMANDS, CommandMessage(SLING_ID, EDGE, Offset(offset), AUTHOR, "clear-1"))
        wait_until(lambda: len(engine.results()) == 1)
    assert own_statuses(engine) == {offset: REMOVED}


def test_each_look_ends_and_the_next_begins(engine: Engine, target: Target) -> None:
    offset = publish(engine, "/page")
    short = engine.with_settings(staging=StagingConfig(GOLDEN, 0.05), announcement_seconds=0.0)
    with Running(engine.subscriber(target, short)) as subscriber:
        wait_until(lambda: waits(subscriber))
        announces(engine, 0, is_editable=False)
        wait_until(lambda: "not editable" in str(subscriber.statistics().cause))
        says(engine, offset)
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.CURRENT)


def test_tests_and_invalidations_are_handled(engine: Engine, target: Target) -> None:
    engine.publisher().publish(DistributionRequest(Action.TEST), None)
    purge = engine.publisher().publish(DistributionRequest(Action.INVALIDATE, (NodePath("/page"),)), None).offset
    says(engine, purge)
    statistics = catch_up(engine, target)
    assert (statistics.skipped, statistics.imported) == (1, 1)


def test_what_others_or_oneself_confirmed_does_not_count(engine: Engine, target: Target) -> None:
    offset = publish(engine, "/page")
    says(engine, offset, IMPORTED, AgentName("golden-2"))
    says(engine, offset, IMPORTED, EDGE)
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: waits(subscriber))
        says(engine, offset)
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.CURRENT)


def test_a_forged_status_of_a_package_far_beyond_the_log_costs_nothing(engine: Engine, target: Target) -> None:
    offset = publish(engine, "/page")
    says(engine, 2**60)
    says(engine, offset)
    assert catch_up(engine, target).imported == 1


# ------------------------------------------------------------------------------------------------- what retention took


def trimmed_statuses(engine: Engine) -> None:
    engine.journal.truncate(STATUSES, engine.journal.bounds(STATUSES).next_offset)


def test_a_confirmation_that_retention_took_is_made_up_for_by_the_announced_position(
    engine: Engine, target: Target
) -> None:
    says(engine, publish(engine, "/page"))
    trimmed_statuses(engine)
    announces(engine, 1)
    assert catch_up(engine, target).imported == 1


def test_without_an_announcement_nothing_is_made_up(engine: Engine, target: Target) -> None:
    says(engine, publish(engine, "/page"))
    trimmed_statuses(engine)
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: waits(subscriber))
        assert paths_in(target) == set()


def test_a_package_younger_than_the_oldest_status_that_is_left_waits_for_its_own(
    engine: Engine, target: Target
) -> None:
    says(engine, publish(engine, "/page-0"))
    trimmed_statuses(engine)
    says(engine, 0, IMPORTED, AgentName("another"))  # what is left begins here
    before_ms = int(time.time() * 1000)
    wait_until(lambda: int(time.time() * 1000) > before_ms + 1)  # the next package is younger, by the clock
    offset = publish(engine, "/page-1")
    announces(engine, 2)
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: waits(subscriber, 1))
        assert paths_in(target) == {"/page-0"}
        says(engine, offset)
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.CURRENT)


def test_one_that_goes_back_looks_at_all_statuses_again(engine: Engine, target: Target) -> None:
    for number in range(3):
        says(engine, publish(engine, f"/page-{number}"), IMPORTED if number else FAILED)
    catch_up(engine, target)
    target.ledger.reset_position(Position(engine.journal.identity(PACKAGES), Offset(0)))
    again = replace(engine.subscribing, status_topic=STATUSES)
    assert engine.subscriber(target, again).run(Until.CAUGHT_UP).dropped == 1


def test_statuses_that_retention_took_unread_are_known_to_be_lost(engine: Engine, target: Target) -> None:
    old = publish(engine, "/page-0")
    watch = GoldenWatch(StagingConfig(GOLDEN), engine.with_settings(announcement_seconds=0.0), ports_of(engine, target))
    watch.start_at(Offset(0))
    message = decode_package(engine.records()[old].value)
    assert watch.decide(Offset(old), message) is WAIT
    says(engine, old)
    says(engine, old + 1, FAILED)
    engine.journal.truncate(STATUSES, Offset(1))
    announces(engine, old + 1)
    assert watch.decide(Offset(old), message) is ACCEPT
    assert watch.decide(Offset(old), message._replace(created_ms=None)) is ACCEPT
    assert watch.decide(Offset(old), message._replace(created_ms=2**41)) is WAIT
    watch.close()


def test_a_status_topic_that_was_created_again_is_watched_from_its_beginning(engine: Engine, target: Target) -> None:
    old, new = publish(engine, "/page-0"), publish(engine, "/page-1")
    watch = GoldenWatch(StagingConfig(GOLDEN), engine.with_settings(announcement_seconds=0.0), ports_of(engine, target))
    watch.start_at(Offset(0))
    first, second = (decode_package(engine.records()[offset].value) for offset in (old, new))
    assert watch.decide(Offset(old), first) is WAIT
    engine.journal.upkeep.delete_topic(STATUSES)
    engine.journal.ensure_topic(STATUSES, TopicSettings())
    says(engine, new, FAILED)
    announces(engine, new + 1)
    assert watch.decide(Offset(new), second) is SKIP
    assert watch.decide(Offset(old), first) is ACCEPT  # its confirmation may have gone with the topic
    watch.close()


def ports_of(engine: Engine, target: Target) -> SubscriberPorts:
    return SubscriberPorts(engine.journal, engine.blobs, engine.parts.codecs, target=target)


def test_a_golden_subscriber_that_is_past_a_package_without_a_word_is_told_as_an_obstacle(
    engine: Engine, target: Target
) -> None:
    """It was restored from a snapshot, or not editable then: its confirmation will never come."""
    offset = publish(engine, "/a")
    staging = engine.subscribing.staging
    assert staging is not None
    ports = SubscriberPorts(engine.journal, engine.blobs, engine.parts.codecs, engine.parts.clock, target=target)
    watch, message = GoldenWatch(staging, engine.subscribing, ports), decode_package(engine.records()[0].value)
    watch.start_at(Offset(0))
    announces(engine, offset)
    assert watch.decide(Offset(offset), message) is WAIT
    assert watch.obstacle(message) is None  # it has not come that far
    announces(engine, offset + 1)
    found = watch.obstacle(message)
    assert found is not None
    assert (found.code, "never confirmed it; clear the queue" in found.message) == ("GoldenSilent", True)
    says(engine, offset)
    assert watch.obstacle(message) is None
    watch.close()


class TruncatedAtOpening:
    """A journal whose status topic loses its head between a look at its bounds and the reader."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def reader(self, topic: TopicName, start: Start) -> JournalReader:
        if topic == STATUSES:
            self._journal.truncate(STATUSES, Offset(1))
        return self._journal.reader(topic, start)

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)


def test_status_removed_while_the_watch_opens_counts_as_lost(engine: Engine, target: Target) -> None:
    says(engine, publish(engine, "/page"))
    announces(engine, 1)
    ports = replace(ports_of(engine, target), journal=TruncatedAtOpening(engine.journal))
    watch = GoldenWatch(StagingConfig(GOLDEN), engine.with_settings(announcement_seconds=0.0), ports)
    watch.start_at(Offset(0))
    assert watch.decide(Offset(0), decode_package(engine.records()[0].value)) is ACCEPT
    watch.close()


def test_announcements_that_retention_removes_while_they_are_read_are_read_again(
    engine: Engine, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = publish(engine, "/page")
    announces(engine, offset, is_editable=False)
    announces(engine, offset)
    watch = GoldenWatch(StagingConfig(GOLDEN), engine.subscribing, ports_of(engine, target))
    watch.start_at(Offset(0))
    bounds, message = engine.journal.bounds, decode_package(engine.records()[0].value)

    def truncated_after(topic: TopicName) -> Bounds:
        found = bounds(topic)
        if topic == ANNOUNCEMENTS:
            monkeypatch.setattr(engine.journal, "bounds", bounds)
            engine.journal.truncate(ANNOUNCEMENTS, Offset(1))
        return found

    monkeypatch.setattr(engine.journal, "bounds", truncated_after)
    first = watch.obstacle(message)
    assert first is not None
    assert first.message == "golden has not announced itself lately"
    assert watch.obstacle(message) is None
    watch.close()
