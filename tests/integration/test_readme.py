"""The sessions of the README and the how-to pages: every command succeeds and prints what the page shows.

A block marked `console` is a session: lines after `$ ` are commands, `> ` goes on with one, the others are its output.
`…` in a shown line stands for anything. All blocks of a page run one after the other in one folder.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest
from mailboat.testing.wait import wait_until
from support.free_ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
MARK = "=====done====="
PORTS = ("8097", "8098", "8099")
LIMITS = {"timeout 30 ": "timeout 120 ", "--wait 30": "--wait 120"}
"""What a reader waits for at most, and what a machine with other work may take: a command starts in 5 s at load 20."""
LOOKS = re.compile(r"do sleep 0\.\d; done")
"""The pause of a loop; where each look is a command, it costs 0.3 CPU seconds."""
STEP_SECONDS = 150.0
"""Longer than the limits of all commands on the pages: a command that ends later waits without a limit."""

LONG = {
    "publish-from-ci.md",
    "purge-a-cache.md",
    "run-jobs.md",
    "share-work.md",
    "suspend-a-subscriber.md",
    "unblock-a-subscriber.md",
}
"""Pages with agents in the background or many commands: 34 of the 50 CPU seconds of all pages."""
HOW_TO = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs/how-to").glob("*.md"))


def sessions(page: Path) -> list[tuple[str, list[str]]]:
    """Commands with the lines shown after them, of all blocks; ports are free ones, and limits are `LIMITS`."""
    found: list[tuple[str, list[str]]] = []
    text = page.read_text()
    free = map(str, free_ports(len(PORTS)))
    for shown, used in [*zip(PORTS, free, strict=True), *LIMITS.items()]:
        text = text.replace(shown, used)
    for block in re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                command = line[2:].split("  # ")[0]
                found.append((LOOKS.sub("do sleep 1; done", command) if "mailboat" in command else command, []))
            elif line.startswith("> ") and found and not found[-1][1]:
                found[-1] = (f"{found[-1][0]}\n{line[2:]}", [])
            elif found:
                found[-1][1].append(line)
    return found


class Shell:
    """One shell, to which commands are typed one after the other. Nothing that they started is left at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("COV", "MAILBOAT"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "COLUMNS": "100",
            "PYTHONFAULTHANDLER": "1",  # SIGABRT makes each process print where its threads are
        }
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `__exit__`
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._process = subprocess.Popen(
            ["bash"], cwd=folder, env=environment, start_new_session=True, bufsize=0, **pipes
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._errors.close()

    def type_in(self, command: str, seconds: float = STEP_SECONDS) -> tuple[int, list[str]]:
        """Exit code and printed lines of a command; it fails the test where the command takes longer than that."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\nprintf '\\n%s %d\\n' {shlex.quote(MARK)} $?\n".encode())
        assert self._process.stdout is not None
        printed, ends = b"", time.monotonic() + seconds
        while (end := re.search(rb"\n%s (\d+)\n" % MARK.encode(), printed)) is None:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, ends - time.monotonic()))
            piece = os.read(self._process.stdout.fileno(), 65_536) if ready else b""
            if not piece:
                pytest.fail(f"no end within {seconds:g} s of: $ {command}\n{printed.decode()}\n{self.traces()}")
            printed += piece
        return int(end[1]), printed[: end.start()].decode().strip("\n").splitlines()

    def traces(self) -> str:
        """What the shell and the commands in the background wrote, after each process added where its threads are."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGABRT)
        # not the shell alone, after whose end the others may still write; those that have ended count as Z
        alive = ["pgrep", "--pgroup", str(self._process.pid), "--runstates", "DRST"]
        with suppress(AssertionError):
            wait_until(lambda: not subprocess.run(alive, stdout=subprocess.PIPE, check=False).stdout)
        self._errors.seek(0)
        texts = {"the shell": self._errors.read()}
        texts |= {path.name: path.read_bytes() for path in self._folder.iterdir() if path.name in {"out", "err"}}
        return "\n".join(f"--- {name}\n{text.decode(errors='replace')[-8000:]}" for name, text in texts.items())


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether what was printed is what the page shows, apart from space at the ends and what `…` stands for.

    That is any text within a line, and some lines where it stands alone.
    """
    patterns = [re.escape(line.strip()).replace("…", ".*") for line in shown if line.strip()]
    pattern = "\n".join(".*(?:\n.*)*" if each == ".*" else each for each in patterns)
    return re.fullmatch(pattern, "\n".join(line.strip() for line in printed if line.strip())) is not None


@pytest.mark.costly("a process for every line of the page, and an agent")
@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/quickstart.md",
        *(
            pytest.param(item, marks=pytest.mark.long("trees-and-demos")) if Path(item).name in LONG else item
            for item in HOW_TO
        ),
    ],
)
def test_the_sessions_of_the_page_run_as_shown(name: str, tmp_path: Path) -> None:
    steps = sessions(ROOT / name)
    assert len(steps) >= 2
    with Shell(tmp_path) as shell:
        for command, shown in steps:
            code, printed = shell.type_in(command)
            assert (command, code) == (command, 0), "\n".join([*printed, shell.traces()])
            assert matches(shown, printed), "\n".join(["", "$ " + command, *printed, "--- but the page shows", *shown])


def test_a_step_that_does_not_end_is_named_with_the_traces_of_what_it_waits_for(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text(
        "def hangs():\n    import time\n    print('in the loop', flush=True)\n    time.sleep(60)\nhangs()\n"
    )
    with Shell(tmp_path) as shell:
        assert shell.type_in("python hang.py > out 2> err &") == (0, [])
        assert shell.type_in("until grep -q loop out; do sleep 0.02; done") == (0, [])
        with pytest.raises(pytest.fail.Exception, match=r"(?s)no end within 0.5 s of: \$ wait %1.*in hangs"):
            shell.type_in("wait %1", seconds=0.5)


def test_a_different_output_is_noticed() -> None:
    assert matches(["offset …  ADD"], ["offset 12  ADD"])
    assert not matches(["offset …  ADD"], ["offset 12  DELETE"])
    assert not matches(["one"], ["one", "two"])
