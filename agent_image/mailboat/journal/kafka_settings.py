"""How the Kafka adapter reaches its brokers: the configuration, and its translation to librdkafka's keys.

The keys of the client library are known here and in the modules that make a client, nowhere else. Secrets stay out of
`repr`, of messages and of logs. The composition of the agent reads files and environment; this module reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mailboat.config.storage import KafkaConfig, KafkaSaslConfig, SaslMechanism
from mailboat.config.topic_settings import BATCH_BYTES

ClientOptions = dict[str, str | int | float | bool]
"""librdkafka's configuration, by its own names."""

_CLIENT_ID: Final = "mailboat"  # in the brokers' logs and quotas
_FETCH_WAIT_MS: Final = 5_000  # a broker holds a fetch that finds nothing; it delays no record
_READ_BUFFER_BYTES: Final = 8 * 1024 * 1024  # what a reader fetches ahead
_LARGEST_RECORD_BYTES: Final = 64 * 1024 * 1024
_RECONNECT_MS: Final = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1000}


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The section `journal.kafka` with its secrets, and the times that tests shorten.

    Attributes:
        config: Its files are absolute, and `sasl.user` is the user, wherever the section takes it from.
        password: Of the login; the client secret for OAUTHBEARER.
        key_password: Of the client certificate's key.
        identity_check_seconds: How long a reader that is never idle may go on without asking which topic it reads. One
            that waited, or reached the end, always asks before it gives records.
        topic_memory_seconds: How long `append` remembers a topic's limits.
    """

    config: KafkaConfig
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    identity_check_seconds: float = 1.0
    topic_memory_seconds: float = 5.0

    @property
    def bootstrap_servers(self) -> str:
        """The brokers, as the library takes them and as errors name them."""
        return ",".join(self.config.bootstrap_servers)


def client_options(settings: KafkaSettings) -> ClientOptions:
    """What every client gets."""
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": _CLIENT_ID,
        # True by default for producers and admin clients: brokers that allow it would make a deleted topic again, empty
        # and with settings of their own, for an append or a mere question for its leader.
        "allow.auto.create.topics": False,
        **_RECONNECT_MS,
        **security_options(settings),
    }


def producer_options(settings: KafkaSettings) -> ClientOptions:
    """What the producer gets: durable, in order, each record once, retried until `KafkaAppender` gives up.

    A record has no timeout of its own: the records of a batch would do so one by one, and a later one could be
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
    """Options of a reader: the client never moves positions and joins no consumer group."""
    return {
        **client_options(settings),
        "group.id": _CLIENT_ID,  # the library wants one even for assigned partitions
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # a position outside of the topic is an error, never moved
        "auto.offset.reset": "error",
        # the reader checks the identity of the topic at its end
        "enable.partition.eof": True,
        "check.crcs": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
        # by default librdkafka pauses for 1000 ms when its queue is full, and for 500 ms after an error
        "fetch.queue.backoff.ms": 5,
        "fetch.error.backoff.ms": 50,
        # half of what is fetched ahead is on its way, the other half is being read: a request for each MiB, as the
        # library would ask otherwise, makes reader and broker wait for each other
        "fetch.message.max.bytes": _READ_BUFFER_BYTES // 2,
        "queued.max.messages.kbytes": _READ_BUFFER_BYTES // 2048,
    }


def security_options(settings: KafkaSettings) -> ClientOptions:
    """Protocol, certificates and login."""
    tls, sasl = settings.config.tls, settings.config.sasl
    transport = "PLAINTEXT" if tls is None else "SSL"
    options: dict[str, object] = {"security.protocol": transport if sasl is None else f"SASL_{transport}"}
    if tls is not None:
        options |= {
            "ssl.ca.location": tls.ca_file,
            "ssl.certificate.location": tls.certificate_file,
            "ssl.key.location": tls.key_file,
            "ssl.key.password": settings.key_password,
            "ssl.endpoint.identification.algorithm": "https" if tls.verify_hostname else "none",
        }
    if sasl is not None:
        options |= {"sasl.mechanism": sasl.mechanism, **_login_options(sasl, settings.password)}
    return {key: str(value) for key, value in options.items() if value is not None}


def _login_options(sasl: KafkaSaslConfig, password: str | None) -> dict[str, object]:
    if sasl.mechanism is not SaslMechanism.OAUTHBEARER:
        return {"sasl.username": sasl.user, "sasl.password": password}
    # the client fetches tokens itself (OIDC client credentials), and renews them in time
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": sasl.token_url,
        "sasl.oauthbearer.client.id": sasl.user,
        "sasl.oauthbearer.client.secret": password,
        "sasl.oauthbearer.scope": sasl.scope,
    }
