"""The processes of the demo: real `mailboat agent run` children that say on a pipe when they are ready.

Each has a configuration file, as a user would write it: no more than differs from defaults. Threads of its own watch
each child and put events into one queue; nothing else is shared.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import yaml

from mailboat.cli.demo.demo_state import AUTHOR, GOLDEN, DemoProcess, SubscriberProgress
from mailboat.composition.environment import child_environment

ANNOUNCE_SECONDS: Final = 0.5
"""How often positions are announced, so that bars move; ten seconds are enough in production."""

KINDS: Final = ("sqlite", "files", "generations")
CHECK: Final = (
    "sh",
    "-c",
    """if grep -q '"action": "DELETE"'; then echo 'a delete needs a person'; exit 1; fi""",
)
"""Golden's check of every package: a hook that gets it as JSON, and refuses deletes by its exit code."""


@dataclass(frozen=True, slots=True)
class DemoSetting:
    """What all processes share.

    Attributes:
        folder: The home: the state of all processes, and their configuration files.
        source: What the publisher publishes.
        port: Where the publisher's API listens.
        storage: The `journal` and `blobs` sections of every configuration; none are the embedded ones of the home.
    """

    folder: Path
    source: Path
    port: int
    storage: dict[str, Any]


def write_configurations(setting: DemoSetting, agents: Sequence[DemoProcess]) -> None:
    """Write a configuration for each process into the home: all that `agent run --config FILE` needs."""
    for agent in agents:
        text = yaml.safe_dump(_document(setting, agent), sort_keys=False, allow_unicode=True, width=100)
        configuration_file(setting.folder, agent.name).write_text(
            f"# made by `mailboat demo`\n{text}", encoding="utf-8"
        )


def configuration_file(folder: Path, name: str) -> Path:
    """Where the configuration of a process is."""
    return folder / f"{name}.yaml"


def _document(setting: DemoSetting, agent: DemoProcess) -> dict[str, Any]:
    shared: dict[str, Any] = {**setting.storage, "logs": {"level": "warning"}}
    if agent.name == AUTHOR:
        return {
            **shared,
            "http": {"port": setting.port},
            "agents": {"publishers": [{"name": AUTHOR, "source": str(setting.source.absolute())}]},
        }
    subscriber: dict[str, Any] = {"announce_seconds": ANNOUNCE_SECONDS}
    if agent.name == GOLDEN:  # it never gives a package up: a person decides
        subscriber |= {"max_retries": None, "longest_pause_seconds": 1.0}
    subscribers = [_subscriber(follower) for follower in agent.followers]
    return {**shared, "http": {"port": 0}, "subscriber": subscriber, "agents": {"subscribers": subscribers}}


def _subscriber(follower: SubscriberProgress) -> dict[str, Any]:
    if follower.name == GOLDEN:
        return {"name": GOLDEN, "target": follower.target, "editable": True, "hooks": {"before": list(CHECK)}}
    return {"name": follower.name, "target": follower.target, "staging": {"golden": GOLDEN}}


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
            threading.Thread(target=listen, args=(pipe,), name=f"demo-{name}", daemon=True)
            for listen, pipe in ((self._receive, self._process.stdout), (self._note, self._process.stderr))
        ]
        for thread in self._threads:
            thread.start()

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
