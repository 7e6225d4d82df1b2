"""How the Kafka adapter reaches its brokers: frozen records, and their translation to librdkafka's keys.

The keys of the client library are known here and in the modules that make a client, nowhere else. Secrets stay out of
`repr`, of messages and of logs. The composition of the agent reads files and environment; this module reads nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ClientOptions = dict[str, str | int | float | bool]
"""librdkafka's configuration, by its own names."""

BATCH_BYTES: Final = 128 * 1024
"""What a producer sends as one batch at most, unless a single record is larger. No topic's limit may be below."""

_LARGEST_RECORD_BYTES: Final = 64 * 1024 * 1024
_RECONNECT_MS: Final = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1000}


class PasswordMechanism(enum.StrEnum):
    """The SASL mechanisms that take a user and a password."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class KafkaTls:
    """Encryption, and the client's own certificate where the brokers ask for one (mTLS). All files are PEM.

    Attributes:
        ca_file: Who signed the brokers' certificates; None for those whom the machine trusts.
        certificate_file: The client's certificate with its chain.
        key_file: Its private key.
        key_password: Of the private key.
        verify_hostname: Whether a broker's certificate must name the host that was asked for.
    """

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A user with a password. PLAIN sends it as it is, so use it with TLS only."""

    mechanism: PasswordMechanism
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """OAUTHBEARER: the client fetches tokens by itself (OIDC client credentials) and renews them in time.

    Attributes:
        token_url: Where tokens are given.
        client_id: The client's id.
        client_secret: Its secret.
        scope: What to ask for; None for what the server gives by default.
    """

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """How the connection is protected; None means without."""

    tls: KafkaTls | None = None
    login: PasswordLogin | TokenLogin | None = None


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Everything about the Kafka adapter that can be chosen.

    Attributes:
        bootstrap_servers: `host:port`, separated by commas.
        security: Encryption and login.
        client_id: How the brokers' logs and quotas call this process.
        replication_factor: Of topics that are made; None for the brokers' own default.
        min_insync_replicas: How many replicas an append waits for; None leaves it to the brokers.
        append_seconds: How long an append may take before it is given up with an unknown outcome.
        request_seconds: How long any other request may take, with all its repetitions.
        fetch_wait_seconds: How long a broker holds a fetch that finds nothing. It delays no record.
        read_buffer_bytes: What a reader fetches ahead at most.
        identity_check_seconds: How long a reader that is never idle may go on without asking which topic it reads. One
            that waited, or reached the end, always asks before it gives records.
        topic_memory_seconds: How long `append` remembers a topic's limits.
    """

    bootstrap_servers: str
    security: KafkaSecurity = KafkaSecurity()
    client_id: str = "mailboat"
    replication_factor: int | None = None
    min_insync_replicas: int | None = None
    append_seconds: float = 30.0
    request_seconds: float = 10.0
    fetch_wait_seconds: float = 0.5
    read_buffer_bytes: int = 8 * 1024 * 1024
    identity_check_seconds: float = 1.0
    topic_memory_seconds: float = 5.0


def client_options(settings: KafkaSettings) -> ClientOptions:
    """What every client gets."""
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": settings.client_id,
        **_RECONNECT_MS,
        **security_options(settings.security),
    }


def producer_options(settings: KafkaSettings) -> ClientOptions:
    """What the producer gets: durable, in order, each record once, retried until `KafkaAppender` gives up.

    A record never times out by itself: the records of a batch would do so one by one, and a later one could be
    delivered without an earlier one. `KafkaAppender` gives up for all of them at once.
    """
    return {
        **client_options(settings),
        # KIP-98: retries inside of librdkafka keep the order and write each record once
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": 0,
        "request.timeout.ms": 5000,
        # callers append batches: waiting for more records only adds latency
        "linger.ms": 0,
        "batch.size": BATCH_BYTES,
        "compression.type": "zstd",
        "message.max.bytes": _LARGEST_RECORD_BYTES,
        "queue.buffering.max.kbytes": _LARGEST_RECORD_BYTES // 1024,
        # by default librdkafka hides for 30 seconds that a topic is missing
        "topic.metadata.propagation.max.ms": 1000,
    }


def consumer_options(settings: KafkaSettings) -> ClientOptions:
    """What a reader gets: positions are given and never moved by the client, and no consumer group is ever joined."""
    return {
        **client_options(settings),
        "group.id": settings.client_id,  # the library wants one even for assigned partitions
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # a position outside of the topic is an error, never moved
        "auto.offset.reset": "error",
        # the reader checks the identity of the topic at its end
        "enable.partition.eof": True,
        "check.crcs": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": int(settings.fetch_wait_seconds * 1000),
        # by default librdkafka pauses for 1000 ms when its queue is full, and for 500 ms after an error
        "fetch.queue.backoff.ms": 5,
        "fetch.error.backoff.ms": 50,
        # half of what is fetched ahead is on its way, the other half is being read: a request for each MiB, as the
        # library would ask by itself, makes reader and broker wait for each other
        "fetch.message.max.bytes": max(1, settings.read_buffer_bytes // 2),
        "queued.max.messages.kbytes": max(1, settings.read_buffer_bytes // 2048),
    }


def security_options(security: KafkaSecurity) -> ClientOptions:
    """Protocol, certificates and login."""
    transport = "PLAINTEXT" if security.tls is None else "SSL"
    options: ClientOptions = {"security.protocol": transport if security.login is None else f"SASL_{transport}"}
    if security.tls is not None:
        options |= _tls_options(security.tls)
    if isinstance(security.login, PasswordLogin):
        options["sasl.mechanism"] = str(security.login.mechanism)
        options["sasl.username"] = security.login.user
        options["sasl.password"] = security.login.password
    if isinstance(security.login, TokenLogin):
        options |= _token_options(security.login)
    return options


def _tls_options(tls: KafkaTls) -> ClientOptions:
    return _given(
        {
            "ssl.ca.location": tls.ca_file,
            "ssl.certificate.location": tls.certificate_file,
            "ssl.key.location": tls.key_file,
            "ssl.key.password": tls.key_password,
            "ssl.endpoint.identification.algorithm": "https" if tls.verify_hostname else "none",
        }
    )


def _token_options(login: TokenLogin) -> ClientOptions:
    return _given(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": login.token_url,
            "sasl.oauthbearer.client.id": login.client_id,
            "sasl.oauthbearer.client.secret": login.client_secret,
            "sasl.oauthbearer.scope": login.scope,
        }
    )


def _given(options: Mapping[str, object]) -> ClientOptions:
    return {key: str(value) for key, value in options.items() if value is not None}
