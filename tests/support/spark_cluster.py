"""Runs a standalone Spark cluster, a master and workers of one core each, for tests: the real thing on one machine.

The programs are those of the installed PySpark, which brings no start scripts for them. Everything listens on free
ports of the loopback address, works below one folder, and ends with the process that started it. Executors are
processes of their own, which a test can find and kill. Nothing here is for production.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mailboat.clock import Clock, Deadline
from mailboat.errors import RetryableError, UsageError
from support.free_ports import LOOPBACK, free_ports, until_parent_ends

_LOOK_SECONDS: Final = 0.1
_PATIENCE: Final = (
    "-Dspark.port.maxRetries=0 "  # a port that is taken is an error, not another
    "-Dspark.worker.timeout=600 -Dspark.network.timeout=600s"  # a busy machine's workers were given up and joined again
)
_JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR_CLASS: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkToolMissingError(UsageError):
    """A standalone cluster needs PySpark, which is not installed: `pip install "mailboat[spark]"`."""


class SparkClusterFailedError(RetryableError):
    """The master or a worker did not start in time. The message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How the cluster runs.

    Attributes:
        folder: Where it keeps its work and its logs; made when missing.
        workers: How many, of one core each.
        memory: What executors may have on each worker.
        start_seconds: How long a start may take.
    """

    folder: Path
    workers: int = 2
    memory: str = "1g"
    start_seconds: float = 120.0


class SparkCluster:
    """One cluster. Start it in the main thread: it ends when the thread that started it does."""

    def __init__(self, settings: ClusterSettings, clock: Clock) -> None:
        """Choose the ports. Nothing runs before `start`."""
        self._settings = settings
        self._clock = clock
        self._port, self._page = free_ports(2)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """What a session is told."""
        return f"spark://{LOOPBACK}:{self._port}"

    @property
    def driver_environment(self) -> dict[str, str]:
        """What a driver's process is given so that Java machines start quickly, its own and those of executors."""
        conf = self._settings.folder / "conf"
        conf.mkdir(exist_ok=True)
        options = ("spark.driver.defaultJavaOptions", "spark.executor.extraJavaOptions")
        (conf / "spark-defaults.conf").write_text("".join(f"{name} {_JVM}\n" for name in options))
        return {"SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": LOOPBACK}

    def start(self) -> None:
        """Start, and return when all workers have joined. Raises: SparkToolMissingError, SparkClusterFailedError."""
        deadline = Deadline(self._clock, self._settings.start_seconds)
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        master = ("--port", str(self._port), "--webui-port", str(self._page))
        self._run("master", _MASTER, *master)
        for number in range(self._settings.workers):
            work = self._settings.folder / f"work-{number}"
            words = ("--cores", "1", "--memory", self._settings.memory, "--webui-port", "0")
            self._run(f"worker-{number}", _WORKER, *words, "--work-dir", str(work), self.master)
        while self._joined() < self._settings.workers:
            ended = any(process.poll() is not None for process in self._processes)
            if ended or deadline.is_over():
                self.kill()
                raise SparkClusterFailedError(f"the Spark cluster did not start:\n{self.log_tail()}")
            self._clock.wait(threading.Event(), _LOOK_SECONDS)

    def executors(self) -> list[int]:
        """The process ids of the executors that run now, of whatever job."""
        found = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in found if self._is_executor(pid)]

    def workers_used(self) -> set[int]:
        """The numbers of the workers that have started an executor."""
        started = self._settings.folder.glob("work-*/app-*")
        return {int(folder.parent.name.removeprefix("work-")) for folder in started}

    def kill(self) -> None:
        """End everything, executors too, as a power cut does."""
        executors = self.executors()
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()
        for pid in executors:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of each log."""
        logs = sorted(self._settings.folder.glob("*.log"))
        return "\n".join(line for log in logs for line in log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _run(self, name: str, program: str, *words: str) -> None:
        home = _spark_home()
        environment = (
            f"SPARK_HOME={home}",
            "SPARK_DAEMON_MEMORY=256m",
            f"SPARK_DAEMON_JAVA_OPTS={_JVM} {_PATIENCE}",
            f"SPARK_LOCAL_DIRS={self._settings.folder / 'scratch'}",
            f"SPARK_LOCAL_IP={LOOPBACK}",
        )
        start = (str(home / "bin" / "spark-class"), program, "--host", LOOPBACK)
        command = [*until_parent_ends(), "env", *environment, *start, *words]
        with (self._settings.folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log)  # own words
            )

    def _joined(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._page}/json/", timeout=2.0) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError, KeyError):
            return 0

    def _is_executor(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            return False
        return EXECUTOR_CLASS in words and self._is_ours(pid)

    def _is_ours(self, pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/cwd").resolve().is_relative_to(self._settings.folder.resolve())
        except OSError:
            return False


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise SparkToolMissingError("a Spark cluster needs PySpark", next_step='pip install "mailboat[spark]"')
    return Path(found.submodule_search_locations[0])
