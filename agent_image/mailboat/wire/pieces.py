"""Pieces of packages as protobuf, both ways."""

from __future__ import annotations

from mailboat.errors import MessageCorruptError
from mailboat.model.identifiers import AgentName, PackageId, SlingId
from mailboat.model.pieces import PieceMessage
from mailboat.wire._generated import pieces_pb2 as pb
from mailboat.wire.framing import varint
from mailboat.wire.parsing import parse


def encode_piece(message: PieceMessage) -> bytes:
    """The value of the record that carries a piece."""
    head = pb.PieceMessage(
        pub_sling_id=message.pub_sling_id,
        pub_agent_name=message.pub_agent_name,
        pkg_id=message.package_id,
        index=message.index,
    )
    # the last field: copied once, and not in and out of a message
    return b"%b\x2a%b%b" % (head.SerializePartialToString(), varint(len(message.content)), message.content)


def decode_piece(value: bytes) -> PieceMessage:
    """Decode the value of such a record. Raises: MessageCorruptError."""
    wire = parse(pb.PieceMessage, value)
    if wire.index < 0 or not wire.content or not wire.pkg_id:
        raise MessageCorruptError(f"a piece with the number {wire.index} and {len(wire.content)} bytes can't be")
    return PieceMessage(
        SlingId(wire.pub_sling_id), AgentName(wire.pub_agent_name), PackageId(wire.pkg_id), wire.index, wire.content
    )
