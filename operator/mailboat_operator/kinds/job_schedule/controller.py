"""A JobSchedule: its Publisher, other objects for the same schedule, and the schedules of the log at its agent."""

from __future__ import annotations

from dataclasses import replace

from mailboat.errors import AgentRefusedError, AgentUnreachableError

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.job_schedule.plan import JobScheduleObservation
from mailboat_operator.kinds.job_schedule.spec import JobSchedule
from mailboat_operator.kinds.record_owner import owner_of_record
from mailboat_operator.plan.findings import is_paused


async def observe_job_schedule(reader: ClusterReader, schedule: JobSchedule) -> JobScheduleObservation:
    """Read what a plan for it needs."""
    namespace, seen = schedule.metadata.namespace, JobScheduleObservation(reader.now)
    publisher = await reader.publisher(namespace, schedule.spec.publisher_ref.name)
    seen = replace(seen, publisher=publisher)
    if publisher is None or is_paused(schedule.metadata, suspend=False):
        return seen
    seen = replace(seen, owner=await owner_of_record(reader, schedule, publisher, reader.job_schedules))
    try:
        agent = await reader.agent_of(publisher)
        return replace(seen, schedules=await reader.agents.jobs(agent, lambda jobs: jobs.schedules()))
    except (AgentUnreachableError, AgentRefusedError) as error:
        return replace(seen, error=error)
