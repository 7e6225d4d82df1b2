"""`docs/metrics.md`, made of the catalogue."""

from __future__ import annotations

from typing import Final

from mailboat.telemetry.catalogue import CATALOGUE, Kind, Metric

_TITLES: Final = (
    ("subscriber", "Subscribers"),
    ("publisher", "Publishers"),
    ("discovery", "Discovery"),
    ("http", "The HTTP API"),
    ("agent", "The process"),
)
_COLUMNS: Final = ("| name | kind | unit | labels | meaning | in the original |", "|---|---|---|---|---|---|")
_HEAD: Final = """# Metrics

Generated from the code by `make docs`. An agent serves them at `/metrics`, in the Prometheus text format, or as
OpenMetrics to whoever asks for that. Beside these there are the usual ones of the process and of Python
(`process_…`, `python_…`).

Counters count since the start of the process. A figure that is not known has no sample. The values of labels come from
the configuration, from fixed lists, or from errors' names (at most 50 of them are told apart). The original is the
Apache Sling Content Distribution Journal; its names stand here without `distribution.journal.` and the part's name.
What it measures for each package we measure for each transaction, which holds as many packages as were waiting.
"""


def metrics_page() -> str:
    """The page."""
    lines = [_HEAD]
    for part, title in _TITLES:
        lines += [
            f"## {title}",
            "",
            "| name | kind | unit | labels | meaning | in the original |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(one) for one in CATALOGUE if one.name.split("_")[1] == part]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(metric: Metric) -> str:
    kind = metric.kind.value
    labels = ", ".join(f"`{one}`" for one in metric.labels)
    buckets = f" Buckets up to {metric.buckets[-1]:g}." if metric.kind is Kind.HISTOGRAM else ""
    return f"| `{metric.shown_name}` | {kind} | {metric.unit} | {labels} | {metric.text}{buckets} | {metric.original} |"
