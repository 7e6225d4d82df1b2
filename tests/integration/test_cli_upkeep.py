"""Upkeep after a command's own work: what was published or imported stands and is told, whatever becomes of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.cli import home_publisher
from mailboat.cli.error_report import NOT_YET_EXIT_CODE
from mailboat.errors import BlobAccessDeniedError


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "large.bin").write_bytes(bytes(200_000))
    return folder


@pytest.fixture
def guest(boat: Any, command_line: Any, site: Path, tmp_path: Path) -> Any:
    """A home that has published nothing yet, and whose blob folder another home's journal uses: no sweep is allowed."""
    boat.do("publish", site, "/large.bin")
    other = command_line(tmp_path / "guest")
    other.do("init")
    (other.home / "mailboat.yaml").write_text(yaml.safe_dump({"blobs": {"path": str(boat.home / "blobs")}}))
    return other


def test_a_publish_whose_sweep_is_refused_is_told_and_published_once(guest: Any, site: Path) -> None:
    ran = guest.run("publish", site, "/large.bin", "-o", "json")
    assert ran.code == 0
    assert [package["offset"] for package in ran.document["packages"]] == [0]
    first, *facts = ran.err.splitlines()
    assert first.startswith("warning: the publication is complete; retention or sweep failed")
    assert "and is retried within the hour: BlobStoreShared: " in first
    assert "mailboat blobs sweep --forget-journal" in facts[-1]
    assert guest.json("journal", "topics")[0]["next_offset"] == 1
    assert guest.do("publish", site, "/large.bin").err == ""


def test_a_publish_whose_sweep_is_refused_ends_as_its_wait_says(guest: Any, site: Path) -> None:
    ran = guest.run("publish", site, "/large.bin", "--wait", "0")
    assert (ran.code, "offset 0" in ran.lines[0], "BlobStoreShared" in ran.err) == (NOT_YET_EXIT_CODE, True, True)


def test_a_role_that_may_publish_and_not_sweep_is_warned_with_a_next_step(
    boat: Any, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BlobAccessDeniedError("listing uploads: AccessDenied")

    monkeypatch.setattr(home_publisher, "maintain", refuse)
    ran = boat.run("publish", site, "/large.bin")
    assert (ran.code, "offset 0" in ran.lines[0]) == (0, True)
    assert "BlobAccessDenied: listing uploads" in ran.err.splitlines()[0]
    assert ran.err.splitlines()[1].split() == ["next", "mailboat", "explain", "BlobAccessDenied"]
    assert "Traceback" in boat.run("publish", site, "/large.bin", "--verbose").err


def test_a_publish_that_can_not_note_its_upkeep_is_told(boat: Any, site: Path) -> None:
    (boat.home / "publishers/.swept").symlink_to(boat.home / "missing/.swept")
    ran = boat.run("publish", site, "/large.bin")
    assert (ran.code, "offset 0" in ran.lines[0]) == (0, True)
    assert "StorageFailed" in ran.err.splitlines()[0]


def test_a_subscriber_that_can_not_note_its_upkeep_still_says_what_it_imported(
    boat: Any, site: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boat.do("publish", site, "/large.bin")
    shutil.rmtree(boat.home / "publishers")
    target = f"sqlite:{tmp_path / 'edge.db'}"
    ran = boat.run("subscribe", "edge", "--into", target, "--until", "caught-up")
    assert (ran.code, ran.out) == (0, "edge: 1 package imported, at offset 1\n")
    assert any(record.getMessage().startswith(f"sweep of {target} failed: StorageFailed") for record in caplog.records)
