"""The processes of the demo: real `mailboat subscribe` children that say on a pipe, in JSON lines, how far they are.

A child is watched by a thread of its own that puts what it hears into one queue; nothing else is shared.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from mailboat.agent.settings import child_environment

_ERROR_LINES = 12


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that a child, or the publisher, reported.

    Attributes:
        name: Who.
        facts: The line; empty when a child ended.
        exit_code: With which it ended, else None. Negative for a signal.
    """

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


class Child:
    """One run of `mailboat subscribe` in a process of its own."""

    def __init__(self, home: Path, name: str, target: str, ears: queue.SimpleQueue[Heard | Exception]) -> None:
        """Start it."""
        self.name = name
        self._ears = ears
        self._errors: list[str] = []
        self._process = subprocess.Popen(  # noqa: S603  # ourselves, with a name and a target that we made
            child_command(name, target),
            env=child_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [
            threading.Thread(target=listen, args=(pipe,), name=f"demo-{name}", daemon=True)
            for listen, pipe in ((self._hear, self._process.stdout), (self._note_errors, self._process.stderr))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: finish what is at hand, then go."""
        self._end(signal.SIGTERM)

    def last_words(self) -> str:
        """What it wrote to standard error last."""
        return "\n".join(self._errors[-_ERROR_LINES:])

    def _end(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait()
        for thread in self._threads:
            thread.join()

    def _hear(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                if line.endswith("\n"):  # a killed process may leave half a line
                    self._ears.put(Heard(self.name, json.loads(line)))
        self._ears.put(Heard(self.name, exit_code=self._process.wait()))

    def _note_errors(self, pipe: IO[str]) -> None:
        with pipe:
            self._errors.extend(line.rstrip("\n") for line in pipe)


def child_command(name: str, target: str) -> Sequence[str]:
    """The command line of a subscriber that reports in JSON lines."""
    return [sys.executable, "-m", "mailboat.cli", "subscribe", name, "--into", target, "-o", "json"]
