"""The sessions of the README and the how-to pages: every command succeeds and prints what the page shows.

A block marked `console` is a session: lines after `$ ` are commands, `> ` goes on with one, the others are its output.
`…` in a shown line stands for anything. All blocks of a page run one after the other in one folder.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from support.free_ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
MARK = "=====done====="
PORT = "8099"
LIMITS = {"timeout 30 ": "timeout 120 ", "--wait 30": "--wait 120"}
"""What a reader waits for at most, and what a machine with other work may take: a command starts in 5 s at load 20."""
SESSION_SECONDS = 280.0
HOW_TO = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs/how-to").glob("*.md"))


def sessions(page: Path) -> list[tuple[str, list[str]]]:
    """Commands with the lines shown after them, of all blocks; the port is a free one, and limits are `LIMITS`."""
    found: list[tuple[str, list[str]]] = []
    text = page.read_text()
    for shown, used in {PORT: str(free_ports(1)[0]), **LIMITS}.items():
        text = text.replace(shown, used)
    for block in re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:].split("  # ")[0], []))
            elif line.startswith("> ") and found and not found[-1][1]:
                found[-1] = (f"{found[-1][0]}\n{line[2:]}", [])
            elif found:
                found[-1][1].append(line)
    return found


def type_in(commands: list[str], folder: Path) -> list[tuple[int, list[str]]]:
    """Run the commands in one shell; exit code and printed lines of each. Nothing that they started is left."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("COV", "MAILBOAT"))},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": "100",
    }
    script = "".join(f"{command}\nprintf '\\n%s %d\\n' {shlex.quote(MARK)} $?\n" for command in commands)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    shell = subprocess.Popen(["bash"], cwd=folder, env=environment, text=True, start_new_session=True, **pipes)
    try:
        out, err = shell.communicate(script, timeout=SESSION_SECONDS)
    except subprocess.TimeoutExpired as error:
        done = (error.output or b"").decode(errors="replace").count(MARK)
        files = {
            one.name: one.read_text(errors="replace")[-3000:]
            for one in (folder / "out", folder / "err")
            if one.exists()
        }
        raise AssertionError(
            f"no end after {SESSION_SECONDS:g} s of: $ {commands[done]}\n{error.stderr!r}\n{files}"
        ) from error
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    printed = re.split(rf"\n{MARK} (\d+)\n", out)
    assert len(printed) == 2 * len(commands) + 1, out + err
    pairs = zip(printed[1::2], printed[0::2], strict=False)
    return [(int(code), text.strip("\n").splitlines()) for code, text in pairs]


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether what was printed is what the page shows, apart from space at the ends and what `…` stands for."""
    patterns = [re.escape(line.strip()).replace("…", ".*") for line in shown if line.strip()]
    lines = [line.strip() for line in printed if line.strip()]
    if len(patterns) != len(lines):
        return False
    return all(re.fullmatch(pattern, line) for pattern, line in zip(patterns, lines, strict=True))


@pytest.mark.timeout(300)
@pytest.mark.costly("a process for every line of the page, and an agent")
@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md", *HOW_TO])
def test_the_sessions_of_the_page_run_as_shown(name: str, tmp_path: Path) -> None:
    steps = sessions(ROOT / name)
    assert len(steps) >= 2
    results = type_in([command for command, _ in steps], tmp_path)
    for (command, shown), (code, printed) in zip(steps, results, strict=True):
        assert (command, code) == (command, 0), printed
        assert matches(shown, printed), "\n".join(["", "$ " + command, *printed, "--- but the page shows", *shown])


def test_a_different_output_is_noticed() -> None:
    assert matches(["offset …  ADD"], ["offset 12  ADD"])
    assert not matches(["offset …  ADD"], ["offset 12  DELETE"])
    assert not matches(["one"], ["one", "two"])
