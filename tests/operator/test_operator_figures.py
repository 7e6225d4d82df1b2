"""What the operator costs and how fast it is: many Topics on a real broker, many Publishers, with the chart's rights.

Gated are counts, and the processor time, which is the same on a machine that others use too, for some hundreds of them.
With `--full-length` there are a thousand, and what a clock says is gated as well. What was measured is printed.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from mailboat import __version__
from mailboat.clock import SystemClock
from mailboat.testing.wait import PATIENCE_SECONDS
from support.kafka_broker import BrokerSettings, KafkaBroker

SHORT, SHORT_PUBLISHERS, FULL = 300, 150, 1000
FACTOR = 10
WANTED_PER_SECOND = 20
MOST_TIMES_LONGER = 12
SHORT_TIMES = 15
"""Thirty objects beside other tests tell little of ten times as many: what grows with the square shows all the same."""
MOST_SECONDS = 900.0
READY_LOOKS = r'mailboat_operator_reconciliations_total{kind="Topic",outcome="ready"}'
RELEASES = 'mailboat_operator_api_writes_total{kind="Topic",verb="release"}'
LONE_CHANGES = 9
WRITES = (
    ("ConfigMap", "apply"),
    ("Secret", "create"),
    ("Service", "apply"),
    ("StatefulSet", "apply"),
    ("Publisher", "status"),
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that no one else fills."""
    with KafkaBroker(BrokerSettings(tmp_path / "kafka"), SystemClock()) as made:
        yield made


class Fleet:
    """Many Topics of one Journal."""

    def __init__(self, replicas: Any) -> None:
        self.replicas, self.made = replicas, 0

    def add(self, count: int) -> float:
        """Make so many more Topics; how long it took until all were ready."""
        looks = self.replicas.figure("one", READY_LOOKS)
        started, names = time.monotonic(), [f"t-{self.made + number:04}" for number in range(count)]
        self.made += count
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._make, names))
        seldom(lambda: self.replicas.figure("one", READY_LOOKS) >= looks + count)
        seldom(lambda: self.ready() == self.made)
        return time.monotonic() - started

    def _make(self, name: str) -> None:
        spec = {"journalRef": {"name": "main"}, "topicName": name, "reclaimPolicy": "Delete"}
        self.replicas.make("Topic", name, spec)

    def ready(self) -> int:
        """How many are as they should be."""
        return sum(_is_ready(item) for item in self._list())

    def _list(self) -> list[dict[str, Any]]:
        found = self.replicas.server.http.get(self.replicas.url("Topic")).json()["items"]
        return [item for item in found if item["metadata"]["name"].startswith("t-")]

    def writes(self) -> float:
        """Of the operator, to Topics."""
        metric = "mailboat_operator_api_writes_total"
        verbs = ("hold", "status")
        return sum(self.replicas.figure("one", f'{metric}{{kind="Topic",verb="{verb}"}}') for verb in verbs)

    def change_one(self, number: int) -> float:
        """Give one Topic more partitions; how long until that is done and said."""
        url = self.replicas.url("Topic", f"t-{number:04}")
        headers = {"Content-Type": "application/merge-patch+json"}
        http, started = self.replicas.server.http, time.monotonic()
        http.patch(url, json={"spec": {"partitions": 2}}, headers=headers).raise_for_status()
        while http.get(url).json()["status"].get("partitions") != 2:
            assert time.monotonic() < started + PATIENCE_SECONDS
            time.sleep(0.01)
        return time.monotonic() - started

    def delete_all(self) -> float:
        """Delete all Topics; how long until they are gone."""
        started, releases = time.monotonic(), self.replicas.figure("one", RELEASES)
        http, names = self.replicas.server.http, [item["metadata"]["name"] for item in self._list()]
        with ThreadPoolExecutor(8) as pool:
            for answer in pool.map(lambda name: http.delete(self.replicas.url("Topic", name)), names):
                answer.raise_for_status()
        seldom(lambda: self.replicas.figure("one", RELEASES) >= releases + len(names))
        seldom(lambda: not self._list())
        self.made = 0
        return time.monotonic() - started


class Authors:
    """Many Publishers of one Journal: an object, four children and a status each, and nothing to ask of brokers."""

    def __init__(self, replicas: Any) -> None:
        self.replicas, self.made = replicas, 0

    def add(self, count: int) -> float:
        """Make so many more; how long it took until all had their children and said so."""
        started, names = time.monotonic(), [f"p-{self.made + number:04}" for number in range(count)]
        self.made += count
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self.replicas.make("Publisher", name, {"journalRef": {"name": "main"}}), names))
        seldom(lambda: self.writes() >= self.made * len(WRITES))
        seldom(lambda: self._told() == self.made)
        return time.monotonic() - started

    def _told(self) -> int:
        found = self.replicas.server.http.get(self.replicas.url("Publisher")).json()["items"]
        conditions = [(item.get("status") or {}).get("conditions") or [{}] for item in found]
        return sum(condition[0].get("reason") == "PodsNotReady" for condition in conditions)

    def writes(self) -> float:
        """Of the operator, to Publishers and their children."""
        metric = "mailboat_operator_api_writes_total"
        return sum(self.replicas.figure("one", f'{metric}{{kind="{kind}",verb="{verb}"}}') for kind, verb in WRITES)


