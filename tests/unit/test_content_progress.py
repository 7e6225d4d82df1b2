"""Watched sources: the bytes that went by, and nothing else changed."""

from __future__ import annotations

from pathlib import Path

from mailboat.content.binaries import content_bytes_of
from mailboat.content.sources.folder import FolderSource
from mailboat.content.watched_sources import WatchedSource, watched_records
from mailboat.model.nodes import Binary, NodeRecord
from mailboat.model.paths import ROOT, NodePath
from mailboat.wire.node_bodies import node_digest

LARGE = 3_000_000


def site(folder: Path) -> Path:
    (folder / "large.bin").write_bytes(bytes(LARGE))
    (folder / "small.txt").write_text("small")
    return folder


def test_watched_walk_gives_equal_nodes_and_counts_every_byte_once(tmp_path: Path) -> None:
    counts: list[int] = []
    source = FolderSource(site(tmp_path))
    plain = [node_digest(node) for node in source.walk(ROOT)]
    total = sum(map(content_bytes_of, source.walk(ROOT)))
    watched = WatchedSource(source, counts.append)
    assert [node_digest(node) for node in watched.walk(ROOT)] == plain
    assert sum(counts) == total
    assert max(counts) < LARGE, "a large file counts while it is read"


def test_binary_that_is_read_twice_counts_once(tmp_path: Path) -> None:
    counts: list[int] = []
    for node in WatchedSource(FolderSource(site(tmp_path)), counts.append).walk(NodePath("/large.bin")):
        for _ in range(2):
            assert node.data is not None
            with node.data.open() as stream:
                assert len(stream.read()) == LARGE
    assert sum(counts) == LARGE


def test_binary_that_is_read_after_its_walk_counts_once(tmp_path: Path) -> None:
    counts: list[int] = []
    nodes = list(WatchedSource(FolderSource(site(tmp_path)), counts.append).walk(NodePath("/large.bin")))
    assert nodes[0].data is not None
    with nodes[0].data.open() as stream:
        stream.read()
    assert sum(counts) == LARGE


def test_digest_found_by_the_reader_is_told_to_the_source(tmp_path: Path) -> None:
    class StoreResult(FolderSource):
        """Keeps the nodes that it gave."""

        given: list[Binary]

        def walk(self, path: NodePath, *, is_deep: bool = True):  # type: ignore[no-untyped-def]
            for node in super().walk(path, is_deep=is_deep):
                if node.data is not None:
                    self.given.append(node.data)
                yield node

    source = StoreResult(site(tmp_path))
    source.given = []
    for node in WatchedSource(source, lambda _: None).walk(NodePath("/large.bin")):
        node_digest(node)
    assert [item.is_digest_known for item in source.given] == [True]


def test_single_nodes_are_counted_where_asked_for(tmp_path: Path) -> None:
    counts: list[int] = []
    source = WatchedSource(FolderSource(site(tmp_path)), counts.append, counts.append)
    assert source.node(NodePath("/small.txt")) is not None
    assert source.node(NodePath("/none")) is None
    assert counts == [5]


def test_records_count_body_and_binaries() -> None:
    counts: list[int] = []
    records = [NodeRecord(NodePath("/a"), b"body", (Binary(b"12345"),)), NodeRecord(NodePath("/b"), b"")]
    assert list(watched_records(records, counts.append)) == records
    assert counts == [9, 0]
