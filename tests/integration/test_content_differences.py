"""The difference of two trees, whatever sources they are in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from mailboat.content.differences import Difference, differences, keyed_digests
from mailboat.content.digest import source_digest, tree_digest
from mailboat.content.keys import key_of
from mailboat.content.locations import open_target
from mailboat.content.port import Source
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT, NodePath, is_within
from mailboat.testing.examples import examples
from mailboat.testing.target_contract import deep, publish
from mailboat.testing.trees import a_file, a_folder, a_page, in_walk_order, sample_tree, trees


class ListSource:
    """A list as a source that has no digests to offer."""

    uri = "list"

    def __init__(self, tree: Sequence[Node]) -> None:
        self.tree = tree

    def node(self, path: NodePath) -> Node | None:
        return next((node for node in self.tree if node.path == path), None)

    def walk(self, path: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
        return (node for node in self.tree if node.path == path or (is_deep and is_within(node.path, path)))

    def close(self) -> None:
        pass


OLD = in_walk_order(
    [a_page("/p", ("b", "a"), t="1"), a_file("/p/a", b"1"), a_file("/p/b", b"1"), a_folder("/gone"), a_file("/gone/x")]
)
NEW = in_walk_order([a_page("/p", ("a", "b"), t="2"), a_file("/p/a", b"2"), a_file("/p/b", b"1"), a_file("/p/c")])
EXPECTED = [
    Difference(NodePath("/gone"), "removed"),
    Difference(NodePath("/gone/x"), "removed"),
    Difference(NodePath("/p"), "changed", ("order", "t")),
    Difference(NodePath("/p/a"), "changed", ("jcr:data",)),
    Difference(NodePath("/p/c"), "added"),
]


def test_what_was_added_removed_and_changed_is_told() -> None:
    assert list(differences(ListSource(OLD), ListSource(NEW))) == EXPECTED


def test_a_part_of_the_trees_can_be_compared() -> None:
    assert list(differences(ListSource(OLD), ListSource(NEW), NodePath("/p/a"))) == EXPECTED[3:4]


@pytest.mark.parametrize("kind", ["sqlite", "files", "generations"])
def test_any_source_can_be_compared_with_any(tmp_path: Path, kind: str) -> None:
    with closing(open_target(f"{kind}:{tmp_path / 'target'}")) as target:
        publish(target, OLD, deep("/"))
        with closing(target.source()) as source:
            assert list(differences(source, ListSource(NEW))) == EXPECTED
            assert list(differences(source, ListSource(OLD))) == []
            assert list(differences(ListSource(OLD), source)) == []


@settings(max_examples=examples(20))
@given(trees())
def test_a_tree_does_not_differ_from_itself_and_its_digests_come_in_key_order(tree: list[Node]) -> None:
    source: Source = ListSource(tree)
    assert list(differences(source, ListSource(tree))) == []
    keys = [key for key, _ in keyed_digests(source, ROOT)]
    assert keys == sorted(key_of(node.path) for node in tree)
    assert source_digest(source) == tree_digest(tree)


def test_a_comparison_can_be_left() -> None:
    found = differences(ListSource(sample_tree()), ListSource([]))
    assert next(found).path == "/content"
    found.close()  # type: ignore[attr-defined]  # it is a generator
