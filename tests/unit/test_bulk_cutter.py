"""Cutting a tree into packages: a partition of it, the same however the work is divided, and stable under change."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.bulk.bin_builder import BinBuilder
from mailboat.bulk.build_records import BuildProblem, Recipe, filter_of
from mailboat.bulk.cut_summary import summary_of
from mailboat.bulk.cutter import (
    MAX_NODES,
    Bin,
    BinKind,
    Budget,
    Cut,
    Cutter,
    Loose,
    SkeletonNode,
    Unit,
    finish_cut,
    revision_of,
)
from mailboat.bulk.source_branches import Branch, cut_branch, cut_whole, outermost, plan_branches
from mailboat.config.topic_settings import TopicSettings
from mailboat.content.keys import key_of
from mailboat.content.listed_nodes import ListedNode, UnlistedEntry
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import PathRefusedError, SourceMissingError, UsageError
from mailboat.model.identifiers import PackageId
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.nodes import Binary, Node, Property, PropertyType
from mailboat.model.paths import ROOT, NodePath, child_of, is_within, parent_of
from mailboat.model.requests import MAX_PATHS, MAX_PATHS_BYTES
from mailboat.packages.tree import TreeCodec
from mailboat.testing.examples import examples
from mailboat.testing.memory_content import MemorySource
from mailboat.wire.package_messages import encode_package
from support.engines import memory_engine, write_site

Tree = Mapping[NodePath, int]
"""Content bytes by path; parents are there."""


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Trees of up to 60 nodes, some deep and some wide, below `/`."""
    sizes: dict[NodePath, int] = {}
    places = [ROOT]
    for number in range(draw(st.integers(1, 60))):
        parent = draw(st.sampled_from(places[-8:]))
        path = child_of(parent, f"{draw(st.sampled_from('ab!-é'))}{number}")
        sizes[path] = draw(st.sampled_from([0, 1, 10, 50, 90, 500]))
        places.append(path)
    return sizes


budgets = st.builds(Budget, st.sampled_from([1, 60, 200, 1_000]), st.sampled_from([1, 3, 10, 100]))


def listed(tree: Tree, path: NodePath, *, is_deep: bool = True) -> Iterator[ListedNode | UnlistedEntry]:
    """The listing of a subtree, or of one node."""
    for item in sorted(tree, key=key_of):
        if item == path or (is_deep and is_within(item, path)):
            yield ListedNode(item, tree[item], hashlib.sha256(f"{item} {tree[item]}".encode()).digest())


def branches(tree: Tree, chance: random.Random) -> Iterator[Branch]:
    """A tree divided at random: some nodes alone, the subtrees beside them whole."""
    alone = {path for path in tree if chance.random() < 0.4}
    alone = {path for path in alone if all(above in alone for above in above_of(path))}
    for path in tree:
        if path in alone:
            yield Branch(path, is_deep=False)
        elif parent_of(path) in (alone | {ROOT}):
            yield Branch(path, is_deep=True)


def above_of(path: NodePath) -> Iterator[NodePath]:
    while (path := parent_of(path)) != ROOT:
        yield path


def cut(tree: Tree, budget: Budget, divided: Sequence[Branch] | None = None) -> list[Bin]:
    """The bins of a tree, in order; cut as a whole or in branches."""
    bins, loose = list[Bin](), list[Loose]()
    for path, is_deep in divided if divided is not None else [Branch(ROOT, is_deep=True)]:
        items = listed(tree, path, is_deep=is_deep)
        found: Iterator[Cut] = Cutter(budget).cut(items) if is_deep else items
        for item in found:
            if isinstance(item, Bin):
                bins.append(item)
            else:
                loose.append(item)
    bins += [finish_bin_ for finish_bin_ in finish_cut(loose, budget) if isinstance(finish_bin_, Bin)]
    return sorted(bins, key=lambda one: one.order)


@settings(deadline=None, max_examples=examples(150))
@given(trees(), budgets)
def test_the_bins_are_a_partition_of_the_tree(tree: Tree, budget: Budget) -> None:
    owned = Counter(path for bin_ in cut(tree, budget) for path in tree if filter_of(bin_).covers(path))
    assert owned == dict.fromkeys(tree, 1)


@settings(deadline=None, max_examples=examples(150))
@given(trees(), budgets, st.integers(0, 2**32))
def test_the_bins_are_the_same_however_the_tree_is_divided_among_tasks(tree: Tree, budget: Budget, seed: int) -> None:
    chance = random.Random(seed)
    divided = list(branches(tree, chance))
    chance.shuffle(divided)
    assert cut(tree, budget, divided) == cut(tree, budget)


