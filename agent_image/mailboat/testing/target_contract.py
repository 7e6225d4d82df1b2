"""What every target must do, as tests. Needs pytest and hypothesis.

A target's test module derives a class from `TargetContract` that says how to open the target within a folder:

    class TestFilesTarget(TargetContract):
        def open_in(self, folder):
            return open_files_target(folder / "target")
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailboat.content.digest import source_digest, tree_digest
from mailboat.content.port import Attempt, GivenUp, Target
from mailboat.errors import (
    BlobCorruptError,
    BlobMissingError,
    PackageCorruptError,
    PathRefusedError,
    TargetBusyError,
    TargetOwnedError,
    UsageError,
)
from mailboat.model.changes import ChangeCount, TreeChange
from mailboat.model.filters import FilterRule, FilterSet, ImportMode, WorkspaceFilter, filter_for
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import FailureCause, PackageStatus, StatusMessage
from mailboat.model.nodes import Binary, Node, NodeRecord, Property, PropertyType, file_node
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity, Position
from mailboat.testing.examples import examples
from mailboat.testing.target_model import STEPS, ModelTree, Step, as_change, import_batch
from mailboat.testing.trees import (
    TreeShape,
    a_file,
    a_folder,
    a_full_node,
    a_page,
    in_walk_order,
    large_binary,
    records,
    sample_tree,
    trees,
)

LOG = LogIdentity("cluster", "topic")
ROOT = NodePath("/")
CONTENT = NodePath("/content")
A_CAUSE = FailureCause("StorageFull", "no space left", "/content/a", "Traceback …")


def at(next_offset: int) -> Position:
    """A position in the one log of these tests."""
    return Position(LOG, Offset(next_offset))


def a_status(offset: int, cause: FailureCause | None = None) -> StatusMessage:
    """A confirmation."""
    return StatusMessage(
        SlingId("0" * 36), AgentName("edge"), AgentName("author"), Offset(offset), PackageStatus.IMPORTED, cause=cause
    )


def an_entry(offset: int) -> GivenUp:
    """An entry of the error queue."""
    return GivenUp(Offset(offset), PackageId(f"p{offset}"), AgentName("author"), (CONTENT,), A_CAUSE, 3, 1_700_000, 99)


def deep(*roots: str) -> WorkspaceFilter:
    """The filter of a request for whole subtrees."""
    return filter_for([], [NodePath(root) for root in roots])


def shallow(*roots: str) -> WorkspaceFilter:
    """The filter of a request for single nodes."""
    return filter_for([NodePath(root) for root in roots], [])


def publish(target: Target, tree: Sequence[Node], covered: WorkspaceFilter, offset: int = 0) -> ChangeCount:
    """Import one package in a batch of its own."""
    with target.batch() as batch:
        return batch.apply(as_change(tree, covered), Offset(offset)) + batch.commit(at(offset + 1))


def content_of(target: Target, path: NodePath = ROOT) -> list[Node]:
    """All that is there, as its source walks it."""
    source = target.source()
    try:
        return list(source.walk(path))
    finally:
        source.close()


def names_in(target: Target) -> list[str]:
    """The paths of all that is there."""
    return [node.path for node in content_of(target)]


class TargetContract:
    """The suite. See the module."""

    def open_in(self, folder: Path) -> Target:
        """Open the target under test within a folder, made if absent; each target's class says how."""
        raise NotImplementedError

    @pytest.fixture
    def target(self, tmp_path: Path) -> Iterator[Target]:
        """An open, empty target."""
        target = self.open_in(tmp_path)
        yield target
        target.close()

    # --------------------------------------------------------------------------------------------------- putting

    def test_a_new_target_has_no_content_no_position_and_no_owner(self, target: Target) -> None:
        assert content_of(target) == []
        assert target.ledger.position() is None
        assert target.ledger.subscriber() is None
        assert target.ledger.attempt() is None
        assert not target.ledger.pending_statuses(10)
        assert not target.ledger.given_up()

    def test_a_tree_with_everything_in_it_comes_back_equal_and_in_order(self, target: Target) -> None:
        count = publish(target, sample_tree(), deep("/content"))
        assert content_of(target) == sample_tree()
        assert content_of(target, CONTENT) == sample_tree()
        assert count.put == len(sample_tree())
        assert count.removed == 0
        assert count.content_bytes > 2 * 64 * 1024

    def test_a_package_may_come_as_a_stream_longer_than_is_held_at_once(self, target: Target) -> None:
        tree = [a_folder("/a"), *(a_file(f"/a/{number:04}") for number in range(1200))]
        with target.batch() as batch:
            batch.apply(as_change([a_file("/a/old")], deep("/a"), is_stream=True), Offset(0))
            count = batch.apply(as_change(tree, deep("/a"), is_stream=True), Offset(1))
            batch.commit(at(2))
        assert (count.put, count.removed) == (1201, 1)
        assert content_of(target) == tree

    def test_nodes_beside_the_covered_root_are_ancestors_or_nothing(self, target: Target) -> None:
        publish(target, [a_folder("/a"), a_file("/a/x", b"old")], deep("/"))
        publish(target, [a_folder("/a"), a_file("/a/x", b"new"), a_file("/a/x!"), a_file("/a/y")], deep("/a/y"), 1)
        assert content_of(target) == [a_folder("/a"), a_file("/a/x", b"old"), a_file("/a/x!"), a_file("/a/y")]

    def test_the_digest_is_that_of_the_source(self, target: Target) -> None:
        publish(target, sample_tree(), deep("/content"))
        source = target.source()
        assert source_digest(source) == tree_digest(sample_tree()) == tree_digest(source.walk(ROOT))

    def test_any_tree_comes_back_equal(self) -> None:
        @settings(max_examples=examples(20))
        @given(tree=trees(TreeShape(max_nodes=15, may_files_have_children=True)))
        def check(tree: list[Node]) -> None:
            with tempfile.TemporaryDirectory() as folder, closing(self.open_in(Path(folder))) as target:
                publish(target, tree, deep("/content"))
                assert content_of(target) == tree

        check()

    @pytest.mark.parametrize("path_bytes", [4096, 4060, 3990, 3900, 3000])
    def test_a_long_path_is_imported_or_refused_for_the_package_that_brings_it(
        self, target: Target, path_bytes: int
    ) -> None:
        path = "".join(f"/{name:02}{'n' * 238}" for name in range(17))[: path_bytes - 1] + "n"
        long = [a_page(path, None, title="long")]
        kept = [a_file("/innocent")]
        try:
            with target.batch() as batch:
                batch.apply(as_change(long, deep(path)), Offset(0))
                batch.commit(at(1))
        except PathRefusedError:
            assert content_of(target) == []
        else:
            assert content_of(target)[-1:] == long
        for offset in (1, 2):
            publish(target, kept, deep("/innocent"), offset)
        assert content_of(target, NodePath("/innocent")) == kept
        publish(target, [], deep(path[:241]), 3)
        assert content_of(target) == kept

    def test_nodes_can_be_read_one_by_one(self, target: Target) -> None:
        publish(target, sample_tree(), deep("/content"))
        source = target.source()
        for node in sample_tree():
            assert source.node(node.path) == node
            assert list(source.walk(node.path, is_deep=False)) == [node]
        assert source.node(NodePath("/content/absent")) is None
        assert source.node(NodePath("/content/index.html/absent")) is None
        assert list(source.walk(NodePath("/absent"))) == []

    def test_a_large_binary_can_be_read_as_a_stream(self, target: Target) -> None:
        large = large_binary(b"stream", 3_000_001)
        publish(target, [file_node(NodePath("/film"), large)], deep("/film"))
        node = target.source().node(NodePath("/film"))
        assert node is not None
        assert node.data == large
        with node.data.open() as stream:
            assert stream.read() == large.open().read()

    def test_the_root_itself_can_be_a_node(self, target: Target) -> None:
        tree = [a_page("/", ("b", "a"), title="root"), a_file("/b"), a_file("/a")]
        publish(target, tree, deep("/"))
        assert content_of(target) == tree
        publish(target, [a_folder("/"), a_file("/c")], deep("/"))
        assert content_of(target) == [a_folder("/"), a_file("/c")]
        publish(target, [a_file("/c")], deep("/"))
        assert content_of(target) == [a_file("/c")]

    def test_names_that_a_target_could_use_itself_are_content_like_others(self, target: Target) -> None:
        names = [".node.json", ".mailboat", ".git", ".node.name.a", f".node.{'0' * 64}.bin", "lost+found", "current"]
        tree = in_walk_order(
            [a_folder("/x"), *(a_file(f"/x/{name}") for name in names), *(a_file(f"/{n}") for n in names)]
        )
        publish(target, tree, deep("/"))
        assert content_of(target) == tree
        publish(target, [], deep("/"))
        assert content_of(target) == []

    # ------------------------------------------------------------------------------------------------- replacing

    def test_what_is_covered_and_not_carried_is_removed(self, target: Target) -> None:
        publish(
            target, [a_folder("/a"), a_file("/a/x"), a_folder("/a/y"), a_file("/a/y/z"), a_file("/b")], deep("/a", "/b")
        )
        count = publish(target, [a_folder("/a"), a_file("/a/new")], deep("/a"), 1)
        assert names_in(target) == ["/a", "/a/new", "/b"]
        assert count == ChangeCount(put=2, removed=3, content_bytes=count.content_bytes)

    def test_siblings_whose_names_begin_alike_are_left_alone(self, target: Target) -> None:
        tree = [a_file("/a"), a_file("/a b"), a_file("/a!"), a_file("/a-b"), a_file("/a.b"), a_file("/ab")]
        publish(target, tree, deep("/"))
        publish(target, [], deep("/a"), 1)
        assert names_in(target) == [node.path for node in tree if node.path != "/a"]

    def test_a_shallow_package_touches_its_node_only(self, target: Target) -> None:
        publish(target, [a_page("/a", None, title="old"), a_file("/a/x")], deep("/a"))
        publish(target, [a_page("/a", None, title="new")], shallow("/a"), 1)
        assert content_of(target) == [a_page("/a", None, title="new"), a_file("/a/x")]

    def test_a_node_that_others_need_stays_when_it_alone_is_removed(self, target: Target) -> None:
        publish(target, [a_page("/a", None), a_file("/a/x"), a_file("/b")], deep("/a", "/b"))
        count = publish(target, [], shallow("/a", "/b"), 1)
        assert names_in(target) == ["/a", "/a/x"]
        assert count.removed == 1

    def test_a_covered_node_that_the_package_leaves_out_stays_above_what_it_carries(self, target: Target) -> None:
        publish(target, [a_page("/a", None), a_page("/a/b", None, t="old"), a_file("/a/b/x")], deep("/a"))
        publish(target, [a_file("/a/b/y")], deep("/a"), 1)
        assert content_of(target) == [a_page("/a", None), a_page("/a/b", None, t="old"), a_file("/a/b/y")]

    def test_files_become_folders_and_pages_and_back(self, target: Target) -> None:
        forms = [
            [a_file("/x")],
            [a_folder("/x"), a_file("/x/y")],
            [a_full_node("/x"), a_file("/x/a")],
            [a_file("/x", b"again")],
            [a_page("/x", None, t="1")],
            [a_folder("/x")],
            [file_node(NodePath("/x"), large_binary())],
            [a_full_node("/x")],
        ]
        for offset, form in enumerate(forms + forms[::-1]):
            publish(target, form, deep("/x"), offset)
            assert content_of(target) == form

    def test_a_file_can_get_children_and_lose_them(self, target: Target) -> None:
        for data in (Binary(b"small"), large_binary()):
            publish(target, [file_node(NodePath("/f"), data)], deep("/"), 0)
            publish(target, [a_page("/f/meta", None)], deep("/f/meta"), 1)
            assert content_of(target) == [file_node(NodePath("/f"), data), a_page("/f/meta", None)]
            publish(target, [], deep("/f/meta"), 2)
            assert content_of(target) == [file_node(NodePath("/f"), data)]
            publish(target, [a_file("/f", b"new")], shallow("/f"), 3)
            assert content_of(target) == [a_file("/f", b"new")]

    def test_a_package_imported_twice_changes_nothing(self, target: Target) -> None:
        publish(target, sample_tree(), deep("/content"))
        publish(target, sample_tree(), deep("/content"))
        assert content_of(target) == sample_tree()

    def test_a_package_of_another_log_with_the_same_offset_removes_what_it_should(self, target: Target) -> None:
        publish(target, [a_file("/a/x")], deep("/a"), 5)
        target.ledger.reset_position(Position(LogIdentity("other", "topic"), Offset(5)))
        publish(target, [a_file("/a/y")], deep("/a"), 5)
        assert names_in(target) == ["/a", "/a/y"]

    def test_an_empty_package_for_the_root_empties_the_target(self, target: Target) -> None:
        publish(target, sample_tree(), deep("/content"))
        assert publish(target, [], deep("/"), 1).removed == len(sample_tree())
        assert content_of(target) == []

    # --------------------------------------------------------------------------------------- ancestors, removing

    def test_missing_ancestors_are_made_as_folders(self, target: Target) -> None:
        publish(target, [a_file("/a/b/c/d")], deep("/a/b/c/d"))
        assert content_of(target) == [a_folder("/a"), a_folder("/a/b"), a_folder("/a/b/c"), a_file("/a/b/c/d")]

    def test_ancestors_that_a_package_brings_are_made_where_missing_and_never_changed(self, target: Target) -> None:
        publish(target, [a_page("/a", None, title="kept")], deep("/a"))
        above = [a_page("/a", None, title="ignored"), a_page("/a/b", None, title="made")]
        publish(target, [*above, a_file("/a/b/c")], deep("/a/b/c"), 1)
        assert content_of(target) == [
            a_page("/a", None, title="kept"),
            a_page("/a/b", None, title="made"),
            a_file("/a/b/c"),
        ]

    def test_ancestors_are_made_again_after_they_were_removed(self, target: Target) -> None:
        publish(target, [a_file("/a/b/c")], deep("/a/b/c"))
        publish(target, [], deep("/a"), 1)
        publish(target, [a_file("/a/b/d")], deep("/a/b/d"), 2)
        assert names_in(target) == ["/a", "/a/b", "/a/b/d"]

    def test_removing_takes_the_whole_subtree(self, target: Target) -> None:
        publish(target, sample_tree(), deep("/content"))
        with target.batch() as batch:
            count = batch.remove([NodePath("/content/node"), NodePath("/absent")], Offset(1))
            batch.commit(at(2))
        assert count.removed == 4
        assert not any(name.startswith("/content/node") for name in names_in(target))

    def test_a_folder_made_for_others_is_replaced_like_any_node(self, target: Target) -> None:
        publish(target, [a_file("/a/b/c/d")], deep("/a/b/c/d"))
        above = [a_folder("/a"), a_folder("/a/b")]
        for offset, file in enumerate([file_node(NodePath("/a/b/c"), large_binary()), a_file("/a/b/c", b"small")], 1):
            publish(target, [*above, file], deep("/a/b/c"), offset)
            assert content_of(target) == [*above, file]

    def test_packages_of_one_batch_see_each_other(self, target: Target) -> None:
        with target.batch() as batch:
            batch.apply(as_change([a_page("/a", None, t="1"), a_file("/a/x")], deep("/a")), Offset(0))
            batch.apply(as_change([a_file("/a/x", b"2")], deep("/a/x")), Offset(1))
            batch.apply(as_change([a_file("/a/y")], deep("/a/y")), Offset(2))
            batch.remove([NodePath("/a/y")], Offset(3))
            batch.apply(as_change([], shallow("/absent")), Offset(4))
            batch.commit(at(5))
        assert content_of(target) == [a_page("/a", None, t="1"), a_file("/a/x", b"2")]

    def test_packages_of_one_batch_come_one_after_the_other_wherever_they_meet(self, target: Target) -> None:
        folder = [a_folder("/a"), a_folder("/a/b")]
        model, offset = ModelTree(), 0
        packages: list[tuple[list[Node], WorkspaceFilter]] = [
            ([*folder, a_file("/a/b/x", b"1")], deep("/a/b/x")),
            ([*folder, a_folder("/a/b/y"), a_file("/a/b/y/n", b"2")], deep("/a/b/y")),
            ([*folder, a_folder("/a/b/y"), a_file("/a/b/y/n", b"3")], deep("/a/b/y/n")),
            ([*folder, a_folder("/a/b/y"), a_file("/a/b/y/z")], deep("/a/b")),
            ([a_folder("/a"), a_page("/a/b", None, t="1")], shallow("/a/b")),
            ([*folder, a_folder("/a/b/y")], deep("/a/b/y")),
        ]
        for steps in permutations(packages, 3):
            removed = expected = 0
            with target.batch() as batch:
                for step in steps:
                    before = set(model.nodes)
                    model.apply(*step)
                    expected += len(before - set(model.nodes))
                    removed += batch.apply(as_change(*step), Offset(offset)).removed
                offset += 1
                removed += batch.commit(at(offset)).removed
            assert content_of(target) == model.walk()
            assert removed == expected

    def test_packages_of_a_batch_that_is_given_up_leave_nothing_in_the_next(self, target: Target) -> None:
        folder = [a_folder("/a"), a_folder("/a/b")]
        publish(target, [*folder, a_file("/a/b/x")], deep("/a/b/x"))
        with target.batch() as batch:
            for name in ("y", "z"):
                batch.apply(as_change([*folder, a_file(f"/a/b/{name}")], deep(f"/a/b/{name}")), Offset(1))
        publish(target, [*folder, a_file("/a/b/last")], deep("/a/b/last"), 1)
        assert names_in(target) == ["/a", "/a/b", "/a/b/last", "/a/b/x"]

    # ------------------------------------------------------------------------------------------- rules and modes

    def test_what_rules_exclude_is_never_changed(self, target: Target) -> None:
        publish(target, [a_folder("/a"), a_file("/a/x"), a_page("/a/keep", None), a_file("/a/keep/z")], deep("/a"))
        excluding = FilterRule(is_include=False, pattern=re.compile("/a/keep/z"))
        covered = WorkspaceFilter((FilterSet(NodePath("/a"), rules=(excluding,)),))
        count = publish(target, [a_folder("/a"), a_file("/a/new")], covered, 1)
        assert names_in(target) == ["/a", "/a/keep", "/a/keep/z", "/a/new"]
        assert count.removed == 1

    def test_merging_adds_and_changes_nothing(self, target: Target) -> None:
        publish(target, [a_page("/a", None, one="1"), a_file("/a/x", b"old")], deep("/a"))
        merging = WorkspaceFilter((FilterSet(NodePath("/a"), mode=ImportMode.MERGE_PROPERTIES),))
        publish(target, [a_page("/a", None, one="2", two="2"), a_file("/a/x", b"new"), a_file("/a/y")], merging, 1)
        assert content_of(target) == [a_page("/a", None, one="1", two="2"), a_file("/a/x", b"old"), a_file("/a/y")]

    def test_merge_leaves_existing_documents_alone(self, target: Target) -> None:
        publish(target, [a_page("/a", None, one="1"), a_file("/a/x", b"old")], deep("/a"))
        merging = WorkspaceFilter((FilterSet(NodePath("/a"), mode=ImportMode.MERGE),))
        new = [a_page("/a/y", None), replace(a_page("/a/y/in", None), is_inner=True), a_page("/a/y/own", None)]
        inner = replace(a_page("/a/in", None), is_inner=True)
        publish(target, [a_page("/a", None, one="2", two="2"), inner, a_file("/a/x", b"new"), *new], merging, 1)
        assert content_of(target) == [a_page("/a", None, one="1"), a_file("/a/x", b"old"), *new]

    def test_updating_adds_and_overwrites_and_removes_nothing(self, target: Target) -> None:
        publish(target, [a_page("/a", None, one="1", kept="1"), a_file("/a/x", b"old")], deep("/a"))
        updating = WorkspaceFilter((FilterSet(NodePath("/a"), mode=ImportMode.UPDATE_PROPERTIES),))
        publish(target, [a_page("/a", None, one="2"), a_file("/a/y")], updating, 1)
        assert content_of(target) == [a_page("/a", None, kept="1", one="2"), a_file("/a/x", b"old"), a_file("/a/y")]

    def test_large_binaries_survive_a_merge(self, target: Target) -> None:
        held = Property("film", (large_binary(b"film"),), PropertyType.BINARY)
        publish(target, [Node(NodePath("/a"), "nt:unstructured", properties=(held,))], deep("/a"))
        updating = WorkspaceFilter((FilterSet(NodePath("/a"), mode=ImportMode.UPDATE_PROPERTIES),))
        publish(target, [a_page("/a", None, title="t")], updating, 1)
        (node,) = content_of(target)
        assert [prop.name for prop in node.properties] == ["film", "title"]
        (film,) = node.properties[0].values
        assert isinstance(film, Binary)
        with film.open() as stream:
            assert stream.read() == large_binary(b"film").open().read()

    def test_any_sequence_of_packages_leaves_the_tree_of_the_model(self) -> None:
        @settings(max_examples=examples(30))
        @given(batches=st.lists(st.tuples(st.booleans(), st.lists(STEPS, max_size=4)), max_size=4))
        def check(batches: list[tuple[bool, list[Step]]]) -> None:
            model = ModelTree()
            with tempfile.TemporaryDirectory() as folder:
                with closing(self.open_in(Path(folder))) as target:
                    for offset, (is_committed, steps) in enumerate(batches):
                        model = import_batch(target, model, at(offset), steps if is_committed else [*steps, None])
                        assert content_of(target) == model.walk()
                with closing(self.open_in(Path(folder))) as target:
                    assert content_of(target) == model.walk()

        check()

    # ---------------------------------------------------------------------------------- batches, position, ledger

    def test_content_position_and_confirmations_become_visible_together(self, target: Target) -> None:
        with target.batch() as batch:
            batch.apply(as_change(sample_tree(), deep("/content")), Offset(7))
            batch.add_status(a_status(7))
            batch.give_up(an_entry(6))
            assert content_of(target) == []
            assert target.ledger.position() is None
            assert not target.ledger.pending_statuses(10)
            batch.commit(Position(LOG, Offset(8), 3))
        assert target.ledger.position() == Position(LOG, Offset(8), 3)
        assert [status.message for status in target.ledger.pending_statuses(10)] == [a_status(7)]
        assert target.ledger.given_up() == [an_entry(6)]
        assert content_of(target) == sample_tree()

    def test_a_batch_without_commit_leaves_nothing(self, target: Target) -> None:
        publish(target, sample_tree(), deep("/content"))
        with target.batch() as batch:
            batch.apply(as_change([a_file("/other"), a_file("/content")], deep("/")), Offset(1))
            batch.add_status(a_status(1))
            batch.give_up(an_entry(1))
        assert content_of(target) == sample_tree()
        assert target.ledger.position() == at(1)
        assert not target.ledger.pending_statuses(10)
        assert not target.ledger.given_up()

    def test_a_batch_left_by_an_error_leaves_nothing(self, target: Target) -> None:
        def broken() -> Iterator[NodeRecord]:
            yield from records([a_file("/a")])
            raise PackageCorruptError("the rest is missing")

        with pytest.raises(PackageCorruptError), target.batch() as batch:
            batch.apply(TreeChange(deep("/a"), broken()), Offset(0))
        assert content_of(target) == []

    def test_a_batch_in_which_something_failed_cannot_be_committed(self, target: Target) -> None:
        unknown = Binary(digest=b"\x07" * 32, length_bytes=70_000)
        with target.batch() as batch:
            batch.apply(as_change([a_file("/a")], deep("/a")), Offset(0))
            with pytest.raises(BlobMissingError):
                batch.apply(as_change([file_node(NodePath("/b"), unknown)], deep("/b")), Offset(1))
            with pytest.raises(UsageError):
                batch.commit(at(2))
        assert content_of(target) == []

    def test_a_binary_with_other_bytes_than_promised_is_refused(self, target: Target) -> None:
        wrong = Binary(digest=b"\x07" * 32, length_bytes=70_000, opener=large_binary().open)
        with pytest.raises(BlobCorruptError), target.batch() as batch:
            batch.apply(as_change([file_node(NodePath("/a"), wrong)], deep("/a")), Offset(0))
        assert content_of(target) == []

    def test_a_position_can_move_without_content(self, target: Target) -> None:
        publish(target, sample_tree(), deep("/content"))
        with target.batch() as batch:
            batch.commit(at(12))
        assert target.ledger.position() == at(12)
        assert content_of(target) == sample_tree()

    def test_everything_is_there_after_reopening(self, tmp_path: Path) -> None:
        target = self.open_in(tmp_path)
        target.ledger.claim(AgentName("edge"))
        publish(target, sample_tree(), deep("/content"), 3)
        target.ledger.store_attempt(Attempt(Offset(4), 2, A_CAUSE, 1234))
        target.close()
        target = self.open_in(tmp_path)
        assert content_of(target) == sample_tree()
        assert target.ledger.position() == at(4)
        assert target.ledger.subscriber() == "edge"
        assert target.ledger.attempt() == Attempt(Offset(4), 2, A_CAUSE, 1234)
        target.close()
        target.close()

    def test_a_committed_batch_forgets_the_failed_attempt_before_it(self, target: Target) -> None:
        target.ledger.store_attempt(Attempt(Offset(0), 2, A_CAUSE, 1234))
        target.ledger.store_attempt(Attempt(Offset(0), 3, A_CAUSE, 5678))
        assert target.ledger.attempt() == Attempt(Offset(0), 3, A_CAUSE, 5678)
        publish(target, [], deep("/a"))
        assert target.ledger.attempt() is None

    def test_an_attempt_can_be_forgotten(self, target: Target) -> None:
        target.ledger.store_attempt(Attempt(Offset(0), 2, A_CAUSE, 1234))
        target.ledger.store_attempt(None)
        assert target.ledger.attempt() is None

    def test_confirmations_wait_in_order_until_they_are_sent(self, target: Target) -> None:
        with target.batch() as batch:
            for offset in range(5):
                batch.add_status(a_status(offset, A_CAUSE))
            batch.commit(at(5))
        first = target.ledger.pending_statuses(3)
        assert [confirmation.message for confirmation in first] == [a_status(offset, A_CAUSE) for offset in range(3)]
        target.ledger.forget_statuses(first[-1].sequence)
        assert [status.message.offset for status in target.ledger.pending_statuses(10)] == [3, 4]

    def test_a_target_belongs_to_the_first_who_claims_it(self, target: Target) -> None:
        target.ledger.claim(AgentName("edge"))
        target.ledger.claim(AgentName("edge"))
        with pytest.raises(TargetOwnedError, match="edge"):
            target.ledger.claim(AgentName("other"))

    def test_a_position_can_be_moved_by_a_person(self, target: Target) -> None:
        publish(target, sample_tree(), deep("/content"))
        target.ledger.reset_position(Position(LogIdentity("new", "log"), Offset(40)))
        assert target.ledger.position() == Position(LogIdentity("new", "log"), Offset(40))
        assert content_of(target) == sample_tree()

    def test_a_package_given_up_can_be_tried_again_and_resolved(self, target: Target) -> None:
        with target.batch() as batch:
            batch.give_up(an_entry(4))
            batch.give_up(an_entry(2))
            batch.commit(at(5))
        assert (target.ledger.given_up(), target.ledger.given_up_count) == ([an_entry(2), an_entry(4)], 2)
        assert target.ledger.given_up_offsets == {2, 4}
        assert not target.ledger.redrives()
        target.ledger.request_redrive(Offset(4))
        assert target.ledger.redrives() == [an_entry(4)]
        with target.batch() as batch:
            batch.resolve(Offset(4))
            batch.commit(at(5))
        assert target.ledger.given_up() == [an_entry(2)]
        assert not target.ledger.redrives()

    def test_packages_that_come_again_leave_the_error_queue(self, target: Target) -> None:
        with target.batch() as batch:
            batch.give_up(an_entry(2))
            batch.give_up(an_entry(4))
            batch.commit(at(1))
        target.ledger.reset_position(at(1))
        target.ledger.reset_position(at(5))
        assert target.ledger.given_up_offsets == {2, 4}
        target.ledger.reset_position(at(4))
        assert target.ledger.given_up_offsets == {2}

    def test_a_redrive_that_fails_keeps_the_entry_with_the_new_cause(self, target: Target) -> None:
        with target.batch() as batch:
            batch.give_up(an_entry(2))
            batch.commit(at(5))
        target.ledger.request_redrive(Offset(2))
        target.ledger.refuse_redrive(Offset(2), FailureCause("PackageCorrupt", "still"))
        (entry,) = target.ledger.given_up()
        assert (entry.cause, entry.attempts) == (FailureCause("PackageCorrupt", "still"), 4)
        assert not target.ledger.redrives()

    def test_only_what_was_given_up_can_be_tried_again(self, target: Target) -> None:
        with pytest.raises(UsageError, match="17"):
            target.ledger.request_redrive(Offset(17))

    def test_a_target_has_one_writer(self, tmp_path: Path) -> None:
        target = self.open_in(tmp_path)
        with pytest.raises(TargetBusyError):
            self.open_in(tmp_path)
        target.close()
        self.open_in(tmp_path).close()

    def test_commits_are_counted(self, target: Target) -> None:
        publish(target, [], deep("/a"))
        publish(target, [], deep("/a"), 1)
        assert target.statistics()["commits"] == 2
