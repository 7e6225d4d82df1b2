"""Nodes as protobuf `NodeBody`, in canonical form.

Canonical: mixins, properties and binaries sorted by name, values in the form of `model/values.py`, columns left out
where they say nothing; so equal nodes have equal bytes as long as the same binaries are inline. What is decoded is
hostile until it is checked, and it is refused unless it is canonical: what was accepted can always be decoded, and its
digest can be taken from its bytes. `docs/formats/tree.md` specifies it for others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, BinaryIO, Final, NamedTuple

from google.protobuf.message import DecodeError

from mailboat.errors import PackageCorruptError, ValueRefusedError
from mailboat.model.nodes import Binary, Node, NodeRecord, Property, PropertyType
from mailboat.model.paths import NodePath, reason_against_name
from mailboat.model.values import canonical_value
from mailboat.wire import shapes
from mailboat.wire._generated import tree_pb2
from mailboat.wire.frames import framed, varint
from mailboat.wire.shapes import NO_COLUMNS, Columns, Shape, encode_plain_shape, encode_shape, shape_of

DIGEST_BYTES: Final = 32
MAX_NAME_LENGTH: Final = shapes.MAX_NAME_LENGTH

OpenBinary = Callable[[bytes], BinaryIO]
"""Opens the content that has the given digest."""

_FEW_VALUES: Final = 3  # building a message costs more than framing so many by hand
_name: Final = attrgetter("name")
_BINARIES_TAG: Final = b"\x1a"
_BINARY: Final = PropertyType.BINARY
_STRING: Final = PropertyType.STRING
_BINARY_TYPE: Final = bytes([_BINARY])


def encode_node(node: Node) -> NodeRecord:
    """Encode a node; the binaries that are not inline are named by digest and handed along."""
    parts = split_body(node)
    if not parts.binaries:
        return NodeRecord(node.path, parts.joined([]), (), node.is_inner)
    data = [binary.data for binary in parts.binaries]
    outside = tuple([binary for binary in parts.binaries if binary.data is None])
    return NodeRecord(node.path, parts.joined(data), outside, node.is_inner)


def decode_node(path: NodePath, body: bytes, open_binary: OpenBinary | None = None) -> Node:
    """Decode and check a body.

    Args:
        path: The node's path, checked.
        body: Protobuf `NodeBody`.
        open_binary: How to open binaries that are named by digest; None leaves them without content.

    Raises:
        PackageCorruptError: When it is not a node body, or not in canonical form.
    """
    message = _parse_body(path, body)
    shape = check_body(path, message)
    values = message.value[:]
    properties = [
        Property(name, tuple(values[start:end]), kind, is_multiple)
        for name, kind, is_multiple, start, end in shape.texts
    ]
    if shape.binaries:
        data = tuple(_binary_values(message, open_binary))
        properties += [
            Property(binary.name, data[binary.start : binary.end], _BINARY, binary.is_multiple)
            for binary in shape.binaries
        ]
        properties.sort(key=_name)
    order = tuple(message.order.name) if message.HasField("order") else None
    return Node(path, shape.primary_type, shape.mixin_types, tuple(properties), order)


def node_digest(node: Node) -> bytes:
    """Digest of one node without its path and children, 32 bytes: SHA-256 of the body with every binary named."""
    return hashlib.sha256(split_body(node).named()).digest()


def body_digest(path: NodePath, body: bytes) -> bytes:
    """The same of an encoded node. The body must be canonical, as `encode_node` makes it."""
    if _BINARIES_TAG in body:
        message = _parse_body(path, body)
        if message.HasField("binaries"):
            binaries = list(_binary_values(message, None))
            named = tree_pb2.NodeBody.FromString(_encode_binaries(binaries, [None] * len(binaries)))
            message.binaries.CopyFrom(named.binaries)
            body = message.SerializeToString()
    return hashlib.sha256(body).digest()


# ------------------------------------------------------------------------------------------------- parts of encoding


class BodyParts(NamedTuple):
    """A node's body in parts, as its binaries may stand in it or be named.

    Attributes:
        head: Shape and values, encoded.
        binaries: All binaries, in the order of the body.
        tail: The order of children, encoded.
    """

    head: bytes
    binaries: list[Binary]
    tail: bytes

    def joined(self, data: Sequence[bytes | None]) -> bytes:
        """The body with the binaries' data; where there is no data, with digest and length instead."""
        if not self.binaries:
            return self.head + self.tail
        return b"%b%b%b" % (self.head, _encode_binaries(self.binaries, data), self.tail)

    def named(self) -> bytes:
        """The body in which every binary is named by digest and length."""
        return self.joined([None] * len(self.binaries))


