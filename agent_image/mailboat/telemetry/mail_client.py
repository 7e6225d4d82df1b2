"""Sends notices as e-mails through an SMTP relay: several as one message, over a connection of its own.

The relay is bounded in time and bytes. What it answers to the message itself decides whether the message is rejected
as such; everything before that (login, sender, recipients) is configuration, and is retried.
"""

from __future__ import annotations

import logging
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from hashlib import sha256
from typing import Any, BinaryIO, Final, NamedTuple, Self

from mailboat.clock import Deadline, SystemClock
from mailboat.config.receivers import EventSeverity, MailConfig, MailSecurity, RelayConfig
from mailboat.errors import RetryableError, UsageError
from mailboat.model.identifiers import Offset
from mailboat.telemetry.notice_formats import plain_text
from mailboat.telemetry.notices import Notice

_LOG: Final = logging.getLogger(__name__)
_ANSWER_BYTES: Final = 64 * 1024
_SUBJECT_CHARACTERS: Final = 120
_MAX_NOTICES: Final = 100
_READY: Final = 220
_TOO_LARGE: Final = 552
"""RFC 5321, section 4.2.3: the only answer before the data that is about this message."""

_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,190}")
_HOST: Final = re.compile(r"[A-Za-z0-9.:_-]{1,253}")


class MailRelayUnreachableError(RetryableError):
    """The SMTP relay did not accept an e-mail: no connection, a timeout, no encryption, or a response that refuses.

    It is retried with growing pauses; later events of these recipients wait. Check `events.relay`, and the log of the
    relay.
    """


class RelayAccess(NamedTuple):
    """What a connection to the relay needs besides its configuration.

    Attributes:
        login: User and password; None where the relay needs no login.
        tls: For the relay's certificate; None where nothing is encrypted.
    """

    login: tuple[str, str] | None = None
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"RelayAccess(has_login={self.login is not None})"


def parse_address(text: str) -> str:
    """A mail address in ASCII, without a name. Raises: UsageError."""
    if _ADDRESS.fullmatch(text) is None:
        raise UsageError(f"{text[:80]!r} is not a mail address such as ops@example.org")
    return text


def parse_relay_host(text: str) -> str:
    """A host name or address. Raises: UsageError."""
    if _HOST.fullmatch(text) is None:
        raise UsageError(f"{text[:80]!r} is not a host name; the port is a key of its own")
    return text


class MailSender:
    """`EventSender` of e-mails."""

    max_notices = _MAX_NOTICES

    def __init__(self, mail: MailConfig, relay: RelayConfig, access: RelayAccess) -> None:
        """Connect to nothing yet. Raises: UsageError for an address or a host that is not one."""
        parse_relay_host(relay.host)
        for address in (relay.sender, *mail.to):
            parse_address(address)
        self._relay = relay
        self._access = access
        self._name = mail.name
        self._recipients = mail.to
        self.pause_seconds = mail.every_seconds
        self.timeout_seconds = relay.timeout_seconds
        self.place = f"smtp://{relay.host}:{relay.port}"

    def end(self) -> Offset:
        return Offset(0)

    def resume(self, end: Offset) -> None:
        """Nothing to do: a message that was sent and not noted is sent again."""

    def send(self, notices: Sequence[Notice], now: datetime) -> bool:
        """One message with all notices."""
        message = compose_mail(notices, self._name, self._relay.sender, self._recipients, now)
        deadline = Deadline(SystemClock(), self._relay.timeout_seconds)
        with _Session(self._relay, self._access) as session:
            try:
                refused = session.hand_over(message, self._relay.sender, self._recipients)
            except smtplib.SMTPDataError as error:
                if error.smtp_code // 100 == 5:
                    return False
                raise self._unreachable(error, deadline) from error
            except smtplib.SMTPSenderRefused as error:
                if error.smtp_code == _TOO_LARGE:
                    return False
                raise self._unreachable(error, deadline) from error
            except (OSError, ValueError) as error:  # also all of smtplib's
                raise self._unreachable(error, deadline) from error
        if refused:  # the others have it, and would get a second one
            _LOG.warning("%s refused %s", self.place, ", ".join(refused), extra={"mail": self._name})
        return True

    def close(self) -> None:
        """Nothing: each message has a connection of its own."""

    def _unreachable(self, error: Exception, deadline: Deadline) -> MailRelayUnreachableError:
        when = f" within {self._relay.timeout_seconds:g} seconds" if deadline.is_over() else ""
        return MailRelayUnreachableError(f"{self.place} did not take an e-mail{when}: {error!r:.200}")


