"""Types, names and value counts that nodes share, as protobuf `NodeShape`.

Most nodes of a tree have one of a few shapes. So a shape is checked when it is first seen and known by its bytes
afterwards (a bounded number of small ones is remembered), which leaves little to check of each node. In canonical form
only; see `docs/formats/tree.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from mailboat.errors import PackageCorruptError
from mailboat.model.nodes import PropertyType
from mailboat.wire._generated import tree_pb2 as pb
from mailboat.wire.frames import framed

MAX_NAME_LENGTH: Final = 1024
"""Characters of a property's or a type's name."""

_REMEMBERED: Final = 1024
_MAX_REMEMBERED_BYTES: Final = 2048
_MAX_REMEMBERED_NAMES: Final = 64
_STRING: Final = PropertyType.STRING.value
_TYPES: Final = tuple(PropertyType)
_KEPT_ELSEWHERE: Final = frozenset({"jcr:primaryType", "jcr:mixinTypes"})


class Slot(NamedTuple):
    """A property, and where its values lie among those of the node."""

    name: str
    type: PropertyType
    is_multiple: bool
    start: int
    end: int


class Shape(NamedTuple):
    """A checked shape.

    Attributes:
        primary_type: See `Node`.
        mixin_types: See `Node`.
        texts: The properties that are not binaries.
        value_count: How many values they have together.
        typed: Those of them that are not of type STRING, so that their values have to be checked.
        binaries: The binary properties.
        binary_count: How many values they have together.
    """

    primary_type: str
    mixin_types: tuple[str, ...]
    texts: tuple[Slot, ...]
    value_count: int
    typed: tuple[Slot, ...]
    binaries: tuple[Slot, ...]
    binary_count: int


class Columns(NamedTuple):
    """Properties of a node, by column: names sorted, and for each a type and a count (0 single, n+1 multiple).

    Types are numbers and an empty tuple of counts means that all are single: so the columns are quick to compare.
    """

    names: tuple[str, ...] = ()
    types: bytes = b""
    counts: tuple[int, ...] = ()


NO_COLUMNS: Final = Columns()


def encode_shape(primary_type: str, mixin_types: tuple[str, ...], texts: Columns, binaries: Columns) -> bytes:
    """A shape as the first field of a body, in canonical form."""
    if len(texts[0]) + len(binaries[0]) > _MAX_REMEMBERED_NAMES:
        return _encode_shape(primary_type, mixin_types, texts, binaries)
    return _remembered_encoding(primary_type, mixin_types, texts, binaries)


def encode_plain_shape(primary_type: str, mixin_types: tuple[str, ...], names: tuple[str, ...]) -> bytes:
    """The same where all properties are single texts."""
    if len(names) > _MAX_REMEMBERED_NAMES:
        return _encode_plain_shape(primary_type, mixin_types, names)
    return _remembered_plain_encoding(primary_type, mixin_types, names)


def _encode_plain_shape(primary_type: str, mixin_types: tuple[str, ...], names: tuple[str, ...]) -> bytes:
    return _encode_shape(primary_type, mixin_types, Columns(names, bytes([_STRING]) * len(names)), NO_COLUMNS)


def _encode_shape(primary_type: str, mixin_types: tuple[str, ...], texts: Columns, binaries: Columns) -> bytes:
    names, types, counts = texts
    shape = pb.NodeShape(
        primary_type=primary_type,
        mixin=mixin_types,
        property=names,
        property_type=None if types.count(_STRING) == len(types) else list(types),
        property_count=counts,
        binary=binaries[0],
        binary_count=binaries[2],
    )
    return framed(b"\x0a", shape.SerializeToString())


_remembered_plain_encoding: Final = lru_cache(_REMEMBERED)(_encode_plain_shape)
_remembered_encoding: Final = lru_cache(_REMEMBERED)(_encode_shape)


def shape_of(encoded: bytes) -> Shape:
    """The shape that these bytes are. Raises: PackageCorruptError, when it is absent or not canonical."""
    return _remembered_shape(encoded) if len(encoded) <= _MAX_REMEMBERED_BYTES else _parse_shape(encoded)


def _parse_shape(encoded: bytes) -> Shape:
    try:
        shape = pb.NodeShape.FromString(encoded)
    except DecodeError as error:
        raise PackageCorruptError(f"a node's shape is not valid: {error}") from error
    shape.DiscardUnknownFields()
    if shape.SerializeToString() != encoded:
        raise PackageCorruptError("a node's shape has unknown fields or an unknown form")
    names, binaries = tuple(shape.property), tuple(shape.binary)
    _check_names([shape.primary_type, *shape.mixin, *names, *binaries])
    for column in (tuple(shape.mixin), names, binaries):
        if list(column) != sorted(set(column)):
            raise PackageCorruptError("names of a node are duplicated or not sorted")
    if not _KEPT_ELSEWHERE.union(binaries).isdisjoint(names) or not _KEPT_ELSEWHERE.isdisjoint(binaries):
        raise PackageCorruptError("a property is both text and binary, or an external binary")
    types = _checked_types(names, tuple(shape.property_type))
    texts = _slots(names, types, shape.property_count)
    carried = _slots(binaries, [PropertyType.BINARY] * len(binaries), shape.binary_count)
    return Shape(
        shape.primary_type,
        tuple(shape.mixin),
        texts,
        texts[-1].end if texts else 0,
        tuple(slot for slot in texts if slot.type is not PropertyType.STRING),
        carried,
        carried[-1].end if carried else 0,
    )


_remembered_shape: Final = lru_cache(_REMEMBERED)(_parse_shape)


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if (
            not name
            or len(name) > MAX_NAME_LENGTH
            or "/" in name
            or any(character < " " or character == "\x7f" for character in name)
        ):
            raise PackageCorruptError(f"{name[:80]!r} is not a name of a type or property")


def _checked_types(names: Sequence[str], types: Sequence[int]) -> Sequence[PropertyType]:
    if not types:
        return (PropertyType.STRING,) * len(names)
    if len(types) != len(names) or types.count(_STRING) == len(types):
        raise PackageCorruptError("the types of a node's properties are not one for each")
    for name, kind in zip(names, types, strict=True):
        if not 1 <= kind <= len(_TYPES) or kind == PropertyType.BINARY:
            raise PackageCorruptError(f"property {name!r} has the unknown type {kind}")
    return [_TYPES[kind - 1] for kind in types]


def _slots(names: Sequence[str], types: Sequence[PropertyType], given: Iterable[int]) -> tuple[Slot, ...]:
    counts = tuple(given) or (0,) * len(names)
    if len(counts) != len(names) or (given and not any(counts)) or any(count < 0 for count in counts):
        raise PackageCorruptError("the counts of a node's values are not one for each property")
    slots = []
    start = 0
    for name, kind, count in zip(names, types, counts, strict=True):
        end = start + (count - 1 if count else 1)
        slots.append(Slot(name, kind, count > 0, start, end))
        start = end
    return tuple(slots)
