"""Brokers and buckets that never answer, or answer what no client expects: they hold up no one but their own topics."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest

POOL = {"journalRef": {"name": "main"}, "target": {"generations": {"volume": {"size": "1Gi"}}}}
JOURNALS, TOPICS = 30, 2
WAITING = 60
"""So many looks of an operator with three workers may wait for brokers at the same time."""
HELD_UP_SECONDS = 25.0
"""Who was held up waited for half a minute. `test_operator_workers` proves the rule."""
NONE = -(1 << 31)


class FencedBroker:
    """Speaks as a broker of a cluster that has no broker in service: it names itself once, and then no one."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.listings = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as read, suppress(OSError):
            while len(size := read.read(4)) == 4:
                request = read.read(struct.unpack(">i", size)[0])
                key, _, correlation = struct.unpack(">hhi", request[:8])
                answer = struct.pack(">i", correlation) + (self._versions() if key == 18 else self._metadata())
                client.sendall(struct.pack(">i", len(answer)) + answer)

    def _versions(self) -> bytes:
        """ApiVersions v3: Metadata up to v12, and itself."""
        known = b"".join(struct.pack(">hhhb", *item, 0) for item in ((3, 0, 12), (18, 0, 3)))
        return struct.pack(">hb", 0, 3) + known + struct.pack(">ib", 0, 0)

    def _metadata(self) -> bytes:
        """Metadata v12 without topics."""
        self.listings += 1
        host, _, port = self.address.partition(":")
        itself = struct.pack(">bib", 2, 1, len(host) + 1) + host.encode() + struct.pack(">ibb", int(port), 0, 0)
        brokers, controller = (itself, 1) if self.listings == 1 else (b"\1", -1)
        return struct.pack(">bi", 0, 0) + brokers + b"\5none" + struct.pack(">ibb", controller, 1, 0)


