"""Nodes as protobuf `NodeBody`, in canonical form.

Canonical: mixins, properties and binaries sorted by name, default values left out, so equal nodes have equal bytes as
long as the same binaries are inline. What is decoded is checked: names, types and lexical forms are hostile until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import BinaryIO

from google.protobuf.message import DecodeError

from mailboat.errors import PackageCorruptError
from mailboat.model.nodes import Binary, Node, NodeRecord, Property, PropertyType
from mailboat.model.paths import NodePath
from mailboat.model.values import canonical_value
from mailboat.wire._generated import tree_pb2

DIGEST_BYTES = 32

OpenBinary = Callable[[bytes], BinaryIO]
"""Opens the content that has the given digest."""


def encode_node(node: Node) -> NodeRecord:
    """Encode a node; the binaries that are not inline are named by digest and handed along."""
    body = tree_pb2.NodeBody(primary_type=node.primary_type, mixin=sorted(node.mixin_types))
    outside: list[Binary] = []
    for one in sorted(node.properties, key=_name):
        if one.type is PropertyType.BINARY:
            values = [value for value in one.values if isinstance(value, Binary)]
            body.binary.add(name=one.name, is_multiple=one.is_multiple or None, value=map(_binary_value, values))
            outside += [value for value in values if value.data is None]
        else:
            kind = None if one.type is PropertyType.STRING else one.type.value
            texts = [str(value) for value in one.values]
            body.property.add(name=one.name, type=kind, is_multiple=one.is_multiple or None, value=texts)
    if node.child_order is not None:
        body.is_ordered = True
        body.child_order.extend(node.child_order)
    return NodeRecord(node.path, body.SerializeToString(deterministic=True), tuple(outside))


def decode_node(path: NodePath, body: bytes, open_binary: OpenBinary | None = None) -> Node:
    """Decode and check a body.

    Args:
        path: The node's path, checked.
        body: Protobuf `NodeBody`.
        open_binary: How to open binaries that are named by digest; None leaves them without content.

    Raises:
        PackageCorruptError: When it is not a node body or breaks a rule of the model.
    """
    try:
        message = tree_pb2.NodeBody.FromString(body)
    except DecodeError as error:
        raise PackageCorruptError("a node's body is not valid protobuf", path=path) from error
    if not message.primary_type:
        raise PackageCorruptError("a node has no primary type", path=path)
    properties = [_decode_property(path, one) for one in message.property]
    properties += [
        Property(
            one.name,
            tuple(decode_binary(path, value, open_binary) for value in one.value),
            PropertyType.BINARY,
            one.is_multiple,
        )
        for one in message.binary
    ]
    properties.sort(key=_name)
    _check_properties(path, properties)
    order = tuple(message.child_order) if message.is_ordered else None
    return Node(path, message.primary_type, tuple(sorted(message.mixin)), tuple(properties), order)


def decode_binary(path: NodePath, value: tree_pb2.BinaryValue, open_binary: OpenBinary | None = None) -> Binary:
    """Decode one binary value. Raises: PackageCorruptError."""
    if value.HasField("data"):
        return Binary(value.data)
    digest, length = value.digest, value.length
    if len(digest) != DIGEST_BYTES or length < 0:
        raise PackageCorruptError("a binary has neither data nor a digest and a length", path=path)
    opener = None if open_binary is None else _opener(open_binary, digest)
    return Binary(digest=digest, length_bytes=length, opener=opener)


def binaries_outside(path: NodePath, body: tree_pb2.NodeBody, open_binary: OpenBinary | None) -> tuple[Binary, ...]:
    """The binaries of a parsed body that it names by digest. Raises: PackageCorruptError."""
    found = (decode_binary(path, value, open_binary) for one in body.binary for value in one.value)
    return tuple(binary for binary in found if binary.data is None)


def _opener(open_binary: OpenBinary, digest: bytes) -> Callable[[], BinaryIO]:
    return lambda: open_binary(digest)


def _binary_value(binary: Binary) -> tree_pb2.BinaryValue:
    if binary.data is not None:
        return tree_pb2.BinaryValue(data=binary.data)
    return tree_pb2.BinaryValue(digest=binary.digest, length=binary.length_bytes)


def _decode_property(path: NodePath, one: tree_pb2.Property) -> Property:
    try:
        kind = PropertyType(one.type or PropertyType.STRING)
    except ValueError as error:
        raise PackageCorruptError(f"property {one.name!r} has the unknown type {one.type}", path=path) from error
    if kind is PropertyType.BINARY:
        raise PackageCorruptError(f"property {one.name!r} is a binary among the texts", path=path)
    values = tuple(canonical_value(kind, text) for text in one.value)
    return Property(one.name, values, kind, one.is_multiple)


def _check_properties(path: NodePath, properties: Iterable[Property]) -> None:
    previous = ""
    for one in properties:
        if not one.name or "/" in one.name:
            raise PackageCorruptError(f"{one.name!r} is not a property name", path=path)
        if one.name == previous:
            raise PackageCorruptError(f"property {one.name!r} stands twice", path=path)
        if not one.is_multiple and len(one.values) != 1:
            raise PackageCorruptError(f"property {one.name!r} is single but has {len(one.values)} values", path=path)
        previous = one.name


def _name(one: Property) -> str:
    return one.name
