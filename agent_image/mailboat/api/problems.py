"""Errors as problem documents (RFC 9457), in both directions.

The class of an error decides the status, its name is in `type`, and its facts are members of the document, so that a
client raises the same error as the agent. Any other exception is a defect: the caller gets an incident id to search the
agent's log for, and never a trace. The server writes problem documents; `operations.py` and the operator read them.
"""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import mailboat
from mailboat.errors import (
    AccessDeniedError,
    AgentMissingError,
    BuildMissingError,
    CommandMissingError,
    DistributionMissingError,
    JournalAccessDeniedError,
    MailboatError,
    PermanentError,
    QueueMissingError,
    QueueNotClearableError,
    RequestConflictError,
    RetryableError,
    StopError,
    TargetBusyError,
    TargetOwnedError,
    ThrottledError,
    TopicMissingError,
    UntrustedInputError,
    UsageError,
)
from mailboat.model.jobs import (
    JobMissingError,
    JobQueueMissingError,
    JobScheduleMissingError,
)

NOT_FOR_CALLERS: Final = ("mailboat.testing", "mailboat.cli", "mailboat.http")
"""Packages whose errors no caller can receive: the layers above the control API, and the tests' doubles."""

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:mailboat:error:"
PLAIN_TYPE: Final = "about:blank"
"""The type of a problem with no information but its status (RFC 9457, 4.2.1)."""

DEFAULT_RETRY_SECONDS: Final = 1.0
"""`Retry-After` of a retryable error that names no delay."""

