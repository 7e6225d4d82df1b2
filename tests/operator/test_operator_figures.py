"""What the operator costs and how fast it is: a thousand Topics on a real broker, with the chart's rights.

Gated are counts and ratios; seconds and bytes only as far as an order of magnitude goes. What was measured is printed.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from mailboat.clock import SystemClock
from mailboat.testing.kafka_broker import BrokerSettings, KafkaBroker

MANY, FEW = 1000, 100
READY_LOOKS = r'mailboat_operator_reconciliations_total{kind="Topic",outcome="ready"}'
RELEASES = 'mailboat_operator_api_writes_total{kind="Topic",verb="release"}'
LONE_CHANGES = 9


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that nobody else fills."""
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
        self.replicas.wait(lambda: self.replicas.figure("one", READY_LOOKS) >= looks + count, 300)
        self.replicas.wait(lambda: self.ready() == self.made, 300)
        return time.monotonic() - started

    def _make(self, name: str) -> None:
        spec = {"journalRef": {"name": "main"}, "topicName": name, "reclaimPolicy": "Delete"}
        self.replicas.make("Topic", name, spec)

    def ready(self) -> int:
        """How many are as they should be."""
        return sum(_is_ready(one) for one in self._list())

    def _list(self) -> list[dict[str, Any]]:
        found = self.replicas.server.http.get(self.replicas.url("Topic")).json()["items"]
        return [one for one in found if one["metadata"]["name"].startswith("t-")]

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
            assert time.monotonic() < started + 30
            time.sleep(0.01)
        return time.monotonic() - started

    def delete_all(self) -> float:
        """Delete all Topics; how long until they are gone."""
        started, releases = time.monotonic(), self.replicas.figure("one", RELEASES)
        http, names = self.replicas.server.http, [one["metadata"]["name"] for one in self._list()]
        with ThreadPoolExecutor(8) as pool:
            for answer in pool.map(lambda name: http.delete(self.replicas.url("Topic", name)), names):
                answer.raise_for_status()
        self.replicas.wait(lambda: self.replicas.figure("one", RELEASES) >= releases + len(names), 300)
        self.replicas.wait(lambda: not self._list(), 300)
        self.made = 0
        return time.monotonic() - started


def _is_ready(manifest: dict[str, Any]) -> bool:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def resident_mib(process_id: int) -> float:
    """Memory of a process."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@pytest.mark.timeout(600)
def test_a_thousand_topics(replicas: Any, broker: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    replicas.make("Journal", "main", {"kafka": {"bootstrapServers": [broker.bootstrap_servers]}})
    process = replicas.start("one", lease_seconds=60)
    replicas.wait(lambda: replicas.reason("Journal", "main") == "AsAskedFor")
    fleet, idle_mib = Fleet(replicas), resident_mib(process.pid)
    before = fleet.writes()
    few_seconds = fleet.add(FEW)
    created = fleet.writes() - before
    fleet.delete_all()
    many_seconds = fleet.add(MANY)
    mib = resident_mib(process.pid)
    before = fleet.writes()
    lone = [fleet.change_one(fleet.made - 1 - number) for number in range(LONE_CHANGES)]
    changed = fleet.writes() - before
    figures = {
        "topics_per_second": round(MANY / many_seconds, 1),
        "ratio_of_1000_to_100": round(many_seconds / few_seconds, 1),
        "writes_a_created_topic": created / FEW,
        "writes_a_changed_topic": changed / LONE_CHANGES,
        "lone_change_median_seconds": round(statistics.median(lone), 2),
        "idle_mib": round(idle_mib),
        "mib_at_1000": round(mib),
        "deleted_per_second": round(MANY / fleet.delete_all(), 1),
    }
    with capsys.disabled():
        print(f"\n{json.dumps(figures)}")  # noqa: T201
    names = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30).topics
    assert not [name for name in names if name.startswith("t-")]
    assert figures["topics_per_second"] >= 20, figures
    assert figures["ratio_of_1000_to_100"] <= 12, figures
    assert figures["writes_a_created_topic"] <= 2, figures  # the finalizer, and the status
    assert figures["writes_a_changed_topic"] <= 2, figures
    assert figures["lone_change_median_seconds"] <= 1, figures
    assert figures["mib_at_1000"] <= 150, figures
