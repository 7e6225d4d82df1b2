"""Workspace filters: what a package owns, and therefore what it may remove.

The meaning is FileVault's (filter.md and importmode.md of Apache Jackrabbit FileVault 4.2). A path is covered if any
filter set covers it, and a property if any set at or above its node does; the mode is that of the first set whose root
is at or above the path, whether or not that set covers it. The first rule of a set gives the default, the last matching
rule decides. A covered path that a package does not carry is removed from the target (mode REPLACE). A path that is not
covered is never changed; where it is an ancestor of covered content and missing, it is made.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from mailboat.errors import LimitExceededError
from mailboat.model.paths import ROOT, NodePath, is_within, parent_of, paths_above

MAX_RULES: Final = 10_000
"""Roots and rules of a filter."""
_POLICY: Final = re.compile(r"/rep:(?:policy|repoPolicy|cugPolicy|principalPolicy)(?=/|\Z)")


class ImportMode(enum.StrEnum):
    """What happens to content that is there already.

    MERGE leaves existing nodes alone, by documents of FileVault: see `merge_rules.py`.
    """

    REPLACE = "replace"
    MERGE = "merge"
    MERGE_PROPERTIES = "merge_properties"
    UPDATE_PROPERTIES = "update_properties"


class FilterRule(NamedTuple):
    """An include or exclude: a compiled expression that must match the whole path.

    `pattern` is Python's form; what comes in a package is Java's, and `packages/filevault/patterns.py` checks and
    translates it.
    """

    is_include: bool
    pattern: re.Pattern[str]
    matches_properties: bool = False


class FilterSet(NamedTuple):
    """One root and its rules.

    Attributes:
        root: The subtree that it speaks of.
        is_shallow: The root alone is covered, nothing below it: what a request for a path that is not deep makes.
        rules: Ordered includes and excludes for paths; empty covers the whole subtree (or the root, when shallow).
        property_rules: The same for properties: paths `<node>/<property>`.
        mode: How covered content combines with existing nodes.
        is_cleanup: A package needs no content at the root (`type="cleanup"`): it is there to be removed.
    """

    root: NodePath
    is_shallow: bool = False
    rules: tuple[FilterRule, ...] = ()
    property_rules: tuple[FilterRule, ...] = ()
    mode: ImportMode = ImportMode.REPLACE
    is_cleanup: bool = False

    def contains(self, path: NodePath) -> bool:
        """Whether the path lies within the root, covered or not."""
        return is_within(path, self.root)

    def covers(self, path: NodePath) -> bool:
        """Whether the path lies within the root and the rules include it."""
        if self.is_shallow:
            return path == self.root
        if not is_within(path, self.root):
            return False
        policy = policy_of(path) if self.rules else None
        if policy is None:
            return _decide(self.rules, path)
        # FileVault imports an access control list with all its entries, and with its node whatever rules say of it.
        return self.includes(policy) or self.includes(parent_of(policy))

    def includes(self, path: NodePath) -> bool:
        """Whether the path lies within the root and the rules include this very path."""
        return is_within(path, self.root) and _decide(self.rules, path)

    def covers_property(self, path: NodePath, name: str) -> bool:
        """Whether a property of a covered node is covered."""
        return _decide(self.property_rules, f"{path.rstrip('/')}/{name}")

    @property
    def is_simple(self) -> bool:
        """Whether it replaces its root or the whole subtree: no rule has to be matched, and no mode looked up."""
        return not self.rules and not self.property_rules and self.mode is ImportMode.REPLACE


def _decide(rules: tuple[FilterRule, ...], text: str) -> bool:
    if not rules:
        return True
    decision = not rules[0].is_include
    for rule in rules:
        if rule.pattern.fullmatch(text):
            decision = rule.is_include
    return decision


def policy_of(path: NodePath) -> NodePath | None:
    """The access control list that is at or above the path."""
    found = _POLICY.search(path)
    return None if found is None else NodePath(path[: found.end()])


class WorkspaceFilter:
    """All filter sets of a package, in order. Unchangeable.

    Attributes:
        sets: The filter sets.
        is_simple: Whether roots alone decide what is covered and replaced: the fast path of readers and targets. True
            when every set is simple and no root lies within a deep one, as `filter_for` makes them.
        covers: Whether the package owns a path.
    """

    __slots__ = ("_by_root", "covers", "is_simple", "sets")

    def __init__(self, sets: tuple[FilterSet, ...]) -> None:
        """Take the sets."""
        self.sets: Final = sets
        self.is_simple: Final = _are_simple(sets)
        # A look-up for each ancestor instead of each set: packages of bulk builds have 500 sets.
        self._by_root: Final = _by_root(sets) if len(sets) > 1 else {}
        self.covers: Final = _coverage(sets, self._by_root)

    def sets_above(self, path: NodePath) -> list[FilterSet]:
        """The filter sets whose root is the path or above it, in order."""
        if len(self.sets) == 1:
            return [self.sets[0]] if self.sets[0].contains(path) else []
        found = list(self._by_root.get(path, ()))
        while path != ROOT:
            path = parent_of(path)
            found += self._by_root.get(path, ())
        found.sort()
        return [self.sets[place] for place in found]

    def covers_alone(self, path: NodePath) -> bool:
        """Whether the package owns the path, and owns it as a shallow root only."""
        covering = [candidate for candidate in self.sets_above(path) if candidate.covers(path)]
        return bool(covering) and all(candidate.is_shallow for candidate in covering)

    def covers_property(self, path: NodePath, name: str) -> bool:
        """Whether a property of a covered node is covered."""
        return any(candidate.covers_property(path, name) for candidate in self.sets_above(path))

    def mode_of(self, path: NodePath) -> ImportMode:
        """How the path combines with an existing node, if it is covered."""
        return next((candidate.mode for candidate in self.sets_above(path)), ImportMode.REPLACE)

    def replaces(self, path: NodePath) -> bool:
        """Whether the path is removed from the target if the package does not contain it."""
        if self.mode_of(path) is not ImportMode.REPLACE:
            return False
        policy = policy_of(path)
        if policy is None:
            return self.covers(path)
        # FileVault removes no access control list that a rule excludes, also where it would import one.
        return any(
            candidate.covers(path) and (candidate.includes(policy) or not candidate.contains(policy))
            for candidate in self.sets_above(path)
        )

    def imports_list(self, path: NodePath) -> bool:
        """Whether the path is an access control list that replaces another one, though a rule excludes it."""
        if policy_of(path) != path or self.mode_of(path) is not ImportMode.REPLACE:
            return False
        return self.covers(path) and not self.replaces(path)

    @property
    def keeps_documents(self) -> bool:
        """Whether FileVault's documents matter: mode MERGE takes or skips whole documents."""
        return any(filter_set.mode is ImportMode.MERGE for filter_set in self.sets)

    @property
    def rule_count(self) -> int:
        """How many roots and rules it has: a reader of FileVault packages accepts `MAX_RULES` together."""
        # a shallow root is written with a rule that covers nothing but itself
        return sum(2 if one.is_shallow else 1 + len(one.rules) + len(one.property_rules) for one in self.sets)

    def is_ancestor(self, path: NodePath) -> bool:
        """Whether the path lies above some root, so that content below it may be covered."""
        return any(is_within(candidate.root, path) and candidate.root != path for candidate in self.sets)

    @property
    def deep_roots(self) -> frozenset[NodePath]:
        """The roots whose subtrees are covered."""
        return frozenset(filter_set.root for filter_set in self.sets if not filter_set.is_shallow)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkspaceFilter) and self.sets == other.sets

    def __hash__(self) -> int:
        return hash(self.sets)

    def __repr__(self) -> str:
        return f"WorkspaceFilter({self.sets!r})"


