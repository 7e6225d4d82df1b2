"""What expressions of filters cost: those of real packages pass, hostile ones don't, and the bound is one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mailboat.errors import LimitExceededError
from mailboat.packages.filevault.patterns import MAX_STEPS, MAX_TEXT, compile_java, steps_of

MANY_STEPS = 20_000
"""Where counting stops: the bound has to be higher then."""


class Atom(NamedTuple):
    """A character or class."""

    text: str

    def __str__(self) -> str:
        return self.text


class Row(NamedTuple):
    """Parts behind each other."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


class Group(NamedTuple):
    """Alternatives in a group, which may look ahead."""

    opening: str
    branches: tuple[Part, ...]

    def __str__(self) -> str:
        return f"{self.opening}{'|'.join(map(str, self.branches))})"


class Repeat(NamedTuple):
    """A repetition of an atom or a group."""

    inner: Atom | Group
    low: int
    high: int | None
    manner: str

    def __str__(self) -> str:
        high = "" if self.high is None else self.high
        return f"{self.inner}{{{self.low},{high}}}{self.manner}"


Part = Atom | Row | Group | Repeat
Then = Callable[[int], bool]


class TooManyStepsError(Exception):
    """Counting has stopped."""


class Matcher:
    """A matcher that tries one way after another, and counts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = 0

    def matches(self, part: Part) -> bool:
        return self._try(part, 0, lambda end: end == len(self.text))

    def _try(self, part: Part, at: int, then: Then) -> bool:
        if isinstance(part, Row):
            return self._try_row(part.parts, at, then)
        self.steps += 1
        if self.steps > MANY_STEPS:
            raise TooManyStepsError
        if isinstance(part, Atom):
            return re.fullmatch(part.text, self.text[at : at + 1]) is not None and then(at + 1)
        if isinstance(part, Group):
            return self._try_group(part, at, then)
        return self._try_again(part, 0, at, then)

    def _try_row(self, parts: tuple[Part, ...], at: int, then: Then) -> bool:
        if not parts:
            return then(at)
        return self._try(parts[0], at, lambda end: self._try_row(parts[1:], end, then))

    def _try_group(self, group: Group, at: int, then: Then) -> bool:
        if group.opening in ("(", "(?:"):
            return any(self._try(branch, at, then) for branch in group.branches)
        found = any(self._try(branch, at, lambda _: True) for branch in group.branches)
        return found == (group.opening == "(?=") and then(at)

    def _try_again(self, part: Repeat, count: int, at: int, then: Then) -> bool:
        def again() -> bool:
            if part.high is not None and count >= part.high:
                return False
            return self._try(part.inner, at, next_round)

        def next_round(end: int) -> bool:
            return (end > at or count < part.low) and self._try_again(part, count + 1, end, then)

        def leave() -> bool:
            return count >= part.low and then(at)

        return leave() or again() if part.manner == "?" else again() or leave()


def repeats(inner: st.SearchStrategy[Atom] | st.SearchStrategy[Group]) -> st.SearchStrategy[Part]:
    ranges = st.sampled_from([(0, None), (1, None), (2, None), (0, 1), (0, 2), (1, 3), (2, 2)])
    return st.builds(
        lambda one, counts, manner: Repeat(one, *counts, manner), inner, ranges, st.sampled_from(["", "", "?"])
    )


def larger(parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    openings = st.sampled_from(["(", "(?:", "(?=", "(?!"])
    return (
        st.builds(Row, several)
        | st.builds(Group, openings, several)
        | repeats(st.builds(Group, st.sampled_from(["(", "(?:"]), several))
    )


ATOMS = st.builds(Atom, st.sampled_from(["a", "a", "b", "/", ".", "[ab]", "[^/]", "[^a]"]))
PARTS = st.recursive(ATOMS | repeats(ATOMS), larger, max_leaves=8)
TEXTS = st.builds(
    lambda unit, count, end: (unit * count + end)[:16],
    st.text("ab/", min_size=1, max_size=3),
    st.integers(0, 16),
    st.text("ab/", max_size=2),
)
OPTIONAL = Repeat(Atom("a"), 0, 1, "")
MANY = Repeat(Atom("a"), 0, None, "")


@example(Row((*[OPTIONAL] * 10, *[Atom("a")] * 10)), "a" * 9)
@example(Row((Repeat(Group("(", (Group("(", (Atom("a"), Atom("a"))),)), 0, None, ""), Atom("b"))), "a" * 10)
@example(Row((Repeat(Group("(", (OPTIONAL,)), 10, 10, ""), Repeat(Atom("a"), 10, 10, ""))), "a" * 9)
@example(Row((MANY, MANY, MANY, Atom("b"))), "a" * 16)
@example(Row((Repeat(Group("(", (MANY,)), 0, None, ""), Atom("b"))), "a" * 10)
@given(PARTS, TEXTS)
def test_no_match_takes_more_steps_than_its_bound(part: Part, text: str) -> None:
    pattern = str(part)
    matcher = Matcher(text)
    with contextlib.suppress(TooManyStepsError):
        # `re` is asked only where that took few steps: on others it may compute for hours, and no time limit ends it
        assert matcher.matches(part) == (re.fullmatch(pattern, text) is not None)
    assert matcher.steps <= steps_of(pattern, len(text)), pattern


POSSESSIVE = ["a*+", "a?+", "a{1,2}+", "[ab]++", ".*+", "(?:a|b*+)", "a", "b"]


@given(st.lists(st.sampled_from(POSSESSIVE), max_size=5).map("".join), st.text("ab", max_size=8))
def test_possessive_repetitions_of_characters_are_translated(pattern: str, text: str) -> None:
    compiled = compile_java(pattern)
    assert "+" not in compiled.pattern
    assert (compiled.fullmatch(text) is None) == (re.fullmatch(pattern, text) is None)


@pytest.mark.parametrize(
    "pattern",
    [
        "a?" * 40 + "a" * 40,
        "((a|a))*b",
        "((a|aa))*b",
        "(((a|a)))*b",
        "((a|b?))*c",
        "(a?){40}a{40}",
        "((a{0,9}){0,9}){0,9}b",
        "(?:a|a){40}b",
        "((a?){100}){100}",
        "(?=((a|a))*b).*",
        "(?<=" + "(a|a)" * 40 + "b).*",
        "(?!(a*)*b).*",
        "a*a*a*b",
        "a*\\ba*\\ba*b",
        "a*$a*$a*b",
        "(?i)a*Aa*Aa*Aa*b",
        "(?i:a*)(?!a)(?i:a*)(?!a)(?i:a*)(?!a)b",
        "[^/]*a[^/]*b[^/]*",
        ".*.*.*x",
        ".*/a/.*/b/.*/c/.*",
        "(/.*)*",
        "(?:a*|b)(?:a*|b)(?:a*|b)c",
        "a{0,100}a{0,100}a{0,100}a{0,100}a{0,100}b",
        "()" * 400 + "a*(aa)*b",
    ],
)
def test_an_expression_that_would_freeze_a_process_is_refused(pattern: str) -> None:
    with pytest.raises(LimitExceededError, match="too long to match") as caught:
        compile_java(pattern)
    assert caught.value.where["limit"] == MAX_STEPS


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/content/.*", "/content/a/b"),
        ("/content/dam/site(/.*)?", "/content/dam/site"),
        (".*/jcr:content/.*", "/a/jcr:content/b"),
        ("^/content/.*/jcr:content(/.*)?$", "/content/a/jcr:content"),
        ("/content/(?!dam|forms)[^/]+(/.*)?", "/content/site/a"),
        ("/content/dam/site/.*/renditions/original(.*)?", "/content/dam/site/a/renditions/original"),
        ("/content/dam/site(/.*)?/renditions(/.*)?", "/content/dam/site/a/renditions/b"),
        ("/content/site(/.*)?/a(/.*)?/b(/.*)?", "/content/site/x/a/b/y"),
        (".*/jcr:content/.*/experiencefragment/.*", "/a/jcr:content/root/experiencefragment/b"),
        ("(.*)/jcr:content/(.*)/image/(.*)", "/a/jcr:content/b/image/c"),
        ("/content/[^/]+/[^/]+/[^/]+/jcr:content/.*", "/content/a/b/c/jcr:content/d"),
        ("/content/([^/]+)/([^/]+)/([^/]+)/jcr:content", "/content/a/b/c/jcr:content"),
        ("/content(/[^/]+){0,3}/x(/.*)?", "/content/a/b/x"),
        ("/content/(en|de|fr|es|it|pt|nl|pl)/.*/jcr:content/(a|b|c)(/.*)?", "/content/de/a/jcr:content/c"),
        (".*\\.(jpg|jpeg|png|gif)", "/a/b.png"),
        ("(?:(?!/secret).)*", "/a/public"),
        ("/a(/[^/]+)*", "/a/b/c"),
        ("/content/[^/]*+/[^/]*+/[^/]*+/[^/]*+.*", "/content/a/b/c/d/e"),
        ("a*+.*a*+b*+.*", "aab"),
        (".*/(cq:lastModified|cq:lastModifiedBy|jcr:lastModified)", "/a/cq:lastModified"),
    ],
)
def test_expressions_of_real_packages_are_kept(pattern: str, path: str) -> None:
    assert compile_java(pattern).fullmatch(path)


def test_the_bound_grows_at_most_with_the_square_of_the_length_for_what_is_kept() -> None:
    for pattern in (".*/a/.*/b/.*", "(/[^/]+)*", "a*a*b", "/a(/.*)?/b(/.*)?/c(/.*)?"):
        assert steps_of(pattern, 2 * MAX_TEXT) < 4.1 * steps_of(pattern, MAX_TEXT)
