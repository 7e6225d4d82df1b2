"""A subscriber's thread: what opens, waits, stops and fails in it, and how that shows."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from mailboat.agent.health import AgentView
from mailboat.agent.pulse import PulsingClock
from mailboat.agent.tasks import SubscriberTask
from mailboat.errors import JournalTrimmedError, MailboatError, StorageReadOnlyError
from mailboat.subscriber.subscription import Until
from mailboat.testing.clocks import ManualClock, SkippingClock

SECONDS = 10.0


class Scripted:
    """A subscriber that runs until it is stopped, or fails as the test says."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.is_closed = False
        self.began, self.stopped = threading.Event(), threading.Event()

    def run(self, until: Until) -> object:
        assert until is Until.FOREVER
        self.began.set()
        if self.failure is not None:
            raise self.failure
        assert self.stopped.wait(SECONDS)
        return None

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.is_closed = True

    def readiness(self) -> tuple[bool, str]:
        return True, "idle"


def task_of(opener: Callable[[], Scripted]) -> SubscriberTask:
    return SubscriberTask("edge", opener, SkippingClock())


def test_it_runs_until_it_is_stopped_and_releases_its_target() -> None:
    subscriber = Scripted()
    task = task_of(lambda: subscriber)
    assert task.view() == AgentView("edge", "subscriber", "starting", is_ready=False, reason="starting")
    task.start()
    assert subscriber.began.wait(SECONDS)
    assert task.view() == AgentView("edge", "subscriber", "running", is_ready=True, reason="idle")
    task.stop()
    assert task.join(SECONDS)
    assert subscriber.is_closed
    assert (task.view().state, task.view().reason, task.exit_code) == ("stopped", "stopped", 0)


def test_a_named_state_ends_it_and_stays_visible() -> None:
    subscriber = Scripted(JournalTrimmedError("20 packages are gone"))
    task = task_of(lambda: subscriber)
    task.start()
    assert task.join(SECONDS)
    assert subscriber.is_closed
    assert task.view() == AgentView("edge", "subscriber", "stopped", is_ready=False, reason="JournalTrimmed")
    assert task.exit_code == 6


def test_a_defect_is_logged_with_its_trace_and_takes_nobody_along(caplog: pytest.LogCaptureFixture) -> None:
    task = task_of(lambda: Scripted(ZeroDivisionError()))
    task.start()
    assert task.join(SECONDS)
    assert (task.view().reason, task.exit_code) == ("defect", 1)
    assert [one.exc_info is not None for one in caplog.records] == [True]


def test_what_is_only_missing_for_a_while_is_waited_for() -> None:
    subscriber, failures = Scripted(), [StorageReadOnlyError("not mounted yet")] * 3

    def open_it() -> Scripted:
        if failures:
            raise failures.pop()
        return subscriber

    task = task_of(open_it)
    task.start()
    assert subscriber.began.wait(SECONDS)
    assert task.view().is_ready
    task.stop()
    assert task.join(SECONDS)


def test_waiting_to_start_ends_at_once_when_told_to_stop() -> None:
    clock = ManualClock()
    failure: MailboatError = StorageReadOnlyError("never mounted")

    def open_it() -> Scripted:
        raise failure

    task = SubscriberTask("edge", open_it, clock)
    task.start()
    assert clock.await_waiters()
    assert task.view() == AgentView("edge", "subscriber", "starting", is_ready=False, reason="StorageReadOnly")
    task.stop()
    assert task.join(SECONDS)
    assert task.exit_code == 0


def test_a_thread_that_neither_asks_the_time_nor_waits_is_stuck() -> None:
    inner = ManualClock()
    clock = PulsingClock(inner, stall_seconds=10.0)
    name = threading.current_thread().name
    clock.monotonic()
    assert clock.stuck([name]) == []
    inner.advance(11.0)
    assert clock.stuck([name]) == [name]
    clock.now()
    assert clock.stuck([name]) == []


def test_a_thread_may_be_silent_for_as_long_as_it_waits() -> None:
    inner = ManualClock()
    clock = PulsingClock(inner, stall_seconds=10.0)
    woken = threading.Event()
    thread = threading.Thread(target=clock.wait, args=(woken, 3600.0), name="waiting")
    thread.start()
    assert inner.await_waiters()
    inner.advance(3000.0)
    assert clock.stuck(["waiting"]) == []
    woken.set()
    thread.join(SECONDS)


def test_a_thread_that_has_ended_but_should_not_have_is_stuck() -> None:
    assert PulsingClock(ManualClock()).stuck(["never-there"]) == ["never-there"]
