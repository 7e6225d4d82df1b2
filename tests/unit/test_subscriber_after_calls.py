"""Calls of the hook `after`: none is lost, in order, with growing pauses, and visible while they wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mailboat.agent.subscriber_process import failed_calls
from mailboat.content.port import Target
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.model.identifiers import Offset
from mailboat.model.messages import AfterCall, FailureCause
from mailboat.subscriber.admission import StopAskedError
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.subscriber.subscriber import Subscriber
from mailboat.subscriber.subscriber_settings import ProcessedPackage, Processors
from mailboat.testing.memory_content import MemoryStore, MemoryTarget
from support.engines import PACKAGES, Engine
from support.memory_imports import Hook, publish, run, subscriber

CAUSE = FailureCause("ProcessorFailed", "exit code 1", "/a", "Traceback")


class PlannedHook:
    """Fails at the calls of a plan, and stops its subscriber with the last one."""

    def __init__(self, *plan: bool) -> None:
        self.offsets: list[int] = []
        self.subscriber: Subscriber | None = None
        self.error: Exception = ValueError("the receiver is away")
        self._plan = plan

    def process(self, package: ProcessedPackage) -> None:
        is_good = self._plan[len(self.offsets)]
        self.offsets.append(package.offset)
        if len(self.offsets) == len(self._plan) and self.subscriber is not None:
            self.subscriber.stop()
        if not is_good:
            raise self.error


def run_planned(engine: Engine, store: MemoryStore, *plan: bool, retries: int | None = 3) -> list[int]:
    """The packages that the hook was called for, in order, until the plan is over; waits pass at once."""
    hook = PlannedHook(*plan)
    settings = engine.with_settings(max_retries=retries, first_pause_seconds=10.0, longest_pause_seconds=60.0)
    hook.subscriber = subscriber(engine, store, settings, processors=Processors(after=hook))
    hook.subscriber.run()
    return hook.offsets


def leave_calls(engine: Engine, store: MemoryStore, packages: int = 2) -> SubscriberStatistics:
    """Import packages whose first call fails."""
    for number in range(packages):
        publish(engine, f"/{number}")
    statistics: SubscriberStatistics = run(engine, store, processors=Processors(after=Hook(failures=1)))
    return statistics


def test_a_failed_call_is_made_again_after_growing_pauses_and_those_behind_it_wait(
    engine: Engine, store: MemoryStore
) -> None:
    publish(engine, "/a")
    publish(engine, "/b")
    began = engine.parts.clock.monotonic()
    assert run_planned(engine, store, False, False, True, True) == [0, 0, 0, 1]
    assert engine.parts.clock.monotonic() - began >= 5.0 + 10.0
    assert store.after_calls == {}
    assert set(store.bodies) == {"/a", "/b"}


def test_used_up_attempts_set_a_call_aside_and_the_next_ones_go_on(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    publish(engine, "/b")
    assert run_planned(engine, store, False, False, True, retries=1) == [0, 0, 1]
    (call,) = store.after_calls.values()
    assert (call.offset, call.attempts, call.is_set_aside) == (0, 2, True)
    assert call.cause is not None
    assert call.cause.message == "the receiver is away"


def test_without_an_end_of_retries_no_call_is_set_aside(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    assert run_planned(engine, store, *[False] * 20, retries=None) == [0] * 20
    assert [after_call.is_set_aside for after_call in store.after_calls.values()] == [False]


def test_figures_say_what_waits_and_why(engine: Engine, store: MemoryStore) -> None:
    after = leave_calls(engine, store).after
    assert after is not None
    assert (after.waiting, after.set_aside) == (2, 0)
    assert after.cause is not None
    assert after.cause.message == "no"


@pytest.mark.parametrize("is_set_aside", [False, True])
def test_the_next_start_makes_the_calls_that_are_left(engine: Engine, store: MemoryStore, is_set_aside: bool) -> None:
    leave_calls(engine, store)
    if is_set_aside:
        store.after_calls[Offset(0)] = AfterCall(Offset(0), 4, CAUSE, is_set_aside=True)
    assert run_planned(engine, store, True, True) == [0, 1]
    assert store.after_calls == {}
    assert store.commits == 1


def test_a_call_that_a_stop_interrupts_is_made_at_the_next_start(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    hook = PlannedHook(False)
    hook.error = StopAskedError()
    hook.subscriber = subscriber(engine, store, processors=Processors(after=hook))
    hook.subscriber.run()
    assert [(after_call.offset, after_call.attempts) for after_call in store.after_calls.values()] == [(0, 0)]
    assert run_planned(engine, store, True) == [0]


def test_a_call_whose_package_retention_removed_is_set_aside_by_name(engine: Engine, store: MemoryStore) -> None:
    leave_calls(engine, store)
    engine.journal.truncate(PACKAGES, Offset(1))
    assert run_planned(engine, store, True) == [1]
    (call,) = store.after_calls.values()
    assert call.cause is not None
    assert (call.offset, call.is_set_aside, call.cause.code) == (0, True, "PackageGone")


def test_calls_for_a_log_that_lost_its_end_are_dropped_with_a_line_in_the_log(
    engine: Engine, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    leave_calls(engine, store)
    store.position = engine.position(10)
    hook = Hook()
    run(engine, store, engine.with_settings(is_gap_accepted=True), processors=Processors(after=hook))
    assert [item.offset for item in hook.seen] == [0, 1]
    assert store.after_calls == {}
    assert "2 calls of the hook after an import are dropped" in caplog.text


def test_calls_stay_while_no_hook_is_configured(
    engine: Engine, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    leave_calls(engine, store)
    calls = run(engine, store).after
    assert calls is not None
    assert calls.waiting == 2
    assert "2 calls of one wait in the target" in caplog.text


@pytest.fixture(params=["memory", "sqlite"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    made: Target = MemoryTarget() if request.param == "memory" else open_sqlite_target(tmp_path / "edge.db")
    yield made
    made.close()


def test_targets_keep_calls_with_the_commit(engine: Engine, target: Target) -> None:
    ledger = target.ledger.hook_calls
    with target.batch() as batch:
        batch.expect_after([Offset(7)])
    assert ledger.counts() == (0, 0)
    with target.batch() as batch:
        batch.expect_after([Offset(3), Offset(1), Offset(2)])
        batch.commit(engine.position(4))
    assert ledger.calls(2) == [AfterCall(Offset(1)), AfterCall(Offset(2))]
    retried, aside = AfterCall(Offset(1), 2, CAUSE), AfterCall(Offset(3), 4, CAUSE, is_set_aside=True)
    ledger.store(retried)
    ledger.store(aside)
    assert ledger.counts() == (2, 1)
    assert ledger.calls(9) == [retried, AfterCall(Offset(2))]
    assert ledger.calls(9, is_set_aside=True) == [aside]
    ledger.forget([Offset(1), Offset(2)])
    ledger.resume()
    assert ledger.calls(9) == [AfterCall(Offset(3), 0, CAUSE)]
    ledger.store(aside)
    assert ledger.retry(Offset(3))
    assert ledger.calls(9) == [AfterCall(Offset(3), 0, CAUSE)]
    assert not ledger.retry(Offset(1))
    assert ledger.counts() == (1, 0)


def test_announcements_name_a_few_failed_calls_without_their_traces() -> None:
    ledger = MemoryTarget().ledger.hook_calls
    long = FailureCause("ProcessorFailed", "x" * 5_000, None, "Traceback")
    for number in range(30):
        ledger.store(AfterCall(Offset(number), 4, long, is_set_aside=number != 7))
    ledger.store(AfterCall(Offset(99)))
    failed = failed_calls(ledger)
    assert [item.offset for item in failed] == [7, *range(7), *range(8, 20)]
    cause = FailureCause("ProcessorFailed", "x" * 300, None, None, is_truncated=True)
    assert failed[0] == AfterCall(Offset(7), 4, cause)
