"""Run `make test` in stages, slices of `make test-long`, or `make e2e` if it is due, and print what each cost.

    python3 tools/stages.py test [--workers N]
    python3 tools/stages.py long [SLICE…] [--due --minutes N] [--workers N]
    python3 tools/stages.py e2e

Runs on the machine's own Python with the standard library alone, because the first stage makes `.venv`.

`test` ends with a table of CPU (each command and all its descendants), wall time and the share of the cores used. It
fails if a stage fails or if lint, suite and gates exceed the CPU budget. CPU per test is inflated when other processes
compete for the caches, so the budget grows with the pace of `yardstick.py`, which is sampled meanwhile; wall time is a
limit only on an otherwise quiet machine.

`long` runs slices of `tests/slices.toml`. With `--due` these are the automatic slices whose sources changed since they
last passed on this machine, and the one of the others that passed longest ago. Of slices that never passed on this
machine the commit chooses the first, so that all get their turn where records do not last. What passed, and what was
ended at the limit of `--minutes`, is recorded in `~/.cache/mailboat/slices.json`.

`e2e` runs `make e2e`, unless it passed on this machine with the same sources.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from yardstick import Pace

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mailboat"
RECORDS = CACHE / "slices.json"
COMPILED = {"PYTHONPATH": str(ROOT / "build" / "compiled")}
BUDGETED = ("lint", "suite", "gates")
"""The others fill caches: they cost seconds with warm ones and minutes from nothing."""
PROGRAMS = ("kubebox", "helm", "promtool", "prometheus")
"""Of `tests/kind`, which the suite runs: built once, minutes from nothing."""
CPU_BUDGET_SECONDS = 1300.0
WALL_BUDGET_SECONDS = 720.0
QUIET_SHARE = 0.1
"""Share of the cores that other processes may use for the machine to count as quiet."""
SCATTER = 1.2
"""A slice may take this many times as long as expected."""
KEPT_COVERAGE = 4
"""Sources whose coverage is kept in the cache, the newest."""
E2E = "e2e"
"""Its record, beside those of the slices."""
END_SECONDS = 20.0
"""Time that a stage has to end its servers before it is killed with them."""


@dataclass(frozen=True)
class Stage:
    """One command of a run.

    Attributes:
        name: For the table.
        command: Run in the project's folder.
        environment: Variables added to the process's own.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What a stage cost in CPU and wall seconds. The code is None if it was ended for lack of time."""

    stage: str
    cpu: float
    wall: float
    code: int | None


@dataclass(frozen=True)
class Slice:
    """A row of `tests/slices.toml`, which explains the fields."""

    name: str
    what: str
    sources: tuple[str, ...]
    select: tuple[str, ...]
    minutes: float
    workers: int = 0
    pythons: tuple[str, ...] = ()
    manual: str = ""
    programs: tuple[str, ...] = ()

    @property
    def measures_coverage(self) -> bool:
        """Whether the slice is one of those that reach the floor of coverage together."""
        return "--cov" in self.select

    @property
    def is_compiled(self) -> bool:
        """Whether the tests run on the compiled modules."""
        return not self.pythons and not self.measures_coverage


@dataclass(frozen=True)
class Record:
    """What is known of a slice on this machine.

    Attributes:
        digest: Of its sources when it last passed; empty if it never did.
        at: When it last passed (RFC 3339); empty if it never did.
        seconds: How long that took; after a run that the limit ended, at least this long.
        is_unfinished: The limit ended the latest run, so the slice is the first of the next one.
    """

    digest: str = ""
    at: str = ""
    seconds: float = 0.0
    is_unfinished: bool = False


# ---------------------------------------------------------------------------------------------------------- decisions


