"""Blobs in a directory: `sha256/ab/<64 hex digits>`, shared by all processes that mount it.

A blob is written beside its place, synchronised, and renamed there, so a name always stands for whole content, whoever
is killed. Writers of the same content don't disturb each other. Storing what is there renews its modification time,
which is what a sweeper's grace period counts from, and repairs it should it be damaged.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote, unquote

from mailboat.blobs.content import (
    CHUNK_BYTES,
    CopyProof,
    blob_corrupt,
    blob_missing,
    check_digest,
    check_expected,
    checked_stream,
    digest_named,
)
from mailboat.blobs.directory_documents import DirectoryDocuments, synchronise
from mailboat.blobs.disk_errors import mapped_disk_errors, read_chunk
from mailboat.blobs.port import BlobInfo, Digest, NamedDocuments, UserNamed
from mailboat.clock import Clock
from mailboat.errors import MailboatError

_ALGORITHM: Final = "sha256"
_DRAFTS: Final = "drafts"
_LOCK: Final = "lock"
_USERS: Final = "journals"
_LEFTOVER_SECONDS: Final = 24 * 3600.0
"""A draft that nobody wrote to for so long belongs to a writer that was killed."""


class DirectoryBlobStore:
    """The blob store port over a directory. Safe to use from several threads and processes."""

    def __init__(self, folder: Path, clock: Clock, user: UserNamed | None = None) -> None:
        """Use `folder`, which is made when it isn't there; drafts that killed writers left behind are removed.

        Args:
            folder: Where the blobs are.
            clock: Stamps them.
            user: Whose packages `put` is for; None where that is of no interest.

        Raises:
            StorageFullError, StorageReadOnlyError, RetryableError.
        """
        self._folder = folder
        self._clock = clock
        self._user = user
        self._drafts = folder / _DRAFTS
        self._blobs = folder / _ALGORITHM
        with mapped_disk_errors(folder):
            self._drafts.mkdir(parents=True, exist_ok=True)
            self._blobs.mkdir(exist_ok=True)
        self.abandon_uploads(clock.now() - timedelta(seconds=_LEFTOVER_SECONDS))

    @property
    def description(self) -> str:
        """See `BlobStore.description`."""
        return f"directory {self._folder}"

    @property
    def documents(self) -> NamedDocuments:
        """See `BlobStore.documents`."""
        return DirectoryDocuments(self._folder / "documents", self._drafts)

    @property
    def builds(self) -> NamedDocuments:
        """See `BlobStore.builds`."""
        return DirectoryDocuments(self._folder / "builds", self._drafts)

    def put(self, content: BinaryIO, expected: Digest | None = None) -> BlobInfo:
        """See `BlobStore.put`."""
        draft = self._drafts / os.urandom(16).hex()
        self._note_user()
        with mapped_disk_errors(self._folder):
            try:
                digest, length_bytes = self._write_draft(draft, content)
                check_expected(digest, expected)
                if not self._refresh(digest, length_bytes):
                    self._settle(draft, digest)
                return self._info(digest, os.stat(self._path(digest)))  # noqa: PTH116 - a stat_result either way
            finally:
                draft.unlink(missing_ok=True)

    def open(self, digest: Digest, length_bytes: int) -> BinaryIO:
        """See `BlobStore.open`."""
        path = self._path(check_digest(digest))
        with mapped_disk_errors(self._folder):
            try:
                source = path.open("rb", buffering=0)
            except FileNotFoundError:
                raise blob_missing(digest, self.description) from None
            stored_bytes = os.fstat(source.fileno()).st_size
        if stored_bytes != length_bytes:
            source.close()
            raise blob_corrupt(digest, f"has {stored_bytes} bytes, not the {length_bytes} promised")
        return checked_stream(source, digest, length_bytes)

    def stat(self, digest: Digest) -> BlobInfo | None:
        """See `BlobStore.stat`."""
        with mapped_disk_errors(self._folder):
            try:
                return self._info(digest, self._path(check_digest(digest)).stat())
            except FileNotFoundError:
                return None

    def list(self) -> Iterator[BlobInfo]:
        """See `BlobStore.list`. Files that have no blob's name are passed over."""
        with mapped_disk_errors(self._folder):
            for part in sorted(self._blobs.iterdir()):
                with os.scandir(part) as entries:
                    for entry in entries:
                        digest = digest_named(entry.name)
                        with suppress(FileNotFoundError):  # deleted since
                            if digest is not None and entry.name.startswith(part.name):
                                yield self._info(digest, entry.stat(follow_symlinks=False))

    def delete(self, digest: Digest) -> bool:
        """See `BlobStore.delete`."""
        with mapped_disk_errors(self._folder):
            try:
                self._path(check_digest(digest)).unlink()
            except FileNotFoundError:
                return False
            return True

    def remove_unrenewed(self, digests: Sequence[Digest], stored_before: datetime) -> int:
        """See `BlobStore.remove_unrenewed`. Each age is looked at while no writer can renew."""
        return sum(self._remove_old(one, stored_before.timestamp()) for one in digests)

    def abandon_uploads(self, begun_before: datetime) -> int:
        """See `BlobStore.abandon_uploads`."""
        count = 0
        with mapped_disk_errors(self._folder):
            for draft in self._drafts.iterdir():
                with suppress(FileNotFoundError):
                    if draft.stat().st_mtime < begun_before.timestamp():
                        draft.unlink()
                        count += 1
        return count

    def users(self) -> Sequence[str]:
        """See `BlobStore.users`."""
        with mapped_disk_errors(self._folder), suppress(FileNotFoundError):
            return sorted(unquote(file.name) for file in (self._folder / _USERS).iterdir())
        return ()

    def forget_user(self, user: str) -> None:
        """See `BlobStore.forget_user`."""
        with mapped_disk_errors(self._folder):
            (self._folder / _USERS / quote(user, safe="")).unlink(missing_ok=True)

    def close(self) -> None:
        """See `BlobStore.close`. Nothing is held."""

    def _note_user(self) -> None:
        if self._user is None:
            return
        user, self._user = self._user(), None
        with mapped_disk_errors(self._folder):
            (self._folder / _USERS).mkdir(exist_ok=True)
            (self._folder / _USERS / quote(user, safe="")).touch()

    def _path(self, digest: Digest) -> Path:
        name = digest.hex()
        return self._blobs / name[:2] / name

    def _info(self, digest: Digest, found: os.stat_result) -> BlobInfo:
        return BlobInfo(digest, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def _write_draft(self, draft: Path, content: BinaryIO) -> tuple[Digest, int]:
        proof = CopyProof(content)
        with draft.open("xb", buffering=0) as file:
            while chunk := read_chunk(content):
                proof.update(chunk)
                _write_all(file, chunk)
        return proof.digest(), proof.length_bytes

    def _refresh(self, digest: Digest, length_bytes: int) -> bool:
        """Renew the blob that is there, if there is one and it is sound."""
        try:
            with self.open(digest, length_bytes) as stored:
                while stored.read(CHUNK_BYTES):
                    pass
            with self._locked(fcntl.LOCK_SH):
                self._touch(self._path(digest))
        except (FileNotFoundError, MailboatError):
            return False
        return True

    def _settle(self, draft: Path, digest: Digest) -> None:
        """Make the draft the blob; durable on return."""
        path = self._path(digest)
        path.parent.mkdir(exist_ok=True)
        self._touch(draft)
        synchronise(draft)
        with self._locked(fcntl.LOCK_SH):
            draft.replace(path)
        synchronise(path.parent)
        synchronise(self._blobs)

    def _touch(self, path: Path) -> None:
        seconds = self._clock.now().timestamp()
        os.utime(path, (seconds, seconds))

    def _remove_old(self, digest: Digest, stored_before: float) -> bool:
        path = self._path(check_digest(digest))
        with mapped_disk_errors(self._folder), self._locked(fcntl.LOCK_EX), suppress(FileNotFoundError):
            if path.stat().st_mtime < stored_before:
                path.unlink()
                return True
        return False

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Writers renew under a shared lock, a sweeper removes under an exclusive one. It ends with its process."""
        descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)


def _write_all(file: BinaryIO, chunk: bytes) -> None:
    written = 0
    view = memoryview(chunk)
    while written < len(view):
        written += file.write(view[written:])
