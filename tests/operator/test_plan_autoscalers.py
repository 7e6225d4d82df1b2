"""What the operator writes for KEDA is valid by KEDA's own definitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from mailboat_operator.kinds.job_queue.manifests import queue_children
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.autoscaler import autoscalers
from mailboat_operator.kinds.subscriber_pool.manifests import owner_of_pool
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.pods import AgentImage

DEFINITIONS = json.loads((Path(__file__).parent / "keda-definitions.json").read_text())
"""Of KEDA 2.21.0, under the Apache License 2.0; unlike KEDA's own, they allow no unknown field."""

SHARED = {"delivery": "shared", "target": {"generations": None, "files": {"claim": {"name": "content"}}}}
DEMANDS: dict[str, dict[str, Any]] = {
    "cpu": {"resources": {"requests": {"cpu": "100m"}}, "template": None, "autoscaling": {"cpuPercent": 70}},
    "lag": {**SHARED, "autoscaling": {"lagPerMember": 50}},
    "trigger": {"autoscaling": {"trigger": {"type": "cron", "metadata": {"start": "0 8 * * *"}}}},
    "login": {"autoscaling": {"trigger": {"type": "prometheus", "authenticationRef": {"name": "metrics"}}}},
}


def stored(manifest: dict[str, Any]) -> Any:
    head = {"namespace": "shop", "uid": "0-1", "generation": 1, "creationTimestamp": datetime.now(UTC).isoformat()}
    return decode({**manifest, "metadata": {**manifest["metadata"], **head}})


def of_pool(manifest_of: Callable[..., dict[str, Any]], change: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = {"autoscaling": {"requestsPerSecond": None, **change["autoscaling"]}}
    pool = stored(manifest_of("SubscriberPool", {**change, **wanted}))
    return [*autoscalers(owner_of_pool(pool), pool.spec.autoscaling, has_keda=True)]


def faults(manifest: dict[str, Any]) -> Iterator[str]:
    validator = jsonschema_rs.validator_for(DEFINITIONS[manifest["kind"]])
    return (f"{manifest['kind']}: {fault.message}" for fault in validator.iter_errors(manifest["spec"]))


def of_keda(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [manifest for manifest in manifests if manifest["apiVersion"].startswith("keda.sh/")]


@pytest.mark.parametrize("demand", DEMANDS)
def test_autoscaler_of_a_pool_is_valid_for_keda(demand: str, manifest_of: Callable[..., dict[str, Any]]) -> None:
    found = of_keda(of_pool(manifest_of, DEMANDS[demand]))
    assert "ScaledObject" in {item["kind"] for item in found}
    assert [fault for item in found for fault in faults(item)] == []


def test_autoscaler_of_workers_is_valid_for_keda(manifest_of: Callable[..., dict[str, Any]]) -> None:
    queue = stored(manifest_of("JobQueue"))
    made = queue_children(queue, queue.spec.workers, AgentImage("mailboat:1"), "7", has_keda=True, policy=AgentPolicy())
    found = of_keda([*made])
    assert {item["kind"] for item in found} == {"ScaledObject", "TriggerAuthentication"}
    assert [fault for item in found for fault in faults(item)] == []


def test_a_field_that_keda_does_not_know_is_a_fault(manifest_of: Callable[..., dict[str, Any]]) -> None:
    (made,) = of_pool(manifest_of, DEMANDS["trigger"])
    spec = {**made["spec"], "pollInterval": 10, "minReplicaCount": "1"}
    assert len([*faults({**made, "spec": spec})]) == 2


def test_lag_of_a_shared_pool_is_asked_of_its_members_with_their_token(
    manifest_of: Callable[..., dict[str, Any]],
) -> None:
    authentication, scaled = of_pool(manifest_of, DEMANDS["lag"])
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"] == {
        "url": "http://edge-members.shop.svc:8080/metrics",
        "format": "prometheus",
        "valueLocation": 'mailboat_subscriber_lag_offsets{subscriber="edge"}',
        "targetValue": "50",
        "authMode": "bearer",
    }
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert authentication["spec"]["secretTargetRef"][0]["name"] == "edge-token"
    assert scaled["spec"]["fallback"]["behavior"] == "currentReplicasIfHigher"


@pytest.mark.parametrize(("type_", "has_fallback"), [("cpu", False), ("memory", False), ("cron", True)])
def test_a_trigger_of_resources_has_no_fallback(
    type_: str, has_fallback: bool, manifest_of: Callable[..., dict[str, Any]]
) -> None:
    """KEDA's webhook refuses such a ScaledObject."""
    trigger = {"type": type_, "metadata": {"value": "80"}}
    (scaled,) = of_keda(of_pool(manifest_of, {"autoscaling": {"trigger": trigger}}))
    assert ("fallback" in scaled["spec"]) is has_fallback


def test_without_keda_lag_is_the_metric_of_the_operator(manifest_of: Callable[..., dict[str, Any]]) -> None:
    wanted = {**DEMANDS["lag"], "autoscaling": {"requestsPerSecond": None, "lagPerMember": 50}}
    pool = stored(manifest_of("SubscriberPool", wanted))
    (scaler,) = autoscalers(owner_of_pool(pool), pool.spec.autoscaling, has_keda=False)
    (metric,) = scaler["spec"]["metrics"]
    assert metric["external"]["metric"] == {
        "name": "mailboat_operator_pool_lag_packages",
        "selector": {"matchLabels": {"exported_namespace": "shop", "name": "edge"}},
    }
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "50"}
