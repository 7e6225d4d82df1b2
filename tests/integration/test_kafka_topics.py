"""Topics, limits, logins and the broker runner, against a real broker."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig, KafkaSaslConfig, SaslMechanism
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import (
    JournalAccessDeniedError,
    JournalUnavailableError,
    MailboatError,
    MessageTooLargeError,
    PositionOutOfRangeError,
    UsageError,
)
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_appender import KafkaAppender, size_in_log_bytes
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import Edge, NewRecord, ReadLimits
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import LogIdentity
from mailboat.testing.journal_harness import FOREVER, new_topic_name, read_to_end, some_records, values_of
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.kafka_broker import (
    BrokerSettings,
    KafkaBroker,
)
from support.kafka_files import BrokerFailedError, BrokerToolMissingError, resolve_jars

WRONG = "not the password"


@pytest.fixture
def settings(kafka_broker: KafkaBroker) -> KafkaSettings:
    return KafkaSettings(KafkaConfig((kafka_broker.bootstrap_servers,)))


@pytest.fixture
def journal(settings: KafkaSettings) -> Iterator[KafkaJournal]:
    with KafkaJournal(settings, SystemClock()) as journal:
        yield journal


@pytest.fixture
def topic() -> TopicName:
    return new_topic_name()


@pytest.fixture
def admin(kafka_broker: KafkaBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})


def configuration(admin: AdminClient, topic: TopicName) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(PATIENCE_SECONDS)
    return {name: entry.value for name, entry in found.items()}


def configure(admin: AdminClient, topic: TopicName, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)
    wait_until(lambda: configuration(admin, topic)[name] == value, f"the brokers know of {name}")


def as_user(broker: KafkaBroker, password: str) -> KafkaSettings:
    sasl = KafkaSaslConfig(SaslMechanism.PLAIN, "alice")
    return KafkaSettings(KafkaConfig((broker.servers("USERS"),), sasl=sasl), password)


# --------------------------------------------------------------------------------------------------------- topics


def test_a_topic_is_made_as_its_settings_say(journal: KafkaJournal, topic: TopicName, admin: AdminClient) -> None:
    journal.ensure_topic(topic, TopicSettings(retention_seconds=3600.0, max_message_bytes=2_000_000))
    found = configuration(admin, topic)
    assert found["retention.ms"] == "3600000"
    assert found["message.timestamp.type"] == "LogAppendTime"
    assert int(found["max.message.bytes"]) >= 2_000_000


def test_what_drifted_is_put_right_and_what_is_not_ours_is_left(
    journal: KafkaJournal, topic: TopicName, admin: AdminClient
) -> None:
    journal.ensure_topic(topic, FOREVER)
    configure(admin, topic, "retention.ms", "1000")
    configure(admin, topic, "file.delete.delay.ms", "1234")
    journal.ensure_topic(topic, FOREVER)
    wait_until(lambda: configuration(admin, topic)["retention.ms"] == "-1", "the retention is put right")
    assert configuration(admin, topic)["file.delete.delay.ms"] == "1234"


def test_many_may_ensure_the_same_topic_at_once(settings: KafkaSettings, topic: TopicName) -> None:
    def ensure(_: int) -> LogIdentity:
        with KafkaJournal(settings, SystemClock()) as journal:
            journal.ensure_topic(topic, FOREVER)
            return journal.identity(topic)

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(ensure, range(6)))) == 1


@pytest.mark.parametrize("offset", [-1, -2, -1001, 2**63 - 1, 2**63, 2**70])
def test_offsets_that_mean_something_else_to_the_library_are_outside_the_topic(
    journal: KafkaJournal, topic: TopicName, offset: int
) -> None:
    """To the library -1 is the end and -2 the beginning; to us nothing but an offset is one."""
    journal.ensure_topic(topic, FOREVER)
    journal.append(topic, some_records(3))
    reader = journal.reader(topic, Offset(offset))
    with pytest.raises(PositionOutOfRangeError):
        reader.read(ReadLimits(), 0.0)
    assert reader.next_offset == offset


def test_more_replicas_than_brokers_are_refused(settings: KafkaSettings, topic: TopicName) -> None:
    wanted = KafkaSettings(KafkaConfig((settings.bootstrap_servers,), replicas=2, min_insync_replicas=2))
    with KafkaJournal(wanted, SystemClock()) as journal, pytest.raises(UsageError, match=topic):
        journal.ensure_topic(topic, FOREVER)


def test_the_clusters_own_topics_are_not_listed(journal: KafkaJournal, topic: TopicName) -> None:
    journal.ensure_topic(topic, FOREVER)
    found = journal.topics()
    assert topic in found
    assert [name for name in found if name.startswith("__")] == []


def test_brokers_that_are_not_there_are_named() -> None:
    with socket.socket() as nobody:  # bound but not listening: connections are refused
        nobody.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{nobody.getsockname()[1]}"
        with KafkaJournal(KafkaSettings(KafkaConfig((place,), request_seconds=0.5)), SystemClock()) as journal:
            for call in (journal.topics, lambda: journal.bounds(TopicName("package"))):
                with pytest.raises(JournalUnavailableError, match=place) as unavailable:
                    call()
                assert unavailable.value.next_step is not None


# ---------------------------------------------------------------------------------------------------------- sizes


def test_another_process_knows_the_limit_from_the_topic(
    settings: KafkaSettings, journal: KafkaJournal, topic: TopicName
) -> None:
    journal.ensure_topic(topic, TopicSettings(max_message_bytes=600_000))
    with KafkaJournal(settings, SystemClock()) as other:
        with pytest.raises(MessageTooLargeError, match="600000"):
            other.append(topic, [NewRecord(os.urandom(600_001))])
        other.append(topic, [NewRecord(os.urandom(600_000), (("type", b"2"), ("version", b"1")), b"key")])


def test_key_and_headers_beyond_the_limit_are_refused_before_anything_is_sent(
    journal: KafkaJournal, topic: TopicName
) -> None:
    journal.ensure_topic(topic, TopicSettings(max_message_bytes=300_000))
    huge = NewRecord(b"x" * 300_000, (("huge", b"y" * 100_000),))
    with pytest.raises(MessageTooLargeError, match=topic):
        journal.append(topic, [NewRecord(b"fits"), huge])
    assert journal.bounds(topic).count == 0


def test_a_record_is_never_larger_in_the_log_than_reckoned(
    settings: KafkaSettings, topic: TopicName, admin: AdminClient
) -> None:
    headers = tuple((f"name-{number}", os.urandom(300)) for number in range(20))
    with KafkaJournal(replace(settings, topic_memory_seconds=0.0), SystemClock()) as journal:
        journal.ensure_topic(topic, FOREVER)
        for record in (NewRecord(os.urandom(5000)), NewRecord(b"", headers, os.urandom(200))):
            configure(admin, topic, "max.message.bytes", str(size_in_log_bytes(record)))
            wait_until(lambda record=record: is_taken(journal, topic, record), "the log itself knows of the limit")


def is_taken(journal: KafkaJournal, topic: TopicName, record: NewRecord) -> bool:
    """Whether the topic takes it: a broker tells a new limit a moment before its log keeps to it."""
    try:
        journal.append(topic, [record])
    except MessageTooLargeError:
        return False
    return True


def test_more_than_the_clients_queue_holds_is_appended_in_order(journal: KafkaJournal, topic: TopicName) -> None:
    journal.ensure_topic(topic, FOREVER)
    records = [NewRecord(f"{number:06}".encode() + bytes(900_000)) for number in range(90)]
    offsets = journal.append(topic, records)
    assert offsets == sorted(offsets)
    reader = journal.reader(topic, Edge.EARLIEST)
    found = [value[:6] for value in values_of(read_to_end(reader, ReadLimits(max_bytes=4_000_000)))]
    assert found == [record.value[:6] for record in records]


# --------------------------------------------------------------------------------------------------------- logins


def test_while_no_broker_is_in_service_the_cluster_is_asked_again(
    settings: KafkaSettings, journal: KafkaJournal, topic: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause of all brokers: `describe_cluster` would abort the process then (librdkafka 2.16)."""
    answers = iter([SimpleNamespace(cluster_id=None)] * 2)
    real = AdminClient.list_topics
    monkeypatch.setattr(AdminClient, "list_topics", lambda *args, **named: next(answers, None) or real(*args, **named))
    monkeypatch.setattr(AdminClient, "describe_cluster", None)
    journal.ensure_topic(topic, FOREVER)
    with KafkaJournal(settings, SystemClock()) as asking:
        assert asking.identity(topic) == journal.identity(topic)
    assert next(answers, None) is None


