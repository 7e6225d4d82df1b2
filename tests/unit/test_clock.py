"""A clock that can't be right is named, and times that others wrote never end a calculation."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mailboat import clock
from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.clock import Backoff, ClockImplausibleError, SystemClock, milliseconds_now, moment_of
from mailboat.content.listed_nodes import ListedNode
from mailboat.content.sources.folder import FolderSource
from mailboat.content.sources.folder_entries import FileSignature
from mailboat.content.sources.known_files import KnownFiles
from mailboat.model.paths import ROOT, NodePath
from mailboat.testing.clocks import ManualClock


def at_year(year: int) -> Any:
    """What stands for `datetime` on a machine whose clock says that year."""

    class Dated:
        @staticmethod
        def now(zone: Any) -> datetime:
            return datetime(year, 12, 31, 23, 59, 59, tzinfo=zone)

    return Dated


@pytest.mark.parametrize("year", [1969, 9999, 10000])
def test_clock_of_an_impossible_year_is_named(monkeypatch: pytest.MonkeyPatch, year: int) -> None:
    monkeypatch.setattr(clock, "datetime", at_year(year))
    with pytest.raises(ClockImplausibleError, match="the clock is") as raised:
        SystemClock().now()
    assert raised.value.exit_code == os.EX_TEMPFAIL


def test_moments_beyond_the_calendar_are_its_ends() -> None:
    assert moment_of(-(1 << 62)) == datetime(1970, 1, 1, tzinfo=UTC)
    assert moment_of(1 << 62).year == 9999
    assert moment_of(1500) == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)


@pytest.mark.parametrize("seconds", [-20_000_000_000, 12_000_000_000, 400_000_000_000])
def test_files_dated_beyond_their_types_are_listed_and_remembered(tmp_path: Path, seconds: int) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/x").write_text("x")
    os.utime(tmp_path / "site/x", (seconds, seconds))
    (listed,) = FolderSource(tmp_path / "site").listed(ROOT)
    assert isinstance(listed, ListedNode)
    signature = FileSignature(1, seconds * 10**9, seconds * 10**9, 1 << 63)
    known = KnownFiles(tmp_path / "known.db", tmp_path)
    known.store(NodePath("/x"), signature, b"digest")
    assert known.find(NodePath("/x"), signature) == b"digest"
    known.close()


def test_blob_dated_beyond_the_calendar_is_listed(tmp_path: Path) -> None:
    store = DirectoryBlobStore(tmp_path, ManualClock())
    place = tmp_path / "sha256/00" / ("00" * 32)
    place.parent.mkdir()
    place.write_text("x")
    os.utime(place, (400_000_000_000, 400_000_000_000))
    (found,) = store.list()
    assert found.stored_at.year <= 9999


def test_backoff_doubles_up_to_its_longest_pause() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.pause(failures) for failures in (0, 1, 2, 3, 4, 100_000)] == [0.5, 0.5, 1.0, 2.0, 3.0, 3.0]
    chance = random.Random(1)
    assert all(1.0 <= backoff.pause(3, chance) <= 2.0 for _ in range(100))


def test_milliseconds_are_those_of_the_wall_clock() -> None:
    clock = ManualClock()
    assert moment_of(milliseconds_now(clock)) == clock.now()
