"""`journal`: looking into the log, checking it, cutting it; and the retention that publishers apply."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from mailboat.api.archive import MAX_PROBLEMS
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.errors import JournalAccessDeniedError, StorageFullError
from mailboat.journal import port
from mailboat.journal.port import NewRecord, ReadLimits
from mailboat.journal.sqlite import SqliteJournal
from mailboat.maintenance import schedule
from mailboat.maintenance.schedule import maintain
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.messages import TopicRole
from mailboat.operations.journal_verification import JournalCheck, verify_journal


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.html").write_text(name)
    (folder / "large.bin").write_bytes(bytes(100_000))
    return folder


@pytest.fixture
def full(boat: Any, site: Path, tmp_path: Path) -> Any:
    """A home with four packages, and a subscriber that has imported the first two."""
    boat.do("publish", site, "/a.html", "/b.html", "--each")
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    boat.do("publish", site, "/c.html", "/large.bin", "--each")
    return boat


def test_topics_say_what_they_hold_and_which_logs_they_are(full: Any) -> None:
    topics = {item["name"]: item for item in full.json("journal", "topics")}
    assert set(topics) == {"package", "status", "discovery", "command", "event"}
    assert (topics["package"]["earliest_offset"], topics["package"]["next_offset"]) == (0, 4)
    assert full.do("journal", "topics").lines[1].split()[:4] == ["package", "0", "4", "4"]
    assert len({topic["identity"] for topic in topics.values()}) == 5
    assert full.do("journal", "topics", "-o", "name").lines[0] == "package"


def test_the_last_messages_are_shown_or_those_from_an_offset_on(full: Any) -> None:
    shown = full.json("journal", "show", "--limit", "2")
    assert [item["offset"] for item in shown] == [2, 3]
    assert [item["offset"] for item in full.json("journal", "show", "1", "-n", "2")] == [1, 2]
    assert shown[0]["summary"].startswith("ADD /c.html   ")
    discovery = full.json("journal", "show", "--topic", "discovery")
    assert discovery[-1]["summary"].startswith("web: stopped   author at 1")
    assert full.do("journal", "show", "--topic", "event").lines == ["no messages on event"]
    assert full.do("journal", "show").lines[0].split() == ["OFFSET", "APPENDED", "TYPE", "SAYS"]


def test_a_journal_that_fits_together_is_said_to(full: Any) -> None:
    found = full.json("journal", "verify")
    assert (found["problems"], found["blobs"]) == ([], 1)
    unread = "1 blob checked (of blobs that they are there; their bytes are read by --deep), no problems found\n"
    assert full.do("journal", "verify").out.endswith(unread)
    assert full.do("journal", "verify", "--deep").out.endswith("1 blob checked, no problems found\n")
    assert [full.json("journal", "verify", *more)["blobs_read"] for more in ((), ("--deep",))] == [False, True]


def blob_of(boat: Any) -> Path:
    (blob,) = (path for path in (boat.home / "blobs" / "sha256").rglob("*") if path.is_file())
    return blob


def test_a_missing_blob_is_found(full: Any) -> None:
    blob_of(full).unlink()
    ran = full.run("journal", "verify", "-o", "json")
    assert ran.code == 1
    (problem,) = ran.document["problems"]
    assert (problem["topic"], problem["offset"]) == ("package", 3)
    assert problem["problem"].startswith("a binary: the blob ")
    assert full.run("journal", "verify", "-o", "name").lines == ["package/3"]
    assert full.run("journal", "verify").lines[1].split()[:2] == ["package", "3"]


def test_a_blob_of_another_length_is_found(full: Any) -> None:
    blob = blob_of(full)
    blob.chmod(0o644)
    blob.write_bytes(b"short")
    assert "has 5 bytes instead of 100000" in full.run("journal", "verify").out


def test_a_changed_blob_is_found_by_reading_it(full: Any) -> None:
    blob = blob_of(full)
    blob.chmod(0o644)
    blob.write_bytes(bytes(99_999) + b"x")
    assert full.run("journal", "verify").code == 0
    ran = full.run("journal", "verify", "--deep")
    assert (ran.code, "BlobCorrupt" in ran.out) == (1, True)


def test_messages_that_cannot_be_read_or_trusted_are_found(full: Any) -> None:
    with Workspace(Home(full.home)) as workspace:
        topic = workspace.package_topic
        (record,) = workspace.journal.reader(topic, 0).read(ReadLimits(max_records=1), 0).records
        torn = record.value.replace(b"a.html", b"A.html")
        workspace.journal.append(
            topic, [NewRecord(torn, record.headers), NewRecord(b"?"), NewRecord(b"", record.headers)]
        )
        workspace.journal.append(workspace.topic(TopicRole.EVENT), [NewRecord(b"{}")])
    found = full.run("journal", "verify", "-o", "json").document["problems"]
    problems = {(item["topic"], item["offset"]): item["problem"] for item in found}
    assert set(problems) == {("package", 4), ("package", 5), ("event", 0)}
    assert "does not have the digest" in problems["package", 4]
    assert "UnknownMessage" in problems["package", 5]
    assert full.json("journal", "show", "5", "-n", "1")[0]["type"] == "unreadable"
    assert full.do("status").lines[1].startswith("publisher  author   queues ")


def test_missing_messages_are_found_and_stop_a_subscriber(full: Any, tmp_path: Path) -> None:
    connection = sqlite3.connect(full.home / "journal.db", isolation_level=None)
    (number,) = connection.execute("SELECT number FROM topic WHERE name = 'package'").fetchone()
    connection.execute(f"DELETE FROM record_{number} WHERE offset IN (0, 2)")
    connection.close()
    ran = full.run("journal", "verify", "-o", "json")
    assert [(problem["topic"], problem["offset"]) for problem in ran.document["problems"]] == [
        ("package", 0),
        ("package", 2),
    ]
    assert (ran.code, ran.document["problems"][1]["problem"]) == (
        1,
        "record 2 is missing in topic package, within its bounds",
    )
    ran = full.run("subscribe", "web", "--until", "caught-up")
    assert (ran.code, "error: JournalCorrupt: record 2 is missing" in ran.err) == (6, True)


def test_a_home_whose_blobs_are_in_a_bucket_says_so_and_has_no_folder_for_them(new_boat: Any) -> None:
    new_boat.home.mkdir()
    keys = {"access_key_id": {"file": "not-yet"}, "secret_access_key": {"file": "not-yet"}}
    document = {"blobs": {"s3": {"bucket": "harbour", "prefix": "site/", **keys}}}
    (new_boat.home / "mailboat.yaml").write_text(json.dumps(document))
    assert new_boat.do("init").lines[-1] == "blobs    s3://harbour/site"
    assert not (new_boat.home / "blobs").exists()


def test_a_subscriber_of_another_log_is_found(full: Any, tmp_path: Path) -> None:
    other = type(full)(tmp_path / "other")
    other.do("init")
    Home(other.home).remember_subscriber(Home(full.home).known_subscribers()[0])
    ran = other.run("journal", "verify")
    assert (ran.code, "web is in another log" in ran.out) == (1, True)


def test_cutting_says_who_would_be_cut_off_and_asks(full: Any) -> None:
    ran = full.run("journal", "truncate", "--before", "3")
    assert ran.code == 2
    assert ran.err.splitlines()[0] == "would be cut off, and stop as JournalTrimmed: web is at offset 2"
    assert "refusing without confirmation: not a terminal" in ran.err
    assert full.json("journal", "topics")[0]["earliest_offset"] == 0
    cut = full.json("journal", "truncate", "--before", "3", "--yes")
    assert (cut["removed"], cut["earliest_offset"], cut["cut_off"]) == (3, 3, [{"name": "web", "next_offset": 2}])
    assert full.do("journal", "truncate", "--before", "3", "--yes").lines[0] == "package: 0 messages removed"


def test_the_problem_of_one_who_was_cut_off_is_found(full: Any) -> None:
    full.do("journal", "truncate", "--before", "3", "--yes")
    assert "position of web is before the oldest package" in full.run("journal", "verify").out


@pytest.mark.parametrize("words", [(), ("--before", "1", "--expired")])
def test_cutting_needs_one_thing_to_go_by(full: Any, words: tuple[str, ...]) -> None:
    assert full.run("journal", "truncate", *words).code == 2


def test_cutting_beyond_the_end_is_refused(full: Any) -> None:
    ran = full.run("journal", "truncate", "--before", "99", "--yes")
    assert (ran.code, "error: Usage: offset 99 is beyond the end of package" in ran.err) == (2, True)


@pytest.mark.parametrize("offset", ["0", "99"])
def test_showing_an_offset_outside_of_the_journal_is_a_usage_error(full: Any, offset: str) -> None:
    full.do("journal", "truncate", "--before", "1", "--yes")
    ran = full.run("journal", "show", offset)
    assert (ran.code, f"error: Usage: there is no message at offset {offset}: package holds" in ran.err) == (2, True)


def age(boat: Any, days: int) -> None:
    """Make every message that many days older."""
    with sqlite3.connect(boat.home / "journal.db") as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%appended_ms%' AND type = 'table'")
        for (name,) in tables.fetchall():
            connection.execute(f"UPDATE {name} SET appended_ms = appended_ms - {days * 86_400_000}")
    connection.close()


def test_expired_messages_go_when_asked(full: Any) -> None:
    assert full.json("journal", "truncate", "--expired") == {"removed": 0, "automatic": False}
    age(full, 8)
    assert full.json("journal", "truncate", "--expired")["removed"] >= 4
    assert full.json("journal", "topics")[0]["earliest_offset"] == 4


def test_a_retention_that_was_changed_holds_from_then_on(full: Any) -> None:
    file = full.home / "mailboat.yaml"
    file.write_text(file.read_text().replace("package_seconds: 604800.0", "package_seconds: null"))
    age(full, 30)
    full.do("journal", "truncate", "--expired")
    assert full.json("journal", "topics")[0]["earliest_offset"] == 0
    assert full.do("status").lines[0].endswith("kept without age limit")


def test_publishers_apply_the_retention_once_an_hour(full: Any, site: Path) -> None:
    age(full, 8)
    full.do("publish", site, "/a.html")
    assert full.json("journal", "topics")[0]["earliest_offset"] == 0, "it was done less than an hour ago"
    mark = full.home / "publishers" / ".maintained"
    os.utime(mark, (0, 0))
    full.do("publish", site, "/a.html")
    assert full.json("journal", "topics")[0]["earliest_offset"] == 4
    with Workspace(Home(full.home)) as workspace:
        maintain(workspace)


def test_subscribers_apply_the_retention_where_no_one_publishes(full: Any, site: Path) -> None:
    """Only once they are current: what they have yet to import is not taken away from before them."""
    age(full, 8)
    os.utime(full.home / "publishers" / ".maintained", (0, 0))
    assert full.json("journal", "topics")[0]["earliest_offset"] == 0
    full.do("subscribe", "web", "--until", "caught-up")
    assert full.json("status")["subscribers"][0]["next_offset"] == 4
    assert full.json("journal", "topics")[0]["earliest_offset"] == 4
    full.do("publish", site, "/a.html")
    age(full, 8)
    full.do("subscribe", "web", "--until", "caught-up")
    assert full.json("journal", "topics")[0]["earliest_offset"] == 4, "it was done less than an hour ago"


def test_a_subscriber_that_can_not_apply_the_retention_goes_on(full: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Workspace] = []

    def refuse(workspace: Workspace, *_: object) -> None:
        asked.append(workspace)
        raise StorageFullError("no space is left")

    monkeypatch.setattr(schedule, "maintain", refuse)
    full.do("subscribe", "web", "--until", "caught-up")
    assert len(asked) == 1
    assert full.json("status")["subscribers"][0]["next_offset"] == 4


def test_no_more_problems_are_kept_than_are_shown(boat: Any) -> None:
    with Workspace(Home(boat.home)) as workspace:
        topic = workspace.package_topic
        workspace.journal.append(topic, [NewRecord(b"x")] * (MAX_PROBLEMS + 1))
        found = verify_journal(
            workspace.journal, [topic], workspace.blobs, event_topic=TopicName("event"), reads_blobs=False
        )
    assert (found.problem_count, len(found.findings)) == (MAX_PROBLEMS + 1, MAX_PROBLEMS)


def test_messages_that_retention_removes_while_they_are_checked_do_not_end_a_verification(
    boat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "SCAN_LIMITS", ReadLimits(max_records=1))
    with Workspace(Home(boat.home)) as workspace:
        journal, topic = workspace.journal, workspace.package_topic
        journal.append(topic, [NewRecord(b"x")] * 5)
        checked = []
        for record in JournalCheck(journal, workspace.blobs, reads_blobs=False).records(topic):
            checked.append(record.offset)
            journal.truncate(topic, Offset(3))
    assert checked == [0, 3, 4]


def test_figures_are_shown_where_their_topic_may_not_be_removed(boat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise JournalAccessDeniedError("deleting is not allowed")

    monkeypatch.setattr(SqliteJournal, "delete_topic", refuse)
    assert boat.json("journal", "bench", "--rounds", "10", "--seconds", "0.05")["read_per_second"] > 0


def test_a_damaged_journal_has_a_name_and_a_way_out(full: Any) -> None:
    (full.home / "journal.db").write_bytes(b"this is no database" * 1000)
    ran = full.run("status")
    assert (ran.code, "error: JournalCorrupt:" in ran.err) == (6, True)
