"""Protobuf's framing, written by hand where building a message would cost more than its bytes."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """A number that is not negative, as protobuf writes it."""
    if number < 0x80:
        return b"%c" % number
    if number < 0x4000:
        return b"%c%c" % (number & 0x7F | 0x80, number >> 7)
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def framed(tag: bytes, content: bytes) -> bytes:
    """A field of bytes: its tag, the length, the content."""
    length = len(content)
    if length < 0x80:
        return b"%b%c%b" % (tag, length, content)
    if length < 0x4000:
        return b"%b%c%c%b" % (tag, length & 0x7F | 0x80, length >> 7, content)
    return b"%b%b%b" % (tag, varint(length), content)
