"""Jobs, their queues, and what workers without access to the journal ask."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from mailboat.api.job_control import JobFilter
from mailboat.api.job_orders import JobIds, JobsOrder, QueueOrder, QueueSuspendOrder, TurnOrder
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
from mailboat.api.orders import LONGEST_NAME
from mailboat.clock import LAST_MS
from mailboat.config.document import Verb
from mailboat.http.examples import JOB, JOB_DETAIL, JOB_QUEUE, JOB_STATE, JOB_TURN, LEFT, QUEUE_CHANGE
from mailboat.http.list_pages import MaxItems, PageToken, link_next
from mailboat.http.ports import (
    NEXT_PAGE,
    ApiPorts,
    CurrentCall,
    Ports,
    operation,
    with_headers,
)
from mailboat.jobs.source import CallId, ClaimedCall, Offer, PollResult
from mailboat.model.jobs import JobAction, Token, parse_job_id, parse_pattern, show_job_id

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])
_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.1
_SHARED_SECONDS: Final = 0.05
"""Waiting workers share a read of the topic so long: on Kafka each one asks a broker several times."""
_MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Payloads of one answer to a worker."""

JobPath = Annotated[str, Path(description="The job's id.", max_length=24, examples=["1042-0"])]
QueuePath = Annotated[str, Path(description="The queue's name.", max_length=LONGEST_NAME, examples=["cdn"])]
WorkerPath = Annotated[
    str,
    Path(
        description="Chosen by the worker for each start. It must end in `-` and random characters: it is a secret.",
        min_length=1,
        max_length=LONGEST_NAME,
        examples=["renderer-1-9f86d081884c"],
    ),
]


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
        float | None, Query(description="Only jobs that ended longer ago.", ge=0, le=LAST_MS / 1000)
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
    added = await run_in_threadpool(ports.jobs.add, [job.new_job() for job in order.jobs])
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
    return await run_in_threadpool(ports.jobs.set_queue, order.settings(queue))


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
    """Queued jobs stop at once, running ones when their handler notices, with all jobs of a merged call."""
    return await _command(ports, call, JobAction.STOP, order)


@router.post("/commands/remove", **operation(Verb.ADMIN, "Remove jobs", example=[JOB_STATE], also=(404,)))
async def remove_jobs(order: JobIds, ports: Ports, call: CurrentCall) -> Sequence[JobStateView]:
    """Drops queued jobs, and forgets ended ones. Running jobs are refused (400)."""
    return await _command(ports, call, JobAction.REMOVE, order)


@router.post("/commands/retry", **operation(Verb.ADMIN, "Retry jobs", example=[JOB_STATE], also=(404,), status=202))
async def retry_jobs(order: JobIds, ports: Ports, call: CurrentCall) -> Sequence[JobStateView]:
    """Adds jobs that ended again, with new ids and no attempts."""
    call.concerns({"jobs": list(order.jobs[:10])})
    return await run_in_threadpool(ports.jobs.retry, order.parsed())


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
        results = [each.result() for each in order.results]
        renewals = [each.renewal() for each in order.renewals]
        # Also calls that were asked to stop: while they are renewed, the worker does not know that the lease is over.
        told -= {CallId(each.token, each.job) for each in results}
        told -= {CallId(each.token, each.job) for each in renewals}
        async with ports.turns:
            polled = await run_in_threadpool(ports.jobs.report, offer, results, renewals, order.free, held.keys())
        return _turn_view(polled, told)
    ends = ports.clock.monotonic() + order.wait_seconds
    pause, max_age = _FIRST_PAUSE_SECONDS, 0.0
    while True:
        async with ports.turns:
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
    return await run_in_threadpool(ports.jobs.command, action, order.parsed())


def _turn_view(polled: PollResult, told: set[CallId]) -> TurnView:
    claimed: list[ClaimedView] = []
    size = 0
    for each in polled.claimed:
        size += sum(len(job.payload) for job in each.jobs.values())
        # the others are not lost: the worker does not name them as held, so its next turn gives them again
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
