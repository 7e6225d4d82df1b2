"""A finished object stays as it is until its TTL is over, then it is deleted. Pure; for all kinds that finish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from mailboat_operator.definition.encoder import encode
from mailboat_operator.kinds.distribution.spec import Distribution
from mailboat_operator.kinds.package_build.spec import PackageBuild
from mailboat_operator.plan.actions import Delete, Plan
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.plan.findings import is_paused

LONGEST_SLEEP_SECONDS: Final = 3600.0


def plan_finished(one: Distribution | PackageBuild, now: datetime) -> Plan:
    """A finished object is only deleted, when its time to live has passed."""
    metadata, ttl, finished_at = one.metadata, one.spec.ttl_seconds_after_finished, one.status.finished_at
    if ttl is None or finished_at is None or is_paused(metadata, suspend=False):
        return Plan((), observed(one), LONGEST_SLEEP_SECONDS)
    rest = (finished_at + timedelta(seconds=ttl) - now).total_seconds()
    if rest <= 0:
        return Plan((Delete(ChildKey(type(one).__name__, metadata.name), metadata.uid),), None)
    return Plan((), observed(one), min(rest, LONGEST_SLEEP_SECONDS))


def observed(one: Distribution | PackageBuild) -> Mapping[str, Any] | None:
    """The status with the present generation: clients take one with an older generation for not observed yet."""
    generation = one.metadata.generation
    conditions = tuple(replace(condition, observed_generation=generation) for condition in one.status.conditions)
    status = replace(one.status, observed_generation=generation, conditions=conditions)
    return None if status == one.status else encode(status)


def pause_after_finishing(one: Distribution | PackageBuild) -> float:
    """In how many seconds to reconcile what finishes now."""
    ttl = one.spec.ttl_seconds_after_finished
    return LONGEST_SLEEP_SECONDS if ttl is None else min(float(ttl), LONGEST_SLEEP_SECONDS)
