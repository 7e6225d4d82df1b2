"""A Distribution: its Publisher, the pools that follow it, and the state of its package at the Publisher's agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mailboat.errors import AgentRefusedError, AgentUnreachableError

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.distribution.plan import DistributionObservation, PoolSize, obstacle_of
from mailboat_operator.kinds.distribution.spec import Distribution
from mailboat_operator.kinds.publisher.spec import Publisher


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
    return replace(seen, delivery=delivery, pools=await pools_of(reader, publisher))


async def pools_of(reader: ClusterReader, publisher: Publisher) -> Sequence[PoolSize]:
    """The pools that follow the publisher."""
    name = publisher.metadata.name
    return [
        PoolSize(pool.metadata.name, pool.spec.replicas, pool.spec.is_shared)
        for pool in await reader.pools(publisher.metadata.namespace)
        if pool.spec.journal_ref == publisher.spec.journal_ref
        and (not pool.spec.publishers or name in pool.spec.publishers)
    ]
