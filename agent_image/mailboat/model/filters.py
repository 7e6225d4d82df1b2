"""Workspace filters: what a package owns, and therefore what it may remove.

The meaning is FileVault's (filter.md and importmode.md of Apache Jackrabbit FileVault 4.2): a path is covered when the
first filter set whose root contains it includes it; the first rule of a set gives the default, the last matching rule
decides. A covered path that a package does not carry is removed from the target (mode REPLACE). A path that is not
covered is never changed; where it is an ancestor of covered content and missing, it is made.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from mailboat.model.paths import NodePath, ancestors_of, is_within


class ImportMode(enum.StrEnum):
    """What happens to content that is there already."""

    REPLACE = "replace"
    MERGE_PROPERTIES = "merge_properties"
    UPDATE_PROPERTIES = "update_properties"


@dataclass(frozen=True, slots=True)
class FilterRule:
    """An include or exclude: a compiled expression that must match the whole path.

    `pattern` is Python's form; the FileVault codec translates Java's.
    """

    is_include: bool
    pattern: re.Pattern[str]
    matches_properties: bool = False


@dataclass(frozen=True)
class FilterSet:
    """One root and its rules.

    Attributes:
        root: The subtree that it speaks of.
        is_shallow: The root alone is covered, nothing below it: what a request for a path that is not deep makes.
        rules: Ordered includes and excludes for paths; empty covers the whole subtree (or the root, when shallow).
        property_rules: The same for properties: paths `<node>/<property>`.
        mode: How covered content meets what is there.
    """

    root: NodePath
    is_shallow: bool = False
    rules: tuple[FilterRule, ...] = ()
    property_rules: tuple[FilterRule, ...] = ()
    mode: ImportMode = ImportMode.REPLACE

    def contains(self, path: NodePath) -> bool:
        """Whether the path lies within the root, covered or not."""
        return is_within(path, self.root)

    def covers(self, path: NodePath) -> bool:
        """Whether the path lies within the root and the rules include it."""
        if self.is_shallow:
            return path == self.root
        return is_within(path, self.root) and _decide(self.rules, path)

    def covers_property(self, path: NodePath, name: str) -> bool:
        """Whether a property of a covered node is covered."""
        return _decide(self.property_rules, f"{path.rstrip('/')}/{name}")

    @property
    def is_simple(self) -> bool:
        """Whether coverage is the root or the whole subtree: no rule has to be matched."""
        return not self.rules and not self.property_rules


@dataclass(frozen=True)
class WorkspaceFilter:
    """All filter sets of a package, in order; the first whose root contains a path decides about it."""

    sets: tuple[FilterSet, ...]

    def set_for(self, path: NodePath) -> FilterSet | None:
        """The filter set that decides about the path."""
        return next((candidate for candidate in self.sets if candidate.contains(path)), None)

    def covers(self, path: NodePath) -> bool:
        """Whether the package owns the path."""
        found = self.set_for(path)
        return found is not None and found.covers(path)

    def is_ancestor(self, path: NodePath) -> bool:
        """Whether the path lies above some root, so that content below it may be covered."""
        return any(is_within(candidate.root, path) and candidate.root != path for candidate in self.sets)

    @cached_property
    def is_simple(self) -> bool:
        """Whether coverage is decided by `roots` and `deep_roots` alone: the fast path of readers and targets.

        True when every set replaces, has no rules, and no root lies within a deep one, as `filter_for` makes them.
        """
        return all(one.is_simple and one.mode is ImportMode.REPLACE for one in self.sets) and not any(
            self._is_below_deep(one.root) for one in self.sets
        )

    @cached_property
    def deep_roots(self) -> frozenset[NodePath]:
        """The roots whose subtrees are covered."""
        return frozenset(one.root for one in self.sets if not one.is_shallow)

    def _is_below_deep(self, path: NodePath) -> bool:
        return path != "/" and any(above in self.deep_roots for above in ("/", *ancestors_of(path)))


def filter_for(paths: Iterable[NodePath], deep_paths: Iterable[NodePath]) -> WorkspaceFilter:
    """The filter of a request: deep paths with their subtrees, the others alone.

    A path below a deep one is left out, so that the result is simple; the most specific root comes first.
    """
    deep = set(deep_paths)
    asked = deep | set(paths)
    roots = [path for path in asked if path == "/" or not any(above in deep for above in ("/", *ancestors_of(path)))]
    roots.sort(key=lambda root: (-root.count("/"), root))
    return WorkspaceFilter(tuple(FilterSet(root, is_shallow=root not in deep) for root in roots))


def _decide(rules: tuple[FilterRule, ...], text: str) -> bool:
    if not rules:
        return True
    decision = not rules[0].is_include
    for rule in rules:
        if rule.pattern.fullmatch(text):
            decision = rule.is_include
    return decision
