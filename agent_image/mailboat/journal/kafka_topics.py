"""Topics of a Kafka cluster: which there are, what they hold, how they are kept, and which log each one is.

Requests are repeated until they are answered or time out, and everything foreign is mapped here. Two clients
do the work: the admin client, and an unassigned consumer, which is the cheapest way to a topic's bounds and, unlike a
reader's own connection, never stands behind a fetch that waits. Both are replaced when a request fails for half of its
time. Safe to use from several threads.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from mailboat.clock import Clock, Deadline
from mailboat.config.storage import KafkaTlsConfig
from mailboat.config.topic_settings import MIN_INSYNC
from mailboat.errors import JournalUnavailableError, MailboatError, TopicMissingError, UsageError
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.journal.kafka_errors import MISSING, OUT_OF_RANGE, client_failed, error_of, is_distrust, kind_of, mapped
from mailboat.journal.kafka_settings import KafkaSettings, client_options, consumer_options
from mailboat.journal.port import TopicDifference
from mailboat.journal.refusals import out_of_range, topic_missing
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds

_ADDRESS: Final = re.compile(r"ssl://\[?(?P<host>[^/\]]+?)\]?:(?P<port>\d+)/")


def distrust_reason(error_text: str, tls: KafkaTlsConfig, timeout_seconds: float) -> str | None:
    """The broker and what is wrong with its certificate, such as `one:9093: certificate has expired`.

    Args:
        error_text: The library's error, which names the broker.
        tls: How the brokers are reached.
        timeout_seconds: How long the broker may take to answer.

    Returns:
        None when it can't be found out, or when the broker is trusted by now.
    """
    place = _ADDRESS.search(error_text)
    if place is None:
        return None
    host, port = place["host"], int(place["port"])
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        context.check_hostname = tls.verify_hostname
        # set by Python 3.13 and newer, never by the library: it would report what the library does not mind
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        with (
            socket.create_connection((host, port), timeout_seconds) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return f"{host}:{port}: {error.verify_message}"
    except OSError:
        return None


_T = TypeVar("_T")
# Short: `_repeat` then asks again, with fresh metadata, when a broker has died.
_ATTEMPT_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.02
_LEAST_LIFE_SECONDS: Final = 10.0  # of a client: brokers that start, or are overloaded, are slow to take a connection
_LOG: Final = logging.getLogger(__name__)
# librdkafka queues errors and log lines without a bound until they are polled.
_LISTEN_SECONDS: Final = 5.0
# The controller answers before the brokers know. So long is waited while they answer with what was before: another
# setting, or the log of a deleted topic. That they serve a new topic at all is waited for `request_seconds`.
_SETTLE_SECONDS: Final = 2.0
# Kafka's own topics, such as `__consumer_offsets`.
_INTERNAL: Final = "__"

PARTITION: Final = 0
"""The only one: a topic is one sequence."""


class TopicState(NamedTuple):
    """A topic as the brokers describe it.

    Attributes:
        topic_id: Given when the topic was made, and to no other (KIP-516).
        partitions: How many; a journal has exactly one.
        replicas: How many copies there are of the first.
    """

    topic_id: str
    partitions: int
    replicas: int


class _Clients(NamedTuple):
    """The two clients, and when they were made.

    A request keeps them until it ends: the library leaves what was asked of a client that is dropped without an answer.
    """

    admin: AdminClient
    prober: Consumer
    made_at: float


class KafkaTopics:
    """The requests about topics. Close it when done."""

    def __init__(self, settings: KafkaSettings, clock: Clock, log: ClientLog) -> None:
        """Make the clients; they connect on their own; no request is sent yet.

        Raises: UsageError: The client library refuses the settings, such as a certificate that it can't read.
        """
        self._settings = settings
        self._clock = clock
        self._log = log
        self._attempt_seconds = min(_ATTEMPT_SECONDS, settings.config.request_seconds)
        self._cluster_id: str | None = None
        self._closing = threading.Event()
        # Held while the clients are replaced or closed: a client that is made after `close` would never be closed.
        self._renewing = threading.Lock()
        try:
            self._clients = self._connect()
        except KafkaException as raised:
            raise mapped(error_of(raised), "making a client of the brokers") from raised
        self._listener = threading.Thread(target=self._listen, name="kafka-listener", daemon=True)
        self._listener.start()

    def names(self) -> list[TopicName]:
        """All topics that this user may see, by name, but the cluster's internal ones."""
        found = self._repeat(
            lambda clients: clients.admin.list_topics(timeout=self._attempt_seconds).topics, "listing the topics"
        )
        return [TopicName(name) for name in sorted(found) if not name.startswith(_INTERNAL)]

    def cluster_id(self) -> str:
        """The cluster's id, asked for once of each client: topics of two clusters differ by their own ids as well.

        Raises: JournalUnavailableError, JournalAccessDeniedError.
        """
        found = self._cluster_id
        if found is None:
            # Two threads may ask at once: both get the same answer.
            found = self._cluster_id = self._repeat(self._ask_cluster_id, "describing the cluster")
        return found

    def _ask_cluster_id(self, clients: _Clients) -> str:
        """By a plain listing: `describe_cluster` of librdkafka 2.16 aborts the process when no broker is in service."""
        found: str | None = clients.admin.list_topics(timeout=self._attempt_seconds).cluster_id
        if found is None:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, "no broker is in service"))  # noqa: SLF001 - public
        return found

    def state(self, topic: TopicName) -> TopicState:
        """Which log the topic is. Raises: TopicMissingError, UsageError for a topic with several partitions.

        Unlike `describe_cluster`, `describe_topics` does not abort the process when no broker is in service, see
        `tests/faults/test_kafka_out_of_service.py`.
        """
        return self._checked(
            topic, self._repeat(lambda clients: _state_of(self._describe(clients, topic)), "describing", topic)
        )

    def state_and_end(self, topic: TopicName) -> tuple[TopicState, Offset | None]:
        """The same, and the topic's end, asked at the same time; None if that had no answer at once."""

        def ask(clients: _Clients) -> tuple[TopicState, Offset | None]:
            answers, end = self._describe(clients, topic), None
            place = TopicPartition(topic, PARTITION)
            try:
                end = Offset(clients.prober.get_watermark_offsets(place, timeout=self._attempt_seconds)[1])
            except KafkaException:  # also a refusal: `bounds`, which asks for the end again, maps it
                self._refresh_prober(clients, topic)
            return _state_of(answers), end

        state, end = self._repeat(ask, "describing", topic)
        return self._checked(topic, state), end

    def _describe(self, clients: _Clients, topic: TopicName) -> Mapping[str, Future[Any]]:
        return clients.admin.describe_topics(TopicCollection([topic]), request_timeout=self._attempt_seconds)

    def _checked(self, topic: TopicName, state: TopicState) -> TopicState:
        if state.partitions != 1:
            raise UsageError(
                f"topic {topic} has {state.partitions} partitions; a journal's topic has one, or its order is lost",
                topic=topic,
            )
        return state

    def bounds(self, topic: TopicName) -> Bounds:
        """What the topic holds. Raises: TopicMissingError, JournalUnavailableError."""

        def ask(clients: _Clients) -> Bounds:
            place = TopicPartition(topic, PARTITION)
            try:
                low, high = clients.prober.get_watermark_offsets(place, timeout=self._attempt_seconds)
            except KafkaException:
                self._refresh_prober(clients, topic)
                raise
            return Bounds(Offset(low), Offset(high))

        return self._repeat(ask, "asking for the bounds of", topic, check_exists=True)

    def configuration(self, topic: TopicName) -> Mapping[str, str | None]:
        """How the topic is kept, by Kafka's own names. Raises: TopicMissingError, JournalAccessDeniedError."""

        def describe(clients: _Clients) -> Mapping[str, str | None]:
            answers = clients.admin.describe_configs([_resource(topic)], request_timeout=self._attempt_seconds)
            return {name: entry.value for name, entry in _only(answers).items()}

        return self._repeat(describe, "reading the configuration of", topic)

    def ensure(self, topic: TopicName, configuration: Mapping[str, str]) -> None:
        """Make a topic, or change what differs from `configuration`; it can be used when this returns.

        Raises: UsageError for what the brokers do not grant, JournalUnavailableError, JournalAccessDeniedError.
        """
        deadline = Deadline(self._clock, self._settings.config.request_seconds)
        while True:
            try:
                self.state(topic)
                return self._configure(topic, configuration)
            except TopicMissingError as missing:  # or it is being created or deleted, and not all brokers know so
                if deadline.is_over():
                    raise not_served("creating", topic) from missing
            # Another process has just made the topic: the next round applies the configuration to it.
            if not self._make(topic, configuration):
                self._clock.wait(self._closing, _PAUSE_SECONDS)

    def _make(self, topic: TopicName, configuration: Mapping[str, str]) -> bool:
        """Make a topic, and return when it can be used. One that is there already is left as it is: False."""
        new = NewTopic(
            topic,
            num_partitions=1,
            # -1 is the brokers' own `default.replication.factor`
            replication_factor=-1 if self._settings.config.replicas is None else self._settings.config.replicas,
            config=dict(configuration),
        )

        def create(clients: _Clients) -> bool:
            try:
                _only(clients.admin.create_topics([new], request_timeout=self._attempt_seconds))
            except KafkaException as raised:
                if error_of(raised).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        is_made = self._repeat(create, "making", topic)
        if is_made:
            self._settle(topic)
        return is_made

    def _configure(self, topic: TopicName, configuration: Mapping[str, str]) -> None:
        """Change what differs from `configuration`; the topic's other settings stay as they are."""
        changes = [
            # Incremental (KIP-339): a plain AlterConfigs would reset all settings that are not named.
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in self._missing_in(topic, configuration).items()
        ]
        if changes:
            resource = _resource(topic, changes)
            self._repeat(
                lambda clients: _only(
                    clients.admin.incremental_alter_configs([resource], request_timeout=self._attempt_seconds)
                ),
                "configuring",
                topic,
            )
            deadline = Deadline(self._clock, _SETTLE_SECONDS)  # the controller took it, the brokers learn of it
            while self._missing_in(topic, configuration) and not deadline.is_over():
                self._clock.wait(self._closing, _PAUSE_SECONDS)

    def _missing_in(self, topic: TopicName, configuration: Mapping[str, str]) -> Mapping[str, str]:
        current = self.configuration(topic)
        return {name: value for name, value in configuration.items() if current.get(name) != value}

    def delete_before(self, topic: TopicName, before: Offset) -> None:
        """Move the topic's head up. Raises: PositionOutOfRangeError when `before` is beyond the end."""
        place = TopicPartition(topic, PARTITION, before)

        def delete(clients: _Clients) -> None:
            try:
                _only(clients.admin.delete_records([place], request_timeout=self._attempt_seconds))
            except KafkaException as raised:
                if error_of(raised).code() in OUT_OF_RANGE:
                    raise out_of_range(topic, before, self.bounds(topic)) from raised
                raise

        self._repeat(delete, "truncating", topic, check_exists=True)

    def delete(self, topic: TopicName) -> None:
        """Remove a topic with its records, and return when the brokers know so.

        Raises:
            TopicMissingError.
            JournalUnavailableError: Also where a broker still has the topic after `request_seconds`.
        """
        attempts = 0

        def delete(clients: _Clients) -> None:
            nonlocal attempts
            attempts += 1
            try:
                _only(clients.admin.delete_topics([topic], request_timeout=self._attempt_seconds))
            except KafkaException as raised:
                # At the first attempt a missing topic is an error of the caller.
                if attempts == 1 or error_of(raised).code() not in MISSING:
                    raise  # what is missing later was removed by an attempt whose answer came too late

        self._repeat(delete, "deleting", topic)
        deadline = Deadline(self._clock, self._settings.config.request_seconds)
        # The controller answers before all brokers drop the topic from their metadata.
        with suppress(TopicMissingError):
            while True:
                self.state(topic)
                if deadline.is_over():
                    raise JournalUnavailableError(
                        f"deleting topic {topic} failed: the controller removed it, but a broker still has it, or a "
                        "topic of this name was made again",
                        next_step="wait until `mailboat journal topics` no longer lists it",
                        topic=topic,
                    )
                self._clock.wait(self._closing, _PAUSE_SECONDS)

    def close(self) -> None:
        """Let the clients go. Requests that are going on end with JournalUnavailableError."""
        self._closing.set()
        # The listener polls the consumer: the thread ends before the consumer is closed.
        self._listener.join()
        with self._renewing:
            self._clients.prober.close()

    def _connect(self) -> _Clients:
        """Raises: KafkaException."""
        hooks: dict[str, Any] = {"error_cb": self._log.note, "logger": self._log}
        admin = AdminClient({**client_options(self._settings), **hooks})
        prober = Consumer({**consumer_options(self._settings), **hooks})
        return _Clients(admin, prober, self._clock.monotonic())

    def _renew(self, clients: _Clients) -> None:
        """Replace the clients, unless another request has done so.

        A client of librdkafka 2.10 and later that is given no broker, as while its controller fences the only one,
        drops all addresses, also the first ones. Where the machine is busy, the answer that makes it drop them can stop
        the timer that would add them again: it never connects. https://github.com/confluentinc/librdkafka/issues/5301
        """
        with self._renewing:
            is_old = self._clock.monotonic() - clients.made_at >= _LEAST_LIFE_SECONDS
            if self._clients is clients and is_old and not self._closing.is_set():
                self._poll_clients()  # else the reason why they have no answer goes with them
                try:
                    self._clients = self._connect()
                except KafkaException as raised:
                    raise client_failed(raised) from raised
                self._cluster_id = None  # the address may lead to another cluster by now

    def _listen(self) -> None:
        """Take the clients' log lines and errors off their queues, which would grow as long as the brokers are down."""
        while not self._clock.wait(self._closing, _LISTEN_SECONDS):
            try:
                self._poll_clients()
            except Exception:  # noqa: BLE001  # a callback's: without this thread the queues would grow without a bound
                _LOG.exception("internal error while reading log lines of the Kafka client; continuing")

    def _poll_clients(self) -> None:
        clients = self._clients
        clients.admin.poll(0)
        clients.prober.poll(0)

    def _refresh_prober(self, clients: _Clients, topic: TopicName) -> None:
        """Refresh the topic's leader: otherwise the client asks the dead broker for minutes."""
        with suppress(KafkaException):  # what is wrong is met by the next try
            clients.prober.list_topics(topic, timeout=self._attempt_seconds)

    def _refresh_admin(self, clients: _Clients, topic: TopicName | None) -> None:
        """Have the admin client ask who controls the cluster: it would wait for a broker that died, for minutes."""
        with suppress(KafkaException):
            if topic is None:
                clients.admin.list_topics(timeout=self._attempt_seconds)
            else:
                clients.admin.list_topics(topic, timeout=self._attempt_seconds)

    def _settle(self, topic: TopicName) -> None:
        """Wait until the brokers serve the new topic, and no longer the log of a deleted one of the same name.

        Raises: JournalUnavailableError: No broker serves it within `request_seconds`.
        """
        served = Deadline(self._clock, self._settings.config.request_seconds)
        settled = Deadline(self._clock, _SETTLE_SECONDS)
        while True:
            try:
                # A new topic begins at 0: a larger end belongs to the deleted topic of the same name.
                if self.bounds(topic).next_offset == 0 or settled.is_over():
                    return
            except TopicMissingError as missing:
                if served.is_over():
                    raise not_served("creating", topic) from missing
            self._clock.wait(self._closing, _PAUSE_SECONDS)

    def _repeat(
        self,
        request: Callable[[_Clients], _T],
        doing: str,
        topic: TopicName | None = None,
        *,
        check_exists: bool = False,
    ) -> _T:
        """Ask until there is an answer, a refusal, or the timeout ends.

        `check_exists`: A topic that is missing in the answer may exist: only a client or broker lacks its metadata, or
        it has no leader now. Then ask for the topic itself, and repeat the request if it is there.
        """
        deadline = Deadline(self._clock, self._settings.config.request_seconds)
        half = Deadline(self._clock, self._settings.config.request_seconds / 2)
        first = self._clients
        closed: RuntimeError | None = None
        try:
            while not self._closing.is_set():
                clients = self._clients
                try:
                    answer = request(clients)
                except KafkaException as raised:
                    if half.is_over():
                        self._renew(first)
                    self._raise_unless_repeatable(error_of(raised), deadline, doing, topic, check_exists=check_exists)
                    # After each failure: the client may still ask a broker that has died since.
                    self._refresh_admin(self._clients, topic)
                else:
                    self._log.succeeded()
                    return answer
                self._clock.wait(self._closing, _PAUSE_SECONDS)
        except RuntimeError as raised:
            # What the library raises for a client that another thread has closed since.
            if not self._closing.is_set():
                raise
            closed = raised
        raise JournalUnavailableError(f"kafka {self._settings.bootstrap_servers} is closed") from closed

    def _raise_unless_repeatable(
        self, error: KafkaError, deadline: Deadline, doing: str, topic: TopicName | None, *, check_exists: bool
    ) -> None:
        # confluent_kafka calls `error_cb` only within `poll`: without it the reason of a time-out is not known yet.
        self._poll_clients()
        # Before the code of the request: there a refused login is a time-out like any other.
        refusal = self._log.recent_refusal()
        if refusal is not None:
            raise self._refused(refusal, deadline, doing, topic)
        if topic is not None and error.code() in MISSING:
            if not check_exists:
                raise topic_missing(topic, f"kafka {self._settings.bootstrap_servers}")
            self.state(topic)
            # The client would believe for long that there is no such topic.
            self._refresh_prober(self._clients, topic)
            if deadline.is_over():  # it is there: what the client says of it is no longer, or not yet, true
                raise not_served(doing, topic, kafka=error.name())
        elif kind_of(error) is not JournalUnavailableError:
            raise mapped(error, doing, topic)
        if deadline.is_over():
            raise mapped(self._reason(error), doing, topic)

    def _reason(self, error: KafkaError) -> KafkaError:
        """Why there is no answer: what the client said of a broker, or what it says of the request, with the place."""
        reason = self._log.reason() or error
        if reason is not error and reason.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - a public constant
            return reason
        return KafkaError(reason.code(), f"{self._settings.bootstrap_servers}: {reason.str()}")

    def _refused(self, refusal: KafkaError, deadline: Deadline, doing: str, topic: TopicName | None) -> MailboatError:
        """The error of a refusal; for a certificate that is not trusted with the reason."""
        error, tls = mapped(refusal, doing, topic), self._settings.config.tls
        if tls is not None and is_distrust(refusal):
            # Python repeats the handshake: the library does not say what is wrong with the certificate.
            patience_seconds = max(self._attempt_seconds, deadline.remaining_seconds())
            reason = distrust_reason(refusal.str(), tls, patience_seconds)
            if reason is not None:
                error.message = f"the broker's certificate is not trusted: {reason}"
        return error


