"""Figures of bulk builds: what Spark costs beside the builder, what grows with the tree, what a second run repeats.

Throughput is taken with packages of the usual budget; for all else a page is a package (one node to a package), so
100,000 packages are 100,000 pages. Sizes are log-normal, folders hot by a power law; the full length takes its words
from CPython's documentation where it is installed. Each session builds something small first, which warms it up. All
that is gated is processor time, bytes and counts, so that a busy machine does not decide; what the clock said is told.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.page_forest import ForestSettings, make_forest

CORES = 2
MASTER = f"local[{CORES}]"
MAX_BYTES, MAX_NODES = 4 * 1024 * 1024, 2_000  # the usual budget
ONE_NODE = 1
DOCUMENTATION = Path("/usr/share/doc/python3-doc/html")

pytestmark = pytest.mark.timeout(7_200)


def forest(bench: Any, pages: int) -> Path:
    """A site of so many pages; made once."""
    folder = bench.scratch / f"forest-{pages}"
    if not folder.exists():
        material = DOCUMENTATION if DOCUMENTATION.is_dir() else None
        make_forest(folder, ForestSettings(pages, sections=max(40, pages // 100)), material)
    return Path(folder)


def new_home(bench: Any, name: str) -> Path:
    """A home that nothing was published with."""
    home = Path(bench.folder(name)) / "home"
    subprocess.run([sys.executable, "-m", "mailboat.cli", "--home", home, "init"], check=True, capture_output=True)
    return home


def builds(bench: Any, max_nodes: int, *steps: str) -> dict[str, Any]:
    """What the builds of one session come to, without the first of them, which is small and warms all tasks up."""
    scratch = {"TMPDIR": str(bench.scratch)}
    small = forest(bench, 100 if max_nodes == ONE_NODE else 4_000)  # some packages for each task
    warming = f"{new_home(bench, 'warming')}={small}"
    result = bench.run("arms/bulk_build.py", MASTER, MAX_BYTES, max_nodes, warming, *steps, env=scratch)
    return {**result, "builds": result["builds"][1:]}


def stage_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    """A stage that may have run in several pieces, as one."""
    found = [stage for stage in result["stages"] if stage["name"] == name]
    return {"seconds": sum(item["seconds"] for item in found), "skew": max(item["skew"] for item in found)}


@pytest.mark.long("figures")
def test_spark_builds_nearly_as_fast_as_plain_loops_on_all_cores(bench: Any) -> None:
    site = forest(bench, bench.length(16_000, 100_000))
    homes = [new_home(bench, f"floor-{core}") for core in range(CORES)]
    run = partial(bench.run, "floors/build_bins.py")
    with ThreadPoolExecutor(CORES) as pool:  # as many plain loops as Spark has cores, each over all of it
        floors = list(pool.map(lambda home: run(home, site, MAX_BYTES, MAX_NODES), homes))
    (result,) = builds(bench, MAX_NODES, f"{new_home(bench, 'throughput')}={site}")["builds"]
    assert result["built"] == floors[0]["count"]
    build = stage_of(result, "build")
    plain_rate = sum(floor["count"] / floor["seconds"] for floor in floors)
    slower = plain_rate / (result["built"] / build["seconds"])
    dearer = result["build_cpu_seconds"] / (sum(floor["cpu_seconds"] for floor in floors) / CORES)
    facts = {"packages": result["built"], "skew": round(build["skew"], 2), "by_the_clock": round(slower, 2)}
    facts["stage_cpu_seconds"] = round(result["build_cpu_seconds"], 2)
    bench.report_count(
        "bulk-throughput",
        dearer,
        target=1 / 0.8,
        gate=bench.length(3, 1 / 0.8),
        unit="packages a second of CPU, plain loops ÷ Spark",
        **facts,
    )


@pytest.mark.long("figures")
def test_time_and_memory_of_the_driver_follow_the_packages(bench: Any) -> None:
    sites = [forest(bench, pages) for pages in (bench.length(300, 10_000), bench.length(1_200, 100_000))]
    runs = [builds(bench, ONE_NODE, f"{new_home(bench, f'growth-{site.name}')}={site}") for site in sites]
    results = [run["builds"][0] for run in runs]
    growth = results[1]["packages"] / results[0]["packages"]
    bench.report_count(
        "bulk-growth",
        results[1]["cpu_seconds"] / results[0]["cpu_seconds"] / growth,
        target=1.1,
        unit="CPU a package, of many ÷ of few",
        packages=results[1]["packages"],
        seconds=round(results[1]["seconds"], 1),
        **{f"{name}_seconds": round(value, 1) for name, value in results[1]["stage_seconds"].items()},
    )
    memory = [result["peak_bytes"] + result["java_peak_bytes"] for result in results]
    bench.report_count(
        "bulk-driver-memory", memory[1] / memory[0], target=1.5, unit="ratio of peaks", peak_mib=memory[1] >> 20
    )
    shuffled = [result["shuffle_bytes"] / result["manifest_bytes"] for result in results]
    bench.report_count("bulk-shuffle", max(shuffled), target=2.0, unit="shuffled ÷ manifest bytes")


@pytest.mark.long("figures")
def test_a_second_run_repeats_nothing_and_a_small_change_uploads_little(bench: Any) -> None:
    site = forest(bench, bench.length(4_000, 20_000))
    build = f"{new_home(bench, 'again')}={site}"
    result = builds(bench, ONE_NODE, build, build, f"change={site}", build)
    first, again, later = result["builds"]
    assert (again["published"], again["built"]) == (0, 0)
    bench.report_count(
        "bulk-again",
        again["cpu_seconds"] / first["cpu_seconds"],
        target=0.1,
        unit="CPU of a second run ÷ the first",
        packages=first["packages"],
        cpu_seconds=round(first["cpu_seconds"], 1),
    )
    assert later["published"] >= result["changed"]
    bench.report_count(
        "bulk-changed",
        later["content_bytes"] / first["content_bytes"],
        target=0.06,
        unit="bytes built after a change of 5 % ÷ at first",
        changed=result["changed"],
        published=later["published"],
    )


ROUNDS = 3
"""The median of so many: a command's processor time is a second, and a loaded machine makes it uneven."""


@pytest.mark.long("figures")
def test_one_changed_file_costs_little_more_than_a_publication(bench: Any) -> None:
    site = forest(bench, 16_000)
    page = min(site.rglob("*.html"))
    commands = {
        "build": ["--home", new_home(bench, "one-build"), "bulk", "build", site],
        "publish": ["--home", new_home(bench, "one-publish"), "publish", site, "--changed"],
    }
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(ROUNDS + 1):
        page.write_text(f"edit {number}")
        for name, command in commands.items():
            seconds = bench.run("arms/measured_command.py", *command)["cpu_seconds"]
            if number:  # the first round publishes the whole site
                spent[name].append(seconds)
    build, publish = (sorted(spent[name])[ROUNDS // 2] for name in commands)
    assert build <= 10.0, "a small build started Spark"
    bench.report_count(
        "bulk-one-change",
        build / publish,
        target=1.5,
        unit="CPU of `bulk build` ÷ of `publish --changed`, one file changed",
        build_cpu_seconds=round(build, 2),
        publish_cpu_seconds=round(publish, 2),
    )
