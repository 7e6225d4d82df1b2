"""How a tree would be cut, summed up: for `mailboat bulk plan`, which needs nothing but the source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mailboat.bulk.cutting import Bin, BinKind
from mailboat.bulk.records import Problem, problem_of
from mailboat.content.listing import Unlisted


@dataclass(frozen=True, slots=True)
class CutPlan:
    """How a tree would be cut.

    Attributes:
        skeleton: Packages of single nodes.
        content: Packages of subtrees.
        nodes: Nodes in all of them.
        content_bytes: Bytes of their values and binaries.
        largest_bytes: Content of the largest package.
        largest: The packages with most content, the largest first.
        problems: What would be left out.
    """

    skeleton: int
    content: int
    nodes: int
    content_bytes: int
    largest_bytes: int
    largest: tuple[Bin, ...]
    problems: tuple[Problem, ...]

    @property
    def packages(self) -> int:
        """How many packages it would be."""
        return self.skeleton + self.content


_SHOWN: Final = 10


def plan_of(found: Iterable[Bin | Unlisted]) -> CutPlan:
    """Sum a cut up. Memory is that of what is told."""
    skeleton = content = nodes = content_bytes = 0
    largest = list[Bin]()
    problems = list[Problem]()
    for one in found:
        if isinstance(one, Unlisted):
            problems.append(problem_of(one.path, one.error))
            continue
        skeleton += one.kind is BinKind.SKELETON
        content += one.kind is BinKind.CONTENT
        nodes += one.nodes
        content_bytes += one.content_bytes
        largest = sorted([*largest, one], key=lambda each: (-each.content_bytes, each.order))[:_SHOWN]
    top = largest[0].content_bytes if largest else 0
    return CutPlan(skeleton, content, nodes, content_bytes, top, tuple(largest), tuple(problems))
