"""The processes of the demo: real `mailboat agent run` children that say on a pipe when they are ready.

Threads of its own watch each child and put events into one queue; nothing else is shared.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from mailboat.composition.environment import child_environment

_ERROR_LINES: Final = 12
_STOP_SECONDS: Final = 40.0


@dataclass(frozen=True, slots=True)
class Ready:
    """A child is ready: what it said."""

    child: Child
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """A child ended; the exit code is negative for a signal."""

    child: Child
    exit_code: int


EventPipe = queue.SimpleQueue[Any]
"""Queue of all events of a run; its reader dispatches by type."""


class Child:
    """One run of `mailboat agent run` in a process of its own."""

    def __init__(self, home: Path, name: str, command: Sequence[str], events: EventPipe) -> None:
        """Start it."""
        self.name = name
        self._events = events
        self._errors: deque[str] = deque(maxlen=_ERROR_LINES)
        self._process = subprocess.Popen(  # noqa: S603  # ourselves, with a file that we made
            command,
            env=child_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [
            self._listens(self._receive, self._process.stdout),
            self._listens(self._note, self._process.stderr),
        ]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        self._process.kill()
        self.wait()

    def ask_to_stop(self) -> None:
        """Send SIGTERM: the child finishes its current step, then exits."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Until it has ended, by SIGKILL if it must be; its exit code."""
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        for thread in self._threads:
            thread.join()
        return code

    def last_words(self) -> str:
        """What it wrote to standard error last."""
        return "\n".join(self._errors)

    def _listens(self, listen: Callable[[IO[str]], None], pipe: IO[str] | None) -> threading.Thread:
        thread = threading.Thread(target=listen, args=(pipe,), name=f"demo-{self.name}", daemon=True)
        thread.start()
        return thread

    def _receive(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                if line.endswith("\n"):  # a killed process may leave half a line
                    self._events.put(Ready(self, json.loads(line)))
        self._events.put(Ended(self, self._process.wait()))

    def _note(self, pipe: IO[str]) -> None:
        with pipe:
            self._errors.extend(line.rstrip("\n") for line in pipe)


def agent_command(configuration: Path) -> Sequence[str]:
    """The command line of a process that reports in JSON lines."""
    return [sys.executable, "-m", "mailboat.cli", "agent", "run", "--config", str(configuration), "-o", "json"]
