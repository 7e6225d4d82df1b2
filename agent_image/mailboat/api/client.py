"""The control API over HTTP from a thread: what `mailboat --url …` talks to an agent with.

The client keeps to the rate of requests that the agent allows, and never retries anything else: a `RetryableError` says
when the agent may be asked again, and the caller decides. Safe to use from several threads.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx2

from mailboat.api.control_operations import HttpOperations, publisher_path
from mailboat.api.job_operations import HttpJobs
from mailboat.api.operations import PREFIX, Operation, quoted, read_answer, read_error
from mailboat.api.orders import LONGEST_WAIT_SECONDS, ChangeOrder
from mailboat.api.records import BuildView, CommandView, DistributionView, JournalDocument, QueueView, TopicView
from mailboat.api.stream_events import MEDIA_TYPE, StreamEvent, lines_of, read_events
from mailboat.clock import Clock, Deadline, SystemClock
from mailboat.errors import AgentDefectError, AgentUnreachableError, MailboatError, ThrottledError, UsageError
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 60.0
"""Time for an answer, in addition to the wait that was asked for: a throttled request is delayed for some seconds."""

_RATE_PAUSE_SECONDS: Final = 1.0
"""A shorter pause is that of the rate of requests, which a command exceeds that waits for hundreds of packages."""

SILENCE_SECONDS: Final = 45.0
"""An event stream that is silent for longer is broken: the agent sends a heartbeat every 15 seconds."""

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""Far beyond every answer of an agent: the URL may lead to a download."""

_HEALTH_CHARACTERS: Final = 1_000
_LONGEST_LABEL: Final = 63
"""Bytes of a part of a host name (RFC 1035): the resolver of Python fails for a longer one."""

_OF_THIS_MACHINE: Final = ("all://127.0.0.1", "all://[::1]", "all://localhost")
"""A proxy of the environment cannot reach them: `kubectl mailboat` and the demo ask there."""

_EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""

_OTHER_HOST: Final = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""

_NUMBER: Final = re.compile(r"^\[Errno -?[0-9]+\] ")
"""What Python puts before the reason of a refused connection."""

T = TypeVar("T")


