"""The Kafka adapter passes the suite of the journal port, on a real broker."""

from __future__ import annotations

import pytest
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.model.identifiers import TopicName
from mailboat.testing.journal_contract import JournalContract
from mailboat.testing.journal_harness import JournalHarness
from mailboat.testing.journal_model import check_against_model
from support.kafka_broker import KafkaBroker


class TestKafkaJournal(JournalContract):
    @pytest.fixture
    def harness(self, kafka_broker: KafkaBroker) -> JournalHarness:
        settings = KafkaSettings(KafkaConfig((kafka_broker.bootstrap_servers,)))

        def delete_topic(topic: TopicName) -> None:
            with KafkaJournal(settings, SystemClock()) as journal:
                journal.delete_topic(topic)

        return JournalHarness(lambda: KafkaJournal(settings, SystemClock()), delete_topic, reads_ahead=True)

    def test_any_sequence_of_calls_agrees_with_a_plain_list(self, harness: JournalHarness) -> None:
        # few, as the idempotent producer of each new handle takes half a second to get its id from the brokers
        check_against_model(harness, max_examples=4)
