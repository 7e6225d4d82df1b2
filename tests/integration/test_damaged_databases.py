"""Random damage to each SQLite file: opening it reports the damage by name, and never a foreign error."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.config.topic_settings import TopicSettings
from mailboat.content.locations import open_source, open_target, opened_ledger
from mailboat.content.sources.folder_entries import FileSignature
from mailboat.content.sources.known_files import KnownFiles
from mailboat.errors import JournalCorruptError, MailboatError, PackageCorruptError, TargetCorruptError
from mailboat.journal.port import NewRecord
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import RequestId, TopicName
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.positions import LogIdentity
from mailboat.publisher.state import PublisherState
from mailboat.publisher.state_file import PublisherStateCorruptError
from mailboat.testing.target_contract import deep, publish
from mailboat.testing.trees import sample_tree

TOPIC = TopicName("packages")
ROUNDS = 60
DAMAGE_BYTES = 40
SCHEMA_BYTES = 4096
SIGNATURE = FileSignature(1, 2, 3, 4)
EXPECTED = (TargetCorruptError, JournalCorruptError, PublisherStateCorruptError, PackageCorruptError)
"""The last for a node whose own bytes are damaged: its path is named."""


def make_target(file: Path) -> None:
    with closing(open_target(f"sqlite:{file}")) as target:
        publish(target, sample_tree(), deep("/content"))


def use_target(file: Path) -> None:
    with opened_ledger(f"sqlite:{file}") as ledger:
        ledger.position()
        ledger.given_up()
    with closing(open_source(f"sqlite:{file}")) as source:
        list(source.walk(ROOT))
    with closing(open_target(f"sqlite:{file}")) as target:
        publish(target, [], deep("/content"), 1)


def make_state(file: Path) -> None:
    with closing(PublisherState(file)):
        pass


def use_state(file: Path) -> None:
    with closing(PublisherState(file)) as state:
        state.intents(LogIdentity("cluster", "topic"))
        state.receipt(RequestId("request"), LogIdentity("cluster", "topic"))


def make_known_files(file: Path) -> None:
    with closing(KnownFiles(file, file.parent)) as known:
        known.store(NodePath("/a"), SIGNATURE, bytes(32))


def use_known_files(file: Path) -> None:
    with closing(KnownFiles(file, file.parent)) as known:
        known.find(NodePath("/a"), SIGNATURE)
        known.store(NodePath("/b"), SIGNATURE, bytes(32))


def make_journal(file: Path) -> None:
    with SqliteJournal.create(file, SystemClock()) as journal:
        journal.ensure_topic(TOPIC, TopicSettings())
        journal.append(TOPIC, [NewRecord(b"value %d" % number) for number in range(50)])


def use_journal(file: Path) -> None:
    with SqliteJournal(file, SystemClock()) as journal:
        journal.topics()
        journal.bounds(TOPIC)
        journal.append(TOPIC, [NewRecord(b"value")])


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "target": (make_target, use_target),
    "publisher": (make_state, use_state),
    "journal": (make_journal, use_journal),
    "known files": (make_known_files, use_known_files),
}


@pytest.mark.parametrize("kind", KINDS)
def test_random_damage_is_named(tmp_path: Path, kind: str) -> None:
    make, use = KINDS[kind]
    make(tmp_path / "whole.db")
    chance = random.Random(kind)
    found: list[str] = []
    for number in range(ROUNDS):
        file = tmp_path / f"{number}.db"
        shutil.copyfile(tmp_path / "whole.db", file)
        size = file.stat().st_size
        with file.open("r+b") as damaged:  # every second one in the schema, whose text SQLite's messages quote
            damaged.seek(chance.randrange(100, SCHEMA_BYTES if number % 2 else size - DAMAGE_BYTES))
            damaged.write(chance.randbytes(DAMAGE_BYTES))
        try:
            use(file)
        except EXPECTED as error:
            found.append(error.name)
        except MailboatError as error:
            found.append(f"other {error}")
    assert [name for name in found if name.startswith("other")] == []
    assert bool(found) is (kind != "known files")