class HttpControl(HttpOperations):
    """`Control` and `Archive` of an agent. A context manager; leaving it closes the connections."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        clock: Clock | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """Check the arguments; the first request connects.

        Args:
            url: The agent's URL, such as `http://127.0.0.1:8080`.
            token: The bearer token, where the agent requires one.
            clock: Time.
            transport: Replaces the network, for tests.

        Raises:
            UsageError: Invalid URL or token.
        """
        checked = _checked_url(url)
        # without a password, as every error names it
        self.url = checked._replace(netloc=checked.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._clock: Clock = SystemClock() if clock is None else clock
        self._client = httpx2.Client(
            base_url=f"{checked.geturl().rstrip('/')}{PREFIX}",
            headers={} if token is None else {"Authorization": f"Bearer {_checked_token(token)}"},
            transport=transport,
            mounts=dict.fromkeys(_OF_THIS_MACHINE),  # asked directly
            verify=self.url.startswith("https:"),  # certificates that plain HTTP has no use for take 0.03 CPU seconds
        )
        super().__init__(self._ask_agent)
        self.jobs = HttpJobs(self._ask)
        """Jobs of the agent."""

    def distribute_all(self, publisher: str, requests: Sequence[DistributionRequest]) -> Iterator[DistributionView]:
        for done, request in enumerate(requests):
            try:
                view = self.distribute(publisher, request)
            except MailboatError as error:
                if done:
                    error.with_facts(published_before=done)
                raise
            yield view

    def publish_changed(
        self, publisher: str, paths: Sequence[NodePath], user_id: str | None = None
    ) -> Iterator[DistributionView]:
        path = f"{publisher_path(publisher)}/changes"
        yield from self._work(path, tuple[DistributionView, ...], ChangeOrder(tuple(paths), user_id))

    def distribution(self, publisher: str, package_id: str, wait_seconds: float = 0.0) -> DistributionView:
        deadline = Deadline(self._clock, wait_seconds)
        while True:
            view = super().distribution(publisher, package_id, _next_wait(deadline))
            if view.state != "queued" or deadline.is_over():
                return view

    def builds(self, build_id: str | None = None) -> Sequence[BuildView]:
        if build_id is not None:
            return [self.build(build_id)]
        return self._ask(Operation("GET", "/builds", tuple[BuildView, ...]))

    def queues(self, publisher: str) -> Sequence[QueueView]:
        found = list[QueueView]()
        operation = Operation("GET", f"{publisher_path(publisher)}/queues", tuple[QueueView, ...])
        while operation.path:
            answer, content = self._send(operation)
            page = read_answer(operation, content, self.url)
            found.extend(page)
            operation = replace(operation, path=_next_path(answer))
        return found

    def clear(self, publisher: str, name: str, max_items: int | None = None, wait_seconds: float = 0.0) -> CommandView:
        deadline = Deadline(self._clock, wait_seconds)
        return self._answered(super().clear(publisher, name, max_items), deadline)

    def remove(self, publisher: str, name: str, item_ids: Sequence[str], wait_seconds: float = 0.0) -> CommandView:
        deadline = Deadline(self._clock, wait_seconds)
        return self._answered(super().remove(publisher, name, item_ids), deadline)

    def redrive(self, subscriber: str, offsets: Sequence[int], wait_seconds: float = 0.0) -> Sequence[CommandView]:
        deadline = Deadline(self._clock, wait_seconds)
        commands = super().redrive(subscriber, offsets)
        return tuple(self._answered(sent, deadline) for sent in commands)

    def suspend(self, subscriber: str, seconds: float | None = None, wait_seconds: float = 0.0) -> CommandView:
        deadline = Deadline(self._clock, wait_seconds)
        return self._answered(super().suspend(subscriber, seconds), deadline)

    def resume(self, subscriber: str, wait_seconds: float = 0.0) -> CommandView:
        deadline = Deadline(self._clock, wait_seconds)
        return self._answered(super().resume(subscriber), deadline)

    def events(self, last_id: str | None = None, *, follow: bool = True) -> Iterator[StreamEvent]:
        """The event stream of the agent, after the event of that id; ends when the agent ends it.

        Raises: as the other methods; AgentUnreachableError also for a connection that broke.
        """
        headers = {"Accept": MEDIA_TYPE} | ({} if last_id is None else {"Last-Event-ID": last_id})
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        deadline = Deadline(self._clock, ANSWER_SECONDS)  # of an error; events come without end
        with (
            self._translated(),
            self._client.stream(
                "GET", "/events", params={"follow": follow}, headers=headers, timeout=timeout
            ) as answer,
        ):
            if not answer.is_success:
                raise read_error(answer.status_code, self._content_of(answer, deadline), self.url)
            # a page of another server has lines, too, and no events: it would look like a silent agent
            if answer.headers.get("Content-Type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
                raise AgentDefectError(f"unexpected response from {self.url}: not the event stream of a Mailboat agent")
            yield from read_events(lines_of(answer.iter_bytes()))

    def topics(self) -> Sequence[TopicView]:
        return self._ask(Operation("GET", "/journal", JournalDocument)).topics

    def remove_snapshot(self, name: str) -> None:
        self._ask(Operation("DELETE", f"/snapshots/{quoted(name)}", dict[str, str]))

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
        """The command once its subscriber has answered it, or its state when the deadline is over."""
        seen = sent
        while seen.state == "sent" and not deadline.is_over():
            seen = self.command(sent.publisher, sent.id, _next_wait(deadline))
        return seen

    def _ask_agent(self, operation: Operation[T]) -> T:
        return read_answer(operation, self._send(operation)[1], self.url)

    def _send(self, operation: Operation[T]) -> tuple[httpx2.Response, bytes]:
        """The answer and its body, within the rate that the agent allows."""
        patience = Deadline(self._clock, ANSWER_SECONDS)
        while True:
            try:
                return self._send_once(operation)
            except ThrottledError as error:
                pause = error.retry_after_seconds
                if pause is None or pause >= _RATE_PAUSE_SECONDS or patience.is_over():
                    raise
                self._clock.wait(threading.Event(), pause)

    def _send_once(self, operation: Operation[T]) -> tuple[httpx2.Response, bytes]:
        seconds = ANSWER_SECONDS if operation.answer_seconds is None else operation.answer_seconds
        seconds += operation.wait_seconds
        deadline = Deadline(self._clock, seconds)
        request = self._client.build_request(
            operation.method,
            operation.path,
            params=operation.parameters,
            json=operation.document,
            timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS),
        )
        with self._translated(), closing(self._client.send(request, stream=True)) as answer:
            content = self._content_of(answer, deadline)
        if not answer.is_success:
            raise read_error(answer.status_code, content, self.url)
        return answer, content

    def _content_of(self, answer: httpx2.Response, deadline: Deadline) -> bytes:
        """The body of an answer, bounded in time and size."""
        content = bytearray()
        # the time-out is that of one read: a server that sends a byte now and then never reaches it
        for piece in answer.iter_bytes():
            content += piece
            if deadline.is_over():
                raise httpx2.ReadTimeout("", request=answer.request)
            if len(content) > MAX_ANSWER_BYTES:
                raise AgentDefectError(f"unexpected response from {self.url}: more than {MAX_ANSWER_BYTES >> 20} MiB")
        return bytes(content)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        except httpx2.DecodingError as error:
            raise AgentDefectError(f"unexpected response from {self.url}: {error}") from error

    def _unreachable(self, error: httpx2.TransportError) -> MailboatError:
        refused = _tls_refusal(error)
        if refused is not None:
            return UsageError(f"no connection to the agent at {self.url}: {refused}", next_step=_tls_step(refused))
        return AgentUnreachableError(
            f"no answer from the agent at {self.url}: {_reason(error)}",
            next_step="check that it runs there: mailboat agent run",
        )


def fetch_health(url: str, timeout_seconds: float) -> tuple[int, str]:
    """The status code and the text of an agent's health endpoint. Raises: AgentUnreachableError."""
    try:
        with httpx2.Client(timeout=timeout_seconds, trust_env=False, verify=False) as client:  # plain HTTP
            answer = client.get(url)
    except httpx2.HTTPError as error:
        raise AgentUnreachableError(f"no answer from {url}: {_reason(error)}") from error
    return answer.status_code, answer.text[:_HEALTH_CHARACTERS]


