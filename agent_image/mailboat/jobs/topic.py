"""The job topic: appends records, and folds what the topic holds."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from mailboat.errors import MessageCorruptError
from mailboat.jobs.fold import Applied, JobFold
from mailboat.journal.port import Edge, Journal, JournalReader, NewRecord, ReadLimits, Record
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.jobs import MAX_BATCH, JobId, JobRecord, JobsAdded, NewJob, offset_of
from mailboat.wire.jobs import decode_job_record, encode_job_record

_LOG: Final = logging.getLogger(__name__)
_LIMITS: Final = ReadLimits(max_records=256)
_CACHED_BYTES: Final = 4 * 1024 * 1024
"""Records that added jobs and were read last: most jobs start soon after they were added."""


class JobTopic:
    """One job topic and its fold. To be used by one thread, except for `append` and `interrupt`."""

    def __init__(self, journal: Journal, topic: TopicName) -> None:
        """Read from the topic's head on. Raises: TopicMissingError, JournalUnavailableError."""
        self.fold = JobFold()
        self._journal = journal
        self._topic = topic
        self._reader: JournalReader = journal.reader(topic, Edge.EARLIEST)
        self._recent: OrderedDict[Offset, tuple[JobsAdded, int]] = OrderedDict()
        self._recent_bytes = 0

    def append(self, *records: JobRecord) -> Sequence[Offset]:
        """Append records, and return their offsets; whether they count is decided by the fold. From any thread.

        Raises: AppendUncertainError, MessageTooLargeError, TopicMissingError, JournalUnavailableError.
        """
        new = []
        for record in records:
            headers, value = encode_job_record(record)
            new.append(NewRecord(value, headers))
        return self._journal.append(self._topic, new)

    def follow(self, wait_seconds: float = 0.0, seen: Callable[[Offset, Applied], None] | None = None) -> bool:
        """Apply one batch of records, waiting for the first; whether the end of the topic was reached.

        Raises: JournalReplacedError, PositionOutOfRangeError, JournalCorruptError, JournalUnavailableError.
        """
        batch = self._reader.read(_LIMITS, wait_seconds)
        for record in batch.records:
            applied = self._apply(record)
            if seen is not None:
                seen(record.offset, applied)
        return batch.is_at_end

    def follow_to(self, offset: Offset, seen: Callable[[Offset, Applied], None] | None = None) -> None:
        """Apply all records up to this one, which is in the topic. Raises: as `follow`."""
        while self._reader.next_offset <= offset:
            self.follow(1.0, seen)

    def add(self, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        """Add up to `MAX_BATCH` jobs, and return their ids: of an earlier job where one is a repetition.

        Raises: as `append` and `follow`.
        """
        (offset,) = self.append(JobsAdded(jobs))
        found: list[JobId] = []

        def seen(at: Offset, applied: Applied) -> None:
            if at == offset:
                found.extend(applied.added)

        self.follow_to(offset, seen)
        return found

    def job(self, job: JobId) -> NewJob | None:
        """Read a job as it was added, with its payload; None when the topic no longer holds it."""
        offset, index = offset_of(job), job % MAX_BATCH
        recent = self._recent.get(offset)
        if recent is not None:
            return recent[0].jobs[index]
        record = self._journal.record_at(self._topic, offset)
        if record is None:
            return None
        added = decode_job_record(record.headers, record.value)
        return added.jobs[index] if isinstance(added, JobsAdded) and index < len(added.jobs) else None

    def interrupt(self) -> None:
        """Make a waiting `follow` return at once. From any thread."""
        self._reader.interrupt()

    def close(self) -> None:
        """Release the reader; the journal stays open."""
        self._reader.close()

    def _apply(self, record: Record) -> Applied:
        try:
            decoded = decode_job_record(record.headers, record.value)
        except MessageCorruptError as error:
            # Every reader ignores the same bytes, so the state stays the same for all of them.
            _LOG.warning("offset %d of topic %s is ignored: %s", record.offset, self._topic, error)
            return Applied(list(self.fold.advance(record.appended_ms)))
        if isinstance(decoded, JobsAdded):
            self._recent[record.offset] = decoded, len(record.value)
            self._recent_bytes += len(record.value)
            while self._recent_bytes > _CACHED_BYTES:
                self._recent_bytes -= self._recent.popitem(last=False)[1][1]
        return self.fold.apply(record.offset, record.appended_ms, decoded)
