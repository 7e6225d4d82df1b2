"""Looks up single records of Kafka topics by their offset, on one client that is kept.

A reader is a client of its own and costs 10 to 20 ms to open; publishers look back at the record that they appended,
and that would be most of what publishing costs. Nothing is fetched ahead here but the batch that holds the record.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from mailboat.clock import Clock, Deadline
from mailboat.errors import JournalUnavailableError
from mailboat.journal.kafka_errors import MISSING, OUT_OF_RANGE, error_of, mapped
from mailboat.journal.kafka_log import ClientLog
from mailboat.journal.kafka_reader import RecordMaker
from mailboat.journal.kafka_settings import KafkaSettings, consumer_options
from mailboat.journal.kafka_topics import PARTITION, KafkaTopics
from mailboat.journal.port import Record
from mailboat.journal.refusals import journal_closed
from mailboat.model.identifiers import Offset, TopicName

_POLL_SECONDS: Final = 0.2
_ONE_RECORD: Final = {"fetch.message.max.bytes": 64 * 1024, "queued.min.messages": 1, "fetch.wait.max.ms": 10}


class KafkaLookup:
    """One client for all look-ups of a journal. Safe to use from several threads, which take turns."""

    def __init__(self, settings: KafkaSettings, topics: KafkaTopics, clock: Clock, log: ClientLog) -> None:
        """Connect with the first look-up only."""
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._log = log
        # One look-up at a time: the assignment and the queue of the one client belong to it.
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._is_closed = False

    def record_at(self, topic: TopicName, offset: Offset) -> Record | None:
        """The record at an offset; None when the topic does not hold one there.

        Raises: TopicMissingError, JournalUnavailableError, JournalAccessDeniedError, JournalCorruptError.
        """
        bounds = self._topics.bounds(topic)
        if not bounds.earliest_offset <= offset < bounds.next_offset:
            return None
        with self._lock:
            client = self._client()
            try:
                client.assign([TopicPartition(topic, PARTITION, offset)])
                return self._await(client, topic, offset)
            except BaseException as raised:
                self._drop()
                if isinstance(raised, KafkaException):
                    raise mapped(error_of(raised), "reading", topic) from raised
                raise
            finally:
                if self._consumer is not None:
                    # Else the idle client would go on fetching behind the record.
                    client.unassign()

    def close(self) -> None:
        """Let the client go."""
        with self._lock:
            self._is_closed = True
            self._drop()

    def _client(self) -> Consumer:
        if self._is_closed:
            raise journal_closed(f"kafka {self._settings.bootstrap_servers}")
        if self._consumer is None:
            hooks: dict[str, Any] = {"error_cb": self._log.note, "logger": self._log}
            self._consumer = Consumer({**consumer_options(self._settings), **_ONE_RECORD, **hooks})
        return self._consumer

    def _drop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _await(self, client: Consumer, topic: TopicName, offset: Offset) -> Record | None:
        """Take messages until the one that was asked for, or what proves that there is none."""
        deadline = Deadline(self._clock, self._settings.config.request_seconds)
        while not deadline.is_over():
            message = client.poll(min(_POLL_SECONDS, deadline.remaining_seconds()))
            if message is None:
                self._topics.bounds(topic)  # raises for a topic deleted since, which the client never reports
                continue
            if message.topic() != topic:
                continue
            error = message.error()
            if error is None:
                return RecordMaker().records_of([message])[0] if message.offset() == offset else None
            if error.code() == KafkaError._PARTITION_EOF or error.code() in OUT_OF_RANGE:  # noqa: SLF001 - public
                return None
            if error.code() not in MISSING and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise mapped(error, "reading", topic)
        raise JournalUnavailableError(
            f"offset {offset} of topic {topic} was not received "
            f"within {self._settings.config.request_seconds:g} seconds",
            topic=topic,
            offset=offset,
        )
