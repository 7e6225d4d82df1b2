"""The folders that snapshots of a blob store pass through, and processes that make and clear them at once."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mailboat.operations import stored_snapshots


def clear_as_another_process(rooms: Path) -> None:
    """What another process does that begins now; where it would wait, nothing."""
    handle = os.open(rooms, os.O_RDONLY)
    try:
        flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in rooms.iterdir():
            stored_snapshots._clear(left)
    except BlockingIOError:
        pass
    finally:
        os.close(handle)


flock = fcntl.flock


@pytest.fixture
def workspace(tmp_path: Path) -> Any:
    return SimpleNamespace(home=SimpleNamespace(path=tmp_path))


def test_another_process_does_not_clear_a_folder_before_it_is_locked(
    workspace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock_late(handle: int, kind: int) -> None:
        if kind == fcntl.LOCK_SH:
            clear_as_another_process(tmp_path / "snapshots")
        flock(handle, kind)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    with stored_snapshots._room(workspace) as folder:
        (folder / "snapshot").write_bytes(b"content")


def test_a_folder_without_a_lock_file_goes_with_the_next(workspace: Any, tmp_path: Path) -> None:
    (tmp_path / "snapshots" / "left").mkdir(parents=True)
    with stored_snapshots._room(workspace) as folder:
        assert list((tmp_path / "snapshots").iterdir()) == [folder]
