"""Posts notices to a webhook, one at a time, over one connection, with the little of HTTP that it needs.

Redirects are not followed: the token is for the configured host. Answers are read up to a limit and discarded. It uses
the standard library because agents do not load httpx2 (docs/decisions/0018-http-client.md).
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from mailboat.clock import Deadline, SystemClock
from mailboat.config.receivers import WebhookConfig
from mailboat.errors import RetryableError, UsageError
from mailboat.model.identifiers import Offset
from mailboat.telemetry.notice_formats import encode_notice, media_type
from mailboat.telemetry.notices import Notice

# Read so that the connection can be used again; the content of the answer does not matter.
_ANSWER_BYTES: Final = 64 * 1024
# `settimeout(0)` would make the socket non-blocking
_LEAST_SECONDS: Final = 0.001
_REFUSALS: Final = frozenset({400, 413, 415, 422})


class WebhookUnreachableError(RetryableError):
    """The webhook did not accept an event: no connection, a timeout, or a response that asks to retry.

    The event is retried with growing pauses; later events of this webhook wait. Check the receiver, and
    `events.webhooks`.
    """


class Answer(NamedTuple):
    """A receiver's answer; `retry_after_seconds` is its wish."""

    status: int
    retry_after_seconds: float | None = None


class _Connection(http.client.HTTPConnection):
    """All steps of a post end by one deadline: a receiver that drips gets no more time than a deaf one."""

    deadline: Deadline
    _line: socket.socket | None = None

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self._tls = context

    def connect(self) -> None:
        """See `http.client`: try the addresses of the host one after the other."""
        failure: OSError = TimeoutError(f"{self.host} could not be reached in time")
        # the resolver has no timeout: this call alone may take longer than the deadline
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            line = socket.socket(family, kind, protocol)
            try:
                line.settimeout(max(_LEAST_SECONDS, self.deadline.remaining_seconds()))
                line.connect(address)
                self.sock = self._line = line
                self._secure()
            except OSError as error:
                line.close()
                failure = error
            else:
                return
        raise failure

    def abort(self) -> None:
        """Abort reads and writes at the timeout. Called from another thread."""
        line = self._line  # `sock` is forgotten while an answer that ends with the connection is read
        if line is not None:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _secure(self) -> None:
        if self._tls is not None:
            secured = self._tls.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock = self._line = secured  # before the handshake, so that it, too, can be ended
            secured.do_handshake()


class WebhookClient:
    """Posts to one URL. Belongs to one thread."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_seconds: float) -> None:
        """Connect to nothing yet. Raises: UsageError for a URL that can't be posted to."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"the webhook's URL is not a URL: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
            raise UsageError(
                "the webhook's URL is not an http or https URL without a password in it",
                next_step="give the secret as the webhook's token, which is sent as a bearer token",
            )
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = dict(headers)
        self.place = f"{parts.scheme}://{parts.hostname}" + ("" if port is None else f":{port}")
        """Where it posts to, without path and query, which may hold secrets."""
        self._timeout_seconds = timeout_seconds
        context = ssl.create_default_context() if parts.scheme == "https" else None
        self._connection = _Connection(parts.hostname, port or (80 if context is None else 443), context)

    def post(self, body: bytes, now: datetime) -> Answer:
        """Post, and give the answer, all within the timeout. Raises: WebhookUnreachableError."""
        deadline = self._connection.deadline = Deadline(SystemClock(), self._timeout_seconds)
        timer = threading.Timer(self._timeout_seconds, self._connection.abort)
        timer.daemon = True
        timer.start()
        try:
            answer = self._answer_to(body)
            answer.read(_ANSWER_BYTES)
            if not answer.isclosed():
                self._connection.close()  # longer than any answer needs
            if deadline.is_over():
                raise TimeoutError("the answer came too slowly")
            return Answer(answer.status, _seconds_of(answer.headers.get("Retry-After"), now))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            when = f" within {self._timeout_seconds:g} seconds" if deadline.is_over() else ""
            raise WebhookUnreachableError(f"{self.place} did not take an event{when}: {error!r:.200}") from error
        finally:
            timer.cancel()

    def _answer_to(self, body: bytes) -> http.client.HTTPResponse:
        """Send and wait for the answer; again if the connection was closed since the last event."""
        was_open = self._connection.sock is not None
        try:
            return self._ask(body)
        except (ConnectionResetError, BrokenPipeError):
            # Servers close connections that are idle: RFC 9112, 9.3.1. A receiver gets each event at least once anyway.
            if not was_open or self._connection.deadline.is_over():
                raise
            self._connection.close()
            return self._ask(body)

    def _ask(self, body: bytes) -> http.client.HTTPResponse:
        self._connection.request("POST", self._target, body, self._headers)
        return self._connection.getresponse()

    def close(self) -> None:
        """Release the connection."""
        self._connection.close()


class WebhookSender:
    """`EventSender` of a webhook."""

    max_notices = 1
    pause_seconds = 0.0

    def __init__(self, config: WebhookConfig, url: str, token: str | None = None) -> None:
        """Connect to nothing yet. Raises: UsageError for a URL that can't be posted to.

        Args:
            config: Format and timeout.
            url: Where to post; of the configuration or of its secret.
            token: Sent as a bearer token.
        """
        headers = {"Content-Type": media_type(config.format), "User-Agent": "mailboat"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._format = config.format
        self.timeout_seconds = config.timeout_seconds
        self._client = WebhookClient(url, headers, config.timeout_seconds)
        self.place = self._client.place

    def end(self) -> Offset:
        return Offset(0)

    def resume(self, end: Offset) -> None:
        """Nothing to do: a message that was sent and not noted is sent again."""

    def send(self, notices: Sequence[Notice], now: datetime) -> bool:
        """The status decides: 400, 413, 415 and 422 reject the event as such."""
        answer = self._client.post(encode_notice(notices[0], self._format), now)
        if answer.status // 100 != 2 and answer.status not in _REFUSALS:
            raise WebhookUnreachableError(
                f"{self.place} answered an event with {answer.status}", retry_after_seconds=answer.retry_after_seconds
            )
        return answer.status not in _REFUSALS

    def close(self) -> None:
        """Release the connection."""
        self._client.close()


def _seconds_of(text: str | None, now: datetime) -> float | None:
    """What `Retry-After` asks for: seconds, or a date. Source: RFC 9110, section 10.2.3."""
    if text is None:
        return None
    if text.strip().isdecimal() and text.isascii():
        return float(text.strip()[:10])
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the latter: of a time zone of years
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())
