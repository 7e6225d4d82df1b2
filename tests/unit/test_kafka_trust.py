"""Why a broker's certificate is not trusted is found out where that can be done, and is no matter where it can't."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig, KafkaTlsConfig
from mailboat.errors import UsageError
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.kafka_topics import distrust_reason
from mailboat.testing.wait import PATIENCE_SECONDS
from support.certificates import Authority, Identity


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, SystemClock())


class TlsServer:
    """Accepts connections with one certificate until it is closed."""

    def __init__(self, identity: Identity) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(identity.both)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.said = f"ssl://127.0.0.1:{self._socket.getsockname()[1]}/bootstrap: certificate verify failed"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(OSError), self._context.wrap_socket(connection, server_side=True):
                pass


@pytest.fixture
def servers() -> Iterator[list[TlsServer]]:
    started: list[TlsServer] = []
    yield started
    for server in started:
        server.close()


@pytest.mark.parametrize(("days", "reason"), [(-1, "certificate has expired"), (30, None)])
def test_an_expired_certificate_is_told_from_a_good_one(
    authority: Authority, servers: list[TlsServer], days: int, reason: str | None
) -> None:
    servers.append(TlsServer(authority.issue("broker", days=days)))
    found = distrust_reason(servers[0].said, KafkaTlsConfig(str(authority.file)), PATIENCE_SECONDS)
    assert (found is None) if reason is None else (found is not None and found.endswith(reason))


def test_distrust_reason_ignores_what_the_client_library_accepts(
    authority: Authority, servers: list[TlsServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    default = ssl.create_default_context

    def strict(*, cafile: str) -> ssl.SSLContext:
        context = default(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    servers.append(TlsServer(authority.issue("broker", is_conforming=False)))
    assert distrust_reason(servers[0].said, KafkaTlsConfig(str(authority.file)), PATIENCE_SECONDS) is None


def test_a_stranger_is_told(authority: Authority, servers: list[TlsServer], tmp_path: Path) -> None:
    stranger = Authority(tmp_path, SystemClock(), "stranger")
    servers.append(TlsServer(stranger.issue("broker")))
    assert "self-signed" in str(distrust_reason(servers[0].said, KafkaTlsConfig(str(authority.file)), PATIENCE_SECONDS))


@pytest.mark.parametrize("said", ["certificate verify failed", "ssl://127.0.0.1:1/1: certificate verify failed"])
def test_what_can_not_be_asked_has_no_reason(authority: Authority, said: str) -> None:
    assert distrust_reason(said, KafkaTlsConfig(str(authority.file)), 1.0) is None


def test_a_bundle_that_can_not_be_read_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    settings = KafkaSettings(KafkaConfig(("127.0.0.1:9",), tls=KafkaTlsConfig(str(tmp_path / "ca.pem"))))
    with pytest.raises(UsageError, match=r"ssl\.ca\.location"):
        KafkaJournal(settings, SystemClock())
