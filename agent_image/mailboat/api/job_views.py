"""What the operations on jobs answer: records of plain values, as in `records.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mailboat.api.records import Moment


@dataclass(frozen=True, slots=True)
class JobView:
    """A job.

    Attributes:
        job: Its id, `OFFSET-INDEX`.
        topic: What chose its queue and its handler.
        queue: Its queue.
        state: `queued`, `unassigned` (due, and no live worker takes its topic), `active`, `succeeded`, `stopped`,
            `given-up` or `error`.
        tries: Attempts that started.
        due_at: When a queued job may start.
        reason: Why a queued job waits, and why the last attempt failed.
        ended_at: When a job of the history ended.
    """

    job: str
    topic: str
    queue: str
    state: str
    tries: int
    due_at: Moment | None = None
    reason: str = ""
    ended_at: Moment | None = None


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of jobs, oldest first.

    Attributes:
        items: Jobs.
        next_page: Token of the next page; None for the last one. A page may be empty and yet have a next one.
    """

    items: tuple[JobView, ...]
    next_page: str | None = None


@dataclass(frozen=True, slots=True)
class JobDetailView:
    """All that is known of a job.

    Attributes:
        view: The job.
        key: Order, fairness and merging are by key.
        data: The payload: its JSON value, else a string.
        retries: How often a failed attempt is repeated; -1 is without limit.
        position: How many calls of the queue, or jobs of its key, start before it; null for a job that is not due.
        starts_at: When it should start, at the pace of the last calls of its queue; null if that is unknown.
        worker: The worker that runs it, without the random end of its id.
        token: The fencing token of the running attempt.
        started_at: When the running attempt started.
        done: Steps of the running attempt that are done.
        total: All its steps.
        eta_at: When the last step is done at the speed so far.
        log: The last lines that the attempt logged.
        progress: What the worker reported last, where it is not steps and lines.
    """

    view: JobView
    key: str = ""
    data: Any = None
    retries: int = 0
    position: int | None = None
    starts_at: Moment | None = None
    worker: str | None = None
    token: int | None = None
    started_at: Moment | None = None
    done: int | None = None
    total: int | None = None
    eta_at: Moment | None = None
    log: tuple[str, ...] = ()
    progress: str | None = None


@dataclass(frozen=True, slots=True)
class JobStateView:
    """The state of a job after a request.

    Attributes:
        job: Its id.
        state: Its state.
        reason: Why a queued job waits.
        stop_requested: Whether a running job was asked to stop.
    """

    job: str
    state: str
    reason: str = ""
    stop_requested: bool = False


@dataclass(frozen=True, slots=True)
class JobQueueView:
    """A queue of jobs.

    Attributes:
        queue: Its name.
        kind: `parallel`, `ordered`, `keyed` or `fair`.
        queued: Jobs that wait, also those that are due later.
        due: Calls that could start now with enough workers: the number to scale workers by. Order and rate count,
            `max_parallel` does not; 0 while the queue is suspended.
        active: Calls that run.
        oldest_at: When the job that waits longest became due.
        oldest_seconds: How long ago that is.
        workers: Live workers that take a topic of the queue.
        given_up: Jobs in the history that used up their retries.
        suspended: Whether nothing starts.
        max_parallel: Calls that run at the same time; -1 is without limit.
        parallel_percent: The share of slots that its calls may take; 0 is without limit.
        rate: Starts within a time, such as `100/1s`; None is without limit.
        merge: The most jobs of one topic and key that one call takes.
        topics: Patterns of job topics.
        older_workers: Live workers of an older version, named as in a job, to which newer ones leave the queue, or jobs
            that it holds, until they stop.
    """

    queue: str
    kind: str
    queued: int
    due: int
    active: int
    oldest_at: Moment | None
    oldest_seconds: float | None
    workers: int
    given_up: int
    suspended: bool
    max_parallel: int
    rate: str | None
    merge: int
    topics: tuple[str, ...]
    parallel_percent: int = 0
    older_workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueChangeView:
    """The outcome of a change to a queue.

    Attributes:
        queue: Its name.
        until_at: When a suspension ends; None if it does not end, or is absent.
        dropped: Jobs that a clear dropped.
    """

    queue: str
    until_at: Moment | None = None
    dropped: int | None = None


@dataclass(frozen=True, slots=True)
class JobScheduleView:
    """A schedule of jobs.

    Attributes:
        schedule: Its name.
        topic: The topic of its jobs.
        key: Their key.
        cron: Five or six cron fields, in the time zone; empty for the others.
        zone: A time zone, such as `Europe/Berlin`.
        missed: What happens to due times without a live process: `once`, `skip` or `all`.
        every_seconds: The time between two due times; null for the others.
        at: The only due time; null for the others.
        next_at: The next due time; null when it has ended.
        data: Their payload: its JSON value, else a string; null if absent.
    """

    schedule: str
    topic: str
    key: str
    cron: str
    zone: str
    missed: str
    every_seconds: float | None = None
    at: Moment | None = None
    next_at: Moment | None = None
    data: Any = None


@dataclass(frozen=True, slots=True)
class CallView:
    """A call of a handler.

    Attributes:
        job: The first of its jobs.
        token: The fencing token: higher than that of every earlier attempt.
    """

    job: str
    token: int


@dataclass(frozen=True, slots=True)
class ClaimedJobView:
    """A job to run.

    Attributes:
        job: Its id.
        topic: What chose the handler.
        key: Its key.
        payload: Base64.
    """

    job: str
    topic: str
    key: str
    payload: str


@dataclass(frozen=True, slots=True)
class ClaimedView:
    """A call that a worker has to make.

    Attributes:
        job: The first of its jobs: names the call, together with the token.
        token: The fencing token: higher than that of every earlier attempt.
        attempt: 1 for the first.
        lease_seconds: A worker that neither renews nor reports for so long loses the call.
        jobs: The job, or the jobs that are merged into the call.
        log: Names the log of jobs: another log gives the same ids to other jobs.
    """

    job: str
    token: int
    attempt: int
    lease_seconds: float
    jobs: tuple[ClaimedJobView, ...]
    log: str = ""


@dataclass(frozen=True, slots=True)
class TurnView:
    """What a worker learns.

    Attributes:
        claimed: Calls to make.
        stopping: Calls of this worker that an operator asked to stop.
        lost: Calls whose lease is over, or belongs to another worker: their results and renewals do not count.
    """

    claimed: tuple[ClaimedView, ...] = ()
    stopping: tuple[CallView, ...] = ()
    lost: tuple[CallView, ...] = ()
