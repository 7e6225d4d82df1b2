"""Colours, widths and questions of the command line."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from mailboat.cli.blobs import SweepLine, sweep_text
from mailboat.cli.confirmation import ask
from mailboat.cli.distributions import waited_for
from mailboat.cli.events import coloured_line
from mailboat.cli.output import blocks_text
from mailboat.cli.session import Session
from mailboat.cli.status_board import StatusSelection
from mailboat.cli.status_watch import TerminalWatch
from mailboat.cli.tables import ABSENT, Column, Table, error_style, state_style
from mailboat.clock import SystemClock
from mailboat.maintenance.blob_sweep import SweepStep
from mailboat.model.requests import parse_request
from mailboat.testing.clocks import ManualClock
from support.fake_control import FakeControl, FakeSubscriber


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    return Terminal()


STATES = Table(
    (Column("NAME"), Column("STATE", style=state_style), Column("ERROR", can_fold=True, style=error_style)),
    [["web", "current", ""], ["edge", "blocked", "BlobMissing"], ["odd", "unheard-of", ABSENT]],
)


def test_states_have_colours_on_a_terminal(terminal: Terminal) -> None:
    shown = blocks_text([STATES], terminal)
    assert "\x1b[32mcurrent" in shown
    assert "\x1b[1;31mblocked" in shown
    assert "\x1b[31mBlobMissing" in shown
    assert re.search(r"odd +unheard-of", shown)


def test_no_color_and_pipes_have_no_colours(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in blocks_text([STATES], io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", blocks_text([STATES], terminal))


@pytest.mark.parametrize(
    ("text", "style"),
    [("waiting-for golden", "yellow"), ("idle", "green"), ("importing b-1, 2 of 3", "yellow"), (ABSENT, "")],
)
def test_a_state_is_styled_by_its_first_word(text: str, style: str) -> None:
    assert state_style(text) == style


def test_long_line_breaks_between_words_below_its_title(terminal: Terminal) -> None:
    line = "journal    sqlite .mailboat/journal.db   oldest 0   next 2   2.5 MB   kept for a week alone decides"
    shown = blocks_text([line], terminal).splitlines()
    assert max(map(len, shown)) <= 60
    assert " ".join(" ".join(shown).split()) == " ".join(line.split())
    assert shown[1].startswith(" " * 11)
    assert blocks_text([line], io.StringIO()) == f"{line}\n"


def test_indented_line_is_left_whole_to_be_pasted(terminal: Terminal) -> None:
    command = "  mailboat --home " + "/a/b" * 30 + " status"
    assert blocks_text([command], terminal) == f"{command}\n"


def test_narrow_terminal_hides_columns_without_anything_to_say(terminal: Terminal) -> None:
    columns = (Column("NAME"), Column("A LONG TITLE TO HIDE", can_hide=True), Column("STATE"))
    state = "waiting-for the-golden-subscriber-with-a-name"
    shown = blocks_text([Table(columns, [["web", ABSENT, state]])], terminal)
    assert state in shown
    assert "HIDE" not in shown
    assert "HIDE" in blocks_text([Table(columns, [["web", "x", "current"]])], terminal)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes standard input a terminal that gives these answers."""

    def made(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal(text))

    return made


def test_question_is_repeated_until_the_answer_is_understood(
    answering: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answering("perhaps\nYes\n")
    ask("Drop it?", "nothing was dropped", is_sure=False)
    assert capsys.readouterr().err == "Drop it? [y/N]: answer y or n\nDrop it? [y/N]: "


@pytest.mark.parametrize(("text", "shown"), [("n\n", ""), ("\n", ""), ("", "\n")])
def test_everything_else_is_a_no(answering: Any, text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    answering(text)
    with pytest.raises(typer.Exit):
        ask("Drop it?", "nothing was dropped", is_sure=False)
    assert capsys.readouterr().err == f"Drop it? [y/N]: {shown}nothing was dropped\n"


def test_ctrl_c_at_a_question_ends_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(Terminal):
        def readline(self, *_: Any) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        ask("Drop it?", "nothing was dropped", is_sure=False)
    assert capsys.readouterr().err == "Drop it? [y/N]: \n"


def test_a_sweep_shows_messages_bytes_and_the_time_left(terminal: Terminal) -> None:
    step = SweepStep("reading the log", 250, 1_000, 2_000_000)
    assert sweep_text(step, 5.0) == "reading the log  250 of 1,000  2.0 MB  ETA 15 s"
    assert sweep_text(SweepStep("checking blobs", 12, None, 10), 5.0) == "checking blobs  12  10 B"
    clock = ManualClock()
    line = SweepLine(terminal, clock)
    line.show(step)
    line.show(step)
    clock.advance(1.0)
    line.show(step)
    line.close()
    assert terminal.getvalue().count("reading the log") == 2
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_package_that_is_waited_for_shows_a_live_count(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal)
    client = FakeControl(FakeSubscriber("edge-1"))
    published = client.distribute("author", parse_request("ADD", ("/a",), ()))
    clock = SystemClock()
    waited_for(client, "author", [published.package_id], clock, 0.01, clock.monotonic())
    assert re.search(r"imported by \d/1 subscribers; waited \d+ ms of 10 ms", terminal.getvalue())


def test_watched_status_fits_a_narrow_terminal_with_its_last_line(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", terminal)
    control = FakeControl(*(FakeSubscriber(f"edge-{number}") for number in range(30)))
    watch = TerminalWatch(Session(Path()), control, ManualClock(), 1.0)
    watch._refresh()
    watch._problem = "no answer: JournalUnavailable: the brokers of the journal are away"
    lines = watch._rendered(StatusSelection(), 16).plain.rstrip("\n").splitlines()
    assert (len(lines) <= 16, "more: " in lines[-1]) == (True, True), lines


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("08:00:00  subscriber  a: current, lag 0", "08:00:00  subscriber  a: \x1b[32mcurrent\x1b[0m, lag 0"),
        (
            "08:00:00  subscriber  a: retrying, lag 3, StorageFull: full",
            "08:00:00  subscriber  a: \x1b[33mretrying\x1b[0m, lag 3, \x1b[31mStorageFull: full\x1b[0m",
        ),
        ("08:00:00  publisher   author: in another process", "08:00:00  publisher   author: in another process"),
        ("08:00:00  package     offset 3 is distributed: /a", "08:00:00  package     offset 3 is distributed: /a"),
    ],
)
def test_events_have_the_colours_of_the_status(monkeypatch: pytest.MonkeyPatch, line: str, shown: str) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert coloured_line(line, Terminal()) == shown
    assert coloured_line(line, io.StringIO()) == line
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured_line(line, Terminal()) == line


def test_facts_of_a_line_are_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    line = "journal    sqlite boat/journal.db   oldest 0   kept 7 d"
    assert blocks_text([line], Terminal()) == "journal    sqlite boat/journal.db\n           oldest 0   kept 7 d\n"
