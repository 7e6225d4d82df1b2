"""The thread that raises a publisher's distributed events.

Of several processes of one publisher agent only the one with the lease raises events; the others try for it every few
seconds, so one takes over when that process ends in whatever way. A failing journal or state is waited out. Started and
stopped by the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mailboat.clock import Clock
from mailboat.failpoints import Failpoints, NoFailpoints
from mailboat.journal.port import Journal
from mailboat.model.identifiers import Offset
from mailboat.model.messages import DistributedEvent
from mailboat.publisher.distributed_memory import EventMemory
from mailboat.publisher.distributed_run import EventPorts, EventRun, EventSettings, begin_events
from mailboat.workers import Care, Worker

_LEASE_SECONDS: Final = 2.0
_WAIT_SECONDS: Final = 1.0
_SETTLING_WAIT_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class EventStatistics:
    """A snapshot. Counts are of this process.

    Attributes:
        is_raising: This process has the lease.
        next_offset: Everything below has had its event; None before that is known.
        raised: Events appended.
        missed: Events among them that name subscribers without the content.
        failures: Times that journal or state could not be used.
    """

    is_raising: bool = False
    next_offset: Offset | None = None
    raised: int = 0
    missed: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class NotifierPorts:
    """What the notifier works with; it closes none of it. `listener` hears of events once they are durable."""

    journal: Journal
    memory: EventMemory
    clock: Clock
    failpoints: Failpoints = field(default_factory=NoFailpoints)
    listener: Callable[[Sequence[DistributedEvent]], None] | None = None


class DistributedNotifier:
    """Raises the events of one publisher between `start` and `stop`."""

    def __init__(self, settings: EventSettings, ports: NotifierPorts) -> None:
        """Nothing is read before `start`."""
        self._settings = settings
        self._ports = ports
        self._run: EventRun | None = None
        self._statistics = EventStatistics()
        care = Care(
            f"raising events of {settings.publisher}",
            interrupt=self._interrupt,
            on_failure=self._count_failure,
            where={"publisher": settings.publisher},
        )
        self._worker = Worker(f"events-{settings.publisher}", self._turn, ports.clock, care)

    @property
    def statistics(self) -> EventStatistics:
        """A snapshot, from any thread."""
        return self._statistics

    def start(self) -> None:
        """Raise the events of what is published from now on, or from where an earlier process was.

        Raises: the journal's errors, and those of the publisher's state.
        """
        begin_events(self._settings, self._ports.journal, self._ports.memory)  # the thread may be late
        self._worker.start()

    def stop(self, timeout_seconds: float = _STOP_SECONDS) -> None:
        """End the thread; what is not raised by then is raised after the next start."""
        self._worker.stop(timeout_seconds)

    def _interrupt(self) -> None:
        run = self._run
        if run is not None:
            run.interrupt()

    def _turn(self) -> float:
        with self._ports.memory.lease() as is_ours:
            if is_ours:
                self._raise_until_stopped()
        self._statistics = replace(self._statistics, is_raising=False)
        return _LEASE_SECONDS

    def _raise_until_stopped(self) -> None:
        ports = self._ports
        run = EventRun(self._settings, EventPorts(ports.journal, ports.memory, ports.clock, ports.failpoints))
        self._run = run
        try:
            while not self._worker.is_stopping:
                self._take_in(run.step(_SETTLING_WAIT_SECONDS if run.is_settling else _WAIT_SECONDS), run)
        finally:
            self._run = None
            run.close()

    def _take_in(self, events: Sequence[DistributedEvent], run: EventRun) -> None:
        self._worker.succeeded()
        before = self._statistics
        self._statistics = replace(
            before,
            is_raising=True,
            next_offset=run.next_offset,
            raised=before.raised + len(events),
            missed=before.missed + sum(bool(one.missed) for one in events),
        )
        if events and self._ports.listener is not None:
            self._ports.listener(events)

    def _count_failure(self, _: Exception) -> None:
        self._statistics = replace(self._statistics, is_raising=False, failures=self._statistics.failures + 1)
