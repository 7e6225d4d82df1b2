"""Folders held open, whose entries are used by descriptor and never through a link.

A path is resolved again by every call, so another process that may write to a folder can exchange any part of the path
between a check and the use. A handle is resolved once: an entry is then named by the handle and a single name, opened
with `O_NOFOLLOW` (a link is refused) and `O_NONBLOCK` (a FIFO does not hang the caller), and compared by device and
inode with what was checked before. Sources, targets and blob folders use files through this module.

Modes are upper bounds, which the umask may lower: state is for its owner only, published content is readable by all and
writable by its owner.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final, Self

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
PUBLIC_FILE: Final = 0o644
PUBLIC_FOLDER: Final = 0o755

_COMMON: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | _COMMON
_READ: Final = os.O_RDONLY | _COMMON
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | _COMMON
_LOCK: Final = os.O_RDWR | os.O_CREAT | _COMMON
_EXCHANGED: Final = (errno.ENOTDIR, errno.ELOOP, None)
"""What `rmtree` reports of a link in place of a folder; its own refusal of links has no number."""
# each one is a race lost to another process: an attack must not make a loop without end
_MOST_EXCHANGES: Final = 20


class ForeignEntryError(OSError):
    """A signal for translation: a link, a special file, or a file that was exchanged since it was checked."""


class FolderHandle:
    """An open folder. Close it; operations raise OSError, ForeignEntryError for what must not be used."""

    def __init__(self, descriptor: int, place: str) -> None:
        """Take over an open descriptor; `place` is its path, for messages."""
        self.descriptor = descriptor
        self.place = place

    @classmethod
    def open(cls, place: str) -> Self:
        """Open a folder by its path; its last part must not be a link."""
        try:
            return cls(os.open(place, _FOLDER), place)
        except OSError as error:
            _refuse_link(error, place, None)
            raise

    def folder(self, name: str) -> FolderHandle:
        """Open a folder in this one."""
        place = f"{self.place}/{name}"
        try:
            return FolderHandle(os.open(name, _FOLDER, dir_fd=self.descriptor), place)
        except OSError as error:
            _refuse_link(error, place, self.status(name))
            raise

    def make_folder(self, name: str, mode: int = PRIVATE_FOLDER) -> FolderHandle:
        """Open a folder in this one, made if it is missing."""
        # What exists may be a link or a file: `folder` refuses both.
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=self.descriptor)
        return self.folder(name)

    def names(self) -> list[str]:
        """The names of all entries, in no order."""
        return os.listdir(self.descriptor)  # noqa: PTH208  # pathlib takes no descriptors

    def status(self, name: str) -> os.stat_result | None:
        """The status of an entry itself, also of a link; None if absent."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_file(self, name: str, expected: os.stat_result | None = None) -> FileIO:
        """Open a regular file for reading; with `expected`, only the very file that has this status."""
        place = f"{self.place}/{name}"
        try:
            descriptor = os.open(name, _READ, dir_fd=self.descriptor)
        except OSError as error:
            _refuse_link(error, place, self.status(name))
            raise
        _check_regular(descriptor, place, expected)
        return FileIO(descriptor)

    def create_file(self, name: str, mode: int = PRIVATE_FILE) -> FileIO:
        """Make a file for writing. An entry of that name is removed first, so nothing is ever written through it."""
        try:
            descriptor = os.open(name, _CREATE, mode, dir_fd=self.descriptor)
        except FileExistsError:
            # Not O_TRUNC: the entry may be a link, or share its bytes with another generation by a hard link.
            self.remove(name)
            descriptor = os.open(name, _CREATE, mode, dir_fd=self.descriptor)
        return FileIO(descriptor, "r+b")

    def open_lock(self, name: str) -> int:
        """The descriptor of a file to be locked, made if it is missing."""
        place = f"{self.place}/{name}"
        try:
            # neither O_EXCL nor O_TRUNC: processes share the file, and it may hold the id of the one with the lock
            descriptor = os.open(name, _LOCK, PRIVATE_FILE, dir_fd=self.descriptor)
        except OSError as error:
            _refuse_link(error, place, self.status(name))
            raise
        _check_regular(descriptor, place, None)
        return descriptor

    def remove(self, name: str) -> bool:
        """Remove an entry, a folder with all that is below it; links are removed, not followed. Whether it existed.

        Raises:
            OSError: It can't be removed, or another process exchanges it all the time.
        """
        exchanges = 0
        while True:
            try:
                # Tried first: it never follows a link, and leaves a folder as it is.
                os.unlink(name, dir_fd=self.descriptor)
            except FileNotFoundError:
                return False
            except IsADirectoryError:
                try:
                    # With `dir_fd` it walks by descriptors, and refuses a link that takes the place of a folder.
                    shutil.rmtree(name, dir_fd=self.descriptor)
                # another process removes it, too
                except FileNotFoundError:
                    return True
                except OSError as error:
                    exchanges += 1
                    if error.errno not in _EXCHANGED or exchanges > _MOST_EXCHANGES:
                        raise
                    # it became a link after the first look: the next `unlink` removes that
                    continue
            return True

    def move(self, name: str, into: FolderHandle, new_name: str) -> None:
        """Rename an entry, replacing a file of that name."""
        # atomic, and durable only after `sync` of both folders
        os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=into.descriptor)

    def sync(self) -> None:
        """Make the names in this folder durable."""
        os.fsync(self.descriptor)

    def close(self) -> None:
        """Release the descriptor."""
        # a second close must not close a descriptor that the kernel has given to another file since
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FolderTrail:
    """The folders from a root down to the current one, all held open: entering a neighbour opens few of them again."""

    def __init__(self, root: FolderHandle) -> None:
        """Begin in `root`, which stays the caller's."""
        self._handles = [root]
        self._names: list[str] = []

    @property
    def last(self) -> FolderHandle:
        """The current folder."""
        return self._handles[-1]

    def back_to(self, names: Sequence[str]) -> Sequence[str]:
        """Leave the folders that are not on the way to the one of that name; the names still to enter."""
        shared = 0
        for mine, wanted in zip(self._names, names, strict=False):
            if mine != wanted:
                break
            shared += 1
        while len(self._names) > shared:
            self._handles.pop().close()
            self._names.pop()
        return names[shared:]

    def step(self, name: str) -> None:
        """Enter a folder of the current one."""
        self._handles.append(self.last.folder(name))
        self._names.append(name)

    def enter(self, names: Sequence[str]) -> FolderHandle:
        """Make the folder of that name, relative to the root, the current one."""
        for name in self.back_to(names):
            self.step(name)
        return self.last

    def close(self) -> None:
        """Release all folders but the root."""
        self.back_to(())


