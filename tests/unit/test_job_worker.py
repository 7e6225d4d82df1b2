"""`JobWorker` at its end: every call is reported or given back, and the end always comes."""

from __future__ import annotations

import logging
import random
import sys
import threading
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from mailboat.cli.worker import _turns
from mailboat.errors import AgentUnreachableError, UsageError
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.job_worker import Call, Handler, JobWorker, Result, WorkerSettings
from mailboat.jobs.source import CallId, ClaimedCall, Offer, PollResult
from mailboat.model.jobs import AttemptOutcome, JobId, JobResult, NewJob, Renewal, Token
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.wait import PATIENCE_SECONDS

FIRST, SECOND = CallId(Token(7), JobId(1)), CallId(Token(8), JobId(2))


def claimed(call: CallId) -> ClaimedCall:
    return ClaimedCall(call, {call.job: NewJob("work")}, 1, 30_000)


class ScriptedSource:
    """Gives calls, and fails, as a test says."""

    def __init__(self, clock: SkippingClock) -> None:
        self.clock = clock
        self.answers: list[Sequence[ClaimedCall]] = []
        self.failures: list[Exception] = []
        self.results: list[JobResult] = []
        self.woken = threading.Event()
        self.left = 0
        self.closed = 0

    def poll(self, _offer: Offer, _free: int, _held: Collection[CallId], wait_seconds: float) -> PollResult:
        if wait_seconds and not self.woken.wait(0.01):
            self.clock.advance(wait_seconds)
        self.woken.clear()
        return PollResult(self.answers.pop(0) if self.answers else ())

    def report(
        self,
        _offer: Offer,
        results: Sequence[JobResult],
        _renewals: Sequence[Renewal],
        _free: int = 0,
        _held: Collection[CallId] = (),
    ) -> PollResult:
        if self.failures:
            raise self.failures.pop(0)
        self.results += results
        return PollResult()

    def leave(self, _worker: str) -> None:
        self.left += 1
        if self.failures:
            raise self.failures.pop(0)

    def interrupt(self) -> None:
        self.woken.set()

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource(SkippingClock())


def worker_of(source: ScriptedSource, handler: Handler) -> JobWorker:
    settings = WorkerSettings("worker", 2, {"**": handler})
    return JobWorker(source, settings, source.clock, random.Random(1), NoFailpoints())


def outcomes(source: ScriptedSource) -> list[tuple[JobId, AttemptOutcome, str]]:
    return [(each.job, each.outcome, each.message) for each in source.results]


def test_agent_that_fails_while_a_worker_ends_does_not_end_its_calls(source: ScriptedSource) -> None:
    asked_to_stop: list[bool] = []
    worker = worker_of(source, lambda call: asked_to_stop.append(call.should_stop))
    source.answers.append([claimed(FIRST)])
    worker.turn()
    source.failures += [AgentUnreachableError("restarts")] * 3
    worker.stop(60.0)
    assert (outcomes(source), asked_to_stop) == ([(FIRST.job, AttemptOutcome.OK, "")], [False])
    assert (worker.running, source.left, source.closed) == (0, 1, 1)


def test_one_report_is_no_larger_than_an_agent_takes(source: ScriptedSource) -> None:
    sizes: list[int] = []

    def report(_offer: Offer, results: Sequence[JobResult], renewals: Sequence[Renewal], *_: object) -> PollResult:
        sizes.append(sum(len(each.message) for each in results) + sum(len(each.progress) for each in renewals))
        source.results += results
        return PollResult()

    source.report = report  # type: ignore[method-assign]
    worker = worker_of(source, lambda _: Result(AttemptOutcome.FAIL, "\u4e16" * 2_000))
    calls = [CallId(Token(7), JobId(job)) for job in range(100)]
    source.answers.append([claimed(call) for call in calls])
    worker.turn()
    worker.stop(60.0)
    assert sorted(each.job for each in source.results) == [call.job for call in calls]
    assert max(sizes) <= 64 * 1024


def test_worker_ends_although_its_agent_never_answers_again(source: ScriptedSource) -> None:
    worker = worker_of(source, lambda call: None if call.wait(PATIENCE_SECONDS) else Result(AttemptOutcome.CANCEL))
    source.answers.append([claimed(FIRST)])
    worker.turn()
    source.failures += [AgentUnreachableError("gone")] * 10_000
    began = source.clock.monotonic()
    worker.stop(60.0)
    assert 60.0 <= source.clock.monotonic() - began < 80.0
    assert (worker.running, source.left, source.closed) == (1, 1, 1)


def test_refused_worker_stops_its_calls_before_it_ends(source: ScriptedSource) -> None:
    stopped = threading.Event()
    worker = worker_of(source, lambda call: stopped.set() if call.wait(PATIENCE_SECONDS) else None)
    source.answers.append([claimed(FIRST)])
    worker.turn()
    source.clock.advance(10.0)  # a renewal is due
    source.failures.append(UsageError("the token was revoked"))
    with pytest.raises(UsageError, match="revoked"):
        worker.stop(60.0)
    assert (stopped.is_set(), source.closed) == (True, 1)


