"""What a plan asks of a Publisher's agent for queues and schedules of jobs. Each request may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mailboat.api.job_operations import HttpJobs
from mailboat.errors import AgentRefusedError, AgentUnreachableError

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.job_queue.plan import JobQueueObservation, plan_job_queue
from mailboat_operator.kinds.job_queue.spec import JobQueue
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.plan.actions import (
    JobAction,
    Plan,
    RemoveQueue,
    RemoveSchedule,
    SetQueue,
    SetSchedule,
    SuspendQueue,
)

_GONE = frozenset({"JobQueueMissing", "JobScheduleMissing"})


async def change_queue(reader: ClusterReader, queue: JobQueue, seen: JobQueueObservation, plan: Plan) -> Plan:
    """Change the queue in the journal; the plan for the rest, with what came of it."""
    try:
        await change_jobs(reader, seen.publisher, plan)
    except (AgentUnreachableError, AgentRefusedError) as error:
        return plan_job_queue(queue, replace(seen, error=error))
    return plan


async def change_jobs(reader: ClusterReader, publisher: Publisher | None, plan: Plan) -> None:
    """Send the actions on queues and schedules. Raises: AgentUnreachableError, AgentRefusedError."""
    actions = [action for action in plan.actions if isinstance(action, JobAction)]
    if publisher is None or not actions:
        return
    agent = await reader.agent_of(publisher)
    for request in (request for action in actions for request in _requests(action)):
        try:
            await reader.agents.jobs(agent, request)
        except AgentUnreachableError as error:
            if error.where.get("error") not in _GONE:  # removed by another client: nothing is left to do
                raise


def _requests(action: JobAction) -> Sequence[Callable[[HttpJobs], object]]:
    match action:
        case SetQueue(settings):
            return [lambda jobs: jobs.set_queue(settings)]
        case SuspendQueue(queue, suspended):
            return [lambda jobs: jobs.suspend(queue) if suspended else jobs.resume(queue)]
        case RemoveQueue(queue):
            return [lambda jobs: jobs.clear(queue), lambda jobs: jobs.remove_queue(queue)]
        case SetSchedule(schedule):
            return [lambda jobs: jobs.set_schedule(schedule)]
        case RemoveSchedule(name):
            return [lambda jobs: jobs.remove_schedule(name)]
