"""The records of a `tree` package as protobuf: framing, header, nodes, pieces of binaries, namespaces, trailer.

Handles the form of one record at a time, and of a small package as a whole; which records may follow each other is for
`packages/tree*.py`. Strict: bytes that another encoding of the same record could have, unknown fields and explicit
defaults are refused, so a record has one form. A later version that adds a field raises the version of the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from mailboat.errors import LimitExceededError, PackageCorruptError, UnknownRequiredFeatureError
from mailboat.model.filters import MAX_RULES, FilterRule, FilterSet, ImportMode, WorkspaceFilter, sets_of_first_root
from mailboat.model.namespaces import MAX_NAMESPACES, NamespaceTable, table_of
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import parse_path, parse_paths
from mailboat.wire._generated import tree_pb2 as pb
from mailboat.wire.frames import framed, varint
from mailboat.wire.node_bodies import DIGEST_BYTES, OpenBinary, binaries_outside, check_body

FORMAT_VERSION: Final = 1
NAMED_VERSION: Final = 2
"""Of packages that may say what their prefixes stand for. Readers of version 1 stop at it instead of losing that."""
OVERLAP_VERSION: Final = 3
"""Of packages with filters that overlap, and may both cover a path; in earlier versions the first root decides. And of
packages with nodes that rules leave out below a root, above covered ones."""
MERGE_VERSION: Final = 4
"""Of packages with the mode `merge`, whose nodes say which of them FileVault has in one document."""
MAX_RECORD_BYTES: Final = 16 * 1024**2
"""One record: a node with its texts and inline binaries, or the header."""
PIECE_BYTES: Final = 512 * 1024
"""Bytes of a binary in every piece but the last."""

HEADER_TAG: Final = 0x0A
NODE_TAG: Final = 0x12
PIECE_TAG: Final = 0x1A
NAMESPACE_TAG: Final = 0x22
INNER_NODE_TAG: Final = 0x2A
TRAILER_TAG: Final = 0x7A
_IS_LAST: Final = b"\x10\x01"
MAGIC: Final = b"\x0a"
"""The first byte of every package: the tag of the header."""

SHORT_ROOT_BYTES: Final = 125  # its length and that of its filter fit into a byte each

_SHORT_BYTES: Final = 0x4000 - 0x80 - 5
"""A body below that needs two bytes for its length in a record of a short path, and so does the record."""
_FULL_PIECE: Final = b"\x0a%b" % varint(PIECE_BYTES)
_FULL_PIECE_BYTES: Final = len(_FULL_PIECE) + PIECE_BYTES
"""How a full piece begins, and where what follows its data stands: nearly all are full, and copied once that way."""

P = TypeVar("P", bound=Protobuf)

TreePackage = pb.TreePackage
"""A package parsed in one call."""

CompilePattern = Callable[[str], re.Pattern[str]]
"""Checks and compiles an expression of a filter; Java's syntax."""
FormatPattern = Callable[[re.Pattern[str]], str]
"""The other way."""


class Header(NamedTuple):
    """The first record: what the package owns, and the nodes above what is covered."""

    filter: WorkspaceFilter
    ancestors: list[NodeRecord]


class Trailer(NamedTuple):
    """The last record: how many node records there were, and the SHA-256 of all bytes before it."""

    node_count: int
    digest: bytes


# ---------------------------------------------------------------------------------------------------------- encoding


def encode_header(
    package_filter: WorkspaceFilter,
    ancestors: Iterable[NodeRecord],
    format_pattern: FormatPattern,
    version: int = FORMAT_VERSION,
) -> bytes:
    """The header, framed. Mode `merge`, filters that overlap and nodes that are not above roots raise the version.

    Raises: LimitExceededError: More roots, or rules of one root, than readers accept.
    """
    _check_counts(package_filter.sets)
    ancestors = list(ancestors)
    if package_filter.keeps_documents:
        version = MERGE_VERSION
    elif sets_of_first_root(package_filter.sets) != package_filter.sets or not all(
        package_filter.is_ancestor(ancestor.path) for ancestor in ancestors
    ):
        version = OVERLAP_VERSION
    content = [b"\x08%b" % varint(version)]
    content += [framed(b"\x12", _encode_filter(filter_set, format_pattern)) for filter_set in package_filter.sets]
    content += [framed(b"\x1a", _encode_node(ancestor.path, ancestor.body)) for ancestor in ancestors]
    inner = [varint(place) for place, ancestor in enumerate(ancestors) if ancestor.is_inner]
    if inner and version >= MERGE_VERSION:
        content.append(framed(b"\x22", b"".join(inner)))
    return framed(MAGIC, b"".join(content))