def excess(cpu: float, wall: float, others: float, slow: float = 1.0) -> str:
    """Which budget the run exceeded, or an empty text.

    Args:
        cpu: CPU seconds of the budgeted stages.
        wall: Their wall seconds.
        others: Share of the machine's cores that other processes used meanwhile, 0 to 1.
        slow: How much slower this machine was meanwhile than the one where the budgets were measured. What other
            processes cost these stages is part of it.
    """
    allowed = CPU_BUDGET_SECONDS * slow
    if cpu > allowed:
        return f"CPU budget exceeded: {cpu:.0f} s of {allowed:.0f} s"
    if others <= QUIET_SHARE and wall > WALL_BUDGET_SECONDS * slow:
        return f"time budget exceeded on a quiet machine: {wall:.0f} s of {WALL_BUDGET_SECONDS * slow:.0f} s"
    return ""


def plan_due(digests: Mapping[str, str], records: Mapping[str, Record], first: int = 0) -> list[tuple[str, str]]:
    """The slices that are due, each with the reason, in the order to run them.

    Slices that the limit ended come first, then those whose sources changed, those that passed longest ago before
    others; one more follows in rotation.

    Args:
        digests: Slice → digest of its sources now.
        records: Slice → what is known of it on this machine.
        first: Where to begin among those that never passed; any number.
    """

    def key(name: str) -> tuple[bool, str]:
        record = records.get(name, Record())
        return not record.is_unfinished, record.at

    start = first % max(1, len(digests))
    names = sorted([*list(digests)[start:], *list(digests)[:start]], key=key)
    due = []
    for name in names:
        record = records.get(name, Record())
        if record.is_unfinished:
            due.append((name, "not finished last time"))
        elif record.digest != digests[name]:
            due.append((name, "its sources changed" if record.at else "never passed here"))
    changed = {name for name, _ in due}
    return due + [(name, "in rotation") for name in names if name not in changed][:1]


def has_time(record: Record, minutes: float, left_seconds: float) -> bool:
    """Whether a slice is started with so much time left.

    A slice that the limit ended needs more time than it had, or it would be ended in every run and no other would run.
    A duration that was measured while the machine was busy does not keep the slice from running again: the shorter of
    the measured and the expected one counts.

    Args:
        record: What is known of the slice on this machine.
        minutes: How long the slice is expected to take.
        left_seconds: Time that is left.
    """
    if record.is_unfinished:
        return left_seconds > record.seconds
    expected = minutes * 60
    return left_seconds >= SCATTER * (min(record.seconds, expected) if record.at else expected)


def record_after(record: Record, costs: list[Cost], passed: Record, *, is_changed: bool) -> Record | None:
    """What is known of a slice after a run; None if that is what was known before.

    Args:
        record: What was known before.
        costs: The stages of the run.
        passed: What is known if it passed.
        is_changed: The sources changed during the run, so that some tests saw other sources than the rest.
    """
    if costs[-1].code is None:
        return replace(record, seconds=passed.seconds, is_unfinished=True)
    return passed if not is_changed and all(cost.code == 0 for cost in costs) else None


# -------------------------------------------------------------------------------------------------------- measurements


def run(stage: Stage, limit: float | None = None) -> Cost:
    """Run a stage to its end or for `limit` seconds, with its output passed through."""
    started = time.monotonic()
    process = subprocess.Popen(
        stage.command, cwd=ROOT, env={**os.environ, **stage.environment}, start_new_session=limit is not None
    )
    ended, gone = threading.Event(), threading.Event()

    def end() -> None:
        ended.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            if not gone.wait(END_SECONDS):
                os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(limit, end) if limit is not None else None
    if timer is not None:
        timer.start()
    try:
        # wait4 and not wait: it counts the CPU of this child and its descendants alone
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        gone.set()
        if timer is not None:
            timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(stage.name, cpu, time.monotonic() - started, None if ended.is_set() else process.returncode)


