"""Whom the publishers' books should hold no more: members of pools that were deleted.

Publishers wait for registered subscribers for an hour after their last announcement. A Publisher notes pools in its
status, so that it knows whose members they were when a pool is gone, whatever happened meanwhile; a finalizer on pools
would do the same, and hang where the operator is uninstalled first. Pure; called for publishers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mailboat.api.records import StatusView, SubscriberStatusView

from mailboat_operator.api.pool import SubscriberPool
from mailboat_operator.api.publisher import KnownPool
from mailboat_operator.plan.fleet import is_gone, members_of, ordinal_of

GOING_SECONDS: Final = 5.0
"""How often to look while pods of a deleted pool end."""
_MOST: Final = 100


def known_pools(
    before: Sequence[KnownPool], pools: Sequence[SubscriberPool], fleet: StatusView | None
) -> list[KnownPool]:
    """What to note: every existing pool, and deleted ones as long as a member is registered."""
    members = {one.name: one.members for one in before}
    for pool in pools:
        name, most = pool.metadata.name, max(pool.spec.replicas, pool.status.most_replicas or 0)
        members[name] = max(members.get(name, 0), most)
    there = {pool.metadata.name for pool in pools}
    kept = {name for name in members if name in there or fleet is None or any(_of(name, members[name], fleet))}
    return [KnownPool(name, members[name]) for name in sorted(kept, key=lambda name: (name not in there, name))[:_MOST]]


def left_behind(known: Sequence[KnownPool], pools: Sequence[SubscriberPool], fleet: StatusView | None) -> list[str]:
    """Members of pools that are gone, and that run no more."""
    there = {pool.metadata.name for pool in pools}
    gone = [one for one in known if one.name not in there and fleet is not None]
    return sorted({one.name for pool in gone for one in _of(pool.name, pool.members, fleet) if is_gone(one)})


def are_going(known: Sequence[KnownPool], pools: Sequence[SubscriberPool]) -> bool:
    """Whether a deleted pool still has registered members."""
    there = {pool.metadata.name for pool in pools}
    return any(one.name not in there for one in known)


def _of(pool: str, count: int, fleet: StatusView | None) -> Iterator[SubscriberStatusView]:
    """The pool's members; a name beyond those that the pool ever had is foreign."""
    for one in () if fleet is None else members_of(fleet, pool):
        number = ordinal_of(one.name, pool)
        if number is not None and number < count:
            yield one
