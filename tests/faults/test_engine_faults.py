"""Faults of the house with real parts: storage, blobs, journals and copies that are not what they were."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.config.topic_settings import TopicSettings
from mailboat.content.port import Target
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import JournalReplacedError, JournalShorterError, JournalTrimmedError
from mailboat.journal.port import NewRecord
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.positions import Position
from mailboat.model.requests import add_request
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.subscriber import Until
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.package_messages import decode_package
from support import crash_scenario
from support.engines import (
    PACKAGES,
    STATUSES,
    TARGET_KINDS,
    Engine,
    StopWhen,
    digest_of,
    watched_subscriber,
    write_site,
)
from support.forks import FORKS, end_of, fork, run_child


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def engine(home: Path) -> Iterator[Engine]:
    with Engine(home) as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> FolderSource:
    return write_site(tmp_path / "site", {f"{number}.txt": str(number) * 100 for number in range(6)})


def publish_each(engine: Engine, source: FolderSource) -> None:
    requests = [add_request([node.path]) for node in source.walk(ROOT) if node.path != ROOT]
    list(engine.publisher().publish_all(requests, source))


# ----------------------------------------------------------------------------------------------------------- storage


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_without_room_it_waits_and_goes_on_when_there_is_room_again(
    engine: Engine, home: Path, tmp_path: Path, kind: str
) -> None:
    source = write_site(tmp_path / "site", {"large.bin": bytes(range(256)) * 2000, "small.txt": "small"})
    engine.target(kind).close()
    engine.publisher().publish(add_request([NodePath("/small.txt")]), source)
    engine.publisher().publish(add_request([NodePath("/large.bin")]), source)
    assert run_child(crash_scenario.import_without_room, str(home), kind) == 0
    target = engine.target(kind)
    assert target.ledger.given_up() == []
    engine.subscriber(target).run(Until.CAUGHT_UP)
    assert digest_of(target.source()) == digest_of(source)
    assert Counter(status.offset for status in engine.statuses()) == {0: 1, 1: 1}
    target.close()


# ------------------------------------------------------------------------------------------------------------- blobs


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_a_corrupt_blob_is_given_up_alone_and_imported_once_it_is_repaired(
    engine: Engine, home: Path, tmp_path: Path, kind: str
) -> None:
    source = write_site(tmp_path / "site", {"a.bin": b"a" * 100_000, "b.bin": b"b" * 100_000, "c.txt": "c"})
    publish_each(engine, source)
    blob = max((home / "blobs" / "sha256").rglob("*"), key=lambda file: (file.is_file(), file.name))
    good = blob.read_bytes()
    blob.chmod(0o600)
    blob.write_bytes(b"X" + good[1:])
    target = engine.target(kind)
    engine.subscriber(target).run(Until.CAUGHT_UP)
    (entry,) = target.ledger.given_up()
    assert entry.cause.code == "BlobCorrupt"
    assert len(list(target.source().walk(ROOT))) == 2
    blob.write_bytes(good)
    target.ledger.request_redrive(entry.offset)
    observer = StopWhen(lambda statistics: statistics.redriven == 1)
    watched_subscriber(engine, target, observer).run()
    assert digest_of(target.source()) == digest_of(source)
    target.close()


# ---------------------------------------------------------------------------------------------------------- journals


def stands_at(target: Target) -> Position:
    """The target's position without the epoch that the journal put into it."""
    position = target.ledger.position()
    assert position is not None
    return replace(position, leader_epoch=None)


def test_a_trimmed_journal_stops_it_until_the_gap_is_accepted(engine: Engine, source: FolderSource) -> None:
    publish_each(engine, source)
    target = engine.target("sqlite")
    observer = StopWhen(lambda statistics: statistics.imported > 0)
    engine.subscriber(target, engine.with_settings(max_batch_records=2))
    watched_subscriber(engine, target, observer).run()
    target.ledger.reset_position(engine.position(1))
    engine.journal.truncate(PACKAGES, engine.records()[3].offset)
    before = digest_of(target.source())
    with pytest.raises(JournalTrimmedError, match="edge is at offset 1"):
        engine.subscriber(target).run(Until.CAUGHT_UP)
    assert digest_of(target.source()) == before
    assert target.ledger.position() == engine.position(1)
    engine.subscriber(target, engine.with_settings(is_gap_accepted=True)).run(Until.CAUGHT_UP)
    assert stands_at(target) == engine.position(6)
    target.close()


def test_a_journal_trimmed_under_a_running_subscriber_stops_it_too(engine: Engine, source: FolderSource) -> None:
    publish_each(engine, source)
    target = engine.target("sqlite")
    observer = StopWhen(lambda statistics: False)  # noqa: ARG005  # only to see it wait

    def trim(statistics: SubscriberStatistics) -> bool:
        if statistics.phase is SubscriberPhase.CURRENT:
            list(engine.publisher().publish_all([add_request([NodePath("/0.txt")])] * 3, source))
            engine.journal.truncate(PACKAGES, engine.records()[-1].offset)
        return False

    observer._holds = trim
    subscriber = watched_subscriber(engine, target, observer)
    with pytest.raises(JournalTrimmedError):
        subscriber.run()
    assert subscriber.statistics().phase is SubscriberPhase.STOPPED
    target.close()


