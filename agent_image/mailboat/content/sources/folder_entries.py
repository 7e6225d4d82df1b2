"""What lies in a source folder, looked at with care: names, kinds, links, and whether a file changed while it was read.

A symbolic link to a file or folder inside of the source is followed, as its owner means the content; one that leads
outside, nowhere, or to a folder that it lies in itself is refused with its path. Sockets, devices and names that are
not UTF-8 are refused, too: what can't be published should not be left out in silence.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, Final, NamedTuple

from mailboat.errors import PathRefusedError, SourceChangedError, UsageError
from mailboat.model.nodes import Binary

_BUFFER_BYTES: Final = 1024 * 1024
"""For large files. With a smaller one each read takes its memory anew, and page faults cost more than a copy."""
_LINK_STEP: Final = "remove the link, or publish paths beside it"


class FileSignature(NamedTuple):
    """What the state of a file is recognised by without reading it."""

    length_bytes: int
    modified_ns: int
    changed_ns: int
    inode: int


def signature_of(status: os.stat_result) -> FileSignature:
    """The signature in a status."""
    return FileSignature(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@contextmanager
def readable_source(disk: str) -> Iterator[None]:
    """Tell the failures of reading a source as ours. Raises: SourceChangedError, UsageError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise SourceChangedError(f"{disk!a} went away while the source was read") from error
    except OSError as error:
        raise UsageError(f"{disk!a} can't be read: {error.strerror or error}") from error


def look_at(disk: str, root: str) -> os.stat_result:
    """The status of an entry, through a link that stays within `root`. Raises: PathRefusedError, OSError."""
    status = os.lstat(disk)
    if stat.S_ISLNK(status.st_mode):
        status = _follow(disk, root)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise PathRefusedError(f"{disk!a} is neither a file nor a folder (a socket, a pipe or a device)", path=disk)
    return status


def _follow(disk: str, root: str) -> os.stat_result:
    leads_to = os.path.realpath(disk)
    if leads_to != root and not leads_to.startswith(root.rstrip("/") + "/"):
        raise PathRefusedError(
            f"{disk!a} is a link that leads outside of {root}, to {leads_to!a}", next_step=_LINK_STEP, path=disk
        )
    try:
        return os.stat(disk)  # noqa: PTH116  # texts all along: a Path for each entry costs more than the call
    except OSError as error:
        raise PathRefusedError(
            f"{disk!a} is a link that leads nowhere, to {leads_to!a}", next_step=_LINK_STEP, path=disk
        ) from error


def read_small(disk: str, limit_bytes: int) -> Binary | None:
    """The bytes of a file up to that size, None for a larger one. Raises: SourceChangedError, OSError."""
    with open(disk, "rb", buffering=0) as file:  # noqa: PTH123  # as above
        before = os.fstat(file.fileno())
        if before.st_size > limit_bytes:
            return None
        data = file.read(before.st_size + 1)
        after = os.fstat(file.fileno())
    if len(data) != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
        raise SourceChangedError(f"{disk!a} changed while it was read")
    return Binary(data)


def binary_of_file(disk: str, signature: FileSignature, digest: bytes | None = None) -> Binary:
    """The binary of a file that is too large to be held; hashed when its digest is asked for, unless that is known.

    Its stream raises SourceChangedError when the file is not the one of the signature. Raises: the same, UsageError
    where the file can't be read.
    """
    opener = partial(open_unchanged, disk, signature)
    if digest is None:
        opener().close()  # what can't be read is told where it is met, not where it is packed
    return Binary(digest=digest, length_bytes=signature.length_bytes, opener=opener)


def open_unchanged(disk: str, signature: FileSignature) -> BinaryIO:
    """A stream over a file that raises SourceChangedError unless the file is, and stays, what the signature says."""
    return io.BufferedReader(_UnchangedFile(disk, signature), buffer_size=_BUFFER_BYTES)


class _UnchangedFile(io.RawIOBase):
    """Looks at the file's status when it is opened and whenever its end is met."""

    def __init__(self, disk: str, signature: FileSignature) -> None:
        super().__init__()
        self._disk = disk
        self._signature = signature
        with readable_source(disk):
            self._file = open(disk, "rb", buffering=0)  # noqa: PTH123, SIM115  # closed with this object
        self._left_bytes = signature.length_bytes
        self._check()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        with readable_source(self._disk):
            count = self._file.readinto(buffer) or 0  # type: ignore[arg-type]  # typeshed's WriteableBuffer
        self._left_bytes -= count
        if self._left_bytes <= 0 or count == 0:
            self._check()
            if self._left_bytes != 0:
                raise self._changed()
        return count

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def _check(self) -> None:
        status = os.fstat(self._file.fileno())
        now = (status.st_size, status.st_mtime_ns, status.st_ino)
        if now != (self._signature.length_bytes, self._signature.modified_ns, self._signature.inode):
            self._file.close()
            raise self._changed()

    def _changed(self) -> SourceChangedError:
        return SourceChangedError(f"{self._disk!a} changed while it was read")
