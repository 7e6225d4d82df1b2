"""Nodes as protobuf `NodeBody`, in canonical form.

Canonical: mixins, properties and binaries sorted by name, values in the form of `model/values.py`, columns left out
where they say nothing; so equal nodes have equal bytes as long as the same binaries are inline. What is decoded is
hostile until it is checked, and it is refused unless it is canonical: what was accepted can always be decoded, and its
digest can be taken from its bytes. `docs/formats/tree.md` specifies it for others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, lt
from typing import BinaryIO, Final

from google.protobuf.message import DecodeError

from mailboat.errors import PackageCorruptError
from mailboat.model.nodes import Binary, Node, NodeRecord, Property, PropertyType
from mailboat.model.paths import NodePath, reason_against_name
from mailboat.model.values import canonical_value
from mailboat.wire._generated import tree_pb2

DIGEST_BYTES: Final = 32
MAX_NAME_LENGTH: Final = 1024
"""Characters of a property's or a type's name."""

OpenBinary = Callable[[bytes], BinaryIO]
"""Opens the content that has the given digest."""

_STRING: Final = PropertyType.STRING.value
_BINARY: Final = PropertyType.BINARY.value
_TYPES: Final = tuple(PropertyType)
_KEPT_ELSEWHERE: Final = ("jcr:primaryType", "jcr:mixinTypes")
_name: Final = attrgetter("name")


def encode_node(node: Node) -> NodeRecord:
    """Encode a node; the binaries that are not inline are named by digest and handed along."""
    body = build_body(node)
    binaries = binaries_of(node)
    if not binaries:
        return NodeRecord(node.path, body.SerializeToString())
    inline_binaries(body, {index: one.data for index, one in enumerate(binaries) if one.data is not None})
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
    check_body(path, message)
    properties = [*_decode_texts(message), *_decode_binaries(message, open_binary)]
    if len(message.binary):
        properties.sort(key=_name)
    order = tuple(message.child_order) if message.is_ordered else None
    return Node(path, message.primary_type, tuple(message.mixin), tuple(properties), order)


def body_digest(path: NodePath, body: bytes) -> bytes:
    """The node's digest, 32 bytes: SHA-256 of the body in which every binary is named. The body must be canonical."""
    if b"\x4a" not in body:  # the tag byte of `binary_value`: surely no binary
        return hashlib.sha256(body).digest()
    message = _parse_body(path, body)
    if len(message.binary_value):
        _name_binaries(message)
        body = message.SerializeToString()
    return hashlib.sha256(body).digest()


# ------------------------------------------------------------------------------------------------- parts of encoding


def build_body(node: Node) -> tree_pb2.NodeBody:
    """The node's body in which every binary is named by digest."""
    held = sorted(node.properties, key=_name)
    texts = [one for one in held if one.type != _BINARY]
    values = [value for one in texts for value in one.values]
    body = tree_pb2.NodeBody(
        primary_type=node.primary_type,
        mixin=sorted(node.mixin_types) if node.mixin_types else None,
        property=[one.name for one in texts],
        value=values,  # type: ignore[arg-type]  # only binary properties hold anything but texts
    )
    types = [one.type for one in texts]
    if types.count(PropertyType.STRING) != len(types):
        body.property_type.extend(types)
    counts = _counts(texts)
    if counts:
        body.property_count.extend(counts)
    if len(texts) != len(held):
        _add_binaries(body, [one for one in held if one.type == _BINARY])
    if node.child_order is not None:
        body.is_ordered = True
        body.child_order.extend(node.child_order)
    return body


def binaries_of(node: Node) -> list[Binary]:
    """All binaries of a node, in the order of its body."""
    held = [one for one in node.properties if one.type == _BINARY]
    held.sort(key=_name)
    return [value for one in held for value in one.values if isinstance(value, Binary)]


def inline_binaries(body: tree_pb2.NodeBody, data: dict[int, bytes]) -> None:
    """Put data in the place of digests, by index."""
    for index, one in data.items():
        body.binary_value[index] = one
        body.binary_length[index] = 0
    if len(data) == len(body.binary_length):
        del body.binary_length[:]


