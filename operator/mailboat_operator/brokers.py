"""The only caller of Kafka: which topics there are, and how they are kept.

Many topics are asked for, or acted on, in one call; the client library has threads of its own. Credentials come from
Secrets into the client and go nowhere else: certificates and keys as texts, so that no file is written.

Nothing is described before a listing named a broker that is in service: without one, describing a cluster or
its topics aborts the process (librdkafka 2.16), and with it what is done for all other Journals.
"""

# ruff: noqa: SLF001 - the library's public constants of its own codes begin with an underscore

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from mailboat.errors import (
    BrokersRefusedError,
    BrokersUnreachableError,
    MailboatError,
    SecretMalformedError,
    SecretMissingError,
)
from mailboat.frozen import Frozen
from mailboat.journal.kafka_settings import ClientOptions, KafkaSettings, security_options

from mailboat_operator.kinds.journal.spec import Kafka
from mailboat_operator.plan.actions import (
    Configure,
    CreateTopic,
    DeleteTopic,
    Grow,
    TopicAction,
    TopicFound,
    TopicWanted,
)

_LOG: Final = logging.getLogger("mailboat.operator.kafka")
_CRITICAL: Final = 2
"""Of syslog. A condition reports that brokers can't be reached; the library would log it again and again."""
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
_DOING: Final[Mapping[type[TopicAction], str]] = MappingProxyType(
    {CreateTopic: "making", Grow: "adding partitions to", Configure: "configuring", DeleteTopic: "deleting"}
)
_MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})

_PASSING_DETAIL: Final = re.compile(r" \(after \d+ms in state .*\)$")
"""What the client library adds is another one each time, and would be news in every status."""

Credentials = Mapping[str, Mapping[str, str]]
"""Entries of Secrets, by the Secret's name."""


class ClusterFound(Frozen):
    """What the brokers say of themselves.

    Attributes:
        cluster_id: Of the cluster.
        brokers: How many there are.
    """

    cluster_id: str
    brokers: int


class Brokers:
    """The brokers of one Journal."""

    def __init__(self, kafka: Kafka, credentials: Credentials, answer_seconds: float) -> None:
        """The client connects on its own; no request is sent yet.

        Args:
            kafka: Of the Journal.
            credentials: That it refers to.
            answer_seconds: Time limit of each request.

        Raises:
            SecretMissingError, SecretMalformedError.
        """
        self.cluster_id: str | None = None
        self._seconds = answer_seconds
        self._reason: KafkaError | None = None
        hooks: dict[str, Any] = {"logger": _LOG, "log_level": _CRITICAL, "error_cb": self._note}
        self._options: dict[str, Any] = {**client_options(kafka, credentials), **hooks}
        try:
            self._admin = AdminClient(self._options)
        except KafkaException as raised:
            # of all options, only what comes from Secrets was not checked before; the library's words may quote it
            text = f"the Kafka client rejects what Secret {', '.join(sorted(credentials))} holds"
            raise SecretMalformedError(f"{text}: is each certificate and key in PEM?") from raised

    async def cluster(self) -> ClusterFound:
        """Ask for the cluster. Raises: BrokersUnreachableError, BrokersRefusedError."""
        # runs `error_cb`: the client library calls it from `poll`
        self._admin.poll(0)
        try:
            found = await asyncio.wrap_future(self._listing())
        except KafkaException as raised:
            raise self._mapped(raised, "listing the brokers") from raised
        self._reason = None  # a later failure has a cause of its own
        self.cluster_id = str(found.cluster_id)
        return ClusterFound(self.cluster_id, len(found.brokers))

    async def topics(self, names: Collection[str]) -> Mapping[str, TopicFound | MailboatError | None]:
        """Topics by name; None if absent, and the error where one can't be described.

        Raises: BrokersUnreachableError, BrokersRefusedError.
        """
        # first a listing: see the module, librdkafka aborts the process without a broker in service
        await self.cluster()
        admin = (
            self._admin
        )  # kept to the last answer: the library leaves requests of a client that is dropped without one
        asked = admin.describe_topics(TopicCollection(list(names)), request_timeout=self._seconds)
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        asked_configs = {
            resource.name: future
            for resource, future in admin.describe_configs(resources, request_timeout=self._seconds).items()
        }
        return {name: await self._topic(name, asked[name], asked_configs[name]) for name in names}

    async def act(self, actions: Mapping[str, TopicAction]) -> Mapping[str, MailboatError | None]:
        """Do what plans ask for, by the topics' names; None for each that is done.

        A topic to make that is there already, and one to delete that is gone, count as done.
        """
        admin = self._admin  # kept, as in `topics`
        asked: dict[str, Future[Any]] = {}
        # All requests are sent before the first answer is awaited: one round trip for all topics of a Journal.
        creates = [_new_topic(action.topic) for action in actions.values() if isinstance(action, CreateTopic)]
        if creates:
            asked |= admin.create_topics(creates, request_timeout=self._seconds)
        grows = [
            NewPartitions(action.name, action.partitions) for action in actions.values() if isinstance(action, Grow)
        ]
        if grows:
            asked |= admin.create_partitions(grows, request_timeout=self._seconds)
        changes = [_changed(action) for action in actions.values() if isinstance(action, Configure)]
        if changes:
            found = admin.incremental_alter_configs(changes, request_timeout=self._seconds)
            asked |= {resource.name: future for resource, future in found.items()}
        deletes = [action.name for action in actions.values() if isinstance(action, DeleteTopic)]
        if deletes:
            asked |= admin.delete_topics(deletes, request_timeout=self._seconds)
        return {name: await self._done(action, asked[name]) for name, action in actions.items()}

    def _listing(self) -> Future[ClusterMetadata]:
        future: Future[ClusterMetadata] = Future()
        # a running future can't be cancelled: else `set_result` raises InvalidStateError when the caller has gone
        future.set_running_or_notify_cancel()
        admin = self._admin

        def ask() -> None:
            try:
                future.set_result(admin.list_topics(timeout=self._seconds))
            except BaseException as raised:  # noqa: BLE001  # an unresolved future would leave the caller to its time-out
                try:
                    admin.poll(0)  # else the reason is lost with the client
                    # A client that was given no broker in service may find none again, see
                    # `mailboat.journal.kafka_topics`. Here, as to end the old one may take a while.
                    self._admin = AdminClient(self._options)
                finally:
                    future.set_exception(raised.with_traceback(None))  # the traceback would keep the old client

        # The call blocks, so it gets a thread; a daemon, as the end of the process must not wait for it.
        threading.Thread(target=ask, name="brokers", daemon=True).start()
        return future

    async def _topic(
        self, name: str, asked: Future[Any], asked_config: Future[Any]
    ) -> TopicFound | MailboatError | None:
        try:
            found, config = await asyncio.gather(asyncio.wrap_future(asked), asyncio.wrap_future(asked_config))
        except KafkaException as raised:
            return None if raised.args[0].code() in _MISSING else self._mapped(raised, f"describing topic {name}")
        return TopicFound(
            topic_id=str(found.topic_id),
            partitions=len(found.partitions),
            replicas=len(found.partitions[0].replicas),
            config={key: entry.value for key, entry in config.items()},
        )

    async def _done(self, action: TopicAction, asked: Future[Any]) -> MailboatError | None:
        try:
            await asyncio.wrap_future(asked)
        except KafkaException as raised:
            code = raised.args[0].code()
            is_there = isinstance(action, CreateTopic) and code == KafkaError.TOPIC_ALREADY_EXISTS
            is_gone = isinstance(action, DeleteTopic) and code in _MISSING
            return None if is_there or is_gone else self._mapped(raised, f"{_DOING[type(action)]} topic {action.name}")
        return None

    def _note(self, error: KafkaError) -> None:
        """Keep why the client can't connect: the request itself fails with a time-out only."""
        # librdkafka sends this one after the error of the last broker, and it names no cause
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._reason = error

    def _mapped(self, raised: KafkaException, doing: str) -> MailboatError:
        error: KafkaError = raised.args[0]
        if error.code() == KafkaError._PARTIAL:
            return BrokersUnreachableError(f"{doing}: no broker of the cluster is in service")
        if error.code() in _PASSING or error.retriable():
            # Runs `_note`, so that the reason below is the newest one.
            self._admin.poll(0)
            reason = error if self._reason is None else self._reason
            return BrokersUnreachableError(f"{doing}: {_PASSING_DETAIL.sub('', reason.str())}")
        return BrokersRefusedError(f"{doing}: {error.str()}")


