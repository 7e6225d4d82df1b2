"""Coverage of a simple filter, made fast: what a package owns when roots alone decide.

`WorkspaceFilter.covers` asks set by set; here the roots are prepared once for a package, and a package with one root,
which nearly all are, costs one comparison for each record. Rules and modes are the matter of `apply_filtered`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from mailboat.content.keys import Key, key_of, subtree_range
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.paths import NodePath


class SimpleCoverage:
    """What a simple filter covers.

    Attributes:
        covers: Whether a path is covered.
        deep: The subtrees covered, as ranges of keys, disjoint and sorted.
        shallow: The keys of roots that are covered alone, the deepest first.
    """

    __slots__ = ("covers", "deep", "shallow")

    def __init__(self, workspace_filter: WorkspaceFilter) -> None:
        """Prepare a filter that `is_simple`."""
        sets = workspace_filter.sets
        self.covers: Callable[[NodePath], bool]
        self.shallow: list[Key] = []
        if len(sets) == 1 and not sets[0].is_shallow:
            root = sets[0].root
            self.covers = _within(root)
            self.deep = [subtree_range(key_of(root))]
            return
        self.deep = sorted(subtree_range(key_of(filter_set.root)) for filter_set in sets if not filter_set.is_shallow)
        self.shallow = sorted((key_of(filter_set.root) for filter_set in sets if filter_set.is_shallow), reverse=True)
        self.covers = _among(frozenset(self.shallow), self.deep)


def _within(root: NodePath) -> Callable[[NodePath], bool]:
    if root == "/":
        return lambda path: True  # noqa: ARG005  # the root holds everything
    prefix = f"{root}/"
    return lambda path: path.startswith(prefix) or path == root


def _among(alone: frozenset[Key], deep: list[tuple[str, str]]) -> Callable[[NodePath], bool]:
    starts = [low for low, _ in deep]

    def covers(path: NodePath) -> bool:
        key = key_of(path)
        if key in alone:
            return True
        index = bisect_right(starts, key) - 1
        return index >= 0 and key < deep[index][1]

    return covers
