"""What is decided about pools: their health, how they shrink, what scales and seeds them."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.api.records import CauseView, JournalView, PublisherView, StatusView, SubscriberStatusView
from mailboat.errors import ResourceInvalidError
from mailboat.testing.examples import examples
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.publisher.plan import known_pools, left_behind, plan_publisher
from mailboat_operator.kinds.publisher.spec import KnownPool
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.manifests import pool_config
from mailboat_operator.kinds.subscriber_pool.plan import departed, next_step, plan_pool
from mailboat_operator.kinds.subscriber_pool.pool_health import health_of, shared_identity
from mailboat_operator.kinds.workload_context import SecretFound, WorkloadContext
from mailboat_operator.plan.actions import Apply, Correct, Delete, Deregister, RecordEvent
from mailboat_operator.plan.child_manifest import ChildKey, key_of
from mailboat_operator.plan.children import correction_report
from mailboat_operator.workload.fleet import FOLLOW_SECONDS, coarse, pause_before_asking
from mailboat_operator.workload.pods import AgentImage

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SPEC: dict[str, Any] = {"journalRef": {"name": "main"}, "replicas": 3, "target": {"files": {"volume": {"size": "5Gi"}}}}


def stored(kind: str, name: str, spec: dict[str, Any], status: Any = None) -> Any:
    head = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1}
    manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": head, "spec": spec}
    return decode(manifest if status is None else {**manifest, "status": status})


JOURNAL = stored("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}})

PROMISED = {"resources": {"requests": {"cpu": "100m"}}}


def pool(status: Any = None, **spec: Any) -> Any:
    return stored("SubscriberPool", "edge", {**SPEC, **spec}, status)


def context(**changes: Any) -> WorkloadContext:
    return replace(WorkloadContext(JOURNAL, {}, {}, AgentImage("mailboat:1"), NOW), **changes)


def fleet(*members: SubscriberStatusView, publisher: str = "author") -> StatusView:
    return StatusView(JournalView("memory", 0, 100), (PublisherView(publisher, last_published_at=NOW),), members)


def member(number: int, lag: int = 0, **more: Any) -> SubscriberStatusView:
    return SubscriberStatusView(f"edge-{number}", "current", lag=lag, **{"ready": True, **more})


def workload(asked: int, pods: int, ready: int) -> dict[ChildKey, Any]:
    key = ChildKey("StatefulSet", "edge")
    metadata = {"ownerReferences": [{"uid": "uid-edge", "controller": True}]}
    return {
        key: {"metadata": metadata, "spec": {"replicas": asked}, "status": {"replicas": pods, "readyReplicas": ready}}
    }


def lagging(plan_or_health: Any) -> str:
    return next(str(finding.status) for finding in plan_or_health.findings if finding.type == "Lagging")


def status_after(fleet_seen: StatusView | None, before: Any = None, **spec: Any) -> Any:
    return plan_pool(pool(before, **spec), context(fleet=fleet_seen)).status


def test_lag_has_two_thresholds_so_that_it_does_not_flicker() -> None:
    lags = [0, 99, 100, 150, 60, 51, 50, 99, 100]
    said, status = [], None
    for lag in lags:
        status = status_after(fleet(member(0, lag), member(1), member(2)), status) or status
        said.append(next(condition["status"] for condition in status["conditions"] if condition["type"] == "Lagging"))
    assert said == ["False", "False", "True", "True", "True", "True", "False", "False", "True"]


def test_an_event_tells_when_lag_begins_and_when_it_ends() -> None:
    begins = plan_pool(pool(), context(fleet=fleet(member(0, 500))))
    reports = [action for action in begins.actions if isinstance(action, RecordEvent)]
    assert [report.reason for report in reports] == ["Lagging"]
    assert "More members do not help" in reports[0].message
    ends = plan_pool(pool(begins.status), context(fleet=fleet(member(0, 3))))
    assert [action.reason for action in ends.actions if isinstance(action, RecordEvent)] == ["NotLagging"]


def test_one_that_is_still_catching_up_does_not_make_the_pool_lag() -> None:
    health = health_of(pool(), fleet(member(0), member(1), member(2, 90_000, ready=False)))
    assert lagging(health) == "False"
    assert (health.caught_up, health.max_lag) == (2, 90_000)


def test_where_no_one_can_be_asked_what_was_known_stays() -> None:
    first = status_after(fleet(member(0, 500), member(1, attempts=3, error=CauseView("StorageFull", "full"))))
    later = status_after(None, first)
    for status in (first, later):
        assert (status["maxLag"], status["blocked"], status["lastError"]) == (500, 1, "edge-1: StorageFull: full")
        assert {condition["type"] for condition in status["conditions"] if condition["status"] == "True"} >= {
            "Lagging",
            "Blocked",
        }


@pytest.mark.parametrize(("minutes", "lag", "status"), [(4, 500, "True"), (5, None, "Unknown")])
def test_figures_go_when_no_publisher_is_ready_for_minutes(minutes: int, lag: int | None, status: str) -> None:
    first = status_after(fleet(member(0, 500), member(1, attempts=3, error=CauseView("StorageFull", "full"))))
    silent = context(unanswered_since=NOW - timedelta(minutes=minutes))
    found = plan_pool(pool(first), silent).status or first
    assert (found.get("maxLag"), found.get("blocked") is None) == (lag, lag is None)
    conditions = {condition["type"]: condition["status"] for condition in found["conditions"]}
    assert (conditions["Lagging"], conditions["Blocked"]) == (status, status)
    again = plan_pool(pool(found), silent).status
    assert again is None or again == found


@pytest.mark.parametrize(
    ("answer", "expected"), [(None, [2.0, 5.0, 25.0, FOLLOW_SECONDS]), (fleet(), [2.0, 10.0, *[FOLLOW_SECONDS] * 2])]
)
def test_figures_are_asked_for_soon_after_it_is_ready_and_less_and_less_often(
    answer: StatusView | None, expected: list[float]
) -> None:
    """A member of the same name elsewhere announces itself when it starts, and is found within seconds."""
    since, pauses = NOW - timedelta(seconds=50), (0, 10, 50, 3600)
    assert [pause_before_asking(answer, since, since + timedelta(seconds=pause)) for pause in pauses] == expected


def test_a_change_of_lag_within_a_step_writes_nothing() -> None:
    first = status_after(fleet(member(0, 1201)))
    assert first["maxLag"] == 1300
    assert status_after(fleet(member(0, 1299)), first) is None


@given(st.integers(0, 10**12))
@settings(deadline=None, max_examples=examples(200))
def test_a_coarse_lag_is_never_less_and_at_most_a_tenth_more(lag: int) -> None:
    found = coarse(lag)
    assert found is not None
    assert lag <= found <= lag * 1.1 + 1


@pytest.mark.parametrize(
    ("one", "is_blocked"),
    [
        (member(0, attempts=1, error=CauseView("StorageFull", "x")), False),
        (member(0, attempts=2, error=CauseView("StorageFull", "x")), False),
        (member(0, attempts=3, error=CauseView("StorageFull", "x")), True),
        (SubscriberStatusView("edge-0", "stopped", error=CauseView("JournalTrimmed", "x")), True),
        (SubscriberStatusView("edge-0", "stopped"), False),
    ],
)
def test_blocked_is_a_member_that_failed_three_times_or_stopped_in_a_named_state(
    one: SubscriberStatusView, is_blocked: bool
) -> None:
    found = health_of(pool(), fleet(one))
    assert found.blocked == int(is_blocked)
    assert [str(finding.status) for finding in found.findings if finding.type == "Blocked"] == [str(is_blocked)]


def test_two_pools_of_one_identity_are_told_so_and_nothing_is_made() -> None:
    plan = plan_pool(pool(), context(fleet=fleet(member(0), member(0, lag=3), member(1))))
    assert plan.status is not None
    assert plan.status["conditions"][0]["reason"] == "IdentityShared"
    assert not [action for action in plan.actions if isinstance(action, Apply)]


def test_a_member_whose_claim_was_replaced_is_no_second_one() -> None:
    gone = SubscriberStatusView("edge-0", "silent")
    assert shared_identity(pool(), fleet(gone, member(0))) is None


@pytest.mark.parametrize(
    ("asked", "pods", "ready", "next_count"),
    [(3, 3, 3, 3), (2, 2, 2, 3), (5, 5, 5, 4), (5, 6, 5, 5), (4, 4, 4, 3), (5, 5, 3, 5), (5, 5, 0, 4)],
)
def test_a_pool_shrinks_by_one_and_only_while_enough_others_serve(
    asked: int, pods: int, ready: int, next_count: int
) -> None:
    assert next_step(pool(), workload(asked, pods, ready), None).replicas == next_count


def test_a_member_that_does_not_serve_goes_whatever_the_others_do() -> None:
    seen = fleet(member(0), member(1), member(2, ready=False), member(3), member(4, ready=False))
    assert next_step(pool(), workload(5, 5, 3), seen).replicas == 4
    serving = fleet(member(0), member(3), member(4))
    step = next_step(pool(), workload(5, 5, 3), serving)
    assert step.replicas == 5
    assert step.findings is not None
    assert step.findings[0].reason == "ScaleDownWaits"


@given(st.integers(0, 6), st.integers(0, 12), st.data())
@settings(deadline=None, max_examples=examples(200))
def test_no_step_takes_more_than_one_or_leaves_fewer_than_wanted(wanted: int, current: int, data: Any) -> None:
    ready = data.draw(st.integers(0, current))
    step = next_step(pool(replicas=wanted), workload(current, current, ready), None)
    assert step.replicas >= wanted
    assert step.replicas >= current - 1
    if step.replicas < current:
        assert ready == 0 or ready - 1 >= wanted


def test_the_workload_is_asked_for_the_step_and_no_event_calls_it_drift() -> None:
    first = plan_pool(pool(replicas=5), context())
    live = {key_of(action.manifest): action.manifest for action in first.actions if isinstance(action, Apply)}
    live[ChildKey("StatefulSet", "edge")] |= {"status": {"replicas": 5, "readyReplicas": 5}}
    live[ChildKey("Secret", "edge-token")] = {**live[ChildKey("ConfigMap", "edge-config")], "kind": "Secret"}
    plan = plan_pool(pool(replicas=3), context(children=live))
    applied = [action.manifest for action in plan.actions if isinstance(action, Apply)]
    assert [(item["kind"], item["spec"]["replicas"]) for item in applied] == [("StatefulSet", 4)]
    assert not [action for action in plan.actions if isinstance(action, RecordEvent)]
    assert plan.status is not None
    assert plan.status["conditions"][0]["reason"] == "ScalingDown"


def test_pods_that_another_client_added_go_at_once_and_an_event_says_so() -> None:
    first = plan_pool(pool(), context())
    live = {key_of(action.manifest): action.manifest for action in first.actions if isinstance(action, Apply)}
    found = live[ChildKey("StatefulSet", "edge")]
    live[ChildKey("StatefulSet", "edge")] = {**found, "spec": {**found["spec"], "replicas": 9}}
    plan = plan_pool(pool(), context(children=live))
    [corrected] = [action for action in plan.actions if isinstance(action, Correct)]
    assert (corrected.difference, corrected.manifest["spec"]["replicas"]) == (".spec.replicas", 3)
    assert correction_report(corrected, corrected.manifest).reason == "DriftCorrected"


def test_children_of_a_pool_that_was_deleted_and_made_again_are_waited_for() -> None:
    first = plan_pool(pool(), context())
    live = {key_of(action.manifest): action.manifest for action in first.actions if isinstance(action, Apply)}
    renewed = replace(pool(), metadata=replace(pool().metadata, uid="uid-new"))
    plan = plan_pool(renewed, context(children=live))
    assert plan.status is not None
    found, text = plan.status["conditions"], "waits for the deletion of ConfigMap edge-config, of an earlier"
    assert [(item["status"], item["reason"]) for item in found[:2]] == [("False", "FormerChildExists"), ("True", ANY)]
    assert found[0]["message"] == f"{text} SubscriberPool of this name"
    assert plan.actions == ()


def test_a_field_that_a_webhook_changes_again_is_not_called_corrected() -> None:
    first = plan_pool(pool(), context())
    live = {key_of(action.manifest): action.manifest for action in first.actions if isinstance(action, Apply)}
    found = live[ChildKey("StatefulSet", "edge")]
    mirrored = copy.deepcopy(found)
    mirrored["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example/mailboat:1"
    plan = plan_pool(pool(), context(children={**live, ChildKey("StatefulSet", "edge"): mirrored}))
    [corrected] = [action for action in plan.actions if isinstance(action, Correct)]
    report = correction_report(corrected, mirrored)
    place = ".spec.template.spec.containers[mailboat].image"
    assert (report.reason, report.message) == (
        "DriftRemains",
        f"StatefulSet edge: {place} is changed when it is applied; exclude it from that admission webhook",
    )


def test_members_are_forgotten_once_they_are_scaled_away_and_their_pods_gone() -> None:
    gone = [SubscriberStatusView(f"edge-{n}", state) for n, state in [(2, "stopped"), (3, "stopped"), (4, "silent")]]
    running = SubscriberStatusView("edge-5", "current", ready=True)
    seen = fleet(
        member(0),
        member(1),
        *gone,
        running,
        *(SubscriberStatusView(name, "stopped") for name in ("edge-x", "other-9")),
    )
    had_five = pool({"mostReplicas": 5})
    assert departed(had_five, workload(3, 3, 3), seen) == ["edge-3", "edge-4"]
    assert departed(had_five, workload(3, 4, 3), seen) == ["edge-4"]
    assert departed(had_five, workload(3, 3, 3), None) == ()
    assert departed(pool({"mostReplicas": 4}), workload(3, 3, 3), seen) == ["edge-3"]
    assert departed(pool(), workload(3, 3, 3), seen) == []


def test_a_ready_member_that_is_to_go_does_not_count_as_caught_up() -> None:
    status = plan_pool(pool(), context(children=workload(5, 5, 4), fleet=fleet(member(0, ready=False)))).status
    assert status is not None
    assert status["caughtUpReplicas"] == 2
    found = next(condition for condition in status["conditions"] if condition["type"] == "CaughtUp")
    assert (found["status"], found["message"]) == ("False", "2 of 3 members")


def test_no_member_of_a_pool_of_the_same_name_elsewhere_is_deregistered() -> None:
    """Of two pools `edge` on one journal this one had five members; `edge-3` restarts, and is the other's."""
    had_five, restarting = pool({"mostReplicas": 5}), SubscriberStatusView("edge-3", "stopped")
    assert departed(had_five, workload(3, 3, 3), fleet(member(0), restarting)) == ["edge-3"]
    assert departed(had_five, workload(3, 3, 3), fleet(member(0), member(0), restarting)) == ()
    known = known_pools((), [had_five], fleet(member(0)))
    assert left_behind(known, [], fleet(member(0), restarting)) == []
    assert left_behind(known, [], fleet(SubscriberStatusView("edge-0", "silent"), restarting)) == ["edge-0", "edge-3"]


