"""Snapshots of targets: what is restored is what was there, with its position, or nothing is."""

from __future__ import annotations

import hashlib
import io
import json
import random
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from mailboat.cli.main import main
from mailboat.clock import SystemClock
from mailboat.content.locations import open_source, open_target, parse_target
from mailboat.content.port import GivenUp
from mailboat.content.snapshot_format import (
    MAGIC,
    MAX_DOCUMENT_BYTES,
    SnapshotCorruptError,
    SnapshotHead,
    SnapshotTail,
    opened_snapshot,
    write_snapshot,
)
from mailboat.content.views import TargetView
from mailboat.errors import (
    BlobMissingError,
    LimitExceededError,
    PackageCorruptError,
    PlaceUnusableError,
    SourceChangedError,
    SourceMissingError,
    StorageFailedError,
    StorageFullError,
    TargetBusyError,
    TargetCorruptError,
    UsageError,
)
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import Action, FailureCause
from mailboat.model.nodes import Binary, Node, Property, PropertyType, file_node, folder_node
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.positions import LogIdentity, Position
from mailboat.model.requests import DistributionRequest
from mailboat.operations import target_snapshots
from mailboat.operations.target_snapshots import TargetNotEmptyError, restore_snapshot, take_snapshot
from mailboat.subscriber.subscriber import Until
from mailboat.testing.memory_content import MemorySource
from mailboat.testing.target_contract import deep, publish
from support.engines import TARGET_KINDS, Engine, digest_of, memory_engine

LARGE = random.Random(5).randbytes(300_000)
IDENTITY = LogIdentity("cluster", "topic")
BOTH = (NodePath("/a"), NodePath("/page"))
EVERYTHING = DistributionRequest(Action.ADD, BOTH, frozenset(BOTH))


HEAD = {
    "cluster_id": "a",
    "topic_id": "b",
    "next_offset": 1,
    "leader_epoch": None,
    "given_up": [],
    "target": "",
    "taken_ms": 1,
}


def tree(text: str) -> MemorySource:
    """Ordered children, empty folders, a large binary, a file that is also inline."""
    return MemorySource(
        [
            folder_node(NodePath("/a")),
            folder_node(NodePath("/a/empty")),
            file_node(NodePath("/a/large.bin"), Binary(LARGE)),
            file_node(NodePath("/a/small.txt"), Binary(text.encode())),
            Node(
                NodePath("/page"),
                "cq:Page",
                properties=(
                    Property("title", (text,)),
                    Property("thumb", (Binary(LARGE[:90_000]),), PropertyType.BINARY),
                ),
                child_order=("zebra", "ant"),
            ),
            Node(NodePath("/page/zebra"), "nt:unstructured"),
            Node(NodePath("/page/ant"), "nt:unstructured"),
        ]
    )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with memory_engine(tmp_path / "engine") as engine:
        engine.publisher().publish(EVERYTHING, tree("one"))
        yield engine


def imported(engine: Engine, kind: str, name: str = "edge") -> str:
    """A target with all that was published; its location."""
    target = engine.target(kind, name)
    engine.subscriber(target).run(Until.CAUGHT_UP)
    target.close()
    return location(engine, kind, name)


def location(engine: Engine, kind: str, name: str) -> str:
    place = engine.folder / f"{name}-{kind}"
    return f"{kind}:{place / 'content.db' if kind == 'sqlite' else place}"


def content_of(target: str) -> str:
    return digest_of(open_source(target))


@pytest.mark.parametrize("to_kind", TARGET_KINDS)
@pytest.mark.parametrize("from_kind", TARGET_KINDS)
def test_a_restored_target_is_the_one_that_was_copied_and_goes_on(
    engine: Engine, tmp_path: Path, from_kind: str, to_kind: str
) -> None:
    source = imported(engine, from_kind)
    taken = take_snapshot(source, tmp_path / "snap", SystemClock())
    assert taken.head.position == engine.position(1)
    into = location(engine, to_kind, "new")
    restore_snapshot(tmp_path / "snap", into, None)
    assert content_of(into) == content_of(source) == taken.tail.tree_digest
    engine.publisher().publish(EVERYTHING, tree("two"))
    target = engine.target(to_kind, "new")
    assert target.ledger.position() == engine.position(1)
    statistics = engine.subscriber(target).run(Until.CAUGHT_UP)
    target.close()
    assert statistics.imported == 1
    assert content_of(into) == digest_of(tree("two"))


