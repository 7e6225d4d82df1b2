"""What routes raise, as problem documents: refusals, unknown paths, defects.

Independent of an application: it needs the bare framework only, so that agents without a publisher stay small.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import zip_longest
from types import MappingProxyType
from typing import Final, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from mailboat.api.problems import plain_problem, problem_of, status_of
from mailboat.errors import AccessDeniedError, MailboatError, UsageError
from mailboat.http.answers import problem_answer
from mailboat.http.audit import ApiCall
from mailboat.http.gate import incident_of

_SHOWN_KIND: Final = 80
_SHOWN_PATH: Final = 200
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer to one of our own errors."""
    known = cast("MailboatError", error)
    _call(request).end_as(known.name)
    # Only the class itself is raised without a text, by a gate or route; its subclasses say more, to a known caller.
    if type(known) is AccessDeniedError:
        return problem_answer(plain_problem(status_of(known)))
    return problem_answer(problem_of(known))


def undeclared_body(kind: str) -> UsageError:
    """The refusal of a body that its `Content-Type` does not call JSON: a form of another site may be one."""
    said = repr(kind[:_SHOWN_KIND]) if kind else "missing"
    return UsageError(
        f"the body must be JSON, but the header Content-Type is {said}",
        next_step="send the header Content-Type: application/json",
    )


async def _answer_status(request: Request, error: Exception) -> Response:
    known = cast("HTTPException", error)
    _call(request).end_as(str(known.status_code))
    problem = plain_problem(known.status_code)
    if known.status_code == HTTPStatus.NOT_FOUND:
        path = request.url.path
        detail = f"this agent serves nothing at {path[:_SHOWN_PATH]!r}"
        return problem_answer(replace(problem, detail=detail, next_step=_near_path(path, _paths(request))))
    if known.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
        return problem_answer(problem)
    allowed = ", ".join(_methods_at(request))
    detail = f"this path does not support {request.method}"
    answer = problem_answer(replace(problem, detail=detail, next_step=f"it supports {allowed}"))
    answer.headers["Allow"] = allowed
    return answer


def _near_path(path: str, templates: Iterable[str]) -> str:
    """A suggestion for a path that does not exist: the most similar one, with the names that were sent filled in."""
    sent = path[:_SHOWN_PATH].split("/")
    filled = {_filled(template.split("/"), sent) for template in templates}
    near = difflib.get_close_matches("/".join(sent), sorted(filled), n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near else "GET /api/docs lists all paths"


def _paths(request: Request) -> Iterable[str]:
    app: Starlette = request.app
    described: Sequence[str] | None = getattr(app.state, "paths", None)  # FastAPI nests the routes of its routers
    return described or [route.path for route in app.routes if isinstance(route, Route)]


def _filled(template: Sequence[str], sent: Sequence[str]) -> str:
    pairs = zip_longest(template, sent[: len(template)], fillvalue="")
    return "/".join(given if name.startswith("{") and given else name for name, given in pairs)


def _methods_at(request: Request) -> Sequence[str]:
    """What the path supports; the framework would name the methods of one of its routes only."""
    app: Starlette = request.app
    found = {method: {**request.scope, "method": method} for method in _METHODS}
    return [name for name, scope in found.items() if any(route.matches(scope)[0] is Match.FULL for route in app.routes)]


async def _answer_defect(request: Request, error: Exception) -> Response:
    call = _call(request)
    call.end_as("incident")
    return problem_answer(incident_of(error, call.request_id))


def _call(request: Request) -> ApiCall:
    call: ApiCall = request.state.call
    return call


HANDLERS: Final[Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]] = MappingProxyType(
    {MailboatError: answer_error, HTTPException: _answer_status, Exception: _answer_defect}
)
"""The answers to exceptions."""
