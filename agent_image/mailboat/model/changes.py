"""What a package does to a tree, whatever format it came in: the meeting point of codecs and targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mailboat.model.filters import WorkspaceFilter
from mailboat.model.namespaces import NO_NAMESPACES, NamespaceTable
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath


class TreeChange(NamedTuple):
    """Content to put, and through the filter what to remove.

    Attributes:
        filter: What the package owns. Covered and not among `records` means removed.
        records: Parents before children, each path once; read once, as a stream. Records that the filter does not
            cover are ancestors: made where missing, never changed. They come first or right before their children.
        namespaces: Of prefixes in the records; complete once the records were read.
    """

    filter: WorkspaceFilter
    records: Iterable[NodeRecord]
    namespaces: NamespaceTable = NO_NAMESPACES


class Subtrees(NamedTuple):
    """What several small packages put, by column: each one whole subtree of few nodes, all of it inline.

    Attributes:
        roots: The root of each package, which is all that it owns, and which was among the nodes.
        counts: How many nodes each has: the root first, every other one behind its parent, in the order of keys.
        paths: Of the nodes of all packages.
        bodies: Canonical, as in `NodeRecord`.
        namespaces: Of prefixes in any of them, table by table.
    """

    roots: Sequence[NodePath]
    counts: Sequence[int]
    paths: Sequence[NodePath]
    bodies: Sequence[bytes]
    namespaces: Sequence[NamespaceTable] = ()


class ChangeCount(NamedTuple):
    """What an applied change amounted to.

    Attributes:
        put: Nodes written.
        removed: Nodes removed.
        content_bytes: Bytes of bodies and binaries written.
    """

    put: int = 0
    removed: int = 0
    content_bytes: int = 0

    def __add__(self, other: ChangeCount) -> ChangeCount:  # type: ignore[override]  # counts are summed, not joined
        return ChangeCount(self.put + other.put, self.removed + other.removed, self.content_bytes + other.content_bytes)
