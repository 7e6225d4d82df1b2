"""Jobs, their queues, and what workers without access to the journal ask."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import ConfigDict, Field, with_config
from starlette.concurrency import run_in_threadpool

from mailboat.api.job_control import JobFilter
from mailboat.api.job_views import (
    CallView,
    ClaimedJobView,
    ClaimedView,
    JobDetailView,
    JobPage,
    JobQueueView,
    JobStateView,
    QueueChangeView,
    TurnView,
)
from mailboat.api.operations import LONGEST_WAIT_SECONDS
from mailboat.config.document import Verb
from mailboat.errors import UsageError
from mailboat.http.examples import JOB, JOB_DETAIL, JOB_QUEUE, JOB_STATE, JOB_TURN, LEFT, QUEUE_CHANGE
from mailboat.http.pages import MaxItems, PageToken, link_next
from mailboat.http.ports import (
    LONGEST_NAME,
    MAX_OFFSET,
    NEXT_PAGE,
    ApiPorts,
    CurrentCall,
    Ports,
    operation,
    with_headers,
)
from mailboat.jobs.source import CallId, ClaimedCall, Offer, PollResult
from mailboat.model.jobs import (
    DEFAULT_LEASE_MS,
    MAX_BATCH,
    AttemptOutcome,
    JobAction,
    JobResult,
    NewJob,
    Priority,
    QueueKind,
    QueueSettings,
    Renewal,
    Token,
    parse_job_id,
    parse_pattern,
    parse_topic,
    show_job_id,
)

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])
_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.1
_SHARED_SECONDS: Final = 0.05
"""Waiting workers share a read of the topic so long: on Kafka each one asks a broker several times."""
_MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Payloads of one answer to a worker; what is claimed beyond it comes with the next answer."""
MAX_MS: Final = 10**13
MAX_DELAY_MS: Final = (1 << 32) - 1

