"""The client of publisher agents: status of a journal, publish requests, and the state of packages.

Answers are validated like any input: a malformed or oversized one counts as no answer. The token goes into the request
and nowhere else. Used from one event loop.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from typing import Final, TypeVar, cast

import httpx2
from mailboat.api.control_operations import HttpOperations
from mailboat.api.job_operations import HttpJobs
from mailboat.api.operations import PREFIX, Operation, read_answer
from mailboat.api.problems import Problem, read_problem
from mailboat.api.records import BuildView, DistributionView, StatusView
from mailboat.config.section_keys import LARGEST_INTEGER
from mailboat.errors import AgentDefectError, AgentRefusedError, AgentUnreachableError, MailboatError
from mailboat.frozen import Frozen
from mailboat.model.requests import DistributionRequest

from mailboat_operator.workload.fleet import reason_of
from mailboat_operator.workload.mounts import service_url

T = TypeVar("T")
_CONNECT_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 15.0
_PACKAGING_SECONDS: Final = 50.0
"""A package of a large tree is made before the answer; one that takes longer is found by the same request later."""
_SHORTEST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
_LARGEST_ANSWER: Final = 16 << 20
_LONGEST_TEXT: Final = 512
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""One day before the last moment that datetime holds, so that it has a time in each zone."""
_SUCCESS: Final = range(200, 300)
_REFUSED: Final = frozenset({400, 409, 413, 422})
"""A repetition would be refused, too. Other failures may pass: a token is replaced, a pod starts."""

Waiting = Callable[[], AbstractAsyncContextManager[None]]
"""Context entered during a wait for an agent, brokers or a bucket: meanwhile other objects are reconciled."""


class AgentAddress(Frozen):
    """Where a publisher's agent is, and the credentials for it.

    Attributes:
        namespace: Of the Publisher.
        publisher: Its name, which is its agent's and its Service's.
        token: The bearer token.
    """

    namespace: str
    publisher: str
    token: str

    def __repr__(self) -> str:
        """Without the token."""
        return f"{self.namespace}/{self.publisher}"


def _unsent(operation: Operation[T], /) -> T:
    """In place of sending: the clients return the operation itself, which is sent without blocking."""
    return cast("T", operation)


_CONTROL: Final = HttpOperations(_unsent)


class Agents:
    """The agents of all publishers."""

    def __init__(self, url_of: Callable[[str, str], str] = service_url, waiting: Waiting = nullcontext) -> None:
        """Open no connection yet.

        Args:
            url_of: Gives the URL of an agent from the name and the namespace of its Publisher.
            waiting: Entered during a wait for an agent.
        """
        self._url_of = url_of
        self._waiting = waiting
        # the token is for the agent's Service alone: no redirects, and no proxy of the environment
        # agents have no TLS within the cluster: a context that trusts no certificate spares loading those of the system
        nothing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx2.AsyncClient(verify=nothing, trust_env=False, follow_redirects=False)

    async def fleet(self, address: AgentAddress) -> StatusView:
        """The status of the publisher's journal. Raises: AgentUnreachableError, AgentRefusedError."""
        status = await self._ask(address, _CONTROL.status())
        times = [publisher.last_published_at for publisher in status.publishers]
        names = [
            *(publisher.name for publisher in status.publishers),
            *(subscriber.name for subscriber in status.subscribers),
        ]
        _check_bounds([status.journal.next_offset], times, names)
        return status

    async def distribute(self, address: AgentAddress, request: DistributionRequest) -> DistributionView:
        """Publish a request; one that was published before under its id is found. Raises: see `fleet`."""
        return _checked(await self._ask(address, _CONTROL.distribute(address.publisher, request), _PACKAGING_SECONDS))

    async def delivery(self, address: AgentAddress, package_id: str) -> DistributionView:
        """The state of a package at each subscriber. Raises: see `fleet`."""
        return _checked(await self._ask(address, _CONTROL.distribution(address.publisher, package_id)))

    async def build(self, address: AgentAddress, build_id: str) -> BuildView | None:
        """The state of a bulk build; None while the log has none of its packages. Raises: see `fleet`."""
        try:
            return await self._ask(address, _CONTROL.build(build_id))
        except AgentUnreachableError as error:
            if error.where.get("error") != "BuildMissing":
                raise
            return None

    async def jobs(self, address: AgentAddress, request: Callable[[HttpJobs], T]) -> T:
        """Ask for jobs, queues or schedules: `request` calls one method of the client. Raises: see `fleet`."""
        return await self._ask(address, request(HttpJobs(_unsent)))

    async def forget(self, address: AgentAddress, subscriber: str) -> None:
        """Deregister a subscriber permanently; ignores an unknown one. Raises: see `fleet`."""
        try:
            await self._ask(address, _CONTROL.forget(subscriber))
        except AgentUnreachableError as error:
            if error.where.get("error") != "AgentMissing":
                raise

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.aclose()

    async def _ask(self, address: AgentAddress, unsent: T, seconds: float = _ANSWER_SECONDS) -> T:
        """The answer to what `_unsent` returned in its place."""
        operation = cast("Operation[T]", unsent)
        url = self._url_of(address.publisher, address.namespace)
        sent = self._client.stream(
            operation.method,
            f"{url}{PREFIX}{operation.path}",
            params=operation.parameters,
            json=operation.document,
            headers={"Authorization": f"Bearer {address.token}"},
            timeout=httpx2.Timeout(seconds, connect=_CONNECT_SECONDS),
        )
        try:
            async with self._waiting(), sent as answer:
                content = await _bounded(answer)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise AgentUnreachableError(
                f"no answer from publisher {address.publisher}: {transport_reason(error)}"
            ) from error
        if answer.status_code not in _SUCCESS:
            raise _error_of(answer.status_code, read_problem(content), address.publisher)
        try:
            return read_answer(operation, content, url)
        except AgentDefectError as error:
            raise AgentUnreachableError(error.message) from error