def not_served(doing: str, topic: TopicName, kafka: str | None = None) -> JournalUnavailableError:
    """Return the error of a topic that exists, according to the controller, and that no broker serves yet."""
    return JournalUnavailableError(
        f"{doing} topic {topic} failed: the cluster has it, but no broker serves it yet",
        next_step="try again",
        topic=topic,
        kafka=kafka,
    )


def _only(answers: Mapping[Any, Future[Any]]) -> Any:
    """The answer to a request about one thing."""
    (answer,) = answers.values()
    return answer.result()


def _state_of(answers: Mapping[str, Future[Any]]) -> TopicState:
    found = _only(answers)
    replicas = len(found.partitions[PARTITION].replicas) if found.partitions else 0
    return TopicState(str(found.topic_id), len(found.partitions), replicas)


def _resource(topic: TopicName, changes: Sequence[ConfigEntry] | None = None) -> ConfigResource:
    kind = ConfigResource.Type.TOPIC
    return ConfigResource(kind, topic, incremental_configs=None if changes is None else list(changes))


def differences_of(
    wanted: Mapping[str, str], wanted_replicas: int | None, found: Mapping[str, str | None], replicas: int
) -> Sequence[TopicDifference]:
    """Where a topic is not kept as wanted.

    Args:
        wanted: Its configuration by Kafka's names.
        wanted_replicas: How many copies; None leaves it to the brokers.
        found: The configuration that it has.
        replicas: How many copies it has.
    """
    differences = [
        TopicDifference(name, value, found.get(name)) for name, value in wanted.items() if found.get(name) != value
    ]
    needed = int(wanted.get(MIN_INSYNC) or found.get(MIN_INSYNC) or 1)
    if wanted_replicas is not None and replicas != wanted_replicas:
        differences.append(TopicDifference("replicas", str(wanted_replicas), str(replicas)))
    elif replicas < needed:  # no append would ever be acknowledged
        differences.append(TopicDifference("replicas", f"{needed} or more", str(replicas)))
    return differences
