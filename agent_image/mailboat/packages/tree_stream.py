"""A `tree` package as a stream of framed records, and its binaries as streams over their pieces.

Reads from one seekable stream at positions it keeps itself, so that records and any number of binaries can be read in
turns; nothing is copied to another file. Handles framing only; used by `tree_reader.py`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import BinaryIO, Final, NamedTuple, cast

from mailboat.blobs.checked_content import ProvenStream
from mailboat.errors import LimitExceededError, PackageCorruptError
from mailboat.wire.tree import HEADER_TAG, MAX_RECORD_BYTES, NAMESPACE_TAG, NODE_TAG, PIECE_TAG, TRAILER_TAG

CHUNK_BYTES: Final = 256 * 1024
SMALL_BYTES: Final = 64 * 1024
_TAGS: Final = frozenset({HEADER_TAG, NODE_TAG, PIECE_TAG, NAMESPACE_TAG, TRAILER_TAG})
_MAX_FRAME_BYTES: Final = 6  # tag, and a length of up to 35 bits


class RawRecord(NamedTuple):
    """A record as it stands in the package.

    Attributes:
        number: Counted from 1, for messages.
        tag: Which kind.
        content: Its bytes without the frame.
        ends_at: The stream's position after it.
    """

    number: int
    tag: int
    content: bytes
    ends_at: int


class RecordStream:
    """Reads framed records in order. One thread."""

    def __init__(self, stream: BinaryIO, *, is_hashing: bool) -> None:
        """Read from the current position on; `is_hashing` computes the digest that the trailer repeats."""
        self._stream = stream
        self._position = stream.tell()
        self._buffer = b""
        self._at = 0
        self._count = 0
        self._hash = hashlib.sha256() if is_hashing else None

    def next(self) -> RawRecord | None:
        """The next record; None at the end.

        Raises:
            PackageCorruptError: The stream ends within a record, or a frame has another format.
            LimitExceededError: A record is larger than any may be.
        """
        self._fill(_MAX_FRAME_BYTES)
        if self._at == len(self._buffer):
            return None
        self._count += 1
        start = self._at
        tag = self._buffer[start]
        if tag not in _TAGS:
            raise PackageCorruptError(f"a record starts with the unknown tag {tag}", record=self._count)
        length, frame_bytes = self._length()
        self._fill(frame_bytes + length)
        start, end = self._at, self._at + frame_bytes + length
        if end > len(self._buffer):
            raise PackageCorruptError("the package ends within a record", record=self._count)
        if self._hash is not None and tag != TRAILER_TAG:
            self._hash.update(memoryview(self._buffer)[start:end])
        self._at = end
        ends_at = self._position - len(self._buffer) + end
        return RawRecord(self._count, tag, self._buffer[start + frame_bytes : end], ends_at)

    def digest(self) -> bytes | None:
        """SHA-256 of all records but the trailer so far; None when it isn't computed."""
        return None if self._hash is None else self._hash.digest()

    def _length(self) -> tuple[int, int]:
        length = shift = 0
        for index in range(self._at + 1, min(self._at + _MAX_FRAME_BYTES, len(self._buffer))):
            byte = self._buffer[index]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self._check_length(length, is_padded=byte == 0 and shift > 7)
                return length, index + 1 - self._at
        raise PackageCorruptError("the length of a record can't be read", record=self._count)

    def _check_length(self, length: int, *, is_padded: bool) -> None:
        # Protobuf reads padded lengths too; with one form only, equal content has equal bytes.
        if is_padded:
            raise PackageCorruptError("the length of a record is padded", record=self._count)
        if length > MAX_RECORD_BYTES:
            raise LimitExceededError(
                f"a record has {length} bytes, the limit is {MAX_RECORD_BYTES}",
                record=self._count,
                limit=MAX_RECORD_BYTES,
            )

    def _fill(self, needed: int) -> None:
        available = len(self._buffer) - self._at
        if available >= needed:
            return
        self._stream.seek(self._position)
        parts = [self._buffer[self._at :]]
        while available < needed:
            missing = needed - available
            # of a large record little more than itself: all that is read beyond it is copied a second time
            part = self._stream.read(missing + _MAX_FRAME_BYTES if missing > SMALL_BYTES else CHUNK_BYTES)
            if not part:
                break
            parts.append(part)
            available += len(part)
            self._position += len(part)
        self._buffer, self._at = b"".join(parts), 0


class Span(NamedTuple):
    """Where a piece's data lies in the package's stream."""

    start: int
    length: int


class PieceStream(io.RawIOBase):
    """The content of a binary that travels in pieces. Its bytes were compared with their digest when it was found."""

    def __init__(self, stream: BinaryIO, spans: Sequence[Span]) -> None:
        """Read the spans of the stream one after another."""
        super().__init__()
        self._stream = cast("io.BufferedIOBase", stream)
        self._spans = spans
        self._index = 0
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: any buffer
        if self._index == len(self._spans):
            return 0
        span = self._spans[self._index]
        self._stream.seek(span.start + self._done)
        count = self._stream.readinto(memoryview(buffer)[: span.length - self._done])
        if not count:
            raise PackageCorruptError("the package's stream has become shorter while it was read")
        self._done += count
        if self._done == span.length:
            self._index, self._done = self._index + 1, 0
        return count


def open_pieces(stream: BinaryIO, spans: Sequence[Span], digest: bytes) -> BinaryIO:
    """A buffered stream over the pieces of one binary, whose digest they had when they were read."""
    length = sum([span.length for span in spans])
    return ProvenStream(PieceStream(stream, spans), digest, length, CHUNK_BYTES)
