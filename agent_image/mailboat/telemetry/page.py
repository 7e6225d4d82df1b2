"""`docs/metrics.md`, made of the catalogue."""

from __future__ import annotations

from typing import Final

from mailboat.telemetry.catalogue import CATALOGUE, Kind, Metric

_TITLES: Final = (
    ("subscriber", "Subscribers"),
    ("publisher", "Publishers"),
    ("discovery", "Discovery"),
    ("retention", "Retention"),
    ("sweep", "Sweeps of the blob store"),
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


_REST: Final = """## Of the original, but not here

| in the original | why |
|---|---|
| `queue_cache_fetch_count`, `queue_size_computation_duration` | sizes are arithmetic, nothing is fetched |
| `removed_failed_package_duration` | one short transaction, among `subscriber_commits_total` |
| `fv_message_count` | messages of the FileVault importer, which is not used |
| `journal_available` | `subscriber_waits_total` and `publisher_refused_requests_total` name what was not available |
| `items_buffer_size`, `process_queue_item_duration` | there is no buffer between reading and importing |
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
    return "\n".join([*lines, _REST])


def _row(metric: Metric) -> str:
    kind = metric.kind.value
    labels = ", ".join(f"`{one}`" for one in metric.labels)
    buckets = f" Buckets up to {_bound_of(metric)}." if metric.kind is Kind.HISTOGRAM else ""
    return f"| `{metric.shown_name}` | {kind} | {metric.unit} | {labels} | {metric.text}{buckets} | {metric.original} |"


def _bound_of(metric: Metric) -> str:
    last = metric.buckets[-1]
    return (
        f"{last / 2**30:g} GiB" if metric.unit == "bytes" else f"{last:g}" + (" s" if metric.unit == "seconds" else "")
    )
