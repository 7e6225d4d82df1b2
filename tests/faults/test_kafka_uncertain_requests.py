"""One request on three brokers whose replicas go away in the middle of it, and come back in the middle of the next.

With two of three gone there is no controller. librdkafka 2.16 spins while an administrative request waits for one: its
main thread and that of the broker in reconnect backoff wake each other, at nearly a whole core. So it is a long test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.errors import AppendUncertainError
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import Edge, NewRecord
from mailboat.model.identifiers import Offset, RequestId, TopicName
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.publisher.publisher_settings import PublisherSettings
from mailboat.testing.journal_harness import in_background, once_available, read_to_end
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS, wait_until
from mailboat.wire.package_messages import decode_package
from support.engines import AUTHOR, PACKAGES, SLING_ID, Engine, page_source
from support.kafka_broker import BrokerSettings, with_section
from support.kafka_cluster import KafkaCluster

PAGE = NodePath("/page.html")
AGENT = PublisherSettings(AUTHOR, SLING_ID, package_topic=PACKAGES)


class WatchedJournal(KafkaJournal):
    """Calls a function before each append."""

    def __init__(self, settings: KafkaSettings, when_appending: Callable[[], None]) -> None:
        super().__init__(settings, SystemClock())
        self._when_appending = when_appending

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        self._when_appending()
        return super().append(topic, records)


@pytest.fixture
def kafka_broker(tmp_path: Path) -> Iterator[KafkaCluster]:
    """Three brokers with small heaps. The name puts their logs into reports."""
    with KafkaCluster(BrokerSettings(tmp_path / "cluster", heap_mib=256), SystemClock()) as cluster:
        yield cluster


def in_sync_and_leader(admin: AdminClient) -> tuple[set[int], int]:
    partition = admin.list_topics(PACKAGES, timeout=PATIENCE_SECONDS).topics[PACKAGES].partitions[0]
    return set(partition.isrs), partition.leader


@pytest.mark.long("crashes-and-fuzz")
@pytest.mark.timeout(600)
def test_a_message_that_only_the_leader_has_stays_the_only_one_when_the_others_are_back(
    kafka_broker: KafkaCluster, tmp_path: Path
) -> None:
    settings = KafkaSettings(KafkaConfig((kafka_broker.bootstrap_servers,), replicas=3, min_insync_replicas=2))
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})
    request = add_request([PAGE], request_id=RequestId("r1"))
    source = page_source(PAGE)
    followers: set[int] = set()

    def kill_followers() -> None:
        # not before the append: until the cluster has noticed, questions before it may go to a killed broker
        for number in followers:
            kafka_broker.brokers[number].kill()

    with (
        WatchedJournal(with_section(settings, append_seconds=3.0), kill_followers) as impatient,
        Engine(tmp_path / "home", journal=impatient) as engine,
    ):
        wait_until(lambda: len(in_sync_and_leader(admin)[0]) == 3, "three replicas in sync")
        once_available(lambda: engine.publisher(AGENT).publish(add_request([PAGE]), source))
        followers |= kafka_broker.brokers.keys() - {in_sync_and_leader(admin)[1]}
        with pytest.raises(AppendUncertainError, match="0 of 1 records"):
            engine.publisher(AGENT).publish(request, source)
    is_appending = threading.Event()
    with (
        WatchedJournal(with_section(settings, append_seconds=LONG_WAIT_SECONDS), is_appending.set) as patient,
        once_available(lambda: Engine(tmp_path / "home", journal=patient)) as engine,
        in_background(lambda: once_available(lambda: engine.publisher(AGENT).publish(request, source))) as publishing,
    ):
        wait_until(is_appending.is_set, "the second attempt")
        for number in followers:
            kafka_broker.brokers[number].launch()
        for number in followers:
            kafka_broker.brokers[number].await_start()
        receipt = publishing.result(LONG_WAIT_SECONDS)
        found = [decode_package(item.value) for item in read_to_end(patient.reader(PACKAGES, Edge.EARLIEST))]
    assert receipt.is_repeat
    assert [item.package_id for item in found if item.request_id == "r1"] == [receipt.package_id]
    # no TEST where the journal was away before it was appended: a later attempt finds the message without it
    assert {item.action for item in found} <= {Action.ADD, Action.TEST}
