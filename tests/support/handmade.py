"""Protobuf written by hand, from field numbers alone: a schema that is wrong can't agree with itself here.

Used by the tests of messages and of the `tree` format, and by its documented example.
"""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Base 128, low groups first; negative numbers as 64 bits of two's complement."""
    number &= (1 << 64) - 1
    groups = []
    while True:
        number, group = number >> 7, number & 0x7F
        groups.append(group | (0x80 if number else 0))
        if not number:
            return bytes(groups)


def number(field: int, value: int) -> bytes:
    """A field of wire type 0."""
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes) -> bytes:
    """A field of wire type 2."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A string."""
    return data(field, value.encode())


def packed(field: int, *values: int) -> bytes:
    """A packed column of numbers."""
    return data(field, b"".join(map(varint, values)))


def fields_of(value: bytes) -> list[tuple[int, bytes]]:
    """The fields of a message with their bytes, for messages of wire types 0 and 2."""
    fields = []
    at = 0
    while at < len(value):
        start = at
        key, at = _take(value, at)
        length, at = _take(value, at)
        at += length if key & 7 == 2 else 0
        fields.append((key >> 3, value[start:at]))
    return fields


def _take(value: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = value[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return result, at
