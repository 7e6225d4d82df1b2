"""Package messages as protobuf, both ways, with one check of what comes from others.

`decode_package` gives the whole record. Most of a backlog are messages of the plainest kind: a package of one subtree,
inline, with a digest, that needs nothing besides. `take_plain_package` takes from these the few fields that an import
needs, without a record of all nineteen. Both read a message by `_checked`, which has the rules for everything but the
paths; those of plain packages are checked for a whole run of them at once, by the same `parse_paths`.

What bounds the number of paths, blobs and features, and the length of texts, is the size that the topic allows a
record. Publishers of other programs have no lower limits. Views of many packages keep only a part of each
(`queues/entries.py`, `first_paths`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from mailboat.clock import LAST_MS
from mailboat.errors import MessageCorruptError, UsageError
from mailboat.model.identifiers import parse_build_id
from mailboat.model.messages import Action, BulkPart, PackageMessage
from mailboat.model.nodes import Binary
from mailboat.model.paths import parse_paths
from mailboat.wire._generated import messages_pb2 as pb
from mailboat.wire.node_bodies import DIGEST_BYTES
from mailboat.wire.protobuf import parse

_KEY: Final = pb.PackageMessage.BULK_FIELD_NUMBER << 3 | 2
_TAG: Final = (_KEY & 0x7F | 0x80, bytes([_KEY >> 7]))
"""What comes before the field in a message: a varint of two bytes."""


def may_be_part(value: bytes) -> bool:
    """Whether a message may be a package of a build: False is certain, and much faster than decoding it.

    One byte is looked for after the other, as Python finds a single one twenty times as fast as two together.
    """
    first, second = _TAG
    at = value.find(first)
    while at >= 0:
        if value[at + 1 : at + 2] == second:
            return True
        at = value.find(first, at + 1)
    return False


def encode_bulk(part: BulkPart) -> pb.BulkPart:
    """The field of a package message."""
    return pb.BulkPart(build_id=part.build_id, sequence=part.sequence, total=part.total)


def decode_bulk(wire: pb.BulkPart) -> BulkPart:
    """The place that a message gives. Raises: MessageCorruptError for one that can't be."""
    if not 0 <= wire.sequence < wire.total:
        raise MessageCorruptError(f"package {wire.sequence} of {wire.total} of a build can't be")
    try:
        return BulkPart(parse_build_id(wire.build_id), wire.sequence, wire.total)
    except UsageError as error:
        raise MessageCorruptError(error.message) from error


_REQ_TYPES: Final[Mapping[Action, pb.PackageMessage.ReqType.ValueType]] = MappingProxyType(
    {
        Action.ADD: pb.PackageMessage.ADD,
        Action.DELETE: pb.PackageMessage.DELETE,
        Action.TEST: pb.PackageMessage.TEST,
        # Sling's decoder refuses a message with an unknown reqType as a whole, and skips a TEST.
        Action.INVALIDATE: pb.PackageMessage.TEST,
    }
)
_ACTIONS: Final = (Action.ADD, Action.DELETE, Action.TEST)
_ADD: Final = pb.PackageMessage.ADD  # a look-up in the generated class costs as much as the parsing of a field
_DIGEST_LENGTHS: Final = frozenset({0, DIGEST_BYTES})


def encode_package(message: PackageMessage) -> bytes:
    """The value of a record on the package topic."""
    wire = pb.PackageMessage(
        pub_sling_id=message.pub_sling_id,
        pub_agent_name=message.pub_agent_name,
        pkg_id=message.package_id,
        req_type=_REQ_TYPES[message.action],
        pkg_length=message.package_length_bytes,
        pkg_binary=message.payload,
        paths=message.paths,
        deep_paths=message.deep_paths,
        pkg_binary_ref=message.payload_ref,
        pkg_type=message.package_type,
        user_id=message.user_id,
        request_id=message.request_id,
        package_digest=message.package_digest,
        tree_digest=message.tree_digest,
        created_ms=message.created_ms,
        trace_parent=message.trace_parent,
    )
    if message.binaries:
        wire.blobs.extend(
            [pb.BlobReference(digest=binary.digest, length=binary.length_bytes) for binary in message.binaries]
        )
    if message.required_features:
        wire.required_features.extend(message.required_features)
    if message.bulk is not None:
        wire.bulk.CopyFrom(encode_bulk(message.bulk))
    if message.action is Action.INVALIDATE:
        wire.action = pb.PackageMessage.INVALIDATE
    return wire.SerializeToString()


