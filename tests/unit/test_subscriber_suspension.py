"""Suspend and resume: what is imported meanwhile, through restarts, pauses and the end of the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mailboat.content.port import Target
from mailboat.model.identifiers import Offset, PackageId
from mailboat.model.messages import Action, CommandState, PackageMessage, SuspendMessage
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.commands import SubscriberSuspendedError
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.subscriber.subscriber import Subscriber, Until
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.engines import AUTHOR, COMMANDS, EDGE, PACKAGES, SLING_ID, Engine, page_source

SUSPENDED = SubscriberPhase.SUSPENDED
LONG_AGO_MS = 1_000
FAR_MS = 4_000_000_000_000


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path) as opened:
        opened.subscribing = opened.with_settings(
            command_topic=COMMANDS, max_retries=None, first_pause_seconds=3600.0, longest_pause_seconds=3600.0
        )
        yield opened


@pytest.fixture
def target(engine: Engine) -> Iterator[Target]:
    opened = engine.target("sqlite")
    engine.subscriber(opened).prepare()
    yield opened
    opened.close()


def suspend(command_id: str = "suspend-1", until_ms: int | None = None) -> SuspendMessage:
    return SuspendMessage(SLING_ID, EDGE, True, until_ms, command_id)


def resume(command_id: str = "resume-1") -> SuspendMessage:
    return SuspendMessage(SLING_ID, EDGE, False, None, command_id)


def publish(engine: Engine, path: str) -> None:
    engine.publisher().publish(add_request([NodePath(path)]), page_source(path))


@contextmanager
def running(subscriber: Subscriber) -> Iterator[Subscriber]:
    thread = threading.Thread(target=subscriber.run)
    thread.start()
    try:
        yield subscriber
    finally:
        subscriber.stop()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def paths_in(target: Target) -> set[str]:
    source = target.source()
    try:
        return {node.path for node in source.walk(NodePath("/"))}
    finally:
        source.close()


def test_suspended_subscriber_imports_nothing_before_it_is_resumed(engine: Engine, target: Target) -> None:
    engine.send(COMMANDS, suspend())
    publish(engine, "/page")
    with running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: subscriber.statistics().phase is SUSPENDED)
        wait_until(lambda: len(engine.results()) == 1)
        figures = subscriber.statistics()
        assert (figures.imported, figures.lag_offsets, figures.suspension is not None) == (0, 1, True)
        assert paths_in(target) == set()
        engine.send(COMMANDS, resume())
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.CURRENT)
        assert subscriber.statistics().suspension is None
    assert paths_in(target) == {"/page"}
    assert [(result.verb, result.state, result.message) for result in engine.results()] == [
        ("suspend", CommandState.DONE, "imports are suspended"),
        ("resume", CommandState.DONE, "imports resume"),
    ]


def test_suspension_survives_a_restart_and_a_run_to_the_end_says_so(engine: Engine, target: Target) -> None:
    engine.send(COMMANDS, suspend(until_ms=FAR_MS))
    publish(engine, "/page")
    for _ in range(2):
        with pytest.raises(SubscriberSuspendedError, match="suspended"):
            engine.subscriber(target).run(Until.CAUGHT_UP)
    found = target.ledger.commands.suspension()
    assert found is not None
    assert found.until_ms == FAR_MS
    assert paths_in(target) == set()
    engine.send(COMMANDS, resume())
    assert engine.subscriber(target).run(Until.CAUGHT_UP).imported == 1


@pytest.mark.parametrize(
    "commands",
    [
        (suspend(until_ms=LONG_AGO_MS),),
        (suspend(), resume()),
        (resume(),),
        (suspend("one"), resume("two"), suspend("one")),
    ],
    ids=["time-is-over", "resumed", "never-suspended", "repeated-command"],
)
def test_commands_that_leave_no_suspension(
    engine: Engine, target: Target, commands: tuple[SuspendMessage, ...]
) -> None:
    engine.send(COMMANDS, *commands)
    publish(engine, "/page")
    assert engine.subscriber(target).run(Until.CAUGHT_UP).imported == 1


def test_suspension_ends_the_pause_of_a_failing_package_and_keeps_its_attempts(engine: Engine, target: Target) -> None:
    plain = PackageMessage(SLING_ID, PackageId("poison"), Action.ADD, "tree", AUTHOR, paths=(NodePath("/bad"),))
    engine.send(PACKAGES, plain._replace(payload_ref=f"sha256:{'22' * 32}:9", package_length_bytes=9))
    with running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.RETRYING)
        engine.send(COMMANDS, suspend())
        wait_until(lambda: subscriber.statistics().phase is SUSPENDED)
        engine.send(COMMANDS, resume())
        # the pause is an hour: only the resume can be what tries it again
        wait_until(lambda: subscriber.statistics().attempts == 2)


def test_suspended_subscriber_stays_ready_to_serve(engine: Engine, target: Target) -> None:
    publish(engine, "/page")
    with running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: subscriber.statistics().is_ready)
        engine.send(COMMANDS, suspend())
        wait_until(lambda: subscriber.statistics().phase is SUSPENDED)
        publish(engine, "/later")
        assert subscriber.statistics().is_ready
    assert target.ledger.position() is not None
    assert target.ledger.position().next_offset == Offset(1)
