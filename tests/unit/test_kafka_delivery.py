"""What is said of a batch that Kafka took a part of."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from mailboat.clock import SystemClock
from mailboat.errors import AppendUncertainError, JournalAccessDeniedError, MailboatError
from mailboat.journal.kafka_appender import KafkaAppender, _Outcome
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import TopicName


class QuietLog:
    def refusal(self) -> None:
        return None

    def reason(self) -> None:
        return None


def failure(offsets: list[int]) -> MailboatError:
    appender = KafkaAppender(KafkaSettings("broker:9092"), SystemClock(), cast("Any", QuietLog()))
    outcome = _Outcome(3)
    outcome.offsets = offsets
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    return appender._failure(TopicName("package"), [NewRecord(b"")] * 3, outcome, error)


@pytest.mark.parametrize(("offsets", "kind"), [([], JournalAccessDeniedError), ([7, 8], AppendUncertainError)])
def test_a_refusal_counts_as_nothing_sent_only_while_no_record_was_confirmed(
    offsets: list[int], kind: type[MailboatError]
) -> None:
    assert type(failure(offsets)) is kind
