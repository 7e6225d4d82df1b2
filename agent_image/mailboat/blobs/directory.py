"""Blobs in a directory: `sha256/ab/<64 hex digits>`, shared by all processes that mount it.

A blob is written to a draft, synchronised, and renamed, so a name always stands for whole content, whichever process
is killed. Writers of the same content don't disturb each other. Storing a blob again renews its modification time,
which is what a sweeper's grace period counts from, and repairs it should it be damaged.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final, cast
from urllib.parse import quote, unquote

from mailboat.blobs.checked_content import (
    CHUNK_BYTES,
    CopyProof,
    blob_corrupt,
    blob_missing,
    check_digest,
    check_document,
    check_expected,
    checked_stream,
    digest_named,
    document_names,
)
from mailboat.blobs.disk_errors import mapped_disk_errors, read_chunk
from mailboat.blobs.port import BlobInfo, Digest, NamedDocuments, UserNamed
from mailboat.clock import Clock, moment_of
from mailboat.durable_file import Draft
from mailboat.errors import MailboatError, StorageReadOnlyError
from mailboat.folder_handle import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    PUBLIC_FILE,
    PUBLIC_FOLDER,
    FolderHandle,
    make_path,
)
from mailboat.model.identifiers import parse_agent_name


class DirectoryDocuments:
    """The port's named documents over a directory. Safe to use from several threads and processes."""

    def __init__(self, store: Path, name: str, drafts: str) -> None:
        """Keep them in the folder `name` of the store; drafts are in its folder `drafts`, where a sweep finds them."""
        self._store = store
        self._name = name
        self._drafts = drafts

    def write(self, name: str, document: bytes) -> None:
        entry = parse_agent_name(name)
        with mapped_disk_errors(self._store), self._drafted(document) as (draft, folder):
            draft.place(folder, entry)

    def create(self, name: str, document: bytes) -> bool:
        """See `NamedDocuments.create`: by a hard link, which is refused where there is a file."""
        entry = parse_agent_name(name)
        with mapped_disk_errors(self._store), self._drafted(document) as (draft, folder):
            return draft.link(folder, entry)

    def read(self, name: str) -> bytes | None:
        entry = parse_agent_name(name)
        with (
            mapped_disk_errors(self._store),
            suppress(FileNotFoundError),
            self._folder() as folder,
            folder.open_file(entry) as file,
        ):
            check_document(entry, os.fstat(file.fileno()).st_size)
            return file.readall()
        return None

    def names(self, prefix: str = "") -> Sequence[str]:
        with mapped_disk_errors(self._store), suppress(FileNotFoundError), self._folder() as folder:
            return document_names(folder.names(), prefix)
        return ()

    def remove(self, name: str) -> bool:
        entry = parse_agent_name(name)
        with mapped_disk_errors(self._store), suppress(FileNotFoundError), self._folder() as folder:
            os.unlink(entry, dir_fd=folder.descriptor)
            return True
        return False

    @contextmanager
    def _folder(self) -> Iterator[FolderHandle]:
        with FolderHandle.open(str(self._store)) as store, store.folder(self._name) as folder:
            yield folder

    @contextmanager
    def _drafted(self, document: bytes) -> Iterator[tuple[Draft, FolderHandle]]:
        with (
            FolderHandle.open(str(self._store)) as store,
            store.make_folder(self._name) as folder,
            store.folder(self._drafts) as drafts,
            Draft(drafts) as draft,
        ):
            draft.stream.write(document)
            yield draft, folder


_ALGORITHM: Final = "sha256"
_PART_NAME: Final = re.compile("[0-9a-f]{2}")
_DRAFTS: Final = "drafts"
_LOCK: Final = "lock"
_USERS: Final = "journals"
_LEFTOVER_SECONDS: Final = 24 * 3600.0
"""A draft without writes for so long belongs to a writer that was killed."""


