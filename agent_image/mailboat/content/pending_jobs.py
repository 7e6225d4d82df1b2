"""What a target keeps of jobs: stored with the content that they are about, until they are in the job topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mailboat.model.jobs import NewJob


class PendingJob(NamedTuple):
    """A job to append to the job topic."""

    sequence: int
    job: NewJob


class PendingJobs(Protocol):
    """The jobs of one target. Each call is one durable step of its own, outside of a batch."""

    def pending(self, limit: int) -> Sequence[PendingJob]:
        """Jobs not yet known to be in the job topic, oldest first."""

    def forget(self, up_to_sequence: int) -> None:
        """Remove jobs that are in the job topic."""
