"""The journal on Apache Kafka: each topic has one partition, its offsets are the journal's.

Appends are acknowledged by all replicas in sync; readers are assigned exact positions and are in no consumer group;
cluster id and topic id identify a log. Retention is kept by the brokers. Decision 0007 says why it is so.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import KafkaError

from mailboat.clock import Clock
from mailboat.config.topic_settings import MAX_MESSAGE, ROOM_BYTES, TopicSettings, kafka_settings_of
from mailboat.errors import (
    AppendUncertainError,
    JournalAccessDeniedError,
    JournalUnavailableError,
    MessageTooLargeError,
    TopicMissingError,
)
from mailboat.journal.kafka_appender import KafkaAppender, size_in_log_bytes
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.journal.kafka_reader import KafkaLookup, KafkaReader, KafkaReaderSettings
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.kafka_topics import KafkaTopics, differences_of, not_served
from mailboat.journal.port import Border, NewRecord, Record, Start, TopicDifference
from mailboat.journal.refusals import check_sizes, journal_closed
from mailboat.journal.start_offset import starting_offset
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds, LogIdentity, Position

_PARTITION_GONE: Final = KafkaError(KafkaError._DESTROY_BROKER).name()  # noqa: SLF001 - a public constant
"""What a producer says of records whose topic it finds no longer in the brokers' answers."""


class _Known(NamedTuple):
    """What `append` remembers of a topic."""

    topic_id: str
    value_bytes: int
    record_bytes: int
    asked_at: float


