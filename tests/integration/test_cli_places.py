"""Places that can't be used: refused once and for all, not as a passing fault that a loop tries again for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("target", ["files:file", "files:file/x/y", "generations:file", "sqlite:file/x"])
def test_a_target_in_place_of_a_file_is_refused(boat: Any, tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_text("")
    ran = boat.run("subscribe", "n", "--into", target.replace(":", f":{tmp_path}/"), "--until", "caught-up")
    assert (ran.code, "error: PlaceUnusable:" in ran.err) == (2, True)


@pytest.mark.parametrize("name", ["file", "file/x", "n" * 300])
def test_a_home_in_place_of_a_file_is_refused(new_boat: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    ran = new_boat.run("--home", tmp_path / name, "init")
    assert (ran.code, "error: PlaceUnusable:" in ran.err) == (2, True)


def test_a_sqlite_target_in_place_of_a_folder_is_refused(boat: Any, tmp_path: Path) -> None:
    ran = boat.run("subscribe", "n", "--into", f"sqlite:{tmp_path}", "--until", "caught-up")
    assert (ran.code, "is a folder" in ran.err) == (2, True)


def test_a_snapshot_in_a_missing_folder_is_refused(boat: Any, tmp_path: Path) -> None:
    boat.do("subscribe", "n", "--into", f"files:{tmp_path / 'n'}", "--until", "caught-up")
    ran = boat.run("content", "snapshot", f"files:{tmp_path / 'n'}", tmp_path / "none" / "n.snapshot")
    assert (ran.code, "error: PlaceUnusable: the folder" in ran.err) == (2, True)
