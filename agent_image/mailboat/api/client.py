"""The control port over HTTP: what `mailboat --url …` talks to an agent with.

Answers become the records of `views.py`, problem documents the errors that the agent met, by name, with their facts and
their next step. Nothing is tried again by itself: a `RetryableError` says when the agent wants to be asked again, and
whoever calls decides. Safe to use from several threads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError

from mailboat.api.problems import error_of
from mailboat.api.records import (
    BuildView,
    CommandView,
    DistributionOrder,
    DistributionPage,
    DistributionView,
    ForgottenView,
    GivenUpPage,
    QueuePage,
    QueueView,
    StatusView,
)
from mailboat.clock import Clock, Deadline, SystemClock
from mailboat.errors import AccessDeniedError, AgentDefectError, AgentUnreachableError, MailboatError, UsageError

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 60.0
"""Time for an answer, beyond what the agent was asked to wait: a throttled request is held up for some seconds."""

LONGEST_WAIT_SECONDS: Final = 60.0
"""What an agent waits at most in one request; longer waits ask again."""

_NUMBER: Final = re.compile(r"^\[Errno -?[0-9]+\] ")
"""What Python puts before the reason of a refused connection."""

T = TypeVar("T")


class HttpControl:
    """See `Control`. A context manager; leaving it closes the connections."""

    def __init__(self, url: str, token: str | None = None, clock: Clock | None = None) -> None:
        """Connect to nothing yet.

        Args:
            url: The agent's, such as `http://127.0.0.1:8080`.
            token: The bearer token, where the agent wants one.
            clock: Time.

        Raises:
            UsageError: The URL can't be one.
        """
        self.url = _checked_url(url)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._client = httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers={} if token is None else {"Authorization": f"Bearer {_checked_token(token)}"},
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
        )

    def status(self) -> StatusView:
        """See `Control`."""
        return self._ask(StatusView, "GET", "/status")

    def distribute(self, publisher: str, order: DistributionOrder) -> DistributionView:
        """See `Control`."""
        return self._ask(DistributionView, "POST", f"{_of(publisher)}/distributions", json=asdict(order))

    def distribution(self, publisher: str, package_id: str, wait_seconds: float = 0.0) -> DistributionView:
        """See `Control`."""
        path = f"{_of(publisher)}/distributions/{_escaped(package_id)}"
        deadline = Deadline(self._clock, wait_seconds)
        while True:
            wait = min(deadline.remaining_seconds(), LONGEST_WAIT_SECONDS)
            view = self._ask(DistributionView, "GET", path, params={"wait": wait}, wait_seconds=wait)
            if view.state != "queued" or deadline.is_over():
                return view

    def distributions(self, publisher: str, before: int | None = None, max_items: int = 20) -> DistributionPage:
        """See `Control`."""
        params = {"max_items": max_items} | ({} if before is None else {"before": before})
        return self._ask(DistributionPage, "GET", f"{_of(publisher)}/distributions", params=params)

    def builds(self, build_id: str | None = None) -> Sequence[BuildView]:
        """See `Control`."""
        if build_id is not None:
            return [self._ask(BuildView, "GET", f"/builds/{_escaped(build_id)}")]
        return self._ask(tuple[BuildView, ...], "GET", "/builds")

    def queues(self, publisher: str) -> Sequence[QueueView]:
        """See `Control`."""
        found, path = list[QueueView](), f"{_of(publisher)}/queues"
        while path:
            answer = self._send("GET", path)
            found += self._read(tuple[QueueView, ...], answer)
            path = self._next_of(answer)
        return found

    def queue(self, publisher: str, name: str, from_offset: int = 0, max_items: int = 100) -> QueuePage:
        """See `Control`."""
        params = {"from_offset": from_offset, "max_items": max_items}
        return self._ask(QueuePage, "GET", f"{_of(publisher)}/queues/{_escaped(name)}", params=params)

    def clear(self, publisher: str, name: str, max_items: int | None = None, wait_seconds: float = 0.0) -> CommandView:
        """See `Control`."""
        path = f"{_of(publisher)}/queues/{_escaped(name)}/clear"
        sent = self._ask(CommandView, "POST", path, json={"max_items": max_items})
        return self._answered(sent, Deadline(self._clock, wait_seconds))

    def remove(self, publisher: str, name: str, item_ids: Sequence[str], wait_seconds: float = 0.0) -> CommandView:
        """See `Control`."""
        path = f"{_of(publisher)}/queues/{_escaped(name)}/items"
        sent = self._ask(CommandView, "DELETE", path, params={"id": list(item_ids)})
        return self._answered(sent, Deadline(self._clock, wait_seconds))

    def command(self, publisher: str, command_id: str) -> CommandView:
        """See `Control`."""
        return self._ask(CommandView, "GET", f"{_of(publisher)}/commands/{_escaped(command_id)}")

    def errors(self, subscriber: str | None = None, page: str | None = None, max_items: int = 100) -> GivenUpPage:
        """See `Control`."""
        wanted = {"subscriber": subscriber, "page": page, "max_items": max_items}
        params = {name: value for name, value in wanted.items() if value is not None}
        return self._ask(GivenUpPage, "GET", "/errors", params=params)

    def redrive(self, subscriber: str, offsets: Sequence[int], wait_seconds: float = 0.0) -> Sequence[CommandView]:
        """See `Control`."""
        order = {"subscriber": subscriber, "offsets": list(offsets)}
        sent = self._ask(tuple[CommandView, ...], "POST", "/errors/redrive", json=order)
        deadline = Deadline(self._clock, wait_seconds)
        return tuple(self._answered(one, deadline) for one in sent)

    def forget(self, subscriber: str) -> ForgottenView:
        """See `Control`."""
        return self._ask(ForgottenView, "DELETE", f"/subscribers/{_escaped(subscriber)}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answered(self, sent: CommandView, deadline: Deadline) -> CommandView:
        """The command once its subscriber has spoken, or as it is when the time is over."""
        seen = sent
        while seen.state == "sent" and not deadline.is_over():
            wait = min(deadline.remaining_seconds(), LONGEST_WAIT_SECONDS)
            path = f"{_of(sent.publisher)}/commands/{_escaped(sent.id)}"
            seen = self._ask(CommandView, "GET", path, params={"wait": wait}, wait_seconds=wait)
        return seen

    def _ask(self, kind: type[T], method: str, path: str, *, wait_seconds: float = 0.0, **content: Any) -> T:
        return self._read(kind, self._send(method, path, wait_seconds=wait_seconds, **content))

    def _send(self, method: str, path: str, *, wait_seconds: float = 0.0, **content: Any) -> httpx.Response:
        timeout = httpx.Timeout(ANSWER_SECONDS + wait_seconds, connect=CONNECT_SECONDS)
        try:
            answer = self._client.request(method, path, timeout=timeout, **content)
        except httpx.TransportError as error:
            raise AgentUnreachableError(
                f"no answer from the agent at {self.url}: {_reason(error)}",
                next_step="look at whether it runs there: mailboat agent run",
            ) from error
        if not answer.is_success:
            raise self._error(answer)
        return answer

    def _next_of(self, answer: httpx.Response) -> str:
        """The path of the next page of a list, below the API's; empty after the last page."""
        _, prefix, path = answer.links.get("next", {}).get("url", "").partition("/api/v1")
        return path if prefix else ""

    def _read(self, kind: type[T], answer: httpx.Response) -> T:
        try:
            return TypeAdapter(kind).validate_json(answer.content)
        except ValidationError as error:
            raise AgentDefectError(f"what {self.url} answers is no document of a Mailboat agent") from error

    def _error(self, answer: httpx.Response) -> MailboatError:
        document = _document(answer)
        known = error_of(document, self.url)
        if known is not None:
            return known
        match answer.status_code:
            case HTTPStatus.UNAUTHORIZED:
                return AccessDeniedError(
                    f"the agent at {self.url} wants a token that it knows",
                    next_step="give one with --token-file FILE or in MAILBOAT_TOKEN",
                )
            case HTTPStatus.FORBIDDEN:
                return AccessDeniedError(f"the agent at {self.url} does not let this token do that")
        incident = document.get("incident") if isinstance(document, dict) else None
        message = f"the agent at {self.url} answered with status {answer.status_code} {answer.reason_phrase}"
        return AgentDefectError(message.rstrip(), incident=incident)


def _of(publisher: str) -> str:
    return f"/publishers/{_escaped(publisher)}"


def _escaped(text: str) -> str:
    return quote(text, safe="")


def _reason(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "it took too long"
    return _NUMBER.sub("", str(error)) or type(error).__name__


def _document(answer: httpx.Response) -> object:
    try:
        document: object = answer.json()
    except ValueError:
        return None
    return document


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise UsageError(f"{url!r} is no agent's URL: http://HOST:PORT is expected", url=url)
    return url.rstrip("/")


def _checked_token(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise UsageError("the token has characters that a header can't carry")
    return token
