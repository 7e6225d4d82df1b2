"""Progress of long work: for terminals only."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from pathlib import Path

import pytest
from mailboat.cli.terminal_line import TerminalLine, columns_of, cut_to_columns, is_in_foreground, width_of
from mailboat.cli.transfer import TransferProgress, file_bytes, folder_bytes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_sees_phase_bytes_and_time_left_and_nothing_stays() -> None:
    into = Terminal()
    with TransferProgress(into) as transfer:
        transfer.begin("comparing", 2_000_000)
        transfer.advance(1_000_000)
        transfer.begin("publishing", 500)
        transfer.advance(500)
    shown = into.getvalue()
    assert "publishing" in shown
    assert "500/500 bytes" in shown
    assert "ETA" in shown
    assert shown.endswith("\x1b[2K"), "the line is removed"


def test_pipe_sees_nothing() -> None:
    into = io.StringIO()
    with TransferProgress(into) as transfer:
        transfer.begin("publishing", 10)
        transfer.advance(10)
    assert (into.getvalue(), transfer.is_shown) == ("", False)


def test_size_of_a_folder_or_of_paths_in_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "1").write_bytes(bytes(10))
    (tmp_path / "2").write_bytes(bytes(5))
    assert folder_bytes(str(tmp_path)) == 15
    assert folder_bytes(str(tmp_path), ["/a"]) == 10
    assert folder_bytes(str(tmp_path), ["/2"]) == 5
    assert folder_bytes(str(tmp_path), ["/missing"]) is None
    assert folder_bytes("sqlite:x.db") is None
    assert file_bytes(tmp_path / "2") == 5
    assert file_bytes(tmp_path / "missing") is None


def test_a_stream_that_the_caller_closed_is_no_terminal() -> None:
    assert not is_in_foreground(None)  # `mailboat demo <&-`


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("plain text", 5, "plain"),
        ("ab漢字cd", 5, "ab漢"),
        ("ab漢字cd", 6, "ab漢字"),
        ("e\u0301f", 1, "e\u0301"),
        ("漢字", 80, "漢字"),
    ],
)
def test_line_is_cut_by_the_columns_that_it_takes(text: str, columns: int, shown: str) -> None:
    assert cut_to_columns(text, columns) == shown
    assert columns_of(shown) <= columns


def test_terminal_line_is_as_wide_as_its_own_terminal() -> None:
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 33, 0, 0))
    with open(terminal, "w") as stream:  # noqa: PTH123  # a descriptor
        assert width_of(stream) == 33
    os.close(main)


def test_terminal_line_is_replaced_and_cleared() -> None:
    into = Terminal()
    line = TerminalLine(into)
    line.show("one\ttwo")
    line.show("x" * 500)
    line.clear()
    line.clear()
    parts = into.getvalue().split("\r\x1b[K")
    assert parts[1] == "one\\ttwo"
    assert (len(parts[2]) < 500, parts[3:]) == (True, [""])
