"""The folder `jcr_root` of a checkout as the files and directories that `layout_reader.py` reads.

Directories are listed when they are asked for. Links, sockets and files that change while they are read are treated as
in any source folder (`content/sources/folder_entries.py`). What tools leave in checkouts is not content.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO, Final

from mailboat.content.disk_layout import not_utf_8
from mailboat.content.sources.folder_entries import (
    SourceFolders,
    binary_of_file,
    closed_folders,
    open_unchanged,
    readable_source,
    signature_of,
)
from mailboat.model.nodes import Binary
from mailboat.packages.filevault.vault_files import INLINE_BINARY_BYTES

LEFT_BY_TOOLS: Final = frozenset(
    {".git", ".svn", ".hg", ".DS_Store", "Thumbs.db", ".vltignore", ".gitkeep", ".gitignore"}
)


class CheckoutFile:
    """A file on disk."""

    __slots__ = ("_disk", "_root", "_status", "entry", "size_bytes")

    def __init__(self, entry: str, root: str, disk: str, status: os.stat_result) -> None:
        self.entry = entry
        self.size_bytes = status.st_size
        self._root = root
        self._disk = disk
        self._status = status

    def head(self, length: int) -> bytes:
        with self.open() as stream:
            return stream.read(length)

    def read(self) -> bytes:
        """All of it. Raises: SourceChangedError."""
        with self.open() as stream:
            return stream.read()

    def open(self) -> BinaryIO:
        """A stream over it, which raises SourceChangedError when the file is not the one checked."""
        return open_unchanged(self._root, self._disk, signature_of(self._status))

    def binary(self) -> Binary:
        """Its bytes; see `VaultFile.binary`."""
        if self.size_bytes <= INLINE_BINARY_BYTES:
            return Binary(self.read())
        return binary_of_file(self._root, self._disk, signature_of(self._status))


class CheckoutDirectory:
    """A directory on disk."""

    is_explicit = True

    def __init__(self, entry: str, disk: str, root: str) -> None:
        """Stand for a directory; `root` is the checkout, which no link may leave."""
        self.entry = entry
        self._disk = disk
        self._root = root
        self._files: dict[str, CheckoutFile] | None = None
        self._directories: dict[str, CheckoutDirectory] = {}

    def files(self) -> dict[str, CheckoutFile]:
        """Files in it, by name. Raises: PathRefusedError, SourceChangedError, UsageError."""
        if self._files is None:
            self._files = {}
            with readable_source(self._disk), closed_folders(self._root) as folders:
                for name in sorted(folders.entries(self._disk)):
                    if name not in LEFT_BY_TOOLS:
                        self._add(name, self._files, folders)
        return self._files

    def directories(self) -> dict[str, CheckoutDirectory]:
        """Directories in it, by name. Raises: as `files`."""
        self.files()
        return self._directories

    def _add(self, name: str, files: dict[str, CheckoutFile], folders: SourceFolders) -> None:
        disk, entry = f"{self._disk}/{name}", f"{self.entry}/{name}"
        if not name.isprintable() and any("\ud800" <= character <= "\udfff" for character in name):
            raise not_utf_8(name, self._disk)
        disk, status = folders.resolve(disk)
        if stat.S_ISDIR(status.st_mode):
            self._directories[name] = CheckoutDirectory(entry, disk, self._root)
        else:
            files[name] = CheckoutFile(entry, self._root, disk, status)
