"""Snapshots in the blob store, a folder or a real S3 server: found by name, kept by sweeps, seeded from."""

from __future__ import annotations

import hashlib
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.clock import SystemClock
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.content.locations import open_source
from mailboat.maintenance.blob_sweep import sweep
from mailboat.operations.stored_snapshots import restore_stored, store_snapshot, stored_snapshot
from mailboat.testing.clocks import ManualClock
from support.engines import digest_of
from support.s3_server import ADMIN, S3Server, ignore_server_time


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.server("s3_server"))])
def home(boat: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A home with two packages and a subscriber that has the first of them."""
    if request.param == "s3":
        use_bucket(boat.home, request.getfixturevalue("s3_server"), hashlib.sha256(str(tmp_path).encode()).hexdigest())
    site = tmp_path / "site"
    site.mkdir()
    (site / "a.txt").write_text("one")
    boat.do("publish", site, "/a.txt")
    boat.do("subscribe", "first", "--into", f"files:{tmp_path / 'first'}", "--until", "caught-up")
    (site / "b.txt").write_text("two")
    boat.do("publish", site, "/b.txt")
    boat.do("subscribe", "second", "--into", f"generations:{tmp_path / 'second'}", "--until", "caught-up")
    return Path(boat.home)


def use_bucket(home: Path, server: S3Server, prefix: str) -> None:
    (home / "key").write_text(f"{ADMIN.access_key_id}\n")
    (home / "secret").write_text(f"{ADMIN.secret_access_key}\n")
    place = {"bucket": server.bucket, "prefix": f"{prefix}/", "endpoint_url": server.url, "region": "us-east-1"}
    keys = {"access_key_id": {"file": "key"}, "secret_access_key": {"file": "secret"}}
    document = yaml.safe_load((home / "mailboat.yaml").read_text()) or {}
    document["blobs"] = {"s3": {**place, "path_style": True, **keys}}
    (home / "mailboat.yaml").write_text(yaml.safe_dump(document))


def test_a_new_member_begins_where_the_snapshot_of_its_pool_stands(home: Path, boat: Any, tmp_path: Path) -> None:
    stored = boat.json("content", "snapshot", f"generations:{tmp_path / 'second'}", "blob:edge")
    assert (stored["stored"], stored["next_offset"]) == (True, 2)
    into = f"sqlite:{tmp_path / 'third.db'}"
    restored = boat.json("content", "restore", "blob:edge", "--into", into)
    assert restored["next_offset"] == 2
    assert digest_of(open_source(into)) == digest_of(open_source(f"generations:{tmp_path / 'second'}"))
    boat.do("subscribe", "third", "--into", into, "--until", "caught-up")
    assert list((home / "snapshots").iterdir()) == []


def test_a_name_is_moved_on_only(home: Path, boat: Any, tmp_path: Path) -> None:  # made by it
    second, first = f"generations:{tmp_path / 'second'}", f"files:{tmp_path / 'first'}"
    newest = boat.json("content", "snapshot", second, "blob:edge")
    assert boat.json("content", "snapshot", first, "blob:edge") == newest | {"stored": False}
    assert "is current: it is at offset 2" in boat.do("content", "snapshot", second, "blob:edge").out
    forced = boat.json("content", "snapshot", first, "blob:edge", "--force")
    assert (forced["stored"], forced["next_offset"]) == (True, 1)
    assert boat.json("content", "snapshot", second, "blob:edge")["stored"]


def test_a_name_that_another_member_moved_on_during_the_copy_stays_there(home: Path, tmp_path: Path) -> None:
    with Workspace(Home(home)) as workspace:

        class Overtaken:
            def begin(self, phase: str, _total_bytes: int | None = None) -> None:
                if phase == "storing":
                    store_snapshot(f"generations:{tmp_path / 'second'}", "edge", workspace)

            def advance(self, count: int) -> None:
                pass

        late = store_snapshot(f"files:{tmp_path / 'first'}", "edge", workspace, phases=Overtaken())
        assert (late.is_new, late.stored.next_offset) == (False, 2)
        assert stored_snapshot(workspace.blobs, "edge").next_offset == 2


def test_snapshots_are_listed_until_they_are_forgotten(home: Path, boat: Any, tmp_path: Path) -> None:
    assert boat.json("content", "snapshots") == []
    stored = boat.json("content", "snapshot", f"files:{tmp_path / 'first'}", "blob:edge")
    del stored["stored"]
    assert boat.json("content", "snapshots") == [stored]
    assert "blob:edge" in boat.do("content", "snapshots").out
    boat.do("content", "snapshots", "--remove", "edge")
    assert boat.json("content", "snapshots") == []
    missing = boat.run("content", "snapshots", "--remove", "edge")
    assert missing.code != 0
    assert "SnapshotMissing" in missing.err


def test_a_document_that_cannot_be_read_hides_no_other_snapshot(home: Path, boat: Any, tmp_path: Path) -> None:
    boat.json("content", "snapshot", f"files:{tmp_path / 'first'}", "blob:edge")
    with Workspace(Home(home)) as workspace:
        workspace.blobs.documents.write("bad", b'{"sha256": "00"}')
    bad, good = boat.json("content", "snapshots")
    assert (bad["snapshot"], bad["error"], bad["bytes"]) == ("blob:bad", "SnapshotCorrupt", None)
    assert "--remove bad" in bad["next_step"]
    assert (good["snapshot"], good["error"], good["next_offset"]) == ("blob:edge", None, 1)
    assert "SnapshotCorrupt" in boat.do("content", "snapshots").out


def test_a_sweep_keeps_what_a_name_stands_for_and_removes_what_it_stood_for(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignore_server_time(monkeypatch)
    with Workspace(Home(home)) as workspace:
        first = store_snapshot(f"files:{tmp_path / 'first'}", "edge", workspace).stored
        second = store_snapshot(f"generations:{tmp_path / 'second'}", "edge", workspace).stored
    assert first.digest != second.digest
    with Workspace(Home(home), ManualClock(SystemClock().now() + timedelta(days=10))) as workspace:
        report = sweep(workspace)
        assert (report.snapshots, report.removed) == (1, 1)
        assert workspace.blobs.stat(first.digest) is None
        assert workspace.blobs.stat(second.digest) is not None


def test_a_snapshot_whose_blob_is_gone_is_stored_again(home: Path, tmp_path: Path) -> None:
    target = f"files:{tmp_path / 'first'}"
    with Workspace(Home(home)) as workspace:
        first = store_snapshot(target, "edge", workspace).stored
        assert not store_snapshot(target, "edge", workspace).is_new
        workspace.blobs.delete(first.digest)
        again = store_snapshot(target, "edge", workspace)
        assert again.is_new
        assert workspace.blobs.stat(again.stored.digest) is not None
        assert stored_snapshot(workspace.blobs, "edge") == again.stored


def test_storing_and_restoring_tell_their_phases_and_bytes(home: Path, tmp_path: Path) -> None:
    told: dict[str, list[int | None]] = {}

    class Recorder:
        def begin(self, phase: str, total_bytes: int | None = None) -> None:
            told[phase] = [total_bytes, 0]

        def advance(self, count: int) -> None:
            total, done = list(told.values())[-1]
            told[list(told)[-1]] = [total, (done or 0) + count]

    recorder = Recorder()
    recorder.begin("copying")
    with Workspace(Home(home)) as workspace:
        stored = store_snapshot(f"files:{tmp_path / 'first'}", "edge", workspace, phases=recorder).stored
        restore_stored("edge", f"files:{tmp_path / 'again'}", workspace, phases=recorder)
    assert list(told) == ["copying", "storing", "fetching", "restoring"]
    whole = [stored.length_bytes, stored.length_bytes]
    assert (told["storing"], told["fetching"]) == (whole, whole)
    assert told["copying"][1]
    assert told["restoring"][1]


def test_a_name_that_no_one_understands_keeps_a_sweep_from_removing_anything(home: Path, boat: Any) -> None:
    with Workspace(Home(home)) as workspace:
        workspace.blobs.documents.write("edge", b'{"sha256": "00"}')
        orphan = workspace.blobs.put(io.BytesIO(b"orphan"))
    swept = boat.run("blobs", "sweep", "--yes")
    assert swept.code == 4
    assert "SnapshotCorrupt" in swept.err
    assert "--remove edge" in swept.err
    with Workspace(Home(home)) as workspace:
        assert workspace.blobs.stat(orphan.digest) is not None


def test_seeding_is_done_once_and_succeeds_where_there_is_nothing_to_do(
    home: Path,
    boat: Any,
    tmp_path: Path,
) -> None:
    into = f"files:{tmp_path / 'new'}"
    seed = ("content", "restore", "blob:edge", "--into", into, "--seed")
    nothing = boat.json(*seed)
    assert (nothing["restored"], (tmp_path / "new").exists()) == (False, False)
    assert "there is no snapshot blob:edge" in nothing["reason"]
    boat.do("content", "snapshot", f"files:{tmp_path / 'first'}", "blob:edge")
    assert boat.json(*seed)["next_offset"] == 1
    assert (tmp_path / "new/a.txt").read_text() == "one"
    boat.do("content", "snapshot", f"generations:{tmp_path / 'second'}", "blob:edge")
    again = boat.json(*seed)
    assert "has content and a position of its own" in again["reason"]
    assert not (tmp_path / "new/b.txt").exists()


def test_a_snapshot_of_another_journal_seeds_nothing_and_is_no_failure(home: Path, boat: Any, tmp_path: Path) -> None:
    boat.do("content", "snapshot", f"files:{tmp_path / 'first'}", "blob:edge")
    with Workspace(Home(home)) as workspace:
        document = json.loads(workspace.blobs.documents.read("edge") or b"")
        workspace.blobs.documents.write("edge", json.dumps(document | {"topic_id": "another"}).encode())
    into = f"files:{tmp_path / 'new'}"
    assert "JournalReplaced" in boat.json("content", "restore", "blob:edge", "--into", into, "--seed")["reason"]
    assert boat.run("content", "restore", "blob:edge", "--into", into).code == 6
    refused = boat.run("content", "snapshot", f"files:{tmp_path / 'first'}", "blob:edge")
    assert "is of another journal" in refused.err
    assert not (tmp_path / "new").exists()


def test_a_machine_with_a_configuration_alone_seeds_a_target(home: Path, command_line: Any, tmp_path: Path) -> None:
    document = yaml.safe_load((home / "mailboat.yaml").read_text()) or {}
    document.setdefault("journal", {})["path"] = str(home / "journal.db")
    if (document.get("blobs") or {}).get("s3"):
        document["blobs"]["s3"]["access_key_id"]["file"] = str(home / "key")
        document["blobs"]["s3"]["secret_access_key"]["file"] = str(home / "secret")
    else:
        document["blobs"] = {"path": str(home / "blobs")}
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(document))
    command_line(home).do("content", "snapshot", f"files:{tmp_path / 'first'}", "blob:edge")
    into = f"files:{tmp_path / 'new'}"
    command_line(tmp_path / "fresh").do(
        "content", "restore", "blob:edge", "--into", into, "--seed", "--config", tmp_path / "agent.yaml"
    )
    assert (tmp_path / "new/a.txt").read_text() == "one"


@pytest.mark.parametrize("extra", [["--seed"], []], ids=["seed", "restore"])
def test_only_content_within_the_roots_of_the_subscriber_is_restored(
    home: Path, boat: Any, tmp_path: Path, extra: list[str]
) -> None:
    boat.do("content", "snapshot", f"generations:{tmp_path / 'second'}", "blob:edge")
    document = yaml.safe_load((home / "mailboat.yaml").read_text()) or {}
    member = {"name": "edge-9", "target": f"files:{tmp_path / 'new'}", "roots": ["/b.txt"]}
    document["agents"] = {"subscribers": [member]}
    (home / "mailboat.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "link").symlink_to(tmp_path)
    into = f"files:{tmp_path / 'link/new'}"
    found = boat.json("content", "restore", "blob:edge", "--into", into, *extra)
    assert (found["roots"], found["next_offset"]) == (["/b.txt"], 2)
    assert [path.name for path in (tmp_path / "new").iterdir() if not path.name.startswith(".")] == ["b.txt"]


def test_what_a_killed_restore_left_behind_goes_with_the_next(home: Path, boat: Any, tmp_path: Path) -> None:
    left = home / "snapshots" / "left"
    left.mkdir(parents=True)
    (left / "lock").touch()
    (left / "snapshot").write_bytes(bytes(1000))
    boat.do("content", "snapshot", f"files:{tmp_path / 'first'}", "blob:edge")
    assert list((home / "snapshots").iterdir()) == []


def test_a_blob_that_is_gone_is_named(home: Path, boat: Any, tmp_path: Path) -> None:
    stored = boat.json("content", "snapshot", f"files:{tmp_path / 'first'}", "blob:edge")
    with Workspace(Home(home)) as workspace:
        workspace.blobs.delete(bytes.fromhex(stored["sha256"]))
    gone = boat.run("content", "restore", "blob:edge", "--into", f"files:{tmp_path / 'new'}", "--seed")
    assert "BlobMissing" in gone.err
    assert gone.code == 75


@pytest.mark.parametrize("extra", [["--any-journal"], []])
def test_only_what_is_in_the_store_seeds(boat: Any, tmp_path: Path, extra: list[str]) -> None:
    place = "blob:edge" if extra else str(tmp_path / "file")
    refused = boat.run("content", "restore", place, "--into", f"files:{tmp_path / 'new'}", "--seed", *extra)
    assert "--seed takes blob:NAME" in refused.err
