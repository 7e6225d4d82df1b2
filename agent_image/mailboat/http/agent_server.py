"""The HTTP server of an agent's process.

With a publisher it serves the whole API, else the part of its subscribers.

`probes_during` serves probes while the process can't start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from mailboat.agent.health import Health
from mailboat.clock import Deadline, SystemClock
from mailboat.http.probes import ProbePorts, create_probe_app
from mailboat.http.server import HttpServer
from mailboat.http.subscriber_application import subscriber_application
from mailboat.telemetry.exposition import AgentMetrics

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from mailboat.agent.process import AgentProcess
    from mailboat.composition.home import Home

_CLOSE_SECONDS: Final = 1.0
"""How long a probe that is being answered may take when the process is about to listen at the same port."""


def server_of(process: AgentProcess) -> HttpServer:
    """The server of a started process; it listens nowhere yet.

    Raises: ConfigInvalidError for tokens that can't be read, or an address that needs them.
    """
    return HttpServer(_app_of(process), process.config.http, process.stopping)


@contextmanager
def probes_during(health: Health, home: Home) -> Iterator[None]:
    """Answer probes from `health` until the context ends and frees the port. Raises: as `HttpServer.start`."""
    config, clock = home.config.http, SystemClock()
    app = create_probe_app(ProbePorts(health, AgentMetrics(clock)), config, home.path, clock)
    server = HttpServer(app, config)
    server.start()
    try:
        yield
    finally:
        server.stop(Deadline(clock, _CLOSE_SECONDS))


def _app_of(process: AgentProcess) -> ASGIApp:
    if process.control is not None and process.history is not None:
        from mailboat.http.agent_application import agent_application

        return agent_application(process, process.control, process.history)
    probes = ProbePorts(process, process.observability)
    if process.own is not None and process.history is not None:
        return subscriber_application(process, process.own, process.history, probes)
    return create_probe_app(probes, process.config.http, process.workspace.home.path, SystemClock())
