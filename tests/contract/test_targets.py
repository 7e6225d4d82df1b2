"""Every target passes the suite of the port."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from mailboat.content.port import Target
from mailboat.content.targets.files import open_files_target
from mailboat.content.targets.generations import open_generations_target
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.model.filters import FilterRule, FilterSet, ImportMode, WorkspaceFilter
from mailboat.model.paths import NodePath
from mailboat.testing.target_contract import TargetContract, content_of, deep, names_in, publish
from mailboat.testing.trees import a_file, a_folder, a_page


class TestSqliteTarget(TargetContract):
    def open_in(self, folder: Path) -> Target:
        return open_sqlite_target(folder / "target.db")


class TestFilesTarget(TargetContract):
    def open_in(self, folder: Path) -> Target:
        return open_files_target(folder / "target")


class TestGenerationsTarget(TargetContract):
    def open_in(self, folder: Path) -> Target:
        return open_generations_target(folder / "target")


# -------------------------------------------------------------------------------- filters that overlap


def test_filters_that_overlap_remove_what_any_of_them_covers(tmp_path: Path) -> None:
    with closing(open_sqlite_target(tmp_path / "target.db")) as target:
        publish(target, [a_folder("/a"), *[a_file(f"/a/{name}", b"old") for name in "bcd"]], deep("/a"))
        only = [FilterRule(is_include=True, pattern=re.compile(f"/a/{name}")) for name in "bc"]
        covered = WorkspaceFilter(tuple(FilterSet(NodePath("/a"), rules=(rule,)) for rule in only))
        publish(target, [a_file("/a/c", b"new")], covered, 1)
        assert content_of(target)[1:] == [a_file("/a/c", b"new"), a_file("/a/d", b"old")]


def test_the_first_root_above_says_whether_a_path_is_removed(tmp_path: Path) -> None:
    with closing(open_sqlite_target(tmp_path / "target.db")) as target:
        publish(target, [a_folder("/a"), a_page("/a/b", None), a_file("/a/b/x"), a_file("/a/y")], deep("/a"))
        merging = FilterSet(NodePath("/a/b"), is_shallow=True, mode=ImportMode.MERGE_PROPERTIES)
        publish(target, [a_folder("/a")], WorkspaceFilter((merging, FilterSet(NodePath("/a")))), 1)
        assert names_in(target) == ["/a", "/a/b", "/a/b/x"]
        publish(target, [a_folder("/a")], WorkspaceFilter((FilterSet(NodePath("/a")), merging)), 2)
        assert names_in(target) == ["/a"]
