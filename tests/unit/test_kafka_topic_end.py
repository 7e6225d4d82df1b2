"""A topic whose identity is answered, but whose end or removal is not: no broker is needed to show what follows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from mailboat.config.storage import KafkaConfig
from mailboat.errors import JournalAccessDeniedError, JournalUnavailableError, TopicMissingError
from mailboat.journal import kafka_topics
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.kafka_topics import KafkaTopics, TopicState
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.journal_harness import in_background
from mailboat.testing.wait import PATIENCE_SECONDS

TOPIC = TopicName("package")
STATE = TopicState("first", 1, 1)


class Brokers:
    """Both clients of `KafkaTopics`. The end is not answered while the client asks a leader that has died."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cluster_id = "one"
        self.end_error: int | None = None
        self.described: Exception | None = None
        self.is_end_asked = threading.Event()
        self.is_closed = threading.Event()
        self.answers_at_close = False

    def describe_topics(self, _: object, **__: object) -> dict[str, Future[Any]]:
        self.asked.append("identity")
        answer = Future[Any]()
        if self.described is None:
            answer.set_result(SimpleNamespace(topic_id="first", partitions=[SimpleNamespace(replicas=[1])]))
        else:
            answer.set_exception(self.described)
        return {TOPIC: answer}

    def delete_topics(self, _: object, **__: object) -> dict[str, Future[Any]]:
        answer = Future[Any]()
        answer.set_result(None)
        return {TOPIC: answer}

    def get_watermark_offsets(self, _: object, **__: object) -> tuple[int, int]:
        self.asked.append("end")
        self.is_end_asked.set()
        if self.answers_at_close:
            assert self.is_closed.wait(PATIENCE_SECONDS)
        if self.end_error is not None:
            raise KafkaException(KafkaError(self.end_error))
        return 2, 6

    def list_topics(self, *topics: Sequence[str], **_: object) -> SimpleNamespace:
        if self.is_closed.is_set():
            raise RuntimeError("Handle has been closed")  # as the library does
        self.asked.append(f"leader of {topics[0]}" if topics else "cluster")
        if self.end_error == KafkaError._TIMED_OUT:
            self.end_error = None
        return SimpleNamespace(cluster_id=self.cluster_id)

    def poll(self, _: float) -> None:
        """Nothing is reported."""

    def close(self) -> None:
        self.is_closed.set()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(kafka_topics, "AdminClient", lambda _: made)
    monkeypatch.setattr(kafka_topics, "Consumer", lambda _: made)
    return made


@pytest.fixture
def topics(brokers: Brokers) -> Iterator[KafkaTopics]:
    assert not brokers.asked
    clock = SkippingClock()
    made = KafkaTopics(KafkaSettings(KafkaConfig(("broker:9092",), request_seconds=1.0)), clock, ClientLog(clock))
    yield made
    made.close()


def test_identity_is_answered_without_an_end_that_is_not(brokers: Brokers, topics: KafkaTopics) -> None:
    assert topics.state_and_end(TOPIC) == (STATE, 6)
    brokers.asked.clear()
    brokers.end_error = KafkaError._TIMED_OUT
    assert topics.state_and_end(TOPIC) == (STATE, None)
    assert topics.bounds(TOPIC) == Bounds(2, 6)  # type: ignore[arg-type]
    assert brokers.asked == ["identity", "end", "leader of package", "end"], "the next request finds the new leader"


def test_refused_end_is_reported_by_the_request_for_it_alone(brokers: Brokers, topics: KafkaTopics) -> None:
    brokers.end_error = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert topics.state_and_end(TOPIC) == (STATE, None)
    with pytest.raises(JournalAccessDeniedError):
        topics.bounds(TOPIC)


def test_missing_topic_is_reported_whatever_the_request_for_its_end_says(brokers: Brokers, topics: KafkaTopics) -> None:
    brokers.end_error = KafkaError._TIMED_OUT
    brokers.described = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(TopicMissingError):
        topics.state_and_end(TOPIC)


def test_a_deleted_topic_that_a_broker_keeps_describing_is_reported(topics: KafkaTopics) -> None:
    with pytest.raises(JournalUnavailableError, match="a broker still has it"):
        topics.delete(TOPIC)


class PauseSkippingClock(SkippingClock):
    """Skips the pauses between attempts, and not those of the thread that listens, which would end all deadlines."""

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        return super().wait(event, timeout_seconds) if timeout_seconds < 1.0 else event.wait()


@pytest.mark.parametrize("threads", [1, 4])
def test_clients_that_find_no_broker_again_are_replaced_once(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """As those that a fenced broker told of no broker: they know no address any more."""
    lost, found = Brokers(), Brokers()
    lost.end_error, found.cluster_id = KafkaError._UNKNOWN_PARTITION, "another"
    clients = iter([lost, lost, found, found])
    monkeypatch.setattr(kafka_topics, "AdminClient", lambda _: next(clients))
    monkeypatch.setattr(kafka_topics, "Consumer", lambda _: next(clients))
    settings, clock = KafkaSettings(KafkaConfig(("broker:9092",))), PauseSkippingClock()
    with closing(KafkaTopics(settings, clock, ClientLog(clock))) as topics, ThreadPoolExecutor(threads) as pool:
        assert topics.cluster_id() == "one"
        clock.advance(60.0)
        answers = [pool.submit(topics.bounds, TOPIC) for _ in range(threads)]
        assert {answer.result(PATIENCE_SECONDS) for answer in answers} == {Bounds(Offset(2), Offset(6))}
        assert topics.cluster_id() == "another"
    assert found.is_closed.is_set()


def test_closing_ends_a_request_in_another_thread_as_unavailable(brokers: Brokers, topics: KafkaTopics) -> None:
    brokers.end_error, brokers.answers_at_close = KafkaError._TIMED_OUT, True
    with in_background(lambda: topics.bounds(TOPIC)) as asking:
        assert brokers.is_end_asked.wait(PATIENCE_SECONDS)
        topics.close()
        with pytest.raises(JournalUnavailableError, match="is closed"):
            asking.result(PATIENCE_SECONDS)
