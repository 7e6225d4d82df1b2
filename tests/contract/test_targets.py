"""Every target passes the suite of the port."""

from __future__ import annotations

from pathlib import Path

from mailboat.content.port import Target
from mailboat.content.targets.files import open_files_target
from mailboat.content.targets.generations import open_generations_target
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.testing.target_contract import TargetContract


class TestSqliteTarget(TargetContract):
    def open_in(self, folder: Path) -> Target:
        return open_sqlite_target(folder / "target.db")


class TestFilesTarget(TargetContract):
    def open_in(self, folder: Path) -> Target:
        return open_files_target(folder / "target")


class TestGenerationsTarget(TargetContract):
    def open_in(self, folder: Path) -> Target:
        return open_generations_target(folder / "target")
