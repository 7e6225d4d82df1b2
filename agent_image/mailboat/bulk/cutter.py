"""Cutting a tree into packages: a function of the tree and the budget alone, however many tasks compute it.

A subtree within the budget is a *unit* and travels whole. A folder beyond it goes alone, to the *skeleton*; its units
are put into *bins* by the leading bits of their paths' SHA-256, as many bits as it takes for a bin to fit, so a change
of the tree changes the bins that it is in and few others. A node that exceeds the budget alone has a bin of its
own. Filters never overlap: units own their subtrees, nodes of the skeleton themselves alone.

A folder's cut depends on nothing outside of it. So tasks cut branches of the tree, and the same `Cutter` closes what is
above them: where a branch is a unit it is an item for the folder above. Memory is that of the widest open folders.
"""

from __future__ import annotations

import enum
import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from mailboat.content.keys import Key, key_of
from mailboat.content.listed_nodes import ListedNode, UnlistedEntry
from mailboat.model.paths import ROOT, NodePath, is_within, name_of, parent_of
from mailboat.model.requests import BULK_CONTENT_BYTES, BULK_NODES, MAX_PATHS, MAX_PATHS_BYTES

MAX_NODES: Final = 10_000
"""Of one package, whatever the budget says: its message names each binary stored apart from it, of most nodes one."""

