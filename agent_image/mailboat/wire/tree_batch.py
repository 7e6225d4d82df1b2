"""Parses several small `tree` packages in one call, by column, for subscribers that import a batch.

Protobuf parses the packages twice: as what they are, which proves the form of all of it, and with bodies left as bytes,
so that no object is made for what is only stored. It gives no reasons: after None the caller reads the packages one by
one, and gets the error of the invalid one. Used by `packages/tree.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from google.protobuf.message import DecodeError

from mailboat.errors import PackageCorruptError
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.paths import NodePath
from mailboat.wire._generated import tree_pb2 as pb
from mailboat.wire.frames import framed
from mailboat.wire.node_bodies import DIGEST_BYTES, check_body
from mailboat.wire.shapes import shape_of
from mailboat.wire.tree_records import NAMED_VERSION, SHORT_ROOT_BYTES, take_namespaces

MAX_NODES: Final = 16
"""Of one package."""
MAX_BODY_BYTES: Final = 16 * 1024 - 1
"""A larger body is checked as a message; below it no length takes more than two bytes."""

_AT_ONCE: Final = 32  # more leave the processor's caches
_TRAILER_STARTS: Final = tuple(b"\x08%c\x12\x20" % count for count in range(MAX_NODES + 1))
_NAMED_VERSION: Final = b"\x08%c" % NAMED_VERSION
_SHAPE_TAG: Final = 0x0A
_VALUE_TAG: Final = 0x12
_MAX_SHAPE_BYTES: Final = 2048
_REMEMBERED: Final = 1024
_NOT_PLAIN: Final = -1

OpaqueNode = pb.OpaqueNode
OpaquePackage = pb.OpaquePackage


def parse_packages(payloads: Sequence[bytes]) -> list[OpaquePackage] | None:
    """The packages, their bodies as bytes; None unless each has the bytes that its records have in order."""
    parsed: list[OpaquePackage] = []
    for begin in range(0, len(payloads), _AT_ONCE):
        some = _parse_some(payloads[begin : begin + _AT_ONCE])
        if some is None:
            return None
        parsed += some
    return parsed


def _parse_some(payloads: Sequence[bytes]) -> Sequence[OpaquePackage] | None:
    together = b"".join([framed(b"\x0a", payload) for payload in payloads])
    try:
        packages = pb.TreePackages.FromString(together)
    except DecodeError:
        return None
    # Equal bytes prove the form of the whole batch: another order of fields, or an unknown one, makes them differ.
    packages.DiscardUnknownFields()
    if packages.SerializeToString() != together:
        return None
    return pb.OpaquePackages.FromString(together).package


def is_count_right(package: OpaquePackage, count: int) -> bool:
    """Whether a package of so many nodes says so in its trailer, has not many of them, no pieces and no inner nodes."""
    if count > MAX_NODES or package.HasField("piece") or package.HasField("inner_node"):
        return False
    return package.trailer[:-DIGEST_BYTES] == _TRAILER_STARTS[count]


def ancestors_in_header(header: bytes, root: str) -> bytes | None:
    """The nodes above the root as the header of a parsed package has them; None unless that owns just this subtree."""
    encoded = root.encode()
    size = len(encoded)
    if size > SHORT_ROOT_BYTES:
        return None
    start = b"\x08\x01\x12%c\x0a%c%b" % (size + 2, size, encoded)
    if header == start:
        return b""
    if header.startswith(_NAMED_VERSION):
        start = _NAMED_VERSION + start[len(_NAMED_VERSION) :]
    ancestors = header[len(start) :]
    return ancestors if header.startswith(start) and not ancestors.startswith(b"\x12") else None


def namespaces_of(payload: bytes) -> NamespaceTable:
    """The namespaces of a parsed package that has any. Raises: PackageCorruptError, LimitExceededError."""
    return take_namespaces(pb.TreePackage.FromString(payload))


def are_bodies_right(paths: Sequence[NodePath], bodies: Sequence[bytes]) -> bool:
    """Whether all bodies of parsed packages are ones that `encode_node` could have made and name no binary by digest.

    As protobuf has proven their form, nodes that hold texts only need no more than a count of their values.
    """
    return all(_is_right(paths[index], bodies[index]) for index in _not_plain(bodies))


def _not_plain(bodies: Sequence[bytes]) -> Iterator[int]:
    """The places of bodies that are more than a known shape and as many texts: the hot path."""
    for index, body in enumerate(bodies):
        size = len(body)
        if not 3 < size <= MAX_BODY_BYTES or body[0] != _SHAPE_TAG:
            yield index
            continue
        begin = 2 if body[1] < 0x80 else 3
        at = body[1] + 2 if begin == 2 else (body[1] & 0x7F | body[2] << 7) + 3
        count = _plain_count(body[begin:at])
        while at < size and body[at] == _VALUE_TAG:
            length = body[at + 1]
            at += length + 2 if length < 0x80 else (length & 0x7F | body[at + 2] << 7) + 3
            count -= 1
        if count or at != size:
            yield index


def _is_right(path: NodePath, body: bytes) -> bool:
    message = pb.NodeBody.FromString(body)
    try:
        check_body(path, message)
    except PackageCorruptError:
        return False
    return not len(message.binaries.length)


def _count_of(encoded: bytes) -> int:
    if len(encoded) > _MAX_SHAPE_BYTES:
        return _NOT_PLAIN
    try:
        shape = shape_of(encoded)
    except PackageCorruptError:
        return _NOT_PLAIN
    return _NOT_PLAIN if shape.typed or shape.binary_count else shape.value_count


_plain_count: Final = lru_cache(_REMEMBERED)(_count_of)