@pytest.mark.parametrize("kind", ["sqlite", "generations"])
def test_a_target_in_use_is_copied_as_of_its_last_commit(engine: Engine, tmp_path: Path, kind: str) -> None:
    text = imported(engine, kind)
    before = content_of(text)
    target = engine.target(kind)
    with target.batch() as batch:
        batch.remove([NodePath("/a")], Offset(1))
        taken = take_snapshot(text, tmp_path / "snap", SystemClock())
        batch.commit(engine.position(2))
    target.close()
    assert (taken.head.position, taken.tail.tree_digest) == (engine.position(1), before)


def test_commits_while_a_sqlite_target_is_copied_do_not_show(engine: Engine, tmp_path: Path) -> None:
    text = imported(engine, "sqlite")
    before = content_of(text)
    target = engine.target("sqlite")
    taken = _taken_during(target, text, tmp_path / "snap", engine)
    target.close()
    assert (taken.head.position, taken.tail.tree_digest) == (engine.position(1), before)
    assert content_of(text) != before


def _taken_during(target: Any, text: str, file: Path, engine: Engine) -> Any:
    """A snapshot in whose middle the subscriber commits."""
    write = target_snapshots._write_package

    def commit_first(view: Any, into: Any, watch: Any) -> SnapshotTail:
        with target.batch() as batch:
            batch.remove([NodePath("/a")], Offset(1))
            batch.commit(engine.position(2))
        return write(view, into, watch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_snapshots, "_write_package", commit_first)
        return take_snapshot(text, file, SystemClock())


def test_a_generation_that_is_thrown_away_while_it_is_copied_is_told(engine: Engine, tmp_path: Path) -> None:
    text = imported(engine, "generations")
    target = engine.target("generations")
    write = target_snapshots._write_package

    def overtake(view: Any, into: Any, watch: Any) -> SnapshotTail:
        for number in range(2, 7):
            with target.batch() as batch:
                change = [NodePath("/page/ant"), NodePath("/page/zebra"), NodePath("/a"), NodePath("/page")]
                batch.remove(change[number - 2 : number - 1], Offset(number))
                batch.commit(engine.position(number))
        return write(view, into, watch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_snapshots, "_write_package", overtake)
        with pytest.raises(SourceChangedError, match="the generation being read was removed"):
            take_snapshot(text, tmp_path / "snap", SystemClock())
    target.close()


def test_a_state_that_names_another_folder_is_not_copied(engine: Engine, tmp_path: Path) -> None:
    text = imported(engine, "generations")
    with closing(engine.target("generations")), closing(sqlite3.connect(parse_target(text).database)) as state:
        state.execute("UPDATE state SET generations = '..'")
        state.commit()
        with pytest.raises(TargetCorruptError, match=r"'\.\.', which is not a generation"):
            take_snapshot(text, tmp_path / "snap", SystemClock())
    assert not (tmp_path / "snap").exists()


def test_limits_of_packages_do_not_apply_to_what_a_target_holds() -> None:
    def refuse() -> BinaryIO:
        raise StorageFailedError("it is read")

    large = Binary(digest=bytes(32), length_bytes=1 << 50, opener=refuse)
    view = TargetView(
        MemorySource([file_node(NodePath("/a"), large)]), Position(LogIdentity("c", "t"), Offset(1)), (), frozenset()
    )
    with pytest.raises(StorageFailedError, match="it is read"):
        target_snapshots._write_package(view, io.BytesIO(), None)


def test_files_in_use_are_not_copied(engine: Engine, tmp_path: Path) -> None:
    text = imported(engine, "files")
    target = engine.target("files")
    with pytest.raises(TargetBusyError) as caught:
        take_snapshot(text, tmp_path / "snap", SystemClock())
    assert "generations: and sqlite: can be copied meanwhile" in str(caught.value.next_step)
    target.close()
    assert not (tmp_path / "snap").exists()


def test_what_a_target_lacks_stays_in_its_error_queue(engine: Engine, tmp_path: Path) -> None:
    text = imported(engine, "sqlite")
    cause = FailureCause("BlobMissing", "no blob", "/x", "trace")
    entry = GivenUp(Offset(1), PackageId("dstrpck-1"), AgentName("author"), (NodePath("/x"),), cause, 3, 77)
    with open_target(text).batch() as batch:
        batch.give_up(entry)
        batch.commit(engine.position(2))
    take_snapshot(text, tmp_path / "snap", SystemClock())
    restore_snapshot(tmp_path / "snap", f"files:{tmp_path / 'new'}", None)
    target = open_target(f"files:{tmp_path / 'new'}")
    assert target.ledger.given_up() == [entry]
    assert target.ledger.subscriber() is None
    target.close()


