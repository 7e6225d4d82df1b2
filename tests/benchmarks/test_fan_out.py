"""Many subscribers cost what each costs alone, and the publisher nothing."""

from __future__ import annotations

import statistics
from typing import Any

import pytest


@pytest.mark.long("figures")
@pytest.mark.timeout(600)  # a hundred and more processes, on cores that others may want
def test_fifty_subscribers_cost_each_what_one_costs(bench: Any) -> None:
    folder, packages, many = bench.folder("fan-out"), bench.length(1_500, 4_000), 50
    bench.run("arms/prepare.py", folder / "home", packages, "tree", folder / "records.db")

    def project(subscribers: int) -> dict[str, Any]:
        targets = bench.folder("fan-out-targets")
        result = bench.run_together(
            [
                ("arms/subscribe.py", folder / "home", f"r{n}", f"sqlite:{targets / f'{n}.db'}")
                for n in range(subscribers)
            ],
        )
        assert result["count"] == packages * subscribers
        return result

    def floor(subscribers: int) -> dict[str, Any]:
        targets = bench.folder("fan-out-targets")
        script, records = "floors/import_tree.py", folder / "records.db"
        return bench.run_together([(script, records, targets / f"{n}.db", packages) for n in range(subscribers)])

    # fifty processes on two cores take the caches from each other whatever they do: the bare loop says how much
    bare = statistics.median(bench.ratios(lambda: floor(1), lambda: floor(many), bench.length(1, 3)))
    samples = bench.ratios(lambda: project(1), lambda: project(many), bench.length(1, 3))
    bench.report_ratio(
        "fan-out",
        samples,
        target=1.25,
        gate=2.5 * max(bare, 1.0),
        bare_loop=round(bare, 2),
        subscribers=many,
        packages=packages,
    )


@pytest.mark.long("figures")
def test_a_publisher_does_not_notice_its_subscribers(bench: Any) -> None:
    packages, many = bench.length(400, 500), bench.length(10, 100)

    def side(subscribers: int) -> dict[str, Any]:
        folder = bench.folder("publisher")
        bench.run("arms/prepare.py", folder / "home", 1, "tree")
        commands = [
            ("arms/subscribe.py", folder / "home", f"reader-{n}", f"sqlite:{folder / f'{n}.db'}", packages + 1)
            for n in range(subscribers)
        ]
        with bench.running(commands) as readers:
            for reader in readers:
                assert reader.stdout.readline() == "ready\n"
            result = dict(bench.run("arms/publish.py", folder / "home", folder / "site", packages))
            for reader in readers:
                reader.communicate()
                assert reader.returncode == 0
        return result

    runs: dict[int, list[dict[str, Any]]] = {1: [], many: []}

    def counted(subscribers: int) -> dict[str, Any]:
        runs[subscribers].append(side(subscribers))
        return runs[subscribers][-1]

    def ratio_of(kind: str) -> float:
        return statistics.median(item[kind] for item in runs[many]) / statistics.median(item[kind] for item in runs[1])

    samples = bench.ratios(lambda: counted(1), lambda: counted(many), 2)
    # it writes the same and opens and closes one pipe. What it reads more are pages of the journal:
    # SQLite forgets them whenever another process has committed, here an announcement of a subscriber
    bench.report_count(
        "publisher-calls",
        ratio_of("writes"),
        target=1.1,
        unit="ratio of writes",
        subscribers=many,
        reads=round(ratio_of("reads"), 2),
    )
    # the subscribers take the same two cores, which slows the publisher too, so the gate is wide
    bench.report_ratio("publisher-fan-out", samples, target=1.1, gate=3.0, subscribers=many, packages=packages)