def test_a_deleted_pool_stays_known_among_more_pools_than_a_status_lists() -> None:
    existing = [stored("SubscriberPool", f"a{number:03}", SPEC) for number in range(100)]
    silent = SubscriberStatusView("edge-0", "silent")
    known = known_pools([KnownPool("edge", 3)], existing, fleet(silent))
    assert len(known) == 100
    assert left_behind(known, [pool.metadata.name for pool in existing], fleet(silent)) == ["edge-0"]


def test_members_of_a_pool_that_can_no_longer_be_decoded_stay_registered() -> None:
    """A stricter version deletes no pool: a member that restarts would be deregistered, and its packages removed."""
    found = stored("Publisher", "author", {"journalRef": {"name": "main"}})
    found = replace(found, status=replace(found.status, pools=(KnownPool("edge", 1),)))
    restarting = fleet(SubscriberStatusView("edge-0", "stopped"))
    for undecodable, expected in ((frozenset[str](), ["edge-0"]), (frozenset({"edge"}), [])):
        around = replace(context(fleet=restarting), answering=[found], undecodable_pools=undecodable)
        plan = plan_publisher(found, around)
        assert [action.member for action in plan.actions if isinstance(action, Deregister)] == expected
        assert plan.status is not None
        assert [pool["name"] for pool in plan.status["pools"]] == ["edge"]


