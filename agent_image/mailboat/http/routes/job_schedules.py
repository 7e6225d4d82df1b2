"""Schedules of jobs: set, show, remove and fire them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field, with_config
from starlette.concurrency import run_in_threadpool

from mailboat.api.job_views import JobScheduleView, JobStateView
from mailboat.config.document import Verb
from mailboat.http.examples import JOB_SCHEDULE, JOB_STATE
from mailboat.http.ports import LONGEST_NAME, CurrentCall, Ports, operation
from mailboat.http.routes.job_requests import (
    MAX_DELAY_MS,
    MAX_MS,
    PayloadText,
    PriorityName,
    decode_payload,
)
from mailboat.model.jobs import DEFAULT_LEASE_MS, MissedFirings, NewJob, Priority, Schedule, parse_topic

router = APIRouter(prefix="/api/v1/jobs/schedules", tags=["jobs"])
_MAX_EVERY_MS: Final = 366 * 24 * 3600 * 1000

SchedulePath = Annotated[
    str, Path(description="The schedule's name.", min_length=1, max_length=LONGEST_NAME, examples=["nightly"])
]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class ScheduledJob:
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

    topic: Annotated[str, Field(max_length=700)]
    data: Any = None
    payload: PayloadText | None = None
    key: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    priority: PriorityName = "normal"
    retries: Annotated[int, Field(ge=-1, le=30_000)] | None = None
    retry_delay_ms: Annotated[int, Field(ge=0, le=MAX_DELAY_MS)] | None = None
    lease_ms: Annotated[int, Field(ge=1_000, le=86_400_000)] = DEFAULT_LEASE_MS
    unique: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    keep: bool = False


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class ScheduleOrder:
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
    cron: Annotated[str, Field(max_length=200)] = ""
    zone: Annotated[str, Field(max_length=100)] = "UTC"
    every_ms: Annotated[int, Field(ge=0, le=_MAX_EVERY_MS)] = 0
    at_ms: Annotated[int, Field(ge=0, le=MAX_MS)] = 0
    missed: Literal["once", "skip", "all"] = "once"


@router.get("", **operation(Verb.VIEW, "Schedules of jobs", example=[JOB_SCHEDULE]))
def list_job_schedules(ports: Ports) -> Sequence[JobScheduleView]:
    """All schedules with their next due times, by name."""
    return ports.jobs.schedules()


@router.get("/{schedule}", **operation(Verb.VIEW, "One schedule", example=JOB_SCHEDULE, also=(404,)))
def show_job_schedule(schedule: SchedulePath, ports: Ports) -> JobScheduleView:
    """A schedule with its next due time."""
    return ports.jobs.schedule(schedule)


@router.put("/{schedule}", **operation(Verb.ADMIN, "Set a schedule", example=JOB_SCHEDULE))
async def set_job_schedule(
    schedule: SchedulePath, order: ScheduleOrder, ports: Ports, call: CurrentCall
) -> JobScheduleView:
    """Creates the schedule, or replaces it. Setting it again as it is changes nothing, also not its next due time."""
    call.concerns({"schedule": schedule})
    times = order.cron, order.zone, order.every_ms, order.at_ms
    wanted = Schedule(schedule, _new_job(order.job), *times, MissedFirings[order.missed.upper()])
    return await run_in_threadpool(ports.jobs.set_schedule, wanted)


@router.delete("/{schedule}", **operation(Verb.ADMIN, "Remove a schedule", example=JOB_SCHEDULE, also=(404,)))
async def remove_job_schedule(schedule: SchedulePath, ports: Ports, call: CurrentCall) -> JobScheduleView:
    """Jobs that it added stay."""
    call.concerns({"schedule": schedule})
    return await run_in_threadpool(ports.jobs.remove_schedule, schedule)


@router.post("/{schedule}/fire", **operation(Verb.ADMIN, "Fire a schedule", example=JOB_STATE, also=(404,), status=202))
async def fire_job_schedule(schedule: SchedulePath, ports: Ports, call: CurrentCall) -> JobStateView:
    """Adds its job now; the next due time stays."""
    call.concerns({"schedule": schedule})
    return await run_in_threadpool(ports.jobs.fire, schedule)


def _new_job(order: ScheduledJob) -> NewJob:
    return NewJob(
        parse_topic(order.topic),
        decode_payload(order.data, order.payload),
        order.key,
        Priority[order.priority.upper()],
        retries=order.retries,
        retry_delay_ms=order.retry_delay_ms,
        lease_ms=order.lease_ms,
        unique=order.unique,
        keep=order.keep,
    )
