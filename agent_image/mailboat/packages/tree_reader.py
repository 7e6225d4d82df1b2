"""Reading a `tree` package record by record, in memory for one record and the folders on its path.

Everything is checked before a record is given, but for the end of the package: only a reader of all records has checked
that the package is whole. A target commits after that.

A `tree` package as a stream of framed records, and its binaries as streams over their pieces.

Reads from one seekable stream at positions it keeps itself, so that records and any number of binaries can be read in
turns; nothing is copied to another file. The stream handles framing only.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Final, NamedTuple, cast

from mailboat.blobs.checked_content import ProvenStream
from mailboat.config.document import LimitsConfig
from mailboat.errors import LimitExceededError, PackageCorruptError
from mailboat.model.changes import TreeChange
from mailboat.model.content_hash import ContentHash
from mailboat.model.namespaces import MAX_NAMESPACES, check_pair
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath, paths_above
from mailboat.packages.filevault.patterns import compile_java
from mailboat.packages.tree_order import PathOrder, check_order
from mailboat.wire.node_bodies import DIGEST_BYTES, OpenBinary
from mailboat.wire.tree_records import (
    FORMAT_VERSION,
    HEADER_TAG,
    INNER_NODE_TAG,
    MAX_RECORD_BYTES,
    MERGE_VERSION,
    NAMESPACE_TAG,
    NODE_TAG,
    PIECE_BYTES,
    PIECE_TAG,
    TRAILER_TAG,
    Header,
    Trailer,
    decode_header,
    decode_namespace,
    decode_node_record,
    decode_piece,
    decode_trailer,
)

CHUNK_BYTES: Final = 256 * 1024
SMALL_BYTES: Final = 64 * 1024
_TAGS: Final = frozenset({HEADER_TAG, NODE_TAG, INNER_NODE_TAG, PIECE_TAG, NAMESPACE_TAG, TRAILER_TAG})
_MAX_FRAME_BYTES: Final = 6  # tag, and a length of up to 35 bits
_MAX_CARRIED: Final = MAX_RECORD_BYTES // DIGEST_BYTES
"""A node cannot name more binaries. Each takes fifty times the memory of a short one's bytes until the node comes."""


class RawRecord(NamedTuple):
    """A record as it stands in the package.

    Attributes:
        number: Counted from 1, for messages.
        tag: Which kind.
        content: Its bytes without the frame.
        ends_at: The stream's position after it.
    """

    number: int
    tag: int
    content: bytes
    ends_at: int


class RecordStream:
    """Reads framed records in order. One thread."""

    def __init__(self, stream: BinaryIO, *, is_hashing: bool) -> None:
        """Read from the current position on; `is_hashing` computes the digest that the trailer repeats."""
        self._stream = stream
        self._position = stream.tell()
        self._buffer = b""
        self._at = 0
        self._count = 0
        self._hash = hashlib.sha256() if is_hashing else None

    def next(self) -> RawRecord | None:
        """The next record; None at the end.

        Raises:
            PackageCorruptError: The stream ends within a record, or a frame has another format.
            LimitExceededError: A record is larger than any may be.
        """
        self._fill(_MAX_FRAME_BYTES)
        if self._at == len(self._buffer):
            return None
        self._count += 1
        start = self._at
        tag = self._buffer[start]
        if tag not in _TAGS:
            raise PackageCorruptError(f"a record starts with the unknown tag {tag}", record=self._count)
        length, frame_bytes = self._length()
        self._fill(frame_bytes + length)
        start, end = self._at, self._at + frame_bytes + length
        if end > len(self._buffer):
            raise PackageCorruptError("the package ends within a record", record=self._count)
        if self._hash is not None and tag != TRAILER_TAG:
            self._hash.update(memoryview(self._buffer)[start:end])
        self._at = end
        ends_at = self._position - len(self._buffer) + end
        return RawRecord(self._count, tag, self._buffer[start + frame_bytes : end], ends_at)

    def digest(self) -> bytes | None:
        """SHA-256 of all records but the trailer so far; None when it isn't computed."""
        return None if self._hash is None else self._hash.digest()

    def _length(self) -> tuple[int, int]:
        length = shift = 0
        for index in range(self._at + 1, min(self._at + _MAX_FRAME_BYTES, len(self._buffer))):
            byte = self._buffer[index]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self._check_length(length, is_padded=byte == 0 and shift > 7)
                return length, index + 1 - self._at
        raise PackageCorruptError("the length of a record can't be read", record=self._count)

    def _check_length(self, length: int, *, is_padded: bool) -> None:
        # Protobuf reads padded lengths too; with one form only, equal content has equal bytes.
        if is_padded:
            raise PackageCorruptError("the length of a record is padded", record=self._count)
        if length > MAX_RECORD_BYTES:
            raise LimitExceededError(
                f"a record has {length} bytes, the limit is {MAX_RECORD_BYTES}",
                record=self._count,
                limit=MAX_RECORD_BYTES,
            )

    def _fill(self, needed: int) -> None:
        available = len(self._buffer) - self._at
        if available >= needed:
            return
        self._stream.seek(self._position)
        parts = [self._buffer[self._at :]]
        while available < needed:
            missing = needed - available
            # of a large record little more than itself: all that is read beyond it is copied a second time
            part = self._stream.read(missing + _MAX_FRAME_BYTES if missing > SMALL_BYTES else CHUNK_BYTES)
            if not part:
                break
            parts.append(part)
            available += len(part)
            self._position += len(part)
        self._buffer, self._at = b"".join(parts), 0


