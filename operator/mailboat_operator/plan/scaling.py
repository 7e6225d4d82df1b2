"""How many members run now, on the way to how many are wanted; and which members to deregister.

More members are made at once. Fewer go one after the other, the highest first, each only when the one before is gone,
and only while the others that serve are as many as will be left. So there is always a member that serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mailboat.api.records import StatusView

from mailboat_operator.api.pool import SubscriberPool
from mailboat_operator.manifests.children import ChildKey, Manifest
from mailboat_operator.plan.children import Live
from mailboat_operator.plan.conditions import Finding, under_way
from mailboat_operator.plan.fleet import is_gone, members_of, ordinal_of
from mailboat_operator.plan.workload import count_of


class Step(NamedTuple):
    """How many members run now.

    Attributes:
        replicas: So many.
        findings: What the pool waits for before the next one goes; None when nothing is on its way down.
    """

    replicas: int
    findings: Sequence[Finding] | None


def next_step(pool: SubscriberPool, live: Live, fleet: StatusView | None) -> Step:
    """The next step towards `spec.replicas`, from what the workload was asked for last."""
    name, wanted = pool.metadata.name, pool.spec.replicas
    current = _asked_for(live, name)
    if current is None or current <= wanted:
        return Step(wanted, None)
    going = under_way("ScalingDown", f"{current} members, on the way to {wanted}")
    # the StatefulSet still removes the member before: members go one at a time
    if count_of(live, name, "replicas") > current:
        return Step(current, going)
    if _may_go(pool, current, count_of(live, name, "readyReplicas"), fleet):
        return Step(current - 1, going)
    ready_count = count_of(live, name, "readyReplicas")
    text = f"{current} members, on the way to {wanted}; only {ready_count} are ready: the next goes when more are"
    return Step(current, under_way("ScaleDownWaits", text))


def departed(pool: SubscriberPool, live: Live, fleet: StatusView | None) -> Sequence[str]:
    """Members that were scaled away, whose pods are gone, and that publishers still know.

    A name beyond those that the pool ever had is foreign, and left alone.
    """
    name, most = pool.metadata.name, pool.status.most_replicas or 0
    if fleet is None or pool.metadata.is_deleted:
        return ()
    kept = max(pool.spec.replicas, _asked_for(live, name) or 0, count_of(live, name, "replicas"))
    members = [(ordinal_of(one.name, name), one) for one in members_of(fleet, name)]
    return sorted(
        {one.name for number, one in members if number is not None and kept <= number < most and is_gone(one)}
    )


def most_replicas(pool: SubscriberPool, live: Live) -> int:
    """How many members the pool ever had or was about to have."""
    name = pool.metadata.name
    return max(pool.status.most_replicas or 0, _asked_for(live, name) or 0, count_of(live, name, "replicas"))


def _may_go(pool: SubscriberPool, current: int, ready_count: int, fleet: StatusView | None) -> bool:
    """Whether the highest member can go: it does not serve anyway, or enough others do."""
    if ready_count == 0 or ready_count > pool.spec.replicas:
        return True
    if fleet is None:
        return False
    highest = f"{pool.metadata.name}-{current - 1}"
    return not any(one.name == highest and one.ready for one in fleet.subscribers)


def _asked_for(live: Live, name: str) -> int | None:
    found: Manifest | None = live.get(ChildKey("StatefulSet", name))
    replicas = None if found is None else found["spec"].get("replicas")
    return None if replicas is None else int(replicas)