@settings(deadline=None, max_examples=examples(100))
@given(trees(), budgets)
def test_a_bin_keeps_the_budget_unless_one_node_is_beyond_it(tree: Tree, budget: Budget) -> None:
    for bin_ in cut(tree, budget):
        nodes = [path for path in tree if filter_of(bin_).covers(path)]
        assert bin_.nodes == len(nodes)
        assert bin_.content_bytes == sum(tree[path] for path in nodes)
        is_kept = bin_.nodes <= budget.max_nodes and bin_.content_bytes <= budget.max_content_bytes
        assert is_kept or len(nodes) == 1
        assert filter_of(bin_).is_simple


@settings(deadline=None, max_examples=examples(100))
@given(trees(), budgets)
def test_the_skeleton_comes_first_and_each_kind_in_walk_order(tree: Tree, budget: Budget) -> None:
    bins = cut(tree, budget)
    kinds = [bin_.kind for bin_ in bins]
    assert kinds == sorted(kinds, key=list(BinKind).index)
    skeleton = [root for bin_ in bins if bin_.kind is BinKind.SKELETON for root in bin_.roots]
    assert skeleton == sorted(skeleton, key=key_of)
    firsts = [key_of(bin_.roots[0]) for bin_ in bins if bin_.kind is BinKind.CONTENT]
    assert firsts == sorted(firsts)


@settings(deadline=None, max_examples=examples(100))
@given(trees(), budgets, st.data())
def test_the_revision_changes_with_any_node(tree: Tree, budget: Budget, data: st.DataObject) -> None:
    def revision(some: Tree) -> bytes:
        return revision_of((bin_.order, bin_.signature) for bin_ in cut(some, budget))

    changed = data.draw(st.sampled_from(sorted(tree)))
    assert revision(tree) == revision(dict(reversed(tree.items())))
    assert revision(tree) != revision({**tree, changed: tree[changed] + 1})


@settings(deadline=None, max_examples=examples(60))
@given(trees(), budgets, st.data())
def test_nothing_above_what_can_not_be_listed_is_owned_with_its_subtree(
    tree: Tree, budget: Budget, data: st.DataObject
) -> None:
    hidden = data.draw(st.sampled_from(sorted(tree)))
    rest = {path: size for path, size in tree.items() if not is_within(path, hidden)}
    items: list[Loose] = [*listed(rest, ROOT), UnlistedEntry(hidden, PathRefusedError("a socket"))]
    found = list(finish_cut(items, budget))
    assert [item.path for item in found if isinstance(item, UnlistedEntry)] == [hidden]
    bins = [item for item in found if isinstance(item, Bin)]
    assert Counter(path for bin_ in bins for path in rest if filter_of(bin_).covers(path)) == dict.fromkeys(rest, 1)
    assert not any(filter_of(bin_).covers(hidden) for bin_ in bins)


def test_a_small_change_of_a_large_tree_changes_few_packages() -> None:
    chance = random.Random(7)
    tree = {NodePath(f"/{name}"): 0 for name in "abcdefgh"}
    for number in range(8_000):
        folder = "abcdefgh"[min(int(chance.expovariate(0.5)), 7)]
        tree[NodePath(f"/{folder}/page-{number}")] = int(chance.lognormvariate(9, 1))
    budget = Budget(1_000_000, 200)
    before = {bin_.signature: bin_ for bin_ in cut(tree, budget)}
    changed = dict(tree)
    for number in range(8_000, 8_008):
        changed[NodePath(f"/a/page-{number}")] = 8_000
    del changed[next(path for path in tree if path.startswith("/b/"))]
    after = [bin_ for bin_ in cut(changed, budget) if bin_.signature not in before]
    assert 0 < len(after) <= 2 * 9


def test_a_folder_with_very_many_children_is_cut_into_packages_whose_paths_a_message_can_name() -> None:
    tree = {NodePath("/hot"): 0} | {NodePath(f"/hot/{number:06}"): 1 for number in range(20_000)}
    bins = cut(tree, Budget(10**9, 10_000))
    content = [bin_ for bin_ in bins if bin_.kind is BinKind.CONTENT]
    assert all(len(item.roots) <= MAX_PATHS for item in content)
    assert sum(len(item.roots) for item in content) == 20_000
    assert 20_000 / MAX_PATHS <= len(content) <= 4 * 20_000 / MAX_PATHS


