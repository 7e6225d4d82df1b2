"""Packages of one subtree each are read together: what that gives is what reading them alone gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.config.document import LimitsConfig
from mailboat.model.changes import Subtrees
from mailboat.model.filters import filter_for
from mailboat.model.nodes import Node, NodeRecord, Property, PropertyType
from mailboat.model.paths import NodePath
from mailboat.packages.port import PackageContents
from mailboat.testing.examples import examples
from mailboat.testing.trees import a_file, a_folder, a_page
from mailboat.wire.node_bodies import encode_node
from support.handmade import number, text
from support.handmade_trees import (
    header,
    large_file,
    node,
    outcome_of,
    package,
    piece,
    read_at_once,
    read_together,
    written,
)

ROOT = NodePath("/c")


def between(found: Subtrees) -> list[tuple[str, bytes]]:
    """Paths and bodies of the package between the others."""
    end = 2 + found.counts[1]
    assert (found.counts[0], found.counts[2], len(found.paths), len(found.bodies)) == (2, 1, end + 1, end + 1)
    return list(zip(found.paths[2:end], found.bodies[2:end], strict=True))


LONG = ("x" * 127, "y" * 128, "z" * 16_000)
DATED = Node(NodePath("/c/Dated"), "cq:Page", properties=(Property("at", ("1",), PropertyType.LONG),))
SEVERAL = Node(NodePath("/c/several"), "nt:unstructured", properties=(Property("t", LONG, is_multiple=True),))
TOGETHER = {
    "folders and pages": [a_folder("/c"), a_page("/c/a", ("x",), title="T"), a_page("/c/a/b", jcr_title="B")],
    "a file": [a_folder("/c"), a_file("/c/file", b"content")],
    "typed values": [a_folder("/c"), DATED],
    "values of all lengths": [a_folder("/c"), SEVERAL],
    "a page longer than a quick look": [a_page("/c", (), text="x" * 20_000)],
    "many properties": [a_page("/c", (), **{f"name{n}": str(n) for n in range(60)})],
}


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("above", [(), (Node(NodePath("/"), "rep:root"),)])
def test_packages_of_one_subtree_are_read_together(name: str, above: tuple[Node, ...]) -> None:
    payload = written(PackageContents(filter_for([], [ROOT]), TOGETHER[name], above))
    found = read_together(payload)
    assert found is not None
    assert between(found) == [(item.path, item.body) for item in map(encode_node, TOGETHER[name])]


NOT_TOGETHER = {
    "another root": package(header(text(1, "/cc")), node("/cc")),
    "two roots": package(header(text(1, "/c"), text(1, "/e")), node("/c")),
    "a root that is not deep": package(header(text(1, "/c") + number(2, 1)), node("/c")),
    "no nodes": package(header()),
    "no node at the root": package(header(), node("/c/a")),
    "a node without its parent": package(header(), node("/c"), node("/c/a/b")),
    "siblings in another order": package(header(), node("/c"), node("/c/b"), node("/c/a")),
    "a binary that travels in pieces": package(header(), piece(b"x"), node("/c", large_file(b"x"))),
    "a binary that is elsewhere": package(header(), node("/c", large_file(b"x"))),
    "more nodes than few": package(header(), node("/c"), *(node(f"/c/{n:02}") for n in range(16))),
    "one node less than the trailer says": package(header(), node("/c"), count=2),
    "one node more than the trailer says": package(header(), node("/c"), node("/c/a"), count=1),
}


@pytest.mark.parametrize("name", NOT_TOGETHER)
def test_what_is_not_one_plain_subtree_is_read_alone(name: str) -> None:
    assert read_together(NOT_TOGETHER[name]) is None


def test_packages_read_together_keep_within_the_limits() -> None:
    payload = package(header(), node("/c"), node("/c/A"), node("/c/a"))
    assert read_together(payload, LimitsConfig(refuse_collisions=True)) is None
    assert read_together(payload) is not None
    assert read_together(package(header(), node("/c"), node("/c/A"))) is not None
    assert read_together(payload, LimitsConfig(max_entries=2)) is None
    assert read_together(payload, LimitsConfig(max_total_bytes=len(payload) - 1)) is None


@settings(deadline=None, max_examples=examples(600))
@given(st.data(), st.sampled_from(sorted(TOGETHER)))
def test_what_is_read_together_is_what_is_read_alone(draw: st.DataObject, name: str) -> None:
    changed = bytearray(written(PackageContents(filter_for([], [ROOT]), TOGETHER[name])))
    for _ in range(draw.draw(st.integers(1, 2))):
        at = draw.draw(st.integers(0, len(changed) - 1))
        changed[at : at + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    found = read_together(bytes(changed))
    if found is not None:
        alone = outcome_of(read_at_once, bytes(changed))
        records = [NodeRecord(NodePath(path), body) for path, body in between(found)]
        assert alone == (filter_for([], [ROOT]), records, {})
