"""What every test gets: quick hypothesis runs without a deadline, and no settings from the machine."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import os
import random
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from mailboat.cli.main import main
from mailboat.clock import Deadline, SystemClock
from mailboat.config.document import HttpConfig
from mailboat.control.event_feed import EventFeed
from mailboat.control.job_service import JobService
from mailboat.control.lag_history import LagHistory
from mailboat.http.application import create_app
from mailboat.http.audit import AuditTrail
from mailboat.http.ports import ApiPorts
from mailboat.http.server import HttpServer
from mailboat.journal.memory import MemoryJournal
from mailboat.telemetry.exposition import AgentMetrics
from mailboat.telemetry.logs import AUDIT_LOGGER
from support.fake_control import FakeArchive, FakeControl, FakeHealth
from support.kafka_broker import BrokerSettings, KafkaBroker, plain_listener
from support.s3_server import S3Server, S3ServerSettings

pytest_plugins = ("slices", "servers", "costs", "spark_tests")

# Where the machine forbids bytecode files, each process of a test would compile all of our modules (0.4 CPU seconds for
# a command), and each worker would rewrite the assertions of all tests. An installed program has its bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# tests scale their own counts by these: see mailboat.testing.examples
_CHECKS = [HealthCheck.too_slow]
settings.register_profile("suite", deadline=None, max_examples=20, suppress_health_check=_CHECKS, print_blob=True)
settings.register_profile("long", settings.get_profile("suite"), max_examples=50)
settings.register_profile("fuzz", deadline=None, max_examples=20_000, suppress_health_check=list(HealthCheck))
settings.load_profile("suite")

# until all tests are collected: what is loaded stays, and looking through it costs each worker 2 of 11 CPU seconds
gc.disable()


# a shell starts what it puts into the background with SIGINT ignored, and children would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 * 1024**3
"""What must be free there: tests of kilobytes use it, and those of gigabytes take other places."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this suite."""
    parser.addoption(
        "--on-disk", action="store_true", help="keep temporary folders on disk, where there is room for them in memory"
    )
    parser.addoption("--update-golden", action="store_true", help="write what is printed over what was expected")
    parser.addoption("--full-length", action="store_true", help="run the benchmarks at the length of `make bench`")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests' temporary folders in memory: most of what they wait for is `fsync`."""
    is_roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
    if is_roomy and not config.getoption("--on-disk"):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage again, but for modules and collected tests: looking through them costs some test 0.3 to 1.5 s.

    They stay until the end of the run.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _no_settings_from_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own MAILBOAT_ variables, width or colours change no test."""
    for name in list(os.environ):
        if name.startswith("MAILBOAT_"):
            monkeypatch.delenv(name)
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_logs_configured_by_others() -> Iterator[None]:
    """What a test sets up for the logs of a process ends with it: the next ones go by the levels that Python has."""
    root = logging.getLogger()
    handlers = set(root.handlers)
    levels = {logger: logger.level for logger in (root, *map(logging.getLogger, ("mailboat", AUDIT_LOGGER)))}
    yield
    for handler in set(root.handlers) - handlers:
        root.removeHandler(handler)
    for logger, level in levels.items():
        logger.setLevel(level)


KAFKA_USERS = {"alice": "alice-secret"}


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker for the tests of one process; a test that stops or kills it starts it again."""
    folder = tmp_path_factory.mktemp("kafka")
    with KafkaBroker(BrokerSettings(folder, listeners=(plain_listener(KAFKA_USERS),)), SystemClock()) as broker:
        yield broker


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server for the tests of one process; a test that kills it starts it again."""
    with S3Server(S3ServerSettings(tmp_path_factory.mktemp("s3")), SystemClock()) as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Spark session on two threads, for the tests of one process; its Java machine ends with it."""
    from mailboat.bulk.spark.spark_session import SessionSettings, open_session, register_formats  # noqa: PLC0415  # slow to load, for few
    from support.spark_home import QUICK, class_archive, spark_home, started_from  # noqa: PLC0415  # they load PySpark

    scratch = tmp_path_factory.mktemp("spark")
    home = spark_home()
    quick = " ".join((*QUICK, f"-XX:SharedArchiveFile={class_archive(home)}"))
    properties = {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": quick,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PySpark says while it starts is its own matter
        with ExitStack() as opened:
            with started_from(home):
                session = opened.enter_context(open_session(SessionSettings("local[2]", "mailboat tests", properties)))
            register_formats(session)
            machine = session.sparkContext._gateway.proc
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                yield session
    assert machine.poll() is not None, "Spark's Java machine is still there"


Serve = Callable[..., HttpServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a control port over HTTP at a free port, until the test ends: `serve(control, HttpConfig(…)).url`."""
    clock, started = SystemClock(), list[HttpServer]()

    def start(control: FakeControl, config: HttpConfig | None = None, **ports: Any) -> HttpServer:
        chosen = {"archive": FakeArchive(control), "health": FakeHealth(), "clock": clock}
        chosen["telemetry"] = AgentMetrics(clock)
        chosen |= {"audit": AuditTrail(clock), "feed": EventFeed(control.status, "feed")}
        chosen |= {"history": LagHistory(control.status, clock), **ports}
        settings = replace(HttpConfig() if config is None else config, port=0)
        chosen.setdefault("jobs", JobService(lambda: MemoryJournal(clock), clock, random.Random(1)))
        api = ApiPorts(control=control, **chosen)
        server = HttpServer(create_app(api, settings, Path()), settings, api.stopping)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop(Deadline(clock, 5.0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of a real server's log to the report of a test that failed with it."""
    report = yield
    for name in ("kafka_broker", "s3_server"):
        server = getattr(item, "funcargs", {}).get(name)
        if report.failed and server is not None:
            report.sections.append((f"end of {server.log_path}", server.log_tail()))
    return report


@dataclass(frozen=True)
class Ran:
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """What it printed, by lines."""
        return self.out.splitlines()


class CommandLine:
    """Runs command lines of one home in this process. What only a process can show needs a process."""

    def __init__(self, home: Path | None) -> None:
        self.home = home

    def run(self, *words: object) -> Ran:
        """Run `mailboat --home HOME WORDS…`, or `mailboat WORDS…` without a home."""
        out, err = io.BytesIO(), io.BytesIO()
        texts = [io.TextIOWrapper(item, encoding="utf-8", write_through=True) for item in (out, err)]
        with contextlib.redirect_stdout(texts[0]), contextlib.redirect_stderr(texts[1]):
            code = main([*([] if self.home is None else ["--home", str(self.home)]), *map(str, words)])
        return Ran(code, out.getvalue().decode(), err.getvalue().decode())

    def do(self, *words: object) -> Ran:
        """The same, for commands that must succeed."""
        ran = self.run(*words)
        assert ran.code == 0, f"mailboat {' '.join(map(str, words))} ended with {ran.code}:\n{ran.err}{ran.out}"
        return ran

    def json(self, *words: object) -> Any:
        """What a command that must succeed prints with `-o json`."""
        return self.do(*words, "-o", "json").document


@pytest.fixture(scope="session")
def command_line() -> type[CommandLine]:
    """Makes command lines of any home."""
    return CommandLine


@pytest.fixture
def new_boat(tmp_path: Path) -> CommandLine:
    """Command lines of a home that is not made yet."""
    return CommandLine(tmp_path / "boat")


@pytest.fixture
def boat(new_boat: CommandLine) -> CommandLine:
    """Command lines of a new home."""
    new_boat.do("init")
    return new_boat