def run_together(stages: list[Stage]) -> list[Cost]:
    """Run stages at the same time; their costs, in the same order."""
    costs: dict[str, Cost] = {}
    threads = [threading.Thread(target=lambda stage=stage: costs.update({stage.name: run(stage)})) for stage in stages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [costs[stage.name] for stage in stages]


def machine_seconds() -> float:
    """CPU seconds that all processes of this machine used since it started (proc(5), first line of /proc/stat)."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(word) for word in words[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def table(costs: Iterable[Cost], wall: float) -> str:
    """The costs as text."""
    cores, costs = os.cpu_count() or 1, list(costs)
    rows = [("STAGE", "CPU", "WALL", "CORES USED", "")]
    for cost in costs:
        used = f"{cost.cpu / max(cost.wall, 0.001) / cores:.0%}"
        state = "not finished" if cost.code is None else "" if cost.code == 0 else "FAILED"
        rows.append((cost.stage, f"{cost.cpu:.0f} s", f"{cost.wall:.0f} s", used, state))
    total = sum(cost.cpu for cost in costs)
    rows.append(("total", f"{total:.0f} s", f"{wall:.0f} s", f"{total / max(wall, 0.001) / cores:.0%}", ""))
    return "\n".join(columns(rows, right=(1, 2, 3)))


def columns(rows: list[tuple[str, ...]], right: Collection[int] = ()) -> list[str]:
    """The rows as lines, each column as wide as its widest text; those of `right` are aligned to the right."""
    widths = [max(map(len, texts)) for texts in zip(*rows, strict=True)]
    layout = "  ".join(f"{{:{'>' if at in right else '<'}{width}}}" for at, width in enumerate(widths))
    return [layout.format(*row).rstrip() for row in rows]


# --------------------------------------------------------------------------------------------------------------- test


def python(*words: str) -> tuple[str, ...]:
    """A command of the project's virtual environment."""
    return (str(BIN / "python"), *words)


def steps(workers: int) -> list[list[Stage]]:
    """The stages of `make test` in order; the stages of one step run at the same time."""
    suite = ["-m", "pytest", "-q", "-n", str(workers), "--dist", "loadgroup"]
    return [
        [Stage("environment", (sys.executable, "tools/bootstrap.py", "dev-all"))],
        [
            Stage("compile", python("tools/build_compiled.py")),
            Stage("programs", python("tests/kind/builds.py", *PROGRAMS)),
            Stage("assertions", python("tools/rewritten_tests.py")),
            Stage("constants", python("tools/property_constants.py")),
            Stage("classes", python("-m", "support.spark_home")),
            Stage("lint", ("make", "--no-print-directory", "lint")),
        ],
        [Stage("suite", python(*suite, "--ignore=tests/benchmarks", "--ignore=tests/e2e"), COMPILED)],
        [Stage("gates", ("make", "--no-print-directory", "gates"))],
    ]


def run_test(workers: int) -> int:
    """Run all stages of `make test`; returns the exit code."""
    started, costs, others = time.monotonic(), list[Cost](), list[tuple[float, float]]()
    paces = list[tuple[float, float]]()
    for step in steps(workers):
        busy, begun = machine_seconds(), time.monotonic()
        with Pace() as pace:
            made = run_together(step)
        paces.append((sum(cost.cpu for cost in made if cost.stage in BUDGETED), pace.slowness))
        if any(cost.stage in BUDGETED for cost in made):
            spare = machine_seconds() - busy - sum(cost.cpu for cost in made)
            others.append((max(0.0, spare), (time.monotonic() - begun) * (os.cpu_count() or 1)))
        costs += made
        if any(cost.code != 0 for cost in costs):
            break
    print(f"\n{table(costs, time.monotonic() - started)}")
    failed = [cost.stage for cost in costs if cost.code != 0]
    if failed:
        return _refuse(f"failed: {', '.join(failed)}")
    counted = [cost for cost in costs if cost.stage in BUDGETED]
    cpu, wall = sum(cost.cpu for cost in counted), sum(cost.wall for cost in counted)
    share = sum(spare for spare, _ in others) / sum(capacity for _, capacity in others)
    # The slowness is weighted by CPU: it differs between stages that use one core and those that use all.
    slow = sum(used * pace for used, pace in paces) / cpu
    print(
        f"{', '.join(BUDGETED)}: {cpu:.0f} s of CPU (budget {CPU_BUDGET_SECONDS:.0f} s x {slow:.2f} for "
        f"the slowness of this machine), {wall:.0f} s of wall time; other processes used {share:.0%} of the cores"
    )
    trouble = excess(cpu, wall, share, slow)
    return _refuse(trouble) if trouble else 0


# --------------------------------------------------------------------------------------------------------------- long


def read_table() -> dict[str, Any]:
    """The content of `tests/slices.toml`."""
    return tomllib.loads((ROOT / "tests" / "slices.toml").read_text())


def slices(document: Mapping[str, Any]) -> dict[str, Slice]:
    """The table of `tests/slices.toml`. `everything` are sources of each slice."""
    shared = tuple(document["everything"])
    rows = [
        {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        for row in document["slice"]
    ]
    return {row["name"]: Slice(**{**row, "sources": row["sources"] + shared}) for row in rows}


def digest_of(sources: Iterable[str]) -> str:
    """Digest over the names and contents of the files that match globs, committed or not."""
    expanded = [f":(glob){source}" for source in sources]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *expanded]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    total = hashlib.sha256()
    for name in sorted(set(filter(None, listed))):
        if (ROOT / name).is_file():
            total.update(f"\0{name}\0".encode() + (ROOT / name).read_bytes())
    return total.hexdigest()[:24]


def commit_number() -> int:
    """A number that the commit decides."""
    command = ["git", "rev-parse", "HEAD"]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout[:8], 16)


