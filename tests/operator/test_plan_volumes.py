"""Volumes that grow, and policies that the operator's settings ask for: what the plan makes of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from mailboat_operator.kinds.journal.agent_config import journal_mounts
from mailboat_operator.kinds.publisher.plan import plan_publisher
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.workload_context import SecretFound, WorkloadContext
from mailboat_operator.plan.actions import Apply, Delete
from mailboat_operator.plan.child_manifest import ChildKey, key_of
from mailboat_operator.plan.labels import APPLIED
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.pods import AgentImage
from mailboat_operator.workload.template import Volume
from mailboat_operator.workload.volumes import VolumeClaims, is_enlarged, members_claims, too_small, volume_findings

NOW = datetime(2026, 11, 21, tzinfo=UTC)
GIBIBYTE = 1 << 30
PEERS = ({"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}})
PLANS = [("Publisher", "author", plan_publisher), ("SubscriberPool", "edge", plan_pool)]


def claim(number: int, asked: str = "5Gi", has: str = "5Gi", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"content-edge-{number}", "uid": f"uid-{number}"},
        "spec": {"resources": {"requests": {"storage": asked}}},
        "status": {"capacity": {"storage": has}, **status},
    }


def workload(size: str = "5Gi", replicas: int = 2) -> dict[str, Any]:
    template = {"metadata": {"name": "content"}, "spec": {"resources": {"requests": {"storage": size}}}}
    return {"metadata": {"name": "edge"}, "spec": {"replicas": replicas, "volumeClaimTemplates": [template]}}


def stored(manifest: dict[str, Any]) -> Any:
    metadata = {**manifest["metadata"], "namespace": "shop", "uid": "0-1-2-3", "generation": 1}
    return decode({**manifest, "metadata": metadata})


@pytest.fixture
def context(manifest_of: Any) -> WorkloadContext:
    """A ready Journal and nothing else."""
    journal = stored(manifest_of("Journal"))
    secrets = {mount.secret: SecretFound("7", frozenset(mount.keys)) for mount in journal_mounts(journal.spec)}
    return WorkloadContext(journal, secrets, {}, AgentImage("mailboat:1"), NOW)


def applied(plan: Any) -> dict[ChildKey, Any]:
    return {key_of(action.manifest): action.manifest for action in plan.actions if isinstance(action, Apply)}


@pytest.mark.parametrize(
    ("size", "wanted", "expected"),
    [("5Gi", 5, False), ("5Gi", 8, True), ("8Gi", 5, False), ("5368709120", 5, False), ("1Pi", 8, False)],
)
def test_claims_are_looked_at_only_if_the_spec_asks_for_more(size: str, wanted: int, expected: bool) -> None:
    assert is_enlarged(workload(size), Volume(wanted * GIBIBYTE)) is expected
    assert not is_enlarged({}, Volume(wanted * GIBIBYTE))


def test_claims_of_members_that_were_scaled_away_wait_for_their_return() -> None:
    found = members_claims([claim(2), claim(1, asked="8Gi"), claim(0)], workload())
    assert [item["metadata"]["name"] for item in found] == ["content-edge-0", "content-edge-1"]
    assert [item["metadata"]["name"] for item in too_small(found, 8 * GIBIBYTE)] == ["content-edge-0"]


PENDING = {"type": "FileSystemResizePending", "status": "True", "message": "Waiting for user to (re-)start a pod"}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (VolumeClaims(), None),
        (VolumeClaims([claim(0, has="8Gi"), claim(1)]), ("Unknown", "Resizing", "1 of 2 claims have 8Gi")),
        (
            VolumeClaims([claim(0, conditions=[PENDING])]),
            (
                "Unknown",
                "Resizing",
                "0 of 1 claims have 8Gi; content-edge-0: FileSystemResizePending: Waiting for user",
            ),
        ),
        (
            VolumeClaims([claim(0, allocatedResourceStatuses={"storage": "ControllerResizeInfeasible"})]),
            ("Unknown", "Resizing", "0 of 1 claims have 8Gi; content-edge-0: ControllerResizeInfeasible"),
        ),
        (VolumeClaims([claim(0, has="8Gi")]), ("True", "Resized", "1 claims have 8Gi")),
        (VolumeClaims([claim(0)], "class fixed"), ("False", "ResizeRefused", "claims can't grow to 8Gi: class fixed")),
    ],
)
def test_the_condition_says_how_far_volumes_have_grown(
    claims: VolumeClaims, expected: tuple[str, str, str] | None
) -> None:
    found = volume_findings(claims, 8 * GIBIBYTE)
    if expected is None:
        assert found == ()
        return
    [one] = found
    assert (str(one.status), one.reason) == expected[:2]
    assert one.message.startswith(expected[2])


def test_a_larger_size_changes_nothing_of_the_workload_that_exists(manifest_of: Any, context: WorkloadContext) -> None:
    """Its claim template can't be changed: the API server would refuse the whole StatefulSet."""
    before = applied(plan_pool(stored(manifest_of("SubscriberPool")), context))
    live = {key: {**one, "metadata": {**one["metadata"]}} for key, one in before.items()}
    larger = stored(manifest_of("SubscriberPool", {"target": {"generations": {"volume": {"size": "8Gi"}}}}))
    assert ChildKey("StatefulSet", "edge") not in applied(plan_pool(larger, replace(context, children=live)))
    fresh = applied(plan_pool(larger, context))[ChildKey("StatefulSet", "edge")]
    assert fresh["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "8Gi"


@pytest.mark.parametrize(("kind", "name", "plan"), PLANS)
def test_a_network_policy_is_made_if_the_settings_ask_for_one_and_goes_with_them(
    kind: str, name: str, plan: Any, manifest_of: Any, context: WorkloadContext
) -> None:
    key, resource = ChildKey("NetworkPolicy", name), stored(manifest_of(kind))
    assert key not in applied(plan(resource, context))
    made = applied(plan(resource, replace(context, policy=AgentPolicy(ingress=PEERS))))
    policy, pods = made[key], made[ChildKey("StatefulSet", name)]["spec"]["template"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
    api, *users = policy["spec"]["ingress"]
    assert api == {"from": list(PEERS), "ports": [{"port": 8080, "protocol": "TCP"}]}
    assert users == ([{"ports": [{"port": 8000, "protocol": "TCP"}]}] if kind == "SubscriberPool" else [])
    assert policy["spec"]["policyTypes"] == ["Ingress"], "agents may reach brokers, buckets and webhooks"
    policy["metadata"]["uid"] = "uid-policy"
    off = plan(resource, replace(context, children={key: policy}))
    assert [action.key for action in off.actions if isinstance(action, Delete)] == [key]


@pytest.mark.parametrize(("kind", "name", "plan"), PLANS)
def test_open_metrics_reach_the_agents_and_roll_their_pods(
    kind: str, name: str, plan: Any, manifest_of: Any, context: WorkloadContext
) -> None:
    resource, config = stored(manifest_of(kind)), ChildKey("ConfigMap", f"{name}-config")
    closed, opened = (
        applied(plan(resource, replace(context, policy=AgentPolicy(open_metrics=item)))) for item in (False, True)
    )
    assert '"open_metrics": true' in opened[config]["data"]["mailboat.yaml"]
    assert "open_metrics" not in closed[config]["data"]["mailboat.yaml"]
    workloads = [made[ChildKey("StatefulSet", name)]["metadata"]["annotations"][APPLIED] for made in (closed, opened)]
    assert workloads[0] != workloads[1]


def test_the_serving_service_has_the_type_port_and_annotations_of_the_spec(
    manifest_of: Any, context: WorkloadContext
) -> None:
    key, balancer = ChildKey("Service", "edge"), {"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}
    plain = applied(plan_pool(stored(manifest_of("SubscriberPool")), context))[key]
    assert (plain["spec"]["ports"][0]["port"], plain["spec"].get("type")) == (80, None)
    spec = {"service": {"type": "LoadBalancer", "port": 8443, "annotations": balancer}}
    made = applied(plan_pool(stored(manifest_of("SubscriberPool", spec)), context))[key]
    assert (made["spec"]["ports"][0]["port"], made["spec"]["type"]) == (8443, "LoadBalancer")
    assert made["metadata"]["annotations"].items() > balancer.items()
    assert APPLIED in made["metadata"]["annotations"]