@pytest.fixture
def silent() -> Iterator[list[str]]:
    """Addresses that accept connections and never answer."""
    with ExitStack() as sockets:
        made = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(JOURNALS // 2)]
        yield [f"127.0.0.1:{item.getsockname()[1]}" for item in made]


@pytest.fixture
def closed() -> Iterator[list[str]]:
    """Addresses that refuse every connection, as no one listens."""
    with ExitStack() as sockets:
        made = [sockets.enter_context(socket.socket()) for _ in range(JOURNALS // 2)]
        for item in made:
            item.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{item.getsockname()[1]}" for item in made]


def make_all(replicas: Any, objects: list[tuple[str, str, dict[str, Any]]]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: replicas.make(*one), objects))


def usual_seconds(replicas: Any, spec: dict[str, Any], **settings: object) -> float:
    """Start an operator; how long it takes for a Publisher on a Journal, on a machine as busy as this one."""
    replicas.make("Journal", "usual", spec)
    replicas.server.check_journal(replicas.namespace, "usual")
    replicas.start("one", **settings)
    replicas.wait(lambda: replicas.leads("one"))
    replicas.make("Publisher", "usual", {"journalRef": {"name": "usual"}})
    return float(replicas.wait(lambda: replicas.has_workload("usual")))


def are_all(replicas: Any, kind: str, reason: str, prefix: str = "") -> bool:
    """Whether this is why each object of the kind whose name begins so is not ready."""
    named = replicas.server.http.get(replicas.url(kind)).json()["items"]
    found = [item for item in named if item["metadata"]["name"].startswith(prefix)]
    told = [(item.get("status") or {}).get("conditions") or [{"reason": ""}] for item in found]
    return {conditions[0]["reason"] for conditions in told} == {reason}


def journal(*servers: str, **more: Any) -> dict[str, Any]:
    return {"kafka": {"bootstrapServers": list(servers)}, **more}


def test_journals_out_of_reach_hold_up_no_object_that_needs_no_brokers(
    replicas: Any, silent: list[str], closed: list[str]
) -> None:
    usual = usual_seconds(replicas, journal(silent[0]))
    for number, server in enumerate([*silent, *closed]):
        name = f"dark-{number}"
        topic = {"journalRef": {"name": name}}
        topics = [("Topic", f"{name}-{number}", {**topic, "topicName": f"topic-{number}"}) for number in range(TOPICS)]
        make_all(replicas, [("Journal", name, journal(server)), *topics])
    replicas.server.check_journal(replicas.namespace, "dark-0")  # its agents need not wait for that
    replicas.wait(lambda: replicas.figure("one", "mailboat_operator_under_way") >= JOURNALS)
    replicas.make("Publisher", "author", {"journalRef": {"name": "dark-0"}})
    assert replicas.wait(lambda: replicas.has_workload("author")) < usual + HELD_UP_SECONDS
    replicas.wait(lambda: are_all(replicas, "Journal", "BrokersUnreachable"))
    replicas.make("SubscriberPool", "edge", {**POOL, "journalRef": {"name": "dark-0"}})
    assert replicas.wait(lambda: replicas.has_workload("edge")) < usual + HELD_UP_SECONDS


def test_a_topic_of_brokers_that_answer_waits_for_none_of_those_that_failed_before(
    replicas: Any, kafka_broker: Any, silent: list[str]
) -> None:
    def seconds_of(name: str) -> float:
        topics = {"prefix": f"{replicas.namespace}-{name}-"}
        replicas.make("Journal", name, journal(kafka_broker.bootstrap_servers, topics=topics))
        return float(replicas.wait(lambda: replicas.reason("Journal", name) == "AsSpecified"))

    replicas.start("one", workers=3)
    replicas.wait(lambda: replicas.leads("one"))
    usual = seconds_of("usual")
    of_a_journal = WAITING // len(silent) - 1
    for number, server in enumerate(silent):
        topic = {"journalRef": {"name": f"dark-{number}"}, "topicName": "topic"}
        topics = [("Topic", f"dark-{number}-{item}", topic) for item in range(of_a_journal)]
        make_all(replicas, [("Journal", f"dark-{number}", journal(server)), *topics])
    replicas.wait(lambda: are_all(replicas, "Journal", "BrokersUnreachable", "dark-"))
    assert seconds_of("main") < usual + HELD_UP_SECONDS


def test_buckets_that_never_answer_hold_up_no_one(replicas: Any, kafka_broker: Any, silent: list[str]) -> None:
    keys = {"accessKeyId": "someone", "secretAccessKey": "something"}
    url = f"/api/v1/namespaces/{replicas.namespace}/secrets"
    replicas.server.http.post(url, json={"metadata": {"name": "keys"}, "stringData": keys}).raise_for_status()
    usual = usual_seconds(replicas, journal(kafka_broker.bootstrap_servers), workers=3)
    for number, server in enumerate(silent):
        s3 = {"bucket": "any", "endpointUrl": f"http://{server}", "credentialsSecretRef": {"name": "keys"}}
        blobs = {"s3": {**s3, "pathStyle": True}}
        replicas.make("Journal", f"dark-{number}", journal(kafka_broker.bootstrap_servers, blobs=blobs))
    replicas.server.check_journal(replicas.namespace, "dark-0")  # its agents need not wait for that
    replicas.wait(lambda: replicas.figure("one", "mailboat_operator_under_way") >= 3)
    replicas.make("Publisher", "author", {"journalRef": {"name": "dark-0"}})
    assert replicas.wait(lambda: replicas.has_workload("author")) < usual + HELD_UP_SECONDS
    replicas.wait(lambda: replicas.reason("Journal", "dark-0") == "BucketUnreachable")


def test_a_cluster_without_a_broker_in_service_is_a_condition_and_not_the_operators_end(replicas: Any) -> None:
    """The client library describes such a cluster, and its topics, by aborting the process (librdkafka 2.16)."""
    brokers = {"main": FencedBroker(), "other": FencedBroker()}
    replicas.make("Journal", "main", journal(brokers["main"].address))
    replicas.make("Topic", "orders", {"journalRef": {"name": "main"}, "topicName": "orders"})
    process = replicas.start("one")
    replicas.wait(lambda: replicas.reason("Journal", "main") == "BrokersUnreachable" or process.poll() is not None)
    replicas.wait(lambda: replicas.reason("Topic", "orders") == "BrokersUnreachable" or process.poll() is not None)
    replicas.make("Journal", "other", journal(brokers["other"].address))
    url = replicas.url("Journal", "other")
    # who is slow to answer is first said not to answer at all
    replicas.wait(lambda: "no broker" in replicas.server.http.get(url).text or process.poll() is not None)
    assert process.poll() is None, replicas.log("one")[-2000:]
    assert replicas.reason("Journal", "other") == "BrokersUnreachable"
    for broker in brokers.values():
        broker.close()
