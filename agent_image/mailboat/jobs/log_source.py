"""Calls for workers straight from the job topic: announces, claims, renews and reports by appending records.

An agent serves many workers with one source, a worker on a home one. To be used by one thread at a time.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Sequence
from typing import Final

from mailboat.clock import Backoff, Clock
from mailboat.errors import UsageError
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.jobs.feeds import is_of_pool, lost_package
from mailboat.jobs.fold import LEASE_EXPIRED, WORKER_LEASE_MS, JobFold
from mailboat.jobs.job_changes import Applied
from mailboat.jobs.leases import RULES, Lease
from mailboat.jobs.schedules import plan_firing
from mailboat.jobs.selection import Proposal, checkpoint_writer, plan_claims, waits_for
from mailboat.jobs.source import CallId, ClaimedCall, Offer, PollResult
from mailboat.jobs.topic import JobTopic
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import (
    MAX_BATCH,
    AttemptOutcome,
    Firing,
    JobId,
    JobRecord,
    JobResult,
    JobsAdded,
    JobsClaimed,
    JobsFinished,
    LeasesRenewed,
    Renewal,
    Token,
    WorkerSeen,
)

_LOG: Final = logging.getLogger(__name__)
_GRACE_SECONDS: Final = 0.02
"""How long a call is left to the worker that is preferred for it."""
_VOID_BACKOFF: Final = Backoff(0.1, 30.0)
"""Between claims that started nothing although nothing changed since the proposal: each is a record."""
_NEW: Final = tuple.__new__
"""Makes a named tuple: its own constructor is interpreted, and there is one for every call."""
_NO_WORKER: Final = "agent"
_MOST_TICK_DELAY_MS: Final = 20.0
"""Spreads the workers, so that one record ends a delay for all of them."""


class LogSource:
    """`JobSource` over a job topic, which it closes."""

    def __init__(
        self,
        topic: JobTopic,
        clock: Clock,
        chance: random.Random,
        failpoints: Failpoints,
        plan: Callable[[JobFold, str, int], Proposal] = plan_claims,
    ) -> None:
        self.topic = topic
        self._plan = plan
        self._clock = clock
        self._chance = chance
        self._failpoints = failpoints
        self._caught_up = False
        self._is_interrupted = False
        self._log_time_at = clock.monotonic()
        self._passed_over_at: dict[str, float] = {}
        self._void_claims: dict[str, tuple[int, float]] = {}
        """By worker: claims in a row that started nothing for no reason, and the moment of the next one."""
        self._blocked_by_older: set[str] = set()
        """Workers of which a log line says that they wait for those of an older version."""
        self._tick_delay_ms = chance.uniform(0.0, _MOST_TICK_DELAY_MS)

    def poll(self, offer: Offer, free: int, held: Collection[CallId], wait_seconds: float) -> PollResult:
        now = self._clock.monotonic()
        wait = 0.0
        # Only once caught up: records that are not read yet may give the jobs to other workers.
        if self._caught_up:
            if (polled := self._take(offer, free, held, now)) is not None:
                return polled
            wait = min(wait_seconds, self._quiet_seconds(offer.worker, now))
        # The reader forgets an interrupt with each read. `_take` may have read what it appended: so a flag keeps it.
        if self._is_interrupted:
            self._is_interrupted, wait = False, 0.0
        self._caught_up = self.topic.follow(wait, self.note_log_time)
        return self._polled(offer.worker, held)

    def poll_without_reading(self, offer: Offer, free: int, held: Collection[CallId]) -> PollResult:
        """Poll for callers that follow the topic themselves: reads no more than what it appends."""
        return self._take(offer, free, held, self._clock.monotonic()) or self._polled(offer.worker, held)

    def _take(self, offer: Offer, free: int, held: Collection[CallId], now: float) -> PollResult | None:
        """Append what is due, and claim; None where the worker gets no news."""
        self._announce(offer, now)
        self.fire()
        if self._has_more(offer.worker, held):
            self._cancel_unreadable(offer.worker, held)
            # Calls of an answer that was lost are given again.
            if (polled := self._polled(offer.worker, held)).claimed:
                return polled
        if self._claim(offer.worker, free, now):
            return self._polled(offer.worker, held)
        if self.topic.is_checkpoint_due() and offer.worker == checkpoint_writer(self.topic.fold):
            self.topic.write_checkpoint()
        return None

    def report(
        self,
        offer: Offer,
        results: Sequence[JobResult],
        renewals: Sequence[Renewal],
        free: int = 0,
        held: Collection[CallId] = (),
    ) -> PollResult:
        worker = offer.worker
        # Only a shortcut that saves records: after the append the fold decides again. By index, and not by name: this
        # runs for every call, and names of a named tuple are looked up.
        lost = [CallId(each[1], each[0]) for each in results if not self._is_leased(worker, each[0], each[1])]
        lost += [CallId(each[1], each[0]) for each in renewals if not self._is_leased(worker, each[0], each[1])]
        if lost:
            results = [each for each in results if CallId(each.token, each.job) not in lost]
            renewals = [each for each in renewals if CallId(each.token, each.job) not in lost]
        records: list[JobRecord] = [JobsFinished.of(results)] if results else []
        records += [LeasesRenewed.of(renewals)] if renewals else []
        if not records:
            return PollResult((), (), lost)
        # One append for both: each is a commit, which is most of what a batch costs.
        claim = self._plan_next(worker, len(results), 0 if offer.is_ending else free)
        records += claim
        self._failpoints.reach(Failpoint.JOBS_BEFORE_APPEND)
        # When this fails, the same results are reported again. One that counts twice changes nothing the second time.
        offsets = self._append(*records)
        self._failpoints.reach(Failpoint.JOBS_AFTER_APPEND)
        if claim:
            self._failpoints.reach(Failpoint.JOBS_CLAIMED)
        ended: set[JobId] = set()

        def note_ended(offset: Offset, applied: Applied) -> None:
            self.note_log_time(offset, applied)
            # The append time of this record may also end leases: their results do not count.
            if offset == offsets[0]:
                for change in applied.changes:
                    if change.reason != LEASE_EXPIRED:
                        ended.update(change.jobs)

        self.topic.follow_to(offsets[-1], note_ended)
        lost += [CallId(each[1], each[0]) for each in results if each[0] not in ended]
        lost += [CallId(each[1], each[0]) for each in renewals if not self._is_leased(worker, each[0], each[1])]
        polled = self._polled(worker, held)
        return polled._replace(lost=[*lost, *polled.lost]) if lost else polled

    def leave(self, worker: str) -> None:
        self._passed_over_at.pop(worker, None)
        self._void_claims.pop(worker, None)
        self._blocked_by_older.discard(worker)
        # The worker's last claim may be appended and not read.
        self.catch_up()
        # Hand back calls whose answer was lost, and those of handlers that ignored their stop: no other worker could
        # take them before their leases end. The result of a call that is over by now changes nothing.
        calls = {(lease.token, lease.jobs[0]) for lease in self.topic.fold.leases.values() if lease.worker == worker}
        left = [JobResult(job, token, AttemptOutcome.SNOOZE, 0, "the worker ended") for token, job in sorted(calls)]
        batches = [left[place : place + MAX_BATCH] for place in range(0, len(left), MAX_BATCH)]
        self._append(*map(JobsFinished.of, batches), WorkerSeen(worker, 0, ()))

    def interrupt(self) -> None:
        # The flag first: a poll that has passed its check of the flag is woken by the reader.
        self._is_interrupted = True
        self.topic.interrupt()

    def close(self) -> None:
        self.topic.close()

    def catch_up(self) -> None:
        """Read the topic to its end without waiting."""
        while not self.topic.follow(0.0, self.note_log_time):
            pass
        self._caught_up = True

    def note_log_time(self, _offset: Offset, _applied: Applied) -> None:
        """Note the moment at which the log's time was read. For callers that follow the topic themselves."""
        self._log_time_at = self._clock.monotonic()

    # What is appended

    def _append(self, *records: JobRecord) -> Sequence[Offset]:
        self._tick_delay_ms = self._chance.uniform(0.0, _MOST_TICK_DELAY_MS)
        return self.topic.append(*records)

    def _announce(self, offer: Offer, now: float) -> None:
        """Append a record that the worker is there, where the others would forget it, or the log's time stands."""
        known = self.topic.fold.workers.get(offer.worker)
        # Without topics, newer workers and preferred claims no longer wait for a worker that only ends its calls.
        topics = () if offer.is_ending else tuple(offer.topics)
        offered = (offer.slots, topics, RULES)
        is_known = known is not None and (known.slots, tuple(known.topics), known.rules) == offered
        if is_known and not self._is_time_due(now) and self._announce_in(offer.worker, now) > 0:
            return
        (offset,) = self._append(WorkerSeen(offer.worker, offer.slots, topics, RULES))
        self.topic.follow_to(offset, self.note_log_time)

    def tick(self) -> None:
        """Append a record that moves the time of an idle log, for a process without workers."""
        (offset,) = self._append(WorkerSeen(_NO_WORKER, 0, ()))
        self.topic.follow_to(offset, self.note_log_time)

    def fire(self) -> None:
        """Append the jobs of schedules that are due; the fold counts the first firing of each due time."""
        for schedule in self.topic.fold.schedules.due(self.topic.fold.now_ms):
            try:
                record = plan_firing(schedule, self.topic.fold.now_ms)
            except UsageError as error:  # written by a process with other time zones, or without a check
                _LOG.warning("schedule %s ends, as its next due time is not known: %s", schedule.name, error)
                record = JobsAdded((), Firing(schedule.name, schedule.next_ms or 0, None))
            (offset,) = self._append(record)
            self.topic.follow_to(offset, self.note_log_time)

    def _claim(self, worker: str, free: int, now: float) -> bool:
        """Claim what may start and is due to this worker; whether anything changed since the proposal.

        True also where the claim is void because another worker was first: something else may be free. A claim that
        started nothing, although nothing had changed, gives False: then the pause before the next one grows.
        """
        voids, again_at = self._void_claims.get(worker, (0, now))
        if now < again_at:
            return False
        proposal = self._plan(self.topic.fold, worker, min(free, MAX_BATCH))
        groups = proposal.preferred
        if not groups and proposal.others and now - self._passed_over_at.setdefault(worker, now) >= _GRACE_SECONDS:
            groups = proposal.others
        if not groups:
            if not proposal.others:
                self._passed_over_at.pop(worker, None)
            self._note_older(worker)
            return False
        self._passed_over_at.pop(worker, None)
        # The claim counts only once the fold has applied it: another claim may be before it in the log.
        (offset,) = self.topic.append(JobsClaimed.of(worker, _within_batch(groups)))
        self._failpoints.reach(Failpoint.JOBS_CLAIMED)
        has_changes = False

        def note_changes(at: Offset, applied: Applied) -> None:
            nonlocal has_changes
            self.note_log_time(at, applied)
            has_changes = has_changes or (at <= offset and bool(applied.changes or applied.added))

        self.topic.follow_to(offset, note_changes)
        if has_changes:
            self._void_claims.pop(worker, None)
            return True
        self._void_claims[worker] = (voids + 1, now + _VOID_BACKOFF.pause(voids + 1, self._chance))
        if not voids:
            _LOG.warning("worker %s: its claim at offset %d of the job topic is void; it tries again", worker, offset)
        return False

    def is_blocked_by_older(self, worker: str) -> bool:
        """Whether it leaves jobs to live workers of an older version."""
        return bool(waits_for(self.topic.fold, worker))

    def _note_older(self, worker: str) -> None:
        older = waits_for(self.topic.fold, worker)
        if not older:
            self._blocked_by_older.discard(worker)
        elif worker not in self._blocked_by_older:  # once, although it goes on with other queues
            self._blocked_by_older.add(worker)
            text = "worker %s claims no jobs from the queues of these workers of an older version until they stop: %s"
            _LOG.warning(text, worker, ", ".join(older))

    def _plan_next(self, worker: str, ending: int, free: int) -> list[JobRecord]:
        """The claim that takes the place of calls that end now."""
        known = self.topic.fold.workers.get(worker)
        if not ending or known is None:
            return []
        # Calls of an answer that was lost take slots, too.
        free = min(free, known.slots - known.running + ending, MAX_BATCH)
        groups = _within_batch(self._plan(self.topic.fold, worker, free).preferred)
        return [JobsClaimed.of(worker, groups)] if groups else []

    def _cancel_unreadable(self, worker: str, held: Collection[CallId]) -> None:
        """End the calls that the worker cannot make, as the topic lost a payload.

        Raises: JobLogIncompleteError: it is of a shared pool's package.
        """
        topic, unreadable = self.topic, list[JobResult]()
        for job, lease in self._unknown_leases(worker, held):
            if all(topic.job(each) is not None for each in lease.jobs):
                continue
            # A package ends in a transaction of the target only: ended here, it would be missing there.
            if is_of_pool(lease.queue.name):
                raise lost_package(job, "its record is gone")
            message = "the topic lost the job's payload"
            unreadable.append(JobResult(job, lease.token, AttemptOutcome.CANCEL, None, message))
        if unreadable:
            # Read before the next poll: it would append the same again. What is beyond a batch is its work.
            (offset,) = self._append(JobsFinished.of(unreadable[:MAX_BATCH]))
            topic.follow_to(offset, self.note_log_time)

    # What the log says

    def _polled(self, worker: str, held: Collection[CallId]) -> PollResult:
        leases = self.topic.fold.leases
        lost = self._lost(worker, held)
        stopping = [call for call in held if call not in lost and leases[call.job].stop_requested]
        return PollResult(self._unknown_calls(worker, held) if self._has_more(worker, held) else (), stopping, lost)

    def _lost(self, worker: str, held: Collection[CallId]) -> list[CallId]:
        return [call for call in held if not self._is_leased(worker, call.job, call.token)]

    def _has_more(self, worker: str, held: Collection[CallId]) -> bool:
        """Whether the worker has leases that it does not know: of a claim without an answer, or with a report."""
        known = self.topic.fold.workers.get(worker)
        return known is not None and known.running > len(held) - len(self._lost(worker, held))

    def _unknown_leases(self, worker: str, held: Collection[CallId]) -> list[tuple[JobId, Lease]]:
        """The worker's leases that are of none of these calls, each with its first job."""
        return [
            (job, lease)
            for job, lease in self.topic.fold.leases.items()
            # The jobs of a merged call share one lease.
            if lease.worker == worker and lease.jobs[0] == job and _NEW(CallId, (lease.token, job)) not in held
        ]

    def _unknown_calls(self, worker: str, held: Collection[CallId]) -> Sequence[ClaimedCall]:
        found = []
        for job, lease in self._unknown_leases(worker, held):
            jobs = {each: new for each in lease.jobs if (new := self.topic.job(each)) is not None}
            # Where a payload is missing, `_cancel_unreadable` ends the call with the next poll.
            if len(jobs) == len(lease.jobs):
                call, attempt = _NEW(CallId, (lease.token, job)), self.topic.fold.table.tries(job)
                found.append(_NEW(ClaimedCall, (call, jobs, attempt, lease.lease_ms, self.topic.log)))
        return found

    def _is_leased(self, worker: str, job: JobId, token: Token) -> bool:
        lease = self.topic.fold.leases.get(job)
        return lease is not None and lease.token == token and lease.worker == worker

    # Time

    def _log_now_ms(self, now: float) -> float:
        """The time of the log, continued by the local monotonic clock, so that wall clocks do not matter."""
        return self.topic.fold.now_ms + (now - self._log_time_at) * 1000

    def _is_time_due(self, now: float) -> bool:
        """Whether a delay or a lease is over, and no record has said so yet."""
        moment_ms = self.topic.fold.next_moment_ms()
        return moment_ms is not None and self._log_now_ms(now) >= moment_ms + self._tick_delay_ms

    def _announce_in(self, worker: str, now: float) -> float:
        """Seconds until the worker has to announce itself again."""
        known = self.topic.fold.workers.get(worker)
        return 0.0 if known is None else (known.seen_ms + WORKER_LEASE_MS / 3 - self._log_now_ms(now)) / 1000

    def _quiet_seconds(self, worker: str, now: float) -> float:
        """How long nothing happens unless a record arrives."""
        seconds = [self._announce_in(worker, now)]
        if worker in self._passed_over_at:
            seconds.append(self._passed_over_at[worker] + _GRACE_SECONDS - now)
        if (again_at := self._void_claims.get(worker, (0, now))[1]) > now:
            seconds.append(again_at - now)
        moment_ms = self.topic.fold.next_moment_ms()
        if moment_ms is not None:
            seconds.append((moment_ms + self._tick_delay_ms - self._log_now_ms(now)) / 1000)
        return max(min(seconds), 0.0)


def _within_batch(groups: Sequence[Sequence[JobId]]) -> Sequence[Sequence[JobId]]:
    """As many groups as one record takes."""
    taken, jobs = [], 0
    for group in groups:
        jobs += len(group)
        if jobs > MAX_BATCH:
            break
        taken.append(group)
    return taken
