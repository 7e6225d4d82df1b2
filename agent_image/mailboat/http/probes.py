"""Probes and metrics: answered without a thread, so that they work while all else is busy.

They need the bare framework only, so an agent without a publisher serves them alone and stays small:
`create_probe_app`. Called by `agent run`; `routes/process.py` makes them a part of the whole API.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mailboat.agent.health import Health
from mailboat.clock import Clock
from mailboat.config.document import HttpConfig, Verb
from mailboat.http.answers import problem_answer
from mailboat.http.audit import AuditTrail
from mailboat.http.gate import gated
from mailboat.http.problems import plain_problem

METRICS_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class ProbePorts(Protocol):
    """What probes work with."""

    @property
    def health(self) -> Health:
        """How the process is."""

    def metrics(self) -> str:
        """The text for `/metrics`, in the Prometheus format."""


async def healthz(request: Request) -> Response:
    """Whether the threads of this process make progress: 503 names those that do not, and a restart is due."""
    seen = _ports(request).health.liveness()
    return _document(asdict(seen), is_good=seen.is_alive)


async def readyz(request: Request) -> Response:
    """Whether every agent of this process may serve: 503 says which may not, and why."""
    seen = _ports(request).health.readiness()
    return _document(asdict(seen), is_good=seen.is_ready)


async def metrics(request: Request) -> Response:
    """The metrics of this process, in the Prometheus text format."""
    call = request.state.call
    call.verb = Verb.VIEW.value
    if call.caller is None or not call.caller.may(Verb.VIEW):
        return problem_answer(plain_problem(HTTPStatus.FORBIDDEN))
    return Response(_ports(request).metrics(), media_type=METRICS_MEDIA_TYPE)


def create_probe_app(ports: ProbePorts, config: HttpConfig, folder: Path, clock: Clock) -> ASGIApp:
    """Probes and metrics, and nothing else, behind the same gate as the whole API. Raises: as `gated`."""
    app = Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)])
    app.state.ports = ports
    return gated(app, config, folder, clock, AuditTrail(clock))


def _ports(request: Request) -> ProbePorts:
    ports: ProbePorts = request.app.state.ports
    return ports


def _document(document: dict[str, Any], *, is_good: bool) -> Response:
    status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(json.dumps(document), status, media_type="application/json")
