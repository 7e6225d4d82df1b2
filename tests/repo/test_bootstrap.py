"""`make dev` shows what it does: a line with the seconds of each step, where no terminal shows uv's progress."""

from __future__ import annotations

import io
import re
from pathlib import Path

import bootstrap
import pytest


class Terminal(io.StringIO):
    """An output that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_step_prints_its_seconds_when_done() -> None:
    output, times = io.StringIO(), iter([10.0, 12.34])
    with bootstrap.step("the packages", output, lambda: next(times)):
        assert output.getvalue() == ""
    assert output.getvalue() == "   2.3 s  the packages\n"


def test_step_leaves_a_terminal_to_uv() -> None:
    output = Terminal()
    with bootstrap.step("the packages", output):
        pass
    assert output.getvalue() == ""


def test_failed_step_prints_nothing() -> None:
    output = io.StringIO()
    with pytest.raises(KeyError), bootstrap.step("the packages", output):
        raise KeyError
    assert output.getvalue() == ""


def test_install_prints_one_line_per_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    (tmp_path / ".venv").mkdir()
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / ".installed")
    monkeypatch.setattr(bootstrap, "_uv", lambda: ran.append("uv"))
    monkeypatch.setattr(bootstrap, "run_uv", lambda words: ran.append(" ".join(words[:2])))
    assert bootstrap.install("dev") == 0
    assert ran == ["uv", "venv --quiet", "pip sync", "pip install", "cache prune"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Installing requirements/dev.txt into .venv"
    assert [re.fullmatch(r" *\d+\.\d s  (.+)", line)[1].split()[0] for line in lines[1:-1]] == [
        "uv,",
        ".venv",
        "the",
        "Mailboat,",
        "old",
    ]
    assert re.fullmatch(r"Installed in \d+ s", lines[-1])
