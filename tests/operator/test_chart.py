"""The Helm chart: it renders, refuses what it does not know, and gives the operator no right beyond what it uses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.testing.wait import wait_until
from mailboat_operator.metrics import OperatorMetrics
from mailboat_operator.plan.labels import POOL, PUBLISHER, child_labels
from mailboat_operator.settings import read_settings
from mailboat_operator.workload.pods import HTTP_PORT_NAME

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "mailboat"
PREVIOUS = Path(__file__).parent / "charts" / "mailboat-0.0.9.tgz"
MONITORING = Path(__file__).parent / "charts" / "monitoring.yaml"
GOLDEN = Path(__file__).parent / "golden"
COMBINATIONS = {
    "as it comes": "replicas=1",
    "two replicas": "replicas=2,podDisruptionBudget.enabled=true,networkPolicy.enabled=true",
    "monitored": "monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true,"
    "monitoring.labels.release=prometheus,monitoring.prometheusRule.blockedFor=1h30m",
    "agents": "monitoring.podMonitor.enabled=true,monitoring.podMonitor.interval=1m,agentNetworkPolicy.enabled=true",
    "agents in namespaces": "monitoring.podMonitor.enabled=true,namespaces={shop,news}",
    "in namespaces": "namespaces={shop,news},serviceAccount.name=mine",
    "placed": "nodeSelector.disk=ssd,tolerations[0].operator=Exists,podAnnotations.a=b,imagePullSecrets[0].name=pull",
    "with builds": "builds.namespaces={shop,news},sparkImage.tag=v1",
    "loose definitions": "crds.keep=false",
    "no definitions": "crds.install=false",
}


@pytest.fixture(scope="session")
def helm() -> str:
    """The program, built once."""
    command = [sys.executable, str(ROOT / "tests" / "kind" / "builds.py"), "helm"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *arguments], capture_output=True, text=True, check=False)


def rendered(helm: str, *settings: str) -> list[dict[str, Any]]:
    """What an installation applies."""
    return [item for item in yaml.load_all(rendered_text(helm, *settings), yaml.CSafeLoader) if item]


@cache
def rendered_text(helm: str, *settings: str) -> str:
    """The same as Helm prints it, asked once."""
    done = run(helm, "template", "mailboat", str(CHART), "--namespace", "system", *settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == kind]


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


def test_the_plain_manifests_can_be_applied_as_they_are(helm: str, tmp_path: Path) -> None:
    """The namespace comes first, everything is in it, and nothing is a hook that only Helm understands."""
    done = subprocess.run(
        ["make", "-n", "-C", str(ROOT), "manifests"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    lines = [line for line in done.stdout.splitlines() if "printf" in line or " template " in line]
    script = "\n".join(lines).replace("build/manifests.yaml", str(tmp_path / "all.yaml"))
    script = re.sub(r"\$\([^)]*builds.py helm\)", helm, script)
    subprocess.run(["sh", "-e", "-c", script], cwd=ROOT, check=True)
    documents = [item for item in yaml.load_all((tmp_path / "all.yaml").read_text(), yaml.CSafeLoader) if item]
    assert (documents[0]["kind"], documents[0]["metadata"]["name"]) == ("Namespace", "mailboat-system")
    assert {document["metadata"].get("namespace", "mailboat-system") for document in documents} == {"mailboat-system"}
    assert not of_kind(documents, "Pod")
    assert of_kind(documents, "Deployment")


def test_the_definitions_of_the_chart_are_those_of_the_project() -> None:
    ours = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    assert {path.name: path.read_text() for path in (CHART / "definitions").glob("*.yaml")} == ours, (
        "run `make generate`"
    )


def test_definitions_outlive_the_release_unless_told_otherwise(helm: str) -> None:
    kept = of_kind(rendered(helm), "CustomResourceDefinition")
    assert len(kept) == len(list((ROOT / "crds").glob("*.yaml")))
    assert {item["metadata"]["annotations"]["helm.sh/resource-policy"] for item in kept} == {"keep"}
    loose = of_kind(rendered(helm, "--set", "crds.keep=false"), "CustomResourceDefinition")
    assert {"annotations" in item["metadata"] for item in loose} == {False}
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
        "monitoring.prometheusRule.lagSeconds=0",
        "monitoring.serviceMonitor.interval=often",
        "agentNetworkPolicy.from[0].pods=all",
    ],
)
def test_a_value_that_is_not_known_is_refused(helm: str, setting: str) -> None:
    done = run(helm, "template", "mailboat", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert setting.split("=", maxsplit=1)[0].split(".", maxsplit=1)[0] in done.stderr


@pytest.mark.parametrize(("name", "settings"), [("cluster", ()), ("namespaces", ("--set", "namespaces={shop}"))])
def test_the_rights_are_those_that_were_looked_at(
    helm: str, name: str, settings: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    roles = (*of_kind(documents := rendered(helm, *settings), "ClusterRole"), *of_kind(documents, "Role"))
    text = yaml.safe_dump({f"{role['kind']} {role['metadata']['name']}": role["rules"] for role in roles})
    file = GOLDEN / f"rights-{name}.yaml"
    if request.config.getoption("--update-golden"):
        file.write_text(text)
    assert text == file.read_text()


def test_drivers_of_builds_have_an_account_with_rights_over_pods_in_their_namespaces_alone(helm: str) -> None:
    plain, with_builds = rendered(helm), rendered(helm, "--set", "builds.namespaces={shop}")
    added = [with_build for with_build in with_builds if with_build not in plain]
    assert {(item["kind"], item["metadata"]["name"], item["metadata"]["namespace"]) for item in added} == {
        (kind, "mailboat-spark", "shop") for kind in ("ServiceAccount", "Role", "RoleBinding")
    }
    (role,) = of_kind(added, "Role")
    assert {resource for rule in role["rules"] for resource in rule["resources"]} == {"pods", "configmaps", "services"}


def test_dashboard_takes_its_token_from_a_secret_and_needs_one(helm: str) -> None:
    settings = ("--set", "dashboard.enabled=true", "--set", "dashboard.tokenSecret=fleet")
    (deployment,) = of_kind(rendered(helm, *settings), "Deployment")
    variables = {item["name"]: item for item in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    source = variables["MAILBOAT_OPERATOR_DASHBOARD_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert source == {"name": "fleet", "key": "token"}
    address = "https://{publisher}.{namespace}.example.com"
    linked = rendered(helm, *settings, "--set", f"dashboard.agentUrl={address}")
    assert (
        read_settings({**environment(linked), "MAILBOAT_OPERATOR_DASHBOARD_TOKEN": "0123456789abcdef"}).agent_url
        == address
    )
    for mistake in ("javascript:{publisher}", "https://{name}.{publisher}.example", "https://a b.{publisher}"):
        words = (*settings, "--set", f"dashboard.agentUrl={mistake}")
        refused = run(helm, "template", "mailboat", str(CHART), *words)
        assert "dashboard" in refused.stderr
        assert "agentUrl" in refused.stderr
    refused = run(helm, "template", "mailboat", str(CHART), "--set", "dashboard.enabled=true")
    assert "dashboard.tokenSecret is needed" in refused.stderr
    assert rights(rendered(helm, *settings)) == rights(rendered(helm)), "it needs no other rights"


def test_secrets_are_never_listed_and_no_right_is_a_wildcard(helm: str) -> None:
    found = rights(rendered(helm))
    assert not {"list", "watch", "patch", "update", "delete"} & found["secrets"]
    assert "*" not in {*found, *(verb for verbs in found.values() for verb in verbs)}
    assert {"pods/exec", "pods/attach", "roles", "rolebindings", "clusterroles", "serviceaccounts"}.isdisjoint(found)


def test_people_get_rights_over_the_kinds_through_the_roles_of_the_cluster(helm: str) -> None:
    plain, aggregated = rendered(helm), rendered(helm, "--set", "rbac.aggregate=true")
    added = [item for item in aggregated if item not in plain]
    view, edit = sorted(added, key=lambda one: str(one["metadata"]["name"]), reverse=True)
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    plurals = {item["spec"]["names"]["plural"] for item in of_kind(plain, "CustomResourceDefinition")}
    assert set(view["rules"][0]["resources"]) == plurals
    assert view["rules"][0]["verbs"] == ["get", "list", "watch"]
    assert set(edit["rules"][0]["resources"]) == {*plurals, "subscriberpools/scale"}
    assert not any(resource.endswith("/status") for resource in edit["rules"][0]["resources"]), (
        "the status is the operator's"
    )


def test_names_of_digits_are_texts_in_each_manifest(helm: str) -> None:
    """YAML reads 2026 as a number, which the API server refuses as a name."""
    values = "namespaces={2026},builds.namespaces={2027},builds.serviceAccount=2028,serviceAccount.name=2029"
    # by strings, else the values themselves would be numbers
    done = run(helm, "template", "2030", str(CHART), "--namespace", "2031", "--set-string", values)
    assert done.returncode == 0, done.stderr
    documents = [item for item in yaml.load_all(done.stdout, yaml.CSafeLoader) if item]
    assert {document["metadata"].get("namespace", "2031") for document in documents} == {"2026", "2027", "2031"}
    assert not {*range(2026, 2032)} & {*numbers(documents)}


def numbers(value: Any) -> Iterator[int]:
    """All numbers of a document."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, int):
        yield value