def _by_root(sets: tuple[FilterSet, ...]) -> dict[NodePath, tuple[int, ...]]:
    places: dict[NodePath, list[int]] = {}
    for place, one in enumerate(sets):
        places.setdefault(one.root, []).append(place)
    return {root: tuple(found) for root, found in places.items()}


def _coverage(sets: tuple[FilterSet, ...], by_root: Mapping[NodePath, tuple[int, ...]]) -> Callable[[NodePath], bool]:
    """What decides whether a path is covered, prepared once for a package: readers and targets ask for every node."""
    if len(sets) > 1:
        return _any_of(sets, by_root)
    if not sets:
        return lambda path: False  # noqa: ARG005  # nothing
    return _subtree(sets[0].root) if sets[0].is_simple and not sets[0].is_shallow else sets[0].covers


def _subtree(root: NodePath) -> Callable[[NodePath], bool]:
    if root == ROOT:
        return lambda path: True  # noqa: ARG005  # the root holds everything
    prefix = f"{root}/"
    return lambda path: path.startswith(prefix) or path == root


def _any_of(sets: tuple[FilterSet, ...], by_root: Mapping[NodePath, tuple[int, ...]]) -> Callable[[NodePath], bool]:
    def covers(path: NodePath) -> bool:
        above = path
        while True:
            for place in by_root.get(above, ()):
                if sets[place].covers(path):
                    return True
            if above == ROOT:
                return False
            above = parent_of(above)

    return covers


