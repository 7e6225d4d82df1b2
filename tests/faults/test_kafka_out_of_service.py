"""A broker that answers, but is out of service: the client library must not end the process over what it is told.

librdkafka 2.16 fails an assertion when it is told of no broker at all as the answer to `describe_cluster`. What we ask
instead is asked here in that very state, which comes and goes: the broker's heartbeats are slower than its session.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
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


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(BrokerSettings(tmp_path / "broker", properties=FENCED_OFTEN), SystemClock()) as broker:
        yield broker


def test_a_broker_that_is_out_of_service_again_and_again_ends_no_process(broker: KafkaBroker) -> None:
    command = [sys.executable, "-c", ASKING, broker.bootstrap_servers]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert (asked.returncode, asked.stdout) == (0, "1 log\n"), asked.stderr[-2000:]
