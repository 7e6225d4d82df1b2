"""What a plan asks of a Publisher's agent for a schedule of jobs."""

from __future__ import annotations

from dataclasses import replace

from mailboat.errors import AgentRefusedError, AgentUnreachableError

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.job_queue.effects import change_jobs
from mailboat_operator.kinds.job_schedule.plan import JobScheduleObservation, plan_job_schedule
from mailboat_operator.kinds.job_schedule.spec import JobSchedule
from mailboat_operator.plan.actions import Plan


async def change_schedule(
    reader: ClusterReader, schedule: JobSchedule, seen: JobScheduleObservation, plan: Plan
) -> Plan:
    """Change the schedule in the journal; the plan for the rest, with what came of it."""
    try:
        await change_jobs(reader, seen.publisher, plan)
    except (AgentUnreachableError, AgentRefusedError) as error:
        return plan_job_schedule(schedule, replace(seen, error=error))
    return plan
