"""`docs/metrics.md`, made of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mailboat.telemetry.catalogue import CATALOGUE, Metric, MetricKind

_TITLES: Final = (
    ("subscriber", "Subscribers"),
    ("publisher", "Publishers"),
    ("discovery", "Discovery"),
    ("retention", "Retention"),
    ("sweep", "Sweeps of the blob store"),
    ("jobs", "Jobs"),
    ("http", "The HTTP API"),
    ("agent", "The process"),
)
_USUAL_BOUNDS: Final = ("300 s", "16 GiB")
_HEAD: Final = """# Metrics

Generated from the code by `make docs`. An agent serves its metrics at [`/metrics`](http.md#probes-and-metrics)
in the Prometheus text format, or as OpenMetrics on request (`Accept`). They include the standard metrics
`process_…` and `python_…`.

```
curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/metrics
```

- A counter's name ends with `_total`. Others are gauges, or histograms where marked.
  Names without a unit (`_seconds`, `_bytes`) are counts. An unknown value has no sample.
- Values of labels come from the configuration, from fixed lists, or from error names (the first 50, then `Other`).
- Histograms have buckets up to 300 s or 16 GiB unless stated.
- *Sling* names the metric of Apache Sling Content Distribution Journal, without `distribution.journal.` and the
  component. Sling measures each package, Mailboat each transaction.
"""


_REST: Final = """## Metrics of Sling without a counterpart

`queue_cache_fetch_count`, `queue_size_computation_duration`, `removed_failed_package_duration`, `fv_message_count`,
`items_buffer_size` and `process_queue_item_duration`. For `journal_available` see `subscriber_waits_total` and
`publisher_refused_requests_total`.
"""


def metrics_page() -> str:
    """The page."""
    lines = [_HEAD]
    for part, title in _TITLES:
        lines += [f"## {title}", "", *_lines([metric for metric in CATALOGUE if metric.name.split("_")[1] == part]), ""]
    return "\n".join([*lines, _REST])


def _lines(metrics: Sequence[Metric]) -> Iterator[str]:
    """A line for each metric; labels that all have are not repeated."""
    common = [
        label for label in metrics[0].labels if len(metrics) > 1 and all(label in metric.labels for metric in metrics)
    ]
    if common:
        yield from (f"All have the label {' and '.join(f'`{label}`' for label in common)}.", "")
    for metric in metrics:
        kind = [metric.kind.value] if metric.kind is MetricKind.HISTOGRAM else []
        facts = [*kind, *(f"`{label}`" for label in metric.labels if label not in common)]
        bound = _bound_of(metric) if metric.kind is MetricKind.HISTOGRAM else ""
        buckets = f" Buckets up to {bound}." if bound and bound not in _USUAL_BOUNDS else ""
        original = f" Sling: `{metric.original}`." if metric.original else ""
        known = f" ({', '.join(facts)})" if facts else ""
        yield f"- `{metric.shown_name}`{known}: {metric.text}{buckets}{original}"


def _bound_of(metric: Metric) -> str:
    last = metric.buckets[-1]
    return (
        f"{last / 2**30:g} GiB" if metric.unit == "bytes" else f"{last:g}" + (" s" if metric.unit == "seconds" else "")
    )