def _are_simple(sets: tuple[FilterSet, ...]) -> bool:
    return all(filter_set.is_simple for filter_set in sets) and (len(sets) == 1 or _are_apart(sets))


def _are_apart(sets: tuple[FilterSet, ...]) -> bool:
    """Whether each root decides about its own paths: none twice, none below a deep one or behind a shallow one."""
    deep = {filter_set.root for filter_set in sets if not filter_set.is_shallow}
    earlier: set[NodePath] = set()
    for filter_set in sets:
        above = paths_above(filter_set.root)
        if filter_set.root in earlier or not deep.isdisjoint(above) or not earlier.isdisjoint(above):
            return False
        earlier.add(filter_set.root)
    return True


def filter_for(paths: Iterable[NodePath], deep_paths: Iterable[NodePath]) -> WorkspaceFilter:
    """The filter of a request: deep paths with their subtrees, the others alone.

    A path below a deep one is left out, so that the result is simple; the most specific root comes first.
    """
    deep = set(deep_paths)
    asked = deep | set(paths)
    roots = [path for path in asked if deep.isdisjoint(paths_above(path))]
    roots.sort(key=lambda root: (root == "/", -root.count("/"), root))
    return WorkspaceFilter(tuple(FilterSet(root, is_shallow=root not in deep) for root in roots))


# ---------------------------------------------------------------------------------- tree packages of versions 1 and 2


def sets_of_first_root(sets: tuple[FilterSet, ...]) -> tuple[FilterSet, ...]:
    """The filter sets that mean here what `sets` mean if the first root at or above a path decides alone.

    That was the meaning in `tree` packages of versions 1 and 2. Sets that overlap no earlier ones stay as they are.
    Raises: LimitExceededError: The sets overlap so often that more than `MAX_RULES` rules are needed.
    """
    if len(sets) == 1 or _are_simple(sets):
        return sets
    by_root = _by_root(sets)
    limited = _first_by_root(sets, lambda one: one.is_shallow or bool(one.rules))
    ruled = _first_by_root(sets, lambda one: bool(one.property_rules))
    # What an earlier set leaves out stays out, in later sets at or below its root ...
    kept = [place for place, one in enumerate(sets) if not _is_behind(place, _chain(one.root), limited, ruled)]
    # ... and in later ones that reach down to it.
    added: dict[int, list[FilterRule]] = {}
    count = 0
    for first, of_properties in ((limited, False), (ruled, True)):
        for root, earliest in first.items():
            rule = _exclusion(root, of_properties=of_properties)
            for above in _chain(root)[1:]:
                places = by_root.get(above, ())
                for place in places[bisect_right(places, earliest) :]:
                    added.setdefault(place, []).append(rule)
                    count += 1
                    if count > MAX_RULES:
                        raise LimitExceededError("the roots of a filter lie within each other too often")
    return tuple([_with_rules(sets[place], tuple(added.get(place, ()))) for place in kept])


def _first_by_root(sets: tuple[FilterSet, ...], is_wanted: Callable[[FilterSet], bool]) -> dict[NodePath, int]:
    found: dict[NodePath, int] = {}
    for place, one in enumerate(sets):
        if is_wanted(one):
            found.setdefault(one.root, place)
    return found


def _is_behind(place: int, at_or_above: list[NodePath], *firsts: dict[NodePath, int]) -> bool:
    return any(first.get(root, place) < place for first in firsts for root in at_or_above)


def _chain(path: NodePath) -> list[NodePath]:
    """The path and all above it, the root last."""
    chain = [path]
    while chain[-1] != ROOT:
        chain.append(parent_of(chain[-1]))
    return chain


def _exclusion(root: NodePath, *, of_properties: bool) -> FilterRule:
    end = "/.*" if of_properties else "(?:/.*)?"
    return FilterRule(False, re.compile(re.escape(root) + end), of_properties)


def _with_rules(one: FilterSet, added: tuple[FilterRule, ...]) -> FilterSet:
    """The set with more rules behind its own."""
    of_properties = tuple(rule for rule in added if rule.matches_properties)
    rules = one.rules + tuple(rule for rule in added if not rule.matches_properties)
    if one.is_shallow:
        rules = one.rules  # covers nothing that could be excluded
    return one._replace(rules=rules, property_rules=one.property_rules + of_properties)
