"""How a tree would be cut, summed up: for `mailboat bulk plan`, which needs nothing but the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mailboat.bulk.build_records import BuildProblem, problem_of
from mailboat.bulk.cutter import Bin, BinKind
from mailboat.content.listed_nodes import ListedNode, UnlistedEntry
from mailboat.model.paths import ROOT, NodePath, folded_name, is_within, name_of


@dataclass(frozen=True, slots=True)
class CutSummary:
    """How a tree would be cut.

    Attributes:
        skeleton: Packages of single nodes.
        content: Packages of subtrees.
        nodes: Nodes in all of them.
        content_bytes: Bytes of their values and binaries.
        largest_bytes: Content of the largest package.
        largest: The packages with most content, the largest first.
        problems: What would be left out.
        refused: Names for which a build would be refused, unless the configuration allows them.
    """

    skeleton: int
    content: int
    nodes: int
    content_bytes: int
    largest_bytes: int
    largest: tuple[Bin, ...]
    problems: tuple[BuildProblem, ...]
    refused: tuple[BuildProblem, ...] = ()

    @property
    def packages(self) -> int:
        """How many packages it would be."""
        return self.skeleton + self.content


_SHOWN: Final = 10


_MOST_COLLISIONS: Final = 100


class NameCollisions:
    """Finds names in one folder that differ in case or Unicode form only, in a streamed listing.

    Memory is that of the names of the open folders.
    """

    def __init__(self) -> None:
        """Nothing passed yet."""
        self._open: list[tuple[NodePath, dict[str, NodePath]]] = [(ROOT, {})]
        self._pairs = list[tuple[NodePath, NodePath]]()

    def watch(self, item: ListedNode | UnlistedEntry) -> ListedNode | UnlistedEntry:
        """Take the next item, and give it on."""
        path = item.path
        if path == ROOT:
            return item
        while not is_within(path, self._open[-1][0]):
            self._open.pop()
        if len(self._pairs) < _MOST_COLLISIONS:
            other = self._open[-1][1].setdefault(folded_name(name_of(path)), path)
            if other != path:
                self._pairs.append((other, path))
        self._open.append((path, {}))
        return item

    def within(self, one: Bin) -> Iterator[BuildProblem]:
        """Those that one package would carry: it is refused."""
        for first, second in self._pairs:
            if _carries(one, first) and _carries(one, second):
                message = f"{name_of(first)!r} and {name_of(second)!r} differ in case or Unicode form only"
                yield BuildProblem(second, "LimitExceeded", message)


def _carries(one: Bin, path: NodePath) -> bool:
    if one.kind is BinKind.SKELETON:
        return path in one.roots
    return any(is_within(path, root) for root in one.roots)


def summary_of(found: Iterable[Bin | UnlistedEntry], collisions: NameCollisions | None = None) -> CutSummary:
    """Summarise a cut. Memory is bounded by the size of the report."""
    refused = list[BuildProblem]()
    skeleton = content = nodes = content_bytes = 0
    largest = list[Bin]()
    problems = list[BuildProblem]()
    for part in found:
        if isinstance(part, UnlistedEntry):
            problems.append(problem_of(part.path, part.error))
            continue
        skeleton += part.kind is BinKind.SKELETON
        content += part.kind is BinKind.CONTENT
        nodes += part.nodes
        refused += [] if collisions is None else collisions.within(part)
        content_bytes += part.content_bytes
        largest = sorted([*largest, part], key=lambda each: (-each.content_bytes, each.order))[:_SHOWN]
    top = largest[0].content_bytes if largest else 0
    return CutSummary(skeleton, content, nodes, content_bytes, top, tuple(largest), tuple(problems), tuple(refused))
