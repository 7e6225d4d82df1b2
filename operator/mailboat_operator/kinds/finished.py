"""A finished object stays as it is until its TTL is over, then it is deleted. Pure; for all kinds that finish."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from mailboat_operator.kinds.distribution.spec import Distribution
from mailboat_operator.kinds.package_build.spec import PackageBuild
from mailboat_operator.plan.actions import Delete, Plan
from mailboat_operator.plan.child_manifest import ChildKey

LONGEST_SLEEP_SECONDS: Final = 3600.0


def plan_finished(one: Distribution | PackageBuild, now: datetime) -> Plan:
    """A finished object is only deleted, when its time to live has passed."""
    ttl, finished_at = one.spec.ttl_seconds_after_finished, one.status.finished_at
    if ttl is None or finished_at is None:
        return Plan((), None, LONGEST_SLEEP_SECONDS)
    rest = (finished_at + timedelta(seconds=ttl) - now).total_seconds()
    if rest <= 0:
        metadata = one.metadata
        return Plan((Delete(ChildKey(type(one).__name__, metadata.name), metadata.uid),), None)
    return Plan((), None, min(rest, LONGEST_SLEEP_SECONDS))


def pause_after_finishing(one: Distribution | PackageBuild) -> float:
    """In how many seconds to reconcile what finishes now."""
    ttl = one.spec.ttl_seconds_after_finished
    return LONGEST_SLEEP_SECONDS if ttl is None else min(float(ttl), LONGEST_SLEEP_SECONDS)