def split_body(node: Node) -> BodyParts:
    """Encode a node, but for its binaries."""
    held = node.properties
    if len(held) > 1:
        held = _sorted_by_name(held)
    names = tuple([prop.name for prop in held if prop.type is _STRING and not prop.is_multiple])
    mixins = tuple(sorted(node.mixin_types)) if len(node.mixin_types) > 1 else node.mixin_types
    order = b"" if node.child_order is None else _encode_order(node.child_order)
    if len(names) == len(held):  # nearly all nodes, on the hot path
        head = encode_plain_shape(node.primary_type, mixins, names)
        texts_only = [prop.values[0] for prop in held]
        head += _encode_values(texts_only)  # type: ignore[arg-type]  # none is a binary
        return tuple.__new__(BodyParts, (head, [], order))
    texts, carried = NO_COLUMNS, NO_COLUMNS
    values: list[str] = []
    binaries: list[Binary] = []
    if held:
        types = bytes([prop.type for prop in held])
        if _BINARY in types:
            binary_properties = [prop for prop in held if prop.type == _BINARY]
            carried, binaries = _columns(binary_properties, b"")
            held = tuple([prop for prop in held if prop.type != _BINARY])
            types = types.replace(_BINARY_TYPE, b"")
        if held:
            texts, values = _columns(held, types)
    head = encode_shape(node.primary_type, mixins, texts, carried)
    return BodyParts(head + _encode_values(values), binaries, order)


def encode_texts(
    primary_type: str,
    mixin_types: tuple[str, ...],
    texts: Columns,
    values: Sequence[str],
    child_order: tuple[str, ...] | None,
) -> bytes:
    """The body of a node without binaries from checked columns: for readers of other formats, which have no `Node`."""
    head = encode_shape(primary_type, mixin_types, texts, NO_COLUMNS) + _encode_values(values)
    return head if child_order is None else head + _encode_order(child_order)


def _sorted_by_name(held: tuple[Property, ...]) -> tuple[Property, ...]:
    names = [prop.name for prop in held]
    return held if names == sorted(names) else tuple(sorted(held, key=_name))


def _columns(held: Sequence[Property], types: bytes) -> tuple[Columns, list[Any]]:
    names = tuple([prop.name for prop in held])
    if True in [prop.is_multiple for prop in held]:
        counts = tuple([len(prop.values) + 1 if prop.is_multiple else 0 for prop in held])
        return Columns(names, types, counts), [value for prop in held for value in prop.values]
    return Columns(names, types), [prop.values[0] for prop in held]


def _encode_values(values: Sequence[str]) -> bytes:
    if len(values) == 1:
        return framed(b"\x12", values[0].encode())
    if len(values) > _FEW_VALUES:
        return tree_pb2.NodeBody(value=values).SerializeToString()
    return b"".join([framed(b"\x12", value.encode()) for value in values])


def _encode_order(child_order: tuple[str, ...]) -> bytes:
    return framed(b"\x22", tree_pb2.NodeOrder(name=child_order).SerializeToString() if child_order else b"")


def _encode_binaries(binaries: Sequence[Binary], data: Sequence[bytes | None]) -> bytes:
    values = [binary.digest if one is None else one for binary, one in zip(binaries, data, strict=True)]
    content = b"".join([framed(b"\x0a", value) for value in values])
    if None in data:
        lengths = [
            varint(binary.length_bytes + 1 if one is None else 0) for binary, one in zip(binaries, data, strict=True)
        ]
        content += framed(b"\x12", b"".join(lengths))
    return framed(_BINARIES_TAG, content)


