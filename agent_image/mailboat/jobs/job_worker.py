"""Runs jobs: polls its source for calls, runs handlers in threads, renews leases and reports results.

One thread talks to the source; handlers run in as many threads as the worker has slots. A worker's id is made for each
start, so that a process with the same name never takes over leases of an earlier one.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from queue import SimpleQueue
from typing import Final, NamedTuple

from mailboat.clock import Backoff, Clock, Deadline
from mailboat.errors import RetryableError
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.jobs.source import CallId, ClaimedCall, JobSource, Offer, PollResult
from mailboat.model.jobs import (
    LONGEST_DELAY_MS,
    MAX_BATCH,
    MAX_PROGRESS_BYTES,
    AttemptOutcome,
    JobId,
    JobResult,
    NewJob,
    Renewal,
    Token,
    show_job_id,
    topic_matches,
)
from mailboat.wire.job_records import MAX_MESSAGE_CHARACTERS

_LOG: Final = logging.getLogger(__name__)
_LONGEST_WAIT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1
"""A worker that reports all the time polls as often."""

_CUT_OFF_SECONDS: Final = 6.0
"""For calls that are asked to stop at the end: a command gets SIGKILL five seconds after SIGTERM."""

_MOST_TEXT: Final = 32 * 1024
"""Of messages, and of progress, in one report: JSON takes up to twelve bytes for a character, an agent a megabyte."""

_BACKOFF: Final = Backoff(0.1, 5.0)
"""Between attempts to report while the worker ends."""

_LONGEST_PAUSE_SECONDS: Final = 5.0
"""After a failure while calls run: a sixth of the usual lease, which ends without renewals."""


class Result(NamedTuple):
    """What a handler returns; None stands for success.

    Attributes:
        delay_seconds: Before the next attempt, for FAIL and SNOOZE; None takes the job's setting.
    """

    outcome: AttemptOutcome = AttemptOutcome.OK
    message: str = ""
    delay_seconds: float | None = None


@dataclass(slots=True)
class Call:
    """One call of a handler.

    Attributes:
        jobs: The job, or the jobs that are merged into this call, with their payloads.
        token: The fencing token: higher than that of every earlier attempt.
        attempt: 1 for the first.
        log: Names the job topic that the ids belong to.
    """

    jobs: Mapping[JobId, NewJob]
    token: Token
    attempt: int
    log: str = ""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _progress: bytes = b""

    @property
    def should_stop(self) -> bool:
        """Whether an operator asked to stop the job, its lease was lost, or the worker ends."""
        return self._stopping.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the job should stop; whether it should."""
        return self._stopping.wait(seconds)

    def report(self, progress: bytes) -> None:
        """Show progress, of which the first 4 KiB are sent with the next renewal."""
        self._progress = progress[:MAX_PROGRESS_BYTES]

    @property
    def progress(self) -> bytes:
        """What was reported last."""
        return self._progress

    def stop(self) -> None:
        """Ask the handler to stop."""
        self._stopping.set()


Handler = Callable[[Call], Result | Future[Result] | None]
"""Makes a call. A future stands for a result that comes after the handler has returned."""


class WorkerSettings(NamedTuple):
    """A worker.

    Attributes:
        name: For people; the id that claims carry adds a random part.
        slots: Calls that run at the same time.
        handlers: By pattern of topics; the first match in this order is called.
    """

    name: str
    slots: int
    handlers: Mapping[str, Handler]


