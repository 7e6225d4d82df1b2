"""The operator killed after each of its writes: the next one brings everything to the same end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from lightkube.config.kubeconfig import KubeConfig
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat_operator.agent_client import Agents
from mailboat_operator.broker_connections import Connections
from mailboat_operator.cluster import Cluster
from mailboat_operator.reconciliation import ObjectKey, Reconciler
from mailboat_operator.systems import Systems
from mailboat_operator.topic_claims import TopicClaims
from mailboat_operator.workload.pods import AgentImage
from support.operator_harbour import eventually

ROOTS = {
    "ConfigMap": "api/v1",
    "Service": "api/v1",
    "StatefulSet": "apis/apps/v1",
    "PodDisruptionBudget": "apis/policy/v1",
}
OURS = ("Journal", "Topic", "Publisher", "SubscriberPool")
POOL = {"journalRef": {"name": "main"}, "target": {"generations": {"volume": {"size": "5Gi"}}}}
MOST_ROUNDS = 12


class KilledError(BaseException):
    """What no one catches, as no one catches SIGKILL."""


class World:
    """A namespace with objects, and operators that live until their n-th write."""

    def __init__(self, api_server: Any, servers: str) -> None:
        self.server, self.namespace = api_server, api_server.new_namespace()
        self.servers, self.writes = servers, 0

    def make(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        assert self.server.create(self.namespace, manifest).status_code == 201

    def delete(self, kind: str, name: str) -> None:
        url = f"/apis/mailboat.dev/v1alpha1/namespaces/{self.namespace}/{kind.lower()}s/{name}"
        self.server.http.delete(url).raise_for_status()

    def items(self, kind: str) -> list[dict[str, Any]]:
        root = ROOTS.get(kind, "apis/mailboat.dev/v1alpha1")
        found = self.server.http.get(f"/{root}/namespaces/{self.namespace}/{kind.lower()}s").json()["items"]
        return [{**item, "kind": kind, "apiVersion": "mailboat.dev/v1alpha1"} for item in found]

    def operate(self, kinds: Sequence[str], *, writes: int | None = None) -> int:
        """One operator, until nothing is left to do or it made so many writes; how many it made."""
        made = 0

        def count(_verb: str, _kind: str) -> None:
            nonlocal made
            if made == writes:
                raise KilledError
            made += 1

        try:
            asyncio.run(self._operate(kinds, count, lambda: made))
        except KilledError:
            return made
        return made

    async def _operate(self, kinds: Sequence[str], count: Any, made: Any) -> None:
        cluster = Cluster(count, KubeConfig.from_file(self.server.kubeconfig))
        agents, image = Agents(), AgentImage("mailboat:test")
        connections = Connections(answer_seconds=PATIENCE_SECONDS)
        try:
            for _ in range(MOST_ROUNDS):
                before, claims = made(), TopicClaims()
                reconciler = Reconciler(cluster, agents, image, [].append, Systems(connections, claims))
                for kind in kinds:
                    for item in self.items(kind):
                        claims.saw(item)
                        await reconciler.reconcile(ObjectKey(kind, self.namespace, item["metadata"]["name"]))
                if made() == before:
                    return
            raise AssertionError("it never comes to rest")
        finally:
            await cluster.close()

    def state(self) -> dict[str, Any]:
        """Everything that the operator decides, in words that are the same in each namespace."""
        found = {}
        for kind in (*OURS, *ROOTS):
            for item in self.items(kind):
                name = item["metadata"]["name"]
                if name != "kube-root-ca.crt":
                    found[f"{kind} {name}"] = _decided(item, self.namespace)
        return found


def _decided(manifest: dict[str, Any], namespace: str) -> Any:
    status = manifest.get("status") or {}
    conditions = [(item["type"], item["status"], item["reason"]) for item in status.get("conditions") or ()]
    metadata = manifest["metadata"]
    spec = {key: value for key, value in manifest.get("spec", {}).items() if not key.startswith("clusterIP")}
    text = repr((metadata.get("labels"), metadata.get("finalizers"), spec, manifest.get("data"), conditions))
    text = re.sub(r"'mailboat.dev/(applied|config)': '\w+'", "", text)
    return text.replace(namespace, "NAMESPACE")


def journal(world: World) -> None:
    kafka = {"bootstrapServers": [world.servers]}
    world.make(
        "Journal", "main", {"kafka": kafka, "topics": {"prefix": f"{world.namespace}-", "reclaimPolicy": "Delete"}}
    )


def publisher(world: World) -> None:
    journal(world)
    world.server.check_journal(world.namespace, "main")
    world.make("Publisher", "author", {"journalRef": {"name": "main"}})


def pool(world: World) -> None:
    journal(world)
    world.server.check_journal(world.namespace, "main")
    world.make("SubscriberPool", "edge", POOL)


OBJECTS = pytest.mark.parametrize(
    ("objects", "kinds"),
    [(journal, ["Journal", "Topic"]), (publisher, ["Publisher"]), (pool, ["SubscriberPool"])],
)


def operate_killed(world: World, kinds: Sequence[str], most: int) -> int:
    """Operators that follow each other, each killed after one write, until one has none to make; how many died."""
    for killed in range(most):
        if world.operate(kinds, writes=1) == 0:
            return killed
    raise AssertionError(f"{most} operators did not come to the end")


def await_gone(admin: AdminClient, prefix: str) -> None:
    """Until no topic has that prefix: a broker lists a topic for a moment after its deletion is durable."""

    def is_gone() -> bool:
        return not any(name.startswith(prefix) for name in admin.list_topics(timeout=PATIENCE_SECONDS).topics)

    eventually(is_gone)


@OBJECTS
def test_operators_that_are_all_killed_come_to_the_end_of_one_that_lives(
    api_server: Any, kafka_broker: Any, objects: Any, kinds: list[str]
) -> None:
    undisturbed, world = (World(api_server, kafka_broker.bootstrap_servers) for _ in range(2))
    objects(undisturbed)
    writes = undisturbed.operate(kinds)
    objects(world)
    # one that lives may write a status on its way that those who begin from what there is pass over
    assert operate_killed(world, kinds, 2 * writes) >= writes // 2
    assert world.state() == undisturbed.state()


def test_operators_that_are_all_killed_while_a_journal_goes_leave_no_object_and_no_topic(
    api_server: Any, kafka_broker: Any
) -> None:
    kinds, world = ["Topic", "Journal"], World(api_server, kafka_broker.bootstrap_servers)
    journal(world)
    world.operate(kinds)
    world.delete("Journal", "main")
    assert operate_killed(world, kinds, 40) > 6
    assert world.state() == {}
    await_gone(AdminClient({"bootstrap.servers": world.servers}), f"{world.namespace}-")


@pytest.mark.long("crashes-and-fuzz")
@pytest.mark.timeout(400)
@OBJECTS
def test_killed_after_each_write_it_is_followed_to_the_same_end(
    api_server: Any, kafka_broker: Any, objects: Any, kinds: list[str]
) -> None:
    undisturbed = World(api_server, kafka_broker.bootstrap_servers)
    objects(undisturbed)
    writes = undisturbed.operate(kinds)
    assert writes > len(kinds)
    expected = undisturbed.state()
    for killed_after in range(writes):
        world = World(api_server, kafka_broker.bootstrap_servers)
        objects(world)
        assert world.operate(kinds, writes=killed_after) == killed_after
        world.operate(kinds)
        assert world.state() == expected, f"killed after {killed_after} of {writes} writes"


@pytest.mark.long("crashes-and-fuzz")
@pytest.mark.timeout(400)
def test_killed_while_a_journal_goes_it_leaves_no_object_and_no_topic(api_server: Any, kafka_broker: Any) -> None:
    servers, kinds = kafka_broker.bootstrap_servers, ["Topic", "Journal"]
    admin = AdminClient({"bootstrap.servers": servers})
    killed_after = 0
    while True:
        world = World(api_server, servers)
        journal(world)
        world.operate(kinds)
        world.delete("Journal", "main")
        made = world.operate(kinds, writes=killed_after)
        world.operate(kinds)
        assert world.state() == {}, f"killed after {killed_after} writes"
        await_gone(admin, f"{world.namespace}-")
        if made < killed_after:
            break
        killed_after += 1
    assert killed_after > 6
