"""Figures of bulk builds: what Spark costs beside the builder, what grows with the tree, what a second run repeats.

A page is a package here (one node to a package), so 100,000 packages are 100,000 pages. Sizes are log-normal, folders
hot by a power law; the full length takes its words from CPython's documentation where it is installed.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mailboat.testing.page_forest import ForestSettings, change_some, make_forest

CORES = 2
MASTER = f"local[{CORES}]"
MAX_BYTES, MAX_NODES = 4 * 1024 * 1024, 1
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


def built(bench: Any, home: Path, site: Path) -> dict[str, Any]:
    scratch = {"TMPDIR": str(bench.scratch)}
    return dict(bench.run("arms/bulk_build.py", home, site, MASTER, MAX_BYTES, MAX_NODES, env=scratch))


def stage_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    """A stage that may have run in several waves, as one."""
    found = [one for one in result["stages"] if one["name"] == name]
    return {"seconds": sum(one["seconds"] for one in found), "skew": max(one["skew"] for one in found)}


def test_spark_builds_nearly_as_fast_as_plain_loops_on_all_cores(bench: Any) -> None:
    site = forest(bench, bench.length(3_000, 100_000))
    homes = [new_home(bench, f"floor-{core}") for core in range(CORES)]
    run = partial(bench.run, "floors/build_bins.py")
    with ThreadPoolExecutor(CORES) as pool:  # as many plain loops as Spark has cores, each over all of it
        floors = list(pool.map(lambda home: run(home, site, MAX_BYTES, MAX_NODES), homes))
    plain_rate = sum(one["count"] / one["seconds"] for one in floors)
    result = built(bench, new_home(bench, "throughput"), site)
    build = stage_of(result, "build")
    slower = plain_rate / (result["built"] / build["seconds"])
    bench.report_count(
        "bulk-throughput",
        slower,
        target=1 / 0.8,
        gate=bench.length(20.0, 1 / 0.6),
        unit=f"packages a second, {CORES} plain loops ÷ Spark",
        packages=result["built"],
        skew=round(build["skew"], 2),
    )


def test_time_and_memory_of_the_driver_follow_the_packages(bench: Any) -> None:
    small, large = bench.length(400, 10_000), bench.length(2_000, 100_000)
    results = [built(bench, new_home(bench, f"growth-{pages}"), forest(bench, pages)) for pages in (small, large)]
    growth = results[1]["packages"] / results[0]["packages"]
    times = [one["seconds"] for one in results]
    bench.report_count(
        "bulk-growth",
        times[1] / times[0] / growth,
        target=1.1,
        unit="time a package, of many ÷ of few",
        packages=results[1]["packages"],
        seconds=round(times[1], 1),
        **{f"{name}_seconds": round(value, 1) for name, value in results[1]["stage_seconds"].items()},
    )
    memory = [one["peak_bytes"] + one["java_peak_bytes"] for one in results]
    bench.report_count(
        "bulk-driver-memory", memory[1] / memory[0], target=1.5, unit="ratio of peaks", peak_mib=memory[1] >> 20
    )
    shuffled = [one["shuffle_bytes"] / one["manifest_bytes"] for one in results]
    bench.report_count("bulk-shuffle", max(shuffled), target=2.0, unit="shuffled ÷ manifest bytes")


def test_a_second_run_repeats_nothing_and_a_small_change_uploads_little(bench: Any) -> None:
    pages = bench.length(2_000, 20_000)
    site, home = forest(bench, pages), new_home(bench, "again")
    first, again = built(bench, home, site), built(bench, home, site)
    assert (again["published"], again["built"]) == (0, 0)
    bench.report_count(
        "bulk-again",
        again["cpu_seconds"] / first["cpu_seconds"],
        target=0.1,
        gate=bench.length(0.6, 0.2),
        unit="CPU of a second run ÷ the first",
        packages=first["packages"],
    )
    changed = change_some(site, 0.05)
    later = built(bench, home, site)
    assert later["published"] >= changed
    bench.report_count(
        "bulk-changed",
        later["content_bytes"] / first["content_bytes"],
        target=0.06,
        gate=0.075,
        unit="bytes built after a change of 5 % ÷ at first",
        changed=changed,
        published=later["published"],
    )
