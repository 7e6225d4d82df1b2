"""The README's own sessions, typed as they stand there: every command succeeds and prints what the README shows.

A block marked `console` is a session: lines after `$ ` are commands, the others what they print. `…` in a shown line
stands for anything. All blocks of the page run one after the other in one folder.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARK = "=====done====="


def sessions(page: Path) -> list[tuple[str, list[str]]]:
    """Commands with the lines shown after them, of all blocks."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:].split("  # ")[0], []))
            elif found:
                found[-1][1].append(line)
    return found


def type_in(commands: list[str], folder: Path) -> list[tuple[int, list[str]]]:
    """Run the commands in one shell; exit code and printed lines of each."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("COV", "MAILBOAT"))},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": "100",
    }
    script = "".join(f"{command}\nprintf '\\n%s %d\\n' {shlex.quote(MARK)} $?\n" for command in commands)
    done = subprocess.run(
        ["bash"], input=script, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    printed = re.split(rf"\n{MARK} (\d+)\n", done.stdout)
    assert len(printed) == 2 * len(commands) + 1, done.stdout + done.stderr
    pairs = zip(printed[1::2], printed[0::2], strict=False)
    return [(int(code), text.strip("\n").splitlines()) for code, text in pairs]


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether what was printed is what the page shows, apart from space at the ends and what `…` stands for."""
    patterns = [re.escape(line.strip()).replace("…", ".*") for line in shown if line.strip()]
    lines = [line.strip() for line in printed if line.strip()]
    if len(patterns) != len(lines):
        return False
    return all(re.fullmatch(pattern, line) for pattern, line in zip(patterns, lines, strict=True))


@pytest.mark.parametrize("name", ["README.md"])
def test_the_sessions_of_the_page_run_as_shown(name: str, tmp_path: Path) -> None:
    steps = sessions(ROOT / name)
    assert len(steps) >= 5
    results = type_in([command for command, _ in steps], tmp_path)
    for (command, shown), (code, printed) in zip(steps, results, strict=True):
        assert (command, code) == (command, 0), printed
        assert matches(shown, printed), "\n".join(["", "$ " + command, *printed, "--- but the page shows", *shown])


def test_a_different_output_is_noticed() -> None:
    assert matches(["offset …  ADD"], ["offset 12  ADD"])
    assert not matches(["offset …  ADD"], ["offset 12  DELETE"])
    assert not matches(["one"], ["one", "two"])
