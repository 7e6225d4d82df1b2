"""Reads one Kafka topic by assignment: every record once, from an exact position, and never from another topic.

librdkafka says nothing when a topic is deleted, and goes on in a new one of the same name. So the reader asks which
topic it reads: when it is opened, whenever it gives records after it had been idle or at the end, after a lost
connection, and otherwise every `identity_check_seconds`. Records are given only after that answer.

`KafkaLookup` gives single records by their offset.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from mailboat.clock import Clock, Deadline
from mailboat.config.topic_settings import ROOM_BYTES
from mailboat.errors import JournalUnavailableError, PositionOutOfRangeError, TopicMissingError
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.journal.kafka_errors import MISSING, OUT_OF_RANGE, client_failed, error_of, mapped
from mailboat.journal.kafka_settings import KafkaSettings, consumer_options
from mailboat.journal.kafka_topics import PARTITION, KafkaTopics, not_served
from mailboat.journal.port import Headers, ReadLimits, Record, RecordBatch
from mailboat.journal.refusals import journal_closed, out_of_range, topic_replaced
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds

_POLL_SECONDS: Final = 0.2
_WAIT_SECONDS: Final = 2.0  # how soon a waiting client is closed: the library's wait can't be ended by another thread
_IDLE_CHECK_SECONDS: Final = 10.0  # how soon a waiting read detects a replaced topic
_MOST_SILENT_READS: Final = 16  # 160 seconds: a fetch of 4 MiB over 210 kbit/s
# Messages that one call takes off the client's queue. It has no limit of bytes: what it takes beyond `max_bytes` of a
# read stays in memory for the next one, at most so many messages of at most 1 MB.
_CHUNK: Final = 64
_LARGEST: Final = 2**63 - 1  # of the protocol; negative numbers are its words for the edges

_Found = list[tuple[str, bytes | None]] | None

# For a name that is not UTF-8 the library returns a list with a hole, and sets an error besides. A call that the
# interpreter has specialised does not look for that, and its caller falls into the hole; one through `partial` raises.
_headers_of: Final = partial(Message.headers)
_UNREADABLE_HEADERS: Final[_Found] = [("(names that are not UTF-8)", None)]
_TOO_LARGE_HEADERS: Final[Headers] = ((f"(more than {ROOM_BYTES} bytes)", b""),)


def _new_consumer(options: dict[str, Any]) -> Consumer:
    """Raises: JournalUnavailableError."""
    try:
        return Consumer(options)
    except KafkaException as raised:
        raise client_failed(raised) from raised


class KafkaReaderSettings(NamedTuple):
    """The topic of a reader, and where it begins.

    Attributes:
        kafka: How to reach it.
        topic: Its name.
        topic_id: Which one of that name.
        start: Where to begin.
        leader_epoch: Of the last record done (KIP-320): the brokers then notice a lost tail that grew again.
    """

    kafka: KafkaSettings
    topic: TopicName
    topic_id: str
    start: Offset
    leader_epoch: int | None = None


class _Messages:
    """The messages of one client.

    Nothing ends the library's wait, so a thread waits in place of the reader: an interrupt leaves it waiting, and the
    next read takes what it found.
    """

    def __init__(self, client: Consumer, changed: threading.Condition, is_interrupted: threading.Event) -> None:
        """The client is closed by `close`. Interrupts set the event and notify the condition."""
        self.client = client
        self._changed = changed
        self._is_interrupted = is_interrupted
        self._thread: threading.Thread | None = None
        self._is_waiting = False
        self._found: list[Message] = []
        self._failure: BaseException | None = None
        self._is_closed = False

    def poll(self, wait_seconds: float) -> list[Message]:
        """The next message, if one comes in time. An interrupt ends the wait. Raises: what the client raises."""
        if wait_seconds <= 0 and not self._is_behind:
            return [message for message in (self.client.poll(0),) if message is not None]
        with self._changed:
            if not self._is_behind:
                self._begin()
            self._changed.wait_for(lambda: not self._is_waiting or self._is_interrupted.is_set(), wait_seconds)
            found, self._found = self._found, []
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return found

    def consume(self, most: int) -> list[Message]:
        """What has arrived, without waiting. Raises: what the client raises."""
        # The thread's message is before those that the client has.
        return self.poll(0.0) if self._is_behind else self.client.consume(most, 0)

    def close(self) -> None:
        """Close the client; one that waits is closed by the thread, a moment later."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is None:
            self.client.close()
        elif not self._is_waiting:
            self._thread.join()

    @property
    def _is_behind(self) -> bool:
        """Whether the next message comes from the thread."""
        return self._is_waiting or bool(self._found) or self._failure is not None

    def _begin(self) -> None:
        self._is_waiting = True
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kafka-wait", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            with self._changed:
                self._changed.wait_for(lambda: self._is_waiting or self._is_closed)
            found: list[Message] = []
            failure: BaseException | None = None
            try:
                # Not `poll`: it wakes up five times in a second, to look for signals.
                while not found and not self._is_closed:
                    found = self.client.consume(1, _WAIT_SECONDS)
            except BaseException as raised:  # noqa: BLE001  # raised by the read that takes it
                failure = raised
            with self._changed:
                self._found, self._failure = found, failure
                self._is_waiting = False
                self._changed.notify_all()
        self.client.close()


