"""The pure decisions of the operator: conditions, comparison of manifests, who may lead, what is wanted of a topic."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st
from mailboat.config.topic_settings import JOB_TOPIC_SETTINGS, kafka_settings_of, settings_of
from mailboat.errors import (
    BrokersUnreachableError,
    ClusterConflictError,
    ClusterRefusedError,
    ClusterUnavailableError,
    MailboatError,
    OperatorDefectError,
    ResourceInvalidError,
    SecretMalformedError,
    SecretMissingError,
    UsageError,
)
from mailboat.model.messages import TopicRole
from mailboat_operator import brokers
from mailboat_operator.brokers import client_options, entry_of, word_of
from mailboat_operator.definition.amounts import (
    RETENTION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    writable_duration,
    writable_size,
)
from mailboat_operator.definition.conditions import Condition, ConditionStatus
from mailboat_operator.definition.encoder import encode
from mailboat_operator.kinds.journal.agent_config import agent_config
from mailboat_operator.kinds.journal.plan import BrokersFound, JournalObservation, plan_journal
from mailboat_operator.kinds.journal.spec import Kafka
from mailboat_operator.kinds.publisher.manifests import publisher_config
from mailboat_operator.kinds.publisher.plan import plan_publisher
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.topic.plan import plan_found, plan_topic_status, wanted_topic
from mailboat_operator.kinds.topic.spec import JournalRole
from mailboat_operator.kinds.workload_context import GoldenPool, SecretFound, WorkloadContext, is_checked
from mailboat_operator.lease import LeaseSettings, Sighting, may_take
from mailboat_operator.plan.actions import Apply, Configure, CreateTopic, Grow, Plan, RecordEvent, Severity, TopicFound
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.plan.children import Live, differing_field
from mailboat_operator.plan.findings import (
    Finding,
    conditions_after,
    plan_invalid,
    ready,
    stall_report,
    stalled,
    suspended,
    under_way,
)
from mailboat_operator.plan.labels import ACCEPTED_CLUSTER, ACCEPTED_TOPIC
from mailboat_operator.settings import read_settings
from mailboat_operator.workload.mounts import token_mount
from mailboat_operator.workload.pods import AgentImage, user_volume_name

NOW = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def made(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> Any:
    """An object as the API server would give it, read."""
    return decode(
        {
            "apiVersion": "mailboat.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1, **metadata},
            "spec": spec,
        }
    )


JOURNAL = made("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}, "topics": {"prefix": "shop-"}})
POOL_SPEC: dict[str, Any] = {
    "journalRef": {"name": "main"},
    "replicas": 2,
    "target": {"generations": {"volume": {"size": "5Gi"}}},
}


TWO_MOUNTS = [{"name": "x", "mountPath": "/a"}, {"name": "x", "mountPath": "/b", "subPath": "b"}]
TWO_PORTS = [{"containerPort": 80, "protocol": "TCP"}, {"name": "m", "containerPort": 90, "protocol": "TCP"}]


def context(**changes: Any) -> WorkloadContext:
    return replace(WorkloadContext(JOURNAL, {}, {}, AgentImage("mailboat:1"), NOW), **changes)


def applied(actions: Any, kind: str) -> list[dict[str, Any]]:
    return [action.manifest for action in actions if isinstance(action, Apply) and action.manifest["kind"] == kind]


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = conditions_after((), under_way("A", "one"), 1, NOW)
    second = conditions_after(first, under_way("B", "two"), 2, LATER)
    assert {item.last_transition_at for item in second} == {NOW.replace(microsecond=0)}
    third = conditions_after(second, ready("done"), 3, LATER)
    assert [item.last_transition_at.hour for item in third] == [13, 13, 12]


def test_the_same_findings_give_the_same_conditions() -> None:
    first = conditions_after((), stalled("A", "one"), 1, NOW)
    assert conditions_after(first, stalled("A", "one"), 1, LATER) == first


@pytest.mark.parametrize(
    ("findings", "holds"),
    [(ready("x"), "Ready"), (under_way("A", "x"), "Reconciling"), (stalled("A", "x"), "Stalled")],
)
def test_of_the_three_conditions_one_holds(findings: Any, holds: str) -> None:
    assert [finding.type for finding in findings if finding.status == "True"] == [holds]


@pytest.mark.parametrize(
    ("wanted", "found", "field"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, None),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 2]}}, None),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1]}}, ".a.b"),
        ({"a": [{"name": "x", "v": 1}]}, {"a": [{"name": "sidecar"}, {"name": "x", "v": 1}]}, None),
        ({"a": [{"name": "x", "v": 1}]}, {"a": [{"name": "x", "v": 2}]}, ".a[x].v"),
        ({"a": [{"name": "x", "v": 1}]}, {"a": [{"name": "y"}]}, ".a[x]"),
        ({"a": TWO_MOUNTS}, {"a": [*TWO_MOUNTS[::-1], {"name": "x", "mountPath": "/c"}]}, None),
        ({"a": TWO_MOUNTS}, {"a": [TWO_MOUNTS[0], {"name": "x", "mountPath": "/b"}]}, ".a[/b].subPath"),
        ({"a": TWO_MOUNTS[:1]}, {"a": [*TWO_MOUNTS[:1], {"name": "x", "mountPath": "/theirs"}]}, None),
        ({"a": TWO_PORTS}, {"a": [{**TWO_PORTS[1], "hostPort": 0}, TWO_PORTS[0]]}, None),
        ({"cpu": "0.5", "memory": "1024Mi"}, {"cpu": "500m", "memory": "1Gi"}, None),
        ({"cpu": "0.5"}, {"cpu": "501m"}, ".cpu"),
        ({"a": {}, "b": []}, {}, None),
    ],
)
def test_a_live_object_is_compared_by_what_was_asked_for(wanted: Any, found: Any, field: str | None) -> None:
    assert differing_field(wanted, found) == field


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_a_document_never_differs_from_itself(document: Any) -> None:
    assert differing_field(document, document) is None


@pytest.mark.parametrize(
    ("record", "age", "may"),
    [
        (None, 0, True),
        ({"holderIdentity": "me", "leaseDurationSeconds": 15}, 0, True),
        ({"holderIdentity": "", "leaseDurationSeconds": 15}, 0, True),
        ({"holderIdentity": "other", "leaseDurationSeconds": 15}, 14.9, False),
        ({"holderIdentity": "other", "leaseDurationSeconds": 15}, 15, True),
    ],
)
def test_a_lease_may_be_taken_when_it_is_ours_or_was_left(record: Any, age: float, may: bool) -> None:
    sighting = None if record is None else Sighting(record, "1.2.0", 100.0)
    assert may_take(sighting, LeaseSettings("here", "lease", "me", version="1.2.0"), 100.0 + age) is may


@pytest.mark.parametrize(
    ("holder", "theirs", "age", "may"),
    [
        ("", "1.10.0", 59, False),
        ("", "1.10.0", 60, True),
        ("other", "1.10.0", 74, False),
        ("other", "1.10.0", 75, True),
        ("", "1.9.0", 0, True),
        ("", "1.9.0rc1", 0, True),
        ("", "unknown", 0, True),
        ("me", "1.10.0", 0, True),
    ],
)
def test_after_a_newer_operator_an_older_one_waits_longer(holder: str, theirs: str, age: float, may: bool) -> None:
    sighting = Sighting({"holderIdentity": holder, "leaseDurationSeconds": 15}, theirs, 100.0)
    settings = LeaseSettings("here", "lease", "me", version="1.9.0", patience_seconds=60.0)
    assert may_take(sighting, settings, 100.0 + age) is may


def test_what_users_put_beside_an_agent_can_take_nothing_of_it() -> None:
    template = {
        "spec": {
            "containers": [
                {"name": "web", "image": "nginx", "volumeMounts": [{"name": "config", "mountPath": "/cache"}]}
            ],
            "volumes": [{"name": "config", "emptyDir": {}}],
        }
    }
    pool = made("SubscriberPool", "edge", {**POOL_SPEC, "template": template})
    (workload,) = applied(plan_pool(pool, context()).actions, "StatefulSet")
    spec = workload["spec"]["template"]["spec"]
    names = [volume["name"] for volume in spec["volumes"]]
    assert (len(names), names.count("u-config")) == (len(set(names)), 1)
    web = spec["containers"][1]
    assert web["volumeMounts"][0]["name"] == "u-config"
    assert web["volumeMounts"][1] == {
        "name": "content",
        "mountPath": "/content",
        "subPath": "content",
        "readOnly": True,
    }
    for container in spec["containers"]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert spec["automountServiceAccountToken"] is False


def pod_spec_of(resource: Any) -> Any:
    plan = plan_publisher(resource, context()) if hasattr(resource.spec, "source") else plan_pool(resource, context())
    (workload,) = applied(plan.actions, "StatefulSet")
    return workload["spec"]["template"]["spec"]


def test_an_object_has_an_image_and_a_service_account_of_its_own() -> None:
    own = {"image": "registry.example/mailboat:2", "serviceAccountName": "cloud"}
    for resource in (
        made("SubscriberPool", "edge", {**POOL_SPEC, **own}),
        made("Publisher", "author", {"journalRef": {"name": "main"}, **own}),
    ):
        spec = pod_spec_of(resource)
        assert spec["containers"][0]["image"] == "registry.example/mailboat:2"
        assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("cloud", False)
    assert "serviceAccountName" not in pod_spec_of(made("SubscriberPool", "edge", POOL_SPEC))


def test_members_of_a_pool_go_to_different_nodes_if_there_are_enough() -> None:
    (constraint,) = pod_spec_of(made("SubscriberPool", "edge", POOL_SPEC))["topologySpreadConstraints"]
    assert (constraint["topologyKey"], constraint["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert constraint["labelSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "edge"


@pytest.mark.parametrize(
    ("said", "resources"),
    [
        ({}, {"requests": {"cpu": "20m", "memory": "128Mi"}}),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1Gi"}}),
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1"}}),
    ],
)
def test_no_pod_is_best_effort(said: Any, resources: Any) -> None:
    found = pod_spec_of(made("SubscriberPool", "edge", {**POOL_SPEC, "resources": said}))
    assert found["containers"][0]["resources"] == resources


@given(st.text("abc-", min_size=1, max_size=63))
def test_the_name_of_a_users_volume_fits(name: str) -> None:
    assert len(user_volume_name(name)) <= 63


def test_a_members_name_is_its_pods_name() -> None:
    (workload,) = applied(plan_pool(made("SubscriberPool", "edge", POOL_SPEC), context()).actions, "StatefulSet")
    agent = workload["spec"]["template"]["spec"]["containers"][0]
    assert agent["args"][-2:] == ["--subscriber", "$(POD_NAME)"]
    assert workload["spec"]["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}


@pytest.mark.parametrize(
    ("pools", "reason"),
    [
        ({}, "StagingMissing"),
        ({"gold": GoldenPool(is_editable=False, waits_for=None)}, "StagingNotEditable"),
        ({"gold": GoldenPool(is_editable=True, waits_for="edge")}, "StagingCycle"),
        ({"gold": GoldenPool(is_editable=True, waits_for=None)}, "PodsNotReady"),
    ],
)
def test_a_pool_waits_only_for_one_that_can_be_waited_for(pools: Any, reason: str) -> None:
    pool = made("SubscriberPool", "edge", {**POOL_SPEC, "staging": {"waitFor": {"name": "gold"}}})
    plan = plan_pool(pool, context(staging=pools))
    assert plan.status is not None
    assert plan.status["conditions"][0]["reason"] == reason
    assert bool(plan.actions) is (reason == "PodsNotReady")


def test_what_is_being_deleted_needs_nothing() -> None:
    stamp = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
    pool = made("SubscriberPool", "edge", POOL_SPEC, **stamp)
    publisher = made("Publisher", "author", {"journalRef": {"name": "main"}}, **stamp)
    for plan in (plan_pool(pool, context()), plan_publisher(publisher, context())):
        assert (plan.actions, plan.status) == ((), None)


def test_ready_is_said_when_all_pods_run_the_newest_revision() -> None:
    pool = made("SubscriberPool", "edge", POOL_SPEC)
    wanted = plan_pool(pool, context()).actions
    children = {}
    for item in wanted:
        manifest = item.manifest
        children[manifest["kind"], manifest["metadata"]["name"]] = manifest
    status = {"replicas": 2, "readyReplicas": 2, "observedGeneration": 1, "updateRevision": "b"}
    for current, reason in [("a", "RollingOut"), ("b", "AsSpecified")]:
        workload = {**children["StatefulSet", "edge"], "status": {**status, "currentRevision": current}}
        plan = plan_pool(pool, context(children={**children, ("StatefulSet", "edge"): workload}))
        assert plan.status is not None
        assert (plan.actions, plan.status["conditions"][0]["reason"]) == ((), reason)


@pytest.mark.parametrize(
    ("kind", "name", "spec", "plan_of", "count"),
    [
        ("SubscriberPool", "edge", POOL_SPEC, plan_pool, 2),
        ("Publisher", "author", {"journalRef": {"name": "main"}}, plan_publisher, 1),
    ],
)
def test_ready_is_not_said_of_pods_that_a_change_has_not_reached(
    kind: str, name: str, spec: dict[str, Any], plan_of: Any, count: int
) -> None:
    """`kubectl wait` reads what the look that applies the change writes: of this generation, and of the pods before."""
    made_first: list[Any] = [action.manifest for action in plan_of(made(kind, name, spec), context()).actions]
    children = {(item["kind"], item["metadata"]["name"]): item for item in made_first}
    revisions = {"observedGeneration": 1, "updateRevision": "b", "currentRevision": "b"}
    children["StatefulSet", name]["status"] = {"replicas": count, "readyReplicas": count, **revisions}
    for changes, reason in [({}, "AsSpecified"), ({"image": "registry.example/mailboat:2"}, "RollingOut")]:
        plan = plan_of(made(kind, name, {**spec, **changes}), context(children=children))
        assert (bool(applied(plan.actions, "StatefulSet")), ready_of(plan)[0]) == (bool(changes), reason)


def topic(**spec: Any) -> Any:
    return made("Topic", "orders", {"journalRef": {"name": "main"}, "topicName": "orders", **spec})


FOUND = TopicFound("id-1", 2, 1, {"retention.ms": "1000"})


@pytest.mark.parametrize(
    ("spec", "found", "kinds"),
    [
        ({"partitions": 2}, FOUND, []),
        ({"partitions": 5}, FOUND, [Grow]),
        ({"partitions": 2, "retention": {"time": "2s"}}, FOUND, [Configure]),
        ({"partitions": 2, "retention": {"time": "1s"}}, FOUND, []),
    ],
)
def test_a_topic_is_brought_to_what_its_spec_says(spec: Any, found: Any, kinds: list[type]) -> None:
    wish = topic(**spec)
    known = replace(wish, status=replace(wish.status, topic_id=found.topic_id))
    plan = plan_found(known, wanted_topic(wish, JOURNAL), found, NOW)
    assert [type(action) for action in plan.actions] == kinds


@pytest.mark.parametrize(
    ("spec", "reason"), [({}, "PartitionsTooMany"), ({"partitions": 2, "replicas": 3}, "ReplicasDiffer")]
)
def test_what_brokers_never_do_is_said(spec: Any, reason: str) -> None:
    wish = topic(**spec)
    known = replace(wish, status=replace(wish.status, topic_id="id-1"))
    plan = plan_found(known, wanted_topic(wish, JOURNAL), FOUND, NOW)
    assert plan.status is not None
    assert plan.status["conditions"][0]["reason"] == reason


def seen(brokers: BrokersFound, live: Live | None = None) -> JournalObservation:
    return JournalObservation(brokers, live or {}, (), NOW)


def journal_after(cluster_id: str | None, annotations: dict[str, str] | None = None, **topics: Any) -> Any:
    found = made("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}, "topics": topics})
    metadata = replace(found.metadata, annotations=annotations or {})
    return replace(found, metadata=metadata, status=replace(found.status, cluster_id=cluster_id))


def ready_of(plan: Any) -> tuple[str, str]:
    assert plan.status is not None
    found = plan.status["conditions"][0]
    return found["reason"], found["message"]


def test_a_journal_whose_brokers_became_another_cluster_changes_nothing() -> None:
    plan = plan_journal(journal_after("one"), seen(BrokersFound("two", 3)))
    reason, message = ready_of(plan)
    assert (plan.actions, reason) == ((), "ClusterReplaced")
    assert message.endswith(f"{ACCEPTED_CLUSTER}=two")
    assert plan.status is not None
    assert plan.status["clusterId"] == "one"


def test_another_cluster_is_used_once_the_annotation_of_the_message_names_its_id() -> None:
    replaced = plan_journal(journal_after("one"), seen(BrokersFound("two", 3)))
    name, _, cluster = ready_of(replaced)[1].rpartition("annotate this object with ")[2].partition("=")
    plan = plan_journal(journal_after("one", {name: cluster}), seen(BrokersFound("two", 3)))
    assert len(plan.actions) == len(JournalRole)
    assert plan.status is not None
    assert plan.status["clusterId"] == "two"


@pytest.mark.parametrize(("missing", "reason"), [((), "AsSpecified"), (("shop-package",), "TopicsMissing")])
def test_a_journal_that_does_not_manage_topics_creates_none(missing: tuple[str, ...], reason: str) -> None:
    plan = plan_journal(journal_after(None, manage=False), seen(BrokersFound("one", 3, missing), {}))
    assert (plan.actions, ready_of(plan)[0]) == ((), reason)
    assert plan.status is not None
    assert plan.status["topicsReady"] == f"{len(TopicRole) - len(missing)}/{len(TopicRole)}"


def topic_child(role: str, reason: str) -> Any:
    wish = made("Topic", f"main-{role}", {"journalRef": {"name": "main"}, "role": role})
    plan = plan_topic_status(wish, stalled(reason, f"{role} is not ours"), NOW)
    return {"metadata": {"ownerReferences": [{"controller": True, "uid": "uid-main"}]}, "status": plan.status}


def test_a_journal_says_what_its_topics_say() -> None:
    live = {ChildKey("Topic", "main-package"): topic_child("package", "TopicTaken")}
    reason, message = ready_of(plan_journal(journal_after(None), seen(BrokersFound("one", 3), live)))
    assert reason == "TopicTaken"
    assert message == "0 of 6 topics ready; main-package: TopicTaken: package is not ours"


def test_a_changed_journal_is_ready_when_its_topics_have_followed() -> None:
    def made_by(journal: Any, generation: int, live: Any) -> Any:
        """The Topics after the plan, each ready as its first spec says."""
        ready = {"type": "Ready", "status": "True", "reason": "AsSpecified", "message": "", "observedGeneration": 1}
        changed = applied(plan_journal(journal, seen(BrokersFound("one", 3), live)).actions, "Topic")
        metadata = {"generation": generation, "uid": "uid-topic"}
        return live | {
            ChildKey("Topic", item["metadata"]["name"]): {
                **item,
                "metadata": {**item["metadata"], **metadata},
                "status": {"conditions": [ready]},
            }
            for item in changed
        }

    def told(journal: Any, live: Any) -> tuple[str, str]:
        plan = plan_journal(journal, seen(BrokersFound("one", 3), live))
        assert plan.status is not None
        return ready_of(plan)[0], plan.status["topicsReady"]

    live = made_by(journal_after("one"), 1, {})
    assert told(journal_after("one"), live) == ("AsSpecified", "6/6")
    longer = journal_after("one", retention={"time": "14d"})
    assert told(longer, live) == ("TopicsNotReady", "5/6")
    live = made_by(longer, 2, live)
    assert told(longer, live) == ("TopicsNotReady", "5/6"), "the Topic was not reconciled since"
    live[ChildKey("Topic", "main-package")]["status"]["conditions"][0]["observedGeneration"] = 2
    assert told(longer, live) == ("AsSpecified", "6/6")


@pytest.mark.parametrize("reason", ["TopicTaken", "TopicExists", "ClusterReplaced"])
def test_no_agent_is_started_on_topics_that_are_not_the_journals(reason: str) -> None:
    journal = journal_after("one")
    conditions = conditions_after((), stalled(reason, "the topics are not ours"), 1, NOW)
    journal = replace(journal, status=replace(journal.status, conditions=conditions))
    publisher = made("Publisher", "author", {"journalRef": {"name": "main"}, "source": {"volumeClaim": {"name": "s"}}})
    plan = plan_publisher(publisher, context(journal=journal))
    assert (plan.actions, ready_of(plan)) == ((), (reason, "Journal main: the topics are not ours"))


def with_ready(wish: Any, reason: str) -> Any:
    ready = Condition("Ready", ConditionStatus.FALSE, reason, "", 1, NOW)
    return replace(wish, status=replace(wish.status, conditions=(ready,)))


def test_a_topic_is_created_after_the_status_says_so() -> None:
    """A crash between the creation and the status would else make a stranger of the topic."""
    wish = topic()
    first = plan_found(wish, wanted_topic(wish, JOURNAL), None, NOW)
    assert (first.actions, first.again_seconds) == ((), 0.0)
    assert first.status is not None
    assert first.status["conditions"][0]["reason"] == "TopicMade"
    second = plan_found(with_ready(wish, "TopicMade"), wanted_topic(wish, JOURNAL), None, NOW)
    assert [type(action) for action in second.actions] == [CreateTopic]


def test_a_topic_that_appears_while_it_is_being_created_is_this_objects() -> None:
    wish = topic(partitions=2)
    plan = plan_found(with_ready(wish, "TopicMade"), wanted_topic(wish, JOURNAL), FOUND, NOW)
    assert plan.status is not None
    assert plan.status["topicId"] == "id-1"


@pytest.mark.parametrize("annotation", ["", "id-2", "id-11", "id-1 "])
def test_a_topic_of_others_is_left_alone(annotation: str) -> None:
    wish = topic(partitions=5, retention={"time": "2s"}, reclaimPolicy="Delete")
    wish = replace(wish, metadata=replace(wish.metadata, annotations={ACCEPTED_TOPIC: annotation}))
    plan = plan_found(wish, wanted_topic(wish, JOURNAL), FOUND, NOW)
    assert [type(action) for action in plan.actions] == [RecordEvent]
    assert plan.status is not None
    assert plan.status["conditions"][0]["reason"] == "TopicExists"
    assert "topicId" not in plan.status
    assert plan.status["conditions"][0]["message"].endswith(f"{ACCEPTED_TOPIC}=id-1")


def test_a_topic_of_others_is_managed_once_an_annotation_names_its_id() -> None:
    wish = topic(partitions=5)
    wish = replace(wish, metadata=replace(wish.metadata, annotations={ACCEPTED_TOPIC: "id-0,id-1"}))
    plan = plan_found(wish, wanted_topic(wish, JOURNAL), FOUND, NOW)
    assert [type(action) for action in plan.actions] == [RecordEvent, Grow]
    assert plan.status is not None
    assert plan.status["topicId"] == "id-1"


@pytest.mark.parametrize("value", ["CANARY\nCANARY", "CANARY\x00", "CANARY\tX", " ", ""])
def test_a_credential_with_control_characters_is_refused_and_never_quoted(value: str) -> None:
    with pytest.raises(SecretMalformedError) as refused:
        word_of({"login": {"password": value}}, "login", "password")
    assert "entry password of Secret login" in str(refused.value)
    assert "CANARY" not in str(refused.value)


def test_the_line_end_that_echo_adds_is_no_part_of_a_credential() -> None:
    assert word_of({"login": {"password": "secret\r\n"}}, "login", "password") == "secret"


def test_an_empty_certificate_is_refused() -> None:
    """It would else count as none, and the machine's own authorities would be trusted."""
    with pytest.raises(SecretMalformedError, match="empty"):
        entry_of({"authority": {"ca.crt": "\n"}}, "authority", "ca.crt")


