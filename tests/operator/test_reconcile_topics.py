"""Journals and Topics on a real API server and a real broker."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from lightkube.config.kubeconfig import KubeConfig
from mailboat.config.topic_settings import JOB_TOPIC_SETTINGS, kafka_settings_of, settings_of
from mailboat.errors import ResourceInvalidError
from mailboat.model.messages import TopicRole
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat_operator.agent_client import Agents
from mailboat_operator.broker_connections import Connections
from mailboat_operator.cluster import Cluster
from mailboat_operator.kinds.journal.agent_config import topics_config
from mailboat_operator.kinds.registry import decode
from mailboat_operator.reconciliation import ObjectKey, Reconciler
from mailboat_operator.systems import Systems
from mailboat_operator.topic_claims import TopicClaims
from mailboat_operator.workload.pods import AgentImage
from support.operator_harbour import eventually

ROLES = ("package", "status", "discovery", "command", "event", "job")


class Bench:
    """A namespace whose Journal is on a real broker."""

    answer_seconds = PATIENCE_SECONDS

    def __init__(self, api_server: Any, namespace: str, servers: str) -> None:
        self.server, self.namespace = api_server, namespace
        self.prefix = f"{namespace}-"
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.writes: Counter[str] = Counter()
        self.make("Journal", "main", {"kafka": {"bootstrapServers": [servers]}, "topics": {"prefix": self.prefix}})

    def make(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = self.server.create(self.namespace, manifest)
        assert answer.status_code == 201, answer.text

    def url(self, kind: str, name: str) -> str:
        return f"/apis/mailboat.dev/v1alpha1/namespaces/{self.namespace}/{kind.lower()}s/{name}"

    def patch(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        self.server.http.patch(self.url(kind, name), json={"spec": spec}, headers=headers).raise_for_status()

    def patch_status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        url = f"{self.url(kind, name)}/status"
        self.server.http.patch(url, json={"status": status}, headers=headers).raise_for_status()

    def status(self, kind: str, name: str) -> dict[str, Any]:
        return dict(self.server.http.get(self.url(kind, name)).raise_for_status().json()["status"])

    def read(self, kind: str, name: str) -> Any:
        return decode(self.server.http.get(self.url(kind, name)).raise_for_status().json())

    def ready(self, kind: str, name: str) -> tuple[str, str]:
        found = self.status(kind, name)["conditions"][0]
        return found["status"], found["reason"]

    def reconcile(self, kind: str, name: str) -> int:
        """Looks until none is wanted at once; how many writes to the API that took."""

        async def step() -> None:
            cluster = Cluster(self._count, KubeConfig.from_file(self.server.kubeconfig))
            try:
                systems = Systems(Connections(answer_seconds=self.answer_seconds), self._claims())
                reconciler = Reconciler(cluster, Agents(), AgentImage("mailboat:test"), [].append, systems)
                while True:
                    outcome = await reconciler.reconcile(ObjectKey(kind, self.namespace, name))
                    if outcome.again_seconds != 0:
                        break
            finally:
                await cluster.close()

        before = self.writes.total()
        asyncio.run(step())
        return self.writes.total() - before

    def _claims(self) -> TopicClaims:
        claims = TopicClaims()
        for plural in ("journals", "topics"):
            for item in self.server.http.get(f"/apis/mailboat.dev/v1alpha1/{plural}").json()["items"]:
                claims.saw(item)
        return claims

    def _count(self, verb: str, kind: str) -> None:
        self.writes[f"{verb} {kind}"] += 1

    def config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (asked,) = self.admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in asked.result().items()}

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        (asked,) = self.admin.incremental_alter_configs([resource]).values()
        asked.result()
        eventually(lambda: self.config(topic)[name] == value)

    def delete(self, kind: str, name: str) -> None:
        self.server.http.delete(self.url(kind, name)).raise_for_status()

    def is_gone(self, kind: str, name: str) -> bool:
        return bool(self.server.http.get(self.url(kind, name)).status_code == 404)

    def has_topic(self, name: str) -> bool:
        """Brokers tell of a deleted topic for a moment, and of a new one, or of its configuration, a moment late."""
        return name in self.admin.list_topics(timeout=PATIENCE_SECONDS).topics

    def annotate(self, kind: str, name: str, annotations: dict[str, str]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        change = {"metadata": {"annotations": annotations}}
        self.server.http.patch(self.url(kind, name), json=change, headers=headers).raise_for_status()

    def admin_writes(self, topic: str, value: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        producer.produce(topic, value)
        producer.flush(PATIENCE_SECONDS)

    def records(self, topic: str) -> int:
        place = TopicPartition(topic, 0)
        (asked,) = self.admin.list_offsets({place: OffsetSpec.latest()}).values()
        return int(asked.result().offset)

    def make_topic(self, name: str, **spec: Any) -> str:
        """A Topic whose topic is there; its name on the brokers."""
        topic = f"{self.prefix}{name}"
        self.make("Topic", name, {"journalRef": {"name": "main"}, "topicName": topic, **spec})
        self.reconcile("Topic", name)
        eventually(lambda: self.has_topic(topic))
        return topic

    def create(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """As another client would."""
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result()
        eventually(lambda: self.has_topic(topic))

    def remake(self, topic: str) -> None:
        """The same for a topic that is there."""
        self.admin.delete_topics([topic])[topic].result()
        eventually(lambda: not self.has_topic(topic))
        self.create(topic)

    def reasons(self) -> list[str]:
        found = self.server.http.get(f"/api/v1/namespaces/{self.namespace}/events").json()["items"]
        return [item["reason"] for item in found]


@pytest.fixture
def bench(api_server: Any, namespace: str, kafka_broker: Any) -> Bench:
    """A Journal that no one has looked at yet."""
    return Bench(api_server, namespace, kafka_broker.bootstrap_servers)


def test_a_journal_becomes_six_topics_on_the_brokers(bench: Bench) -> None:
    assert bench.reconcile("Journal", "main") == len(ROLES) + 1
    for role in ROLES:
        assert bench.reconcile("Topic", f"main-{role}") == 2  # the intent to create it, and what came of it
        assert bench.ready("Topic", f"main-{role}") == ("True", "AsSpecified")
    bench.reconcile("Journal", "main")
    found = bench.status("Journal", "main")
    assert (found["topicsReady"], found["brokers"], bool(found["clusterId"])) == ("6/6", 1, True)
    eventually(lambda: all(bench.has_topic(f"{bench.prefix}{role}") for role in ROLES))
    config = topics_config(bench.read("Journal", "main").spec)
    wanted = {str(role): settings_of(role, config) for role in TopicRole} | {"job": JOB_TOPIC_SETTINGS}
    for role, settings in wanted.items():
        options = kafka_settings_of(settings, None)
        eventually(lambda: options.items() <= bench.config(f"{bench.prefix}{role}").items())  # noqa: B023  # at once
    assert bench.config(f"{bench.prefix}package")["retention.ms"] == "608400000"  # pieces travel in it
    assert bench.reconcile("Journal", "main") == 0
    assert {bench.reconcile("Topic", f"main-{role}") for role in ROLES} == {0}
    assert bench.reasons() == []


def test_a_topic_grows_and_its_own_keys_are_kept_from_drifting(bench: Bench) -> None:
    shown_otherwise = {"min.cleanable.dirty.ratio": "0.50", "cleanup.policy": "compact, delete"}
    name = bench.make_topic("orders", config={"segment.ms": "3600000", **shown_otherwise})
    bench.patch("Topic", "orders", {"partitions": 3})
    assert bench.reconcile("Topic", "orders") == 1
    assert bench.status("Topic", "orders")["partitions"] == 3
    assert bench.reconcile("Topic", "orders") == 0
    bench.set_config(name, "segment.ms", "7200000")
    bench.set_config(name, "max.message.bytes", "2000000")
    bench.reconcile("Topic", "orders")
    eventually(lambda: bench.config(name)["segment.ms"] == "3600000")
    assert bench.config(name)["max.message.bytes"] == "2000000"
    assert bench.reasons() == ["DriftCorrected"]


def test_a_topic_that_is_gone_is_made_again_and_an_event_says_what_is_lost(bench: Bench) -> None:
    topic = bench.make_topic("orders")
    before = bench.status("Topic", "orders")["topicId"]
    bench.admin.delete_topics([topic])[topic].result()
    eventually(lambda: not bench.has_topic(topic))
    bench.reconcile("Topic", "orders")
    assert bench.ready("Topic", "orders") == ("False", "TopicMissing")
    bench.reconcile("Topic", "orders")
    assert bench.reasons() == [], "any event may cause a reconciliation before the time is over"
    bench.patch_status("Topic", "orders", {"missingSince": "2026-01-01T00:00:00Z"})
    bench.reconcile("Topic", "orders")
    assert bench.reasons() == ["TopicLost"]
    assert bench.status("Topic", "orders")["topicId"] != before
    assert bench.ready("Topic", "orders") == ("True", "AsSpecified")


def test_a_topic_that_was_recreated_is_left_alone_until_it_is_accepted(bench: Bench) -> None:
    topic = bench.make_topic("orders", config={"segment.ms": "3600000"})
    bench.remake(topic)
    bench.reconcile("Topic", "orders")
    assert bench.ready("Topic", "orders") == ("False", "TopicReplaced")
    assert bench.config(topic)["segment.ms"] != "3600000"
    assert bench.reconcile("Topic", "orders") == 0
    message = bench.status("Topic", "orders")["conditions"][0]["message"]
    name, accepted = message.rpartition(" ")[2].split("=")
    bench.annotate("Topic", "orders", {name: accepted})
    bench.reconcile("Topic", "orders")
    assert bench.ready("Topic", "orders") == ("True", "AsSpecified")
    assert bench.status("Topic", "orders")["topicId"] == accepted
    eventually(lambda: bench.config(topic)["segment.ms"] == "3600000")
    assert sorted(bench.reasons()) == ["TopicAccepted", "TopicReplaced"]


def test_a_topic_of_others_is_left_alone_until_its_id_is_accepted(bench: Bench) -> None:
    topic = f"{bench.prefix}orders"
    bench.create(topic, 2, {"max.message.bytes": "2000000", "retention.ms": "7200000"})
    bench.make_topic("orders", partitions=2, retention={"time": "1h"})
    assert bench.ready("Topic", "orders") == ("False", "TopicExists")
    assert bench.config(topic)["retention.ms"] == "7200000"
    message = bench.status("Topic", "orders")["conditions"][0]["message"]
    bench.annotate("Topic", "orders", dict([message.rpartition(" ")[2].split("=", 1)]))
    bench.reconcile("Topic", "orders")
    assert bench.ready("Topic", "orders") == ("True", "AsSpecified")
    eventually(lambda: bench.config(topic)["retention.ms"] == "3600000")
    assert bench.config(topic)["max.message.bytes"] == "2000000"
    assert sorted(bench.reasons()) == ["TopicAccepted", "TopicExists"]


def test_deleting_an_object_never_deletes_a_topic_that_it_did_not_create(bench: Bench) -> None:
    topic = f"{bench.prefix}orders"
    bench.create(topic)
    bench.make_topic("orders", reclaimPolicy="Delete")
    bench.delete("Topic", "orders")
    bench.reconcile("Topic", "orders")
    assert bench.is_gone("Topic", "orders")
    assert bench.has_topic(topic)


def test_a_topic_never_gets_fewer_partitions(bench: Bench) -> None:
    topic = bench.make_topic("orders", partitions=2)
    bench.admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    eventually(lambda: len(bench.admin.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions) == 3)
    bench.reconcile("Topic", "orders")
    assert bench.ready("Topic", "orders") == ("False", "PartitionsTooMany")


def test_the_younger_of_two_topics_of_one_name_takes_over_when_it_is_accepted(bench: Bench) -> None:
    topic = bench.make_topic("first", reclaimPolicy="Delete")
    bench.admin_writes(topic, b"kept")
    bench.make("Topic", "second", {"journalRef": {"name": "main"}, "topicName": topic, "reclaimPolicy": "Delete"})
    bench.reconcile("Topic", "second")
    assert bench.ready("Topic", "second") == ("False", "TopicTaken")
    assert "Topic first" in bench.status("Topic", "second")["conditions"][0]["message"]
    bench.reconcile("Topic", "first")
    assert bench.ready("Topic", "first") == ("True", "AsSpecified")
    bench.delete("Topic", "first")
    bench.reconcile("Topic", "first")
    assert bench.is_gone("Topic", "first")
    bench.reconcile("Topic", "second")
    assert bench.ready("Topic", "second") == ("False", "TopicExists")
    message = bench.status("Topic", "second")["conditions"][0]["message"]
    bench.annotate("Topic", "second", dict([message.rpartition(" ")[2].split("=", 1)]))
    bench.reconcile("Topic", "second")
    assert bench.ready("Topic", "second") == ("True", "AsSpecified")
    assert bench.records(topic) == 1
    assert sorted(bench.reasons()) == ["TopicAccepted", "TopicExists", "TopicRetained", "TopicTaken"]


def test_the_deletion_of_the_younger_leaves_the_topic_to_the_older(bench: Bench) -> None:
    topic = bench.make_topic("first")
    bench.make("Topic", "second", {"journalRef": {"name": "main"}, "topicName": topic, "reclaimPolicy": "Delete"})
    bench.reconcile("Topic", "second")
    bench.delete("Topic", "second")
    bench.reconcile("Topic", "second")
    assert bench.is_gone("Topic", "second")
    assert bench.has_topic(topic)


def test_a_topic_goes_with_its_object_where_that_was_asked_for(bench: Bench) -> None:
    topic = bench.make_topic("orders", reclaimPolicy="Delete")
    assert bench.ready("Topic", "orders") == ("True", "AsSpecified")
    bench.delete("Topic", "orders")
    assert not bench.is_gone("Topic", "orders")
    bench.reconcile("Topic", "orders")
    assert bench.is_gone("Topic", "orders")
    eventually(lambda: not bench.has_topic(topic))
    assert bench.reasons() == ["TopicDeleted"]


def test_a_topic_that_was_recreated_is_not_deleted(bench: Bench) -> None:
    topic = bench.make_topic("orders", reclaimPolicy="Delete")
    bench.remake(topic)
    bench.delete("Topic", "orders")
    bench.reconcile("Topic", "orders")
    assert bench.is_gone("Topic", "orders")
    assert bench.has_topic(topic)
    assert bench.reasons() == ["TopicRetained"]


def test_policy_retain_takes_the_finalizer_off_and_keeps_the_topic(bench: Bench) -> None:
    topic = bench.make_topic("orders", reclaimPolicy="Delete")
    bench.patch("Topic", "orders", {"reclaimPolicy": "Retain"})
    bench.reconcile("Topic", "orders")
    bench.delete("Topic", "orders")
    assert bench.is_gone("Topic", "orders")
    assert bench.has_topic(topic)


def test_a_deletion_with_unreachable_brokers_says_the_way_out_and_takes_it(bench: Bench) -> None:
    bench.make_topic("orders", reclaimPolicy="Delete")
    bench.answer_seconds = 1.0
    bench.patch("Journal", "main", {"kafka": {"bootstrapServers": ["127.0.0.1:1"]}})
    bench.delete("Topic", "orders")
    bench.reconcile("Topic", "orders")
    [condition] = [
        condition for condition in bench.status("Topic", "orders")["conditions"] if condition["type"] == "Ready"
    ]
    assert condition["reason"] == "BrokersUnreachable"
    assert condition["message"].endswith("set reclaimPolicy to Retain")
    bench.patch("Topic", "orders", {"reclaimPolicy": "Retain"})
    bench.reconcile("Topic", "orders")
    assert bench.is_gone("Topic", "orders")


def test_a_topic_whose_journal_is_gone_is_let_go_and_kept(bench: Bench) -> None:
    topic = bench.make_topic("orders", reclaimPolicy="Delete")
    bench.delete("Journal", "main")
    bench.delete("Topic", "orders")
    bench.reconcile("Topic", "orders")
    assert bench.is_gone("Topic", "orders")
    assert bench.has_topic(topic)


def test_a_journal_takes_its_topics_along_where_that_was_asked_for(bench: Bench) -> None:
    bench.patch("Journal", "main", {"topics": {"prefix": bench.prefix, "reclaimPolicy": "Delete"}})
    bench.reconcile("Journal", "main")
    for role in ROLES:
        bench.reconcile("Topic", f"main-{role}")
    other = bench.make_topic("orders", reclaimPolicy="Delete")
    bench.delete("Topic", "orders")
    bench.delete("Journal", "main")
    bench.reconcile("Journal", "main")
    assert bench.ready("Journal", "main") == ("False", "TopicsGoing")
    for name in ("orders", *(f"main-{role}" for role in ROLES)):
        bench.reconcile("Topic", name)
        assert bench.is_gone("Topic", name)
    bench.reconcile("Journal", "main")
    assert bench.is_gone("Journal", "main")
    eventually(lambda: not any(bench.has_topic(name) for name in (other, *(f"{bench.prefix}{role}" for role in ROLES))))


def test_a_journal_that_waits_for_silent_brokers_keeps_its_topics_as_its_message_advises(bench: Bench) -> None:
    servers, names = bench.servers, [f"main-{role}" for role in ROLES]
    bench.patch("Journal", "main", {"topics": {"prefix": bench.prefix, "reclaimPolicy": "Delete"}})
    bench.reconcile("Journal", "main")
    for name in names:
        bench.reconcile("Topic", name)
    bench.answer_seconds = 0.2
    bench.patch("Journal", "main", {"kafka": {"bootstrapServers": ["127.0.0.1:1"]}})
    bench.delete("Journal", "main")
    bench.reconcile("Journal", "main")
    bench.reconcile("Topic", names[0])
    assert bench.ready("Topic", names[0]) == ("False", "BrokersUnreachable")
    advice = bench.status("Topic", names[0])["conditions"][0]["message"]
    assert advice.endswith("set topics.reclaimPolicy of Journal main to Retain")

    message = bench.status("Journal", "main")["conditions"][0]["message"]
    path, _, policy = message.partition("to keep the topics, set ")[2].partition(" to ")
    section, key = path.split(".")
    bench.patch("Journal", "main", {section: {"prefix": bench.prefix, key: policy}})
    bench.patch("Journal", "main", {"kafka": {"bootstrapServers": [servers]}})  # they answer again
    bench.answer_seconds = PATIENCE_SECONDS
    for name in names:
        bench.reconcile("Topic", name)
        assert bench.is_gone("Topic", name)
    bench.reconcile("Journal", "main")
    assert bench.is_gone("Journal", "main")
    eventually(lambda: all(bench.has_topic(f"{bench.prefix}{role}") for role in ROLES))


def test_deleting_an_invalid_topic_or_journal_releases_it_and_keeps_the_topic(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an upgrade with stricter definitions; nothing else could take the finalizer off."""
    topic = bench.make_topic("orders", reclaimPolicy="Delete")
    bench.reconcile("Journal", "main")
    for kind, name in (("Topic", "orders"), ("Journal", "main")):
        bench.delete(kind, name)
        assert not bench.is_gone(kind, name)

    def refuse(manifest: object) -> object:
        raise ResourceInvalidError("spec: this version refuses it")

    monkeypatch.setattr("mailboat_operator.reconciliation.decode", refuse)
    for kind, name in (("Topic", "orders"), ("Journal", "main")):
        bench.reconcile(kind, name)
        assert bench.is_gone(kind, name)
    assert bench.has_topic(topic)
    assert "TopicRetained" in bench.reasons()