def seldom(holds: Callable[[], bool]) -> None:
    """Wait, without reading logs meanwhile."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() < started + MOST_SECONDS
        time.sleep(0.05)


def _is_ready(manifest: dict[str, Any]) -> bool:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


class Costs:
    """What a process used."""

    def __init__(self, process_id: int) -> None:
        self._folder = Path(f"/proc/{process_id}")

    @property
    def processor_seconds(self) -> float:
        """Until now."""
        after_name = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def mib(self) -> int:
        """Of memory, now."""
        lines = (self._folder / "status").read_text().splitlines()
        return round(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024)


@dataclass(frozen=True)
class Growth:
    """So many objects more: how long that took, and what it cost."""

    seconds: float
    processor_seconds: float
    writes: float


def grow(fleet: Fleet | Authors, costs: Costs, count: int) -> Growth:
    used, written = costs.processor_seconds, fleet.writes()
    seconds = fleet.add(count)
    return Growth(seconds, costs.processor_seconds - used, fleet.writes() - written)


@pytest.mark.long("crashes-and-fuzz")
@pytest.mark.timeout(600)
def test_many_topics(
    replicas: Any, broker: KafkaBroker, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    is_full = bool(request.config.getoption("--full-length"))
    many = FULL if is_full else SHORT
    replicas.make("Journal", "main", {"kafka": {"bootstrapServers": [broker.bootstrap_servers]}})
    process = replicas.start("one", version=__version__, lease_seconds=60)
    replicas.wait(lambda: replicas.reason("Journal", "main") == "AsSpecified")
    fleet, costs = Fleet(replicas), Costs(process.pid)
    idle_mib = costs.mib
    first = grow(fleet, costs, many // FACTOR)
    deleted_per_second = fleet.made / fleet.delete_all()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    # a broker lists a topic for a moment after its deletion is durable
    seldom(lambda: not any(name.startswith("t-") for name in admin.list_topics(timeout=PATIENCE_SECONDS).topics))
    whole, mib, before = grow(fleet, costs, many), costs.mib, fleet.writes()
    lone = [fleet.change_one(fleet.made - 1 - number) for number in range(LONE_CHANGES)]
    figures = {
        "topics": many,
        "load": round(os.getloadavg()[0]),
        "topics_per_second": round(many / whole.seconds, 1),
        "topics_per_processor_second": round(many / whole.processor_seconds, 1),
        "times_longer_for_ten_times_as_many": round(whole.seconds / first.seconds, 1),
        "times_the_cost_for_ten_times_as_many": round(whole.processor_seconds / first.processor_seconds, 1),
        "writes_a_created_topic": whole.writes / many,
        "writes_a_changed_topic": (fleet.writes() - before) / LONE_CHANGES,
        "lone_change_median_seconds": round(statistics.median(lone), 2),
        "idle_mib": idle_mib,
        "mib": mib,
        "deleted_per_second": round(deleted_per_second, 1),
    }
    with capsys.disabled():
        print(f"\n{json.dumps(figures)}")  # noqa: T201
    assert figures["topics_per_processor_second"] >= WANTED_PER_SECOND, figures
    assert figures["times_the_cost_for_ten_times_as_many"] <= (MOST_TIMES_LONGER if is_full else SHORT_TIMES), figures
    # the finalizer, the intention before the topic is created, the result; brokers may report a topic late
    assert figures["writes_a_created_topic"] <= 3.1, figures
    assert figures["writes_a_changed_topic"] <= 2, figures
    assert figures["mib"] <= 150, figures
    if is_full:
        assert figures["topics_per_second"] >= WANTED_PER_SECOND, figures
        assert figures["times_longer_for_ten_times_as_many"] <= MOST_TIMES_LONGER, figures
        assert figures["lone_change_median_seconds"] <= 1, figures


@pytest.mark.long("crashes-and-fuzz")
@pytest.mark.timeout(1800)
def test_many_publishers(replicas: Any, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    is_full = bool(request.config.getoption("--full-length"))
    many = FULL if is_full else SHORT_PUBLISHERS
    replicas.make("Journal", "main", {"kafka": {"bootstrapServers": ["127.0.0.1:1"]}})
    process = replicas.start("one", version=__version__, lease_seconds=60, resync_seconds=3600)
    replicas.wait(lambda: replicas.reason("Journal", "main") == "BrokersUnreachable")
    authors, costs = Authors(replicas), Costs(process.pid)
    first = grow(authors, costs, many // FACTOR)
    whole = grow(authors, costs, many)
    figures = {
        "publishers": many,
        "load": round(os.getloadavg()[0]),
        "publishers_per_second": round(many / whole.seconds, 1),
        "milliseconds_of_processor_each": round(whole.processor_seconds / many * 1000, 1),
        "times_longer_for_ten_times_as_many": round(whole.seconds / first.seconds, 1),
        "times_the_cost_for_ten_times_as_many": round(whole.processor_seconds / first.processor_seconds, 1),
        "writes_a_created_publisher": whole.writes / many,
        "mib": costs.mib,
    }
    with capsys.disabled():
        print(f"\n{json.dumps(figures)}")  # noqa: T201
    assert figures["writes_a_created_publisher"] <= len(WRITES) + 1, figures  # a look while children appear
    assert figures["times_the_cost_for_ten_times_as_many"] <= (MOST_TIMES_LONGER if is_full else SHORT_TIMES), figures
    assert figures["mib"] <= 150, figures
    if is_full:
        assert figures["times_longer_for_ten_times_as_many"] <= MOST_TIMES_LONGER, figures
