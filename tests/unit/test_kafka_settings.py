"""Settings become librdkafka's keys, and secrets stay where they belong."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from mailboat.journal.kafka import topic_configuration
from mailboat.journal.kafka_appender import size_in_log_bytes
from mailboat.journal.kafka_settings import (
    BATCH_BYTES,
    KafkaSecurity,
    KafkaSettings,
    KafkaTls,
    PasswordLogin,
    PasswordMechanism,
    TokenLogin,
    client_options,
    consumer_options,
    producer_options,
    security_options,
)
from mailboat.journal.port import NewRecord, TopicSettings

SECRET = "correct horse battery staple"
PASSWORD = PasswordLogin(PasswordMechanism.SCRAM_SHA_512, "alice", SECRET)
TOKEN = TokenLogin("https://127.0.0.1:1/token", "mailboat", SECRET)
MUTUAL = KafkaTls(Path("ca.pem"), Path("me.pem"), Path("me.key"), SECRET)


@pytest.mark.parametrize(
    ("security", "protocol"),
    [
        (KafkaSecurity(), "PLAINTEXT"),
        (KafkaSecurity(tls=KafkaTls()), "SSL"),
        (KafkaSecurity(login=PASSWORD), "SASL_PLAINTEXT"),
        (KafkaSecurity(tls=KafkaTls(), login=PASSWORD), "SASL_SSL"),
    ],
)
def test_the_protocol_follows_from_what_is_given(security: KafkaSecurity, protocol: str) -> None:
    assert security_options(security)["security.protocol"] == protocol


def test_certificates_are_given_as_files_and_the_host_is_checked() -> None:
    assert security_options(KafkaSecurity(tls=MUTUAL)) == {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.key",
        "ssl.key.password": SECRET,
        "ssl.endpoint.identification.algorithm": "https",
    }
    unchecked = KafkaSecurity(tls=KafkaTls(is_host_checked=False))
    assert security_options(unchecked)["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize("mechanism", list(PasswordMechanism))
def test_a_user_logs_in_with_a_password(mechanism: PasswordMechanism) -> None:
    options = security_options(KafkaSecurity(login=PasswordLogin(mechanism, "alice", SECRET)))
    assert (options["sasl.mechanism"], options["sasl.username"]) == (mechanism.value, "alice")
    assert options["sasl.password"] == SECRET


def test_a_token_is_fetched_by_the_client_itself() -> None:
    options = security_options(KafkaSecurity(login=TOKEN))
    assert (options["sasl.mechanism"], options["sasl.oauthbearer.method"]) == ("OAUTHBEARER", "oidc")
    assert options["sasl.oauthbearer.token.endpoint.url"] == TOKEN.token_url
    assert "sasl.oauthbearer.scope" not in options


@pytest.mark.parametrize("login", [PASSWORD, TOKEN])
def test_secrets_are_not_shown(login: PasswordLogin | TokenLogin) -> None:
    settings = KafkaSettings("localhost:9092", KafkaSecurity(MUTUAL, login))
    assert SECRET not in f"{settings!r} {settings}"


@pytest.mark.parametrize("login", [None, PASSWORD, TOKEN])
def test_the_library_takes_every_key(login: PasswordLogin | TokenLogin | None) -> None:
    settings = KafkaSettings("localhost:1", KafkaSecurity(KafkaTls(), login))
    with Producer({**producer_options(settings), "log_level": 0}) as producer:
        assert producer
    with Consumer({**consumer_options(settings), "log_level": 0}) as consumer:
        assert consumer.assignment() == []


def test_positions_are_never_moved_by_the_client_nor_kept_in_a_group() -> None:
    options = consumer_options(KafkaSettings("localhost:9092"))
    assert options["auto.offset.reset"] == "error"
    assert options["enable.auto.commit"] is False
    assert options["check.crcs"] is True


def test_appends_are_durable_and_in_order() -> None:
    options = producer_options(KafkaSettings("localhost:9092"))
    assert (options["enable.idempotence"], options["acks"]) == (True, "all")
    assert options["message.timeout.ms"] == 0


def test_clients_are_named_for_the_brokers_logs() -> None:
    assert client_options(KafkaSettings("localhost:9092", client_id="edge-1"))["client.id"] == "edge-1"


def test_a_topic_is_kept_as_its_settings_say() -> None:
    kept = topic_configuration(TopicSettings(retention_seconds=3600.0, max_message_bytes=1_000_000), None)
    assert kept["retention.ms"] == "3600000"
    assert kept["segment.ms"] == "900000"
    assert int(kept["max.message.bytes"]) > 1_000_000
    assert kept["cleanup.policy"] == "delete"
    assert "min.insync.replicas" not in kept


def test_a_topic_that_is_kept_for_ever_still_begins_new_segments() -> None:
    kept = topic_configuration(TopicSettings(retention_seconds=None), 2)
    assert (kept["retention.ms"], kept["retention.bytes"]) == ("-1", "-1")
    assert int(kept["segment.ms"]) == 7 * 24 * 3600 * 1000
    assert kept["min.insync.replicas"] == "2"


def test_no_topic_takes_less_than_a_batch_of_the_producer() -> None:
    kept = topic_configuration(TopicSettings(max_message_bytes=10), None)
    assert int(kept["max.message.bytes"]) >= BATCH_BYTES


def test_keys_and_headers_count_in_the_size_of_a_record() -> None:
    plain = size_in_log_bytes(NewRecord(b"x" * 100))
    assert plain > 100
    assert size_in_log_bytes(NewRecord(b"x" * 100, (), b"key")) == plain + 3
    assert size_in_log_bytes(NewRecord(b"x" * 100, (("naïve", b"1234"),))) >= plain + 6 + 4
