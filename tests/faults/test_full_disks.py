"""Packages that need more room than the disk has, on a real small file system where the machine lets us make one."""

from __future__ import annotations

import random
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mailboat.config.document import Transfer
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import StorageFullError
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.subscriber.subscriber import Until
from support.engines import Engine, StopWhen, digest_of, watched_subscriber, write_site

ROOM_BYTES = 2 * 1024 * 1024
WHOLE = {"transfer": Transfer.REFERENCE, "inline_binary_bytes": 10_000_000}
CUT = {"transfer": Transfer.CHUNKS, "piece_bytes": 100_000, "append_bytes": 400_000}


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of `ROOM_BYTES` at the folder; without the right to mount one, files of no more than that."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        try:
            yield
        finally:
            subprocess.run(["umount", str(folder)], capture_output=True, check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home") as made:
        yield made


@pytest.fixture
def site(tmp_path: Path) -> FolderSource:
    return write_site(tmp_path / "site", {"large.bin": random.Random(2).randbytes(4_000_000), "small.txt": "small"})


def publish(engine: Engine, site: FolderSource, *, in_pieces: bool) -> None:
    settings = engine.publishing_with(**(CUT if in_pieces else WHOLE))
    for path in ("/small.txt", "/large.bin"):
        engine.publisher(settings).publish(add_request([NodePath(path)]), site)


@pytest.mark.parametrize("in_pieces", [True, False])
def test_a_package_that_the_disk_has_no_room_for_waits_for_room_and_loses_nothing(
    engine: Engine, site: FolderSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_pieces: bool
) -> None:
    publish(engine, site, in_pieces=in_pieces)
    target = engine.target("sqlite")
    with small_disk(tmp_path / "temporary"), monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        stop = StopWhen(lambda seen: seen.phase is SubscriberPhase.WAITING)
        subscriber = watched_subscriber(engine, target, stop)
        statistics = subscriber.run(Until.FOREVER)
        assert (statistics.imported, statistics.failed) == (1, 0)
        assert list((tmp_path / "temporary").iterdir()) == []
    assert target.ledger.given_up() == []
    assert engine.subscriber(target).run(Until.CAUGHT_UP).imported == 1
    assert digest_of(target.source()) == digest_of(site)
    target.close()


def test_a_publisher_without_room_for_a_package_says_so_and_appends_nothing(
    engine: Engine, site: FolderSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "temporary"), monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        with pytest.raises(StorageFullError):
            engine.publisher(engine.publishing_with(**WHOLE)).publish(add_request([NodePath("/large.bin")]), site)
    assert engine.records() == []


def test_a_publisher_in_pieces_needs_no_room_at_all(
    engine: Engine, site: FolderSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    publish(engine, site, in_pieces=True)
    monkeypatch.setattr(tempfile, "tempdir", None)
    target = engine.target("files")
    assert engine.subscriber(target).run(Until.CAUGHT_UP).imported == 2
    assert digest_of(target.source()) == digest_of(site)
    target.close()
