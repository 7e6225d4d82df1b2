"""What the engine needs of a blob store.

A blob is named by the SHA-256 of its content, so storing it twice is storing it once, and what is read can be checked.
Every adapter passes `mailboat.testing.blob_contract`. Stores are safe to use from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import BinaryIO, Protocol

from mailboat.frozen import Frozen

Digest = bytes
"""SHA-256, 32 bytes."""


class BlobInfo(Frozen):
    """A stored blob."""

    digest: Digest
    length_bytes: int
    stored_at: datetime


UserNamed = Callable[[], str]
"""Says whose packages are stored: the identity of the publisher's log. Called once, before the first `put` stores."""


class NamedDocuments(Protocol):
    """Small documents by name, kept next to the blobs: which blob is the snapshot of a pool, and the like.

    Names have the form of agents' names. Nothing sweeps them.
    """

    def write(self, name: str, document: bytes) -> None:
        """Put a document in the place of the one of that name, as a whole; durable on return.

        Raises: StorageFullError, StorageReadOnlyError, RetryableError.
        """

    def create(self, name: str, document: bytes) -> bool:
        """Store a document where none has that name; whether it was stored: of several at once, one is. Durable.

        An answer that was lost on its way may make it False of one's own document. Raises: as `write`.
        """

    def read(self, name: str) -> bytes | None:
        """The document of that name; None if absent. Raises: BlobCorruptError: It is too large; RetryableError."""

    def names(self, prefix: str = "") -> Sequence[str]:
        """All names that begin so, in order. Raises: RetryableError."""

    def remove(self, name: str) -> bool:
        """Remove a document; whether it was there. Raises: StorageReadOnlyError, RetryableError."""


class BlobStore(Protocol):
    """Blobs by digest."""

    @property
    def description(self) -> str:
        """For people: kind and place, without secrets."""

    @property
    def documents(self) -> NamedDocuments:
        """Small documents, by name."""

    @property
    def builds(self) -> NamedDocuments:
        """The manifests of bulk builds, kept apart from the other documents."""

    def put(self, content: BinaryIO, expected: Digest | None = None) -> BlobInfo:
        """Store the content of a stream, in bounded memory; durable on return. Storing a blob again renews its age.

        Raises:
            BlobCorruptError: The content does not have the `expected` digest; nothing was stored.
            StorageFullError, StorageReadOnlyError, RetryableError.
        """

    def open(self, digest: Digest, length_bytes: int) -> BinaryIO:
        """A stream over the blob that checks digest and length when it reaches the end.

        The caller must read to the end before it trusts a byte; reading past the promised length raises at once.

        Raises:
            BlobMissingError, BlobCorruptError (also from `read` of the stream), RetryableError.
        """

    def stat(self, digest: Digest) -> BlobInfo | None:
        """What is known of a blob; None when it isn't there."""

    def list(self) -> Iterator[BlobInfo]:
        """All blobs, in no order, as a stream."""

    def delete(self, digest: Digest) -> bool:
        """Remove a blob; whether it was there."""

    def remove_unrenewed(self, digests: Sequence[Digest], stored_before: datetime) -> int:
        """Remove those of the blobs that were neither stored nor renewed since; how many.

        Safe against a `put` of the same content at the same time: when `put` returns, the blob is there and young.

        Raises:
            SweepBusyError: Another process is at it.
            RetryableError: Some may be removed.
        """

    def abandon_uploads(self, begun_before: datetime) -> int:
        """Remove what writers that were killed have left behind; how many."""

    def users(self) -> Sequence[str]:
        """The logs whose publishers have stored something here, by their identities."""

    def forget_user(self, user: str) -> None:
        """Forget a log that was deleted: its packages need no blobs any longer."""

    def close(self) -> None:
        """Release what the store holds."""
