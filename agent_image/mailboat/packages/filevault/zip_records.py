"""Records of the zip format: those at its end, their wide (zip64) forms, and the fixed headers.

Source: APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.16 and 4.5.3. Pure reading;
`archive_reader.py` judges what it means.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import BinaryIO, Final, NamedTuple

from mailboat.errors import PackageCorruptError

LOCAL: Final = struct.Struct("<IHHHHHIIIHH")
LOCAL_SIGNATURE: Final = 0x04034B50
CENTRAL: Final = struct.Struct("<IBBHHHHHIIIHHHHHII")
CENTRAL_SIGNATURE: Final = 0x02014B50
END: Final = struct.Struct("<IHHHHIIH")
END_SIGNATURE: Final = b"PK\x05\x06"

_WIDE_END: Final = struct.Struct("<IQHHIIQQQQ")
_WIDE_END_SIGNATURE: Final = 0x06064B50
_LOCATOR: Final = struct.Struct("<IIQI")
_LOCATOR_SIGNATURE: Final = 0x07064B50
_WIDE_EXTRA: Final = 0x0001
_EXTRA: Final = struct.Struct("<HH")
_WIDE_MARKS: Final = (0xFFFF, 0xFFFFFFFF)
_MAX_COMMENT_BYTES: Final = 0xFFFF
MAX_DIRECTORY_BYTES: Final = 1024**3


class Tail(NamedTuple):
    """The end of a zip: its central directory, and where it begins."""

    directory: bytes
    directory_offset: int
    entry_count: int


def find_tail(stream: BinaryIO, length_bytes: int) -> Tail:
    """Find and read the central directory; nothing may stand between it and the end. Raises: PackageCorruptError."""
    window = min(length_bytes, END.size + _MAX_COMMENT_BYTES)
    stream.seek(length_bytes - window)
    last = stream.read(window)
    at = last.rfind(END_SIGNATURE)
    if at < 0 or len(last) - at < END.size:
        raise PackageCorruptError("the package is not a zip: it has no end of central directory")
    _, disk, first_disk, here, count, size, offset, comment = END.unpack_from(last, at)
    end = length_bytes - window + at
    if at + END.size + comment != window:
        raise PackageCorruptError("bytes follow the end of the package's central directory")
    if count in _WIDE_MARKS or size in _WIDE_MARKS or offset in _WIDE_MARKS:
        end, disk, first_disk, here, count, size, offset = _wide_end(stream, end, (count, size, offset))
    if disk or first_disk or here != count:
        raise PackageCorruptError("the package is one of several parts")
    if offset + size != end or size < count * CENTRAL.size or size > MAX_DIRECTORY_BYTES:
        raise PackageCorruptError("the central directory does not match the end record")
    stream.seek(offset)
    return Tail(stream.read(size), offset, count)


def wide_sizes(extra: bytes, values: Sequence[int]) -> tuple[int, ...]:
    """Replace values of 0xFFFFFFFF by those of the zip64 extra field, in order. Raises: PackageCorruptError."""
    at = 0
    while at + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, at)
        at += _EXTRA.size
        if kind == _WIDE_EXTRA:
            return _fill(extra[at : at + length], values)
        at += length
    raise PackageCorruptError("a size beyond 4 GiB is not given")


def _fill(field: bytes, values: Sequence[int]) -> tuple[int, ...]:
    filled, at = list(values), 0
    for index, value in enumerate(values):
        if value == _WIDE_MARKS[1]:
            if at + 8 > len(field):
                raise PackageCorruptError("a size beyond 4 GiB is cut off")
            filled[index] = int.from_bytes(field[at : at + 8], "little")
            at += 8
    return tuple(filled)


def _wide_end(stream: BinaryIO, end: int, narrow: tuple[int, int, int]) -> tuple[int, int, int, int, int, int, int]:
    if end < _LOCATOR.size + _WIDE_END.size:
        raise PackageCorruptError("the wide end record of the package is missing")
    stream.seek(end - _LOCATOR.size)
    signature, disk_of_record, record, disks = _LOCATOR.unpack(stream.read(_LOCATOR.size))
    if signature != _LOCATOR_SIGNATURE or disk_of_record or disks > 1 or record != end - _LOCATOR.size - _WIDE_END.size:
        raise PackageCorruptError("the wide end record of the package is not where it should be")
    stream.seek(record)
    signature, length, _, _, disk, first, here, count, size, offset = _WIDE_END.unpack(stream.read(_WIDE_END.size))
    if signature != _WIDE_END_SIGNATURE or length != _WIDE_END.size - 12:
        raise PackageCorruptError("the wide end record of the package is not one")
    for stored, wide in zip(narrow, (count, size, offset), strict=True):
        if stored not in _WIDE_MARKS and stored != wide:
            raise PackageCorruptError("the two end records of the package differ")
    return record, disk, first, here, count, size, offset
