"""Filters of a narrower root: rules that cannot match there are dropped, and coverage stays the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.model.filters import FilterRule, FilterSet
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.pattern_reach import can_match, narrowed
from mailboat.packages.filevault.patterns import compile_java
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
    own = FilterSet(NodePath("/content"), rules=tuple(rule(*one) for one in rules))
    found = [("include" if one.is_include else "exclude", one.pattern.pattern) for one in narrowed(own, ROOT).rules]
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
