"""A Publisher: its journal, the Secrets that its agent needs, its children, and its agent's status."""

from __future__ import annotations

from dataclasses import replace

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.publisher.manifests import user_mounts
from mailboat_operator.kinds.publisher.plan import publisher_keys
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.kinds.workload_context import WorkloadContext, count_of
from mailboat_operator.plan.children import workload_of
from mailboat_operator.plan.findings import is_paused


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
    context = replace(context, pools=pools, pods=pods)
    is_left_alone = is_paused(publisher.metadata, suspend=publisher.spec.suspend)
    if not is_left_alone:
        claims = await reader.claims(metadata.namespace, workload, publisher.spec.volume)
        context = replace(context, claims=claims)
    if not is_left_alone and count_of(metadata, context.children, "readyReplicas") > 0:
        context = replace(context, answering=[publisher], fleet=await reader.fleet([publisher]))
    return context
