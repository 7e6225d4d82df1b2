"""The examples for Argo CD and Flux: health of each kind in each state, valid objects, values that the chart has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from lupa.lua51 import LuaRuntime  # Argo CD runs health checks as Lua 5.1
from mailboat.api.records import DistributionView
from mailboat.errors import ResourceInvalidError
from mailboat_operator.definition.encoder import encode
from mailboat_operator.kinds.distribution.plan import PoolSize, plan_progress, plan_refused, plan_waiting
from mailboat_operator.kinds.registry import KINDS_BY_NAME, decode
from mailboat_operator.plan.findings import conditions_after, plan_invalid, ready, stalled, suspended, under_way

ROOT = Path(__file__).resolve().parents[2]
GITOPS = ROOT / "examples/gitops"
DEFINITIONS = json.loads((Path(__file__).parent / "gitops-definitions.json").read_text())
"""Of Flux and Argo CD, under the Apache License 2.0."""
KEY = "resource.customizations.health.mailboat.dev_"
BASE = frozenset({"_G", "ipairs", "next", "pairs", "tonumber", "tostring", "type"})
"""What a health check may use: Argo CD opens no library for it."""
NOW = datetime(2026, 11, 21, tzinfo=UTC)
STATES = {
    "Healthy": ready("3 of 3 members ready"),
    "Progressing": under_way("PodsNotReady", "2 of 3 members ready"),
    "Degraded": stalled("TopicTaken", "another Topic owns it"),
    "Suspended": suspended(suspend=True),
}


@pytest.fixture(scope="module")
def checks() -> Mapping[str, str]:
    """Kind → its health check."""
    data = yaml.safe_load((GITOPS / "argocd/health.yaml").read_text())["data"]
    return {name.removeprefix(KEY): text for name, text in data.items()}


def health(check: str, status: Any, generation: int = 1) -> tuple[str, str]:
    """Status and message that Argo CD would show for an object with this status."""
    lua = LuaRuntime(register_eval=False, register_builtins=False)
    for name in {*lua.globals()} - BASE:
        lua.globals()[name] = None
    made = {"metadata": {"generation": generation}, **({} if status is None else {"status": status})}
    lua.globals()["obj"] = lua.table_from(made, recursive=True)
    found = lua.execute(check)
    return found["status"], found["message"]


def written(findings: Any, generation: int = 1) -> dict[str, Any]:
    """The status with these findings, as the operator writes it."""
    return {"conditions": [encode(item) for item in conditions_after((), findings, generation, NOW)]}


def test_each_custom_resource_has_a_health_check(checks: Mapping[str, str]) -> None:
    assert checks.keys() == KINDS_BY_NAME.keys()


@pytest.mark.parametrize("state", STATES)
def test_health_follows_the_conditions_of_every_kind(checks: Mapping[str, str], state: str) -> None:
    main = STATES[state][0]
    for check in checks.values():
        assert health(check, written(STATES[state])) == (state, f"{main.reason}: {main.message}")


def test_an_object_is_progressing_until_the_operator_reports_its_generation(checks: Mapping[str, str]) -> None:
    for check in checks.values():
        assert health(check, None) == ("Progressing", "the operator has not reported yet")
        assert health(check, {"observedGeneration": 1}) == ("Progressing", "the operator has not reported yet")
        assert health(check, written(STATES["Healthy"]), generation=2)[0] == "Progressing"


@pytest.mark.parametrize(
    ("file", "kind", "message"),
    [
        ("publisher", "Publisher", "PodsNotReady: 0 of 1 publisher ready"),
        ("subscriberpool", "SubscriberPool", "PodsNotReady: 0 of 3 members ready"),
        (
            "build-kubeflow",
            "PackageBuild",
            "Starting: attempt 1: waiting for the pods of SparkApplication first-1 (new)",
        ),
    ],
)
def test_health_of_the_recorded_status_documents(checks: Mapping[str, str], file: str, kind: str, message: str) -> None:
    *_, last = yaml.safe_load_all((ROOT / f"tests/operator/golden/{file}.yaml").read_text())
    assert health(checks[kind], last["status"]) == ("Progressing", message)


def test_health_of_a_distribution_at_each_step(checks: Mapping[str, str]) -> None:
    head = {"name": "release", "namespace": "shop", "uid": "1", "generation": 1}
    spec = {"publisherRef": {"name": "author"}, "action": "Add", "paths": [{"path": "/en"}]}
    manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": "Distribution", "metadata": head, "spec": spec}
    one, pool = decode(manifest), [PoolSize("edge", 1)]
    sent = DistributionView("author", "p-1", 7, "ADD", published_at=NOW)
    steps = {
        "Suspended": plan_waiting(one, ("Suspended", "the annotation mailboat.dev/paused is true"), NOW, None),
        "Progressing": plan_progress(one, sent, pool, NOW),
        "Degraded": plan_refused(one, ("SourceMissing", "nothing is at /en"), NOW),
        "Healthy": plan_progress(one, DistributionView("author", "p-1", 7, "ADD", imported=("edge-0",)), pool, NOW),
    }
    assert {state: health(checks["Distribution"], plan.status)[0] for state, plan in steps.items()} == {
        state: state for state in steps
    }


def test_an_invalid_object_is_degraded(checks: Mapping[str, str]) -> None:
    plan = plan_invalid({"metadata": {"generation": 3}}, ResourceInvalidError("spec.kafka is missing"), NOW)
    expected = ("Degraded", "ResourceInvalid: spec.kafka is missing")
    assert health(checks["Journal"], plan.status, generation=3) == expected


def documents(folder: str) -> dict[tuple[str, str], Any]:
    """The manifests of a folder by kind and name."""
    found = [item for file in (GITOPS / folder).glob("*.yaml") for item in yaml.safe_load_all(file.read_text())]
    return {(item["kind"], item["metadata"]["name"]): item for item in found if "kind" in item}


def assert_chart_has(values: Mapping[str, Any], chart: Mapping[str, Any]) -> None:
    for name, value in values.items():
        assert name in chart
        if isinstance(value, dict):
            assert_chart_has(value, chart[name])
        else:
            assert type(value) is type(chart[name])


def test_the_examples_set_values_that_the_chart_has() -> None:
    chart = yaml.safe_load((ROOT / "helm/mailboat/values.yaml").read_text())
    version = yaml.safe_load((ROOT / "helm/mailboat/Chart.yaml").read_text())["version"]
    argo = documents("argocd")["Application", "mailboat-operator"]["spec"]["source"]
    flux = documents("flux")
    release = flux["HelmRelease", "mailboat"]["spec"]
    source = release["chart"]["spec"]["sourceRef"]
    for values in (argo["helm"]["valuesObject"], release["values"]):
        assert_chart_has(values, chart)
    assert argo["path"] == release["chart"]["spec"]["chart"] == "helm/mailboat"
    assert argo["targetRevision"] == flux[source["kind"], source["name"]]["spec"]["ref"]["tag"] == f"v{version}"


def test_a_kustomization_waits_for_the_conditions() -> None:
    flux = documents("flux")
    spec = flux["Kustomization", "mailboat"]["spec"]
    assert spec["wait"] is True
    assert (spec["sourceRef"]["kind"], spec["sourceRef"]["name"]) in flux


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with no unknown field allowed, as for `kubectl apply`."""
    made = dict(schema)
    if "properties" in schema:
        made["properties"] = {name: strict(one) for name, one in schema["properties"].items()}
        made.setdefault("additionalProperties", False)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            made[name] = strict(schema[name])
    return made


def faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What the project that the object is of does not take."""
    kind = f"{manifest['apiVersion']} {manifest['kind']}"
    validator = jsonschema_rs.validator_for(strict(DEFINITIONS[kind]))
    return (f"{kind}: {fault.message}" for fault in validator.iter_errors(manifest))


def test_the_examples_are_valid_objects_of_argo_cd_and_flux() -> None:
    found = [
        one for folder in ("argocd", "flux") for (kind, _), one in documents(folder).items() if kind != "Namespace"
    ]
    assert {f"{item['apiVersion']} {item['kind']}" for item in found} == DEFINITIONS.keys() - {"source", "license"}
    assert [fault for item in found for fault in faults(item)] == []
    release = documents("flux")["HelmRelease", "mailboat"]
    spec = {**release["spec"], "interval": "often", "remediate": True}
    wrong = [*faults({**release, "spec": spec})]
    assert len(wrong) == 2
    assert "remediate" in "".join(wrong)


def test_the_health_checks_are_added_to_the_settings_of_argo_cd_by_kubectl(api_server: Any, namespace: str) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm"}, "data": {"url": "kept"}}
    assert not api_server.kubectl("-n", namespace, "create", "-f", "-", given=json.dumps(settings)).returncode
    words = ("patch", "configmap", "argocd-cm", "--patch-file", str(GITOPS / "argocd/health.yaml"))
    assert not api_server.kubectl("-n", namespace, *words).returncode
    stored = api_server.http.get(f"/api/v1/namespaces/{namespace}/configmaps/argocd-cm").json()["data"]
    assert stored.keys() == {"url", *(KEY + kind for kind in KINDS_BY_NAME)}


@pytest.mark.long("kubernetes-versions")
def test_the_interpreter_of_argo_cd_agrees(checks: Mapping[str, str]) -> None:
    """Argo CD runs health checks by gopher-lua, which is another implementation than the one above."""
    statuses = {state: written(findings) for state, findings in STATES.items()} | {"Unknown": None}
    asked = [
        {"script": check, "object": {"metadata": {"generation": 1}, **({"status": status} if status else {})}}
        for check in checks.values()
        for status in statuses.values()
    ]
    command = [sys.executable, str(ROOT / "tests/kind/builds.py"), "argocd-lua"]
    program = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    done = subprocess.run([program], input=json.dumps(asked), capture_output=True, text=True, check=True)
    expected = [[*health(check, status)] for check in checks.values() for status in statuses.values()]
    assert json.loads(done.stdout) == expected
