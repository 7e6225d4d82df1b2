"""Another process exchanges files and folders of targets and sources: nothing outside is read, written or removed."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from mailboat.content.locations import open_target
from mailboat.content.port import Target
from mailboat.content.sources.folder import FolderSource
from mailboat.content.targets.generations import open_generations_source
from mailboat.errors import MailboatError, SourceChangedError, StopError, TargetCorruptError
from mailboat.model.nodes import Node, file_node
from mailboat.model.paths import ROOT, NodePath
from mailboat.testing.target_contract import deep, publish
from mailboat.testing.trees import a_file, a_folder, large_binary

AT_FDCWD = -100
RENAME_EXCHANGE = 2
EXCHANGES = 4000
SECRET = b"secret of another user"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """What no one who writes into a target or a source may reach through Mailboat."""
    folder = tmp_path / "victim"
    (folder / "d").mkdir(parents=True)
    (folder / "d/k").write_bytes(SECRET)
    (folder / "keep").write_bytes(SECRET)
    return folder


def told(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


def exchange(one: Path, other: Path) -> None:
    """Let two entries swap their names in one step."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), one)


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Swap two entries again and again while the body runs; an even number of times, and boundedly often."""
    is_over = threading.Event()

    def run() -> None:
        for _ in range(EXCHANGES):
            if is_over.is_set():
                return
            for _ in range(2):
                with suppress(FileNotFoundError):
                    exchange(one, other)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def pages(number: int) -> list[Node]:
    """Content that differs from round to round, with a binary that is staged as a file."""
    return [
        a_folder("/en"),
        a_file("/en/a", b"%d" % number),
        file_node(NodePath("/en/b"), large_binary(b"%d" % number)),
    ]


@pytest.mark.parametrize("kind", ["files", "generations"])
@pytest.mark.parametrize(
    "place", [".mailboat", ".mailboat/staging", ".mailboat/building", ".mailboat/discarded", ".mailboat/linked"]
)
@pytest.mark.parametrize("is_open", [True, False])
def test_link_in_place_of_a_state_folder_reaches_nothing(
    tmp_path: Path, victim: Path, kind: str, place: str, *, is_open: bool
) -> None:
    root, before = tmp_path / "web", told(victim)
    target = open_target(f"{kind}:{root}")
    publish(target, pages(0), deep("/"))
    if not is_open:
        target.close()
    shutil.rmtree(root / place, ignore_errors=True)
    (root / place).symlink_to(victim)
    with suppress(MailboatError):
        if not is_open:
            target = open_target(f"{kind}:{root}")
        publish(target, pages(1), deep("/"), 1)
    with suppress(MailboatError):
        target.close()
    assert told(victim) == before


@pytest.mark.parametrize("kind", ["files", "generations"])
@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm", "lock"])
@pytest.mark.parametrize("is_fifo", [True, False])
def test_link_or_fifo_in_place_of_a_state_file_is_refused(
    tmp_path: Path, victim: Path, kind: str, name: str, *, is_fifo: bool
) -> None:
    root, before = tmp_path / "web", told(victim)
    with closing(open_target(f"{kind}:{root}")) as target:
        publish(target, pages(0), deep("/"))
    (root / ".mailboat" / name).unlink(missing_ok=True)
    if is_fifo:
        os.mkfifo(root / ".mailboat" / name)
    else:
        (root / ".mailboat" / name).symlink_to(victim / "keep")
    is_replaced = is_fifo and name.endswith("-wal")  # by SQLite, which takes it for an empty log
    with nullcontext() if is_replaced else pytest.raises(MailboatError):
        open_target(f"{kind}:{root}").close()
    assert told(victim) == before


@pytest.mark.parametrize("place", ["t.db.blobs", "t.db.blobs/sha256", "t.db.blobs/drafts"])
def test_link_in_place_of_a_blob_folder_receives_no_blob(tmp_path: Path, victim: Path, place: str) -> None:
    before = told(victim)
    with closing(open_target(f"sqlite:{tmp_path / 't.db'}")) as target:
        publish(target, pages(0), deep("/"))
    shutil.rmtree(tmp_path / place)
    (tmp_path / place).symlink_to(victim)
    with closing(open_target(f"sqlite:{tmp_path / 't.db'}")) as target, pytest.raises(StopError, match="is a link"):
        publish(target, pages(1), deep("/"), 1)
    assert told(victim) == before


def test_link_to_another_database_is_not_a_target(tmp_path: Path) -> None:
    with closing(open_target(f"sqlite:{tmp_path / 'other.db'}")) as target:
        publish(target, pages(0), deep("/"))
    (tmp_path / "t.db").symlink_to("other.db")
    with pytest.raises(TargetCorruptError, match="is a link"):
        open_target(f"sqlite:{tmp_path / 't.db'}")


def test_current_that_leads_to_no_generation_is_not_read(tmp_path: Path, victim: Path) -> None:
    with closing(open_target(f"generations:{tmp_path / 'web'}")) as target:
        publish(target, pages(0), deep("/"))
    (tmp_path / "web/current").unlink()
    (tmp_path / "web/current").symlink_to(victim)
    with pytest.raises(TargetCorruptError, match="which is not a generation"):
        open_generations_source(tmp_path / "web")
    with closing(open_target(f"generations:{tmp_path / 'web'}")) as target, closing(target.source()) as source:
        assert source.node(NodePath("/en/a")) == a_file("/en/a", b"0")  # the subscriber has made it again


def import_in_a_race(target: Target, rounds: int) -> None:
    """Publish again and again, whatever is refused."""
    for number in range(1, rounds):
        with suppress(MailboatError):
            publish(target, pages(number), deep("/"), number)


@pytest.mark.parametrize("kind", ["files", "generations"])
@pytest.mark.parametrize("place", [".mailboat", ".mailboat/staging", ".mailboat/building"])
def test_state_folder_exchanged_with_a_link_while_importing_reaches_nothing(
    tmp_path: Path, victim: Path, kind: str, place: str
) -> None:
    root, before = tmp_path / "web", told(victim)
    target = open_target(f"{kind}:{root}")
    publish(target, pages(0), deep("/"))
    (root / place).mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to(victim)
    with exchanging(root / place, tmp_path / "link"):
        import_in_a_race(target, 12)
    with suppress(MailboatError):
        target.close()
    assert told(victim) == before


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A source whose files and folders are exchanged."""
    folder = tmp_path / "site"
    (folder / "d").mkdir(parents=True)
    (folder / "keep").write_bytes(b"own")
    (folder / "d/k").write_bytes(b"own")
    return folder


