"""Folders by handle: links and special files are refused, exchanged files are noticed, modes are bounded."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from mailboat.folder_handle import (
    PUBLIC_FILE,
    FolderHandle,
    FolderTrail,
    ForeignEntryError,
    make_file,
    make_path,
    open_regular_file,
)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder that a link leads to, with content that must stay."""
    folder = tmp_path / "victim"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/keep").write_text("k")
    (folder / "keep").write_text("k")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[FolderHandle]:
    """An open folder."""
    (tmp_path / "own").mkdir()
    with FolderHandle.open(str(tmp_path / "own")) as handle:
        yield handle


@pytest.fixture
def any_umask() -> Iterator[None]:
    """The umask of a process that forbids nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_folder_that_is_a_link_is_not_opened(folder: FolderHandle, victim: Path) -> None:
    (Path(folder.place) / "link").symlink_to(victim)
    with pytest.raises(ForeignEntryError, match="is a link"):
        folder.folder("link")
    with pytest.raises(ForeignEntryError, match="is a link"):
        folder.make_folder("link")
    with pytest.raises(ForeignEntryError, match="is a link"):
        FolderHandle.open(f"{folder.place}/link")


def test_file_that_is_a_link_is_not_opened(folder: FolderHandle, victim: Path) -> None:
    (Path(folder.place) / "link").symlink_to(victim / "keep")
    with pytest.raises(ForeignEntryError, match="is a link"):
        folder.open_file("link")
    with pytest.raises(ForeignEntryError, match="is a link"):
        folder.open_lock("link")


@pytest.mark.parametrize("make", ["symlink", "hardlink"])
def test_creating_a_file_replaces_a_link_and_keeps_what_it_leads_to(
    folder: FolderHandle, victim: Path, make: str
) -> None:
    entry = Path(folder.place) / "staged"
    entry.symlink_to(victim / "keep") if make == "symlink" else entry.hardlink_to(victim / "keep")
    with folder.create_file("staged") as file:
        file.write(b"new")
    assert (victim / "keep").read_text() == "k"
    assert entry.read_bytes() == b"new"


def test_fifo_is_refused_without_waiting_for_a_writer(folder: FolderHandle) -> None:
    os.mkfifo(f"{folder.place}/fifo")
    with pytest.raises(ForeignEntryError, match="is a pipe"):
        folder.open_file("fifo")
    with pytest.raises(ForeignEntryError, match="is a pipe"):
        folder.open_lock("fifo")
    with pytest.raises(ForeignEntryError, match="is a pipe"):
        open_regular_file(f"{folder.place}/fifo")


def test_file_that_was_exchanged_since_it_was_checked_is_refused(folder: FolderHandle) -> None:
    (Path(folder.place) / "a").write_text("a")
    (Path(folder.place) / "b").write_text("b")
    checked = folder.status("a")
    folder.move("b", folder, "a")
    with pytest.raises(ForeignEntryError, match="was exchanged"):
        folder.open_file("a", checked)


def test_removing_a_folder_leaves_what_links_in_it_lead_to(folder: FolderHandle, victim: Path) -> None:
    (Path(folder.place) / "old/deep").mkdir(parents=True)
    (Path(folder.place) / "old/deep/link").symlink_to(victim)
    (Path(folder.place) / "link").symlink_to(victim)
    assert folder.remove("old")
    assert folder.remove("link")
    assert not folder.remove("absent")
    assert folder.names() == []
    assert (victim / "inner/keep").read_text() == "k"


def test_open_folder_stays_the_same_when_its_path_becomes_a_link(folder: FolderHandle, victim: Path) -> None:
    own = Path(folder.place)
    own.rename(own.with_name("moved"))
    own.symlink_to(victim)
    folder.create_file("file").close()
    assert folder.remove("keep") is False
    assert (own.with_name("moved") / "file").exists()
    assert (victim / "keep").exists()


def test_trail_enters_neighbours_and_refuses_links_on_the_way(folder: FolderHandle, victim: Path) -> None:
    (Path(folder.place) / "a/b").mkdir(parents=True)
    (Path(folder.place) / "a/c").mkdir()
    (Path(folder.place) / "a/link").symlink_to(victim)
    trail = FolderTrail(folder)
    assert trail.enter(["a", "b"]).place.endswith("/a/b")
    assert trail.enter(["a", "c"]).place.endswith("/a/c")
    with pytest.raises(ForeignEntryError):
        trail.enter(["a", "link", "inner"])
    assert trail.last.place.endswith("/a")
    trail.close()
    assert trail.last is folder


@pytest.mark.usefixtures("any_umask")
def test_modes_are_bounded_whatever_the_umask(folder: FolderHandle) -> None:
    own = Path(folder.place)
    folder.make_folder("state").close()
    folder.create_file("file").close()
    folder.create_file("page", PUBLIC_FILE).close()
    os.close(folder.open_lock("lock"))
    make_path(own / "x/y")
    make_file(own / "made")
    modes = {path.relative_to(own).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in own.rglob("*")}
    assert modes == {
        "state": 0o700,
        "file": 0o600,
        "page": 0o644,
        "lock": 0o600,
        "x": 0o700,
        "x/y": 0o700,
        "made": 0o600,
    }


def test_link_that_was_exchanged_back_before_a_second_look_is_refused_as_a_link(
    folder: FolderHandle, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening fails because of the link; what stands there afterwards says nothing about what was opened."""
    place = Path(folder.place) / "x"
    place.symlink_to(victim)
    monkeypatch.setattr(FolderHandle, "status", lambda self, _: Path(self.place).stat())
    with pytest.raises(ForeignEntryError, match="is a link"):
        folder.open_file("x")
