"""Errors as problem documents (RFC 9457), in both directions.

The class of an error decides the status, its name is in `type`, and its facts travel beside the message, so that a
client gets the very error that the agent met. What is no MailboatError is a defect: the caller gets an incident id to
look for in the agent's log, and never a trace. Used by the API and by `client.py`.
"""

from __future__ import annotations

import importlib
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

NOT_FOR_USERS: Final = ("mailboat.testing", "mailboat.cli", "mailboat.http")
"""Packages whose errors no caller can receive: the layers above the control API, and the tests' doubles."""

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:mailboat:error:"
PLAIN_TYPE: Final = "about:blank"
"""Of a problem that says no more than its status (RFC 9457, 4.2.1)."""

DEFAULT_RETRY_SECONDS: Final = 1.0
"""For `Retry-After`, where the failed side has no wish."""

_STATUSES: Final[tuple[tuple[type[MailboatError], HTTPStatus], ...]] = (
    (AccessDeniedError, HTTPStatus.FORBIDDEN),
    (AgentMissingError, HTTPStatus.NOT_FOUND),
    (QueueMissingError, HTTPStatus.NOT_FOUND),
    (BuildMissingError, HTTPStatus.NOT_FOUND),
    (DistributionMissingError, HTTPStatus.NOT_FOUND),
    (CommandMissingError, HTTPStatus.NOT_FOUND),
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
"""The first class that an error belongs to gives its status."""

_FAMILIES: Final[Mapping[str, type[MailboatError]]] = {
    "passing": RetryableError,
    "decision": StopError,
    "refused": UntrustedInputError,
    "usage": UsageError,
    "permanent": PermanentError,
}
"""What an error asks of the caller, for those who do not know its name."""

Fact = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document (RFC 9457).

    Attributes:
        type: `urn:mailboat:error:NAME`, which `mailboat explain NAME` explains; `about:blank` when the status says all.
        title: The error's name, or what the status is called.
        status: The status of the answer.
        detail: One sentence: what happened to which thing.
        decision: `passing` (try again), `usage`, `refused`, `permanent` (the same fails again) or `decision` (of a
            person).
        next_step: What to do.
        where: Facts beside the sentence: topic, offset, package, path, limit and the like.
        retry_after_seconds: When to try again.
        incident: What to look for in the agent's log.
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
        """The members that say something."""
        members = {name: getattr(self, name) for name in type(self).__slots__}
        return {name: value for name, value in members.items() if value not in (None, {})}

    @property
    def headers(self) -> dict[str, str]:
        """What goes into the answer's head: when to come back, how to say who one is."""
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
    """The document of an error; `status` is for answers that have one of their own."""
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
    """A problem that says no more than its status, and what to look for in the log."""
    return Problem(PLAIN_TYPE, HTTPStatus(status).phrase, status, incident=incident)


def error_of(document: object, url: str) -> MailboatError | None:
    """The error that a document tells of; None when it is no problem document of ours.

    An error that this version does not know becomes one of the family that the document names.
    """
    if not isinstance(document, Mapping) or not str(document.get("type")).startswith(TYPE_PREFIX):
        return None
    name = str(document["type"]).removeprefix(TYPE_PREFIX)
    kind = error_class(name) or _FAMILIES.get(str(document.get("decision")), MailboatError)
    error = kind.__new__(kind)
    MailboatError.__init__(error, str(document.get("detail", "")), next_step=_text(document.get("next_step")))
    facts = document.get("where")
    error.where = dict(facts) if isinstance(facts, Mapping) else {}
    if error.name != name:
        error.where = {"error": name, "agent": url, **error.where}
    if isinstance(error, RetryableError):
        seconds = document.get("retry_after_seconds")
        error.retry_after_seconds = float(seconds) if isinstance(seconds, int | float) else None
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


def import_all_modules() -> None:
    """Import the modules that define errors, so that all error classes exist. Missing extras are left out."""
    for module in pkgutil.walk_packages(mailboat.__path__, "mailboat."):
        if module.name.startswith(NOT_FOR_USERS):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("mailboat"):
                raise  # anything else is an extra that is not installed here


def _subclasses(kind: type[MailboatError]) -> Iterator[type[MailboatError]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("mailboat."):
            yield child
            yield from _subclasses(child)


def _fact(value: object) -> Fact:
    return value if isinstance(value, str | int | float | bool) else str(value)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