def stages_of(one: Slice, workers: int) -> list[Stage]:
    """What a slice runs: pytest once, or once on each of its Pythons."""
    parallel = () if one.workers == 1 else ("-n", str(workers), "--dist", "loadgroup")
    words = ("-m", "pytest", "-q", *parallel, *one.select)
    if one.pythons:
        return [Stage(f"{one.name} {version}", (str(_other_python(version)), *words)) for version in one.pythons]
    return [Stage(one.name, python(*words), COMPILED if one.is_compiled else {})]


def _other_python(version: str) -> Path:
    """The interpreter of an environment in `build/pythons`: of another Python, or with other versions of libraries."""
    from bootstrap import run_uv, sync  # noqa: PLC0415  # next to this file, and only where a slice needs it

    folder = ROOT / "build" / "pythons" / version
    interpreter = folder / "bin" / "python"
    shutil.rmtree(folder, ignore_errors=True)
    is_usual_python = version == "lowest" or version.startswith("pyspark")
    run_uv(["venv", "--quiet", "--python", _interpreter("3.11" if is_usual_python else version), str(folder)])
    into = ["--python", str(interpreter), "--quiet"]
    if version == "lowest":
        extras = [word for extra in ("kafka", "operator", "s3", "spark", "tracing") for word in ("--extra", extra)]
        groups = [word for group in ("build", "dev") for word in ("--group", group)]
        run_uv(["pip", "install", *into, "--resolution", "lowest-direct", "-r", "pyproject.toml", *extras, *groups])
    elif version.startswith("pyspark"):
        sync(interpreter, "requirements/dev-all.txt")
        run_uv(["pip", "install", *into, version])
    else:
        sync(interpreter, "requirements/dev-all.txt")
    run_uv(["pip", "install", *into, "--no-deps", "--no-build-isolation", "--editable", "."])
    return interpreter


def _interpreter(version: str) -> str:
    """A Python of that version: of the PATH, of pyenv, or the version itself, which uv installs where it can."""
    of_pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv").glob(f"versions/{version}.*/bin/python")
    for candidate in filter(None, (shutil.which(f"python{version}"), *map(str, of_pyenv))):
        # a shim of pyenv exists for each version that any of its projects has, and may refuse to run
        if subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode == 0:
            return candidate
    return version


