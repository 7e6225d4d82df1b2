"""What the network does to connections with a real broker: resets, silence while they stay open, slow lines."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.errors import AppendUncertainError, JournalUnavailableError
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import Edge, NewRecord, ReadLimits, Record
from mailboat.model.identifiers import TopicName
from mailboat.testing.journal_harness import (
    in_background,
    once_available,
    read_to_end,
    some_records,
    values_of,
)
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS, wait_until
from support.free_ports import LOOPBACK, free_ports
from support.kafka_broker import BrokerSettings, KafkaBroker
from support.tcp_proxy import TcpProxy


@pytest.fixture(scope="module")
def proxy_of_the_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpProxy]:
    """A broker of its own that tells all clients to come through the proxy."""
    client, controller, front = free_ports(3)
    advertised = {"advertised.listeners": f"CLIENT://{LOOPBACK}:{front}"}
    settings = BrokerSettings(tmp_path_factory.mktemp("behind-proxy"), properties=advertised)
    with TcpProxy(client, front) as proxy, KafkaBroker(settings, SystemClock(), (client, controller)):
        yield proxy


@pytest.fixture
def proxy(proxy_of_the_broker: TcpProxy) -> Iterator[TcpProxy]:
    yield proxy_of_the_broker
    proxy_of_the_broker.heal()


@pytest.fixture
def journal(proxy: TcpProxy) -> Iterator[KafkaJournal]:
    with KafkaJournal(KafkaSettings(KafkaConfig((f"{LOOPBACK}:{proxy.port}",))), SystemClock()) as journal:
        yield journal
        proxy.heal()


@pytest.fixture
def impatient(proxy: TcpProxy) -> Iterator[KafkaJournal]:
    """Gives up soon, and remembers topics for so long that an append asks for nothing before it."""
    settings = KafkaSettings(KafkaConfig((f"{LOOPBACK}:{proxy.port}",), append_seconds=8.0, request_seconds=8.0))
    settings = replace(settings, topic_memory_seconds=LONG_WAIT_SECONDS)
    with KafkaJournal(settings, SystemClock()) as impatient:
        yield impatient
        proxy.heal()


def test_connections_that_are_reset_in_mid_append_lose_and_double_nothing(
    proxy: TcpProxy, journal: KafkaJournal, topic: TopicName
) -> None:
    batches = [some_records(200, f"batch-{number}") for number in range(30)]
    proxy.slow_down(400_000)
    before = proxy.resets

    def append_all() -> None:
        for batch in batches:
            journal.append(topic, batch)

    with in_background(append_all) as appending:
        for _ in range(3):
            wait_until(lambda: proxy.connections > 0, "a connection")
            proxy.reset()
        proxy.heal()
        appending.result(PATIENCE_SECONDS)
    assert proxy.resets - before >= 3
    with closing(journal.reader(topic, Edge.EARLIEST)) as reader:
        assert values_of(read_to_end(reader)) == [record.value for batch in batches for record in batch]


def test_a_reader_whose_connections_are_reset_goes_on_without_a_gap_or_a_repeat(
    proxy: TcpProxy, journal: KafkaJournal, topic: TopicName
) -> None:
    records = [NewRecord(b"%06d" % number + random.Random(number).randbytes(2000)) for number in range(1500)]
    journal.append(topic, records)
    proxy.slow_down(1_500_000)
    seen: list[Record] = []
    with closing(journal.reader(topic, Edge.EARLIEST)) as reader:
        for enough in (100, 400, 800, len(records)):
            while len(seen) < enough:
                with suppress(JournalUnavailableError):
                    seen.extend(reader.read(ReadLimits(max_records=50), 1.0).records)
            proxy.reset()
    assert values_of(seen) == [record.value for record in records]


def test_silent_connections_time_out_and_recover(
    proxy: TcpProxy, journal: KafkaJournal, impatient: KafkaJournal, topic: TopicName
) -> None:
    impatient.append(topic, some_records(3, "before"))
    proxy.silence()
    with pytest.raises(AppendUncertainError):
        impatient.append(topic, some_records(1, "doubtful"))
    with pytest.raises(JournalUnavailableError):
        impatient.bounds(topic)
    proxy.heal()
    once_available(lambda: impatient.append(topic, some_records(1, "after")))
    with closing(journal.reader(topic, Edge.EARLIEST)) as reader:
        values = values_of(read_to_end(reader))
    assert values[:3] == [b"before-0", b"before-1", b"before-2"]
    assert set(values[3:]) - {b"doubtful-0"} == {b"after-0"}
    assert values.count(b"doubtful-0") <= 1  # it may come late, also behind what was appended since


def test_over_a_slow_line_that_is_reset_a_package_in_pieces_arrives_whole(
    proxy: TcpProxy, new_boat: Any, tmp_path: Path
) -> None:
    new_boat.do("init", "--kafka", f"{LOOPBACK}:{proxy.port}")
    file = new_boat.home / "mailboat.yaml"
    document = yaml.safe_load(file.read_text())
    document["journal"]["topic_prefix"] = f"net-{uuid.uuid4().hex[:8]}-"
    document["publisher"]["transfer"] = "chunks"
    file.write_text(yaml.safe_dump(document))
    new_boat.do("journal", "ensure")
    content = random.Random(9).randbytes(3_000_000)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/large.bin").write_bytes(content)
    proxy.slow_down(2_000_000)
    passed = proxy.passed_bytes
    with in_background(lambda: new_boat.do("publish", tmp_path / "site", "/large.bin")) as publishing:
        wait_until(lambda: proxy.passed_bytes - passed > 500_000, "the first pieces")
        proxy.reset()
        publishing.result(PATIENCE_SECONDS)
    new_boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    assert (tmp_path / "web/large.bin").read_bytes() == content
