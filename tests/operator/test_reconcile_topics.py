"""Journals and Topics on a real API server and a real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from lightkube.config.kubeconfig import KubeConfig
from mailboat_operator.agents import Agents
from mailboat_operator.cluster import Cluster
from mailboat_operator.manifests.pods import AgentImage
from mailboat_operator.reconciliation import ObjectKey, Reconciler

ROLES = ("package", "status", "discovery", "command", "event")


class Bench:
    """A namespace whose Journal is on a real broker."""

    def __init__(self, api_server: Any, namespace: str, servers: str) -> None:
        self.server, self.namespace = api_server, namespace
        self.prefix = f"{namespace}-"
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

    def status(self, kind: str, name: str) -> dict[str, Any]:
        return dict(self.server.http.get(self.url(kind, name)).raise_for_status().json()["status"])

    def ready(self, kind: str, name: str) -> tuple[str, str]:
        found = self.status(kind, name)["conditions"][0]
        return found["status"], found["reason"]

    def reconcile(self, kind: str, name: str) -> int:
        """One step; how many writes to the API it took."""

        async def step() -> None:
            cluster = Cluster(self._count, KubeConfig.from_file(self.server.kubeconfig))
            try:
                reconciler = Reconciler(cluster, Agents(), AgentImage("mailboat:test"), [].append)
                await reconciler.reconcile(ObjectKey(kind, self.namespace, name))
            finally:
                await cluster.close()

        before = self.writes.total()
        asyncio.run(step())
        return self.writes.total() - before

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

    def reasons(self) -> list[str]:
        found = self.server.http.get(f"/api/v1/namespaces/{self.namespace}/events").json()["items"]
        return [one["reason"] for one in found]


@pytest.fixture
def bench(api_server: Any, namespace: str, kafka_broker: Any) -> Bench:
    """A Journal that nobody has looked at yet."""
    return Bench(api_server, namespace, kafka_broker.bootstrap_servers)


def test_a_journal_becomes_five_topics_on_the_brokers(bench: Bench) -> None:
    assert bench.reconcile("Journal", "main") == len(ROLES) + 1
    for role in ROLES:
        assert bench.reconcile("Topic", f"main-{role}") == 1
        assert bench.ready("Topic", f"main-{role}") == ("True", "AsAskedFor")
    bench.reconcile("Journal", "main")
    found = bench.status("Journal", "main")
    assert (found["topicsReady"], found["brokers"], bool(found["clusterId"])) == ("5/5", 1, True)
    assert {f"{bench.prefix}{role}" for role in ROLES} <= set(bench.admin.list_topics(timeout=10).topics)
    assert bench.config(f"{bench.prefix}package")["retention.ms"] == "604800000"
    assert [bench.reconcile("Journal", "main"), bench.reconcile("Topic", "main-package")] == [0, 0]


def test_a_topic_grows_and_its_own_keys_are_kept_from_drifting(bench: Bench) -> None:
    name = f"{bench.prefix}orders"
    spec = {"journalRef": {"name": "main"}, "topicName": name, "config": {"segment.ms": "3600000"}}
    bench.make("Topic", "orders", spec)
    bench.reconcile("Topic", "orders")
    bench.patch("Topic", "orders", {"partitions": 3})
    assert bench.reconcile("Topic", "orders") == 1
    assert bench.status("Topic", "orders")["partitions"] == 3
    bench.set_config(name, "segment.ms", "7200000")
    bench.set_config(name, "max.message.bytes", "2000000")
    bench.reconcile("Topic", "orders")
    config = bench.config(name)
    assert (config["segment.ms"], config["max.message.bytes"]) == ("3600000", "2000000")
    assert bench.reasons() == ["DriftCorrected"]


def test_a_topic_that_was_made_anew_is_told_by_its_id(bench: Bench) -> None:
    name = f"{bench.prefix}orders"
    bench.make("Topic", "orders", {"journalRef": {"name": "main"}, "topicName": name})
    bench.reconcile("Topic", "orders")
    before = bench.status("Topic", "orders")["topicId"]
    bench.admin.delete_topics([name])[name].result()
    bench.reconcile("Topic", "orders")
    assert bench.reasons() == ["TopicLost"]
    assert bench.status("Topic", "orders")["topicId"] != before


def test_a_deleted_topic_or_journal_leaves_what_the_brokers_hold(bench: Bench) -> None:
    name = f"{bench.prefix}orders"
    bench.make("Topic", "orders", {"journalRef": {"name": "main"}, "topicName": name})
    bench.reconcile("Topic", "orders")
    for kind, one in (("Topic", "orders"), ("Journal", "main")):
        bench.server.http.delete(bench.url(kind, one)).raise_for_status()
        assert bench.server.http.get(bench.url(kind, one)).status_code == 404
    assert name in bench.admin.list_topics(timeout=10).topics


def test_what_the_brokers_cannot_do_is_said_in_the_condition(bench: Bench) -> None:
    base = {"journalRef": {"name": "main"}}
    bench.make("Topic", "large", {**base, "topicName": f"{bench.prefix}large", "replicas": 3})
    bench.make("Topic", "odd", {**base, "topicName": f"{bench.prefix}odd", "config": {"no.such.key": "1"}})
    bench.make("Topic", "gone", {**base, "topicName": f"{bench.prefix}gone", "reclaimPolicy": "Delete"})
    for name in ("large", "odd", "gone"):
        bench.reconcile("Topic", name)
    assert bench.ready("Topic", "large") == ("False", "BrokersRefused")
    assert bench.ready("Topic", "odd") == ("False", "BrokersRefused")
    assert bench.ready("Topic", "gone") == ("False", "DeleteUnsupported")


def test_brokers_that_do_not_answer_are_a_condition_of_the_journal(bench: Bench) -> None:
    bench.make("Journal", "dark", {"kafka": {"bootstrapServers": ["127.0.0.1:1"]}})
    bench.reconcile("Journal", "dark")
    assert bench.ready("Journal", "dark") == ("False", "BrokersUnreachable")