class JobWorker:
    """Runs jobs of one source. To be used by one thread, except for `wake`."""

    def __init__(
        self, source: JobSource, settings: WorkerSettings, clock: Clock, chance: random.Random, failpoints: Failpoints
    ) -> None:
        """Prepare; nothing is claimed before the first `turn`."""
        self.worker_id = f"{settings.name}-{chance.getrandbits(48):012x}"
        self._source = source
        self._settings = settings
        self._clock = clock
        self._failpoints = failpoints
        self._offer = Offer(self.worker_id, settings.slots, tuple(settings.handlers))
        self._threads: list[threading.Thread] = []
        self._tasks: SimpleQueue[tuple[CallId, Handler, Call] | None] = SimpleQueue()
        """Calls to make; None ends a thread."""
        self._calls: dict[CallId, Call] = {}
        self._leases_ms: dict[CallId, int] = {}
        self._renew_at: dict[CallId, float] = {}
        self._poll_at = clock.monotonic()
        self._ended: deque[JobResult] = deque()  # appended to by the threads of handlers
        self._is_stopping = False
        self._is_claiming = True
        self._is_repeating = False
        """Whether the last report was not answered, so that its results may count already."""
        self._cut_off: frozenset[CallId] = frozenset()
        """Calls that the end of this worker interrupts."""

    @property
    def running(self) -> int:
        """Calls that run in this process, also those whose lease was lost."""
        return len(self._calls)

    def turn(self, wait_seconds: float = _LONGEST_WAIT_SECONDS, *, is_claiming: bool = True) -> None:
        """Take one step, waiting at most so long for something to do; without claims it reports and renews alone.

        Raises: what the source raises.
        """
        self._is_claiming = is_claiming
        has_reported = self._report()
        now = self._clock.monotonic()
        # A report claims, too. A poll also fires schedules, writes checkpoints, and takes what others leave.
        if has_reported and now < self._poll_at:
            return
        self._poll_at = now + _POLL_SECONDS
        # Without a wait after a report: what the caller shows of the jobs has changed.
        wait_seconds = self._wait_seconds(0.0 if has_reported else wait_seconds)
        self._poll(self._settings.slots - self.running if is_claiming else 0, wait_seconds)

    def pause_within(self, seconds: float) -> float:
        """How long to wait after a failed `turn`, instead of so long: nothing is renewed or reported meanwhile."""
        if not self.running:
            return seconds
        return min(seconds, _LONGEST_PAUSE_SECONDS, *(lease_ms / 6_000 for lease_ms in self._leases_ms.values()))

    def wake(self) -> None:
        """Make a waiting `turn` return at once. From any thread."""
        self._source.interrupt()

    def stop(self, seconds: float) -> None:
        """Claim nothing more, wait for the calls, report their results, and leave.

        Calls that still run after that time are asked to stop, and have five seconds for it. Then their jobs are queued
        again, also of handlers that ignore it, and the attempt is not counted.
        """
        # Before anything else: a report below must not claim further calls.
        self._is_stopping = True
        self._offer = self._offer._replace(is_ending=True)
        try:
            self._await_calls(seconds)
            # Set before the calls are stopped: threads of handlers read it when a call ends.
            self._cut_off = frozenset(self._calls)
            self._stop_calls()
            self._await_calls(_CUT_OFF_SECONDS)
            self._leave()
        except BaseException:
            # Without reports, but not without the calls: a command must not outlive its worker.
            self._stop_calls()
            self._end_threads()
            deadline = Deadline(self._clock, _CUT_OFF_SECONDS)
            for thread in self._threads:
                thread.join(deadline.remaining_seconds())
            raise
        finally:
            self._end_threads()
            self._source.close()

    def _stop_calls(self) -> None:
        for call in self._calls.values():
            call.stop()

    def _end_threads(self) -> None:
        """Let the threads end after their calls. A handler that ignores the stop is not waited for."""
        for _ in self._threads:
            self._tasks.put(None)

    def _leave(self) -> None:
        try:
            self._source.leave(self.worker_id)
        except RetryableError as error:
            _LOG.warning("worker %s ends without notice: %s", self.worker_id, error)

    def _await_calls(self, seconds: float) -> None:
        """Go on with what runs, at most for so long. Raises: what the source raises, unless it is worth a retry."""
        deadline, failures = Deadline(self._clock, seconds), 0
        while self.running and not deadline.is_over():
            try:
                self._report()
                if self.running:
                    self._poll(0, self._wait_seconds(min(0.1, deadline.remaining_seconds())))
                failures = 0
            except RetryableError as error:
                # An agent that restarts meanwhile must not end the calls that run.
                failures += 1
                if failures == 1:
                    _LOG.warning("worker %s cannot report: %s", self.worker_id, error)
                self._clock.wait(threading.Event(), min(_BACKOFF.pause(failures), deadline.remaining_seconds()))

    def _report(self) -> bool:
        """Report what ended and what is to be renewed; whether results were among it."""
        # Not removed before the report is answered: after a failure the same results are reported again.
        count = _fitting(len(self._ended[place].message) for place in range(min(len(self._ended), MAX_BATCH)))
        results = [self._ended[place] for place in range(count)]
        now = self._clock.monotonic()
        ending = {CallId(result.token, result.job) for result in results}
        # Not of calls that end with this report: the renewal would count as lost, and the result with it.
        due = [call for call, at in self._renew_at.items() if at <= now and call not in ending][:MAX_BATCH]
        renewals = [Renewal(call.job, call.token, self._calls[call].progress) for call in due]
        renewals = renewals[: _fitting(len(each.progress) for each in renewals)]
        due = due[: len(renewals)]
        if not results and not renewals:
            return False
        was_repeating, self._is_repeating = self._is_repeating, True
        # The report also claims: one append ends calls and begins the next ones.
        free = 0 if self._is_stopping or not self._is_claiming else self._settings.slots - self.running + len(results)
        answer = self._source.report(self._offer, results, renewals, free, self._calls.keys() - ending)
        self._is_repeating = False
        lost = set(answer.lost)
        for result in results:
            call = CallId(result.token, result.job)
            self._ended.popleft()
            self._forget(call)
            # A repeated result counts as lost when its first report did arrive: that is not worth a warning.
            if call in lost and not was_repeating:
                _LOG.warning("JobLeaseLost: job %s ended after its lease; its result does not count", _name(call))
        for call in self._renew_at.keys() & due:
            self._renew_at[call] = now + self._third_of(call)
        self._learn(answer)
        return bool(results)

    def _poll(self, free: int, wait_seconds: float) -> None:
        self._learn(self._source.poll(self._offer, free, self._calls.keys(), wait_seconds))

    def _learn(self, answer: PollResult) -> None:
        for claimed in answer.claimed:
            self._start(claimed)
        self._heed(answer.stopping, answer.lost)

    def _heed(self, stopping: Iterable[CallId], lost: Iterable[CallId]) -> None:
        """Ask calls to stop; those whose lease was lost are renewed no longer."""
        for call in stopping:
            if call in self._calls:
                self._calls[call].stop()
        for call in lost:
            if call in self._calls:
                self._renew_at.pop(call, None)
                self._calls[call].stop()

    def _forget(self, call: CallId) -> None:
        self._calls.pop(call, None)
        self._renew_at.pop(call, None)
        self._leases_ms.pop(call, None)

    def _start(self, claimed: ClaimedCall) -> None:
        call_id = claimed.call
        if call_id in self._calls:  # given again by an agent that does not know of it yet
            return
        call = Call(claimed.jobs, call_id.token, claimed.attempt, claimed.log)
        self._calls[call_id] = call
        self._leases_ms[call_id] = claimed.lease_ms
        self._renew_at[call_id] = self._clock.monotonic() + self._third_of(call_id)
        if self._is_stopping:  # the claim was under way
            self._ended.append(JobResult(call_id.job, call_id.token, AttemptOutcome.SNOOZE, 0, "the worker ended"))
            return
        topic = claimed.jobs[call_id.job].topic
        handler = next(h for pattern, h in self._settings.handlers.items() if topic_matches(pattern, topic))
        if len(self._threads) < min(len(self._calls), self._settings.slots):
            # A daemon: a handler that ignores its stop must not hold up the end of the process.
            name = f"mailboat-job-{self._settings.name}-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._make_calls, name=name, daemon=True))
            self._threads[-1].start()
        self._tasks.put((call_id, handler, call))

    def _make_calls(self) -> None:
        """Make calls, one after the other. Runs in the threads of handlers."""
        while (task := self._tasks.get()) is not None:
            call, handler, made = task
            try:
                self._failpoints.reach(Failpoint.JOBS_BEFORE_HANDLER)
                returned = handler(made)
                self._failpoints.reach(Failpoint.JOBS_AFTER_HANDLER)
            except BaseException as error:  # noqa: BLE001  # also `sys.exit` in a handler: it ends the call alone
                self._end(call, error)
            else:
                # Its callback runs in whatever thread completes it; `_end` may be called from any.
                if isinstance(returned, Future):
                    returned.add_done_callback(partial(self._end_later, call))
                else:
                    self._end(call, returned)

    def _end_later(self, call: CallId, done: Future[Result]) -> None:
        self._end(call, done.exception() or done.result())

    def _end(self, call: CallId, returned: Result | BaseException | None) -> None:
        """Keep the result of a call for the next report. Runs in any thread."""
        try:
            result = _job_result(call, returned, is_cut_off=call in self._cut_off)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:  # a delay of NaN, or no result at all
            result = _job_result(call, error, is_cut_off=False)
        # Appended before the interrupt: the thread that wakes up must find the result.
        self._ended.append(result)
        # Ends the wait of the thread that talks to the source, so the result is reported at once.
        self._source.interrupt()

    def _wait_seconds(self, longest: float) -> float:
        """How long nothing is to be reported, unless a call ends."""
        if self._ended:
            return 0.0
        now = self._clock.monotonic()
        return max(0.0, min([longest, *(at - now for at in self._renew_at.values())]))

    def _third_of(self, call: CallId) -> float:
        # Milliseconds to seconds, and a third of them: two renewals may fail before the lease ends.
        return self._leases_ms[call] / 3000