def test_a_topic_is_lost_only_when_brokers_miss_it_twice() -> None:
    """A broker that has just started may not know it yet; forgetting its id would make a stranger of the topic."""
    wish = replace(topic(), status=replace(topic().status, topic_id="id-1"))
    first = plan_found(wish, wanted_topic(wish, JOURNAL), None, NOW)
    assert (first.actions, first.again_seconds) == ((), pytest.approx(10.0, abs=1.0))
    assert first.status is not None
    assert (first.status["conditions"][0]["reason"], first.status["topicId"]) == ("TopicMissing", "id-1")
    assert first.status["missingSince"] == "2026-11-21T12:00:00Z"
    missing = with_ready(replace(wish, status=replace(wish.status, missing_since=NOW)), "TopicMissing")
    back = plan_found(missing, wanted_topic(wish, JOURNAL), FOUND, NOW)
    assert back.status is not None
    assert [action for action in back.actions if isinstance(action, RecordEvent)] == []
    assert "missingSince" not in back.status
    early = plan_found(missing, wanted_topic(wish, JOURNAL), None, NOW + timedelta(seconds=3))
    assert (early.actions, early.again_seconds) == ((), 7.0), "a resync, say, causes a reconciliation before that"
    second = plan_found(missing, wanted_topic(wish, JOURNAL), None, NOW + timedelta(seconds=10))
    assert [action.reason for action in second.actions if isinstance(action, RecordEvent)] == ["TopicLost"]
    assert second.status is not None
    assert "topicId" not in second.status


