"""The canonical digest of content: equal for equal trees, whatever source, format or target they are in.

A node's digest is the SHA-256 of its canonical body in which every binary is named by digest and length. A tree's
digest is a Merkle hash: the node's digest, then name and digest of every child, sorted by name. So siblings may come in
any order, a stream needs memory for the folders on its current path only, and two trees can be compared from the top.
Specified for others in `docs/formats/digest.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from mailboat.content.port import DigestedSource, Source
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT, NodePath
from mailboat.wire.node_bodies import node_digest

ABSENT: Final = b"\x00" * 32
"""Stands for the digest of a node that is not in the stream but has descendants there."""


def source_digest(source: Source, path: NodePath = ROOT) -> bytes:
    """The digest of a source's subtree, by the fastest way that it offers. Raises: as the source."""
    total = TreeHash()
    if isinstance(source, DigestedSource):
        for where, digest in source.digests(path):
            total.add(where, digest)
    else:
        for node in source.walk(path):
            total.add(node.path, node_digest(node))
    return total.digest()


def tree_digest(nodes: Iterable[Node]) -> bytes:
    """Digest of a stream of nodes, see `TreeHash`."""
    total = TreeHash()
    for node in nodes:
        total.add(node.path, node_digest(node))
    return total.digest()


class TreeHash:
    """A digest over nodes that come subtree by subtree.

    The nodes of a subtree must come together, and a node before its descendants; siblings may come in any order.
    Parents that are not in the stream count as absent, so any set of subtrees has a digest.
    """

    def __init__(self) -> None:
        # The folders on the current path: path without a slash at its end, name, own digest, closed children. A child
        # is its name, a zero and its digest in one piece, which sorts by name and takes half the room of a pair.
        self._open: list[tuple[str, bytes, bytes, list[bytes]]] = [("", b"", ABSENT, [])]

    def add(self, path: NodePath, digest: bytes) -> None:
        """Add a node by its path and `node_digest`. Raises: ValueError when it is open already."""
        if path == "/":
            self._add_root(digest)
            return
        cut = path.rfind("/")
        parent = path[:cut]
        opened = self._open
        while (top := opened[-1][0]) != parent:
            if parent.startswith(f"{top}/"):
                self._open_absent(top, parent)
                break
            if top == path:
                raise ValueError(f"{path} comes twice, or after its descendants")
            self._close()
        opened.append((path, path[cut + 1 :].encode(), digest, []))

    def amend(self, path: NodePath, digest: bytes) -> None:
        """Change the `node_digest` of the last added node or one above it. Raises: ValueError: any other."""
        wanted = "" if path == "/" else path
        for index in range(len(self._open) - 1, -1, -1):
            where, name, _, children = self._open[index]
            if where == wanted:
                self._open[index] = (where, name, digest, children)
                return
        raise ValueError(f"{path} is complete")

    def digest(self) -> bytes:
        """The digest of everything added, 32 bytes; more may be added only below what is open."""
        while len(self._open) > 1:
            self._close()
        _, _, own, children = self._open[0]
        return _combine(own, children)

    def _add_root(self, digest: bytes) -> None:
        _, _, own, children = self._open[0]
        if len(self._open) > 1 or own != ABSENT or children:
            raise ValueError("/ comes twice, or after its descendants")
        self._open[0] = ("", b"", digest, children)

    def _open_absent(self, above: str, path: str) -> None:
        for name in path[len(above) + 1 :].split("/"):
            above = f"{above}/{name}"
            self._open.append((above, name.encode(), ABSENT, []))

    def _close(self) -> None:
        _, name, own, children = self._open.pop()
        # most nodes have no children: `_combine` gives the same, and takes longer
        closed = _combine(own, children) if children else sha256(own).digest()
        self._open[-1][3].append(b"%b\x00%b" % (name, closed))


def _combine(own: bytes, children: list[bytes]) -> bytes:
    total = sha256(own)
    if len(children) > 1:
        children.sort()
    for child in children:
        total.update(b"%d:%b%b" % (len(child) - 33, child[:-33], child[-32:]))
    return total.digest()