def _counts(held: Sequence[Property]) -> list[int]:
    counts = [len(one.values) + 1 if one.is_multiple else 0 for one in held]
    return counts if any(counts) else []


def _add_binaries(body: tree_pb2.NodeBody, held: Sequence[Property]) -> None:
    values = [value for one in held for value in one.values if isinstance(value, Binary)]
    body.binary.extend([one.name for one in held])
    body.binary_count.extend(_counts(held))
    body.binary_value.extend([one.digest for one in values])
    body.binary_length.extend([one.length_bytes + 1 for one in values])


def _name_binaries(body: tree_pb2.NodeBody) -> None:
    lengths = body.binary_length[:] or [0] * len(body.binary_value)
    values = body.binary_value[:]
    for index, (value, length) in enumerate(zip(values, lengths, strict=True)):
        if length == 0:
            values[index] = hashlib.sha256(value).digest()
            lengths[index] = len(value) + 1
    body.binary_value[:] = values
    body.binary_length[:] = lengths


# ------------------------------------------------------------------------------------------------- parts of decoding


def binaries_outside(body: tree_pb2.NodeBody, open_binary: OpenBinary | None) -> tuple[Binary, ...]:
    """The binaries of a checked body that it names by digest."""
    if not len(body.binary_length):
        return ()
    return tuple(one for one in _binary_values(body, open_binary) if one.data is None)


def _parse_body(path: NodePath, body: bytes) -> tree_pb2.NodeBody:
    try:
        return tree_pb2.NodeBody.FromString(body)
    except DecodeError as error:
        raise PackageCorruptError(f"a node's body is not valid protobuf: {error}", path=path) from error


def _decode_texts(body: tree_pb2.NodeBody) -> Iterator[Property]:
    names, values = body.property, body.value
    if not len(body.property_type) and not len(body.property_count):
        for name, value in zip(names, values, strict=True):
            yield Property(name, (value,))
        return
    types = body.property_type or (_STRING,) * len(names)
    counts = body.property_count or (0,) * len(names)
    start = 0
    for name, kind, count in zip(names, types, counts, strict=True):
        end = start + (count - 1 if count else 1)
        yield Property(name, tuple(values[start:end]), _TYPES[kind - 1], count > 0)
        start = end


def _decode_binaries(body: tree_pb2.NodeBody, open_binary: OpenBinary | None) -> Iterator[Property]:
    values = tuple(_binary_values(body, open_binary))
    counts = body.binary_count or (0,) * len(body.binary)
    start = 0
    for name, count in zip(body.binary, counts, strict=True):
        end = start + (count - 1 if count else 1)
        yield Property(name, values[start:end], PropertyType.BINARY, count > 0)
        start = end


def _binary_values(body: tree_pb2.NodeBody, open_binary: OpenBinary | None) -> Iterator[Binary]:
    lengths = body.binary_length or (0,) * len(body.binary_value)
    for value, length in zip(body.binary_value, lengths, strict=True):
        if length == 0:
            yield Binary(value)
        else:
            opener = None if open_binary is None else _opener(open_binary, value)
            yield Binary(digest=value, length_bytes=length - 1, opener=opener)


def _opener(open_binary: OpenBinary, digest: bytes) -> Callable[[], BinaryIO]:
    return lambda: open_binary(digest)


# ---------------------------------------------------------------------------------------------------------- checking