def test_an_empty_tree_is_a_snapshot_too(engine: Engine, tmp_path: Path) -> None:
    text = f"sqlite:{tmp_path / 'empty.db'}"
    target = open_target(text)
    with target.batch() as batch:
        batch.commit(engine.position(9))
    target.close()
    taken = take_snapshot(text, tmp_path / "snap", SystemClock())
    restore_snapshot(tmp_path / "snap", f"generations:{tmp_path / 'new'}", None)
    assert taken.tail.node_count == 0
    assert content_of(f"generations:{tmp_path / 'new'}") == content_of(text)


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_restore_brings_back_what_was_lost_or_damaged_on_the_disk(engine: Engine, tmp_path: Path, kind: str) -> None:
    into = imported(engine, kind)
    before = content_of(into)
    take_snapshot(into, tmp_path / "snap", SystemClock())
    place = parse_target(into).path
    if kind == "sqlite":
        for blob in Path(f"{place}.blobs").glob("sha256/*/*"):
            blob.write_bytes(bytes(blob.stat().st_size))
    else:
        shown = place / "current" if kind == "generations" else place
        (shown / "a/small.txt").unlink()
        (shown / "page/ant/.node.json").unlink()
        (shown / "a/large.bin").write_bytes(b"x" * len(LARGE))
    request = target_snapshots.RestoreRequest("snap", 1, is_replacing=True)
    restore_snapshot(tmp_path / "snap", into, None, request=request)
    assert content_of(into) == before
    with closing(open_source(into)) as source:
        node = source.node(NodePath("/a/large.bin"))
        assert node is not None
        assert node.data is not None
        assert node.data.open().read() == LARGE


@pytest.mark.parametrize("kind", ["files", "generations"])
@pytest.mark.parametrize("damage", [b"", b"x", b"other of its size", None])
def test_a_snapshot_has_what_was_imported_or_is_refused(
    engine: Engine, tmp_path: Path, kind: str, damage: bytes | None
) -> None:
    engine.publisher().publish(EVERYTHING, tree("content of a file"))
    text = imported(engine, kind)
    before = content_of(text)
    shown = parse_target(text).path / ("current" if kind == "generations" else "")
    (shown / ".well-known").mkdir()
    (shown / ".well-known/of-others").touch()
    assert take_snapshot(text, tmp_path / "snap", SystemClock()).tail.tree_digest == before
    whole = (tmp_path / "snap").read_bytes()
    (shown / "a/small.txt").unlink()
    if damage is not None:
        (shown / "a/small.txt").write_bytes(damage)
    with pytest.raises(TargetCorruptError, match=r"at /a/small\.txt is lost or damaged"):
        take_snapshot(text, tmp_path / "snap", SystemClock())
    assert (tmp_path / "snap").read_bytes() == whole


F = NodePath("/d/f")
DATA = Binary(LARGE[:70_000])
SHAPES = {
    "file": [file_node(F, DATA)],
    "other-file": [file_node(F, Binary(LARGE[:60_000]))],
    "with-child": [file_node(F, DATA), Node(NodePath("/d/f/x"), "nt:unstructured")],
    "with-mixin": [Node(F, "nt:file", ("mix:title",), file_node(F, DATA).properties)],
    "page": [Node(F, "cq:Page", properties=(Property("image", (DATA,), PropertyType.BINARY),))],
    "none": [],
}


@pytest.mark.parametrize("kind", ["files", "generations"])
@pytest.mark.parametrize("after", SHAPES)
@pytest.mark.parametrize("before", SHAPES)
def test_a_restore_leaves_files_in_place_that_are_right(tmp_path: Path, kind: str, before: str, after: str) -> None:
    wanted, into = f"{kind}:{tmp_path / 'wanted'}", f"{kind}:{tmp_path / 'into'}"
    for text, shape in ((wanted, after), (into, before)):
        with closing(open_target(text)) as target:
            publish(target, [folder_node(NodePath("/d")), *SHAPES[shape]], deep("/d"))
    take_snapshot(wanted, tmp_path / "snap", SystemClock())
    shown = tmp_path / "into" / ("current/d/f" if kind == "generations" else "d/f")
    number = shown.stat().st_ino if shown.is_file() else None
    request = target_snapshots.RestoreRequest("snap", 1, is_replacing=True)
    restore_snapshot(tmp_path / "snap", into, None, request=request)
    assert content_of(into) == content_of(wanted)
    if before == after == "file":  # kept as it is: a restore needs no room for a second copy
        assert shown.stat().st_ino == number