def bytes_of(source: FolderSource, path: str) -> bytes:
    """What a walk reads of one file."""
    (node,) = source.walk(NodePath(path))
    assert node.data is not None
    with node.data.open() as stream:
        return stream.read()


@pytest.mark.parametrize(("name", "path"), [("keep", "/keep"), ("d", "/d/k")])
def test_source_exchanged_with_a_link_never_gives_what_the_link_leads_to(
    site: Path, victim: Path, tmp_path: Path, name: str, path: str
) -> None:
    (tmp_path / "link").symlink_to(victim / name)
    with exchanging(site / name, tmp_path / "link"):
        for _ in range(300):
            with suppress(MailboatError, ValueError):
                assert bytes_of(FolderSource(site), path) == b"own"
    assert bytes_of(FolderSource(site), path) == b"own"


def test_large_source_file_exchanged_with_a_link_is_not_read(site: Path, victim: Path, tmp_path: Path) -> None:
    for file in (site / "keep", victim / "keep"):
        file.write_bytes(SECRET * 5000)
        os.utime(file, (1, 1))
    (node,) = FolderSource(site).walk(NodePath("/keep"))
    assert node.data is not None
    (site / "keep").unlink()
    (site / "keep").symlink_to(victim / "keep")
    with pytest.raises(SourceChangedError, match="is a link"):
        node.data.open()


def test_source_file_exchanged_with_a_fifo_does_not_hang_its_reader(site: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with exchanging(site / "keep", tmp_path / "fifo"):
        for _ in range(300):
            with suppress(MailboatError, ValueError):
                assert bytes_of(FolderSource(site), "/keep") == b"own"
    assert bytes_of(FolderSource(site), "/keep") == b"own"


def test_folder_exchanged_with_a_link_during_a_walk_is_read_as_it_was_and_refused(site: Path, victim: Path) -> None:
    walk = FolderSource(site).walk(ROOT)
    assert next(walk).path == "/d"
    (site / "d").rename(site / "old")
    (site / "d").symlink_to(victim / "d")
    read = list[Node]()
    with pytest.raises(MailboatError, match="leads outside"):
        read.extend(iter(walk))
    assert read == [a_file("/d/k", b"own")]
    with pytest.raises(MailboatError, match="leads outside"):
        list(FolderSource(site).walk(ROOT))


@pytest.mark.parametrize("kind", ["files", "generations", "sqlite"])
def test_state_is_private_and_content_readable_whatever_the_umask(tmp_path: Path, kind: str) -> None:
    before = os.umask(0)
    try:
        with closing(open_target(f"{kind}:{tmp_path / 'web'}")) as target:
            publish(target, pages(0), deep("/"))
    finally:
        os.umask(before)
    entries = [path for path in tmp_path.rglob("*") if not path.is_symlink()]
    assert [path for path in entries if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)] == []
    private = [path for path in entries if ".mailboat" in path.parts or path.name.endswith((".lock", "drafts"))]
    assert [path for path in private if path.stat().st_mode & 0o077 and "nothing" not in path.parts] == []
    content = [path for path in entries if path.name in {"en", "a", "b", "web", "web.blobs", "sha256"}]
    assert content
    assert [path for path in content if not path.stat().st_mode & stat.S_IROTH] == []
