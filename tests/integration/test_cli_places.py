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


@pytest.mark.parametrize(
    "words",
    [
        ("--home", "/proc/x", "init"),
        ("--home", "/proc/x", "demo"),
        ("subscribe", "n", "--into", "files:/proc/x"),
        ("subscribe", "n", "--into", "sqlite:/proc/x.db"),
        ("packages", "build", ".", "/", "--into", "/proc/x.zip"),
        ("content", "snapshot", "files:x", "/proc/x.snapshot"),
    ],
    ids=" ".join,
)
def test_file_systems_without_files_are_refused(boat: Any, words: tuple[str, ...]) -> None:
    ran = boat.run(*words)
    assert (ran.code, "error: PlaceUnusable: files cannot be created in /proc" in ran.err) == (2, True), ran.err
    assert "next  name a place on a disk or a volume" in ran.err


@pytest.mark.parametrize("key", ["path: journal.db", "path: blobs"])
def test_a_configured_place_without_files_is_refused(new_boat: Any, key: str) -> None:
    new_boat.home.mkdir()
    text = new_boat.do("init", "--print").out
    assert key in text
    (new_boat.home / "mailboat.yaml").write_text(text.replace(key, "path: /proc/x/x"))
    ran = new_boat.run("init")
    if ran.code == 0:
        ran = new_boat.run("blobs", "ls")
    assert (ran.code, "error: PlaceUnusable: files cannot be created in /proc" in ran.err) == (2, True), ran.err
