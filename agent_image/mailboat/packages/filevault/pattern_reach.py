"""Which rules of a filter matter below a narrower root: an expression is read as far as the root goes.

The places in the root's path that a part of the expression can stop at are followed, as in a simulated automaton.
Assertions and look-arounds are taken as true, and inline flags for a match, so that no rule is dropped that could
decide about a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from mailboat.content.keys import key_of
from mailboat.errors import UsageError
from mailboat.model.filters import FilterRule, FilterSet, WorkspaceFilter
from mailboat.model.paths import ROOT, NodePath, is_within, parent_of, paths_above
from mailboat.packages.filevault.patterns import ASSERTIONS, LOOKS_AROUND, TOKEN, compile_java, quote_java, range_of

_REMEMBERED: Final = 4096
_REMEMBERED_PARTS: Final = 256  # an expression of 1,000 characters takes some 100 KB


def filter_within(asked: WorkspaceFilter, own: WorkspaceFilter) -> WorkspaceFilter:
    """The part of a filter at and below the roots of another one; a root that it does not know stays as it is.

    Raises:
        UsageError: A rule decides about a path that is asked for without its children: no package can carry both.
    """
    parts = [(filter_set.is_shallow, part) for filter_set in asked.sets for part in _parts_within(filter_set, own)]
    ruled = [part.root for _, part in parts if part.property_rules]
    # what is asked for alone only: sets of the source for a root alone mean what they mean there
    return WorkspaceFilter(tuple(_without_properties_below(part, ruled) if alone else part for alone, part in parts))


def _without_properties_below(part: FilterSet, ruled: Sequence[NodePath]) -> FilterSet:
    """The set for a root alone, without the properties below it if others have rules for them.

    A property is covered if any set above it says so, and one without property rules says so of all below its root.
    """
    if not part.is_shallow or not any(root != part.root and is_within(root, part.root) for root in ruled):
        return part
    own = quote_java(part.root.rstrip("/") + "/") + "[^/]*"
    itself = FilterRule(is_include=True, pattern=compile_java(quote_java(part.root)))
    its_properties = FilterRule(is_include=True, pattern=compile_java(own), matches_properties=True)
    return FilterSet(part.root, rules=(itself,), property_rules=(its_properties,), mode=part.mode)


def _parts_within(one: FilterSet, own: WorkspaceFilter) -> Sequence[FilterSet]:
    above = own.sets_above(one.root)
    if not one.is_shallow:
        found = [part for kept in own.sets if (part := _part_within(kept, one.root)) is not None]
        return _without_idle(found, one.root) or [one]
    if not above:
        return [one]
    if not own.covers(one.root) or all(narrowed(kept, one.root).property_rules for kept in above):
        raise UsageError(
            f"the filter of the source leaves out {one.root} or properties of it",
            next_step="publish the path with its children, or change the rules of the filter in the source",
            path=one.root,
        )
    return [one._replace(mode=above[0].mode)]


def with_roots_in_between(own: WorkspaceFilter, ancestors: Iterable[NodePath]) -> WorkspaceFilter:
    """The same coverage, with a root at nodes that rules leave out: an importer skips their directories otherwise.

    FileVault enters a directory that is covered, or at or above a root (`Importer.postFilter` of vault-core 4.2.0).
    """
    inner = sorted((path for path in ancestors if not own.is_ancestor(path)), key=key_of)
    added: list[FilterSet] = []
    for place, path in enumerate(inner):
        is_last = place + 1 == len(inner) or not is_within(inner[place + 1], path)
        if is_last and not any(map(own.covers, paths_above(path))):
            added += _without_idle([narrowed(root, path) for root in own.sets_above(path) if not root.is_shallow], path)
    if not added:
        return own
    return WorkspaceFilter((*own.sets, *(root for root in added if root not in own.sets)))


def _part_within(kept: FilterSet, root: NodePath) -> FilterSet | None:
    if is_within(kept.root, root):
        return kept
    if not kept.contains(root):
        return None
    if kept.is_shallow:  # covers nothing there, and still gives the mode
        return FilterSet(root, rules=(_nothing_below(root),), mode=kept.mode)
    return narrowed(kept, root)


def _without_idle(parts: list[FilterSet], root: NodePath) -> list[FilterSet]:
    """The parts without those that change nothing: a narrower filter is simple wherever it can be."""
    whole = next((at for at, part in enumerate(parts) if part.root == root and _is_whole(part)), None)
    if whole is not None:
        parts = parts[: whole + 1]  # all at and below the root is covered, and has a mode
    if len({part.mode for part in parts}) > 1:
        return parts
    if whole is not None:
        return parts[whole:]
    if any(part.property_rules for part in parts):
        return parts
    nothing = (_nothing_below(root),)
    return [part for part in parts if part.root != root or part.rules != nothing] or parts[:1]


def _is_whole(part: FilterSet) -> bool:
    return not part.is_shallow and not part.rules and not part.property_rules


def _nothing_below(root: NodePath, *, of_properties: bool = False) -> FilterRule:
    below = quote_java("" if root == "/" else root) + "(/.*)?"
    return FilterRule(is_include=False, pattern=compile_java(below), matches_properties=of_properties)


def narrowed(one: FilterSet, root: NodePath) -> FilterSet:
    """The filter set for a root below its own: the same coverage there, without rules that cannot match."""
    return one._replace(
        root=root, rules=_kept(one.rules, root), property_rules=_kept(one.property_rules, root, of_properties=True)
    )


def coverage_below(own: WorkspaceFilter, path: NodePath) -> bool | None:
    """Whether all at and below a path is covered, or nothing of it; None where rules may decide differently there."""
    deep = [filter_set for filter_set in own.sets_above(path) if not filter_set.is_shallow]
    decided = {_decided(filter_set.rules, path) for filter_set in deep}
    if True in decided:
        return True
    is_empty = None not in decided and path not in {filter_set.root for filter_set in own.sets}
    return False if is_empty and not own.is_ancestor(path) else None


@lru_cache(_REMEMBERED)
def can_match(pattern: re.Pattern[str], root: NodePath) -> bool:
    """Whether an expression could match the root or a path below it. Never False for one that does."""
    # Remembered for the folders above: most rules end there, and a search asks for each folder of a source.
    if root != ROOT and not can_match(pattern, parent_of(root)):
        return False
    if pattern.fullmatch(root):
        return True
    text = "/" if root == "/" else f"{root}/"
    return _Reach(pattern, text).is_reached()


def _kept(rules: tuple[FilterRule, ...], root: NodePath, *, of_properties: bool = False) -> tuple[FilterRule, ...]:
    """The rules that matter, where the first of them still gives the default of all."""
    if _decided(rules, root) is False:
        return (_nothing_below(root, of_properties=of_properties),)
    return _live(rules, root)


def _decided(rules: tuple[FilterRule, ...], root: NodePath) -> bool | None:
    """Whether rules include all at and below a root, or nothing; None where they may decide differently there."""
    live = _live(rules, root)
    # An exclude of exactly this subtree: the usual form of a rule, by which a document is not read.
    if len(live) == 1 and live[0].pattern.fullmatch(root) and live[0] == _nothing_below(root):
        return False
    return None if live else not rules or not rules[0].is_include


def _live(rules: tuple[FilterRule, ...], root: NodePath) -> tuple[FilterRule, ...]:
    """The rules that can match at or below a root, from the first on that decides other than the default."""
    kept = [rule for rule in rules if can_match(rule.pattern, root)]
    while kept and kept[0].is_include is not rules[0].is_include:
        del kept[0]  # repeats the default, which the next opposite rule gives as well
    return tuple(kept)


class _Part(NamedTuple):
    """A part of an expression: a character or class, or a group of branches; how often it comes."""

    atom: re.Pattern[str] | None
    branches: tuple[tuple[_Part, ...], ...]
    low: int = 1
    high: int | None = 1


_ENDS: Final = ("$", "\\Z", "\\z")


class _Parsing:
    """The parts of one expression."""

    def __init__(self, flags: int) -> None:
        self._flags = flags
        self.is_known = True

    def parse(self, pattern: str) -> tuple[tuple[_Part, ...], ...]:
        groups: list[tuple[str, list[list[_Part]]]] = [("", [[]])]
        at = 0
        while at < len(pattern):
            match = TOKEN.match(pattern, at)
            if match is None:
                self.is_known = False
                return ()
            at = match.end()
            row = groups[-1][1][-1]
            if match["repeat"] is not None:
                if row:
                    row[-1] = row[-1]._replace(low=range_of(match)[0], high=range_of(match)[1])
            elif match["open"] is not None:
                self._open(match[0], groups)
            elif match["close"] is not None:
                opening, branches = groups.pop()
                is_empty = opening in LOOKS_AROUND
                groups[-1][1][-1].append(_Part(None, ((),) if is_empty else tuple(map(tuple, branches))))
            elif match["bar"] is not None:
                groups[-1][1].append([])
            else:
                row.extend(self._atoms(match))
        return tuple(map(tuple, groups[0][1]))

    def _open(self, opening: str, groups: list[tuple[str, list[list[_Part]]]]) -> None:
        if opening.startswith("(?") and opening not in LOOKS_AROUND and opening != "(?:":
            self.is_known = self.is_known and opening.endswith(")") and len(groups) == 1
        if not opening.endswith(")"):
            groups.append((opening, [[]]))

    def _atoms(self, match: re.Match[str]) -> list[_Part]:
        if match["quoted"] is not None:
            return [self._part(re.escape(character)) for character in match["quoted"]]
        if match[0] in _ENDS or match[0] in ASSERTIONS:
            return [_Part(None, ((),))]
        return [self._part(match[0])]

    def _part(self, atom: str) -> _Part:
        return _Part(re.compile(atom, self._flags), ())


@lru_cache(_REMEMBERED_PARTS)
def _parts_of(pattern: re.Pattern[str]) -> tuple[tuple[_Part, ...], ...] | None:
    """The parts of an expression; None if one is not understood."""
    parsing = _Parsing(pattern.flags)
    branches = parsing.parse(pattern.pattern)
    return branches if parsing.is_known else None


class _Reach:
    """One walk of an expression over one text."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._text = text
        self._is_at_end = False
        self._branches = _parts_of(pattern)

    def is_reached(self) -> bool:
        """Whether the text is matched, or is the beginning of what is."""
        if self._branches is None:
            return True
        ends = self._any_of(self._branches, frozenset((0,)))
        return self._is_at_end or len(self._text) in ends

    def _any_of(self, branches: tuple[tuple[_Part, ...], ...], starts: frozenset[int]) -> frozenset[int]:
        found: frozenset[int] = frozenset()
        for row in branches:
            ends = starts
            for part in row:
                ends = self._repeated(part, ends)
            found |= ends
        return found

    def _repeated(self, part: _Part, starts: frozenset[int]) -> frozenset[int]:
        found = starts if part.low == 0 else frozenset()
        ends, count, before = starts, 0, None
        while ends and ends != before and (part.high is None or count < part.high):
            before, ends = ends, self._once(part, ends)
            count += 1
            if count >= part.low or ends == before:
                found |= ends
        return found

    def _once(self, part: _Part, starts: frozenset[int]) -> frozenset[int]:
        if part.atom is None:
            return self._any_of(part.branches, starts)
        length = len(self._text)
        if length in starts:
            self._is_at_end = True
        return frozenset(at + 1 for at in starts if at < length and part.atom.match(self._text, at, at + 1))
