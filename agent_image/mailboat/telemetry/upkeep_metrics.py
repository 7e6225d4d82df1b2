"""Metrics of the upkeep of journal and blob store: retention and sweeps, by their own figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from mailboat.blobs.sweep import SweepDecision
from mailboat.retention.task import RetentionFigures
from mailboat.telemetry import catalogue
from mailboat.telemetry.families import Samples


class SweepCounts(Protocol):
    """What upkeep came to in this process; see the record of that name in `agent/upkeep.py`."""

    expired: int
    sweeps: int
    swept_blobs: int
    abandoned_uploads: int

    @property
    def kept(self) -> Mapping[SweepDecision, int]:
        """How many blobs the last sweep kept, by reason."""

    @property
    def kept_bytes(self) -> Mapping[SweepDecision, int]:
        """The bytes of those."""


class UpkeepMetrics:
    """A contributor to scrapes.

    Attributes:
        retention_failures: Asked at each scrape; None where no head is kept.
        sweep_failures: Asked at each scrape.
    """

    def __init__(self, retention: RetentionFigures, sweeps: SweepCounts) -> None:
        """Ask these at each scrape."""
        self._retention = retention
        self._sweeps = sweeps
        self.retention_failures: Callable[[], int] | None = None
        self.sweep_failures: Callable[[], int] | None = None

    def collect(self, samples: Samples) -> None:
        """Add everything to a scrape."""
        head, sweeps = self._retention, self._sweeps
        if self.retention_failures is not None:
            samples.add(catalogue.RETENTION_TURNS, (), head.turns)
            samples.add(catalogue.RETENTION_MOVES, (), head.moves)
            samples.add(catalogue.RETENTION_REMOVED, (), head.removed)
            samples.add(catalogue.RETENTION_FREED, (), head.freed_bytes)
            samples.add(catalogue.RETENTION_LOSSES, (), head.losses)
            samples.add(catalogue.RETENTION_DROPPED, (), head.dropped)
            samples.add(catalogue.RETENTION_FAILURES, (), self.retention_failures())
        if self.sweep_failures is None:
            return
        samples.add(catalogue.RETENTION_EXPIRED, (), sweeps.expired)
        samples.add(catalogue.SWEEPS, (), sweeps.sweeps)
        samples.add(catalogue.SWEEP_REMOVED, (), sweeps.swept_blobs)
        samples.add(catalogue.SWEEP_UPLOADS, (), sweeps.abandoned_uploads)
        samples.add(catalogue.SWEEP_FAILURES, (), self.sweep_failures())
        for reason, count in sweeps.kept.items():
            samples.add(catalogue.SWEEP_KEPT, (str(reason),), count)
        for reason, kept_bytes in sweeps.kept_bytes.items():
            samples.add(catalogue.SWEEP_KEPT_BYTES, (str(reason),), kept_bytes)