class KafkaReader:
    """The reader port over one topic."""

    def __init__(self, settings: KafkaReaderSettings, topics: KafkaTopics, clock: Clock, log: ClientLog) -> None:
        """Use `KafkaJournal.reader`."""
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._log = log
        self._place = TopicPartition(settings.topic, PARTITION)
        self._messages: _Messages | None = None
        self.next_offset = settings.start
        self._leader_epoch = settings.leader_epoch
        self._fetched: deque[Record] = deque()
        self._records = RecordMaker()
        self._trouble: KafkaError | None = None  # met after what is fetched
        self._seen_end = -1  # where the client, having given all before it, found nothing more
        self._silent_reads = 0  # in a row: those that ended by a timeout, though there was something
        self._most_silent_reads = 1  # of one client
        self._is_identity_due = True
        self._checked_at = clock.monotonic()
        self._in_use = threading.Lock()
        self._changed = threading.Condition()
        self._is_interrupted = threading.Event()
        self._is_closed = False

    def read(self, limits: ReadLimits, wait_seconds: float) -> RecordBatch:
        with self._in_use:
            if self._is_closed:
                raise journal_closed(f"the reader of {self._settings.topic}")
            try:
                # The second wait asks the topic: without it a client that fetches nothing looks like the end of the
                # log.
                if self._await_record(Deadline(self._clock, wait_seconds)) or self._await_known_record():
                    batch = self._take(limits)
                else:
                    after = Offset(max(self.next_offset, self._seen_end))
                    batch = RecordBatch((), after, not self._is_interrupted.is_set())
            finally:
                # An interrupt ends one read, also a read that found records.
                self._is_interrupted.clear()
            self.next_offset = batch.next_offset
            return batch

    def interrupt(self) -> None:
        # Set before the notice: a read that begins meanwhile finds it.
        self._is_interrupted.set()
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """See `JournalReader.close`. From another thread it ends the read that is going on."""
        if self._is_closed:
            return
        # Before the lock is taken: a read that begins meanwhile fails instead of delaying `close`.
        self._is_closed = True
        while not self._in_use.acquire(timeout=_POLL_SECONDS):
            self.interrupt()  # again, as the read may have cleared the first one
        try:
            self._drop_client()
        finally:
            self._in_use.release()

    def _client(self) -> _Messages:
        """The client that fetches from the position on; made if absent."""
        if self._messages is None:
            position = self.next_offset
            if not 0 <= position < _LARGEST:
                raise self._out_of_range(self._topics.bounds(self._settings.topic))
            hooks: dict[str, Any] = {"error_cb": self._note_error, "logger": self._log}
            epoch: dict[str, Any] = {} if self._leader_epoch is None else {"leader_epoch": self._leader_epoch}
            # New after each error: librdkafka checks no leader epoch at a second assignment, and would go on behind a
            # lost tail.
            client = _new_consumer({**consumer_options(self._settings.kafka), **hooks})
            self._messages = _Messages(client, self._changed, self._is_interrupted)
            # Assigned, not subscribed: a group would commit offsets of its own, and the target's position alone counts.
            client.assign([TopicPartition(self._settings.topic, PARTITION, position, **epoch)])
        return self._messages

    def _drop_client(self) -> None:
        """Drop the client and what it fetched; the next read starts over at the position."""
        # What is fetched and not given came from the old client; the new one fetches it again from the position.
        self._fetched.clear()
        self._trouble, self._seen_end = None, -1
        messages, self._messages = self._messages, None
        if messages is not None:
            messages.close()

    def _await_record(self, deadline: Deadline) -> bool:
        """Wait until a record is fetched; False after the time-out, or after an interrupt."""
        self._poll(0.0)
        while not self._fetched:
            left_seconds = deadline.remaining_seconds()
            if left_seconds <= 0 or self._is_interrupted.is_set():
                return False
            checked_seconds = self._clock.monotonic() - self._checked_at
            self._is_identity_due = True  # after each wait, however soon the last look was before it
            self._poll(min(left_seconds, max(_POLL_SECONDS, _IDLE_CHECK_SECONDS - checked_seconds)))
            if not self._fetched:
                self._check_identity(_IDLE_CHECK_SECONDS)
        return True

    def _await_known_record(self) -> bool:
        """Nothing is fetched: ask the topic, and wait for what it has. False when it has nothing more.

        Raises:
            PositionOutOfRangeError: The position is outside the topic.
            JournalUnavailableError: The topic has records from the position on, but they do not come.
        """
        if self._is_interrupted.is_set():
            return False
        bounds = self._bounds_around_position()
        patience = Deadline(self._clock, self._settings.kafka.config.request_seconds)
        while not self._fetched and max(self.next_offset, self._seen_end) < bounds.next_offset:
            if self._is_interrupted.is_set():
                return False
            if patience.is_over():
                self._drop_silent_client()
                raise JournalUnavailableError(
                    f"topic {self._settings.topic} has records from {self.next_offset} to {bounds.next_offset}, "
                    f"but none came within {self._settings.kafka.config.request_seconds:g} seconds",
                    topic=self._settings.topic,
                )
            self._poll(_POLL_SECONDS)
        return bool(self._fetched)

    def _drop_silent_client(self) -> None:
        """Drop a client that gave nothing, though there is something: it may never find a broker again.

        One that receives much over a slow line looks the same, so each client gets twice the time of the one before it.
        """
        self._silent_reads += 1
        if self._silent_reads >= self._most_silent_reads:
            self._drop_client()
            self._silent_reads, self._most_silent_reads = 0, min(2 * self._most_silent_reads, _MOST_SILENT_READS)

    def _take(self, limits: ReadLimits) -> RecordBatch:
        """What is fetched, within the limits, after making sure that it is of the right topic."""
        records: list[Record] = []
        left_bytes, fetched = limits.max_bytes, self._fetched
        try:
            while len(records) < limits.max_records:
                if not fetched and not self._refill(limits.max_records - len(records)):
                    break
                left_bytes -= len(fetched[0].value) + len(fetched[0].key or b"")
                if left_bytes < 0 and records:
                    break
                records.append(fetched.popleft())
            last = records[-1]
            # Offsets behind the last record may be holes (control records); the next read skips them.
            after = Offset(last.offset + 1 if fetched else max(last.offset + 1, self._seen_end))
            may_be_end = self._may_be_end(after)
            # Checked last: a check before the records were taken could miss a topic that was replaced since.
            age_seconds = 0.0 if self._is_identity_due else self._settings.kafka.identity_check_seconds
            end = self._check_identity(age_seconds, with_end=may_be_end)
            batch = RecordBatch(records, after, may_be_end and self._is_end(after, end))
        except BaseException:
            # Only while the client is there: a new one fetches these records again.
            if self._messages is not None:
                self._fetched.extendleft(reversed(records))
            raise
        self._leader_epoch, self._silent_reads = last.leader_epoch, 0
        return batch

    def _refill(self, count: int) -> bool:
        """Whether something is fetched; takes up to `count` more off the client's queue when not, without waiting."""
        if not self._fetched and self._trouble is None:
            self._fetch(lambda messages: messages.consume(min(count, _CHUNK)))
        return bool(self._fetched)

    def _poll(self, wait_seconds: float) -> None:
        """Take one message off the client's queue, unless there is one already."""
        if self._fetched:
            return
        if self._trouble is not None:
            self._raise_trouble(self._trouble)
        self._fetch(lambda messages: messages.poll(wait_seconds))

    def _fetch(self, taken_from: Callable[[_Messages], list[Message]]) -> None:
        """Take messages off the client's queue. Whatever fails ends the client: it would not give them again."""
        client = self._client()
        try:
            # The client has forgotten these records: after a failure only a new client fetches them again.
            messages = taken_from(client)
            self._is_identity_due |= len(messages) == 0
            records = self._records.records_of(messages)
            self._fetched.extend(records)
            if len(records) < len(messages):
                self._meet(messages)
        except BaseException as raised:
            self._drop_client()
            if isinstance(raised, KafkaException):
                raise mapped(error_of(raised), "reading", self._settings.topic) from raised
            raise

    def _meet(self, messages: Iterable[Message]) -> None:
        """What the client says between its records: the end, or trouble."""
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF and offset is not None:  # noqa: SLF001 - a public constant
                self._seen_end = offset
                self._is_identity_due = True
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # we are in no group
                self._trouble = error

    def _raise_trouble(self, error: KafkaError) -> None:
        """Raise what the client reported; the next read starts over at the position, and meets it again."""
        self._drop_client()
        # A replaced topic explains the error, so it is reported first.
        self._check_identity()
        if error.code() in OUT_OF_RANGE:
            raise self._out_of_range(self._topics.bounds(self._settings.topic))
        if error.code() in MISSING:  # the check has found the topic: only the broker of this client lacks it
            raise not_served("reading", self._settings.topic, kafka=error.name())
        raise mapped(error, "reading", self._settings.topic)

    def _out_of_range(self, bounds: Bounds) -> PositionOutOfRangeError:
        """The error for a position at which there is nothing to read, or something else than what was there before."""
        topic, position = self._settings.topic, self.next_offset
        if not bounds.earliest_offset <= position <= bounds.next_offset:
            return out_of_range(topic, position, bounds)
        return PositionOutOfRangeError(
            f"topic {topic} lost records below offset {position} that were read before, and has others in their place",
            topic=topic,
            offset=position,
            earliest=bounds.earliest_offset,
            next=bounds.next_offset,
        )

    def _bounds_around_position(self) -> Bounds:
        """The topic's bounds, of the right topic and with the position between them."""
        topic, position = self._settings.topic, max(self.next_offset, self._seen_end)
        try:
            bounds = self._topics.bounds(topic)
        except TopicMissingError as error:
            raise topic_replaced(topic, self._settings.topic_id) from error
        # The check comes after the bounds: if the topic is the right one now, it was when the bounds were read.
        self._check_identity()
        if not bounds.earliest_offset <= position <= bounds.next_offset:
            self._drop_client()
            raise self._out_of_range(bounds)
        return bounds

    def _check_identity(self, after_seconds: float = 0.0, *, with_end: bool = False) -> Offset | None:
        """Make sure that the topic is the one that was opened, if that was last done so long ago.

        Returns: Where the topic ends, if that is wanted and was found out at the same time.
        Raises: JournalReplacedError, JournalUnavailableError.
        """
        now = self._clock.monotonic()
        if now - self._checked_at < after_seconds:
            return None
        topic, known_id = self._settings.topic, self._settings.topic_id
        # Cleared before the request: a connection that is lost meanwhile makes the next check due.
        was_due, self._is_identity_due = self._is_identity_due, False
        found_id, end = "", None
        try:
            if with_end:
                state, end = self._topics.state_and_end(topic)
            else:
                state = self._topics.state(topic)
            found_id = state.topic_id
        except TopicMissingError as error:
            raise topic_replaced(topic, known_id) from error
        finally:
            # a check that failed stays due
            self._is_identity_due |= was_due and found_id != known_id
        if found_id != known_id:
            raise topic_replaced(topic, known_id)
        self._checked_at = now
        return end

    def _may_be_end(self, after: Offset) -> bool:
        """Whether the cached bounds show nothing from `after` on; this saves a request for each batch of a backlog."""
        return not self._fetched and after >= self._client().client.get_watermark_offsets(self._place, cached=True)[1]

    def _is_end(self, after: Offset, end: Offset | None) -> bool:
        """Whether the topic has nothing from `after` on at this moment; False also when it can't be asked."""
        try:
            return after >= (self._topics.bounds(self._settings.topic).next_offset if end is None else end)
        except (JournalUnavailableError, TopicMissingError):
            return False

    def _note_error(self, error: KafkaError) -> None:
        """The client lost a connection, or all: ask for the topic before anything else is given."""
        # The topic may have been replaced while the client was disconnected.
        self._is_identity_due = True
        self._log.note(error)


