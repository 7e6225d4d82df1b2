"""Storing the large binaries of nodes before anything names them: by publishers, and by the executors of builds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mailboat.blobs.port import BlobStore
from mailboat.content.binaries import binaries_of
from mailboat.errors import BlobCorruptError, SourceChangedError
from mailboat.model.nodes import Binary, Node


def with_stored_binaries(
    nodes: Iterable[Node], limit_bytes: int, blobs: BlobStore, stored: dict[bytes, Binary]
) -> Iterator[Node]:
    """The nodes, each given on when its binaries above the limit are stored; `stored` collects these by digest.

    Raises:
        SourceChangedError: A binary is no longer what its digest says.
        StorageFullError, StorageReadOnlyError, RetryableError: The blob store can't take it.
    """
    for node in nodes:
        for binary in binaries_of(node):
            if binary.length_bytes > limit_bytes and binary.digest not in stored:
                _store(node, binary, blobs)
                stored[binary.digest] = binary
        yield node


def _store(node: Node, binary: Binary, blobs: BlobStore) -> None:
    try:
        with binary.open() as content:
            blobs.put(content, binary.digest)
    except BlobCorruptError as error:
        raise SourceChangedError("a binary changed while it was published", path=node.path) from error