def decode_package(value: bytes) -> PackageMessage:
    """Decode the value of a record on the package topic.

    Raises:
        MessageCorruptError: The value is not a package message; a missing required field is named.
        PathRefusedError: It names a path that content can't have.
    """
    wire = _checked(value)
    action = _ACTIONS[wire.req_type]
    if action is Action.TEST and wire.action == pb.PackageMessage.INVALIDATE:
        action = Action.INVALIDATE
    payload = wire.pkg_binary
    paths, deep_paths = wire.paths[:], wire.deep_paths[:]
    checked = tuple(parse_paths(paths))
    fields = (
        wire.pub_sling_id,
        wire.pkg_id,
        action,
        wire.pkg_type,
        wire.pub_agent_name or None,
        wire.pkg_length,
        payload if payload or wire.HasField("pkg_binary") else None,
        wire.pkg_binary_ref or None,
        checked,
        checked if deep_paths == paths else tuple(parse_paths(deep_paths)),
        wire.user_id or None,
        wire.request_id or None,
        wire.package_digest or None,
        wire.tree_digest or None,
        wire.created_ms or None,
        tuple([Binary(digest=blob.digest, length_bytes=blob.length) for blob in wire.blobs]) if len(wire.blobs) else (),
        tuple(wire.required_features) if len(wire.required_features) else (),
        wire.trace_parent or None,
        decode_bulk(wire.bulk) if wire.HasField("bulk") else None,
    )
    # the constructor of a NamedTuple takes twice as long, and millions of these are made
    return tuple.__new__(PackageMessage, fields)


class PlainPackage(NamedTuple):
    """What is needed of one.

    Attributes:
        path: Its only path, deep; not checked yet.
        payload: The package.
        digest: SHA-256 that the payload should have.
        package_type: The format of the payload.
        pub_agent_name: Whose it is; empty where the message does not say.
    """

    path: str
    payload: bytes
    digest: bytes
    package_type: str
    pub_agent_name: str


def take_plain_package(value: bytes) -> PlainPackage | None:
    """The package of a plain message; None where it is of another kind, or `decode_package` refuses it.

    The path is not checked yet. Callers that get None decode the message, which says what is wrong with it.
    """
    try:
        wire = _checked(value)
    except MessageCorruptError:
        return None
    digest, paths = wire.package_digest, wire.paths[:]
    if (
        not digest
        or len(paths) != 1
        or wire.req_type != _ADD
        or len(wire.blobs)
        or len(wire.required_features)
        or wire.deep_paths[:] != paths
        or not wire.HasField("pkg_binary")
    ):
        return None
    fields = (paths[0], wire.pkg_binary, digest, wire.pkg_type, wire.pub_agent_name)
    return tuple.__new__(PlainPackage, fields)


def _checked(value: bytes) -> pb.PackageMessage:
    """Parse a message and apply every rule but those for paths. Raises: MessageCorruptError."""
    wire = parse(pb.PackageMessage, value)
    if wire.pkg_length < 0 or not 0 <= wire.created_ms <= LAST_MS:
        raise MessageCorruptError(
            f"a PackageMessage of {wire.pkg_length} bytes, made at {wire.created_ms} ms, can't be"
        )
    if len(wire.package_digest) not in _DIGEST_LENGTHS or len(wire.tree_digest) not in _DIGEST_LENGTHS:
        length = len(wire.package_digest if len(wire.package_digest) not in _DIGEST_LENGTHS else wire.tree_digest)
        raise MessageCorruptError(f"a digest has {length} bytes instead of {DIGEST_BYTES}")
    if len(wire.blobs):
        _check_blobs(wire)
    if wire.HasField("bulk"):
        decode_bulk(wire.bulk)
    return wire


def _check_blobs(wire: pb.PackageMessage) -> None:
    for blob in wire.blobs:
        if blob.digest and len(blob.digest) != DIGEST_BYTES:
            raise MessageCorruptError(f"a digest has {len(blob.digest)} bytes instead of {DIGEST_BYTES}")
        if not blob.digest or blob.length < 0:
            raise MessageCorruptError(
                f"a blob reference has a digest of {len(blob.digest)} bytes, length {blob.length}"
            )
