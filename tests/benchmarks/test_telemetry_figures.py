"""What measuring costs: metrics on and off, on the hot loop of a subscriber with a backlog."""

from __future__ import annotations

from typing import Any


def test_metrics_cost_next_to_nothing_on_the_hot_loop(bench: Any) -> None:
    folder, count = bench.folder("metrics"), bench.length(7_000, 40_000)
    bench.run("arms/prepare.py", folder / "home", count, "tree")

    def side(switch: str) -> dict[str, Any]:
        target = bench.folder("metrics-target") / "target.db"
        arguments = (folder / "home", "reader", f"sqlite:{target}", switch)
        result = dict(bench.run("arms/subscribe_measured.py", *arguments))
        assert result["count"] == count
        assert result["is_measured"] is (switch == "on")
        return result

    samples = bench.ratios(lambda: side("off"), lambda: side("on"), bench.length(4, 8))
    bench.report_ratio("metrics", samples, target=1.05, gate=1.2, count=count)
