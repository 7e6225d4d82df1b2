"""Cutting any tree into about forty requests that together are the tree."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.cli.demo.portions import Portion, cut, survey
from mailboat.model.filters import filter_for
from mailboat.model.nodes import Binary, Node, file_node, folder_node
from mailboat.model.paths import NodePath, ancestors_of, is_within
from mailboat.testing.examples import examples

Sizes = dict[str, int]
NAMES = st.sampled_from(["a", "b", "c", "a b", "ü"])
TREES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=4).map("/".join), st.integers(0, 10**9), max_size=60)


def nodes_of(files: Sizes) -> list[Node]:
    """A tree with these files; a file that would lie below another makes that one a folder."""
    paths = {NodePath(f"/{name}") for name in files}
    folders = {above for path in paths for above in ancestors_of(path)}
    found = [*map(folder_node, folders)]
    found += [file_node(path, Binary(digest=bytes(32), length_bytes=files[path[1:]])) for path in paths - folders]
    return sorted(found, key=lambda node: node.path.split("/"))


def owners(portions: list[Portion], path: NodePath) -> Iterator[Portion]:
    for portion in portions:
        if filter_for((*portion.shallow, *portion.deep), portion.deep).covers(path):
            yield portion


@given(TREES, st.integers(2, 50))
@settings(deadline=None, max_examples=examples(150))
def test_every_node_is_in_exactly_one_request_and_parents_never_come_later(files: Sizes, wanted: int) -> None:
    nodes = nodes_of(files)
    portions = list(cut(survey(nodes), wanted))
    assert len(portions) <= wanted
    place: dict[str, int] = {}
    for node in nodes:
        (owner,) = owners(portions, node.path)
        place[node.path] = portions.index(owner)
        assert all(place[above] <= place[node.path] for above in ancestors_of(node.path))


@given(TREES)
@settings(deadline=None, max_examples=examples(50))
def test_no_request_is_empty(files: Sizes) -> None:
    for bin_ in cut(survey(nodes_of(files)), 40):
        assert bin_.shallow or bin_.deep


def test_an_empty_tree_needs_no_request() -> None:
    assert list(cut(survey([]), 40)) == []


def test_a_tree_with_a_node_at_its_root_is_carried_with_it() -> None:
    root = Node(NodePath("/"), "rep:root")
    portions = cut(survey([root, *nodes_of({"a": 1, "b": 2})]), 40)
    assert portions[0].shallow == ("/",)


def test_a_tree_with_enough_nodes_fills_all_requests_and_no_one_owns_most_of_it() -> None:
    files = {f"d{number % 7}/f{number}": 1000 for number in range(400)} | {"huge": 10**8}
    found = survey(nodes_of(files))
    portions = cut(found, 40)
    assert len(portions) == 40
    for portion in portions:
        owned = [name for name in files if any(is_within(NodePath(f"/{name}"), path) for path in portion.deep)]
        assert len(owned) <= 60
    assert (found.files, found.nodes, found.content_bytes) == (401, 408, 10**8 + 400_000)
