"""A zip writer whose bytes depend on the content alone, and that Java's streaming reader accepts.

Every local header has its sizes (Java refuses what has not: facts in docs/formats/filevault.md), times are fixed, the
level is fixed, zip64 is used only where 4 GiB are passed. Written strictly forward, so the target need not be
seekable, and the digest of the bytes is known at the end without reading them again. Large content passes through in
pieces: what is packed is spooled first, since its size must precede it.
"""

from __future__ import annotations

import hashlib
import io
import math
import struct
import tempfile
import zlib
from collections.abc import Callable
from typing import BinaryIO, Final, NamedTuple, Self

from mailboat.config.document import LimitsConfig
from mailboat.errors import SourceChangedError
from mailboat.model.nodes import Binary
from mailboat.packages.filevault.archive_reader import DEFLATED, STORED
from mailboat.packages.filevault.zip_records import (
    CENTRAL,
    CENTRAL_SIGNATURE,
    END,
    END_SIGNATURE,
    LOCAL,
    LOCAL_SIGNATURE,
)
from mailboat.packages.port import beyond_limits

LEVEL: Final = 1
CHUNK_BYTES: Final = 256 * 1024
SMALL_BYTES: Final = 256
"""Shorter content is stored: a packer takes longer to begin than all else that is done for the entry."""
SPOOL_BYTES: Final = 4 * 1024 * 1024
_PACKED_STARTS: Final = (
    b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"wOFF", b"wOF2",
    b"PK\x03\x04", b"\x1f\x8b", b"7z\xbc\xaf", b"BZh", b"Rar!", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd",
    b"OggS", b"fLaC", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf1", b"\xff\xf9", b"\x1aE\xdf\xa3", b"\x00\x00\x01\xba",
)  # fmt: skip
"""Of images, fonts, archives, sound and film. Names say nothing: AEM calls the image of every asset `original`."""
_BRAND_AT: Final = 4
_KIND_AT: Final = 8
_HEAD_BYTES: Final = 12

_WIDE: Final = 0xFFFFFFFF
_WIDE_EXTRA: Final = 0x0001
_MANY: Final = 0xFFFF
_UTF8_FLAG: Final = 0x0800
_EARLIEST_DAY: Final = 0x0021  # 1 January 1980, the first that a zip can express
_VERSION: Final = 20
_WIDE_VERSION: Final = 45
_UNIX: Final = 3
_FILE_MODE: Final = 0o100644 << 16
_DIRECTORY_MODE: Final = 0o040755 << 16 | 0x10
_WIDE_END: Final = struct.Struct("<IQHHIIQQQQIIQI")


class PackedContent(NamedTuple):
    """The content of an entry, ready to be written, perhaps more than once."""

    method: int
    packed: bytes
    crc: int
    size_bytes: int

    @classmethod
    def of(cls, content: bytes, level: int, max_ratio: float) -> Self:
        """Pack, unless it is too short to be worth it; the level 0 is not at all.

        Readers refuse what is packed better than `max_ratio`, as it looks like an attack.
        """
        is_worth_it = level and len(content) >= SMALL_BYTES and not is_packed_already(content[:_HEAD_BYTES])
        shrunk = zlib.compress(content, level, -zlib.MAX_WBITS) if is_worth_it else content
        if len(shrunk) * max_ratio < len(content):
            packer = _Packer(level, len(content), max_ratio)
            shrunk = packer.pack(content) + packer.finish()
        if len(shrunk) < len(content):
            return cls(DEFLATED, shrunk, zlib.crc32(content), len(content))
        return cls(STORED, content, zlib.crc32(content), len(content))


class _Packer:
    """Deflates with the start of the content left unpacked, so that the ratio stays below what readers accept."""

    def __init__(self, level: int, size_bytes: int, max_ratio: float) -> None:
        self._level = level
        self._plain_bytes = math.ceil(size_bytes / max_ratio)
        self._packer = zlib.compressobj(0, zlib.DEFLATED, -zlib.MAX_WBITS)

    def pack(self, piece: bytes) -> bytes:
        if not self._plain_bytes:
            return self._packer.compress(piece)
        plain = self._packer.compress(piece[: self._plain_bytes])
        rest = piece[self._plain_bytes :]
        self._plain_bytes -= len(piece) - len(rest)
        if self._plain_bytes:
            return plain
        # A full flush ends at a whole byte, so that another packer can go on in the same stream.
        plain += self._packer.flush(zlib.Z_FULL_FLUSH)
        self._packer = zlib.compressobj(self._level, zlib.DEFLATED, -zlib.MAX_WBITS)
        return plain + self._packer.compress(rest)

    def finish(self) -> bytes:
        return self._packer.flush()


