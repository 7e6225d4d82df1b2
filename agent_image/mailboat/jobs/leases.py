"""Live leases of calls, and the workers that the log names: parts of the fold, which grants and ends them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mailboat.jobs.job_queue import Queue
from mailboat.model.job_checkpoint import LeaseState
from mailboat.model.jobs import JobId, Token, any_matches, patterns_overlap

RULES: Final = 2
"""Version of the rules by which the fold decides. A change after which two versions may disagree has the next number.

Only workers of the oldest live version claim from a queue: two folds that disagree would start one job twice, or none.
`tests/golden/jobs` has the decisions of each version for one log.
"""


_MOST_TAKES: Final = 4_096
"""Topics that a worker was asked for, and whose answer is kept: any program can add jobs of any number of topics."""


class Lease:
    """A call that runs."""

    # Not a dataclass: its constructor would not be compiled, and there is a lease for every call.
    def __init__(
        self, token: Token, worker: str, jobs: Sequence[JobId], queue: Queue, started_ms: int, lease_ms: int
    ) -> None:
        self.token = token
        self.worker = worker
        self.jobs = jobs
        self.queue = queue
        self.started_ms = started_ms
        self.lease_ms = lease_ms
        self.until_ms = started_ms + lease_ms
        self.stop_requested = False
        self.progress = b""

    def restore(self, state: LeaseState) -> None:
        """Take over what happened to a captured call."""
        self.until_ms, self.stop_requested, self.progress = state.until_ms, state.stop_requested, state.progress

    def renew(self, now_ms: int, progress: bytes) -> bool:
        """Keep the jobs for the length of the lease; whether that is later than before."""
        self.progress, until_ms = progress or self.progress, now_ms + self.lease_ms
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
    rules: int = 0
    _takes: dict[str, bool] = field(default_factory=dict)
    _numbered: Sequence[str] = ()
    _untaken: frozenset[int] = frozenset()
    _examined: int = 0

    def takes(self, topic: str) -> bool:
        """Whether the worker runs jobs of this topic."""
        takes = self._takes.get(topic)
        if takes is None:
            if len(self._takes) == _MOST_TAKES:
                self._takes.clear()
            takes = self._takes[topic] = any_matches(self.topics, topic)
        return takes

    def untaken(self, topics: Sequence[str]) -> frozenset[int]:
        """The numbers of the topics of which the worker runs no job; topics are only added to one sequence."""
        if topics is not self._numbered:  # topics were forgotten, and others have their numbers
            self._numbered, self._untaken, self._examined = topics, frozenset(), 0
        # Not asked for each job: those that no worker takes may be many, and stay.
        if self._examined < len(topics):
            new = range(self._examined, len(topics))
            self._untaken |= {number for number in new if not self.takes(topics[number])}
            self._examined = len(topics)
        return self._untaken

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
        if worker.slots and any(patterns_overlap(pattern, other) for pattern in wanted for other in worker.topics)
    ]
