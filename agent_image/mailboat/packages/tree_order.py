"""The order of nodes in a `tree` package, checked while they come, in memory for the folders on the current path.

The nodes of a subtree come together and a node before its descendants; siblings come in any order, each once. So a
path that comes twice, or after its descendants, or after its subtree was left, is noticed without knowing all paths.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from mailboat.errors import LimitExceededError, PackageCorruptError
from mailboat.model.paths import NodePath, folded_name

RECENT_NAMES: Final = 65_536
ALLOW_COLLISIONS: Final = "rename one of them, or set limits.refuse_collisions to false at publisher and subscribers"


class SiblingNames:
    """The names in one folder: so many in full, and of all before them eight bytes each."""

    __slots__ = ("_hashes", "_recent")

    def __init__(self) -> None:
        self._recent: dict[str, str] = {}
        self._hashes: array[int] | None = None

    def add(self, key: str, name: str) -> str | None:
        """Add a name under what counts as the same; the name that was there before under it, if any."""
        other = self._recent.get(key)
        if other is not None:
            return other
        if self._hashes is not None and self._is_among_hashes(hash(key)):
            return key
        self._recent[key] = name
        if len(self._recent) >= RECENT_NAMES:
            self._hashes = array("q", sorted([*(self._hashes or ()), *map(hash, self._recent)]))
            self._recent.clear()
        return None

    def _is_among_hashes(self, key_hash: int) -> bool:
        hashes = self._hashes or ()
        index = bisect_left(hashes, key_hash)
        return index < len(hashes) and hashes[index] == key_hash


class PathOrder:
    """Checks paths one by one."""

    def __init__(self, *, refuse_collisions: bool) -> None:
        """Start with nothing. `refuse_collisions`: see `LimitsConfig`."""
        self._folds = refuse_collisions
        self._open: list[str] = []
        self._children = [SiblingNames()]
        self._has_any = False

    def add(self, path: NodePath) -> None:
        """Take the next path.

        Raises:
            PackageCorruptError: It comes twice, or after its descendants or siblings of a closed parent.
            LimitExceededError: A name differs in case or Unicode form only from another in the same folder.
        """
        if path == "/" and self._has_any:
            raise PackageCorruptError("a node comes twice, or after its descendants", path=path)
        self._has_any = True
        if path == "/":
            return
        names = path[1:].split("/")
        opened = self._open
        shared = 0
        for mine, theirs in zip(opened, names, strict=False):
            if mine != theirs:
                break
            shared += 1
        if shared == len(names):
            raise PackageCorruptError("a node comes twice, or after its descendants", path=path)
        del opened[shared:]
        del self._children[shared + 1 :]
        for name in names[shared:]:
            self._enter(path, name)

    def _enter(self, path: NodePath, name: str) -> None:
        other = self._children[-1].add(folded_name(name) if self._folds else name, name)
        if other is not None:
            self._refuse(path, name, other)
        self._open.append(name)
        self._children.append(SiblingNames())

    def _refuse(self, path: NodePath, name: str, other: str) -> None:
        if other == name:
            raise PackageCorruptError("a node comes twice, or after its subtree was left", path=path)
        raise LimitExceededError(
            f"the names {other!r} and {name!r} in one folder differ in case or Unicode form only",
            path=path,
            next_step=ALLOW_COLLISIONS,
            limit="limits.refuse_collisions",
        )


def check_order(paths: Sequence[NodePath], *, refuse_collisions: bool) -> None:
    """The same of a whole sequence. Raises: as `PathOrder.add`."""
    order = PathOrder(refuse_collisions=refuse_collisions)
    for path in paths:
        order.add(path)


def may_collide(lines: str) -> bool:
    """Whether names in paths, all in one text, could collide: those that are all of lower-case ASCII can't."""
    return not lines.isascii() or lines != lines.lower()


def is_in_key_order(paths: Sequence[NodePath], *, refuse_collisions: bool) -> bool:
    """Whether a few calls show that the order is right; when they don't, `check_order` decides.

    Paths that are sorted as keys, slashes before all else, come subtree by subtree and once.
    """
    lines = "\n".join(paths)
    if refuse_collisions and may_collide(lines):
        return False
    keys = lines.replace("/", "\x01").split("\n")
    return len(set(keys)) == len(keys) and keys == sorted(keys)
