"""Package messages of the plainest kind, taken out of their bytes by the few fields that importing them needs.

Most of a backlog is such messages: a package of one subtree, inline, with a digest, that needs nothing besides. All
rules of `decode_package` are asked of them, but no record of all nineteen fields is made. It gives no reasons: whoever
gets None decodes the message, and is told what is wrong with it, or what more it has. Used by
`subscriber/package_runs.py`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from mailboat.errors import MessageCorruptError
from mailboat.wire._generated import messages_pb2 as pb
from mailboat.wire.bulk import decode_bulk
from mailboat.wire.nodes import DIGEST_BYTES
from mailboat.wire.parsing import MAX_MS

_from_string: Final = pb.PackageMessage.FromString
_ADD: Final = pb.PackageMessage.ADD  # each look-up in the message costs as much as the parsing of a field


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
    """The package of a message; None where that is of another kind, or `decode_package` refuses it but for its path."""
    try:
        wire = _from_string(value)
    except DecodeError:
        return None
    digest, paths = wire.package_digest, wire.paths[:]
    if (
        len(digest) != DIGEST_BYTES
        or len(paths) != 1
        or wire.req_type != _ADD
        or len(wire.blobs)
        or len(wire.required_features)
        or wire.deep_paths[:] != paths
        or wire.pkg_length < 0
        or not 0 <= wire.created_ms <= MAX_MS
        or len(wire.tree_digest) not in {0, DIGEST_BYTES}
        or not wire.IsInitialized()
        or not wire.HasField("pkg_binary")
        or (wire.HasField("bulk") and not _is_part(wire.bulk))
    ):
        return None
    fields = (paths[0], wire.pkg_binary, digest, wire.pkg_type, wire.pub_agent_name)
    return tuple.__new__(PlainPackage, fields)


def _is_part(wire: pb.BulkPart) -> bool:
    try:
        decode_bulk(wire)
    except MessageCorruptError:
        return False
    return True
