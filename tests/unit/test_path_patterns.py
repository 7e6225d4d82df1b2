"""Path patterns: what they cover, and what is refused as a pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.errors import PathRefusedError
from mailboat.model.path_patterns import EVERYWHERE, PathPattern, first_uncovered
from mailboat.model.paths import NodePath

NAMES = st.lists(st.sampled_from(["a", "b", "ab", "a*", "A"]), max_size=4)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/", "/", True),
        ("/", "/a/b", True),
        ("/a", "/a", True),
        ("/a", "/a/b/c", True),
        ("/a", "/", False),
        ("/a", "/ab", False),
        ("/a", "/A", False),
        ("/a/b", "/a", False),
        ("/a/*", "/a", False),
        ("/a/*", "/a/b/c", True),
        ("/content/*/news", "/content/de/news/2026", True),
        ("/content/*/news", "/content/news", False),
        ("/content/*/news", "/content/de/at/news", False),
        ("/content/*/news", "/content/de/newsletter", False),
        ("/a/x*y", "/a/xy", True),
        ("/a/x*y", "/a/x", False),
        ("/a/xx*xx", "/a/xxx", False),
        ("/a/*.html", "/a/b.html", True),
        ("/a/*.html", "/a/b.html.bak", False),
        ("/a.b", "/aXb", False),
        ("/[ab]", "/a", False),
        ("/caf\u00e9", "/cafe\u0301", False),
        ("/a%2fb", "/a/b", False),
    ],
)
def test_a_pattern_covers_what_matches_and_what_is_below(pattern: str, path: str, expected: bool) -> None:
    assert PathPattern(pattern).covers(NodePath(path)) is expected


@pytest.mark.parametrize("text", ["", "a", "/a/", "//a", "/a/../b", "/./a", "/a\\b", "/a/**", "/*a*", "/a\x00", "**"])
def test_what_is_no_path_or_has_two_stars_in_a_name_is_no_pattern(text: str) -> None:
    with pytest.raises(PathRefusedError):
        PathPattern(text)


@given(NAMES, NAMES, NAMES)
def test_what_covers_a_path_covers_all_below_it(pattern: list[str], names: list[str], more: list[str]) -> None:
    made = PathPattern("/" + "/".join(pattern))
    path = "/" + "/".join(names)
    if made.covers(NodePath(path)):
        assert made.covers(NodePath("/" + "/".join(names + more)))


def test_the_first_path_outside_of_all_patterns_is_found() -> None:
    patterns = (PathPattern("/a"), PathPattern("/b/*"))
    paths = [NodePath(item) for item in ("/a/x", "/b/x", "/b", "/c")]
    assert first_uncovered(paths, patterns) == "/b"
    assert first_uncovered(paths[:2], patterns) is None
    assert first_uncovered(paths, EVERYWHERE) is None
    assert first_uncovered(paths, ()) == "/a/x"
