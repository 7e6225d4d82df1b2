"""Counts the CPU seconds of every test, with those of its processes, and holds tests and folders to `budgets.toml`.

What a run cost is written to `test-costs.json`, that of one folder to `test-costs-FOLDER.json`, and summed up at its
end. CPU time, too, grows on a busy machine, as processes share caches and cores, and on a slower one: budgets grow with
the pace of `tools/yardstick.py` while the tests run. A test beyond its limit runs once more at the end, in a process of
its own that takes the pace around it, and fails the run if it is beyond it again: threads of servers' clients, a
collection of the garbage of a thousand tests and virtual machines beside ours can triple the cost of a test that
happens to run then.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, is_hypothesis_test, settings
from hypothesis import strategies as st
from servers import SERVERS as SHARED
from support.forks import server_cpu_seconds, stop_server
from support.machine_cache import MADE, MAKING
from yardstick import Pace

HERE = Path(__file__).resolve().parents[1]
BUDGETS = tomllib.loads((HERE / "budgets.toml").read_text())
OTHER_PYTHONS = HERE.parent / "build" / "pythons"
"""Environments of slices, with other versions of libraries: what tests cost there has no budget."""
NO_PROCESSES = "unit"
STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"})
SHOWN = 10
AGAIN = "--measured-again"
AGAIN_INTERVAL_SECONDS = 0.5
"""Between samples of the pace around one test, which takes seconds."""
MOST_AGAIN = 20
"""More tests beyond their limits are a change of the code, not scatter."""
SERVERS = "servers"
"""What shared servers cost from their start to their end, which is known only when they end: after the last test."""


def own_seconds() -> float:
    """CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def children_seconds() -> float:
    """CPU seconds of its children that have ended, and of the processes that were forked for it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime + server_cpu_seconds()


def excess(spent: float, limit: float, slowness: float) -> str:
    """How the call of a test is beyond its limit on a machine that is so many times as slow, or nothing."""
    allowed = limit * slowness
    if not limit or spent <= allowed:
        return ""
    return f"{spent:.2f} CPU seconds where {allowed:.2f} are allowed (make it cheaper, or mark it costly(reason))"


def folders_beyond(sums: Mapping[str, float], budgets: Mapping[str, float], slowness: float) -> dict[str, float]:
    """Folders that cost more than their budget on a machine that is so many times as slow, with what they may."""
    allowed = {folder: budgets[folder] * slowness for folder in sums if folder in budgets}
    return {folder: seconds for folder, seconds in allowed.items() if sums[folder] > seconds}


def file_of(root: Path, folders: Collection[str]) -> Path:
    """Where a run of these folders writes its costs: `make test` and a single file must not overwrite each other's."""
    names = set(folders) - {SERVERS}
    return root / (f"test-costs-{names.pop()}.json" if len(names) == 1 else "test-costs.json")


def folder_of(nodeid: str) -> str:
    """The folder below `tests/`."""
    parts = nodeid.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else SERVERS


@settings(max_examples=5, database=None)
@given(st.lists(st.integers(), min_size=100), st.text())  # one draw in twenty asks for a constant
def load_hypothesis(_numbers: list[int], _text: str) -> None:
    """Have hypothesis read the constants of our modules and all characters, which a process does once.

    In a clean clone that takes CPU seconds, which would count as those of the first property tests.
    """