class KafkaJournal:
    """The journal port over a Kafka cluster. Safe to use from several threads."""

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        """Make the clients. Nothing is asked yet, so brokers that can't be reached are met by the first call.

        Raises: as `KafkaTopics`.
        """
        self._settings = settings
        self._clock = clock
        self._log = ClientLog(clock)
        self._topics = KafkaTopics(settings, clock, self._log)
        self._appender = KafkaAppender(settings, clock, self._log)
        self._lookup = KafkaLookup(settings, self._topics, clock, self._log)
        self._lock = threading.Lock()
        self._known: dict[TopicName, _Known] = {}
        self._own_limits: dict[TopicName, int] = {}
        # Weak references: `close` ends the readers that are still in use, and keeps none of the others alive.
        self._readers: weakref.WeakSet[KafkaReader] = weakref.WeakSet()
        self._is_closed = False

    @property
    def description(self) -> str:
        return f"kafka {self._settings.bootstrap_servers}"

    @property
    def upkeep(self) -> KafkaJournal:
        return self

    @property
    def is_automatic(self) -> bool:
        return True

    @property
    def are_appends_seen_at_once(self) -> bool:
        """See `JournalUpkeep.are_appends_seen_at_once`: not what a leader has and too few replicas."""
        return False

    def ensure_topic(self, topic: TopicName, settings: TopicSettings) -> None:
        """See `Journal.ensure_topic`. What `kafka_settings_of` does not name stays as it is."""
        self._check_open()
        self._topics.ensure(topic, self._configuration_of(settings))
        with self._lock:
            # The limit of a value. The topic's own `max.message.bytes` is larger: it also has room for key and headers.
            self._own_limits[topic] = settings.max_message_bytes
        self._doubt(topic)

    def differences(self, topic: TopicName, settings: TopicSettings) -> Sequence[TopicDifference]:
        """See `JournalUpkeep.differences`. The number of replicas is reported, and never changed here."""
        self._check_open()
        wanted, replicas = self._configuration_of(settings), self._topics.state(topic).replicas
        return differences_of(wanted, self._settings.config.replicas, self._topics.configuration(topic), replicas)

    def size_bytes(self) -> int | None:
        """See `JournalUpkeep.size_bytes`: the brokers know, the client library can't ask them."""
        return None

    def synchronisations(self) -> int | None:
        """See `JournalUpkeep.synchronisations`: replicas stand for durability."""
        return None

    def find_damage(self) -> Sequence[str]:
        """See `JournalUpkeep.find_damage`: the brokers check their own files."""
        return ()

    def delete_topic(self, topic: TopicName) -> None:
        self._check_open()
        self._topics.delete(topic)
        self._doubt(topic)

    def topics(self) -> Sequence[TopicName]:
        self._check_open()
        return self._topics.names()

    def identity(self, topic: TopicName) -> LogIdentity:
        self._check_open()
        return LogIdentity(self._topics.cluster_id(), self._topics.state(topic).topic_id)

    def bounds(self, topic: TopicName) -> Bounds:
        self._check_open()
        return self._topics.bounds(topic)

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        """See `Journal.append`. When it fails, the topic may hold a beginning of the batch, in order."""
        self._check_open()
        known = self._knowledge(topic)
        check_sizes(topic, records, known.value_bytes)
        for record in records:
            # Checked before anything is sent: when the brokers refuse one record, earlier ones may be in the topic
            # already.
            size_bytes = size_in_log_bytes(record)
            if size_bytes > known.record_bytes:
                raise MessageTooLargeError(
                    f"a record for topic {topic} has up to {size_bytes} bytes with its key and headers, "
                    f"the topic takes {known.record_bytes}",
                    topic=topic,
                    limit=known.record_bytes,
                )
        try:
            return self._appender.append(topic, records)
        except AppendUncertainError as error:
            # The topic may have been deleted or recreated: the next append asks for it first.
            self._doubt(topic)
            if error.where.get("kafka") == _PARTITION_GONE:
                with suppress(JournalUnavailableError):
                    self._topics.state(topic)  # says so when the topic was deleted
            raise
        except TopicMissingError as error:
            self._doubt(topic, is_refused=True)
            # A broker that is behind takes a topic that is there for missing; a topic that is gone raises here.
            self._topics.state(topic)
            raise not_served("appending to", topic) from error

    def reader(self, topic: TopicName, start: Start) -> KafkaReader:
        identity = self.identity(topic)
        offset = starting_offset(topic, start, lambda: self._topics.bounds(topic), identity)
        leader_epoch = start.leader_epoch if isinstance(start, Position) else None
        settings = KafkaReaderSettings(self._settings, topic, identity.topic_id, offset, leader_epoch)
        with self._lock:
            # Under the lock: either `close` sees this reader, or no reader is made.
            self._check_open()
            reader = KafkaReader(settings, self._topics, self._clock, self._log)
            self._readers.add(reader)
        return reader

    def record_at(self, topic: TopicName, offset: Offset) -> Record | None:
        self._check_open()
        return self._lookup.record_at(topic, offset)

    def truncate(self, topic: TopicName, before: Offset) -> Bounds:
        self._check_open()
        # A head at or beyond `before` needs no request, and so no right to delete records.
        if before > self._topics.bounds(topic).earliest_offset:
            self._topics.delete_before(topic, before)
        return self._topics.bounds(topic)

    def remove_expired(self, border: Border | None = None) -> int:  # noqa: ARG002  # brokers decide alone
        """See `Journal.remove_expired`: the brokers do it, by whole segments."""
        self._check_open()
        return 0

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            readers = list(self._readers)
        # Readers ask `_topics` for the topic's identity, so they end before it.
        for reader in readers:
            reader.close()
        self._appender.close()
        self._lookup.close()
        self._topics.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _configuration_of(self, settings: TopicSettings) -> Mapping[str, str]:
        return kafka_settings_of(settings, self._settings.config.min_insync_replicas)

    def _check_open(self) -> None:
        if self._is_closed:
            raise journal_closed(self.description)

    def _knowledge(self, topic: TopicName) -> _Known:
        """The topic's limits, not older than `topic_memory_seconds`. A recreated topic gets a new producer."""
        now = self._clock.monotonic()
        # Read without the lock: two threads may ask the brokers at once, and the later answer replaces the earlier one.
        known = self._known.get(topic)
        if known is not None and now - known.asked_at < self._settings.topic_memory_seconds:
            return known
        topic_id = self._topics.state(topic).topic_id
        if known is not None and known.topic_id != topic_id:
            # librdkafka keeps the metadata of the deleted topic, and would append by it.
            self._appender.renew()
        record_bytes = self._record_limit_bytes(topic)
        value_bytes = self._own_limits.get(topic, max(record_bytes - ROOM_BYTES, ROOM_BYTES))
        with self._lock:
            self._known[topic] = _Known(topic_id, value_bytes, record_bytes, now)
            return self._known[topic]

    def _doubt(self, topic: TopicName, *, is_refused: bool = False) -> None:
        """Ask for the topic before the next append; its id stays known, to be compared.

        A topic that the producer took for missing gets a new one if it is there: this one may do so for minutes.
        """
        with self._lock:
            known = self._known.get(topic)
            if known is not None:
                # An empty id differs from every id, so `_knowledge` also renews the producer for the very same topic.
                topic_id = "" if is_refused else known.topic_id
                self._known[topic] = known._replace(topic_id=topic_id, asked_at=float("-inf"))

    def _record_limit_bytes(self, topic: TopicName) -> int:
        try:
            return int(self._topics.configuration(topic).get(MAX_MESSAGE) or 0) or TopicSettings().max_message_bytes
        except JournalAccessDeniedError:  # a writer need not have the right to see it; the brokers check in any case
            return TopicSettings().max_message_bytes
