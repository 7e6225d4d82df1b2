"""What is said of an object that can't be understood, or that the API server does not let us serve."""

from __future__ import annotations

from datetime import datetime

from mailboat.errors import MailboatError

from mailboat_operator.api.conditions import Condition, Truth
from mailboat_operator.api.encoding import encode
from mailboat_operator.manifests.children import Manifest
from mailboat_operator.plan.actions import Plan
from mailboat_operator.plan.conditions import conditions_after, stalled


def plan_invalid(manifest: Manifest, error: MailboatError, now: datetime) -> Plan:
    """Say so in the object's status, and leave everything else of it, and of its children, as it is."""
    status = manifest.get("status")
    status = status if isinstance(status, dict) else {}
    generation = int(manifest["metadata"].get("generation") or 0)
    before = _conditions_of(status)
    conditions = conditions_after(before, stalled(error.name, error.message), generation, now)
    if conditions == before and status.get("observedGeneration") == generation:
        return Plan((), None)
    return Plan((), {**status, "observedGeneration": generation, "conditions": [encode(one) for one in conditions]})


def _conditions_of(status: Manifest) -> tuple[Condition, ...]:
    try:
        return tuple(
            Condition(
                one["type"],
                Truth(one["status"]),
                one["reason"],
                one["message"],
                one["observedGeneration"],
                datetime.fromisoformat(one["lastTransitionTime"]),
            )
            for one in status.get("conditions", ())
        )
    except (KeyError, TypeError, ValueError):
        return ()
