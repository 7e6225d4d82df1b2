"""A subscriber's thread: what opens, waits, stops and fails in it, and how that shows."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from mailboat.agent.health import AgentView
from mailboat.agent.subscriber_process import SubscriberBusyError
from mailboat.agent.tasks import SubscriberTask, TaskEnd, decide_end
from mailboat.clock import SystemClock
from mailboat.errors import JournalTrimmedError, MailboatError, StorageReadOnlyError, TargetBusyError
from mailboat.model.identifiers import AgentName, SlingId
from mailboat.model.messages import DiscoveryMessage, FailureCause
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.subscriber.subscriber import Until
from mailboat.testing.clocks import ManualClock, SkippingClock
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS


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
        assert self.stopped.wait(PATIENCE_SECONDS)
        return None

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.is_closed = True

    def statistics(self) -> SubscriberStatistics:
        return SubscriberStatistics(is_ready=True, ready_reason="idle")

    def present(self) -> DiscoveryMessage:
        assert not self.is_closed
        return DiscoveryMessage(SlingId("home"), AgentName("edge"), ())


def task_of(opener: Callable[[], Scripted]) -> SubscriberTask:
    return SubscriberTask("edge", opener, SkippingClock())


def test_it_runs_until_it_is_stopped_and_releases_its_target() -> None:
    subscriber = Scripted()
    task = task_of(lambda: subscriber)
    assert task.view() == AgentView("edge", "subscriber", "starting", ready=False, reason="starting")
    task.worker.start()
    assert subscriber.began.wait(PATIENCE_SECONDS)
    assert task.view() == AgentView("edge", "subscriber", "running", ready=True, reason="idle")
    assert task.report() == (subscriber.present(), True, False, None)
    task.worker.ask_to_stop()
    assert task.worker.join(PATIENCE_SECONDS)
    assert subscriber.is_closed
    assert (task.view().state, task.view().reason, task.exit_code) == ("stopped", "stopped", 0)
    assert task.is_over


def test_a_named_state_ends_it_and_stays_visible() -> None:
    subscriber = Scripted(JournalTrimmedError("20 packages are gone"))
    task = task_of(lambda: subscriber)
    task.worker.start()
    assert task.worker.join(PATIENCE_SECONDS)
    assert subscriber.is_closed
    assert task.view() == AgentView("edge", "subscriber", "stopped", ready=False, reason="JournalTrimmed")
    message, is_running, is_over, cause = task.report()
    assert (message is not None, is_running, is_over) == (True, False, True)
    assert cause == FailureCause("JournalTrimmed", "20 packages are gone")
    assert task.exit_code == 6


def test_a_defect_is_logged_with_its_trace_and_takes_no_one_along(caplog: pytest.LogCaptureFixture) -> None:
    task = task_of(lambda: Scripted(ZeroDivisionError()))
    task.worker.start()
    assert task.worker.join(PATIENCE_SECONDS)
    assert (task.view().reason, task.exit_code) == ("defect", 1)
    assert task.report().cause == FailureCause(
        "AgentDefect", "internal error (ZeroDivisionError); the agent's log has the trace"
    )
    # Threads that other tests left may log, too.
    told = [record for record in caplog.records if record.name == SubscriberTask.__module__]
    assert [record.exc_info is not None for record in told] == [True]


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (StorageReadOnlyError("read-only"), None),
        (TargetBusyError("locked"), TaskEnd("TargetBusy", 5)),
        (JournalTrimmedError("gone"), TaskEnd("JournalTrimmed", 6)),
        (ZeroDivisionError(), TaskEnd("defect", 1)),
    ],
)
def test_an_error_ends_a_subscriber_unless_it_is_temporary(error: Exception, end: TaskEnd | None) -> None:
    assert decide_end(error) == end


def test_a_subscriber_that_ended_is_not_started_again_while_the_process_stops() -> None:
    opened = 0

    def opener() -> Scripted:
        nonlocal opened
        opened += 1
        return Scripted(JournalTrimmedError("gone"))

    task = task_of(opener)
    task.worker.start()
    assert task.worker.join(PATIENCE_SECONDS)
    task.worker.ask_to_stop()
    ended = task.worker
    task.run_between(lambda _: None)
    assert (task.worker is ended, task.is_over, opened) == (True, True, 1)


def test_what_is_only_missing_for_a_while_is_waited_for() -> None:
    subscriber, failures = Scripted(), [StorageReadOnlyError("not mounted yet")] * 3

    def open_it() -> Scripted:
        if failures:
            raise failures.pop()
        return subscriber

    task = task_of(open_it)
    task.worker.start()
    assert subscriber.began.wait(PATIENCE_SECONDS)
    assert task.view().ready
    task.worker.ask_to_stop()
    assert task.worker.join(PATIENCE_SECONDS)


def test_waiting_to_start_ends_at_once_when_told_to_stop() -> None:
    clock = ManualClock()
    failure: MailboatError = StorageReadOnlyError("never mounted")

    def open_it() -> Scripted:
        raise failure

    task = SubscriberTask("edge", open_it, clock)
    task.worker.start()
    assert clock.await_waiters()
    assert task.view() == AgentView("edge", "subscriber", "starting", ready=False, reason="StorageReadOnly")
    task.worker.ask_to_stop()
    assert task.worker.join(PATIENCE_SECONDS)
    assert task.exit_code == 0


def test_work_between_two_runs_does_not_wait_for_the_end_of_a_pause() -> None:
    clock, subscriber, failures = ManualClock(), Scripted(), [StorageReadOnlyError("not mounted yet")]
    was_open: list[bool] = []

    def open_it() -> Scripted:
        if failures:
            raise failures.pop()
        return subscriber

    task = SubscriberTask("edge", open_it, clock)
    task.worker.start()
    assert clock.await_waiters()
    task.run_between(lambda _: was_open.append(subscriber.began.is_set()))
    assert subscriber.began.wait(PATIENCE_SECONDS)
    assert was_open == [False]
    task.worker.ask_to_stop()
    assert task.worker.join(PATIENCE_SECONDS)


def test_opening_is_awaited_until_it_is_decided() -> None:
    opened, may_open = threading.Event(), threading.Event()

    def open_late() -> Scripted:
        opened.set()
        assert may_open.wait(PATIENCE_SECONDS)
        return Scripted(JournalTrimmedError("it begins at 7"))

    task = SubscriberTask("edge", open_late, SystemClock())
    task.worker.start()
    assert opened.wait(PATIENCE_SECONDS)
    task.await_opened(0.01)
    assert task.view().state == "starting"
    may_open.set()
    task.await_opened(PATIENCE_SECONDS)
    assert task.worker.join(PATIENCE_SECONDS)
    assert task.view().reason == "JournalTrimmed"


def test_a_subscriber_that_cannot_open_now_keeps_no_one_waiting() -> None:
    def refuse() -> Scripted:
        raise StorageReadOnlyError("read-only")

    task = SubscriberTask("edge", refuse, SystemClock())
    task.worker.start()
    task.await_opened(PATIENCE_SECONDS)
    assert task.view().reason == "StorageReadOnly"
    task.worker.ask_to_stop()
    assert task.worker.join(PATIENCE_SECONDS)


def test_a_lock_that_is_released_within_seconds_is_waited_for() -> None:
    subscriber, attempts = Scripted(), list[int]()

    def open_subscriber() -> Scripted:
        attempts.append(1)
        if len(attempts) < 4:
            raise SubscriberBusyError("a subscriber edge runs on this home already")
        return subscriber

    task = task_of(open_subscriber)
    task.worker.start()
    assert subscriber.began.wait(PATIENCE_SECONDS)
    assert task.view().state == "running"
    task.worker.ask_to_stop()
    assert task.worker.join(PATIENCE_SECONDS)


def test_a_lock_that_stays_held_stops_the_subscriber() -> None:
    def open_subscriber() -> Scripted:
        raise TargetBusyError("another process imports into files:edge")

    task = task_of(open_subscriber)
    task.worker.start()
    assert task.worker.join(PATIENCE_SECONDS)
    assert (task.view().state, task.view().reason, task.exit_code) == ("stopped", "TargetBusy", 5)


def test_opening_is_not_awaited_once_it_is_to_stop() -> None:
    opened, may_open = threading.Event(), threading.Event()

    def open_late() -> Scripted:
        opened.set()
        assert may_open.wait(LONG_WAIT_SECONDS)
        return Scripted()

    task = SubscriberTask("edge", open_late, SystemClock())
    task.worker.start()
    assert opened.wait(PATIENCE_SECONDS)
    task.worker.ask_to_stop()
    waiting = threading.Thread(target=task.await_opened, args=(LONG_WAIT_SECONDS,))
    waiting.start()
    waiting.join(PATIENCE_SECONDS)
    is_waiting = waiting.is_alive()
    may_open.set()
    assert not is_waiting
    assert task.worker.join(PATIENCE_SECONDS)