def _check_counts(sets: tuple[FilterSet, ...]) -> None:
    for count, what in ((len(sets), "roots"), (max(map(_rule_count, sets), default=0), "rules of one root")):
        if count > MAX_RULES:
            raise LimitExceededError(
                f"the filter of the package would have {count} {what}, which readers refuse",
                next_step="publish in several requests, or simplify the rules of the filter in the source",
                limit=MAX_RULES,
            )


def _rule_count(one: FilterSet) -> int:
    return len(one.rules) + len(one.property_rules)


def encode_node_record(path: str, body: bytes, *, is_inner: bool = False) -> bytes:
    """A node, framed."""
    if is_inner:
        return framed(b"\x2a", _encode_node(path, body))
    encoded = path.encode()
    size, length = len(encoded), len(body)
    if size < 0x80 <= length < _SHORT_BYTES:  # nearly all: two bytes for each of the lengths but the path's
        whole = size + length + 5
        lengths = whole & 0x7F | 0x80, whole >> 7, size, encoded, length & 0x7F | 0x80, length >> 7
        return b"\x12%c%c\x0a%c%b\x12%c%c%b" % (*lengths, body)
    return framed(b"\x12", _encode_node(path, body))


def encode_piece(data: bytes, *, is_last: bool) -> bytes:
    """A piece of a binary, framed."""
    length, end = varint(len(data)), _IS_LAST if is_last else b""
    return b"\x1a%b\x0a%b%b%b" % (varint(1 + len(length) + len(data) + len(end)), length, data, end)


def encode_namespaces(table: NamespaceTable) -> bytes:
    """What prefixes stand for: a framed record for each namespace."""
    return b"".join(
        [
            framed(b"\x22", framed(b"\x0a", prefix.encode()) + framed(b"\x12", uri.encode()))
            for prefix in sorted(table)
            for uri in sorted(table[prefix])
        ]
    )


def encode_trailer(trailer: Trailer) -> bytes:
    """The trailer, framed."""
    return _trailer_start(trailer.node_count) + trailer.digest


def _encode_node(path: str, body: bytes) -> bytes:
    encoded = path.encode()
    return b"\x0a%b%b\x12%b%b" % (varint(len(encoded)), encoded, varint(len(body)), body)


def _encode_filter(one: FilterSet, format_pattern: FormatPattern) -> bytes:
    if one.is_simple and not one.is_shallow:
        return framed(b"\x0a", one.root.encode())
    encoded = pb.TreeFilter(root=one.root, is_shallow=one.is_shallow or None)
    if one.rules or one.property_rules or one.mode is not ImportMode.REPLACE:
        encoded.rules.mode = one.mode.value
        encoded.rules.rule.extend([_encode_rule(rule, format_pattern) for rule in one.rules])
        encoded.rules.property_rule.extend([_encode_rule(rule, format_pattern) for rule in one.property_rules])
    return encoded.SerializeToString()


def _encode_rule(rule: FilterRule, format_pattern: FormatPattern) -> pb.TreeFilterRule:
    return pb.TreeFilterRule(is_include=rule.is_include or None, pattern=format_pattern(rule.pattern))


# ---------------------------------------------------------------------------------------------------------- decoding


def parse_package(payload: bytes) -> pb.TreePackage | None:
    """Parse a package in one call, and check that these are the bytes its records have in order.

    None when it has pieces of binaries or inner nodes: it must be read record by record.

    Raises:
        PackageCorruptError: Not protobuf, records out of order, unknown fields.
        UnknownRequiredFeatureError: A later version's.
    """
    try:
        package = pb.TreePackage.FromString(payload)
    except DecodeError as error:
        raise PackageCorruptError(f"{len(payload)} bytes are not a tree package: {error}") from error
    if package.header.format_version != FORMAT_VERSION:
        _check_version(package.header)
    if len(package.piece) or len(package.inner_node):
        return None
    # Written again, a package has the same bytes unless it has unknown fields, another order or a padded number.
    package.DiscardUnknownFields()
    if package.SerializeToString() != payload:
        raise PackageCorruptError("the records of a tree package are out of order, repeated or in an unknown form")
    return package


