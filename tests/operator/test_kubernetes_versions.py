"""What the chart and the operator make is valid for every version of Kubernetes that the documentation names."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from mailboat_operator.kinds.journal.agent_config import journal_mounts
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPool
from mailboat_operator.kinds.workload_context import SecretFound, WorkloadContext
from mailboat_operator.plan.actions import Apply
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.pods import AgentImage
from schemas import VERSIONS, schemas_of, strict

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "mailboat"
GOLDEN = Path(__file__).parent / "golden"
OF_OTHERS = ("mailboat.dev/", "monitoring.coreos.com/", "sparkoperator.k8s.io/", "spark.apache.org/", "keda.sh/")
VALUES = (
    "replicas=1",
    "replicas=2,podDisruptionBudget.enabled=true,networkPolicy.enabled=true,agentNetworkPolicy.enabled=true",
    "monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true,monitoring.podMonitor.enabled=true",
    "rbac.aggregate=true,namespaces={shop,news},serviceAccount.name=mine,builds.namespaces={shop}",
    "nodeSelector.disk=ssd,tolerations[0].operator=Exists,podAnnotations.a=b,imagePullSecrets[0].name=pull",
)
OLDEST, *LATER = VERSIONS


def read(text: str) -> Iterator[dict[str, Any]]:
    """The documents that are manifests; of the golden files the last is a status."""
    return (item for item in yaml.load_all(text, yaml.CSafeLoader) if item and "kind" in item)


@pytest.fixture(scope="module")
def manifests(helm: str, manifest_of: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything that is applied to a cluster, by the chart with several values and by the operator."""
    found = [item for file in sorted(GOLDEN.glob("*.yaml")) for item in read(file.read_text())]
    found += _of_a_pool_in_full(manifest_of)
    for values in VALUES:
        command = [helm, "template", "mailboat", str(CHART), "--namespace", "system", "--set", values]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found += read(done.stdout)
    return found


def _of_a_pool_in_full(manifest_of: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    template = yaml.safe_load((Path(__file__).parent / "template.yaml").read_text())
    journal, pool = (
        decode({**item, "metadata": {**item["metadata"], "namespace": "shop", "uid": "0-1-2-3", "generation": 1}})
        for item in (
            manifest_of("Journal"),
            manifest_of("SubscriberPool", {"template": template, "seed": {"snapshot": "a"}}),
        )
    )
    assert isinstance(journal, Journal)
    assert isinstance(pool, SubscriberPool)
    secrets = {mount.secret: SecretFound("7", frozenset(mount.keys)) for mount in journal_mounts(journal.spec)}
    policy = AgentPolicy(ingress=({"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}))
    now = datetime(2026, 11, 21, tzinfo=UTC)
    plan = plan_pool(pool, WorkloadContext(journal, secrets, {}, AgentImage("mailboat:1"), now, policy=policy))
    return [action.manifest for action in plan.actions if isinstance(action, Apply)]


def faults(version: str, manifests: list[dict[str, Any]]) -> list[str]:
    """What a version does not take, with kind, name and place."""
    schemas, found = schemas_of(version), []
    validators: dict[str, Any] = {}
    for manifest in manifests:
        kind = f"{manifest['apiVersion']} {manifest['kind']}"
        if kind.startswith(OF_OTHERS):
            continue
        if kind not in validators:
            validators[kind] = jsonschema_rs.validator_for(schemas[kind])
        found += [
            f"{kind} {manifest['metadata']['name']}: {fault.message}"
            for fault in validators[kind].iter_errors(manifest)
        ]
    return found


def test_what_is_made_is_valid_for_the_oldest_version(manifests: list[dict[str, Any]]) -> None:
    kinds = {manifest["kind"] for manifest in manifests}
    assert {
        "StatefulSet",
        "Deployment",
        "CustomResourceDefinition",
        "NetworkPolicy",
        "HorizontalPodAutoscaler",
    } <= kinds
    assert faults(OLDEST, manifests) == []


@pytest.mark.long("kubernetes-versions")
@pytest.mark.parametrize("version", LATER)
def test_what_is_made_is_valid_for_every_later_version(version: str, manifests: list[dict[str, Any]]) -> None:
    assert faults(version, manifests) == []


def test_a_field_that_a_version_does_not_know_is_a_fault(manifests: list[dict[str, Any]]) -> None:
    workload = next(manifest for manifest in manifests if manifest["kind"] == "StatefulSet")
    pod = {**workload["spec"]["template"]["spec"], "resourceClaimz": []}
    spec = {**workload["spec"], "template": {**workload["spec"]["template"], "spec": pod}, "replicas": "three"}
    found = faults(OLDEST, [{**workload, "spec": spec}])
    assert len(found) == 2
    assert any("resourceClaimz" in item for item in found)


def test_a_number_or_a_text_is_an_int_or_string() -> None:
    made = strict({"a": {"type": "string", "format": "int-or-string", "description": "text"}})
    assert made["a"] == {"type": ["integer", "string"], "kinds": []}


def test_the_documentation_names_the_versions_that_are_tested_and_no_others() -> None:
    first, last = (item.removeprefix("v").rpartition(".")[0] for item in (VERSIONS[0], VERSIONS[-1]))
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    assert f"Kubernetes {first} to {last}" in page
    named = {float(item) for item in re.findall(r"\b1\.[23]\d\b", page)}
    assert named <= {float(first), float(last)}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={first}.0-0"
