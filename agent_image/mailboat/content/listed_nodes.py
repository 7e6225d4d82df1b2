"""A tree without its content: paths, sizes and signatures.

A signature changes when the content does.

A source that can list its nodes without reading them, as a folder, is a `ListedSource`; any other is walked, and its
nodes' digests are their signatures. What can't be read is listed, too, with the reason: so the rest can be published,
and it is not taken for removed. Called by bulk builds, on the driver and on executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from mailboat.content.binaries import content_bytes_of
from mailboat.content.digest import node_digest
from mailboat.errors import MailboatError
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath


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
