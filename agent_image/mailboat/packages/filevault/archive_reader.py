"""A zip reader that trusts nothing: central directory, local headers and data must agree.

`zipfile` costs 28 µs a package before the first byte is read, and believes much; this reader costs a fifth of it. What
it accepts, Java's `ZipFile` and `ZipInputStream` read alike; everything else is refused with the entry and the limit:
encryption, other methods than stored and deflate, links, names that lead elsewhere, names that come twice, entries that
overlap, sizes and sums that differ. All entries are checked before the first is read, and nothing is unpacked beyond
its declared size. Called by `reader.py`, `archive_tree.py` and `inspection.py`.
"""

from __future__ import annotations

import io
import re
import stat
import struct
import zlib
from operator import attrgetter
from typing import BinaryIO, Final, NamedTuple

from mailboat.config.document import LimitsConfig
from mailboat.errors import LimitExceededError, PackageCorruptError, PathRefusedError
from mailboat.model.paths import MAX_DEPTH, MAX_PATH_BYTES
from mailboat.packages.filevault.zip_records import (
    CENTRAL,
    CENTRAL_SIGNATURE,
    LOCAL,
    LOCAL_SIGNATURE,
    Tail,
    find_tail,
    wide_sizes,
)

STORED: Final = 0
DEFLATED: Final = 8
CHUNK_BYTES: Final = 64 * 1024
RATIO_FROM_BYTES: Final = 1024 * 1024
MOST_TIMES_PACKED: Final = 8
"""A packer that is flushed behind each byte needs seven bytes for it."""
MAX_ENTRY_NAME_BYTES: Final = 5 * MAX_PATH_BYTES
"""A path may have `%xx` for each byte and `.dir` behind each name; the name of a property, behind it, as many bytes."""
MAX_ENTRY_DEPTH: Final = MAX_DEPTH + 28
"""Added to the names of a path: `jcr_root`, the jcr:content of a file, a document or binary, and what tools left."""

_ENCRYPTED_FLAGS: Final = 0x2041
_DESCRIPTOR_FLAG: Final = 0x0008
_COMPARED_FLAGS: Final = _ENCRYPTED_FLAGS | _DESCRIPTOR_FLAG
_UTF8_FLAG: Final = 0x0800
_KNOWN_FLAGS: Final = _DESCRIPTOR_FLAG | _UTF8_FLAG | 0x0006
_WIDE: Final = 0xFFFFFFFF
_NAME: Final = re.compile(r"(?:(?!\.{1,2}(?:/|\Z))[^/\\\x00-\x1f\x7f]+(?:/|\Z))+\Z")
_SHORT_NAME: Final = 2 * MAX_ENTRY_DEPTH  # no name of this length is too deep or too long
_METHODS: Final = frozenset({STORED, DEFLATED})
_USUAL_MODES: Final = frozenset({0, 0o100644, 0o600})
_NEWEST_VERSION: Final = 63  # APPNOTE 6.3.x; what a later one means is unknown
_DESCRIPTOR_SIGNATURE: Final = b"PK\x07\x08"


class ZipEntry(NamedTuple):
    """One entry of the central directory, checked.

    Attributes:
        name: The path in the zip; a directory's ends with a slash.
        raw_name: Its bytes.
        flags: General purpose bits.
        method: STORED or DEFLATED.
        crc: CRC-32 of the content.
        packed_bytes: Size in the zip.
        size_bytes: Size unpacked.
        header_offset: Where its local header begins.
    """

    name: str
    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed_bytes: int
    size_bytes: int
    header_offset: int


