"""What a record did to the jobs: changes of state, in columns or job by job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mailboat.model.jobs import JobId, JobState


class Transition(NamedTuple):
    """A job changed its state, at the time of the log.

    Attributes:
        queue: Its queue.
        reason: A word for programs, such as `lease-expired`.
        duration_ms: How long a job that starts has been due, and how long an attempt that ends ran.
    """

    job: JobId
    state: JobState
    queue: str
    reason: str = ""
    duration_ms: int = 0


class JobChange:
    """Jobs of one queue that changed to the same state for the same reason, one after another.

    Attributes:
        jobs: In order.
        durations_ms: As of `Transition`, of the same jobs.
    """

    # Columns, and not a dataclass: most records change many jobs in the same way, and few readers need them one by one.
    def __init__(
        self, state: JobState, queue: str, reason: str, jobs: list[JobId] | None = None, ms: list[int] | None = None
    ) -> None:
        self.state = state
        self.queue = queue
        self.reason = reason
        self.jobs: list[JobId] = [] if jobs is None else jobs
        self.durations_ms: list[int] = [] if ms is None else ms


class Applied:
    """What a record did.

    Attributes:
        changes: In order, those that its append time brought about first.
        added: For each job of a record that adds jobs, its id: that of an earlier job where it is a repetition.
        void: The first job of each claimed call that did not start: its worker came too late, or it was not its turn.
    """

    def __init__(self, changes: Sequence[JobChange], added: Sequence[JobId] = (), void: Sequence[JobId] = ()) -> None:
        self.changes = changes
        self.added = added
        self.void = void

    @property
    def transitions(self) -> list[Transition]:
        """The changes, job by job."""
        return [
            Transition(job, each.state, each.queue, each.reason, ms)
            for each in self.changes
            for job, ms in zip(each.jobs, each.durations_ms, strict=True)
        ]


def note(into: list[JobChange], job: JobId, state: JobState, queue: str, reason: str, ms: int) -> None:
    """Note that a job changed: with those before it, where they changed in the same way."""
    last = into[-1] if into else None
    if last is None or last.state is not state or last.queue != queue or last.reason != reason:
        last = JobChange(state, queue, reason)
        into.append(last)
    last.jobs.append(job)
    last.durations_ms.append(ms)
