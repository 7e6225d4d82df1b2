"""Kafka's codes carry our decisions, and the table knows every code that a broker or the client is known to give."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from mailboat.errors import (
    JournalAccessDeniedError,
    JournalCorruptError,
    JournalUnavailableError,
    MailboatError,
    MessageTooLargeError,
    RetryableError,
    TopicMissingError,
    UsageError,
)
from mailboat.journal.kafka_errors import DECISIONS, OUT_OF_RANGE, error_of, is_distrust, is_refusal, mapped
from mailboat.model.identifiers import TopicName

TOPIC = TopicName("package")

EXPECTED: dict[str, type[MailboatError]] = {
    "UNKNOWN_TOPIC_OR_PART": TopicMissingError,
    "UNKNOWN_TOPIC_ID": TopicMissingError,
    "_UNKNOWN_TOPIC": TopicMissingError,
    "_UNKNOWN_PARTITION": TopicMissingError,
    "_NOENT": TopicMissingError,
    "MSG_SIZE_TOO_LARGE": MessageTooLargeError,
    "RECORD_LIST_TOO_LARGE": MessageTooLargeError,
    "INVALID_MSG_SIZE": MessageTooLargeError,
    "TOPIC_AUTHORIZATION_FAILED": JournalAccessDeniedError,
    "GROUP_AUTHORIZATION_FAILED": JournalAccessDeniedError,
    "CLUSTER_AUTHORIZATION_FAILED": JournalAccessDeniedError,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": JournalAccessDeniedError,
    "SASL_AUTHENTICATION_FAILED": JournalAccessDeniedError,
    "_AUTHENTICATION": JournalAccessDeniedError,
    "_SSL": JournalAccessDeniedError,
    "TOPIC_EXCEPTION": UsageError,
    "INVALID_REPLICATION_FACTOR": UsageError,
    "INVALID_CONFIG": UsageError,
    "POLICY_VIOLATION": UsageError,
    "INVALID_TIMESTAMP": UsageError,
    "TOPIC_DELETION_DISABLED": UsageError,
    "_BAD_MSG": JournalCorruptError,
    "_BAD_COMPRESSION": JournalCorruptError,
    "_TRANSPORT": JournalUnavailableError,
    "_TIMED_OUT": JournalUnavailableError,
    "_MSG_TIMED_OUT": JournalUnavailableError,
    "_ALL_BROKERS_DOWN": JournalUnavailableError,
    "_FENCED": JournalUnavailableError,
    "NOT_ENOUGH_REPLICAS": JournalUnavailableError,
    "NOT_LEADER_FOR_PARTITION": JournalUnavailableError,
    "LEADER_NOT_AVAILABLE": JournalUnavailableError,
    "KAFKA_STORAGE_ERROR": JournalUnavailableError,
    "THROTTLING_QUOTA_EXCEEDED": JournalUnavailableError,
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_code_is_mapped_to_the_decision_that_it_asks_for(name: str) -> None:
    error = mapped(KafkaError(getattr(KafkaError, name)), "appending to", TOPIC)
    assert type(error) is EXPECTED[name]
    assert error.where["topic"] == TOPIC
    assert "appending to topic package failed" in error.message


def test_the_table_has_no_code_that_no_one_expects() -> None:
    expected = {getattr(KafkaError, name) for name in EXPECTED}
    by_value = {value: name for name, value in vars(KafkaError).items() if isinstance(value, int)}
    named = {by_value[code] for code in DECISIONS}
    assert {DECISIONS[code] for code in DECISIONS if code not in expected} <= {JournalAccessDeniedError, UsageError}
    assert "_TRANSPORT" not in named


def test_positions_outside_a_topic_are_left_to_who_knows_the_bounds() -> None:
    assert OUT_OF_RANGE.isdisjoint(DECISIONS)
    names = ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "_LOG_TRUNCATION")
    assert {getattr(KafkaError, name) for name in names} == OUT_OF_RANGE


def test_every_code_of_the_library_can_be_mapped() -> None:
    for code in {value for value in vars(KafkaError).values() if isinstance(value, int)}:
        assert isinstance(mapped(KafkaError(code), "reading"), MailboatError)


def test_an_unknown_code_is_a_passing_fault() -> None:
    assert isinstance(mapped(KafkaError(31_999), "reading", TOPIC), RetryableError)


def test_an_error_tells_what_to_do() -> None:
    assert mapped(KafkaError(KafkaError._AUTHENTICATION), "reading").next_step is not None
    assert mapped(KafkaError(KafkaError._TRANSPORT), "reading").next_step is not None


def test_the_librarys_exceptions_are_unwrapped() -> None:
    inner = KafkaError(KafkaError._TRANSPORT)
    assert error_of(KafkaException(inner)) is inner
    assert error_of(KafkaException("without an error")).code() == KafkaError._FAIL
    assert "full" in error_of(BufferError("queue full")).str()


DISTRUST = KafkaError(
    KafkaError._SSL, "ssl://one:9093/1: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: …"
)
REFUSED_CERTIFICATE = KafkaError(
    KafkaError._TRANSPORT, "Receive failed: ssl/tls alert bad certificate: SSL alert number 42 (after 1ms)"
)
REFUSED_PASSWORD = KafkaError(KafkaError._AUTHENTICATION, "Authentication failed: invalid credentials")
REFUSED_CLIENT = KafkaError(
    KafkaError._AUTHENTICATION, 'Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}'
)
NO_TOKEN_SERVER = KafkaError(KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: Failed to connect")
CUT_HANDSHAKE = KafkaError(KafkaError._SSL, "SSL handshake failed: Disconnected")


@pytest.mark.parametrize(
    ("error", "look_at"),
    [
        (DISTRUST, "ca_file"),
        (REFUSED_CERTIFICATE, "certificate_file"),
        (REFUSED_PASSWORD, "mechanism, user and password"),
        (REFUSED_CLIENT, "token_url"),
    ],
)
def test_who_is_refused_is_told_what_to_look_at_and_repeats_nothing(error: KafkaError, look_at: str) -> None:
    found = mapped(error, "listing the topics")
    assert type(found) is JournalAccessDeniedError
    assert look_at in str(found.next_step)
    assert is_refusal(error)


@pytest.mark.parametrize(
    "error", [NO_TOKEN_SERVER, CUT_HANDSHAKE, KafkaError(KafkaError._TRANSPORT, "SSL alert number 80")]
)
def test_trouble_that_may_pass_is_no_refusal(error: KafkaError) -> None:
    assert not is_refusal(error)
    assert not is_distrust(error)


def test_a_topic_that_can_be_placed_nowhere_while_no_broker_is_in_service_is_worth_another_try() -> None:
    told = "Unable to replicate the partition 1 time(s): "
    for reason, kind in (
        ("All brokers are currently fenced, or have all their log directories cordoned.", JournalUnavailableError),
        ("The target replication factor of 3 cannot be reached because only 1 broker(s) are registered.", UsageError),
    ):
        assert type(mapped(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, told + reason), "making", TOPIC)) is kind


def test_a_token_server_that_does_not_answer_is_worth_another_try() -> None:
    assert type(mapped(NO_TOKEN_SERVER, "listing the topics")) is JournalUnavailableError