def test_a_topic_that_was_recreated_is_reported() -> None:
    wish = replace(topic(partitions=2), status=replace(topic().status, topic_id="id-0"))
    plan = plan_found(wish, wanted_topic(wish, JOURNAL), FOUND, NOW)
    assert [action.reason for action in plan.actions if isinstance(action, RecordEvent)] == ["TopicReplaced"]


def test_a_topic_of_a_role_has_the_journals_prefix() -> None:
    wish = made("Topic", "main-package", {"journalRef": {"name": "main"}, "role": "package"})
    assert wanted_topic(wish, JOURNAL).name == "shop-package"


def test_single_topics_have_their_own_names_on_the_brokers_and_for_agents() -> None:
    topics = {"prefix": "shop-", "names": {"package": "content.packages"}}
    journal = made("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}, "topics": topics})
    config = agent_config(journal.spec, token_mount("token")).journal
    for role, name in (("package", "content.packages"), ("status", "shop-status")):
        wish = made("Topic", f"main-{role}", {"journalRef": {"name": "main"}, "role": role})
        assert wanted_topic(wish, journal).name == config.topic_name(role) == name


def test_an_error_leaves_the_conditions_that_it_does_not_concern() -> None:
    """Without them the next look would report Lagging as news, and forget at which lag it ends."""
    lagging = conditions_after((), [*ready("x"), Finding("Lagging", ConditionStatus.TRUE, "TooFar", "")], 3, NOW)
    manifest: dict[str, Any] = {"metadata": {"generation": 4}, "status": {"conditions": [*map(encode, lagging)]}}
    plan = plan_invalid(manifest, UsageError("spec.x is odd"), LATER)
    assert plan.status is not None
    assert [condition["type"] for condition in plan.status["conditions"]] == [
        "Ready",
        "Reconciling",
        "Stalled",
        "Lagging",
    ]
    assert plan.status["conditions"][3] == encode(lagging[3])


def test_an_object_that_turns_stalled_is_reported_once_by_its_plan_or_in_general() -> None:
    manifest: dict[str, Any] = {"metadata": {"generation": 3}}
    plan = plan_invalid(manifest, UsageError("spec.x is odd"), NOW)
    assert stall_report(manifest, plan) == RecordEvent(Severity.WARNING, "Usage", "spec.x is odd")
    assert stall_report({**manifest, "status": plan.status}, plan) is None
    other = plan_invalid({**manifest, "status": plan.status}, ResourceInvalidError("spec.y is odd"), LATER)
    assert stall_report({**manifest, "status": plan.status}, other) is not None
    told = replace(plan, actions=(RecordEvent(Severity.WARNING, "Usage", "more of it"),))
    assert stall_report(manifest, told) is None
    assert stall_report(manifest, Plan((), None)) is None


def test_an_object_that_cannot_be_understood_is_told_so_once() -> None:
    manifest: dict[str, Any] = {"metadata": {"generation": 3}, "status": {"url": "kept"}}
    error = UsageError("spec.x is odd")
    first = plan_invalid(manifest, error, NOW)
    assert first.status is not None
    assert (first.status["url"], first.status["conditions"][0]["reason"]) == ("kept", "Usage")
    assert plan_invalid({**manifest, "status": first.status}, error, LATER).status is None
    torn = plan_invalid({**manifest, "status": {"conditions": [{"type": 7}]}}, error, NOW)
    assert torn.status is not None


def test_credentials_reach_the_client_as_texts() -> None:
    spec = {
        "bootstrapServers": ["kafka:9093"],
        "tls": {"caSecretRef": {"name": "ca"}, "certificateSecretRef": {"name": "me"}},
        "sasl": {
            "mechanism": "OAUTHBEARER",
            "credentialsSecretRef": {"name": "login"},
            "tokenUrl": "https://tokens/x",
            "scope": "kafka",
        },
    }
    kafka = made("Journal", "main", {"kafka": spec}).spec.kafka
    secrets = {
        "ca": {"ca.crt": "CA"},
        "me": {"tls.crt": "CRT", "tls.key": "KEY"},
        "login": {"username": "u", "password": "p"},
    }
    options = client_options(kafka, secrets)
    assert (options["security.protocol"], options["ssl.ca.pem"], options["ssl.key.pem"]) == ("SASL_SSL", "CA", "KEY")
    assert options["sasl.oauthbearer.client.secret"] == "p"
    with pytest.raises(SecretMissingError, match="missing: Secret ca"):
        client_options(kafka, {})


def test_settings_come_from_the_environment_and_name_what_is_wrong() -> None:
    prefix = "MAILBOAT_OPERATOR_"
    found = read_settings({f"{prefix}AGENT_IMAGE": "m:1", f"{prefix}NAMESPACES": "a, b", f"{prefix}WORKERS": "4"})
    assert (found.agent_image, found.namespaces, found.workers) == ("m:1", ("a", "b"), 4)
    assert found.broker_seconds == 8.0
    assert read_settings({f"{prefix}AGENT_IMAGE": "m:1", f"{prefix}BROKER_SECONDS": "30"}).broker_seconds == 30.0
    address = "https://{publisher}.{namespace}.example.com"
    assert (
        read_settings({f"{prefix}AGENT_IMAGE": "m:1", f"{prefix}DASHBOARD_AGENT_URL": f"{address}/"}).agent_url
        == address
    )
    for name, value, problem in [
        ("LEASE_SECONDS", "x", "must be a number"),
        ("LEASE_SECONDS", "1", "must be from 3 to"),
        ("LEASE_SECONDS", "nan", "must be from 3 to"),
        ("WORKERS", "inf", "must be from 1 to"),
        ("PORT", "65536", "must be from 0 to 65535"),
        ("LOG_LEVEL", "verbose", "must be one of DEBUG, INFO"),
        ("AGENT_INGRESS", "[]", "at least one NetworkPolicy peer"),
        ("DASHBOARD_AGENT_URL", "javascript:alert('{publisher}')", "must be an address"),
        ("DASHBOARD_AGENT_URL", "https://{name}.{publisher}.example.com", "must be an address"),
        ("DASHBOARD_AGENT_URL", "https://example.com/{publisher}", "without a path"),
        ("DASHBOARD_AGENT_URL", "https://example.com", "such as https://{publisher}"),
    ]:
        with pytest.raises(UsageError, match=problem):
            read_settings({f"{prefix}AGENT_IMAGE": "m:1", f"{prefix}{name}": value})


def test_the_roles_of_topics_are_those_of_packages_and_that_of_jobs() -> None:
    assert [str(role) for role in JournalRole] == [*map(str, TopicRole), "job"]


def test_the_topic_of_jobs_is_taken_over_from_the_agent_that_made_it_and_never_expires() -> None:
    wish = made("Topic", "main-job", {"journalRef": {"name": "main"}, "role": "job"})
    found = replace(FOUND, partitions=1)
    plan = plan_found(wish, wanted_topic(wish, JOURNAL), found, NOW)
    changes = [action.changes for action in plan.actions if isinstance(action, Configure)]
    assert changes == [{"retention.ms": "-1", "retention.bytes": "-1"}]
    assert plan.status is not None
    assert plan.status["topicId"] == FOUND.topic_id


PACKAGE_LIMITS = {"time": "7d", "size": "10Gi"}
BUCKET = {"s3": {"bucket": "shop-content"}}


def topics_of(spec: dict[str, Any], generation: int = 1) -> dict[JournalRole, Any]:
    """The Topics that a Journal makes, as the API server would give them, and the Journal."""
    journal = made("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}, **spec}, finalizers=[])
    plan = plan_journal(journal, seen(BrokersFound("one", 3)))
    found = [decode_child(manifest, generation) for manifest in applied(plan.actions, "Topic")]
    return {item.spec.role: (item, journal) for item in found}


def decode_child(manifest: dict[str, Any], generation: int) -> Any:
    metadata = {**manifest["metadata"], "namespace": "shop", "uid": "uid-topic", "generation": generation}
    return decode({**manifest, "metadata": metadata})


@pytest.mark.parametrize("blobs", [{}, {"blobs": BUCKET}])
@pytest.mark.parametrize("retention", [{}, PACKAGE_LIMITS, {"time": "90m", "statusTime": "1500ms", "size": "4999"}])
def test_the_topics_of_a_journal_are_kept_as_an_agent_of_a_publisher_makes_them(blobs: Any, retention: Any) -> None:
    topics = {"retention": retention, "replicas": 3, "minInsyncReplicas": 2}
    found = topics_of({**blobs, "topics": topics})
    assert found.keys() == set(JournalRole)
    for role, (child, journal) in found.items():
        config = publisher_config(made("Publisher", "author", {"journalRef": {"name": "main"}}), journal.spec)
        engine = JOB_TOPIC_SETTINGS if role is JournalRole.JOB else settings_of(TopicRole(role), config)
        assert wanted_topic(child, journal).config == kafka_settings_of(engine, 2), role


@pytest.mark.parametrize(
    ("blobs", "limits"),
    [({}, ("608400000", "13421772800")), ({"blobs": BUCKET}, ("604800000", "10737418240"))],
)
def test_brokers_come_after_the_agents_where_pieces_travel_in_the_journal(blobs: Any, limits: Any) -> None:
    found = topics_of({**blobs, "topics": {"retention": PACKAGE_LIMITS}})
    package, announcements, jobs = (
        wanted_topic(*found[role]).config for role in (JournalRole.PACKAGE, JournalRole.DISCOVERY, JournalRole.JOB)
    )
    assert (package["retention.ms"], package["retention.bytes"]) == limits
    assert (package["message.timestamp.type"], package["max.message.bytes"]) == ("LogAppendTime", "1016384")
    assert announcements["retention.bytes"] == str(64 * 1024 * 1024)
    assert (jobs["retention.ms"], jobs["retention.bytes"]) == ("-1", "-1")


@pytest.mark.parametrize(("role", "is_reported"), [(JournalRole.PACKAGE, False), (JournalRole.STATUS, True)])
def test_a_topic_of_an_earlier_operator_is_corrected_once(role: JournalRole, *, is_reported: bool) -> None:
    """The retention of packages is another one in the Topic's spec, so that it is no drift."""
    generation = 1 if is_reported else 2
    child, journal = topics_of({"topics": {"retention": PACKAGE_LIMITS}}, generation)[role]
    known = replace(child, status=replace(child.status, topic_id="id-1", observed_generation=1))
    wanted = wanted_topic(child, journal)
    before = TopicFound("id-1", 1, 1, {"retention.ms": "604800001", "retention.bytes": "10737418240"})
    actions = plan_found(known, wanted, before, NOW).actions
    assert actions[0] == Configure(wanted.name, wanted.config)
    assert [action.reason for action in actions if isinstance(action, RecordEvent)] == ["DriftCorrected"] * is_reported
    assert plan_found(known, wanted, replace(before, config=wanted.config), NOW).actions == ()


def test_other_configuration_of_a_journals_topic_is_as_its_spec_says() -> None:
    child, journal = topics_of({})[JournalRole.PACKAGE]
    own = replace(child, spec=replace(child.spec, config={"segment.bytes": "52428800", "min.compaction.lag.ms": "1"}))
    changes = {"segment.bytes": "52428800", "min.compaction.lag.ms": "1"}
    assert wanted_topic(own, journal).config == {**wanted_topic(child, journal).config, **changes}


@pytest.mark.parametrize("role", TopicRole)
def test_a_topic_that_no_journal_made_is_kept_as_its_own_spec_says(role: TopicRole) -> None:
    spec = {"retention": {"time": "2h"}, "config": {"segment.ms": "3600000"}}
    wish = made("Topic", f"own-{role}", {"journalRef": {"name": "main"}, "role": str(role), **spec})
    assert wanted_topic(wish, JOURNAL).config == {"segment.ms": "3600000", "retention.ms": "7200000"}


@given(st.integers(1_000, 9_999_999 * 86_400_000))
def test_a_duration_that_no_manifest_can_write_becomes_the_next_longer_one(milliseconds: int) -> None:
    found = writable_duration(milliseconds / 1000)
    text = format_duration(found)
    assert re.search(RETENTION_PATTERN, text)
    assert parse_duration(text) == found
    assert milliseconds / 1000 <= found <= milliseconds / 1000 * 1.001 + 0.001


@given(st.integers(1, 10**19))
def test_a_size_that_no_manifest_can_write_becomes_the_next_larger_one(size_bytes: int) -> None:
    found = writable_size(size_bytes)
    text = format_size(found)
    assert re.search(SIZE_PATTERN, text)
    assert parse_size(text) == found
    assert min(size_bytes, 999_999 << 40) <= found <= size_bytes * 1.001


def test_a_workload_of_another_owner_counts_for_nothing() -> None:
    pool = made("SubscriberPool", "edge", POOL_SPEC)
    foreign = {"metadata": {"name": "edge"}, "spec": {"replicas": 9}, "status": {"replicas": 9, "readyReplicas": 9}}
    plan = plan_pool(pool, context(children={ChildKey("StatefulSet", "edge"): foreign}))
    assert ready_of(plan)[0] == "NameTaken"
    assert plan.status is not None
    assert [plan.status[name] for name in ("replicas", "readyReplicas", "mostReplicas")] == [0, 0, 0]


def test_volumes_of_secrets_have_valid_names_whatever_tokens_and_webhooks_are_called() -> None:
    names = ["ci", "jane.doe", ".".join(["j" * 63] * 3)]
    tokens = [{"name": name, "secretRef": {"name": "callers"}} for name in names]
    hook = {"name": "w" * 63, "url": "https://example.org", "tokenSecretRef": {"name": "hook"}}
    spec = {"journalRef": {"name": "main"}, "http": {"tokens": tokens}, "events": {"webhooks": [hook]}}
    publisher = made("Publisher", "author", spec)
    secrets = {name: SecretFound("7", frozenset({"token"})) for name in ("callers", "hook")}
    (workload,) = applied(plan_publisher(publisher, context(secrets=secrets)).actions, "StatefulSet")
    volumes = [volume["name"] for volume in workload["spec"]["template"]["spec"]["volumes"]]
    assert [name for name in volumes if not re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)] == []
    assert (len({*volumes}), "http-ci" in volumes) == (len(volumes), True)
    mounts = workload["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    folders = [Path(token.token.file or "").parent for token in publisher_config(publisher, JOURNAL.spec).http.tokens]
    assert {*map(str, folders)} <= {mount["mountPath"] for mount in mounts}
    assert len({*folders}) == 1 + len(names)


@pytest.mark.parametrize(
    ("key", "wanted", "shown"),
    [
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("min.cleanable.dirty.ratio", "0.50", "0.5"),
        ("flush.ms", "0100", "100"),
        ("preallocate", "TRUE", "true"),
    ],
)
def test_a_value_that_brokers_show_in_another_form_is_no_drift(key: str, wanted: str, shown: str) -> None:
    wish = topic(partitions=2, config={key: wanted})
    known = replace(wish, status=replace(wish.status, topic_id=FOUND.topic_id, observed_generation=1))
    assert plan_found(known, wanted_topic(wish, JOURNAL), replace(FOUND, config={key: shown}), NOW).actions == ()
    changed = plan_found(known, wanted_topic(wish, JOURNAL), replace(FOUND, config={key: "1"}), NOW)
    assert [type(action) for action in changed.actions] == [Configure, RecordEvent]


def test_a_status_with_control_characters_from_outside_is_written_once() -> None:
    wish = topic()
    first = plan_topic_status(wish, stalled("BrokersRefused", "\x1b[31mno\x00\ud800"), NOW)
    assert first.status is not None
    metadata = {"name": "orders", "namespace": "shop", "uid": "uid-orders", "generation": 1}
    manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": "Topic", "metadata": metadata}
    spec = {"journalRef": {"name": "main"}, "topicName": "orders"}
    read: Any = decode({**manifest, "spec": spec, "status": dict(first.status)})
    again = plan_topic_status(read, stalled("BrokersRefused", "\x1b[31mno\x00\ud800"), LATER)
    assert (again.status, len(read.status.conditions)) == (None, 3)


@pytest.mark.parametrize(
    "error", [ClusterConflictError, ClusterRefusedError, ClusterUnavailableError, OperatorDefectError]
)
def test_a_journal_that_could_not_be_reconciled_is_not_checked(error: type[MailboatError]) -> None:
    plan = plan_invalid({"metadata": {"generation": 1}}, error("quota exceeded"), NOW)
    assert plan.status is not None
    manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": "Journal", "status": dict(plan.status)}
    metadata = {"name": "main", "namespace": "shop", "uid": "uid-main", "generation": 1}
    journal: Any = decode({**manifest, "metadata": metadata, "spec": {"kafka": {"bootstrapServers": ["kafka:9092"]}}})
    assert journal.status.conditions[0].reason == error("").name
    assert not is_checked(journal, has_agents=False)
    assert is_checked(journal, has_agents=True)


@pytest.mark.parametrize(
    ("topics", "checked"), [(None, False), ("0/6", False), ("5/6", False), ("6/6", True), ("5/5", True)]
)
def test_a_journal_that_was_suspended_before_its_topics_were_ready_is_not_checked(
    topics: str | None, *, checked: bool
) -> None:
    """As one that is restored paused: its topics may be another Journal's."""
    journal = journal_after("one")
    conditions = conditions_after((), suspended(suspend=True), 1, NOW)
    status = replace(journal.status, observed_generation=1, conditions=conditions, topics_ready=topics)
    journal = replace(journal, status=status)
    assert is_checked(journal, has_agents=False) is checked
    assert is_checked(journal, has_agents=True)


class FailingAdmin:
    """The client library: it gives a reason once, later only says that time is over. A client that failed is lost."""

    def __init__(self, options: dict[str, Any], outcomes: list[str]) -> None:
        self.note, self.outcomes, self.is_lost = options["error_cb"], outcomes, False

    def poll(self, _: float) -> None:
        if self.outcomes[:1] == ["refused"]:
            self.note(KafkaError(KafkaError._TRANSPORT, "connection refused"))

    def list_topics(self, *, timeout: float) -> Any:
        outcome = self.outcomes.pop(0)
        if outcome == "listed" and not self.is_lost:
            return SimpleNamespace(cluster_id="one", brokers=[1])
        self.is_lost = True
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer in {timeout:g} s"))


def test_a_failure_after_an_answer_does_not_repeat_the_reason_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokers, "AdminClient", partial(FailingAdmin, outcomes=["refused", "listed", "late"]))
    asked = brokers.Brokers(Kafka(bootstrap_servers=("kafka:9092",)), {}, 8.0)
    with pytest.raises(BrokersUnreachableError, match="connection refused"):
        asyncio.run(asked.cluster())
    assert asyncio.run(asked.cluster()).brokers == 1
    with pytest.raises(BrokersUnreachableError, match="no answer in 8 s"):
        asyncio.run(asked.cluster())
