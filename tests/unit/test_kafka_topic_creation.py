"""Creation of a topic whose answers come late: no broker is needed to show what is reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.errors import JournalUnavailableError, TopicMissingError
from mailboat.journal import kafka_topics
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_appender import KafkaAppender
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.kafka_topics import KafkaTopics, TopicState
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import TopicName
from mailboat.testing.wait import PATIENCE_SECONDS

SETTINGS = KafkaSettings(KafkaConfig(("127.0.0.1:9",), request_seconds=0.05))


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaTopics]:
    """The controller has the topic, since an earlier attempt created it, and the brokers do not know it yet."""

    def unknown(*_: object) -> TopicState:
        raise TopicMissingError("unknown topic or partition")

    monkeypatch.setattr(KafkaTopics, "state", unknown)
    monkeypatch.setattr(KafkaTopics, "_make", lambda *_: False)
    clock = SystemClock()
    made = KafkaTopics(SETTINGS, clock, ClientLog(clock))
    yield made
    made.close()


def test_a_created_topic_that_no_broker_serves_yet_is_unavailable_and_not_missing(topics: KafkaTopics) -> None:
    with pytest.raises(JournalUnavailableError, match="no broker serves it yet"):
        topics.ensure(TopicName("asked"), {})


def test_an_append_to_a_topic_that_only_a_broker_lacks_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise TopicMissingError("unknown topic or partition")

    monkeypatch.setattr(KafkaAppender, "append", missing)
    monkeypatch.setattr(KafkaTopics, "configuration", lambda *_: {})
    monkeypatch.setattr(KafkaTopics, "state", lambda *_: TopicState("first", 1, 1))
    with (
        KafkaJournal(SETTINGS, SystemClock()) as journal,
        pytest.raises(JournalUnavailableError, match="serves it yet"),
    ):
        journal.append(TopicName("asked"), [NewRecord(b"")])


def test_a_failing_callback_of_the_client_does_not_end_its_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, is_later = [], threading.Event()

    def fail_first(_: KafkaTopics) -> None:
        heard.append(1)
        if len(heard) == 1:
            raise ValueError("of a callback")
        is_later.set()

    monkeypatch.setattr(kafka_topics, "_LISTEN_SECONDS", 0.01)
    monkeypatch.setattr(KafkaTopics, "_poll_clients", fail_first)
    clock = SystemClock()
    made = KafkaTopics(SETTINGS, clock, ClientLog(clock))
    assert is_later.wait(PATIENCE_SECONDS)
    made.close()
