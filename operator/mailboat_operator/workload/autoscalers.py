"""The children that scale workloads: their kinds, and whether they work, by their own conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mailboat_operator.definition.conditions import ConditionStatus
from mailboat_operator.plan.child_manifest import ChildKey, Manifest, Owner
from mailboat_operator.plan.children import Live
from mailboat_operator.plan.findings import Finding
from mailboat_operator.plan.labels import TOKEN_KEY
from mailboat_operator.workload.fleet import reason_of

AUTOSCALER: Final = "HorizontalPodAutoscaler"
SCALED_OBJECT: Final = "ScaledObject"
AUTHENTICATION: Final = "TriggerAuthentication"
AUTOSCALER_READY: Final = "AutoscalerReady"
_TROUBLES: Final = frozenset(
    {
        ("AbleToScale", "False"),
        ("Ready", "False"),
        ("ScalingActive", "False"),
        ("Fallback", "True"),  # KEDA stays Ready when it can't read a metric, and keeps a fixed number
        ("Paused", "True"),
    }
)
"""Conditions of a HorizontalPodAutoscaler and of a ScaledObject, and their status if it does not scale."""
_OFF: Final = "ScalingDisabled"
"""Kubernetes' reason while a workload has no pod: not a fault."""
_LONGEST_ERROR: Final = 400
_FAILURES: Final = 3


def metrics_trigger(url: str, value: str, target: int, authentication: str, **more: str) -> Manifest:
    """A KEDA trigger that reads one number of an agent's answer, with that authentication's token."""
    return {
        "type": "metrics-api",
        "metadata": {"url": url, "valueLocation": value, "targetValue": str(target), "authMode": "bearer", **more},
        "authenticationRef": {"name": authentication},
    }


def authentication(owner: Owner, ending: str, secret: str) -> Manifest:
    """What KEDA reports to an agent with: the token in that Secret."""
    wanted = [{"parameter": "token", "name": secret, "key": TOKEN_KEY}]
    return owner.child(AUTHENTICATION, ending, {"spec": {"secretTargetRef": wanted}})


def fallback(replicas: int) -> Manifest:
    """What KEDA does while it reads no metric: it removes no pod, and keeps at least so many."""
    return {"failureThreshold": _FAILURES, "replicas": replicas, "behavior": "currentReplicasIfHigher"}


def external_metric(name: str, labels: Mapping[str, str], target: int) -> Manifest:
    """A metric of a HorizontalPodAutoscaler, with its target per pod."""
    selector = {"selector": {"matchLabels": dict(labels)}} if labels else {}
    average = {"type": "AverageValue", "averageValue": str(target)}
    return {"type": "External", "external": {"metric": {"name": name, **selector}, "target": average}}


def autoscaler_health(name: str, live: Live) -> Finding:
    """Whether the HorizontalPodAutoscaler or ScaledObject of this name works."""
    keys = (ChildKey(kind, name) for kind in (SCALED_OBJECT, AUTOSCALER))
    found = next(((key, live[key]) for key in keys if key in live), None)
    conditions = () if found is None else (found[1].get("status") or {}).get("conditions") or ()
    if found is None or not conditions:
        text = "the autoscaler has no conditions yet"
        return Finding(AUTOSCALER_READY, ConditionStatus.UNKNOWN, "NotReportedYet", text)
    broken = [
        condition
        for condition in conditions
        if (condition.get("type"), condition.get("status")) in _TROUBLES and condition.get("reason") != _OFF
    ]
    if not broken:
        return Finding(AUTOSCALER_READY, ConditionStatus.TRUE, "Working", "")
    text = f"{found[0].kind} {found[0].name}: {broken[0].get('message') or 'the autoscaler gives no cause'}"
    # the reason is another controller's: one that a condition refuses would keep the whole status from being written
    reason = reason_of(broken[0].get("reason") or "")
    return Finding(AUTOSCALER_READY, ConditionStatus.FALSE, reason, text[:_LONGEST_ERROR])
