"""Workers: turns, failures, pauses, stops, and that liveness hears of each."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from mailboat.agent.process import HeartbeatClock
from mailboat.clock import Clock
from mailboat.errors import JournalUnavailableError
from mailboat.subscriber.admission import ImportGuard, StopSignal
from mailboat.testing.clocks import ManualClock, SkippingClock
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.workers import Worker, WorkerOptions, heartbeat


class Turns:
    """Fails as the test says, and tells when it is done with that."""

    def __init__(self, *failures: Exception, pause: float | None = 5.0) -> None:
        self.failures = list(failures)
        self.pause = pause
        self.count = 0
        self.went_well = threading.Event()

    def __call__(self) -> float | None:
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        self.went_well.set()
        return self.pause


def test_it_takes_turns_with_pauses_and_at_once_when_it_is_woken() -> None:
    clock, turns = ManualClock(), Turns()
    worker = Worker("w", turns, clock, WorkerOptions("working"))
    assert not worker.is_running
    worker.start()
    assert clock.await_waiters()
    clock.advance(4.9)
    assert turns.count == 1
    clock.advance(0.2)
    wait_until(lambda: turns.count == 2)
    clock.await_waiters()
    worker.wake()
    wait_until(lambda: turns.count == 3)
    assert worker.stop(PATIENCE_SECONDS)
    assert not worker.is_running


def test_what_is_done_ends_and_says_farewell() -> None:
    said: list[str] = []
    worker = Worker("w", Turns(pause=None), ManualClock(), WorkerOptions("working", on_end=lambda: said.append("bye")))
    worker.start()
    assert worker.join(PATIENCE_SECONDS)
    assert said == ["bye"]


def test_stop_before_start_prevents_a_later_start() -> None:
    turns = Turns()
    worker = Worker("w", turns, ManualClock(), WorkerOptions("working"))
    assert worker.stop(0.0)
    worker.begin()
    assert turns.count == 0


def test_failures_are_waited_out_with_growing_pauses_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = SkippingClock()
    turns = Turns(*[JournalUnavailableError("away")] * 5)
    seen: list[Exception] = []
    options = WorkerOptions("working", 1.0, 4.0, on_failure=seen.append, where={"subscriber": "edge"})
    before = clock.monotonic()
    worker = Worker("w", turns, clock, options)
    worker.start()
    assert turns.went_well.wait(PATIENCE_SECONDS)
    worker.stop(PATIENCE_SECONDS)
    assert clock.monotonic() - before >= 1 + 2 + 4 + 4 + 4
    assert (worker.failures, len(seen)) == (5, 5)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [warning.getMessage() for warning in warnings] == [
        "working failed: JournalUnavailable: away; next try in 1 seconds"
    ]
    assert warnings[0].__dict__["subscriber"] == "edge"
    assert "working works again" in caplog.text


def test_a_defect_is_told_with_its_trace_and_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns(RecursionError("a defect"))
    worker = Worker("w", turns, SkippingClock(), WorkerOptions("working"))
    worker.start()
    assert turns.went_well.wait(PATIENCE_SECONDS)
    worker.stop(PATIENCE_SECONDS)
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert line.exc_info is not None
    assert "working failed by a defect: RecursionError('a defect')" in line.getMessage()


def test_a_wish_of_the_failed_side_is_heard_but_not_for_ever() -> None:
    clock = SkippingClock()
    turns = Turns(JournalUnavailableError("busy", retry_after_seconds=120.0))
    worker = Worker("w", turns, clock, WorkerOptions("working", jitter=random.Random(1)))
    began = clock.monotonic()
    worker.start()
    assert turns.went_well.wait(PATIENCE_SECONDS)
    worker.stop(PATIENCE_SECONDS)
    assert clock.monotonic() - began >= 120


def test_a_stop_ends_a_pause_after_a_failure_and_interrupts_a_turn() -> None:
    interrupted = threading.Event()
    worker = Worker(
        "w",
        Turns(*[JournalUnavailableError("away")] * 9),
        ManualClock(),
        WorkerOptions("working", interrupt=interrupted.set),
    )
    worker.start()
    wait_until(lambda: worker.failures == 1)
    assert worker.stop(PATIENCE_SECONDS)
    assert interrupted.is_set()


def test_only_a_retry_ends_a_pause_after_a_failure_before_its_time() -> None:
    clock, turns = ManualClock(), Turns(*[JournalUnavailableError("away")] * 2)
    worker = Worker("w", turns, clock, WorkerOptions("working"))
    worker.start()
    assert clock.await_waiters()
    worker.wake()
    assert worker.failures == 1
    worker.retry()
    wait_until(lambda: worker.failures == 2)
    assert worker.stop(PATIENCE_SECONDS)


def test_a_farewell_that_fails_does_no_harm() -> None:
    def fails() -> None:
        raise JournalUnavailableError("away")

    worker = Worker("w", Turns(pause=None), SkippingClock(), WorkerOptions("working", on_end=fails))
    worker.start()
    assert worker.join(PATIENCE_SECONDS)
    assert worker.failures == 1


class Stuck:
    """A turn that does not end before the test wants it to."""

    def __init__(self) -> None:
        self.began, self.release = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.began.set()
        assert self.release.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(("stall_seconds", "limit"), [(None, 10.0), (100.0, 100.0)])
def test_a_turn_that_neither_asks_the_time_nor_waits_is_stuck_after_its_time(
    stall_seconds: float | None, limit: float
) -> None:
    inner, stuck = ManualClock(), Stuck()
    clock = HeartbeatClock(inner, stall_seconds=10.0)
    worker = Worker("w", stuck, clock, WorkerOptions("working", stall_seconds=stall_seconds))
    worker.start()
    assert stuck.began.wait(PATIENCE_SECONDS)
    inner.advance(limit)
    assert clock.stuck() == []
    inner.advance(0.1)
    assert clock.stuck() == ["mailboat-w"]
    stuck.release.set()
    assert worker.join(PATIENCE_SECONDS)
    assert clock.stuck() == []


@pytest.mark.parametrize("question", [Clock.now, Clock.monotonic, lambda clock: clock.wait(threading.Event(), 1.0)])
def test_a_loop_within_a_turn_that_only_polls_is_stuck(question: Callable[[Clock], object]) -> None:
    inner = SkippingClock()
    clock = HeartbeatClock(inner, stall_seconds=10.0)
    clock.began("w", None)
    for _ in range(11):
        inner.advance(1.0)
        question(clock)
    assert clock.stuck() == ["w"]


def test_progress_below_a_turn_keeps_it_alive_and_announces_a_pause() -> None:
    inner = ManualClock()
    clock = HeartbeatClock(inner, stall_seconds=10.0)
    clock.began("w", None)
    for pause in (0.0, 100.0):
        inner.advance(9.0)
        heartbeat(clock)(pause)
    inner.advance(109.0)
    assert clock.stuck() == []


def test_each_record_of_an_import_is_progress() -> None:
    inner = ManualClock()
    clock = HeartbeatClock(inner, stall_seconds=10.0)
    guard = ImportGuard(clock, None, StopSignal())
    clock.began("w", None)
    for _ in range(3):
        inner.advance(9.0)
        guard.check()
        assert clock.stuck() == []


def test_a_long_turn_that_asks_whether_to_stop_is_not_stuck() -> None:
    inner, stuck = ManualClock(), list[str]()
    clock = HeartbeatClock(inner, stall_seconds=10.0)

    def turn() -> None:
        for _ in range(3):
            inner.advance(9.0)
            assert not worker.is_stopping
            stuck.extend(clock.stuck())
        inner.advance(11.0)
        stuck.extend(clock.stuck())

    worker = Worker("w", turn, clock, WorkerOptions("working"))
    worker.start()
    assert worker.join(PATIENCE_SECONDS)
    assert (worker.failures, stuck) == (0, ["mailboat-w"])


def test_a_beat_covers_the_time_that_it_names() -> None:
    inner = ManualClock()
    clock = HeartbeatClock(inner, stall_seconds=10.0)
    clock.began("w", None)
    clock.beat(100.0)
    inner.advance(109.0)
    assert clock.stuck() == []
    inner.advance(2.0)
    assert clock.stuck() == ["w"]
    clock.ended()


def test_a_worker_that_waits_is_quiet_for_as_long_as_it_said() -> None:
    inner = ManualClock()
    clock = HeartbeatClock(inner, stall_seconds=10.0)
    worker = Worker("w", Turns(pause=1000.0), clock, WorkerOptions("working"))
    worker.start()
    assert inner.await_waiters()
    inner.advance(900.0)
    assert clock.stuck() == []
    worker.stop(PATIENCE_SECONDS)


def test_a_thread_that_ended_as_it_should_not_is_stuck() -> None:
    clock = HeartbeatClock(ManualClock())
    thread = threading.Thread(target=lambda: clock.began("gone", None))
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert clock.stuck() == ["gone"]
