"""The public Python API: the examples of docs/python.md, and what they do not show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mailboat
import pytest
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.errors import RequestConflictError, SourceMissingError, UsageError
from mailboat.library import Mailboat
from mailboat.testing.clocks import ManualClock
from mailboat.testing.memory_content import MemoryStore, MemoryTarget

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_examples_of_the_page_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(examples) == 7
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    assert (tmp_path / "www" / "index.html").read_text() == "hello"
    assert (tmp_path / "www" / "greetings" / "fr").read_text() == "Salut"
    assert not (tmp_path / "www" / "greetings" / "de").exists()
    printed = capsys.readouterr().out
    assert "1 package imported, now at offset 1" in printed
    assert "web 1 0" in printed
    assert "SourceMissing" in printed
    assert "unassigned" in printed
    assert "['/greetings']" in printed
    assert "/greetings/fr" in printed


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a").write_text("1")
    return tmp_path / "site"


def test_publish_with_the_same_request_id_is_idempotent(tmp_path: Path, site: Path) -> None:
    with mailboat.open(tmp_path / "boat", create=True) as boat:
        first = boat.publish(site, request_id="one")
        assert boat.publish(site, request_id="one").offset == first.offset
        with pytest.raises(RequestConflictError):
            boat.delete(["/a"], request_id="one")


def test_publishing_again_and_again_opens_no_further_files(tmp_path: Path, site: Path) -> None:
    with mailboat.open(tmp_path / "boat", create=True) as boat:
        boat.publish(site)
        opened = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            boat.publish(site)
            boat.publish_changed(site)
            boat.delete(["/a"])
        assert len(list(Path("/proc/self/fd").iterdir())) <= opened


def test_a_program_that_only_publishes_applies_the_retention(tmp_path: Path, site: Path) -> None:
    mailboat.open(tmp_path / "boat", create=True).close()
    clock = ManualClock()
    with Mailboat(Workspace(Home(tmp_path / "boat"), clock)) as boat:
        boat.publish(site)
        clock.advance(8 * 86_400)
        boat.delete(["/a"])
        assert boat.status().journal.earliest_offset == 1


def test_a_publication_stands_whose_maintenance_fails(
    tmp_path: Path, site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / "boat" / "publishers" / ".maintained"
    with mailboat.open(tmp_path / "boat", create=True) as boat:
        boat.publish(site)
        mark.unlink()
        mark.symlink_to(tmp_path / "missing" / "mark")
        assert boat.delete(["/a"]).offset == 1
    assert "retention or sweep failed and is retried within the hour" in caplog.text


def test_digests_of_large_files_are_kept_for_later_calls(tmp_path: Path, site: Path) -> None:
    (site / "large").write_bytes(bytes(2_000_000))
    with mailboat.open(tmp_path / "boat", create=True) as boat:
        boat.publish_changed(site)
    assert (tmp_path / "boat" / "publishers" / "known-files.cache").is_file()


def test_changes_and_deletes_reach_a_target_in_memory(tmp_path: Path, site: Path) -> None:
    store = MemoryStore()
    with mailboat.open(tmp_path / "boat", create=True) as boat:
        assert len(boat.publish_changed(site)) == 1
        assert boat.publish_changed(site) == []
        boat.subscribe("memory", MemoryTarget(store))
        assert "/a" in store.bodies
        boat.delete(["/a"])
        assert boat.subscribe("memory", MemoryTarget(store)).imported == 1
        assert "/a" not in store.bodies


def test_open_refuses_a_missing_home_and_keeps_an_existing_one(tmp_path: Path, site: Path) -> None:
    with pytest.raises(UsageError, match="no Mailboat home"):
        mailboat.open(tmp_path / "boat")
    with mailboat.open(tmp_path / "boat", create=True) as boat, pytest.raises(SourceMissingError):
        boat.publish(site, ["/b"])
    with mailboat.open(tmp_path / "boat", create=True) as boat:
        assert boat.publish(site).offset == 0
