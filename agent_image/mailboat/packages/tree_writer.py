"""Writing a `tree` package: a stream of records, in memory for one node and the folders on its path.

The bytes depend on the contents only. What is written can be read: order and coverage are checked on the way, and a
binary whose content is not what its digest says means that the source changed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from itertools import filterfalse, islice
from typing import TYPE_CHECKING, BinaryIO, Final

from mailboat.content.binaries import content_bytes_of, unread
from mailboat.content.digest import TreeHash
from mailboat.errors import LimitExceededError, SourceChangedError, UsageError
from mailboat.model.content_hash import ContentHash
from mailboat.model.nodes import Binary, Node
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.patterns import java_form
from mailboat.packages.filevault.xml_namespaces import KNOWN
from mailboat.packages.port import PackageContents, PackageSummary, beyond_limits
from mailboat.packages.prefixes import Declarations, UsedNamespaces
from mailboat.packages.tree_order import PathOrder, is_in_key_order
from mailboat.wire.node_bodies import encode_node, split_body
from mailboat.wire.tree_records import (
    FORMAT_VERSION,
    MAX_RECORD_BYTES,
    NAMED_VERSION,
    PIECE_BYTES,
    Trailer,
    encode_header,
    encode_namespaces,
    encode_node_record,
    encode_piece,
    encode_trailer,
)

if TYPE_CHECKING:
    from hashlib import _Hash

MAX_INLINE_BYTES: Final = 64 * 1024
"""A binary up to this size is written into its node, if it travels in the package; a larger one in pieces before it."""
MAX_INLINE_BYTES_OF_NODE: Final = 4 * 1024**2
"""All binaries that are written into one node; the others of that node go in pieces."""


CHUNK_NODES: Final = 64
"""Nodes that are taken from the source at a time."""


class TreePackageWriter:
    """Writes one package."""

    def __init__(self, contents: PackageContents, into: BinaryIO, namespaces: Mapping[str, str]) -> None:
        self._contents = contents
        self._declared = Declarations(contents, namespaces)
        self._used = UsedNamespaces(self._declared.tables()) if self._declared.can_grow else None
        self._is_begun = False
        self._into = into
        self._hash: _Hash | ContentHash = sha256()
        self._length_bytes = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._tree = TreeHash()
        self._node_count = 0
        self._content_bytes = 0
        self._elsewhere_bytes = 0
        self._keeps_documents = contents.filter.keeps_documents

    def write(self) -> PackageSummary:
        """Write all records.

        Raises:
            PackageCorruptError: Nodes come in an order that a package can't have.
            UsageError: The filter does not cover a node.
            LimitExceededError: A node has more text than fits a record, or names collide that must not.
            SourceChangedError: A binary is not what its digest and length say.
            NamespaceUnresolvedError: The source and the configuration contradict each other.
        """
        if self._used is not None:
            for ancestor in self._contents.ancestors:
                self._used.note(ancestor.path, split_body(ancestor).named(), ancestor)
        for node in self._checked_nodes():
            self._write_node(node)
        table = {} if self._used is None else self._namespaces(self._used)
        if not self._is_begun:
            self._begin(NAMED_VERSION if table else FORMAT_VERSION)
        self._emit(encode_namespaces(table))
        self._flush()
        self._write(encode_trailer(Trailer(self._node_count, self._hash.digest())))
        self._check_total(None)
        return PackageSummary(
            self._length_bytes, self._hash.digest(), self._tree.digest(), self._node_count, self._content_bytes
        )

    def _begin(self, version: int) -> None:
        """Put the header before what is pending.

        Which namespaces the nodes use is known at the end: a package that is longer than what is held until then says
        at its beginning that there may be some.
        """
        ancestors = [encode_node(ancestor) for ancestor in self._contents.ancestors]
        header = encode_header(self._contents.filter, ancestors, java_form, version)
        if len(header) > MAX_RECORD_BYTES:
            raise beyond_limits(
                f"the filter and the nodes above covered ones have {len(header)} bytes", MAX_RECORD_BYTES
            )
        self._pending.insert(0, header)
        self._is_begun = True

    def _namespaces(self, used: UsedNamespaces) -> dict[str, tuple[str, ...]]:
        """Namespaces to write, without those that every reader has."""
        table = {prefix: self._declared.candidates(prefix) for prefix in used.found}
        return {prefix: uris for prefix, uris in table.items() if uris != (KNOWN.get(prefix),)}

    def _checked_nodes(self) -> Iterator[Node]:
        """The nodes, in a right order and covered: checked together where they are few, one by one where many."""
        nodes = iter(self._contents.nodes)
        order, refuses = None, self._contents.refuse_collisions
        while chunk := list(islice(nodes, CHUNK_NODES)):
            paths = [node.path for node in chunk]
            for path in filterfalse(self._contents.filter.covers, paths):
                raise UsageError(f"{path} is not covered by the package's filter", path=path)
            is_all = order is None and len(chunk) < CHUNK_NODES
            if not is_all or not is_in_key_order(paths, refuse_collisions=refuses):
                order = order or PathOrder(refuse_collisions=refuses)
                for path in paths:
                    order.add(path)
            yield from chunk

    def _write_node(self, node: Node) -> None:
        parts = split_body(node)
        head, binaries, tail = parts
        placed = self._place(node.path, binaries) if binaries else []  # their digests are known after that
        body = parts.named() if binaries else head + tail
        self._tree.add(node.path, sha256(body).digest())
        self._content_bytes += content_bytes_of(node)
        if self._used is not None:
            self._used.note(node.path, body, node)
        if binaries:
            body = parts.joined(placed)
        record = encode_node_record(node.path, body, is_inner=self._keeps_documents and node.is_inner)
        if len(record) > MAX_RECORD_BYTES:
            raise LimitExceededError(
                f"a node has {len(record)} bytes without its large binaries, the limit is {MAX_RECORD_BYTES}",
                path=node.path,
                limit=MAX_RECORD_BYTES,
            )
        self._emit(record)
        self._node_count += 1
        limits = self._contents.limits
        if self._node_count > limits.max_entries:
            raise beyond_limits(
                "the package has more nodes than limits.max_entries", limits.max_entries, path=node.path
            )
        self._check_total(node.path)

    def _check_total(self, path: NodePath | None) -> None:
        """As readers count: the package and the binaries that are elsewhere."""
        limit = self._contents.limits.max_total_bytes
        if self._length_bytes + self._pending_bytes + self._elsewhere_bytes > limit:
            raise beyond_limits("the package holds more bytes than limits.max_total_bytes", limit, path=path)

    def _place(self, path: NodePath, binaries: list[Binary]) -> list[bytes | None]:
        """Write the pieces of those that travel so; the data of those that go into the node, None for others."""
        data: list[bytes | None] = []
        room = MAX_INLINE_BYTES_OF_NODE
        in_pieces: set[bytes] = set()
        for binary in binaries:
            length = binary.length_bytes
            if length > self._contents.limits.max_entry_bytes:
                limit = self._contents.limits.max_entry_bytes
                raise beyond_limits(
                    f"a binary of {length} bytes is larger than limits.max_entry_bytes", limit, path=path
                )
            inline = None
            if length <= self._contents.inline_binary_bytes or self._contents.is_self_contained:
                if length <= MAX_INLINE_BYTES and length <= room:
                    inline = binary.data if binary.data is not None else self._read(path, binary)
                    room -= length
                elif not binary.is_digest_known or binary.digest not in in_pieces:
                    self._write_pieces(path, binary)
                    in_pieces.add(binary.digest)
            else:
                self._elsewhere_bytes += length
            data.append(inline)
        return data

    def _read(self, path: NodePath, binary: Binary) -> bytes:
        return b"".join(_checked_pieces(path, binary))

    def _write_pieces(self, path: NodePath, binary: Binary) -> None:
        written = 0
        if not isinstance(self._hash, ContentHash):
            self._hash = ContentHash(self._hash)
        for data in _checked_pieces(path, binary):
            written += len(data)
            self._emit(encode_piece(data, is_last=written == binary.length_bytes))

    def _emit(self, record: bytes) -> None:
        self._pending.append(record)
        self._pending_bytes += len(record)
        if self._pending_bytes >= PIECE_BYTES:
            if not self._is_begun:
                self._begin(FORMAT_VERSION if self._used is None else NAMED_VERSION)
            self._flush()

    def _flush(self) -> None:
        self._write(b"".join(self._pending))
        self._pending.clear()
        self._pending_bytes = 0

    def _write(self, data: bytes) -> None:
        self._hash.update(data)
        self._into.write(data)
        self._length_bytes += len(data)


class TreePackageCounter(TreePackageWriter):
    """Counts what would be written, and writes nothing."""

    def __init__(self, contents: PackageContents, namespaces: Mapping[str, str]) -> None:
        """As the writer."""
        super().__init__(replace(contents, nodes=unread(contents.nodes)), io.BytesIO(), namespaces)

    def _read(self, path: NodePath, binary: Binary) -> bytes:  # noqa: ARG002  # the binary is not opened
        return bytes(binary.length_bytes)

    def _write_pieces(self, path: NodePath, binary: Binary) -> None:  # noqa: ARG002
        self._length_bytes += binary.length_bytes

    def _write(self, data: bytes) -> None:
        self._length_bytes += len(data)


def _checked_pieces(path: NodePath, binary: Binary) -> Iterator[bytes]:
    """The content in full pieces and a last one. Raises: SourceChangedError, latest with the last piece."""
    if binary.data is not None:
        for start in range(0, binary.length_bytes, PIECE_BYTES):
            yield binary.data[start : start + PIECE_BYTES]
        return
    total = ContentHash()
    left = binary.length_bytes
    with binary.open() as stream:
        while left > 0:
            data = _read_fully(stream, min(left, PIECE_BYTES))
            total.update(data)
            left -= len(data)
            if not data or (left == 0 and not _is_whole(binary, total.digest(), stream)):
                raise SourceChangedError("a binary is not what it was when the node was read", path=path)
            yield data


def _is_whole(binary: Binary, digest: bytes, stream: BinaryIO) -> bool:
    """Whether the bytes read are the binary's; sets its digest where that was unknown."""
    if stream.read(1):
        return False
    if not binary.is_digest_known:
        binary.tell_digest(digest)
    return binary.digest == digest


def _read_fully(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            return b""
        data += more
    return data
