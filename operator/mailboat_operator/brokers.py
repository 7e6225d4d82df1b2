"""The only caller of Kafka: which topics there are, and how they are kept.

Calls block; whoever has an event loop makes them in a thread. Credentials come from Secrets into the client and go
nowhere else: certificates and keys as texts, so that no file is written.
"""

# ruff: noqa: SLF001 - the library's public constants of its own codes begin with an underscore

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from mailboat.config.storage import SaslMechanism
from mailboat.errors import MailboatError, PermanentError, RetryableError

from mailboat_operator.api.journal import Kafka
from mailboat_operator.plan.actions import Configure, CreateTopic, Grow, TopicAction, TopicWanted
from mailboat_operator.plan.topic import TopicFound

_LOG: Final = logging.getLogger("mailboat.operator.kafka")
_SECONDS: Final = 8.0
_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_CONTROLLER,
        KafkaError.BROKER_NOT_AVAILABLE,
    }
)
_MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})

Credentials = Mapping[str, Mapping[str, str]]
"""Entries of Secrets, by the Secret's name."""


class BrokersUnreachableError(RetryableError):
    """The brokers did not answer, or not in time. The operator asks again by itself, less and less often.

    Look at `spec.kafka.bootstrapServers`, at the network policy between operator and brokers, and at the credentials.
    """


class BrokersRefusedError(PermanentError):
    """The brokers refused a request, for the reason that the message gives: a right that is missing, or a setting."""


def _as_warning(record: logging.LogRecord) -> bool:
    """What the client library calls an error passes, or is told as a condition of the Journal."""
    if record.levelno > logging.WARNING:
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
    return True


@dataclass(frozen=True, slots=True)
class ClusterFound:
    """What the brokers say of themselves.

    Attributes:
        cluster_id: Of the cluster.
        brokers: How many there are.
    """

    cluster_id: str
    brokers: int


class Brokers:
    """The brokers of one Journal."""

    def __init__(self, kafka: Kafka, credentials: Credentials) -> None:
        """Nothing is asked yet; the client connects by itself. Raises: BrokersUnreachableError for a missing entry."""
        self._reason: KafkaError | None = None
        _LOG.addFilter(_as_warning)  # once, however often it is said
        hooks: dict[str, Any] = {"logger": _LOG, "error_cb": self._note}
        self._admin = AdminClient({**client_options(kafka, credentials), **hooks})

    def cluster(self) -> ClusterFound:
        """Ask for the cluster. Raises: BrokersUnreachableError, BrokersRefusedError."""
        found = self._answer(self._admin.describe_cluster(request_timeout=_SECONDS), "describing the cluster")
        return ClusterFound(str(found.cluster_id), len(found.nodes))

    def topic(self, name: str) -> TopicFound | None:
        """A topic; None when there is none. Raises: see `cluster`."""
        asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=_SECONDS)[name]
        try:
            found = asked.result()
        except KafkaException as raised:
            if raised.args[0].code() in _MISSING:
                return None
            raise self._mapped(raised, f"describing topic {name}") from raised
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        (asked_config,) = self._admin.describe_configs([resource], request_timeout=_SECONDS).values()
        config = self._answer(asked_config, f"reading the configuration of topic {name}")
        return TopicFound(
            topic_id=str(found.topic_id),
            partitions=len(found.partitions),
            replicas=len(found.partitions[0].replicas),
            config={key: entry.value for key, entry in config.items()},
        )

    def act(self, action: TopicAction) -> None:
        """Do what a plan asks for. Raises: see `cluster`."""
        match action:
            case CreateTopic(wanted):
                self.create(wanted)
            case Grow(name, partitions):
                self.grow(name, partitions)
            case Configure(name, changes):
                self.configure(name, changes)

    def create(self, wanted: TopicWanted) -> None:
        """Make a topic; one that is there already is left as it is. Raises: see `cluster`."""
        new = NewTopic(
            wanted.name,
            num_partitions=wanted.partitions,
            replication_factor=-1 if wanted.replicas is None else wanted.replicas,
            config=dict(wanted.config),
        )
        (asked,) = self._admin.create_topics([new], request_timeout=_SECONDS).values()
        try:
            asked.result()
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._mapped(raised, f"making topic {wanted.name}") from raised

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions. Raises: see `cluster`."""
        (asked,) = self._admin.create_partitions([NewPartitions(name, partitions)], request_timeout=_SECONDS).values()
        self._answer(asked, f"adding partitions to topic {name}")

    def configure(self, name: str, changes: Mapping[str, str]) -> None:
        """Set these keys of a topic, and no others. Raises: see `cluster`."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        (asked,) = self._admin.incremental_alter_configs([resource], request_timeout=_SECONDS).values()
        self._answer(asked, f"configuring topic {name}")

    def _answer(self, asked: Future[Any], doing: str) -> Any:
        try:
            return asked.result()
        except KafkaException as raised:
            raise self._mapped(raised, doing) from raised

    def _note(self, error: KafkaError) -> None:
        """The client tells why it can't connect here, and a request that it only timed out."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._reason = error

    def _mapped(self, raised: KafkaException, doing: str) -> MailboatError:
        error: KafkaError = raised.args[0]
        if error.code() in _PASSING or error.retriable():
            self._admin.poll(0)
            reason = error if self._reason is None else self._reason
            return BrokersUnreachableError(f"{doing}: {reason.str()}")
        return BrokersRefusedError(f"{doing}: {error.str()}")


def client_options(kafka: Kafka, credentials: Credentials) -> dict[str, Any]:
    """What the client library is told. Raises: BrokersUnreachableError for a Secret without what is needed."""

    def entry(secret: str, key: str) -> str:
        try:
            return credentials[secret][key]
        except KeyError as error:
            raise BrokersUnreachableError(f"Secret {secret} has no entry {key}") from error

    tls, sasl = kafka.tls, kafka.sasl
    transport = "PLAINTEXT" if tls is None else "SSL"
    options: dict[str, Any] = {
        "bootstrap.servers": ",".join(kafka.bootstrap_servers),
        "client.id": "mailboat-operator",
        "security.protocol": transport if sasl is None else f"SASL_{transport}",
    }
    if tls is not None:
        options["ssl.endpoint.identification.algorithm"] = "https" if tls.is_host_checked else "none"
        if tls.ca_secret_ref is not None:
            options["ssl.ca.pem"] = entry(tls.ca_secret_ref.name, "ca.crt")
        if tls.certificate_secret_ref is not None:
            options["ssl.certificate.pem"] = entry(tls.certificate_secret_ref.name, "tls.crt")
            options["ssl.key.pem"] = entry(tls.certificate_secret_ref.name, "tls.key")
    if sasl is not None:
        user = entry(sasl.credentials_secret_ref.name, "username")
        password = entry(sasl.credentials_secret_ref.name, "password")
        options["sasl.mechanism"] = str(sasl.mechanism)
        if sasl.mechanism is SaslMechanism.OAUTHBEARER:
            options |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": sasl.token_url,
                "sasl.oauthbearer.client.id": user,
                "sasl.oauthbearer.client.secret": password,
            }
            if sasl.scope is not None:
                options["sasl.oauthbearer.scope"] = sasl.scope
        else:
            options |= {"sasl.username": user, "sasl.password": password}
    return options
