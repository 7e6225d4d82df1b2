"""What scales a pool on demand: a HorizontalPodAutoscaler, or a ScaledObject where KEDA is there and can do it.

The lag of a shared pool is one number. KEDA asks a member for it, with the pool's own token: packages in the queue of
the pool, and records of the log that are not in it yet. A HorizontalPodAutoscaler takes the operator's metric, which
counts packages, since the metrics of all members say the same and would be added up.

Both scale the pool through its scale subresource, so the number of pods has one owner. A few members are added at a
time, as each has to catch up before it helps; one is removed at a time. An unknown metric removes no member: the
autoscaler of Kubernetes keeps the number, and KEDA does by its `fallback`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mailboat_operator.definition import API_VERSION
from mailboat_operator.kinds.subscriber_pool.spec import Autoscaling
from mailboat_operator.plan.child_manifest import Manifest, Owner
from mailboat_operator.workload.agent_manifests import TOKEN_ENDING
from mailboat_operator.workload.autoscalers import (
    AUTOSCALER,
    SCALED_OBJECT,
    authentication,
    external_metric,
    fallback,
    metrics_trigger,
)
from mailboat_operator.workload.mounts import service_url

MEMBERS_ENDING: Final = "members"
REQUESTS_METRIC: Final = "http_requests_per_second"
"""The pods' metric that `requestsPerSecond` scales on; an adapter of the custom metrics API has to give it."""

LAG_METRIC: Final = "mailboat_operator_pool_lag_packages"
"""The operator's metric of a pool's lag; an adapter of the external metrics API has to serve it."""

MEMBER_LAG_METRIC: Final = "mailboat_subscriber_lag_offsets"
"""Each member's metric of its pool's lag. No member reads ahead of the pool's queue, so it counts records there."""

_OF_RESOURCES: Final = frozenset({"cpu", "memory"})
"""Types of KEDA's triggers that the metrics server measures."""

_PERIOD_SECONDS: Final = 60
_MOST_AT_ONCE: Final = 4


def is_for_keda(wanted: Autoscaling, *, has_keda: bool) -> bool:
    """Whether KEDA scales it: metrics of pods and of other adapters are nothing that KEDA reads."""
    is_known_to_keda = wanted.cpu_percent is not None or wanted.lag_per_member is not None
    return wanted.trigger is not None or (has_keda and is_known_to_keda)


def autoscalers(owner: Owner, wanted: Autoscaling, *, has_keda: bool) -> Sequence[Manifest]:
    """The children that scale: one, and what KEDA reports to a member with."""
    if is_for_keda(wanted, has_keda=has_keda):
        scaled = owner.child(SCALED_OBJECT, "", {"spec": _scaled_object(owner, wanted)})
        if wanted.lag_per_member is None:
            return [scaled]
        return [authentication(owner, "", owner.name_of(TOKEN_ENDING)), scaled]
    spec = {
        "scaleTargetRef": _target(owner),
        "minReplicas": wanted.min_replicas,
        "maxReplicas": wanted.max_replicas,
        "metrics": [_metric(owner, wanted)],
        "behavior": _behavior(wanted),
    }
    return [owner.child(AUTOSCALER, "", {"spec": spec})]


def _scaled_object(owner: Owner, wanted: Autoscaling) -> Manifest:
    trigger = _trigger(owner, wanted)
    spec: Manifest = {
        "scaleTargetRef": _target(owner),
        "minReplicaCount": wanted.min_replicas,
        "maxReplicaCount": wanted.max_replicas,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(wanted)}},
        "triggers": [trigger],
    }
    if trigger["type"] not in _OF_RESOURCES:  # for these the cluster's own rule holds, and KEDA refuses another
        spec["fallback"] = fallback(wanted.min_replicas)
    return spec


def _trigger(owner: Owner, wanted: Autoscaling) -> Manifest:
    configured = wanted.trigger
    if wanted.lag_per_member is not None:
        name = owner.metadata.name
        agents = service_url(owner.name_of(MEMBERS_ENDING), owner.metadata.namespace)
        # The address is that of all members, ready or not: with the first backlog none is. One that starts has no lag
        # to read yet, or the whole one; KEDA keeps the number, and asks again.
        value = f'{MEMBER_LAG_METRIC}{{subscriber="{name}"}}'
        return metrics_trigger(f"{agents}/metrics", value, wanted.lag_per_member, owner.name_of(), format="prometheus")
    if configured is None:
        return {"type": "cpu", "metricType": "Utilization", "metadata": {"value": str(wanted.cpu_percent)}}
    trigger: Manifest = {"type": configured.type, "metadata": dict(configured.metadata)}
    if configured.authentication_ref is not None:
        trigger["authenticationRef"] = {"name": configured.authentication_ref.name}
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


def _metric(owner: Owner, wanted: Autoscaling) -> Manifest:
    if wanted.cpu_percent is not None:
        target = {"type": "Utilization", "averageUtilization": wanted.cpu_percent}
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    if wanted.lag_per_member is not None:
        # Prometheus renames the metric's own label: `namespace` is that of the operator
        labels = {"exported_namespace": owner.metadata.namespace, "name": owner.metadata.name}
        return external_metric(LAG_METRIC, labels, wanted.lag_per_member)
    if wanted.external is not None:
        return external_metric(wanted.external.name, wanted.external.match_labels, wanted.external.target_average_value)
    average = {"type": "AverageValue", "averageValue": str(wanted.requests_per_second)}
    return {"type": "Pods", "pods": {"metric": {"name": REQUESTS_METRIC}, "target": average}}