class ZipArchive:
    """An open zip."""

    def __init__(self, stream: BinaryIO, length_bytes: int, limits: LimitsConfig) -> None:
        """Read and check the central directory. `stream` is seekable; the zip is its first `length_bytes`.

        Raises:
            PackageCorruptError, LimitExceededError, PathRefusedError: With the entry and the limit.
        """
        self._stream = stream
        self.length_bytes = length_bytes
        tail = find_tail(stream, length_bytes)
        if tail.entry_count > limits.max_entries:
            raise LimitExceededError(
                f"the package has {tail.entry_count} entries, more than limits.max_entries", limit=limits.max_entries
            )
        self.entries = _read_directory(tail, limits)
        self._ends = _check_overlaps(self.entries, tail.directory_offset)
        self._compared: set[int] = set()

    def read(self, entry: ZipEntry) -> bytes:
        """The content of an entry, checked. Raises: PackageCorruptError."""
        packed = self.read_packed(entry)
        content = packed if entry.method == STORED else _inflate(entry, packed)
        if len(content) != entry.size_bytes or zlib.crc32(content) != entry.crc:
            raise PackageCorruptError(
                "an entry does not have the size or the checksum that it claims", entry=entry.name
            )
        return content

    def read_document(self, entry: ZipEntry, most_bytes: int) -> bytes:
        """The content of an entry, checked, unless it is longer. Raises: LimitExceededError, PackageCorruptError."""
        check_length(entry, most_bytes)
        return self.read(entry)

    def read_packed(self, entry: ZipEntry) -> bytes:
        """The bytes of an entry as they are in the zip, not checked but for the header before them."""
        # Deflate may have any number of empty blocks: what unpacks to little could take any memory.
        if entry.packed_bytes > MOST_TIMES_PACKED * entry.size_bytes + RATIO_FROM_BYTES:
            raise PackageCorruptError("an entry is packed into many times its size", entry=entry.name)
        start = self.data_offset(entry)
        self._stream.seek(start)
        return self._stream.read(entry.packed_bytes)

    def open(self, entry: ZipEntry) -> BinaryIO:
        """A stream over an entry; size and checksum are checked at its end. Raises: PackageCorruptError, also later."""
        return io.BufferedReader(_EntryStream(self, entry), CHUNK_BYTES)

    def data_offset(self, entry: ZipEntry) -> int:
        """Where the data begins, after the local header was compared. Raises: PackageCorruptError."""
        self._stream.seek(entry.header_offset)
        raw_name = entry.raw_name
        header = self._stream.read(LOCAL.size + len(raw_name))
        if len(header) != LOCAL.size + len(raw_name):
            raise PackageCorruptError("the local header of an entry is cut off", entry=entry.name)
        signature, _, flags, method, _, _, crc, packed, size, name_length, extra_length = LOCAL.unpack_from(header)
        self._compared.add(entry.header_offset)
        start: int = entry.header_offset + LOCAL.size + name_length + extra_length
        if (
            signature != LOCAL_SIGNATURE
            or (flags != entry.flags and _is_other_reading(flags ^ entry.flags, raw_name))
            or method != entry.method
            or not header.endswith(raw_name)
            or name_length != len(raw_name)
            or start + entry.packed_bytes > self._ends[entry.header_offset]
        ):
            raise PackageCorruptError(
                "the local header of an entry differs from the central directory", entry=entry.name
            )
        if crc != entry.crc or packed != entry.packed_bytes or size != entry.size_bytes:
            self._check_late_sizes(entry, (crc, packed, size), start, extra_length)
        return start

    def check_names(self) -> None:
        """Check that unread entries have the same name in their local header as in the central directory.

        A damaged name may lead away from the content, so that its entry would be missing without a word. Raises:
        PackageCorruptError.
        """
        if len(self._compared) == len(self.entries):
            return
        for entry in self.entries.values():
            if entry.header_offset not in self._compared:
                header = self.read_at(entry.header_offset, LOCAL.size + len(entry.raw_name))
                if header[LOCAL.size :] != entry.raw_name:
                    raise PackageCorruptError(
                        "the name of an entry differs from the one in its local header", entry=entry.name
                    )

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes of the zip itself, for entry streams."""
        self._stream.seek(offset)
        return self._stream.read(length)

    def _check_late_sizes(self, entry: ZipEntry, stated: tuple[int, int, int], start: int, extra_length: int) -> None:
        """Sizes that the local header does not have stand in its extra field or behind the data."""
        if _WIDE in stated[1:]:
            extra = self.read_at(start - extra_length, extra_length)
            size, packed = wide_sizes(extra, (stated[2], stated[1]))
            stated = (stated[0], packed, size)
        expected = (entry.crc, entry.packed_bytes, entry.size_bytes)
        if (
            stated != expected
            and entry.flags & _DESCRIPTOR_FLAG
            and all(mine in (0, ours) for mine, ours in zip(stated, expected, strict=True))
        ):
            stated = self._descriptor(entry, start + entry.packed_bytes)
        if stated != expected:
            raise PackageCorruptError("the sizes of an entry differ from the central directory", entry=entry.name)

    def _descriptor(self, entry: ZipEntry, offset: int) -> tuple[int, int, int]:
        found = self.read_at(offset, min(24, self._ends[entry.header_offset] - offset))
        # The signature is optional, and sizes have four or eight bytes (APPNOTE 4.3.9).
        fields = found[4:] if found[:4] == _DESCRIPTOR_SIGNATURE else found
        narrow, wide = struct.Struct("<III"), struct.Struct("<IQQ")
        expected = (entry.crc, entry.packed_bytes, entry.size_bytes)
        for form in (wide, narrow):
            if len(fields) >= form.size and form.unpack_from(fields) == expected:
                return expected
        return (-1, -1, -1)


class _EntryStream(io.RawIOBase):
    """Unpacks an entry piece by piece; several may be open over one zip."""

    def __init__(self, archive: ZipArchive, entry: ZipEntry) -> None:
        super().__init__()
        self._archive = archive
        self._entry = entry
        self._offset = archive.data_offset(entry)
        self._packed_left = entry.packed_bytes
        self._size_left = entry.size_bytes
        self._crc = 0
        self._inflater = None if entry.method == STORED else zlib.decompressobj(-zlib.MAX_WBITS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the stub asks for any buffer
        piece = self._next(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _next(self, wanted: int) -> bytes:
        if not self._size_left:
            return self._finish()
        piece = self._take(min(wanted, self._size_left)) if self._inflater is None else self._unpack(wanted)
        if not piece:
            raise PackageCorruptError("an entry is shorter than it claims", entry=self._entry.name)
        self._size_left -= len(piece)
        self._crc = zlib.crc32(piece, self._crc)
        return piece

    def _take(self, length: int) -> bytes:
        packed = self._archive.read_at(self._offset, min(length, self._packed_left))
        self._offset += len(packed)
        self._packed_left -= len(packed)
        return packed

    def _unpack(self, wanted: int) -> bytes:
        inflater = self._inflater
        assert inflater is not None  # noqa: S101  # narrows the type
        try:
            while not inflater.eof:
                piece = inflater.decompress(
                    inflater.unconsumed_tail or self._take(CHUNK_BYTES), min(wanted, self._size_left)
                )
                if piece or not (self._packed_left or inflater.unconsumed_tail):
                    return piece
        except zlib.error as error:
            raise PackageCorruptError("an entry can't be unpacked", entry=self._entry.name) from error
        return b""

    def _finish(self) -> bytes:
        inflater = self._inflater
        has_more = self._packed_left > 0 if inflater is None else self._has_more(inflater)
        if has_more or self._crc != self._entry.crc:
            raise PackageCorruptError(
                "an entry does not have the size or the checksum that it claims", entry=self._entry.name
            )
        return b""

    def _has_more(self, inflater: zlib._Decompress) -> bool:
        while not inflater.eof:
            packed = inflater.unconsumed_tail or self._take(CHUNK_BYTES)
            if not packed or inflater.decompress(packed, 1):
                return True
        return bool(inflater.unused_data or self._packed_left)


def check_length(entry: ZipEntry, most_bytes: int) -> None:
    """Refuse a document before it is unpacked. Raises: LimitExceededError."""
    if entry.size_bytes > most_bytes:
        raise LimitExceededError(f"a document has {entry.size_bytes} bytes", entry=entry.name, limit=most_bytes)


def _is_other_reading(changed_flags: int, raw_name: bytes) -> bool:
    """Whether flags that differ change how the data is read, or the name, which only UTF-8 beyond ASCII can."""
    return bool(changed_flags & _COMPARED_FLAGS or (changed_flags & _UTF8_FLAG and not raw_name.isascii()))


def _inflate(entry: ZipEntry, packed: bytes) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        # One byte more than claimed: what goes on is refused, and never unpacked as a whole.
        content = inflater.decompress(packed, entry.size_bytes + 1)
    except zlib.error as error:
        raise PackageCorruptError("an entry can't be unpacked", entry=entry.name) from error
    if not inflater.eof or inflater.unused_data:
        raise PackageCorruptError("an entry is longer or shorter than it claims", entry=entry.name)
    return content


# ------------------------------------------------------------------------------------------------ central directory


def _read_directory(tail: Tail, limits: LimitsConfig) -> dict[str, ZipEntry]:
    directory, at = tail.directory, 0
    entries: dict[str, ZipEntry] = {}
    total, packed_total = 0, 0
    for _ in range(tail.entry_count):
        entry, at = _read_entry(directory, at, tail.directory_offset)
        size = entry.size_bytes
        if size > limits.max_entry_bytes:
            raise LimitExceededError(
                f"an entry has {size} bytes, more than limits.max_entry_bytes",
                entry=entry.name,
                limit=limits.max_entry_bytes,
            )
        if size > RATIO_FROM_BYTES:
            _check_ratio(entry.name, size, entry.packed_bytes, limits)
        total += size
        packed_total += entry.packed_bytes + LOCAL.size
        entries[entry.name] = entry
    if at != len(directory):
        raise PackageCorruptError("the central directory holds more than its entries")
    if len(entries) != tail.entry_count:
        _refuse_duplicates(tail)
    if total > limits.max_total_bytes:
        raise LimitExceededError(
            f"the package unpacks to {total} bytes, more than limits.max_total_bytes", limit=limits.max_total_bytes
        )
    if total > RATIO_FROM_BYTES:
        _check_ratio(None, total, packed_total, limits)
    return entries


def _read_entry(directory: bytes, at: int, limit: int) -> tuple[ZipEntry, int]:
    if at + CENTRAL.size > len(directory):
        raise PackageCorruptError("the central directory is cut off")
    fields = CENTRAL.unpack_from(directory, at)
    signature, _, _, version, flags, method, _, _, crc, packed, size, name_length, extra_length = fields[:13]
    comment_length, disk, _, external, offset = fields[13:]
    start = at + CENTRAL.size
    end = start + name_length + extra_length + comment_length
    if signature != CENTRAL_SIGNATURE or end > len(directory) or disk not in (0, 0xFFFF):
        raise PackageCorruptError("the central directory is broken")
    raw_name = directory[start : start + name_length]
    name = _checked_name(raw_name)
    if _WIDE in (size, packed, offset):
        extra = directory[start + name_length : start + name_length + extra_length]
        size, packed, offset = wide_sizes(extra, (size, packed, offset))
    if version & 0xFF > _NEWEST_VERSION:
        raise PackageCorruptError(f"an entry needs a version of the format that is not known: {version}", entry=name)
    if flags & ~_KNOWN_FLAGS or method not in _METHODS or external >> 16 not in _USUAL_MODES:
        _check_kind(name, flags, method, external >> 16)
    if (method == STORED and packed != size) or (size and name[-1] == "/"):
        raise PackageCorruptError("an entry's sizes contradict each other", entry=name)
    if offset + LOCAL.size + name_length + packed > limit:
        raise PackageCorruptError("an entry lies beyond the package", entry=name)
    return ZipEntry(name, raw_name, flags, method, crc, packed, size, offset), end


def _checked_name(raw: bytes) -> str:
    try:
        # Java and the zips of macOS take names for UTF-8 also without the flag, where APPNOTE D.1 has CP437.
        name = raw.decode()
    except UnicodeDecodeError as error:
        raise PathRefusedError(f"the entry name {raw[:80]!r} is not in UTF-8", entry=repr(raw[:80])) from error
    if len(raw) > _SHORT_NAME:
        _check_extent(name, len(raw))
    if not _NAME.match(name) or (name[1:2] == ":" and name[0].isascii() and name[0].isalpha()):
        raise PathRefusedError(f"{name[:200]!r} is not a name that an entry may have", entry=name[:200])
    return name


def _check_extent(name: str, size: int) -> None:
    start, depth = f"{name[:200]}…", name.removesuffix("/").count("/") + 1
    if depth > MAX_ENTRY_DEPTH:
        raise PathRefusedError(f"the name of an entry is {depth} names deep", entry=start, limit=MAX_ENTRY_DEPTH)
    if size > MAX_ENTRY_NAME_BYTES:
        raise PathRefusedError(f"the name of an entry has {size} bytes", entry=start, limit=MAX_ENTRY_NAME_BYTES)


def _check_kind(name: str, flags: int, method: int, mode: int) -> None:
    if flags & _ENCRYPTED_FLAGS:
        raise PackageCorruptError("an entry is encrypted", entry=name)
    if flags & ~_KNOWN_FLAGS or method not in _METHODS:
        raise PackageCorruptError(f"an entry is packed in a way that is not known (method {method})", entry=name)
    kind = stat.S_IFMT(mode)
    if kind and kind != (stat.S_IFDIR if name[-1] == "/" else stat.S_IFREG):
        raise PathRefusedError("an entry is a link or another thing that is not a file or folder", entry=name)


def _check_ratio(name: str | None, size: int, packed: int, limits: LimitsConfig) -> None:
    if size > packed * limits.max_ratio:
        raise LimitExceededError(
            f"{size} bytes are packed into {packed}, more than limits.max_ratio",
            entry=name,
            limit=f"{limits.max_ratio:g} to 1",
        )


def _check_overlaps(entries: dict[str, ZipEntry], directory_offset: int) -> dict[int, int]:
    """Where the next thing begins, by the offset of each local header. Raises: PackageCorruptError for an overlap."""
    ends: dict[int, int] = {}
    end = directory_offset
    for entry in sorted(entries.values(), key=_header_offset, reverse=True):
        offset = entry.header_offset
        # Overlapping entries multiply content: https://www.bamsoftware.com/hacks/zipbomb/
        if offset + LOCAL.size + len(entry.raw_name) + entry.packed_bytes > end:
            raise PackageCorruptError("an entry overlaps the next", entry=entry.name)
        ends[offset] = end
        end = offset
    return ends


def _refuse_duplicates(tail: Tail) -> None:
    """Refuse two entries of one name, but not of a directory: build tools that join archives repeat these."""
    seen: set[str] = set()
    at = 0
    for _ in range(tail.entry_count):
        entry, at = _read_entry(tail.directory, at, tail.directory_offset)
        if entry.name in seen and entry.name[-1] != "/":
            raise PackageCorruptError(
                "two entries have one name",
                next_step="pack the content again: of two such entries readers take different ones",
                entry=entry.name,
            )
        seen.add(entry.name)


_header_offset: Final = attrgetter("header_offset")
