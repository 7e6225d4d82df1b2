"""Where a worker gets its calls from, and where it reports them: the port of `JobWorker`.

Two adapters: `LogSource` reads and appends to the job topic, `HttpSource` asks an agent. A call is named by its fencing
token and its first job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from mailboat.model.jobs import JobId, JobResult, NewJob, Renewal, Token


class CallId(NamedTuple):
    """A call of a handler: the token of its lease, and the first of its jobs."""

    token: Token
    job: JobId


class ClaimedCall(NamedTuple):
    """A call that a worker has to make.

    Attributes:
        call: Its name.
        jobs: The job, or the jobs that are merged into the call, with their payloads.
        attempt: 1 for the first.
        lease_ms: A worker that neither renews nor reports for so long loses the call.
        log: Names the job topic: another one, or one that was created again, gives the same ids to other jobs.
    """

    call: CallId
    jobs: Mapping[JobId, NewJob]
    attempt: int
    lease_ms: int
    log: str = ""


class Offer(NamedTuple):
    """A worker as it announces itself.

    Attributes:
        worker: Made for each start, and not to be guessed.
        slots: Calls that run at the same time.
        topics: Patterns of the topics that it takes.
        is_ending: Whether it ends its calls, and claims nothing further.
    """

    worker: str
    slots: int
    topics: Sequence[str]
    is_ending: bool = False


class PollResult(NamedTuple):
    """What a worker learns.

    Attributes:
        claimed: Calls to make.
        stopping: Calls of this worker that an operator asked to stop.
        lost: Calls whose lease is over, or was never this worker's; their results do not count.
    """

    claimed: Sequence[ClaimedCall] = ()
    stopping: Sequence[CallId] = ()
    lost: Sequence[CallId] = ()


class JobSource(Protocol):
    """To be used by one thread, except for `interrupt`. Every method raises MailboatError."""

    def poll(self, offer: Offer, free: int, held: Collection[CallId], wait_seconds: float) -> PollResult:
        """Claim up to `free` calls.

        Args:
            offer: The worker. It counts as live for some time after each call of this method.
            free: How many more calls it can make; 0 claims none.
            held: The calls that it makes now. Others that it has a lease of are given again.
            wait_seconds: How long to wait where nothing is to be done. The method may return earlier with nothing.
        """
        ...

    def report(
        self,
        offer: Offer,
        results: Sequence[JobResult],
        renewals: Sequence[Renewal],
        free: int = 0,
        held: Collection[CallId] = (),
    ) -> PollResult:
        """Report calls that ended and renew leases; durable on return.

        Args:
            offer: The worker.
            results: Of calls that ended.
            renewals: Of calls that still run.
            free: Up to so many calls may be claimed along with it.
            held: The calls that it still makes.

        Returns: what `poll` would; `lost` has the calls of which the report does not count, too.
        """
        ...

    def leave(self, worker: str) -> None:
        """The worker ends: nothing more is claimed for it, and calls that it did not report are queued again."""
        ...

    def interrupt(self) -> None:
        """Make a waiting `poll` return at once. From any thread."""
        ...

    def close(self) -> None:
        """Release what the source holds."""
        ...
