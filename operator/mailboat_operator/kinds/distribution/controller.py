"""A Distribution: its Publisher, the pools that follow it, and its package at the Publisher's agent, requested here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mailboat.errors import AgentRefusedError, AgentUnreachableError, PermanentError
from mailboat.model.requests import DistributionRequest, parse_request

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.distribution.plan import (
    DistributionObservation,
    PoolSize,
    obstacle_of,
    plan_distribution,
)
from mailboat_operator.kinds.distribution.spec import Distribution
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.plan.actions import Plan, RequestPackage


async def observe_distribution(reader: ClusterReader, distribution: Distribution) -> DistributionObservation:
    """Read what a plan for it needs; the agent is asked for a package that the status names."""
    metadata, seen = distribution.metadata, DistributionObservation(reader.now)
    if metadata.is_deleted or distribution.status.finished_at is not None:
        return seen
    publisher = await reader.publisher(metadata.namespace, distribution.spec.publisher_ref.name)
    seen = replace(seen, publisher=publisher)
    package_id = distribution.status.package_id
    if publisher is None or package_id is None or obstacle_of(distribution, publisher) is not None:
        return seen
    try:
        delivery = await reader.agents.delivery(await reader.agent_of(publisher), package_id)
    except (AgentUnreachableError, AgentRefusedError) as error:
        return replace(seen, error=error)
    return replace(seen, delivery=delivery, pools=await _pools_of(reader, publisher))


async def request_package(
    reader: ClusterReader, distribution: Distribution, seen: DistributionObservation, plan: Plan
) -> Plan:
    """Send the request that the plan asks for; the plan that follows from the answer.

    Raises: AgentUnreachableError, AgentRefusedError.
    """
    publisher = seen.publisher
    if publisher is None or not any(isinstance(action, RequestPackage) for action in plan.actions):
        return plan
    delivery = await reader.agents.distribute(await reader.agent_of(publisher), _request_of(distribution))
    pools = await _pools_of(reader, publisher)
    return plan_distribution(distribution, replace(seen, delivery=delivery, pools=pools))


def _request_of(distribution: Distribution) -> DistributionRequest:
    """The request of a Distribution. Raises: AgentRefusedError for one that its publisher would refuse."""
    spec = distribution.spec
    deep_paths = [path.path for path in spec.paths if path.deep]
    # The uid is the request id: after a crash between the request and the status the same request is sent again, and
    # the publisher finds the package that it has made of it.
    request_id = distribution.metadata.uid
    try:
        return parse_request(spec.action.upper(), [path.path for path in spec.paths], deep_paths, request_id)
    except PermanentError as error:
        raise AgentRefusedError(error.message, error=error.name) from error


async def _pools_of(reader: ClusterReader, publisher: Publisher) -> Sequence[PoolSize]:
    """The pools that follow the publisher."""
    name = publisher.metadata.name
    return [
        PoolSize(pool.metadata.name, pool.spec.replicas, pool.spec.is_shared)
        for pool in await reader.pools(publisher.metadata.namespace)
        if pool.spec.journal_ref == publisher.spec.journal_ref
        and (not pool.spec.publishers or name in pool.spec.publishers)
    ]
