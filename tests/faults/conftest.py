"""A journal on the brokers that a test breaks something of, and a topic of its own there.

A test file with brokers of its own has them in a fixture `kafka_broker`, and the rest follows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.model.identifiers import TopicName
from mailboat.testing.journal_harness import FOREVER, new_topic_name
from mailboat.testing.wait import PATIENCE_SECONDS
from support.kafka_broker import BrokerSettings, KafkaBroker


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that no other folder uses, as these tests stop and kill it."""
    with KafkaBroker(BrokerSettings(tmp_path_factory.mktemp("kafka")), SystemClock()) as broker:
        yield broker


@pytest.fixture
def settings(kafka_broker: KafkaBroker) -> KafkaSettings:
    # An append that is to succeed may meet a broker that starts again, which a busy machine draws out.
    return KafkaSettings(KafkaConfig((kafka_broker.bootstrap_servers,), append_seconds=PATIENCE_SECONDS))


@pytest.fixture
def journal(settings: KafkaSettings) -> Iterator[KafkaJournal]:
    with KafkaJournal(settings, SystemClock()) as journal:
        yield journal


@pytest.fixture
def topic(journal: KafkaJournal) -> TopicName:
    name = new_topic_name()
    journal.ensure_topic(name, FOREVER)
    return name


@pytest.fixture
def admin(kafka_broker: KafkaBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})