class Costs:
    """What the tests of this process cost, or, where workers run them, what these tell."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.is_worker = hasattr(config, "workerinput")
        self.item: pytest.Item | None = None
        self.phase = self.own = 0.0
        self.making: list[tuple[float, float]] = []
        """Own and children's seconds at the beginning of what is being made for the machine's cache; one may need
        another."""
        self.made_own = self.made_children = 0.0
        self.is_last = False
        self.started: list[str] = []
        self.pace = Pace()
        self.around: Pace | None = None
        self.calls: dict[str, tuple[float, float]] = {}
        """What the calls of tests cost that have a limit, and this limit."""
        self.again = ""
        self.tests = defaultdict[str, dict[str, float]](dict)
        self.workers = defaultdict[str, dict[str, float]](lambda: defaultdict(float))
        """Wall seconds of the tests of a file, by worker, in the order in which the worker ran them."""
        self.ends: dict[str, float] = {}
        """When the last test of a worker ended."""

    @property
    def is_limited(self) -> bool:
        """Whether this is a run that limits are made for: short, not measured, with the locked versions."""
        if OTHER_PYTHONS in Path(sys.prefix).parents:
            return False
        options = ("cov_source", "long", "full_length")
        return not any(self.config.getoption(option, None) for option in options) and not self.config.getoption(
            "--hypothesis-profile"
        )

    def audit(self, event: str, _: tuple[Any, ...]) -> None:
        """Refuse processes to unit tests, and count what is made once on a machine. Raises: AssertionError."""
        if event == MAKING:
            self.making.append((own_seconds(), children_seconds()))
        elif event == MADE:
            own, children = self.making.pop()
            if not self.making:
                self.made_own += own_seconds() - own
                self.made_children += children_seconds() - children
        if event in STARTS and self.item is not None and folder_of(self.item.nodeid) == NO_PROCESSES:
            self.started.append(event)
            raise AssertionError(f"a test in tests/{NO_PROCESSES} starts no process ({event}): see CONTRIBUTING.md")

    def pytest_sessionstart(self) -> None:
        if not self.is_worker and not self.config.getoption(AGAIN):
            self.pace.__enter__()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        runs_tests = self.is_worker or not self.config.getoption("numprocesses", None)
        if runs_tests and any(is_hypothesis_test(getattr(item, "obj", None)) for item in session.items):
            load_hypothesis()

    @contextmanager
    def measuring(self, item: pytest.Item) -> Generator[None, None, None]:
        """Around one phase of a test."""
        self.item = item
        own = own_seconds() - self.made_own
        children = children_seconds() - self.made_children
        try:
            yield
        finally:
            around = self.around.cpu_seconds if self.around else 0.0
            self.own = own_seconds() - self.made_own - own - around
            self.phase = self.own + children_seconds() - self.made_children - children
            self.item = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        with self.measuring(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        if not self.config.getoption(AGAIN):
            with self.measuring(item):
                return (yield)
        with self.measuring(item), Pace(AGAIN_INTERVAL_SECONDS) as self.around:
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
        self.is_last = nextitem is None
        with self.measuring(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.cpu_seconds, report.is_end_of_servers = self.phase, call.when == "teardown" and self.is_last
        report.spent, report.limit = self.spent(item), self.limit(item) if call.when == "call" else 0.0
        reason = "it started a process, which belongs into tests/integration" if self.started else ""
        self.started.clear()
        if self.around is not None:
            reason = reason or excess(report.spent, report.limit, self.around.slowness)
            self.around = None
        if report.passed and reason:
            report.outcome, report.longrepr = "failed", f"{item.nodeid}: {reason}"
        return report

    def limit(self, item: pytest.Item) -> float:
        """What the call of a test may cost where the limits were measured; 0.0 without a limit."""
        is_bound = self.is_limited and item.get_closest_marker("costly") is None
        return BUDGETS["limits"].get(folder_of(item.nodeid), 0.0) * BUDGETS["slack"] if is_bound else 0.0

    def spent(self, item: pytest.Item) -> float:
        """What counts of the phase that has just ended."""
        # a shared server that a test kills has its whole life's CPU counted then
        return self.own if set(SHARED) & set(getattr(item, "fixturenames", ())) else self.phase

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self.is_worker:
            if report.passed and getattr(report, "limit", 0.0):
                self.calls[report.nodeid] = (report.spent, report.limit)
            name = SERVERS if getattr(report, "is_end_of_servers", False) else report.nodeid
            phases = self.tests[name]
            phases[report.when] = round(phases.get(report.when, 0.0) + getattr(report, "cpu_seconds", 0.0), 3)
            worker = getattr(report, "worker_id", "")  # of xdist
            self.workers[worker][report.nodeid.partition("::")[0]] += report.duration
            self.ends[worker] = time.monotonic()

    def sums(self) -> dict[str, float]:
        """CPU seconds by folder."""
        found = defaultdict[str, float](float)
        for name, phases in self.tests.items():
            found[folder_of(name)] += sum(phases.values())
        return {folder: round(seconds, 1) for folder, seconds in sorted(found.items())}

    def beyond(self) -> dict[str, float]:
        """Folders that cost more than their budget, with what they may."""
        # Workers that take turns on one core evict each other's caches: the unit tests took 94 s there instead of 64.
        is_comparable = self.is_limited and len(os.sched_getaffinity(0)) > 1
        return folders_beyond(self.sums(), BUDGETS["folders"], self.pace.slowness) if is_comparable else {}

    @property
    def excesses(self) -> dict[str, str]:
        """Tests beyond their limits, with how."""
        found = {name: excess(*call, self.pace.slowness) for name, call in self.calls.items()}
        return {name: reason for name, reason in found.items() if reason}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.is_worker or self.config.getoption(AGAIN):
            return
        self.pace.end()
        if not self.tests:
            return
        document = {"slowness": round(self.pace.slowness, 2), "folders": self.sums(), "tests": self.tests}
        document["wall"] = {
            worker: {file: round(spent, 1) for file, spent in files.items()} for worker, files in self.workers.items()
        }
        file_of(self.config.rootpath, self.sums()).write_text(json.dumps(document, indent=1) + "\n")
        if self.excesses:
            self.again = self.measure_again()
        if (self.beyond() or self.again) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def measure_again(self) -> str:
        """Run the tests beyond their limits once more; returns what that printed if one is beyond it again."""
        if len(self.excesses) > MOST_AGAIN:
            return "\n".join(f"{name}: {reason}" for name, reason in self.excesses.items())
        words = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", AGAIN, *self.excesses]
        ended = subprocess.run(words, cwd=self.config.rootpath, capture_output=True, text=True, check=False)
        return "" if ended.returncode == 0 else ended.stdout + ended.stderr

    def pytest_unconfigure(self) -> None:
        stop_server()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.is_worker or self.config.getoption(AGAIN) or (len(self.tests) <= SHOWN and not self.again):
            return
        slow = f"{self.pace.slowness:.2f} x the time of the reference"
        file = file_of(self.config.rootpath, self.sums()).name
        terminalreporter.section(f"CPU seconds of tests, on a machine that takes {slow} ({file} has all)")
        for folder, seconds in self.sums().items():
            budget = BUDGETS["folders"].get(folder)
            terminalreporter.line(f"{seconds:8.1f}  {folder}" + (f", of {budget}" if budget else ""))
        dearest = sorted(((sum(phases.values()), name) for name, phases in self.tests.items()), reverse=True)
        for seconds, name in dearest[:SHOWN]:
            terminalreporter.line(f"{seconds:8.2f}  {name}")
        for worker, files in sorted(self.workers.items() if len(self.workers) > 1 else ()):
            idle = max(self.ends.values()) - self.ends[worker]
            terminalreporter.line(
                f"{sum(files.values()):8.1f}  s of wall time of {worker}, which ended {idle:.0f} s before the last one"
            )
        if self.again:
            terminalreporter.line("FAILED: tests beyond their limits, measured once more and alone:", red=True)
            terminalreporter.line(self.again)
        else:
            for name, reason in self.excesses.items():
                terminalreporter.line(f"{name}: {reason}; within its limit when measured once more")
        for folder, allowed in self.beyond().items():
            terminalreporter.line(
                f"FAILED: tests/{folder} costs more than {allowed:.0f} CPU seconds, its budget at this pace: make tests"
                " cheaper, or raise the budget in tests/budgets.toml with a reason",
                red=True,
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    """The second measurement of a test."""
    parser.addoption(AGAIN, action="store_true", help="fail each test that costs more CPU seconds than it may")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.addinivalue_line("markers", "costly(reason): may cost more CPU seconds than tests/budgets.toml allows")
    costs = Costs(config)
    config.pluginmanager.register(costs, "cost-counter")
    # coverage traces every new thread: CPython 3.11 calls the hooks while it installs a trace function, and refuses to
    # install another one until a hook of Python code has returned, so threads would end before they begin
    if costs.is_limited:
        sys.addaudithook(costs.audit)
