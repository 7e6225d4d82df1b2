"""The Helm chart: it renders, refuses what it does not know, and gives the operator no right beyond what it uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "mailboat"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@pytest.fixture(scope="session")
def helm() -> str:
    """The program, built once."""
    command = [sys.executable, str(ROOT / "tests" / "kind" / "builds.py"), "helm"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *arguments], capture_output=True, text=True, check=False)


def rendered(helm: str, *settings: str) -> list[dict[str, Any]]:
    """What an installation applies."""
    done = run(helm, "template", "mailboat", str(CHART), "--namespace", "system", *settings)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in documents if one["kind"] == kind]


def rights(documents: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Resource → verbs, over all roles."""
    found: dict[str, set[str]] = {}
    for role in (*of_kind(documents, "ClusterRole"), *of_kind(documents, "Role")):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                found.setdefault(resource, set()).update(rule["verbs"])
    return found


def test_the_linter_has_nothing_to_say(helm: str) -> None:
    done = run(helm, "lint", "--strict", "--quiet", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_definitions_of_the_chart_are_those_of_the_project() -> None:
    ours = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    assert {path.name: path.read_text() for path in (CHART / "definitions").glob("*.yaml")} == ours, (
        "run `make generate`"
    )


def test_definitions_outlive_the_release_unless_told_otherwise(helm: str) -> None:
    kept = of_kind(rendered(helm), "CustomResourceDefinition")
    assert len(kept) == len(list((ROOT / "crds").glob("*.yaml")))
    assert {one["metadata"]["annotations"]["helm.sh/resource-policy"] for one in kept} == {"keep"}
    loose = of_kind(rendered(helm, "--set", "crds.keep=false"), "CustomResourceDefinition")
    assert {"annotations" in one["metadata"] for one in loose} == {False}
    assert of_kind(rendered(helm, "--set", "crds.install=false"), "CustomResourceDefinition") == []


@pytest.mark.parametrize(
    "setting",
    [
        "replica=2",
        "replicas=-1",
        "image.pullPolicy=Sometimes",
        "namespaces={Upper}",
        "logLevel=loud",
        "crds.keep=maybe",
    ],
)
def test_a_value_that_is_not_known_is_refused(helm: str, setting: str) -> None:
    done = run(helm, "template", "mailboat", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert setting.split("=", maxsplit=1)[0].split(".", maxsplit=1)[0] in done.stderr


def test_secrets_are_never_listed_and_no_right_is_a_wildcard(helm: str) -> None:
    found = rights(rendered(helm))
    assert found["secrets"] == {"get", "create"}
    assert "*" not in {*found, *(verb for verbs in found.values() for verb in verbs)}
    assert {resource for resource, verbs in found.items() if verbs & WRITES} == {
        *(f"{kind}/status" for kind in ("journals", "topics", "publishers", "subscriberpools", "distributions")),
        "journals/finalizers",
        "publishers/finalizers",
        "subscriberpools/finalizers",
        "configmaps",
        "events",
        "horizontalpodautoscalers",
        "leases",
        "poddisruptionbudgets",
        "secrets",
        "services",
        "statefulsets",
        "topics",
    }


def test_an_operator_of_named_namespaces_has_no_right_of_the_cluster(helm: str) -> None:
    documents = rendered(helm, "--set", "namespaces={shop,news}")
    assert of_kind(documents, "ClusterRole") == of_kind(documents, "ClusterRoleBinding") == []
    assert {one["metadata"]["namespace"] for one in of_kind(documents, "Role")} == {"shop", "news", "system"}
    assert not {"namespaces", "customresourcedefinitions"} & {*rights(documents)}


def test_the_operator_runs_under_the_restricted_profile(helm: str) -> None:
    [deployment] = of_kind(rendered(helm), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_every_document_is_taken_by_an_api_server(helm: str, api_server: Any) -> None:
    namespace = api_server.new_namespace()
    documents = rendered(
        helm, "--set", "podDisruptionBudget.enabled=true", "--set", "networkPolicy.enabled=true", "--set", "replicas=2"
    )
    for one in documents:
        if one["kind"] != "CustomResourceDefinition" and one["metadata"].get("namespace"):
            one["metadata"]["namespace"] = namespace
    text = "---\n".join(yaml.safe_dump(one) for one in documents if one["kind"] != "CustomResourceDefinition")
    done = api_server.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", given=text)
    assert done.returncode == 0, done.stderr