# ---------------------------------------------------------------------------------------------- decoding and checking


def check_body(path: NodePath, body: tree_pb2.NodeBody) -> Shape:
    """Check that a parsed body is one that `encode_node` could have made. Raises: PackageCorruptError."""
    try:
        shape = shape_of(body.shape)
    except PackageCorruptError as error:
        raise PackageCorruptError(error.message, path=path) from error
    values = body.value
    if len(values) != shape.value_count:
        raise PackageCorruptError(f"a node has {len(values)} values for {shape.value_count}", path=path)
    if shape.typed:
        _check_values(path, shape, values[:])
    if shape.binary_count or body.HasField("binaries"):
        _check_binaries(path, shape, body)
    if body.HasField("order"):
        _check_order(path, body.order.name[:])
    return shape


def binaries_outside(body: tree_pb2.NodeBody, open_binary: OpenBinary | None) -> tuple[Binary, ...]:
    """The binaries of a checked body that it names by digest."""
    if not body.HasField("binaries") or not len(body.binaries.length):
        return ()
    return tuple(value for value in _binary_values(body, open_binary) if value.data is None)


def _parse_body(path: NodePath, body: bytes) -> tree_pb2.NodeBody:
    try:
        return tree_pb2.NodeBody.FromString(body)
    except DecodeError as error:
        raise PackageCorruptError(f"a node's body is not valid protobuf: {error}", path=path) from error


def _binary_values(body: tree_pb2.NodeBody, open_binary: OpenBinary | None) -> Iterator[Binary]:
    binaries = body.binaries
    lengths = binaries.length[:] or [0] * len(binaries.value)
    for value, length in zip(binaries.value, lengths, strict=True):
        if length == 0:
            yield Binary(value)
        else:
            opener = None if open_binary is None else _opener(open_binary, value)
            yield Binary(digest=value, length_bytes=length - 1, opener=opener)


def _opener(open_binary: OpenBinary, digest: bytes) -> Callable[[], BinaryIO]:
    return lambda: open_binary(digest)


def _check_values(path: NodePath, shape: Shape, values: list[str]) -> None:
    for name, kind, _, start, end in shape.typed:
        for value in values[start:end]:
            try:
                canonical = canonical_value(kind, value)
            except ValueRefusedError as error:
                raise PackageCorruptError(f"property {name!r}: {error.message}", path=path) from error
            # Earlier versions stored and published a Decimal's negative zero, which is 0 now.
            if value != canonical and not (kind is PropertyType.DECIMAL and value == f"-{canonical}"):
                raise PackageCorruptError(
                    f"{value[:80]!r} of property {name!r} is not the canonical form of a {kind.name}", path=path
                )


def _check_binaries(path: NodePath, shape: Shape, body: tree_pb2.NodeBody) -> None:
    if not body.HasField("binaries") or shape.binary_count == 0:
        raise PackageCorruptError("a node's binaries do not match its shape", path=path)
    count = len(body.binaries.value)
    if count != shape.binary_count:
        raise PackageCorruptError(f"a node has {count} binaries for {shape.binary_count}", path=path)
    if len(body.binaries.length):
        _check_lengths(path, body.binaries.value[:], body.binaries.length[:])


def _check_lengths(path: NodePath, values: list[bytes], lengths: list[int]) -> None:
    if len(lengths) != len(values) or min(lengths) < 0 or not any(lengths):
        raise PackageCorruptError("the lengths of a node's binaries are not one for each", path=path)
    for value, length in zip(values, lengths, strict=True):
        if length and len(value) != DIGEST_BYTES:
            raise PackageCorruptError(f"a binary is named by {len(value)} bytes instead of a SHA-256", path=path)


def _check_order(path: NodePath, order: list[str]) -> None:
    if len(set(order)) != len(order):
        raise PackageCorruptError("the order of children names one twice", path=path)
    for name in order:
        reason = "it has a slash" if "/" in name else reason_against_name(name)
        if reason is not None:
            raise PackageCorruptError(f"the order of children is wrong: {reason}", path=path)
