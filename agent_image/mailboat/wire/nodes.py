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
from typing import BinaryIO, Final

from google.protobuf.message import DecodeError

from mailboat.errors import PackageCorruptError
from mailboat.model.nodes import Binary, Node, NodeRecord, Property, PropertyType
from mailboat.model.paths import NodePath, reason_against_name
from mailboat.model.values import canonical_value
from mailboat.wire import shapes
from mailboat.wire._generated import tree_pb2
from mailboat.wire.shapes import Shape, ShapeColumns, encode_shape, shape_of

DIGEST_BYTES: Final = 32
MAX_NAME_LENGTH: Final = shapes.MAX_NAME_LENGTH

OpenBinary = Callable[[bytes], BinaryIO]
"""Opens the content that has the given digest."""

_name: Final = attrgetter("name")
_BINARIES_TAG: Final = b"\x1a"
_BINARY: Final = PropertyType.BINARY


def encode_node(node: Node) -> NodeRecord:
    """Encode a node; the binaries that are not inline are named by digest and handed along."""
    body, binaries = build_body(node)
    if not binaries:
        return NodeRecord(node.path, body.SerializeToString())
    put_binaries(body, binaries, [one.data for one in binaries])
    return NodeRecord(node.path, body.SerializeToString(), tuple(one for one in binaries if one.data is None))


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
            Property(one.name, data[one.start : one.end], _BINARY, one.is_multiple) for one in shape.binaries
        ]
        properties.sort(key=_name)
    order = tuple(message.order.name) if message.HasField("order") else None
    return Node(path, shape.primary_type, shape.mixin_types, tuple(properties), order)


def digest_node(node: Node) -> bytes:
    """The node's digest, 32 bytes: SHA-256 of the body in which every binary is named."""
    body, binaries = build_body(node)
    if binaries:
        put_binaries(body, binaries, [None] * len(binaries))
    return hashlib.sha256(body.SerializeToString()).digest()


def digest_body(path: NodePath, body: bytes) -> bytes:
    """The same of an encoded node, whose body must be canonical."""
    if _BINARIES_TAG in body:
        message = _parse_body(path, body)
        if message.HasField("binaries"):
            binaries = list(_binary_values(message, None))
            put_binaries(message, binaries, [None] * len(binaries))
            body = message.SerializeToString()
    return hashlib.sha256(body).digest()


# ------------------------------------------------------------------------------------------------- parts of encoding


def build_body(node: Node) -> tuple[tree_pb2.NodeBody, list[Binary]]:
    """The node's body without its binaries, and those, in the order that the body wants them."""
    held = node.properties
    names = [one.name for one in held]
    if names != sorted(names):
        held = tuple(sorted(held, key=_name))
        names = [one.name for one in held]
    types = [one.type for one in held]
    binaries: list[Binary] = []
    if _BINARY in types:
        columns, values = _split_columns(node, held, binaries)
    else:
        counts = tuple([len(one.values) + 1 if one.is_multiple else 0 for one in held])
        columns = ShapeColumns(node.primary_type, _mixins(node), tuple(names), tuple(types), counts)
        values = [value for one in held for value in one.values]
    body = tree_pb2.NodeBody(shape=encode_shape(columns), value=values)  # type: ignore[arg-type]  # texts only
    if node.child_order is not None:
        body.order.name.extend(node.child_order)
        body.order.SetInParent()
    return body, binaries


def binaries_of(node: Node) -> list[Binary]:
    """All binaries of a node, in the order of its body."""
    held = sorted([one for one in node.properties if one.type is _BINARY], key=_name)
    return [value for one in held for value in one.values if isinstance(value, Binary)]


def put_binaries(body: tree_pb2.NodeBody, binaries: Sequence[Binary], data: Sequence[bytes | None]) -> None:
    """Put the binaries' data into the body; where it is None, digest and length instead."""
    body.ClearField("binaries")
    body.binaries.value.extend(
        [binary.digest if one is None else one for binary, one in zip(binaries, data, strict=True)]
    )
    if None in data:
        lengths = [binary.length_bytes + 1 if one is None else 0 for binary, one in zip(binaries, data, strict=True)]
        body.binaries.length.extend(lengths)


def _split_columns(node: Node, held: Sequence[Property], binaries: list[Binary]) -> tuple[ShapeColumns, list[object]]:
    texts = [one for one in held if one.type is not _BINARY]
    carried = [one for one in held if one.type is _BINARY]
    binaries += [value for one in carried for value in one.values if isinstance(value, Binary)]
    columns = ShapeColumns(
        node.primary_type,
        _mixins(node),
        tuple([one.name for one in texts]),
        tuple([one.type for one in texts]),
        _counts(texts),
        tuple([one.name for one in carried]),
        _counts(carried),
    )
    return columns, [value for one in texts for value in one.values]


def _counts(held: Sequence[Property]) -> tuple[int, ...]:
    return tuple([len(one.values) + 1 if one.is_multiple else 0 for one in held])


def _mixins(node: Node) -> tuple[str, ...]:
    return tuple(sorted(node.mixin_types)) if len(node.mixin_types) > 1 else node.mixin_types


# ---------------------------------------------------------------------------------------------- decoding and checking


def check_body(path: NodePath, body: tree_pb2.NodeBody) -> Shape:
    """Check that a parsed body is one that `encode_node` could have made. Raises: PackageCorruptError."""
    try:
        shape = shape_of(body.shape)
    except PackageCorruptError as error:
        raise PackageCorruptError(error.message, path=path) from error
    if len(body.value) != shape.value_count:
        raise PackageCorruptError(f"a node has {len(body.value)} values for {shape.value_count}", path=path)
    if shape.typed:
        _check_values(path, shape, body.value[:])
    if shape.binary_count or body.HasField("binaries"):
        _check_binaries(path, shape, body)
    if body.HasField("order"):
        _check_order(path, body.order.name[:])
    return shape


def binaries_outside(body: tree_pb2.NodeBody, open_binary: OpenBinary | None) -> tuple[Binary, ...]:
    """The binaries of a checked body that it names by digest."""
    if not body.HasField("binaries") or not len(body.binaries.length):
        return ()
    return tuple(one for one in _binary_values(body, open_binary) if one.data is None)


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
            if canonical_value(kind, value) != value:
                raise PackageCorruptError(
                    f"{value[:80]!r} of property {name!r} is not the canonical form of a {kind.name}", path=path
                )


def _check_binaries(path: NodePath, shape: Shape, body: tree_pb2.NodeBody) -> None:
    if not body.HasField("binaries") or shape.binary_count == 0:
        raise PackageCorruptError("a node's binaries are not those that its shape says", path=path)
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
