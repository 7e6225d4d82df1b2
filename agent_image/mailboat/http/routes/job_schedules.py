"""Schedules of jobs: set, show, remove and fire them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.concurrency import run_in_threadpool

from mailboat.api.job_orders import ScheduleOrder
from mailboat.api.job_views import JobScheduleView, JobStateView
from mailboat.api.orders import LONGEST_NAME
from mailboat.config.document import Verb
from mailboat.http.examples import JOB_SCHEDULE, JOB_STATE
from mailboat.http.ports import CurrentCall, Ports, operation

router = APIRouter(prefix="/api/v1/jobs/schedules", tags=["jobs"])

SchedulePath = Annotated[
    str, Path(description="The schedule's name.", min_length=1, max_length=LONGEST_NAME, examples=["nightly"])
]


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
    """Creates the schedule, or replaces it. Its next due time stays where its times are the same."""
    call.concerns({"schedule": schedule})
    return await run_in_threadpool(ports.jobs.set_schedule, order.schedule(schedule))


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
