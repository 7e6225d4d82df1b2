"""Settings become librdkafka's keys, and secrets stay where they belong."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer
from mailboat.config.storage import KafkaConfig, KafkaSaslConfig, KafkaTlsConfig, SaslMechanism
from mailboat.config.topic_settings import BATCH_BYTES, TopicSettings, kafka_settings_of
from mailboat.journal.kafka_appender import size_in_log_bytes
from mailboat.journal.kafka_settings import (
    KafkaSettings,
    client_options,
    consumer_options,
    producer_options,
    security_options,
)
from mailboat.journal.kafka_topics import differences_of
from mailboat.journal.port import NewRecord, TopicDifference

SECRET = "correct horse battery staple"
PASSWORD = KafkaSaslConfig(SaslMechanism.SCRAM_SHA_512, "alice")
TOKEN = KafkaSaslConfig(SaslMechanism.OAUTHBEARER, "mailboat", token_url="https://127.0.0.1:1/token")
MUTUAL = KafkaTlsConfig("ca.pem", "me.pem", "me.key")
LOCAL = KafkaSettings(KafkaConfig(("localhost:9092",)))


def secured(tls: KafkaTlsConfig | None = None, sasl: KafkaSaslConfig | None = None) -> KafkaSettings:
    return KafkaSettings(KafkaConfig(("localhost:1",), tls=tls, sasl=sasl), SECRET, SECRET)


@pytest.mark.parametrize(
    ("settings", "protocol"),
    [
        (secured(), "PLAINTEXT"),
        (secured(KafkaTlsConfig()), "SSL"),
        (secured(sasl=PASSWORD), "SASL_PLAINTEXT"),
        (secured(KafkaTlsConfig(), PASSWORD), "SASL_SSL"),
    ],
)
def test_the_protocol_follows_from_what_is_given(settings: KafkaSettings, protocol: str) -> None:
    assert security_options(settings)["security.protocol"] == protocol


def test_certificates_are_given_as_files_and_the_host_is_checked() -> None:
    assert security_options(secured(MUTUAL)) == {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.key",
        "ssl.key.password": SECRET,
        "ssl.endpoint.identification.algorithm": "https",
    }
    unchecked = secured(KafkaTlsConfig(verify_hostname=False))
    assert security_options(unchecked)["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize("mechanism", [item for item in SaslMechanism if item is not SaslMechanism.OAUTHBEARER])
def test_a_user_logs_in_with_a_password(mechanism: SaslMechanism) -> None:
    options = security_options(secured(sasl=KafkaSaslConfig(mechanism, "alice")))
    assert (options["sasl.mechanism"], options["sasl.username"]) == (mechanism.value, "alice")
    assert options["sasl.password"] == SECRET


def test_a_token_is_fetched_by_the_client_itself() -> None:
    options = security_options(secured(sasl=TOKEN))
    assert (options["sasl.mechanism"], options["sasl.oauthbearer.method"]) == ("OAUTHBEARER", "oidc")
    assert options["sasl.oauthbearer.token.endpoint.url"] == TOKEN.token_url
    assert options["sasl.oauthbearer.client.secret"] == SECRET
    assert "sasl.oauthbearer.scope" not in options


def test_secrets_are_not_shown() -> None:
    settings = secured(MUTUAL, PASSWORD)
    assert SECRET not in f"{settings!r} {settings}"


@pytest.mark.parametrize("sasl", [None, PASSWORD, TOKEN])
def test_the_library_takes_every_key(sasl: KafkaSaslConfig | None) -> None:
    settings = secured(KafkaTlsConfig(), sasl)
    assert Producer({**producer_options(settings), "log_level": 0}).poll(0.0) >= 0
    with closing(Consumer({**consumer_options(settings), "log_level": 0})) as consumer:
        assert consumer.assignment() == []


def test_positions_are_never_moved_by_the_client_nor_kept_in_a_group() -> None:
    options = consumer_options(LOCAL)
    assert options["auto.offset.reset"] == "error"
    assert options["enable.auto.commit"] is False
    assert options["check.crcs"] is True


def test_a_full_queue_holds_the_next_fetch_up_for_milliseconds_only() -> None:
    backoff_ms = consumer_options(LOCAL)["fetch.queue.backoff.ms"]
    assert isinstance(backoff_ms, int)
    assert 0 < backoff_ms <= 10  # by itself the library waits a second


def test_appends_are_durable_and_in_order() -> None:
    options = producer_options(LOCAL)
    assert (options["enable.idempotence"], options["acks"]) == (True, "all")
    assert options["message.timeout.ms"] == 0


def test_clients_are_named_for_the_brokers_logs() -> None:
    assert client_options(LOCAL)["client.id"] == "mailboat"


def planned(settings: TopicSettings, min_insync_replicas: int | None = None) -> Mapping[str, str]:
    return kafka_settings_of(settings, min_insync_replicas)


def test_a_topics_settings_become_kafkas() -> None:
    kept = planned(TopicSettings(retention_seconds=3600.0, max_message_bytes=1_000_000))
    assert kept["retention.ms"] == "3600000"
    assert kept["segment.ms"] == "900000"
    assert int(kept["max.message.bytes"]) > 1_000_000
    assert kept["cleanup.policy"] == "delete"
    assert "min.insync.replicas" not in kept


def test_a_topic_that_is_kept_for_ever_still_begins_new_segments() -> None:
    kept = planned(TopicSettings(retention_seconds=None), 2)
    assert (kept["retention.ms"], kept["retention.bytes"]) == ("-1", "-1")
    assert int(kept["segment.ms"]) == 7 * 24 * 3600 * 1000
    assert kept["min.insync.replicas"] == "2"


@pytest.mark.parametrize("kept_bytes", [1, 10_000_000, 64_000_000, 10**12])
def test_a_size_limit_is_kept_by_segments_that_are_a_part_of_it_and_hold_any_message(kept_bytes: int) -> None:
    kept = planned(TopicSettings(retention_bytes=kept_bytes, max_message_bytes=1_000_000))
    segment_bytes = int(kept["segment.bytes"])
    assert kept["retention.bytes"] == str(kept_bytes)
    assert int(kept["max.message.bytes"]) <= segment_bytes <= max(kept_bytes // 4, 4 * 1024 * 1024)


def test_no_topic_is_compacted_as_others_may_write_records_without_keys() -> None:
    assert planned(TopicSettings(retention_bytes=10_000_000))["cleanup.policy"] == "delete"


def test_no_topic_takes_less_than_a_batch_of_the_producer() -> None:
    assert int(planned(TopicSettings(max_message_bytes=10))["max.message.bytes"]) >= BATCH_BYTES


def test_a_topic_as_planned_has_no_differences_and_others_are_told_by_name() -> None:
    wanted = planned(TopicSettings(), 2)
    as_planned = {**wanted, "file.delete.delay.ms": "1"}
    assert differences_of(wanted, 3, as_planned, 3) == []
    found = differences_of(wanted, 3, {**as_planned, "retention.ms": "1000", "segment.ms": None}, 1)
    assert found == [
        TopicDifference("retention.ms", "604800000", "1000"),
        TopicDifference("segment.ms", "151200000", None),
        TopicDifference("replicas", "3", "1"),
    ]


@pytest.mark.parametrize(("wanted", "is_found", "replicas"), [(2, None, 1), (None, "2", 1)])
def test_a_topic_that_could_never_acknowledge_an_append_is_told(
    wanted: int | None, is_found: str | None, replicas: int
) -> None:
    configuration = planned(TopicSettings(), wanted)
    found = {**configuration, "min.insync.replicas": is_found or str(wanted)}
    assert differences_of(configuration, None, found, replicas) == [TopicDifference("replicas", "2 or more", "1")]


def test_keys_and_headers_count_in_the_size_of_a_record() -> None:
    plain = size_in_log_bytes(NewRecord(b"x" * 100))
    assert plain > 100
    assert size_in_log_bytes(NewRecord(b"x" * 100, (), b"key")) == plain + 3
    assert size_in_log_bytes(NewRecord(b"x" * 100, (("naïve", b"1234"),))) >= plain + 6 + 4
