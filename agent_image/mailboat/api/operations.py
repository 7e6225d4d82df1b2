"""A request to the control API as data, and the reading of its answer. No I/O.

`control_operations.py` and `job_operations.py` have all requests; `client.py` sends them from a thread, the operator
from its event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from http import HTTPStatus
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from mailboat.api.orders import ApiOrder
from mailboat.api.problems import error_of, read_problem
from mailboat.errors import AccessDeniedError, AgentDefectError, MailboatError, UsageError
from mailboat.json_decoder import decoder_of

PREFIX: Final = "/api/v1"
"""The path below which all operations are."""

_SHOWN_NAME: Final = 200

T = TypeVar("T")
Body = TypeVar("Body", bound=ApiOrder)


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One request to the control API.

    Attributes:
        method: The HTTP method.
        path: The path below `PREFIX`.
        answer: The record that answers it.
        query: The query parameters; a list stands for a repeated one, None and an empty list for none.
        body: The body; None sends none.
        wait_seconds: The time that the agent may wait before it answers.
        answer_seconds: The time for the answer, in addition to the wait; None is the client's.
    """

    method: str
    path: str
    answer: type[T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: ApiOrder | None = None
    wait_seconds: float = 0.0
    answer_seconds: float | None = None

    @property
    def parameters(self) -> Mapping[str, Any] | None:
        """The query that is sent; None, not an empty one, which would drop the query of a path that has one."""
        return {name: value for name, value in self.query.items() if value not in (None, [])} or None

    @property
    def document(self) -> Mapping[str, Any] | None:
        """The body as a JSON object."""
        return None if self.body is None else self.body.document()


class Ask(Protocol):
    """Sends an operation, and returns its answer. Raises: MailboatError."""

    def __call__(self, operation: Operation[T], /) -> T: ...


def quoted(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")


def read_order(order: type[Body], content: bytes) -> Body:
    """The record in a request's body, with the types of its members checked, but not their constraints.

    For agents that serve without the framework, which checks both. Raises: UsageError.
    """
    known = [member.name for member in fields(order)]
    try:
        # before the record: a member that is misspelt would else be called missing, or be ignored
        for name in decoder_of(dict[str, msgspec.Raw]).decode(content):
            if name not in known:
                step = f"it takes {', '.join(known)}"
                raise UsageError(f"body.{name[:_SHOWN_NAME]}: there is no such member", next_step=step)
        # made again, as msgspec sets no default that the class has, too
        return order(**vars(decoder_of(order).decode(content)))
    except (msgspec.DecodeError, RecursionError) as error:
        fault, _, place = str(error).partition(" - at `$")
        raise UsageError(f"body{place.rstrip('`')}: {fault}") from error


def read_answer(operation: Operation[T], content: bytes, url: str) -> T:
    """The record in a successful answer; members that this version does not know are ignored.

    Raises: AgentDefectError for an answer that is not such a record.
    """
    try:
        return decoder_of(operation.answer).decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise AgentDefectError(f"unexpected response from {url}: not a Mailboat API document") from error


def read_error(status: int, content: bytes, url: str) -> MailboatError:
    """The error of an unsuccessful answer: the agent's own error with its facts, if it has one."""
    problem = read_problem(content)
    known = None if problem is None else error_of(problem, url)
    if known is not None:
        return known
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return AccessDeniedError(
                f"the agent at {url} requires a valid token",
                next_step="pass one with --token-file FILE or in MAILBOAT_TOKEN",
            )
        case HTTPStatus.FORBIDDEN:
            return AccessDeniedError(f"the agent at {url} does not permit this with this token")
    message = f"the agent at {url} answered with status {status} {_phrase(status)}"
    return AgentDefectError(message.rstrip(), incident=None if problem is None else problem.incident)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
