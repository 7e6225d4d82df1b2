"""`agent health`, which the image's HEALTHCHECK runs: it asks the port that the configuration names."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Probes(BaseHTTPRequestHandler):
    """Answers /healthz with the status that the test sets on the server."""

    def do_GET(self) -> None:
        assert self.path == "/healthz"
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class calls it so
        """Print nothing."""


@pytest.fixture
def probes() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Probes) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def config_of(folder: Path, port: int, host: str = "127.0.0.1") -> Path:
    file = folder / "agent.yaml"
    tokens = "" if host == "127.0.0.1" else ", tokens: [{name: ops, token: {env: T}}]"
    file.write_text(f"http: {{port: {port}, host: '{host}'{tokens}}}\n")
    return file


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_health_asks_the_configured_port(
    new_boat: Any, probes: HTTPServer, tmp_path: Path, host: str, status: int, code: int
) -> None:
    probes.status = status  # type: ignore[attr-defined]
    ran = new_boat.run("agent", "health", "--config", config_of(tmp_path, probes.server_port, host), "-o", "json")
    assert (ran.code, json.loads(ran.out)["alive"]) == (code, code == 0)


def test_health_without_an_agent_is_a_temporary_failure(new_boat: Any, probes: HTTPServer, tmp_path: Path) -> None:
    probes.server_close()
    ran = new_boat.run("agent", "health", "--config", config_of(tmp_path, probes.server_port))
    assert (ran.code, "AgentUnreachable" in ran.err) == (75, True)


def test_health_refuses_a_port_that_is_chosen_at_start(new_boat: Any, tmp_path: Path) -> None:
    assert new_boat.run("agent", "health", "--config", config_of(tmp_path, 0)).code == 2


def test_the_image_checks_its_health_without_a_fixed_port() -> None:
    lines = (ROOT / "agent_image/Dockerfile").read_text().splitlines()
    check = lines[next(number for number, line in enumerate(lines) if line.startswith("HEALTHCHECK")) + 1]
    assert '"agent", "health"' in check
    assert "8080" not in check
