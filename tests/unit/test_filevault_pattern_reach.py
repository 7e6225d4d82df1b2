"""Filters of a narrower root: rules that cannot match there are dropped, and coverage stays the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mailboat.errors import LimitExceededError
from mailboat.model.filters import FilterRule, FilterSet, ImportMode, WorkspaceFilter, filter_for
from mailboat.model.paths import NodePath, is_within
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.filter_xml import format_filter, parse_filter
from mailboat.packages.filevault.pattern_reach import (
    can_match,
    coverage_below,
    filter_within,
    narrowed,
    with_roots_in_between,
)
from mailboat.packages.filevault.patterns import compile_java
from mailboat.packages.port import PackageContents
from mailboat.testing.examples import examples

ROOT = NodePath("/content/site/page")


@pytest.mark.parametrize(
    "pattern",
    [
        "/content/site/page",
        "/content/site/page(/.*)?",
        "/content/site(/.*)?",
        ".*/jcr:content",
        "/content/[^/]*/page/x",
        "/content/(other|site)/page/y",
        "(/content/other|/content/site/page)/y",
        "/content(/[a-z]{4}){2}/y",
        r"\Q/content/site/page/a.b\E",
        "(?i)/CONTENT/site/page/x",
        "/content/(?=site)site/page/x",
        "/content/si(?i:TE)/page",
        r"^/content/\w+/page/x$",
        "/content/(x|){5}site/page",
    ],
)
def test_a_pattern_that_can_match_below_a_root(pattern: str) -> None:
    assert can_match(compile_java(pattern), ROOT)


@pytest.mark.parametrize(
    "pattern",
    [
        "/content/site",
        "/content/site/pages/x",
        "/content/site/page[^/]x/y",
        "/content/[^/]*/other(/.*)?",
        "/content/(other|another)/page/y",
        "/content(/[a-z]{4}){1}/y",
        r"\Q/content/site/pa.e\E",
        "/CONTENT/site/page/x",
        "",
    ],
)
def test_a_pattern_that_cannot_match_below_a_root(pattern: str) -> None:
    assert not can_match(compile_java(pattern), ROOT)


def rule(kind: str, pattern: str) -> FilterRule:
    return FilterRule(kind == "include", compile_java(pattern))


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ((("exclude", "/content/a"),), ()),
        ((("exclude", "/content/a"), ("exclude", ".*/x")), (("exclude", ".*/x"),)),
        ((("include", "/content/a"), ("exclude", ".*/x"), ("include", ".*/y")), (("include", ".*/y"),)),
        ((("exclude", "/content/a"), ("include", ".*/x")), ()),
        ((("include", "/content/a"),), (("exclude", r"/content/site/page(/.*)?"),)),
    ],
    ids=["none", "the same kind", "the default again", "includes only", "nothing covered"],
)
def test_the_default_of_the_first_rule_stays(
    rules: tuple[tuple[str, str], ...], kept: tuple[tuple[str, str], ...]
) -> None:
    own = FilterSet(NodePath("/content"), rules=tuple(rule(*item) for item in rules))
    found = [("include" if rule.is_include else "exclude", rule.pattern.pattern) for rule in narrowed(own, ROOT).rules]
    assert found == [*kept]


STEPS = st.sampled_from(["/a", "/b", "/[^/]*", "/.*", "(/.*)?", "(/a|/b)", "(/a/b|)", "/a{2}", "(?:/a){1,2}", "/c?"])
PATTERNS = st.lists(STEPS, min_size=1, max_size=4).map("".join)
PATHS = st.lists(st.sampled_from(["a", "b", "aa", "c", ""]), max_size=3).map(
    lambda names: "".join(f"/{n}" for n in names if n)
)


@settings(max_examples=examples(200))
@given(
    patterns=st.lists(st.tuples(st.booleans(), PATTERNS), max_size=4),
    root=st.sampled_from(["/a", "/b/a", "/a/b", "/aa/c"]),
    below=PATHS,
)
def test_coverage_below_a_narrower_root_is_unchanged(patterns: list[tuple[bool, str]], root: str, below: str) -> None:
    rules = tuple(FilterRule(is_include, re.compile(one, re.ASCII)) for is_include, one in patterns)
    own = FilterSet(NodePath("/"), rules=rules, property_rules=rules)
    less, path = narrowed(own, NodePath(root)), NodePath(root + below)
    assert less.covers(path) == own.covers(path)
    assert less.covers_property(path, "b") == own.covers_property(path, "b")


SIMPLE_PATTERNS = st.sampled_from(["/a", "/a/b", ".*/b", "/a(/.*)?", "/b/.*", "/.*"]).map(re.compile)
RULES = st.lists(st.builds(FilterRule, st.booleans(), SIMPLE_PATTERNS), max_size=2).map(tuple)
OWN_SETS = st.lists(
    st.builds(
        FilterSet,
        st.sampled_from(["/", "/a", "/a/b", "/aa"]).map(NodePath),
        st.booleans(),
        RULES,
        RULES,
        st.sampled_from([ImportMode.REPLACE, ImportMode.MERGE_PROPERTIES]),
    ).map(lambda one: one._replace(rules=(), property_rules=()) if one.is_shallow else one),
    min_size=1,
    max_size=3,
).map(lambda sets: WorkspaceFilter(tuple(sets)))


@settings(max_examples=examples(150), deadline=None)
@example(
    own=WorkspaceFilter(
        (
            FilterSet(NodePath("/a"), is_shallow=True),
            FilterSet(NodePath("/a/b"), property_rules=(FilterRule(False, re.compile(".*/b")),)),
        )
    ),
    root=NodePath("/a"),
    below="/b",
)
@given(own=OWN_SETS, root=st.sampled_from(["/a", "/a/b", "/b"]).map(NodePath), below=PATHS)
def test_filters_that_overlap_mean_the_same_below_a_narrower_root(
    own: WorkspaceFilter, root: NodePath, below: str
) -> None:
    asked, path = filter_for((), [root]), NodePath(root + below)
    is_all_covered = coverage_below(own, root)
    assert is_all_covered is None or own.covers(path) == is_all_covered
    found = filter_within(asked, own)
    if not any(is_within(filter_set.root, root) or filter_set.contains(root) for filter_set in own.sets):
        assert found == asked
        return
    assert found.covers(path) == own.covers(path)
    if own.covers(path):
        assert found.mode_of(path) == own.mode_of(path)
        assert found.covers_property(path, "b") == own.covers_property(path, "b")


@pytest.mark.parametrize(
    ("only", "ancestors", "expected"),
    [
        ("include .*/w", ["/", "/content", "/content/a"], []),
        ("include .*/w", ["/content/a/x", "/content/a/x/y", "/content/a/z"], ["/content/a/x/y", "/content/a/z"]),
        ("exclude .*/x", ["/content/a/x"], []),
    ],
    ids=["at and above the root", "below nodes that rules leave out", "below a covered node"],
)
def test_nodes_that_an_importer_would_skip_become_roots(only: str, ancestors: list[str], expected: list[str]) -> None:
    own = WorkspaceFilter((FilterSet(NodePath("/content/a"), rules=(rule(*only.split()),)),))
    found = with_roots_in_between(own, map(NodePath, ancestors))
    assert [filter_set.root for filter_set in found.sets] == ["/content/a", *expected]
    for path in map(NodePath, ("/content/a", "/content/a/x", "/content/a/x/y/w", "/content/a/q")):
        assert found.covers(path) == own.covers(path)


def test_more_nodes_in_between_than_a_filter_may_have_roots_are_refused() -> None:
    rules = (rule("include", "/c/.*/in"), *(rule("exclude", "/c/.*/no"), rule("include", "/c/.*/in")) * 200)
    own = WorkspaceFilter((FilterSet(NodePath("/c"), rules=rules),))
    directories = [NodePath(f"/c/{number}") for number in range(26)]
    with pytest.raises(LimitExceededError, match="would have 10854 roots and rules"):
        FilevaultCodec().check(PackageContents(own, (), directories=directories))


@pytest.mark.parametrize("root", ["/content", "/"])
def test_a_path_alone_keeps_the_property_rules_below_it(root: str) -> None:
    above, below = NodePath(root), NodePath("/content/a")
    own = WorkspaceFilter(
        (FilterSet(below, property_rules=(rule("exclude", ".*/old")._replace(matches_properties=True),)),)
    )
    found = filter_within(filter_for([above], [below]), own)
    assert parse_filter(format_filter(found).encode()) == found
    assert [found.covers(NodePath(path)) for path in (root, "/content/a/x", "/content/b")] == [True, True, False]
    assert found.covers_property(above, "old")
    assert found.covers_property(below, "new")
    assert not found.covers_property(below, "old")


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([("/content", "include", "/content/a"), ("/content", "", "")], [("/content/site", False)]),
        ([("/content", "include", ".*/a"), ("/content", "include", "/content/b")], [("/content/site", True)]),
        ([("/content", "include", "/content/a"), ("/content", "include", "/content/b")], [("/content/site", True)]),
        ([("/content/site", "include", ".*/a"), ("/content/site", "include", ".*/b")], [("/content/site", True)] * 2),
    ],
    ids=["one covers all", "one covers nothing", "none covers anything", "both cover something"],
)
def test_filters_that_change_nothing_are_left_out(
    sets: list[tuple[str, str, str]], expected: list[tuple[str, bool]]
) -> None:
    own = [FilterSet(NodePath(root), rules=(rule(kind, one),) if kind else ()) for root, kind, one in sets]
    found = filter_within(filter_for((), [NodePath("/content/site")]), WorkspaceFilter(tuple(own)))
    assert [(filter_set.root, bool(filter_set.rules)) for filter_set in found.sets] == expected
