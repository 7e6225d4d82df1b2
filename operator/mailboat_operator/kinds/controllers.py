"""How each kind is reconciled: what is read, what is decided, and what is done before the status is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from mailboat.errors import AgentRefusedError, AgentUnreachableError

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.distribution.controller import observe_distribution, request_package
from mailboat_operator.kinds.distribution.plan import plan_distribution
from mailboat_operator.kinds.distribution.spec import Distribution
from mailboat_operator.kinds.job_queue.controller import change_jobs, observe_job_queue
from mailboat_operator.kinds.job_queue.plan import plan_job_queue
from mailboat_operator.kinds.job_queue.spec import JobQueue
from mailboat_operator.kinds.job_schedule.controller import observe_job_schedule
from mailboat_operator.kinds.job_schedule.plan import plan_job_schedule
from mailboat_operator.kinds.job_schedule.spec import JobSchedule
from mailboat_operator.kinds.journal.controller import observe_journal
from mailboat_operator.kinds.journal.plan import plan_journal
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.package_build.controller import observe_build
from mailboat_operator.kinds.package_build.plan import plan_package_build
from mailboat_operator.kinds.package_build.spec import PackageBuild
from mailboat_operator.kinds.publisher.controller import observe_publisher
from mailboat_operator.kinds.publisher.plan import plan_publisher
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.kinds.registry import Resource
from mailboat_operator.kinds.subscriber_pool.controller import observe_pool
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPool
from mailboat_operator.kinds.topic.controller import act_on_brokers, observe_topic
from mailboat_operator.kinds.topic.plan import plan_topic
from mailboat_operator.kinds.topic.spec import Topic
from mailboat_operator.plan.actions import Plan
from mailboat_operator.plan.findings import UPSTREAM_ERRORS

EXTERNAL_ERRORS: Final = (AgentRefusedError, AgentUnreachableError, *UPSTREAM_ERRORS)

R = TypeVar("R")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Controller(Generic[R, S]):
    """One kind.

    Attributes:
        observe: Reads what a plan needs, and writes nothing.
        plan: Decides. Pure.
        act: Does those actions of a plan whose outcome is part of the status, and returns the plan for the rest; None
            for a kind that has none. Raises: `EXTERNAL_ERRORS`.
    """

    observe: Callable[[ClusterReader, R], Awaitable[S]]
    plan: Callable[[R, S], Plan]
    act: Callable[[ClusterReader, R, S, Plan], Awaitable[Plan]] | None = None


CONTROLLERS: Final[Mapping[type, Controller[Any, Any]]] = MappingProxyType(
    {
        Journal: Controller(observe_journal, plan_journal),
        Topic: Controller(observe_topic, plan_topic, act_on_brokers),
        Publisher: Controller(observe_publisher, plan_publisher),
        SubscriberPool: Controller(observe_pool, plan_pool),
        Distribution: Controller(observe_distribution, plan_distribution, request_package),
        PackageBuild: Controller(observe_build, plan_package_build),
        JobQueue: Controller(observe_job_queue, plan_job_queue, change_jobs),
        JobSchedule: Controller(observe_job_schedule, plan_job_schedule, change_jobs),
    }
)


async def plan_for(reader: ClusterReader, resource: Resource) -> Plan:
    """Observe and plan an object, and do what its status depends on; the plan for the rest."""
    controller = CONTROLLERS[type(resource)]
    seen = await controller.observe(reader, resource)
    plan = controller.plan(resource, seen)
    if controller.act is None:
        return plan
    try:
        return await controller.act(reader, resource, seen, plan)
    except EXTERNAL_ERRORS as error:
        # The status of the first plan assumes success. A failed action is planned as a failed observation, so one rule
        # decides what the status says of an error.
        return controller.plan(resource, replace(seen, error=error))
