"""Brokers and buckets that never answer, or answer what no client expects: they hold up no one but their own topics.

No test measures time: servers are silent for longer than a test takes, so that what they held up would never come.
"""

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
WORKERS = 2
DARK = 5
"""Servers out of reach, each with more reconciliations that wait for it than there are workers."""
ENDLESS_SECONDS = 3000.0
"""Longer than any test takes: what waits for a server waits to its end, and what that holds up never comes."""
ENDLESS = {
    "mailboat_operator.reconcile_queue._LOOK_SECONDS": ENDLESS_SECONDS,
    "mailboat_operator.buckets._SECONDS": ENDLESS_SECONDS,
}
TOPICS = 3
"""Of each Journal: all reconciliations that may wait for brokers at the same time are of these and their Journals."""
NONE = -(1 << 31)


class FencedBroker:
    """Speaks as a broker of a cluster that has no broker in service: it names itself at most once, then no one."""

    def __init__(self, *, names_itself: bool = True) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.listings = 0 if names_itself else 1
        self._clients, self._is_silent = list[socket.socket](), False
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        """Accept connections from now on, and never answer."""
        self._is_silent = True
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                self._clients.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as read, suppress(OSError):
            while len(size := read.read(4)) == 4:
                request = read.read(struct.unpack(">i", size)[0])
                if self._is_silent:
                    continue
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
        made = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(DARK)]
        yield [f"127.0.0.1:{item.getsockname()[1]}" for item in made]


@pytest.fixture
def closed() -> Iterator[list[str]]:
    """Addresses that refuse every connection, as no one listens."""
    with ExitStack() as sockets:
        made = [sockets.enter_context(socket.socket()) for _ in range(DARK)]
        for item in made:
            item.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{item.getsockname()[1]}" for item in made]


def make_all(replicas: Any, objects: list[tuple[str, str, dict[str, Any]]]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: replicas.make(*one), objects))


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
    replicas.start("one", constants=ENDLESS, workers=WORKERS, broker_seconds=ENDLESS_SECONDS)
    replicas.wait(lambda: replicas.leads("one"))
    for number, server in enumerate([*silent, *closed]):
        topic = {"journalRef": {"name": f"dark-{number}"}, "topicName": "topic"}
        make_all(replicas, [("Journal", f"dark-{number}", journal(server)), ("Topic", f"dark-{number}", topic)])
    replicas.server.check_journal(replicas.namespace, "dark-0")  # its agents need not wait for that
    replicas.wait(lambda: replicas.figure("one", "mailboat_operator_under_way") >= 2 * DARK)
    replicas.make("Publisher", "author", {"journalRef": {"name": "dark-0"}})
    replicas.make("SubscriberPool", "edge", {**POOL, "journalRef": {"name": "dark-0"}})
    replicas.wait(lambda: replicas.has_workload("author") and replicas.has_workload("edge"))
    assert replicas.figure("one", "mailboat_operator_under_way") >= 2 * DARK, "they wait still"


def test_a_topic_of_brokers_that_answer_waits_for_none_of_those_that_failed_before(
    replicas: Any, kafka_broker: Any
) -> None:
    with ExitStack() as stack:
        dark = [FencedBroker(names_itself=False) for _ in range(DARK)]
        for broker in dark:
            stack.callback(broker.close)
        replicas.start("one", constants=ENDLESS, workers=1, broker_seconds=ENDLESS_SECONDS)
        make_all(replicas, [("Journal", f"dark-{number}", journal(each.address)) for number, each in enumerate(dark)])
        replicas.wait(lambda: are_all(replicas, "Journal", "BrokersUnreachable", "dark-"))
        for broker in dark:
            broker.silence()
        # one reconciliation of each Journal probes its brokers, and waits to its end
        replicas.wait(lambda: replicas.figure("one", "mailboat_operator_under_way") >= DARK)
        before = replicas.figure("one", "mailboat_operator_reconciliations_total")
        topics = [
            # names of their own: of several for one topic the younger ones would not ask the brokers
            ("Topic", f"dark-{number}-{item}", {"journalRef": {"name": f"dark-{number}"}, "topicName": f"topic-{item}"})
            for number in range(DARK)
            for item in range(TOPICS)
        ]
        make_all(replicas, topics)
        ended = before + len(topics)  # they wait for nothing
        replicas.wait(lambda: replicas.figure("one", "mailboat_operator_reconciliations_total") >= ended)
        named = {"prefix": f"{replicas.namespace}-"}
        replicas.make("Journal", "main", journal(kafka_broker.bootstrap_servers, topics=named))
        replicas.wait(lambda: replicas.reason("Journal", "main") == "AsSpecified")


def test_buckets_that_never_answer_hold_up_no_one(replicas: Any, kafka_broker: Any, silent: list[str]) -> None:
    keys = {"accessKeyId": "someone", "secretAccessKey": "something"}
    url = f"/api/v1/namespaces/{replicas.namespace}/secrets"
    replicas.server.http.post(url, json={"metadata": {"name": "keys"}, "stringData": keys}).raise_for_status()
    replicas.start("one", constants=ENDLESS, workers=WORKERS)
    replicas.wait(lambda: replicas.leads("one"))
    for number, server in enumerate(silent):
        s3 = {"bucket": "any", "endpointUrl": f"http://{server}", "credentialsSecretRef": {"name": "keys"}}
        blobs = {"s3": {**s3, "pathStyle": True}}
        replicas.make("Journal", f"dark-{number}", journal(kafka_broker.bootstrap_servers, blobs=blobs))
    replicas.server.check_journal(replicas.namespace, "dark-0")  # its agents need not wait for that
    replicas.wait(lambda: replicas.figure("one", "mailboat_operator_under_way") >= DARK)
    replicas.make("Publisher", "author", {"journalRef": {"name": "dark-0"}})
    replicas.wait(lambda: replicas.has_workload("author"))
    assert replicas.figure("one", "mailboat_operator_under_way") >= DARK, "they wait still"


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
