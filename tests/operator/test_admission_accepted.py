"""What is accepted: defaults are filled in, transitions that would lose something are refused, scaling works."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from mailboat_operator.definition.conditions import Condition, ConditionStatus
from mailboat_operator.definition.encoder import encode
from mailboat_operator.definition.resource_decoder import decode_as
from mailboat_operator.kinds.distribution.spec import DistributionState, DistributionStatus, PoolProgress
from mailboat_operator.kinds.job_queue.spec import JobQueueStatus
from mailboat_operator.kinds.job_schedule.spec import JobScheduleStatus
from mailboat_operator.kinds.journal.spec import JournalStatus
from mailboat_operator.kinds.package_build.spec import BuildPhase, PackageBuildStatus
from mailboat_operator.kinds.publisher.spec import PublisherStatus
from mailboat_operator.kinds.registry import KINDS, KINDS_BY_NAME, decode
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPoolStatus
from mailboat_operator.kinds.topic.spec import TopicStatus

NAMES = [kind.name for kind in KINDS]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
READY = Condition("Ready", ConditionStatus.TRUE, "Ready", "all is well", 1, NOW)
STATUSES = {
    "Journal": JournalStatus(1, (READY,), "cluster-1", 3, "5/5"),
    "Topic": TopicStatus(1, (READY,), "shop-package", "t0pic1d", 1, 3),
    "Publisher": PublisherStatus(1, (READY,), 1205, 5, 0, NOW, "http://author:8080"),
    "SubscriberPool": SubscriberPoolStatus(1, (READY,), 3, 3, 3, "mailboat.dev/pool=edge", 0, 0),
    "Distribution": DistributionStatus(
        1, (READY,), DistributionState.DISTRIBUTED, "dstrpck-1", 1204, "5/5", (PoolProgress("edge", 5, 5),), NOW, NOW
    ),
    "PackageBuild": PackageBuildStatus(
        1,
        (READY,),
        BuildPhase.RUNNING,
        "b-1",
        12,
        40,
        "12/40",
        2,
        NOW,
        "nightly-2",
        NOW,
        NOW,
        NOW,
        NOW,
        NOW,
        ("nightly-29395710",),
    ),
    "JobQueue": JobQueueStatus(1, (READY,), 1200, 900, 4, NOW, 5, 0, "0123456789abcdef", suspended=True),
    "JobSchedule": JobScheduleStatus(1, (READY,), NOW, "0123456789abcdef"),
}


@pytest.fixture
def stored(api_server: Any, namespace: str, manifest_of: Any) -> Any:
    """Stores a kind's manifest, after changes, and gives it back as it is stored."""

    def store(kind: str, change: Any = None, name: str | None = None) -> dict[str, Any]:
        answer = api_server.create(namespace, manifest_of(kind, change, name))
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    return store


@pytest.mark.parametrize("kind", NAMES)
def test_the_defaults_that_are_filled_in_are_those_of_the_records(kind: str, stored: Any, manifest_of: Any) -> None:
    written, made = manifest_of(kind), stored(kind)
    assert decode(made).spec == decode(written).spec
    assert made["spec"] != written["spec"]


@pytest.mark.parametrize("kind", NAMES)
def test_what_is_encoded_is_stored_and_read_back_the_same(kind: str, stored: Any, manifest_of: Any) -> None:
    wanted = decode(manifest_of(kind)).spec
    assert decode(stored(kind, encode(wanted))).spec == wanted


def test_the_defaults_of_a_journal_are_these(stored: Any) -> None:
    topics = stored("Journal")["spec"]["topics"]
    assert topics["reclaimPolicy"] == "Retain"
    assert topics["retention"] == {
        "time": "7d",
        "statusTime": "7d",
        "consumption": {"policy": "durable", "min": "1h", "max": "30d"},
    }


