"""Paths: what content may be called."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import PathRefusedError
from mailboat.model.paths import (
    MAX_DEPTH,
    MAX_NAME_BYTES,
    NodePath,
    ancestors_of,
    child_of,
    folded_name,
    is_within,
    name_of,
    parent_of,
    parse_path,
    parse_paths,
)
from mailboat.testing.examples import examples

GOOD = [
    "/",
    "/a",
    "/content/site/en/jcr:content",
    "/a b/ä.html",
    "/...",
    "/.hidden",
    "/a./b",
    "/..a",
    "/%2e%2e",
    "/" + "n" * MAX_NAME_BYTES,
    "/" + "ä" * (MAX_NAME_BYTES // 2),
    "/a" * MAX_DEPTH,
    ("/" + "n" * 200) * 20,
    "/\u2028/\u200b",
    "/a:b*c?d|e<f>",
]
BAD = {
    "": "start with",
    "a": "start with",
    "a/b": "start with",
    "//": "''",
    "/a/": "''",
    "/a//b": "''",
    "/.": r"'\.'",
    "/..": r"'\.\.'",
    "/a/../b": r"'\.\.'",
    "/a/./b": r"'\.'",
    "/a\\b": "backslash",
    "/a\x00": "control",
    "/a\nb": "control",
    "/a\x7f": "control",
    "/\ud800": "surrogate",
    "/" + "n" * (MAX_NAME_BYTES + 1): "longer than 255",
    "/" + "ä" * 128: "longer than 255",
    "/a" * (MAX_DEPTH + 1): "101 names deep",
    ("/" + "n" * 250) * 17: "4267 bytes",
}


@pytest.mark.parametrize("text", GOOD)
def test_a_path_is_accepted_as_it_is(text: str) -> None:
    assert parse_path(text) == text
    assert parse_paths(["/x", text]) == ["/x", text]


@pytest.mark.parametrize("text", BAD)
def test_a_path_that_breaks_a_rule_is_refused_with_the_rule(text: str) -> None:
    for parse in (parse_path, lambda one: parse_paths(["/x", one])):
        with pytest.raises(PathRefusedError, match=BAD[text]) as caught:
            parse(text)
        assert caught.value.where["path"] == text[:200]


def test_no_paths_are_no_paths() -> None:
    assert parse_paths([]) == []


SEGMENTS = st.one_of(
    st.sampled_from(["", ".", "..", "a", "b.c", "Ä", "jcr:content", "\\", "\n", "\x7f", "x" * 100, "\ud800", " "]),
    st.text(max_size=6),
)


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(st.lists(SEGMENTS, max_size=4).map("/".join), max_size=4))
def test_many_paths_are_judged_as_each_alone(texts: list[str]) -> None:
    def judged(parse) -> object:  # type: ignore[no-untyped-def]
        try:
            return parse(texts)
        except PathRefusedError as error:
            return str(error)

    assert judged(parse_paths) == judged(lambda those: [parse_path(item) for item in those])


def test_names_and_parents() -> None:
    assert parent_of(NodePath("/a/b")) == "/a"
    assert parent_of(NodePath("/a")) == "/"
    assert parent_of(NodePath("/")) == "/"
    assert name_of(NodePath("/a/b")) == "b"
    assert name_of(NodePath("/")) == ""
    assert child_of(NodePath("/"), "a") == "/a"
    assert child_of(NodePath("/a"), "b") == "/a/b"
    assert ancestors_of(NodePath("/a/b/c")) == ["/a", "/a/b"]
    assert ancestors_of(NodePath("/a")) == []


def test_within_means_at_or_below() -> None:
    assert is_within(NodePath("/a/b"), NodePath("/a"))
    assert is_within(NodePath("/a"), NodePath("/a"))
    assert is_within(NodePath("/a"), NodePath("/"))
    assert not is_within(NodePath("/ab"), NodePath("/a"))
    assert not is_within(NodePath("/"), NodePath("/a"))


@pytest.mark.parametrize(
    ("one", "other"), [("A", "a"), ("Straße", "STRASSE"), ("\u00e4", "a\u0308"), ("\u00c4", "a\u0308"), ("ﬁ", "FI")]
)
def test_names_that_a_file_system_may_take_for_one_fold_to_one(one: str, other: str) -> None:
    assert folded_name(one) == folded_name(other)


@settings(deadline=None)
@given(st.text(max_size=8))
def test_folding_twice_is_folding_once(name: str) -> None:
    assert folded_name(folded_name(name)) == folded_name(name)
