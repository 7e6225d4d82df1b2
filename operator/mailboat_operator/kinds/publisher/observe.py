"""A Publisher: its journal, the Secrets that its agent needs, its children, and what its agent tells."""

from __future__ import annotations

from dataclasses import replace

from mailboat_operator.cluster_reader import Sight
from mailboat_operator.kinds.publisher.manifests import user_mounts
from mailboat_operator.kinds.publisher.plan import plan_publisher, publisher_keys
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.plan.actions import Plan
from mailboat_operator.workload.context import WorkloadContext, count_of, is_paused


async def look_at_publisher(sight: Sight, publisher: Publisher) -> Plan:
    """What to do for a Publisher."""
    around = await sight.surroundings(
        publisher.metadata.namespace,
        publisher.spec.journal_ref.name,
        publisher_keys(publisher),
        [mount.secret for mount in user_mounts(publisher)],
    )
    pools = [
        pool
        for pool in await sight.pools(publisher.metadata.namespace)
        if pool.spec.journal_ref == publisher.spec.journal_ref
    ]
    metadata = publisher.metadata
    pods = await sight.pods(metadata.namespace, around.children, metadata.name)
    around = replace(around, pools=pools, pods=pods)
    is_left_alone = is_paused(publisher.metadata, suspend=publisher.spec.suspend)
    if not is_left_alone:
        claims = await sight.claims(metadata.namespace, around.children, metadata.name, publisher.spec.volume)
        around = replace(around, claims=claims)
    if not is_left_alone and _is_running(around, publisher.metadata.name):
        around = replace(around, answering=[publisher], fleet=await sight.fleet([publisher]))
    return plan_publisher(publisher, around)


def _is_running(around: WorkloadContext, name: str) -> bool:
    """Whether there is a pod that can be asked."""
    return count_of(around.children, name, "readyReplicas") > 0
