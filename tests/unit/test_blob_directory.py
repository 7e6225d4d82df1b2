"""The directory of blobs: its layout, its leftovers, and what it says when the disk is not as it should be."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mailboat.blobs.checked_content import MAX_DOCUMENT_BYTES
from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.errors import BlobCorruptError, MailboatError, RetryableError, StorageFullError, StorageReadOnlyError
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import PATIENCE_SECONDS

CONTENT = b"some content"
DIGEST = hashlib.sha256(CONTENT).digest()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> DirectoryBlobStore:
    return DirectoryBlobStore(tmp_path, clock)


def test_a_blob_lies_under_its_digest(store: DirectoryBlobStore, tmp_path: Path) -> None:
    store.put(io.BytesIO(CONTENT))
    name = DIGEST.hex()
    assert (tmp_path / "sha256" / name[:2] / name).read_bytes() == CONTENT


def test_nothing_is_left_beside_the_blob(store: DirectoryBlobStore, tmp_path: Path) -> None:
    for _ in range(3):
        store.put(io.BytesIO(CONTENT))
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {
        tmp_path / "sha256" / DIGEST.hex()[:2] / DIGEST.hex(),
        tmp_path / "lock",
    }


def test_storing_again_renews_the_time_that_a_sweeper_looks_at(store: DirectoryBlobStore, clock: ManualClock) -> None:
    first = store.put(io.BytesIO(CONTENT))
    assert first.stored_at == clock.now()
    clock.advance(3600.0)
    assert store.put(io.BytesIO(CONTENT)).stored_at == clock.now()


def test_storing_again_does_not_write_again(store: DirectoryBlobStore, tmp_path: Path) -> None:
    store.put(io.BytesIO(CONTENT))
    path = tmp_path / "sha256" / DIGEST.hex()[:2] / DIGEST.hex()
    before = path.stat().st_ino
    store.put(io.BytesIO(CONTENT))
    assert path.stat().st_ino == before


def test_only_old_drafts_of_killed_writers_are_removed(tmp_path: Path, clock: ManualClock) -> None:
    DirectoryBlobStore(tmp_path, clock)
    old, young = tmp_path / "drafts" / "old", tmp_path / "drafts" / "young"
    for draft, age_seconds in ((old, 24 * 3600 + 1), (young, 3600)):
        draft.write_bytes(b"half a blo")
        seconds = clock.now().timestamp() - age_seconds
        os.utime(draft, (seconds, seconds))
    DirectoryBlobStore(tmp_path, clock)
    assert not old.exists()
    assert young.exists()


def test_a_store_that_is_mounted_read_only_opens_with_an_old_draft(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = DirectoryBlobStore(tmp_path, clock).put(io.BytesIO(CONTENT))
    draft = tmp_path / "drafts" / "old"
    draft.write_bytes(b"half a blo")
    os.utime(draft, (0, 0))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert DirectoryBlobStore(tmp_path, clock).stat(DIGEST) == info
    assert draft.exists()


@pytest.mark.parametrize("part", [".", "sha256"])
def test_no_blob_is_missing_in_a_store_that_is_not_there(tmp_path: Path, clock: ManualClock, part: str) -> None:
    """As where its volume is no longer mounted: a package whose blob is missing is given up in the end."""
    store = DirectoryBlobStore(tmp_path / "blobs", clock)
    store.put(io.BytesIO(CONTENT))
    (tmp_path / "blobs" / part).resolve().rename(tmp_path / "away")
    looks: list[Callable[[], object]] = [lambda: store.open(DIGEST, len(CONTENT)), lambda: store.stat(DIGEST)]
    for look in looks:
        with pytest.raises(RetryableError, match="can't be used for blobs") as raised:
            look()
        assert type(raised.value) is RetryableError


def test_files_that_no_document_can_be_named_as_are_not_listed(store: DirectoryBlobStore, tmp_path: Path) -> None:
    """NFS keeps a file that is replaced while it is open as `.nfs…`; a sweep reads all documents that are listed."""
    store.documents.write("edge", b"document")
    for name in (".nfs000000000001", "a b", "x" * 64):
        (tmp_path / "documents" / name).write_bytes(b"")
    assert store.documents.names() == ["edge"]


def test_files_without_a_blobs_name_are_not_listed(store: DirectoryBlobStore, tmp_path: Path) -> None:
    info = store.put(io.BytesIO(CONTENT))
    folder = tmp_path / "sha256" / DIGEST.hex()[:2]
    for name in ("README", "zz" * 32, DIGEST.hex().upper(), "00" * 31, "ff" * 32):
        (folder / name).write_bytes(b"?")
    (folder.parent / ".DS_Store").write_bytes(b"?")
    assert list(store.list()) == [info]


def test_a_document_that_is_too_large_for_memory_is_refused(store: DirectoryBlobStore, tmp_path: Path) -> None:
    store.documents.write("snap", b"{}")
    os.truncate(tmp_path / "documents" / "snap", MAX_DOCUMENT_BYTES + 1)
    with pytest.raises(BlobCorruptError, match="the document snap has 67108865 bytes"):
        store.documents.read("snap")


def test_a_blob_that_vanishes_while_it_is_renewed_is_stored_again(
    store: DirectoryBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweeper removes it between the check and the renewal."""
    store.put(io.BytesIO(CONTENT))
    real_utime = os.utime
    path = tmp_path / "sha256" / DIGEST.hex()[:2] / DIGEST.hex()

    def swept_utime(touched: str | int, *arguments: Any, **options: Any) -> None:
        if touched == path.name:
            path.unlink()
        real_utime(touched, *arguments, **options)

    monkeypatch.setattr(os, "utime", swept_utime)
    store.put(io.BytesIO(CONTENT))
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, StorageFullError),
        (errno.EDQUOT, StorageFullError),
        (errno.EROFS, StorageReadOnlyError),
        (errno.EACCES, StorageReadOnlyError),
        (errno.EIO, RetryableError),
    ],
)
def test_a_disk_that_refuses_is_named_and_nothing_is_stored(
    store: DirectoryBlobStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    expected: type[MailboatError],
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(expected, match=str(tmp_path)) as refused:
        store.put(io.BytesIO(CONTENT))
    assert type(refused.value) is expected
    assert isinstance(refused.value.__cause__, OSError)
    assert store.stat(DIGEST) is None
    assert list((tmp_path / "drafts").iterdir()) == []


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RetryableError, match="file"):
        DirectoryBlobStore(tmp_path / "file", clock)


def test_a_sweeper_waits_for_who_renews_at_this_moment(
    store: DirectoryBlobStore, clock: ManualClock, tmp_path: Path
) -> None:
    info = store.put(io.BytesIO(CONTENT))
    clock.advance(3600)
    writer = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(writer, fcntl.LOCK_SH)
    with ThreadPoolExecutor(1) as pool:
        sweep = pool.submit(store.remove_unrenewed, [info.digest], clock.now())
        with pytest.raises(TimeoutError):
            sweep.result(0.2)
        store.put(io.BytesIO(CONTENT))
        os.close(writer)
        assert sweep.result(PATIENCE_SECONDS) == 0
    assert store.stat(info.digest) is not None


def test_a_user_that_could_not_be_noted_is_noted_by_the_next_put(tmp_path: Path, clock: ManualClock) -> None:
    store = DirectoryBlobStore(tmp_path, clock, user=lambda: "journal")
    (tmp_path / "journals").write_text("not a folder")
    with pytest.raises(MailboatError):
        store.put(io.BytesIO(b"a"))
    (tmp_path / "journals").unlink()
    store.put(io.BytesIO(b"a"))
    assert list(store.users()) == ["journal"]
