"""Composes the API: routes, problem documents, description, gate.

`create_app` is what an agent with a publisher serves; one without serves `probes.py` alone. Both are plain ASGI
applications; `server.py` runs them. Called by the command line's `agent run`, and by tests.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast, get_args

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

import mailboat
from mailboat.api.dashboard_files import DASHBOARD_PATHS
from mailboat.config.document import HttpConfig
from mailboat.errors import UsageError
from mailboat.http.answers import dashboard
from mailboat.http.bodies import is_json
from mailboat.http.description import describe
from mailboat.http.error_answers import HANDLERS, answer_error, undeclared_body
from mailboat.http.event_stream import EventStreams
from mailboat.http.gate import Gate
from mailboat.http.ports import ApiPorts
from mailboat.http.probes import with_ports
from mailboat.http.reference import PAGE_POLICY, Description
from mailboat.http.routes import (
    blob_store,
    distributions,
    error_queue,
    job_requests,
    job_schedules,
    journal,
    probe_operations,
    queues,
    sling,
    status,
)

_SHOWN_MISTAKES: Final = 3
_UNKNOWN: Final = "unexpected_keyword_argument"
"""What the framework calls a member that a record does not have."""

_ROUTERS: Final = (
    status.router,
    distributions.router,
    distributions.builds,
    queues.router,
    error_queue.router,
    # before `/jobs/{job}`, which would take `schedules` for a job: the first route that matches answers
    job_schedules.router,
    job_requests.router,
    journal.router,
    blob_store.router,
    probe_operations.router,
    sling.router,
    queues.commands,
    queues.commands_to_subscribers,
    distributions.changes,
    distributions.plans,
)
_SUMMARY: Final = "Publish content to any number of subscribers, and see which have it."


def create_app(ports: ApiPorts, config: HttpConfig, folder: Path) -> ASGIApp:
    """The whole API of an agent.

    Args:
        ports: What it works with.
        config: Tokens and limits.
        folder: What relative files of tokens are relative to.

    Raises:
        ConfigInvalidError: A token is missing, or two are the same.
    """
    streams = EventStreams(ports.feed, ports.clock, ports.stopping, max(1, config.max_connections // 2))
    streams.account_for(ports.memory)
    app = with_ports(_served_api(), ports, streams=streams)
    return Gate(app, config, folder, ports.clock, ports.audit, ports.telemetry.requests)


@cache
def _served_api() -> FastAPI:
    """Return the routes; one application for the process, as nothing in it belongs to one agent."""
    app = _bare_api()
    routes = [route for router in _ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    app.state.paths = ("/api/docs", "/api/openapi.json", *dict.fromkeys(route.path_format for route in routes))
    description = app.state.description = Description(api_description)

    # no coroutines: the description is made in a thread, and the others are served meanwhile
    def openapi(_: Request) -> Response:
        return Response(description.texts().document, media_type="application/json")

    def docs(_: Request) -> Response:
        headers = {"Content-Security-Policy": PAGE_POLICY}
        return Response(description.texts().page, media_type="text/html", headers=headers)

    for path in DASHBOARD_PATHS:
        app.add_route(path, dashboard, include_in_schema=False)
    app.add_route("/api/openapi.json", openapi, include_in_schema=False)
    app.add_route("/api/docs", docs, include_in_schema=False)
    return app


def api_description() -> dict[str, Any]:
    """The OpenAPI document: what `/api/openapi.json` gives, and `docs/openapi.json` holds."""
    return describe(_bare_api())


def _bare_api() -> FastAPI:
    app = FastAPI(
        title="Mailboat",
        summary=_SUMMARY,
        version=mailboat.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    for router in _ROUTERS:
        app.include_router(router)
    for kind, handler in {**HANDLERS, RequestValidationError: _answer_mistakes}.items():
        app.add_exception_handler(kind, handler)
    return app


async def _answer_mistakes(request: Request, error: Exception) -> Response:
    """What is wrong with a request, place by place, without repeating what it said."""
    found = cast("RequestValidationError", error).errors()
    kind = request.headers.get("content-type", "")
    if any(mistake["loc"][:1] == ("body",) for mistake in found) and not is_json(kind):
        return await answer_error(request, undeclared_body(kind))
    texts = [f"{'.'.join(map(str, mistake['loc']))}: {_said_of(mistake)}" for mistake in found[:_SHOWN_MISTAKES]]
    more = len(found) - len(texts)
    message = "; ".join(texts) + (f"; and {more} more" if more else "")
    return await answer_error(request, UsageError(message, next_step=_near_member(request, found)))


def _said_of(mistake: Mapping[str, Any]) -> str:
    return "there is no such member" if mistake["type"] == _UNKNOWN else str(mistake["msg"])


def _near_member(request: Request, mistakes: Sequence[Mapping[str, Any]]) -> str | None:
    """What the first unknown member of the body was meant to be, as far as that can be guessed."""
    unknown = next((mistake for mistake in mistakes if mistake["type"] == _UNKNOWN), None)
    if unknown is None or len(unknown["loc"]) > len(("body", "member")):  # the names of inner records are not known
        return None
    kind = request.scope["route"].body_field.field_info.annotation
    record = next(arg for arg in (kind, *get_args(kind)) if is_dataclass(arg))
    known = [field.name for field in fields(record)]
    near = difflib.get_close_matches(str(unknown["loc"][-1]), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
