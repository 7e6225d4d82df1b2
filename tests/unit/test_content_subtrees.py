"""Subtrees that a batch takes by column have the effect that the same packages have one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.content.port import Batch, Target
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.model.changes import ChangeCount, Subtrees, TreeChange
from mailboat.model.filters import FilterSet, WorkspaceFilter
from mailboat.model.identifiers import Offset
from mailboat.model.nodes import Node, NodeRecord
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity, Position
from mailboat.testing.examples import examples
from mailboat.testing.memory_content import MemoryTarget
from mailboat.testing.trees import a_folder, a_page
from mailboat.wire.node_bodies import encode_node

AT = Position(LogIdentity("log", "topic"), Offset(1))
Package = tuple[NodePath, list[Node]]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    opened = open_sqlite_target(tmp_path / "target.db")
    yield opened
    opened.close()


def package(root: str, *below: str, text: str = "text") -> Package:
    return NodePath(root), [a_page(root, text=text), *(a_page(f"{root}/{name}", text=text) for name in below)]


def subtrees_of(packages: list[Package]) -> Subtrees:
    records = [encode_node(node) for _, nodes in packages for node in nodes]
    counts = [len(nodes) for _, nodes in packages]
    return Subtrees(
        [root for root, _ in packages], counts, [record.path for record in records], [record.body for record in records]
    )


def change_of(one: Package) -> TreeChange:
    return TreeChange(WorkspaceFilter((FilterSet(one[0]),)), [encode_node(node) for node in one[1]])


def apply_together(batch: Batch, packages: list[Package]) -> ChangeCount:
    """As the subscriber does: what is not taken by column goes one by one."""
    subtrees, total, done = subtrees_of(packages), ChangeCount(), 0
    while done < len(packages):
        taken, count = batch.apply_subtrees(subtrees, done)
        total, done = total + count, done + taken
        if done < len(packages):
            total, done = total + batch.apply(change_of(packages[done]), Offset(done)), done + 1
    return total


def apply_alone(batch: Batch, packages: list[Package]) -> ChangeCount:
    total = ChangeCount()
    for number, one in enumerate(packages):
        total += batch.apply(change_of(one), Offset(number))
    return total


def content_of(target: Target) -> list[Node]:
    source = target.source()
    found = list(source.walk(NodePath("/")))
    source.close()
    return found


def test_subtrees_below_a_node_that_is_known_are_taken_and_the_first_is_not(target: Target) -> None:
    packages = [package("/site/a", "x"), package("/site/b"), package("/other/c"), package("/site/d")]
    with target.batch() as batch:
        assert batch.apply_subtrees(subtrees_of(packages), 0)[0] == 0
        batch.apply(change_of(packages[0]), Offset(0))
        assert batch.apply_subtrees(subtrees_of(packages), 1) == (
            1,
            ChangeCount(1, 0, len(encode_node(packages[1][1][0]).body)),
        )
        batch.apply(change_of(packages[2]), Offset(2))
        assert batch.apply_subtrees(subtrees_of(packages), 3)[0] == 1
        batch.commit(AT)
    assert [node.path for node in content_of(target)] == [
        "/other", "/other/c", "/site", "/site/a", "/site/a/x", "/site/b", "/site/d",
    ]  # fmt: skip


def test_what_a_subtree_does_not_carry_is_removed_and_counted(target: Target) -> None:
    with target.batch() as batch:
        apply_alone(batch, [package("/site/a", "x", "y"), package("/site/b", "x")])
        batch.commit(AT)
    with target.batch() as batch:
        taken, count = batch.apply_subtrees(subtrees_of([package("/site/a", "y"), package("/site/b", text="new")]), 0)
        removed = batch.commit(AT).removed
    assert (taken, count.put, count.removed + removed) == (2, 3, 2)
    assert [node.path for node in content_of(target)] == ["/site", "/site/a", "/site/a/y", "/site/b"]


def test_a_batch_that_is_left_takes_nothing(target: Target) -> None:
    with target.batch() as batch:
        batch.apply(change_of(package("/site/a")), Offset(0))
        batch.commit(AT)
    before = content_of(target)
    with target.batch() as batch:
        assert batch.apply_subtrees(subtrees_of([package("/site/b")]), 0)[0] == 1
    assert content_of(target) == before


NAMES = st.sampled_from(["a", "b", "a/b", "b/a", "a/b/a"])
PACKAGES = st.builds(
    lambda root, below, text: package(f"/site/{root}", *sorted(below), text=text),
    NAMES,
    st.sets(st.sampled_from(["a", "b", "c"])),
    st.sampled_from(["old", "new"]),
)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(PACKAGES, min_size=1, max_size=8), st.booleans())
def test_any_row_of_packages_has_the_same_effect(
    tmp_path_factory: pytest.TempPathFactory, packages: list[Package], is_in_two_batches: bool
) -> None:
    folder = tmp_path_factory.mktemp("targets")
    together, alone = open_sqlite_target(folder / "together.db"), open_sqlite_target(folder / "alone.db")
    memory, counts = MemoryTarget(), []
    for target, apply in ((together, apply_together), (alone, apply_alone), (memory, apply_together)):
        total = ChangeCount()
        for some in (packages[:4], packages[4:]) if is_in_two_batches else (packages,):
            with target.batch() as batch:
                total += apply(batch, some)
                total += batch.commit(AT)
        counts.append(total)
    assert content_of(together) == content_of(alone) == content_of(memory)
    assert counts[0] == counts[1]
    together.close()
    alone.close()


def test_folders_above_are_made_once_and_kept(target: Target) -> None:
    with target.batch() as batch:
        apply_together(batch, [package(f"/a/b/{number}") for number in range(5)])
        batch.commit(AT)
    assert content_of(target)[:2] == [a_folder("/a"), a_folder("/a/b")]


def test_records_are_those_that_were_given(target: Target) -> None:
    packages = [package(f"/a/{number}", "x", text=f"text {number}") for number in range(20)]
    with target.batch() as batch:
        apply_together(batch, packages)
        batch.commit(AT)
    below = {node.path: node for node in content_of(target)}
    assert all(below[node.path] == node for _, nodes in packages for node in nodes)
    assert NodeRecord(packages[0][0], encode_node(packages[0][1][0]).body) == encode_node(below[packages[0][0]])