def check_coverage(known: Mapping[str, Slice], name: str) -> Cost:
    """Keep what a slice covered; hold the floor of `pyproject.toml` once all slices covered the same sources.

    One slice alone covers a part, so it has no floor of its own.
    """
    folder = CACHE / "coverage" / digest_of(["agent_image/**", "operator/**"])
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / ".coverage", folder / name)
    os.utime(folder)
    remove_old_folders(folder.parent, KEPT_COVERAGE)
    missing = [other for other, one in known.items() if one.measures_coverage and not (folder / other).exists()]
    if missing:
        print(f"coverage: the floor is checked when {', '.join(missing)} ran on the same sources", flush=True)
        return Cost("coverage floor", 0.0, 0.0, 0)
    data = {"COVERAGE_FILE": str(ROOT / "build" / "coverage")}
    files = [str(file) for file in sorted(folder.iterdir())]
    combined = run(Stage("coverage floor", python("-m", "coverage", "combine", "--keep", "--quiet", *files), data))
    if combined.code != 0:
        return combined
    return run(Stage("coverage floor", python("-m", "coverage", "report", "--skip-covered"), data))


def remove_old_folders(parent: Path, kept: int) -> None:
    """Remove all folders but the newest ones."""
    for old in sorted(parent.iterdir(), key=lambda one: one.stat().st_mtime)[:-kept]:
        shutil.rmtree(old)


def read_records() -> dict[str, Record]:
    """What is known of the slices on this machine."""
    if not RECORDS.exists():
        return {}
    return {name: Record(**record) for name, record in json.loads(RECORDS.read_text()).items()}


def write_record(name: str, record: Record) -> None:
    """Replace one record."""
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    document = {key: asdict(value) for key, value in {**read_records(), name: record}.items()}
    draft = RECORDS.with_suffix(".draft")
    draft.write_text(json.dumps(document, indent=1, sort_keys=True))
    draft.replace(RECORDS)


def run_long(names: list[str], *, only_due: bool, minutes: float | None, workers: int) -> int:
    """Run slices; returns the exit code, which is 1 if one failed. What found no time is named and not a failure."""
    known = slices(read_table())
    unknown = [name for name in names if name not in known]
    if unknown:
        return _refuse(f"unknown slice {unknown[0]!r}; expected one of {', '.join(known)}", 2)
    digests = {name: digest_of(one.sources) for name, one in known.items()}
    automatic = {name: digest for name, digest in digests.items() if not known[name].manual}
    due = (
        plan_due(automatic, read_records(), commit_number())
        if only_due
        else [(name, "asked for") for name in names or known]
    )
    started, costs, waiting, changed = time.monotonic(), list[Cost](), list[str](), list[str]()
    deadline = None if minutes is None else started + minutes * 60
    for name, reason in due:
        record = read_records().get(name, Record())
        if deadline is not None and not has_time(record, known[name].minutes, deadline - time.monotonic()):
            waiting.append(name)
            continue
        print(f"\n== slice {name}: {known[name].what} ({reason})", flush=True)
        begun = time.monotonic()
        made = _run_slice(known[name], workers, deadline)
        costs += made
        seconds = round(time.monotonic() - begun)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        before, digests[name] = digests[name], digest_of(known[name].sources)
        result = record_after(record, made, Record(digests[name], at, seconds), is_changed=before != digests[name])
        if result is not None and not result.is_unfinished and known[name].measures_coverage:
            costs.append(check_coverage(known, name))
            if costs[-1].code != 0:  # recorded, the slice would not be due again, and the next run would pass
                result = None
        if result is not None:
            write_record(name, result)
        if before != digests[name]:
            changed.append(name)
    print(f"\n{table(costs, time.monotonic() - started)}\n\n{state_of(known, digests, read_records())}")
    if changed:
        print(f"not recorded as passed: {', '.join(changed)}; the sources changed while the tests ran")
    if waiting:
        print(f"no time left for: {', '.join(waiting)}; run `make test-long SLICE={waiting[0]}`")
    failed = [cost.stage for cost in costs if cost.code not in (0, None)]
    return _refuse(f"failed: {', '.join(failed)}") if failed else 0