def decode_header(content: bytes, compile_pattern: CompilePattern) -> tuple[Header, int]:
    """Decode the first record of a large package, and the version of the format. Raises: as `parse_package`."""
    # The version first: a header of a later one may have fields that strict parsing would take for damage.
    try:
        version = pb.TreeHeader.FromString(content)
    except DecodeError as error:
        raise PackageCorruptError(f"the header of a tree package is not valid: {error}", record=1) from error
    _check_version(version)
    header = _parse_strictly(pb.TreeHeader, content, 1)
    return take_header(header, compile_pattern, None), header.format_version


def decode_node_record(content: bytes, number: int, open_binary: OpenBinary | None) -> NodeRecord:
    """Decode a node. `number` counts records from 1, for messages. Raises: PackageCorruptError, PathRefusedError."""
    return take_nodes([_parse_strictly(pb.TreeNode, content, number)], open_binary)[0]


def decode_piece(content: bytes, number: int) -> tuple[bytes, bool]:
    """Data of a piece, and whether it is its binary's last. Raises: PackageCorruptError."""
    beyond = len(content) - _FULL_PIECE_BYTES
    if content.startswith(_FULL_PIECE) and (beyond == 0 or (beyond > 0 and content[_FULL_PIECE_BYTES:] == _IS_LAST)):
        return content[len(_FULL_PIECE) : _FULL_PIECE_BYTES], beyond > 0
    piece = _parse_strictly(pb.TreeBinaryPiece, content, number)
    if piece.HasField("is_last") != piece.is_last:
        raise PackageCorruptError("a piece has is_last false, which must be omitted", record=number)
    return piece.data, piece.is_last


def decode_namespace(content: bytes, number: int) -> tuple[str, str]:
    """A prefix and what it stands for, still to be checked. Raises: PackageCorruptError."""
    found = _parse_strictly(pb.TreeNamespace, content, number)
    return found.prefix, found.uri


def take_namespaces(package: pb.TreePackage) -> NamespaceTable:
    """The namespaces of a parsed package that has some. Raises: PackageCorruptError, LimitExceededError."""
    found = package.namespace
    if package.header.format_version == FORMAT_VERSION:
        raise PackageCorruptError(f"a tree package of version {FORMAT_VERSION} has a namespace")
    if len(found) > MAX_NAMESPACES:
        raise LimitExceededError(f"a tree package has {len(found)} namespaces", limit=MAX_NAMESPACES)
    return table_of([(namespace.prefix, namespace.uri) for namespace in found])


def decode_trailer(content: bytes, number: int) -> Trailer:
    """Decode the last record. Raises: PackageCorruptError."""
    trailer = _parse_strictly(pb.TreeTrailer, content, number)
    return Trailer(trailer.node_count, trailer.digest)


def take_header(header: pb.TreeHeader, compile_pattern: CompilePattern, open_binary: OpenBinary | None) -> Header:
    """What a parsed header says. Raises: PackageCorruptError, PathRefusedError, LimitExceededError."""
    return Header(_take_filter(header, compile_pattern), _take_ancestors(header, open_binary))


def _take_ancestors(header: pb.TreeHeader, open_binary: OpenBinary | None) -> list[NodeRecord]:
    ancestors, before = take_nodes(header.ancestor, open_binary), -1
    for place in header.inner_ancestor:
        if header.format_version < MERGE_VERSION or not before < place < len(ancestors):
            raise PackageCorruptError(f"node {place} above covered ones is out of order or not an inner node", record=1)
        ancestors[place] = ancestors[place]._replace(is_inner=True)
        before = place
    return ancestors


def _take_filter(header: pb.TreeHeader, compile_pattern: CompilePattern) -> WorkspaceFilter:
    sets = tuple(
        [_decode_filter(filter_message, compile_pattern, header.format_version) for filter_message in header.filter]
    )
    if not sets:
        raise PackageCorruptError("a tree package has no filter", record=1)
    if len(sets) > MAX_RULES:
        raise LimitExceededError(f"a tree package has {len(sets)} roots", limit=MAX_RULES)
    return WorkspaceFilter(sets if header.format_version >= OVERLAP_VERSION else sets_of_first_root(sets))