def test_a_pool_that_can_no_longer_be_decoded_is_told_from_a_deleted_one() -> None:
    class Cluster:
        async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
            spec = {**SPEC, **({"former": True} if name == "stricter" else {})}
            metadata = {"name": name, "namespace": namespace, "uid": name}
            made = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
            return None if name == "deleted" else made

    parts: list[Any] = [Cluster(), None, None, None, None]
    reader = ClusterReader(*parts)

    async def read() -> list[bool]:
        return [
            await reader.is_undecodable("shop", "SubscriberPool", name) for name in ("deleted", "elsewhere", "stricter")
        ]

    assert asyncio.run(read()) == [False, False, True]


def test_how_many_members_there_ever_were_is_kept() -> None:
    status = plan_pool(pool(), context(children=workload(5, 4, 4))).status
    assert status is not None
    assert status["mostReplicas"] == 5
    later = plan_pool(pool(status), context(children=workload(3, 3, 3))).status
    assert later is not None
    assert later["mostReplicas"] == 5


def autoscaler_of(has_keda: bool, **autoscaling: Any) -> Any:
    wanted = pool(autoscaling={"maxReplicas": 9, **autoscaling}, **PROMISED)
    plan = plan_pool(wanted, context(has_keda=has_keda))
    kinds = {"HorizontalPodAutoscaler", "ScaledObject"}
    return plan, next(
        (action.manifest for action in plan.actions if isinstance(action, Apply) and action.manifest["kind"] in kinds),
        None,
    )


