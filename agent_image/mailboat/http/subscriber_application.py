"""The API of an agent without a publisher.

Probes, and what its dashboard needs of its own subscribers.

A part of the whole API, with the same paths, records and access rules, and without the framework that describes it,
which costs 19 MB.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mailboat.agent.own_subscribers import OwnSubscribers, SentCommands
from mailboat.agent.restores import SnapshotRestores
from mailboat.api.dashboard_files import DASHBOARD_PATHS, accepts_gzip
from mailboat.api.operations import LONGEST_WAIT_SECONDS, PREFIX
from mailboat.api.records import CallerView, CommandView, document_of
from mailboat.clock import Clock, SystemClock
from mailboat.config.document import Verb
from mailboat.control.command_sender import are_answered
from mailboat.control.event_feed import EventFeed
from mailboat.control.lag_history import MAX_BYTES as MAX_HISTORY_BYTES
from mailboat.control.lag_history import LagHistory
from mailboat.errors import AccessDeniedError, AgentMissingError, UsageError
from mailboat.http.access import LOCAL
from mailboat.http.answers import dashboard, json_answer
from mailboat.http.audit import ApiCall, AuditTrail
from mailboat.http.error_answers import HANDLERS, answer_error, undeclared_body
from mailboat.http.event_stream import EventStreamResponse, EventStreams
from mailboat.http.gate import Gate
from mailboat.http.long_poll import settled
from mailboat.http.probes import PROBE_LINKS, PROBE_ROUTES, ProbePorts, with_ports
from mailboat.http.reference import PAGE_POLICY, link_page
from mailboat.operations.stored_snapshots import snapshot_views

if TYPE_CHECKING:
    from mailboat.agent.process import AgentProcess

SCOPE: Final = "subscribers"
MAX_PAGE: Final = 1000
_LONGEST_NUMBER: Final = 19
_SECONDS: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,20})?", re.ASCII)
_QUEUE: Final = "/publishers/{publisher}/queues/{name}"
_LINKS: Final = (
    ("/", "Dashboard of the subscribers of this agent."),
    (
        f"{PREFIX}/status",
        "Journal and subscribers of this agent; POST `/api/v1/subscribers/NAME/suspend` and `/resume` command one.",
    ),
    (f"{PREFIX}/events?follow=false", "The same as server-sent events; without `follow=false` changes follow."),
    (f"{PREFIX}/history", "Lag and throughput of the last hour."),
    (f"{PREFIX}/errors", "Error queues of the subscribers; POST `/redrive` below it imports packages again."),
    (f"{PREFIX}/restores", "Restores; POST `/api/v1/snapshots/NAME/restore` restores the target of a subscriber."),
    (f"{PREFIX}/snapshots", "Snapshots in the blob store."),
    (f"{PREFIX}/memory", "Memory of this agent."),
    *PROBE_LINKS,
)
Asked = Mapping[str, Any]
Read = Callable[[Request], object]
_WAIT: Final = "wait_seconds"


class _Command(NamedTuple):
    """A command to subscribers: how it is asked for, and what sends it.

    Attributes:
        method: The request's method; a DELETE says in its query what it asks for.
        path: The request's path.
        members: What may be asked for, with the types of each.
        send: Sends it, by what the path and the request say.
        answers_list: Whether it is sent to several subscribers, whose answers are a list.
    """

    method: str
    path: str
    members: Mapping[str, tuple[type, ...]]
    send: Callable[[OwnSubscribers, Mapping[str, str], Asked], SentCommands]
    answers_list: bool = False


def _redrive(own: OwnSubscribers, _: Mapping[str, str], asked: Asked) -> SentCommands:
    offsets = asked.get("offsets", [])
    if len(offsets) > MAX_PAGE or any(type(offset) is not int or offset < 0 for offset in offsets):
        raise UsageError(f"body.offsets: expected at most {MAX_PAGE} offsets")
    return own.redrive(asked.get("subscriber", ""), offsets)


_COMMANDS: Final = (
    _Command(
        "POST",
        "/subscribers/{name}/suspend",
        MappingProxyType({"seconds": (int, float, type(None))}),
        lambda own, place, asked: own.suspend(place["name"], asked.get("seconds")),
    ),
    _Command(
        "POST",
        "/subscribers/{name}/resume",
        MappingProxyType({}),
        lambda own, place, _: own.resume(place["name"]),
    ),
    _Command(
        "POST",
        "/errors/redrive",
        MappingProxyType({"subscriber": (str,), "offsets": (list,)}),
        _redrive,
        answers_list=True,
    ),
    _Command(
        "POST",
        f"{_QUEUE}/clear",
        MappingProxyType({"max_items": (int, type(None))}),
        lambda own, place, asked: own.clear(place["publisher"], place["name"], asked.get("max_items")),
    ),
    _Command(
        "DELETE",
        f"{_QUEUE}/items",
        MappingProxyType({"id": (list,)}),
        lambda own, place, asked: own.remove(place["publisher"], place["name"], asked["id"]),
    ),
)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """See `WaitingPorts`."""

    clock: Clock
    stopping: threading.Event


def subscriber_application(
    process: AgentProcess, own: OwnSubscribers, history: LagHistory, probes: ProbePorts
) -> ASGIApp:
    """The application of a started process without publishers. Raises: as `Gate`."""
    clock, config = SystemClock(), process.config.http
    streams = EventStreams(
        EventFeed(own.status, uuid.uuid4().hex[:8]), clock, process.stopping, max(1, config.max_connections // 2)
    )
    memory = process.observability.memory
    streams.account_for(memory)
    memory.add("history", lambda: history.size_bytes, MAX_HISTORY_BYTES)
    waiting = _Waiting(clock, process.stopping)
    routes = [
        *(Route(path, dashboard) for path in DASHBOARD_PATHS),
        Route("/api/docs", _list_paths),
        *PROBE_ROUTES,
        _events(streams),
        _read("/caller", _caller_of),
        _read("/status", lambda _: own.status()),
        _read("/history", lambda _: history.total()),
        _read("/memory", lambda _: memory.view()),
        _read(
            "/subscribers/{name}/history",
            lambda request: history.of(request.path_params["name"], request.query_params.get("instance")),
            "instance",
        ),
        _read("/snapshots", lambda _: snapshot_views(process.workspace.blobs)),
        _read("/restores", lambda _: process.restores.restores()),
        _restore(process.restores),
        _read("/errors", lambda request: _failed(own, request), "subscriber", "page", "max_items"),
        _read(_QUEUE, lambda request: _queue(own, request), "from_offset", "max_items"),
        *(_command(own, waiting, command) for command in _COMMANDS),
        _sent(own, waiting, "/commands/{command_id}"),
        _sent(own, waiting, "/publishers/{publisher}/commands/{command_id}"),
    ]
    app = Starlette(routes=routes, exception_handlers={**HANDLERS, HTTPStatus.NOT_FOUND: _answer_unserved})
    recorder = process.observability.requests
    return Gate(with_ports(app, probes), config, process.workspace.home.path, clock, AuditTrail(clock), recorder)


def _read(path: str, read: Read, *parameters: str) -> Route:
    """A route that answers callers with the verb `view`. `read` runs in a thread: it may ask targets and journal."""

    async def answer(request: Request) -> Response:
        _admit(request, route, Verb.VIEW, parameters)
        return json_answer(document_of(await run_in_threadpool(read, request)))

    route = Route(f"{PREFIX}{path}", answer)
    return route


def _command(own: OwnSubscribers, waiting: _Waiting, command: _Command) -> Route:
    """A route that sends a command, and answers when its subscriber has, or the time to wait is over."""

    async def answer(request: Request) -> Response:
        is_delete = command.method == "DELETE"
        call = _admit(request, route, Verb.CLEAR, ("id", "wait") if is_delete else ())
        asked = _query_of(request) if is_delete else await _body_of(request)
        _refuse_unknown(asked, {**command.members, _WAIT: (int, float)})
        seconds = _wait_seconds(asked)
        sent = await run_in_threadpool(command.send, own, request.path_params, asked)
        views = await _outcome(waiting, sent, seconds)
        call.concerns(_subject_of(views))
        document = document_of(views)
        return json_answer(document if command.answers_list else document[0], HTTPStatus.ACCEPTED)

    route = Route(f"{PREFIX}{command.path}", answer, methods=[command.method])
    return route


def _restore(restores: SnapshotRestores) -> Route:
    """A route that begins a restore into the target of a subscriber."""

    async def answer(request: Request) -> Response:
        call = _admit(request, route, Verb.ADMIN, ())
        asked = await _body_of(request)
        _refuse_unknown(asked, MappingProxyType({"target": (str,), "replace": (bool,)}))
        name, target = request.path_params["snapshot"], asked.get("target", "")
        call.concerns({"target": target, "snapshot": name})
        begun = await run_in_threadpool(
            lambda: restores.restore_snapshot(name, target, is_replacing=asked.get("replace", False))
        )
        call.concerns({"subscriber": begun.subscriber})
        return json_answer(document_of(begun), HTTPStatus.ACCEPTED)

    route = Route(f"{PREFIX}/snapshots/{{snapshot}}/restore", answer, methods=["POST"])
    return route


def _sent(own: OwnSubscribers, waiting: _Waiting, path: str) -> Route:
    """A route that answers with a command that was sent before."""

    async def answer(request: Request) -> Response:
        _admit(request, route, Verb.VIEW, ("wait",))
        seconds = _wait_of(request)
        command_id = request.path_params["command_id"]
        views = await _outcome(waiting, own.command(command_id), seconds)
        return json_answer(document_of(next(view for view in views if view.id == command_id)))

    route = Route(f"{PREFIX}{path}", answer)
    return route


async def _outcome(waiting: _Waiting, sent: SentCommands, seconds: float) -> list[CommandView]:
    """Commands with the answers that came within so many seconds. Raises: JournalUnavailableError."""
    try:
        return await settled(waiting, sent.look, are_answered, seconds)
    finally:
        await run_in_threadpool(sent.rest)


def _events(streams: EventStreams) -> Route:
    async def follow(request: Request) -> Response:
        call = _admit(request, route, Verb.VIEW, ("follow",))
        is_packed = accepts_gzip(request.headers.get("accept-encoding", ""))
        is_followed = request.query_params.get("follow", "true").lower() not in {"false", "0", "no"}
        last_id = request.headers.get("last-event-id")
        return EventStreamResponse(streams, call.caller or LOCAL, last_id, follow=is_followed, is_packed=is_packed)

    route = Route(f"{PREFIX}/events", follow)
    return route


def _admit(request: Request, route: Route, verb: Verb, parameters: tuple[str, ...]) -> ApiCall:
    """The call. Raises: AccessDeniedError without the verb; UsageError for an unknown parameter."""
    call: ApiCall = request.state.call
    request.scope["route"] = route  # what metrics name the request by: the template, never the path that was sent
    if not call.admits(verb):
        raise AccessDeniedError("")  # `answer_error` answers with the status alone
    unknown = next((name for name in request.query_params if name not in parameters), None)
    if unknown is not None:
        taken = ", ".join(parameters) or "none"
        raise UsageError(f"the query has an unknown parameter {unknown[:200]!r}", next_step=f"it takes {taken}")
    return call


async def _answer_unserved(request: Request, _: Exception) -> Response:
    error = AgentMissingError(
        f"this agent has no publisher, and serves nothing at {request.url.path[:200]!r}",
        next_step="ask the agent of a publisher; GET /api/docs lists what this one serves",
    )
    return await answer_error(request, error)


async def _list_paths(_: Request) -> Response:
    return Response(link_page(_LINKS), media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY})


def _caller_of(request: Request) -> CallerView:
    caller = request.state.call.caller or LOCAL
    return CallerView(caller.name, tuple(sorted(map(str, caller.verbs))), SCOPE)


def _failed(own: OwnSubscribers, request: Request) -> object:
    query, wanted = request.query_params, _number(request, "max_items", 100, MAX_PAGE, least=1)
    return own.errors(query.get("subscriber"), query.get("page"), wanted)


def _queue(own: OwnSubscribers, request: Request) -> object:
    wanted = _number(request, "max_items", 100, MAX_PAGE, least=1)
    from_offset = _number(request, "from_offset", 0, 2**63 - 1)
    return own.queue(request.path_params["publisher"], request.path_params["name"], from_offset, wanted)


def _number(request: Request, name: str, default: int, most: int, *, least: int = 0) -> int:
    """A parameter. Raises: UsageError."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER and least <= int(text) <= most):
        raise UsageError(f"query.{name}: expected a number from {least} to {most}, not {text[:40]!r}")
    return int(text)


