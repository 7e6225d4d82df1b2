"""SIGTERM under load: the agent ends within its time with exit code 0, and what it had accepted is there, once."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from mailboat.api.client import HttpControl
from mailboat.api.records import DistributionView
from mailboat.errors import AgentUnreachableError, RetryableError
from mailboat.model.requests import parse_request
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.forked_programs import start_mailboat

SHUTDOWN_SECONDS = 60.0
CALLERS = 4
ENOUGH = 40
EDGES = {"edge-1", "edge-2"}
CONFIG = """
agents:
  publishers:
    - {{name: author, source: {source}}}
  subscribers:
    - {{name: edge-1, target: "files:{folder}/edge-1", editable: true}}
    - {{name: edge-2, target: "sqlite:{folder}/edge-2.db"}}
http: {{port: 0, requests_per_second: 10000, burst_requests: 10000}}
subscriber: {{shutdown_seconds: 60, announce_seconds: 0.2}}
"""


class Load:
    """Callers that publish without a pause until the agent is gone; what was answered is kept."""

    def __init__(self, url: str) -> None:
        self.accepted: dict[str, DistributionView] = {}
        self.enough = threading.Event()
        self._url = url
        self._threads = [threading.Thread(target=self._publish, args=(number,)) for number in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()

    def _publish(self, caller: int) -> None:
        number = 0
        with HttpControl(self._url) as control:
            while True:
                request = f"caller-{caller}-{number}"
                order = parse_request("ADD", (f"/{number % 5}.html",), request_id=request)
                try:
                    self.accepted[request] = control.distribute("author", order)
                except AgentUnreachableError:
                    return
                except RetryableError:
                    continue
                number += 1
                if len(self.accepted) >= ENOUGH:
                    self.enough.set()


class Agent:
    """A process of `agent run` that is ready."""

    def __init__(self, config: Path, home: Path) -> None:
        self._errors = home.with_suffix(".errors")
        words = ["--home", home, "agent", "run", "--config", config, "-o", "json"]
        self._process = start_mailboat(words, self._errors)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._errors.read_text()
        self.url: str = json.loads(line)["url"]

    def end(self) -> str:
        """Stop it; what it said to standard error."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=SHUTDOWN_SECONDS + PATIENCE_SECONDS)  # ends what hangs
        finally:
            self._process.kill()
        errors = self._errors.read_text()
        assert self._process.returncode == 0, errors
        return errors


@pytest.fixture
def config(tmp_path: Path) -> Path:
    source = tmp_path / "site"
    source.mkdir()
    for number in range(5):
        (source / f"{number}.html").write_text(f"page {number}")
    file = tmp_path / "agent.yaml"
    file.write_text(CONFIG.format(source=source, folder=tmp_path))
    return file


def test_sigterm_under_load_loses_nothing_that_was_accepted_and_needs_no_repair(config: Path, tmp_path: Path) -> None:
    agent = Agent(config, tmp_path / "home")
    load = Load(agent.url)
    assert load.enough.wait(PATIENCE_SECONDS)
    errors = agent.end()
    load.join()
    assert "Traceback" not in errors
    agent = Agent(config, tmp_path / "home")
    try:
        with HttpControl(agent.url) as control:
            for request, before in load.accepted.items():
                after = control.distribute("author", parse_request("ADD", before.paths, request_id=request))
                assert (after.repeated, after.offset) == (True, before.offset)
            wait_until(
                lambda: {subscriber.name for subscriber in control.status().subscribers} == EDGES, "both to be known"
            )
            last = max(load.accepted.values(), key=lambda one: one.offset)
            done = control.distribution("author", last.package_id, wait_seconds=PATIENCE_SECONDS)
            assert (done.state, set(done.imported)) == ("distributed", EDGES)
    finally:
        assert "Traceback" not in agent.end()
