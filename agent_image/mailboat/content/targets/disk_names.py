"""Names that a disk cannot have: of nodes that it takes for one, and those that are too long.

A disk that ignores case (vfat, SMB shares, mounts of macOS and Windows) has one file for `a` and `A`. There one node
would overwrite or remove another one, or the target's own state. Some disks ignore the Unicode form only (ZFS with
`normalization`, APFS that distinguishes case). On any other disk `FoldedNames` does not run. The operating system
bounds the whole path, root included. A node that can be written by descriptors, folder by folder, still couldn't be
copied to the next generation nor read as a source by its whole path, so what is too long is refused for the package
that brings it, before anything is written (`PathLimits`).
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import Final
from unicodedata import normalize

from mailboat.content.disk_layout import STATE_FILE, binary_file, name_on_disk, names_on_disk
from mailboat.content.keys import PAST_SEPARATOR, SEPARATOR, Key, below_range, key_of
from mailboat.errors import PathRefusedError
from mailboat.folder_handle import FolderHandle
from mailboat.model.paths import ROOT, NodePath, folded_name, name_of, parent_of

_REMEMBERED: Final = 65_536
_COMPOSED: Final = "\u00e9"
_DECOMPOSED: Final = "e\u0301"
_NEXT: Final = (
    "SELECT min(key) FROM (SELECT min(key) AS key FROM nodes WHERE key >= ?1 AND key < ?2"
    " UNION ALL SELECT min(key) FROM redo WHERE key >= ?1 AND key < ?2)"
)


def folding_of(own: FolderHandle, scratch: FolderHandle) -> Callable[[str], str] | None:
    """What the disk takes a name for; None where it distinguishes all names.

    `own` has the target's state file; in `scratch`, on the same disk, a file is made and removed.
    """
    if own.status(STATE_FILE.swapcase()) is not None:
        return folded_name
    try:
        scratch.create_file(_COMPOSED).close()
        are_one = scratch.status(_DECOMPOSED) is not None
        scratch.remove(_COMPOSED)
    except OSError as error:  # must not keep a target from being opened; a full disk says nothing of names
        are_one = error.errno not in {errno.ENOSPC, errno.EDQUOT}
    return _composed if are_one else None


def _composed(name: str) -> str:
    return normalize("NFC", name)


class FoldedNames:
    """The names of the nodes in one target, by what the disk takes them for; read when they are needed.

    Nodes that are removed count until the disk shows it: nodes are shown in the order of their keys, so that the
    removal of a name could come after the new one has taken its place.
    """

    def __init__(self, connection: sqlite3.Connection, place: str, fold: Callable[[str], str]) -> None:
        """Check against the table of `connection`; `place` is the target's folder; `fold` see `folding_of`."""
        self._connection = connection
        self._place = place
        self._fold = fold
        self._by_parent: dict[NodePath, dict[str, str]] = {}
        self._count = 0

    def begin(self) -> None:
        """A transaction begins: names of one that was rolled back are forgotten."""
        self._by_parent.clear()
        self._count = 0

    def trim(self) -> None:
        """Forget names where there are many. All that were checked must be in the table: it is read again."""
        if self._count > _REMEMBERED:
            self.begin()

    def check(self, path: NodePath) -> None:
        """See whether a node can be put next to those that are there. Raises: PathRefusedError."""
        at = path
        while at != ROOT:
            parent, name = parent_of(at), name_of(at)
            names, folded, is_at_top = self._names(parent), self._fold(name), parent == ROOT
            other = names.get(folded)
            if other == name:
                return  # and so is all above it
            if other is not None:
                raise self._refused(path, f"{other!r} and {name!r} differ in case or Unicode form only")
            if name_on_disk(folded, is_at_top=is_at_top) != folded and name_on_disk(name, is_at_top=is_at_top) == name:
                raise self._refused(path, f"{name!r} differs in case only from a name that the target keeps for itself")
            names[folded] = name
            self._count += 1
            at = parent

    def _names(self, parent: NodePath) -> dict[str, str]:
        names = self._by_parent.get(parent)
        if names is None:
            names = self._by_parent[parent] = {self._fold(name): name for name in self._stored(key_of(parent))}
            self._count += len(names)
        return names

    def _stored(self, parent: Key) -> Iterator[str]:
        """The names of the children in the tables, each found behind the subtree of the one before."""
        prefix = parent.rstrip(SEPARATOR) + SEPARATOR
        low, high = below_range(parent)
        while True:
            (found,) = self._connection.execute(_NEXT, (low, high)).fetchone()
            if found is None:
                return
            name = found[len(prefix) :].partition(SEPARATOR)[0]
            yield name
            low = prefix + name + PAST_SEPARATOR

    def _refused(self, path: NodePath, reason: str) -> PathRefusedError:
        return PathRefusedError(
            f"{reason}, and the disk of {self._place} takes them for one",
            next_step="rename one of them; delete a node before its name comes back in another form;"
            " or keep the target on a disk that distinguishes them",
            path=path,
        )


_BESIDE_BYTES: Final = len("/" + binary_file(bytes(32)))
"""Any node may get a sidecar and binaries next to it, if only because another package puts something below it."""
_ESCAPE_BYTES: Final = 16
_UTF8_BYTES: Final = 4


class PathLimits:
    """The room below one folder."""

    def __init__(self, folder: str, longest_below: str) -> None:
        """Measure for content shown in `folder`, or in one below it with that relative path. Raises: OSError."""
        self._folder = folder
        root_bytes = len(os.fsencode(folder + longest_below))
        self._path_bytes = os.pathconf(folder, "PC_PATH_MAX") - 1 - root_bytes - _BESIDE_BYTES
        self._name_bytes = os.pathconf(folder, "PC_NAME_MAX")
        self._plain_bytes = min(self._path_bytes, self._name_bytes) - _ESCAPE_BYTES

    def check(self, path: NodePath) -> None:
        """See whether a node has room. Raises: PathRefusedError, with the limit."""
        size = len(path) if path.isascii() else len(path) * _UTF8_BYTES
        if size <= self._plain_bytes and "/.node." not in path:
            return
        names = [len(name.encode()) for name in names_on_disk(path)]
        if sum(names) + len(names) > self._path_bytes:
            raise PathRefusedError(
                f"{path[:80]}… has {sum(names) + len(names)} bytes, and {self._folder} has room for paths of "
                f"{max(0, self._path_bytes)} bytes",
                path=path[:200],
            )
        if max(names, default=0) > self._name_bytes:
            raise PathRefusedError(
                f"{path[:80]}… has a name of {max(names)} bytes, and {self._folder} takes {self._name_bytes}",
                path=path[:200],
            )
