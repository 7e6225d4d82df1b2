"""The folder `jcr_root` of a zip as the files and directories that `aggregates.py` reads, and its binaries."""

from __future__ import annotations

import hashlib
from typing import BinaryIO, Final

from mailboat.errors import PackageCorruptError
from mailboat.model.nodes import Binary
from mailboat.model.paths import ROOT, NodePath
from mailboat.packages.filevault.archive import Archive, Entry
from mailboat.packages.filevault.filters import FILTER_XML
from mailboat.packages.filevault.names import directory_name
from mailboat.packages.filevault.properties import PROPERTIES_XML
from mailboat.packages.filevault.vault_files import VaultFile

CONTENT_ROOT: Final = "jcr_root"
READ_ANYWAY: Final = frozenset({FILTER_XML, PROPERTIES_XML})
HASH_CHUNK_BYTES: Final = 256 * 1024


class ArchiveFile:
    """A file of the zip."""

    __slots__ = ("_archive", "_entry", "entry", "size_bytes")

    def __init__(self, archive: Archive, entry: Entry) -> None:
        """Stand for an entry."""
        self._archive = archive
        self._entry = entry
        self.entry = entry.name
        self.size_bytes = entry.size_bytes

    def head(self, length: int) -> bytes:
        """Its first bytes."""
        with self._archive.open(self._entry) as stream:
            return stream.read(length)

    def read(self) -> bytes:
        """All of it, checked."""
        return self._archive.read(self._entry)

    def open(self) -> BinaryIO:
        """A stream over it, checked at its end."""
        return self._archive.open(self._entry)


class ArchiveDirectory:
    """A directory of the zip."""

    __slots__ = ("_directories", "_files", "entry", "is_explicit")

    def __init__(self, entry: str) -> None:
        """Begin empty; `entry` is its path in the zip."""
        self.entry = entry
        self.is_explicit = False
        self._directories: dict[str, ArchiveDirectory] = {}
        self._files: dict[str, ArchiveFile] = {}

    def files(self) -> dict[str, ArchiveFile]:
        """Files in it, by name."""
        return self._files

    def directories(self) -> dict[str, ArchiveDirectory]:
        """Directories in it, by name."""
        return self._directories

    def enter(self, name: str) -> ArchiveDirectory:
        """The directory within, made when it is not there. Raises: PackageCorruptError where a file is in its place."""
        found = self._directories.get(name)
        if found is None:
            found = self._directories[name] = ArchiveDirectory(f"{self.entry}/{name}")
            if name in self._files:
                raise PackageCorruptError("an entry is both a file and a directory", entry=found.entry)
        return found

    def put(self, name: str, file: ArchiveFile) -> None:
        """Add a file. Raises: PackageCorruptError where a directory is in its place."""
        if name in self._directories:
            raise PackageCorruptError("an entry is both a file and a directory", entry=file.entry)
        self._files[name] = file


def content_root(archive: Archive, top: str = CONTENT_ROOT) -> ArchiveDirectory:
    """The tree below `jcr_root`, or below a directory in it; empty when there is none. Raises: PackageCorruptError."""
    root = ArchiveDirectory(top)
    by_path, below = {top: root}, f"{top}/"
    entries = archive.entries.values()
    for entry in entries:
        path, slash, name = entry.name.removesuffix("/").rpartition("/")
        if entry.name[-1] == "/":
            if entry.name == below:
                root.is_explicit = True
            elif entry.name.startswith(below):
                _enter(by_path, entry.name[:-1]).is_explicit = True
        elif slash and (path == top or path.startswith(below)):
            _enter(by_path, path).put(name, ArchiveFile(archive, entry))
        elif entry.name not in READ_ANYWAY:
            archive.data_offset(entry)  # its name must be true in both headers, or content was renamed away
    return root


def is_all_below(archive: Archive, top: str) -> bool:
    """Whether all content of a package is below one directory."""
    below = f"{top}/"
    return all(name.startswith(below) for name in archive.entries if name.startswith(f"{CONTENT_ROOT}/"))


def platform_path(path: NodePath) -> str:
    """The zip directory of a node, without a slash at the end."""
    if path == ROOT:
        return CONTENT_ROOT
    return f"{CONTENT_ROOT}/" + "/".join([directory_name(name) for name in path[1:].split("/")])


def _enter(by_path: dict[str, ArchiveDirectory], path: str) -> ArchiveDirectory:
    found = by_path.get(path)
    if found is None:
        parent, _, name = path.rpartition("/")
        found = by_path[path] = _enter(by_path, parent).enter(name)
    return found


def binary_of(file: VaultFile, inline_bytes: int) -> Binary:
    """The bytes of a file: held inline up to a size, otherwise hashed now and opened again when they are needed."""
    if file.size_bytes <= inline_bytes:
        return Binary(file.read())
    total, length = hashlib.sha256(), 0
    with file.open() as stream:
        while piece := stream.read(HASH_CHUNK_BYTES):
            total.update(piece)
            length += len(piece)
    return Binary(digest=total.digest(), length_bytes=length, opener=file.open)
