"""E-mails of events through a real SMTP server: delivery, encryption, login, refusals, and relays that misbehave."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from mailboat.config.receivers import MailConfig, MailSecurity, RelayConfig
from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import EVENT_TOPIC, DistributedEvent, Missed, MissedReason
from mailboat.model.paths import NodePath
from mailboat.publisher.distributed_memory import EventMemory
from mailboat.telemetry.event_delivery import DeliveryPorts, EventDelivery, EventReceiver
from mailboat.telemetry.mail_client import MailRelayUnreachableError, MailSender, RelayAccess
from mailboat.telemetry.package_events import PackageEvents, package_notice
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.event_documents import encode_event

AUTHOR = AgentName("author")
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SENDER, OPS, OTHER = "mailboat@example.org", "ops@example.org", "other@example.org"
NO_LOGIN = RelayAccess()


def event(number: int, *missed: str) -> DistributedEvent:
    lacking = tuple(Missed(name, MissedReason.FAILED) for name in missed)
    return DistributedEvent(AUTHOR, PackageId(f"p{number}"), Offset(number), (NodePath("/a"),), missed=lacking)


@dataclass
class Mailbox:
    """Takes mails; `answers` are what single steps answer instead, one a time."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    logins: list[bytes] = field(default_factory=list)
    port: int = 0

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: Any) -> str:  # noqa: N802  # the name that aiosmtpd calls
        refused = self._answer("RCPT")
        if refused is None:
            envelope.rcpt_tos.append(address)
        return refused or "250 OK"

    async def handle_MAIL(self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: Any) -> str:  # noqa: N802  # the name that aiosmtpd calls
        envelope.mail_from = address
        return self._answer("MAIL") or "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:  # noqa: N802  # the name that aiosmtpd calls
        refused = self._answer("DATA")
        if refused is None:
            assert isinstance(envelope.content, bytes)
            self.recipients.append(envelope.rcpt_tos)
            self.mails.append(message_from_bytes(envelope.content, policy=policy.default))  # type: ignore[arg-type]
        return refused or "250 OK"

    def _answer(self, step: str) -> str | None:
        waiting = self.answers.get(step, [])
        return waiting.pop(0) if waiting else None

    def authenticate(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        self.logins.append(given.login)
        return AuthResult(success=given.password == b"geheim", handled=False)


@contextmanager
def relay(mailbox: Mailbox, implicit: ssl.SSLContext | None = None, **options: Any) -> Iterator[Mailbox]:
    loop = asyncio.new_event_loop()
    made = loop.create_server(lambda: SMTP(mailbox, **options), "127.0.0.1", 0, ssl=implicit)
    server = loop.run_until_complete(made)
    mailbox.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield mailbox
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(end_connections())
        loop.close()


async def end_connections() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(10):  # connections that were let go are closed in the loop's next turns
        await asyncio.sleep(0.01)


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with relay(Mailbox()) as opened:
        yield opened


@dataclass
class Certificate:
    """A certificate of `localhost` that signs itself."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return Certificate(server, ssl.create_default_context(cafile=file))


def sender(
    port: int, *recipients: str, host: str = "127.0.0.1", access: RelayAccess = NO_LOGIN, **changes: Any
) -> MailSender:
    settings = {"security": MailSecurity.NONE, "timeout_seconds": PATIENCE_SECONDS, **changes}
    return MailSender(MailConfig("ops", recipients or (OPS,)), RelayConfig(host, SENDER, port, **settings), access)


def send(one: MailSender, *events: DistributedEvent) -> bool:
    return one.send([package_notice(sent, 0) for sent in events or (event(1, "edge"),)], NOW)


class Setting:
    """A log with events, and a delivery of them by e-mail."""

    def __init__(self, folder: Path, mailbox: Mailbox) -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal(self.clock)
        self.journal.ensure_topic(EVENT_TOPIC, TopicSettings(retention_seconds=None))
        self.memory = EventMemory(folder / "author.db", "OFF")
        ports = DeliveryPorts(
            self.journal, self.memory, self.clock, PackageEvents(self.journal, AUTHOR), sender(mailbox.port)
        )
        self.delivery = EventDelivery(EventReceiver(AUTHOR, "ops", "mail"), ports)

    def raise_event(self, number: int, *missed: str) -> None:
        headers, value = encode_event(event(number, *missed))
        self.journal.append(EVENT_TOPIC, [NewRecord(value, headers)])


@pytest.fixture
def setting(tmp_path: Path, mailbox: Mailbox) -> Iterator[Setting]:
    made = Setting(tmp_path, mailbox)
    made.delivery.start()
    yield made
    made.delivery.stop()
    made.memory.close()
    made.journal.close()


def test_events_that_come_while_a_mail_rests_are_sent_together(setting: Setting, mailbox: Mailbox) -> None:
    setting.raise_event(1, "edge")
    wait_until(lambda: len(mailbox.mails) == 1)
    assert mailbox.mails[0]["Subject"] == "[mailboat] error: author: /a (offset 1) is missing at edge (failed)"
    assert mailbox.mails[0]["Auto-Submitted"] == "auto-generated"
    assert (mailbox.mails[0]["From"], mailbox.recipients[0]) == (SENDER, [OPS])
    identity = setting.journal.identity(EVENT_TOPIC)
    wait_until(lambda: setting.memory.cursor("mail-ops", identity) == (1, 0))
    for number in (2, 3, 4):
        setting.raise_event(number)
    assert setting.clock.await_waiters()
    assert len(mailbox.mails) == 1
    setting.clock.advance(60.0)
    wait_until(lambda: len(mailbox.mails) == 2)
    assert mailbox.mails[1]["Subject"] == "[mailboat] info: 3 events"
    assert len(mailbox.mails[1].get_content().splitlines()) == 5
    wait_until(lambda: setting.delivery.statistics.delivered == 4)


def test_refused_login_or_sender_is_retried_and_a_refused_message_is_skipped(
    setting: Setting, mailbox: Mailbox
) -> None:
    mailbox.answers = {"MAIL": ["550 sender unknown", "451 later"], "RCPT": ["550 no relaying"], "DATA": ["554 spam"]}
    setting.raise_event(1, "edge")
    for failures in (1, 2, 3):
        wait_until(lambda seen=failures: setting.delivery.statistics.failed == seen)
        assert setting.delivery.statistics.waiting == 1
        assert setting.clock.await_waiters()
        setting.clock.advance(300.0)
    wait_until(lambda: setting.delivery.statistics.refused == 1)
    assert setting.clock.await_waiters()
    setting.clock.advance(60.0)
    setting.raise_event(2, "edge")
    wait_until(lambda: setting.delivery.statistics.delivered == 1)
    assert setting.delivery.statistics.waiting == 0


def test_mail_is_encrypted_and_logged_in(certificate: Certificate) -> None:
    known = {"host": "localhost", "access": RelayAccess(("me", "geheim"), certificate.client)}
    wrong_login = RelayAccess(("me", "wrong"), certificate.client)
    starting = {"tls_context": certificate.server, "require_starttls": True}
    with ExitStack() as opened:
        boxes = [Mailbox(), Mailbox()]
        for box, implicit, options in zip(boxes, (None, certificate.server), (starting, {}), strict=True):
            # aiosmtpd counts STARTTLS alone as encryption, and warns where a required login has none
            secure: dict[str, Any] = {"auth_require_tls": implicit is None, "auth_required": implicit is None}
            secure["authenticator"] = box.authenticate
            opened.enter_context(relay(box, implicit, **options, **secure))
        assert send(sender(boxes[0].port, security=MailSecurity.STARTTLS, **known))
        assert send(sender(boxes[1].port, security=MailSecurity.TLS, **known))
        wrong = sender(boxes[1].port, security=MailSecurity.TLS, host="localhost", access=wrong_login)
        with pytest.raises(MailRelayUnreachableError, match="535"):
            send(wrong)
    assert [len(box.mails) for box in boxes] == [1, 1]
    assert boxes[0].logins == [b"me"]


def test_unknown_certificate_and_missing_starttls_send_nothing(certificate: Certificate, mailbox: Mailbox) -> None:
    unknowing = {"host": "localhost", "access": RelayAccess(tls=ssl.create_default_context())}
    with pytest.raises(MailRelayUnreachableError, match="STARTTLS"):
        send(sender(mailbox.port, security=MailSecurity.STARTTLS, **unknowing))
    with relay(Mailbox(), tls_context=certificate.server) as other:
        with pytest.raises(MailRelayUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            send(sender(other.port, security=MailSecurity.STARTTLS, **unknowing))
        assert other.mails == mailbox.mails == []


def test_recipients_that_the_relay_accepts_get_the_mail(mailbox: Mailbox, caplog: pytest.LogCaptureFixture) -> None:
    mailbox.answers = {"RCPT": ["550 unknown"]}
    assert send(sender(mailbox.port, OTHER, OPS))
    assert mailbox.recipients == [[OPS]]
    assert f"refused {OTHER}" in caplog.text


def test_message_that_is_too_large_is_rejected(mailbox: Mailbox) -> None:
    mailbox.answers = {"MAIL": ["552 too large"]}
    assert not send(sender(mailbox.port))


def talk(connection: socket.socket, data: bytes, *, forever: bool) -> None:
    with suppress(OSError):
        while forever:
            connection.sendall(data)
        for number in range(len(data)):
            connection.sendall(data[number : number + 1])
            threading.Event().wait(0.05)


@pytest.mark.parametrize(
    ("data", "forever"),
    [(b"220-" + b"x" * 200, False), (b"220-more\r\n", True), (b"x" * 5000, True), (b"", False), (b"554 no\r\n", False)],
    ids=["drips", "endless-lines", "endless-line", "hangs-up", "refuses"],
)
def test_relay_that_misbehaves_is_bounded_in_time_and_bytes(data: bytes, forever: bool) -> None:  # a table's value
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                talk(connection, data, forever=forever)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(MailRelayUnreachableError, match="did not take an e-mail"):
            send(sender(server.getsockname()[1], timeout_seconds=0.5))
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def test_relay_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no one listens, and no other program can
        port = taken.getsockname()[1]
        with pytest.raises(MailRelayUnreachableError, match=f"smtp://127.0.0.1:{port}"):
            send(sender(port))
