"""What the routes work with, and how operations are declared: verb, errors and examples of each."""

from __future__ import annotations

import asyncio
import difflib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Request
from fastapi.dependencies.models import Dependant

from mailboat.api.control import Control
from mailboat.api.orders import LONGEST_NAME, LONGEST_WAIT_SECONDS
from mailboat.api.problems import MEDIA_TYPE, PLAIN_TYPE, Problem
from mailboat.clock import Clock
from mailboat.config.document import Verb
from mailboat.control.event_feed import EventFeed
from mailboat.control.job_service import JobService
from mailboat.control.journal_archive import LogArchive
from mailboat.control.lag_history import LagHistory
from mailboat.errors import AccessDeniedError, UsageError
from mailboat.http.access import Caller
from mailboat.http.audit import ApiCall, AuditTrail
from mailboat.http.examples import PROBLEMS
from mailboat.http.long_poll import Wait
from mailboat.http.probes import ProbePorts
from mailboat.http.publish_turns import PublishTurns
from mailboat.telemetry.memory_accounts import MemoryAccounts

MAX_TURNS: Final = 4
"""Threads that turns of workers hold at once. One at a time has the job topic, and in an outage of the brokers keeps it
until they time out: hundreds of workers would take all threads, and the upkeep of jobs would wait for minutes."""

_ALWAYS: Final = (400, 401, 403, 413, 429, 500, 503)
"""Statuses that any operation may have: a bad request, access, a body too large, rate, a defect, a passing fault."""

_MEANINGS: Final = {
    200: "Done.",
    202: "Accepted and durable; query the outcome later.",
    400: "Malformed or unsupported request; `detail` names the cause.",
    401: "Missing or unknown token.",
    403: "Not permitted with this token; or, without tokens, the Host header is not this machine.",
    404: "Not found.",
    408: "The request was not received in time.",
    409: "Conflict with the current state.",
    413: "The body is larger than `http.max_body_bytes`.",
    422: "The content broke a rule or a limit; nothing was published.",
    429: "Too many requests, or subscribers lag: try again after `Retry-After` seconds.",
    500: "Internal error; see the agent's log for the `incident`.",
    503: "A transient failure (retry after `Retry-After`), or a state that needs an operator.",
}


@dataclass(frozen=True)
class ApiPorts(ProbePorts):
    """What the API is made of, besides the probes.

    Attributes:
        control: The verbs.
        jobs: Jobs, and what workers ask.
        archive: What the log holds.
        clock: Time.
        audit: What was asked that changes something.
        feed: What changed, for the event stream.
        history: Lag and throughput of the last hour.
        stopping: Set when waiting calls should answer with what they know.
        memory: What the bounded structures of the process hold.
        publishing: Who may publish or plan now.
        turns: Held by each turn of a worker that uses the job topic.
    """

    control: Control
    jobs: JobService
    archive: LogArchive
    clock: Clock
    audit: AuditTrail
    feed: EventFeed
    history: LagHistory
    stopping: threading.Event = field(default_factory=threading.Event)
    memory: MemoryAccounts = field(default_factory=MemoryAccounts)
    publishing: PublishTurns = field(default_factory=PublishTurns)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_TURNS))


async def _ports_of(request: Request) -> ApiPorts:
    ports: ApiPorts = request.state.ports
    return ports


async def _call_of(request: Request) -> ApiCall:
    call: ApiCall = request.state.call
    return call


Ports = Annotated[ApiPorts, Depends(_ports_of)]
CurrentCall = Annotated[ApiCall, Depends(_call_of)]

PublisherName = Annotated[str, Path(description="The publisher's name.", max_length=LONGEST_NAME, examples=["author"])]
SubscriberNameText = Annotated[
    str, Path(description="The subscriber's name.", max_length=LONGEST_NAME, examples=["edge-1"])
]
QueueNameText = Annotated[
    str,
    Path(description="The queue's name, or its subscriber's.", max_length=LONGEST_NAME, examples=["edge-1"]),
]
_WaitSeconds = Annotated[
    float,
    Query(
        alias="wait",
        description="Seconds to wait for the outcome; the response has the state at that time.",
        ge=0,
        le=LONGEST_WAIT_SECONDS,
        allow_inf_nan=False,
    ),
]


async def _wait_of(request: Request, wait: _WaitSeconds = 0.0) -> Wait:
    return Wait(wait, request.is_disconnected)


CallerWait = Annotated[Wait, Depends(_wait_of)]


NEXT_PAGE: Final = {"Link": 'Link to the next page, as `<PATH>; rel="next"`; not sent with the last page.'}
"""The header of pages."""

_PROBLEM_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": "Authentication challenge."},
    429: {"Retry-After": "Seconds after which to retry."},
    503: {"Retry-After": "Seconds after which to retry; not sent if an operator must act."},
}


class Permission:
    """Lets a call pass whose caller has a right (`access.Caller`); its route says which one a request needs."""

    def __init__(self, verb: Verb) -> None:
        """The verb that is needed."""
        self.verb = verb

    async def __call__(self, call: CurrentCall) -> Caller:
        """Authenticate the caller. Raises: AccessDeniedError, without detail."""
        if not call.admits(self.verb) or call.caller is None:
            raise AccessDeniedError("")
        return call.caller


def _parameters_of(dependant: Dependant) -> set[str]:
    """The names of an operation's query parameters, with those of all that it depends on."""
    own = {param.alias for param in dependant.query_params}
    return own.union(*map(_parameters_of, dependant.dependencies))


async def only_known_parameters(request: Request) -> None:
    """Refuse unknown query parameters: a typo must not look like a filter that was applied.

    Raises: UsageError, with a suggestion.
    """
    known = _parameters_of(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            meant = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(known)) or 'none'}"
            raise UsageError(f"the query has an unknown parameter {name[:LONGEST_NAME]!r}", next_step=meant)


def operation(  # all that a route declares
    verb: Verb,
    summary: str,
    *,
    example: object = None,
    also: Iterable[int] = (),
    status: int = 200,
    is_strict: bool = True,
) -> dict[str, Any]:
    """Declaration of a route: permitted callers, summary, example, and the problems it may return.

    Strict, it refuses parameters that it does not know.
    """
    shown = {} if example is None else {"content": {"application/json": {"example": example}}}
    answers: dict[int | str, dict[str, Any]] = {status: {"description": _MEANINGS[status], **shown}}
    for code in sorted({*_ALWAYS, *also, 422}):
        answers[code] = problem_response(code)
    return {
        "summary": summary,
        "status_code": status,
        "dependencies": [Depends(Permission(verb)), *([Depends(only_known_parameters)] if is_strict else [])],
        "responses": answers,
        "openapi_extra": verb_needed(verb),
    }


def with_headers(declared: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """A declared operation whose success has headers, each with its meaning."""
    declared["responses"][declared["status_code"]] |= _described_headers(headers)
    return declared


def verb_needed(verb: Verb) -> dict[str, Any]:
    """How an operation says who may call it."""
    return {"security": [{"bearer": []}, {"basic": []}, {}], "x-mailboat-verb": verb.value}


def problem_response(status: int) -> dict[str, Any]:
    """How a problem is described."""
    example = PROBLEMS.get(status) or Problem(PLAIN_TYPE, HTTPStatus(status).phrase, status)
    return {
        "description": _MEANINGS[status],
        **_described_headers(_PROBLEM_HEADERS.get(status, {})),
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example.document()}},
    }


def _described_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    """How headers of an answer are described, by their meanings."""
    described = {name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()}
    return {"headers": described} if described else {}
