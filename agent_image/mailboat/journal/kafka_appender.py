"""Appends to Kafka topics: durable, in order, each record once, and one answer for a whole batch.

One idempotent producer serves all topics and threads; a thread of its own hands out the delivery reports. Records never
time out one by one. When an append takes too long it is given up as a whole: the producer is purged and replaced, so
what the topic holds of the batch is a beginning of it, in order, whatever the brokers still find in their buffers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mailboat.clock import Clock, Deadline
from mailboat.errors import AppendUncertainError, MailboatError
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.journal.kafka_errors import DECISIONS, client_failed, error_of, mapped
from mailboat.journal.kafka_settings import KafkaSettings, producer_options
from mailboat.journal.kafka_topics import PARTITION
from mailboat.journal.port import NewRecord
from mailboat.journal.refusals import journal_closed
from mailboat.model.identifiers import Offset, TopicName

_POLL_SECONDS: Final = 0.1
_SHOWN: Final = 300
_LOG: Final = logging.getLogger(__name__)
_IDLE_SECONDS: Final = 5.0  # how often errors and log lines are taken off the client while nothing is appended
_PAUSE_SECONDS: Final = 0.005
# Bounds the first request for metadata: without brokers the append itself reports them.
_MEETING_SECONDS: Final = 1.0
_NEWS_ROUNDS: Final = 10
# The fixed header of a record batch, magic 2: https://kafka.apache.org/documentation/#recordbatch
_BATCH_HEADER_BYTES: Final = 61
_RECORD_HEADER_BYTES: Final = 36  # length, attributes, time, offset, lengths of key and value, number of headers
# two varint lengths, each of at most 5 bytes
_HEADER_BYTES: Final = 10

# ruff: noqa: SLF001 - the library's public constants of its own codes begin with an underscore
_GIVEN_UP: Final = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._TIMED_OUT, KafkaError._QUEUE_FULL}
)
"""What we did, or the library did for us, when the time was over; the reason is another."""

_LEFT_BEHIND: Final = KafkaError._DESTROY
"""A record was queued, or came back to be sent again, just when its partition was gone from the cluster's metadata: the
library drops it with the partition (`rd_kafka_toppar_destroy_final`), as if the whole client were ending. Ours never
ends before its last report, so this is how it says that the topic is gone; in most cases it says `_UNKNOWN_PARTITION`.
"""


def size_in_log_bytes(record: NewRecord) -> int:
    """The largest size that a record can have in the log, as the only one of its batch."""
    headers = sum(_HEADER_BYTES + len(name.encode()) + len(value) for name, value in record.headers)
    return _BATCH_HEADER_BYTES + _RECORD_HEADER_BYTES + len(record.key or b"") + len(record.value) + headers


class _Outcome:
    """The result of one batch. Filled by the thread that hands out delivery reports."""

    def __init__(self, count: int) -> None:
        self._missing = count
        self.is_begun = False
        self.may_be_stored = False
        self.offsets: list[int] = []
        self.error: KafkaError | None = None
        self.is_known = threading.Event()

    def begin(self) -> None:
        """Something of it was put into the client's queue."""
        self.is_begun = True

    def report(self, error: KafkaError | None, message: Message) -> None:
        """One delivery report. Must not raise: the library would take it for a failure of its own."""
        offset = message.offset()
        if error is None and offset is not None:
            self.offsets.append(offset)
        elif self.error is None:
            self.error = error
        # it was sent, and its answer was not waited for
        self.may_be_stored |= error is not None and error.code() == KafkaError._PURGE_INFLIGHT
        self._missing -= 1
        if self._missing == 0:
            self.is_known.set()


