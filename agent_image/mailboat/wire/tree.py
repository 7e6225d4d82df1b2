"""The records of a `tree` package as protobuf: framing, header, nodes, pieces of binaries, trailer.

Knows the form of one record at a time, and of a small package as a whole; which records may follow each other is for
`packages/tree*.py`. Strict: bytes that another encoding of the same record could have, unknown fields and explicit
defaults are refused, so a record has one form. A later version that adds a field raises `FORMAT_VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from mailboat.errors import PackageCorruptError, UnknownRequiredFeatureError
from mailboat.model.filters import FilterRule, FilterSet, ImportMode, WorkspaceFilter
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import parse_path
from mailboat.model.patterns import compile_pattern
from mailboat.wire._generated import tree_pb2 as pb
from mailboat.wire.nodes import OpenBinary, binaries_outside, check_body

FORMAT_VERSION: Final = 1
MAX_RECORD_BYTES: Final = 16 * 1024**2
"""One record: a node with its texts and inline binaries, or the header."""
PIECE_BYTES: Final = 512 * 1024
"""Bytes of a binary in every piece but the last."""

HEADER_TAG: Final = 0x0A
NODE_TAG: Final = 0x12
PIECE_TAG: Final = 0x1A
TRAILER_TAG: Final = 0x7A
MAGIC: Final = b"\x0a"
"""The first byte of every package: the tag of the header."""

P = TypeVar("P", bound=Protobuf)


class Header(NamedTuple):
    """The first record: what the package owns, and the nodes above it."""

    filter: WorkspaceFilter
    ancestors: tuple[NodeRecord, ...]


class Trailer(NamedTuple):
    """The last record: how many node records there were, and the SHA-256 of all bytes before it."""

    node_count: int
    digest: bytes


# ---------------------------------------------------------------------------------------------------------- encoding


def encode_header(package_filter: WorkspaceFilter, ancestors: Iterable[NodeRecord]) -> bytes:
    """The header, framed."""
    header = pb.TreeHeader(
        format_version=FORMAT_VERSION,
        filter=[_encode_filter(one) for one in package_filter.sets],
        ancestor=[pb.TreeNode(path=one.path, body=pb.NodeBody.FromString(one.body)) for one in ancestors],
    )
    return _framed(HEADER_TAG, header.SerializeToString())


def encode_node_record(path: str, body: bytes) -> bytes:
    """A node, framed."""
    encoded = path.encode()
    content = b"\x0a%b%b\x12%b%b" % (varint(len(encoded)), encoded, varint(len(body)), body)
    return b"\x12%b%b" % (varint(len(content)), content)


def encode_piece(data: bytes, *, is_last: bool) -> bytes:
    """A piece of a binary, framed."""
    content = b"\x0a%b%b%b" % (varint(len(data)), data, b"\x10\x01" if is_last else b"")
    return b"\x1a%b%b" % (varint(len(content)), content)


def encode_trailer(trailer: Trailer) -> bytes:
    """The trailer, framed."""
    return _framed(
        TRAILER_TAG, pb.TreeTrailer(node_count=trailer.node_count, digest=trailer.digest).SerializeToString()
    )


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    if number < 0x80:
        return b"%c" % number
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _framed(tag: int, content: bytes) -> bytes:
    return b"%c%b%b" % (tag, varint(len(content)), content)


def _encode_filter(one: FilterSet) -> pb.TreeFilter:
    return pb.TreeFilter(
        root=one.root,
        is_shallow=one.is_shallow or None,
        rule=[_encode_rule(rule) for rule in one.rules],
        property_rule=[_encode_rule(rule) for rule in one.property_rules],
        mode=None if one.mode is ImportMode.REPLACE else one.mode.value,
    )


def _encode_rule(rule: FilterRule) -> pb.TreeFilterRule:
    return pb.TreeFilterRule(is_include=rule.is_include or None, pattern=rule.pattern.pattern)


# ---------------------------------------------------------------------------------------------------------- decoding


def parse_package(payload: bytes) -> pb.TreePackage | None:
    """Parse a package in one call, and check that these are the bytes its records have in order.

    None when it has pieces of binaries: it must be read record by record.

    Raises:
        PackageCorruptError: Not protobuf, records out of order, unknown fields.
        UnknownRequiredFeatureError: A later version's.
    """
    try:
        package = pb.TreePackage.FromString(payload)
    except DecodeError as error:
        raise PackageCorruptError(f"{len(payload)} bytes are not a tree package: {error}") from error
    _check_version(package.header)
    if len(package.piece):
        return None
    package.DiscardUnknownFields()
    if package.SerializeToString() != payload:
        raise PackageCorruptError("the records of a tree package are out of order, repeated or in an unknown form")
    return package


def decode_header(content: bytes) -> Header:
    """Decode the first record of a large package. Raises: as `parse_package`."""
    try:
        version = pb.TreeHeader.FromString(content)
    except DecodeError as error:
        raise PackageCorruptError(f"the header of a tree package is not valid: {error}", record=1) from error
    _check_version(version)
    return take_header(_parse_strictly(pb.TreeHeader, content, 1))


def decode_node_record(content: bytes, number: int, open_binary: OpenBinary | None) -> NodeRecord:
    """Decode a node. `number` counts records from 1, for messages. Raises: PackageCorruptError, PathRefusedError."""
    return take_node(_parse_strictly(pb.TreeNode, content, number), open_binary)


def decode_piece(content: bytes, number: int) -> tuple[bytes, bool]:
    """Data of a piece, and whether it is its binary's last. Raises: PackageCorruptError."""
    piece = _parse_strictly(pb.TreeBinaryPiece, content, number)
    if piece.HasField("is_last") != piece.is_last:
        raise PackageCorruptError("a piece says that it is not the last", record=number)
    return piece.data, piece.is_last


