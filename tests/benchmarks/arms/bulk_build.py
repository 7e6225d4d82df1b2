"""Project: bulk builds on Spark, one after the other in one session.

Usage: bulk_build.py MASTER MAX_BYTES MAX_NODES STEP…, where a step is HOME=SOURCE, a build, or `change=SOURCE`, which
changes 5 % of the source's pages. Prints as JSON `builds`: of each what was built and published, the seconds of its
stages, its CPU and that of its build stage (of this process, the Java machine and the workers), the peaks so far of
this process and of the Java machine, and what Spark shuffled so far. A first build of something small takes what warms
up: imports, Java's classes, the workers.
"""

import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mailboat.bulk.assembly import ports_for, recipe_for
from mailboat.bulk.build_records import BinResult, BuildRequest, Recipe
from mailboat.bulk.build_run import BuildOrder, BuildRun
from mailboat.bulk.cutter import Bin, Budget
from mailboat.bulk.spark.exchange import ExecutorWorkspace
from mailboat.bulk.spark.pipeline import SmallBuild, SparkPipeline
from mailboat.bulk.spark.spark_session import SessionSettings, open_session
from mailboat.bulk.spark.stages import StageRunner
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.model.paths import ROOT
from support.page_forest import change_some

HEAP = "1g"
"""Of the Java machine, as a user has it."""
TICKS = os.sysconf("SC_CLK_TCK")
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def family_of(pid: int) -> set[int]:
    """A process and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {pid}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def cpu_of(pids: set[int]) -> float:
    """CPU seconds of processes and of their children that ended."""
    total = 0
    for pid in pids:
        try:
            said = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, said[11:15]))
    return total / TICKS


def peak_of(pid: int) -> int:
    """The largest resident size of a process, in bytes."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def shuffled(session: Any) -> int:
    """Bytes that all stages wrote for others to read."""
    machine, gateway = session.sparkContext._jvm, session.sparkContext._gateway
    none = machine.java.util.ArrayList()
    found = session.sparkContext._jsc.sc().statusStore()
    stages = found.stageList(none, False, False, gateway.new_array(machine.double, 0), none)
    return sum(stages.apply(number).shuffleWriteBytes() for number in range(stages.size()))


class MeasuredPipeline(SparkPipeline):
    """Counts the CPU of the build stage."""

    build_cpu_seconds = 0.0

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        """See `SparkPipeline`."""
        before = cpu_of(family_of(os.getpid()))
        yield from super().build(recipe, bins)
        self.build_cpu_seconds += cpu_of(family_of(os.getpid())) - before


def built(session: Any, home: Path, source: str, budget: Budget) -> dict[str, Any]:
    """Build once; what came of it."""
    before, began = cpu_of(family_of(os.getpid())), time.monotonic()
    with Workspace(Home(home)) as workspace:
        recipe = recipe_for(workspace, BuildRequest(source, [ROOT], budget))
        runner = StageRunner(session)
        on_spark = SmallBuild(packages=0, content_bytes=0)
        pipeline = MeasuredPipeline(runner, ExecutorWorkspace.of(workspace.home), on_spark)
        report = BuildRun(BuildOrder(recipe), ports_for(workspace, pipeline)).run()
        seconds, cpu_seconds = time.monotonic() - began, cpu_of(family_of(os.getpid())) - before
        documents = workspace.blobs.builds
        manifest = sum(len(documents.read(name) or b"") for name in documents.names(f"{report.build_id}."))
    return {
        **{name: value for name, value in asdict(report).items() if name != "problems"},
        "problems": [list(problem) for problem in report.problems],
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "build_cpu_seconds": pipeline.build_cpu_seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "java_peak_bytes": peak_of(session.sparkContext._gateway.proc.pid),
        "shuffle_bytes": shuffled(session),
        "manifest_bytes": manifest,
        "stages": [asdict(figure) | {"skew": figure.skew} for figure in runner.figures],
    }


def main() -> None:
    master, max_bytes, max_nodes, *steps = sys.argv[1:]
    budget = Budget(int(max_bytes), int(max_nodes))
    warnings.simplefilter("ignore")
    properties = {
        "spark.local.dir": os.environ.get("TMPDIR", "/tmp"),
        "spark.ui.enabled": "false",
        "spark.driver.memory": HEAP,
        "spark.driver.extraJavaOptions": QUICK,
    }
    answer: dict[str, Any] = {"builds": []}
    with open_session(SessionSettings(master, "bench", properties)) as session:
        for step in steps:
            home, _, source = step.partition("=")
            if home == "change":
                answer["changed"] = change_some(Path(source), 0.05)
            else:
                answer["builds"].append(built(session, Path(home), source, budget))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
