"""A SubscriberPool: its journal, its children, the pools that it waits for, and what its members announce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.definition.conditions import condition_of
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.kinds.subscriber_pool.manifests import owner_of_pool
from mailboat_operator.kinds.subscriber_pool.plan import pool_keys
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPool
from mailboat_operator.kinds.workload_context import GoldenPool, WorkloadContext
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.plan.children import workload_of
from mailboat_operator.plan.findings import READY, is_paused, is_ready
from mailboat_operator.workload.autoscalers import SCALED_OBJECT
from mailboat_operator.workload.template import CONTENT_VOLUME
from mailboat_operator.workload.volumes import unmade_workload

# Each link is a read of the API server; a longer chain is a mistake, or a loop.
_LONGEST_CHAIN: Final = 20
_EVER: Final = datetime.min.replace(tzinfo=UTC)


async def observe_pool(reader: ClusterReader, pool: SubscriberPool) -> WorkloadContext:
    """Read what a plan for it needs."""
    namespace, staging = pool.metadata.namespace, pool.spec.staging
    has_keda = await reader.cluster.has_kind(SCALED_OBJECT, namespace)
    keys = pool_keys(pool, has_keda=has_keda)
    context = await reader.surroundings(namespace, pool.spec.journal_ref.name, keys)
    chain = {} if staging is None else await _chain(reader, namespace, staging.wait_for.name)
    workload = workload_of(pool.metadata, context.children)
    pods = await reader.pods(namespace, workload)
    context = replace(context, staging=chain, has_keda=has_keda, pods=pods)
    publishers = await _publishers(reader, pool)
    names = frozenset(publisher.metadata.name for publisher in publishers)
    context = replace(context, publishers=names, unanswered_since=_unanswered_since(publishers))
    ready = [publisher for publisher in publishers if is_ready(publisher.status.conditions)]
    if is_paused(pool.metadata, suspend=pool.spec.suspend):
        return context
    store = pool.spec.target.store
    if ChildKey("StatefulSet", pool.metadata.name) not in context.children:
        workload = unmade_workload(owner_of_pool(pool), CONTENT_VOLUME, pool.spec.replicas)
    context = replace(
        context,
        claims=await reader.claims(namespace, workload, store.volume, pool.status.conditions),
        shared_claim=None if store.claim is None else await reader.claim(namespace, store.claim.name),
    )
    if not ready:
        return context
    return replace(context, answering=ready, fleet=await reader.fleet(ready))


async def _publishers(reader: ClusterReader, pool: SubscriberPool) -> Sequence[Publisher]:
    """The publishers of its journal in its namespace; any ready one can be asked for all members."""
    found = await reader.publishers(pool.metadata.namespace)
    return [publisher for publisher in found if publisher.spec.journal_ref == pool.spec.journal_ref]


def _unanswered_since(publishers: Sequence[Publisher]) -> datetime | None:
    """Since when none of them is ready to be asked; None if one is."""
    found = [condition_of(publisher.status.conditions, READY) for publisher in publishers]
    known = [condition for condition in found if condition is not None]
    if any(condition.holds for condition in known):
        return None
    return max((condition.last_transition_at for condition in known), default=_EVER)


async def _chain(reader: ClusterReader, namespace: str, name: str) -> Mapping[str, GoldenPool]:
    """The chain of pools that are waited for, as far as it goes."""
    chain: dict[str, GoldenPool] = {}
    while name not in chain and len(chain) < _LONGEST_CHAIN:
        pool = await reader.understood(namespace, "SubscriberPool", name)
        if not isinstance(pool, SubscriberPool):
            break
        next_one = pool.spec.staging
        waits_for = None if next_one is None else next_one.wait_for.name
        chain[name] = GoldenPool(pool.spec.editable, waits_for, pool.spec.is_shared)
        if next_one is None:
            break
        name = next_one.wait_for.name
    return chain
