"""A SubscriberPool: its journal, its children, and the pools that it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mailboat_operator.api.pool import SubscriberPool
from mailboat_operator.observation.sight import Sight
from mailboat_operator.plan.actions import Plan
from mailboat_operator.plan.pool import plan_pool, pool_keys
from mailboat_operator.plan.workload import GoldenPool

_LONGEST_CHAIN: Final = 20


async def look_at_pool(sight: Sight, pool: SubscriberPool) -> Plan:
    """What to do for a pool."""
    namespace, staging = pool.metadata.namespace, pool.spec.staging
    around = await sight.surroundings(
        namespace,
        pool.spec.journal_ref.name,
        pool_keys(pool),
        staging=None if staging is None else await _chain(sight, namespace, staging.wait_for.name),
    )
    return plan_pool(pool, around)


async def _chain(sight: Sight, namespace: str, name: str) -> Mapping[str, GoldenPool]:
    """The chain of pools that are waited for, as far as it goes."""
    chain: dict[str, GoldenPool] = {}
    while name not in chain and len(chain) < _LONGEST_CHAIN:
        pool = await sight.understood(namespace, "SubscriberPool", name)
        if not isinstance(pool, SubscriberPool):
            break
        next_one = pool.spec.staging
        chain[name] = GoldenPool(pool.spec.editable, None if next_one is None else next_one.wait_for.name)
        if next_one is None:
            break
        name = next_one.wait_for.name
    return chain
