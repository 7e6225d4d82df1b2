"""How figures are taken, so that they mean something on two busy cores.

Two sides, the floor and the project, run in processes of their own, one after the other, A B A B …; the first pair is
dropped, and the figure is the median of the ratios of the pairs; where noise weighs more, that of the least of each
side (`Bench.report_least`). Cores that share arithmetic units run at two speeds,
alone and beside a neighbour, and change between them within seconds: only what runs next to each other is compared, and
where the work is small, its processes report the least of several parts. The unit is CPU time (user and system, with
children) or a count, never wall time. Both sides work in memory (`/dev/shm`) unless the figure is about disks. All
figures go to `bench-results/NAME.json` with all samples, the versions and the machine.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import google.protobuf
import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "bench-results"
MEMORY = Path("/dev/shm")
ROUNDS = 7
PART = 5
"""Marks that are a part: 500 imports, some 50 ms, in which each side commits and collects garbage a few times."""

Command = Sequence[str | Path]


@dataclass
class Figure:
    """One result.

    `target` is what we want. `gate` is where the test fails: the target, or what holds the line until it is met.
    """

    name: str
    unit: str
    value: float
    target: float
    gate: float
    samples: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


class Bench:
    """Runs the sides of a benchmark and keeps the figures."""

    def __init__(self, scratch: Path, is_full_length: bool, package: Path) -> None:
        self.scratch = scratch
        self.package = package
        self.is_full_length = is_full_length
        self.mailboat = (sys.executable, "-m", "mailboat.cli")

    def length(self, short: int, full: int) -> int:
        """How much to do: `short` in the gate, `full` in `make bench`."""
        return full if self.is_full_length else short

    def folder(self, name: str) -> Path:
        """A fresh, empty folder."""
        path = self.scratch / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def run(self, script: str, *arguments: object, env: dict[str, str] | None = None) -> dict[str, Any]:
        """Run `floors/…` or `arms/…` in a process of its own; what its last line says, and the CPU of the whole."""
        command = [sys.executable, str(HERE / script), *map(str, arguments)]
        return self.execute(command, env)

    def execute(self, command: Command, env: dict[str, str] | None = None) -> dict[str, Any]:
        """Run any program; a last line in JSON is taken as its result."""
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment(env)) as process:
            assert process.stdout is not None
            try:
                printed = process.stdout.read()
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()  # leaving the block waits for it
                raise
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{command} ended with {process.returncode}\n{printed}"
        lines = printed.strip().splitlines()
        result = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {"printed": printed}
        return {"process_cpu_seconds": usage.ru_utime + usage.ru_stime, **result}

    @contextmanager
    def running(self, commands: Sequence[Sequence[object]]) -> Iterator[list[subprocess.Popen[str]]]:
        """Start `arms/…` beside each other; their output is read by the caller. None is left when the block ends."""
        with ExitStack() as started:
            processes = []
            for script, *arguments in commands:
                command = [sys.executable, str(HERE / str(script)), *map(str, arguments)]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment())
                processes.append(started.enter_context(process))  # leaving it waits for the process
                started.callback(process.kill)  # which comes before, and does nothing where it has ended
            yield processes

    def run_together(self, commands: Sequence[Sequence[object]]) -> dict[str, float]:
        """Run all at once; the CPU and the count of all together."""
        results = []
        with self.running(commands) as processes:
            for command, process in zip(commands, processes, strict=True):
                printed = process.communicate()[0]
                assert process.returncode == 0, f"{command} ended with {process.returncode}\n{printed}"
                results.append(json.loads(printed.splitlines()[-1]))
        return {key: sum(result[key] for result in results) for key in ("cpu_seconds", "count")}

    def peak(self, arguments: Command) -> int:
        """Run a command line of the project; the largest resident size of its process, in bytes."""
        return int(self.run("arms/measured_command.py", *arguments)["peak_bytes"])

    def ratios(self, floor: Any, project: Any, pairs: int) -> list[float]:
        """Run both sides in turn; the ratio of CPU per item in each pair, without the first one."""
        found = []
        for _ in range(pairs + 1):
            below, above = floor(), project()
            found.append(per_item(above) / per_item(below))
        return found[1:]

    def report(self, figure: Figure) -> None:
        """Store a figure, print it, and fail when it is beyond its limit."""
        RESULTS.mkdir(exist_ok=True)
        document = asdict(figure) | {"length": "full" if self.is_full_length else "gate", "machine": machine()}
        (RESULTS / f"{figure.name}.json").write_text(json.dumps(document, indent=2) + "\n")
        is_met = "met" if figure.value <= figure.target else f"NOT met, gate {figure.gate:g}"
        facts = ", ".join(f"{key} {value}" for key, value in figure.facts.items())
        print(f"\nfigure {figure.name}: {figure.value:.3g} {figure.unit}, target {figure.target:g} {is_met}; {facts}")
        assert figure.value <= figure.gate, f"{figure.name} is {figure.value:.3g} {figure.unit}: {figure.samples}"

    def report_ratio(
        self, name: str, samples: list[float], *, target: float, gate: float | None = None, **facts: Any
    ) -> None:
        """Store the median of ratios as a figure."""
        value = statistics.median(samples)
        self.report(Figure(name, "ratio of CPU", value, target, target if gate is None else gate, samples, facts))

    def report_least(self, name: str, sides: tuple[Any, Any], *, target: float, gate: float, **facts: Any) -> None:
        """Run floor and project in turn; store the ratio of the least CPU per item of each, and that of each round.

        What else the machine does only adds to a side, and not the same to both: caches that are shared with another
        program cost the larger one more. So pairs move with the neighbours by half and more; the least of all does not.
        """
        below, above = [], []
        for _ in range(ROUNDS):
            floor, project = (least_per_item(side()) for side in sides)
            below.append(floor)
            above.append(project)
        samples = [mine / least for mine, least in zip(above, below, strict=True)]
        self.report(Figure(name, "ratio of CPU", min(above) / min(below), target, gate, samples, facts))

    def report_count(
        self, name: str, value: float, *, target: float, unit: str, gate: float | None = None, **facts: Any
    ) -> None:
        """Store a count, or another figure that is nearly the same in every run."""
        self.report(Figure(name, unit, value, target, target if gate is None else gate, [value], facts))

    def environment(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """That of a process that finds the package with its compiled modules, as an image has it."""
        return clean_environment({"PYTHONPATH": str(self.package)} | (extra or {}))


def per_item(result: dict[str, Any]) -> float:
    """CPU seconds of one item."""
    return float(result["cpu_seconds"]) / float(result["count"])


def least_per_item(result: dict[str, Any]) -> float:
    """CPU seconds of one item in the cheapest part of a run.

    Without parts the run itself has measured several and printed the least. `marks` are how much was done and the CPU
    seconds until then, again and again; a part begins behind the first of them, since what is loaded and made before
    is a cost of starting, which the figure `restart` has, and a bare loop has nothing like it.
    """
    marks = result.get("marks")
    if marks is None:
        return per_item(result)
    parts = [(last[1] - first[1]) / (last[0] - first[0]) for first, last in zip(marks, marks[PART:], strict=False)]
    return float(min(parts))


def clean_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment without what would measure or steer the processes, or keep them from the compiled modules.

    An installed program has its modules compiled; in a checkout the first run does it, unless it is forbidden.
    """
    without = ("COV", "PYTEST", "MAILBOAT", "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(without)}
    return kept | {"PYTHONHASHSEED": "0"} | (extra or {})


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "sqlite": sqlite3.sqlite_version,
        "protobuf": google.protobuf.__version__,
    }


@pytest.fixture(scope="session")
def compiled() -> Path:
    """The package with its compiled modules: what the figures are of."""
    made = subprocess.run([sys.executable, ROOT / "tools/build_compiled.py"], stdout=subprocess.PIPE, check=True)
    return Path(made.stdout.decode().strip())


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest, compiled: Path) -> Iterator[Bench]:
    """The runner, with a folder in memory where there is one."""
    with tempfile.TemporaryDirectory(prefix="mailboat-bench-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Bench(Path(folder), bool(request.config.getoption("--full-length")), compiled)


@pytest.fixture(scope="session")
def fsync_counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that counts what is made durable, compiled from `fsync_counter.c`."""
    library = tmp_path_factory.mktemp("fsync") / "fsync_counter.so"
    source = HERE / "fsync_counter.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, source, "-ldl"], check=True)
    return library
