"""A Publisher: its journal, the Secrets that its agent needs, its children, and its agent's status."""

from __future__ import annotations

from dataclasses import replace

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.publisher.manifests import STATE_VOLUME, owner_of_publisher, user_mounts
from mailboat_operator.kinds.publisher.plan import publisher_keys
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.kinds.workload_context import WorkloadContext, count_of
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.plan.children import workload_of
from mailboat_operator.plan.findings import is_paused
from mailboat_operator.workload.volumes import unmade_workload


async def observe_publisher(reader: ClusterReader, publisher: Publisher) -> WorkloadContext:
    """Read what a plan for it needs."""
    context = await reader.surroundings(
        publisher.metadata.namespace,
        publisher.spec.journal_ref.name,
        publisher_keys(publisher),
        [mount.secret for mount in user_mounts(publisher)],
    )
    pools = [
        pool
        for pool in await reader.pools(publisher.metadata.namespace)
        if pool.spec.journal_ref == publisher.spec.journal_ref
    ]
    metadata = publisher.metadata
    workload = workload_of(metadata, context.children)
    pods = await reader.pods(metadata.namespace, workload)
    missing = {pool.name for pool in publisher.status.pools} - {pool.metadata.name for pool in pools}
    undecodable = [
        name for name in sorted(missing) if await reader.is_undecodable(metadata.namespace, "SubscriberPool", name)
    ]
    context = replace(context, pools=pools, pods=pods, undecodable_pools=frozenset(undecodable))
    is_left_alone = is_paused(publisher.metadata, suspend=publisher.spec.suspend)
    if not is_left_alone:
        if ChildKey("StatefulSet", metadata.name) not in context.children:
            workload = unmade_workload(owner_of_publisher(publisher), STATE_VOLUME, 1)
        before = publisher.status.conditions
        claims = await reader.claims(metadata.namespace, workload, publisher.spec.volume, before)
        context = replace(context, claims=claims)
    if not is_left_alone and count_of(metadata, context.children, "readyReplicas") > 0:
        context = replace(context, answering=[publisher], fleet=await reader.fleet([publisher]))
    return context