def test_handler_that_ignores_its_stop_does_not_hold_up_the_end(source: ScriptedSource) -> None:
    ends = threading.Event()

    def ignore(_: Call) -> None:
        ends.wait(PATIENCE_SECONDS)

    others = set(threading.enumerate())  # those of an earlier test may be about to end
    worker = worker_of(source, ignore)
    source.answers.append([claimed(FIRST)])
    worker.turn()
    worker.stop(5.0)
    started = set(threading.enumerate()) - others
    (thread,) = [each for each in started if each.name.startswith("mailboat-job-worker")]
    assert (worker.running, source.left, thread.daemon) == (1, 1, True)
    ends.set()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def test_claim_that_is_answered_while_the_worker_ends_is_given_back(source: ScriptedSource) -> None:
    ends = threading.Event()

    def wait(_: Call) -> None:
        ends.wait(PATIENCE_SECONDS)

    report = source.report

    def report_and_end(*given: Any) -> PollResult:
        """The first call ends only after the second one was given back."""
        answer = report(*given)
        ends.set()
        return answer

    source.report = report_and_end  # type: ignore[method-assign]
    worker = worker_of(source, wait)
    source.answers += [[claimed(FIRST)], [claimed(SECOND)]]
    worker.turn()
    source.interrupt()
    worker.stop(1e6)
    assert outcomes(source) == [
        (SECOND.job, AttemptOutcome.SNOOZE, "the worker ended"),
        (FIRST.job, AttemptOutcome.OK, ""),
    ]


def test_call_that_is_given_twice_runs_once(source: ScriptedSource) -> None:
    runs: list[Token] = []
    worker = worker_of(source, lambda call: runs.append(call.token))
    source.answers += [[claimed(FIRST), claimed(FIRST)]]
    worker.turn()
    worker.stop(60.0)
    assert (runs, outcomes(source)) == ([FIRST.token], [(FIRST.job, AttemptOutcome.OK, "")])


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (lambda _: Result(AttemptOutcome.FAIL, "", float("nan")), "ValueError: cannot convert float NaN to integer"),
        (
            lambda _: Result(AttemptOutcome.FAIL, "", float("inf")),
            "OverflowError: cannot convert float infinity to integer",
        ),
        (lambda _: "done", "AttributeError: 'str' object has no attribute 'delay_seconds'"),
        (lambda _: sys.exit(3), "SystemExit: 3"),
    ],
)
def test_handler_without_an_outcome_fails(source: ScriptedSource, handler: Any, message: str) -> None:
    worker = worker_of(source, handler)
    source.answers.append([claimed(FIRST)])
    worker.turn()
    worker.stop(60.0)
    assert outcomes(source) == [(FIRST.job, AttemptOutcome.FAIL, message)]


def test_long_message_of_a_handler_is_cut(source: ScriptedSource) -> None:
    worker = worker_of(source, lambda _: Result(AttemptOutcome.CANCEL, "x" * 100_000))
    source.answers.append([claimed(FIRST)])
    worker.turn()
    worker.stop(60.0)
    assert [len(each.message) for each in source.results] == [2_000]


def test_message_that_is_no_text_is_reported(source: ScriptedSource, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # pytest-xdist cannot send a captured line that is no text

    def fail(_: Call) -> Result:
        raise ValueError("cannot read caf\udce9.html")

    worker = worker_of(source, fail)
    source.answers.append([claimed(FIRST)])
    worker.turn()
    worker.stop(60.0)
    assert outcomes(source) == [(FIRST.job, AttemptOutcome.FAIL, "ValueError: cannot read caf\\udce9.html")]


def test_call_that_has_ended_is_not_renewed(source: ScriptedSource) -> None:
    reports: list[tuple[list[JobId], list[JobId]]] = []

    def report(_offer: Offer, results: Sequence[JobResult], renewals: Sequence[Renewal], *_: object) -> PollResult:
        reports.append(([each.job for each in results], [each.job for each in renewals]))
        return PollResult()

    source.report = report  # type: ignore[method-assign]
    ends = threading.Event()

    def wait(call: Call) -> None:
        if call.token == SECOND.token:
            ends.wait(PATIENCE_SECONDS)

    worker = worker_of(source, wait)
    source.answers.append([claimed(FIRST), claimed(SECOND)])
    worker.turn()
    assert source.woken.wait(PATIENCE_SECONDS)
    source.clock.advance(10.0)  # both renewals are due
    worker.turn()
    ends.set()
    worker.stop(60.0)
    assert reports[0] == ([FIRST.job], [SECOND.job])


def test_worker_renews_before_the_lease_ends_after_an_agent_was_away(source: ScriptedSource) -> None:
    clock, stopping, ends = source.clock, threading.Event(), threading.Event()

    def wait(_: Call) -> None:
        ends.wait(PATIENCE_SECONDS)

    worker = worker_of(source, wait)
    source.answers.append([claimed(FIRST)])
    worker.turn()
    began, renewed = clock.monotonic(), list[float]()

    def report(*_: object) -> PollResult:
        if clock.monotonic() - began < 27.0:
            raise AgentUnreachableError("restarts")
        renewed.append(clock.monotonic() - began)
        stopping.set()
        return PollResult()

    source.report = report  # type: ignore[method-assign]
    session: Any = SimpleNamespace(note=lambda _: None)
    _turns(session, worker, stopping, clock)
    ends.set()
    worker.stop(60.0)
    assert 27.0 <= renewed[0] < 30.0
    assert (worker.running, worker.pause_within(60.0)) == (0, 60.0)
