"""Content that is copied is checked once: by the copier, or by the stream that it comes from."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import BinaryIO

import pytest
from mailboat.blobs import checked_content
from mailboat.blobs.checked_content import CopyProof, checked_stream
from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.content.targets.durability import Durability
from mailboat.content.targets.staged_files import Staging
from mailboat.errors import BlobCorruptError
from mailboat.folder_handle import FolderHandle
from mailboat.model.content_hash import ContentHash
from mailboat.model.nodes import Binary
from mailboat.packages.tree_reader import PieceSpan, open_pieces
from mailboat.testing.clocks import ManualClock

DATA = b"some content" * 100_000
DIGEST = hashlib.sha256(DATA).digest()


class NoHash(ContentHash):
    """Who hashes with it has failed."""

    def update(self, data: bytes) -> None:
        raise AssertionError(f"{len(data)} bytes are hashed")


def pieces() -> BinaryIO:
    """The content in a package: in two pieces behind their frames."""
    half = len(DATA) // 2
    package = io.BytesIO(b"frame" + DATA[:half] + b"frame" + DATA[half:])
    return open_pieces(package, [PieceSpan(5, half), PieceSpan(10 + half, len(DATA) - half)], DIGEST)


def copied(stream: BinaryIO) -> bytes:
    proof = CopyProof(stream)
    while chunk := stream.read(1000):
        proof.update(chunk)
    assert proof.length_bytes == len(DATA)
    return proof.digest()


def staged_in(folder: Path) -> Staging:
    """A staging folder."""
    return Staging(FolderHandle.open(str(folder)).make_folder("staged"), Durability(str(folder)))


def test_content_of_unknown_truth_is_hashed_while_it_is_copied() -> None:
    assert copied(io.BytesIO(DATA)) == DIGEST


@pytest.mark.interpreted("its hash derives from a compiled class")
def test_content_that_proves_itself_is_hashed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = DirectoryBlobStore(tmp_path / "blobs", ManualClock())
    staging = staged_in(tmp_path)
    monkeypatch.setattr(checked_content, "ContentHash", NoHash)
    assert copied(pieces()) == DIGEST
    assert store.put(pieces(), DIGEST).digest == DIGEST
    staging.add(1, Binary(digest=DIGEST, length_bytes=len(DATA), opener=pieces))
    with staging.open(1, DIGEST) as staged:
        assert staged.read() == DATA


def test_who_took_some_of_it_before_is_told_that_the_rest_is_not_the_content(tmp_path: Path) -> None:
    begun = pieces()
    begun.read(1)
    with pytest.raises(BlobCorruptError, match="of which 1199999 came"):
        DirectoryBlobStore(tmp_path, ManualClock()).put(begun, DIGEST)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("data", [DATA[:-1] + b"?", DATA[:-1], DATA + b"?", b""])
@pytest.mark.parametrize("is_checked", [False, True])
def test_other_content_is_kept_out_by_copier_and_stream(tmp_path: Path, data: bytes, *, is_checked: bool) -> None:
    def opened() -> BinaryIO:
        return checked_stream(io.BytesIO(data), DIGEST, len(DATA)) if is_checked else io.BytesIO(data)

    store = DirectoryBlobStore(tmp_path / "blobs", ManualClock())
    with pytest.raises(BlobCorruptError):
        store.put(opened(), DIGEST)
    assert store.stat(DIGEST) is None
    staging = staged_in(tmp_path)
    with pytest.raises(BlobCorruptError):
        staging.add(1, Binary(digest=DIGEST, length_bytes=len(DATA), opener=opened))


def test_proven_content_under_another_name_is_kept_out(tmp_path: Path) -> None:
    other = hashlib.sha256(b"other").digest()
    with pytest.raises(BlobCorruptError, match="was to be stored"):
        DirectoryBlobStore(tmp_path / "blobs", ManualClock()).put(pieces(), other)
    staging = staged_in(tmp_path)
    with pytest.raises(BlobCorruptError):
        staging.add(1, Binary(digest=other, length_bytes=len(DATA), opener=pieces))
