"""What is on the disk itself, in which order: nothing is promised that a power cut could take back."""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress
from pathlib import Path

import pytest
from mailboat.content.locations import open_target
from mailboat.content.port import Target
from mailboat.content.targets.durability import Durability
from mailboat.errors import StorageFailedError
from mailboat.model.nodes import Node
from mailboat.testing.target_contract import at, content_of, deep, publish
from mailboat.testing.trees import a_file, a_folder, a_full_node, a_page

COMMIT = "COMMIT"
FORGET_REDO = "DELETE FROM redo"

CHANGES = {
    "a new file": ("/b", [a_file("/b")]),
    "a file in new folders": ("/x/y/z", [a_file("/x/y/z")]),
    "another file": ("/a", [a_file("/a", b"other")]),
    "a node with binaries": ("/page", [a_full_node("/page")]),
    "a node with other properties": ("/page", [a_page("/page", None, title="other")]),
    "a file that becomes a folder": ("/a/below", [a_file("/a/below")]),
    "a folder that becomes a file": ("/d", [a_file("/d")]),
    "a removed folder": ("/d", []),
    "a removed file": ("/a", []),
}
BEFORE = [a_file("/a"), a_folder("/d"), a_file("/d/e"), a_page("/page", None, title="old"), a_file("/page/f")]


class Disk:
    """Knows what every file and folder held when it was synchronised last, as a disk without power would."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._synced: dict[int, object] = {}
        self._fsync = os.fsync
        self.fails_from: int | None = None
        self.calls = 0
        patch.setattr(os, "fsync", self._on_fsync)
        patch.setattr(Durability, "_sync_all", lambda durability: self._on_everything(durability._folder))

    def lost(self, root: Path) -> list[str]:
        """What a power cut would take from the content below a folder."""
        places = [root, *(path for path in sorted(root.rglob("*")) if ".mailboat" not in path.parts)]
        return [str(path) for path in places if not path.is_symlink() and self._is_lost(path)]

    def named(self, folder: Path) -> list[str]:
        """The names that a folder has on the disk."""
        names = self._synced.get(folder.stat().st_ino, [])
        assert isinstance(names, list)
        return names

    def _is_lost(self, path: Path) -> bool:
        return self._synced.get(path.stat().st_ino) != _held(path)

    def _on_fsync(self, handle: int) -> None:
        self._count()
        path = Path(f"/proc/self/fd/{handle}").readlink()
        self._synced[os.fstat(handle).st_ino] = _held(path)
        self._fsync(handle)

    def _on_everything(self, folder: str) -> None:
        self._count()
        for path in [Path(folder), *Path(folder).rglob("*")]:
            self._synced[path.lstat().st_ino] = _held(path)

    def _count(self) -> None:
        self.calls += 1
        if self.fails_from is not None and self.calls >= self.fails_from:
            raise OSError(errno.EIO, "Input/output error")


def _held(path: Path) -> object:
    return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else path.read_bytes()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of these tests."""
    return Disk(monkeypatch)


def lost_at(target: Target, statement: str, disk: Disk, root: Path) -> list[list[str]]:
    """Filled with what a power cut would take, whenever the database is about to do that."""
    found: list[list[str]] = []
    connection = target._parts.connection  # type: ignore[attr-defined]  # the one place that knows of each statement
    connection.set_trace_callback(lambda sql: found.append(disk.lost(root)) if sql.startswith(statement) else None)
    return found


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_generation_is_durable_as_a_whole_before_the_commit_that_names_it(
    tmp_path: Path, disk: Disk, change: tuple[str, list[Node]]
) -> None:
    covered, carried = change
    with closing(open_target(f"generations:{tmp_path / 'web'}")) as target:
        found = lost_at(target, COMMIT, disk, tmp_path / "web")
        publish(target, BEFORE, deep("/"))
        publish(target, carried, deep(covered), 1)
        assert found == [[], []]
        assert disk.lost(tmp_path / "web") == []


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_files_are_durable_at_their_places_before_the_redo_record_is_forgotten(
    tmp_path: Path, disk: Disk, change: tuple[str, list[Node]]
) -> None:
    covered, carried = change
    with closing(open_target(f"files:{tmp_path / 'web'}")) as target:
        found = lost_at(target, FORGET_REDO, disk, tmp_path / "web")
        publish(target, BEFORE, deep("/"))
        publish(target, carried, deep(covered), 1)
        target.batch()._roll_back()  # type: ignore[attr-defined]  # a batch that is begun finishes the one before
    assert found
    assert not any(found)


@pytest.mark.parametrize("is_opened_again", [False, True], ids=["by the next batch", "when opened again"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_synchronisation_that_failed_after_the_commit_is_repeated(
    tmp_path: Path, disk: Disk, change: tuple[str, list[Node]], is_opened_again: bool
) -> None:
    covered, carried = change
    text = f"files:{tmp_path / 'web'}"
    target = open_target(text)
    publish(target, BEFORE, deep("/"))
    target._parts.connection.set_trace_callback(  # type: ignore[attr-defined]  # as above
        lambda sql: setattr(disk, "fails_from", disk.calls + 1) if sql.startswith(COMMIT) else None
    )
    with pytest.raises(StorageFailedError):
        publish(target, carried, deep(covered), 1)
    assert target.ledger.position() == at(2)
    with pytest.raises(StorageFailedError):
        target.batch()
    if is_opened_again:
        with suppress(StorageFailedError):
            target.close()
        disk.fails_from = None
        target = open_target(text)
    disk.fails_from = None
    with closing(target):
        found = lost_at(target, FORGET_REDO, disk, tmp_path / "web")
        publish(target, [], deep("/none"), 2)
        assert disk.lost(tmp_path / "web") == []
        assert not any(found)
        assert not any(tmp_path.glob("web/.mailboat/staging/*"))


def test_a_flip_whose_synchronisation_failed_is_synchronised_by_the_next_batch(tmp_path: Path, disk: Disk) -> None:
    with closing(open_target(f"generations:{tmp_path / 'web'}")) as target:
        publish(target, BEFORE, deep("/"))
        target._parts.connection.set_trace_callback(  # type: ignore[attr-defined]  # as above
            lambda sql: setattr(disk, "fails_from", disk.calls + 1) if sql.startswith(COMMIT) else None
        )
        with pytest.raises(StorageFailedError):
            publish(target, [a_file("/new")], deep("/new"), 1)
        disk.fails_from = None
        target._parts.connection.set_trace_callback(None)  # type: ignore[attr-defined]  # as above
        before = disk.calls
        target.batch()._roll_back()  # type: ignore[attr-defined]  # as above
        assert disk.calls > before
        assert disk.lost(tmp_path / "web") == []
        assert content_of(target)[1] == a_folder("/d")


def test_what_has_not_its_name_any_more_is_synchronised_nevertheless(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "draft").write_text("content")
    durability = Durability(str(tmp_path))
    durability.touch(str(tmp_path / "draft"))
    (tmp_path / "draft").rename(tmp_path / "place")
    durability.sync()
    assert disk.lost(tmp_path) == []


@pytest.mark.parametrize("kind", ["sqlite", "files", "generations"])
def test_a_new_database_has_its_name_durably(tmp_path: Path, disk: Disk, kind: str) -> None:
    folder = tmp_path if kind == "sqlite" else tmp_path / "web/.mailboat"
    open_target(f"{kind}:{tmp_path / 'web'}").close()
    assert "web" in disk.named(folder) or "state.db" in disk.named(folder)
