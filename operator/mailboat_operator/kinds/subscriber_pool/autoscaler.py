"""What scales a pool on demand: a HorizontalPodAutoscaler, or a ScaledObject where KEDA is there and can do it.

Both scale the pool through its scale subresource, so the number of pods has one owner. A few members are added at a
time, as each has to catch up before it helps; one is removed at a time. An unknown metric removes no member: the
autoscaler of Kubernetes keeps the number by itself, and KEDA by its `fallback`.
"""

from __future__ import annotations

from typing import Final

from mailboat_operator.definition import API_VERSION
from mailboat_operator.kinds.subscriber_pool.spec import Autoscaling
from mailboat_operator.plan.manifest import Manifest, Owner
from mailboat_operator.workload.autoscalers import AUTOSCALER, SCALED_OBJECT

REQUESTS_METRIC: Final = "http_requests_per_second"
"""The pods' metric that `requestsPerSecond` scales on; an adapter of the custom metrics API has to give it."""

_PERIOD_SECONDS: Final = 60
_MOST_AT_ONCE: Final = 4
_FAILURES: Final = 3


def is_for_keda(wanted: Autoscaling, *, has_keda: bool) -> bool:
    """Whether KEDA scales it: metrics of pods and of other adapters are nothing that KEDA reads."""
    return wanted.trigger is not None or (has_keda and wanted.cpu_percent is not None)


def autoscaler(owner: Owner, wanted: Autoscaling, *, has_keda: bool) -> Manifest:
    """The child that scales."""
    if is_for_keda(wanted, has_keda=has_keda):
        return owner.child(SCALED_OBJECT, "", {"spec": _scaled_object(owner, wanted)})
    spec = {
        "scaleTargetRef": _target(owner),
        "minReplicas": wanted.min_replicas,
        "maxReplicas": wanted.max_replicas,
        "metrics": [_metric(wanted)],
        "behavior": _behavior(wanted),
    }
    return owner.child(AUTOSCALER, "", {"spec": spec})


def _scaled_object(owner: Owner, wanted: Autoscaling) -> Manifest:
    spec: Manifest = {
        "scaleTargetRef": _target(owner),
        "minReplicaCount": wanted.min_replicas,
        "maxReplicaCount": wanted.max_replicas,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(wanted)}},
        "triggers": [_trigger(wanted)],
    }
    if wanted.trigger is not None:  # of cpu the cluster's own rule holds, and KEDA refuses another
        spec["fallback"] = {
            "failureThreshold": _FAILURES,
            "replicas": wanted.min_replicas,
            "behavior": "currentReplicasIfHigher",
        }
    return spec


def _trigger(wanted: Autoscaling) -> Manifest:
    said = wanted.trigger
    if said is None:
        return {"type": "cpu", "metricType": "Utilization", "metadata": {"value": str(wanted.cpu_percent)}}
    trigger: Manifest = {"type": said.type, "metadata": dict(said.metadata)}
    if said.authentication_ref is not None:
        trigger["authenticationRef"] = {"name": said.authentication_ref.name}
    return trigger


def _target(owner: Owner) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": owner.kind, "name": owner.metadata.name}


def _behavior(wanted: Autoscaling) -> Manifest:
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": _MOST_AT_ONCE, "periodSeconds": _PERIOD_SECONDS},
                {"type": "Percent", "value": 100, "periodSeconds": _PERIOD_SECONDS},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": int(wanted.scale_down_after_seconds),
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": _PERIOD_SECONDS}],
        },
    }


def _metric(wanted: Autoscaling) -> Manifest:
    if wanted.cpu_percent is not None:
        target = {"type": "Utilization", "averageUtilization": wanted.cpu_percent}
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    if wanted.external is not None:
        metric: Manifest = {"name": wanted.external.name}
        if wanted.external.match_labels:
            metric["selector"] = {"matchLabels": dict(wanted.external.match_labels)}
        average = {"type": "AverageValue", "averageValue": str(wanted.external.target_average_value)}
        return {"type": "External", "external": {"metric": metric, "target": average}}
    average = {"type": "AverageValue", "averageValue": str(wanted.requests_per_second)}
    return {"type": "Pods", "pods": {"metric": {"name": REQUESTS_METRIC}, "target": average}}