class DirectoryBlobStore:
    """The blob store port over a directory. Safe to use from several threads and processes."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        user: UserNamed | None = None,
        *,
        are_public: bool = False,
        is_reader: bool = False,
    ) -> None:
        """Use `folder`, which is made when it isn't there; drafts that killed writers left behind are removed.

        Args:
            folder: Where the blobs are; not a link.
            clock: Stamps them.
            user: Whose packages `put` is for; None where that is of no interest.
            are_public: Whether all users of the machine may read the blobs, and not this one alone.
            is_reader: Only for `stat` and `open`: nothing is made or removed.

        Raises:
            StorageFullError, StorageReadOnlyError, StorageFailedError, RetryableError.
        """
        self._folder = folder
        self._clock = clock
        self._user = user
        self._file_mode = PUBLIC_FILE if are_public else PRIVATE_FILE
        self._folder_mode = PUBLIC_FOLDER if are_public else PRIVATE_FOLDER
        if is_reader:
            return
        with mapped_disk_errors(folder):
            make_path(folder, self._folder_mode)
            with self._store() as store:
                store.make_folder(_DRAFTS).close()
                store.make_folder(_ALGORITHM, self._folder_mode).close()
        # who mounts the store read-only leaves them to the publishers
        with suppress(StorageReadOnlyError):
            self.abandon_uploads(clock.now() - timedelta(seconds=_LEFTOVER_SECONDS))

    @property
    def description(self) -> str:
        return f"directory {self._folder}"

    @property
    def documents(self) -> NamedDocuments:
        return DirectoryDocuments(self._folder, "documents", _DRAFTS)

    @property
    def builds(self) -> NamedDocuments:
        return DirectoryDocuments(self._folder, "builds", _DRAFTS)

    def put(self, content: BinaryIO, expected: Digest | None = None) -> BlobInfo:
        # noted before the first blob is stored: a sweep for another journal must find this user before it finds blobs
        self._note_user()
        with (
            mapped_disk_errors(self._folder),
            self._store() as store,
            store.folder(_DRAFTS) as drafts,
            Draft(drafts, self._file_mode) as draft,
        ):
            # Always into a draft first: the digest, which names the blob, is known only when all was read.
            digest, length_bytes = _copy(content, draft.stream)
            check_expected(digest, expected)
            if not self._refresh(digest, length_bytes):
                self._settle(store, draft, digest)
            with self._part(digest) as part:
                return _info(digest, os.stat(digest.hex(), dir_fd=part.descriptor, follow_symlinks=False))

    def open(self, digest: Digest, length_bytes: int) -> BinaryIO:
        with mapped_disk_errors(self._folder):
            try:
                with self._part(check_digest(digest)) as part:
                    source = part.open_file(digest.hex())
            except FileNotFoundError:
                # A volume that is no longer mounted: no package is given up for that.
                self._check_is_there()
                raise blob_missing(digest, self.description) from None
            stored_bytes = os.fstat(source.fileno()).st_size
        # A wrong length costs nothing to find here; the stream would report it after all of the blob was read.
        if stored_bytes != length_bytes:
            source.close()
            raise blob_corrupt(digest, f"has {stored_bytes} bytes, not the {length_bytes} promised")
        return checked_stream(cast("BinaryIO", source), digest, length_bytes)

    def stat(self, digest: Digest) -> BlobInfo | None:
        with mapped_disk_errors(self._folder):
            with suppress(FileNotFoundError), self._part(check_digest(digest)) as part:
                found = part.status(digest.hex())
                return None if found is None else _info(digest, found)
            self._check_is_there()
        return None

    def list(self) -> Iterator[BlobInfo]:
        """See `BlobStore.list`. Files without a blob's name are skipped."""
        with mapped_disk_errors(self._folder), self._store() as store, store.folder(_ALGORITHM) as parts:
            for name in sorted(filter(_PART_NAME.fullmatch, parts.names())):
                with parts.folder(name) as part:
                    for entry in part.names():
                        digest = digest_named(entry)
                        # `open` looks only in the folder of a digest's first byte: elsewhere it is not a blob.
                        if digest is None or not entry.startswith(name):
                            continue
                        found = part.status(entry)
                        if found is not None:  # else deleted since
                            yield _info(digest, found)

    def delete(self, digest: Digest) -> bool:
        with mapped_disk_errors(self._folder), suppress(FileNotFoundError), self._part(check_digest(digest)) as part:
            os.unlink(digest.hex(), dir_fd=part.descriptor)
            return True
        return False

    def remove_unrenewed(self, digests: Sequence[Digest], stored_before: datetime) -> int:
        """See `BlobStore.remove_unrenewed`. Each age is read while no writer can renew."""
        return sum(self._remove_old(digest, stored_before.timestamp()) for digest in digests)

    def abandon_uploads(self, begun_before: datetime) -> int:
        count = 0
        with mapped_disk_errors(self._folder), self._store() as store, store.folder(_DRAFTS) as drafts:
            for name in drafts.names():
                found = drafts.status(name)
                if found is not None and found.st_mtime < begun_before.timestamp():
                    count += drafts.remove(name)
        return count

    def users(self) -> Sequence[str]:
        with (
            mapped_disk_errors(self._folder),
            suppress(FileNotFoundError),
            self._store() as store,
            store.folder(_USERS) as users,
        ):
            return sorted(map(unquote, users.names()))
        return ()

    def forget_user(self, user: str) -> None:
        with (
            mapped_disk_errors(self._folder),
            suppress(FileNotFoundError),
            self._store() as store,
            store.folder(_USERS) as users,
        ):
            users.remove(quote(user, safe=""))

    def close(self) -> None:
        """See `BlobStore.close`. Nothing is held."""

    def _store(self) -> FolderHandle:
        return FolderHandle.open(str(self._folder))

    def _check_is_there(self) -> None:
        """See that the store itself exists. Raises: OSError."""
        with self._store() as store:
            store.folder(_ALGORITHM).close()

    @contextmanager
    def _part(self, digest: Digest) -> Iterator[FolderHandle]:
        with self._store() as store, store.folder(_ALGORITHM) as parts, parts.folder(digest.hex()[:2]) as part:
            yield part

    def _note_user(self) -> None:
        named = self._user  # read once: two first puts at once may both note the user
        if named is None:
            return
        user = named()
        with mapped_disk_errors(self._folder), self._store() as store, store.make_folder(_USERS) as users:
            # A journal's identity has a slash, which no file name can have.
            name = quote(user, safe="")
            if users.status(name) is None:
                with suppress(FileExistsError):  # another thread or process was first
                    users.create_file(name).close()
        self._user = None

    def _refresh(self, digest: Digest, length_bytes: int) -> bool:
        """Renew the blob that is there, if there is one and it is sound."""
        try:
            with self.open(digest, length_bytes) as stored:
                while stored.read(CHUNK_BYTES):
                    pass
            # the content is compared without the lock, as a sweeper waits for it;
            # if the blob was removed meanwhile, `utime` raises FileNotFoundError and the draft is stored
            with self._locked(fcntl.LOCK_SH), self._part(digest) as part:
                seconds = self._clock.now().timestamp()
                os.utime(digest.hex(), (seconds, seconds), dir_fd=part.descriptor, follow_symlinks=False)
        except (FileNotFoundError, MailboatError):
            return False
        return True

    def _settle(self, store: FolderHandle, draft: Draft, digest: Digest) -> None:
        """Make the draft the blob; durable on return."""
        name = digest.hex()
        with (
            store.folder(_ALGORITHM) as parts,
            parts.make_folder(name[:2], self._folder_mode) as part,
        ):
            # The age counts from here, by the clock of `_refresh`, not from when a slow writer began the draft.
            draft.touch(self._clock.now().timestamp())
            draft.synchronise()  # before the lock, which a sweeper waits for
            with self._locked(fcntl.LOCK_SH):
                draft.place(part, name)
            # the folder of the part may be new: `place` synchronised that folder, this makes its own entry durable
            parts.sync()

    def _remove_old(self, digest: Digest, stored_before: float) -> bool:
        name = check_digest(digest).hex()
        with (
            mapped_disk_errors(self._folder),
            self._locked(fcntl.LOCK_EX),
            suppress(FileNotFoundError),
            self._part(digest) as part,
        ):
            # the age is read under the exclusive lock: the one that the sweep planned with may be outdated
            found = part.status(name)
            return found is not None and found.st_mtime < stored_before and part.remove(name)
        return False

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Writers renew under a shared lock, a sweeper removes under an exclusive one. It ends with its process."""
        with self._store() as store:
            descriptor = store.open_lock(_LOCK)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            # Closing releases the lock, also where the process is killed: flock belongs to the open file.
            os.close(descriptor)


def _info(digest: Digest, found: os.stat_result) -> BlobInfo:
    return BlobInfo(digest, found.st_size, moment_of(found.st_mtime * 1000))


def _copy(content: BinaryIO, into: BinaryIO) -> tuple[Digest, int]:
    proof = CopyProof(content)
    while chunk := read_chunk(content):
        proof.update(chunk)
        into.write(chunk)
    return proof.digest(), proof.length_bytes