def test_restores_of_one_snapshot_leave_kept_generations_to_their_readers(engine: Engine, tmp_path: Path) -> None:
    into = imported(engine, "generations")
    place = parse_target(into).path
    take_snapshot(into, tmp_path / "snap", SystemClock())
    for _ in range(3):
        before = {each.name: each.stat().st_ino for each in place.glob("0*")}
        request = target_snapshots.RestoreRequest("snap", 1, is_replacing=True)
        restore_snapshot(tmp_path / "snap", into, None, request=request)
        after = {each.name: each.stat().st_ino for each in place.glob("0*")}
        assert {name: after.get(name, number) for name, number in before.items()} == before
        assert (place / "current").readlink().name not in before


def test_folder_in_the_place_of_a_database_is_not_called_a_link_to_remove(snap: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(PlaceUnusableError, match="data is a folder"):
        restore_snapshot(snap, f"sqlite:{tmp_path / 'data'}", None)
    assert not (tmp_path / "data.lock").exists()


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.fixture
def snap(engine: Engine, tmp_path: Path) -> Path:
    take_snapshot(imported(engine, "sqlite"), tmp_path / "snap", SystemClock())
    return tmp_path / "snap"


def test_a_snapshot_that_is_damaged_anywhere_is_refused_before_anything_is_made(snap: Path, tmp_path: Path) -> None:
    whole = snap.read_bytes()
    chance = random.Random(1)
    places = [0, len(MAGIC), len(MAGIC) + 2, len(whole) - 1, len(whole) - 33, len(whole) - 40]
    for at in [*places, *(chance.randrange(len(whole)) for _ in range(60))]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        snap.write_bytes(damaged)
        with pytest.raises(SnapshotCorruptError):
            restore_snapshot(snap, f"sqlite:{tmp_path / 'new.db'}", None)
    assert not (tmp_path / "new.db").exists()


def test_a_snapshot_whose_head_is_nested_without_end_is_refused_by_name(tmp_path: Path) -> None:
    head, length = b"[" * 200_000, struct.Struct(">I")
    body = MAGIC + length.pack(len(head)) + head + b"{}" + length.pack(2)
    file = tmp_path / "nested.snap"
    file.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(SnapshotCorruptError, match=r"nested\.snap"), opened_snapshot(file):
        pass


def test_a_snapshot_that_could_not_be_restored_is_not_written(tmp_path: Path) -> None:
    cause = FailureCause("PackageCorrupt", "x" * MAX_DOCUMENT_BYTES)
    entry = GivenUp(Offset(0), PackageId("p"), None, (), cause, 1, 0)
    head = SnapshotHead(Position(IDENTITY, Offset(1)), (entry,), "sqlite:edge.db", 0)
    with pytest.raises(LimitExceededError, match="the error queue of sqlite:edge"):
        write_snapshot(tmp_path / "snap", head, lambda _: SnapshotTail(0, 0, ""))
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_with_a_tail_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    head, length = json.dumps(HEAD).encode(), struct.Struct(">I")
    body = MAGIC + length.pack(len(head)) + head + length.pack(2**32 - 1)
    file = tmp_path / "long.snap"
    file.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(SnapshotCorruptError, match="a tail of 4294967295 bytes"), opened_snapshot(file):
        pass


def test_a_snapshot_that_was_cut_or_grew_is_refused(snap: Path, tmp_path: Path) -> None:
    whole = snap.read_bytes()
    chance = random.Random(2)
    for content in [b"", whole[:5], whole + b"\0", *(whole[: chance.randrange(len(whole))] for _ in range(30))]:
        snap.write_bytes(content)
        with pytest.raises(SnapshotCorruptError):
            restore_snapshot(snap, f"files:{tmp_path / 'new'}", None)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "head",
    [
        b"[]",
        b"not json",
        b'{"cluster_id": 5}',
        json.dumps({**HEAD, "next_offset": -1}).encode(),
        json.dumps({**HEAD, "taken_ms": 1 << 62}).encode(),
        json.dumps({**HEAD, "given_up": [{}]}).encode(),
        json.dumps({**HEAD, "passed_over": ["\ud800"]}).encode(),
    ],
)
def test_a_head_that_says_nonsense_is_refused_though_its_digest_fits(tmp_path: Path, head: bytes) -> None:
    tail = json.dumps({"package_bytes": 0, "node_count": 0, "tree_digest": ""}).encode()
    data = MAGIC + struct.pack(">I", len(head)) + head + tail + struct.pack(">I", len(tail))
    (tmp_path / "snap").write_bytes(data + hashlib.sha256(data).digest())
    with pytest.raises(SnapshotCorruptError, match="understood"):
        restore_snapshot(tmp_path / "snap", f"sqlite:{tmp_path / 'new.db'}", None)


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_a_package_that_is_refused_leaves_a_target_without_content_or_position(tmp_path: Path, kind: str) -> None:
    head = SnapshotHead(Position(IDENTITY, Offset(5)), (), "files:x", 1)

    def write(into: Any) -> SnapshotTail:
        into.write(b"no package at all")
        return SnapshotTail(17, 1, "00")

    write_snapshot(tmp_path / "snap", head, write)
    into = f"{kind}:{tmp_path / 'new'}"
    with pytest.raises(PackageCorruptError):
        restore_snapshot(tmp_path / "snap", into, None)
    target = open_target(into)
    assert target.ledger.position() is None
    assert list(target.source().walk(ROOT)) == []
    target.close()


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_a_target_with_content_is_not_restored_into(engine: Engine, snap: Path, kind: str) -> None:
    into = imported(engine, kind, "other")
    before = content_of(into)
    with pytest.raises(TargetNotEmptyError):
        restore_snapshot(snap, into, None)
    assert content_of(into) == before


