"""What the operator counts, in the Prometheus text format; the only home of prometheus_client here."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class OperatorMetrics:
    """The counters of one process."""

    def __init__(self) -> None:
        """All begin at zero."""
        self._registry = CollectorRegistry()
        self._looks = Counter(
            "mailboat_operator_reconciliations",
            "Reconciliations, by outcome.",
            ["kind", "outcome"],
            registry=self._registry,
        )
        self._writes = Counter(
            "mailboat_operator_api_writes", "Writes to the Kubernetes API.", ["verb", "kind"], registry=self._registry
        )
        self._events = Counter(
            "mailboat_operator_events", "Events about objects, by reason.", ["reason"], registry=self._registry
        )
        self._seconds = Histogram(
            "mailboat_operator_reconciliation_seconds",
            "Duration of a reconciliation.",
            ["kind"],
            registry=self._registry,
        )
        self._waiting = Gauge("mailboat_operator_waiting", "Objects in the work queue.", registry=self._registry)
        self._under_way = Gauge("mailboat_operator_under_way", "Reconciliations in progress.", registry=self._registry)
        self._silent = Gauge(
            "mailboat_operator_silent_objects", "Objects with changes that no watch reported.", registry=self._registry
        )
        self._pools = {
            name: Gauge(f"mailboat_operator_{name}", text, ["namespace", "name"], registry=self._registry)
            for name, text in (
                ("pool_lag_packages", "Packages that a pool is behind: its slowest member, or all of a shared one."),
                ("pool_blocked_members", "Members of a pool that are blocked by a package."),
            )
        }
        self._leading = Gauge(
            "mailboat_operator_leading", "1 while this replica is the leader.", registry=self._registry
        )

    def looked(self, kind: str, outcome: str, seconds: float) -> None:
        """An object was reconciled; `outcome` is `ready`, `pending`, or the name of an error."""
        self._looks.labels(kind, outcome).inc()
        self._seconds.labels(kind).observe(seconds)

    def wrote(self, verb: str, kind: str) -> None:
        """A write is about to be sent."""
        self._writes.labels(verb, kind).inc()

    def reported(self, reason: str) -> None:
        """An Event was written."""
        self._events.labels(reason).inc()

    def queued(self, waiting: int, under_way: int) -> None:
        """So many objects are queued, and so many are being reconciled."""
        self._waiting.set(waiting)
        self._under_way.set(under_way)

    def silent(self, count: int) -> None:
        """So many objects were changed without an event of a watch."""
        self._silent.set(count)

    def figures(self, kind: str, namespace: str, name: str, figures: Mapping[str, float]) -> None:
        """What is known of an object by now; of a pool without figures nothing is known, or it is gone."""
        if kind == "SubscriberPool":
            for figure, gauge in self._pools.items():
                if figure in figures:
                    gauge.labels(namespace, name).set(figures[figure])
                else:
                    # a gauge that stays would go on to alert about a pool that is gone
                    gauge.remove(namespace, name)

    def leads(self) -> None:
        """From now on this replica acts."""
        self._leading.set(1)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)
