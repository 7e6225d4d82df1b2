"""Cuts a tree into about so many requests: pure, so that any tree can be tried.

A request is a set of paths, deep ones with everything below them. The first holds the folders that had to be taken
apart, without what is in them; the others own disjoint parts of the tree, about equally large.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mailboat.content.binaries import binaries_of
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT, NodePath, name_of, parent_of

MAX_PATHS: Final = 400
"""Paths of one request, below the publisher's own limit."""


@dataclass(frozen=True, slots=True)
class Portion:
    """One request: paths alone, and paths with all below them."""

    shallow: tuple[NodePath, ...] = ()
    deep: tuple[NodePath, ...] = ()


@dataclass(slots=True)
class WeighedNode:
    """A node with what lies below it. `weight` counts it and all below, in bytes; see `_add_up`."""

    path: NodePath
    weight: int = 0
    children: dict[str, WeighedNode] = field(default_factory=dict)

    def add(self, weight: int) -> None:
        """Count more bytes below it, or as its own."""
        self.weight += weight


@dataclass(frozen=True, slots=True)
class Survey:
    """What a walk over a tree found."""

    top: WeighedNode
    has_root_node: bool
    nodes: int
    files: int
    content_bytes: int


def survey(nodes: Iterable[Node]) -> Survey:
    """Measure a tree, in a source's order. Needs memory for each node, not for its content."""
    top = WeighedNode(ROOT)
    known: dict[NodePath, WeighedNode] = {ROOT: top}
    count = files = total = 0
    has_root_node = False
    for node in nodes:
        size = binary_bytes(node)
        count, files, total = count + 1, files + (node.data is not None), total + size
        if node.path == ROOT:
            has_root_node = True
            continue
        branch = known[node.path] = WeighedNode(node.path, size)
        known[parent_of(node.path)].children[name_of(node.path)] = branch
    _add_up(known, bytes_per_node=total // max(count, 1) + 1)
    return Survey(top, has_root_node, count, files, total)


def binary_bytes(node: Node) -> int:
    """Bytes of a node's binaries."""
    return sum(binary.length_bytes for binary in binaries_of(node))


def _add_up(known: dict[NodePath, WeighedNode], bytes_per_node: int) -> None:
    """Sum up the weights. A node counts as many bytes as the average one has, so that numbers matter like sizes."""
    for path in sorted(known, key=lambda path: -path.count("/")):
        if path != ROOT:
            known[path].add(bytes_per_node)
            known[parent_of(path)].add(known[path].weight)


def cut(found: Survey, wanted: int) -> Sequence[Portion]:
    """Cut a tree into about `wanted` portions, fewer for few nodes, parents first.

    More only where a portion would name more than `MAX_PATHS` paths. The heaviest branch that can be taken apart is
    taken apart until there are enough pieces to fill the portions.
    """
    opened, pieces = _take_apart(found.top, pieces_wanted=3 * (wanted - 1))
    shallow = sorted(path for path in opened if path != ROOT or found.has_root_node)
    first = [Portion(shallow=tuple(shallow[at : at + MAX_PATHS])) for at in range(0, len(shallow), MAX_PATHS)]
    return [*first, *_pack(pieces, max(1, wanted - len(first)))]


def _take_apart(top: WeighedNode, pieces_wanted: int) -> tuple[list[NodePath], list[WeighedNode]]:
    """The branches that were opened, and the pieces that are left."""
    opened: list[NodePath] = [top.path]
    heap = [(-child.weight, child.path, child) for child in top.children.values()]
    heapq.heapify(heap)
    whole: list[WeighedNode] = []
    while heap and len(heap) + len(whole) < pieces_wanted:
        _, path, heaviest = heapq.heappop(heap)
        if not heaviest.children:
            whole.append(heaviest)
            continue
        opened.append(path)
        for child in heaviest.children.values():
            heapq.heappush(heap, (-child.weight, child.path, child))
    return opened, sorted([*whole, *(one for _, _, one in heap)], key=lambda one: one.path)


def _pack(pieces: Sequence[WeighedNode], wanted: int) -> list[Portion]:
    """Neighbours together, in order, so that every portion weighs about the same."""
    portions: list[Portion] = []
    left = sum(piece.weight for piece in pieces)
    current: list[NodePath] = []
    weight = 0
    for index, piece in enumerate(pieces):
        current.append(piece.path)
        weight += piece.weight
        room = wanted - len(portions)
        must_close = len(pieces) - index - 1 < room  # as many pieces left as portions: one each
        if (room > 1 and (must_close or weight >= left / room)) or len(current) == MAX_PATHS:
            portions.append(Portion(deep=tuple(current)))
            left -= weight
            current, weight = [], 0
    return [*portions, Portion(deep=tuple(current))] if current else portions
