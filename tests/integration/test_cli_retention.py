"""`journal retention`: who holds packages back, what would go, and its going; and the same from an agent's thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.control.journal_archive import JournalArchive
from mailboat.errors import ThrottledError
from mailboat.maintenance.retention import retention_worker
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("a", "b", "c", "d"):
        (folder / f"{name}.html").write_text(name)
    return folder


@pytest.fixture
def kept(boat: Any, site: Path, tmp_path: Path) -> Any:
    """A home that keeps no package longer than needed; of four, `slow` has two and `fast` has all."""
    config = boat.home / "mailboat.yaml"
    config.write_text("retention: {consumption: {policy: durable, min_seconds: 0}}\n")
    boat.do("publish", site, "/a.html", "/b.html", "--each")
    boat.do("subscribe", "slow", "--into", f"files:{tmp_path / 'slow'}", "--until", "caught-up")
    boat.do("publish", site, "/c.html", "/d.html", "--each")
    boat.do("subscribe", "fast", "--into", f"files:{tmp_path / 'fast'}", "--until", "caught-up")
    return boat


def head_of(boat: Any) -> int:
    return int(next(item["earliest_offset"] for item in boat.json("journal", "topics") if item["name"] == "package"))


def test_it_shows_who_holds_what_and_changes_nothing(kept: Any) -> None:
    shown = kept.json("journal", "retention")
    assert (shown["head"], shown["earliest_offset"], shown["next_offset"], shown["applied"]) == (2, 0, 4, False)
    found = [(subscriber["name"], subscriber["next_offset"]) for subscriber in shown["subscribers"]]
    assert found == [("fast", 4), ("slow", 2)]
    assert head_of(kept) == 0
    lines = kept.do("journal", "retention").lines
    assert lines[0] == "head       0 of 4: held by the slowest subscriber"
    assert lines[1].startswith("could go   2 package messages before 2")
    held = [line.split()[-5:-3] for line in lines[-2:]]  # POSITION, HOLDS
    assert held == [["4", "-"], ["2", "2"]]


def test_only_one_request_at_a_time_reads_the_whole_log_for_it(kept: Any) -> None:
    with Workspace(Home(kept.home)) as workspace:
        archive = JournalArchive(workspace)
        with archive._reading_everything(), pytest.raises(ThrottledError):
            archive.retention()
        assert archive.retention().head == 2


def test_it_is_done_by_hand(kept: Any) -> None:
    assert kept.json("journal", "retention", "--apply")["applied"]
    assert head_of(kept) == 2
    assert kept.do("journal", "retention", "-o", "name").lines == ["2"]


def test_an_agent_does_it_by_itself(kept: Any) -> None:
    with Workspace(Home(kept.home)) as workspace:
        worker = retention_worker(workspace)
        worker.start()
        wait_until(lambda: workspace.journal.bounds(workspace.package_topic).earliest_offset > 0)
        assert worker.stop(PATIENCE_SECONDS)
    assert head_of(kept) == 2


def test_where_it_is_off_it_says_so_and_no_one_does_it(boat: Any) -> None:
    assert boat.do("journal", "retention").lines == [
        "head       0 of 0: no subscribers are known; retention by age and size only",
        "config     retention.consumption.policy is off: agents do not apply this automatically",
        "no subscriber is known",
    ]


@pytest.mark.parametrize("what", ["seconds", "bytes"])
def test_bounds_that_contradict_each_other_are_refused(boat: Any, what: str) -> None:
    (boat.home / "mailboat.yaml").write_text(f"retention: {{consumption: {{min_{what}: 10, max_{what}: 5}}}}\n")
    ran = boat.run("journal", "retention")
    assert ran.code == 2
    assert f"max_{what} is below min_{what}" in ran.err
