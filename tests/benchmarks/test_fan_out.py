"""Many subscribers cost what each costs alone, and the publisher nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def subscribe_all(bench: Any, home: Path, targets: Path, count: int) -> list[dict[str, Any]]:
    """Run so many subscribers at once on one journal until they have caught up."""
    processes = [
        bench.start("arms/subscribe.py", home, f"reader-{number}", f"sqlite:{targets / f'{number}.db'}")
        for number in range(count)
    ]
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]


def test_fifty_subscribers_cost_each_what_one_costs(bench: Any) -> None:
    folder, packages, many = bench.folder("fan-out"), bench.length(1_500, 4_000), 50
    bench.run("arms/prepare.py", folder / "home", packages, "tree")

    def side(subscribers: int) -> dict[str, Any]:
        results = subscribe_all(bench, folder / "home", bench.folder("fan-out-targets"), subscribers)
        assert {one["count"] for one in results} == {packages}
        return {"cpu_seconds": sum(one["cpu_seconds"] for one in results), "count": packages * subscribers}

    samples = bench.ratios(lambda: side(1), lambda: side(many), bench.length(1, 4))
    bench.report_ratio("fan-out", samples, target=1.25, subscribers=many, packages=packages)


def test_a_publisher_does_not_notice_its_subscribers(bench: Any) -> None:
    packages, many = bench.length(400, 500), bench.length(10, 100)

    def side(subscribers: int) -> dict[str, Any]:
        folder = bench.folder("publisher")
        bench.run("arms/prepare.py", folder / "home", 1, "tree")
        readers = [
            bench.start(
                "arms/subscribe.py", folder / "home", f"reader-{n}", f"sqlite:{folder / f'{n}.db'}", packages + 1
            )
            for n in range(subscribers)
        ]
        for reader in readers:
            assert reader.stdout.readline() == "ready\n"
        result = dict(bench.run("arms/publish.py", folder / "home", folder / "site", packages))
        for reader in readers:
            reader.communicate()
            assert reader.returncode == 0
        return result

    samples = bench.ratios(lambda: side(1), lambda: side(many), bench.length(3, 2))
    # the subscribers take the same two cores, which slows the publisher too: so the gate is wide, and the target for
    # a machine with room; what a publisher does by itself is one open and one close of a pipe, whoever listens
    bench.report_ratio("publisher-fan-out", samples, target=1.1, gate=1.8, subscribers=many, packages=packages)
