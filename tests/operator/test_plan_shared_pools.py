"""Pools whose members share the work: one claim, one subscriber, one lag."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mailboat.api.records import DistributionView, JournalView, StatusView, SubscriberStatusView
from mailboat.config.decoder import decode_config
from mailboat.config.document import Delivery
from mailboat.errors import ResourceInvalidError
from mailboat_operator.kinds.distribution.plan import PoolSize, plan_progress
from mailboat_operator.kinds.publisher.plan import known_pools, left_behind
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool, pool_keys
from mailboat_operator.kinds.subscriber_pool.pool_health import BLOCKED_FIGURE, LAG_FIGURE
from mailboat_operator.kinds.workload_context import GoldenPool, WorkloadContext
from mailboat_operator.plan.actions import Apply, Deregister, Plan
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.workload.pod_failures import Pods
from mailboat_operator.workload.pods import AgentImage

NOW = datetime(2026, 11, 27, 12, 0, 0, tzinfo=UTC)
READY = {"type": "Ready", "status": "True"}
CLAIM = {"metadata": {"name": "content"}, "spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}}
SPEC: dict[str, Any] = {
    "journalRef": {"name": "main"},
    "replicas": 3,
    "delivery": "shared",
    "target": {"files": {"claim": {"name": "content", "folder": "web"}}},
}


def stored(kind: str, name: str, spec: dict[str, Any], status: Any = None) -> Any:
    head = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1}
    manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": head, "spec": spec}
    return decode(manifest if status is None else {**manifest, "status": status})


JOURNAL = stored("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}})


def pool(status: Any = None, **spec: Any) -> Any:
    return stored("SubscriberPool", "edge", {**SPEC, **spec}, status)


def context(**changes: Any) -> WorkloadContext:
    seen = WorkloadContext(JOURNAL, {}, {}, AgentImage("mailboat:1"), NOW, shared_claim=CLAIM)
    return replace(seen, **changes)


def fleet(*members: SubscriberStatusView) -> StatusView:
    return StatusView(JournalView("memory", 0, 100), (), members)


def reason(plan: Plan) -> tuple[str, str]:
    assert plan.status is not None
    condition = plan.status["conditions"][0]
    return condition["reason"], condition["message"]


def stateful_set(plan: Plan) -> Any:
    return next(
        action.manifest["spec"]
        for action in plan.actions
        if isinstance(action, Apply) and action.manifest["kind"] == "StatefulSet"
    )


def config_of(plan: Plan) -> Any:
    found = next(
        action.manifest
        for action in plan.actions
        if isinstance(action, Apply) and action.manifest["kind"] == "ConfigMap"
    )
    return decode_config(json.loads(found["data"]["mailboat.yaml"]))


def test_members_are_one_subscriber_with_one_target_on_the_claim() -> None:
    plan = plan_pool(pool(slots=2), context())
    (member,) = config_of(plan).agents.subscribers
    assert (member.name, member.delivery, member.slots) == ("edge", Delivery.SHARED, 2)
    assert member.target == "files:/var/lib/mailboat/shared/web"
    spec = stateful_set(plan)
    assert "volumeClaimTemplates" not in spec
    pod = spec["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["content"]["persistentVolumeClaim"] == {"claimName": "content"}
    assert "emptyDir" in volumes["home"]
    mounts = {volume_mount["name"]: volume_mount["mountPath"] for volume_mount in pod["containers"][0]["volumeMounts"]}
    assert (mounts["home"], mounts["content"]) == ("/var/lib/mailboat", "/var/lib/mailboat/shared")
    assert "--subscriber" not in pod["containers"][0]["args"]


def test_containers_of_the_user_see_the_folder_of_the_claim_read_only() -> None:
    web = {"spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    pod = stateful_set(plan_pool(pool(template=web), context()))["template"]["spec"]
    mount = {"name": "content", "mountPath": "/content", "subPath": "web", "readOnly": True}
    assert mount in pod["containers"][1]["volumeMounts"]


def test_a_member_that_is_removed_has_the_time_to_finish_its_packages() -> None:
    plan = plan_pool(pool(finish="200s", drain="0s"), context())
    config = config_of(plan)
    finish = config.subscriber.shutdown_seconds * 0.8  # the agent keeps a fifth of its time for what comes after
    assert finish == 200
    grace = stateful_set(plan)["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= config.subscriber.shutdown_seconds + 10


@pytest.mark.parametrize(
    ("claim", "expected", "part"),
    [
        (None, "ClaimMissing", "no PersistentVolumeClaim content"),
        ({"spec": {"accessModes": ["ReadWriteOnce"]}}, "ClaimNotShared", "Use a claim with ReadWriteMany"),
        ({"spec": {}}, "ClaimNotShared", "ReadWriteMany"),
    ],
)
def test_nothing_starts_on_a_claim_that_members_cannot_share(claim: Any, expected: str, part: str) -> None:
    plan = plan_pool(pool(), context(shared_claim=claim))
    name, message = reason(plan)
    assert name == expected
    assert part in message
    assert not any(isinstance(action, Apply) for action in plan.actions)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"target": {"generations": {"claim": {"name": "content"}}}}, "delivery shared requires files or sqlite"),
        ({"target": {"files": {"volume": {"size": "5Gi"}}}}, "delivery shared requires files or sqlite"),
        ({"delivery": "broadcast"}, "broadcast requires a volume of each member"),
        ({"target": {"files": {}}}, "exactly one of volume and claim"),
        ({"target": {"files": {"claim": {"name": "c"}, "volume": {"size": "1Gi"}}}}, "exactly one of volume and claim"),
        ({"seed": {"snapshot": "a"}}, "staging and seed require delivery broadcast"),
        ({"staging": {"waitFor": {"name": "golden"}}}, "staging and seed require delivery broadcast"),
    ],
)
def test_what_members_cannot_do_together_is_refused(change: dict[str, Any], part: str) -> None:
    with pytest.raises(ResourceInvalidError, match=part):
        pool(**change)


def test_lag_per_member_needs_shared_work() -> None:
    own = {"delivery": "broadcast", "target": {"files": {"volume": {"size": "5Gi"}}}}
    with pytest.raises(ResourceInvalidError, match="lagPerMember requires delivery shared"):
        pool(**own, autoscaling={"maxReplicas": 3, "lagPerMember": 10})


def test_the_lag_of_the_pool_is_one_number() -> None:
    seen = fleet(
        SubscriberStatusView("edge", "importing", lag=170, ready=True), SubscriberStatusView("edge-1", "current")
    )
    plan = plan_pool(pool(), context(fleet=seen))
    assert plan.status is not None
    assert (plan.status["maxLag"], plan.figures[LAG_FIGURE]) == (170, 170.0)
    lagging = next(condition for condition in plan.status["conditions"] if condition["type"] == "Lagging")
    assert (lagging["status"], lagging["message"].split(". ")[0]) == ("True", "edge: 170 packages behind")
    assert "Add members" in lagging["message"]


@pytest.mark.parametrize("members", [(), (SubscriberStatusView("edge", "starting"),)], ids=["none", "no position"])
def test_an_unknown_lag_of_the_pool_is_no_figure(members: Sequence[SubscriberStatusView]) -> None:
    plan = plan_pool(pool(), context(fleet=fleet(*members)))
    assert plan.figures == {BLOCKED_FIGURE: 0.0}, "a lag of 0 would let an autoscaler remove members"
    assert plan.status is not None
    assert plan.status.get("maxLag") is None
    current = plan_pool(pool(), context(fleet=fleet(SubscriberStatusView("edge", "current", lag=0, ready=True))))
    assert current.figures == {BLOCKED_FIGURE: 0.0, LAG_FIGURE: 0.0}


def test_members_leave_at_once_and_no_one_is_deregistered() -> None:
    key = ChildKey("StatefulSet", "edge")
    owner = {"ownerReferences": [{"uid": "uid-edge", "controller": True}]}
    live = {key: {"metadata": owner, "spec": {"replicas": 20}, "status": {"replicas": 20, "readyReplicas": 20}}}
    foreign = SubscriberStatusView("edge-7", "stopped")
    seen = context(children=live, fleet=fleet(SubscriberStatusView("edge", "current"), foreign))
    plan = plan_pool(pool({"mostReplicas": 20}, replicas=2), seen)
    assert stateful_set(plan)["replicas"] == 2
    assert not any(isinstance(action, Deregister) for action in plan.actions)


def test_members_that_finish_their_packages_are_no_missing_pods() -> None:
    """Five run, two of them stop for up to `finish`, and one that stays is not ready at first."""
    owner = {"ownerReferences": [{"uid": "uid-edge", "controller": True}]}
    status = {"replicas": 5, "readyReplicas": 3}
    live = {ChildKey("StatefulSet", "edge"): {"metadata": owner, "spec": {"replicas": 3}, "status": status}}
    pods = Pods([{"metadata": {"name": f"edge-{n}"}, "status": {"conditions": [READY]}} for n in range(3)])
    plan = plan_pool(pool(), context(children=live, pods=pods))
    assert reason(plan) == ("ScalingDown", "scaling down to 3 members; 2 still stopping")
    assert plan.status is not None
    assert plan.status["caughtUpReplicas"] == 3
    unsure = plan_pool(pool(), context(children=live))
    assert unsure.status is not None
    assert unsure.status["caughtUpReplicas"] == 1
    late = plan_pool(pool(plan.status), context(children=live, pods=pods, now=NOW + timedelta(hours=1)))
    assert late.status is None


def test_a_deleted_pool_is_deregistered_under_its_own_name() -> None:
    running = fleet(SubscriberStatusView("edge", "current"), SubscriberStatusView("edge-0", "stopped"))
    known = known_pools((), [pool()], running)
    assert [(item.name, item.members, item.shared) for item in known] == [("edge", 3, True)]
    assert left_behind(known, [], running) == []
    stopped = fleet(SubscriberStatusView("edge", "silent"), SubscriberStatusView("edge-0", "stopped"))
    assert left_behind(known, [], stopped) == ["edge"]


def test_a_distribution_waits_for_the_pool_as_one_subscriber(manifest_of: Any) -> None:
    manifest = manifest_of("Distribution")
    head = {"namespace": "shop", "uid": "0-1", "generation": 1, "creationTimestamp": "2026-11-27T11:59:00Z"}
    distribution = decode({**manifest, "metadata": {**manifest["metadata"], **head}})
    pools = [PoolSize("edge", 3, is_shared=True), PoolSize("empty", 0, is_shared=True)]
    delivery = DistributionView("p-1", 4, "author", "ADD", imported=("edge",), waiting=("empty",))
    plan = plan_progress(distribution, delivery, pools, NOW)
    assert plan.status is not None
    # Without members a shared pool stays the subscriber that it was: it goes on where it stands.
    assert (plan.status["state"], plan.status["done"]) == ("Published", "1/2")
    assert (plan.status["pools"][0]["done"], plan.status["pools"][0]["members"]) == (1, 1)
    new = plan_progress(distribution, replace(delivery, waiting=()), pools, NOW)
    assert new.status is not None
    assert (new.status["state"], new.status["done"]) == ("Distributed", "1/1")


def test_no_pool_can_wait_for_a_shared_one() -> None:
    own = {"delivery": "broadcast", "target": {"files": {"volume": {"size": "5Gi"}}}}
    waiting = pool(**own, staging={"waitFor": {"name": "golden"}})
    golden = {"golden": GoldenPool(is_editable=True, waits_for=None, is_shared=True)}
    assert reason(plan_pool(waiting, context(staging=golden)))[0] == "StagingShared"


def test_the_login_of_keda_goes_with_the_scaling_by_lag() -> None:
    kinds = {key.kind for key in pool_keys(pool(), has_keda=True)}
    assert {"ScaledObject", "TriggerAuthentication"} <= kinds