def run_e2e() -> int:
    """Run `make e2e` if it is due; returns the exit code."""
    sources = read_table()["e2e"]["sources"]
    record, digest = read_records().get(E2E, Record()), digest_of(sources)
    if record.digest == digest:
        print(f"make e2e is not due: it passed on these sources at {record.at}, in {record.seconds:.0f} s")
        return 0
    cost = run(Stage("e2e", ("make", "--no-print-directory", "e2e")))
    print(f"\n{table([cost], cost.wall)}")
    passed = Record(digest, datetime.now(UTC).isoformat(timespec="seconds"), round(cost.wall))
    result = record_after(record, [cost], passed, is_changed=digest != digest_of(sources))
    if result is not None:
        write_record(E2E, result)
    return 0 if cost.code == 0 else _refuse("failed: e2e")


def preparations_of(one: Slice) -> list[Stage]:
    """What is built before a slice, unless the cache has it."""
    programs = Stage(f"{one.name} programs", python("tests/kind/builds.py", *PROGRAMS, *one.programs))
    compiled = Stage(f"{one.name} compile", python("tools/build_compiled.py"))
    return [programs, compiled] if one.is_compiled else [programs]


def _run_slice(one: Slice, workers: int, deadline: float | None) -> list[Cost]:
    """Run the stages of a slice, until one is ended at the deadline of the monotonic clock."""
    made = list[Cost]()
    for preparation in preparations_of(one):  # without a limit: the next slices use what they build
        cost = run(preparation)
        if cost.code != 0:
            return [cost]
    try:
        stages = stages_of(one, workers)
    except subprocess.CalledProcessError as error:  # uv printed why
        return [Cost(f"{one.name} environment", 0.0, 0.0, error.returncode)]
    for stage in stages:
        left = None if deadline is None else max(1.0, deadline - time.monotonic())
        made.append(run(stage, left))
        if made[-1].code is None:
            break
    return made


def state_of(known: Mapping[str, Slice], digests: Mapping[str, str], records: Mapping[str, Record]) -> str:
    """When each slice last passed on this machine, and what is to be known of it since then."""
    rows = [("SLICE", "LAST PASSED", "SINCE THEN")]
    for name, one in known.items():
        record = records.get(name, Record())
        notes = ["unchanged" if record.digest == digests[name] else "sources changed"] if record.at else []
        if record.is_unfinished:
            notes.append(f"not finished within {record.seconds / 60:.0f} min")
        if one.manual:
            notes.append(f"not automatic: {one.manual}")
        rows.append((name, record.at or "never on this machine", "; ".join(notes)))
    return "\n".join(columns(rows))


def _refuse(message: str, code: int = 1) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def options_of(words: list[str]) -> argparse.Namespace:
    """What the command line says. Slices and options may come in any order."""
    parser = argparse.ArgumentParser(prog="stages.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", choices=["test", "long", "e2e"])
    parser.add_argument("slices", nargs="*", metavar="SLICE")
    parser.add_argument("--due", action="store_true", help="only the slices that are due on this machine")
    parser.add_argument("--minutes", type=float, help="time that slices may take together. Default: no limit")
    # tests wait for brokers, API servers and operators more than half of their time
    workers = len(os.sched_getaffinity(0)) + 3
    parser.add_argument(
        "--workers", type=int, default=workers, help="test processes at the same time. Default: three more than cores"
    )
    return parser.parse_intermixed_args(words)


def main() -> int:
    """Entry point; returns the exit code."""
    options = options_of(sys.argv[1:])
    if options.run == "test":
        return run_test(options.workers)
    if options.run == "e2e":
        return run_e2e()
    return run_long(options.slices, only_due=options.due, minutes=options.minutes, workers=options.workers)


if __name__ == "__main__":
    raise SystemExit(main())
