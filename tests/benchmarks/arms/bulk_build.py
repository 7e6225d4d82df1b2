"""Project: one attempt at a bulk build on Spark.

Usage: bulk_build.py HOME SOURCE MASTER MAX_BYTES MAX_NODES. Prints the report as JSON: what was built and published,
the seconds of the stages, and from the start of the session on the CPU of everything (this process, the Java machine,
the workers), the peaks of this process and of the Java machine, and what Spark shuffled.
"""

import json
import os
import resource
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mailboat.agent.composition import Workspace
from mailboat.agent.home import Home
from mailboat.bulk.assembly import BuildWish, ports_for, recipe_for
from mailboat.bulk.cutting import Budget
from mailboat.bulk.running import BuildOrder, BuildRun
from mailboat.bulk.spark.pipeline import SparkPipeline, WorkPlace
from mailboat.bulk.spark.session import SessionSettings, open_session
from mailboat.bulk.spark.stages import StageRunner
from mailboat.model.paths import ROOT

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


def main() -> None:
    home, source, master, max_bytes, max_nodes = sys.argv[1:6]
    warnings.simplefilter("ignore")
    properties = {"spark.local.dir": os.environ.get("TMPDIR", "/tmp"), "spark.ui.enabled": "false"}
    with open_session(SessionSettings(master, "bench", "1g", QUICK, properties)) as session:
        session.range(2, numPartitions=2).mapInArrow(lambda given: given, "id BIGINT").count()  # workers are there
        java = session.sparkContext._gateway.proc.pid
        before, began = cpu_of(family_of(os.getpid())), time.monotonic()
        with Workspace(Home(Path(home))) as workspace:
            recipe = recipe_for(workspace, BuildWish(source, [ROOT], Budget(int(max_bytes), int(max_nodes))))
            runner = StageRunner(session)
            ports = ports_for(workspace, SparkPipeline(runner, WorkPlace.of(workspace.home)))
            report = BuildRun(BuildOrder(recipe), ports).run()
            manifest = sum(
                len(workspace.blobs.builds.read(name) or b"")
                for name in workspace.blobs.builds.names(f"{report.build_id}.")
            )
        answer = {
            **{name: value for name, value in asdict(report).items() if name != "problems"},
            "problems": [list(one) for one in report.problems],
            "count": report.packages,
            "seconds": time.monotonic() - began,
            "cpu_seconds": cpu_of(family_of(os.getpid())) - before,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "java_peak_bytes": peak_of(java),
            "shuffle_bytes": shuffled(session),
            "manifest_bytes": manifest,
            "stages": [asdict(one) | {"skew": one.skew} for one in runner.figures],
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
