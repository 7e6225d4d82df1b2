"""Workspace filters: coverage as FileVault means it, and the simple filters of requests."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import LimitExceededError
from mailboat.model.filters import (
    FilterRule,
    FilterSet,
    ImportMode,
    WorkspaceFilter,
    filter_for,
    sets_of_first_root,
)
from mailboat.model.paths import NodePath
from mailboat.testing.examples import examples


def path(text: str) -> NodePath:
    return NodePath(text)


def include(pattern: str) -> FilterRule:
    return FilterRule(True, re.compile(pattern))


def exclude(pattern: str) -> FilterRule:
    return FilterRule(False, re.compile(pattern))


def over(*rules: FilterRule) -> WorkspaceFilter:
    return WorkspaceFilter((FilterSet(path("/c"), False, rules),))


def test_a_root_without_rules_covers_its_subtree_and_nothing_else() -> None:
    whole = over()
    assert [whole.covers(path(item)) for item in ("/c", "/c/a", "/c/a/b", "/cc", "/", "/d")] == [True] * 3 + [False] * 3


def test_the_first_rule_gives_the_default() -> None:
    assert not over(include("/c/a")).covers(path("/c/b"))
    assert over(exclude("/c/a")).covers(path("/c/b"))


def test_the_last_rule_that_matches_decides() -> None:
    rules = over(include("/c/.*"), exclude("/c/a/.*"), include("/c/a/b"))
    assert rules.covers(path("/c/x"))
    assert not rules.covers(path("/c/a/x"))
    assert rules.covers(path("/c/a/b"))
    assert not rules.covers(path("/c"))


def test_a_rule_must_match_the_whole_path() -> None:
    assert not over(include("/c/a")).covers(path("/c/a/b"))
    assert not over(include("c/a")).covers(path("/c/a"))


def test_an_access_control_list_is_covered_with_its_node_or_by_itself() -> None:
    rules = over(include("/c/rep:policy"), include("/c/a"), exclude("/c/a/rep:policy"))
    assert rules.covers(path("/c/rep:policy/allow/rep:restrictions"))
    assert rules.covers(path("/c/a/rep:policy"))
    assert rules.covers(path("/c/a/rep:policy/allow"))
    assert not rules.covers(path("/c/b/rep:policy/allow"))
    assert not rules.covers(path("/c/rep:policy2/allow"))


def test_an_access_control_list_that_a_rule_excludes_is_never_removed() -> None:
    owned = WorkspaceFilter((FilterSet(path("/c"), rules=(exclude(".*/rep:policy"),)),))
    assert not owned.replaces(path("/c/rep:policy"))
    assert not owned.replaces(path("/c/rep:policy/allow"))
    assert owned.imports_list(path("/c/rep:policy"))
    assert not owned.imports_list(path("/c/rep:policy/allow"))
    everything = WorkspaceFilter((FilterSet(path("/c")),))
    assert everything.replaces(path("/c/rep:policy/allow"))
    entry = FilterSet(path("/c/rep:policy/allow"))
    assert WorkspaceFilter((entry, *owned.sets)).replaces(path("/c/rep:policy/allow/rep:restrictions"))
    assert not WorkspaceFilter((entry, *owned.sets)).replaces(path("/c/rep:policy/deny"))
    assert not everything.imports_list(path("/c/rep:policy"))


def test_a_path_is_covered_if_any_set_covers_it() -> None:
    sets = (FilterSet(path("/c"), False, (include("/c/a"),)), FilterSet(path("/c"), False, (include("/c/b"),)))
    assert [WorkspaceFilter(sets).covers(path(item)) for item in ("/c", "/c/a", "/c/b", "/c/d")] == [
        False,
        True,
        True,
        False,
    ]


def test_the_mode_is_that_of_the_first_root_above_even_if_another_set_covers_the_path() -> None:
    merging = FilterSet(path("/c"), False, (include("/c/a"),), mode=ImportMode.MERGE_PROPERTIES)
    found = WorkspaceFilter((merging, FilterSet(path("/c"))))
    assert (found.covers(path("/c/b")), found.mode_of(path("/c/b"))) == (True, ImportMode.MERGE_PROPERTIES)
    assert not found.replaces(path("/c/b"))
    assert WorkspaceFilter(found.sets[::-1]).replaces(path("/c/b"))


def test_a_property_is_covered_if_any_set_above_its_node_covers_it() -> None:
    secretive = FilterSet(path("/c"), property_rules=(exclude(".*/secret"),))
    inner = FilterSet(path("/c/a"), False, (exclude(".*"),))
    found = WorkspaceFilter((secretive, inner))
    assert not found.covers_property(path("/c"), "secret")
    assert found.covers_property(path("/c/a"), "secret")


def test_a_path_under_a_shallow_root_is_owned_alone_unless_a_deep_one_covers_it() -> None:
    alone, deep = FilterSet(path("/c/a"), is_shallow=True), FilterSet(path("/c"))
    assert WorkspaceFilter((alone,)).covers_alone(path("/c/a"))
    assert not WorkspaceFilter((alone, deep)).covers_alone(path("/c/a"))
    assert not WorkspaceFilter((alone,)).covers_alone(path("/c/b"))


def test_rules_for_properties_decide_by_the_path_of_the_property() -> None:
    one = FilterSet(path("/c"), property_rules=(exclude("/c/a/p"),))
    assert not one.covers_property(path("/c/a"), "p")
    assert one.covers_property(path("/c/b"), "p")
    assert FilterSet(path("/"), property_rules=(exclude("/p"),)).covers_property(path("/"), "q")
    assert not FilterSet(path("/"), property_rules=(exclude("/p"),)).covers_property(path("/"), "p")


def test_a_shallow_root_covers_itself_alone() -> None:
    alone = WorkspaceFilter((FilterSet(path("/c"), is_shallow=True),))
    assert alone.covers(path("/c"))
    assert not alone.covers(path("/c/a"))


def test_ancestors_are_what_lies_above_roots() -> None:
    found = WorkspaceFilter((FilterSet(path("/a/b")), FilterSet(path("/c"))))
    above = [item for item in ("/", "/a", "/a/b", "/c", "/d", "/a/bb") if found.is_ancestor(path(item))]
    assert above == ["/", "/a"]


def test_the_filter_of_a_request_puts_the_most_specific_root_first() -> None:
    found = filter_for([path("/a"), path("/a/b/c")], [path("/d"), path("/d/e"), path("/a/b")])
    assert [(filter_set.root, filter_set.is_shallow) for filter_set in found.sets] == [
        ("/a/b", False),
        ("/a", True),
        ("/d", False),
    ]
    assert found.is_simple


def test_a_path_asked_for_in_both_ways_is_deep() -> None:
    assert filter_for([path("/a")], [path("/a")]).sets == (FilterSet(path("/a")),)


def test_everything_is_one_root() -> None:
    assert filter_for([path("/a"), path("/")], [path("/"), path("/b")]).sets == (FilterSet(path("/")),)


@pytest.mark.parametrize(
    "sets",
    [
        (FilterSet(path("/a"), False, (include("x"),)),),
        (FilterSet(path("/a"), property_rules=(include("x"),)),),
        (FilterSet(path("/a"), mode=ImportMode.MERGE_PROPERTIES),),
        (FilterSet(path("/a")), FilterSet(path("/a/b"), is_shallow=True)),
        (FilterSet(path("/a/b"), is_shallow=True), FilterSet(path("/a"))),
        (FilterSet(path("/a"), is_shallow=True), FilterSet(path("/a/b"))),
        (FilterSet(path("/a"), is_shallow=True), FilterSet(path("/a"))),
        (FilterSet(path("/")), FilterSet(path("/a"))),
    ],
)
def test_a_filter_whose_roots_alone_do_not_decide_is_not_simple(sets: tuple[FilterSet, ...]) -> None:
    assert not WorkspaceFilter(sets).is_simple


PATHS = st.sampled_from(["/", "/a", "/a/b", "/a/b/c", "/ab", "/b", "/b/c"]).map(NodePath)
SETS = st.lists(st.builds(FilterSet, PATHS, st.booleans()), min_size=1, max_size=4).map(tuple)


@settings(deadline=None, max_examples=examples(300))
@given(SETS, PATHS)
def test_where_a_filter_is_simple_its_roots_alone_tell_what_it_covers(
    sets: tuple[FilterSet, ...], asked: NodePath
) -> None:
    found = WorkspaceFilter(sets)
    if not found.is_simple:
        return
    below = any(asked.startswith("/" if root == "/" else f"{root}/") for root in found.deep_roots)
    assert found.covers(asked) == (below or asked in {filter_set.root for filter_set in sets})


@settings(deadline=None, max_examples=examples(300))
@given(st.sets(PATHS), st.sets(PATHS), PATHS)
def test_the_filter_of_a_request_covers_what_was_asked_for(
    alone: set[NodePath], deep: set[NodePath], asked: NodePath
) -> None:
    found = filter_for(alone, deep)
    assert found.is_simple or not found.sets
    below = any(asked == root or asked.startswith("/" if root == "/" else f"{root}/") for root in deep)
    assert found.covers(asked) == (asked in alone or below)


PATTERNS = st.sampled_from(["/a", "/a/b(/.*)?", ".*/b", "/.*", ".*/b/.*", "/b"]).map(re.compile)
RULES = st.lists(st.builds(FilterRule, st.booleans(), PATTERNS), max_size=2).map(tuple)
RULED_SETS = st.lists(
    st.builds(FilterSet, PATHS, st.booleans(), RULES, RULES, st.sampled_from(ImportMode)), min_size=1, max_size=4
).map(tuple)


def decide(rules: tuple[FilterRule, ...], text: str) -> bool:
    """The rule of FileVault's `PathFilterSet.contains`, in its words."""
    matching = [rule.is_include for rule in rules if rule.pattern.fullmatch(text)]
    return matching[-1] if matching else not (rules and rules[0].is_include)


