"""Requests of the control API on jobs, queues, schedules, and of workers, each with its way from and to the model."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, Any, Final, Literal, Self

from mailboat.api.orders import MAX_OFFSET, ApiOrder, Constraints, Name, WaitSeconds
from mailboat.clock import LAST_MS
from mailboat.errors import UsageError
from mailboat.model.jobs import (
    DEFAULT_LEASE_MS,
    LONGEST_DELAY_MS,
    MAX_BATCH,
    MAX_LEASE_MS,
    MAX_PATTERNS,
    MAX_PROGRESS_BYTES,
    MAX_RETRIES,
    MIN_LEASE_MS,
    AttemptOutcome,
    JobId,
    JobResult,
    MissedFirings,
    NewJob,
    Priority,
    QueueKind,
    QueueSettings,
    Renewal,
    Schedule,
    Token,
    parse_job_id,
    parse_pattern,
    parse_topic,
    show_job_id,
)

_MAX_EVERY_MS: Final = 366 * 24 * 3600 * 1000

_JobText = Annotated[str, Constraints(max_length=24)]
_TopicText = Annotated[str, Constraints(max_length=700)]
_Payload = Annotated[str, Constraints(max_length=400_000)]
_PriorityName = Literal["high", "normal", "low"]
_Moment = Annotated[int, Constraints(ge=0, le=LAST_MS)]
_DelayMs = Annotated[int, Constraints(ge=0, le=LONGEST_DELAY_MS)]
_LeaseMs = Annotated[int, Constraints(ge=MIN_LEASE_MS, le=MAX_LEASE_MS)]
_Retries = Annotated[int, Constraints(ge=-1, le=MAX_RETRIES)]
_Whole = Annotated[int, Constraints(strict=True)]
"""Its bounds are the topic's, which refuses the settings of a queue; `true` and `"5"` would pass there."""

_TokenNumber = Annotated[int, Constraints(strict=True, ge=0, le=MAX_OFFSET)]


class JobOrder(ApiOrder):
    """A job to add.

    Attributes:
        topic: Chooses the queue and the handler: 1 to 10 names joined by dots.
        data: The payload, as JSON.
        payload: The payload, as Base64; only one of both is set.
        key: Order, fairness and merging are by key.
        priority: Which ready jobs of a queue start first.
        due_ms: Start at this moment or later, milliseconds since 1970 UTC.
        delay_ms: Start this long after the append, or later.
        retries: How often a failed attempt is repeated; null takes the queue's setting, -1 is without limit.
        retry_delay_ms: Before the first repetition; null takes the queue's.
        lease_ms: A worker that neither renews nor reports for so long loses the job.
        unique: While a job with the same value is queued, this one is not added.
        request_id: Adding it again returns the first job's id.
        keep: Whether the job stays in the history when it succeeded.
    """

    topic: _TopicText
    data: Any = None
    payload: _Payload | None = None
    key: Name = ""
    priority: _PriorityName = "normal"
    due_ms: _Moment = 0
    delay_ms: _DelayMs = 0
    retries: _Retries | None = None
    retry_delay_ms: _DelayMs | None = None
    lease_ms: _LeaseMs = DEFAULT_LEASE_MS
    unique: Name = ""
    request_id: Name = ""
    keep: bool = False

    @classmethod
    def of(cls, job: NewJob) -> Self:
        """The order for a job."""
        return cls(due_ms=job.due_ms, delay_ms=job.delay_ms, request_id=job.request_id, **_members_of(job))

    def new_job(self) -> NewJob:
        """The job. Raises: UsageError."""
        return _new_job(self)._replace(due_ms=self.due_ms, delay_ms=self.delay_ms, request_id=self.request_id)


class JobsOrder(ApiOrder):
    """Jobs to add.

    Attributes:
        jobs: The jobs, in the order of their ids.
    """

    jobs: Annotated[tuple[JobOrder, ...], Constraints(min_length=1, max_length=MAX_BATCH)]


class JobIds(ApiOrder):
    """The jobs of a command.

    Attributes:
        jobs: Their ids, each `OFFSET-INDEX`.
    """

    jobs: Annotated[tuple[_JobText, ...], Constraints(min_length=1, max_length=MAX_BATCH)]

    @classmethod
    def of(cls, jobs: Iterable[JobId]) -> Self:
        """The order for jobs."""
        return cls(tuple(map(show_job_id, jobs)))

    def parsed(self) -> list[JobId]:
        """The jobs. Raises: UsageError."""
        return [parse_job_id(job) for job in self.jobs]


