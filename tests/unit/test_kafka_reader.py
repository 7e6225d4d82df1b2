"""Records of a topic that was replaced while a Kafka reader waited are not given."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from mailboat.config.storage import KafkaConfig
from mailboat.errors import JournalReplacedError, JournalUnavailableError
from mailboat.journal import kafka_reader
from mailboat.journal.kafka_reader import KafkaReader, KafkaReaderSettings, RecordMaker
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.kafka_topics import TopicState
from mailboat.journal.port import ReadLimits
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds
from mailboat.testing.clocks import ManualClock


class Brokers:
    """The client and the requests about topics. The topic is replaced when the waiting reader has asked for it."""

    def __init__(self) -> None:
        self.topic_id = "first"
        self.arrived = SimpleQueue[Message]()

    def state(self, _: TopicName) -> TopicState:
        found, self.topic_id = self.topic_id, "second"
        self.arrived.put(Message("package", 0, 5, value=b"of another topic", timestamp=(1, 0)))
        return TopicState(found, 1, 1)

    def state_and_end(self, topic: TopicName) -> tuple[TopicState, Offset | None]:
        return self.state(topic), Offset(6)

    def get_watermark_offsets(self, _: object, *, cached: bool) -> tuple[int, int]:
        assert cached, "a request for each batch of a backlog"
        return 0, 6

    def assign(self, places: Sequence[object]) -> None:
        assert len(places) == 1

    def poll(self, _: float) -> None:
        """Nothing is there at once."""

    def consume(self, most: int, seconds: float) -> list[Message]:
        assert (most, seconds) == (1, 2.0)
        try:
            return [self.arrived.get(timeout=0.01)]
        except Empty:
            return []

    def close(self) -> None:
        """Nothing to release."""


def test_a_record_that_ends_a_wait_is_given_only_after_a_look_at_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, clock = Brokers(), ManualClock()
    monkeypatch.setattr(kafka_reader, "Consumer", lambda _: brokers)
    settings = KafkaReaderSettings(
        KafkaSettings(KafkaConfig(("broker:9092",))), TopicName("package"), "first", Offset(5)
    )
    with closing(KafkaReader(settings, cast("Any", brokers), clock, cast("Any", None))) as reader:
        clock.advance(10.0)  # the reader looks after this time, also while it waits
        with pytest.raises(JournalReplacedError):
            reader.read(ReadLimits(max_records=1), 60.0)


@pytest.mark.parametrize(
    ("ends", "is_at_end"), [([6], True), ([7], False), ([], False)], ids=["end", "more", "unknown"]
)
def test_records_are_given_where_only_the_request_for_the_end_fails(
    monkeypatch: pytest.MonkeyPatch, ends: list[int], is_at_end: bool
) -> None:
    brokers, clock = Brokers(), ManualClock()

    def bounds(_: TopicName) -> Bounds:
        if not ends:
            raise JournalUnavailableError("no answer")
        return Bounds(Offset(0), Offset(ends.pop()))

    monkeypatch.setattr(brokers, "bounds", bounds, raising=False)
    brokers.arrived.put(Message("package", 0, 5, value=b"package", timestamp=(1, 0)))
    monkeypatch.setattr(brokers, "state_and_end", lambda _: (TopicState("first", 1, 1), None))
    monkeypatch.setattr(kafka_reader, "Consumer", lambda _: brokers)
    settings = KafkaReaderSettings(
        KafkaSettings(KafkaConfig(("broker:9092",))), TopicName("package"), "first", Offset(5)
    )
    with closing(KafkaReader(settings, cast("Any", brokers), clock, cast("Any", None))) as reader:
        batch = reader.read(ReadLimits(max_records=1), 60.0)
    assert ([record.value for record in batch.records], batch.is_at_end) == ([b"package"], is_at_end)


def test_a_client_that_can_not_be_made_again_is_a_passing_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that is replaced, file by file, does not fit its key for a moment."""

    def refuse(_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.key.location failed"))

    monkeypatch.setattr(kafka_reader, "Consumer", refuse)
    settings = KafkaReaderSettings(
        KafkaSettings(KafkaConfig(("broker:9092",))), TopicName("package"), "first", Offset(5)
    )
    with closing(KafkaReader(settings, cast("Any", Brokers()), ManualClock(), cast("Any", None))) as reader:
        for _ in range(2):
            with pytest.raises(JournalUnavailableError, match=r"ssl\.key\.location failed"):
                reader.read(ReadLimits(), 0.0)


def test_a_client_that_gives_nothing_is_replaced_and_the_next_one_gets_twice_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have lost all brokers for good, or be receiving a large record over a slow line."""
    made, clock = list[Brokers](), ManualClock()

    class Silent(Brokers):
        def consume(self, most: int, seconds: float) -> list[Message]:
            clock.advance(11.0)  # more than a read waits
            is_good = made.index(self) == 3
            return (
                [Message("package", 0, 5, value=b"x", timestamp=(1, 0))] if is_good else super().consume(most, seconds)
            )

    def new_client(_: object) -> Brokers:
        made.append(Silent())
        return made[-1]

    topics = Brokers()
    monkeypatch.setattr(topics, "bounds", lambda _: Bounds(Offset(0), Offset(6)), raising=False)
    monkeypatch.setattr(topics, "state", lambda _: TopicState("first", 1, 1))
    monkeypatch.setattr(kafka_reader, "Consumer", new_client)
    settings = KafkaReaderSettings(
        KafkaSettings(KafkaConfig(("broker:9092",))), TopicName("package"), "first", Offset(5)
    )
    counts = []
    with closing(KafkaReader(settings, cast("Any", topics), clock, cast("Any", None))) as reader:
        for _ in range(7):
            with pytest.raises(JournalUnavailableError, match="but none came within 10 seconds"):
                reader.read(ReadLimits(), 0.0)
            counts.append(len(made))
        assert [record.offset for record in reader.read(ReadLimits(max_records=1), 0.0).records] == [5]
    assert counts == [1, 2, 2, 3, 3, 3, 3]


def test_a_topic_that_only_a_broker_lacks_is_unavailable_and_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    missing = Message("package", 0, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    monkeypatch.setattr(brokers, "poll", lambda _: missing)
    monkeypatch.setattr(brokers, "state", lambda _: TopicState("first", 1, 1))
    monkeypatch.setattr(brokers, "bounds", lambda _: Bounds(Offset(0), Offset(6)), raising=False)
    monkeypatch.setattr(kafka_reader, "Consumer", lambda _: brokers)
    settings = KafkaReaderSettings(
        KafkaSettings(KafkaConfig(("broker:9092",))), TopicName("package"), "first", Offset(5)
    )
    made = KafkaReader(settings, cast("Any", brokers), ManualClock(), cast("Any", None))
    with closing(made) as reader, pytest.raises(JournalUnavailableError, match="no broker serves it yet"):
        reader.read(ReadLimits(), 0.0)


def test_a_read_counts_the_keys_of_records_that_have_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    messages = [Message("package", 0, 5 + number, key=bytes(1000), timestamp=(1, 0)) for number in range(20)]
    monkeypatch.setattr(brokers, "poll", lambda _: messages.pop(0))
    monkeypatch.setattr(brokers, "consume", lambda *_: [messages.pop(0)])
    monkeypatch.setattr(brokers, "state", lambda _: TopicState("first", 1, 1))
    monkeypatch.setattr(kafka_reader, "Consumer", lambda _: brokers)
    settings = KafkaReaderSettings(
        KafkaSettings(KafkaConfig(("broker:9092",))), TopicName("package"), "first", Offset(5)
    )
    with closing(KafkaReader(settings, cast("Any", brokers), ManualClock(), cast("Any", None))) as reader:
        assert len(reader.read(ReadLimits(max_records=20, max_bytes=3500), 0.0).records) == 3


def test_headers_that_no_record_of_ours_has_are_not_kept() -> None:
    contents = (b"1", bytes(1_000_000))
    messages = [Message("package", 0, 5, value=b"x", headers=[("type", each)], timestamp=(1, 0)) for each in contents]
    first, second = RecordMaker().records_of(messages)
    assert first.headers == (("type", b"1"),)
    assert sum(len(name) + len(value) for name, value in second.headers) < 100
