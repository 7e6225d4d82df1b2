"""Runs jobs: claims what may start, calls handlers in threads, renews leases and reports results.

One thread follows the topic and appends; handlers run in a pool of as many threads as the worker has slots. A worker's
id is made for each start, so that a process with the same name never takes over leases of an earlier one.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mailboat.clock import Clock, Deadline
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.jobs.fold import WORKER_LEASE_MS, Applied, Lease
from mailboat.jobs.selection import plan_claims
from mailboat.jobs.topic import JobTopic
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import (
    MAX_BATCH,
    JobId,
    JobRecord,
    JobResult,
    JobsClaimed,
    JobsFinished,
    LeasesRenewed,
    NewJob,
    Outcome,
    Renewal,
    Token,
    WorkerSeen,
    topic_matches,
)
from mailboat.wire.job_records import LONGEST_DELAY_MS, MAX_PROGRESS_BYTES

_LOG: Final = logging.getLogger(__name__)
_GRACE_SECONDS: Final = 0.02
"""How long a call is left to the worker that is preferred for it."""
_LONGEST_WAIT_SECONDS: Final = 5.0
_CUT_OFF_SECONDS: Final = 6.0
"""For calls that are asked to stop at the end: a command gets SIGKILL five seconds after SIGTERM."""
_MOST_TICK_DELAY_MS: Final = 20.0
"""Spreads the workers, so that one record tells all of them that a delay is over."""


class Result(NamedTuple):
    """What a handler returns; None stands for success.

    Attributes:
        delay_seconds: Before the next attempt, for FAIL and SNOOZE; None takes the job's setting.
    """

    outcome: Outcome = Outcome.OK
    message: str = ""
    delay_seconds: float | None = None


@dataclass(slots=True)
class Call:
    """One call of a handler.

    Attributes:
        jobs: The job, or the jobs that are merged into this call, with their payloads.
        token: The fencing token: higher than that of every earlier attempt.
        attempt: 1 for the first.
    """

    jobs: Mapping[JobId, NewJob]
    token: Token
    attempt: int
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


Handler = Callable[[Call], Result | None]


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
    """Runs jobs of one topic. To be used by one thread, except for `wake`."""

    def __init__(
        self, topic: JobTopic, settings: WorkerSettings, clock: Clock, chance: random.Random, failpoints: Failpoints
    ) -> None:
        """Prepare; nothing is claimed before the first `turn`."""
        self.worker_id = f"{settings.name}-{chance.getrandbits(48):012x}"
        self._topic = topic
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._failpoints = failpoints
        self._pool = ThreadPoolExecutor(settings.slots, thread_name_prefix=f"mailboat-job-{settings.name}")
        self._calls: dict[tuple[Token, JobId], Call] = {}
        self._ended: deque[JobResult] = deque()  # appended to by the threads of the pool
        self._caught_up = False
        self._announce_at = clock.monotonic()
        self._renew_at: dict[JobId, float] = {}
        self._log_time_at = clock.monotonic()
        self._passed_over_at: float | None = None
        self._tick_delay_ms = chance.uniform(0.0, _MOST_TICK_DELAY_MS)
        self._is_stopping = False
        self._cut_off: frozenset[tuple[Token, JobId]] = frozenset()
        """Calls that the end of this worker interrupts."""

    @property
    def running(self) -> int:
        """Calls that run in this process, also those whose lease was lost."""
        return len(self._calls)

    def turn(self) -> float:
        """Take one step; return the seconds until the next one, 0 for at once.

        Raises: JournalUnavailableError, JournalReplacedError, PositionOutOfRangeError, AppendUncertainError.
        """
        now = self._clock.monotonic()
        if self._caught_up:
            self._append_due(now)
            if self._claim(now):
                return 0.0
            # one worker is enough: all of them see at the same time that it is due
            if self._topic.is_checkpoint_due() and min(self._topic.fold.workers, default="") == self.worker_id:
                self._topic.write_checkpoint()
        self._caught_up = self._topic.follow(self._wait_seconds(now) if self._caught_up else 0.0, self._see)
        return 0.0

    def wake(self) -> None:
        """Make a waiting `turn` return at once. From any thread."""
        self._topic.interrupt()

    def stop(self, seconds: float) -> None:
        """Claim nothing more, wait for the calls, report their results, and leave.

        Calls that still run after that time are asked to stop, and have five seconds for it: their jobs are queued
        again, and the attempt is not counted. What still runs then loses its lease when that ends.
        """
        self._is_stopping = True
        self._await_calls(seconds)
        self._cut_off = frozenset(self._calls)
        for call in self._calls.values():
            call.stop()
        self._await_calls(_CUT_OFF_SECONDS)
        self._topic.append(WorkerSeen(self.worker_id, 0, ()))
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._topic.close()

    def _await_calls(self, seconds: float) -> None:
        """Go on with what runs, at most for so long."""
        deadline = Deadline(self._clock, seconds)
        while self.running and not deadline.is_over():
            self._append_due(self._clock.monotonic())
            self._topic.follow(min(0.1, deadline.remaining_seconds()), self._see)

    # What this worker appends

    def _append_due(self, now: float) -> None:
        records: list[JobRecord] = []
        results = [self._ended[place] for place in range(min(len(self._ended), MAX_BATCH))]
        if results:
            records.append(JobsFinished(results))
        if renewals := self._renewals(now):
            records.append(LeasesRenewed(renewals))
        if not self._is_stopping and (now >= self._announce_at or (self._is_time_due(now) and not records)):
            records.append(WorkerSeen(self.worker_id, self._settings.slots, tuple(self._settings.handlers)))
        if not records:
            return
        self._failpoints.reach(Failpoint.JOBS_BEFORE_APPEND)
        # When this fails, the same results are appended again. One that counts twice changes nothing the second time.
        offsets = self._topic.append(*records)
        self._failpoints.reach(Failpoint.JOBS_AFTER_APPEND)
        for result in results:
            self._ended.popleft()
            del self._calls[result.token, result.job]
        self._announce_at = now + WORKER_LEASE_MS / 3000
        self._tick_delay_ms = self._chance.uniform(0.0, _MOST_TICK_DELAY_MS)
        self._topic.follow_to(offsets[-1], self._see)

    def _renewals(self, now: float) -> list[Renewal]:
        due = [job for job, at in self._renew_at.items() if at <= now][:MAX_BATCH]
        renewals = []
        for job in due:
            lease = self._topic.fold.leases.get(job)
            if lease is None or lease.worker != self.worker_id:
                del self._renew_at[job]
                continue
            self._renew_at[job] = now + self._third_of(lease)
            renewals.append(Renewal(job, lease.token, self._calls[lease.token, job].progress))
        return renewals

    def _claim(self, now: float) -> bool:
        """Claim what may start and is due to this worker; whether something was claimed."""
        if self._is_stopping:
            return False
        proposal = plan_claims(self._topic.fold, self.worker_id, self._settings.slots - self.running)
        groups = proposal.preferred
        if not groups and proposal.others:
            if self._passed_over_at is None:
                self._passed_over_at = now
            if now - self._passed_over_at >= _GRACE_SECONDS:
                groups = proposal.others
        if not groups:
            self._passed_over_at = self._passed_over_at if proposal.others else None
            return False
        self._passed_over_at = None
        (offset,) = self._topic.append(JobsClaimed(self.worker_id, _within_batch(groups)))
        self._failpoints.reach(Failpoint.JOBS_CLAIMED)
        self._topic.follow_to(offset, self._see)
        return True

    # What the log says

    def _see(self, offset: Offset, applied: Applied) -> None:
        self._log_time_at = self._clock.monotonic()
        fold = self._topic.fold
        for transition in applied.transitions:
            lease = fold.leases.get(transition.job)
            won = lease is not None and lease.token == Token(offset) and lease.worker == self.worker_id
            if lease is not None and won and transition.job == lease.jobs[0]:
                self._start(lease)
        for (token, job), call in self._calls.items():
            lease = fold.leases.get(job)
            if lease is None or lease.token != token or lease.stop_requested:
                call.stop()

    def _start(self, lease: Lease) -> None:
        first = lease.jobs[0]
        jobs = {job: new for job in lease.jobs if (new := self._topic.job(job)) is not None}
        if len(jobs) < len(lease.jobs):
            self._calls[lease.token, first] = Call(jobs, lease.token, 1)
            self._ended.append(JobResult(first, lease.token, Outcome.CANCEL, None, "the topic lost the job's payload"))
            return
        call = Call(jobs, lease.token, self._topic.fold.table.tries(first))
        self._calls[lease.token, first] = call
        self._renew_at[first] = self._clock.monotonic() + self._third_of(lease)
        topic = self._topic.fold.topic(first)
        handler = next(h for pattern, h in self._settings.handlers.items() if topic_matches(pattern, topic))
        future = self._pool.submit(self._run, handler, call)
        future.add_done_callback(lambda done: self._end(lease.token, first, done))

    def _run(self, handler: Handler, call: Call) -> Result:
        self._failpoints.reach(Failpoint.JOBS_BEFORE_HANDLER)
        result = handler(call)
        self._failpoints.reach(Failpoint.JOBS_AFTER_HANDLER)
        return result if result is not None else Result()

    def _end(self, token: Token, job: JobId, done: Future[Result]) -> None:
        """Keep the result of a call for the next append. Runs in a thread of the pool."""
        error = done.exception()
        if error is not None:
            _LOG.warning("job %s failed: %s", job, error, exc_info=error)
            result = Result(Outcome.FAIL, f"{type(error).__name__}: {error}")
        else:
            result = done.result()
        if (token, job) in self._cut_off and result.outcome is not Outcome.OK:
            result = Result(Outcome.SNOOZE, "the worker ended", 0.0)
        delay_ms = None
        if result.delay_seconds is not None:
            delay_ms = min(max(0, int(result.delay_seconds * 1000)), LONGEST_DELAY_MS)
        self._ended.append(JobResult(job, token, result.outcome, delay_ms, result.message))
        self._topic.interrupt()

    def _wait_seconds(self, now: float) -> float:
        """How long nothing happens unless a record arrives or a call ends."""
        if self._ended:
            return 0.0
        moments = [self._announce_at, *self._renew_at.values()]
        if self._passed_over_at is not None:
            moments.append(self._passed_over_at + _GRACE_SECONDS)
        moment_ms = self._topic.fold.next_moment_ms()
        if moment_ms is not None:
            moments.append(self._log_time_at + (moment_ms + self._tick_delay_ms - self._topic.fold.now_ms) / 1000)
        return min(max(min(moments) - now, 0.0), _LONGEST_WAIT_SECONDS)

    def _is_time_due(self, now: float) -> bool:
        """Whether a delay or a lease is over, and no record has said so yet.

        The time of the log is continued by the local monotonic clock, so that wall clocks do not matter.
        """
        moment_ms = self._topic.fold.next_moment_ms()
        if moment_ms is None:
            return False
        return self._topic.fold.now_ms + (now - self._log_time_at) * 1000 >= moment_ms + self._tick_delay_ms

    def _third_of(self, lease: Lease) -> float:
        return min(self._topic.fold.table.lease_ms(job) for job in lease.jobs) / 3000


def _within_batch(groups: Sequence[Sequence[JobId]]) -> Sequence[Sequence[JobId]]:
    """As many groups as one record takes."""
    taken, jobs = [], 0
    for group in groups:
        jobs += len(group)
        if jobs > MAX_BATCH:
            break
        taken.append(group)
    return taken
