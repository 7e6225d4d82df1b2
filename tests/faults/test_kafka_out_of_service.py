"""A broker that answers, but is out of service: the client library must not end the process over what it is told.

librdkafka 2.16 fails an assertion when it is told of no broker at all as the answer to `describe_cluster`. What we ask
instead is asked here in that very state, which comes and goes: the broker's heartbeats are slower than its session.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.errors import JournalUnavailableError
from mailboat.journal import kafka_topics
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import Edge, ReadLimits
from mailboat.testing.journal_harness import FOREVER, new_topic_name, once_available, some_records
from support.kafka_broker import BrokerSettings, KafkaBroker

FENCED_OFTEN = {"broker.session.timeout.ms": "900", "broker.heartbeat.interval.ms": "2500"}
ASKING = """
import sys
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from mailboat.clock import SystemClock
from mailboat.errors import JournalUnavailableError
from mailboat.journal.kafka import KafkaJournal
from mailboat.config.storage import KafkaConfig
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.config.topic_settings import TopicSettings
from mailboat.model.identifiers import TopicName

servers, topic = sys.argv[1], TopicName("asked")
admin = AdminClient({"bootstrap.servers": servers})
settings = KafkaSettings(KafkaConfig((servers,), request_seconds=1.5))

def brokers():
    try:
        return len(admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return None

unanswered = 0

def asked(ask):
    global unanswered
    try:
        ask()
    except JournalUnavailableError:
        unanswered += 1
        return False
    return True

def patiently(ask):
    while not asked(ask):
        pass

with KafkaJournal(settings, SystemClock()) as journal:
    patiently(lambda: journal.ensure_topic(topic, TopicSettings()))
    identities, out_of_service = set(), 0
    while out_of_service == 0 or unanswered < 2:
        out_of_service += brokers() == 0
        with KafkaJournal(settings, SystemClock()) as another:  # it knows nothing yet, and asks for everything
            asked(lambda: identities.add(another.identity(topic)))
            asked(lambda: another.bounds(topic))
            asked(lambda: another.differences(topic, TopicSettings()))
    patiently(lambda: identities.add(journal.identity(topic)))
    print(len(identities), "log")
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    settings = BrokerSettings(tmp_path_factory.mktemp("kafka"), properties=FENCED_OFTEN)
    with KafkaBroker(settings, SystemClock()) as broker:
        yield broker


def test_a_broker_that_is_out_of_service_again_and_again_ends_no_process(broker: KafkaBroker) -> None:
    command = [sys.executable, "-c", ASKING, broker.bootstrap_servers]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert (asked.returncode, asked.stdout) == (0, "1 log\n"), asked.stderr[-2000:]


def test_clients_that_were_told_of_no_broker_find_it_again(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka drops all addresses then: https://github.com/confluentinc/librdkafka/issues/5301"""
    monkeypatch.setattr(kafka_topics, "_LEAST_LIFE_SECONDS", 1.0)
    config, topic = KafkaConfig((broker.bootstrap_servers,), append_seconds=3.0, request_seconds=1.5), new_topic_name()
    with KafkaJournal(KafkaSettings(config), SystemClock()) as journal:
        once_available(lambda: journal.ensure_topic(topic, FOREVER))
        reader = once_available(lambda: journal.reader(topic, Edge.NEXT))
        for _ in range(3):
            failures = 0
            while failures < 2:
                try:
                    journal.bounds(topic)
                    reader.read(ReadLimits(), 0.2)
                except JournalUnavailableError:
                    failures += 1
            once_available(lambda: journal.bounds(topic))
            once_available(lambda: journal.append(topic, some_records(1)))
            assert once_available(lambda: reader.read(ReadLimits(), 1.0)).records
