"""Puts the API together: routes, errors as problem documents, the description, and the gate around it all.

`create_app` is what an agent with a publisher serves; one without serves `probes.py` alone. Both are plain ASGI
applications; `server.py` runs them. Called by the command line's `agent run`, and by tests.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from http import HTTPStatus
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, cast, get_args

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

import mailboat
from mailboat.api.dashboard_files import DASHBOARD_FILES
from mailboat.api.problems import plain_problem, problem_of, status_of
from mailboat.config.document import HttpConfig
from mailboat.errors import AccessDeniedError, MailboatError, UsageError
from mailboat.http.answers import problem_answer
from mailboat.http.audit import Call
from mailboat.http.dashboard import dashboard
from mailboat.http.description import describe
from mailboat.http.event_stream import EventStreams
from mailboat.http.gate import gated, incident_of
from mailboat.http.ports import ApiPorts
from mailboat.http.probes import with_ports
from mailboat.http.reference import PAGE_POLICY, reference_page
from mailboat.http.routes import (
    builds,
    distributions,
    failures,
    job_requests,
    job_schedules,
    log,
    members,
    process,
    queues,
    sling,
    storage,
)

_SHOWN_MISTAKES: Final = 3
_SHOWN_KIND: Final = 80
_SHOWN_PATH: Final = 200
_UNKNOWN: Final = "unexpected_keyword_argument"
"""What the framework calls a member that a record does not have."""

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
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
    app = with_ports(_described_api(), ports, streams=streams)
    return gated(app, config, folder, ports.clock, ports.audit, ports.telemetry.requests)


@cache
def _described_api() -> FastAPI:
    """Return the routes with their description; one for the process, as nothing in it belongs to one agent."""
    app = _bare_api()
    document = describe(app)
    app.state.paths = ("/api/docs", "/api/openapi.json", *document["paths"])
    text, page = json.dumps(document, ensure_ascii=False), reference_page(document)

    async def openapi(_: Request) -> Response:
        return Response(text, media_type="application/json")

    async def docs(_: Request) -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY})

    for path in DASHBOARD_FILES:
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
    for one in (
        members,
        distributions,
        builds,
        queues,
        failures,
        job_schedules,
        job_requests,
        log,
        storage,
        process,
        sling,
    ):
        app.include_router(one.router)
    app.include_router(queues.commands)
    app.include_router(queues.commands_to_subscribers)
    app.include_router(distributions.changes)
    app.include_router(distributions.plans)
    app.add_exception_handler(MailboatError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_mistakes)
    app.add_exception_handler(HTTPException, _answer_status)
    app.add_exception_handler(Exception, _answer_defect)
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    known = cast("MailboatError", error)
    _call(request).outcome = known.name
    if type(known) is AccessDeniedError:  # those below it say more, to a caller that is known
        return problem_answer(plain_problem(status_of(known)))
    return problem_answer(problem_of(known))


async def _answer_mistakes(request: Request, error: Exception) -> Response:
    """What is wrong with a request, place by place, without repeating what it said."""
    found = cast("RequestValidationError", error).errors()
    kind = request.headers.get("content-type", "")
    if any(one["loc"][:1] == ("body",) for one in found) and "json" not in kind.lower():
        return await _answer_error(request, _undeclared(kind))
    texts = [f"{'.'.join(map(str, one['loc']))}: {_said_of(one)}" for one in found[:_SHOWN_MISTAKES]]
    more = len(found) - len(texts)
    message = "; ".join(texts) + (f"; and {more} more" if more else "")
    return await _answer_error(request, UsageError(message, next_step=_near_member(request, found)))


def _said_of(mistake: Mapping[str, Any]) -> str:
    return "there is no such member" if mistake["type"] == _UNKNOWN else str(mistake["msg"])


def _near_member(request: Request, mistakes: Sequence[Mapping[str, Any]]) -> str | None:
    """What the first unknown member of the body was meant to be, as far as that can be guessed."""
    unknown = next((mistake for mistake in mistakes if mistake["type"] == _UNKNOWN), None)
    if unknown is None:
        return None
    kind = request.scope["route"].body_field.field_info.annotation
    record = next(arg for arg in (kind, *get_args(kind)) if is_dataclass(arg))
    known = [field.name for field in fields(record)]
    near = difflib.get_close_matches(str(unknown["loc"][-1]), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"


def _undeclared(kind: str) -> UsageError:
    said = repr(kind[:_SHOWN_KIND]) if kind else "missing"
    return UsageError(
        f"the body must be JSON, but the header Content-Type is {said}",
        next_step="send the header Content-Type: application/json",
    )


async def _answer_status(request: Request, error: Exception) -> Response:
    known = cast("HTTPException", error)
    _call(request).outcome = str(known.status_code)
    problem = plain_problem(known.status_code)
    if known.status_code == HTTPStatus.NOT_FOUND:
        path = request.url.path
        detail = f"this agent serves nothing at {path[:_SHOWN_PATH]!r}"
        return problem_answer(replace(problem, detail=detail, next_step=near_path(path, request.app.state.paths)))
    if known.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
        return problem_answer(problem)
    allowed = ", ".join(_methods_at(request))
    detail = f"this path does not support {request.method}"
    answer = problem_answer(replace(problem, detail=detail, next_step=f"it supports {allowed}"))
    answer.headers["Allow"] = allowed
    return answer


def near_path(path: str, templates: Iterable[str]) -> str:
    """A suggestion for a path that does not exist: the most similar one, with the names that were sent filled in."""
    sent = path[:_SHOWN_PATH].split("/")
    filled = {_filled(template.split("/"), sent) for template in templates}
    near = difflib.get_close_matches("/".join(sent), sorted(filled), n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near else "GET /api/docs lists all paths"


def _filled(template: Sequence[str], sent: Sequence[str]) -> str:
    pairs = zip_longest(template, sent[: len(template)], fillvalue="")
    return "/".join(given if name.startswith("{") and given else name for name, given in pairs)


def _methods_at(request: Request) -> Sequence[str]:
    """What the path supports; the framework would name the methods of one of its routes only."""
    app: FastAPI = request.app
    found = {method: {**request.scope, "method": method} for method in _METHODS}
    return [name for name, scope in found.items() if any(route.matches(scope)[0] is Match.FULL for route in app.routes)]


async def _answer_defect(request: Request, error: Exception) -> Response:
    call = _call(request)
    call.outcome = "incident"
    return problem_answer(incident_of(error, call.request_id))


def _call(request: Request) -> Call:
    call: Call = request.state.call
    return call