_BOUNDARY: Final = 4
"""Of 256: about so many of the skeleton's nodes begin a package, whatever the budget leaves room for."""


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one package may carry; a single node beyond it travels alone.

    Attributes:
        max_content_bytes: Bytes of values and binaries, wherever the binaries travel.
        max_nodes: Nodes; `MAX_NODES` at most.
    """

    max_content_bytes: int = BULK_CONTENT_BYTES
    max_nodes: int = BULK_NODES

    def has_room_for(self, content_bytes: int, nodes: int) -> bool:
        """Whether a package may carry that."""
        return content_bytes <= self.max_content_bytes and nodes <= min(self.max_nodes, MAX_NODES)


class BinKind(enum.StrEnum):
    """What a package of a build is for, in the order in which they are published."""

    SKELETON = "skeleton"
    CONTENT = "content"
    CLOSING = "closing"


_RANKS: Final = {kind: rank for rank, kind in enumerate(BinKind)}

Order = tuple[int, Key]
"""The place of a package in the order of publication."""


class Unit(NamedTuple):
    """A subtree that travels whole; `signature` is that of all its nodes, 32 bytes."""

    path: NodePath
    content_bytes: int
    nodes: int
    signature: bytes


class SkeletonNode(NamedTuple):
    """A node that travels without what is below it."""

    path: NodePath
    content_bytes: int
    signature: bytes


class Bin(NamedTuple):
    """What one package will carry.

    Attributes:
        kind: Of `CONTENT` the roots' subtrees, of `SKELETON` the roots alone.
        roots: In walk order.
        content_bytes: Bytes of values and binaries.
        nodes: How many.
        signature: Of the kind, the roots and all that is listed below them: 32 bytes that name the bin.
    """

    kind: BinKind
    roots: tuple[NodePath, ...]
    content_bytes: int
    nodes: int
    signature: bytes

    @property
    def order(self) -> Order:
        """Where the bin stands in the order of publication."""
        return order_of(self.kind, self.roots[0])


def order_of(kind: BinKind, first: NodePath) -> Order:
    """The skeleton before the content, what closes the build last; each by the first of its paths in walk order."""
    return _RANKS[kind], key_of(first)


Loose = ListedNode | Unit | SkeletonNode | UnlistedEntry
"""What a cut can begin with: nodes as they are listed, and what cuts of branches left open."""

Cut = Bin | Loose
"""What a cut of a branch gives: whole bins, and what is left for the cut above it."""


@dataclass(slots=True)
class _Folder:
    node: ListedNode
    units: list[Unit] = field(default_factory=list)
    content_bytes: int = 0
    nodes: int = 1
    is_cut: bool = False

    def take(self, unit: Unit) -> None:
        self.units.append(unit)
        self.content_bytes += unit.content_bytes
        self.nodes += unit.nodes

    def cut(self) -> None:
        """Divide what is below it: it is not a unit."""
        self.is_cut = True


class Cutter:
    """Cuts one stream of items: parents first, subtree by subtree, siblings in any order."""

    def __init__(self, budget: Budget) -> None:
        """Begin with nothing."""
        self._budget = budget
        self._open: list[_Folder] = []

    def cut(self, items: Iterable[Loose]) -> Iterator[Bin | SkeletonNode | Unit | UnlistedEntry]:
        """The bins of the folders that had to be cut, their skeleton, and the units that no folder of the stream holds.

        What can't be listed is given on; no folder above it is a unit, as a package must not own what it lacks.
        """
        for item in items:
            yield from self._close_before(item.path)
            match item:
                case ListedNode():
                    self._open.append(_Folder(item, content_bytes=item.content_bytes))
                case Unit():
                    yield from self._placed(item)
                case SkeletonNode() | UnlistedEntry():
                    for folder in self._open:
                        folder.cut()
                    yield item
        yield from self._close_before(None)

    def _close_before(self, path: NodePath | None) -> Iterator[Bin | SkeletonNode | Unit]:
        while self._open and (path is None or not is_within(path, self._open[-1].node.path)):
            yield from self._closed(self._open.pop())

    def _closed(self, folder: _Folder) -> Iterator[Bin | SkeletonNode | Unit]:
        node = folder.node
        is_leaf = not folder.units and not folder.is_cut
        is_small = is_leaf or self._budget.has_room_for(folder.content_bytes, folder.nodes)
        # Never the root as one unit: a package that owns it would remove foreign content.
        if node.path != ROOT and not folder.is_cut and is_small:
            yield from self._placed(Unit(node.path, folder.content_bytes, folder.nodes, _merkle(folder)))
            return
        if self._open:
            self._open[-1].cut()
        yield SkeletonNode(*node)
        yield from bins_of_units(folder.units, self._budget)

    def _placed(self, unit: Unit) -> Iterator[Unit]:
        if self._open:
            self._open[-1].take(unit)
        else:
            yield unit


def finish_cut(items: Iterable[Loose], budget: Budget) -> Iterator[Bin | UnlistedEntry]:
    """The remaining bins of a build, and what it has to leave out, of what the cuts of all its branches left open."""
    ordered = sorted(items, key=lambda item: key_of(item.path))
    skeleton, units = list[SkeletonNode](), list[Unit]()
    for found in Cutter(budget).cut(ordered):
        match found:
            case SkeletonNode():
                skeleton.append(found)
            case Unit():
                units.append(found)
            case _:
                yield found
    # `groupby` takes neighbours only, and in walk order the units of deeper folders stand between siblings
    units.sort(key=lambda unit: key_of(parent_of(unit.path)))
    for _, siblings in groupby(units, key=lambda unit: parent_of(unit.path)):
        yield from bins_of_units(list(siblings), budget)
    yield from bins_of_skeleton(skeleton, budget)


def bins_of_units(units: Sequence[Unit], budget: Budget) -> Iterator[Bin]:
    """Put the units of one folder into bins: by a trie over the digests of their paths, split where a bin is full."""
    # Walk order would fill bins better, but one more page would move the borders of all later bins.
    keyed = sorted((hashlib.sha256(unit.path.encode()).digest(), unit) for unit in units)
    if keyed:
        yield from _split(keyed, 0, budget)


def _split(keyed: Sequence[tuple[bytes, Unit]], bit: int, budget: Budget) -> Iterator[Bin]:
    units = [unit for _, unit in keyed]
    if len(units) == 1 or _is_bin(units, budget):
        parts = ((unit.path, unit.content_bytes, unit.signature) for unit in units)
        yield _bin(BinKind.CONTENT, parts, sum(unit.nodes for unit in units))
        return
    middle = bisect_left(keyed, True, key=lambda one: bool(one[0][bit // 8] >> (7 - bit % 8) & 1))
    for half in (keyed[:middle], keyed[middle:]):
        if half:
            yield from _split(half, bit + 1, budget)


def _is_bin(units: Sequence[Unit], budget: Budget) -> bool:
    return (
        len(units) <= MAX_PATHS
        and budget.has_room_for(sum(unit.content_bytes for unit in units), sum(unit.nodes for unit in units))
        and sum(len(unit.path.encode()) for unit in units) <= MAX_PATHS_BYTES
    )


def bins_of_skeleton(nodes: Iterable[SkeletonNode], budget: Budget) -> Iterator[Bin]:
    """Put the nodes of the skeleton into bins in walk order.

    Digests of paths set some of the boundaries, so one node more does not move those behind it.
    """
    pending = list[SkeletonNode]()
    content_bytes = path_bytes = 0
    for node in sorted(nodes, key=lambda node: key_of(node.path)):
        length = len(node.path.encode())
        is_full = (
            len(pending) >= min(budget.max_nodes, MAX_PATHS)
            or content_bytes + node.content_bytes > budget.max_content_bytes
            or path_bytes + length > MAX_PATHS_BYTES
            or hashlib.sha256(node.path.encode()).digest()[0] < _BOUNDARY
        )
        if pending and is_full:
            yield _bin(BinKind.SKELETON, pending, len(pending))
            pending, content_bytes, path_bytes = [], 0, 0
        pending.append(node)
        content_bytes += node.content_bytes
        path_bytes += length
    if pending:
        yield _bin(BinKind.SKELETON, pending, len(pending))


def _bin(kind: BinKind, parts: Iterable[tuple[NodePath, int, bytes]], nodes: int) -> Bin:
    """The bin of parts: path, bytes and signature of each."""
    ordered = sorted(parts, key=lambda part: key_of(part[0]))
    signature = sign_bin(kind, ((path, signature) for path, _, signature in ordered))
    return Bin(kind, tuple(part[0] for part in ordered), sum(part[1] for part in ordered), nodes, signature)


def sign_bin(kind: BinKind, roots: Iterable[tuple[NodePath, bytes]]) -> bytes:
    """The signature of a bin with these roots, in walk order, and their signatures."""
    total = hashlib.sha256(kind.value.encode())
    for path, signature in roots:
        total.update(b"\0%b\0%b" % (path.encode(), signature))
    return total.digest()


def _merkle(folder: _Folder) -> bytes:
    total = hashlib.sha256(folder.node.signature)
    for unit in sorted(folder.units, key=lambda unit: name_of(unit.path)):
        total.update(b"%b\0%b" % (name_of(unit.path).encode(), unit.signature))
    return total.digest()


def revision_of(bins: Iterable[tuple[Order, bytes]]) -> bytes:
    """The digest of a whole listing, by the order and signature of each bin, in any order: 32 bytes."""
    total = hashlib.sha256()
    for _, signature in sorted(bins):
        total.update(signature)
    return total.digest()
