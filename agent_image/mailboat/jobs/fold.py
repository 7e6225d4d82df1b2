"""The state of all jobs: a pure fold of the job topic.

Every process that reads the topic computes the same state at the same offset, whatever its clock: time is the largest
append time so far, and limits, order, keys and rates are decided here. A claim wins by its place in the log. Its offset
is the fencing token: renewals and results count only with the token of the live lease.

A change of what a record does here, or in the queues, feeds and schedules that the fold holds, is a change of `RULES`:
also that of a delay or a limit. `tests/golden/test_job_decisions.py` holds the fold to it. What makes records, as
`plan_firing`, is free to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from mailboat.jobs.feeds import Feeds, is_of_pool, queue_of
from mailboat.jobs.job_changes import Applied, JobChange, note
from mailboat.jobs.job_queue import Queue
from mailboat.jobs.leases import Lease, WorkerState, takers
from mailboat.jobs.schedules import Schedules
from mailboat.jobs.table import JobTable, NewRow, digest, hash_key, is_to_be_cleaned, pack_digests, unpack_digests
from mailboat.model.identifiers import Offset
from mailboat.model.job_checkpoint import JobCheckpoint, LeaseState, QueueCheckpoint, WorkerEntry
from mailboat.model.jobs import (
    DEFAULT_QUEUE,
    MAX_LEASE_MS,
    MIN_LEASE_MS,
    AttemptOutcome,
    JobAction,
    JobId,
    JobRecord,
    JobsAdded,
    JobsClaimed,
    JobsCommanded,
    JobsFinished,
    JobState,
    LeasesRenewed,
    NewJob,
    QueueAction,
    QueueCommanded,
    QueueDefined,
    QueueRemoved,
    QueueSettings,
    ScheduleDefined,
    ScheduleRemoved,
    Token,
    WorkerSeen,
    any_matches,
    job_id,
    offset_of,
)

WORKER_LEASE_MS: Final = 90_000
"""A worker that no record names for so long is forgotten; an idle one appends a record every third of it."""

MAX_REMEMBERED_REQUESTS: Final = 1_000_000
"""Request ids that are remembered. Older ones are forgotten first, and would add their job again."""

LEASE_EXPIRED: Final = "lease-expired"

# Python 3.11 looks up a member of an enumeration by a call; these are needed for each job.
_ACTIVE: Final = JobState.ACTIVE
_SUCCEEDED: Final = JobState.SUCCEEDED
_GIVEN_UP: Final = JobState.GIVEN_UP
_OK: Final = AttemptOutcome.OK
_OUTCOMES: Final = tuple(AttemptOutcome)


class JobFold:
    """Applies records in the order of the log. Not safe to use from several threads."""

    def __init__(self, checkpoint: JobCheckpoint | None = None) -> None:
        """Begin with no jobs, or as captured. Raises: ValueError: the checkpoint contradicts itself."""
        self.table = JobTable()
        self.now_ms = 0
        self.queues: dict[str, Queue] = {}
        self.workers: dict[str, WorkerState] = {}
        self.oldest_rules = 0
        self.leases: dict[JobId, Lease] = {}
        """The live lease of each active job; the jobs of a merged group share one."""
        self.results: dict[JobId, Offset] = {}
        """Where the topic holds the last failure of a job that is there."""
        self._queue_of_number: list[Queue] = []
        self._queue_of_topic: dict[str, Queue] = {}
        self._delayed: list[tuple[int, JobId]] = []
        self._expiries: list[tuple[int, int, list[JobId]]] = []
        """When leases end that one record gave or renewed, and the first jobs of their calls."""
        self._unique: dict[bytes, JobId] = {}
        self._unique_of: dict[JobId, bytes] = {}
        self._requests: dict[bytes, JobId] = {}
        self._history: list[tuple[int, JobId]] = []
        self.schedules = Schedules(() if checkpoint is None else checkpoint.schedules)
        self.feeds = Feeds(() if checkpoint is None else checkpoint.feeds)
        if checkpoint is None:
            self._define(QueueSettings(DEFAULT_QUEUE))
        else:
            self._restore(checkpoint)

    # Reading

    def topic(self, job: JobId) -> str:
        """The topic of a job that is there."""
        return self.table.topics[self.table.topic(job)]

    def queue(self, job: JobId) -> Queue:
        """The queue of a job that is there."""
        return self._queue_of_number[self.table.queue(job)]

    def all_queues(self) -> list[Queue]:
        """The queues by name, with those that were removed and may still hold jobs."""
        return sorted(self._queue_of_number, key=lambda queue: queue.settings.name)

    def is_served(self, topic: str) -> bool:
        """Whether a live worker takes jobs of this topic; otherwise they are `unassigned`."""
        return any(worker.takes(topic) for worker in self.workers.values() if worker.slots)

    def workers_of(self, queue: Queue) -> int:
        """Live workers that take a topic of the queue; for the default queue those that take any."""
        return len(takers(self.workers.values(), queue.settings.topics))

    def oldest_needed(self) -> Offset | None:
        """The first offset that a job of the table was added at; None if absent. Older records may go."""
        first = self.table.first()
        return None if first is None else offset_of(first)

    def size_bytes(self) -> int:
        """Estimated bytes of the jobs in memory."""
        rows = 88 * len(self.table) + 115 * len(self._delayed) + 161 * len(self._requests) + 246 * len(self._unique)
        return rows + sum(queue.order_bytes() for queue in self._queue_of_number)

    def due_between(self, now_ms: int) -> Iterator[JobId]:
        """The queued jobs that came due after the log's time until now: an idle log has no record of it."""
        places = [0]
        while places:
            place = places.pop()
            if place < len(self._delayed) and self._delayed[place][0] <= now_ms:
                due_ms, job = self._delayed[place]
                # A job that started or was removed leaves its entry in the heap.
                if self.table.is_queued(job) and self.table.due_ms(job) == due_ms:
                    yield job
                places += (2 * place + 1, 2 * place + 2)  # in a heap, nothing below a later entry is earlier

    def next_moment_ms(self) -> int | None:
        """When time alone changes something: a delay, a lease, a rate's period or a suspension ends."""
        while self._expiries and not self._is_expiring(self._expiries[0]):
            heappop(self._expiries)  # so that nothing is appended for leases that were renewed or are over
        moments = [heap[0][0] for heap in (self._delayed, self._expiries) if heap]
        moments += [ms for queue in self._queue_of_number if (ms := queue.next_start_ms(self.now_ms)) is not None]
        return min([*moments, *self.schedules.moments_ms()], default=None)

    # Checkpoints

    def capture(self, as_of: Offset, *, has_rows: bool = True) -> JobCheckpoint:
        """The whole state before the record at this offset; its rows are large, and may be omitted."""
        leases = {(lease.token, lease.jobs[0]): lease for lease in self.leases.values()}
        return JobCheckpoint(
            as_of,
            self.now_ms,
            tuple(self.table.topics),
            [queue.capture(removed=self.queues.get(queue.name) is not queue) for queue in self._queue_of_number],
            [WorkerEntry(name, w.slots, w.topics, w.seen_ms, w.rules) for name, w in self.workers.items()],
            [lease.capture() for lease in leases.values()],
            dict(self.table.columns()) if has_rows else {},
            pack_digests(self._unique),
            pack_digests(self._requests),
            dict(self.results),
            self.schedules.all(),
            self.feeds.all(),
        )

    def _restore(self, state: JobCheckpoint) -> None:
        self.now_ms = state.now_ms
        self.table.restore(state.columns, state.topics, len(state.queues))
        self._queue_of_number = [Queue(each.settings, self.table) for each in state.queues]
        live = [queue for queue, each in zip(self._queue_of_number, state.queues, strict=True) if not each.removed]
        self.queues = {queue.settings.name: queue for queue in live}
        if DEFAULT_QUEUE not in self.queues:
            raise ValueError("the default queue is missing")
        self.workers = {w.worker: WorkerState(w.slots, w.topics, w.seen_ms, rules=w.rules) for w in state.workers}
        self._unique, self._requests = unpack_digests(state.unique), unpack_digests(state.requests)
        self.results = dict(state.results)
        self._unique_of = {job: digest for digest, job in self._unique.items()}
        for each in state.leases:
            self._restore_lease(each)
        self._restore_jobs(state.queues)

    def _restore_lease(self, state: LeaseState) -> None:
        if not state.jobs or any(self.table.state(job) is not JobState.ACTIVE for job in state.jobs):
            raise ValueError(f"the lease {state.token} is of a job that is not active")
        if len(set(state.jobs)) < len(state.jobs) or not self.leases.keys().isdisjoint(state.jobs):
            raise ValueError(f"the lease {state.token} is of a job that has another one")
        queue, lease_ms = self.queue(state.jobs[0]), min(map(self.table.lease_ms, state.jobs))
        lease = Lease(state.token, state.worker, state.jobs, queue, state.started_ms, lease_ms)
        lease.restore(state)
        for job in lease.jobs:
            self.leases[job] = lease
        heappush(self._expiries, (lease.until_ms, lease.token, [lease.jobs[0]]))
        lease.queue.begin_call()
        if (worker := self.workers.get(lease.worker)) is not None:
            worker.begin_call()

    def _restore_jobs(self, states: Sequence[QueueCheckpoint]) -> None:
        ready, others = self.table.parted(self.now_ms, len(states))
        for job in map(self.table.job_at, others):
            queue, state = self.queue(job), self.table.state(job)
            if state is JobState.QUEUED:
                self._delayed.append((self.table.due_ms(job), job))
                queue.wait(1)
                queue.delay(1)
            elif state is _ACTIVE:
                if job not in self.leases:
                    raise ValueError(f"the active job {job} has no lease")
            elif state is _GIVEN_UP:
                queue.count_given_up(1)
        heapify(self._delayed)
        self._order_history()
        for number, each in enumerate(states):
            placed = self.table.rows_of(each.chains)
            if not self.table.are_of(placed, number):
                raise ValueError(f"the queue {each.settings.name} orders jobs of another one")
            self._queue_of_number[number].wait(len(ready[number]))
            self._queue_of_number[number].restore(each, placed, ready[number], self.now_ms)
        self._count_slots()

    # Applying

    def apply(self, offset: Offset, appended_ms: int, record: JobRecord) -> Applied:
        """Apply the record at this offset. A record that asks for what cannot be changes nothing but the time."""
        # Time first: a result must not count for a lease that ended before its record.
        changes = self.advance(appended_ms)
        if isinstance(record, JobsAdded):
            if record.firing is not None and not self.schedules.fire(record.firing, self.now_ms):
                return Applied(changes)  # another worker was first
            queue = None
            if (feed := record.feed) is not None:
                if not self.feeds.take(feed):
                    return Applied(changes)  # another member of the pool was first
                if feed.queue not in self.queues:
                    self._define(queue_of(feed))
                queue = self.queues[feed.queue]
            added = [self._add(job_id(offset, index), job, queue) for index, job in enumerate(record.jobs)]
            return Applied(changes, added)
        void: list[JobId] = []
        self._change(offset, record, changes, void)
        return Applied(changes, void=void)

    def _change(self, offset: Offset, record: JobRecord, into: list[JobChange], void: list[JobId]) -> None:
        match record:
            case JobsClaimed():
                self._claim(Token(offset), record, into, void)
            case LeasesRenewed():
                self._renew(offset, record)
            case JobsFinished():
                self._finish(offset, record, into)
            case JobsCommanded():
                self._command(record, into)
            case QueueCommanded():
                self._command_queue(record, into)
            case QueueDefined() if not is_of_pool(record.settings.name):
                self._define(record.settings)
            case QueueRemoved():
                self._remove_queue(record.name, into)
            case WorkerSeen():
                self._see(record)
            case ScheduleDefined() | ScheduleRemoved():
                self.schedules.change(record)

    def advance(self, now_ms: int) -> list[JobChange]:
        """Let the time pass: leases expire, delays end, history is forgotten. Time never goes back."""
        changes: list[JobChange] = []
        self.now_ms = now_ms = max(self.now_ms, now_ms)
        if self._expiries and self._expiries[0][0] <= now_ms:
            self._expire(now_ms, changes)
        while self._delayed and self._delayed[0][0] <= now_ms:
            due_ms, job = heappop(self._delayed)
            if self.table.is_ready(job, now_ms) and self.table.due_ms(job) == due_ms:
                self.queue(job).delay(-1)
                self.queue(job).add(job, self.now_ms)
        gone = [name for name, worker in self.workers.items() if worker.seen_ms + WORKER_LEASE_MS <= now_ms]
        for name in gone:
            del self.workers[name]
        if gone:
            self._count_slots()
        while self._history and self._history[0][0] <= now_ms:
            self._forget(heappop(self._history)[1])
        return changes

    def _expire(self, now_ms: int, into: list[JobChange]) -> None:
        ended: list[tuple[int, JobId]] = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            until_ms, _, jobs = heappop(self._expiries)
            ended += [(until_ms, job) for job in jobs]
        # By time and job, not by record: a fold that was restored has other records in its heap.
        for until_ms, job in sorted(ended):
            lease = self.leases.get(job)
            # A renewal leaves the earlier entry in the heap: only one with the current end counts.
            if lease is not None and lease.until_ms == until_ms:
                self._end_attempt(lease, AttemptOutcome.FAIL, None, LEASE_EXPIRED, into)
                if worker := self.workers.get(lease.worker):  # forgotten: else calls are left to it
                    worker.see(now_ms - WORKER_LEASE_MS)

    def _is_expiring(self, entry: tuple[int, int, list[JobId]]) -> bool:
        """Whether a lease of the entry still ends then."""
        leases = [self.leases.get(job) for job in entry[2]]
        return any(lease is not None and lease.until_ms == entry[0] for lease in leases)

    # Jobs are added

    def _add(self, job: JobId, new: NewJob, queue: Queue | None = None) -> JobId:
        request = digest(new.request_id)
        # Before the unique key: a repeated request gets its own job, whatever the key names by now.
        if request and (known := self._requests.get(request)) is not None:
            return known
        unique = digest(new.unique)
        if unique and (known := self._unique.get(unique)) is not None:
            self._remember(request, known)
            return known
        queue = queue or self._route(new.topic)
        settings = queue.settings
        due_ms = max(self.now_ms, new.due_ms, self.now_ms + max(0, new.delay_ms))
        row = NewRow(
            job,
            topic=self.table.number_of(new.topic),
            queue=self._queue_of_number.index(queue),
            due_ms=due_ms,
            key=hash_key(new.key),
            priority=new.priority,
            retries=settings.retries if new.retries is None else new.retries,
            retry_delay_ms=settings.retry_delay_ms if new.retry_delay_ms is None else new.retry_delay_ms,
            lease_ms=min(max(new.lease_ms, MIN_LEASE_MS), MAX_LEASE_MS),
            keep=new.keep,
        )
        self.table.add(row)
        queue.wait(1)
        if unique:
            self._unique[unique], self._unique_of[job] = job, unique
        self._remember(request, job)
        if due_ms > self.now_ms:
            self._delay(job, due_ms)
        else:
            queue.add(job, self.now_ms)
        return job

    def _delay(self, job: JobId, due_ms: int) -> None:
        heappush(self._delayed, (due_ms, job))
        self.queue(job).delay(1)

    def _remember(self, request: bytes, job: JobId) -> None:
        if request:
            self._requests[request] = job
            if len(self._requests) > MAX_REMEMBERED_REQUESTS:
                del self._requests[next(iter(self._requests))]

    def _route(self, topic: str) -> Queue:
        queue = self._queue_of_topic.get(topic)
        if queue is None:
            if is_to_be_cleaned(len(self._queue_of_topic)):
                self._queue_of_topic.clear()
            found = [queue for _, queue in sorted(self.queues.items()) if any_matches(queue.settings.topics, topic)]
            queue = self._queue_of_topic[topic] = found[0] if found else self.queues[DEFAULT_QUEUE]
        return queue

    # Leases

    def _claim(self, token: Token, record: JobsClaimed, into: list[JobChange], void: list[JobId]) -> None:
        now_ms, table, leases = self.now_ms, self.table, self.leases
        worker = self.workers.get(record.worker)
        if worker is not None:
            worker.see(now_ms)
        ending: dict[int, list[JobId]] = {}
        for call in record.calls():
            # A claim is a proposal: an earlier record may have taken the jobs, or the room.
            queue = self._queue_where_next(call)
            first = call[0]
            if queue is None:
                void.append(first)
                continue
            lease_ms = table.lease_ms(first) if len(call) == 1 else min(map(table.lease_ms, call))
            lease = Lease(token, record.worker, call, queue, now_ms, lease_ms)
            for job in call:
                leases[job] = lease
                # With its start a job gives up its unique value: what is added from now on needs a run of its own.
                if self._unique_of:
                    self._release_unique(job)
                note(into, job, _ACTIVE, queue.name, "", now_ms - table.start(job))
            queue.start(call, now_ms)
            ending.setdefault(lease.until_ms, []).append(first)
            if worker is not None:
                worker.begin_call()
        for until_ms, jobs in ending.items():
            heappush(self._expiries, (until_ms, token, jobs))

    def _queue_where_next(self, call: Sequence[JobId]) -> Queue | None:
        """The queue that lets all jobs of the call start now; None where one of them may not."""
        if not self.table.are_ready(call, self.now_ms):
            return None
        queue = self.queue(call[0])
        return queue if queue.room(self.now_ms) > 0 and queue.is_turn(call, self.now_ms) else None

    def _renew(self, offset: Offset, record: LeasesRenewed) -> None:
        progress = dict(record.progress)
        ending: dict[int, list[JobId]] = {}
        for place, (job, token) in enumerate(zip(record.jobs, record.tokens, strict=True)):
            lease = self.leases.get(job)
            if lease is None or lease.token != token:
                continue
            if (worker := self.workers.get(lease.worker)) is not None:
                worker.see(self.now_ms)
            if lease.renew(self.now_ms, progress.get(place, b"")):
                ending.setdefault(lease.until_ms, []).append(lease.jobs[0])
        for until_ms, jobs in ending.items():
            heappush(self._expiries, (until_ms, offset, jobs))

    def _finish(self, offset: Offset, record: JobsFinished, into: list[JobChange]) -> None:
        outcomes, outcome = record.outcomes, _OK
        details = {each.place: each for each in record.details}
        for place, (job, token) in enumerate(zip(record.jobs, record.tokens, strict=True)):
            lease = self.leases.get(job)
            if lease is None or lease.token != token:
                continue
            detail = details.get(place) if details else None
            if detail is not None and detail.message:
                self.results.update(dict.fromkeys(lease.jobs, offset))
            if (worker := self.workers.get(lease.worker)) is not None:
                worker.see(self.now_ms)
            if outcomes:
                outcome = _OUTCOMES[outcomes[place]]
            self._end_attempt(lease, outcome, None if detail is None else detail.delay_ms, "", into)

    def _end_attempt(
        self, lease: Lease, outcome: AttemptOutcome, delay_ms: int | None, reason: str, into: list[JobChange]
    ) -> None:
        """Take the lease from all jobs of a call, and decide for each whether it runs again."""
        queue = lease.queue
        queue.end_call(self.now_ms)
        if (worker := self.workers.get(lease.worker)) is not None:
            worker.end_call()
        ran_ms = self.now_ms - lease.started_ms
        for job in lease.jobs:
            del self.leases[job]
            # First: its effect is there, also where a stop was requested or the attempts were used up.
            if outcome is _OK:
                self._end(queue, job, _SUCCEEDED, reason, ran_ms, into)
            elif lease.stop_requested:
                self._end(queue, job, JobState.STOPPED, reason, ran_ms, into)
            elif outcome is AttemptOutcome.CANCEL:
                self._end(queue, job, JobState.ERROR, reason, ran_ms, into)
            elif outcome is AttemptOutcome.FAIL and 0 <= self.table.retries(job) < self.table.tries(job):
                self._end(queue, job, JobState.GIVEN_UP, reason, ran_ms, into)
            else:
                self._queue_again(queue, job, outcome, delay_ms)
                note(into, job, JobState.QUEUED, queue.name, reason or outcome.name.lower(), ran_ms)

    def _queue_again(self, queue: Queue, job: JobId, outcome: AttemptOutcome, delay_ms: int | None) -> None:
        table = self.table
        if delay_ms is None:
            # The shift is bounded: without a limit of retries the integers would grow without end.
            doubled = table.retry_delay_ms(job) << min(max(table.tries(job) - 1, 0), 30)
            delay_ms = min(doubled, queue.settings.max_retry_delay_ms)
        if outcome is AttemptOutcome.SNOOZE:
            table.take_back_try(job)
        table.set_state(job, JobState.QUEUED)
        table.set_due_ms(job, self.now_ms + max(0, delay_ms))
        queue.wait(1)
        if delay_ms > 0:
            self._delay(job, table.due_ms(job))
        else:
            queue.add(job, self.now_ms)

    def _end(self, queue: Queue, job: JobId, state: JobState, reason: str, ran_ms: int, into: list[JobChange]) -> None:
        """End a job whose lease is gone, or that was queued."""
        self._release_unique(job)
        self.table.set_state(job, state)
        if state is _GIVEN_UP:
            queue.count_given_up(1)
        queue.end(job, self.now_ms)
        if (state is _SUCCEEDED and not self.table.keep(job)) or state is JobState.DROPPED:
            self.results.pop(job, None)
            self.table.forget(job)
        else:
            self.table.set_due_ms(job, self.now_ms)  # when it ended, from now on
            heappush(self._history, (self.now_ms + queue.settings.history_ms, job))
        note(into, job, state, queue.name, reason, ran_ms)

    def _forget(self, job: JobId) -> None:
        self.results.pop(job, None)
        if self.table.row(job) >= 0:
            if self.table.state(job) is JobState.GIVEN_UP:
                self.queue(job).count_given_up(-1)
            self.table.forget(job)

    def _leave(self, queue: Queue, job: JobId) -> None:
        """Count that a job is no longer queued, and did not start."""
        queue.leave(1)
        if self.table.due_ms(job) > self.now_ms:
            queue.delay(-1)

    def _release_unique(self, job: JobId) -> None:
        if (unique := self._unique_of.pop(job, None)) is not None:
            del self._unique[unique]

    # Commands

    def _command(self, record: JobsCommanded, into: list[JobChange]) -> None:
        for job in record.jobs:
            state = self.table.state(job)
            if state is None or is_of_pool((queue := self.queue(job)).name):
                continue
            if state is JobState.ACTIVE:
                if record.action is JobAction.STOP:
                    self.leases[job].request_stop()
            elif state is JobState.QUEUED:
                self._leave(queue, job)
                stopped = record.action is JobAction.STOP
                self._end(queue, job, JobState.STOPPED if stopped else JobState.DROPPED, "command", 0, into)
            elif record.action is JobAction.REMOVE:
                self._forget(job)
                note(into, job, JobState.DROPPED, queue.name, "command", 0)

    def _command_queue(self, record: QueueCommanded, into: list[JobChange]) -> None:
        queue = self.queues.get(record.queue)
        if queue is None:
            return
        if record.action is QueueAction.SUSPEND:
            queue.suspend(record.until_ms)
        elif record.action is QueueAction.RESUME:
            queue.resume()
        elif not is_of_pool(record.queue):
            self._clear(queue, into)

    def _clear(self, queue: Queue, into: list[JobChange]) -> None:
        for job in [job for job in self._jobs_of(queue) if self.table.is_queued(job)]:
            self._leave(queue, job)
            self._end(queue, job, JobState.DROPPED, "cleared", 0, into)

    # Queues and workers

    def _define(self, settings: QueueSettings) -> None:
        queue = self.queues.get(settings.name)
        self._queue_of_topic.clear()
        if queue is None:
            self._forget_queues()
            queue = self.queues[settings.name] = Queue(settings, self.table)
            self._queue_of_number.append(queue)
        else:
            queue.change(settings, self._jobs_of(queue), self.now_ms)
            self._order_history()
        self._count_slots()

    def _forget_queues(self) -> None:
        """Forget removed queues without jobs, once these are many."""
        queues = self._queue_of_number
        if is_to_be_cleaned(len(queues)):
            live = {number for number, queue in enumerate(queues) if self.queues.get(queue.name) is queue}
            self._queue_of_number = [queues[number] for number in self.table.forget_queues(live, len(queues))]
            for queue in set(queues).difference(self._queue_of_number):
                queue.release()

    def _jobs_of(self, queue: Queue) -> Iterator[JobId]:
        for job, _, _, of in self.table.rows():
            if self._queue_of_number[of] is queue:
                yield job

    def _order_history(self) -> None:
        """Order the jobs that ended by when they are forgotten, which the settings of their queues decide."""
        kept_ms = [queue.settings.history_ms for queue in self._queue_of_number]
        table = self.table
        self._history = [(table.due_ms(job) + kept_ms[table.queue(job)], job) for job in table.ended()]
        heapify(self._history)

    def _remove_queue(self, name: str, into: list[JobChange]) -> None:
        if name != DEFAULT_QUEUE and (queue := self.queues.pop(name, None)) is not None:
            queue.resume()  # its jobs stay in it until they end
            self._queue_of_topic.clear()
            if self.feeds.forget(name):  # if the pool begins again, it takes the packages from the log
                self._clear(queue, into)
                # otherwise a job of a member that died would be queued again when its lease ends
                for lease in (lease for job, lease in self.leases.items() if self.queue(job) is queue):
                    lease.request_stop()

    def _see(self, record: WorkerSeen) -> None:
        known = self.workers.get(record.worker)
        if not record.slots:
            self.workers.pop(record.worker, None)
        else:
            leases = () if known else self.leases.values()  # of a worker that was forgotten while it ran calls
            calls = {(each.token, each.jobs[0]) for each in leases if each.worker == record.worker}
            running = known.running if known else len(calls)
            self.workers[record.worker] = WorkerState(record.slots, record.topics, self.now_ms, running, record.rules)
        if known is None or (known.slots, known.topics, known.rules) != (record.slots, record.topics, record.rules):
            self._count_slots()

    def _count_slots(self) -> None:
        """Update what depends on the live workers: limits that are a share of their slots, and who may claim."""
        self.oldest_rules = min((worker.rules for worker in self.workers.values()), default=0)
        for queue in self._queue_of_number:
            if queue.settings.parallel_percent:
                queue.share(sum(worker.slots for worker in takers(self.workers.values(), queue.settings.topics)))
