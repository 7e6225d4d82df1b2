"""Import modes and property rules, as a decision about two nodes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from mailboat.content.binaries import binaries_of, named, with_binaries
from mailboat.content.differences import changed_parts
from mailboat.content.merge_rules import DocumentMerge, merge_node
from mailboat.model.filters import FilterRule, FilterSet, ImportMode, WorkspaceFilter
from mailboat.model.nodes import Binary, Node, NodeRecord, Property
from mailboat.model.paths import NodePath
from mailboat.testing.trees import a_file, a_full_node, a_page

PATH = NodePath("/a")


def node(kind: str = "nt:x", mixins: tuple[str, ...] = (), order: tuple[str, ...] | None = None, **texts: str) -> Node:
    """A node at `/a`."""
    properties = tuple(Property(name, (text,)) for name, text in sorted(texts.items()))
    return Node(PATH, kind, mixins, properties, order)


def owned(**rules: Any) -> WorkspaceFilter:
    return WorkspaceFilter((FilterSet(PATH, **rules),))


HERE = node("nt:here", ("mix:h",), ("h",), both="here", here="here")
COMING = node("nt:coming", ("mix:c",), ("c",), both="coming", coming="coming")

CASES = [
    (ImportMode.REPLACE, COMING),
    (
        ImportMode.MERGE_PROPERTIES,
        node("nt:here", ("mix:c", "mix:h"), ("h", "c"), both="here", coming="coming", here="here"),
    ),
    (
        ImportMode.MERGE,
        node("nt:here", ("mix:c", "mix:h"), ("h", "c"), both="here", coming="coming", here="here"),
    ),
    (
        ImportMode.UPDATE_PROPERTIES,
        node("nt:here", ("mix:c", "mix:h"), ("h", "c"), both="coming", coming="coming", here="here"),
    ),
]


@pytest.mark.parametrize(("mode", "expected"), CASES)
def test_a_node_meets_the_one_that_is_there(mode: ImportMode, expected: Node) -> None:
    assert merge_node(HERE, COMING, owned(mode=mode)) == expected


@pytest.mark.parametrize("mode", ImportMode)
def test_a_node_that_meets_nothing_stays_as_it_comes(mode: ImportMode) -> None:
    assert merge_node(None, COMING, owned(mode=mode)) == COMING


@pytest.mark.parametrize(("mode", "kept"), [(ImportMode.MERGE_PROPERTIES, "h"), (ImportMode.UPDATE_PROPERTIES, "h")])
def test_an_order_that_one_side_lacks_is_taken_from_the_other(mode: ImportMode, kept: str) -> None:
    assert merge_node(HERE, node(), owned(mode=mode)).child_order == (kept,)
    assert merge_node(node(), HERE, owned(mode=mode)).child_order == (kept,)


def test_named_children_go_behind_the_others_in_the_order_of_the_package() -> None:
    merged = merge_node(node(order=("a", "b", "c", "x")), node(order=("c", "b", "d")), owned(mode=ImportMode.MERGE))
    assert merged.child_order == ("a", "x", "c", "b", "d")


def test_properties_that_are_not_covered_are_neither_taken_nor_removed() -> None:
    only_coming = (FilterRule(is_include=True, pattern=re.compile(".*/coming")),)
    rules = owned(property_rules=only_coming)
    assert merge_node(HERE, COMING, rules).properties == node(both="here", coming="coming", here="here").properties
    assert merge_node(None, COMING, rules).properties == node(coming="coming").properties
    without = node("nt:coming", ("mix:c",), ("c",))
    assert merge_node(node(both="here", coming="old"), without, rules).properties == node(both="here").properties


def test_merge_leaves_documents_alone_whose_root_exists() -> None:
    """Also what they have and the target lacks; what is in documents of its own is decided by itself."""
    merging = FilterSet(PATH, mode=ImportMode.MERGE)
    replacing = FilterSet(NodePath("/a/page/fixed"))
    documents = DocumentMerge(
        WorkspaceFilter((replacing, merging)),
        {"/", "/a", "/a/page", "/a/page/fixed", "/a/page/fixed/other"}.__contains__,
    )
    records = [
        ("/", False, False),  # not covered, and not of mode merge
        ("/a", False, True),
        ("/a/inner", True, True),
        ("/a/new", False, False),
        ("/a/new/inner", True, False),
        ("/a/page", False, True),
        ("/a/page/fixed", True, True),
        ("/a/page/file", False, False),
        ("/a/page/jcr:content", True, True),
        ("/a/z", True, True),
    ]
    for path, is_inner, is_left in records:
        assert (path, documents.leaves_alone(NodeRecord(NodePath(path), b"", (), is_inner))) == (path, is_left)
    assert documents.keeps(NodePath("/a/page/fixed"))
    assert documents.keeps(NodePath("/a/page/fixed/other"))
    assert not documents.keeps(NodePath("/a/page/file"))


def test_binaries_are_found_and_exchanged() -> None:
    full = a_full_node("/n")
    assert sum(binary.length_bytes for binary in binaries_of(full)) == 2 + 65_537
    bare = with_binaries(full, named)
    assert bare == full
    assert all(binary.data is None for binary in binaries_of(bare))
    plain = a_page("/p")
    assert with_binaries(plain, named) is plain


def test_what_changed_in_a_node_is_named() -> None:
    assert changed_parts(HERE, COMING) == ("type", "mixins", "order", "both", "coming", "here")
    assert changed_parts(HERE, HERE) == ()
    assert changed_parts(a_file("/f", b"1"), a_file("/f", b"2")) == ("jcr:data",)
    assert changed_parts(None, HERE) == ()
    assert Binary(b"1") != Binary(b"2")