def _next_wait(deadline: Deadline) -> float:
    return min(deadline.remaining_seconds(), LONGEST_WAIT_SECONDS)


def _next_path(answer: httpx2.Response) -> str:
    """The path of a list's next page, below `PREFIX`; empty after the last page."""
    _, prefix, path = answer.links.get("next", {}).get("url", "").partition(PREFIX)
    return path if prefix else ""


def _tls_refusal(error: BaseException) -> ssl.SSLError | None:
    """Reason of a TLS failure; None for other failures. A retry fails until the configuration is corrected."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _tls_step(refused: ssl.SSLError) -> str:
    if not isinstance(refused, ssl.SSLCertVerificationError):
        return "check that the agent serves HTTPS at this address; otherwise use http://"
    if refused.verify_code in _OTHER_HOST:
        return "use a host name or address that the agent's certificate contains"
    if refused.verify_code == _EXPIRED:
        return "renew the agent's certificate"
    return "set SSL_CERT_FILE to the PEM file of the authority that signed the agent's certificate"


def _reason(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "timed out"
    return _NUMBER.sub("", str(error)) or type(error).__name__


def _checked_url(url: str) -> SplitResult:
    parts = _parts_of(url)
    if parts is None:
        raise UsageError(f"invalid agent URL {url!r}; expected http://HOST:PORT", url=url)
    if parts.query or parts.fragment:  # as a browser shows the address of the dashboard
        plain = parts._replace(query="", fragment="").geturl().rstrip("/")
        raise UsageError(f"invalid agent URL {url!r}; expected an address without ? and #", next_step=f"--url {plain}")
    return parts


def _parts_of(url: str) -> SplitResult | None:
    """The parts of a URL that a server can have."""
    try:
        parts = urlsplit(url)
        labels = httpx2.URL(url).raw_host.rstrip(b".").split(b".")
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx2.InvalidURL):
        return None
    return parts if is_whole and all(0 < len(label) <= _LONGEST_LABEL for label in labels) else None


def _checked_token(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise UsageError("the token contains characters that an HTTP header cannot carry")
    return token