def test_a_user_with_the_right_password_is_served(
    kafka_broker: KafkaBroker, journal: KafkaJournal, topic: TopicName
) -> None:
    with KafkaJournal(as_user(kafka_broker, "alice-secret"), SystemClock()) as secured:
        secured.ensure_topic(topic, FOREVER)
        secured.append(topic, some_records(3))
        assert len(read_to_end(secured.reader(topic, Edge.EARLIEST))) == 3
        assert secured.identity(topic) == journal.identity(topic)


def test_a_wrong_password_is_said_at_once_and_not_repeated_in_the_message(
    kafka_broker: KafkaBroker, topic: TopicName
) -> None:
    settings, clock = as_user(kafka_broker, WRONG), SystemClock()
    appender = KafkaAppender(settings, clock, ClientLog(clock))
    began = clock.monotonic()
    with KafkaJournal(settings, clock) as journal, closing(appender):
        for call in (journal.topics, lambda: appender.append(topic, some_records(1))):
            with pytest.raises(JournalAccessDeniedError, match="Authentication failed") as denied:
                call()
            assert WRONG not in f"{denied.value} {denied.value.next_step}"
    assert clock.monotonic() - began < settings.config.request_seconds


# --------------------------------------------------------------------------------------------------------- runner


def test_a_missing_program_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerToolMissingError, match="mvn") as missing:
        resolve_jars(tmp_path / "cache")
    assert "maven" in str(missing.value.next_step)


def test_a_failed_download_leaves_nothing_behind_that_looks_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho no such artifact\nexit 3\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for _ in range(2):
        with pytest.raises(BrokerFailedError, match="no such artifact"):
            resolve_jars(tmp_path / "cache")


@pytest.mark.parametrize("name", ["process.roles", "num.network.threads"])
def test_a_broker_that_does_not_start_shows_why(tmp_path: Path, name: str) -> None:
    broker = KafkaBroker(BrokerSettings(tmp_path, properties={name: "nonsense"}), SystemClock())
    with pytest.raises(MailboatError, match=name):
        broker.start()
    broker.stop()


def test_the_first_append_of_a_process_waits_for_no_timer_of_the_client_library(
    settings: KafkaSettings, journal: KafkaJournal, topic: TopicName
) -> None:
    """The library's timer takes half a second; tries go on until one is quicker, also on a busy machine."""
    journal.ensure_topic(topic, FOREVER)
    clock = SystemClock()

    def is_quick() -> bool:
        with KafkaJournal(settings, clock) as fresh:
            fresh.bounds(topic)
            began = clock.monotonic()
            fresh.append(topic, some_records(1))
            return clock.monotonic() - began < 0.45

    wait_until(is_quick)