def decode_trailer(content: bytes, number: int) -> Trailer:
    """Decode the last record. Raises: PackageCorruptError."""
    trailer = _parse_strictly(pb.TreeTrailer, content, number)
    return Trailer(trailer.node_count, trailer.digest)


def take_header(header: pb.TreeHeader) -> Header:
    """Filter and ancestors of a parsed header. Raises: PackageCorruptError, PathRefusedError."""
    sets = tuple(_decode_filter(one) for one in header.filter)
    if not sets:
        raise PackageCorruptError("a tree package has no filter", record=1)
    return Header(WorkspaceFilter(sets), tuple(take_node(one, None) for one in header.ancestor))


def take_node(node: pb.TreeNode, open_binary: OpenBinary | None) -> NodeRecord:
    """Path and body of a parsed node. Raises: PackageCorruptError, PathRefusedError."""
    path = parse_path(node.path)
    body = node.body
    check_body(path, body)
    return NodeRecord(path, body.SerializeToString(), binaries_outside(body, open_binary))


def take_nodes(nodes: Sequence[pb.TreeNode], open_binary: OpenBinary | None) -> list[NodeRecord]:
    """The same of many. Raises: PackageCorruptError, PathRefusedError."""
    return [take_node(node, open_binary) for node in nodes]


def take_trailer(package: pb.TreePackage) -> tuple[Trailer, int]:
    """The trailer of a package parsed in one call, and the length of its record. Raises: PackageCorruptError."""
    if not package.HasField("trailer"):
        raise PackageCorruptError("a tree package ends without a trailer")
    trailer = package.trailer
    length = trailer.ByteSize()
    return Trailer(trailer.node_count, trailer.digest), 1 + len(varint(length)) + length


def _check_version(header: pb.TreeHeader) -> None:
    version = header.format_version
    if version == FORMAT_VERSION:
        return
    if version > FORMAT_VERSION:
        raise UnknownRequiredFeatureError(
            f"a tree package is of version {version}, this Mailboat knows {FORMAT_VERSION}",
            next_step="upgrade this subscriber",
        )
    raise PackageCorruptError("a tree package starts without a header of a known version", record=1)


def _parse_strictly(kind: type[P], content: bytes, number: int) -> P:
    try:
        record = kind.FromString(content)
    except DecodeError as error:
        raise PackageCorruptError(f"a record is not a {kind.DESCRIPTOR.name}: {error}", record=number) from error
    record.DiscardUnknownFields()
    if record.SerializeToString() != content:
        raise PackageCorruptError(f"a {kind.DESCRIPTOR.name} has unknown fields or an unknown form", record=number)
    return record


def _decode_filter(one: pb.TreeFilter) -> FilterSet:
    mode = ImportMode.REPLACE
    if one.HasField("mode"):
        try:
            mode = ImportMode(one.mode)
        except ValueError as error:
            raise PackageCorruptError(f"a filter has the unknown mode {one.mode[:40]!r}", record=1) from error
    return FilterSet(
        parse_path(one.root),
        one.is_shallow,
        tuple(map(_decode_rule, one.rule)),
        tuple(FilterRule(rule.is_include, compile_pattern(rule.pattern), True) for rule in one.property_rule),
        mode,
    )


def _decode_rule(rule: pb.TreeFilterRule) -> FilterRule:
    return FilterRule(rule.is_include, compile_pattern(rule.pattern))
