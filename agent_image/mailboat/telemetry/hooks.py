"""Measures the hooks of a subscriber, by standing in front of them."""

from __future__ import annotations

from dataclasses import replace

from mailboat.clock import Clock
from mailboat.subscriber.settings import ProcessedPackage, Processor, Processors
from mailboat.telemetry.subscribers import SubscriberMetrics


class MeasuredProcessor:
    """Runs a hook, and measures how long it took and how it ended. See `Processor`."""

    def __init__(self, hook: str, processor: Processor, meter: SubscriberMetrics, clock: Clock) -> None:
        """Stand in front of `processor`; `hook` is `before`, `after` or `invalidate`."""
        self._hook = hook
        self._processor = processor
        self._meter = meter
        self._clock = clock

    def process(self, package: ProcessedPackage) -> None:
        """See `Processor`."""
        began, is_done = self._clock.monotonic(), False
        try:
            self._processor.process(package)
            is_done = True
        finally:
            self._meter.hook_ran(self._hook, self._clock.monotonic() - began, is_done=is_done)


def measured(processors: Processors, meter: SubscriberMetrics, clock: Clock) -> Processors:
    """The same hooks, measured."""
    there = {
        hook: MeasuredProcessor(hook, processor, meter, clock)
        for hook in ("before", "after", "invalidate")
        if (processor := getattr(processors, hook)) is not None
    }
    return replace(processors, **there)
