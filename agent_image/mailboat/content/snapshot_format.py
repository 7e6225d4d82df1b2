"""Snapshots: a target's content with its position in one file. New targets start from them near the log's end.

The file is a frame around a package (`docs/formats/snapshot.md`): what it stands for, the package, what that came to,
and a SHA-256 of it all, which is checked before anything of it is believed. `opened_view` of `content/views.py` gives
a target's content and position as one, also while a subscriber imports into it, where the kind of target can do so.
The codec is the caller's.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from mailboat.clock import LAST_MS
from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.port import GivenUp
from mailboat.durable_file import replaced_file
from mailboat.errors import LimitExceededError, UntrustedInputError, UsageError
from mailboat.folder_handle import open_regular_file
from mailboat.model.identifiers import Offset, PackageId, parse_agent_name
from mailboat.model.messages import FailureCause
from mailboat.model.paths import NodePath, parse_path
from mailboat.model.positions import LogIdentity, Position

MAGIC: Final = b"mailboat-snap-1\n"
MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_LENGTH: Final = struct.Struct(">I")
_DIGEST_BYTES: Final = 32


class SnapshotCorruptError(UntrustedInputError):
    """The file is not a snapshot, or is damaged. Nothing was restored.

    Use another copy, or `mailboat content snapshot`.
    """


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """What a snapshot stands for.

    Attributes:
        position: Where the content stands in the log.
        given_up: The packages that the content lacks, as its error queue has them.
        target: The target that it was taken of, for people.
        taken_ms: When, milliseconds since 1970 UTC.
        passed_over: The publishers whose packages it lacks, as they were not followed.
        roots: What its subscriber was limited to, each path with all below it; empty: nothing; None: unknown.
    """

    position: Position
    given_up: tuple[GivenUp, ...]
    target: str
    taken_ms: int
    passed_over: frozenset[str] = frozenset()
    roots: tuple[NodePath, ...] | None = None


@dataclass(frozen=True, slots=True)
class SnapshotTail:
    """What the package came to.

    Attributes:
        package_bytes: Its length.
        node_count: Its nodes.
        tree_digest: The canonical digest of the content, in hexadecimal.
    """

    package_bytes: int
    node_count: int
    tree_digest: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that was checked as a whole; `package` is a seekable stream over its package alone."""

    head: SnapshotHead
    tail: SnapshotTail
    package: BinaryIO


def write_snapshot(file: Path, head: SnapshotHead, write_package: Callable[[BinaryIO], SnapshotTail]) -> SnapshotTail:
    """Write a snapshot to a draft, make it durable, and rename it: a name always stands for a whole one.

    Args:
        file: Where to; an existing file is replaced.
        head: What it stands for.
        write_package: Writes the package, front to back, into the stream that it is given.

    Raises:
        LimitExceededError: The error queue is larger than a snapshot may hold.
        StorageFullError, StorageReadOnlyError, StorageFailedError; what `write_package` raises.
    """
    document = _encode_head(head)
    if len(document) > MAX_DOCUMENT_BYTES:  # no version would read it
        raise LimitExceededError(
            f"the error queue of {head.target} takes {len(document)} bytes, a snapshot holds {MAX_DOCUMENT_BYTES}",
            next_step="mailboat errors redrive NAME --all, then take the snapshot",
            limit=MAX_DOCUMENT_BYTES,
        )
    with TranslatedFailures(str(file)), replaced_file(file) as stream:
        hashed = _HashedWriter(stream)
        hashed.write(MAGIC + _LENGTH.pack(len(document)) + document)
        tail = write_package(cast("BinaryIO", hashed))
        end = json.dumps(asdict(tail)).encode()
        hashed.write(end + _LENGTH.pack(len(end)))
        stream.write(hashed.digest())
    return tail


@contextmanager
def opened_snapshot(file: Path) -> Iterator[Snapshot]:
    """Open a snapshot, and read it once from end to end to check it.

    Raises:
        SnapshotCorruptError: It is not a snapshot, or damaged.
        UsageError: There is no such file.
    """
    with TranslatedFailures(str(file)):
        if not file.is_file():
            raise UsageError(f"the snapshot file {file} does not exist")
        with io.BufferedReader(open_regular_file(file)) as stream:
            yield _checked(cast("BinaryIO", stream), file)


