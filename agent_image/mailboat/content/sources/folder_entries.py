"""The entries of a source folder, checked: names, kinds, links, and whether a file changed while it was read.

A symbolic link to a file or folder inside of the source is followed, as its owner means the content; one that leads
outside, nowhere, or to a folder that it lies in itself is refused with its path. Sockets, devices and names that are
not UTF-8 are refused, too: what can't be published should not be left out silently.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from mailboat.clock import Clock
from mailboat.errors import PathRefusedError, SourceChangedError, UsageError
from mailboat.folder_handle import FolderHandle, FolderTrail, ForeignEntryError, is_same_entry
from mailboat.model.nodes import Binary

_BUFFER_BYTES: Final = 1024 * 1024
"""For large files. With a smaller one each read allocates its memory, and page faults cost more than a copy."""
_LINK_STEP: Final = "remove the link, or publish other paths"


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
    """Translate the failures of reading a source. Raises: SourceChangedError, UsageError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise SourceChangedError(f"{disk!a} disappeared while the source was read") from error
    except ForeignEntryError as error:
        raise SourceChangedError(f"{error.filename!a} {error.strerror}, which it was not before") from error
    except OSError as error:
        if error.errno == errno.ESTALE:  # on NFS, of what another machine removed
            raise SourceChangedError(f"{disk!a} disappeared while the source was read") from error
        raise UsageError(f"{disk!a} can't be read: {error.strerror or error}") from error


class SourceRoot:
    """The folder of a source, which may be given as a link.

    The link is resolved once: a release may be read to its end, though the link leads to the next one. But not while
    it is removed, as folders that are being emptied list what is left, without an error.

    Attributes:
        place: Its path, without a link.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Resolve `folder`, which need not exist."""
        self.place: Final = os.path.realpath(folder)
        self._given = folder
        self._opened_ns = int(clock.now().timestamp() * 1e9)
        self._changed_ns = 0

    def note(self, folder: os.stat_result) -> None:
        """Note the status of a folder in it, after that was listed."""
        self._changed_ns = max(self._changed_ns, folder.st_mtime_ns)

    def check(self) -> None:
        """Raises: SourceChangedError: The link leads elsewhere, and a folder noted has changed since `__init__`."""
        if self._changed_ns > self._opened_ns and os.path.realpath(self._given) != self.place:
            raise SourceChangedError(f"{self._given} leads elsewhere now, and {self.place} was changed")


