"""Runs real Kafka brokers (KRaft, broker and controller in one process) for tests and demonstrations.

The jars come from `kafka_files.py`, and with them an archive of the classes that a broker loads at its start, which the
first broker of a machine makes: later ones start in a quarter of the CPU time. A broker listens on free ports of the
loopback address, stays on them over restarts, and ends with the process that started it. It can be stopped, killed and
started again; `kafka_cluster` makes a cluster of several. Nothing here is for production: a small heap, no `fsync`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from mailboat.clock import Clock, Deadline
from mailboat.journal.kafka_settings import KafkaSettings
from support.free_ports import LOOPBACK, free_ports, until_parent_ends
from support.kafka_files import (
    BrokerFailedError,
    copy_formatted,
    format_storage,
    new_id,
    program,
    resolve_jars,
    write_properties,
)
from support.machine_cache import java_key, made_once

_JVM: Final = ("-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING: Final = (  # warnings, and the line that says that the broker answers
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    # a line for each try to reach a dead node
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.NetworkClient=error",
)
_FEW_THREADS: Final = {
    # A broker is prepared for hundreds of clients, and each of its threads wakes up several times a second.
    "num.io.threads": "2",
    "num.network.threads": "1",
    "background.threads": "2",
    "group.coordinator.threads": "1",
    "metadata.max.idle.interval.ms": "10000",  # by default the controller writes a record every 500 ms
    "metric.reporters": "",
}
_ARCHIVING: Final = "-XX:ArchiveClassesAtExit"
_STARTED: Final = "Kafka Server started"
_LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Listener:
    """A further address of a broker.

    Attributes:
        name: In capital letters.
        protocol: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
        properties: Of this listener, without `listener.name.…`.
    """

    name: str
    protocol: str
    properties: Mapping[str, str]


def plain_listener(users: Mapping[str, str]) -> Listener:
    """The listener `USERS`, which asks for SASL PLAIN; `users` is user → password."""
    known = "".join(f' user_{name}="{password}"' for name, password in users.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f"{module} required{known};"
    return Listener("USERS", "SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": jaas})


def with_section(settings: KafkaSettings, **values: Any) -> KafkaSettings:
    """Settings with some keys of the configuration replaced."""
    return replace(settings, config=replace(settings.config, **values))


@dataclass(frozen=True, slots=True)
class Quorum:
    """The cluster that a broker belongs to.

    Attributes:
        cluster_id: The same for all.
        voters: As `controller.quorum.voters` wants them.
    """

    cluster_id: str
    voters: str


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How the broker runs.

    Attributes:
        folder: Where it keeps its data and its log; made when missing.
        cache: Where the jars are kept.
        properties: Further lines of `server.properties`, or other values for those that are there.
        listeners: Addresses beside the one that takes everyone.
        scram_users: User → password for SCRAM-SHA-512.
        jvm: Further options of the Java machine.
        heap_mib: What its heap may take.
        start_seconds: How long a start may take.
        node_id: Its number in the cluster.
    """

    folder: Path
    cache: Path = field(default_factory=lambda: Path.home() / ".cache" / "mailboat")
    properties: Mapping[str, str] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    scram_users: Mapping[str, str] = field(default_factory=dict)
    jvm: tuple[str, ...] = ()
    heap_mib: int = 384
    start_seconds: float = 120.0
    node_id: int = 1


