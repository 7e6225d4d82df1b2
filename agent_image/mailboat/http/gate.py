"""What every request passes before a route sees it: who calls, how often, how much, how long.

In this order: the token (or, without tokens, whether the request was meant for this machine), the caller's rate, the
body. So an unknown caller costs a comparison and no memory. A mutating call leaves one audit line, whatever its
outcome, and a defect becomes an incident: its trace goes to the log under an id, and the id to the caller.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mailboat.api.dashboard_files import DASHBOARD_PATHS
from mailboat.api.problems import Problem, plain_problem, problem_of
from mailboat.clock import Clock
from mailboat.config.document import HttpConfig
from mailboat.errors import LimitExceededError, ThrottledError, UsageError
from mailboat.http.access import LOCAL, Caller, TokenBook, is_cross_site, is_from_here, token_of
from mailboat.http.answers import problem_answer
from mailboat.http.audit import ApiCall, AuditTrail
from mailboat.http.bodies import BodyTooLargeError, ClientGoneError, Replay, has_body, is_json, json_fault, read_body
from mailboat.http.rates import RateLimiter, network_of
from mailboat.telemetry.meters import RequestRecorder

_LOG: Final = logging.getLogger("mailboat.http")
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,200}")

PROBE_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Answered without a token, whatever the caller's rate and however many connections there are."""

OPEN_PATHS: Final = PROBE_PATHS | {"/api/docs", "/api/openapi.json", *DASHBOARD_PATHS}
"""Answered without a token: probes send none, and the API's description and the dashboard's files hold no data."""

RESERVED: Final = "is_reserved"
"""The entry of a request's state that is true on a connection that is kept back for probes."""

# Sent as Retry-After: most requests end within it.
_BUSY_SECONDS: Final = 1.0

