"""Record headers as one byte string, for adapters that store them in a column.

Form: for each header its name and its value, each as a 32-bit big-endian length and the bytes (names in UTF-8). No
headers are no bytes. A topic's records mostly have the same few headers, so both directions remember what they saw.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from mailboat.errors import MessageCorruptError
from mailboat.journal.port import Headers

_LENGTH: Final = struct.Struct(">I")
_K = TypeVar("_K")
_V = TypeVar("_V")

_REMEMBERED: Final = 256  # more means that a writer puts a new value into every record


class HeaderCodec:
    """Encodes and decodes headers. Threads may share one: each step is one operation on a dictionary."""

    __slots__ = ("_decoded", "_encoded")

    def __init__(self) -> None:
        """Remember nothing yet but that no headers are no bytes."""
        self._encoded: dict[Headers, bytes] = {}
        self._decoded: dict[bytes, Headers] = {}

    def encode(self, headers: Headers) -> bytes:
        """The bytes of some headers."""
        known = self._encoded.get(headers)
        if known is None:
            known = encode_headers(headers)
            _remember(self._encoded, headers, known)
        return known

    def decode(self, data: bytes) -> Headers:
        """The headers that some bytes stand for. Raises: MessageCorruptError."""
        known = self._decoded.get(data)
        if known is None:
            known = decode_headers(data)
            _remember(self._decoded, data, known)
        return known


def encode_headers(headers: Headers) -> bytes:
    """The bytes of some headers."""
    parts: list[bytes] = []
    for name, value in headers:
        for part in (name.encode(), value):
            parts += (_LENGTH.pack(len(part)), part)
    return b"".join(parts)


def decode_headers(data: bytes) -> Headers:
    """The headers that some bytes stand for. Raises: MessageCorruptError."""
    parts: list[bytes] = []
    position = 0
    while position < len(data):
        if position + _LENGTH.size > len(data):
            raise MessageCorruptError(f"record headers end within a length, at byte {position}")
        begin = position + _LENGTH.size
        position = begin + _LENGTH.unpack_from(data, position)[0]
        if position > len(data):
            raise MessageCorruptError(f"record headers promise {position - len(data)} bytes more than there are")
        parts.append(data[begin:position])
    if len(parts) % 2:
        raise MessageCorruptError("record headers end with a name that has no value")
    try:
        return tuple((name.decode(), value) for name, value in zip(parts[::2], parts[1::2], strict=True))
    except UnicodeDecodeError as error:
        raise MessageCorruptError("the name of a record header is not UTF-8") from error


def _remember(known: dict[_K, _V], key: _K, value: _V) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[key] = value
