"""The same pages, published and imported by Sling's agents and by ours: CPU time of a package, both on one broker.

Sling's JVM is warm: it has handled `WARM` packages before those that are measured. What our commands take to start is
subtracted. Sling's repository and log reader are in memory, our targets are files.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from mailboat.composition.home import create_home
from mailboat.composition.workspace import initialise
from mailboat.config.document import Config, PackageType, PublisherConfig, Transfer
from mailboat.config.storage import JournalConfig, KafkaConfig

RESULTS: Final = Path(__file__).parents[2] / "bench-results"
WARM: Final = 1500
MEASURED: Final = 500
SLING_IDS: Final = ("5a1e0000-0000-4000-8000-00000000000a", "5a1e0000-0000-4000-8000-00000000000b")
FOLDER: Final = "/content/pages"
LAST: Final = f"{FOLDER}/page-{WARM + MEASURED - 1}/text9"
GATES: Final = {"import": 1.0, "publish": 1.5}
"""Ours / Sling's. Publishing measured 0.45 and 0.58 on two cores."""


def cpu_seconds(*words: str | Path) -> float:
    """User and system time of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "mailboat.cli", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.long("beside-sling")
@pytest.mark.timeout(1800)
def test_cpu_of_a_package_beside_sling(kafka_broker: Any, optimised_sling_process: Any, tmp_path: Path) -> None:
    prefix, servers = f"{tmp_path.name}-", kafka_broker.bootstrap_servers
    journal = JournalConfig(kafka=KafkaConfig((servers,)), topic_prefix=prefix)
    ours = PublisherConfig(package_type=PackageType.FILEVAULT, filevault_name="journal", transfer=Transfer.INLINE)
    home = create_home(tmp_path / "home", Config(journal=journal, publisher=ours))
    with initialise(home):
        pass
    ask, count = optimised_sling_process.ask, WARM + MEASURED

    ask("join", SLING_IDS[0], servers, prefix)
    ask("publisher", "sling-author", "journal")
    ask("put-pages", FOLDER, count)
    ask("distribute-pages", FOLDER, 0, WARM)
    theirs = {"publish": ask("distribute-pages", FOLDER, WARM, count) / MEASURED}
    ask("join", SLING_IDS[1], servers, prefix)
    ask("subscriber", "sling-edge", "journal", True, -1, "", "sling-author")
    warm = ask("await", f"{FOLDER}/page-{WARM - 1}/text9")
    theirs["import"] = (ask("await", LAST) - warm) / MEASURED
    ask("leave")

    target, at_home = f"sqlite:{tmp_path}/target.db", ("--home", home.path)
    subscribe = (*at_home, "subscribe", "edge", "--into", target, "--until", "caught-up")
    publish = (*at_home, "publish", "--each", "--source", target)
    whole, start = cpu_seconds(*subscribe), cpu_seconds(*subscribe)
    mine = {"import": (whole - start) / count}
    pages = [f"{FOLDER}/page-{number}" for number in range(count)]
    start, whole = cpu_seconds(*publish, pages[0]), cpu_seconds(*publish, *pages)
    mine["publish"] = (whole - start) / (count - 1)

    ratios = {verb: mine[verb] / theirs[verb] for verb in GATES}
    facts = {"seconds": mine, "sling_seconds": theirs, "ratios": ratios, "load": os.getloadavg()[0]}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "beside-sling.json").write_text(json.dumps(facts, indent=2))
    assert {verb: ratio for verb, ratio in ratios.items() if ratio > GATES[verb]} == {}