def test_a_journal_made_again_stops_it_and_leaves_the_content(
    engine: Engine, home: Path, source: FolderSource, tmp_path: Path
) -> None:
    publish_each(engine, source)
    target = engine.target("sqlite")
    engine.subscriber(target).run(Until.CAUGHT_UP)
    before = digest_of(target.source())
    with SqliteJournal.create(tmp_path / "other.db", SystemClock()) as other:
        for topic in (PACKAGES, STATUSES):
            other.ensure_topic(topic, TopicSettings())
        other.append(PACKAGES, [NewRecord(record.value, record.headers) for record in engine.records()])
        with pytest.raises(JournalReplacedError):
            engine.subscriber(target, None, lambda ports: replace(ports, journal=other)).run(Until.CAUGHT_UP)
    assert digest_of(target.source()) == before
    target.close()


def test_a_journal_that_lost_its_tail_stops_it_and_replays_what_it_holds_when_told_to(
    engine: Engine, home: Path, source: FolderSource, tmp_path: Path
) -> None:
    publish_each(engine, source)
    engine.close()
    copies = tmp_path / "copies"
    shutil.copytree(home, copies)
    with Engine(home) as later:
        later.publisher().publish(add_request([NodePath("/0.txt")]), source)
        target = later.target("sqlite")
        later.subscriber(target).run(Until.CAUGHT_UP)
        target.close()
    for file in home.glob("journal.db*"):
        file.unlink()
    for file in copies.glob("journal.db*"):
        shutil.copy(file, home)
    with Engine(home) as restored:
        target = restored.target("sqlite")
        with pytest.raises(JournalShorterError, match="is at offset 7, the journal ends at 6"):
            restored.subscriber(target).run(Until.CAUGHT_UP)
        restored.subscriber(target, restored.with_settings(is_gap_accepted=True)).run(Until.CAUGHT_UP)
        assert stands_at(target) == restored.position(6)
        assert digest_of(target.source()) == digest_of(source)
        target.close()


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_a_target_restored_from_an_older_copy_replays_and_converges(
    engine: Engine, home: Path, source: FolderSource, tmp_path: Path, kind: str
) -> None:
    publish_each(engine, source)
    target = engine.target(kind)
    engine.subscriber(target).run(Until.CAUGHT_UP)
    target.close()
    shutil.copytree(home / f"edge-{kind}", tmp_path / "older", symlinks=True)
    write_site(tmp_path / "site", {"0.txt": "changed", "new/late.txt": "late"})
    (tmp_path / "site/1.txt").unlink()
    for request in (add_request([NodePath("/new"), NodePath("/0.txt")]), add_request([ROOT])):
        engine.publisher().publish(request, source)
    target = engine.target(kind)
    engine.subscriber(target).run(Until.CAUGHT_UP)
    expected = digest_of(target.source())
    target.close()
    shutil.rmtree(home / f"edge-{kind}")
    shutil.move(tmp_path / "older", home / f"edge-{kind}")
    target = engine.target(kind)
    statistics = engine.subscriber(target).run(Until.CAUGHT_UP)
    assert statistics.imported == 2
    assert digest_of(target.source()) == expected == digest_of(FolderSource(tmp_path / "site"))
    target.close()


# --------------------------------------------------------------------------------------------------------- processes


@pytest.mark.parametrize("work", [crash_scenario.publish_the_same, crash_scenario.publish_changes])
def test_several_processes_that_publish_the_same_at_once_make_one_message(
    home: Path, source: FolderSource, tmp_path: Path, work: Callable[..., None]
) -> None:
    Engine(home).close()
    barrier = FORKS.Barrier(4)
    children = [fork(work, str(home), str(tmp_path / "site"), barrier) for _ in range(4)]
    assert [end_of(child) for child in children] == [0] * 4
    with Engine(home) as engine:
        requests = [decode_package(record.value).request_id for record in engine.records()]
        assert len(requests) == 1


def test_packages_arrive_while_it_runs_and_it_stops_when_it_is_told_from_another_thread(
    engine: Engine, source: FolderSource
) -> None:
    target = engine.target("sqlite")
    subscriber = engine.subscriber(target)
    thread = threading.Thread(target=subscriber.run)
    thread.start()
    try:
        for number in range(3):
            engine.publisher().publish(add_request([NodePath(f"/{number}.txt")]), source)
            wait_until(lambda number=number: subscriber.statistics().imported > number, "the package is imported")
    finally:
        subscriber.stop()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert subscriber.statistics().imported == 3
    target.close()
