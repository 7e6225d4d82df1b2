"""A blob store in memory, for unit tests, dry runs and examples.

Its content is gone when the process ends.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import BinaryIO

from mailboat.blobs.checked_content import (
    CHUNK_BYTES,
    blob_corrupt,
    blob_missing,
    check_digest,
    check_expected,
    checked_stream,
)
from mailboat.blobs.port import BlobInfo, Digest, NamedDocuments
from mailboat.clock import Clock
from mailboat.errors import RetryableError
from mailboat.model.identifiers import parse_agent_name


class MemoryDocuments:
    """Named documents in a dictionary, whose steps are atomic."""

    def __init__(self) -> None:
        """None yet."""
        self._documents: dict[str, bytes] = {}

    def write(self, name: str, document: bytes) -> None:
        self._documents[parse_agent_name(name)] = document

    def create(self, name: str, document: bytes) -> bool:
        return self._documents.setdefault(parse_agent_name(name), document) is document

    def read(self, name: str) -> bytes | None:
        return self._documents.get(parse_agent_name(name))

    def names(self, prefix: str = "") -> Sequence[str]:
        return sorted(name for name in tuple(self._documents) if name.startswith(prefix))

    def remove(self, name: str) -> bool:
        return self._documents.pop(parse_agent_name(name), None) is not None


class _Contents:
    """What all handles on one store share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blobs: dict[Digest, tuple[BlobInfo, bytes]] = {}
        self.documents, self.builds = MemoryDocuments(), MemoryDocuments()


class MemoryBlobStore:
    """The blob store port over a dictionary. Safe to use from several threads of one process."""

    def __init__(self, clock: Clock, contents: _Contents | None = None) -> None:
        """Start empty, or with what another handle holds; `clock` stamps the blobs."""
        self._clock = clock
        self._contents = _Contents() if contents is None else contents
        self._lock, self._blobs = self._contents.lock, self._contents.blobs
        self._is_closed = False

    def another_handle(self) -> MemoryBlobStore:
        """A store over the same blobs that is closed on its own, as another process has one."""
        return MemoryBlobStore(self._clock, self._contents)

    @property
    def description(self) -> str:
        return "memory"

    @property
    def documents(self) -> NamedDocuments:
        return self._contents.documents

    @property
    def builds(self) -> NamedDocuments:
        return self._contents.builds

    def put(self, content: BinaryIO, expected: Digest | None = None) -> BlobInfo:
        data = b"".join(iter(lambda: content.read(CHUNK_BYTES), b""))
        digest = hashlib.sha256(data).digest()
        check_expected(digest, expected)
        info = BlobInfo(digest, len(data), self._clock.now())
        with self._lock:
            self._check_open()
            self._blobs[digest] = info, data
        return info

    def open(self, digest: Digest, length_bytes: int) -> BinaryIO:
        with self._lock:
            self._check_open()
            found = self._blobs.get(check_digest(digest))
        if found is None:
            raise blob_missing(digest, self.description)
        info, data = found
        if info.length_bytes != length_bytes:
            raise blob_corrupt(digest, f"has {info.length_bytes} bytes, not the {length_bytes} promised")
        return checked_stream(io.BytesIO(data), digest, length_bytes)

    def stat(self, digest: Digest) -> BlobInfo | None:
        with self._lock:
            self._check_open()
            found = self._blobs.get(check_digest(digest))
        return None if found is None else found[0]

    def list(self) -> Iterator[BlobInfo]:
        with self._lock:
            self._check_open()
            infos = [info for info, _ in self._blobs.values()]
        return iter(infos)

    def delete(self, digest: Digest) -> bool:
        with self._lock:
            self._check_open()
            return self._blobs.pop(check_digest(digest), None) is not None

    def remove_unrenewed(self, digests: Sequence[Digest], stored_before: datetime) -> int:
        with self._lock:
            self._check_open()
            old = [
                digest
                for digest in digests
                if digest in self._blobs and self._blobs[digest][0].stored_at < stored_before
            ]
            for digest in old:
                del self._blobs[digest]
        return len(old)

    def abandon_uploads(self, begun_before: datetime) -> int:  # noqa: ARG002  # nothing outlives a writer
        return 0

    def users(self) -> Sequence[str]:
        """See `BlobStore.users`. The process is the only one."""
        return ()

    def forget_user(self, user: str) -> None:
        """See `BlobStore.forget_user`."""

    def close(self) -> None:
        with self._lock:
            self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise RetryableError("the blob store in memory is closed")
