"""Probes and metrics.

The probes are answered without a thread, so that they work while all else is busy.

They need the bare framework only. `create_probe_app` serves them alone while an agent cannot start;
`subscriber_application.py` and `routes/probe_operations.py` make them a part of an agent's API.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mailboat.agent.health import Health
from mailboat.api.problems import plain_problem
from mailboat.api.records import document_of
from mailboat.clock import Clock
from mailboat.config.document import HttpConfig, Verb
from mailboat.http.answers import json_answer, problem_answer
from mailboat.http.audit import ApiCall, AuditTrail
from mailboat.http.gate import Gate
from mailboat.http.reference import PAGE_POLICY, link_page
from mailboat.telemetry.exposition import Exposition
from mailboat.telemetry.meters import RequestRecorder

PROBE_LINKS: Final = (
    ("/healthz", "Liveness: whether the threads of this process make progress."),
    ("/readyz", "Readiness: whether its agents may serve."),
    (
        "/metrics",
        "Metrics in the Prometheus text format; needs a token with the verb `view`, unless metrics are open.",
    ),
)
Endpoint = Callable[[Request], Awaitable[Response]]


class Telemetry(Protocol):
    """What the process measures."""

    @property
    def requests(self) -> RequestRecorder:
        """Counts the API's requests."""

    def render(self, accept: str = "") -> Exposition:
        """What `/metrics` answers to a scraper that sends this `Accept` header."""


@dataclass(frozen=True)
class ProbePorts:
    """What probes work with.

    Attributes:
        health: How the process is.
        telemetry: Gives the text for `/metrics`, and counts requests.
    """

    health: Health
    telemetry: Telemetry


async def healthz(request: Request) -> Response:
    """Whether the threads of this process make progress: 503 names those that do not, and a restart is due."""
    seen = _ports(request).health.liveness()
    return json_answer(document_of(seen), HTTPStatus.OK if seen.alive else HTTPStatus.SERVICE_UNAVAILABLE)


async def readyz(request: Request) -> Response:
    """Whether every agent of this process may serve: 503 says which may not, and why."""
    seen = _ports(request).health.readiness()
    return json_answer(document_of(seen), HTTPStatus.OK if seen.ready else HTTPStatus.SERVICE_UNAVAILABLE)


async def metrics(request: Request) -> Response:
    """The metrics of this process, in the Prometheus text format, or as OpenMetrics where that is asked for."""
    call: ApiCall = request.state.call
    # the gate lets a request through without a caller only where all may read
    if not call.admits(Verb.VIEW) and call.caller is not None:
        return problem_answer(plain_problem(HTTPStatus.FORBIDDEN))
    accept = request.headers.get("accept", "")
    shown = await run_in_threadpool(_ports(request).telemetry.render, accept)  # it asks the journal, too
    return Response(shown.content, headers={"content-type": shown.content_type})


PROBE_ROUTES: Final = (Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics))


def index_page(links: Iterable[tuple[str, str]]) -> Endpoint:
    """The endpoint with a page that links to what an agent serves, by path and meaning."""
    page = link_page(links)

    async def show(_: Request) -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY})

    return show


def create_probe_app(ports: ProbePorts, config: HttpConfig, folder: Path, clock: Clock) -> ASGIApp:
    """Probes and metrics, and nothing else, behind the same gate as the whole API. Raises: as `Gate`."""
    app = Starlette(routes=[Route("/", index_page(PROBE_LINKS)), *PROBE_ROUTES])
    return Gate(with_ports(app, ports), config, folder, clock, AuditTrail(clock), ports.telemetry.requests)


def with_ports(app: ASGIApp, ports: ProbePorts, **more: object) -> ASGIApp:
    """The application, whose requests carry `ports` and `more` in their state."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {}).update(more, ports=ports)
        await app(scope, receive, send)

    return serve


def _ports(request: Request) -> ProbePorts:
    ports: ProbePorts = request.state.ports
    return ports
