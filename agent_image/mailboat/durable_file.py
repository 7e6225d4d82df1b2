"""Files that take their place as a whole: written under another name, synchronised, renamed, the folder synchronised.

The one way in which state, documents, blobs, snapshots and package files are written. After a crash at any instant the
name stands for the old file or for the new one, and once a call has returned, for the new one.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Self, cast

from mailboat.folder_handle import PRIVATE_FILE, FolderHandle

NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""Of a file system without hard links."""


class Draft:
    """A file in the making; what is neither placed nor linked is removed when the context ends."""

    def __init__(self, folder: FolderHandle, mode: int = PRIVATE_FILE) -> None:
        """Begin in `folder`, under a name that no other thread, process or machine uses. Raises: OSError."""
        self._folder = folder
        self._name = f".{os.urandom(16).hex()}.new"
        self._raw = folder.create_file(self._name, mode)
        self.stream = cast("BinaryIO", io.BufferedRandom(self._raw))

    def place(self, into: FolderHandle, name: str) -> None:
        """Give the file its name, replacing what has it; durable on return. Raises: OSError."""
        # bytes, name, folder: after a crash a name must not stand for missing bytes
        self.synchronise()
        self._folder.move(self._name, into, name)
        into.sync()

    def link(self, into: FolderHandle, name: str) -> bool:
        """Give the file its name, unless there is a file of that name; durable on return. Raises: OSError."""
        self.synchronise()
        try:
            # unlike a rename, a link never replaces a file
            os.link(self._name, name, src_dir_fd=self._folder.descriptor, dst_dir_fd=into.descriptor)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if into.status(name) is not None:
                return False
            # of two writers at the same moment the later one replaces the file
            self._folder.move(self._name, into, name)
        into.sync()
        return True

    def touch(self, seconds: float) -> None:
        """Set the times of the file. Raises: OSError."""
        self.stream.flush()
        os.utime(self._raw.fileno(), (seconds, seconds))

    def synchronise(self) -> None:
        """Make the bytes durable. Raises: OSError."""
        self.stream.flush()
        os.fsync(self._raw.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # on a full disk the last bytes can't be written
            self.stream.close()
        self._folder.remove(self._name)


@contextmanager
def replaced_file(file: Path, mode: int = PRIVATE_FILE) -> Iterator[BinaryIO]:
    """A stream to write a file that takes its place, durably, when the context ends without an error.

    Raises: OSError.
    """
    with FolderHandle.open(os.path.realpath(file.parent)) as folder, Draft(folder, mode) as draft:
        yield draft.stream
        draft.place(folder, file.name)
