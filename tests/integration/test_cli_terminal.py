"""What a person at a terminal sees: commands of a real process with a pseudo-terminal as standard error."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until

PROGRAM = [sys.executable, "-m", "mailboat.cli"]


class Terminal:
    """A process whose standard error is a terminal of 100 columns; its output stays apart."""

    def __init__(self, home: Path, *words: object) -> None:
        self._master, slave = pty.openpty()
        environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm", "MAILBOAT_HOME": str(home)}
        self.process = subprocess.Popen(
            [*PROGRAM, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def read(self) -> str:
        """All that was shown until now; ends with the process."""
        try:
            self.shown += os.read(self._master, 65_536).decode(errors="replace")
        except OSError:  # the other end is closed: the process has ended
            self.process.wait()
        return self.shown

    def end(self) -> tuple[int, str, str]:
        """Exit code, standard output, and what the terminal showed."""
        out, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        seen = -1
        while seen < len(self.shown):
            seen = len(self.shown)
            self.read()
        os.close(self._master)
        return self.process.returncode, out.decode(), self.shown


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.bin").write_bytes(os.urandom(200_000))
    return folder


def test_publish_of_changes_shows_bytes_of_both_phases(boat: Any, site: Path) -> None:
    code, out, shown = Terminal(boat.home, "publish", "--source", site, "--changed").end()
    assert code == 0
    assert out.startswith("dstrpck-")
    for text in ("comparing", "publishing", "/1.0 MB", "ETA"):
        assert text in shown
    assert "\x1b" not in out


def test_wait_shows_a_live_count_and_ctrl_c_says_what_is_published(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/0.bin")
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    terminal = Terminal(boat.home, "publish", "--source", site, "/1.bin", "--wait", "120")
    wait_until(lambda: "imported by 0/1 subscribers; waited" in terminal.read())
    terminal.process.send_signal(signal.SIGINT)
    code, out, shown = terminal.end()
    package = out.split()[0]
    assert (code, package.startswith("dstrpck-")) == (130, True)
    assert "200.0/200.0 kB" in shown, "each byte counts once"
    assert f"1 package published, the last one {package} at offset 1" in shown
    assert f"next  mailboat distributions get {package}" in shown
