"""Kafka's error codes in our words: one table, from code to the class that carries the decision.

What the table does not name is taken for a passing fault.
Positions outside a topic are not in it: the reader reports them together with the topic's bounds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from mailboat.errors import (
    JournalAccessDeniedError,
    JournalCorruptError,
    JournalUnavailableError,
    MailboatError,
    MessageTooLargeError,
    TopicMissingError,
    UsageError,
)
from mailboat.model.identifiers import TopicName

# ruff: noqa: SLF001 - the library's public constants of its own codes begin with an underscore

MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
    }
)
"""The topic is not there, or is not yet known to the client or broker that was asked."""

OUT_OF_RANGE: Final = frozenset(
    {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}
)
"""The position is below the head or beyond the end, or the log lost its tail and went on differently (KIP-320)."""

_DENIED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError._AUTHENTICATION,
    # A handshake that failed. It refuses a request, but does not end a wait at once: see `is_refusal`.
    KafkaError._SSL,
)
_TOO_LARGE: Final = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
)
_REFUSED: Final = (
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
    KafkaError.INVALID_RECORD,
    # Of a topic that keeps the writer's time (CreateTime), where the writer's clock is wrong.
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.TOPIC_DELETION_DISABLED,
    KafkaError.POLICY_VIOLATION,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError._INVALID_ARG,
    KafkaError._UNSUPPORTED_FEATURE,
)
_DAMAGED: Final = (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION)

DECISIONS: Final[Mapping[int, type[MailboatError]]] = {
    **dict.fromkeys(MISSING, TopicMissingError),
    **dict.fromkeys(_DENIED, JournalAccessDeniedError),
    **dict.fromkeys(_TOO_LARGE, MessageTooLargeError),
    **dict.fromkeys(_REFUSED, UsageError),
    **dict.fromkeys(_DAMAGED, JournalCorruptError),
}

_NEXT_STEPS: Final[Mapping[type[MailboatError], str]] = {
    TopicMissingError: "mailboat journal ensure",
    JournalAccessDeniedError: "give this user the rights of its role: docs/kafka.md lists them",
    MessageTooLargeError: "raise the topic's limit with `mailboat journal ensure`, or lower the inline limit",
    JournalUnavailableError: "check that the brokers run, can be reached from here, and that `journal.kafka.tls` and "
    "`sasl` are what this address wants",
}

# OpenSSL's words: the code is the same for every handshake that fails
_NOT_TRUSTED: Final = "certificate verify failed"
_CERTIFICATE_REFUSED: Final = re.compile(
    r"SSL alert number (4[2-9]|116)\b"
)  # RFC 8446, 6.2: what is about certificates
_NO_TOKEN: Final = "Failed to acquire SASL OAUTHBEARER token"  # noqa: S105 - what the library says
_TOKEN_REFUSED: Final = '"error"'  # noqa: S105 - RFC 6749, 5.2: what a server says that answers

_OUT_OF_SERVICE: Final = "All brokers are currently fenced"
"""What a controller says of a topic that it can place nowhere at this moment: no broker sent it a heartbeat lately."""

_LOGIN_CODES: Final = frozenset(
    # The first is the library's own, the others are answers of a broker.
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM}
)


def kind_of(error: KafkaError) -> type[MailboatError]:
    """The class that carries the decision; where the code is ambiguous, the library's text decides."""
    text = error.str()
    # Both pass, though the codes say otherwise: a token server that is away counts as a failed login,
    # and brokers that are away count as too few for the replicas.
    if (_NO_TOKEN in text and _TOKEN_REFUSED not in text) or _OUT_OF_SERVICE in text:
        return JournalUnavailableError
    if _CERTIFICATE_REFUSED.search(text):
        return JournalAccessDeniedError
    # Unknown codes count as transient: the protocol gets new ones that this client can't know.
    return DECISIONS.get(error.code(), JournalUnavailableError)


def is_refusal(error: KafkaError) -> bool:
    """Whether one side refuses who the other is, so that repeating does not help.

    A failed TLS handshake alone does not say so: a broker that goes down in the middle of one looks the same.
    """
    text = error.str()
    is_login = error.code() in _LOGIN_CODES and kind_of(error) is JournalAccessDeniedError
    return is_login or is_distrust(error) or _CERTIFICATE_REFUSED.search(text) is not None


def is_distrust(error: KafkaError) -> bool:
    """Whether a broker's certificate was not trusted here."""
    return _NOT_TRUSTED in error.str()


def error_of(raised: KafkaException | BufferError) -> KafkaError:
    """The library's error inside its exception."""
    # a full queue of a producer is a plain BufferError, with a text in place of an error
    found = raised.args[0] if raised.args else None
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError._FAIL, str(raised))


def client_failed(raised: KafkaException) -> JournalUnavailableError:
    """The error of another client that can't be made: files that it reads are being replaced."""
    error = error_of(raised)
    return JournalUnavailableError(
        f"making another client of the brokers failed: {error.str()}",
        next_step="check the files of `journal.kafka.tls`: the key must be that of the certificate",
        kafka=error.name(),
    )


def mapped(error: KafkaError, doing: str, topic: TopicName | None = None) -> MailboatError:
    """Our error for one of Kafka's.

    Args:
        error: What the client or a broker said.
        doing: What was being done, such as `appending to`.
        topic: To which topic, if to one.
    """
    kind = kind_of(error)
    what = doing if topic is None else f"{doing} topic {topic}"
    return kind(f"{what} failed: {error.str()}", next_step=_next_step(kind, error), topic=topic, kafka=error.name())


def _next_step(kind: type[MailboatError], error: KafkaError) -> str | None:
    if is_distrust(error):
        return "check `journal.kafka.tls.ca_file`, when the brokers' certificates expire, and which hosts they name"
    if _CERTIFICATE_REFUSED.search(error.str()):
        return "check issuer and expiry of `journal.kafka.tls.certificate_file`"
    if _NO_TOKEN in error.str():
        return "check `journal.kafka.sasl`: token_url, user and password, and that the token server answers"
    if error.code() in _LOGIN_CODES:
        return "check `journal.kafka.sasl`: mechanism, user and password"
    return _NEXT_STEPS.get(kind)