JobText = Annotated[str, Field(max_length=24, description="A job id, `OFFSET-INDEX`.")]
JobPath = Annotated[str, Path(description="The job's id.", max_length=24, examples=["1042-0"])]
QueuePath = Annotated[str, Path(description="The queue's name.", max_length=LONGEST_NAME, examples=["cdn"])]
WorkerPath = Annotated[
    str,
    Path(
        description="Chosen by the worker for each start. It should end in random characters.",
        min_length=1,
        max_length=LONGEST_NAME,
        examples=["renderer-1-9f86d081884c"],
    ),
]
PayloadText = Annotated[str, Field(max_length=400_000)]
PriorityName = Literal["high", "normal", "low"]
StrictInt = Annotated[int, Field(strict=True)]
TokenNumber = Annotated[int, Field(strict=True, ge=0, le=MAX_OFFSET)]
DelaySeconds = Annotated[float, Field(ge=0, le=MAX_DELAY_MS / 1000)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class JobOrder:
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

    topic: Annotated[str, Field(max_length=700)]
    data: Any = None
    payload: PayloadText | None = None
    key: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    priority: PriorityName = "normal"
    due_ms: Annotated[int, Field(ge=0, le=MAX_MS)] = 0
    delay_ms: Annotated[int, Field(ge=0, le=MAX_DELAY_MS)] = 0
    retries: Annotated[int, Field(ge=-1, le=30_000)] | None = None
    retry_delay_ms: Annotated[int, Field(ge=0, le=MAX_DELAY_MS)] | None = None
    lease_ms: Annotated[int, Field(ge=1_000, le=86_400_000)] = DEFAULT_LEASE_MS
    unique: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    request_id: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    keep: bool = False


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class JobsOrder:
    """Jobs to add.

    Attributes:
        jobs: The jobs, in the order of their ids.
    """

    jobs: Annotated[tuple[JobOrder, ...], Field(min_length=1, max_length=MAX_BATCH)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class JobIds:
    """The jobs of a command.

    Attributes:
        jobs: Their ids.
    """

    jobs: Annotated[tuple[JobText, ...], Field(min_length=1, max_length=MAX_BATCH)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class QueueOrder:
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

    topics: Annotated[tuple[Annotated[str, Field(max_length=700)], ...], Field(max_length=64)] = ()
    kind: Literal["parallel", "ordered", "keyed", "fair"] = "parallel"
    max_parallel: StrictInt = -1
    rate: StrictInt = 0
    rate_period_ms: StrictInt = 1_000
    merge: StrictInt = 1
    merge_within_ms: StrictInt = 2_000
    retries: StrictInt = 10
    retry_delay_ms: StrictInt = 2_000
    max_retry_delay_ms: StrictInt = 300_000
    history_ms: StrictInt = 48 * 3600 * 1000
    parallel_percent: StrictInt = 0


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class QueueSuspendOrder:
    """A suspension.

    Attributes:
        seconds: When it ends; null leaves that to `resume`.
    """

    seconds: Annotated[float, Field(gt=0, le=MAX_DELAY_MS / 1000)] | None = None


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that the worker makes now.

    Attributes:
        job: The first of its jobs.
        token: Its fencing token.
        stop_seen: Whether the worker was asked to stop it.
    """

    job: JobText
    token: TokenNumber
    stop_seen: bool = False


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class ResultOrder:
    """How a call ended.

    Attributes:
        job: The first of its jobs; the result holds for all of them.
        token: Its fencing token.
        outcome: `ok`; `fail` (retry after the delay, give up when the retries are used up); `cancel` (never retry);
            `snooze` (run again after the delay, the attempt is not counted).
        delay_seconds: Before the next attempt; null takes the job's setting.
        message: The cause, for people.
    """

    job: JobText
    token: TokenNumber
    outcome: Literal["ok", "fail", "cancel", "snooze"] = "ok"
    delay_seconds: DelaySeconds | None = None
    message: Annotated[str, Field(max_length=10_000)] = ""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class RenewalOrder:
    """A lease that the worker still needs.

    Attributes:
        job: The first of the call's jobs.
        token: Its fencing token.
        progress: What the worker reports of the attempt; 4 KiB are kept.
    """

    job: JobText
    token: TokenNumber
    progress: Annotated[str, Field(max_length=4_096)] = ""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class TurnOrder:
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

    topics: Annotated[tuple[Annotated[str, Field(max_length=700)], ...], Field(min_length=1, max_length=64)]
    slots: Annotated[int, Field(ge=1, le=1_000)] = 1
    free: Annotated[int, Field(ge=0, le=MAX_BATCH)] = 1
    held: Annotated[tuple[HeldCall, ...], Field(max_length=1_000)] = ()
    results: Annotated[tuple[ResultOrder, ...], Field(max_length=MAX_BATCH)] = ()
    renewals: Annotated[tuple[RenewalOrder, ...], Field(max_length=MAX_BATCH)] = ()
    wait_seconds: Annotated[float, Field(ge=0, le=LONGEST_WAIT_SECONDS)] = 0.0
    ending: bool = False


async def _wanted_jobs(
    state: Annotated[str | None, Query(description="Only jobs in this state.", max_length=20)] = None,
    queue: Annotated[str | None, Query(description="Only jobs of this queue.", max_length=LONGEST_NAME)] = None,
    topic: Annotated[str | None, Query(description="Only topics of this pattern.", max_length=700)] = None,
    member: Annotated[
        list[Annotated[str, Field(max_length=1_000)]] | None,
        Query(
            description="Only jobs whose payload has this member: `NAME=VALUE`. Dots in the name lead deeper.",
            max_length=8,
        ),
    ] = None,
    older_seconds: Annotated[
        float | None, Query(description="Only jobs that ended longer ago.", ge=0, le=MAX_MS / 1000)
    ] = None,
) -> JobFilter:
    return JobFilter(state, queue, topic, member or (), older_seconds)


WantedJobs = Annotated[JobFilter, Depends(_wanted_jobs)]


@router.get(
    "",
    **with_headers(operation(Verb.VIEW, "Jobs", example={"items": [JOB], "next_page": None}), NEXT_PAGE),
)
def list_jobs(
    wanted: WantedJobs,
    ports: Ports,
    request: Request,
    response: Response,
    page: PageToken = None,
    max_items: MaxItems = 100,
) -> JobPage:
    """Jobs that are not over, and those of the history, oldest first. A page may be empty and yet have a next one."""
    found = ports.jobs.list_jobs(wanted, page, max_items)
    link_next(request, response, found.next_page)
    return found


@router.post("", **operation(Verb.SUBMIT, "Add jobs", example=[JOB_STATE], status=202))
async def add_jobs(order: JobsOrder, ports: Ports, call: CurrentCall) -> Sequence[JobStateView]:
    """Durable when answered. A job that repeats a request id or a unique value is answered with the earlier one."""
    added = await run_in_threadpool(ports.jobs.add, [_new_job(job) for job in order.jobs])
    call.concerns({"jobs": len(added), "first": added[0].job})
    return added


@router.get("/queues", **operation(Verb.VIEW, "Queues of jobs", example=[JOB_QUEUE]))
def list_job_queues(ports: Ports) -> Sequence[JobQueueView]:
    """All queues with their counts, by name."""
    return ports.jobs.queues()


@router.get("/queues/{queue}", **operation(Verb.VIEW, "One queue of jobs", example=JOB_QUEUE, also=(404,)))
def show_job_queue(queue: QueuePath, ports: Ports) -> JobQueueView:
    """A queue with its counts. `due` is the number to scale workers by: KEDA's `metrics-api` scaler reads it here."""
    return ports.jobs.queue(queue)


@router.put("/queues/{queue}", **operation(Verb.ADMIN, "Set a queue", example=QUEUE_CHANGE))
async def set_job_queue(queue: QueuePath, order: QueueOrder, ports: Ports, call: CurrentCall) -> QueueChangeView:
    """Creates the queue, or replaces its settings. Jobs that it holds stay in it."""
    call.concerns({"queue": queue})
    settings = QueueSettings(
        queue,
        tuple(parse_pattern(pattern) for pattern in order.topics),
        QueueKind[order.kind.upper()],
        order.max_parallel,
        order.rate,
        order.rate_period_ms,
        order.merge,
        order.merge_within_ms if order.merge > 1 else 0,
        order.retries,
        order.retry_delay_ms,
        order.max_retry_delay_ms,
        order.history_ms,
        order.parallel_percent,
    )
    return await run_in_threadpool(ports.jobs.set_queue, settings)


@router.delete("/queues/{queue}", **operation(Verb.ADMIN, "Remove a queue", example=QUEUE_CHANGE, also=(404,)))
async def remove_job_queue(queue: QueuePath, ports: Ports, call: CurrentCall) -> QueueChangeView:
    """It finishes the jobs that it holds; new ones go to other queues."""
    call.concerns({"queue": queue})
    return await run_in_threadpool(ports.jobs.remove_queue, queue)


@router.post("/queues/{queue}/suspend", **operation(Verb.ADMIN, "Suspend a queue", example=QUEUE_CHANGE, also=(404,)))
async def suspend_job_queue(
    queue: QueuePath, ports: Ports, call: CurrentCall, order: QueueSuspendOrder | None = None
) -> QueueChangeView:
    """No further jobs start; running ones go on."""
    call.concerns({"queue": queue})
    return await run_in_threadpool(ports.jobs.suspend, queue, None if order is None else order.seconds)


@router.post("/queues/{queue}/resume", **operation(Verb.ADMIN, "Resume a queue", example=QUEUE_CHANGE, also=(404,)))
async def resume_job_queue(queue: QueuePath, ports: Ports, call: CurrentCall) -> QueueChangeView:
    """Ends a suspension."""
    call.concerns({"queue": queue})
    return await run_in_threadpool(ports.jobs.resume, queue)


@router.post(
    "/queues/{queue}/clear", **operation(Verb.ADMIN, "Clear a queue of jobs", example=QUEUE_CHANGE, also=(404,))
)
async def clear_job_queue(queue: QueuePath, ports: Ports, call: CurrentCall) -> QueueChangeView:
    """Drops all queued jobs; running ones go on."""
    call.concerns({"queue": queue})
    return await run_in_threadpool(ports.jobs.clear, queue)


@router.post("/commands/stop", **operation(Verb.ADMIN, "Stop jobs", example=[JOB_STATE], also=(404,)))
async def stop_jobs(order: JobIds, ports: Ports, call: CurrentCall) -> Sequence[JobStateView]:
    """Queued jobs stop at once, running ones when their handler notices."""
    return await _command(ports, call, JobAction.STOP, order)


@router.post("/commands/remove", **operation(Verb.ADMIN, "Remove jobs", example=[JOB_STATE], also=(404,)))
async def remove_jobs(order: JobIds, ports: Ports, call: CurrentCall) -> Sequence[JobStateView]:
    """Drops queued jobs, and forgets ended ones. Running jobs are refused (400)."""
    return await _command(ports, call, JobAction.REMOVE, order)


@router.post("/commands/retry", **operation(Verb.ADMIN, "Retry jobs", example=[JOB_STATE], also=(404,), status=202))
async def retry_jobs(order: JobIds, ports: Ports, call: CurrentCall) -> Sequence[JobStateView]:
    """Adds jobs that ended again, with new ids and no attempts."""
    call.concerns({"jobs": list(order.jobs[:10])})
    return await run_in_threadpool(ports.jobs.retry, [parse_job_id(job) for job in order.jobs])


@router.get("/{job}", **operation(Verb.VIEW, "One job", example=JOB_DETAIL, also=(404,)))
def show_job(job: JobPath, ports: Ports) -> JobDetailView:
    """A job with its payload, and why it waits or failed."""
    return ports.jobs.show(parse_job_id(job))


@router.post("/workers/{worker}/turns", **operation(Verb.WORK, "Report and claim", example=JOB_TURN))
async def take_turn(
    worker: WorkerPath, order: TurnOrder, ports: Ports, request: Request, call: CurrentCall
) -> TurnView:
    """Results and renewals are durable when answered; `lost` has those that do not count.

    Without them it is a long poll: answers when there are calls to make or to stop, else after `wait_seconds`.
    """
    offer = Offer(worker, order.slots, tuple(parse_pattern(topic) for topic in order.topics), order.ending)
    held = {CallId(Token(each.token), parse_job_id(each.job)): each.stop_seen for each in order.held}
    told = {call for call, stop_seen in held.items() if stop_seen}
    if order.results or order.renewals:
        call.concerns({"worker": worker, "results": len(order.results), "renewals": len(order.renewals)})
        results = [_result(each) for each in order.results]
        renewals = [
            Renewal(parse_job_id(each.job), Token(each.token), each.progress.encode()[:4_096])
            for each in order.renewals
        ]
        # Also calls that were asked to stop: while they are renewed, the worker does not know that the lease is over.
        told -= {CallId(each.token, each.job) for each in results}
        told -= {CallId(each.token, each.job) for each in renewals}
        return _turn_view(
            await run_in_threadpool(ports.jobs.report, offer, results, renewals, order.free, held.keys()), told
        )
    ends = ports.clock.monotonic() + order.wait_seconds
    pause, max_age = _FIRST_PAUSE_SECONDS, 0.0
    while True:
        polled = await run_in_threadpool(ports.jobs.poll, offer, order.free, held.keys(), max_age)
        view = _turn_view(polled, told)
        left = ends - ports.clock.monotonic()
        is_over = left <= 0.0 or ports.stopping.is_set() or ports.jobs.has_left(worker)
        if view != TurnView() or is_over:
            return view
        await asyncio.sleep(min(pause, left))
        if await request.is_disconnected():  # before the next look, which would claim calls for no one
            return view
        pause, max_age = min(2 * pause, _LONGEST_PAUSE_SECONDS), _SHARED_SECONDS


@router.delete("/workers/{worker}", **operation(Verb.WORK, "A worker leaves", example=LEFT))
async def leave_jobs(worker: WorkerPath, ports: Ports, call: CurrentCall) -> TurnView:
    """Nothing more is claimed for it. Calls that it has not reported are queued again, without a counted attempt."""
    call.concerns({"worker": worker})
    await run_in_threadpool(ports.jobs.leave, worker)
    return TurnView()


async def _command(ports: ApiPorts, call: CurrentCall, action: JobAction, order: JobIds) -> Sequence[JobStateView]:
    call.concerns({"jobs": list(order.jobs[:10])})
    return await run_in_threadpool(ports.jobs.command, action, [parse_job_id(job) for job in order.jobs])


def _new_job(order: JobOrder) -> NewJob:
    return NewJob(
        parse_topic(order.topic),
        decode_payload(order.data, order.payload),
        order.key,
        Priority[order.priority.upper()],
        order.due_ms,
        order.delay_ms,
        order.retries,
        order.retry_delay_ms,
        order.lease_ms,
        order.unique,
        order.request_id,
        order.keep,
    )


def decode_payload(data: object, payload: str | None) -> bytes:
    """The payload of a job from one of its two forms, JSON and Base64. Raises: UsageError."""
    if data is not None and payload is not None:
        raise UsageError("a job has `data` or `payload`, not both")
    if payload is None:
        return b"" if data is None else json.dumps(data, ensure_ascii=False).encode()
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise UsageError(f"payload: it is not Base64: {error}") from error


def _result(order: ResultOrder) -> JobResult:
    delay_ms = None if order.delay_seconds is None else int(order.delay_seconds * 1000)
    outcome = AttemptOutcome[order.outcome.upper()]
    return JobResult(parse_job_id(order.job), Token(order.token), outcome, delay_ms, order.message)


def _turn_view(polled: PollResult, told: set[CallId]) -> TurnView:
    claimed: list[ClaimedView] = []
    size = 0
    for each in polled.claimed:
        size += sum(len(job.payload) for job in each.jobs.values())
        if claimed and size > _MAX_ANSWER_BYTES:
            break
        claimed.append(_claimed_view(each))
    return TurnView(
        tuple(claimed),
        tuple(_call_view(call) for call in polled.stopping if call not in told),
        tuple(_call_view(call) for call in dict.fromkeys(polled.lost) if call not in told),
    )


def _claimed_view(claimed: ClaimedCall) -> ClaimedView:
    return ClaimedView(
        show_job_id(claimed.call.job),
        claimed.call.token,
        claimed.attempt,
        claimed.lease_ms / 1000,
        tuple(
            ClaimedJobView(show_job_id(job), new.topic, new.key, base64.b64encode(new.payload).decode())
            for job, new in claimed.jobs.items()
        ),
        claimed.log,
    )


def _call_view(call: CallId) -> CallView:
    return CallView(show_job_id(call.job), call.token)