def deep_root_of(payload: bytes) -> tuple[str, bytes] | None:
    """The root in the header of a parsed package, and the nodes above it, encoded; read at their places in the bytes.

    None unless the header has nothing but one short deep root and nodes above it. The root is still to be checked.
    """
    start, end = 2, payload[1] + 2
    if payload[1] >= 0x80:
        if payload[2] >= 0x80:
            return None
        start, end = 3, (payload[1] & 0x7F) + (payload[2] << 7) + 3
    size = payload[start + 5]
    root_at = start + 6  # behind the version, and the tags and lengths of filter and root
    root_end = root_at + size
    if size > SHORT_ROOT_BYTES or root_end > end or payload[start + 2 : root_at] != b"\x12%c\x0a%c" % (size + 2, size):
        return None
    ancestors = payload[root_end:end]
    return None if ancestors.startswith(b"\x12") else (payload[root_at:root_end].decode(), ancestors)


def decode_ancestors(encoded: bytes) -> list[NodeRecord] | None:
    """The nodes that `deep_root_of` found; None if some are inner. Raises: PackageCorruptError, PathRefusedError."""
    header = pb.TreeHeader.FromString(encoded)
    return None if len(header.inner_ancestor) else take_nodes(header.ancestor, None)


def take_nodes(nodes: Sequence[pb.TreeNode], open_binary: OpenBinary | None) -> list[NodeRecord]:
    """Paths and bodies of parsed nodes, checked: the hot path. Raises: PackageCorruptError, PathRefusedError."""
    records = []
    for path, node in zip(parse_paths([node.path for node in nodes]), nodes, strict=True):
        body = node.body
        shape = check_body(path, body)
        outside = binaries_outside(body, open_binary) if shape.binary_count else ()
        records.append(tuple.__new__(NodeRecord, (path, body.SerializeToString(), outside, False)))
    return records


def digest_in_trailer(payload: bytes, node_count: int) -> tuple[bytes, int]:
    """The digest that a package's last record says, and where that record starts.

    The record is compared with the one that a package of so many nodes ends with. Raises: PackageCorruptError.
    """
    start = _trailer_start(node_count)
    at = len(payload) - len(start) - DIGEST_BYTES
    if at < 0 or payload[at:-DIGEST_BYTES] != start:
        raise PackageCorruptError(f"a tree package of {node_count} nodes does not end with the trailer of that number")
    return payload[-DIGEST_BYTES:], at


def _trailer_start(node_count: int) -> bytes:
    count = varint(node_count)
    return b"\x7a%c\x08%b\x12%c" % (len(count) + 3 + DIGEST_BYTES, count, DIGEST_BYTES)


def _check_version(header: pb.TreeHeader) -> None:
    version = header.format_version
    if FORMAT_VERSION <= version <= MERGE_VERSION:
        return
    if version > MERGE_VERSION:
        raise UnknownRequiredFeatureError(
            f"a tree package is of version {version}, this version supports up to {MERGE_VERSION}",
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


def _decode_filter(one: pb.TreeFilter, compile_pattern: CompilePattern, version: int) -> FilterSet:
    root = parse_path(one.root)
    if not one.HasField("rules"):
        return FilterSet(root, one.is_shallow)
    rules = one.rules
    if len(rules.rule) + len(rules.property_rule) > MAX_RULES:
        raise LimitExceededError("a filter of a tree package has too many rules", path=root, limit=MAX_RULES)
    try:
        mode = ImportMode(rules.mode)
    except ValueError as error:
        raise PackageCorruptError(f"a filter has the unknown mode {rules.mode[:40]!r}", path=root) from error
    if mode is ImportMode.MERGE and version < MERGE_VERSION:
        raise PackageCorruptError(f"a tree package of version {version} has the mode {mode.value!r}", path=root)
    return FilterSet(
        root,
        one.is_shallow,
        tuple([FilterRule(rule.is_include, compile_pattern(rule.pattern)) for rule in rules.rule]),
        tuple([FilterRule(rule.is_include, compile_pattern(rule.pattern), True) for rule in rules.property_rule]),
        mode,
    )
