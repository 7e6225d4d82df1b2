"""A subscriber's progress for people."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from mailboat.cli.session import Session
from mailboat.cli.subscriber_run import ProgressLine, progress_text
from mailboat.model.identifiers import Offset
from mailboat.model.messages import FailureCause
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.testing.clocks import ManualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def statistics(phase: SubscriberPhase, position: int) -> SubscriberStatistics:
    return SubscriberStatistics(phase, next_offset=Offset(position), log_next_offset=Offset(40), imported=position)


def test_everything_that_is_known_stands_in_one_line() -> None:
    found = SubscriberStatistics(
        SubscriberPhase.RETRYING,
        next_offset=Offset(7),
        log_next_offset=Offset(40),
        imported=7,
        failed=1,
        content_bytes=1234,
        attempts=2,
        cause=FailureCause("StorageFull", "no space left", "/news/a"),
    )
    assert progress_text("edge-1", found) == (
        "edge-1  retrying   7/40  7 imported  1.2 kB  1 given up  attempt 2 failed  StorageFull: /news/a: no space left"
    )
    assert progress_text("edge-1", SubscriberStatistics()) == "edge-1  starting   -  0 imported"


def test_a_terminal_gets_one_line_that_changes_and_goes() -> None:
    into = Terminal()
    line = ProgressLine("edge-1", into, ManualClock())
    line(statistics(SubscriberPhase.IMPORTING, 1))
    line(statistics(SubscriberPhase.IMPORTING, 2))
    line.end()
    assert into.getvalue().count("\r\x1b[K") == 3
    assert into.getvalue().endswith("\r\x1b[K")
    assert "\n" not in into.getvalue()


def test_elsewhere_a_line_comes_when_the_state_changes() -> None:
    into = io.StringIO()
    line = ProgressLine("edge-1", into, ManualClock())
    for position in range(20):
        line(statistics(SubscriberPhase.IMPORTING, position))
    line(statistics(SubscriberPhase.CURRENT, 40))
    line.end()
    assert into.getvalue().splitlines() == [
        "edge-1  importing  0/40  0 imported",
        "edge-1  current    40/40  40 imported",
    ]


def test_progress_without_a_reader_ends_no_import() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w", encoding="utf-8") as into:
        line = ProgressLine("edge-1", into, ManualClock())
        line(statistics(SubscriberPhase.IMPORTING, 1))
        line(statistics(SubscriberPhase.CURRENT, 40))
        line.end()


def test_a_note_without_a_reader_fails_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w", encoding="utf-8") as into:
        monkeypatch.setattr("sys.stderr", into)
        Session(Path()).note("no answer; next try in 1 s")
        Session(Path()).note("no answer; next try in 2 s")


def test_in_the_background_of_a_terminal_only_trouble_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: -1)
    into = Terminal()
    monkeypatch.setattr(into, "fileno", lambda: 2)
    line = ProgressLine("edge-1", into, ManualClock())
    line(statistics(SubscriberPhase.IMPORTING, 1))
    line(statistics(SubscriberPhase.CURRENT, 40))
    assert into.getvalue() == ""
    line(SubscriberStatistics(SubscriberPhase.WAITING, cause=FailureCause("StorageFull", "no space left")))
    line.end()
    assert into.getvalue() == "edge-1  waiting    -  0 imported  StorageFull: no space left\n"


def test_terminal_shows_time_left_from_the_pace_of_this_run() -> None:
    into, clock = Terminal(), ManualClock()
    line = ProgressLine("edge-1", into, clock)
    line(statistics(SubscriberPhase.IMPORTING, 10))
    clock.advance(5)
    line(statistics(SubscriberPhase.IMPORTING, 20))
    line.end()
    assert into.getvalue().count("ETA") == 1
    assert "20/40  20 imported  ETA 10 s" in into.getvalue()


def test_time_left_is_not_measured_over_the_hours_without_packages() -> None:
    into, clock = Terminal(), ManualClock()
    line = ProgressLine("edge-1", into, clock)
    for seconds, position, end in ((0, 10, 40), (5, 40, 40), (36_000, 40, 140), (5, 60, 140)):
        clock.advance(seconds)
        line(SubscriberStatistics(SubscriberPhase.IMPORTING, next_offset=Offset(position), log_next_offset=Offset(end)))
    line.end()
    assert into.getvalue().split("\r\x1b[K")[-2].endswith("ETA 20 s")