class RecordMaker:
    """Makes records of the client's messages; reuses the headers of the one before if equal."""

    def __init__(self) -> None:
        """No message was seen."""
        self._found: _Found = None
        self._headers: Headers = ()

    def records_of(self, messages: Iterable[Message]) -> list[Record]:
        """The records among the messages; one loop over plain locals, as each package comes through here."""
        records: list[Record] = []
        known, headers = self._found, self._headers
        for message in messages:
            if message.error() is not None:
                continue
            try:
                found: _Found = _headers_of(message)  # type: ignore[assignment]  # never a dict
            except (SystemError, UnicodeDecodeError) as raised:
                if not isinstance(raised.__cause__ or raised, UnicodeDecodeError):
                    raise
                found = _UNREADABLE_HEADERS
            if found != known:
                known, headers = found, _bounded(tuple((name, value or b"") for name, value in found or ()))
            value, appended_ms = message.value() or b"", message.timestamp()[1]
            values = message.offset(), value, headers, message.key(), appended_ms, message.leader_epoch()
            records.append(tuple.__new__(Record, values))
        self._found, self._headers = known, headers
        return records


def _bounded(headers: Headers) -> Headers:
    """The headers, unless no record of ours has so much: the limits of a read count values and keys alone."""
    size_bytes = sum(len(name) + len(value) for name, value in headers)
    return headers if size_bytes <= ROOM_BYTES else _TOO_LARGE_HEADERS


# Nothing is fetched ahead but the batch that holds the record.
_ONE_RECORD: Final = {"fetch.message.max.bytes": 64 * 1024, "queued.min.messages": 1, "fetch.wait.max.ms": 10}


class KafkaLookup:
    """One client for all look-ups of a journal. Safe to use from several threads, which take turns.

    A reader is a client of its own and costs 10 to 20 ms to open; publishers look back at the record that they
    appended, and that would be most of what publishing costs.
    """

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
            self._consumer = _new_consumer({**consumer_options(self._settings), **_ONE_RECORD, **hooks})
        return self._consumer

    def _drop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _await(self, client: Consumer, topic: TopicName, offset: Offset) -> Record | None:
        """Take messages until the one that was asked for, or what proves that it is absent."""
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
