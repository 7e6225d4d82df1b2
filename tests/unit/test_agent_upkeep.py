"""When upkeep is due: once in its time, again within the hour after a failure, and by whom."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from mailboat.blobs.sweep import SweepDecision, new_figures
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace, prepare
from mailboat.config.document import Config
from mailboat.errors import JournalUnavailableError, StorageFullError, TargetBusyError
from mailboat.maintenance import schedule
from mailboat.maintenance.blob_sweep import SweepReport
from mailboat.maintenance.schedule import UpkeepFigures, maintain, sweep_closed_target
from mailboat.model.identifiers import AgentName
from mailboat.testing.clocks import ManualClock

EDGE, HOUR_SECONDS, HOURS = AgentName("edge"), 3600.0, 48


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    home = Home(tmp_path / "home", Config())
    prepare(home)
    return Workspace(home, ManualClock())


def hours_of(workspace: Workspace, work: Callable[[], None], done: list[int]) -> list[int]:
    """In which of the next hours something was done, when it is looked after every hour."""
    hours = []
    for hour in range(HOURS):
        before = len(done)
        work()
        hours += [hour] * (len(done) - before)
        assert isinstance(workspace.clock, ManualClock)
        workspace.clock.advance(HOUR_SECONDS)
    return hours


def test_upkeep_is_due_after_the_clock_was_years_ahead(workspace: Workspace) -> None:
    with workspace:
        maintain(workspace)
        marks = list(workspace.home.publishers_path.glob(".maintained"))
        ahead = workspace.clock.now().timestamp() + 10 * 365 * 86_400
        for mark in marks:
            os.utime(mark, (ahead, ahead))
        maintain(workspace)
    assert [mark.stat().st_mtime for mark in marks] == [workspace.clock.now().timestamp()]


def test_blobs_are_swept_although_the_retention_fails(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk: the journal needs room to remove anything, the sweep needs none."""

    def refuse(_: Workspace) -> int:
        raise StorageFullError("no space is left")

    swept: list[int] = []

    def sweep(_: Workspace) -> SweepReport:
        swept.append(1)
        return SweepReport(new_figures(), messages=0, snapshots=0, references=0)

    monkeypatch.setattr(schedule, "remove_expired", refuse)
    with workspace, pytest.raises(StorageFullError):
        maintain(workspace, sweep)
    assert swept == [1]


def test_a_sweep_comes_once_a_day_and_after_a_failure_within_the_hour(workspace: Workspace) -> None:
    tried: list[int] = []
    figures, blobs = UpkeepFigures(), new_figures()
    blobs[SweepDecision.YOUNG].count, blobs[SweepDecision.REMOVABLE].count = 2, 3

    def sweep(_: Workspace) -> SweepReport:
        tried.append(1)
        if len(tried) <= 3:
            raise JournalUnavailableError("the brokers are away")
        return SweepReport(blobs, messages=5, snapshots=0, references=1, removed=3, abandoned_uploads=1)

    def look() -> None:
        try:
            maintain(workspace, sweep, figures)
        except JournalUnavailableError:
            return

    with workspace:
        assert hours_of(workspace, look, tried) == [0, 1, 2, 3, 27]
    assert (figures.sweeps, figures.swept_blobs, figures.abandoned_uploads) == (2, 6, 2)
    assert figures.kept == {SweepDecision.REFERENCED: 0, SweepDecision.YOUNG: 2}


def test_a_target_that_was_busy_is_swept_when_it_is_closed_an_hour_later(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    target = tmp_path / "edge.db"
    target.touch()

    def sweep_blobs(file: Path) -> int:
        tried.append(1)
        if len(tried) == 1:
            raise TargetBusyError(f"{file} is in use")
        return 0

    monkeypatch.setattr(schedule, "sweep_blobs", sweep_blobs)
    with workspace:
        assert hours_of(workspace, lambda: sweep_closed_target(workspace, EDGE, f"sqlite:{target}"), tried) == [
            0,
            1,
            25,
        ]