_STATUSES: Final[tuple[tuple[type[MailboatError], HTTPStatus], ...]] = (
    (AccessDeniedError, HTTPStatus.FORBIDDEN),
    (AgentMissingError, HTTPStatus.NOT_FOUND),
    (QueueMissingError, HTTPStatus.NOT_FOUND),
    (BuildMissingError, HTTPStatus.NOT_FOUND),
    (DistributionMissingError, HTTPStatus.NOT_FOUND),
    (CommandMissingError, HTTPStatus.NOT_FOUND),
    (JobMissingError, HTTPStatus.NOT_FOUND),
    (JobQueueMissingError, HTTPStatus.NOT_FOUND),
    (JobScheduleMissingError, HTTPStatus.NOT_FOUND),
    (RequestConflictError, HTTPStatus.CONFLICT),
    (QueueNotClearableError, HTTPStatus.CONFLICT),
    (TargetBusyError, HTTPStatus.CONFLICT),
    (TargetOwnedError, HTTPStatus.CONFLICT),
    (ThrottledError, HTTPStatus.TOO_MANY_REQUESTS),
    (JournalAccessDeniedError, HTTPStatus.SERVICE_UNAVAILABLE),
    (TopicMissingError, HTTPStatus.SERVICE_UNAVAILABLE),
    (UsageError, HTTPStatus.BAD_REQUEST),
    (UntrustedInputError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (RetryableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (StopError, HTTPStatus.SERVICE_UNAVAILABLE),
    (PermanentError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (MailboatError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""The status of an error: that of the first class in this table that it is an instance of."""

_FAMILIES: Final[Mapping[str, type[MailboatError]]] = {
    "transient": RetryableError,
    "needs-operator": StopError,
    "rejected": UntrustedInputError,
    "usage": UsageError,
    "permanent": PermanentError,
}
"""What an error requires of the caller, for clients that do not know its name."""

_LONGEST_RETRY_SECONDS: Final = 86_400.0
"""No agent asks for a longer delay; a number of a stranger may be infinite, or not fit into a float."""

Fact = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document (RFC 9457).

    Attributes:
        type: `urn:mailboat:error:NAME`, explained by `mailboat explain NAME`; `about:blank` for a bare status.
        title: The error's name, or the phrase of the status.
        status: The status of the answer.
        detail: One sentence: what failed, and why.
        decision: `transient` (retry), `usage`, `rejected`, `permanent` (the same fails again) or `needs-operator`.
        next_step: What to do.
        where: Facts: topic, offset, package, path, limit and others.
        retry_after_seconds: Delay before a retry, in seconds.
        incident: Id of the incident in the agent's log.
    """

    type: str
    title: str
    status: int
    detail: str | None = None
    decision: str | None = None
    next_step: str | None = None
    where: dict[str, Fact] = field(default_factory=dict)
    retry_after_seconds: float | None = None
    incident: str | None = None

    def document(self) -> dict[str, Any]:
        """The members that are set."""
        members = {name: getattr(self, name) for name in type(self).__slots__}
        return {name: value for name, value in members.items() if value not in (None, {})}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer: `Retry-After`, `WWW-Authenticate`."""
        found = {}
        if self.retry_after_seconds is not None:
            found["Retry-After"] = str(math.ceil(self.retry_after_seconds))
        if self.status == HTTPStatus.UNAUTHORIZED:
            found["WWW-Authenticate"] = 'Bearer realm="mailboat"'
        return found


def status_of(error: MailboatError) -> int:
    """The status of an error's answer."""
    return next(int(status) for kind, status in _STATUSES if isinstance(error, kind))


def problem_of(error: MailboatError, status: int | None = None) -> Problem:
    """The document of an error; `status` replaces the one that the error's class decides."""
    chosen = status_of(error) if status is None else status
    retry = (error.retry_after_seconds or DEFAULT_RETRY_SECONDS) if isinstance(error, RetryableError) else None
    return Problem(
        type=f"{TYPE_PREFIX}{error.name}",
        title=error.name,
        status=chosen,
        detail=error.message,
        decision=next((word for word, kind in _FAMILIES.items() if isinstance(error, kind)), None),
        next_step=error.next_step,
        where={name: _fact(value) for name, value in error.where.items()},
        retry_after_seconds=retry,
    )


def plain_problem(status: int, incident: str | None = None) -> Problem:
    """A problem with no information but its status and the id of the incident."""
    return Problem(PLAIN_TYPE, HTTPStatus(status).phrase, status, incident=incident)


def read_problem(content: bytes) -> Problem | None:
    """The problem document in an answer; None for anything else. A member of a wrong type is left out."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, Mapping):
        return None
    status, facts = document.get("status"), document.get("where")
    return Problem(
        type=_text(document, "type") or PLAIN_TYPE,
        title=_text(document, "title") or "",
        status=status if isinstance(status, int) else 0,
        detail=_text(document, "detail"),
        decision=_text(document, "decision"),
        next_step=_text(document, "next_step"),
        where={str(name): _fact(value) for name, value in facts.items()} if isinstance(facts, Mapping) else {},
        retry_after_seconds=_delay(document.get("retry_after_seconds")),
        incident=_text(document, "incident"),
    )


def error_of(problem: Problem, url: str) -> MailboatError | None:
    """The error that a problem document carries; None when its type is not one of ours.

    An error that this version does not define becomes one of the family that the document names.
    """
    if not problem.type.startswith(TYPE_PREFIX):
        return None
    name = problem.type.removeprefix(TYPE_PREFIX)
    kind = error_class(name) or _FAMILIES.get(problem.decision or "", MailboatError)
    error = kind.__new__(kind)  # constructors differ; the facts are all in the document
    message, step = problem.detail or "", problem.next_step
    if isinstance(error, RetryableError):
        RetryableError.__init__(error, message, retry_after_seconds=problem.retry_after_seconds, next_step=step)
    else:
        MailboatError.__init__(error, message, next_step=step)
    error.with_facts(**problem.where)
    if error.name != name:
        error.with_facts(error=name, agent=url)
    return error


def error_class(name: str) -> type[MailboatError] | None:
    """The class of an error by its name; None for a name that this version does not define.

    Imports all of Mailboat when no module that is loaded defines the name.
    """
    known = {kind.__name__.removesuffix("Error"): kind for kind in _subclasses(MailboatError)}
    if name not in known:
        import_all_modules()
        known = {kind.__name__.removesuffix("Error"): kind for kind in _subclasses(MailboatError)}
    return known.get(name)


def import_all_modules(but: tuple[str, ...] = NOT_FOR_CALLERS, *, needs_extras: bool = False) -> None:
    """Import the modules that define errors, so that all error classes exist.

    Args:
        but: Packages to leave out.
        needs_extras: Raise ModuleNotFoundError where an extra is missing, instead of leaving its modules out.
    """
    for module in pkgutil.walk_packages(mailboat.__path__, "mailboat."):
        if module.name.startswith(but):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if needs_extras or (error.name or "").startswith("mailboat"):
                raise  # anything else is an extra that is not installed here


def _subclasses(kind: type[MailboatError]) -> Iterator[type[MailboatError]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("mailboat."):
            yield child
            yield from _subclasses(child)


def _fact(value: object) -> Fact:
    return value if isinstance(value, str | int | float | bool) else str(value)


def _delay(seconds: object) -> float | None:
    if isinstance(seconds, int | float) and 0 <= seconds <= _LONGEST_RETRY_SECONDS:
        return float(seconds)
    return None


def _text(document: Mapping[str, object], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) else None
