"""The folder `jcr_root` of a zip as the files and directories that `layout_reader.py` reads, and its binaries."""

from __future__ import annotations

import hashlib
from typing import BinaryIO, Final

from mailboat.errors import PackageCorruptError
from mailboat.model.nodes import Binary
from mailboat.model.paths import ROOT, NodePath
from mailboat.packages.filevault.archive_reader import ZipArchive, ZipEntry
from mailboat.packages.filevault.filter_xml import FILTER_XML
from mailboat.packages.filevault.names import directory_name
from mailboat.packages.filevault.properties import PROPERTIES_XML
from mailboat.packages.filevault.vault_files import INLINE_BINARY_BYTES

CONTENT_ROOT: Final = "jcr_root"
READ_ANYWAY: Final = frozenset({FILTER_XML, PROPERTIES_XML})
HASH_CHUNK_BYTES: Final = 256 * 1024

_Folder = dict[str, "ZipEntry | _Folder"]
"""What is in a folder, by name. Names alone are held: the paths of all folders are many times as long as the zip."""
_ITSELF: Final = ""
"""The name under which a folder holds its own entry, where it has one."""


class ArchiveFile:
    """A file of the zip."""

    __slots__ = ("_archive", "_entry", "entry", "size_bytes")

    def __init__(self, archive: ZipArchive, entry: ZipEntry) -> None:
        self._archive = archive
        self._entry = entry
        self.entry = entry.name
        self.size_bytes = entry.size_bytes

    def head(self, length: int) -> bytes:
        with self._archive.open(self._entry) as stream:
            return stream.read(length)

    def read(self) -> bytes:
        return self._archive.read(self._entry)

    def open(self) -> BinaryIO:
        return self._archive.open(self._entry)

    def binary(self) -> Binary:
        """Its bytes; see `VaultFile.binary`. Those of a large one are hashed now: a zip has no SHA-256 of them."""
        if self.size_bytes <= INLINE_BINARY_BYTES:
            return Binary(self.read())
        total, length = hashlib.sha256(), 0
        with self.open() as stream:
            while piece := stream.read(HASH_CHUNK_BYTES):
                total.update(piece)
                length += len(piece)
        return Binary(digest=total.digest(), length_bytes=length, opener=self.open)


class ArchiveDirectory:
    """A directory of the zip, listed when it is asked for: only then is the text of each path below it made."""

    __slots__ = ("_archive", "_directories", "_files", "_folder", "entry", "is_explicit")

    def __init__(self, archive: ZipArchive, entry: str, folder: _Folder) -> None:
        """Stand for a folder; `entry` is its path in the zip."""
        self.entry = entry
        self.is_explicit = _ITSELF in folder
        self._archive = archive
        self._folder = folder
        self._files: dict[str, ArchiveFile] | None = None
        self._directories: dict[str, ArchiveDirectory] = {}

    def files(self) -> dict[str, ArchiveFile]:
        files = self._files
        if files is None:
            files = self._files = {}
            for name, held in self._folder.items():
                if isinstance(held, dict):
                    self._directories[name] = ArchiveDirectory(self._archive, f"{self.entry}/{name}", held)
                elif name != _ITSELF:
                    files[name] = ArchiveFile(self._archive, held)
        return files

    def directories(self) -> dict[str, ArchiveDirectory]:
        self.files()
        return self._directories


def content_root(archive: ZipArchive, top: str = CONTENT_ROOT) -> ArchiveDirectory:
    """The tree below `jcr_root`, or below a directory in it; empty if absent. Raises: PackageCorruptError."""
    root: _Folder = {}
    by_path, below = {top: root}, f"{top}/"
    for entry in archive.entries.values():
        path, _, name = entry.name.rpartition("/")
        if path == top or path.startswith(below):
            folder = by_path.get(path)
            if folder is None:
                folder = by_path[path] = _enter(root, path[len(below) :])
            if isinstance(folder.get(name), dict):
                raise _is_both(entry)
            folder[name] = entry
        elif name and entry.name not in READ_ANYWAY:
            archive.data_offset(entry)  # its name must be true in both headers, or content was renamed away
    return ArchiveDirectory(archive, top, root)


def is_all_below(archive: ZipArchive, top: str) -> bool:
    """Whether a package has content, and all of it is below one directory."""
    below, is_any = f"{top}/", False
    for name in archive.entries:
        if name.startswith(below):
            is_any = True
        elif name.startswith(f"{CONTENT_ROOT}/"):
            return False
    return is_any


def platform_path(path: NodePath) -> str:
    """The zip directory of a node, without a slash at the end."""
    if path == ROOT:
        return CONTENT_ROOT
    if path.isascii() and path.replace("/", "").replace("-", "").isalnum():  # no character that a directory spells
        return f"{CONTENT_ROOT}{path}"
    return f"{CONTENT_ROOT}/" + "/".join([directory_name(name) for name in path[1:].split("/")])


def _enter(folder: _Folder, path: str) -> _Folder:
    """The folder at a path within, made with those above it where they are not there."""
    for name in path.split("/"):
        found = folder.get(name)
        if found is None:
            made: _Folder = {}
            folder[name] = found = made
        elif not isinstance(found, dict):
            raise _is_both(found)
        folder = found
    return folder


def _is_both(entry: ZipEntry) -> PackageCorruptError:
    return PackageCorruptError("an entry is both a file and a directory", entry=entry.name)