def _query_of(request: Request) -> Asked:
    """What a DELETE asks for, as a body would. Raises: UsageError."""
    return {"id": request.query_params.getlist("id"), _WAIT: _wait_of(request)}


def _wait_of(request: Request) -> float:
    """The seconds to wait that a query asks for. Raises: UsageError."""
    text = request.query_params.get("wait", "0")
    if not _SECONDS.fullmatch(text) or float(text) > LONGEST_WAIT_SECONDS:
        raise UsageError(f"query.wait: expected 0 to {LONGEST_WAIT_SECONDS:g} seconds, not {text[:40]!r}")
    return float(text)


async def _body_of(request: Request) -> Asked:
    """The object in the body; empty without a body. Raises: UsageError."""
    body = await request.body()
    kind = request.headers.get("content-type", "")
    if body and "json" not in kind.lower():
        raise undeclared_body(kind)
    try:
        document = json.loads(body) if body else {}
    except ValueError as error:
        raise UsageError(f"body: {error}") from error
    if not isinstance(document, dict):
        raise UsageError("body: expected an object")
    return document


def _refuse_unknown(asked: Asked, members: Mapping[str, tuple[type, ...]]) -> None:
    """Raises: UsageError for a member that is unknown, or has another type."""
    for name, value in asked.items():
        if name not in members:
            raise UsageError(f"body.{name[:200]}: there is no such member", next_step=f"it takes {', '.join(members)}")
        types = members[name]
        # a boolean is an integer, too
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise UsageError(f"body.{name}: unexpected {type(value).__name__}")


def _wait_seconds(asked: Asked) -> float:
    seconds = asked.get(_WAIT, 0.0)
    # before it becomes a float: an integer may be too large for one
    if not 0 <= seconds <= LONGEST_WAIT_SECONDS:
        raise UsageError(f"{_WAIT}: expected 0 to {LONGEST_WAIT_SECONDS:g} seconds")
    return float(seconds)


def _subject_of(views: list[CommandView]) -> dict[str, object]:
    """What the audit line says of commands."""
    first = views[0]
    return {"verb": first.verb, "subscriber": first.subscriber, "command": first.id, "commands": len(views)}
