"""Packages in pieces through the whole engine: no blob store, one entry in queues, any start, any interleaving."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mailboat.clock import SystemClock
from mailboat.config.document import LimitsConfig, Transfer
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import (
    JournalAccessDeniedError,
    LimitExceededError,
    MailboatError,
    SourceChangedError,
    TopicMissingError,
)
from mailboat.journal.port import JournalReader
from mailboat.model.identifiers import AgentName, Offset, RequestId, TopicName
from mailboat.model.messages import PackageStatus
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.requests import add_request
from mailboat.operations.journal_inspection import summary_of
from mailboat.operations.journal_verification import verify_journal
from mailboat.publisher.publisher import Publisher
from mailboat.publisher.publisher_settings import PublisherPorts
from mailboat.publisher.state import PublisherState
from mailboat.queues.entries import decode_entries
from mailboat.retention.marks import ORPHAN_SECONDS, whole_package_border
from mailboat.subscriber.piece_store import PieceFigures
from mailboat.subscriber.subscriber import Until
from mailboat.testing.clocks import ManualClock
from mailboat.wire.headers import PACKAGE_HEADERS
from mailboat.wire.messages import decode_message
from support.engines import AUTHOR, PACKAGES, TARGET_KINDS, Engine, digest_of, write_site

CUT: dict[str, Any] = {"transfer": Transfer.CHUNKS, "piece_bytes": 50_000, "append_bytes": 100_000}
LARGE: dict[str, str | bytes] = {
    "index.html": "<h1>Home</h1>",
    "video.bin": bytes(range(256)) * 5000,
    "pictures/a.bin": b"\x01" * 300_000,
    "pictures/b.bin": b"\x02" * 300_000,
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home") as made:
        yield made


@pytest.fixture
def site(tmp_path: Path) -> FolderSource:
    return write_site(tmp_path / "site", LARGE)


def walk_before_a_change(walk: Any, file: Path) -> Any:
    """A walk after which a file has other bytes than it was read with, and as many."""

    def changing(source: FolderSource, path: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
        yield from walk(source, path, is_deep=is_deep)
        file.write_bytes(b"\x03" * file.stat().st_size)

    return changing


def publisher_in_pieces(engine: Engine) -> Publisher:
    return engine.publisher(engine.publishing_with(**CUT))


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_a_large_tree_arrives_without_any_blob_store(engine: Engine, site: FolderSource, kind: str) -> None:
    receipt = publisher_in_pieces(engine).publish(add_request([ROOT]), site)
    assert list(engine.blobs.list()) == []
    assert receipt.package_bytes > 1_800_000
    assert not receipt.is_inline
    target = engine.target(kind)
    statistics = engine.subscriber(target, engine.with_settings(max_batch_records=5)).run(Until.CAUGHT_UP)
    assert (statistics.imported, statistics.skipped) == (1, receipt.offset)
    assert digest_of(target.source()) == digest_of(site)
    assert statistics.pieces == PieceFigures(pieces=receipt.offset, collected=1)
    target.close()


def test_a_small_package_still_travels_in_its_message(engine: Engine, site: FolderSource) -> None:
    receipt = publisher_in_pieces(engine).publish(add_request([NodePath("/index.html")]), site)
    assert receipt.is_inline
    assert len(engine.records()) == 1


def test_a_queue_shows_one_entry_for_all_pieces(engine: Engine, site: FolderSource) -> None:
    receipt = publisher_in_pieces(engine).publish(add_request([ROOT]), site)
    found = decode_entries(engine.records(), {AUTHOR})
    assert [entry.offset for entry in found.entries] == [receipt.offset]
    assert found.unreadable_count == 0


def test_a_subscriber_that_starts_or_stops_between_pieces_loses_nothing(engine: Engine, site: FolderSource) -> None:
    receipt = publisher_in_pieces(engine).publish(add_request([ROOT]), site)
    target = engine.target("sqlite")
    for middle in (3, receipt.offset - 1):
        with target.batch() as batch:
            batch.commit(engine.position(middle))
    assert engine.subscriber(target).run(Until.CAUGHT_UP).imported == 1
    assert digest_of(target.source()) == digest_of(site)
    target.close()


@pytest.mark.parametrize("kind", [JournalAccessDeniedError, TopicMissingError])
def test_a_journal_that_refuses_the_pieces_stops_before_the_package_and_gives_nothing_up(
    engine: Engine, site: FolderSource, monkeypatch: pytest.MonkeyPatch, kind: type[MailboatError]
) -> None:
    receipt = publisher_in_pieces(engine).publish(add_request([ROOT]), site)
    target = engine.target("sqlite")
    with target.batch() as batch:
        batch.commit(engine.position(3))
    reader = engine.journal.reader

    def refuse_the_first_piece(topic: TopicName, start: Any) -> JournalReader:
        if start == 0:
            raise kind("the password was changed")
        return reader(topic, start)

    monkeypatch.setattr(engine.journal, "reader", refuse_the_first_piece)
    with pytest.raises(kind, match="the password was changed"):
        engine.subscriber(target).run(Until.CAUGHT_UP)
    assert list(target.ledger.given_up()) == []
    stood_at = target.ledger.position()
    assert stood_at is not None
    assert stood_at.next_offset == receipt.offset
    monkeypatch.undo()
    assert engine.subscriber(target).run(Until.CAUGHT_UP).imported == 1
    target.close()


def test_publishers_whose_pieces_interleave_arrive_each_whole(
    engine: Engine, site: FolderSource, tmp_path: Path
) -> None:
    states = [PublisherState(tmp_path / f"{number}.db") for number in range(3)]
    publishers = [
        Publisher(
            engine.publishing_with(name=AgentName(f"author-{number}"), **CUT),
            PublisherPorts(engine.journal, engine.blobs, engine.parts.codecs, state),
        )
        for number, state in enumerate(states)
    ]
    sources = [FolderSource(tmp_path / "site") for _ in publishers]  # a source serves one thread
    threads = [
        threading.Thread(target=one.publish, args=(add_request([ROOT]), source))
        for one, source in zip(publishers, sources, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    target = engine.target("files")
    settings = engine.with_settings(follow=None, is_editable=True)
    assert engine.subscriber(target, settings).run(Until.CAUGHT_UP).imported == 3
    assert {status.status for status in engine.statuses()} == {PackageStatus.IMPORTED}
    assert digest_of(target.source()) == digest_of(site)
    target.close()
    for state in states:
        state.close()


def test_a_package_whose_first_pieces_retention_removed_is_given_up_by_name(engine: Engine, site: FolderSource) -> None:
    receipt = publisher_in_pieces(engine).publish(add_request([ROOT], request_id=RequestId("cut")), site)
    engine.journal.truncate(PACKAGES, Offset(2))
    target = engine.target("sqlite")
    settings = engine.with_settings(is_gap_accepted=True)
    assert engine.subscriber(target, settings).run(Until.CAUGHT_UP).failed == 1
    (status,) = engine.statuses()
    assert (status.offset, status.status) == (receipt.offset, PackageStatus.REMOVED_FAILED)
    assert status.cause is not None
    assert status.cause.code == "PiecesMissing"
    target.close()


def test_a_package_that_fails_half_way_leaves_pieces_that_harm_no_one_and_go_with_time(
    engine: Engine, site: FolderSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = engine.publishing_with(inline_package_bytes=100_000, **CUT)
    publisher, request = engine.publisher(settings), add_request([ROOT], request_id=RequestId("again"))
    with monkeypatch.context() as patched:
        patched.setattr(FolderSource, "walk", walk_before_a_change(FolderSource.walk, tmp_path / "site" / "video.bin"))
        with pytest.raises(SourceChangedError):
            publisher.publish(request, site)
    left = len(engine.records())
    assert left > 0
    receipt = publisher.publish(request, site)
    assert (receipt.is_repeat, [entry.offset for entry in decode_entries(engine.records(), {AUTHOR}).entries]) == (
        False,
        [receipt.offset],
    )
    found = verify_journal(engine.journal, [PACKAGES], engine.blobs, event_topic=TopicName("event"), reads_blobs=False)
    assert not found.findings
    target = engine.target("sqlite")
    assert engine.subscriber(target).run(Until.CAUGHT_UP).imported == 1
    assert digest_of(target.source()) == digest_of(site)
    target.close()
    assert whole_package_border(engine.journal, PACKAGES, receipt.offset, SystemClock()) == 0
    an_hour_later = ManualClock(SystemClock().now() + timedelta(seconds=ORPHAN_SECONDS + 1))
    assert whole_package_border(engine.journal, PACKAGES, receipt.offset, an_hour_later) == left


def test_a_package_that_is_refused_at_its_end_leaves_no_pieces(engine: Engine, site: FolderSource) -> None:
    limits = LimitsConfig(refuse_collisions=True)
    settings = engine.publishing_with(inline_package_bytes=100_000, limits=limits, **CUT)
    (Path(site.uri) / "w").mkdir()
    for name in ("a", "A"):
        (Path(site.uri) / "w" / name).touch()
    publisher = engine.publisher(settings)
    for publish in (lambda: publisher.publish(add_request([ROOT]), site), lambda: [*publisher.publish_changed(site)]):
        with pytest.raises(LimitExceededError, match="'A' and 'a' in one folder"):
            publish()
    assert not engine.records()


def test_pieces_are_known_by_their_headers(engine: Engine, site: FolderSource) -> None:
    publisher_in_pieces(engine).publish(add_request([ROOT]), site)
    *pieces, message = engine.records()
    assert message.headers == PACKAGE_HEADERS
    assert {record.headers for record in pieces} == {(("type", b"22"), ("version", b"1"))}


def test_verify_and_show_know_pieces(engine: Engine, site: FolderSource) -> None:
    publisher_in_pieces(engine).publish(add_request([ROOT]), site)

    def problems() -> list[str]:
        found = verify_journal(
            engine.journal, [PACKAGES], engine.blobs, event_topic=TopicName("event"), reads_blobs=False
        )
        return [finding.problem for finding in found.findings]

    assert problems() == []
    piece, *_, message = (decode_message(record.headers, record.value) for record in engine.records())
    assert summary_of(piece).startswith("piece 0 of dstrpck-")
    assert summary_of(message).endswith("bytes in pieces")
    engine.journal.truncate(PACKAGES, Offset(1))
    (problem,) = problems()
    assert problem.startswith("PiecesMissing")


def test_pieces_always_fit_what_the_journal_takes(engine: Engine, site: FolderSource) -> None:
    settings = engine.publishing_with(transfer=Transfer.CHUNKS, piece_bytes=5_000_000)
    engine.publisher(settings).publish(add_request([ROOT]), site)
    assert max(len(record.value) for record in engine.records()) <= settings.max_message_bytes
    target = engine.target("sqlite")
    assert engine.subscriber(target).run(Until.CAUGHT_UP).imported == 1
    target.close()