class QueueOrder(ApiOrder):
    """The settings of a queue.

    Attributes:
        topics: Patterns of job topics; the first queue, by name, with a matching pattern takes a job.
        kind: In which order jobs start.
        max_parallel: Calls that run at the same time, over all workers; -1 is without limit.
        rate: Starts within `rate_period_ms`; 0 is without limit.
        rate_period_ms: The period of the rate.
        merge: The most jobs of one topic and key that one call takes; 1 does not merge.
        merge_within_ms: How long the first job of a key waits for others; without effect if `merge` is 1.
        retries: How often a failed attempt is repeated; -1 is without limit.
        retry_delay_ms: Before the first repetition; each further one doubles it.
        max_retry_delay_ms: The longest pause before a repetition.
        history_ms: How long jobs that ended stay visible.
        parallel_percent: As `max_parallel`, but a share of the slots of live workers that take its topics; 0 is without
            this limit.
    """

    topics: Annotated[tuple[_TopicText, ...], Constraints(max_length=MAX_PATTERNS)] = ()
    kind: Literal["parallel", "ordered", "keyed", "fair"] = "parallel"
    max_parallel: _Whole = -1
    rate: _Whole = 0
    rate_period_ms: _Whole = 1_000
    merge: _Whole = 1
    merge_within_ms: _Whole = 2_000
    retries: _Whole = 10
    retry_delay_ms: _Whole = 2_000
    max_retry_delay_ms: _Whole = 300_000
    history_ms: _Whole = 48 * 3600 * 1000
    parallel_percent: _Whole = 0

    @classmethod
    def of(cls, settings: QueueSettings) -> Self:
        """The order for a queue."""
        members = settings._asdict()
        del members["name"]
        return cls(**{**members, "topics": tuple(settings.topics), "kind": _named(settings.kind)})

    def settings(self, queue: str) -> QueueSettings:
        """The queue of this name. Raises: UsageError."""
        members = {
            **vars(self),
            "topics": tuple(parse_pattern(pattern) for pattern in self.topics),
            "kind": QueueKind[self.kind.upper()],
            "merge_within_ms": self.merge_within_ms if self.merge > 1 else 0,
        }
        return QueueSettings(queue, **members)


class QueueSuspendOrder(ApiOrder):
    """A suspension.

    Attributes:
        seconds: When it ends; null leaves that to `resume`.
    """

    seconds: Annotated[float, Constraints(gt=0, le=LONGEST_DELAY_MS / 1000)] | None = None


class ScheduledJob(ApiOrder):
    """The job that a schedule adds.

    Attributes:
        topic: Chooses the queue and the handler: 1 to 10 names joined by dots.
        data: The payload, as JSON.
        payload: The payload, as Base64; only one of both is set. At most 16 KiB.
        key: Order, fairness and merging are by key.
        priority: Which ready jobs of a queue start first.
        retries: How often a failed attempt is repeated; null takes the queue's setting, -1 is without limit.
        retry_delay_ms: Before the first repetition; null takes the queue's.
        lease_ms: A worker that neither renews nor reports for so long loses the job.
        unique: While a job with the same value is queued, the schedule adds none.
        keep: Whether the job stays in the history when it succeeded.
    """

    topic: _TopicText
    data: Any = None
    payload: _Payload | None = None
    key: Name = ""
    priority: _PriorityName = "normal"
    retries: _Retries | None = None
    retry_delay_ms: _DelayMs | None = None
    lease_ms: _LeaseMs = DEFAULT_LEASE_MS
    unique: Name = ""
    keep: bool = False


class ScheduleOrder(ApiOrder):
    """A schedule; exactly one of `cron`, `every_ms` and `at_ms` is set.

    Attributes:
        job: The job to add.
        cron: Five or six cron fields, in the time zone.
        zone: A time zone, such as `Europe/Berlin`.
        every_ms: The time between two due times.
        at_ms: The only due time, milliseconds since 1970 UTC.
        missed: What happens to due times that no process saw within 30 seconds: one job for all of them, none, or one
            for each of the last 100.
    """

    job: ScheduledJob
    cron: Annotated[str, Constraints(max_length=200)] = ""
    zone: Annotated[str, Constraints(max_length=100)] = "UTC"
    every_ms: Annotated[int, Constraints(ge=0, le=_MAX_EVERY_MS)] = 0
    at_ms: _Moment = 0
    missed: Literal["once", "skip", "all"] = "once"

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """The order for a schedule."""
        job = ScheduledJob(**_members_of(schedule.job))
        times = schedule.cron, schedule.zone, schedule.every_ms, schedule.at_ms
        return cls(job, *times, _named(schedule.missed))

    def schedule(self, name: str) -> Schedule:
        """The schedule of this name. Raises: UsageError."""
        times = self.cron, self.zone, self.every_ms, self.at_ms
        return Schedule(name, _new_job(self.job), *times, MissedFirings[self.missed.upper()])


class HeldCall(ApiOrder):
    """A call that the worker makes now.

    Attributes:
        job: The first of its jobs.
        token: Its fencing token.
        stop_seen: Whether the worker was asked to stop it.
    """

    job: _JobText
    token: _TokenNumber
    stop_seen: bool = False