def test_an_event_that_a_going_namespace_refuses_is_no_warning(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.make_topic("orders", reclaimPolicy="Delete")
    bench.server.http.delete(f"/api/v1/namespaces/{bench.namespace}").raise_for_status()
    eventually(lambda: "deletionTimestamp" in bench.server.http.get(bench.url("Topic", "orders")).json()["metadata"])
    bench.reconcile("Topic", "orders")
    assert [record.levelname for record in caplog.records if record.getMessage().startswith("no Event: ")] == ["INFO"]
    assert bench.is_gone("Topic", "orders")


def test_a_deleted_topic_or_journal_leaves_what_the_brokers_hold(bench: Bench) -> None:
    name = bench.make_topic("orders")
    for kind, one in (("Topic", "orders"), ("Journal", "main")):
        bench.server.http.delete(bench.url(kind, one)).raise_for_status()
        assert bench.server.http.get(bench.url(kind, one)).status_code == 404
    assert name in bench.admin.list_topics(timeout=PATIENCE_SECONDS).topics


def test_what_the_brokers_cannot_do_is_said_in_the_condition(bench: Bench) -> None:
    base = {"journalRef": {"name": "main"}}
    bench.make("Topic", "large", {**base, "topicName": f"{bench.prefix}large", "replicas": 3})
    bench.make("Topic", "odd", {**base, "topicName": f"{bench.prefix}odd", "config": {"no.such.key": "1"}})
    for name in ("large", "odd"):
        bench.reconcile("Topic", name)
    assert bench.ready("Topic", "large") == ("False", "BrokersRefused")
    assert bench.ready("Topic", "odd") == ("False", "BrokersRefused")


def test_brokers_that_do_not_answer_are_a_condition_of_the_journal(bench: Bench) -> None:
    bench.answer_seconds = 1.0
    bench.make("Journal", "dark", {"kafka": {"bootstrapServers": ["127.0.0.1:1"]}})
    bench.reconcile("Journal", "dark")
    assert bench.ready("Journal", "dark") == ("False", "BrokersUnreachable")
