"""Jobs, answered from the job topic itself: for commands on a home, and for the HTTP server of an agent.

Every call first reads what is new in the topic. The topic is opened, and created where it is missing, by the first
call, so that an agent without jobs has none. Safe to use from several threads.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Final

from mailboat.api.job_control import JobFilter
from mailboat.api.job_views import (
    JobDetailView,
    JobPage,
    JobQueueView,
    JobScheduleView,
    JobStateView,
    JobView,
    QueueChangeView,
)
from mailboat.clock import Clock, milliseconds_now, moment_of
from mailboat.control.shown_jobs import (
    has_members,
    is_wanted,
    job_queue_view,
    job_schedule_view,
    job_state_view,
    job_view,
    parse_member,
    with_attempt,
)
from mailboat.errors import JobLogIncompleteError, JobLogReplacedError, ThrottledError, UsageError
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.command import payload_value
from mailboat.jobs.feeds import is_of_pool
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_changes import Applied
from mailboat.jobs.job_queue import Queue
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.schedules import plan_schedule
from mailboat.jobs.selection import expected_start_ms, position, shown_state
from mailboat.jobs.source import CallId, Offer, PollResult
from mailboat.jobs.topic import JobTopic, Listener, open_job_topic
from mailboat.journal.port import Journal
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.jobs import (
    DEFAULT_QUEUE,
    MAX_BATCH,
    POOL_QUEUE,
    RESERVED_NAME,
    JobAction,
    JobId,
    JobMissingError,
    JobQueueMissingError,
    JobRecord,
    JobResult,
    JobScheduleMissingError,
    JobsCommanded,
    JobState,
    NewJob,
    QueueAction,
    QueueCommanded,
    QueueDefined,
    QueueRemoved,
    QueueSettings,
    Renewal,
    Schedule,
    ScheduleDefined,
    ScheduleRemoved,
    has_reserved,
    parse_job_id,
    parse_pattern,
    show_job_id,
)
from mailboat.model.messages import JOB_TOPIC
from mailboat.pools.shared_target import instance_of
from mailboat.wire.job_records import queue_problem

_LOG: Final = logging.getLogger(__name__)
MAX_LISTED: Final = 1_000
_MAX_PAYLOADS: Final = 2_000
"""Payloads that one page of a search reads."""
_MAX_WORKERS: Final = 2_000
"""Live workers of the topic: each claim is compared with what the others would prefer."""
_MAX_LEFT: Final = 10_000
"""Workers that left are remembered, so that a request of theirs that is under way does not bring them back."""
_WORKERS_RETRY_SECONDS: Final = 30.0
_ATTEND_SECONDS: Final = 1.0
_NO_TOPIC_SECONDS: Final = 30.0
_CLOCK_AHEAD_SECONDS: Final = 30.0


class JobService:
    """`JobControl` over a journal, and the calls of workers without access to it."""

    def __init__(self, journal: Callable[[], Journal], clock: Clock, chance: random.Random) -> None:
        """Open nothing yet.

        Args:
            journal: Opens the journal; it stays the caller's.
            clock: Time.
            chance: Spreads the records that move the time of an idle log.
        """
        self._journal = journal
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._source: LogSource | None = None
        self._listener: Listener | None = None
        self._read_at = 0.0
        self._is_current = False
        """Whether the topic was read to its end once: what happened before is not for the listener."""
        self._left: OrderedDict[str, None] = OrderedDict()
        self._of_earlier_topic: frozenset[str] = frozenset()
        """Workers of a topic that was replaced: the new one may give their tokens to calls of other jobs."""

    def close(self) -> None:
        """Release the reader of the topic."""
        with self._lock:
            self._close_source()

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = None
        self._is_current = False

    def listen(self, listener: Listener) -> None:
        """Call this with each record from now on, in the thread that reads it."""
        self._listener = listener

    def attend(self) -> float:
        """Do what has to happen without workers: fire schedules, and write checkpoints; for an agent's thread.

        Returns: seconds until the next call. An agent without jobs opens nothing.
        Raises: the journal's errors, JobLogIncompleteError.
        """
        if self._source is None and JOB_TOPIC not in self._journal().topics():
            return _NO_TOPIC_SECONDS
        with self._opened() as source:
            topic = source.topic
            fold = topic.fold
            if fold.schedules.due(self._now_ms(fold)):
                if not fold.schedules.due(fold.now_ms):
                    source.tick()
                # The clock of this machine is ahead of the journal's: no tick each second until it is not.
                if not fold.schedules.due(fold.now_ms):
                    return _CLOCK_AHEAD_SECONDS
                source.fire()
            if not fold.workers and topic.is_checkpoint_due():
                topic.write_checkpoint()
        return _ATTEND_SECONDS

    # Jobs

    def add(self, jobs: Sequence[NewJob]) -> Sequence[JobStateView]:
        if not 0 < len(jobs) <= MAX_BATCH:
            raise UsageError(f"1 to {MAX_BATCH} jobs can be added at once, not {len(jobs)}")
        with self._opened() as source:
            topic = source.topic
            return self._state_views(topic.fold, topic.add(jobs))

    def list_jobs(self, wanted: JobFilter, page: str | None = None, max_items: int = 100) -> JobPage:
        members = [parse_member(text) for text in wanted.members]
        pattern = None if wanted.topic is None else parse_pattern(wanted.topic)
        after = -1 if page is None else parse_job_id(page)
        max_items = max(1, min(max_items, MAX_LISTED))
        found: list[JobView] = []
        payloads = 0
        with self._opened() as source:
            topic = source.topic
            fold, last = topic.fold, after
            now_ms = self._now_ms(fold)
            for job in fold.table.all():
                if job <= after:
                    continue
                if len(found) == max_items or payloads == _MAX_PAYLOADS:
                    return JobPage(tuple(found), show_job_id(JobId(last)))
                last = job
                if not is_wanted(fold, job, wanted, pattern, now_ms):
                    continue
                if members:
                    payloads += 1
                    new = topic.job(job)
                    if new is None or not has_members(new.payload, members):
                        continue
                found.append(job_view(topic, job, now_ms))
        return JobPage(tuple(found))

    def show(self, job: JobId) -> JobDetailView:
        with self._opened() as source:
            topic = source.topic
            fold = topic.fold
            _check_job(fold, job)
            new, lease, now_ms = topic.job(job), fold.leases.get(job), self._now_ms(fold)
            waits = fold.table.is_queued(job)
            starts_ms = expected_start_ms(fold, job, now_ms) if waits else None
            view = JobDetailView(
                job_view(topic, job, now_ms),
                "" if new is None else new.key,
                None if new is None else payload_value(new.payload),
                fold.table.retries(job),
                position(fold, job) if waits else None,
                None if starts_ms is None else moment_of(starts_ms),
            )
            return view if lease is None else with_attempt(view, lease, min(map(fold.table.lease_ms, lease.jobs)))

    def command(self, action: JobAction, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        with self._opened() as source:
            topic = source.topic
            fold = topic.fold
            for job in jobs:
                _check_job(fold, job)
                _refuse_pool(fold.queue(job).settings.name)
            active = [show_job_id(job) for job in jobs if fold.table.state(job) is JobState.ACTIVE]
            if active and action is JobAction.REMOVE:
                raise UsageError(
                    f"active jobs cannot be removed: {', '.join(active)}",
                    next_step=f"mailboat jobs stop {' '.join(active)}",
                )
            _append(topic, JobsCommanded(action, jobs))
            # A merged call has one lease and ends as a whole: the answer has all jobs that the stop of one ends.
            calls = [[job] if (lease := fold.leases.get(job)) is None else lease.jobs for job in jobs]
            return self._state_views(fold, list(dict.fromkeys(chain.from_iterable(calls))))

    def retry(self, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        with self._opened() as source:
            topic = source.topic
            again = []
            for job in jobs:
                _check_job(topic.fold, job)
                state, new = topic.fold.table.state(job), topic.added_job(job)
                if state is None or not state.final or new is None:
                    shown = shown_state(topic.fold, job, self._now_ms(topic.fold))
                    raise UsageError(f"job {show_job_id(job)} is {shown}; only jobs that ended can be retried")
                # with its unique value or its request id, `add` could return a job that exists instead of a new one
                again.append(new._replace(due_ms=0, delay_ms=0, unique="", request_id="", retry_of=job))
            return self._state_views(topic.fold, topic.add(again))

    # Queues

    def queues(self) -> Sequence[JobQueueView]:
        with self._opened() as source:
            fold = source.topic.fold
            return self._queue_views(fold, [queue for _, queue in sorted(fold.queues.items())])

    def opened_queues(self) -> Sequence[JobQueueView]:
        """All queues; none before the topic was opened, so that a scrape does not create it."""
        return () if self._source is None else self.queues()

    @property
    def size_bytes(self) -> int:
        """What the jobs take, by their number and kind; 0 before the topic was opened."""
        source = self._source
        return 0 if source is None else source.topic.fold.size_bytes()

    def queue(self, queue: str) -> JobQueueView:
        with self._opened() as source:
            fold = source.topic.fold
            _check_queue(fold, queue)
            return self._queue_views(fold, [fold.queues[queue]])[0]

    def _queue_views(self, fold: JobFold, queues: Sequence[Queue]) -> Sequence[JobQueueView]:
        now_ms = self._now_ms(fold)
        # On an idle log no record says that a delay is over: a queue without a worker would never look due.
        came_due: dict[Queue, list[JobId]] = {}
        for job in fold.due_between(now_ms):
            came_due.setdefault(fold.queue(job), []).append(job)
        return [job_queue_view(fold, queue, now_ms, came_due.get(queue, ())) for queue in queues]

    def set_queue(self, settings: QueueSettings) -> QueueChangeView:
        _refuse_pool(settings.name)
        if (problem := queue_problem(settings)) is not None:
            raise UsageError(f"the queue {settings.name} cannot be set so: {problem}, which is out of bounds")
        with self._opened() as source:
            topic = source.topic
            _append(topic, QueueDefined(settings))
        return QueueChangeView(settings.name)

    def remove_queue(self, queue: str) -> QueueChangeView:
        if queue == DEFAULT_QUEUE:
            raise UsageError("the default queue cannot be removed")
        _refuse_pool(queue)
        return self._change(queue, QueueRemoved(queue))

    def forget_pool(self, pool: AgentName, instances: Collection[SlingId]) -> None:
        """Remove the queue of a shared pool, with its jobs, if the pool is one of these instances."""
        if self._source is None and JOB_TOPIC not in self._journal().topics():
            return
        with self._opened() as source:
            feed = source.topic.fold.feeds.find(pool)
            if feed is not None and instance_of(feed.target) in instances:
                _append(source.topic, QueueRemoved(feed.queue))

    def suspend(self, queue: str, seconds: float | None = None) -> QueueChangeView:
        with self._opened() as source:
            topic = source.topic
            _check_queue(topic.fold, queue)
            if seconds is not None:
                source.tick()  # the time of an idle log stands still, and the clocks of processes differ
            until_ms = None if seconds is None else topic.fold.now_ms + int(seconds * 1000)
            _append(topic, QueueCommanded(QueueAction.SUSPEND, queue, until_ms))
        return QueueChangeView(queue, None if until_ms is None else moment_of(until_ms))

    def resume(self, queue: str) -> QueueChangeView:
        return self._change(queue, QueueCommanded(QueueAction.RESUME, queue))

    def clear(self, queue: str) -> QueueChangeView:
        _refuse_pool(queue)
        with self._opened() as source:
            topic = source.topic
            _check_queue(topic.fold, queue)
            applied = _append(topic, QueueCommanded(QueueAction.CLEAR, queue))
        return QueueChangeView(queue, dropped=sum(each.reason == "cleared" for each in applied.transitions))

    def _change(self, queue: str, record: JobRecord) -> QueueChangeView:
        with self._opened() as source:
            topic = source.topic
            _check_queue(topic.fold, queue)
            _append(topic, record)
        return QueueChangeView(queue)

    # Schedules

    def schedules(self) -> Sequence[JobScheduleView]:
        with self._opened() as source:
            return [job_schedule_view(each) for each in source.topic.fold.schedules.all()]

    def schedule(self, schedule: str) -> JobScheduleView:
        with self._opened() as source:
            return job_schedule_view(_known_schedule(source.topic.fold, schedule))

    def set_schedule(self, schedule: Schedule) -> JobScheduleView:
        with self._opened() as source:
            fold = source.topic.fold
            known = fold.schedules
            found = known.find(schedule.name)
            if found is None or found._replace(next_ms=None) != schedule:
                plan_schedule(known, schedule, fold.now_ms)  # refused before anything is appended
                source.tick()  # the time of an idle log stands still, and the clocks of processes differ
                source.fire()  # what is due of the schedule that is replaced
            planned = plan_schedule(known, schedule, fold.now_ms)
            if planned != known.find(schedule.name):
                _append(source.topic, ScheduleDefined(planned))
            return job_schedule_view(planned)

    def remove_schedule(self, schedule: str) -> JobScheduleView:
        with self._opened() as source:
            known = _known_schedule(source.topic.fold, schedule)
            _append(source.topic, ScheduleRemoved(schedule))
            return job_schedule_view(known)

    def fire(self, schedule: str) -> JobStateView:
        with self._opened() as source:
            (job,) = source.topic.add([_known_schedule(source.topic.fold, schedule).job])
            return self._state_views(source.topic.fold, [job])[0]

    def _state_views(self, fold: JobFold, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        now_ms = self._now_ms(fold)
        return [job_state_view(fold, job, now_ms) for job in jobs]

    def _now_ms(self, fold: JobFold) -> int:
        """The later one of the log's time and the clock's: an idle log stands still."""
        return max(fold.now_ms, milliseconds_now(self._clock))

    # Workers without access to the journal

    def poll(self, offer: Offer, free: int, held: Collection[CallId], max_age_seconds: float = 0.0) -> PollResult:
        """Claim for a worker what may start now, by records that were read at most so long ago.

        Raises: ThrottledError: there are too many workers.
        """
        # the result of a package counts as its import, so only a process with the target may take it
        if has_reserved(offer.topics):
            raise UsageError(f"topics that begin with {RESERVED_NAME} are not for workers without the journal")
        with self._opened(max_age_seconds) as source:
            workers = source.topic.fold.workers
            self._check_worker(offer.worker, source.topic.fold)
            known = workers.get(offer.worker)
            # A claim that is under way must not bring back a worker that left, or the topics of one that ends.
            if offer.worker in self._left or (known is not None and not known.topics and not offer.is_ending):
                return PollResult()
            if known is None and len(workers) >= _MAX_WORKERS:
                raise ThrottledError(
                    f"{len(workers)} workers are live already", retry_after_seconds=_WORKERS_RETRY_SECONDS
                )
            return source.poll_without_reading(offer, free, held)

    def report(
        self,
        offer: Offer,
        results: Sequence[JobResult],
        renewals: Sequence[Renewal],
        free: int = 0,
        held: Collection[CallId] = (),
    ) -> PollResult:
        """Report calls of a worker, and renew its leases. See `JobSource.report`."""
        with self._opened() as source:
            self._check_worker(offer.worker, source.topic.fold)
            return source.report(offer, results, renewals, free, held)

    def has_left(self, worker: str) -> bool:
        """Whether the worker ended: nothing comes of a claim for it."""
        return worker in self._left

    def leave(self, worker: str) -> None:
        """A worker ends."""
        with self._opened() as source:
            fold = source.topic.fold
            _refuse_member(fold, worker)
            if worker in fold.workers or any(lease.worker == worker for lease in fold.leases.values()):
                source.leave(worker)
            self._left[worker] = None
            if len(self._left) > _MAX_LEFT:
                self._left.popitem(last=False)

    @contextmanager
    def _opened(self, max_age_seconds: float = 0.0) -> Iterator[LogSource]:
        """The topic, read to its end at most so long ago, for this thread alone."""
        with self._lock:
            source = self._source
            if source is None or self._clock.monotonic() - self._read_at >= max_age_seconds:
                source = self._caught_up()
                self._read_at = self._clock.monotonic()
            self._is_current = True
            yield source

    def _caught_up(self) -> LogSource:
        """The source, opened again where the topic is another one or lost records that were not read yet."""
        if self._source is not None:
            try:
                self._source.catch_up()
            except (JobLogReplacedError, JobLogIncompleteError) as error:
                if isinstance(error, JobLogReplacedError):
                    self._of_earlier_topic = frozenset(self._source.topic.fold.workers)
                _LOG.warning("the job topic is opened again: %s", error)
                self._close_source()
            else:
                return self._source
        topic = open_job_topic(self._journal(), self._seen)
        self._source = LogSource(topic, self._clock, self._chance, NoFailpoints())
        self._source.catch_up()
        return self._source

    def _check_worker(self, worker: str, fold: JobFold) -> None:
        _refuse_member(fold, worker)
        if worker in self._of_earlier_topic:
            raise JobLogReplacedError(
                f"the job topic was created again; worker {worker} has calls of the earlier one",
                next_step="start the worker again",
            )

    def _seen(self, fold: JobFold, applied: Applied) -> None:
        if self._is_current and self._listener is not None:
            self._listener(fold, applied)


def _append(topic: JobTopic, record: JobRecord) -> Applied:
    """Append a record, and return what it did."""
    (offset,) = topic.append(record)
    found: list[Applied] = []

    def seen(at: Offset, applied: Applied) -> None:
        if at == offset:
            found.append(applied)

    # records of other processes may lie before this one and decide what it does
    topic.follow_to(offset, seen)
    return found[0]


def _known_schedule(fold: JobFold, name: str) -> Schedule:
    found = fold.schedules.find(name)
    if found is None:
        raise JobScheduleMissingError(f"there is no schedule {name!r}", next_step="mailboat jobs schedules")
    return found


def _check_job(fold: JobFold, job: JobId) -> None:
    if fold.table.state(job) is None:
        raise JobMissingError(
            f"job {show_job_id(job)} is not known: it was never added, or it ended and left the history",
            next_step="mailboat jobs ls",
        )


def _refuse_pool(queue: str) -> None:
    """Refuse to change a queue that the members of a shared pool need as it is."""
    if is_of_pool(queue):
        name = queue.removeprefix(POOL_QUEUE)
        raise UsageError(
            f"{queue} holds the packages of the shared pool {name}",
            next_step=f"drop packages with: mailboat queues clear {name}",
        )


def _refuse_member(fold: JobFold, worker: str) -> None:
    """Refuse requests in the name of a member of a shared pool, which never sends any. Raises: UsageError."""
    known = fold.workers.get(worker)
    # One that ends has no topics any more, and one that was silent is forgotten: both may still import packages.
    is_member = (
        has_reserved(known.topics)
        if known is not None and known.topics
        else any(lease.worker == worker and is_of_pool(lease.queue.name) for lease in fold.leases.values())
    )
    if is_member:
        raise UsageError("members of shared pools are not workers without the journal")


def _check_queue(fold: JobFold, name: str) -> None:
    if name not in fold.queues:
        shown = ", ".join(islice(sorted(fold.queues), 20))
        raise JobQueueMissingError(f"there is no queue {name!r}; queues: {shown}")