@pytest.mark.parametrize(
    ("has_keda", "said", "kind"),
    [
        (False, {"cpuPercent": 70}, "HorizontalPodAutoscaler"),
        (True, {"cpuPercent": 70}, "ScaledObject"),
        (True, {"requestsPerSecond": 70}, "HorizontalPodAutoscaler"),
        (True, {"external": {"name": "orders", "targetAverageValue": 5}}, "HorizontalPodAutoscaler"),
        (True, {"trigger": {"type": "cron", "metadata": {"start": "0 8 * * *"}}}, "ScaledObject"),
    ],
)
def test_what_scales_a_pool(has_keda: bool, said: dict[str, Any], kind: str) -> None:
    _, made = autoscaler_of(has_keda, **said)
    assert made["kind"] == kind
    assert made["spec"]["scaleTargetRef"] == {
        "apiVersion": "mailboat.dev/v1alpha1",
        "kind": "SubscriberPool",
        "name": "edge",
    }
    behavior = (made["spec"].get("advanced") or {}).get("horizontalPodAutoscalerConfig", made["spec"])["behavior"]
    assert behavior["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]


def test_an_unknown_metric_of_a_trigger_takes_no_one_away() -> None:
    _, made = autoscaler_of(True, minReplicas=2, trigger={"type": "prometheus", "authenticationRef": {"name": "auth"}})
    assert made["spec"]["fallback"] == {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"}
    assert made["spec"]["triggers"] == [{"type": "prometheus", "metadata": {}, "authenticationRef": {"name": "auth"}}]


def test_a_trigger_without_keda_is_told_and_the_members_are_made_all_the_same() -> None:
    plan, made = autoscaler_of(False, trigger={"type": "cron"})
    assert made is None
    assert plan.status["conditions"][0]["reason"] == "KedaMissing"
    assert [action for action in plan.actions if isinstance(action, Apply) and action.manifest["kind"] == "StatefulSet"]


def test_when_keda_comes_the_old_autoscaler_goes_first() -> None:
    plan, made = autoscaler_of(False, cpuPercent=70)
    live = {key_of(made): {**made, "metadata": {**made["metadata"], "uid": "uid-autoscaler"}}}
    wanted = pool(autoscaling={"maxReplicas": 9, "cpuPercent": 70}, **PROMISED)
    changed = plan_pool(wanted, context(has_keda=True, children=live))
    kinds = [
        action.key.kind if isinstance(action, Delete) else action.manifest["kind"]
        for action in changed.actions
        if isinstance(action, Delete | Apply)
    ]
    assert kinds.index("HorizontalPodAutoscaler") < kinds.index("ScaledObject")
    assert plan.status is not None


def pod_of(plan: Any) -> Any:
    found = next(
        action.manifest
        for action in plan.actions
        if isinstance(action, Apply) and action.manifest["kind"] == "StatefulSet"
    )
    return found["spec"]["template"]["spec"]


def test_a_seeded_member_restores_before_its_agent_starts() -> None:
    (init,) = pod_of(plan_pool(pool(seed={"snapshot": "edge"}), context()))["initContainers"]
    assert init["args"][:6] == [
        "content",
        "restore",
        "blob:edge",
        "--into",
        "files:/var/lib/mailboat/content",
        "--seed",
    ]
    assert init["securityContext"]["readOnlyRootFilesystem"] is True
    assert "initContainers" not in pod_of(plan_pool(pool(), context()))


def test_containers_of_the_template_outlive_the_pods_place_in_the_service() -> None:
    template = {"spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    pod = pod_of(plan_pool(pool(template=template, drain="7s"), context()))
    assert pod["containers"][1]["lifecycle"] == {"preStop": {"sleep": {"seconds": 7}}}
    assert pod["terminationGracePeriodSeconds"] == 52
    assert "lifecycle" not in pod["containers"][0]
    assert "lifecycle" not in pod_of(plan_pool(pool(template=template, drain="0s"), context()))["containers"][1]


def config_of(plan: Any) -> str:
    found = next(
        action.manifest
        for action in plan.actions
        if isinstance(action, Apply) and action.manifest["kind"] == "ConfigMap"
    )
    return str(found["data"]["mailboat.yaml"])


def test_what_a_publisher_may_be_told_reaches_its_agent() -> None:
    spec = {
        "journalRef": {"name": "main"},
        "filevaultName": "journal",
        "limits": {"maxEntries": 10, "maxTotalSize": "1Gi"},
        "throttle": {"enabled": False},
        "events": {
            "silent": "1m",
            "webhooks": [
                {"name": "crm", "url": "https://hooks.example/", "tokenSecretRef": {"name": "hook"}},
                {
                    "name": "chat",
                    "urlSecretRef": {"name": "chat"},
                    "format": "slack",
                    "filter": {"severity": "warning"},
                },
            ],
            "relay": {"host": "smtp.example", "sender": "a@example.org", "credentialsSecretRef": {"name": "smtp"}},
            "mails": [{"name": "ops", "to": ["ops@example.org"], "filter": {"subscribers": ["edge-*"]}}],
        },
    }
    author = stored("Publisher", "author", spec)
    waiting = plan_publisher(author, context())
    assert waiting.status is not None
    assert waiting.status["conditions"][0]["message"] == "missing: Secret hook, Secret chat, Secret smtp"
    secrets = {"hook": SecretFound("1", frozenset({"token"})), "chat": SecretFound("1", frozenset({"url"}))}
    secrets["smtp"] = SecretFound("1", frozenset({"username", "password"}))
    made = plan_publisher(author, context(secrets=secrets))
    text = config_of(made)
    for part in (
        "/run/mailboat/webhookurl-chat/url",
        '"format": "slack"',
        '"severity": "warning"',
        "/run/mailboat/relay-login/username",
        "edge-*",
    ):
        assert part in text
    for part in ('"filevault_name": "journal"', '"max_entries": 10', '"max_total_bytes": 1073741824'):
        assert part in text
    for part in ('"max_queue_entries": null', '"silent_seconds": 60', "/run/mailboat/webhook-crm/token"):
        assert part in text


def test_the_figures_of_a_publisher_are_those_of_who_follows_it() -> None:
    author = stored("Publisher", "author", {"journalRef": {"name": "main"}})
    seen = fleet(member(0, 3), member(0, 2), replace(member(1, 40), follow=("other",)))
    status = plan_publisher(author, context(fleet=seen)).status
    assert status is not None
    assert (status["nextOffset"], status["subscribers"], status["maxLag"]) == (100, 1, 3)
    assert status["lastPublishedAt"] == "2026-11-21T12:00:00Z"


@pytest.mark.parametrize("expose", ["package", "build"])
def test_members_show_builds_as_a_whole_where_the_pool_says_so(expose: str) -> None:
    said = pool(expose=expose, target={"generations": {"volume": {"size": "5Gi"}}})
    assert pool_config(said, JOURNAL.spec).subscriber.expose == expose


def test_roots_of_a_pool_are_those_of_its_members() -> None:
    (member,) = pool_config(pool(roots=["/site/de", "/shared"]), JOURNAL.spec).agents.subscribers
    assert member.roots == ("/site/de", "/shared")
    with pytest.raises(ResourceInvalidError, match="roots can't have empty names"):
        pool(roots=["/site/../etc"])


def test_a_target_that_shows_every_package_refuses_to_show_builds_as_a_whole() -> None:
    with pytest.raises(ResourceInvalidError, match="expose build requires the target generations"):
        pool(expose="build")


AUTOSCALED = {"autoscaling": {"maxReplicas": 9, "cpuPercent": 70}, **PROMISED}


def condition_of(plan: Any, kind: str) -> Any:
    return next((condition for condition in plan.status["conditions"] if condition["type"] == kind), None)


def autoscaled(kind: str, *conditions: dict[str, str]) -> Any:
    live = {ChildKey(kind, "edge"): {"metadata": {"uid": "u"}, "status": {"conditions": list(conditions)}}}
    return plan_pool(pool(**AUTOSCALED), context(children=live))


@pytest.mark.parametrize(
    ("kind", "conditions", "status", "reason"),
    [
        ("HorizontalPodAutoscaler", [("AbleToScale", "True", "A"), ("ScalingActive", "False", "B")], "False", "B"),
        ("HorizontalPodAutoscaler", [("ScalingActive", "False", "ScalingDisabled")], "True", "Working"),
        ("HorizontalPodAutoscaler", [("ScalingLimited", "False", "Desired")], "True", "Working"),
        ("HorizontalPodAutoscaler", [], "Unknown", "NotReportedYet"),
        ("ScaledObject", [("Ready", "False", "Check"), ("Active", "False", "Idle")], "False", "Check"),
        ("ScaledObject", [("Ready", "False", "not a reason")], "False", "Unknown"),
        ("ScaledObject", [("Ready", "True", "A"), ("Fallback", "True", "FallbackExists")], "False", "FallbackExists"),
        ("ScaledObject", [("Fallback", "False", "B"), ("Paused", "True", "Paused")], "False", "Paused"),
        (
            "ScaledObject",
            [("Ready", "True", "A"), ("Fallback", "False", "B"), ("Paused", "Unknown", "C")],
            "True",
            "Working",
        ),
    ],
)
def test_trouble_of_an_autoscaler_is_a_condition_of_the_pool(
    kind: str, conditions: Any, status: str, reason: str
) -> None:
    said = [{"type": one, "status": two, "reason": three, "message": "no scaler"} for one, two, three in conditions]
    plan = autoscaled(kind, *said)
    found = condition_of(plan, "AutoscalerReady")
    assert (found["status"], found["reason"]) == (status, reason)
    reports = [action.reason for action in plan.actions if isinstance(action, RecordEvent)]
    assert (reason in reports) is (status == "False")
    if status == "False":
        assert found["message"] == f"{kind} edge: no scaler"


def test_a_pool_without_autoscaling_has_no_condition_of_it() -> None:
    plan = plan_pool(pool(), context())
    assert (condition_of(plan, "AutoscalerReady"), condition_of(plan, "PublishersFound")) == (None, None)


@pytest.mark.parametrize(
    ("known", "seen", "status"),
    [
        ({"nobody"}, None, "True"),
        (set(), fleet(publisher="nobody"), "True"),
        (set(), fleet(publisher="author"), "False"),
        (set(), None, "Unknown"),
    ],
)
def test_a_pool_says_that_a_publisher_it_follows_does_not_exist(known: Any, seen: Any, status: str) -> None:
    plan = plan_pool(pool(publishers=["nobody"]), context(publishers=frozenset(known), fleet=seen))
    found = condition_of(plan, "PublishersFound")
    assert (found["status"], found["message"].startswith("nobody: no such Publisher")) == (status, status != "True")
    again = plan_pool(pool(plan.status, publishers=["nobody"]), context(publishers=frozenset(known), fleet=seen))
    assert "PublisherMissing" not in [action.reason for action in again.actions if isinstance(action, RecordEvent)]


def test_a_seed_without_a_bucket_is_stalled_and_the_members_are_made_all_the_same() -> None:
    plan = plan_pool(pool(seed={"snapshot": "edge"}), context())
    assert (condition_of(plan, "Stalled")["status"], condition_of(plan, "Ready")["reason"]) == ("True", "BucketMissing")
    assert pod_of(plan)
