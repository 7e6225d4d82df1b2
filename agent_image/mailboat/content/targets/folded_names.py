"""Names on a disk that ignores case (vfat, SMB shares, mounts of macOS and Windows), where `a` and `A` are one file.

There one node would overwrite or remove another one, or the target's own state. Such a disk is recognised by the state
file; on any other disk none of this runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from mailboat.content.disk_layout import STATE_FILE, name_on_disk
from mailboat.content.keys import PAST_SEPARATOR, SEPARATOR, Key, below_range, key_of
from mailboat.errors import PathRefusedError
from mailboat.folder_handle import FolderHandle
from mailboat.model.paths import ROOT, NodePath, folded_name, name_of, parent_of

_REMEMBERED: Final = 65_536
_NEXT: Final = (
    "SELECT min(key) FROM (SELECT min(key) AS key FROM nodes WHERE key >= ?1 AND key < ?2"
    " UNION ALL SELECT min(key) FROM redo WHERE key >= ?1 AND key < ?2)"
)


def ignores_case(own: FolderHandle) -> bool:
    """Whether the disk finds the target's state file, which is in `own`, by a name in other case."""
    return own.status(STATE_FILE.swapcase()) is not None


class FoldedNames:
    """The names of the nodes in one target, by what the disk takes them for; read when they are needed.

    Nodes that are removed count until the disk shows it: nodes are shown in the order of their keys, so that the
    removal of a name could come after the new one has taken its place.
    """

    def __init__(self, connection: sqlite3.Connection, place: str) -> None:
        """Check against the table of `connection`; `place` is the target's folder, for messages."""
        self._connection = connection
        self._place = place
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
            names, folded, is_at_top = self._names(parent), folded_name(name), parent == ROOT
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
            names = self._by_parent[parent] = {folded_name(name): name for name in self._stored(key_of(parent))}
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
            next_step="rename one of them; delete a node before its name comes back in other case;"
            " or keep the target on a disk that distinguishes case",
            path=path,
        )
