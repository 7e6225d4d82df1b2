"""The status of an object that is invalid, or that the operator fails to reconcile."""

from __future__ import annotations

from datetime import datetime

from mailboat.errors import MailboatError, RetryableError

from mailboat_operator.definition.conditions import Condition, ConditionStatus
from mailboat_operator.definition.encoder import encode
from mailboat_operator.plan.actions import Hold, Plan, Report, Severity
from mailboat_operator.plan.findings import conditions_after, stalled, under_way
from mailboat_operator.plan.labels import FINALIZER
from mailboat_operator.plan.manifest import Manifest


def plan_invalid(manifest: Manifest, error: MailboatError, now: datetime) -> Plan:
    """Write the error into the object's status, and leave everything else of it and its children as it is."""
    status = manifest.get("status")
    status = status if isinstance(status, dict) else {}
    generation = int(manifest["metadata"].get("generation") or 0)
    before = _conditions_of(status)
    say = under_way if isinstance(error, RetryableError) else stalled
    conditions = conditions_after(before, say(error.name, error.message), generation, now)
    if conditions == before and status.get("observedGeneration") == generation:
        return Plan((), None)
    return Plan(
        (), {**status, "observedGeneration": generation, "conditions": [encode(condition) for condition in conditions]}
    )


def plan_undecodable(manifest: Manifest, error: MailboatError, now: datetime) -> Plan:
    """Write the error into the object's status; release the object, and keep its topic, if it is being deleted.

    An object becomes invalid without a change of its own if an upgrade or a rollback brings stricter definitions.
    """
    metadata = manifest["metadata"]
    if metadata.get("deletionTimestamp") is None:
        return plan_invalid(manifest, error, now)
    if FINALIZER not in (metadata.get("finalizers") or ()):
        return Plan((), None)
    reports: tuple[Report, ...] = ()
    if manifest["kind"] == "Topic":
        name = (manifest.get("status") or {}).get("topicName") or "of this object"
        reports = (Report(Severity.WARNING, "TopicRetained", f"topic {name} is kept: {error.message}"),)
    return Plan((Hold(is_held=False), *reports), None)


def _conditions_of(status: Manifest) -> tuple[Condition, ...]:
    try:
        return tuple(
            Condition(
                one["type"],
                ConditionStatus(one["status"]),
                one["reason"],
                one["message"],
                one["observedGeneration"],
                datetime.fromisoformat(one["lastTransitionTime"]),
            )
            for one in status.get("conditions", ())
        )
    except (KeyError, TypeError, ValueError):
        return ()