def test_long_paths_are_bounded_by_their_bytes() -> None:
    name = "x" * 240
    folder = NodePath("/" + "/".join([name] * 10))
    tree = dict.fromkeys([*above_of(folder), folder], 0)
    tree |= {NodePath(f"{folder}/{number:03}"): 1 for number in range(200)}
    for bin_ in cut(tree, Budget(10**9, 150)):
        assert sum(map(len, bin_.roots)) <= MAX_PATHS_BYTES


def test_a_package_has_so_many_nodes_only_that_its_message_can_name_a_binary_of_each() -> None:
    tree = {NodePath("/hot"): 0} | {NodePath(f"/hot/{number:06}"): 30 for number in range(27_500)}
    tree |= {NodePath("/warm"): 0} | {NodePath(f"/warm/{number:06}"): 30 for number in range(MAX_NODES - 1)}
    bins = cut(tree, Budget(10**9, 100_000))
    assert max(bin_.nodes for bin_ in bins) == MAX_NODES
    assert sum(bin_.nodes for bin_ in bins) == len(tree)
    largest = tuple(
        NodePath("/" + f"{number:03}".ljust(MAX_PATHS_BYTES // MAX_PATHS - 1, "x")) for number in range(MAX_PATHS)
    )
    message = PackageMessage(
        "sling",
        PackageId("x" * 64),
        Action.ADD,
        "filevault",
        "publisher",
        paths=largest,
        deep_paths=largest,
        payload=bytes(Recipe("", ()).inline_package_bytes),
        binaries=tuple(Binary(digest=bytes(32), length_bytes=2**40) for _ in range(MAX_NODES)),
    )
    assert len(encode_package(message)) < TopicSettings().max_message_bytes


def test_a_package_with_more_binaries_than_a_message_can_name_is_told_before_any_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailboat.bulk.bin_builder.MAX_NODES", 2)
    source = write_site(tmp_path / "site", {f"films/{number}": bytes([number]) * 99 for number in range(3)})
    recipe = Recipe(str(tmp_path / "site"), (ROOT,), inline_binary_bytes=16)
    with memory_engine(tmp_path / "home") as engine:
        builder = BinBuilder(recipe, source, engine.blobs, {"tree": TreeCodec()})
        (one,) = (item for item in cut_whole(source, recipe.roots, recipe.budget) if isinstance(item, Bin))
        result = builder.build(one)
    assert isinstance(result, BuildProblem)
    assert (result.path, result.name) == ("/films", "LimitExceeded")
    assert "3 binaries are stored outside of the package" in result.message


def test_a_path_of_a_hundred_names_with_a_large_binary_at_its_end_is_a_chain_and_one_package() -> None:
    path, tree = ROOT, dict[NodePath, int]()
    for depth in range(100):
        path = child_of(path, f"d{depth}")
        tree[path] = 0
    tree[path] = 2 * 1024**3
    bins = cut(tree, Budget())
    assert [bin_.roots for bin_ in bins if bin_.kind is BinKind.CONTENT] == [(path,)]
    assert sum(bin_.nodes for bin_ in bins if bin_.kind is BinKind.SKELETON) == 99


def test_the_root_is_never_owned_with_all_that_is_below_it() -> None:
    tree = {ROOT: 1, NodePath("/a"): 1}
    assert [(bin_.kind, bin_.roots) for bin_ in cut(tree, Budget())] == [
        (BinKind.SKELETON, (ROOT,)),
        (BinKind.CONTENT, (NodePath("/a"),)),
    ]


def test_a_folder_is_cut_the_same_whether_its_source_lists_branches_or_all(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"{a}/{b}/{c}.txt": "x" * 99 for a in "abc" for b in "de" for c in range(9)}
    source = write_site(tmp_path, files)
    budget = Budget(500, 5)
    whole = sorted(cut_whole(source, (ROOT,), budget), key=repr)
    for wanted in (2, 5, 30, 1_000):
        loose, found = list[Loose](), list[Bin | UnlistedEntry]()
        divided = plan_branches(source, (ROOT,), wanted)
        assert len(divided) >= min(wanted, 12)
        for branch in divided:
            for item in cut_branch(source, branch, budget):
                if isinstance(item, Bin):
                    found.append(item)
                else:
                    loose.append(item)
        assert sorted([*found, *finish_cut(loose, budget)], key=repr) == whole


def test_what_can_not_be_read_is_told_with_its_path_and_the_rest_is_cut(tmp_path: Path) -> None:
    source = write_site(tmp_path, {"a/page.html": "page", "b.html": "b"})
    (tmp_path / "a/outside").symlink_to("/")
    (tmp_path / "a/loop").symlink_to(tmp_path / "a")
    found = list(cut_whole(source, (ROOT,), Budget()))
    told = {item.path: item.error.name for item in found if isinstance(item, UnlistedEntry)}
    assert told == {"/a/outside": "PathRefused", "/a/loop": "PathRefused"}
    owned = {(item.kind, root) for item in found if isinstance(item, Bin) for root in item.roots}
    assert owned == {(BinKind.SKELETON, "/a"), (BinKind.CONTENT, "/a/page.html"), (BinKind.CONTENT, "/b.html")}


def test_a_plan_sums_up_and_shows_the_largest_packages(tmp_path: Path) -> None:
    source = write_site(tmp_path, {"large.bin": b"x" * 900, "a/1": "1", "a/2": "22"})
    summary = summary_of(cut_whole(source, (ROOT,), Budget(100, 10)))
    assert (summary.packages, summary.skeleton, summary.nodes, summary.content_bytes) == (2, 0, 4, 903)
    assert (summary.largest_bytes, [item.roots for item in summary.largest]) == (900, [("/large.bin",), ("/a",)])


def test_roots_below_others_are_dropped_and_none_is_an_error() -> None:
    roots = [NodePath(item) for item in ("/b/c", "/a!x", "/b", "/a", "/a/b")]
    assert outermost(roots) == ("/a", "/a!x", "/b")
    with pytest.raises(UsageError, match="at least one path"):
        outermost([])


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    source = write_site(tmp_path, {"a": "a"})
    with pytest.raises(SourceMissingError, match="nothing at /b"):
        plan_branches(source, (NodePath("/b"),), 1)


def test_a_folder_with_very_many_children_is_one_branch(tmp_path: Path) -> None:
    source = write_site(tmp_path, {f"hot/{number}": "" for number in range(4_100)} | {"cold/x": ""})
    assert {branch.path for branch in plan_branches(source, (ROOT,), 50)} <= {"/", "/hot", "/cold", "/cold/x"}


def test_units_and_skeletons_of_branches_are_taken_as_they_are() -> None:
    signature = b"s" * 32
    above = ListedNode(NodePath("/a"), 0, signature)
    unit = Unit(NodePath("/a/u"), 10, 2, signature)
    whole = list(Cutter(Budget(100, 10)).cut([above, unit]))
    assert [type(item) for item in whole] == [Unit]
    split = list(Cutter(Budget(100, 10)).cut([above, unit, SkeletonNode(NodePath("/a/z"), 0, signature)]))
    assert [type(item) for item in split] == [SkeletonNode, SkeletonNode, Bin]


def test_a_folder_lists_what_it_holds_without_reading_it(tmp_path: Path) -> None:
    source: FolderSource = write_site(tmp_path, {"a/page.html": "page"})
    before = list(source.listed(ROOT))
    (tmp_path / "a/page.html").write_text("other")
    after = list(source.listed(ROOT))
    assert [item.path for item in before] == [item.path for item in after] == ["/a", "/a/page.html"]
    assert before[0] == after[0]
    assert before[1] != after[1]
    assert list(source.listed(NodePath("/none"))) == []


def test_a_namespace_that_changed_makes_other_bins_of_a_folder(tmp_path: Path) -> None:
    write_site(tmp_path, {"a.html": "a", ".node.namespaces.json": '{"acme": "urn:one"}'})
    one = list(cut_whole(FolderSource(tmp_path), [ROOT], Budget(1000, 100)))
    assert list(cut_whole(FolderSource(tmp_path), [ROOT], Budget(1000, 100))) == one
    (tmp_path / ".node.namespaces.json").write_text('{"acme": "urn:two"}')
    assert not set(one) & set(cut_whole(FolderSource(tmp_path), [ROOT], Budget(1000, 100)))


def test_a_namespace_that_changed_makes_other_bins_of_the_nodes_that_use_it() -> None:
    def bins(uri: str) -> list[Bin | UnlistedEntry]:
        used = Property("acme:title", ("x",), PropertyType.STRING)
        nodes = [Node(NodePath("/a"), "nt:unstructured", properties=(used,)), Node(NodePath("/b"), "nt:unstructured")]
        return list(
            cut_whole(MemorySource(nodes, namespaces={"acme": (uri,)}), [NodePath("/a"), NodePath("/b")], Budget(1, 1))
        )

    before, after = (
        {bin_.roots: bin_.signature for bin_ in bins(uri) if isinstance(bin_, Bin)} for uri in ("u:1", "u:2")
    )
    assert before.keys() == after.keys()
    assert {roots for roots in before if before[roots] != after[roots]} == {("/a",)}
