"""Ends the hooks of an agent that was killed: a small companion process, which outlives it by a moment.

An agent that gets SIGKILL can end nothing any more, and a hook that goes on would meet the hook of the next start. The
kernel's own signal for this (`PR_SET_PDEATHSIG`) reaches the command itself only, not what that has started, and has to
be set between fork and exec, where a process with threads must run nothing. So the watch learns of every hook through
a pipe; when the pipe ends while hooks run, it kills their process groups. One for a subscriber, from its first hook on.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
from typing import Final

_LOG: Final = logging.getLogger(__name__)
_CLOSE_SECONDS: Final = 5.0
_PROGRAM: Final = """
import os, signal, sys
running = set()
for line in sys.stdin.buffer:
    number = int(line[1:])
    running.add(number) if line[:1] == b"+" else running.discard(number)
for group in running:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class HookWatch:
    """Process that kills running hooks if the agent dies. Safe to use from several threads."""

    def __init__(self) -> None:
        """Nothing is started before the first hook."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._running: set[int] = set()

    def prepare(self) -> None:
        """A hook is about to be started: the watch is there before it."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()

    def began(self, group: int) -> None:
        """A hook runs, in the process group of that number."""
        with self._lock:
            # added before the pipe is written: a restarted watch gets every group of this set from `_start`
            self._running.add(group)
            if not self._send(f"+{group}"):
                self._start()

    def ended(self, group: int) -> None:
        """It has ended, with all that is known of it."""
        with self._lock:
            self._running.discard(group)
            self._send(f"-{group}")

    def close(self) -> None:
        """End the watch. No hook may run any more."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        """Start the watch, or another one after one that was killed."""
        self._end()
        # -I ignores PYTHON* variables and the user's site-packages, -S skips `site`: the start takes milliseconds
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
        nowhere = subprocess.DEVNULL
        try:
            # own session: a signal to the agent's process group (Ctrl-C) must not end the watch before the agent
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                command, bufsize=0, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
            )
        except OSError as error:
            _LOG.warning("hooks are not watched, and would go on if this process were killed: %s", error)
        for group in self._running:
            self._send(f"+{group}")

    def _end(self) -> None:
        """End the process: its pipe ends."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            _await_end(process)

    def _send(self, line: str) -> bool:
        """Write a line to the watch; whether its pipe took it."""
        if self._process is None or self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(f"{line}\n".encode())
        except OSError:
            return False
        return True


def _await_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for its end, which needs a moment only; one that does not come is not waited for."""
    try:
        process.wait(_CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
