"""A tree without its content: paths, sizes and signatures, and the names of children.

A signature changes when the content does. A source that can list its nodes without reading them, as a folder, is a
`ListedSource`; any other is walked, and its nodes' digests are their signatures. What can't be read is listed, too,
with the reason: so the rest can be published, and it is not taken for removed. A source that can name a node's
children without reading what is below them is a `BranchingSource`: so a tree is divided among several readers without
being walked first. Called by bulk builds, on the driver and on executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from mailboat.content.binaries import content_bytes_of
from mailboat.content.port import Source
from mailboat.errors import MailboatError
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath, is_within
from mailboat.wire.node_bodies import node_digest


class ListedNode(NamedTuple):
    """A node as it is listed.

    Attributes:
        path: Where it is.
        content_bytes: Bytes of its values and binaries.
        signature: 32 bytes; equal signatures of one source at one path stand for equal nodes.
    """

    path: NodePath
    content_bytes: int
    signature: bytes


class UnlistedEntry(NamedTuple):
    """Something that is there and can't be published, with all below it: `error` says why."""

    path: NodePath
    error: MailboatError


@runtime_checkable
class ListedSource(Protocol):
    """A source that lists its nodes without reading them."""

    def listed(self, path: NodePath, *, is_deep: bool = True) -> Iterator[ListedNode | UnlistedEntry]:
        """The node at `path`, when deep also all below it: parents first, by subtrees, siblings in any order."""


def listed_node(node: Node) -> ListedNode:
    """How a source lists a node that it had to read."""
    return ListedNode(node.path, content_bytes_of(node), node_digest(node))


@runtime_checkable
class BranchingSource(Protocol):
    """A source that can list the children of a node without reading what is below them."""

    def child_names(self, path: NodePath) -> Sequence[str]:
        """The names below `path`, in walk order; none where there is nothing. Raises: as `Source.walk`."""


def children_of(source: Source, path: NodePath) -> Sequence[str]:
    """The names of a node's children in walk order. Raises: as `Source.walk`."""
    if isinstance(source, BranchingSource):
        return source.child_names(path)
    prefix = len(path.rstrip("/")) + 1
    below = (node.path for node in source.walk(path) if node.path != path and is_within(node.path, path))
    # also children that have no node of their own, only something below them
    return list(dict.fromkeys(where[prefix:].partition("/")[0] for where in below))
