"""Who runs jobs: the live leases of calls, and the workers that the log names. Parts of the fold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mailboat.model.jobs import JobId, LeaseState, Token, patterns_overlap


@dataclass(slots=True)
class Lease:
    """A call that runs."""

    token: Token
    worker: str
    jobs: Sequence[JobId]
    started_ms: int
    until_ms: int
    stop_requested: bool = False
    progress: bytes = b""

    def renew(self, until_ms: int, progress: bytes) -> bool:
        """Keep the jobs until this moment at least; whether that is later than before."""
        self.progress = progress or self.progress
        is_later, self.until_ms = until_ms > self.until_ms, max(until_ms, self.until_ms)
        return is_later

    def capture(self) -> LeaseState:
        """The call in a checkpoint."""
        return LeaseState(
            self.token, self.worker, self.jobs, self.started_ms, self.until_ms, self.stop_requested, self.progress
        )

    def request_stop(self) -> None:
        """Note that an operator wants the jobs to end."""
        self.stop_requested = True


@dataclass(slots=True)
class WorkerState:
    """What the log says of a worker."""

    slots: int
    topics: Sequence[str]
    seen_ms: int
    running: int = 0

    def see(self, now_ms: int) -> None:
        """Note a record of the worker."""
        self.seen_ms = now_ms

    def begin_call(self) -> None:
        """Count a call that runs."""
        self.running += 1

    def end_call(self) -> None:
        """Count a call that ended."""
        self.running -= 1


def takers(workers: Iterable[WorkerState], patterns: Sequence[str]) -> list[WorkerState]:
    """The live workers that take a topic of these patterns; without patterns those that take any."""
    wanted = patterns or ["**"]
    return [
        worker
        for worker in workers
        if worker.slots and any(patterns_overlap(one, other) for one in wanted for other in worker.topics)
    ]
