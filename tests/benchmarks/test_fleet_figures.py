"""A fleet of agent processes on one machine: all equal in the end, small, and nearly asleep when nothing happens."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.content.sources.folder import FolderSource
from mailboat.content.targets.sqlite import open_sqlite_target
from support.engines import digest_of

MEBIBYTE = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
READY_SECONDS = 240.0
PROGRAM = (sys.executable, "-m", "mailboat.cli")


@contextmanager
def agent(file: Path, agents: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """One process of `agent run`, once it is ready: its process id, and where its API is. Ended by SIGTERM."""
    document = {"agents": agents, "http": {"port": 0}, "logs": {"level": "warning"}}
    file.write_text(yaml.safe_dump(document))
    command = [*PROGRAM, "agent", "run", "--config", str(file), "--home", str(file.parent), "-o", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.pid, json.loads(process.stdout.readline())["url"]
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def memory_bytes(pid: int) -> int:
    """What the process alone has in memory: shared pages count by their share (PSS)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) * 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def mailboat(*words: object) -> Any:
    done = subprocess.run([*PROGRAM, *map(str, words), "-o", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long("figures")
@pytest.mark.timeout(1800)
def test_a_fleet_of_processes_follows_one_publisher(bench: Any) -> None:
    count, packages, idle_seconds = bench.length(10, 100), bench.length(20, 100), bench.length(5, 30)
    folder = bench.folder("fleet")
    site = folder / "site"
    site.mkdir()
    for number in range(packages):
        (site / f"page-{number}.html").write_text(f"page {number}\n" * 40)
    mailboat("--home", folder, "init")
    with ExitStack() as fleet:
        publisher = {"publishers": [{"name": "author", "source": str(site)}]}
        _, url = fleet.enter_context(agent(folder / "author.yaml", publisher))
        pids = []
        for number in range(count):
            one = {"name": f"edge-{number:03}", "target": f"sqlite:{folder / f'edge-{number:03}.db'}"}
            pids.append(fleet.enter_context(agent(folder / f"edge-{number:03}.yaml", {"subscribers": [one]}))[0])
        for number in range(packages):
            seen = mailboat("--url", url, "publish", f"/page-{number}.html")
        package = seen["packages"][-1]["package_id"]
        arrived = mailboat("--url", url, "distributions", "get", package, "--wait", READY_SECONDS)
        assert len(arrived["imported"]) == count
        time.sleep(0.05)
        before = [cpu_seconds(pid) for pid in pids]
        started = time.monotonic()
        while time.monotonic() - started < idle_seconds:
            time.sleep(0.05)
        idle, passed_seconds = sum(map(cpu_seconds, pids)) - sum(before), time.monotonic() - started
        memory = [memory_bytes(pid) / MEBIBYTE for pid in pids]
    expected = {digest_of(FolderSource(site))}
    assert {digest_at(folder / f"edge-{number:03}.db") for number in range(count)} == expected
    share = idle / passed_seconds
    bench.report_count(
        "fleet-memory",
        statistics.median(memory),
        target=60,
        gate=90,
        unit="MiB an agent (PSS)",
        agents=count,
        largest=round(max(memory), 1),
    )
    bench.report_count(
        "fleet-idle",
        100 * share / count * 100,
        target=10,
        gate=30,
        unit="% of a core for a hundred idle agents",
        agents=count,
        seconds=round(passed_seconds, 1),
        measured_percent=round(100 * share, 2),
    )


@pytest.mark.timeout(600)
def test_a_package_is_imported_everywhere_soon_after_it_was_asked_for(bench: Any) -> None:
    """Reported, not gated: an idle system, one subscriber, from the request to the import."""
    folder = bench.folder("latency")
    (folder / "site").mkdir()
    (folder / "site/page.html").write_text("page")
    mailboat("--home", folder, "init")
    result = bench.run("arms/latency.py", folder, folder / "site", bench.length(20, 100))
    bench.report_count(
        "publish-to-imported",
        result["median_ms"],
        target=25,
        gate=10_000,
        unit="ms, median",
        largest=result["largest_ms"],
    )


def digest_at(file: Path) -> str:
    target = open_sqlite_target(file)
    try:
        return digest_of(target.source())
    finally:
        target.close()