class SourceFolders:
    """The folders of a source, entered by handle: entries are exchanged by others while they are read.

    Paths are absolute and below the root, which has no link in it. A link that is followed is resolved to such a path
    first; what becomes a link afterwards is refused. One thread at a time; `release` when a walk begins and ends, so
    that no folder is used that was exchanged since the walk before.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._trail: FolderTrail | None = None
        self._current = ""

    def entries(self, folder: str, expected: os.stat_result | None = None) -> list[str]:
        """The names in a folder, the very one that has the expected status. Raises: OSError."""
        handle = self._enter(folder)
        if expected is not None and not is_same_entry(os.fstat(handle.descriptor), expected):
            raise ForeignEntryError(errno.ELOOP, "was exchanged for another folder", folder)
        return handle.names()

    def resolve(self, disk: str) -> tuple[str, os.stat_result]:
        """Where an entry is, through a link that stays within the root, and its status.

        Raises: PathRefusedError, OSError.
        """
        return self._resolved(disk, self._status(disk))

    def find(self, disk: str) -> tuple[str, os.stat_result] | None:
        """As `resolve`; None if there is no entry of that name in its folder. Raises: PathRefusedError, OSError."""
        folder, _, name = disk.rpartition("/")
        status = self._enter(folder).status(name)
        return None if status is None else self._resolved(disk, status)

    def _resolved(self, disk: str, status: os.stat_result) -> tuple[str, os.stat_result]:
        if stat.S_ISLNK(status.st_mode):
            disk, status = self._follow(disk)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise PathRefusedError(f"{disk!a} is neither a file nor a folder (a socket, a pipe or a device)", path=disk)
        return disk, status

    def open(self, disk: str, expected: os.stat_result | None = None) -> FileIO:
        """Open a file, the very one that has the expected status. Raises: OSError."""
        folder, _, name = disk.rpartition("/")
        return self._enter(folder).open_file(name, expected)

    def check_root(self) -> None:
        """See that the root is still the folder that was entered. Raises: ForeignEntryError, OSError."""
        if self._trail is None:
            return
        entered = os.fstat(self._trail.enter(()).descriptor)
        if not is_same_entry(entered, os.stat(self._root)):  # noqa: PTH116  # a text, as all paths here
            raise ForeignEntryError(errno.ELOOP, "was exchanged for another folder", self._root)

    def is_readable(self, disk: str) -> bool:
        """Whether this process may read a file. Raises: OSError."""
        folder, _, name = disk.rpartition("/")
        return os.access(name, os.R_OK, dir_fd=self._enter(folder).descriptor)

    def read(self, disk: str, limit_bytes: int, expected: os.stat_result | None = None) -> Binary | None:
        """The bytes of a file up to that size, None for a larger one. Raises: SourceChangedError, OSError."""
        with self.open(disk, expected) as file:
            before = os.fstat(file.fileno())
            if before.st_size > limit_bytes:
                return None
            # one byte more than the status says shows a file that grew since
            data = file.read(before.st_size + 1)
            after = os.fstat(file.fileno())
        if len(data) != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
            raise SourceChangedError(f"{disk!a} changed while it was read")
        return Binary(data)

    def release(self) -> None:
        self._current = ""
        trail, self._trail = self._trail, None
        if trail is not None:
            trail.close()
            trail.last.close()

    def _enter(self, folder: str) -> FolderHandle:
        if self._trail is None:
            self._trail = FolderTrail(FolderHandle.open(self._root))
            self._current = self._root
        if folder != self._current:
            self._current = ""  # unknown, should entering fail half way
            self._trail.enter([name for name in folder.removeprefix(self._root).split("/") if name])
            self._current = folder
        return self._trail.last

    def _status(self, disk: str) -> os.stat_result:
        if disk == self._root:
            return os.fstat(self._enter(disk).descriptor)
        folder, _, name = disk.rpartition("/")
        return os.stat(name, dir_fd=self._enter(folder).descriptor, follow_symlinks=False)

    def _follow(self, disk: str) -> tuple[str, os.stat_result]:
        leads_to = os.path.realpath(disk)
        if leads_to != self._root and not leads_to.startswith(self._root.rstrip("/") + "/"):
            raise PathRefusedError(
                f"{disk!a} is a link that leads outside of {self._root}, to {leads_to!a}",
                next_step=_LINK_STEP,
                path=disk,
            )
        try:
            status = self._status(leads_to)
        except FileNotFoundError as error:
            raise PathRefusedError(
                f"{disk!a} is a link that leads nowhere, to {leads_to!a}", next_step=_LINK_STEP, path=disk
            ) from error
        if stat.S_ISLNK(status.st_mode):
            raise PathRefusedError(f"{disk!a} is a link that leads to itself", next_step=_LINK_STEP, path=disk)
        return leads_to, status


@contextmanager
def closed_folders(root: str) -> Iterator[SourceFolders]:
    """The folders of a source for one step: nothing of them stays open."""
    folders = SourceFolders(root)
    try:
        yield folders
    finally:
        folders.release()


def binary_of_file(root: str, disk: str, signature: FileSignature, digest: bytes | None = None) -> Binary:
    """The binary of a file too large for memory; hashed on demand unless its digest is cached.

    Its stream raises SourceChangedError when the file is not the one of the signature. Raises: the same, UsageError
    where the file can't be read.
    """
    opener = partial(open_unchanged, root, disk, signature)
    if digest is None:
        opener().close()  # what can't be read is reported where it is found, not where it is packed
    return Binary(digest=digest, length_bytes=signature.length_bytes, opener=opener)


def open_unchanged(root: str, disk: str, signature: FileSignature) -> BinaryIO:
    """A stream over a file below the folder `root`, which has no link in it.

    It raises SourceChangedError unless the file is, and stays, what the signature says.
    """
    return io.BufferedReader(_UnchangedFile(root, disk, signature), buffer_size=_BUFFER_BYTES)


class _UnchangedFile(io.RawIOBase):
    """Checks the file's status when it is opened and whenever its end is met."""

    def __init__(self, root: str, disk: str, signature: FileSignature) -> None:
        super().__init__()
        self._disk = disk
        self._signature = signature
        with readable_source(disk), closed_folders(root) as folders:
            self._file = folders.open(disk)  # closed with this object
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
        # without the time of change: a new link or other rights renew it, and the bytes stay
        now = (status.st_size, status.st_mtime_ns, status.st_ino)
        if now != (self._signature.length_bytes, self._signature.modified_ns, self._signature.inode):
            self._file.close()
            raise self._changed()

    def _changed(self) -> SourceChangedError:
        return SourceChangedError(f"{self._disk!a} changed while it was read")