class KafkaBroker:
    """One broker on one folder. Not safe to use from several threads.

    Start it in the main thread: the broker ends when the thread that started it does.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock, ports: Sequence[int] = ()) -> None:
        """Choose the ports, unless they are given: two, and one for each listener. Nothing runs before `start`."""
        self._settings = settings
        self._clock = clock
        names = ["CLIENT", "CONTROLLER", *(listener.name for listener in settings.listeners)]
        self._ports = dict(zip(names, ports or free_ports(len(names)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        self._jars: Path | None = None
        self._archive: Path | None = None
        self._seen_bytes = 0
        self._is_resting = False

    @property
    def bootstrap_servers(self) -> str:
        """The address of the listener that takes everyone."""
        return self.servers("CLIENT")

    @property
    def controller(self) -> str:
        """Its address in a quorum."""
        return self.servers("CONTROLLER")

    def servers(self, listener: str) -> str:
        """The address of a listener."""
        return f"{LOOPBACK}:{self._ports[listener]}"

    @property
    def log_path(self) -> Path:
        """What the broker has to say."""
        return self._settings.folder / "broker.log"

    @property
    def data_folder(self) -> Path:
        """Where the broker keeps its topics: a folder `<topic>-0` for each."""
        return self._settings.folder / "data"

    def start(self) -> None:
        """Start, and return when the broker answers. Raises: BrokerToolMissingError, BrokerFailedError."""
        self.launch()
        self.await_start()

    def ensure_running(self) -> None:
        """Start the broker unless its process runs; one that a test stopped goes on. Raises: as `start`."""
        if self._is_resting:
            self.kill()  # its session is over, and it would be out of service for a while
        self.signal(signal.SIGCONT)
        if self._process is None or self._process.poll() is not None:
            self.start()

    def launch(self, quorum: Quorum | None = None) -> None:
        """Begin to start; of a new cluster, none answers before the others are launched too."""
        self._is_resting = False
        self._jars = self._jars or resolve_jars(self._settings.cache)
        if self._archive is None:
            self._archive = self._class_archive(self._jars)
        properties = self._settings.folder / "server.properties"
        if not properties.exists():
            self._format(properties, quorum or Quorum(new_id(), f"{self._settings.node_id}@{self.controller}"))
        self._seen_bytes = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            command = [*until_parent_ends(), *self._java(), "kafka.Kafka", str(properties)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def await_start(self) -> None:
        """Return when the broker answers. Raises: BrokerFailedError."""
        deadline = Deadline(self._clock, self._settings.start_seconds)
        while _STARTED not in self._log_from(self._seen_bytes):
            if self._process is None or self._process.poll() is not None or deadline.is_over():
                self.kill()
                raise BrokerFailedError(f"the Kafka broker did not start:\n{self.log_tail()}")
            self._clock.wait(threading.Event(), _LOOK_SECONDS)

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Ask the broker to end, and kill it when it does not in time. Without a running broker it does nothing."""
        if self._is_resting:
            self.kill()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """End the broker as a power cut does."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send the broker's process a signal, such as SIGSTOP and SIGCONT."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Stop the broker's process, and return when all of its threads stand still."""
        self.signal(signal.SIGSTOP)
        if self._process is not None:  # the signal is on its way: a busy machine goes on serving for a while
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def rest(self) -> None:
        """Use no CPU until `ensure_running`, with connections open, so that clients do not connect again and again."""
        self.pause()
        self._is_resting = True

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the broker's log."""
        return "\n".join(self._log_from(0).splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _format(self, properties: Path, quorum: Quorum) -> None:
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        lines = {**self._properties(quorum), **self._settings.properties}
        draft = properties.with_suffix(".draft")
        write_properties(draft, lines)
        if self._jars is not None and not self._settings.scram_users:
            copy_formatted(self._jars, self.data_folder, quorum.cluster_id, self._settings.node_id)
        else:  # a password's salted hash is part of the storage
            users = self._settings.scram_users.items()
            added = [("--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]") for name, password in users]
            format_storage(self._java(), draft, quorum.cluster_id, [word for pair in added for word in pair])
        draft.rename(properties)

    def _java(self) -> list[str]:
        heap = f"-Xmx{self._settings.heap_mib}m"
        shared = [] if self._archive is None else [f"-XX:SharedArchiveFile={self._archive}"]
        return [program("java"), heap, *_JVM, *shared, *_LOGGING, *self._settings.jvm, "-cp", f"{self._jars}/*"]

    def _class_archive(self, jars: Path) -> Path | None:
        """Return what class-data sharing maps instead of loading and verifying classes; None for who writes it."""
        if any(item.startswith(_ARCHIVING) for item in self._settings.jvm):
            return None
        return made_once(jars.with_name(f"{jars.name}-{java_key(program('java'))}.jsa"), self._archive_classes)

    def _archive_classes(self, draft: Path) -> None:
        """Start a broker that writes the archive when it ends; an empty one where it can't, which Java ignores."""
        with tempfile.TemporaryDirectory(prefix="mailboat-kafka-") as folder:
            settings = BrokerSettings(Path(folder), cache=self._settings.cache, jvm=(f"{_ARCHIVING}={draft}",))
            broker = KafkaBroker(settings, self._clock)
            broker.start()
            broker.stop(self._settings.start_seconds)
        draft.touch()

    def _properties(self, quorum: Quorum) -> dict[str, str]:
        kinds = {"CLIENT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        kinds |= {listener.name: listener.protocol for listener in self._settings.listeners}
        of_listeners = {
            f"listener.name.{listener.name.lower()}.{key}": value
            for listener in self._settings.listeners
            for key, value in listener.properties.items()
        }
        return {
            "process.roles": "broker,controller",
            "node.id": str(self._settings.node_id),
            "log.dirs": str(self.data_folder),
            "listeners": ",".join(f"{name}://{self.servers(name)}" for name in kinds),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in kinds.items()),
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": quorum.voters,
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            # a killed broker may come back only when the session of its former life is over; with less, a busy machine
            # takes a slow broker for a dead one
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "300",
            "log.cleaner.dedupe.buffer.size": "2097152",
            **_FEW_THREADS,
            **of_listeners,
        }

    def _log_from(self, position: int) -> str:
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")


@contextmanager
def stopped(broker: KafkaBroker) -> Iterator[None]:
    """The broker's process stands still, its connections stay open. Afterwards it may be out of service for a while."""
    broker.pause()
    try:
        yield
    finally:
        broker.signal(signal.SIGCONT)
