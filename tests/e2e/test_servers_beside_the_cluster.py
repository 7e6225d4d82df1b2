"""An agent in a pod whose journal is a real Kafka broker and whose blobs lie in a real bucket, both outside."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from mailboat.clock import SystemClock
from mailboat.testing.free_ports import LOOPBACK, free_ports
from mailboat.testing.kafka_broker import BrokerSettings, KafkaBroker
from mailboat.testing.s3_server import ADMIN, S3Server, S3ServerSettings

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def kafka(cluster: Any, s3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker's address that pods reach.

    It starts after the bucket's server, which takes no port that is in use at any address.
    """
    client, controller, pods = free_ports(3)
    address = f"{cluster.host_address}:{pods}"
    listeners = {"CLIENT": f"{LOOPBACK}:{client}", "CONTROLLER": f"{LOOPBACK}:{controller}", "PODS": address}
    properties = {
        "listeners": ",".join(f"{name}://{place}" for name, place in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
    }
    settings = BrokerSettings(tmp_path_factory.mktemp("kafka"), properties=properties)
    with KafkaBroker(settings, SystemClock(), (client, controller)):
        yield address


@pytest.fixture(scope="session")
def s3(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket's endpoint that pods reach; the server itself listens on the loopback address only."""
    server = S3Server(S3ServerSettings(tmp_path_factory.mktemp("s3")), SystemClock())
    with server, socket.create_server((cluster.host_address, server.port)) as listening:
        threading.Thread(target=accept_for, args=(listening, server.port), daemon=True).start()
        yield f"http://{cluster.host_address}:{server.port}"


def accept_for(listening: socket.socket, port: int) -> None:
    """Connect each caller with a port of the loopback address, until the socket is closed."""
    with suppress(OSError):
        while True:
            caller, _ = listening.accept()
            server = socket.create_connection((LOOPBACK, port))
            for source, sink in ((caller, server), (server, caller)):
                threading.Thread(target=pour, args=(source, sink), daemon=True).start()


def pour(source: socket.socket, sink: socket.socket) -> None:
    with closing(sink), suppress(OSError):
        while piece := source.recv(65_536):
            sink.sendall(piece)


def test_an_agent_that_lost_all_its_volumes_gets_the_tree_from_kafka_and_the_bucket(
    author: Any, kafka: str, s3: str
) -> None:
    author.configure(
        f"""
        journal:
          kafka: {{bootstrap_servers: ["{kafka}"], replicas: 1}}
        blobs:
          s3:
            bucket: mailboat
            endpoint_url: {s3}
            region: us-east-1
            is_path_style: true
            access_key_id: {{file: /run/secrets/mailboat/access-key}}
            secret_access_key: {{file: /run/secrets/mailboat/secret-key}}
        """,
        {"access-key": ADMIN.access_key_id, "secret-key": ADMIN.secret_access_key},
    )
    author.start()
    author.fill(author.site)
    author.mailboat("publish", "/", "--wait", "60")
    assert author.served() == author.files(author.site)

    author.stop()
    author.start()

    assert author.served() == author.files(author.site)
