"""Pieces of packages as protobuf, both ways."""

from __future__ import annotations

from typing import Final

from mailboat.errors import MessageCorruptError
from mailboat.model.identifiers import AgentName, PackageId, SlingId
from mailboat.model.pieces import PieceMessage
from mailboat.wire._generated import pieces_pb2 as pb
from mailboat.wire.frames import varint
from mailboat.wire.protobuf import name, parse

_TEXTS: Final = b"\x0a\x12\x1a"
_INDEX: Final = 0x20
_CONTENT: Final = 0x2A
_NO_CONTENT: Final = b"\x2a\x00"
_MOST_HEAD_BYTES: Final = 512


def encode_piece(message: PieceMessage) -> bytes:
    """The value of the record that carries a piece."""
    head = pb.PieceMessage(
        pub_sling_id=message.pub_sling_id,
        pub_agent_name=message.pub_agent_name,
        pkg_id=message.package_id,
        index=message.index,
    )
    # the last field: copied once, and not in and out of a message
    return b"".join([head.SerializePartialToString(), b"\x2a", varint(len(message.content)), message.content])


def decode_piece(value: bytes) -> PieceMessage:
    """Decode the value of such a record. Raises: MessageCorruptError."""
    places = _content_at(value)
    if places is None:
        wire = parse(pb.PieceMessage, value)
        content = wire.content
    else:  # copied once, and not in and out of a message
        wire = parse(pb.PieceMessage, value[: places[0]] + _NO_CONTENT)
        content = value[places[1] :]
    if wire.index < 0 or not content or not wire.pkg_id:
        raise MessageCorruptError(f"a piece with the number {wire.index} and {len(content)} bytes can't be")
    return PieceMessage(
        SlingId(name(wire.pub_sling_id)),
        AgentName(name(wire.pub_agent_name)),
        PackageId(name(wire.pkg_id)),
        wire.index,
        content,
    )


def _content_at(value: bytes) -> tuple[int, int] | None:
    """Where the content's field and the content begin, where it is the last field; None for any other form."""
    at = 0
    while at < min(len(value), _MOST_HEAD_BYTES):
        tag, begin = value[at], at
        number, at = _varint(value, at + 1)
        if number > len(value):
            return None
        if tag == _CONTENT:
            return (begin, at) if number == len(value) - at else None
        if tag in _TEXTS:
            at += number
        elif tag != _INDEX:
            return None
    return None


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """A number of up to 35 bits and where it ends; more than any length if absent."""
    number = 0
    for shift in range(0, 35, 7):
        if at == len(value):
            break
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    return len(value) + 1, at