class ArchiveWriter:
    """A zip being written, strictly forward."""

    def __init__(
        self, into: BinaryIO, level: int = LEVEL, limits: LimitsConfig | None = None, spool: str | None = None
    ) -> None:
        """Write to `into` from where it stands; `level` is zlib's. Nothing beyond the limits of readers is written.

        `spool` is the folder for what is packed before it is written; None: that of the system.
        """
        self._into = into
        self._spool_folder = spool
        self._level = level
        self._limits = limits or LimitsConfig()
        self._content_bytes = 0
        self._total = hashlib.sha256()
        self._central: list[bytes] = []
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self.length_bytes = 0

    def add_directory(self, name: str) -> None:
        """Add an empty entry; `name` ends with a slash."""
        self._begin(name, STORED, 0, 0, 0)

    def add(self, name: str, content: bytes) -> None:
        """Add an entry from memory; stored where packing gains nothing."""
        self.add_packed(name, PackedContent.of(content, self._level, self._limits.max_ratio))

    def add_packed(self, name: str, content: PackedContent) -> None:
        """Add an entry that was packed before."""
        self._begin(name, content.method, content.crc, len(content.packed), content.size_bytes)
        self._emit(content.packed)

    def add_binary(self, name: str, binary: Binary) -> None:
        """Add a binary of any size as an entry.

        Raises:
            SourceChangedError: The bytes are not those that the digest names.
        """
        if binary.length_bytes <= SPOOL_BYTES:
            self.add(name, read_binary(binary, name))
            return
        with binary.open() as stream:
            head = stream.read(_HEAD_BYTES)
        if is_packed_already(head):
            self._store(name, binary)
        else:
            self._spool(name, binary)

    def finish(self) -> bytes:
        """Write the central directory. Returns the SHA-256 of the zip's bytes."""
        directory = b"".join(self._central)
        count, size, offset = len(self._central), len(directory), self.length_bytes
        end = b""
        if count >= _MANY or offset + size >= _WIDE:
            end = _WIDE_END.pack(
                *(0x06064B50, 44, _WIDE_VERSION, _WIDE_VERSION, 0, 0, count, count, size, offset),
                *(0x07064B50, 0, offset + size, 1),
            )
            count, size, offset = min(count, _MANY), min(size, _WIDE), min(offset, _WIDE)
        signature = int.from_bytes(END_SIGNATURE, "little")
        self._emit(directory + end + END.pack(signature, 0, 0, count, count, size, offset, 0))
        self._flush()
        return self._total.digest()

    # -------------------------------------------------------------------------------------------------- by pieces

    def _store(self, name: str, binary: Binary) -> None:
        """Twice through the content: for the checksum, then for the bytes."""
        crc = _checked(name, binary, None)
        self._begin(name, STORED, crc, binary.length_bytes, binary.length_bytes)
        again = 0
        with binary.open() as stream:
            while piece := stream.read(CHUNK_BYTES):
                again = zlib.crc32(piece, again)
                self._emit(piece)
        if again != crc:
            raise _changed(name)

    def _spool(self, name: str, binary: Binary) -> None:
        packer = zlib.compressobj(self._level, zlib.DEFLATED, -zlib.MAX_WBITS)
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES, dir=self._spool_folder) as spool:
            crc = _checked(name, binary, lambda piece: spool.write(packer.compress(piece)))
            spool.write(packer.flush())
            if spool.tell() * self._limits.max_ratio < binary.length_bytes:
                sparing = _Packer(self._level, binary.length_bytes, self._limits.max_ratio)
                spool.seek(0)
                spool.truncate()
                _checked(name, binary, lambda piece: spool.write(sparing.pack(piece)))
                spool.write(sparing.finish())
            self._begin(name, DEFLATED, crc, spool.tell(), binary.length_bytes)
            spool.seek(0)
            while piece := spool.read(CHUNK_BYTES):
                self._emit(piece)

    def _emit(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        self.length_bytes += len(piece)
        if self._held_bytes >= CHUNK_BYTES:
            self._flush()

    def _flush(self) -> None:
        held = b"".join(self._pieces)
        self._into.write(held)
        self._total.update(held)
        self._pieces.clear()
        self._held_bytes = 0

    def _check_limits(self, name: str, size: int) -> None:
        limits = self._limits
        self._content_bytes += size
        if size > limits.max_entry_bytes:
            raise beyond_limits(
                f"an entry of {size} bytes is larger than limits.max_entry_bytes", limits.max_entry_bytes, entry=name
            )
        if len(self._central) >= limits.max_entries:
            raise beyond_limits("the package has more entries than limits.max_entries", limits.max_entries, entry=name)
        if self._content_bytes > limits.max_total_bytes:
            raise beyond_limits(
                "the package unpacks to more bytes than limits.max_total_bytes", limits.max_total_bytes, entry=name
            )

    def _begin(self, name: str, method: int, crc: int, packed: int, size: int) -> None:
        self._check_limits(name, size)
        raw = name.encode()
        flags = 0 if name.isascii() else _UTF8_FLAG
        offset = self.length_bytes
        mode = _DIRECTORY_MODE if name[-1] == "/" else _FILE_MODE
        wide = packed >= _WIDE or size >= _WIDE
        local_extra = struct.pack("<HHQQ", _WIDE_EXTRA, 16, size, packed) if wide else b""
        fields = (_WIDE_VERSION if wide else _VERSION, flags, method, 0, _EARLIEST_DAY, crc)
        sizes = (_WIDE, _WIDE) if wide else (packed, size)
        central_extra = local_extra
        if offset >= _WIDE:
            values = (size, packed, offset) if wide else (offset,)
            central_extra = struct.pack(f"<HH{len(values)}Q", _WIDE_EXTRA, 8 * len(values), *values)
        self._central.append(
            CENTRAL.pack(
                *(CENTRAL_SIGNATURE, fields[0], _UNIX, *fields, *sizes),
                *(len(raw), len(central_extra), 0, 0, 0, mode, min(offset, _WIDE)),
            )
            + raw
            + central_extra
        )
        self._emit(LOCAL.pack(LOCAL_SIGNATURE, *fields, *sizes, len(raw), len(local_extra)) + raw + local_extra)


class EntryCounter(ArchiveWriter):
    """Counts entries as they would be written, and writes nothing."""

    def __init__(self, limits: LimitsConfig) -> None:
        """Refuse what is beyond the limits."""
        super().__init__(io.BytesIO(), 0, limits)

    def add(self, name: str, content: bytes) -> None:
        self._begin(name, STORED, 0, 0, len(content))

    def add_binary(self, name: str, binary: Binary) -> None:
        # The binary is not opened.
        self._begin(name, STORED, 0, 0, binary.length_bytes)

    def _emit(self, piece: bytes) -> None:
        pass


def is_packed_already(head: bytes) -> bool:
    """Whether content that begins so has a compressed format: packing it again takes long and gains nothing."""
    if head.startswith(b"RIFF"):
        return head[_KIND_AT:] in (b"WEBP", b"AVI ")
    return head.startswith(_PACKED_STARTS) or head[_BRAND_AT:_KIND_AT] == b"ftyp"


def read_binary(binary: Binary, name: str) -> bytes:
    """All bytes of a binary, checked against its digest. Raises: SourceChangedError."""
    if binary.data is not None:
        return binary.data
    with binary.open() as stream:
        content = stream.read(binary.length_bytes + 1)
    if len(content) != binary.length_bytes or hashlib.sha256(content).digest() != binary.digest:
        raise _changed(name)
    return content


def _checked(name: str, binary: Binary, take: Callable[[bytes], object] | None) -> int:
    """Read a binary by pieces. Returns its CRC-32. Raises: SourceChangedError."""
    total, crc, length = hashlib.sha256(), 0, 0
    with binary.open() as stream:
        while piece := stream.read(CHUNK_BYTES):
            total.update(piece)
            crc = zlib.crc32(piece, crc)
            length += len(piece)
            if take is not None:
                take(piece)
    if length != binary.length_bytes or total.digest() != binary.digest:
        raise _changed(name)
    return crc


def _changed(name: str) -> SourceChangedError:
    return SourceChangedError("the bytes of a binary are not those that its digest names", entry=name)
