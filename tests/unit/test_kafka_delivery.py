"""What is said of a batch that Kafka took a part of."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.errors import AppendUncertainError, JournalAccessDeniedError, MailboatError, TopicMissingError
from mailboat.journal.kafka_appender import KafkaAppender, _Client, _Outcome
from mailboat.journal.kafka_log import ClientLog
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
