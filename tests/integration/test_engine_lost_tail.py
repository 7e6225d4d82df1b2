"""A log that lost its tail and grew on: only the leader's epoch tells, and the subscriber must not read past it."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.errors import JournalShorterError, PositionOutOfRangeError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import JournalReader, Start
from mailboat.model.identifiers import TopicName
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.subscriber import Until
from mailboat.testing.memory_content import MemoryStore, MemoryTarget
from support.engines import PACKAGES, Engine, memory_engine, page_source


class RecordingJournal(MemoryJournal):
    """Remembers where its last reader was to begin."""

    asked_for: Start | None = None

    def reader(self, topic: TopicName, start: Start) -> JournalReader:
        self.asked_for = start
        return super().reader(topic, start)


def publish(engine: Engine) -> None:
    engine.publisher().publish(add_request([NodePath("/a")]), page_source("/a"))


def test_a_position_is_handed_to_the_journal_with_its_log_and_epoch(tmp_path: Path) -> None:
    with memory_engine(tmp_path) as plain:
        journal = RecordingJournal(plain.parts.clock)
        engine = Engine(tmp_path / "engine", plain.parts, journal=journal, blobs=plain.blobs)
        publish(engine)
        target = MemoryTarget(MemoryStore())
        target.ledger.reset_position(replace(engine.position(1), leader_epoch=2))
        engine.subscriber(target).run(Until.CAUGHT_UP)
        assert journal.asked_for == replace(engine.position(1), leader_epoch=2)
        engine.close()


class RefusingReader:
    """What a Kafka reader is whose position's epoch the log does not have."""

    next_offset = 1

    def read(self, *_: object) -> None:
        raise PositionOutOfRangeError("epoch 3 ended at 0", topic=PACKAGES)

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class RefusingJournal(MemoryJournal):
    """Has lost its tail and grown on."""

    def reader(self, topic: TopicName, start: Start) -> JournalReader:
        return RefusingReader() if topic == PACKAGES else super().reader(topic, start)  # type: ignore[return-value]


def test_a_subscriber_stops_where_the_journal_refuses_a_position_within_its_bounds(tmp_path: Path) -> None:
    with memory_engine(tmp_path) as plain:
        engine = Engine(tmp_path / "engine", plain.parts, journal=RefusingJournal(plain.parts.clock), blobs=plain.blobs)
        target = MemoryTarget(MemoryStore())
        target.ledger.reset_position(engine.position(0))
        with pytest.raises(JournalShorterError, match="epoch 3 ended at 0"):
            engine.subscriber(target).run(Until.FOREVER)
        assert target.ledger.position() == engine.position(0)
        engine.close()


@pytest.mark.parametrize("published_anew", [1, 3], ids=["to its position", "beyond its position"])
def test_a_subscriber_stops_at_a_restored_sqlite_journal_that_grew_again(tmp_path: Path, published_anew: int) -> None:
    folder, copy = tmp_path / "engine", tmp_path / "copy.db"
    with Engine(folder) as engine:
        publish(engine)
    shutil.copy(folder / "journal.db", copy)
    with Engine(folder) as engine:
        publish(engine)
        with closing(engine.target("files")) as target:
            engine.subscriber(target).run(Until.CAUGHT_UP)
            stood_at = target.ledger.position()
    copy.replace(folder / "journal.db")
    with Engine(folder) as engine:
        for _ in range(published_anew):
            publish(engine)
        with closing(engine.target("files")) as target:
            with pytest.raises(JournalShorterError, match=r"journal lost records and has new ones: .* epoch"):
                engine.subscriber(target).run(Until.CAUGHT_UP)
            assert target.ledger.position() == stood_at
            accepting = engine.with_settings(is_gap_accepted=True)
            assert engine.subscriber(target, accepting).run(Until.CAUGHT_UP).imported == 1 + published_anew
            assert engine.subscriber(target).run(Until.CAUGHT_UP).imported == 0