def test_a_new_target_that_no_one_used_yet_is_restored_into(snap: Path, tmp_path: Path) -> None:
    into = f"sqlite:{tmp_path / 'new.db'}"
    open_target(into).close()
    restore_snapshot(snap, into, None)
    assert sum(1 for _ in open_source(into).walk(ROOT)) == 7


def test_a_snapshot_that_fails_leaves_what_was_there(
    engine: Engine, snap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snap.read_bytes()
    text = location(engine, "sqlite", "edge")
    for blob in Path(f"{text.removeprefix('sqlite:')}.blobs").glob("sha256/*/*"):
        blob.unlink()
    with pytest.raises(BlobMissingError):
        take_snapshot(text, snap, SystemClock())
    assert snap.read_bytes() == before
    assert [file.name for file in snap.parent.iterdir() if file.name.startswith(".snap")] == []


def test_a_full_disk_is_named_and_leaves_no_snapshot(tmp_path: Path) -> None:
    head = SnapshotHead(Position(IDENTITY, Offset(5)), (), "files:x", 1)

    def write(_: Any) -> SnapshotTail:
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageFullError):
        write_snapshot(tmp_path / "snap", head, write)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_target_or_was_never_imported_into_is_told(tmp_path: Path) -> None:
    text = f"sqlite:{tmp_path / 'none.db'}"
    with pytest.raises(SourceMissingError):
        take_snapshot(text, tmp_path / "snap", SystemClock())
    assert not (tmp_path / "none.db").exists()
    open_target(text).close()
    with pytest.raises(UsageError, match="no position"):
        take_snapshot(text, tmp_path / "snap", SystemClock())
    with pytest.raises(UsageError, match=r"the snapshot file .*missing does not exist"):
        restore_snapshot(tmp_path / "missing", text, None)


def test_the_package_of_a_snapshot_reads_like_a_file(snap: Path) -> None:
    with opened_snapshot(snap) as snapshot:
        package = snapshot.package
        content = package.read()
        assert len(content) == snapshot.tail.package_bytes
        assert (package.seek(10), package.read(5)) == (10, content[10:15])
        assert (package.seek(-3, io.SEEK_END), package.read()) == (len(content) - 3, content[-3:])
        assert package.seek(len(content) + 50) >= len(content)
        assert package.read() == b""


# --------------------------------------------------------------------------------------------------- the command line


