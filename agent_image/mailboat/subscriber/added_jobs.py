"""Appends the jobs that imports add, so that each counts once.

A job is stored in the transaction of the content that it is about, appended to the job topic after the commit, and
forgotten then. A crash in between appends it again: the fold of the job topic deduplicates by request id.
"""

from __future__ import annotations

from mailboat.content.pending_jobs import PendingJobs
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.journal.added_jobs import append_jobs, ensure_job_topic
from mailboat.journal.port import Journal
from mailboat.model.jobs import MAX_BATCH


class AddedJobs:
    """The jobs of one target that are not in the job topic yet."""

    def __init__(self, journal: Journal, jobs: PendingJobs, failpoints: Failpoints) -> None:
        """Read and append nothing; an earlier process may have left jobs."""
        self._journal = journal
        self._jobs = jobs
        self._failpoints = failpoints
        self._has_pending = True
        self._has_topic = False

    def committed(self, jobs: int) -> None:
        """Note that a commit stored so many jobs."""
        self._has_pending = self._has_pending or jobs > 0

    def append(self) -> None:
        """Append all that are stored. Raises: the journal's and the target's errors; call again then."""
        if not self._has_pending:
            return
        while pending := self._jobs.pending(MAX_BATCH):
            if not self._has_topic:
                ensure_job_topic(self._journal)
                self._has_topic = True
            append_jobs(self._journal, [one.job for one in pending])
            self._failpoints.reach(Failpoint.SUBSCRIBER_JOBS_APPENDED)
            # Only after the append: a crash in between repeats jobs, and loses none.
            self._jobs.forget(pending[-1].sequence)
            self._failpoints.reach(Failpoint.SUBSCRIBER_JOBS_FORGOTTEN)
        self._has_pending = False