def _checked(stream: BinaryIO, file: Path) -> Snapshot:
    size = os.fstat(stream.fileno()).st_size
    if stream.read(len(MAGIC)) != MAGIC:
        raise SnapshotCorruptError(f"{file} is not a snapshot of this version", file=file)
    # Before any parsing: nothing of a damaged file is decoded.
    _check_digest(stream, size, file)
    try:
        stream.seek(len(MAGIC))
        (head_bytes,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        if head_bytes > min(size, MAX_DOCUMENT_BYTES):
            raise ValueError(f"a head of {head_bytes} bytes")
        head = _decode_head(stream.read(head_bytes))
        package_at = stream.tell()
        tail_end = size - _DIGEST_BYTES - _LENGTH.size
        stream.seek(tail_end)
        (tail_bytes,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        if tail_bytes > MAX_DOCUMENT_BYTES:
            raise ValueError(f"a tail of {tail_bytes} bytes")
        package_end = tail_end - tail_bytes
        if not package_at <= package_end:
            raise ValueError("its parts overlap")
        stream.seek(package_end)
        found = json.loads(stream.read(tail_bytes))
        counts = checked_number(found["package_bytes"]), checked_number(found["node_count"])
        tail = SnapshotTail(*counts, checked_text(found["tree_digest"]))
        if tail.package_bytes != package_end - package_at:
            raise ValueError("the package does not have its declared length")
    except (ValueError, TypeError, KeyError, RecursionError, struct.error) as error:
        raise SnapshotCorruptError(f"{file} can't be understood: {error}", file=file) from error
    return Snapshot(head, tail, cast("BinaryIO", io.BufferedReader(_Window(stream, package_at, package_end))))


def _check_digest(stream: BinaryIO, size: int, file: Path) -> None:
    total = hashlib.sha256(MAGIC)
    left = size - len(MAGIC) - _DIGEST_BYTES
    while left > 0 and (chunk := stream.read(min(left, _CHUNK_BYTES))):
        total.update(chunk)
        left -= len(chunk)
    if left != 0 or stream.read(_DIGEST_BYTES) != total.digest():
        raise SnapshotCorruptError(f"{file} is damaged or truncated: its digest does not match", file=file)


def _encode_head(head: SnapshotHead) -> bytes:
    position = head.position
    return json.dumps(
        {
            "cluster_id": position.identity.cluster_id,
            "topic_id": position.identity.topic_id,
            "next_offset": position.next_offset,
            "leader_epoch": position.leader_epoch,
            "given_up": [asdict(entry) for entry in head.given_up],
            "target": head.target,
            "taken_ms": head.taken_ms,
            "passed_over": sorted(head.passed_over),
            "roots": None if head.roots is None else list(head.roots),
        }
    ).encode()


def _decode_head(data: bytes) -> SnapshotHead:
    found = json.loads(data)
    identity = LogIdentity(checked_text(found["cluster_id"]), checked_text(found["topic_id"]))
    epoch = found["leader_epoch"]
    position = Position(
        identity, Offset(checked_number(found["next_offset"])), None if epoch is None else checked_number(epoch)
    )
    given_up = tuple(map(_decode_entry, found["given_up"]))
    # earlier versions wrote neither
    passed_over, roots = frozenset(map(checked_text, found.get("passed_over", ()))), found.get("roots")
    return SnapshotHead(
        position,
        given_up,
        checked_text(found["target"]),
        checked_ms(found["taken_ms"]),
        passed_over,
        None if roots is None else tuple(parse_path(checked_text(path)) for path in roots),
    )


def _decode_entry(found: dict[str, Any]) -> GivenUp:
    publisher = found["pub_agent_name"]
    return GivenUp(
        Offset(checked_number(found["offset"])),
        PackageId(checked_text(found["package_id"])),
        None if publisher is None else parse_agent_name(checked_text(publisher)),
        tuple(parse_path(checked_text(path)) for path in found["paths"]),
        _decode_cause(found["cause"]),
        checked_number(found["attempts"]),
        checked_ms(found["given_up_ms"]),
        checked_number(found.get("more_paths", 0)),  # earlier versions wrote all paths
    )


def _decode_cause(found: dict[str, Any]) -> FailureCause:
    path, trace = found["path"], found["trace_excerpt"]
    return FailureCause.bounded(
        checked_text(found["code"]),
        checked_text(found["message"]),
        None if path is None else checked_text(path),
        None if trace is None else checked_text(trace),
    )


def checked_text(value: object) -> str:
    """A text of a snapshot's description. Raises: TypeError, ValueError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a string")
    value.encode()  # half of a surrogate pair, which JSON can name, and no target can store
    return value


def checked_number(value: object) -> int:
    """A count or offset of a snapshot's description. Raises: ValueError for what can't be one."""
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r:.40} is not a number of a snapshot")
    return value


def checked_ms(value: object) -> int:
    """A wall time, in milliseconds since 1970 UTC. Raises: ValueError for what can't be one."""
    if (found := checked_number(value)) > LAST_MS:
        raise ValueError(f"{found} ms is not a valid time")
    return found


class _HashedWriter(io.RawIOBase):
    """Writes through, and hashes on the way."""

    def __init__(self, into: BinaryIO) -> None:
        super().__init__()
        self._into = into
        self._hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        view = memoryview(data)  # type: ignore[arg-type]  # typeshed's ReadableBuffer is not importable
        self._hash.update(view)
        return self._into.write(view)

    def digest(self) -> bytes:
        return self._hash.digest()


class _Window(io.RawIOBase):
    """A part of a file, as if it were all of it."""

    def __init__(self, stream: BinaryIO, start: int, end: int) -> None:
        super().__init__()
        self._stream = stream
        self._start = start
        self._end = end
        self._at = start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at - self._start

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: self._start, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = max(self._start, base + offset)
        return self.tell()

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # typeshed's WriteableBuffer is not importable
        self._stream.seek(self._at)
        data = self._stream.read(max(0, min(len(view), self._end - self._at)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
