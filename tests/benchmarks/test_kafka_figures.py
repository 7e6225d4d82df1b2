"""What importing from a real Kafka broker costs beyond the least that must be done, alone and for many at once."""

from __future__ import annotations

import statistics
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.kafka_broker import KafkaBroker


class KafkaHome:
    """A home on the broker, with topics of its own and some packages."""

    def __init__(self, bench: Any, broker: KafkaBroker, folder: Path, count: int) -> None:
        self._bench = bench
        self._servers = broker.bootstrap_servers
        self._topic = f"bench-{uuid.uuid4().hex[:8]}-package"
        self._count = count
        self.path = folder / "home"
        home = [*bench.mailboat, "--home", str(self.path)]
        bench.execute([*home, "init", "--kafka", self._servers])
        file = self.path / "mailboat.yaml"
        prefix = self._topic.removesuffix("package")
        file.write_text(file.read_text().replace('topic_prefix: ""', f'topic_prefix: "{prefix}"'))
        bench.execute([*home, "journal", "ensure"])
        bench.run("arms/prepare.py", self.path, count, "tree")

    def floor(self, target: Path) -> tuple[object, ...]:
        return ("floors/import_kafka.py", self._servers, self._topic, target, self._count)

    def project(self, name: str, target: Path) -> tuple[object, ...]:
        return ("arms/subscribe.py", self.path, name, f"sqlite:{target}")


@pytest.mark.timeout(600)
def test_importing_from_kafka_costs_little_more_than_a_bare_loop(bench: Any, kafka_broker: KafkaBroker) -> None:
    count = bench.length(6_000, 30_000)
    home = KafkaHome(bench, kafka_broker, bench.folder("import-kafka"), count)

    def floor() -> dict[str, Any]:
        return dict(bench.run(*home.floor(bench.folder("kafka-floor") / "target.db")))

    def project() -> dict[str, Any]:
        result = dict(bench.run(*home.project("reader", bench.folder("kafka-project") / "target.db")))
        assert result["count"] == count
        return result

    samples = bench.ratios(floor, project, bench.length(3, 6))
    bench.report_ratio("import-kafka", samples, target=2.0, gate=3.6, count=count, batch=100, nodes=3)


@pytest.mark.long("figures")
@pytest.mark.timeout(3600)  # twice fifty processes, four times, on cores that others may want
def test_many_subscribers_on_kafka_cost_each_what_one_costs(bench: Any, kafka_broker: KafkaBroker) -> None:
    packages, many = bench.length(1_500, 4_000), bench.length(10, 50)
    home = KafkaHome(bench, kafka_broker, bench.folder("fan-out-kafka"), packages)

    def project(subscribers: int) -> dict[str, Any]:
        targets = bench.folder("fan-out-kafka-targets")
        names = [f"r{number}" for number in range(subscribers)]
        result = bench.run_together([home.project(name, targets / f"{name}.db") for name in names])
        assert result["count"] == packages * subscribers
        return result

    def floor(subscribers: int) -> dict[str, Any]:
        targets = bench.folder("fan-out-kafka-targets")
        return bench.run_together([home.floor(targets / f"{number}.db") for number in range(subscribers)])

    # so many processes on two cores take the caches from each other whatever they do: the bare loop says how much
    bare = statistics.median(bench.ratios(lambda: floor(1), lambda: floor(many), bench.length(1, 3)))
    samples = bench.ratios(lambda: project(1), lambda: project(many), bench.length(1, 3))
    bench.report_ratio(
        "fan-out-kafka",
        samples,
        target=1.25,
        gate=2.5 * max(bare, 1.0),
        bare_loop=round(bare, 2),
        subscribers=many,
        packages=packages,
    )