class PieceSpan(NamedTuple):
    """Where a piece's data lies in the package's stream."""

    start: int
    length: int


class PieceStream(io.RawIOBase):
    """The content of a binary that travels in pieces. Its bytes were compared with their digest when it was found."""

    def __init__(self, stream: BinaryIO, spans: Sequence[PieceSpan]) -> None:
        """Read the spans of the stream one after another."""
        super().__init__()
        self._stream = cast("io.BufferedIOBase", stream)
        self._spans = spans
        self._index = 0
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: any buffer
        if self._index == len(self._spans):
            return 0
        span = self._spans[self._index]
        self._stream.seek(span.start + self._done)
        count = self._stream.readinto(memoryview(buffer)[: span.length - self._done])
        if not count:
            raise PackageCorruptError("the package's stream has become shorter while it was read")
        self._done += count
        if self._done == span.length:
            self._index, self._done = self._index + 1, 0
        return count


def open_pieces(stream: BinaryIO, spans: Sequence[PieceSpan], digest: bytes) -> BinaryIO:
    """A buffered stream over the pieces of one binary, whose digest they had when they were read."""
    length = sum([span.length for span in spans])
    return ProvenStream(PieceStream(stream, spans), digest, length, CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class _CarriedBinary:
    """A binary whose pieces were read and that the next node must name."""

    length_bytes: int
    spans: Sequence[PieceSpan]


@dataclass(slots=True)
class _OpenBinary:
    """A binary whose last piece has not come yet."""

    length_bytes: int = 0
    spans: list[PieceSpan] = field(default_factory=list)
    hash: ContentHash = field(default_factory=ContentHash)

    def add(self, data: bytes, ends_at: int) -> None:
        self.spans.append(PieceSpan(ends_at - len(data), len(data)))
        self.hash.update(data)
        self.length_bytes += len(data)


class TreePackageReader:
    """An open package, see `PackageReader`. One thread."""

    def __init__(
        self,
        stream: BinaryIO,
        limits: LimitsConfig,
        open_blob: OpenBinary | None,
        *,
        are_bytes_checked: bool = False,
    ) -> None:
        """Read and check the header. Raises: as `PackageReader.change`."""
        self._stream = stream
        self._limits = limits
        self._open_blob = open_blob
        self._records = RecordStream(stream, is_hashing=not are_bytes_checked)
        first = self._records.next()
        if first is None or first.tag != HEADER_TAG:
            raise PackageCorruptError("a tree package does not start with a header", record=1)
        self._header, self._version = decode_header(first.content, compile_java)
        check_header(self._header)
        self.filter: Final = self._header.filter
        self.properties: Final[Mapping[str, str]] = {}
        self._namespaces: dict[str, tuple[str, ...]] = {}
        self._last_namespace = ("", "")
        self._namespace_count = 0
        self._carried: dict[bytes, _CarriedBinary] = {}
        self._unfinished: _OpenBinary | None = None
        self._total_bytes = 0
        self._node_count = 0

    def change(self) -> TreeChange:
        return TreeChange(self.filter, with_ancestors(self._header, self._stream_nodes()), self._namespaces)

    def close(self) -> None:
        """Nothing is held but the caller's stream."""

    def _stream_nodes(self) -> Iterator[NodeRecord]:
        order = PathOrder(refuse_collisions=self._limits.refuse_collisions)
        covers = self.filter.covers
        while True:
            raw = self._records.next()
            if raw is None:
                raise PackageCorruptError("a tree package ends without a trailer", nodes=self._node_count)
            if raw.tag in (NODE_TAG, INNER_NODE_TAG):
                record = self._take_node(raw)
                order.add(record.path)
                if not covers(record.path):
                    raise not_covered(record.path)
                yield record
            elif raw.tag == PIECE_TAG:
                self._take_piece(raw)
            elif raw.tag == NAMESPACE_TAG:
                self._take_namespace(raw)
            else:
                self._take_trailer(raw)
                return

    def _take_node(self, raw: RawRecord) -> NodeRecord:
        if self._namespaces:
            raise PackageCorruptError("a node comes after the namespaces", record=raw.number)
        if self._unfinished is not None:
            raise PackageCorruptError("a node comes before the last piece of its binary", record=raw.number)
        self._node_count += 1
        check_count(self._node_count, self._limits)
        # Pieces come before the node that names them, so that the node can be checked and applied at once.
        carried, self._carried = self._carried, {}
        record = decode_node_record(raw.content, raw.number, partial(self._open, carried))
        if raw.tag == INNER_NODE_TAG:
            if self._version < MERGE_VERSION:
                raise PackageCorruptError(
                    f"a tree package of version {self._version} has an inner node", record=raw.number
                )
            record = record._replace(is_inner=True)
        self._total_bytes += len(raw.content)
        self._check_carried(record, carried)
        self._check_total(record.path)
        return record

    def _check_carried(self, record: NodeRecord, carried: Mapping[bytes, _CarriedBinary]) -> None:
        named = {binary.digest: binary.length_bytes for binary in record.binaries}
        for digest, found in carried.items():
            if named.get(digest) != found.length_bytes:
                raise PackageCorruptError(
                    f"a binary of {found.length_bytes} bytes, SHA-256 {digest.hex()}, travels before a node that does "
                    "not name it",
                    path=record.path,
                )
        self._total_bytes += check_lengths(record, self._limits, but=carried)

    def _take_piece(self, raw: RawRecord) -> None:
        data, is_last = decode_piece(raw.content, raw.number)
        # Only the last piece may be short: equal content has one form, and the list of pieces stays small.
        if not data or len(data) > PIECE_BYTES or (len(data) < PIECE_BYTES and not is_last):
            raise PackageCorruptError(f"a piece of a binary has {len(data)} bytes", record=raw.number)
        binary = self._unfinished or _OpenBinary()
        binary.add(data, raw.ends_at - (2 if is_last else 0))  # the field `is_last` stands behind the data
        if binary.length_bytes > self._limits.max_entry_bytes:
            raise too_long(f"record {raw.number}", self._limits)
        self._total_bytes += len(data)
        self._check_total(f"record {raw.number}")
        self._unfinished = None if is_last else binary
        if is_last:
            self._carried[binary.hash.digest()] = _CarriedBinary(binary.length_bytes, binary.spans)
            if len(self._carried) > _MAX_CARRIED:
                raise PackageCorruptError("more binaries travel before a node than it can name", record=raw.number)

    def _take_namespace(self, raw: RawRecord) -> None:
        if self._version == FORMAT_VERSION:
            raise PackageCorruptError("a tree package of version 1 has a namespace", record=raw.number)
        pair = decode_namespace(raw.content, raw.number)
        check_pair(pair, self._last_namespace)
        self._last_namespace = pair
        self._namespaces[pair[0]] = (*self._namespaces.get(pair[0], ()), pair[1])
        self._namespace_count += 1
        if self._namespace_count > MAX_NAMESPACES:
            raise LimitExceededError(
                f"a tree package has more than {MAX_NAMESPACES} namespaces", record=raw.number, limit=MAX_NAMESPACES
            )

    def _take_trailer(self, raw: RawRecord) -> None:
        if raw.tag != TRAILER_TAG:
            raise PackageCorruptError("a tree package has a second header", record=raw.number)
        if self._carried or self._unfinished is not None:
            raise PackageCorruptError("a binary travels without a node that names it", record=raw.number)
        check_trailer(decode_trailer(raw.content, raw.number), self._node_count, self._records.digest())
        if self._records.next() is not None:
            raise PackageCorruptError("a tree package has bytes after its trailer", record=raw.number)

    def _open(self, carried: Mapping[bytes, _CarriedBinary], digest: bytes) -> BinaryIO:
        found = carried.get(digest)
        if found is not None:
            return open_pieces(self._stream, found.spans, digest)
        if self._open_blob is None:
            raise ValueError(f"the binary {digest.hex()} is known by digest only")
        return self._open_blob(digest)

    def _check_total(self, where: str) -> None:
        if self._total_bytes > self._limits.max_total_bytes:
            raise LimitExceededError(
                "a tree package holds more bytes than limits.max_total_bytes",
                entry=where,
                limit=self._limits.max_total_bytes,
            )


# ------------------------------------------------------------------------------------- rules of both ways of reading


def with_ancestors(header: Header, nodes: Iterable[NodeRecord]) -> Iterator[NodeRecord]:
    """The nodes in the header and the others, each of the header before the first one below it: see `DocumentMerge`."""
    if header.filter.is_simple:
        yield from header.ancestors
        yield from nodes
        return
    waiting = {record.path: record for record in header.ancestors}
    for node in nodes:
        for path in paths_above(node.path) if waiting else ():
            above = waiting.pop(path, None)
            if above is not None:
                yield above
        yield node
    yield from waiting.values()


def check_header(header: Header) -> None:
    """That its nodes are in order, lie where covered ones can be below, and are not covered themselves.

    Raises: PackageCorruptError.
    """
    package_filter, paths = header.filter, [record.path for record in header.ancestors]
    check_order(paths, refuse_collisions=False)
    for path in paths:
        is_possible = package_filter.is_ancestor(path) or any(
            filter_set.rules for filter_set in package_filter.sets_above(path)
        )
        if not is_possible or package_filter.covers(path):
            raise PackageCorruptError("a node in the header is not an ancestor of what is covered", path=path)


def check_count(count: int, limits: LimitsConfig) -> None:
    """That there are not too many nodes. Raises: LimitExceededError."""
    if count > limits.max_entries:
        raise LimitExceededError(
            "a tree package has more nodes than limits.max_entries", record=count, limit=limits.max_entries
        )


def check_lengths(record: NodeRecord, limits: LimitsConfig, *, but: Mapping[bytes, object]) -> int:
    """Bytes of the binaries that a node names and that are elsewhere; `but` those. Raises: LimitExceededError."""
    total = 0
    for binary in record.binaries:
        if binary.length_bytes > limits.max_entry_bytes:
            raise too_long(record.path, limits)
        if binary.digest not in but:
            total += binary.length_bytes
    return total


def check_trailer(trailer: Trailer, node_count: int, digest: bytes | None) -> None:
    """That the package is whole; `digest` None when it needn't be compared. Raises: PackageCorruptError."""
    if trailer.node_count != node_count or len(trailer.digest) != DIGEST_BYTES:
        raise PackageCorruptError(f"a tree package of {node_count} nodes does not end with the trailer of that number")
    if digest is not None:
        check_digest(trailer.digest, digest)


def check_digest(expected: bytes, computed: bytes) -> None:
    """That the bytes before the trailer are those that were written. Raises: PackageCorruptError."""
    if expected != computed:
        raise PackageCorruptError("a tree package does not match the digest in its trailer")


def not_covered(path: NodePath) -> PackageCorruptError:
    """The error for a node that the package's own filter does not cover."""
    return PackageCorruptError("a tree package carries a node that its filter does not cover", path=path)


def too_long(entry: str, limits: LimitsConfig) -> LimitExceededError:
    """The error for a binary beyond the limit."""
    return LimitExceededError(
        "a binary has more bytes than limits.max_entry_bytes",
        entry=entry,
        limit=limits.max_entry_bytes,
    )