def _new_topic(wanted: TopicWanted) -> NewTopic:
    return NewTopic(
        wanted.name,
        num_partitions=wanted.partitions,
        # -1 is the brokers' own `default.replication.factor`
        replication_factor=-1 if wanted.replicas is None else wanted.replicas,
        config=dict(wanted.config),
    )


def _changed(action: Configure) -> ConfigResource:
    # SET by key: keys that the action does not name stay as they are.
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in action.changes.items()
    ]
    return ConfigResource(ConfigResource.Type.TOPIC, action.name, incremental_configs=entries)


def entry_of(credentials: Credentials, secret: str, key: str) -> str:
    """An entry of a Secret. Raises: SecretMissingError, SecretMalformedError."""
    try:
        found = credentials[secret][key]
    except KeyError as error:
        what = f"entry {key} of Secret {secret}" if secret in credentials else f"Secret {secret}"
        raise SecretMissingError(f"missing: {what}") from error
    if not found.strip():
        raise SecretMalformedError(f"entry {key} of Secret {secret} is empty")
    return found


def word_of(credentials: Credentials, secret: str, key: str) -> str:
    """A one-line entry of a Secret, without the line end that `echo` and editors add, as in agents.

    A control character within would be refused by a client library in words that quote the value.

    Raises: SecretMissingError, SecretMalformedError.
    """
    found = entry_of(credentials, secret, key).removesuffix("\n").removesuffix("\r")
    if not found.isprintable():
        raise SecretMalformedError(f"entry {key} of Secret {secret} contains a line break or another control character")
    return found


def client_options(kafka: Kafka, credentials: Credentials) -> ClientOptions:
    """Options of the client library. Raises: SecretMissingError, SecretMalformedError."""
    tls, sasl, password = kafka.tls, kafka.sasl, None
    # as texts, where agents have files: a file would leave a copy of the key in the operator's pod
    texts: ClientOptions = {}
    if tls is not None and tls.ca_secret_ref is not None:
        texts["ssl.ca.pem"] = entry_of(credentials, tls.ca_secret_ref.name, "ca.crt")
    if tls is not None and tls.certificate_secret_ref is not None:
        texts["ssl.certificate.pem"] = entry_of(credentials, tls.certificate_secret_ref.name, "tls.crt")
        texts["ssl.key.pem"] = entry_of(credentials, tls.certificate_secret_ref.name, "tls.key")
    if sasl is not None:
        login = sasl.credentials_secret_ref.name
        sasl = replace(sasl, user=word_of(credentials, login, "username"))
        password = word_of(credentials, login, "password")
    return {
        "bootstrap.servers": ",".join(kafka.bootstrap_servers),
        "client.id": "mailboat-operator",
        **security_options(KafkaSettings(replace(kafka, sasl=sasl), password)),
        **texts,
    }
