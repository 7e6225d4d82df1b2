"""What targets look like from outside: files as people expect them, generations as git-sync's readers do."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mailboat.content.digest import source_digest, tree_digest
from mailboat.content.locations import open_source, open_target, opened_ledger, parse_target
from mailboat.content.port import Target
from mailboat.content.sources.sqlite import SqliteSource
from mailboat.content.targets import database
from mailboat.content.targets.generations import open_generations_target
from mailboat.content.targets.sqlite import open_sqlite_target, sweep_blobs
from mailboat.errors import (
    BlobMissingError,
    PathRefusedError,
    SourceChangedError,
    StorageFailedError,
    StorageReadOnlyError,
    TargetBusyError,
    TargetCorruptError,
    UsageError,
)
from mailboat.folder_handle import FolderHandle
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.nodes import Binary, file_node
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.positions import Position
from mailboat.testing.target_contract import an_entry, at, content_of, deep, names_in, publish, shallow
from mailboat.testing.trees import a_file, a_folder, a_full_node, a_page, large_binary, sample_tree

KINDS = ("sqlite", "files", "generations")
REMOVE = FolderHandle.remove


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Target]:
    """A target of plain files."""
    with closing(open_target(f"files:{tmp_path / 'web'}")) as target:
        yield target


@pytest.fixture
def generations(tmp_path: Path) -> Iterator[Target]:
    """A target of generations."""
    with closing(open_target(f"generations:{tmp_path / 'web'}")) as target:
        yield target


class TestFiles:
    def test_plain_files_lie_there_verbatim(self, files: Target, tmp_path: Path) -> None:
        publish(files, [a_folder("/en"), a_file("/en/index.html", b"<h1>"), a_file("/robots.txt", b"")], deep("/"))
        found = sorted(path.relative_to(tmp_path / "web").as_posix() for path in (tmp_path / "web").rglob("*"))
        assert [name for name in found if not name.startswith(".mailboat")] == ["en", "en/index.html", "robots.txt"]
        assert (tmp_path / "web/en/index.html").read_bytes() == b"<h1>"

    def test_other_nodes_are_folders_with_a_sidecar(self, files: Target, tmp_path: Path) -> None:
        publish(files, [a_full_node("/page"), a_file("/page/z")], deep("/"))
        names = {path.name for path in (tmp_path / "web/page").iterdir()}
        assert {".node.json", "z"} < names
        assert len([name for name in names if name.endswith(".bin")]) == 3
        publish(files, [a_page("/page", None, title="no binaries")], shallow("/page"), 1)
        assert {path.name for path in (tmp_path / "web/page").iterdir()} == {".node.json", "z"}

    def test_a_folder_with_something_of_others_is_not_taken_over(self, tmp_path: Path) -> None:
        (tmp_path / "web").mkdir()
        (tmp_path / "web/precious.txt").write_text("mine")
        with pytest.raises(UsageError, match=r"precious\.txt"):
            open_target(f"files:{tmp_path / 'web'}")
        assert [path.name for path in (tmp_path / "web").iterdir()] == ["precious.txt"]

    @pytest.mark.parametrize("others", [[], ["precious.txt"]])
    def test_a_home_is_not_taken_for_a_target_that_lost_its_state(self, tmp_path: Path, others: list[str]) -> None:
        (tmp_path / "web/.mailboat").mkdir(parents=True)
        for name in [".mailboat/journal.db", ".mailboat/mailboat.yaml", *others]:
            (tmp_path / "web" / name).touch()
        before = sorted((tmp_path / "web").rglob("*"))
        with pytest.raises(UsageError, match=r"not the state of a target: it holds 'journal\.db'") as refused:
            open_target(f"files:{tmp_path / 'web'}")
        assert refused.value.next_step == "choose an empty or a new folder as the target"
        assert sorted((tmp_path / "web").rglob("*")) == before

    @pytest.mark.parametrize("kind", ["files", "generations"])
    def test_state_that_is_gone_is_told_whatever_is_left_of_it(self, tmp_path: Path, kind: str) -> None:
        place, own = f"{kind}:{tmp_path / 'web'}", tmp_path / "web/.mailboat"
        with closing(open_target(place)) as target:
            publish(target, sample_tree(), deep("/content"))
        for name in ("building", "discarded", "linked"):
            (own / name).mkdir()
        (own / "current.new").symlink_to("nowhere")
        (own / "state.db").unlink()
        with pytest.raises(TargetCorruptError, match=r"state \.mailboat/state\.db is gone"):
            open_target(place)

    def test_an_empty_folder_and_a_new_volume_are_taken(self, tmp_path: Path) -> None:
        (tmp_path / "web/lost+found").mkdir(parents=True)
        open_target(f"files:{tmp_path / 'web'}").close()

    def test_nothing_is_written_through_a_planted_link(self, files: Target, tmp_path: Path) -> None:
        publish(files, [a_folder("/en"), a_file("/en/a")], deep("/"))
        (tmp_path / "outside").mkdir()
        (tmp_path / "web/en/a").unlink()
        (tmp_path / "web/en").rmdir()
        (tmp_path / "web/en").symlink_to(tmp_path / "outside")
        with pytest.raises(TargetCorruptError, match="is a link that the target did not make"):
            publish(files, [a_folder("/en"), a_file("/en/b")], deep("/en"), 1)
        assert list((tmp_path / "outside").iterdir()) == []
        assert files.ledger.position() == at(1)
        (tmp_path / "web/en").unlink()
        publish(files, [a_folder("/en"), a_file("/en/b")], deep("/en"), 1)
        assert names_in(files) == ["/en", "/en/b"]

    def test_a_planted_link_in_the_place_of_a_file_is_replaced(self, files: Target, tmp_path: Path) -> None:
        (tmp_path / "outside").write_text("precious")
        (tmp_path / "web/a").symlink_to(tmp_path / "outside")
        publish(files, [a_file("/a", b"content")], deep("/a"))
        assert (tmp_path / "outside").read_text() == "precious"
        assert (tmp_path / "web/a").read_bytes() == b"content"

    def test_a_removed_folder_goes_with_what_others_put_there_but_links_are_not_followed(
        self, files: Target, tmp_path: Path
    ) -> None:
        publish(files, [a_folder("/en"), a_file("/en/a")], deep("/"))
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious/file").touch()
        (tmp_path / "web/en/link").symlink_to(tmp_path / "precious")
        publish(files, [], deep("/en"), 1)
        assert not (tmp_path / "web/en").exists()
        assert (tmp_path / "precious/file").exists()

    def test_unchanged_files_are_not_written_again(self, files: Target, tmp_path: Path) -> None:
        publish(files, sample_tree(), deep("/content"))
        before = {path: path.stat().st_ino for path in (tmp_path / "web/content").rglob("*")}
        fsyncs = files.statistics()["fsyncs"]
        publish(files, sample_tree(), deep("/content"), 1)
        assert {path: path.stat().st_ino for path in (tmp_path / "web/content").rglob("*")} == before
        assert files.statistics()["fsyncs"] == fsyncs

    def test_many_files_cost_few_fsyncs(self, files: Target) -> None:
        publish(files, [a_file(f"/f{number}") for number in range(200)], deep("/"))
        assert files.statistics()["fsyncs"] <= 2

    def test_many_files_are_durable_also_where_there_is_no_syncfs(
        self, files: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[bool] = []
        monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
        monkeypatch.setattr("mailboat.content.targets.durability.os.sync", lambda: synced.append(True))
        publish(files, [a_file(f"/f{number}") for number in range(40)], deep("/"))
        assert synced

    def test_binaries_go_with_their_sidecar_also_after_an_interruption(
        self, files: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(files, [a_full_node("/page")], deep("/"))
        removed: list[str] = []

        def remove(folder: FolderHandle, name: str) -> bool:
            removed.append(name)
            if len(removed) == 2:
                raise OSError(errno.EIO, "Input/output error")
            return REMOVE(folder, name)

        monkeypatch.setattr(FolderHandle, "remove", remove)
        with pytest.raises(StorageFailedError):
            publish(files, [a_folder("/page")], deep("/page"), 1)
        monkeypatch.undo()
        publish(files, [], deep("/none"), 2)
        assert list((tmp_path / "web/page").iterdir()) == []

    def test_content_that_someone_lost_is_reported_when_it_is_needed(self, files: Target, tmp_path: Path) -> None:
        publish(files, [a_file("/f")], deep("/"))
        (tmp_path / "web/f").unlink()
        with pytest.raises(BlobMissingError, match="/f are gone"):
            publish(files, [a_page("/f/child")], deep("/f/child"), 1)
        assert files.ledger.position() == at(1)


class TestGenerations:
    def test_current_names_the_next_offset_and_the_digest(self, generations: Target, tmp_path: Path) -> None:
        publish(generations, sample_tree(), deep("/content"), 41)
        link = (tmp_path / "web/current").readlink().name
        assert link == f"{42:020d}-{tree_digest(sample_tree()).hex()[:8]}"
        assert (tmp_path / "web/current/content/index.html").is_file()

    def test_a_reader_that_resolved_current_keeps_a_whole_tree(self, generations: Target, tmp_path: Path) -> None:
        publish(generations, [a_file("/a", b"old"), a_file("/b", b"old")], deep("/"))
        held = (tmp_path / "web/current").resolve()
        publish(generations, [a_file("/a", b"new")], deep("/"), 1)
        assert (held / "a").read_bytes() == b"old"
        assert (held / "b").read_bytes() == b"old"
        assert [path.name for path in (tmp_path / "web/current/").iterdir()] == ["a"]

    def test_unchanged_files_are_shared(self, generations: Target, tmp_path: Path) -> None:
        publish(generations, [a_file("/a"), a_file("/deep/er/b")], deep("/"))
        first = (tmp_path / "web/current").resolve()
        publish(generations, [a_file("/a", b"new")], deep("/a"), 1)
        second = (tmp_path / "web/current").resolve()
        assert first != second
        assert (first / "deep/er/b").stat().st_ino == (second / "deep/er/b").stat().st_ino
        assert (first / "a").stat().st_ino != (second / "a").stat().st_ino

    def test_the_last_three_are_kept(self, generations: Target, tmp_path: Path) -> None:
        for offset in range(6):
            publish(generations, [a_file("/a", b"%d" % offset)], deep("/"), offset)
        left = sorted(path.name[:20] for path in (tmp_path / "web").iterdir() if path.name[0] == "0")
        assert left == [f"{number:020d}" for number in (4, 5, 6)]

    def test_how_many_are_kept_can_be_chosen(self, tmp_path: Path) -> None:
        with closing(open_generations_target(tmp_path / "one", kept_generations=1)) as target:
            for offset in range(3):
                publish(target, [a_file("/a", b"%d" % offset)], deep("/"), offset)
        assert len([path for path in (tmp_path / "one").iterdir() if path.name[0] == "0"]) == 1

    def test_those_of_an_earlier_log_with_larger_offsets_go_first(self, generations: Target, tmp_path: Path) -> None:
        for offset in (900, 0, 1, 2):
            publish(generations, [a_file("/a", b"%d" % offset)], deep("/"), offset)
        assert not any(path.name.startswith(f"{901:020d}") for path in (tmp_path / "web").iterdir())

    def test_a_commit_without_changes_moves_the_position_only(self, generations: Target, tmp_path: Path) -> None:
        publish(generations, sample_tree(), deep("/content"))
        link = (tmp_path / "web/current").readlink().name
        publish(generations, sample_tree(), deep("/content"), 7)
        with generations.batch() as batch:
            batch.commit(at(12))
        assert generations.ledger.position() == at(12)
        assert (tmp_path / "web/current").readlink().name == link

    def test_there_is_a_current_as_soon_as_there_is_a_position(self, generations: Target, tmp_path: Path) -> None:
        with generations.batch() as batch:
            batch.commit(at(3))
        assert (tmp_path / "web/current").readlink().name.startswith(f"{3:020d}-")
        assert list((tmp_path / "web/current/").iterdir()) == []

    def test_readers_see_whole_packages_only(self, tmp_path: Path) -> None:
        """All generations are kept, however long the reader looks at one of them."""
        torn: list[set[bytes]] = []
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                here = (tmp_path / "web/current").resolve()
                seen = {(here / name).read_bytes() for name in "abcdef"}
                if len(seen) != 1:
                    torn.append(seen)

        reader = threading.Thread(target=read)
        with closing(open_generations_target(tmp_path / "web", kept_generations=5)) as target:
            publish(target, [a_file(f"/{name}", b"0") for name in "abcdef"], deep("/"))
            with closing(open_source(f"generations:{tmp_path / 'web'}")):
                reader.start()
                for number in range(1, 5):
                    publish(target, [a_file(f"/{name}", b"%d" % number) for name in "abcdef"], deep("/"), number)
                stop.set()
                reader.join()
        assert torn == []

    @pytest.mark.parametrize("number", [errno.EMLINK, errno.EPERM, errno.ENOSYS])
    def test_files_are_copied_where_the_file_system_has_no_more_links(
        self, generations: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        publish(generations, [a_file("/a"), a_file("/deep/b")], deep("/"))
        monkeypatch.setattr("mailboat.content.targets.generations.os.link", refuse)
        publish(generations, [a_file("/a", b"new")], deep("/a"), 1)
        assert names_in(generations) == ["/a", "/deep", "/deep/b"]
        assert (tmp_path / "web/current/deep/b").stat().st_nlink == 1

    @pytest.mark.parametrize("is_folder", [True, False])
    def test_a_current_that_is_no_link_is_not_an_empty_tree(self, tmp_path: Path, is_folder: bool) -> None:
        place, current = f"generations:{tmp_path / 'web'}", tmp_path / "web/current"
        with closing(open_target(place)) as target:
            publish(target, sample_tree(), deep("/content"))
        link = current.readlink()
        current.unlink()
        if is_folder:
            current.mkdir()
        else:
            current.touch()
        for opened in (open_source, open_target):
            with pytest.raises(TargetCorruptError, match="current is not a link to a generation"):
                opened(place)
        current.rename(tmp_path / "moved")
        with pytest.raises(SourceChangedError, match="has generations, and no link"):
            open_source(place)
        open_target(place).close()
        assert current.readlink() == link

    def test_a_link_that_someone_moved_is_put_back(self, tmp_path: Path) -> None:
        with closing(open_target(f"generations:{tmp_path / 'web'}")) as target:
            publish(target, sample_tree(), deep("/content"))
        link = (tmp_path / "web/current").readlink().name
        (tmp_path / "web/current").unlink()
        (tmp_path / "web/current").symlink_to("elsewhere")
        open_target(f"generations:{tmp_path / 'web'}").close()
        assert (tmp_path / "web/current").readlink().name == link


class TestSqlite:
    def test_bodies_can_be_listed_with_any_sqlite_program(self, tmp_path: Path) -> None:
        with closing(open_sqlite_target(tmp_path / "c.db")) as target:
            publish(target, sample_tree(), deep("/content"))
        with closing(sqlite3.connect(tmp_path / "c.db")) as connection:
            paths = [path for (path,) in connection.execute("SELECT path FROM content ORDER BY path")]
        assert paths == sorted(node.path for node in sample_tree())

    def test_content_can_be_read_while_it_is_imported(self, tmp_path: Path) -> None:
        with closing(open_sqlite_target(tmp_path / "c.db")) as target:
            publish(target, sample_tree(), deep("/content"))
            with closing(SqliteSource(tmp_path / "c.db")) as source:
                walk = source.walk(ROOT)
                next(walk)
                publish(target, [], deep("/"), 1)
                assert len(list(walk)) == len(sample_tree()) - 1
                assert list(source.walk(ROOT)) == []

    def test_content_can_be_read_from_a_folder_that_cannot_be_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with closing(open_sqlite_target(tmp_path / "c.db")) as target:
            publish(target, sample_tree(), deep("/content"))
        before = sorted(tmp_path.iterdir())
        monkeypatch.setattr("mailboat.content.targets.database.os.access", lambda *_: False)
        with closing(SqliteSource(tmp_path / "c.db")) as source:
            assert list(source.walk(ROOT)) == sample_tree()
        assert sorted(tmp_path.iterdir()) == before

    def test_a_walk_can_be_left(self, tmp_path: Path) -> None:
        with closing(open_sqlite_target(tmp_path / "c.db")) as target:
            publish(target, sample_tree(), deep("/content"))
            source = SqliteSource(tmp_path / "c.db")
            walk = source.walk(ROOT)
            next(walk)
            source.close()
            with pytest.raises(sqlite3.ProgrammingError):
                list(walk)

    def test_blobs_that_no_node_names_are_swept(self, tmp_path: Path) -> None:
        kept, dropped = large_binary(b"kept"), large_binary(b"dropped")
        assert sweep_blobs_of(tmp_path) == 0
        with closing(open_sqlite_target(tmp_path / "c.db")) as target:
            publish(target, [file_node(NodePath("/a"), kept), file_node(NodePath("/b"), dropped)], deep("/"))
            publish(target, [file_node(NodePath("/a"), kept)], deep("/"), 1)
            with pytest.raises(TargetBusyError):
                sweep_blobs(tmp_path / "c.db")
        assert sweep_blobs(tmp_path / "c.db") == 1
        assert sweep_blobs(tmp_path / "c.db") == 0
        with closing(SqliteSource(tmp_path / "c.db")) as source:
            node = source.node(NodePath("/a"))
            assert node is not None
            assert node.data is not None
            with node.data.open() as stream:
                assert stream.read() == kept.open().read()

    def test_blobs_are_read_without_a_change_next_to_them(self, tmp_path: Path) -> None:
        """The target may be another user's, who alone may enter `drafts`."""
        with closing(open_sqlite_target(tmp_path / "c.db")) as target:
            publish(target, [file_node(NodePath("/a"), large_binary())], deep("/"))
        (tmp_path / "c.db.blobs/drafts").rmdir()
        with closing(SqliteSource(tmp_path / "c.db")) as source:
            (node,) = source.walk(ROOT)
            assert node.data is not None
            with node.data.open() as stream:
                assert stream.read() == large_binary().open().read()
        assert not (tmp_path / "c.db.blobs/drafts").exists()

    def test_position_is_reset_with_all_that_belongs_to_it_or_not_at_all(self, tmp_path: Path) -> None:
        with closing(open_sqlite_target(tmp_path / "c.db")) as target:
            with target.batch() as batch:
                batch.pass_over(["author"])
                batch.commit(at(1))
            beyond = Position(at(1).identity, Offset(1 << 64))
            with pytest.raises(OverflowError):  # no target can store it
                target.ledger.reset_position(beyond, ["author"])
            assert (target.ledger.position(), target.ledger.passed_over) == (at(1), {"author"})
            target.ledger.reset_position(at(5), ["author"])
            assert (target.ledger.position(), target.ledger.passed_over) == (at(5), frozenset())

    def test_a_blob_that_someone_removed_is_reported(self, tmp_path: Path) -> None:
        with closing(open_sqlite_target(tmp_path / "c.db")) as target:
            publish(target, [file_node(NodePath("/a"), large_binary())], deep("/"))
            for blob in (tmp_path / "c.db.blobs").rglob("*"):
                if blob.is_file():
                    blob.unlink()
            (node,) = content_of(target)
            assert node.data is not None
            with pytest.raises(BlobMissingError):
                node.data.open()
            shutil.rmtree(tmp_path / "c.db.blobs")  # as in a copy of the database alone
            with pytest.raises(BlobMissingError):
                node.data.open()

    def test_a_foreign_database_is_not_taken_over(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            connection.execute("CREATE TABLE precious (x)")
        with pytest.raises(UsageError, match="not one of Mailboat's"):
            open_sqlite_target(tmp_path / "other.db")

    def test_a_large_import_stays_within_one_write_ahead_log(self, tmp_path: Path) -> None:
        with closing(open_sqlite_target(tmp_path / "c.db")) as target:
            for offset in range(40):
                publish(target, [a_file(f"/{offset}/{n}", bytes(8000)) for n in range(40)], deep(f"/{offset}"), offset)
            assert (tmp_path / "c.db-wal").stat().st_size < 40 * 1024 * 1024
            assert source_digest(target.source()) == tree_digest(content_of(target))


def test_files_with_equal_bytes_are_staged_apart_also_after_a_restart(tmp_path: Path) -> None:
    place = f"files:{tmp_path / 'web'}"
    with closing(open_target(place)) as target:
        publish(target, [a_file("/f"), a_page("/f/meta", None)], deep("/"))
        with target.batch() as batch:
            batch.remove([NodePath("/f/meta")], Offset(1))
            batch.commit(at(2))
    with closing(open_target(place)) as target:
        publish(target, [a_page("/f/meta", None), a_file("/g")], deep("/f/meta", "/g"), 2)
        assert content_of(target) == [a_file("/f"), a_page("/f/meta", None), a_file("/g")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [(), ("meta",)])
def test_order_of_a_file_without_children_is_kept(tmp_path: Path, kind: str, order: tuple[str, ...]) -> None:
    node = replace(a_file("/f"), child_order=order)
    with closing(open_target(f"{kind}:{tmp_path / 'target'}")) as target:
        publish(target, [node], deep("/f"))
        assert content_of(target) == [node]


class InterruptedConnection:
    """A connection whose user presses Ctrl-C during a commit; Python says so before or behind the statement."""

    def __init__(self, connection: sqlite3.Connection, *, is_committed: bool) -> None:
        self._connection = connection
        self._is_committed = is_committed

    def execute(self, statement: str, *values: Any) -> Any:
        """See `sqlite3.Connection`."""
        if statement == "COMMIT" and not self._is_committed:
            raise KeyboardInterrupt
        found = self._connection.execute(statement, *values)
        if statement == "COMMIT":
            raise KeyboardInterrupt
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_commit_that_is_interrupted_is_shown_whole_or_not_at_all(
    tmp_path: Path, kind: str, is_committed: bool, is_closed: bool
) -> None:
    place = f"{kind}:{tmp_path / 'target'}"
    target = open_target(place)
    publish(target, [a_file("/a", b"old"), a_file("/removed")], deep("/"))
    parts = target._parts  # type: ignore[attr-defined]  # the one way to its connection
    interrupted = InterruptedConnection(parts.connection, is_committed=is_committed)
    target._parts = replace(parts, connection=interrupted)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        publish(target, [a_file("/a", b"new"), a_file("/b")], deep("/"), 1)
    target._parts = parts  # type: ignore[attr-defined]
    if is_closed:
        target.close()
        target = open_target(place)
    with closing(target):
        publish(target, [a_file("/c")], deep("/c"), 2)
        old = [a_file("/a", b"old"), a_file("/c"), a_file("/removed")]
        assert content_of(target) == ([a_file("/a", b"new"), a_file("/b"), a_file("/c")] if is_committed else old)


@pytest.mark.parametrize("kind", ["files", "generations"])
@pytest.mark.parametrize("data", [Binary(b"small"), large_binary()])
def test_a_file_is_a_file_again_when_its_last_child_is_removed(tmp_path: Path, kind: str, data: Binary) -> None:
    shown = tmp_path / "web" / ("current/f" if kind == "generations" else "f")
    with closing(open_target(f"{kind}:{tmp_path / 'web'}")) as target:
        publish(target, [file_node(NodePath("/f"), data)], deep("/"))
        publish(target, [a_page("/f/one", None), a_page("/f/two", None)], deep("/f/one", "/f/two"), 1)
        publish(target, [], deep("/f/one"), 2)
        assert sorted(path.name for path in shown.iterdir() if path.suffix != ".bin") == [".node.json", "two"]
        publish(target, [], deep("/f/two"), 3)
        assert shown.read_bytes() == data.open().read()
        assert content_of(target) == [file_node(NodePath("/f"), data)]


def sweep_blobs_of(folder: Path) -> int:
    """Sweep a target that never had a blob."""
    open_sqlite_target(folder / "none.db").close()
    return sweep_blobs(folder / "none.db")


@pytest.mark.parametrize("kind", ["files", "generations"])
class TestDisksThatIgnoreCase:
    """Where the target's state file is found by a name in other case, too: here by a second link to it."""

    @pytest.fixture
    def target(self, kind: str, tmp_path: Path) -> Iterator[Target]:
        place = f"{kind}:{tmp_path / 'web'}"
        with closing(open_target(place)) as target:
            publish(target, [a_folder("/en"), a_file("/en/News/a"), a_file("/en/x")], deep("/en"))
        os.link(tmp_path / "web/.mailboat/state.db", tmp_path / "web/.mailboat/STATE.DB")
        with closing(open_target(place)) as target:
            yield target

    @pytest.mark.parametrize("path", ["/en/news", "/en/news/a", "/en/News/A", "/.MailBoat", "/en/.Node.json"])
    def test_a_name_that_the_disk_takes_for_another_one_is_refused(self, target: Target, path: str) -> None:
        with pytest.raises(PathRefusedError, match="takes them for one") as caught:
            publish(target, [a_file(path)], shallow(path), 1)
        assert (caught.value.where["path"], target.ledger.position()) == (path, at(1))

    def test_names_within_one_package_are_compared(self, target: Target) -> None:
        with pytest.raises(PathRefusedError, match=r"'Caf.*' differ in case or Unicode form"):
            publish(target, [a_folder("/de"), a_file("/de/cafe\u0301"), a_file("/de/Caf\u00e9")], deep("/de"), 1)
        publish(target, [a_folder("/de"), a_file("/de/Caf\u00e9")], deep("/de"), 1)
        assert names_in(target) == ["/de", "/de/Caf\u00e9", "/en", "/en/News", "/en/News/a", "/en/x"]

    def test_names_beyond_those_that_are_remembered_are_compared(
        self, target: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mailboat.content.targets.disk_names._REMEMBERED", 0)
        nodes = [a_folder("/de"), a_file("/de/B/x"), a_file("/de/C/y"), a_file("/de/b")]
        with pytest.raises(PathRefusedError, match="'B' and 'b' differ in case"):
            publish(target, nodes, deep("/de"), 1)

    def test_a_name_in_other_case_may_follow_a_removed_one(self, target: Target) -> None:
        publish(target, [], deep("/en/News"), 1)
        publish(target, [a_file("/en/news")], shallow("/en/news"), 2)
        assert names_in(target) == ["/en", "/en/news", "/en/x"]


@pytest.mark.parametrize("kind", ["files", "generations"])
def test_names_that_differ_in_unicode_form_are_refused_where_the_disk_takes_them_for_one(
    kind: str, tmp_path: Path
) -> None:
    place = f"{kind}:{tmp_path / 'web'}"
    with closing(open_target(place)) as target:
        publish(target, [a_file("/caf\u00e9")], deep("/caf\u00e9"))
        publish(target, [a_file("/other\u00e9"), a_file("/othere\u0301")], deep("/other\u00e9", "/othere\u0301"), 1)
    (tmp_path / "web/.mailboat/staging/e\u0301").touch()  # by which such a disk is recognised
    with closing(open_target(place)) as target:
        with pytest.raises(PathRefusedError, match="takes them for one"):
            publish(target, [a_file("/cafe\u0301")], deep("/caf\u00e9", "/cafe\u0301"), 2)
        publish(target, [a_file("/CAF\u00c9")], deep("/CAF\u00c9"), 2)
        assert "/CAF\u00c9" in names_in(target)


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_of_a_target_is_as_large_as_its_largest_package_only_while_that_is_imported(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAL_KEPT_BYTES", 100_000)
    monkeypatch.setattr(database, "CHECKPOINT_PAGES", 10)
    pages = [a_page(f"/p/{number}", None, text="x" * 20_000) for number in range(100)]
    log = parse_target(f"{kind}:{tmp_path / 'target'}").database
    log = log.with_name(f"{log.name}-wal")
    with closing(open_target(f"{kind}:{tmp_path / 'target'}")) as target:
        publish(target, [a_folder("/p"), *pages], deep("/p"))
        assert log.stat().st_size > 1_000_000
        publish(target, [a_folder("/q")], deep("/q"), 1)
        assert log.stat().st_size < 200_000
        publish(target, [], deep("/p"), 2)  # what is removed is not overwritten
        assert log.stat().st_size < 400_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_on_a_disk_without_locks_leaves_nothing_open(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = os.listdir("/proc/self/fd")  # noqa: PTH208  # the handle of the listing itself is among them
    for _ in range(3):
        with pytest.raises(StorageFailedError, match="No locks available"):
            open_target(f"{kind}:{tmp_path / 'target'}")
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208


@pytest.mark.parametrize("kind", ["files", "generations"])
def test_a_target_that_could_not_be_opened_is_not_busy(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pathconf", refuse)
        with pytest.raises(StorageFailedError):
            open_target(f"{kind}:{tmp_path / 'target'}")
    open_target(f"{kind}:{tmp_path / 'target'}").close()


def test_generations_on_a_disk_without_symbolic_links_are_refused_before_anything_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "symlink", refuse)
    with pytest.raises(UsageError, match="has no symbolic links"):
        open_target(f"generations:{tmp_path / 'web'}")


def test_a_file_of_an_old_generation_that_nfs_keeps_for_its_reader_stops_no_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, **_: object) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), name)

    with closing(open_target(f"generations:{tmp_path / 'web'}")) as target:
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", refuse)
            for number in range(6):
                publish(target, [a_file(f"/{number}")], deep(f"/{number}"), number)
        discarded = tmp_path / "web/.mailboat/discarded"
        assert len(list(discarded.iterdir())) == 3
        publish(target, [a_file("/last")], deep("/last"), 6)
        assert len(names_in(target)) == 7
        assert (len(list((tmp_path / "web").glob("0*"))), discarded.exists()) == (3, False)


@pytest.mark.parametrize("kind", KINDS)
class TestAnyKind:
    def text(self, tmp_path: Path, kind: str) -> str:
        """The target of these tests."""
        return f"{kind}:{tmp_path / 'target'}"

    def test_the_ledger_can_be_read_and_asked_while_a_subscriber_imports(self, tmp_path: Path, kind: str) -> None:
        text = self.text(tmp_path, kind)
        with closing(open_target(text)) as target:
            target.ledger.claim(AgentName("edge"))
            with target.batch() as batch:
                batch.give_up(an_entry(3))
                batch.commit(at(4))
            with opened_ledger(text) as ledger:
                assert ledger.position() == at(4)
                ledger.request_redrive(Offset(3))
            assert target.ledger.redrives() == [an_entry(3)]

    def test_the_holder_of_the_lock_is_named(self, tmp_path: Path, kind: str) -> None:
        text = self.text(tmp_path, kind)
        with closing(open_target(text)), pytest.raises(TargetBusyError, match=str(os.getpid())):
            open_target(text)

    def test_a_newer_format_is_refused(self, tmp_path: Path, kind: str) -> None:
        text = self.text(tmp_path, kind)
        open_target(text).close()
        database = tmp_path / ("target" if kind == "sqlite" else "target/.mailboat/state.db")
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA user_version = 99")
        with pytest.raises(UsageError, match="format 99"):
            open_target(text)

    def test_a_target_of_another_kind_is_refused(self, tmp_path: Path, kind: str) -> None:
        if kind == "sqlite":
            open_target(f"files:{tmp_path / 'target'}").close()
            other = f"sqlite:{tmp_path / 'target/.mailboat/state.db'}"
        else:
            open_target(self.text(tmp_path, kind)).close()
            other = f"{'files' if kind == 'generations' else 'generations'}:{tmp_path / 'target'}"
        with pytest.raises(UsageError, match="kind"):
            open_target(other)

    def test_a_read_only_store_rolls_the_batch_back(self, tmp_path: Path, kind: str) -> None:
        with closing(open_target(self.text(tmp_path, kind))) as target:
            publish(target, sample_tree(), deep("/content"))
            connection = target._parts.connection  # type: ignore[attr-defined]  # the one way that works for root, too
            connection.execute("PRAGMA query_only = ON")
            with pytest.raises(StorageReadOnlyError):
                publish(target, [a_file("/other")], deep("/"), 1)
            connection.execute("PRAGMA query_only = OFF")
            assert target.ledger.position() == at(1)
            assert content_of(target) == sample_tree()
            publish(target, [a_file("/other")], deep("/"), 1)
            assert names_in(target) == ["/other"]

    def test_what_was_written_can_be_read_as_a_source_by_its_text(self, tmp_path: Path, kind: str) -> None:
        with closing(open_target(self.text(tmp_path, kind))) as target:
            publish(target, sample_tree(), deep("/content"))
        with closing(open_source(self.text(tmp_path, kind))) as source:
            assert list(source.walk(ROOT)) == sample_tree()
            assert source.uri == self.text(tmp_path, kind)

    def test_memory_grows_neither_with_a_binary_nor_with_the_tree(self, tmp_path: Path, kind: str) -> None:
        huge = tmp_path / "huge"
        with huge.open("wb") as file:
            file.truncate(48 * 1024 * 1024)
        with closing(open_source(str(tmp_path))) as source:
            node = source.node(NodePath("/huge"))
        assert node is not None
        assert node.data is not None
        with closing(open_target(self.text(tmp_path / "in", kind))) as target:
            tracemalloc.start()
            try:
                publish(target, [file_node(NodePath("/huge"), node.data)], deep("/"))
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        assert peak < 8 * 1024 * 1024
