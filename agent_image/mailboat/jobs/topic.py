"""The job topic: appends records, folds what the topic holds, and bounds what a start has to read.

A checkpoint holds the state of all jobs before an offset. A start looks for the last complete one from the end of the
topic backwards, in windows that grow, and reads on from the offset that it names. The head of the topic follows the
oldest job whose payload is still needed and the last checkpoint but one.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from mailboat.errors import (
    JobLogIncompleteError,
    JobLogReplacedError,
    JournalReplacedError,
    MessageCorruptError,
    PositionOutOfRangeError,
    TopicMissingError,
    UnknownRequiredFeatureError,
    UsageError,
)
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_changes import Applied
from mailboat.journal.added_jobs import ensure_job_topic, records_of_jobs
from mailboat.journal.port import Journal, JournalReader, NewRecord, ReadLimits, Record, records_of
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.jobs import (
    MAX_BATCH,
    CheckpointPart,
    JobId,
    JobRecord,
    JobsAdded,
    JobsClaimed,
    JobsFinished,
    LeasesRenewed,
    NewJob,
)
from mailboat.model.messages import JOB_TOPIC
from mailboat.model.positions import Bounds
from mailboat.wire.headers import CHECKPOINT_PART, Headers, JobLogOutdatedError, message_type_of
from mailboat.wire.job_records import (
    MAX_PARTS,
    check_columns,
    decode_checkpoint,
    decode_job_record,
    decode_payloads,
    encode_checkpoint,
    encode_job_record,
)

_LOG: Final = logging.getLogger(__name__)
_LIMITS: Final = ReadLimits(max_records=256)
_CACHED_BYTES: Final = 4 * 1024 * 1024
"""Records that added jobs and were read last: jobs start soon after they were added, or after their neighbours."""

_COLUMNS: Final = (JobsClaimed, LeasesRenewed, JobsFinished)
_OWN_RECORDS: Final = 64
"""Records of this process that are kept decoded until they are read back."""

_FIRST_WINDOW: Final = 4_096
"""Records before the end in which a start looks for a checkpoint first."""

_UNFINISHED_CHECKPOINTS: Final = 3
"""Of writers that died or that still append; more are not remembered."""

CHECKPOINT_RECORDS: Final = 100_000
CHECKPOINT_BYTES: Final = 64 * 1024 * 1024
"""A checkpoint is due after so many records, or so many bytes, and not before its own size was appended again."""


Listener = Callable[[JobFold, Applied], None]
"""Called with each record that the topic applied."""


def open_job_topic(journal: Journal, listener: Listener | None = None, topic: TopicName = JOB_TOPIC) -> JobTopic:
    """The topic of durable jobs, which is created when it is first used. Raises: as `JobTopic`."""
    ensure_job_topic(journal, topic)
    return JobTopic(journal, topic, listener)


class JobTopic:
    """One job topic and its fold. To be used by one thread, except for `append` and `interrupt`."""

    def __init__(
        self,
        journal: Journal,
        topic: TopicName,
        listener: Listener | None = None,
        *,
        start: Offset | None = None,
        max_parts: int = MAX_PARTS,
    ) -> None:
        """Restore the last checkpoint; the records behind it are for `follow`.

        Args:
            journal: Holds the topic; it stays the caller's.
            topic: Its name.
            listener: Called with each record.
            start: Restore the last checkpoint that is not behind this offset.
            max_parts: Write no checkpoint of more; readers refuse more than `MAX_PARTS`.

        Raises: JobLogIncompleteError, TopicMissingError, JournalUnavailableError, JournalCorruptError.
        """
        self._journal = journal
        self._topic = topic
        self._listener = listener
        self._max_parts = max_parts
        self._checkpoint_bytes = 0
        self._records_since_checkpoint = 0
        self._bytes_since_checkpoint = 0
        self._previous_checkpoint: Offset | None = None
        self._recent: OrderedDict[Offset, tuple[Sequence[NewJob], int]] = OrderedDict()
        self._recent_bytes = 0
        self._log = ""
        self._unsupported: UnknownRequiredFeatureError | JobLogOutdatedError | None = None
        self._own: dict[Offset, tuple[NewRecord, JobRecord]] = {}
        self.fold, first = self._restore(start)
        self._reader: JournalReader = journal.reader(topic, first)

    # Reading

    @property
    def next_offset(self) -> Offset:
        """The first offset that the fold has not applied."""
        return self._reader.next_offset

    @property
    def log(self) -> str:
        """A short name of this topic; one that is created again has another one."""
        if not self._log:
            identity = str(self._journal.identity(self._topic))
            self._log = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
        return self._log

    def follow(self, wait_seconds: float = 0.0, seen: Callable[[Offset, Applied], None] | None = None) -> bool:
        """Apply one batch of records, waiting for the first; whether the end of the topic was reached.

        Raises:
            JobLogReplacedError: The topic is not the one that was opened, or is gone.
            JobLogIncompleteError: Records that were not read yet were removed. Opening it again may find a checkpoint.
            UnknownRequiredFeatureError, JobLogOutdatedError: Another version wrote the next record. No later one is
                applied.
            JournalCorruptError, JournalUnavailableError.
        """
        self._check_support()
        try:
            batch = self._reader.read(_LIMITS, wait_seconds)
        except (JournalReplacedError, TopicMissingError) as error:
            raise JobLogReplacedError(
                f"the topic {self._topic} was deleted or created again: {error.message}", topic=self._topic
            ) from error
        except PositionOutOfRangeError as error:
            raise JobLogIncompleteError(
                f"records of the topic {self._topic} were removed before they were read: {error.message}",
                topic=self._topic,
                offset=self.next_offset,
            ) from error
        for record in batch.records:
            try:
                applied = self._apply(record)
            except (UnknownRequiredFeatureError, JobLogOutdatedError) as error:
                self._unsupported = error.with_facts(topic=self._topic, offset=record.offset)
                raise
            if self._listener is not None:
                self._listener(self.fold, applied)
            if seen is not None:
                seen(record.offset, applied)
        return batch.is_at_end

    def follow_to(self, offset: Offset, seen: Callable[[Offset, Applied], None] | None = None) -> None:
        """Apply all records up to this one, which is in the topic. Raises: as `follow`."""
        self._check_support()
        while self._reader.next_offset <= offset:
            self.follow(1.0, seen)

    def _check_support(self) -> None:
        if self._unsupported is not None:
            # The reader is behind the record: without it, the state would be another one than that of other readers.
            raise self._unsupported

    def job(self, job: JobId) -> NewJob | None:
        """Read topic, payload and key of a job of the fold; None when the topic no longer holds it.

        The other fields may be defaults: what they decide is in the fold, and reading them takes most of the time.
        """
        offset, index = Offset(job // MAX_BATCH), job % MAX_BATCH  # not by `offset_of`: a call that is not compiled
        recent = self._recent.get(offset)
        if recent is not None:
            return recent[0][index]
        record = self._journal.record_at(self._topic, offset)
        jobs = None if record is None else decode_payloads(record.headers, record.value)
        if record is None or jobs is None:
            return None
        # Neighbours of a backlog start one after another: without this, each of them decodes the whole record again.
        self._keep(offset, jobs, len(record.value))
        return jobs[index] if index < len(jobs) else None

    def added_job(self, job: JobId) -> NewJob | None:
        """Read a job as it was added, with all fields; None when the topic no longer holds it."""
        record = self._journal.record_at(self._topic, Offset(job // MAX_BATCH))
        added = None if record is None else decode_job_record(record.headers, record.value)
        return added.jobs[job % MAX_BATCH] if isinstance(added, JobsAdded) else None

    def _keep(self, offset: Offset, jobs: Sequence[NewJob], size: int) -> None:
        self._recent[offset] = jobs, size
        self._recent_bytes += size
        while self._recent_bytes > _CACHED_BYTES:
            self._recent_bytes -= self._recent.popitem(last=False)[1][1]

    def last_message(self, job: JobId) -> str:
        """What the last failed attempt of a job said; empty when none did."""
        offset = self.fold.results.get(job)
        record = None if offset is None else self._journal.record_at(self._topic, offset)
        if record is None:
            return ""
        finished = decode_job_record(record.headers, record.value)
        if not isinstance(finished, JobsFinished):
            return ""
        messages = {finished.jobs[each.place]: each.message for each in finished.details}
        # A merged call is named by its first job; the others have its topic and key.
        alike = (first for first in messages if self.fold.table.is_alike(first, job))
        return messages.get(job) or next((messages[first] for first in alike), "")

    def interrupt(self) -> None:
        """Make a waiting `follow` return at once. From any thread."""
        self._reader.interrupt()

    def close(self) -> None:
        """Release the reader; the journal stays open."""
        self._reader.close()

    # Appending

    def append(self, *records: JobRecord) -> Sequence[Offset]:
        """Append records, and return their offsets; the fold decides if they count. From any thread.

        Raises:
            UsageError: A value is out of its bounds; nothing is appended.
            AppendUncertainError, MessageTooLargeError, TopicMissingError, JournalUnavailableError.
        """
        new, decoded = [], []
        for record in records:
            try:
                headers, value = encode_job_record(record)
                decoded.append(_checked(record, headers, value))
            except MessageCorruptError as error:  # every reader would ignore the record without an error
                raise UsageError(error.message) from error
            except ValueError as error:  # of protobuf: a number beyond its field, a text that is not UTF-8
                raise UsageError(f"a job record is out of bounds: {error}") from error
            new.append(NewRecord(value, headers))
        offsets = self._journal.append(self._topic, new)
        # `_apply` needs no second decoding of these. Those that it has applied by now go when others come.
        for offset, own in zip(offsets, zip(new, decoded, strict=True), strict=True):
            self._own[offset] = own
            if len(self._own) > _OWN_RECORDS:
                self._own.pop(next(iter(self._own)), None)
        return offsets

    def add(self, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        """Add jobs, and return their ids: of an earlier job where one is a repetition.

        Raises: as `append` and `follow`.
        """
        if not jobs:
            return []
        offsets = self.append(*records_of_jobs(jobs))
        found: list[JobId] = []

        def seen(at: Offset, applied: Applied) -> None:
            if at in offsets:
                found.extend(applied.added)

        self.follow_to(offsets[-1], seen)
        return found

    # Checkpoints

    def is_checkpoint_due(self) -> bool:
        """Whether enough was appended since the last checkpoint."""
        if self._bytes_since_checkpoint < self._checkpoint_bytes:
            return False
        return self._records_since_checkpoint >= CHECKPOINT_RECORDS or self._bytes_since_checkpoint >= CHECKPOINT_BYTES

    def write_checkpoint(self) -> Bounds:
        """Append a checkpoint, and remove the records that neither it nor a job needs; return the new bounds.

        The checkpoint before it is kept, so that a reader that has just found that one can still use it.
        Raises: as `append`, `follow`.
        """
        # Records of others may lie between `as_of` and the parts: a start reads on from `as_of`, so none is missed.
        # Column by column: a copy of all rows in addition to the parts takes as much memory again.
        state = self.fold.capture(self.next_offset, has_rows=False)
        parts = deque(encode_checkpoint(state, self.fold.table.columns()))
        if len(parts) > self._max_parts:  # readers refuse it; without it, starts read on from the one before
            text = "topic %s: no checkpoint, as its jobs take %d parts of %d"
            _LOG.warning(text, self._topic, len(parts), self._max_parts)
            self._records_since_checkpoint = self._bytes_since_checkpoint = 0
            return self._journal.bounds(self._topic)
        previous, as_of, size = self._previous_checkpoint, parts[0].as_of, sum(len(part.content) for part in parts)
        # One at a time: a batch of them may exceed the largest request of a broker, and two copies of all take
        # more memory than the jobs.
        while parts:
            (offset,) = self.append(parts.popleft())
            self.follow_to(offset)
        self._note_checkpoint(as_of, size)
        if previous is None:
            return self._journal.bounds(self._topic)
        # Only now: all parts are durable, so a start no longer needs the older records.
        oldest = self.fold.oldest_needed()
        return self._journal.truncate(self._topic, previous if oldest is None else min(previous, oldest))

    def _note_checkpoint(self, as_of: Offset, size: int) -> None:
        self._previous_checkpoint = as_of
        self._checkpoint_bytes = size
        self._records_since_checkpoint = self._bytes_since_checkpoint = 0

    def _restore(self, latest: Offset | None) -> tuple[JobFold, Offset]:
        """The fold of the last complete checkpoint up to an offset, and where to read on."""
        while True:
            bounds = self._journal.bounds(self._topic)
            try:
                return self._restore_within(bounds, latest)
            except PositionOutOfRangeError:
                # The checkpoint of another process removed what was being read. The head moves on with each.
                if self._journal.bounds(self._topic).earliest_offset <= bounds.earliest_offset:
                    raise

    def _restore_within(self, bounds: Bounds, latest: Offset | None) -> tuple[JobFold, Offset]:
        end, window = bounds.next_offset, _FIRST_WINDOW
        while True:
            begin = Offset(max(bounds.earliest_offset, end - window))
            # Records behind an earlier checkpoint were removed, so the state can't be continued from it.
            while parts := self._last_checkpoint(begin, end, bounds.earliest_offset, latest):
                as_of, size = parts[0].as_of, sum(len(part.content) for part in parts)
                try:
                    fold = JobFold(decode_checkpoint(parts))
                except (MessageCorruptError, ValueError) as error:
                    _LOG.warning("the checkpoint at offset %d is ignored: %s", as_of, error)
                    latest = Offset(as_of - 1)
                    continue
                self._note_checkpoint(as_of, size)
                return fold, as_of
            if begin == bounds.earliest_offset:
                break
            window *= 4
        if bounds.earliest_offset > 0:
            raise JobLogIncompleteError(
                f"the topic {self._topic} starts at offset {bounds.earliest_offset} and holds no checkpoint",
                topic=self._topic,
                offset=bounds.earliest_offset,
            )
        return JobFold(), Offset(0)

    def _last_checkpoint(
        self, begin: Offset, end: Offset, earliest: Offset, latest: Offset | None
    ) -> list[CheckpointPart]:
        """The checkpoint between two offsets of the latest state in a range, the last of several; else empty."""
        last: list[CheckpointPart] = []
        for parts in self._checkpoints(begin, end):
            as_of = parts[0].as_of
            # The last one in the log may be of an early state: its writer stood still while others went on.
            if as_of >= (last[0].as_of if last else earliest) and (latest is None or as_of <= latest):
                last = parts
        return last

    def _checkpoints(self, begin: Offset, end: Offset) -> Iterator[list[CheckpointPart]]:
        """The complete checkpoints between two offsets, whose following records are all there."""
        parts: dict[Offset, list[CheckpointPart]] = {}
        with closing(records_of(self._journal, self._topic, begin, end)) as records:
            for record in records:
                part = _checkpoint_part(record)
                if part is None:
                    continue
                found = parts.setdefault(part.as_of, [])
                if part.part == 0:
                    found.clear()  # another process writes the same checkpoint
                if part.part == len(found):
                    found.append(part)
                if len(found) == part.parts:
                    yield parts.pop(part.as_of)
                elif len(parts) > _UNFINISHED_CHECKPOINTS:
                    parts.pop(min(parts))

    def _apply(self, record: Record) -> Applied:
        self._records_since_checkpoint += 1
        self._bytes_since_checkpoint += len(record.value)
        try:
            decoded = self._decoded(record)
        except MessageCorruptError as error:
            # Every reader ignores the same bytes, so the state stays the same for all of them.
            _LOG.warning("offset %d of topic %s is ignored: %s", record.offset, self._topic, error)
            return Applied(self.fold.advance(record.appended_ms))
        if isinstance(decoded, JobsAdded):
            self._keep(record.offset, decoded.jobs, len(record.value))
        elif isinstance(decoded, CheckpointPart) and _is_past(decoded, record) and decoded.part == decoded.parts - 1:
            self._note_checkpoint(decoded.as_of, decoded.parts * len(decoded.content))  # of another process
        return self.fold.apply(record.offset, record.appended_ms, decoded)

    def _decoded(self, record: Record) -> JobRecord:
        own = self._own.pop(record.offset, None)
        # The bytes decide: a topic that was created again has the same offsets.
        if own is not None and own[0].value == record.value and own[0].headers == record.headers:
            return own[1]
        return decode_job_record(record.headers, record.value)


def _checked(record: JobRecord, headers: Headers, value: bytes) -> JobRecord:
    """A record as its readers decode it. Raises: MessageCorruptError."""
    # Those with columns come with each batch, and hold no names to parse.
    if isinstance(record, _COLUMNS):
        return check_columns(record)
    return decode_job_record(headers, value)


def _checkpoint_part(record: Record) -> CheckpointPart | None:
    if message_type_of(record.headers) != CHECKPOINT_PART:
        return None
    try:
        decoded = decode_job_record(record.headers, record.value)
    except (MessageCorruptError, UnknownRequiredFeatureError):
        return None
    return decoded if isinstance(decoded, CheckpointPart) and _is_past(decoded, record) else None


def _is_past(part: CheckpointPart, record: Record) -> bool:
    """Whether a part is of a state before its record: by another one, needed records would be removed."""
    return part.as_of <= record.offset
