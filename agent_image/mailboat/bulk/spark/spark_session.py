"""A Spark session of ours: its configuration, and an end that leaves no Java machine behind.

Our settings are defaults: what spark-defaults.conf, spark-submit or the caller says comes first.
Executors run this interpreter with this Mailboat; a cluster's nodes need both at the same place, or an image of ours
(docs/spark.md). A session that is active already, as in a notebook, is used as it is and left open. Called by the jobs
of this package and their tests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark import __version__ as pyspark_version
from pyspark.sql import SparkSession

from mailboat.bulk.spark.history import PackageHistory, StatusHistory
from mailboat.bulk.spark.node_table import MailboatFormat
from mailboat.bulk.spark.queue_table import QueueTable
from mailboat.bulk.spark.spark_errors import SparkMissingError, SparkUnavailableError, is_of_spark
from mailboat.composition.environment import pip_command
from mailboat.errors import MailboatError, UsageError

JAVA_END_SECONDS: Final = 20.0
_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_UNNAMED: Final = "pyspark-shell"
"""What PySpark calls an application that nothing else names."""
_ANY_PYTHON: Final = "python3"
_LOOPBACK: Final = "127.0.0.1"
_NAMED: Final = re.compile(r"(Exception|Error): ")
_REASON_LENGTH: Final = 300
_MASTER: Final = re.compile(r"local(-cluster)?(\[[0-9*, ]+\])?|spark://.+:[0-9]+.*|k8s://.+|yarn")
LOWEST_VERSION: Final = (4, 1)
"""Of PySpark: the first one with `DataSourceArrowWriter`, by which the sink is written."""
_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.session.timeZone": "UTC",
}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of a session.

    Attributes:
        master: `local[*]`, `spark://HOST:PORT`, `k8s://…`; None: the master that `spark-submit` has.
        name: What Spark calls the application.
        properties: Settings of Spark's, which come before all others.
        is_quiet: Log errors only, by a logging configuration of ours. Counts when a Java machine is started.
    """

    master: str | None = "local[*]"
    name: str = "mailboat"
    properties: Mapping[str, str] = field(default_factory=dict)
    is_quiet: bool = True

    def fixed(self) -> dict[str, str]:
        """What comes before any configuration file: what the Java machine is started with."""
        found = dict(self.properties)
        if self.master is not None:
            found["spark.master"] = self.master
            found.setdefault("spark.ui.showConsoleProgress", "false")  # PySpark turns it on for machines that it starts
            if self.is_quiet:  # default options: those of the user come behind them
                found.setdefault(_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}")
        return found

    def defaults(self) -> dict[str, str]:
        """What holds where no configuration says anything else."""
        found = {**_DEFAULTS, "spark.app.name": self.name}
        if self.master is not None and self.master.startswith("local"):
            found |= {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
        return found


def checked_master(master: str) -> str:
    """A master as a person gives it, if it can be one. Raises: UsageError."""
    if _MASTER.fullmatch(master) is None:
        raise UsageError(f"{master!r} is not a Spark master: write local[*], local[4], spark://HOST:PORT or k8s://…")
    return master


@contextmanager
def open_session(settings: SessionSettings) -> Iterator[SparkSession]:
    """A session; ended, with its Java machine, unless it was there before.

    Raises:
        SparkMissingError: PySpark is too old, or Java is not installed or too old.
    """
    check_version(pyspark_version)
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    session = _start(settings)
    try:
        yield session
    finally:
        _end(session)


def register_formats(session: SparkSession) -> None:
    """Let a session know `mailboat` and the tables of the distribution history."""
    for source in (MailboatFormat, PackageHistory, StatusHistory, QueueTable):
        session.dataSource.register(source)


def check_version(version: str) -> None:
    """Make sure that this PySpark is one that we run on. Raises: SparkMissingError."""
    lowest = ".".join(map(str, LOWEST_VERSION))
    found = tuple(int(part) for part in re.findall(r"[0-9]+", version)[: len(LOWEST_VERSION)])
    if found < LOWEST_VERSION:
        raise SparkMissingError(
            f"PySpark {version} is too old: {lowest} or newer is needed", next_step=pip_command(f"pyspark>={lowest}")
        )


def _start(settings: SessionSettings) -> SparkSession:
    try:
        session = SparkSession.builder.config(conf=_configuration(settings)).getOrCreate()
    except Exception as error:
        if not is_of_spark(error):
            raise
        _end_machine()
        raise _failed_start(settings.master, error) from error
    context = session.sparkContext
    # Workers would run the first python3 of the PATH, which need not have Mailboat.
    if context.pythonExec == _ANY_PYTHON:  # PYSPARK_PYTHON is not set
        context.pythonExec = sys.executable
    return session


def _configuration(settings: SessionSettings) -> SparkConf:
    """Our defaults below what Spark reads itself: only a running Java machine has its files and spark-submit."""
    fixed = settings.fixed()
    launch = SparkConf(loadDefaults=False)
    for key, value in fixed.items():
        launch.set(key, value)
    SparkContext._ensure_initialized(conf=launch)  # noqa: SLF001  # PySpark has no public way to start a machine alone
    found = SparkConf()
    for key, value in fixed.items():
        found.set(key, value)
    for key, value in settings.defaults().items():
        found.setIfMissing(key, value)
    if found.get("spark.app.name") == _UNNAMED:
        found.setAppName(settings.name)
    return found


def _failed_start(master: str | None, error: Exception) -> MailboatError:
    if "JAVA_GATEWAY_EXITED" in str(error):
        return SparkMissingError(
            "Spark's Java machine did not start", next_step="install Java 17 or newer, and name it in JAVA_HOME"
        )
    return SparkUnavailableError(
        f"Spark did not start at {master or 'the master that it was submitted to'}: {reason_of(error)}",
        next_step="name a master that runs and can be reached: --master 'local[*]' needs none",
        master=master,
    )


def reason_of(error: Exception) -> str:
    """The line of what Spark says that names an exception of its own, the last one; the whole without one."""
    lines = [line.strip(" :") for line in str(error).splitlines() if not line.lstrip().startswith("at ")]
    named = [line for line in lines if _NAMED.search(line) and "py4j" not in line]
    found = named[-1] if named else str(error).strip()
    return found[found.rfind(".", 0, found.find("Exception: ")) + 1 :][:_REASON_LENGTH]


def _end(session: SparkSession) -> None:
    """Stop the session and wait until its Java machine is gone, where this process started it."""
    session.stop()
    _end_machine()


def _end_machine() -> None:
    gateway: Any = SparkContext._gateway  # noqa: SLF001  # PySpark has no public way to end the machine
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    SparkContext._active_spark_context = None  # noqa: SLF001  # of a start that failed half-way
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # the next session starts a machine of its own
    process.stdin.close()  # the machine ends with it
    with suppress(TimeoutExpired):
        process.wait(JAVA_END_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()
