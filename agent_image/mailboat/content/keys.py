"""Paths as keys of an ordered table: a subtree is one range, and the key order is the walk order.

In path order `/a!x` stands between `/a` and `/a/b`. A key has the control character U+0001 where the path has its
slashes; as no name holds a control character, a node sorts right before its descendants, and these right before its
next sibling. Siblings sort by name. Used by the tables of all targets (`targets/tree_table.py`) and their readers.
"""

from __future__ import annotations

from typing import Final, NewType

from mailboat.model.paths import NodePath

Key = NewType("Key", str)

SEPARATOR: Final = "\x01"
PAST_SEPARATOR: Final = "\x02"
ROOT_KEY: Final = Key(SEPARATOR)


def key_of(path: NodePath) -> Key:
    """The key of a path."""
    return Key(path.replace("/", SEPARATOR))


def path_of(key: str) -> NodePath:
    """The path of a key."""
    return NodePath(key.replace(SEPARATOR, "/"))


def parent_key(key: str) -> Key:
    """The key of the parent; the root's parent is the root."""
    return Key(key[: key.rindex(SEPARATOR)] or ROOT_KEY)


def subtree_range(key: str) -> tuple[str, str]:
    """The node and all below it: from the first key, inclusive, to the second, exclusive."""
    return (key, PAST_SEPARATOR) if key == ROOT_KEY else (key, key + PAST_SEPARATOR)


def below_range(key: str) -> tuple[str, str]:
    """All below the node, without it: from the first key, inclusive, to the second, exclusive."""
    if key == ROOT_KEY:
        return ROOT_KEY + PAST_SEPARATOR, PAST_SEPARATOR
    return key + SEPARATOR, key + PAST_SEPARATOR
