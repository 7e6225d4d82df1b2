"""Disk full and read-only in the middle of an import: the batch is rolled back, and goes through once there is room."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from mailboat.content.locations import open_target
from mailboat.content.port import Target
from mailboat.errors import RetryableError, StorageFailedError, StorageFullError, StorageReadOnlyError
from mailboat.model.identifiers import Offset
from mailboat.model.nodes import Node, file_node
from mailboat.model.paths import NodePath
from mailboat.testing.target_contract import a_status, at, content_of, deep, publish
from mailboat.testing.target_model import as_change
from mailboat.testing.trees import a_file, a_page, large_binary, sample_tree

KINDS = ("sqlite", "files", "generations")
FILM = file_node(NodePath("/film"), large_binary(b"film", 3_000_000))
PAGES = [a_page(f"/page{number:02}", None, text="x" * 20_000) for number in range(100)]


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """A target with a tree at position 1."""
    with closing(open_target(f"{request.param}:{tmp_path / 'target'}")) as target:
        publish(target, sample_tree(), deep("/content"))
        yield target


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """As in a quota: no file may grow beyond that size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def nothing_happened(target: Target) -> None:
    """The target is as the fixture made it."""
    assert target.ledger.position() == at(1)
    assert not target.ledger.pending_statuses(10)
    assert content_of(target) == sample_tree()


@pytest.mark.parametrize("tree", [[FILM], PAGES], ids=["one large file", "many pages"])
def test_a_full_disk_rolls_the_batch_back_and_it_goes_through_later(
    target: Target, tmp_path: Path, tree: list[Node]
) -> None:
    def import_it() -> None:
        with target.batch() as batch:
            batch.apply(as_change(tree, deep("/")), Offset(1))
            batch.add_status(a_status(1))
            batch.commit(at(2))

    with largest_file(600_000), pytest.raises(RetryableError):
        import_it()
    nothing_happened(target)
    assert not any(tmp_path.glob("target/.mailboat/staging/*"))
    assert not any(tmp_path.glob("target/.mailboat/building"))
    import_it()
    assert content_of(target) == tree
    assert target.ledger.position() == at(2)


SYSTEM_CALLS = {
    "files": ["mailboat.folder_handle.FolderHandle.create_file", "mailboat.content.targets.durability.os.fsync"],
    "generations": [
        "mailboat.folder_handle.FolderHandle.create_file",
        "mailboat.content.targets.durability.os.fsync",
        "mailboat.content.targets.generations.os.link",
        "mailboat.folder_handle.os.mkdir",
        "mailboat.folder_handle.os.rename",
    ],
}
FAILURES = [
    (errno.ENOSPC, StorageFullError),
    (errno.EDQUOT, StorageFullError),
    (errno.EROFS, StorageReadOnlyError),
    (errno.EACCES, StorageReadOnlyError),
    (errno.EIO, StorageFailedError),
]


def failing(number: int) -> Callable[..., object]:
    """A system call that fails."""

    def fail(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number), "somewhere")

    return fail


@pytest.mark.parametrize(("number", "error"), FAILURES)
@pytest.mark.parametrize(("kind", "call"), [(kind, call) for kind, calls in SYSTEM_CALLS.items() for call in calls])
def test_any_failure_before_the_commit_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, call: str, number: int, error: type[Exception]
) -> None:
    with closing(open_target(f"{kind}:{tmp_path / 'target'}")) as target:
        publish(target, sample_tree(), deep("/content"))
        with monkeypatch.context() as patch:
            patch.setattr(call, failing(number), raising=False)
            with pytest.raises(error):
                publish(target, [a_file("/a/b"), a_file("/new")], deep("/"), 1)
        nothing_happened(target)
        publish(target, [a_file("/new")], deep("/"), 1)
        assert content_of(target) == [a_file("/new")]


def test_a_failure_after_the_commit_is_told_and_finished_with_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_target(f"files:{tmp_path / 'target'}")) as target:
        publish(target, sample_tree(), deep("/content"))
        with monkeypatch.context() as patch:
            patch.setattr("mailboat.content.targets.disk_tree.os.rename", failing(errno.ENOSPC))
            with pytest.raises(StorageFullError):
                publish(target, [a_file("/new")], deep("/"), 1)
            assert target.ledger.position() == at(2)
            with pytest.raises(StorageFullError):
                target.batch()
        publish(target, [a_file("/newer")], deep("/newer"), 2)
        assert content_of(target) == [a_file("/new"), a_file("/newer")]


def test_a_failure_after_the_commit_is_finished_when_the_target_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, call in (("files", "disk_tree.os.rename"), ("generations", "generations.os.symlink")):
        text = f"{kind}:{tmp_path / kind}"
        with monkeypatch.context() as patch:
            target = open_target(text)
            patch.setattr(f"mailboat.content.targets.{call}", failing(errno.EIO))
            with pytest.raises(StorageFailedError):
                publish(target, [a_file("/new")], deep("/"), 1)
        with monkeypatch.context() as patch:
            patch.setattr(f"mailboat.content.targets.{call}", failing(errno.EIO))
            if kind == "files":
                with pytest.raises(StorageFailedError):
                    target.close()
        target.close()
        with closing(open_target(text)) as target:
            assert target.ledger.position() == at(2)
            assert content_of(target) == [a_file("/new")]


def test_a_database_that_another_program_holds_is_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailboat.content.targets.database.BUSY_TIMEOUT_SECONDS", 0.05)
    with (
        closing(open_target(f"sqlite:{tmp_path / 'c.db'}")) as target,
        closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageFailedError, match="locked"):
            target.batch()
        other.execute("ROLLBACK")
        publish(target, [a_file("/a")], deep("/a"))
