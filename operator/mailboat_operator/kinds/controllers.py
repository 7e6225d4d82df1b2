"""How each kind is reconciled: what is read, what is decided, and which effects decide the status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.distribution.effects import request_package
from mailboat_operator.kinds.distribution.observe import observe_distribution
from mailboat_operator.kinds.distribution.plan import plan_distribution
from mailboat_operator.kinds.distribution.spec import Distribution
from mailboat_operator.kinds.job_queue.effects import change_queue
from mailboat_operator.kinds.job_queue.observe import observe_job_queue
from mailboat_operator.kinds.job_queue.plan import plan_job_queue
from mailboat_operator.kinds.job_queue.spec import JobQueue
from mailboat_operator.kinds.job_schedule.effects import change_schedule
from mailboat_operator.kinds.job_schedule.observe import observe_job_schedule
from mailboat_operator.kinds.job_schedule.plan import plan_job_schedule
from mailboat_operator.kinds.job_schedule.spec import JobSchedule
from mailboat_operator.kinds.journal.observe import observe_journal
from mailboat_operator.kinds.journal.plan import plan_journal
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.package_build.observe import observe_build
from mailboat_operator.kinds.package_build.plan import plan_package_build
from mailboat_operator.kinds.package_build.spec import PackageBuild
from mailboat_operator.kinds.publisher.observe import observe_publisher
from mailboat_operator.kinds.publisher.plan import plan_publisher
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.kinds.subscriber_pool.observe import observe_pool
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPool
from mailboat_operator.kinds.topic.effects import act_on_brokers
from mailboat_operator.kinds.topic.observe import observe_topic
from mailboat_operator.kinds.topic.plan import plan_topic
from mailboat_operator.kinds.topic.spec import Topic
from mailboat_operator.plan.actions import Plan

R = TypeVar("R")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Controller(Generic[R, S]):
    """One kind.

    Attributes:
        observe: Reads what a plan needs, and writes nothing.
        plan: Decides. Pure.
        effects: Does those actions of a plan whose outcome is part of the status, and returns the plan for the rest;
            None for a kind that has none.
    """

    observe: Callable[[ClusterReader, R], Awaitable[S]]
    plan: Callable[[R, S], Plan]
    effects: Callable[[ClusterReader, R, S, Plan], Awaitable[Plan]] | None = None


CONTROLLERS: Final[Mapping[type, Controller[Any, Any]]] = MappingProxyType(
    {
        Journal: Controller(observe_journal, plan_journal),
        Topic: Controller(observe_topic, plan_topic, act_on_brokers),
        Publisher: Controller(observe_publisher, plan_publisher),
        SubscriberPool: Controller(observe_pool, plan_pool),
        Distribution: Controller(observe_distribution, plan_distribution, request_package),
        PackageBuild: Controller(observe_build, plan_package_build),
        JobQueue: Controller(observe_job_queue, plan_job_queue, change_queue),
        JobSchedule: Controller(observe_job_schedule, plan_job_schedule, change_schedule),
    }
)
