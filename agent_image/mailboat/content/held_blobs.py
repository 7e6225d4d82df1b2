"""The large binaries of a sqlite target: a content-addressed folder next to the database file.

A blob is durable before the transaction that names it commits. Blobs that no node names any more stay until
`sweep_blobs` of `targets/sqlite.py`, so a rolled-back batch costs space only. The folder is made when the first blob
comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.blobs.port import BlobStore
from mailboat.clock import SystemClock
from mailboat.errors import BlobMissingError
from mailboat.model.nodes import Binary


class HeldBlobs:
    """The blobs that the nodes of one database hold."""

    def __init__(self, database: Path) -> None:
        """Use the folder that belongs to a database file; nothing is touched yet."""
        self._folder = blob_folder(database)
        self._opened: BlobStore | None = None

    def hold(self, binaries: Iterable[Binary], *, are_compared: bool = False) -> bytes:
        """Store the binaries that are not there yet; the digests of all, one after the other.

        `are_compared` reads those that are there, and replaces damaged ones.

        Raises: BlobMissingError, BlobCorruptError, StorageFullError, StorageReadOnlyError.
        """
        store = self._store()
        digests = []
        for binary in binaries:
            digests.append(binary.digest)
            found = None if are_compared else store.stat(binary.digest)
            if found is None or found.length_bytes != binary.length_bytes:
                with open_binary(binary) as stream:
                    store.put(stream, binary.digest)
        return b"".join(digests)

    def open(self, digest: bytes) -> BinaryIO:
        """A stream that checks what it reads. Raises: BlobMissingError, BlobCorruptError."""
        # The target may be another user's, of whom this one may read the blobs alone.
        store = DirectoryBlobStore(self._folder, SystemClock(), is_reader=True)
        found = store.stat(digest) if self._folder.is_dir() else None
        if found is None:
            raise BlobMissingError(f"{self._folder} lacks the blob {digest.hex()} that a node names")
        return store.open(digest, found.length_bytes)

    def sweep(self, is_named: Callable[[bytes], bool], *, is_dry_run: bool = False) -> int:
        """Delete blobs that no node names; how many, also when they are only counted."""
        if not self._folder.is_dir():
            return 0
        store = self._store()
        unnamed = (info.digest for info in store.list() if not is_named(info.digest))
        return sum(is_dry_run or store.delete(digest) for digest in unnamed)

    def _store(self) -> BlobStore:
        if self._opened is None:
            self._opened = DirectoryBlobStore(self._folder, SystemClock(), are_public=True)
        return self._opened


def blob_folder(database: Path) -> Path:
    """Where the large binaries of a database are."""
    return database.with_name(f"{database.name}.blobs")


def open_binary(binary: Binary) -> BinaryIO:
    """A stream over a package's binary. Raises: BlobMissingError: it has the digest alone."""
    if binary.data is None and binary.opener is None:
        raise BlobMissingError(f"the package names the binary {binary.digest.hex()}, which no store has")
    return binary.open()
