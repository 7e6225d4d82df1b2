"""Sweeps through the command line: what goes, what stays and why, on a directory and on a real S3 server."""

from __future__ import annotations

import hashlib
import io
import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.blobs.sweep import BlobStoreSharedError
from mailboat.clock import SystemClock
from mailboat.composition.home import Home
from mailboat.composition.stores import open_blobs
from mailboat.composition.workspace import Workspace
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.journal.port import NewRecord
from mailboat.maintenance import blob_sweep
from mailboat.maintenance.blob_sweep import References, sweep
from mailboat.maintenance.schedule import maintain
from mailboat.model.identifiers import PackageId, SlingId
from mailboat.model.messages import Action, PackageMessage
from mailboat.testing.clocks import ManualClock
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.messages import encode_message
from support.s3_server import ADMIN, S3Server, ignore_server_time

LARGE = os.urandom(200_000)
OLD = timedelta(days=2)


class Later(SystemClock):
    """The machine's clock, two days ahead."""

    def now(self) -> Any:
        return super().now() + OLD


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.server("s3_server"))])
def home(boat: Any, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with one package whose binary is in the blob store, and one orphan beside it."""
    if request.param == "s3":
        ignore_server_time(monkeypatch)
        server: S3Server = request.getfixturevalue("s3_server")
        use_bucket(boat.home, server, f"{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}/")
    (tmp_path / "site").mkdir()
    (tmp_path / "site/large.bin").write_bytes(LARGE)
    boat.do("publish", tmp_path / "site", "/large.bin")
    home = Home(boat.home)
    store = open_blobs(home, SystemClock())
    store.put(io.BytesIO(b"orphan"))
    store.close()
    return home


def use_bucket(home: Path, server: S3Server, prefix: str) -> None:
    (home / "key").write_text(f"{ADMIN.access_key_id}\n")
    (home / "secret").write_text(f"{ADMIN.secret_access_key}\n")
    document = yaml.safe_load((home / "mailboat.yaml").read_text()) or {}
    document["blobs"] = {
        "s3": {
            "bucket": server.bucket,
            "prefix": prefix,
            "endpoint_url": server.url,
            "region": "us-east-1",
            "path_style": True,
            "access_key_id": {"file": "key"},
            "secret_access_key": {"file": "secret"},
        }
    }
    (home / "mailboat.yaml").write_text(yaml.safe_dump(document))


def stored(home: Home) -> set[bytes]:
    store = open_blobs(home, SystemClock())
    try:
        return {info.digest for info in store.list()}
    finally:
        store.close()


def digest_of(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def test_an_old_orphan_goes_and_what_a_message_names_stays(home: Home) -> None:
    assert stored(home) == {digest_of(LARGE), digest_of(b"orphan")}
    with Workspace(home, Later()) as workspace:
        assert sweep(workspace, is_dry_run=True).removed == 0
        assert stored(home) == {digest_of(LARGE), digest_of(b"orphan")}
        report = sweep(workspace)
    assert (report.removed, report.references, report.messages) == (1, 1, 1)
    assert stored(home) == {digest_of(LARGE)}


def test_while_nothing_is_stored_no_log_is_read_for_it(boat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_sweep, "read_references", lambda _: pytest.fail("the log is read"))
    with Workspace(Home(boat.home), Later()) as workspace:
        assert sweep(workspace).removed == 0


def test_pieces_name_no_blob_whatever_they_hold(home: Home) -> None:
    with Workspace(home, Later()) as workspace:
        workspace.journal.append(workspace.package_topic, [NewRecord(b"half a piece", PIECE_HEADERS)])
        report = sweep(workspace)
    assert (report.unreadable, report.removed, report.messages) == (None, 1, 2)


def test_a_young_orphan_stays(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Workspace(home) as workspace:
        assert sweep(workspace).removed == 0
    assert not [record for record in caplog.records if "swept" in record.getMessage()], (
        "a sweep that removes nothing is no news"
    )
    assert digest_of(b"orphan") in stored(home)


def test_what_the_log_has_forgotten_goes(home: Home) -> None:
    with Workspace(home, Later()) as workspace:
        bounds = workspace.journal.bounds(workspace.package_topic)
        workspace.journal.truncate(workspace.package_topic, bounds.next_offset)
        assert sweep(workspace).removed == 2
    assert stored(home) == set()


@pytest.mark.parametrize(
    "record",
    [
        NewRecord(b"\xff\xff", (("type", b"2"), ("version", b"1"))),
        NewRecord(b"", (("type", b"999"), ("version", b"1"))),
    ],
    ids=["broken", "unknown"],
)
def test_a_message_that_can_not_be_read_keeps_everything(home: Home, boat: Any, record: NewRecord) -> None:
    with Workspace(home, Later()) as workspace:
        workspace.journal.append(workspace.package_topic, [record])
        report = sweep(workspace)
    assert report.removed == 0
    assert report.unreadable is not None
    assert report.unreadable.offset == 1
    assert digest_of(b"orphan") in stored(home)
    ran = boat.do("blobs", "sweep", "--yes")
    assert "everything is kept: the message at 1 can't be read" in ran.out


def test_a_reference_to_a_store_that_is_none_of_ours_keeps_nothing(home: Home) -> None:
    message = PackageMessage(
        SlingId("5a1e0000-0000-4000-8000-000000000001"),
        PackageId("dstrpck-1"),
        Action.ADD,
        "journal",
        payload_ref="/var/sling/distribution/journal/packages/1",
    )
    headers, value = encode_message(message)
    with Workspace(home, Later()) as workspace:
        workspace.journal.append(workspace.package_topic, [NewRecord(value, headers)])
        assert sweep(workspace).removed == 1


def test_content_that_is_published_again_while_a_sweep_runs_stays(
    home: Home, boat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log no longer names the blob when the sweep reads it; the publisher names it again right behind its back."""
    with Workspace(home) as workspace:
        bounds = workspace.journal.bounds(workspace.package_topic)
        workspace.journal.truncate(workspace.package_topic, bounds.next_offset)
    age(home)
    with Workspace(home) as workspace:
        listed = workspace.blobs.list

        def list_then_publish() -> Any:
            found = list(listed())
            boat.do("publish", tmp_path / "site", "/large.bin")
            return iter(found)

        monkeypatch.setattr(workspace.blobs, "list", list_then_publish)
        monkeypatch.setattr("mailboat.maintenance.blob_sweep._stored_before", lambda _: workspace.clock.now() - GRACE)
        report = sweep(workspace)
    assert report.removed == 1
    assert stored(home) == {digest_of(LARGE)}


GRACE = timedelta(seconds=1.5)


def age(home: Home) -> None:
    """Let all blobs become older than `GRACE`: in a directory by their time, on a server by waiting."""
    if home.config.blobs.s3 is None:
        for file in home.blobs_path.glob("sha256/*/*"):
            os.utime(file, (1e9, 1e9))
        return
    deadline = SystemClock().now() + GRACE + timedelta(seconds=1)
    store = open_blobs(home, SystemClock())
    while SystemClock().now() < deadline:
        store.stat(bytes(32))
    store.close()


def test_a_store_that_another_journal_uses_is_not_swept(
    home: Home, boat: Any, command_line: Any, tmp_path: Path
) -> None:
    other = command_line(tmp_path / "other")
    other.do("init")
    document = yaml.safe_load((boat.home / "mailboat.yaml").read_text()) or {}
    theirs = document.get("blobs") or {}
    if theirs.get("s3"):
        for name in ("key", "secret"):
            (other.home / name).write_text((boat.home / name).read_text())
    else:
        theirs = {"path": str(home.blobs_path.absolute())}
    (other.home / "mailboat.yaml").write_text(yaml.safe_dump({"blobs": theirs}))
    with Workspace(Home(other.home), Later()) as workspace:
        with pytest.raises(BlobStoreSharedError) as caught:
            sweep(workspace)
        assert sweep(workspace, is_dry_run=True).removed == 0
    assert stored(home) == {digest_of(LARGE), digest_of(b"orphan")}
    with Workspace(home, Later()) as workspace:
        assert sweep(workspace).removed == 1
        identity = str(workspace.journal.identity(workspace.package_topic))
    assert f"mailboat blobs sweep --forget-journal {identity}" in str(caught.value.next_step)
    ran = other.run("blobs", "sweep", "--yes")
    assert (ran.code, "BlobStoreShared" in ran.err) == (6, True)
    unknown = other.run("blobs", "sweep", "--yes", "--forget-journal", "journal-x")
    assert (unknown.code, f"registered: {identity}" in unknown.err) == (2, True)
    dry = other.run("blobs", "sweep", "--forget-journal", identity)
    assert (dry.code, f"mailboat blobs sweep --yes --forget-journal {identity}" in dry.err) == (0, True)
    assert other.run("blobs", "sweep", "--yes").code == 6
    other.do("blobs", "sweep", "--yes", "--forget-journal", identity)


def test_the_command_says_first_what_would_go(home: Home, boat: Any) -> None:
    document = boat.json("blobs", "sweep")
    assert document["dry_run"] is True
    assert document["blobs"]["referenced"] == {"count": 1, "bytes": len(LARGE)}
    assert document["blobs"]["young"] == {"count": 1, "bytes": 6}
    assert document["blobs"]["removable"] == {"count": 0, "bytes": 0}
    fates = {row["digest"]: row["fate"] for row in boat.json("blobs", "ls")}
    assert fates == {digest_of(LARGE).hex(): "referenced", digest_of(b"orphan").hex(): "young"}
    lines = boat.do("blobs", "ls").lines
    assert lines[0].split() == ["DIGEST", "SIZE", "STORED", "STATUS"]
    assert boat.do("blobs", "ls", "--removable").out == "no blobs\n"


def test_the_command_removes_when_told_so(boat: Any, tmp_path: Path) -> None:
    home = Home(boat.home)
    store = open_blobs(home, SystemClock())
    store.put(io.BytesIO(b"orphan"))
    age(home)
    ran = boat.do("blobs", "sweep")
    assert "to do so: mailboat blobs sweep --yes" in ran.err
    assert [row["digest"] for row in boat.json("blobs", "ls", "--removable")] == [digest_of(b"orphan").hex()]
    ran = boat.do("blobs", "sweep", "--yes")
    assert "removed 1 blob" in ran.lines
    assert stored(home) == set()


def target_with_an_orphan(boat: Any, tmp_path: Path) -> Path:
    """A closed target, swept today, with one blob of its own that no node names."""
    site, target = tmp_path / "site", tmp_path / "edge.db"
    site.mkdir()
    (site / "large.bin").write_bytes(LARGE)
    boat.do("publish", site, "/large.bin")
    boat.do("subscribe", "edge", "--into", f"sqlite:{target}", "--until", "caught-up")
    boat.do("delete", "/large.bin")
    boat.do("subscribe", "edge", "--into", f"sqlite:{target}", "--until", "caught-up")
    assert len(own_blobs(tmp_path)) == 1
    return target


def own_blobs(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("edge.db.blobs/sha256/*/*"))


def test_targets_lose_blobs_that_no_node_names(boat: Any, tmp_path: Path) -> None:
    target = target_with_an_orphan(boat, tmp_path)
    (document,) = boat.json("blobs", "sweep")["targets"]
    assert (document["subscriber"], document["removed"], document["problem"]) == ("edge", 1, None)
    assert len(own_blobs(tmp_path)) == 1
    assert boat.do("blobs", "sweep", "--yes").lines[-1] == f"sqlite:{target}: removed 1 blob of its own"
    assert own_blobs(tmp_path) == []


def test_a_subscriber_that_ends_sweeps_its_target_once_a_day(boat: Any, tmp_path: Path) -> None:
    target = target_with_an_orphan(boat, tmp_path)
    (mark,) = (boat.home / "publishers").glob(".swept-edge")
    os.utime(mark, (1e9, 1e9))
    boat.do("subscribe", "edge", "--into", f"sqlite:{target}", "--until", "caught-up")
    assert own_blobs(tmp_path) == []


def test_a_target_that_is_being_imported_into_is_left_alone(boat: Any, tmp_path: Path) -> None:
    target = tmp_path / "edge.db"
    boat.do("subscribe", "edge", "--into", f"sqlite:{target}", "--until", "caught-up")
    busy = open_sqlite_target(target)
    ran = boat.do("blobs", "sweep")
    busy.close()
    assert ran.lines[-1] == f"sqlite:{target}: left alone: TargetBusy"


def test_the_maintainer_sweeps_when_its_turn_has_come(home: Home) -> None:
    with Workspace(home, Later()) as workspace:
        maintain(workspace, sweep)
        assert stored(home) == {digest_of(LARGE)}
        workspace.blobs.put(io.BytesIO(b"another orphan"))
        maintain(workspace, sweep)
    assert digest_of(b"another orphan") in stored(home)


def test_a_manual_clock_is_enough_for_an_empty_home(boat: Any) -> None:
    with Workspace(Home(boat.home), ManualClock()) as workspace:
        report = sweep(workspace)
    assert (report.removed, report.messages) == (0, 0)


def test_a_blob_that_was_young_when_the_log_was_read_stays(boat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a large log takes long; what a publisher stores and names meanwhile is behind the end that was read."""

    class Passing(SystemClock):
        passed = timedelta()

        def now(self) -> Any:
            return super().now() + self.passed

    clock = Passing()
    with Workspace(Home(boat.home), clock) as workspace:
        workspace.blobs.put(io.BytesIO(b"young, too"))

        def read_slowly(*_: object) -> References:
            workspace.blobs.put(io.BytesIO(LARGE))
            clock.passed = OLD
            return References()

        monkeypatch.setattr(blob_sweep, "read_references", read_slowly)
        sweep(workspace)
        assert digest_of(LARGE) in {info.digest for info in workspace.blobs.list()}
