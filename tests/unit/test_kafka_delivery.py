"""What is said of a batch that Kafka took a part of."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.errors import (
    AppendUncertainError,
    JournalAccessDeniedError,
    JournalUnavailableError,
    MailboatError,
    TopicMissingError,
)
from mailboat.journal import kafka_appender
from mailboat.journal.kafka_appender import KafkaAppender, _Client, _Outcome
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import TopicName
from mailboat.testing.wait import PATIENCE_SECONDS


class QuietLog:
    def refusal(self) -> None:
        return None

    def reason(self) -> None:
        return None


def failure(offsets: list[int], code: int = KafkaError.TOPIC_AUTHORIZATION_FAILED) -> MailboatError:
    appender = KafkaAppender(KafkaSettings(KafkaConfig(("broker:9092",))), SystemClock(), cast("Any", QuietLog()))
    outcome = _Outcome(3)
    outcome.offsets = offsets
    return appender._failure(TopicName("package"), [NewRecord(b"")] * 3, outcome, KafkaError(code))


@pytest.mark.parametrize(("offsets", "kind"), [([], JournalAccessDeniedError), ([7, 8], AppendUncertainError)])
def test_a_refusal_counts_as_nothing_sent_only_while_no_record_was_confirmed(
    offsets: list[int], kind: type[MailboatError]
) -> None:
    assert type(failure(offsets)) is kind


def test_a_refusal_of_another_client_says_nothing_of_records_that_were_sent() -> None:
    log = ClientLog(SystemClock())
    log.note(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    appender = KafkaAppender(KafkaSettings(KafkaConfig(("broker:9092",))), SystemClock(), log)
    for code, kind in (
        (KafkaError._PURGE_QUEUE, JournalAccessDeniedError),
        (KafkaError._PURGE_INFLIGHT, AppendUncertainError),
    ):
        outcome = _Outcome(1)
        outcome.report(KafkaError(code), Message("package", 0))
        raised = appender._failure(TopicName("package"), [NewRecord(b"")], outcome, KafkaError(code))
        assert type(raised) is kind
        assert "wrong password" in raised.message


def test_a_producer_that_can_not_be_made_again_is_a_passing_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that is replaced, file by file, does not fit its key for a moment."""

    def refuse(_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.key.location failed"))

    monkeypatch.setattr(kafka_appender, "Producer", refuse)
    clock = SystemClock()
    appender = KafkaAppender(KafkaSettings(KafkaConfig(("broker:9092",))), clock, ClientLog(clock))
    with pytest.raises(JournalUnavailableError, match=r"ssl\.key\.location failed"):
        appender.append(TopicName("package"), [NewRecord(b"")])


@pytest.mark.parametrize(("offsets", "kind"), [([], TopicMissingError), ([7, 8], AppendUncertainError)])
def test_records_that_the_library_dropped_with_their_partition_tell_of_a_topic_that_is_gone(
    offsets: list[int], kind: type[MailboatError]
) -> None:
    raised = failure(offsets, KafkaError._DESTROY)
    assert type(raised) is kind
    assert raised.where["kafka"] == "_UNKNOWN_PARTITION"


def test_a_defect_in_the_thread_for_reports_ends_the_producer_and_not_the_appender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> int:
        raise ValueError("of a callback")

    monkeypatch.setattr(_Client, "_poll", fail)
    client = _Client(KafkaSettings(KafkaConfig(("127.0.0.1:9",))), ClientLog(SystemClock()))
    with client.served():
        client._thread.join(PATIENCE_SECONDS)
    assert client.failure is not None
    assert "of a callback" in client.failure.str()
