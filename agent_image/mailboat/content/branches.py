"""The children of one node by name.

So a tree is divided among several readers without being walked first.

Each source gives them by the fastest way that it has; one that has none is walked. Called by bulk builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from mailboat.content.port import Source
from mailboat.model.paths import NodePath, is_within, name_of, parent_of


@runtime_checkable
class BranchingSource(Protocol):
    """A source that can list the children of a node without reading what is below them."""

    def child_names(self, path: NodePath) -> Sequence[str]:
        """The names below `path`, in walk order; none where there is nothing. Raises: as `Source.walk`."""


def children_of(source: Source, path: NodePath) -> Sequence[str]:
    """The names of a node's children in walk order. Raises: as `Source.walk`."""
    if isinstance(source, BranchingSource):
        return source.child_names(path)
    found = dict[str, None]()
    for node in source.walk(path):
        if node.path != path and is_within(node.path, path):
            found[name_of(_child_on_the_way(node.path, path))] = None
    return list(found)


def _child_on_the_way(path: NodePath, above: NodePath) -> NodePath:
    while (parent := parent_of(path)) != above:
        path = parent
    return path
