"""A build on a standalone cluster of two workers, with a real Kafka and a real S3 between everyone, and its faults.

Driver, executors and subscribers are processes of their own, which share nothing but the source, the broker and the
bucket.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.bulk.spark.pipeline import DRIVER_PACKAGES
from mailboat.clock import Deadline, SystemClock
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.model.identifiers import Offset
from mailboat.model.messages import PackageMessage
from mailboat.wire.messages import decode_message
from support.fault_proxy import Fault, FaultProxy
from support.kafka_broker import KafkaBroker
from support.page_forest import ForestSettings, make_forest
from support.s3_server import ADMIN, S3Server
from support.spark_cluster import ClusterSettings, SparkCluster

# seven Java machines start on what cores there are
pytestmark = [pytest.mark.long("spark"), pytest.mark.timeout(1_800)]

BUDGET = ("--budget", "20kB", "--nodes", "2")
"""Makes more packages of the site than a driver builds in its own process."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    settings = ClusterSettings(tmp_path_factory.mktemp("cluster"), start_seconds=600.0)
    with SparkCluster(settings, SystemClock()) as cluster:
        yield cluster


@dataclass
class Boat:
    """A home on Kafka and S3, whose requests to S3 go through a proxy."""

    home: Path
    proxy: FaultProxy
    command_line: Any
    drivers: list[subprocess.Popen[str]] = field(default_factory=list)

    def words(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "mailboat.cli", "--home", str(self.home), *map(str, words)]

    def build(self, cluster: SparkCluster, site: Path) -> subprocess.Popen[str]:
        """Start a driver."""
        words = self.words("bulk", "build", site, *BUDGET, "--master", cluster.master, "-o", "json")
        environment = {**os.environ, **cluster.driver_environment}
        pipe = subprocess.PIPE
        self.drivers.append(subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=environment))
        return self.drivers[-1]

    def close(self) -> None:
        for driver in self.drivers:
            if driver.poll() is None:
                driver.kill()
            driver.communicate()

    def packages(self) -> list[PackageMessage]:
        with Workspace(Home(self.home)) as workspace:
            topic = workspace.package_topic
            offsets = range(workspace.journal.bounds(topic).next_offset)
            records = [workspace.journal.record_at(topic, Offset(offset)) for offset in offsets]
            found = [decode_message(record.headers, record.value) for record in records if record is not None]
            return [item for item in found if isinstance(item, PackageMessage)]


@pytest.fixture
def boat(
    tmp_path: Path, kafka_broker: KafkaBroker, s3_server: S3Server, command_line: Callable[[Path], Any]
) -> Iterator[Boat]:
    home, name = tmp_path / "boat", f"bulk-{uuid.uuid4().hex[:8]}"
    commands = command_line(home)
    commands.do("init", "--kafka", kafka_broker.bootstrap_servers)
    (home / "key").write_text(ADMIN.access_key_id)
    (home / "secret").write_text(ADMIN.secret_access_key)
    with FaultProxy(s3_server.port) as proxy:
        file = home / "mailboat.yaml"
        document = yaml.safe_load(file.read_text())
        document["journal"]["topic_prefix"] = f"{name}-"
        document["publisher"]["transfer"] = "reference"
        document["blobs"]["s3"] = {
            "bucket": s3_server.bucket,
            "prefix": f"{name}/",
            "endpoint_url": proxy.url,
            "region": "us-east-1",
            "path_style": True,
            "access_key_id": {"file": "key"},
            "secret_access_key": {"file": "secret"},
        }
        file.write_text(yaml.safe_dump(document))
        commands.do("journal", "ensure")
        with closing(Boat(home, proxy, commands)) as boat:
            yield boat


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    make_forest(site, ForestSettings(pages=400, sections=10))
    (site / "large.bin").write_bytes(os.urandom(300_000))
    return site


def equals_source(boat: Boat, site: Path, target: Path) -> None:
    boat.command_line.do("subscribe", "web", "--into", f"files:{target}", "--until", "caught-up")
    assert boat.command_line.do("content", "diff", site, f"files:{target}").lines == ["no difference"]


def in_order(boat: Boat) -> bool:
    parts = [package.bulk for package in boat.packages()]
    return (
        [part.sequence for part in parts if part is not None] == list(range(parts[0].total)) == list(range(len(parts)))
    )


def end_of(driver: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = driver.communicate(timeout=900)
    assert driver.returncode == 0, f"{err[-3000:]}{out}"
    return json.loads(out)  # type: ignore[no-any-return]


def test_two_workers_build_what_subscribers_import(
    cluster: SparkCluster, boat: Boat, site: Path, tmp_path: Path
) -> None:
    report = end_of(boat.build(cluster, site))
    assert (report["state"], report["published"]) == ("complete", report["total"])
    assert report["total"] > DRIVER_PACKAGES
    assert cluster.workers_used() == {0, 1}
    assert in_order(boat)
    equals_source(boat, site, tmp_path / "web")


def test_an_executor_that_is_killed_while_it_uploads_costs_nothing_but_time(
    cluster: SparkCluster, boat: Boat, site: Path, tmp_path: Path
) -> None:
    driver = boat.build(cluster, site)
    deadline = Deadline(SystemClock(), 900.0)
    # a slow driver puts its claim more than once before there are executors
    while boat.proxy.requests["PUT"] < 3 or not (victims := cluster.executors()):
        assert driver.poll() is None, driver.communicate()
        assert not deadline.is_over()
        threading.Event().wait(0.01)
    os.kill(victims[0], signal.SIGKILL)
    report = end_of(driver)
    assert report["published"] == report["total"]
    assert in_order(boat)
    equals_source(boat, site, tmp_path / "web")


def test_a_storm_of_503s_is_waited_out(cluster: SparkCluster, boat: Boat, site: Path, tmp_path: Path) -> None:
    claims_and_record = 3  # of the driver, before the executors store anything
    boat.proxy.inject(Fault(method="PUT", times=24, skip=claims_and_record, status=503, code="SlowDown"))
    report = end_of(boat.build(cluster, site))
    assert report["published"] == report["total"]
    assert in_order(boat)
    equals_source(boat, site, tmp_path / "web")