class _Client:
    """A producer and the thread that hands out its delivery reports."""

    def __init__(self, settings: KafkaSettings, log: ClientLog) -> None:
        hooks: dict[str, Any] = {"error_cb": log.note, "logger": log}
        # One thread at a time polls an ended client: `_Outcome.report` uses no lock.
        self._ending = threading.Lock()
        # Without this lock, `served` could clear the event that `end` has just set, and `_serve` would sleep on.
        self._counting = threading.Lock()
        self.failure: KafkaError | None = None  # from which a producer does not recover
        self.producer = Producer({**producer_options(settings), **hooks})
        self._has_met = False
        self.is_over = False  # only `end` hands out reports from now on
        self._appends = 0
        self._is_wanted = threading.Event()  # something is being appended, or it is over
        self._thread = threading.Thread(target=self._serve, name="kafka-deliveries", daemon=True)
        self._thread.start()

    def meet_brokers(self, topic: TopicName) -> None:
        """Before the first record: wait a little for a connection, unless that was done.

        When the first record is queued before a connection exists, the library fails to get its producer id and retries
        only after a timer of half a second.
        """
        if not self._has_met:
            self._has_met = True
            with suppress(KafkaException):  # they may be away: the append says so in its time
                self.producer.list_topics(topic, _MEETING_SECONDS)

    @contextmanager
    def served(self) -> Iterator[None]:
        """Hand out reports as they come, as long as the block lasts, so that an idle client causes no wake-ups."""
        with self._counting:
            self._appends += 1
            self._is_wanted.set()
        try:
            yield
        finally:
            with self._counting:
                self._appends -= 1
                if self._appends == 0 and not self.is_over:
                    self._is_wanted.clear()

    def end(self) -> None:
        """Give up what is not delivered; every record that was sent before gets its report."""
        with self._counting:
            self.is_over = True
            self._is_wanted.set()
        # The thread ends first: from here on only the holder of `_ending` polls.
        self._thread.join()
        with self._ending:
            # `purge` reports what is queued or in flight as failed; a broker may still write what is in flight.
            self.producer.purge()
            while self._poll(0):
                pass

    def reason_of(self, error: KafkaError) -> KafkaError:
        """Why an ended producer took no record. The fatal state is visible before the reason is."""
        if error.code() == KafkaError._FATAL:
            with self._ending:
                for _ in range(_NEWS_ROUNDS):
                    if self.failure is not None:
                        break
                    self._poll(_POLL_SECONDS)
        return self.failure or error

    def _serve(self) -> None:
        try:
            while not self.is_over and self.failure is None:
                self._poll(_POLL_SECONDS if self._is_wanted.wait(_IDLE_SECONDS) and not self.is_over else 0)
        except Exception as error:  # noqa: BLE001  # a callback's: without this thread every append would run into its time-out
            _LOG.exception(
                "the thread for Kafka delivery reports ended by a defect; the next append makes a new client"
            )
            self.failure = KafkaError(KafkaError._FAIL, repr(error)[:_SHOWN])

    def _poll(self, wait_seconds: float) -> int:
        """Hand out reports; how many there were, or were before the news that the producer is beyond recovery."""
        try:
            return self.producer.poll(wait_seconds)
        except KafkaException as raised:
            # confluent_kafka raises a fatal error from `poll` instead of passing it to `error_cb`.
            is_news, self.failure = self.failure is None, error_of(raised)
            return int(is_news)