def make_path(folder: Path, mode: int = PRIVATE_FOLDER) -> None:
    """Make a folder and those that lead to it, with that mode at most. Raises: OSError."""
    # One by one: `mkdir` with `parents` gives the mode to the last folder alone.
    for place in reversed([folder, *folder.parents]):
        if not place.is_dir():
            place.mkdir(mode=mode, exist_ok=True)


def make_file(file: Path, mode: int = PRIVATE_FILE) -> None:
    """Make an empty file with that mode at most, unless it exists: SQLite would take a mode that others can read.

    SQLite gives its log and its index the mode of the database. Raises: OSError.
    """
    with suppress(FileExistsError):
        os.close(os.open(file, _CREATE, mode))


def open_regular_file(place: str | os.PathLike[str]) -> FileIO:
    """Open a file that a user named, for reading: through links, but never a FIFO or a device.

    Raises: OSError, ForeignEntryError.
    """
    # O_NONBLOCK: the open of a FIFO without a writer would hang
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    _check_regular(descriptor, os.fspath(place), None)
    return FileIO(descriptor)


def is_same_entry(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    """Whether two statuses are of the same file or folder."""
    return one is not None and other is not None and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _check_regular(descriptor: int, place: str, expected: os.stat_result | None) -> None:
    """Close the descriptor and raise unless it is of a regular file, and of the expected one."""
    try:
        # of the descriptor: the path may lead elsewhere by now
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place)
        if not stat.S_ISREG(found.st_mode):
            raise ForeignEntryError(errno.ELOOP, "is a pipe or a device and not a file", place)
        if expected is not None and not is_same_entry(found, expected):
            raise ForeignEntryError(errno.ELOOP, "was exchanged for another file", place)
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_link(error: OSError, place: str, status: os.stat_result | None) -> None:
    """Linux says ELOOP of a link that is opened as a file, and ENOTDIR of one that is opened as a folder."""
    # no second look: what was a link may have been exchanged since
    if error.errno == errno.ELOOP:
        raise ForeignEntryError(errno.ELOOP, "is a link", place) from error
    if error.errno not in {errno.ENOTDIR, errno.ENXIO}:
        return
    found = status
    if found is None:
        try:
            found = os.lstat(place)
        except OSError:
            return
    if stat.S_ISLNK(found.st_mode):
        raise ForeignEntryError(errno.ELOOP, "is a link", place) from error
    if error.errno == errno.ENXIO:
        raise ForeignEntryError(errno.ELOOP, "is a socket and not a file", place) from error
