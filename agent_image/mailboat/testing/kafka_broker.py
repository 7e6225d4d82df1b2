"""Runs real Kafka brokers (KRaft, broker and controller in one process) for tests and demonstrations.

The jars are those that `kafka_broker.xml` names, brought by Maven once and kept under a key of that file. A broker
listens on free ports of the loopback address, stays on them over restarts, and ends with the process that started it.
It can be stopped, killed and started again; `kafka_cluster` makes a cluster of several. Nothing here is for production:
a small heap, no `fsync`.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mailboat.clock import Clock, Deadline
from mailboat.errors import RetryableError, UsageError
from mailboat.testing.free_ports import LOOPBACK, free_ports, until_parent_ends

_POM: Final = Path(__file__).with_suffix(".xml")
_JVM: Final = ("-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING: Final = (  # warnings, and the line that says that the broker answers
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    # a line for each try to reach a dead node
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.NetworkClient=error",
)
_STARTED: Final = "Kafka Server started"
_LOOK_SECONDS: Final = 0.02


class BrokerToolMissingError(UsageError):
    """A program that the broker needs is not there. Install Java 17 or newer and Maven; on Debian both are packages."""


class BrokerFailedError(RetryableError):
    """The broker, or the download of its jars, failed. The message ends with the last lines of its log."""


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
        listeners: Addresses beside the one that takes everybody.
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
    start_seconds: float = 60.0
    node_id: int = 1


class KafkaBroker:
    """One broker on one folder. Not safe to use from several threads.

    Start it in the main thread: the broker ends when the thread that started it does.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock, ports: Sequence[int] = ()) -> None:
        """Choose the ports, unless they are given: two, and one for each listener. Nothing runs before `start`."""
        self._settings = settings
        self._clock = clock
        names = ["CLIENT", "CONTROLLER", *(one.name for one in settings.listeners)]
        self._ports = dict(zip(names, ports or free_ports(len(names)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        self._jars: Path | None = None
        self._seen_bytes = 0

    @property
    def bootstrap_servers(self) -> str:
        """The address of the listener that takes everybody."""
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

    def launch(self, quorum: Quorum | None = None) -> None:
        """Begin to start; of a new cluster, none answers before the others are launched too."""
        self._jars = self._jars or resolve_jars(self._settings.cache)
        properties = self._settings.folder / "server.properties"
        if not properties.exists():
            self._format(properties, quorum)
        self._seen_bytes = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            command = [*until_parent_ends(), *self._java(), "kafka.Kafka", str(properties)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - fixed words and own paths

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

    def _format(self, properties: Path, quorum: Quorum | None) -> None:
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        lines = {**self._properties(quorum), **self._settings.properties}
        draft = properties.with_suffix(".draft")
        draft.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        cluster_id = new_cluster_id() if quorum is None else quorum.cluster_id
        # an equals sign keeps an id that begins with a dash from being taken for an option
        arguments = ["format", f"--cluster-id={cluster_id}", "-c", str(draft)]
        for name, password in self._settings.scram_users.items():
            arguments += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        if quorum is None:
            arguments.append("--standalone")
        _run([*self._java(), "kafka.tools.StorageTool", *arguments], "formatting the broker's folder")
        draft.rename(properties)

    def _java(self) -> list[str]:
        heap = f"-Xmx{self._settings.heap_mib}m"
        return [_program("java"), heap, *_JVM, *_LOGGING, *self._settings.jvm, "-cp", f"{self._jars}/*"]

    def _properties(self, quorum: Quorum | None) -> dict[str, str]:
        kinds = {"CLIENT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        kinds |= {one.name: one.protocol for one in self._settings.listeners}
        of_listeners = {
            f"listener.name.{one.name.lower()}.{key}": value
            for one in self._settings.listeners
            for key, value in one.properties.items()
        }
        controllers = {"controller.quorum.bootstrap.servers": self.controller}
        return {
            "process.roles": "broker,controller",
            "node.id": str(self._settings.node_id),
            "log.dirs": str(self.data_folder),
            "listeners": ",".join(f"{name}://{self.servers(name)}" for name in kinds),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in kinds.items()),
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            **(controllers if quorum is None else {"controller.quorum.voters": quorum.voters}),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            # a killed broker may come back only when the session of its former life is over
            "broker.session.timeout.ms": "1500",
            "broker.heartbeat.interval.ms": "300",
            "log.cleaner.dedupe.buffer.size": "2097152",
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
    broker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.signal(signal.SIGCONT)


def resolve_jars(cache: Path) -> Path:
    """The folder with the broker's jars; Maven fills it once, also when several processes ask at the same time.

    Raises:
        BrokerToolMissingError: Maven is not installed.
        BrokerFailedError: Maven failed.
    """
    key = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    jars = cache / f"kafka-{key}"
    if jars.exists():
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"kafka-{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            draft = cache / f"kafka-{key}.draft"
            shutil.rmtree(draft, ignore_errors=True)
            maven = [_program("mvn"), "--quiet", "--batch-mode", "--strict-checksums", "--file", str(_POM)]
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={draft}"]
            _run([*maven, *goal], "bringing the broker's jars by Maven")
            draft.rename(jars)
    return jars


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BrokerToolMissingError(
            f"a real Kafka broker needs the program {name}, which is not on the PATH",
            next_step="install Java 17 or newer and Maven (Debian: apt-get install openjdk-17-jre-headless maven)",
        )
    return found


def _run(command: list[str], doing: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - fixed words and own paths
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace").splitlines()[-20:]
        raise BrokerFailedError(f"{doing} failed with exit code {done.returncode}:\n" + "\n".join(said))


def new_cluster_id() -> str:
    """An id as Kafka wants it: 16 bytes in base 64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