class KafkaAppender:
    """The producing half of the journal. Safe to use from several threads."""

    def __init__(self, settings: KafkaSettings, clock: Clock, log: ClientLog) -> None:
        """Connect with the first append only: many agents write to one topic once a minute, or never."""
        self._settings = settings
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._client: _Client | None = None
        self._closing = threading.Event()

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> list[Offset]:
        """Append in order; return the offsets once all are durable.

        Raises:
            AppendUncertainError: Some or all of the records may be in the topic, from the first on, or come later.
            MessageTooLargeError, TopicMissingError, JournalAccessDeniedError, UsageError: As the brokers say.
        """
        if not records:
            return []
        deadline = Deadline(self._clock, self._settings.config.append_seconds)
        client = self._current()
        outcome = _Outcome(len(records))
        client.meet_brokers(topic)
        with client.served():
            try:
                self._send(client, topic, records, outcome, deadline)
            except (KafkaException, BufferError) as raised:
                error = error_of(raised)
                if outcome.is_begun or error.code() not in DECISIONS:  # else it is about this topic, and not the client
                    self._give_up(client)
                raise self._failure(topic, records, outcome, client.reason_of(error)) from raised
            if not self._is_known(client, outcome, deadline):
                self._give_up(client)
        # `_give_up` delivered all reports, so the number of offsets is final.
        if len(outcome.offsets) < len(records):
            error = client.failure or outcome.error or KafkaError(KafkaError._TIMED_OUT)
            raise self._failure(topic, records, outcome, error)
        self._log.succeeded()
        return sorted(map(Offset, outcome.offsets))

    def renew(self) -> None:
        """Drop the producer: its cached metadata of a topic that was deleted and recreated is stale."""
        with self._lock:
            client = self._client
        if client is not None:
            self._give_up(client)

    def close(self) -> None:
        """Give up what is not delivered. Appends that are going on fail."""
        # The flag comes first: `_current` reads it under the lock, so no client is made after `renew`.
        self._closing.set()
        self.renew()

    def _current(self) -> _Client:
        """The producer to take: a new one for the first append, and after a failure that met no append."""
        with self._lock:
            client = self._client
        if client is not None and client.failure is not None:
            self._give_up(client)
        with self._lock:
            if self._closing.is_set():
                raise journal_closed(f"kafka {self._settings.bootstrap_servers}")
            if self._client is None:
                try:
                    self._client = _Client(self._settings, self._log)
                except KafkaException as raised:
                    raise client_failed(raised) from raised
            return self._client

    def _give_up(self, client: _Client) -> None:
        with self._lock:
            # Another append may have replaced this client already; the new one must stay.
            if self._client is client:
                self._client = None
        # Outside of the lock: `end` waits for a thread, and other appends need the lock.
        client.end()

    def _send(
        self, client: _Client, topic: TopicName, records: Sequence[NewRecord], outcome: _Outcome, deadline: Deadline
    ) -> None:
        """Put all records into the client's queue, waiting while it is full."""
        produce, report = client.producer.produce, outcome.report
        for record in records:
            while True:
                try:
                    produce(topic, record.value, record.key, PARTITION, report, headers=list(record.headers))
                except BufferError:
                    if deadline.is_over() or self._closing.is_set():
                        raise
                    self._clock.wait(self._closing, _PAUSE_SECONDS)
                else:
                    outcome.begin()
                    break

    def _is_known(self, client: _Client, outcome: _Outcome, deadline: Deadline) -> bool:
        """Wait for the last report, the end of the time, or news after which there will be none."""
        while not self._clock.wait(outcome.is_known, min(deadline.remaining_seconds(), _POLL_SECONDS)):
            is_hopeless = client.is_over or client.failure is not None or self._log.refusal() is not None
            if is_hopeless or deadline.is_over() or self._closing.is_set():
                return False
        return client.failure is None

    def _failure(
        self, topic: TopicName, records: Sequence[NewRecord], outcome: _Outcome, error: KafkaError
    ) -> MailboatError:
        """The error to raise: a decision of the brokers as it is, anything else as an unknown outcome."""
        if error.code() == _LEFT_BEHIND:
            error = KafkaError(KafkaError._UNKNOWN_PARTITION)
        is_nothing_stored = not outcome.offsets and not outcome.may_be_stored
        refusal = self._log.refusal()
        if refusal is not None and is_nothing_stored:
            return mapped(refusal, "appending to", topic)
        if error.code() in DECISIONS and is_nothing_stored:
            return mapped(error, "appending to", topic)
        reason = (self._log.reason() or error) if error.code() in _GIVEN_UP else error
        confirmed = f"topic {topic} confirmed {len(outcome.offsets)} of {len(records)} records"
        has_waited = error.code() in _GIVEN_UP and refusal is None
        when = f" within {self._settings.config.append_seconds:g} seconds" if has_waited else ""
        return AppendUncertainError(
            f"{confirmed}{when}: {reason.str()}",
            next_step="publish again with the same request id: a message in the log is not sent twice",
            topic=topic,
            kafka=reason.name(),
        )