def transport_reason(error: Exception) -> str:
    """Why a request failed, by transport errors only: others quote what was sent, with headers."""
    is_quoting = not isinstance(error, httpx2.TransportError) or isinstance(error, httpx2.LocalProtocolError)
    return type(error).__name__ if is_quoting else str(error) or type(error).__name__


async def _bounded(answer: httpx2.Response) -> bytes:
    found = bytearray()
    # piece by piece: a response without an end must not fill the memory
    async for piece in answer.aiter_bytes():
        found += piece
        if len(found) > _LARGEST_ANSWER:
            raise AgentUnreachableError(f"the response exceeds {_LARGEST_ANSWER} bytes: not a Mailboat agent")
    return bytes(found)


def _error_of(status: int, problem: Problem | None, publisher: str) -> MailboatError:
    """The agent's error, under its name, which `mailboat explain` explains."""
    name = reason_of("" if problem is None else problem.title, f"Status{status}")
    detail = None if problem is None else problem.detail
    text = (detail or f"publisher {publisher} answered with status {status}")[:_LONGEST_TEXT]
    if status in _REFUSED and (problem is None or problem.decision != "transient"):
        return AgentRefusedError(text, error=name)
    return AgentUnreachableError(text, error=name, retry_after_seconds=_pause_of(problem))


def _pause_of(problem: Problem | None) -> float | None:
    """An agent's wish, within bounds: less would be a loop of requests, and none of JSON's numbers is too large."""
    seconds = None if problem is None else problem.retry_after_seconds
    if seconds is None or not math.isfinite(seconds):
        return None
    return min(max(seconds, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)


def _checked(view: DistributionView) -> DistributionView:
    passed = (*view.skipped, *view.unknown)
    named = [*view.imported, *view.waiting, *view.removed, *(failure.subscriber for failure in view.failed)]
    names = [view.package_id, *named, *(outcome.subscriber for outcome in passed)]
    _check_bounds([view.offset], [view.published_at], names)
    return view


def _check_bounds(offsets: Iterable[int], times: Iterable[datetime | None], names: Iterable[str]) -> None:
    """Refuse offsets, times and names that a status cannot hold. Raises: AgentUnreachableError."""
    # the status is JSON: clients that read doubles would round larger numbers
    if any(not 0 <= offset <= LARGEST_INTEGER for offset in offsets):
        raise AgentUnreachableError("unexpected response, not a Mailboat API document: a number is out of range")
    if any(at is not None and not _EARLIEST <= at <= _LATEST for at in times):
        raise AgentUnreachableError("unexpected response, not a Mailboat API document: a time is out of range")
    if any(len(name) > _LONGEST_TEXT for name in names):
        raise AgentUnreachableError("unexpected response, not a Mailboat API document: a name is too long")