def is_below(asked: NodePath, root: NodePath) -> bool:
    return asked == root or asked.startswith("/" if root == "/" else f"{root}/")


@settings(deadline=None, max_examples=examples(300))
@given(RULED_SETS, PATHS, st.sampled_from(["b", "title"]))
def test_coverage_modes_and_properties_are_those_of_filevault(
    sets: tuple[FilterSet, ...], asked: NodePath, name: str
) -> None:
    """A shallow set stands for a set with the single include of its root."""
    found = WorkspaceFilter(sets)
    above = [filter_set for filter_set in sets if is_below(asked, filter_set.root)]
    covering = [asked == item.root if item.is_shallow else decide(item.rules, asked) for item in above]
    assert found.covers(asked) == any(covering)
    assert found.mode_of(asked) == (above[0].mode if above else ImportMode.REPLACE)
    assert found.replaces(asked) == (any(covering) and above[0].mode is ImportMode.REPLACE)
    text = f"{asked.rstrip('/')}/{name}"
    assert found.covers_property(asked, name) == any(decide(item.property_rules, text) for item in above)


@settings(deadline=None, max_examples=examples(500))
@given(RULED_SETS, PATHS, st.sampled_from(["b", "title"]))
def test_sets_of_older_packages_keep_the_meaning_of_the_first_root(
    sets: tuple[FilterSet, ...], asked: NodePath, name: str
) -> None:
    found = WorkspaceFilter(sets_of_first_root(sets))
    first = next((filter_set for filter_set in sets if is_below(asked, filter_set.root)), None)
    is_covered = first is not None and first.covers(asked)
    assert found.covers(asked) == is_covered
    assert found.mode_of(asked) == (ImportMode.REPLACE if first is None else first.mode)
    if first is not None and is_covered:
        assert found.covers_property(asked, name) == first.covers_property(asked, name)


def test_filters_that_do_not_overlap_mean_the_same_in_older_packages() -> None:
    apart = (FilterSet(path("/a"), False, (include("/a/b"),)), FilterSet(path("/c"), mode=ImportMode.MERGE_PROPERTIES))
    assert sets_of_first_root(apart) == apart
    request = filter_for([path("/a")], [path("/a/b"), path("/d")]).sets
    assert sets_of_first_root(request) == request


def test_filters_that_overlap_without_bound_are_refused() -> None:
    inner = tuple(FilterSet(path(f"/a/{name}"), False, (include("x"),)) for name in range(200))
    with pytest.raises(LimitExceededError):
        sets_of_first_root((*inner, *[FilterSet(path("/a"))] * 60))


def test_filters_are_compared_by_what_they_say() -> None:
    assert over(include("a")) == over(include("a"))
    assert over(include("a")) != over(exclude("a"))
    assert over() != "a filter"
    assert len({over(), over()}) == 1
    assert "root='/c'" in repr(over())
