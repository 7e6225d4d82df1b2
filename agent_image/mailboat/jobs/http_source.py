"""Calls for a worker without access to the journal: asks an agent.

A report claims the next calls in the same request. Where slots are free, a thread waits in the agent for calls, so that
results are reported at once. After an answer that did not arrive the calls are not lost: the worker names those that it
makes with each request, and the agent gives it the others again.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from mailboat.api.job_operations import HttpJobs
from mailboat.api.job_orders import HeldCall, RenewalOrder, ResultOrder, TurnOrder
from mailboat.api.job_views import CallView, ClaimedView, TurnView
from mailboat.clock import Clock
from mailboat.errors import AgentDefectError, UsageError
from mailboat.jobs.source import CallId, ClaimedCall, Offer, PollResult
from mailboat.model.jobs import MAX_BATCH, JobResult, NewJob, Renewal, Token, parse_job_id, show_job_id

_WAIT_SECONDS: Final = 20.0
_BUSY_SECONDS: Final = 1.0
"""How often a worker without a free slot asks whether one of its calls should stop."""


class HttpSource:
    """`JobSource` over the API of an agent. The client stays the caller's."""

    def __init__(self, jobs: HttpJobs, clock: Clock) -> None:
        self._jobs = jobs
        self._clock = clock
        self._offer = Offer("", 1, ())
        self._asked: Future[TurnView] | None = None
        self._asked_at = clock.monotonic() - _BUSY_SECONDS
        self._told: set[CallId] = set()
        """Calls that the worker was asked to stop."""
        self._wake = threading.Event()

    def poll(self, offer: Offer, free: int, held: Collection[CallId], wait_seconds: float) -> PollResult:
        self._heed(offer)
        now = self._clock.monotonic()
        if self._asked is None and (free or now - self._asked_at >= _BUSY_SECONDS):
            self._asked_at = now
            turn = replace(self._turn(free, held), wait_seconds=_WAIT_SECONDS if free else 0.0)
            asked = self._asked = Future[TurnView]()
            # In a thread of its own: the agent holds the request, and `poll` must return to report results. A daemon:
            # a request that an agent does not answer must not hold up the end of the process.
            threading.Thread(
                target=self._claim, args=(asked, offer.worker, turn), name="mailboat-job-claims", daemon=True
            ).start()
        self._wake.wait(min(wait_seconds, _BUSY_SECONDS) if not free else wait_seconds)
        # Cleared before the answer is checked: an answer that comes later wakes the next `poll`.
        self._wake.clear()
        if self._asked is None or not self._asked.done():
            return PollResult()
        answered, self._asked = self._asked, None
        return self._learned(answered.result())

    def report(
        self,
        offer: Offer,
        results: Sequence[JobResult],
        renewals: Sequence[Renewal],
        free: int = 0,
        held: Collection[CallId] = (),
    ) -> PollResult:
        self._heed(offer)
        is_claiming = self._asked is not None
        turn = replace(
            self._turn(0 if is_claiming else free, held),
            results=tuple(map(ResultOrder.of, results)),
            renewals=tuple(map(RenewalOrder.of, renewals)),
        )
        learned = self._learned(self._jobs.turn(offer.worker, turn))
        # The claim that is under way gives its calls itself: a call that both gave could run twice.
        return learned._replace(claimed=()) if is_claiming else learned

    def _heed(self, offer: Offer) -> None:
        if offer.is_ending and not self._offer.is_ending:
            # The agent learns of the end at once: a claim that is under way may wait in it for long, and for topics
            # that this worker takes no longer. What it gives is given again, since the worker does not name it.
            self._asked, self._asked_at = None, self._clock.monotonic() - _BUSY_SECONDS
        self._offer = offer

    def _turn(self, free: int, held: Collection[CallId]) -> TurnOrder:
        self._told.intersection_update(held)
        known = tuple(HeldCall(show_job_id(call.job), call.token, call in self._told) for call in held)
        # negative while a call that was given twice is counted twice; one record carries at most MAX_BATCH
        wanted = min(max(0, free), MAX_BATCH)
        offer = self._offer
        return TurnOrder(tuple(offer.topics), offer.slots, wanted, known, ending=offer.is_ending)

    def _learned(self, view: TurnView) -> PollResult:
        polled = PollResult(
            [_claimed(each) for each in view.claimed], list(_calls(view.stopping)), list(_calls(view.lost))
        )
        self._told.update(polled.stopping, polled.lost)
        return polled

    def leave(self, worker: str) -> None:
        # A claim that is under way comes to nothing: the agent queues its jobs again, or claims none after this.
        self._jobs.leave(worker)

    def interrupt(self) -> None:
        self._wake.set()

    def close(self) -> None:
        """Leave a claim that is under way to its thread: closing the client ends it."""

    def _claim(self, asked: Future[TurnView], worker: str, turn: TurnOrder) -> None:
        try:
            asked.set_result(self._jobs.turn(worker, turn))
        except BaseException as error:  # noqa: BLE001  # raised by the `poll` that reads the answer
            asked.set_exception(error)
        self._wake.set()


def _calls(views: Iterable[CallView]) -> Iterable[CallId]:
    return (CallId(Token(each.token), parse_job_id(each.job)) for each in views)


def _claimed(view: ClaimedView) -> ClaimedCall:
    """Raises: AgentDefectError: it is not a call."""
    try:
        jobs = {
            parse_job_id(each.job): NewJob(each.topic, base64.b64decode(each.payload, validate=True), each.key)
            for each in view.jobs
        }
        call = CallId(Token(view.token), parse_job_id(view.job))
    except (UsageError, binascii.Error) as error:
        raise AgentDefectError(f"the agent gave a call that cannot be read: {error}") from error
    if call.job not in jobs:
        raise AgentDefectError(f"the agent gave the call of job {view.job} without the job")
    return ClaimedCall(call, jobs, view.attempt, int(view.lease_seconds * 1000), view.log)