class _Session(smtplib.SMTP):
    """One conversation, which ends by one deadline: a relay that drips gets no more time than a deaf one."""

    file: Any

    def __init__(self, relay: RelayConfig, access: RelayAccess) -> None:
        # a name that needs no resolver, which `smtplib` would ask otherwise
        super().__init__(local_hostname=socket.gethostname() or "localhost", timeout=relay.timeout_seconds)
        self._relay = relay
        self._access = access
        self._host = relay.host  # the name that STARTTLS verifies; set by the constructor only, which would connect
        self._line: socket.socket | None = None
        self._timer = threading.Timer(relay.timeout_seconds, self._abort)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self.close()
        if self._line is not None:
            self._line.close()

    def hand_over(self, message: EmailMessage, sender: str, recipients: Sequence[str]) -> Collection[str]:
        """Connect, log in, and send. Returns: refused recipients. Raises: OSError with `smtplib`'s; ValueError."""
        relay = self._relay
        code, answer = self.connect(relay.host, relay.port)
        if code != _READY:
            raise smtplib.SMTPConnectError(code, answer)
        if relay.security is MailSecurity.STARTTLS:
            self.starttls(context=self._access.tls)  # raises where the relay does not offer it: never sent unencrypted
        if self._access.login is not None:
            self.login(*self._access.login)
        refused = self.send_message(message, sender, list(recipients))
        with suppress(OSError):
            self.quit()
        return refused

    def getreply(self) -> tuple[int, bytes]:
        """See `smtplib`: read an answer, of a limited size."""
        if self.file is None and self.sock is not None:
            self.file = _LimitedLines(self.sock.makefile("rb"))
        return super().getreply()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        # called by `connect`, also in the standard library's own class for TLS
        line = socket.create_connection((host, port), timeout)
        self._line = line.dup()  # TLS detaches the socket, so the deadline ends the connection by another handle
        if self._relay.security is MailSecurity.TLS and self._access.tls is not None:
            return self._access.tls.wrap_socket(line, server_hostname=host)
        return line

    def _abort(self) -> None:
        line = self._line
        if line is not None:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)


class _LimitedLines:
    """Lines of the relay; a conversation of more bytes ends as a closed connection does."""

    def __init__(self, lines: BinaryIO) -> None:
        self._lines = lines
        self._left = _ANSWER_BYTES

    def readline(self, size: int = -1) -> bytes:
        """The next line; empty at the end."""
        line = self._lines.readline(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(line)
        return line

    def close(self) -> None:
        """Release the file."""
        self._lines.close()


def compose_mail(
    notices: Sequence[Notice], name: str, sender: str, recipients: Sequence[str], now: datetime
) -> EmailMessage:
    """A message in plain text. Pure.

    A repeat of the same events has the same Message-ID, so that a mailbox can skip it. Foreign text has no line breaks
    and no control characters, neither in the subject nor in the body.
    """
    severity = max((notice.severity for notice in notices), key=list(EventSeverity).index)
    lines = [f"{notice.severity:<7}  {plain_text(notice)}" for notice in notices]
    what = plain_text(notices[0]) if len(notices) == 1 else f"{len(notices)} events"
    first = notices[0].document
    identity = sha256(f"{name}\n{first.get('source')}\n{first.get('id')}".encode(errors="replace")).hexdigest()[:32]
    message = EmailMessage()
    message["Subject"] = f"[mailboat] {severity}: {what[:_SUBJECT_CHARACTERS]}"
    message["From"] = sender
    message["To"] = ", ".join(recipients)
    message["Date"] = format_datetime(now)
    message["Message-ID"] = f"<{identity}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no vacation notes in return
    body = "\n".join([*lines, "", f"Sent by Mailboat: events.mails, {name}."])
    # base64 for anything but ASCII: relays need not take 8-bit text
    message.set_content(body, cte="7bit" if body.isascii() and max(map(len, body.split("\n"))) < 900 else "base64")
    return message