def check_body(path: NodePath, body: tree_pb2.NodeBody) -> None:
    """Check that a parsed body is one that `build_body` could have made. Raises: PackageCorruptError.

    The common case, a few properties with plain names, is decided by a handful of calls, whatever their number.
    """
    primary, names, binaries = body.primary_type, body.property[:], body.binary[:]
    mixins = body.mixin[:] if len(body.mixin) else []
    together = "".join([primary, *mixins, *names, *binaries])
    is_plain = (
        len(together) <= MAX_NAME_LENGTH
        and together.isprintable()
        and "/" not in together
        and "" not in (primary, *mixins[:1], *names[:1], *binaries[:1])
    )
    if not is_plain:
        _check_names(path, [primary, *mixins, *names, *binaries])
    for column in (mixins, names, binaries):
        if len(column) > 1 and not all(map(lt, column, column[1:])):
            raise PackageCorruptError("names of a node stand twice or are not sorted", path=path)
    for name in _KEPT_ELSEWHERE:
        if name in together and (name in names or name in binaries):
            raise PackageCorruptError(f"{name} stands among the properties", path=path)
    if len(body.property_type) or len(body.property_count) or len(body.value) != len(names):
        _check_texts(path, body, names)
    if binaries or len(body.binary_value) or len(body.binary_count) or len(body.binary_length):
        _check_binaries(path, body, names, binaries)
    if len(body.child_order) or body.HasField("is_ordered"):
        _check_order(path, body)


def _check_names(path: NodePath, names: list[str]) -> None:
    for name in names:
        if not name or len(name) > MAX_NAME_LENGTH or "/" in name or any(one < " " or one == "\x7f" for one in name):
            raise PackageCorruptError(f"{name[:80]!r} is not a name of a type or property", path=path)


def _check_texts(path: NodePath, body: tree_pb2.NodeBody, names: list[str]) -> None:
    types, values = body.property_type[:], body.value[:]
    counts = _checked_counts(path, names, body.property_count[:], len(values))
    if not types:
        return
    if len(types) != len(names) or types.count(_STRING) == len(types):
        raise PackageCorruptError("the types of a node's properties are not one for each", path=path)
    start = 0
    for name, kind, count in zip(names, types, counts, strict=True):
        end = start + (count - 1 if count else 1)
        if kind != _STRING:
            _check_type(path, name, kind, values[start:end])
        start = end


def _checked_counts(path: NodePath, names: list[str], counts: list[int], available: int) -> Sequence[int]:
    if not counts:
        if available != len(names):
            raise PackageCorruptError(f"{len(names)} single properties have {available} values", path=path)
        return (0,) * len(names)
    if len(counts) != len(names) or min(counts) < 0 or not any(counts):
        raise PackageCorruptError("the counts of a node's values are not one for each property", path=path)
    if sum(count - 1 if count else 1 for count in counts) != available:
        raise PackageCorruptError(f"the counts of a node's values do not add up to {available}", path=path)
    return counts


def _check_type(path: NodePath, name: str, kind: int, values: list[str]) -> None:
    if not 1 <= kind <= len(_TYPES) or kind == _BINARY:
        raise PackageCorruptError(f"property {name!r} has the unknown type {kind}", path=path)
    known = _TYPES[kind - 1]
    for value in values:
        if canonical_value(known, value) != value:
            raise PackageCorruptError(
                f"{value[:80]!r} of property {name!r} is not the canonical form of a {known.name}", path=path
            )


def _check_binaries(path: NodePath, body: tree_pb2.NodeBody, names: list[str], binaries: list[str]) -> None:
    values, lengths = body.binary_value, body.binary_length[:]
    _checked_counts(path, binaries, body.binary_count[:], len(values))
    if not set(binaries).isdisjoint(names):
        raise PackageCorruptError("a property is both a text and a binary", path=path)
    if not lengths:
        return
    if len(lengths) != len(values) or min(lengths) < 0 or not any(lengths):
        raise PackageCorruptError("the lengths of a node's binaries are not one for each", path=path)
    for value, length in zip(values, lengths, strict=True):
        if length and len(value) != DIGEST_BYTES:
            raise PackageCorruptError(f"a binary is named by {len(value)} bytes instead of a SHA-256", path=path)


def _check_order(path: NodePath, body: tree_pb2.NodeBody) -> None:
    if not body.is_ordered:
        raise PackageCorruptError("an order of children is given for a node that has none", path=path)
    order = body.child_order[:]
    if len(set(order)) != len(order):
        raise PackageCorruptError("the order of children names one twice", path=path)
    for name in order:
        reason = reason_against_name(name) or ("it has a slash" if "/" in name else None)
        if reason is not None:
            raise PackageCorruptError(f"the order of children is wrong: {reason}", path=path)
