"""What happens to the Kafka journal when a real broker is killed, stopped, damaged, or used by others."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from mailboat.clock import SystemClock
from mailboat.errors import (
    AppendUncertainError,
    JournalAccessDeniedError,
    JournalCorruptError,
    JournalUnavailableError,
    MessageTooLargeError,
    PositionOutOfRangeError,
    TopicMissingError,
    UsageError,
)
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_reader import KafkaReader
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.kafka_topics import KafkaTopics, TopicState
from mailboat.journal.port import Edge, NewRecord, ReadLimits, Record
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds, Position
from mailboat.testing.journal_harness import (
    FOREVER,
    in_background,
    new_topic_name,
    once_available,
    read_count,
    read_to_end,
    some_records,
    values_of,
)
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.kafka_broker import KafkaBroker, stopped, with_section

# ------------------------------------------------------------------------------------------------- broker killed


def test_a_broker_that_is_killed_in_mid_append_loses_and_doubles_nothing(
    kafka_broker: KafkaBroker, journal: KafkaJournal, topic: TopicName
) -> None:
    batches = [some_records(400, f"batch-{number}") for number in range(60)]
    expected = [record.value for batch in batches for record in batch]
    reader = journal.reader(topic, Edge.EARLIEST)
    seen: list[Record] = []

    def append_all() -> list[Offset]:
        return [offset for batch in batches for offset in journal.append(topic, batch)]

    def read_all() -> None:
        while len(seen) < len(expected):
            with suppress(JournalUnavailableError):
                seen.extend(reader.read(ReadLimits(), 1.0).records)

    with in_background(read_all) as reading, in_background(append_all) as appending:
        wait_until(lambda: len(seen) > 1000, "the first records")
        kafka_broker.kill()
        kafka_broker.start()
        offsets = appending.result(PATIENCE_SECONDS)
        reading.result(PATIENCE_SECONDS)
    for found in (seen, read_to_end(journal.reader(topic, Edge.EARLIEST))):
        assert values_of(found) == expected
        assert [record.offset for record in found] == offsets


def test_a_broker_that_rested_has_kept_its_records(
    kafka_broker: KafkaBroker, journal: KafkaJournal, topic: TopicName
) -> None:
    journal.append(topic, some_records(2))
    kafka_broker.rest()
    kafka_broker.ensure_running()
    reader = once_available(lambda: journal.reader(topic, Edge.EARLIEST))
    assert values_of(patient_read(reader, 2)) == [record.value for record in some_records(2)]


def test_while_the_broker_is_down_calls_say_so_and_afterwards_all_goes_on(
    kafka_broker: KafkaBroker, settings: KafkaSettings, journal: KafkaJournal, topic: TopicName
) -> None:
    journal.append(topic, some_records(2, "before"))
    with KafkaJournal(with_section(settings, append_seconds=1.0, request_seconds=2.0), SystemClock()) as impatient:
        reader = once_available(lambda: impatient.reader(topic, Edge.EARLIEST))
        assert len(patient_read(reader, 2)) == 2
        kafka_broker.kill()
        with pytest.raises(JournalUnavailableError, match=kafka_broker.bootstrap_servers):
            reader.read(ReadLimits(), 0.0)
        with pytest.raises(JournalUnavailableError):
            impatient.append(topic, some_records(3, "never"))
        kafka_broker.start()
        journal.append(topic, some_records(2, "after"))
        assert values_of(patient_read(reader, 2)) == [b"after-0", b"after-1"]


def patient_read(reader: KafkaReader, count: int) -> list[Record]:
    """The next records, though the broker takes longer to be back than the reader waits for an answer."""
    records: list[Record] = []
    while len(records) < count:
        records += once_available(lambda: reader.read(ReadLimits(), 1.0)).records
    return records


def test_a_broker_that_stands_still_leaves_a_beginning_of_the_batch_in_order(
    kafka_broker: KafkaBroker, settings: KafkaSettings, topic: TopicName
) -> None:
    records = [NewRecord(f"{number:05}".encode() * 2000) for number in range(100)]
    with KafkaJournal(with_section(settings, append_seconds=3.0), SystemClock()) as journal:
        once_available(lambda: journal.append(topic, [NewRecord(b"first")]))
        with stopped(kafka_broker), pytest.raises(AppendUncertainError, match="0 of 100 records within 3 seconds"):
            journal.append(topic, records)
    with KafkaJournal(settings, SystemClock()) as journal:
        journal.append(topic, records)
        found = values_of(read_to_end(journal.reader(topic, Edge.EARLIEST)))
    # what the broker read of the first append it may write after the second began: the two stand in one another
    found = [value for value in found if value != b"first"]
    expected = [record.value for record in records]
    firsts = list(dict.fromkeys(found))
    seconds = [value for at, value in enumerate(found) if value in found[:at]]
    assert firsts == expected
    assert seconds == expected[: len(seconds)]


def test_a_broker_that_stood_still_beyond_its_session_serves_the_same_clients_again(
    kafka_broker: KafkaBroker, settings: KafkaSettings, topic: TopicName
) -> None:
    """Its controller has fenced it, and it may answer for a while that there is no broker."""
    impatient = with_section(settings, append_seconds=3.0, request_seconds=2.0)
    with KafkaJournal(impatient, SystemClock()) as journal:
        reader = once_available(lambda: journal.reader(topic, Edge.NEXT))
        for wanted in ([NewRecord(b"first")], [NewRecord(b"second")], [NewRecord(b"third")]):
            with stopped(kafka_broker):
                for _ in range(3):  # twice as long as the session
                    with pytest.raises(JournalUnavailableError):
                        journal.bounds(topic)
            once_available(lambda wanted=wanted: journal.append(topic, wanted))
            found = list[bytes]()
            while wanted[0].value not in found:  # an append that was given up may have been stored as well
                found += values_of(patient_read(reader, 1))


def test_records_in_hand_are_kept_while_the_brokers_do_not_say_whose_they_are(
    kafka_broker: KafkaBroker, settings: KafkaSettings, topic: TopicName
) -> None:
    doubting = replace(with_section(settings, request_seconds=2.0), identity_check_seconds=0.0)
    with KafkaJournal(doubting, SystemClock()) as journal:
        once_available(lambda: journal.append(topic, some_records(5)))
        reader = once_available(lambda: journal.reader(topic, Edge.EARLIEST))
        assert len(patient_read(reader, 5)) == 5
        once_available(lambda: journal.append(topic, some_records(5, "held")))
        held = once_available(lambda: reader.read(ReadLimits(max_records=1), PATIENCE_SECONDS))
        assert values_of(held.records) == [b"held-0"]
        with stopped(kafka_broker), pytest.raises(JournalUnavailableError):
            reader.read(ReadLimits(), 0.0)
        assert values_of(patient_read(reader, 4)) == [b"held-1", b"held-2", b"held-3", b"held-4"]


def test_records_in_hand_are_kept_when_the_question_for_the_end_is_refused(
    journal: KafkaJournal, topic: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append(topic, some_records(1))
    reader = journal.reader(topic, Edge.EARLIEST)
    bounds, refusals = KafkaTopics.bounds, [JournalAccessDeniedError("the password was changed")]

    def refuse_once(topics: KafkaTopics, name: TopicName) -> Bounds:
        if refusals:
            raise refusals.pop()
        return bounds(topics, name)

    # The end is asked for together with the identity; where that has no answer, once more.
    monkeypatch.setattr(KafkaTopics, "state_and_end", lambda topics, name: (topics.state(name), None))
    monkeypatch.setattr(KafkaTopics, "bounds", refuse_once)
    with pytest.raises(JournalAccessDeniedError):
        reader.read(ReadLimits(), PATIENCE_SECONDS)
    assert reader.next_offset == 0
    assert values_of(read_to_end(reader)) == [b"value-0"]


def test_a_look_up_while_the_broker_stands_still_says_so_and_works_afterwards(
    kafka_broker: KafkaBroker, settings: KafkaSettings, topic: TopicName
) -> None:
    with KafkaJournal(with_section(settings, request_seconds=2.0), SystemClock()) as journal:
        (offset,) = once_available(lambda: journal.append(topic, [NewRecord(b"kept")]))
        with stopped(kafka_broker), pytest.raises(JournalUnavailableError):
            journal.record_at(topic, offset)
        found = once_available(lambda: journal.record_at(topic, offset))
    assert found is not None
    assert found.value == b"kept"
    with pytest.raises(JournalUnavailableError, match="closed"):
        journal.record_at(topic, offset)


def test_closing_the_journal_ends_an_append_that_waits_for_the_brokers(
    kafka_broker: KafkaBroker, journal: KafkaJournal, topic: TopicName
) -> None:
    journal.append(topic, some_records(1))
    with stopped(kafka_broker), in_background(lambda: journal.append(topic, some_records(3))) as appending:
        journal.close()
        with pytest.raises(JournalUnavailableError):
            appending.result(PATIENCE_SECONDS)


# ------------------------------------------------------------------------------------------- damaged, or cut short


def test_a_lost_tail_is_noticed_also_after_the_topic_has_grown_again(
    kafka_broker: KafkaBroker, journal: KafkaJournal, topic: TopicName
) -> None:
    for record in some_records(3, "kept"):
        journal.append(topic, [record])
    log = kafka_broker.data_folder / f"{topic}-0" / f"{0:020}.log"
    kept_bytes = log.stat().st_size
    for record in some_records(3, "lost"):
        journal.append(topic, [record])
    last = read_to_end(journal.reader(topic, Edge.EARLIEST))[-1]
    position, identity = Offset(last.offset + 1), journal.identity(topic)
    kafka_broker.kill()
    os.truncate(log, kept_bytes)
    kafka_broker.start()

    with pytest.raises(PositionOutOfRangeError) as beyond:
        journal.reader(topic, position).read(ReadLimits(), PATIENCE_SECONDS)
    assert (beyond.value.where["offset"], beyond.value.where["next"]) == (position, 3)

    with pytest.raises(AppendUncertainError):  # the producer meets a broker that has forgotten what it confirmed
        journal.append(topic, some_records(1, "refused"))
    journal.append(topic, some_records(10, "other"))
    reader = journal.reader(topic, Position(identity, position, last.leader_epoch))
    for _ in range(2):
        with pytest.raises(PositionOutOfRangeError, match="lost records"):
            reader.read(ReadLimits(), PATIENCE_SECONDS)
    assert reader.next_offset == position


def test_a_damaged_record_is_never_given_nor_passed(
    kafka_broker: KafkaBroker, journal: KafkaJournal, topic: TopicName
) -> None:
    for record in some_records(3):
        journal.append(topic, [record])
    log = kafka_broker.data_folder / f"{topic}-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    place = data.index(b"value-1")
    with log.open("r+b") as file:
        file.seek(place)
        file.write(b"VALUE-1")
    reader = journal.reader(topic, Edge.EARLIEST)
    assert values_of(read_count(reader, 1)) == [b"value-0"]
    for _ in range(2):
        with pytest.raises(JournalCorruptError, match=topic):
            reader.read(ReadLimits(), PATIENCE_SECONDS)
    assert reader.next_offset == 1


# ---------------------------------------------------------------------------------------------- used by others too


def test_a_limit_that_was_lowered_behind_our_back_refuses_and_the_journal_stays_usable(
    journal: KafkaJournal, topic: TopicName, admin: AdminClient
) -> None:
    journal.append(topic, some_records(1))
    change = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)
    large, taken = os.urandom(5000), []

    def is_refused() -> bool:
        try:
            taken.extend(journal.append(topic, [NewRecord(large)]))
        except MessageTooLargeError as error:
            return topic in str(error)
        return False

    wait_until(is_refused, "the broker that leads the topic knows of its limit")
    journal.append(topic, some_records(1, "small"))
    found = values_of(read_to_end(journal.reader(topic, Edge.EARLIEST)))
    assert found == [b"value-0", *[large] * len(taken), b"small-0"]


def test_records_of_other_programs_are_given_as_they_are(
    kafka_broker: KafkaBroker, journal: KafkaJournal, topic: TopicName
) -> None:
    place = {"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0}
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        foreign = Producer({**place, "compression.type": compression})
        foreign.produce(topic, None, key=b"tombstone", headers=[("empty", None), (compression, b"\xff" * 1000)])
        foreign.produce(topic, b"\xff\x00", headers=[("same", b"1"), ("same", b"2")])
        assert foreign.flush(PATIENCE_SECONDS) == 0
    found = read_to_end(journal.reader(topic, Edge.EARLIEST))
    assert len(found) == 10
    assert (found[0].key, found[0].value, found[0].headers[0]) == (b"tombstone", b"", ("empty", b""))
    assert (found[9].key, found[9].value) == (None, b"\xff\x00")
    assert found[9].headers == (("same", b"1"), ("same", b"2"))


def test_the_end_is_found_behind_the_marks_of_foreign_transactions(
    kafka_broker: KafkaBroker, journal: KafkaJournal, topic: TopicName
) -> None:
    """A transaction ends with a mark that takes an offset and is no record; what it aborts is never given."""
    reader = journal.reader(topic, Edge.EARLIEST)
    assert read_to_end(reader) == []
    place = {"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0, "transactional.id": topic}
    foreign = Producer(place)
    foreign.init_transactions(PATIENCE_SECONDS)
    for value, end in ((b"committed", foreign.commit_transaction), (b"aborted", foreign.abort_transaction)):
        foreign.begin_transaction()
        foreign.produce(topic, value)
        foreign.flush(PATIENCE_SECONDS)
        end(PATIENCE_SECONDS)
    assert values_of(read_to_end(reader)) == [b"committed"]
    assert reader.next_offset == journal.bounds(topic).next_offset == 4
    journal.append(topic, some_records(1))
    assert values_of(read_to_end(reader)) == [b"value-0"]


def test_a_topic_with_several_partitions_is_refused(journal: KafkaJournal, admin: AdminClient) -> None:
    topic = new_topic_name()
    admin.create_topics([NewTopic(topic, num_partitions=3)])[topic].result(PATIENCE_SECONDS)
    for call in (
        lambda: journal.ensure_topic(topic, FOREVER),
        lambda: journal.append(topic, some_records(1)),
        lambda: journal.reader(topic, Edge.EARLIEST),
    ):
        with pytest.raises(UsageError, match="3 partitions"):
            call()


def test_a_topic_with_several_partitions_is_refused_also_when_the_brokers_learn_of_it_late(
    journal: KafkaJournal, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller may have made it for another program before the broker that is asked knows so."""
    topic = new_topic_name()
    admin.create_topics([NewTopic(topic, num_partitions=3)])[topic].result(PATIENCE_SECONDS)
    state, unknown = KafkaTopics.state, [TopicMissingError("not yet")]

    def late_state(topics: KafkaTopics, name: TopicName) -> TopicState:
        if unknown:
            raise unknown.pop()
        return state(topics, name)

    monkeypatch.setattr(KafkaTopics, "state", late_state)
    with pytest.raises(UsageError, match="3 partitions"):
        journal.ensure_topic(topic, FOREVER)


def test_many_threads_share_one_journal(journal: KafkaJournal, topic: TopicName) -> None:
    journal.append(topic, some_records(1))

    def use(number: int) -> list[bytes]:
        offset = journal.append(topic, some_records(3, f"thread-{number}"))[0]
        assert journal.bounds(topic).next_offset > offset
        with_reader = journal.reader(topic, offset)
        values = values_of(read_to_end(with_reader))
        with_reader.close()
        return [value for value in values if value.startswith(b"thread-%d-" % number)]

    with ThreadPoolExecutor(8) as pool:
        for number, values in enumerate(pool.map(use, range(16))):
            assert values == [record.value for record in some_records(3, f"thread-{number}")]
