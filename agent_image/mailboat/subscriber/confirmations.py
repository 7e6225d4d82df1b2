"""Sending what imports stored for the log: confirmations, answers to commands, and jobs.

Confirmations and answers are in the log exactly once. They are stored with the content that they confirm, appended to
the status topic after the commit, and forgotten then. From before the append until they are forgotten it is not certain
what the status topic holds: a crash, a failed append or a target that can't forget leaves it so. Then, and at a start,
before anything is sent the status topic is searched from its end for what was sent already. The search ends at the
first confirmation of ours that is not pending: everything before it was sent before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mailboat.content.port import Ledger, PendingJobs, PendingStatus
from mailboat.errors import PositionOutOfRangeError
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.journal.added_jobs import append_jobs, ensure_job_topic
from mailboat.journal.port import Journal, NewRecord, Record, records_of
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import MAX_BATCH
from mailboat.model.messages import CommandResult, StatusMessage
from mailboat.subscriber.subscriber_settings import ImportPorts, SubscriberSettings
from mailboat.wire.messages import encode_message, readable_message

# One append for each portion: a crash leaves at most this many uncertain.
_PORTION: Final = 500
_FIRST_WINDOW: Final = 1000
# Windows grow backwards from the end: in most cases the first one holds the answer.
_GROWTH: Final = 4


class Confirmations:
    """Sends the pending confirmations of one target."""

    def __init__(self, settings: SubscriberSettings, ports: ImportPorts, ledger: Ledger) -> None:
        """Nothing is read or sent yet; what is pending may or may not have been sent."""
        self._settings = settings
        self._journal = ports.journal
        self._ledger = ledger
        self._reach = ports.failpoints.reach
        self._is_uncertain = True

    def send(self) -> None:
        """Send everything that is pending. Raises: the journal's and the target's errors; call again then."""
        while pending := self._ledger.pending_statuses(_PORTION):
            if self._is_uncertain:
                sent = self._count_sent(pending)
                # Statuses are appended in their order, so those in the log are a prefix of the pending ones.
                if sent:
                    self._forget(pending[sent - 1])
                    continue
            # Set before the append: if it fails, or the forgetting does, the next call searches the log first.
            self._is_uncertain = True
            encoded = (encode_message(confirmation.message) for confirmation in pending)
            records = [NewRecord(value, headers) for headers, value in encoded]
            self._journal.append(self._settings.status_topic, records)
            self._reach(Failpoint.SUBSCRIBER_STATUS_SENT)
            # Only after the append: after a crash in between the search finds them.
            self._forget(pending[-1])
            self._is_uncertain = False
        self._is_uncertain = False

    def _forget(self, last: PendingStatus) -> None:
        self._ledger.forget_statuses(last.sequence)
        self._reach(Failpoint.SUBSCRIBER_STATUS_MARKED)

    def _count_sent(self, pending: Sequence[PendingStatus]) -> int:
        """How many of the first pending ones stand in the log."""
        values = [encode_message(confirmation.message)[1] for confirmation in pending]
        found = set(self._sent_lately(set(values)))
        return next((count for count, value in enumerate(values) if value not in found), len(values))

    def _sent_lately(self, wanted: set[bytes]) -> Iterator[bytes]:
        journal, topic = self._journal, self._settings.status_topic
        bounds = journal.bounds(topic)
        end, window = bounds.next_offset, _FIRST_WINDOW
        while end > bounds.earliest_offset:
            start = Offset(max(bounds.earliest_offset, end - window))
            try:
                ours = [record.value for record in records_of(journal, topic, start, end) if self._is_ours(record)]
            except PositionOutOfRangeError:
                bounds = journal.bounds(topic)
                if bounds.earliest_offset <= start:
                    raise
                continue  # retention removed the first of them since the bounds were read
            yield from ours
            if any(value not in wanted for value in ours):
                return
            end, window = start, window * _GROWTH

    def _is_ours(self, record: Record) -> bool:
        message = readable_message(record.headers, record.value)
        return (
            isinstance(message, StatusMessage | CommandResult)
            and message.sub_sling_id == self._settings.sling_id
            and message.sub_agent_name == self._settings.name
        )


class AddedJobs:
    """The jobs of one target that are not in the job topic yet.

    A job is stored in the transaction of its content, appended to the job topic after the commit, and removed then. A
    crash in between appends it again: the fold of the job topic deduplicates by request id.
    """

    def __init__(self, journal: Journal, jobs: PendingJobs, failpoints: Failpoints) -> None:
        """Read and append nothing; an earlier process may have left jobs."""
        self._journal = journal
        self._jobs = jobs
        self._failpoints = failpoints
        self._has_pending = True
        self._has_topic = False

    def committed(self, jobs: int) -> None:
        self._has_pending = self._has_pending or jobs > 0

    def append(self) -> None:
        """Append all that are stored. Raises: the journal's and the target's errors; call again then."""
        if not self._has_pending:
            return
        while pending := self._jobs.pending(MAX_BATCH):
            if not self._has_topic:
                ensure_job_topic(self._journal)
                self._has_topic = True
            append_jobs(self._journal, [pending_job.job for pending_job in pending])
            self._failpoints.reach(Failpoint.SUBSCRIBER_JOBS_APPENDED)
            # Only after the append: a crash in between repeats jobs, and loses none.
            self._jobs.forget(pending[-1].sequence)
            self._failpoints.reach(Failpoint.SUBSCRIBER_JOBS_FORGOTTEN)
        self._has_pending = False
