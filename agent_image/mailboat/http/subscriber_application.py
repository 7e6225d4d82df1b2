"""The API of an agent without a publisher: probes, and what its dashboard reads of its own subscribers.

A part of the whole API, with the same paths, records and access rules, and without the framework that describes it,
which costs 19 MB. It changes nothing: commands are sent by the agent of a publisher, or by the command line.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mailboat.agent.own_subscribers import OwnSubscribers
from mailboat.api.dashboard_files import DASHBOARD_FILES, accepts_gzip
from mailboat.api.records import CallerView, document_of
from mailboat.clock import SystemClock
from mailboat.config.document import Verb
from mailboat.control.event_feed import EventFeed
from mailboat.control.lag_history import MAX_BYTES as MAX_HISTORY_BYTES
from mailboat.control.lag_history import LagHistory
from mailboat.errors import AccessDeniedError, UsageError
from mailboat.http.access import LOCAL
from mailboat.http.answers import json_answer
from mailboat.http.audit import AuditTrail, Call
from mailboat.http.dashboard import dashboard
from mailboat.http.event_stream import EventStreamResponse, EventStreams
from mailboat.http.gate import Gate
from mailboat.http.probes import PROBE_LINKS, PROBE_ROUTES, ProbePorts, with_ports
from mailboat.http.reference import PAGE_POLICY, link_page
from mailboat.http.refusals import HANDLERS

if TYPE_CHECKING:
    from mailboat.agent.process import AgentProcess

SCOPE: Final = "subscribers"
MAX_PAGE: Final = 1000
_LONGEST_NUMBER: Final = 19
_API: Final = "/api/v1"
_LINKS: Final = (
    ("/", "Dashboard of the subscribers of this agent."),
    (f"{_API}/status", "Journal and subscribers of this agent."),
    (f"{_API}/events?follow=false", "The same as server-sent events; without `follow=false` changes follow."),
    (f"{_API}/history", "Lag and throughput of the last hour."),
    (f"{_API}/errors", "Error queues of the subscribers."),
    (f"{_API}/memory", "Memory of this agent."),
    *PROBE_LINKS,
)
Read = Callable[[Request], object]


def subscriber_application(
    process: AgentProcess, own: OwnSubscribers, history: LagHistory, probes: ProbePorts
) -> ASGIApp:
    """The application of a started process without publishers. Raises: as `Gate`."""
    clock, config = SystemClock(), process.config.http
    feed = EventFeed(own.status, uuid.uuid4().hex[:8])
    streams = EventStreams(feed, clock, process.stopping, max(1, config.max_connections // 2))
    memory = process.observability.memory
    streams.account_for(memory)
    memory.add("history", lambda: history.size_bytes, MAX_HISTORY_BYTES)
    routes = [
        *(Route(path, dashboard) for path in DASHBOARD_FILES),
        Route("/api/docs", _list_paths),
        *PROBE_ROUTES,
        _events(streams),
        _read("/caller", _caller_of),
        _read("/status", lambda _: own.status()),
        _read("/history", lambda _: history.total()),
        _read("/memory", lambda _: memory.view()),
        _read("/subscribers/{name}/history", lambda request: _history_of(history, request), "instance"),
        _read("/errors", lambda request: _failed(own, request), "subscriber", "page", "max_items"),
        _read(
            "/publishers/{publisher}/queues/{name}", lambda request: _queue(own, request), "from_offset", "max_items"
        ),
    ]
    app = Starlette(routes=routes, exception_handlers={**HANDLERS})
    recorder = process.observability.requests
    return Gate(with_ports(app, probes), config, process.workspace.home.path, clock, AuditTrail(clock), recorder)


def _read(path: str, read: Read, *parameters: str) -> Route:
    """A route that answers callers with the verb `view`. `read` runs in a thread: it may ask targets and journal."""

    async def answer(request: Request) -> Response:
        _admit(request, route, parameters)
        return json_answer(document_of(await run_in_threadpool(read, request)))

    route = Route(f"{_API}{path}", answer)
    return route


def _events(streams: EventStreams) -> Route:
    async def follow(request: Request) -> Response:
        call = _admit(request, route, ("follow",))
        is_packed = accepts_gzip(request.headers.get("accept-encoding", ""))
        is_followed = request.query_params.get("follow", "true").lower() not in {"false", "0", "no"}
        last_id = request.headers.get("last-event-id")
        return EventStreamResponse(streams, call.caller or LOCAL, last_id, follow=is_followed, is_packed=is_packed)

    route = Route(f"{_API}/events", follow)
    return route


def _admit(request: Request, route: Route, parameters: tuple[str, ...]) -> Call:
    """The call. Raises: AccessDeniedError without the verb `view`; UsageError for an unknown parameter."""
    call: Call = request.state.call
    request.scope["route"] = route  # what metrics name the request by: the template, never the path that was sent
    if not call.admits(Verb.VIEW):
        raise AccessDeniedError("")
    unknown = next((name for name in request.query_params if name not in parameters), None)
    if unknown is not None:
        taken = ", ".join(parameters) or "none"
        raise UsageError(f"the query has an unknown parameter {unknown[:200]!r}", next_step=f"it takes {taken}")
    return call


async def _list_paths(_: Request) -> Response:
    return Response(link_page(_LINKS), media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY})


def _caller_of(request: Request) -> CallerView:
    caller = request.state.call.caller or LOCAL
    return CallerView(caller.name, tuple(sorted(map(str, caller.verbs))), SCOPE)


def _history_of(history: LagHistory, request: Request) -> object:
    return history.of(request.path_params["name"], request.query_params.get("instance"))


def _failed(own: OwnSubscribers, request: Request) -> object:
    query = request.query_params
    return own.failed(query.get("subscriber"), query.get("page"), _number(request, "max_items", 100, MAX_PAGE) or 1)


def _queue(own: OwnSubscribers, request: Request) -> object:
    wanted = _number(request, "max_items", 100, MAX_PAGE) or 1
    from_offset = _number(request, "from_offset", 0, 2**63 - 1)
    return own.queue(request.path_params["publisher"], request.path_params["name"], from_offset, wanted)


def _number(request: Request, name: str, default: int, most: int) -> int:
    """A parameter. Raises: UsageError."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER and int(text) <= most):
        raise UsageError(f"query.{name}: expected a number from 0 to {most}, not {text[:40]!r}")
    return int(text)
