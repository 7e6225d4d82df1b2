"""What other programs write with header names that are not UTF-8: Kafka takes them, and its Python client does not."""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Message, cimpl
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_reader import RecordMaker
from mailboat.journal.port import Edge, NewRecord, ReadLimits, Record
from mailboat.model.identifiers import Offset, TopicName
from mailboat.testing.journal_harness import read_to_end, some_records, values_of
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat.wire.headers import PACKAGE_HEADERS
from support.kafka_broker import KafkaBroker

_PRODUCER: Final = 0
_END, _TOPIC, _PARTITION, _VALUE, _MSGFLAGS, _HEADER = 0, 1, 3, 4, 7, 9  # rd_kafka_vtype_t
_COPY: Final = 2


@pytest.fixture
def write_as_a_stranger(kafka_broker: KafkaBroker) -> Iterator[Callable[[str, bytes, bytes], None]]:
    """Appends a value under one header, by the C library itself: its Python client takes no such names."""
    library = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    conf, error = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    for name, setting in ((b"bootstrap.servers", kafka_broker.bootstrap_servers.encode()), (b"log_level", b"0")):
        assert library.rd_kafka_conf_set(conf, name, setting, error, ctypes.c_size_t(512)) == 0, error.value
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, error, ctypes.c_size_t(512)))
    assert producer, error.value

    def write(topic: str, header: bytes, value: bytes) -> None:
        place = _TOPIC, topic.encode(), _PARTITION, ctypes.c_int32(0)
        content = _VALUE, value, ctypes.c_size_t(len(value)), _HEADER, header, b"\xff", ctypes.c_ssize_t(1)
        assert library.rd_kafka_producev(producer, *place, *content, _MSGFLAGS, _COPY, _END) == 0
        assert library.rd_kafka_flush(producer, int(PATIENCE_SECONDS * 1000)) == 0

    yield write
    library.rd_kafka_destroy(producer)


def test_a_record_whose_header_name_is_not_utf_8_is_given_in_its_place_and_is_none_of_ours(
    journal: KafkaJournal, topic: TopicName, write_as_a_stranger: Callable[[str, bytes, bytes], None]
) -> None:
    ours = [NewRecord(record.value, PACKAGE_HEADERS) for record in some_records(100)]
    journal.append(topic, ours)
    for header in (b"\xff\xfe-name", b"type\xff"):
        write_as_a_stranger(topic, header, b"strange")
    journal.append(topic, ours)
    found = read_to_end(journal.reader(topic, Edge.EARLIEST))
    assert values_of(found) == [*values_of(found[:100]), b"strange", b"strange", *values_of(found[:100])]
    assert [record.offset for record in found if record.headers != PACKAGE_HEADERS] == [100, 101]
    assert [name for name, _ in found[100].headers] == ["(names that are not UTF-8)"]
    for offset in (99, 100, 102):
        assert journal.record_at(topic, Offset(offset)) == found[offset]


def test_a_header_name_that_is_not_utf_8_stops_no_command_and_verify_names_its_record(
    new_boat: Any,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    write_as_a_stranger: Callable[[str, bytes, bytes], None],
) -> None:
    new_boat.do("init", "--kafka", kafka_broker.bootstrap_servers)
    prefix, conf = f"foreign-{uuid.uuid4().hex[:8]}-", new_boat.home / "mailboat.yaml"
    conf.write_text(conf.read_text().replace('topic_prefix: ""', f'topic_prefix: "{prefix}"'))
    new_boat.do("journal", "ensure")
    site, web = tmp_path / "site", tmp_path / "web"
    site.mkdir()
    for name in ("a.html", "b.html"):
        (site / name).write_text(name)
    new_boat.do("publish", site, "/a.html")
    write_as_a_stranger(f"{prefix}package", b"\xff\xfe-name", b"strange")
    new_boat.do("publish", site, "/b.html")
    ran = new_boat.run("subscribe", "web", "--into", f"files:{web}", "--until", "caught-up")
    assert "2 packages imported, 1 given up" in ran.out, ran.err
    assert sorted(file.name for file in web.glob("*.html")) == ["a.html", "b.html"]
    verified = new_boat.run("journal", "verify", "-o", "json")
    assert verified.code == 1
    assert [problem["offset"] for problem in verified.document["problems"]] == [1]
    assert "names that are not UTF-8" in verified.document["problems"][0]["problem"]
    new_boat.do("journal", "show")
    new_boat.do("status")


@pytest.mark.parametrize("failing_call", [1, 2])
def test_what_was_taken_off_the_client_when_a_read_failed_is_given_by_the_next(
    journal: KafkaJournal, topic: TopicName, monkeypatch: pytest.MonkeyPatch, failing_call: int
) -> None:
    """The first call has nothing in hand yet, the second one has."""
    journal.append(topic, some_records(10))
    reader = journal.reader(topic, Edge.EARLIEST)
    assert values_of(reader.read(ReadLimits(max_records=1), PATIENCE_SECONDS).records) == [b"value-0"]
    records_of, calls = RecordMaker.records_of, iter(range(1, 100))

    def fail_once(maker: RecordMaker, messages: Iterable[Message]) -> list[Record]:
        if messages and next(calls) == failing_call:
            raise MemoryError
        return records_of(maker, messages)

    monkeypatch.setattr(RecordMaker, "records_of", fail_once)
    with pytest.raises(MemoryError):
        reader.read(ReadLimits(), PATIENCE_SECONDS)
    assert reader.next_offset == 1
    assert values_of(read_to_end(reader)) == [f"value-{number}".encode() for number in range(1, 10)]
