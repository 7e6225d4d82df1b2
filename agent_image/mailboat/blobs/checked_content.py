"""Streams that check their content while a blob store writes and reads it."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import BinaryIO, Final

from mailboat.blobs.port import Digest
from mailboat.errors import BlobCorruptError, BlobMissingError, UsageError
from mailboat.model.content_hash import ContentHash
from mailboat.model.identifiers import is_agent_name

CHUNK_BYTES: Final = 1024 * 1024
DIGEST_BYTES: Final = 32
MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024


def check_digest(digest: Digest) -> Digest:
    """Refuse what can't be a SHA-256. Raises: UsageError."""
    if len(digest) != DIGEST_BYTES:
        raise UsageError(f"a blob's digest has {DIGEST_BYTES} bytes, not {len(digest)}")
    return digest


def digest_named(name: str) -> Digest | None:
    """The digest that a file or key is named after; None where the name is not a digest."""
    try:
        digest = bytes.fromhex(name)
    except ValueError:
        return None
    # `fromhex` accepts capitals and spaces: two names of one digest would be two blobs of one content.
    return digest if len(digest) == DIGEST_BYTES and digest.hex() == name else None


def document_names(entries: Iterable[str], prefix: str = "") -> list[str]:
    """Those of the entries of a store's folder that a document can have as its name and that begin so, in order.

    Others are put there by file systems and tools: markers of folders, files that NFS keeps while they are open.
    """
    return sorted(entry for entry in entries if entry.startswith(prefix) and is_agent_name(entry))


def check_expected(digest: Digest, expected: Digest | None) -> None:
    """Refuse content that is not what the caller said it is. Raises: BlobCorruptError, UsageError."""
    if expected is not None and digest != check_digest(expected):
        raise blob_corrupt(expected, f"was to be stored, but the content is sha256:{digest.hex()}")


def check_document(name: str, length_bytes: int) -> None:
    """Refuse a document that is too large for memory: any program may write one. Raises: BlobCorruptError."""
    if length_bytes > MAX_DOCUMENT_BYTES:
        raise BlobCorruptError(
            f"the document {name} has {length_bytes} bytes, the limit is {MAX_DOCUMENT_BYTES}",
            next_step="find out what else writes to the blob store, and remove the document",
        )


def blob_missing(digest: Digest, store: str) -> BlobMissingError:
    """The store does not have the blob (yet)."""
    return BlobMissingError(f"{store} has no blob sha256:{digest.hex()}", digest=digest.hex())


def blob_corrupt(digest: Digest, complaint: str) -> BlobCorruptError:
    """The bytes are not those that the digest and the length promise."""
    return BlobCorruptError(f"blob sha256:{digest.hex()} {complaint}", digest=digest.hex())


class ProvenStream(io.BufferedReader):
    """A stream that fails where its bytes are not those of a digest, so that who copies it need not hash them again.

    What it reads from compares them, or compared them before and is kept where no other process writes.
    """

    def __init__(self, source: io.RawIOBase, digest: Digest, length_bytes: int, buffer_size: int = 64 * 1024) -> None:
        """Read from the beginning of `source`, which it owns and which has so many bytes."""
        super().__init__(source, buffer_size)
        self.digest = digest
        self.length_bytes = length_bytes


def checked_stream(source: BinaryIO, digest: Digest, length_bytes: int) -> ProvenStream:
    """A stream over `source`, which it owns, that raises BlobCorruptError when digest or length are not as promised.

    The read that delivers the last promised byte is the one that checks, so that who reads exactly the promised length
    has checked too.
    """
    return ProvenStream(_CheckedContent(source, digest, length_bytes), digest, length_bytes)


class CopyProof:
    """Finds the digest of content while it is copied: of a stream that proves it, by the length alone."""

    def __init__(self, content: BinaryIO) -> None:
        """Of an unread stream."""
        self._proven = content if isinstance(content, ProvenStream) else None
        self._hash = ContentHash()
        self.length_bytes = 0

    def update(self, chunk: bytes) -> None:
        """The next bytes, as `ContentHash.update` takes them."""
        self.length_bytes += len(chunk)
        if self._proven is None:
            self._hash.update(chunk)

    def digest(self) -> Digest:
        """Of the whole stream. Raises: BlobCorruptError."""
        proven = self._proven
        if proven is None:
            return self._hash.digest()
        if self.length_bytes != proven.length_bytes:
            raise blob_corrupt(proven.digest, f"has {proven.length_bytes} bytes, of which {self.length_bytes} came")
        return proven.digest


class _CheckedContent(io.RawIOBase):
    """Counts and hashes what goes through."""

    def __init__(self, source: BinaryIO, digest: Digest, length_bytes: int) -> None:
        super().__init__()
        self._source = source
        self._digest = digest
        self._left_bytes = length_bytes
        self._length_bytes = length_bytes
        self._hash = ContentHash()
        self._is_checked = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # typeshed's WriteableBuffer is not importable
        data = self._source.read(len(view))
        view[: len(data)] = data
        self._left_bytes -= len(data)
        self._hash.update(data)
        if self._left_bytes < 0:
            raise blob_corrupt(self._digest, f"is longer than the {self._length_bytes} bytes promised")
        # An empty read is the end of a raw stream; fewer bytes than asked for are not.
        if not data and self._left_bytes:
            raise blob_corrupt(self._digest, f"ends {self._left_bytes} bytes early, promised were {self._length_bytes}")
        if not self._left_bytes and not self._is_checked:
            self._check_end()
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()

    def _check_end(self) -> None:
        if self._hash.digest() != self._digest:
            raise blob_corrupt(self._digest, "does not have the content of its digest")
        # one byte more shows content that goes on behind the promised length, also when the caller stops there
        if self._source.read(1):
            raise blob_corrupt(self._digest, f"is longer than the {self._length_bytes} bytes promised")
        self._is_checked = True