def test_the_defaults_of_a_pool_are_these(stored: Any) -> None:
    spec = stored("SubscriberPool", {"replicas": None})["spec"]
    assert spec["replicas"] == 1
    assert spec["delivery"] == "broadcast"
    assert spec["volumeRetention"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["retries"] == {"max": 10, "unlimited": False, "firstPause": "1s", "longestPause": "5m"}


def test_what_is_not_known_is_dropped_where_the_writer_does_not_ask_to_be_told(
    api_server: Any, namespace: str, manifest_of: Any
) -> None:
    smuggled = {"env": [{"name": "LD_PRELOAD"}], "journalRef": {"name": "main", "namespace": "kube-system"}}
    answer = api_server.create(namespace, manifest_of("Publisher", smuggled), is_strict=False)
    assert answer.status_code == 201
    assert "env" not in answer.json()["spec"]
    assert answer.json()["spec"]["journalRef"] == {"name": "main"}


@pytest.mark.parametrize("kind", NAMES)
def test_the_status_of_every_record_is_stored_whole(kind: str, stored: Any, api_server: Any, namespace: str) -> None:
    made = stored(kind)
    answer = api_server.replace(namespace, {**made, "status": encode(STATUSES[kind])}, part="/status")
    assert answer.status_code == 200, answer.text
    read: Any = decode_as(KINDS_BY_NAME[kind], answer.json())
    assert read.status == STATUSES[kind]
    assert read.metadata.generation == 1


UNCHANGEABLE = {
    "the journal of a topic": (
        "Topic",
        {},
        {"journalRef": {"name": "other"}},
        "spec.journalRef",
        "create another Topic",
    ),
    "the role of a topic": ("Topic", {}, {"role": "status"}, "spec.role", "create another Topic"),
    "the name of a topic": (
        "Topic",
        {"role": None, "topicName": "mine"},
        {"role": None, "topicName": "yours"},
        "spec.topicName",
        "messages stay in the topic of the old name",
    ),
    "a role instead of a name": (
        "Topic",
        {"role": None, "topicName": "mine"},
        {},
        "spec.topicName",
        "can't be changed",
    ),
    "fewer partitions": (
        "Topic",
        {"role": None, "topicName": "mine", "partitions": 3},
        {"role": None, "topicName": "mine", "partitions": 2},
        "spec.partitions",
        "never be fewer",
    ),
    "the prefix of a journal": (
        "Journal",
        {},
        {"topics": {"prefix": "other-"}},
        "spec.topics.prefix",
        "messages would stay",
    ),
    "names of single topics": (
        "Journal",
        {},
        {"topics": {"names": {"package": "mine"}}},
        "spec.topics.names",
        "messages would stay",
    ),
    "no prefix any more": ("Journal", {}, {"topics": {"prefix": None}}, "spec.topics.prefix", "messages would stay"),
    "the journal of a publisher": (
        "Publisher",
        {},
        {"journalRef": {"name": "other"}},
        "spec.journalRef",
        "another Publisher",
    ),
    "the storage class of a publisher": (
        "Publisher",
        {"volume": {"size": "1Gi", "storageClassName": "slow"}},
        {"volume": {"size": "1Gi", "storageClassName": "fast"}},
        "spec.volume.storageClassName",
        "a claim stays in its class",
    ),
    "the journal of a pool": (
        "SubscriberPool",
        {},
        {"journalRef": {"name": "other"}},
        "spec.journalRef",
        "create another SubscriberPool",
    ),
    "the storage class of a pool": (
        "SubscriberPool",
        {},
        {"target": {"generations": {"volume": {"storageClassName": "fast"}}}},
        "spec.target.generations.volume.storageClassName",
        "a claim stays in its class",
    ),
    "a smaller volume": (
        "SubscriberPool",
        {},
        {"target": {"generations": {"volume": {"size": "5000Mi"}}}},
        "spec.target.generations.volume.size",
        "volumes only grow",
    ),
    "the kind of target of a pool": (
        "SubscriberPool",
        {},
        {"target": {"generations": None, "files": {"volume": {"size": "5Gi"}}}},
        "spec.target",
        "can't be converted",
    ),
    "the paths of a distribution": (
        "Distribution",
        {},
        {"paths": [{"path": "/de"}]},
        "spec.paths",
        "has been requested",
    ),
    "the action of a distribution": (
        "Distribution",
        {"paths": [{"path": "/en"}]},
        {"paths": [{"path": "/en"}], "action": "Delete"},
        "spec.action",
        "has been requested",
    ),
    "the roots of a build that was asked for": (
        "PackageBuild",
        {"schedule": None},
        {"schedule": None, "roots": ["/fr"]},
        "spec.roots",
        "create another PackageBuild",
    ),
    "the engine of a build that was asked for": (
        "PackageBuild",
        {"schedule": None},
        {"schedule": None, "engine": "apache"},
        "spec.engine",
        "create another PackageBuild",
    ),
    "a build that gets a schedule later": (
        "PackageBuild",
        {"schedule": None},
        {},
        "spec.schedule",
        "create another PackageBuild",
    ),
    "the publisher of a queue": (
        "JobQueue",
        {},
        {"publisherRef": {"name": "other"}},
        "spec.publisherRef",
        "create another JobQueue",
    ),
    "the publisher of a distribution": (
        "Distribution",
        {},
        {"publisherRef": {"name": "other"}},
        "spec.publisherRef",
        "has been requested",
    ),
}
CHANGEABLE = {
    "the workers of a queue": ("JobQueue", {}, {"workers": None, "suspend": True}),
    "the time of a schedule of jobs": ("JobSchedule", {}, {"cron": None, "timeZone": None, "every": "1h"}),
    "more partitions": ("Topic", {"role": None, "topicName": "mine"}, {"partitions": 9}),
    "the retention of a journal": ("Journal", {}, {"topics": {"retention": {"time": "14d"}}}),
    "the password's Secret": ("Journal", {}, {"kafka": {"sasl": {"credentialsSecretRef": {"name": "new"}}}}),
    "the members of a pool": ("SubscriberPool", {}, {"replicas": 0}),
    "a larger volume, in another unit": (
        "SubscriberPool",
        {},
        {"target": {"generations": {"volume": {"size": "6G"}}}},
    ),
    "no autoscaling any more": ("SubscriberPool", {}, {"autoscaling": None}),
    "what a schedule builds from now on": ("PackageBuild", {}, {"roots": ["/fr"], "engine": "apache"}),
    "the time of a schedule": ("PackageBuild", {}, {"schedule": {"cron": "0 4 * * *"}}),
    "the executors of the next attempt": ("PackageBuild", {"schedule": None}, {"executors": {"instances": 9}}),
    "the time to live of a distribution": ("Distribution", {}, {"ttlSecondsAfterFinished": 60}),
}


@pytest.mark.parametrize("case", UNCHANGEABLE.values(), ids=UNCHANGEABLE)
def test_what_would_lose_something_can_not_be_changed(
    case: Any, stored: Any, manifest_of: Any, api_server: Any, namespace: str
) -> None:
    kind, before, after, field, reason = case
    made = stored(kind, before)
    answer = api_server.replace(namespace, {**made, "spec": manifest_of(kind, after)["spec"]})
    assert answer.status_code == 422
    assert field in answer.json()["message"]
    assert reason in answer.json()["message"]


@pytest.mark.parametrize("case", CHANGEABLE.values(), ids=CHANGEABLE)
def test_everything_else_can_be_changed(
    case: Any, stored: Any, manifest_of: Any, api_server: Any, namespace: str
) -> None:
    kind, before, change = case
    made = stored(kind, before)
    answer = api_server.replace(namespace, {**made, "spec": manifest_of(kind, {**before, **change})["spec"]})
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["generation"] == 2


def test_a_pool_scales_through_the_subresource_and_tells_autoscalers_its_selector(
    stored: Any, api_server: Any, namespace: str
) -> None:
    made = stored("SubscriberPool")
    api_server.replace(namespace, {**made, "status": encode(STATUSES["SubscriberPool"])}, part="/status")
    place = f"/apis/mailboat.dev/v1alpha1/namespaces/{namespace}/subscriberpools/edge/scale"
    scale = api_server.http.get(place).json()
    assert scale["status"] == {"replicas": 3, "selector": "mailboat.dev/pool=edge"}
    scale["spec"]["replicas"] = 8
    assert api_server.http.put(place, json=scale).json()["spec"]["replicas"] == 8
    scale["spec"]["replicas"] = 10**9
    assert api_server.http.put(place, json=scale).status_code in {409, 422}


TABLES = """\
NAME READY REASON TOPICS BROKERS AGE
journal.mailboat.dev/main True Ready 5/5 3 AGE
NAME READY REASON TOPIC PARTITIONS REPLICAS AGE
topic.mailboat.dev/main-package True Ready shop-package 1 3 AGE
NAME READY REASON NEXT SUBSCRIBERS MAX LAG LAST PUBLISHED AGE
publisher.mailboat.dev/author True Ready 1205 5 0 AGO AGE
NAME READY REASON DESIRED CAUGHT UP MAX LAG BLOCKED AGE
subscriberpool.mailboat.dev/edge True Ready 3 3 0 0 AGE
NAME ACTION STATE REASON DONE OFFSET AGE
distribution.mailboat.dev/release-42 Add Distributed Ready 5/5 1204 AGE
NAME PHASE REASON PACKAGES ATTEMPT AGE
packagebuild.mailboat.dev/nightly Running Ready 12/40 2 AGE
NAME READY REASON QUEUED ACTIVE OLDEST WORKERS GIVEN-UP AGE
jobqueue.mailboat.dev/cdn True Ready 1200 4 AGO 5 0 AGE
NAME READY REASON TOPIC CRON EVERY NEXT AGE
jobschedule.mailboat.dev/nightly True Ready report.build 0 3 * * * 2026-01-02T03:04:05Z AGE
"""


def test_one_command_lists_all_kinds_with_what_matters(stored: Any, api_server: Any, namespace: str) -> None:
    for kind in NAMES:
        made = copy.deepcopy(stored(kind))
        assert api_server.replace(namespace, {**made, "status": encode(STATUSES[kind])}, part="/status").is_success
    asked = api_server.kubectl("get", "mailboat", "--namespace", namespace)
    assert asked.returncode == 0, asked.stderr
    assert blocks(asked.stdout) == blocks(TABLES)


def blocks(text: str) -> list[list[str]]:
    """The tables of a listing, in any order, without widths and ages."""
    found = []
    for block in text.strip().replace("\nNAME", "\n\nNAME").split("\n\n"):
        rows = [row.split() for row in block.strip().splitlines() if row.strip()]
        found.append([rows[0], *([*row[:-1], "AGE"] for row in rows[1:])])
    for table in found:
        if "PUBLISHED" in table[0]:
            table[1][-2] = "AGO"
        if "OLDEST" in table[0]:
            table[1][table[0].index("OLDEST")] = "AGO"
    return sorted(" | ".join(" ".join(row) for row in table) for table in found)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_short_names_work_and_every_field_is_explained(kind: Any, api_server: Any, namespace: str) -> None:
    assert api_server.kubectl("get", kind.short_name, "--namespace", namespace).returncode == 0
    explained = api_server.kubectl("explain", f"{kind.name.lower()}.spec")
    assert explained.returncode == 0, explained.stderr
    assert "<no description>" not in explained.stdout


def test_waiting_for_a_condition_works(stored: Any, api_server: Any, namespace: str) -> None:
    made = stored("Distribution")
    status = {**encode(STATUSES["Distribution"]), "conditions": [encode(READY) | {"type": "Distributed"}]}
    assert api_server.replace(namespace, {**made, "status": status}, part="/status").is_success
    words = ("wait", "mbdist/release-42", "--for=condition=Distributed", "--timeout=120s", "--namespace", namespace)
    assert api_server.kubectl(*words).returncode == 0
