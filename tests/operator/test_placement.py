"""Templates in full: what each field becomes in the pods of agents and of builds, and what an API server takes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat_operator.kinds.journal.agent_config import journal_mounts
from mailboat_operator.kinds.package_build.plan import plan_build
from mailboat_operator.kinds.package_build.prerequisites import BuildObservation
from mailboat_operator.kinds.publisher.plan import plan_publisher
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.workload_context import SecretFound, WorkloadContext
from mailboat_operator.plan.actions import Apply
from mailboat_operator.plan.child_manifest import ChildKey, key_of
from mailboat_operator.plan.children import differing_field
from mailboat_operator.workload.pods import POD_SECURITY, AgentImage

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ZONE = "topology.kubernetes.io/zone"
TEMPLATE = yaml.safe_load((Path(__file__).parent / "template.yaml").read_text())
BESIDE = {"initContainers", "containers", "volumes"}
PLACEMENT = {name: value for name, value in TEMPLATE["spec"].items() if name not in BESIDE}


def stored(manifest: dict[str, Any]) -> Any:
    metadata = {**manifest["metadata"], "namespace": "shop", "uid": "0-1-2-3", "generation": 1}
    return decode({**manifest, "metadata": metadata})


def context(manifest_of: Callable[..., dict[str, Any]]) -> WorkloadContext:
    journal = stored(manifest_of("Journal"))
    secrets = {mount.secret: SecretFound("7", frozenset(mount.keys)) for mount in journal_mounts(journal.spec)}
    return WorkloadContext(journal, secrets, {}, AgentImage("mailboat:1"), NOW)


def children(plan: Any) -> dict[ChildKey, Any]:
    return {key_of(action.manifest): action.manifest for action in plan.actions if isinstance(action, Apply)}


@pytest.fixture
def workload(manifest_of: Any) -> Any:
    """The StatefulSet of a pool with the template."""
    plan = plan_pool(stored(manifest_of("SubscriberPool", {"template": TEMPLATE})), context(manifest_of))
    return children(plan)[ChildKey("StatefulSet", "edge")]


@pytest.fixture
def pod(workload: Any) -> Any:
    return workload["spec"]["template"]


def test_nodes_and_pull_secrets_are_those_of_the_template(pod: Any) -> None:
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName", "affinity"):
        assert pod["spec"][name] == PLACEMENT[name]


def test_a_spread_constraint_counts_the_object_s_own_pods_and_replaces_the_default(pod: Any) -> None:
    own = {"app.kubernetes.io/component": "pool", "app.kubernetes.io/instance": "edge"}
    assert pod["spec"]["topologySpreadConstraints"] == [
        {
            "topologyKey": ZONE,
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "mailboat", **own}},
        }
    ]


def test_ids_of_the_template_do_not_weaken_the_restricted_profile(pod: Any) -> None:
    ids = PLACEMENT["securityContext"]
    assert pod["spec"]["securityContext"] == {**POD_SECURITY, **ids}
    for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        security = container["securityContext"]
        assert security["runAsNonRoot"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not security["allowPrivilegeEscalation"]


def test_containers_of_the_template_keep_their_probes_and_variables(pod: Any) -> None:
    [wanted] = TEMPLATE["spec"]["containers"]
    web = next(container for container in pod["spec"]["containers"] if container["name"] == "web")
    assert web["envFrom"] == wanted["envFrom"]
    assert web["startupProbe"].items() >= wanted["startupProbe"].items()
    assert web["livenessProbe"]["exec"] == wanted["livenessProbe"]["exec"]
    [settings] = pod["spec"]["initContainers"]
    assert [volume_mount["name"] for volume_mount in settings["volumeMounts"]] == ["u-rendered", "u-vault"], (
        "no content before the agent"
    )
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["u-logs"]["persistentVolumeClaim"] == {"claimName": "logs", "readOnly": False}
    assert volumes["u-vault"]["csi"]["driver"] == "secrets-store.csi.k8s.io"


def test_a_seed_is_restored_before_the_containers_of_the_user(manifest_of: Any) -> None:
    journal = context(manifest_of)
    pool = stored(manifest_of("SubscriberPool", {"template": TEMPLATE, "seed": {"snapshot": "edge"}}))
    pod = children(plan_pool(pool, journal))[ChildKey("StatefulSet", "edge")]["spec"]["template"]
    assert [init_container["name"] for init_container in pod["spec"]["initContainers"]] == ["mailboat-seed", "settings"]


def test_members_without_constraints_are_spread_over_nodes_and_publishers_are_not(manifest_of: Any) -> None:
    pool = children(plan_pool(stored(manifest_of("SubscriberPool")), context(manifest_of)))
    [spread] = pool[ChildKey("StatefulSet", "edge")]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    author = children(plan_publisher(stored(manifest_of("Publisher")), context(manifest_of)))
    assert "topologySpreadConstraints" not in author[ChildKey("StatefulSet", "author")]["spec"]["template"]["spec"]


@pytest.mark.parametrize("engine", ["kubeflow", "apache"])
def test_driver_and_executors_of_a_build_run_where_its_template_says(engine: str, manifest_of: Any) -> None:
    change = {
        "engine": engine,
        "schedule": None,
        "template": {"metadata": TEMPLATE["metadata"], "spec": {**PLACEMENT, "imagePullSecrets": [{"name": "more"}]}},
    }
    seen = BuildObservation(context(manifest_of), stored(manifest_of("Publisher")), is_served=True)
    plan = plan_build(stored(manifest_of("PackageBuild", change)), seen)
    [spec] = [one["spec"] for key, one in children(plan).items() if key.kind.startswith("SparkApplication")]
    pods = (
        [spec["driver"]["template"], spec["executor"]["template"]]
        if engine == "kubeflow"
        else [spec[part]["podTemplateSpec"] for part in ("driverSpec", "executorSpec")]
    )
    for pod in pods:
        assert pod["metadata"]["labels"]["team"] == "web"
        assert pod["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
        assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}, {"name": "more"}]
        assert pod["spec"]["affinity"] == PLACEMENT["affinity"]
        assert pod["spec"]["securityContext"] == {**POD_SECURITY, **PLACEMENT["securityContext"]}


def test_an_api_server_takes_the_template_and_what_it_becomes(
    api_server: Any, namespace: str, manifest_of: Any, workload: Any
) -> None:
    """What the API server leaves out of the stored workload is no drift: that would be a write at each look."""
    answer = api_server.create(namespace, manifest_of("SubscriberPool", {"template": TEMPLATE}))
    assert answer.status_code == 201, answer.text
    metadata = {**workload["metadata"], "namespace": namespace, "ownerReferences": []}
    wanted = {**workload, "metadata": metadata}
    answer = api_server.http.post(
        f"/apis/apps/v1/namespaces/{namespace}/statefulsets", params={"fieldValidation": "Strict"}, json=wanted
    )
    assert answer.status_code == 201, answer.text
    assert differing_field(wanted["spec"], answer.json()["spec"]) is None