class ResultOrder(ApiOrder):
    """How a call ended.

    Attributes:
        job: The first of its jobs; the result holds for all of them.
        token: Its fencing token.
        outcome: `ok`; `fail` (retry after the delay, give up when the retries are used up); `cancel` (never retry);
            `snooze` (run again after the delay, the attempt is not counted).
        delay_seconds: Before the next attempt; null takes the job's setting.
        message: The cause, for people.
    """

    job: _JobText
    token: _TokenNumber
    outcome: Literal["ok", "fail", "cancel", "snooze"] = "ok"
    delay_seconds: Annotated[float, Constraints(ge=0, le=LONGEST_DELAY_MS / 1000)] | None = None
    message: Annotated[str, Constraints(max_length=10_000)] = ""

    @classmethod
    def of(cls, result: JobResult) -> Self:
        """The order for a result."""
        seconds = None if result.delay_ms is None else result.delay_ms / 1000
        return cls(show_job_id(result.job), result.token, _named(result.outcome), seconds, result.message)

    def result(self) -> JobResult:
        """The result. Raises: UsageError."""
        delay_ms = None if self.delay_seconds is None else int(self.delay_seconds * 1000)
        return JobResult(
            parse_job_id(self.job), Token(self.token), AttemptOutcome[self.outcome.upper()], delay_ms, self.message
        )


class RenewalOrder(ApiOrder):
    """A lease that the worker still needs.

    Attributes:
        job: The first of the call's jobs.
        token: Its fencing token.
        progress: What the worker reports of the attempt; 4 KiB are kept.
    """

    job: _JobText
    token: _TokenNumber
    progress: Annotated[str, Constraints(max_length=MAX_PROGRESS_BYTES)] = ""

    @classmethod
    def of(cls, renewal: Renewal) -> Self:
        """The order for a renewal."""
        return cls(show_job_id(renewal.job), renewal.token, renewal.progress.decode(errors="replace"))

    def renewal(self) -> Renewal:
        """The renewal. Raises: UsageError."""
        return Renewal(parse_job_id(self.job), Token(self.token), self.progress.encode()[:MAX_PROGRESS_BYTES])


class TurnOrder(ApiOrder):
    """What a worker reports and asks for.

    Attributes:
        topics: Patterns of the topics that the worker takes.
        slots: Calls that it makes at the same time.
        free: How many more it can make now; 0 claims none.
        held: The calls that it makes now. Others that it has a lease of are given again.
        results: Calls that ended.
        renewals: Leases that it still needs.
        wait_seconds: How long to wait for calls. A request with results or renewals is answered at once.
        ending: Whether the worker ends its calls. From then on nothing is claimed for it, and its topics are left to
            others.
    """

    topics: Annotated[tuple[_TopicText, ...], Constraints(min_length=1, max_length=MAX_PATTERNS)]
    slots: Annotated[int, Constraints(ge=1, le=1_000)] = 1
    free: Annotated[int, Constraints(ge=0, le=MAX_BATCH)] = 1
    held: Annotated[tuple[HeldCall, ...], Constraints(max_length=1_000)] = ()
    results: Annotated[tuple[ResultOrder, ...], Constraints(max_length=MAX_BATCH)] = ()
    renewals: Annotated[tuple[RenewalOrder, ...], Constraints(max_length=MAX_BATCH)] = ()
    wait_seconds: WaitSeconds = 0.0
    ending: bool = False


def _named(member: IntEnum) -> Any:
    """A member of an enumeration, as requests name it."""
    return member.name.lower()


def _members_of(job: NewJob) -> dict[str, Any]:
    """What the orders of jobs and of schedules' jobs both have."""
    return {
        "topic": job.topic,
        "payload": base64.b64encode(job.payload).decode(),
        "key": job.key,
        "priority": _named(job.priority),
        "retries": job.retries,
        "retry_delay_ms": job.retry_delay_ms,
        "lease_ms": job.lease_ms,
        "unique": job.unique,
        "keep": job.keep,
    }


def _new_job(order: JobOrder | ScheduledJob) -> NewJob:
    """The job, as far as both orders describe it. Raises: UsageError."""
    return NewJob(
        parse_topic(order.topic),
        _decode_payload(order.data, order.payload),
        order.key,
        Priority[order.priority.upper()],
        retries=order.retries,
        retry_delay_ms=order.retry_delay_ms,
        lease_ms=order.lease_ms,
        unique=order.unique,
        keep=order.keep,
    )


def _decode_payload(data: object, payload: str | None) -> bytes:
    """The payload of a job from one of its two forms, JSON and Base64. Raises: UsageError."""
    if data is not None and payload is not None:
        raise UsageError("a job has `data` or `payload`, not both")
    if payload is None:
        return b"" if data is None else json.dumps(data, ensure_ascii=False).encode()
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise UsageError(f"payload: it is not Base64: {error}") from error
