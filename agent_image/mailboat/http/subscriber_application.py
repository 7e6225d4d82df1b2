"""The API of an agent without a publisher: probes, and what its dashboard needs of its own subscribers.

A part of the whole API, with the same paths, records and access rules, and without the framework that describes it,
which costs 19 MB.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mailboat.agent.own_subscribers import OwnSubscribers, SentCommands
from mailboat.agent.restores import SnapshotRestores
from mailboat.api.dashboard_files import DASHBOARD_PATHS, accepts_gzip
from mailboat.api.operations import PREFIX, read_order
from mailboat.api.orders import (
    LONGEST_WAIT_SECONDS,
    MAX_OFFSET,
    MAX_PAGE,
    ApiOrder,
    ClearOrder,
    RedriveOrder,
    RestoreOrder,
    ResumeOrder,
    SubscriberSuspendOrder,
)
from mailboat.api.records import CallerView, CommandView, document_of
from mailboat.clock import Clock, SystemClock
from mailboat.config.document import Verb
from mailboat.control.command_sender import are_answered
from mailboat.control.event_feed import EventFeed
from mailboat.control.lag_history import MAX_BYTES as MAX_HISTORY_BYTES
from mailboat.control.lag_history import LagHistory
from mailboat.errors import AccessDeniedError, AgentMissingError, MailboatError, UsageError
from mailboat.http.access import LOCAL
from mailboat.http.answers import dashboard, json_answer
from mailboat.http.audit import ApiCall, AuditTrail
from mailboat.http.bodies import is_json
from mailboat.http.error_answers import HANDLERS, answer_error, undeclared_body
from mailboat.http.event_stream import EventStreamResponse, EventStreams
from mailboat.http.gate import Gate
from mailboat.http.long_poll import Wait, settled
from mailboat.http.probes import PROBE_LINKS, PROBE_ROUTES, ProbePorts, index_page, with_ports
from mailboat.operations.stored_snapshots import snapshot_views

if TYPE_CHECKING:
    from mailboat.agent.process import AgentProcess

SCOPE: Final = "subscribers"
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
Read = Callable[[Request], object]
Body = TypeVar("Body", bound=ApiOrder)


class _RemoveOrder(ApiOrder):
    """The query of a removal, which has no body."""

    ids: tuple[str, ...]
    wait_seconds: float


class _Command(NamedTuple):
    """A command to subscribers: how it is asked for, and what sends it.

    Attributes:
        path: The request's path.
        order: The request's record.
        send: Sends it, by what the path and the request say.
        answers_list: Whether it is sent to several subscribers, whose answers are a list.
    """

    path: str
    order: type[ApiOrder]
    send: Callable[[OwnSubscribers, Mapping[str, str], Any], SentCommands]
    answers_list: bool = False


def _redrive(own: OwnSubscribers, _: Mapping[str, str], order: RedriveOrder) -> SentCommands:
    if len(order.offsets) > MAX_PAGE or any(offset < 0 for offset in order.offsets):
        raise UsageError(f"body.offsets: expected at most {MAX_PAGE} offsets")
    return own.redrive(order.subscriber, order.offsets)


_COMMANDS: Final = (
    _Command(
        "/subscribers/{name}/suspend",
        SubscriberSuspendOrder,
        lambda own, place, order: own.suspend(place["name"], order.seconds),
    ),
    _Command("/subscribers/{name}/resume", ResumeOrder, lambda own, place, _: own.resume(place["name"])),
    _Command("/errors/redrive", RedriveOrder, _redrive, answers_list=True),
    _Command(
        f"{_QUEUE}/clear",
        ClearOrder,
        lambda own, place, order: own.clear(place["publisher"], place["name"], order.max_items),
    ),
    _Command(
        f"{_QUEUE}/items",
        _RemoveOrder,
        lambda own, place, order: own.remove(place["publisher"], place["name"], order.ids),
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
        Route("/api/docs", index_page(_LINKS)),
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
    is_removal = command.order is _RemoveOrder

    async def answer(request: Request) -> Response:
        call = _admit(request, route, Verb.CLEAR, ("id", "wait") if is_removal else ())
        order: Any
        if is_removal:
            order = _RemoveOrder(tuple(request.query_params.getlist("id")), _wait_of(request))
        else:
            order = await _order_of(request, command.order)
            if not 0 <= order.wait_seconds <= LONGEST_WAIT_SECONDS:
                raise UsageError(f"body.wait_seconds: expected 0 to {LONGEST_WAIT_SECONDS:g} seconds")
        sent = await run_in_threadpool(command.send, own, request.path_params, order)
        call.concerns(_subject_of(sent.views))
        # The commands are in the log: after an error a caller would send them again, and a clear would drop more.
        with suppress(MailboatError):
            await _outcome(waiting, sent, Wait(order.wait_seconds, request.is_disconnected))
        document = document_of(sent.views)
        return json_answer(document if command.answers_list else document[0], HTTPStatus.ACCEPTED)

    route = Route(f"{PREFIX}{command.path}", answer, methods=["DELETE" if is_removal else "POST"])
    return route


def _restore(restores: SnapshotRestores) -> Route:
    """A route that begins a restore into the target of a subscriber."""

    async def answer(request: Request) -> Response:
        call = _admit(request, route, Verb.ADMIN, ())
        order, name = await _order_of(request, RestoreOrder), request.path_params["snapshot"]
        call.concerns({"target": order.target, "snapshot": name})
        begun = await run_in_threadpool(
            lambda: restores.restore_snapshot(name, order.target, is_replacing=order.replace)
        )
        call.concerns({"subscriber": begun.subscriber})
        return json_answer(document_of(begun), HTTPStatus.ACCEPTED)

    route = Route(f"{PREFIX}/snapshots/{{snapshot}}/restore", answer, methods=["POST"])
    return route


def _sent(own: OwnSubscribers, waiting: _Waiting, path: str) -> Route:
    """A route that answers with a command that was sent before."""

    async def answer(request: Request) -> Response:
        _admit(request, route, Verb.VIEW, ("wait",))
        wait = Wait(_wait_of(request), request.is_disconnected)
        command_id = request.path_params["command_id"]
        views = await _outcome(waiting, own.command(command_id), wait)
        return json_answer(document_of(next(view for view in views if view.id == command_id)))

    route = Route(f"{PREFIX}{path}", answer)
    return route


async def _outcome(waiting: _Waiting, sent: SentCommands, wait: Wait) -> list[CommandView]:
    """Commands with the answers that came within the wait. Raises: JournalUnavailableError."""
    try:
        return await settled(waiting, sent.look, are_answered, wait)
    finally:
        # also when the caller hangs up: commands may stay without an answer, and each would keep a reader open
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
    # metrics name the request by the template: one series for each path that callers invent would have no bound
    request.scope["route"] = route
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


def _caller_of(request: Request) -> CallerView:
    caller = request.state.call.caller or LOCAL
    return CallerView(caller.name, tuple(sorted(map(str, caller.verbs))), SCOPE)


def _failed(own: OwnSubscribers, request: Request) -> object:
    query, wanted = request.query_params, _number(request, "max_items", 100, MAX_PAGE, least=1)
    return own.errors(query.get("subscriber"), query.get("page"), wanted)


def _queue(own: OwnSubscribers, request: Request) -> object:
    wanted = _number(request, "max_items", 100, MAX_PAGE, least=1)
    from_offset = _number(request, "from_offset", 0, MAX_OFFSET)
    return own.queue(request.path_params["publisher"], request.path_params["name"], from_offset, wanted)


def _number(request: Request, name: str, default: int, most: int, *, least: int = 0) -> int:
    """A parameter. Raises: UsageError."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER and least <= int(text) <= most):
        raise UsageError(f"query.{name}: expected a number from {least} to {most}, not {text[:40]!r}")
    return int(text)


def _wait_of(request: Request) -> float:
    """The seconds to wait that a query asks for. Raises: UsageError."""
    text = request.query_params.get("wait", "0")
    if not _SECONDS.fullmatch(text) or float(text) > LONGEST_WAIT_SECONDS:
        raise UsageError(f"query.wait: expected 0 to {LONGEST_WAIT_SECONDS:g} seconds, not {text[:40]!r}")
    return float(text)


async def _order_of(request: Request, order: type[Body]) -> Body:
    """The record in the body; that of an empty object without a body. Raises: UsageError."""
    body = await request.body()
    kind = request.headers.get("content-type", "")
    if body and not is_json(kind):
        raise undeclared_body(kind)
    return read_order(order, body or b"{}")


def _subject_of(views: list[CommandView]) -> dict[str, object]:
    """What the audit line says of commands."""
    first = views[0]
    return {"verb": first.verb, "subscriber": first.subscriber, "command": first.id, "commands": len(views)}