_METRICS_PATHS: Final = frozenset({"/metrics"})
_OF_ALL: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Headers of each answer that does not bring them."""
FIXED_PATHS: Final = OPEN_PATHS | _METRICS_PATHS


class Gate:
    """An ASGI application around another one."""

    def __init__(
        self,
        inner: ASGIApp,
        config: HttpConfig,
        folder: Path,
        clock: Clock,
        audit: AuditTrail,
        requests: RequestRecorder,
    ) -> None:
        """Read the tokens; their files are relative to `folder`. Raises: ConfigInvalidError as `TokenBook`."""
        self._inner = inner
        self._config = config
        self._open_paths = OPEN_PATHS | (_METRICS_PATHS if config.open_metrics else frozenset())
        self._tokens = TokenBook(config.tokens, folder, clock)
        self._rates = RateLimiter(config.requests_per_second, config.burst_requests, clock)
        self._audit = audit
        self._requests = requests
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; the server's own start and stop go straight on."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        call = ApiCall(_request_id(scope), trace_parent=header(scope, b"traceparent"))
        scope.setdefault("state", {})["call"] = call
        answer = _Answer(call, send, self._clock, lambda: self._write_audit(call, scope))
        if scope["state"].get(RESERVED):
            answer.close_after()  # it serves one request, then it is free for the next probe
        began = self._clock.monotonic()
        try:
            refusal = self._refusal(scope, call)
            if refusal is not None:
                await self._refuse(refusal, scope, receive, answer)
            else:
                await self._serve(scope, receive, answer)
        except Exception as error:  # noqa: BLE001  # a defect: whatever it is, the caller gets an answer and the log its trace
            await self._fail(error, call, answer)
        finally:
            # A client that left has no answer with which its audit line could be written.
            if not answer.is_begun:
                self._write_audit(call, scope)
            if call.status:
                seconds = self._clock.monotonic() - began
                self._requests.record(scope["method"], _route_of(scope), call.status, seconds)

    def _refusal(self, scope: Scope, call: ApiCall) -> Problem | None:
        """Why the request is refused by its head alone; None when it is not."""
        # Probes come first: a full or throttled agent must not look dead to the kubelet.
        if scope["path"] in PROBE_PATHS:
            return None
        if scope["state"].get(RESERVED):
            busy = ThrottledError("all connections have a request under way", retry_after_seconds=_BUSY_SECONDS)
            return problem_of(busy, HTTPStatus.SERVICE_UNAVAILABLE)
        is_open = scope["path"] in self._open_paths
        call.identify(None if is_open else self._caller(scope))
        address = (scope.get("client") or ("unknown", 0))[0]
        is_named = call.caller is not None and call.caller.is_known
        # Before the 401: guesses of tokens are throttled like requests, by network.
        seconds = self._rates.take(call.caller.name if call.caller and is_named else network_of(address))
        if seconds > 0.0:
            error = ThrottledError("this caller exceeds its request rate", retry_after_seconds=seconds)
            return problem_of(error)
        if call.caller is None and not is_open:
            return plain_problem(HTTPStatus.FORBIDDEN if self._tokens.is_empty else HTTPStatus.UNAUTHORIZED)
        # A browser adds stored basic credentials to a form of another site, so a valid token proves nothing here.
        if not is_open and is_cross_site(header(scope, b"sec-fetch-site")):
            return plain_problem(HTTPStatus.FORBIDDEN)
        return None

    def _caller(self, scope: Scope) -> Caller | None:
        if self._tokens.is_empty:
            return LOCAL if is_from_here(header(scope, b"host") or "", header(scope, b"origin")) else None
        token = token_of(header(scope, b"authorization") or "")
        return None if token is None else self._tokens.caller_of(token)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Answer without having read the body."""
        answer.call.end_as(problem.title)
        # the unread body stands where the connection's next request would begin
        if has_body(scope):
            answer.close_after()
        await problem_answer(problem)(scope, receive, answer)

    async def _serve(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        # Open paths take no body: a stranger's would cost memory, and time to parse, whatever its rate.
        limit = self._config.max_body_bytes if answer.call.caller is not None else 0
        try:
            body = await read_body(scope, receive, limit, self._config.request_seconds)
        except ClientGoneError:
            answer.call.end_as("gone")
        except TimeoutError:
            await self._refuse(plain_problem(HTTPStatus.REQUEST_TIMEOUT), scope, receive, answer)
        except BodyTooLargeError:
            error = LimitExceededError(f"the body is larger than {limit} bytes", limit=limit)
            problem = problem_of(error, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            await self._refuse(problem, scope, receive, answer)
        else:
            # before the framework parses it, which takes the last of two equal members where a proxy takes the first
            fault = json_fault(body) if body and is_json(header(scope, b"content-type") or "") else None
            if fault is not None:
                await self._refuse(problem_of(UsageError(f"body: {fault}")), scope, receive, answer)
                return
            await self._inner(scope, Replay(body, receive), answer)

    def _write_audit(self, call: ApiCall, scope: Scope) -> None:
        """Write a line for each mutating call of a known caller; unknown callers and floods do not fill the log."""
        is_heard = call.caller is not None and call.status != HTTPStatus.TOO_MANY_REQUESTS
        if is_heard and scope["method"] not in _READING:
            self._audit.write(call, scope["method"], scope["path"])

    async def _fail(self, error: Exception, call: ApiCall, answer: _Answer) -> None:
        if answer.is_begun:
            _LOG.error("request %s failed after its answer had begun", call.request_id, exc_info=error)
            return
        call.end_as("incident")
        problem = incident_of(error, call.request_id)
        await answer.finish(problem_answer(problem))


def incident_of(error: Exception, request_id: str) -> Problem:
    """Write a defect into the log, and say to the caller where to look for it."""
    incident = uuid.uuid4().hex
    _LOG.error("incident %s in request %s", incident, request_id, exc_info=error)
    return plain_problem(HTTPStatus.INTERNAL_SERVER_ERROR, incident)


class _Answer:
    """A `send` that keeps the status, writes the audit line, and adds what every answer has."""

    def __init__(self, call: ApiCall, send: Send, clock: Clock, write_audit: Callable[[], None]) -> None:
        self.call = call
        self._write_audit = write_audit
        self._clock = clock
        self.is_begun = False
        self._is_closing = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_begun = True
            self.call.answer_with(message["status"])
            # before the answer is sent: a caller that has the answer to a mutating call finds its line in the log
            self._write_audit()
            headers = message.get("headers", ())
            given = {name for name, _ in headers}
            added = [(b"x-request-id", self.call.request_id.encode())]
            # files of the dashboard have them: they also need them where no gate adds any
            added += [(name, value) for name, value in _OF_ALL if name not in given]
            added.append((b"date", formatdate(self._clock.now().timestamp(), usegmt=True).encode()))
            if self._is_closing:
                added.append((b"connection", b"close"))
            message = {**message, "headers": [*headers, *added]}
        await self._send(message)

    def close_after(self) -> None:
        """Close the connection after the answer."""
        self._is_closing = True

    async def finish(self, response: Response) -> None:
        """Send a whole answer."""
        head = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        await self(head)
        await self({"type": "http.response.body", "body": bytes(response.body)})


def header(scope: Scope, name: bytes) -> str | None:
    """A header of the request; None when it is not there."""
    for one, value in scope["headers"]:
        if one == name:
            text: str = value.decode("latin-1")
            return text
    return None


def _route_of(scope: Scope) -> str | None:
    """The template of the operation, never the path that was sent."""
    if scope["path"] in FIXED_PATHS:
        path: str = scope["path"]
        return path
    return getattr(scope.get("route"), "path", None)


def _request_id(scope: Scope) -> str:
    given = header(scope, b"x-request-id")
    return given if given is not None and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
