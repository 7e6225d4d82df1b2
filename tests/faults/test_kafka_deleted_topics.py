"""Topics that are deleted while others read them, append to them, or delete them too; and what comes after."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient
from mailboat.clock import SystemClock
from mailboat.errors import JournalReplacedError, MailboatError, TopicMissingError
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import Edge, ReadLimits
from mailboat.model.identifiers import TopicName
from mailboat.testing.journal_harness import (
    FOREVER,
    in_background,
    new_topic_name,
    once_available,
    read_to_end,
    some_records,
    values_of,
)
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS, wait_until
from support.kafka_broker import BrokerSettings, KafkaBroker, stopped, with_section


@pytest.fixture(scope="module")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """With Kafka's own default: a client that asks for a topic in the wrong way makes it again."""
    properties = {"auto.create.topics.enable": "true"}
    with KafkaBroker(BrokerSettings(tmp_path_factory.mktemp("kafka"), properties=properties), SystemClock()) as broker:
        yield broker


@pytest.fixture
def other(settings: KafkaSettings) -> Iterator[KafkaJournal]:
    """Another program on the same cluster."""
    with KafkaJournal(settings, SystemClock()) as other:
        yield other


def test_a_waiting_reader_is_told_that_its_topic_was_deleted(
    journal: KafkaJournal, other: KafkaJournal, topic: TopicName
) -> None:
    journal.append(topic, some_records(3))
    reader = journal.reader(topic, Edge.NEXT)
    with in_background(lambda: reader.read(ReadLimits(), LONG_WAIT_SECONDS)) as reading:
        other.delete_topic(topic)
        with pytest.raises(JournalReplacedError, match=topic):
            reading.result(PATIENCE_SECONDS)
    with pytest.raises(JournalReplacedError):
        reader.read(ReadLimits(), 0.0)


def test_an_append_to_a_deleted_topic_says_so(journal: KafkaJournal, other: KafkaJournal, topic: TopicName) -> None:
    journal.append(topic, some_records(1))
    other.delete_topic(topic)
    with pytest.raises(TopicMissingError, match=topic):
        journal.append(topic, some_records(1))


def test_appends_to_many_deleted_topics_say_so_in_whichever_way_the_library_tells(
    journal: KafkaJournal, other: KafkaJournal
) -> None:
    """How a record ends depends on where it is just when the client learns that its partition is gone."""

    def append_after_deletion(topic: TopicName) -> MailboatError:
        journal.ensure_topic(topic, FOREVER)
        journal.append(topic, some_records(1))
        other.delete_topic(topic)
        with pytest.raises(MailboatError) as refused:
            journal.append(topic, some_records(1))
        return refused.value

    with ThreadPoolExecutor(8) as threads:
        errors = list(
            threads.map(append_after_deletion, (new_topic_name() for _ in range(64)), timeout=LONG_WAIT_SECONDS)
        )
    assert [error for error in errors if type(error) is not TopicMissingError] == []


def test_what_is_appended_after_a_topic_was_made_again_is_there(
    journal: KafkaJournal, other: KafkaJournal, topic: TopicName
) -> None:
    """The library's producer is not relied on to notice another topic of the same name."""
    journal.append(topic, some_records(20))
    for round_number in range(3):
        other.delete_topic(topic)
        journal.ensure_topic(topic, FOREVER)
        records = some_records(5, f"round-{round_number}")
        journal.append(topic, records)
        assert values_of(read_to_end(journal.reader(topic, Edge.EARLIEST))) == [record.value for record in records]


def test_an_append_to_a_deleted_topic_ends_none_to_another_topic(
    kafka_broker: KafkaBroker, settings: KafkaSettings, other: KafkaJournal, topic: TopicName
) -> None:
    kept = new_topic_name()
    other.ensure_topic(kept, FOREVER)
    # What the journal knows of the kept topic stays good: to ask again would fail while the broker stands still.
    impatient = replace(with_section(settings, request_seconds=2.0), topic_memory_seconds=LONG_WAIT_SECONDS)
    with KafkaJournal(impatient, SystemClock()) as journal, ThreadPoolExecutor(1) as pool:
        for name in (kept, topic):
            once_available(lambda name=name: journal.append(name, some_records(1)))
        other.delete_topic(topic)
        with pytest.raises(TopicMissingError):
            once_available(lambda: journal.append(topic, some_records(1)))
        client = journal._appender._client
        assert client is not None
        with stopped(kafka_broker):
            appending = pool.submit(journal.append, kept, some_records(1, "slow"))
            wait_until(lambda: len(client.producer) > 0, "the record is on its way")
            with pytest.raises(MailboatError):
                journal.append(topic, some_records(1))
        assert len(appending.result(PATIENCE_SECONDS)) == 1


def test_a_deletion_whose_answer_comes_too_late_is_done(
    kafka_broker: KafkaBroker, journal: KafkaJournal, topic: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker stands still until it was asked twice; then it finds both requests, and refuses the second."""
    asked, delete = list[object](), AdminClient.delete_topics

    def delete_and_note(client: AdminClient, *given: object, **named: object) -> object:
        if not asked:
            kafka_broker.pause()
        asked.append(given)
        return delete(client, *given, **named)

    monkeypatch.setattr(AdminClient, "delete_topics", delete_and_note)
    with in_background(lambda: journal.delete_topic(topic)) as deleting:
        try:
            wait_until(lambda: len(asked) > 1, "the second attempt")
        finally:
            kafka_broker.signal(signal.SIGCONT)
        deleting.result(PATIENCE_SECONDS)
    with pytest.raises(TopicMissingError):
        journal.bounds(topic)