def test_an_operator_of_named_namespaces_has_no_right_of_the_cluster(helm: str) -> None:
    documents = rendered(helm, "--set", "namespaces={shop,news}")
    assert of_kind(documents, "ClusterRole") == of_kind(documents, "ClusterRoleBinding") == []
    assert {item["metadata"]["namespace"] for item in of_kind(documents, "Role")} == {"shop", "news", "system"}
    assert not {"namespaces", "customresourcedefinitions"} & {*rights(documents)}


def test_the_operator_runs_under_the_restricted_profile(helm: str) -> None:
    [deployment] = of_kind(rendered(helm), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["shareProcessNamespace"]  # else it would ignore a SIGTERM that comes while it loads
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.fixture(scope="module")
def monitored_api_server(api_server: Any) -> Any:
    """The server with the kinds of Prometheus's operator."""
    api_server.kubectl("apply", "-f", str(MONITORING))
    api_server.kubectl("wait", "--for=condition=Established", "--timeout=120s", "-f", str(MONITORING))
    return api_server


@pytest.fixture(scope="module")
def taken() -> set[str]:
    """Documents that an API server took: definitions are large, and the same in most combinations."""
    return set()


@pytest.fixture(scope="module")
def system(monitored_api_server: Any) -> str:
    """The namespace of what is taken."""
    return str(monitored_api_server.new_namespace())


@pytest.mark.parametrize("settings", list(COMBINATIONS.values()), ids=list(COMBINATIONS))
def test_every_document_is_taken_by_an_api_server(
    helm: str, monitored_api_server: Any, system: str, taken: set[str], settings: str
) -> None:
    documents = rendered(helm, "--set", settings)
    for document in documents:
        if document["metadata"].get("namespace"):
            document["metadata"]["namespace"] = system
    texts = [text for text in map(json.dumps, documents) if text not in taken]
    words = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    if texts:  # a combination may have fewer documents, and no other ones
        done = monitored_api_server.kubectl("apply", *words, given="\n---\n".join(texts))
        assert done.returncode == 0, done.stderr
    taken.update(texts)


def test_network_policy_opens_only_probes_and_metrics_of_the_operator(helm: str) -> None:
    """Whether it is kept is the network's affair: that of the test cluster does not."""
    documents = rendered(helm, "--set", "networkPolicy.enabled=true")
    [policy] = of_kind(documents, "NetworkPolicy")
    [deployment] = of_kind(documents, "Deployment")
    [hook] = of_kind(documents, "Pod")
    pod = deployment["spec"]["template"]
    selected = policy["spec"]["podSelector"]["matchLabels"].items()
    assert selected <= pod["metadata"]["labels"].items()
    assert not selected <= hook["metadata"]["labels"].items()
    [container] = pod["spec"]["containers"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]  # the operator itself may reach brokers, buckets and agents
    assert policy["spec"]["ingress"] == [{"ports": [{"port": container["ports"][0]["name"]}]}]
    assert container["readinessProbe"]["httpGet"]["port"] == container["ports"][0]["name"]


def environment(documents: list[dict[str, Any]]) -> dict[str, str]:
    """What the operator's container is told."""
    [deployment] = of_kind(documents, "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return {
        "MAILBOAT_OPERATOR_AGENT_IMAGE": "",
        **{item["name"]: str(item.get("value", "")) for item in container["env"]},
    }


def test_one_pod_monitor_selects_the_pods_of_all_agents_and_no_others(helm: str) -> None:
    documents = rendered(helm, "--set", "monitoring.podMonitor.enabled=true,monitoring.labels.release=prometheus")
    [monitor] = of_kind(documents, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["namespaceSelector"] == {"any": True}
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    for component in (PUBLISHER, POOL):
        assert selected <= child_labels(component, "any").items()
    [deployment] = of_kind(documents, "Deployment")
    assert not selected <= deployment["spec"]["template"]["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == HTTP_PORT_NAME
    assert read_settings(environment(documents)).open_metrics
    in_two = rendered(helm, "--set", "monitoring.podMonitor.enabled=true,namespaces={shop,news}")
    assert of_kind(in_two, "PodMonitor")[0]["spec"]["namespaceSelector"] == {"matchNames": ["shop", "news"]}


def test_agents_let_in_the_operator_and_the_peers_of_the_values(helm: str) -> None:
    assert read_settings(environment(rendered(helm))).agent_ingress is None
    documents = rendered(helm, "--set", "agentNetworkPolicy.enabled=true")
    found = read_settings(environment(documents)).agent_ingress
    assert found is not None
    operator, neighbours = found
    assert operator["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "system"}}
    [deployment] = of_kind(documents, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert operator["podSelector"]["matchLabels"].items() <= labels.items()
    assert neighbours == {"podSelector": {}}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("", "podDisruptionBudget.enabled needs replicas of 2 or more"),
        (",replicas=2,podDisruptionBudget.minAvailable=2", "minAvailable must be less than replicas"),
    ],
)
def test_a_disruption_budget_that_lets_no_pod_go_is_refused(helm: str, more: str, text: str) -> None:
    done = run(helm, "template", "mailboat", str(CHART), "--set", f"podDisruptionBudget.enabled=true{more}")
    assert done.returncode != 0
    assert text in done.stderr


def test_replicas_of_the_operator_go_to_different_nodes(helm: str) -> None:
    [one] = of_kind(rendered(helm, "--set", "replicas=1"), "Deployment")
    assert "topologySpreadConstraints" not in one["spec"]["template"]["spec"]
    [two] = of_kind(rendered(helm, "--set", "replicas=2"), "Deployment")
    [spread] = two["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == two["spec"]["selector"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")


def test_alerts_ask_for_metrics_that_are_there(helm: str) -> None:
    [rule] = of_kind(rendered(helm, "--set", "monitoring.prometheusRule.enabled=true"), "PrometheusRule")
    asked = [item["expr"] for group in rule["spec"]["groups"] for item in group["rules"]]
    agents = set(re.findall(r"`(mailboat_\w+)`", (ROOT / "docs" / "metrics.md").read_text()))
    operator = OperatorMetrics()
    operator.looked("Journal", "ready", 0.1)
    operators = set(re.findall(r"^(mailboat_\w+)", operator.text().decode(), re.MULTILINE))
    wanted = {name for item in asked for name in re.findall(r"mailboat_\w+", item)}
    assert wanted <= agents | operators
    assert wanted & agents
    assert wanted & operators


def test_alerts_name_commands_that_are_there(helm: str) -> None:
    [rule] = of_kind(rendered(helm, "--set", "monitoring.prometheusRule.enabled=true"), "PrometheusRule")
    said = yaml.safe_dump(rule, width=1000)
    reference = (ROOT / "docs" / "cli.md").read_text()
    known = set(re.findall(r"^##+ `mailboat ([a-z -]+?)(?: [A-Z[].*)?`$", reference, re.MULTILINE)) - {
        "queues",
        "errors",
    }
    named = re.findall(r"kubectl mailboat -n \S+ \S+ \S+ ((\w+) \w+) ", said)
    assert len(named) == 7
    assert [both for both, first in named if not {both, first} & known] == []


def test_the_test_of_a_release_asks_the_service_that_leads_to_the_operator(helm: str) -> None:
    documents = rendered(helm)
    [pod] = of_kind(documents, "Pod")
    [service] = of_kind(documents, "Service")
    [deployment] = of_kind(documents, "Deployment")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    place = f"http://{service['metadata']['name']}.system.svc:{service['spec']['ports'][0]['port']}"
    assert place in pod["spec"]["containers"][0]["command"][-1]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()  # it is no operator


def test_a_release_of_the_previous_chart_is_upgraded_and_uninstalled_without_losing_an_object(
    helm: str, empty_api_server: Any, manifest_of: Callable[..., dict[str, Any]]
) -> None:
    server = empty_api_server

    def release(*arguments: str) -> None:
        done = run(helm, *arguments, "--namespace", "system", "--kubeconfig", str(server.kubeconfig))
        assert done.returncode == 0, done.stderr

    release("install", "mailboat", str(PREVIOUS), "--create-namespace", "--wait=hookOnly")
    journals = "/apis/mailboat.dev/v1alpha1/namespaces/default/journals"
    wait_until(lambda: server.http.get(journals).status_code == 200, "the kind to be served")
    journal = server.create("default", manifest_of("Journal")).raise_for_status().json()

    release("upgrade", "mailboat", str(CHART), "--wait=hookOnly")
    asked = "jsonpath={.items[*].metadata.labels.helm\\.sh/chart}"
    charts = server.kubectl("get", "deployments", "-n", "system", "-o", asked)
    assert charts.stdout == "mailboat-0.1.0"
    stored = {definition["metadata"]["name"]: definition for definition in definitions(server)}
    for path in (ROOT / "crds").glob("*.yaml"):
        ours = yaml.load(path.read_text(), yaml.CSafeLoader)
        kept = stored[ours["metadata"]["name"]]["spec"]["versions"][0]["schema"]
        assert kept == ours["spec"]["versions"][0]["schema"], "the definitions come with an upgrade"

    release("uninstall", "mailboat", "--wait=hookOnly")
    kinds = "all,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts"
    wait_until(lambda: "mailboat" not in server.kubectl("get", kinds, "-A").stdout, "the end of what has no owner")
    assert len(definitions(server)) == len(stored)
    again = server.http.get(f"{journals}/{journal['metadata']['name']}")
    assert again.json()["metadata"]["uid"] == journal["metadata"]["uid"]


def definitions(server: Any) -> list[dict[str, Any]]:
    """The definitions of our kinds that are stored."""
    found = server.http.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").json()["items"]
    return [item for item in found if item["spec"]["group"] == "mailboat.dev"]
