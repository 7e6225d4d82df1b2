"""Keys: the order of the table is the order of a walk, and subtrees are ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mailboat.content.keys import ROOT_KEY, below_range, key_of, parent_key, path_of, subtree_range
from mailboat.model.nodes import folder_node
from mailboat.model.paths import ROOT, NodePath, is_within, parent_of
from mailboat.testing.trees import in_walk_order

SOME_NAMES = st.one_of(
    st.sampled_from(["a", "a!", "a b", "a-", "a0", "aa", "b"]), st.text("ab!0\x7e\u00e9", min_size=1, max_size=3)
)
PATHS = st.lists(SOME_NAMES, max_size=4).map(lambda names: NodePath("/" + "/".join(names)))


@given(PATHS)
def test_a_path_comes_back_from_its_key(path: NodePath) -> None:
    assert path_of(key_of(path)) == path


@given(PATHS)
def test_the_parent_of_a_key_is_the_key_of_the_parent(path: NodePath) -> None:
    assert parent_key(key_of(path)) == key_of(parent_of(path))


@given(PATHS, PATHS)
def test_a_subtree_is_a_range(path: NodePath, root: NodePath) -> None:
    low, high = subtree_range(key_of(root))
    assert (low <= key_of(path) < high) == is_within(path, root)
    low, high = below_range(key_of(root))
    assert (low <= key_of(path) < high) == (is_within(path, root) and path != root)


@given(st.lists(PATHS, unique=True))
def test_key_order_is_walk_order(paths: list[NodePath]) -> None:
    walked = [node.path for node in in_walk_order(folder_node(path) for path in paths)]
    assert sorted(paths, key=key_of) == walked


def test_the_root_has_a_key_of_its_own() -> None:
    assert key_of(ROOT) == ROOT_KEY
    assert parent_key(ROOT_KEY) == ROOT_KEY
