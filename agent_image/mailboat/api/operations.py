"""A request to the control API as data, and the reading of its answer. No I/O.

`control_operations.py` and `job_operations.py` have all requests; `client.py` sends them from a thread, the operator
from its event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from mailboat.api.problems import error_of, read_problem
from mailboat.errors import AccessDeniedError, AgentDefectError, MailboatError
from mailboat.json_decoder import decoder_of

PREFIX: Final = "/api/v1"
"""The path below which all operations are."""

LONGEST_WAIT_SECONDS: Final = 60.0
"""The longest time that an agent waits in one request; for a longer wait the client asks again."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One request to the control API.

    Attributes:
        method: The HTTP method.
        path: The path below `PREFIX`.
        answer: The record that answers it.
        query: The query parameters; a list stands for a repeated one.
        body: The JSON body; None sends none.
        wait_seconds: The time that the agent may wait before it answers.
        answer_seconds: The time for the answer, in addition to the wait; None is the client's.
    """

    method: str
    path: str
    answer: type[T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    wait_seconds: float = 0.0
    answer_seconds: float | None = None


class Ask(Protocol):
    """Sends an operation, and returns its answer. Raises: MailboatError."""

    def __call__(self, operation: Operation[T], /) -> T: ...


def quoted(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")


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
