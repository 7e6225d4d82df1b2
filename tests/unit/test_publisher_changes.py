"""How changes are cut into packages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mailboat.content.keys import key_of
from mailboat.model.identifiers import RequestId
from mailboat.model.paths import NodePath, is_within
from mailboat.model.requests import MAX_PATHS_BYTES
from mailboat.publisher.published import SourceChange
from mailboat.publisher.source_changes import ChangeGroup, plan_changes, request_id_for


def put(path: str, size: int = 1, *, is_new: bool = False) -> SourceChange:
    return SourceChange(NodePath(path), is_alone=not is_new, content_bytes=size, is_file=True)


def gone(path: str, *, is_alone: bool = False) -> SourceChange:
    return SourceChange(NodePath(path), is_removal=True, is_alone=is_alone)


def plan(*changes: SourceChange, nodes: int = 100, size: int = 1000) -> list[ChangeGroup]:
    return list(plan_changes(changes, nodes, size))


def test_nothing_changed_makes_no_package() -> None:
    assert plan() == []


def test_a_package_takes_what_comes_next_until_the_nodes_or_the_bytes_are_spent() -> None:
    by_nodes = plan(put("/a"), put("/b"), put("/c"), nodes=2)
    assert [group.puts for group in by_nodes] == [("/a", "/b"), ("/c",)]
    by_bytes = plan(put("/a", 600), put("/b", 600), put("/c", 100), size=1000)
    assert [group.puts for group in by_bytes] == [("/a",), ("/b", "/c")]


def test_a_node_larger_than_the_budget_travels_alone() -> None:
    assert [group.puts for group in plan(put("/a"), put("/b", 5000), put("/c"))] == [("/a",), ("/b",), ("/c",)]


def test_a_package_names_no_more_bytes_of_paths_than_its_message_has_room_for() -> None:
    paths = [f"/{number:03}" + f"/{'n' * 250}" * 15 for number in range(100)]
    groups = plan(*map(put, paths))
    assert [path for group in groups for path in group.puts] == paths
    assert len(groups) > 1
    assert max(sum(map(len, group.roots)) for group in groups) <= MAX_PATHS_BYTES


def test_a_changed_node_is_owned_alone_and_its_unchanged_children_are_not_touched() -> None:
    (group,) = plan(put("/page"))
    assert group.filter.covers(NodePath("/page"))
    assert not group.filter.covers(NodePath("/page/child"))


def test_a_removed_subtree_is_owned_as_a_whole() -> None:
    (group,) = plan(gone("/old"))
    assert group.filter.covers(NodePath("/old/deep/down"))
    assert (group.puts, group.roots, group.deep_roots) == ((), ("/old",), {"/old"})


def test_a_removed_node_with_living_descendants_is_owned_alone() -> None:
    (group,) = plan(gone("/old", is_alone=True))
    assert not group.filter.covers(NodePath("/old/alive"))


def test_a_subtree_that_is_wholly_new_and_wholly_in_the_package_is_one_root() -> None:
    (group,) = plan(put("/n", is_new=True), put("/n/a", is_new=True), put("/n/b", is_new=True), put("/z"))
    assert group.roots == ("/n", "/z")
    assert group.deep_roots == {"/n"}
    assert group.puts == ("/n", "/n/a", "/n/b", "/z")


def test_a_new_subtree_that_is_cut_is_owned_node_by_node_where_it_is_not_whole() -> None:
    first, second = plan(*(put(path, is_new=True) for path in ("/n", "/n/a", "/n/b", "/n/b/c")), nodes=2)
    assert (first.roots, first.deep_roots) == (("/n", "/n/a"), {"/n/a"})
    assert (second.roots, second.deep_roots) == (("/n/b",), {"/n/b"})


def test_the_root_is_never_owned_with_all_that_others_may_have_put_below_it() -> None:
    (group,) = plan(put("/", is_new=True), put("/a", is_new=True))
    assert group.deep_roots == {"/a"}


def test_the_most_specific_root_decides() -> None:
    (group,) = plan(put("/a"), put("/a/b/c"), gone("/a/b/d"))
    assert [filter_set.root for filter_set in group.filter.sets] == ["/a/b/c", "/a/b/d", "/a"]
    assert group.filter.is_simple


def test_the_figures_of_a_group_are_for_people() -> None:
    (group,) = plan(put("/a", 3), put("/b", 4), gone("/c"))
    assert (group.content_bytes, group.files, len(group.removals)) == (7, 2, 1)


def test_a_whole_subtree_is_owned_deep_and_carried_in_the_order_of_a_walk() -> None:
    policy = SourceChange(
        NodePath("/b/rep:policy"), is_alone=False, is_whole=True, below=(NodePath("/b/rep:policy/allow"),)
    )
    (group,) = plan(put("/a"), put("/c"), gone("/d"), policy)
    assert group.puts == ("/a", "/b/rep:policy", "/b/rep:policy/allow", "/c")
    assert (group.roots, group.deep_roots) == (("/a", "/b/rep:policy", "/c", "/d"), {"/b/rep:policy", "/d"})
    assert group.replaced == ("/b/rep:policy",)


def test_the_request_id_depends_on_content_and_history() -> None:
    (group,) = plan(put("/a"), gone("/b"))
    (other,) = plan(put("/a"), gone("/c"))
    ids: set[RequestId] = {
        request_id_for("site", 0, group, [b"1"]),
        request_id_for("site", 1, group, [b"1"]),
        request_id_for("site", 0, group, [b"2"]),
        request_id_for("other", 0, group, [b"1"]),
        request_id_for("site", 0, other, [b"1"]),
    }
    assert len(ids) == 5
    assert request_id_for("site", 0, group, [b"1"]) in ids


names = st.sampled_from("abc")
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: NodePath("/" + "/".join(parts)))


@given(st.sets(paths, max_size=30), st.integers(1, 6), st.integers(1, 40))
def test_groups_carry_every_change_once_in_order_and_their_filters_never_overlap(
    new: set[NodePath], nodes: int, size: int
) -> None:
    whole = {
        NodePath(path[:end]) for path in new for end in range(1, len(path) + 1) if path[end : end + 1] in {"", "/"}
    }
    ordered = sorted(whole, key=key_of)
    groups = plan(*(put(path, 7, is_new=True) for path in ordered), nodes=nodes, size=size)
    assert [path for group in groups for path in group.puts] == ordered
    for index, group in enumerate(groups):
        assert len(group.puts) <= nodes
        assert group.content_bytes <= size or len(group.puts) == 1
        assert all(group.filter.covers(path) for path in group.puts)
        others = [path for other in groups[:index] + groups[index + 1 :] for path in other.puts]
        assert not any(group.filter.covers(path) for path in others)
        for root in group.deep_roots:
            assert {path for path in ordered if is_within(path, root)} <= set(group.puts)