def test_the_commands_copy_a_target_and_say_where_it_stands(boat: Any, tmp_path: Path) -> None:
    source, file, into = seeded(boat, tmp_path)
    ran = boat.do("content", "snapshot", source, file)
    assert ran.lines[0] == f"{source}: snapshot {file}, at offset 1"
    ran = boat.run("content", "snapshot", source, file)
    assert (ran.code, "is there already" in ran.err) == (2, True)
    boat.do("content", "snapshot", source, file, "--force")
    document = boat.json("content", "restore", file, "--into", into)
    assert (document["next_offset"], document["target"], document["given_up"]) == (1, source, 0)
    boat.do("publish", tmp_path / "site", "/page.html")
    boat.do("subscribe", "new", "--into", into, "--until", "caught-up")
    assert boat.do("content", "diff", source, into).code == 0


def seeded(boat: Any, tmp_path: Path) -> tuple[str, Path, str]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/page.html").write_text("page")
    boat.do("publish", tmp_path / "site", "/page.html")
    source = f"files:{tmp_path / 'edge'}"
    boat.do("subscribe", "edge", "--into", source, "--until", "caught-up")
    return source, tmp_path / "edge.snapshot", f"sqlite:{tmp_path / 'new.db'}"


def test_the_content_of_a_target_is_replaced_when_a_person_says_so(boat: Any, tmp_path: Path) -> None:
    site, into = tmp_path / "site", f"sqlite:{tmp_path / 'web.db'}"
    site.mkdir()
    for number, name in enumerate(("a", "b")):
        (site / f"{name}.txt").write_text(name)
        boat.do("publish", site, f"/{name}.txt")
        boat.do("subscribe", "web", "--into", into, "--until", "caught-up")
        boat.do("content", "snapshot", into, tmp_path / f"snapshot-{number}")
    restore = ("content", "restore", tmp_path / "snapshot-0", "--into", into)
    refused = boat.run(*restore)
    assert (refused.code, "or replace the content: --replace" in refused.err) == (2, True)
    refused = boat.run(*restore, "--replace")
    assert (refused.code, "refusing without confirmation: not a terminal" in refused.err) == (2, True)
    assert boat.json("content", "ls", into)[0]["path"] == "/a.txt"
    refused = boat.run(*restore[:-1], f"sqlite:{tmp_path / 'typo.db'}", "--replace", "--yes")
    assert (refused.code, "is not a target yet: there is nothing to replace" in refused.err) == (2, True)
    assert not (tmp_path / "typo.db").exists()
    assert boat.json(*restore, "--replace", "--yes")["next_offset"] == 1
    assert [node["path"] for node in boat.json("content", "ls", into)] == ["/a.txt"]
    assert "1 package imported, at offset 2" in boat.do("subscribe", "web", "--into", into, "--until", "caught-up").out


def test_a_snapshot_of_another_journal_is_refused_by_the_home(boat: Any, command_line: Any, tmp_path: Path) -> None:
    source, file, into = seeded(boat, tmp_path)
    boat.do("content", "snapshot", source, file)
    other = command_line(tmp_path / "other")
    other.do("init")
    ran = other.run("content", "restore", file, "--into", into)
    assert (ran.code, "JournalReplaced" in ran.err) == (6, True)
    assert not (tmp_path / "new.db").exists()
    ran = other.do("content", "restore", file, "--into", into, "--any-journal")
    assert "is seen when a subscriber starts on it" in ran.err
    ran = other.run("subscribe", "new", "--into", into, "--until", "caught-up")
    assert (ran.code, "JournalReplaced" in ran.err) == (6, True)


def test_a_snapshot_that_the_log_has_left_behind_is_refused_and_the_way_out_is_named(boat: Any, tmp_path: Path) -> None:
    source, file, into = seeded(boat, tmp_path)
    boat.do("content", "snapshot", source, file)
    for _ in range(3):
        boat.do("publish", tmp_path / "site", "/page.html")
    boat.do("journal", "truncate", "--before", "3", "--yes")
    ran = boat.run("content", "restore", file, "--into", into)
    assert (ran.code, "JournalTrimmed" in ran.err) == (6, True)
    ran = boat.run("subscribe", "edge", "--into", source, "--until", "caught-up")
    assert "mailboat content restore FILE --into TARGET" in ran.err


def test_without_a_home_the_position_is_left_to_the_subscriber(
    boat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, file, into = seeded(boat, tmp_path)
    boat.do("content", "snapshot", source, file)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["content", "restore", str(file), "--into", into]) == 0
    assert (tmp_path / "new.db").exists()
