"""A JobQueue: its Publisher, the queues of the log, its workers, and other objects for the same queue.

Also the requests to a Publisher's agent that change queues and schedules of jobs; each may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from mailboat.api.job_operations import HttpJobs
from mailboat.errors import AgentRefusedError, AgentUnreachableError

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.job_queue.manifests import ENDING, owner_of_queue, queue_keys
from mailboat_operator.kinds.job_queue.plan import JobQueueObservation
from mailboat_operator.kinds.job_queue.spec import JobQueue
from mailboat_operator.kinds.job_schedule.plan import JobScheduleObservation
from mailboat_operator.kinds.job_schedule.spec import JobSchedule
from mailboat_operator.kinds.record_owner import owner_of_record
from mailboat_operator.plan.actions import (
    JobAction,
    Plan,
    RemoveQueue,
    RemoveSchedule,
    SetQueue,
    SetSchedule,
    SuspendQueue,
)
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.plan.findings import is_paused
from mailboat_operator.workload.autoscalers import SCALED_OBJECT

_GONE: Final = frozenset({"JobQueueMissing", "JobScheduleMissing"})


async def observe_job_queue(reader: ClusterReader, queue: JobQueue) -> JobQueueObservation:
    """Read what a plan for it needs."""
    namespace, seen = queue.metadata.namespace, JobQueueObservation(reader.now, reader.image)
    publisher = await reader.publisher(namespace, queue.spec.publisher_ref.name)
    seen = replace(seen, publisher=publisher, policy=reader.systems.policy)
    if publisher is None or is_paused(queue.metadata, suspend=False):
        return seen
    seen = replace(seen, owner=await owner_of_record(reader, queue, publisher, reader.job_queues))
    if not queue.metadata.is_deleted:
        seen = await _with_workers(reader, queue, seen)
    try:
        agent = await reader.agent_of(publisher)
        return replace(seen, queues=await reader.agents.jobs(agent, lambda jobs: jobs.queues()))
    except (AgentUnreachableError, AgentRefusedError) as error:
        return replace(seen, error=error)


async def _with_workers(reader: ClusterReader, queue: JobQueue, seen: JobQueueObservation) -> JobQueueObservation:
    namespace, workers, owner = queue.metadata.namespace, queue.spec.workers, owner_of_queue(queue)
    has_keda = await reader.cluster.has_kind(SCALED_OBJECT, namespace)
    seen = replace(
        seen,
        has_keda=has_keda,
        children=await reader.children(namespace, queue_keys(queue, has_keda=has_keda)),
    )
    if workers is None:
        return seen
    seen = replace(seen, token=await reader.secret(namespace, workers.token_secret_ref.name))
    found = seen.children.get(ChildKey("Deployment", owner.name_of(ENDING)))
    if found is None or int((found.get("status") or {}).get("unavailableReplicas") or 0) == 0:
        return seen
    return replace(seen, pods=await reader.pods_of(namespace, owner.selector))


async def change_jobs(
    reader: ClusterReader,
    _: JobQueue | JobSchedule,
    seen: JobQueueObservation | JobScheduleObservation,
    plan: Plan,
) -> Plan:
    """Send the plan's changes of queues and schedules. Raises: AgentUnreachableError, AgentRefusedError."""
    actions = [action for action in plan.actions if isinstance(action, JobAction)]
    if seen.publisher is None or not actions:
        return plan
    agent = await reader.agent_of(seen.publisher)
    for request in (request for action in actions for request in _requests(action)):
        try:
            await reader.agents.jobs(agent, request)
        except AgentUnreachableError as error:
            if error.where.get("error") not in _GONE:  # removed by another client: nothing is left to do
                raise
    return plan


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