def _job_result(call: CallId, returned: Result | BaseException | None, *, is_cut_off: bool) -> JobResult:
    """What is reported of a call, from what its handler returned or raised. Raises: it returned no outcome."""
    if isinstance(returned, BaseException):
        _LOG.warning("job %s failed: %s", _name(call), returned, exc_info=returned)
        returned = Result(AttemptOutcome.FAIL, f"{type(returned).__name__}: {returned}")
    result = Result() if returned is None else returned
    # It may have failed because it was asked to stop, so this result or renewal does not count as an attempt.
    if is_cut_off and result.outcome is not AttemptOutcome.OK:
        result = Result(AttemptOutcome.SNOOZE, "the worker ended", 0.0)
    delay_ms = None
    if result.delay_seconds is not None:
        delay_ms = min(max(0, int(result.delay_seconds * 1000)), LONGEST_DELAY_MS)
    # Names of files that are no text have halves of surrogate pairs, which no record takes.
    message = result.message[:MAX_MESSAGE_CHARACTERS].encode(errors="backslashreplace").decode()
    return JobResult(call.job, call.token, result.outcome, delay_ms, message[:MAX_MESSAGE_CHARACTERS])


def _fitting(sizes: Iterable[int]) -> int:
    """How many of these one report takes; always the first, if there is one."""
    return sum(total <= _MOST_TEXT or place == 0 for place, total in enumerate(accumulate(sizes)))


def _name(call: CallId) -> str:
    return show_job_id(call.job)
