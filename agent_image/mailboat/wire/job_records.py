"""Records of the job topic as protobuf, both ways. What others write is bounded here."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeVar, cast

from mailboat.clock import LAST_MS
from mailboat.errors import MessageCorruptError, UnknownRequiredFeatureError, UsageError
from mailboat.model.identifiers import Offset, parse_agent_name
from mailboat.model.job_checkpoint import JobCheckpoint, LeaseState, QueueCheckpoint, WorkerEntry
from mailboat.model.jobs import (
    LONGEST_DELAY_MS,
    MAX_BATCH,
    MAX_LEASE_MS,
    MAX_LIMIT,
    MAX_PATTERNS,
    MAX_PROGRESS_BYTES,
    MAX_RETRIES,
    MIN_LEASE_MS,
    RESERVED_NAME,
    AttemptOutcome,
    CheckpointPart,
    Feed,
    Firing,
    JobAction,
    JobId,
    JobRecord,
    JobsAdded,
    JobsClaimed,
    JobsCommanded,
    JobsFinished,
    LeasesRenewed,
    MissedFirings,
    NewJob,
    Priority,
    QueueAction,
    QueueCommanded,
    QueueDefined,
    QueueKind,
    QueueRemoved,
    QueueSettings,
    ResultDetail,
    Schedule,
    ScheduleDefined,
    ScheduleRemoved,
    Token,
    WorkerSeen,
    parse_pattern,
    parse_topic,
    pool_topic,
)
from mailboat.model.positions import LogIdentity
from mailboat.wire import headers as kinds
from mailboat.wire._generated import jobs_pb2 as pb
from mailboat.wire.frames import framed, varint
from mailboat.wire.headers import Headers, JobLogOutdatedError, headers_for, is_of_later_version, message_type_of
from mailboat.wire.protobuf import cut, name, parse

_PRIORITIES: Final[Mapping[int, Priority]] = {priority.value: priority for priority in Priority}
"""A lookup costs a fifth of a call of the enumeration."""

_LAST_OUTCOME: Final = int(max(AttemptOutcome))
_topic: Final = lru_cache(1_024)(parse_topic)
"""The jobs of a record mostly have few topics."""

C = TypeVar("C", bound=JobsClaimed | LeasesRenewed | JobsFinished)

MAX_PAYLOAD_BYTES: Final = 256 * 1024
MAX_SCHEDULE_PAYLOAD_BYTES: Final = 16 * 1024
"""Checkpoints hold the payloads of schedules."""
MAX_MESSAGE_CHARACTERS: Final = 2_000
MAX_PART_BYTES: Final = 900_000
"""Of a checkpoint: a record that every broker takes by default."""
MAX_PARTS: Final = 256


def encode_job_record(record: JobRecord) -> tuple[Headers, bytes]:
    """The headers and the value of a record."""
    kind, encode = _ENCODERS[type(record)]
    return _HEADERS[kind], encode(record).SerializeToString()


def decode_job_record(headers: Headers, value: bytes) -> JobRecord:
    """Decode a record.

    Raises:
        MessageCorruptError: It is not one of ours, or holds a value that is not allowed: every reader ignores it.
        UnknownRequiredFeatureError: It is of a later version, whose readers do not ignore it.
        JobLogOutdatedError: It has a form that is no longer read.
    """
    kind = _KINDS.get(headers) or message_type_of(headers) or 0
    decode = _DECODERS.get(kind)
    if kind in kinds.EARLIER_JOB_RECORDS:
        raise JobLogOutdatedError(f"the job topic holds records of type {kind}, which an earlier version wrote")
    if decode is None:
        if is_of_later_version(headers):
            raise UnknownRequiredFeatureError(
                "the job topic holds a record of a later version of Mailboat", next_step="upgrade this process"
            )
        raise MessageCorruptError(f"type {message_type_of(headers)} is not a record of the job topic")
    try:
        return decode(value)
    except (ValueError, UsageError) as error:  # an enum without that number; a name that breaks its rule
        raise MessageCorruptError(f"a job record holds an invalid value: {error}") from error


def decode_payloads(headers: Headers, value: bytes) -> Sequence[NewJob] | None:
    """Topic, payload and key of the jobs of a record that the fold has taken; None of another kind of record."""
    if message_type_of(headers) != kinds.JOBS_ADDED:
        return None
    return [NewJob(job.topic, job.payload, job.key) for job in parse(pb.JobsAdded, value).jobs]


def _encode_added(record: JobsAdded) -> pb.JobsAdded:
    jobs = [pb.JobsAdded.Job(**_present(job._asdict())) for job in record.jobs]
    firing = None if record.firing is None else pb.JobsAdded.Firing(**_present(record.firing._asdict()))
    return pb.JobsAdded(jobs=jobs, firing=firing, feed=None if record.feed is None else _encode_feed(record.feed))


def _decode_added(value: bytes) -> JobsAdded:
    message = parse(pb.JobsAdded, value)
    firing = _decode_firing(message.firing) if message.HasField("firing") else None
    feed = _decode_feed(message.feed) if message.HasField("feed") else None
    _check((firing is None and feed is None) <= len(message.jobs) <= MAX_BATCH, "jobs", len(message.jobs))
    jobs = [_decode_job(job) for job in message.jobs]
    for job in jobs:
        is_pool = feed is not None and job.topic == pool_topic(feed.pool)
        if job.topic.partition(".")[0] == RESERVED_NAME and not is_pool:
            raise MessageCorruptError(f"the topic {job.topic} is reserved for jobs of the product itself")
    return JobsAdded(jobs, firing, feed)


def _encode_feed(feed: Feed) -> pb.Feed:
    log = feed.log
    return pb.Feed(
        pool=feed.pool,
        sequence=feed.sequence,
        next_offset=feed.next_offset,
        cluster_id=log.cluster_id,
        topic_id=log.topic_id,
        target=feed.target,
    )


def _decode_feed(message: pb.Feed) -> Feed:
    _check(message.sequence >= 1 and message.next_offset >= 0, "sequence", message.sequence)
    log = LogIdentity(name(message.cluster_id), name(message.topic_id))
    pool = parse_agent_name(message.pool)
    return Feed(pool, message.sequence, Offset(message.next_offset), log, name(message.target))


def _decode_firing(message: pb.JobsAdded.Firing) -> Firing:
    _check(0 <= message.due_ms <= LAST_MS and 0 <= message.next_ms <= LAST_MS, "due_ms", message.due_ms)
    return Firing(name(message.schedule), message.due_ms, message.next_ms if message.HasField("next_ms") else None)


def _encode_schedule(schedule: Schedule) -> pb.ScheduleDefined:
    job = pb.JobsAdded.Job(**_present(schedule.job._asdict()))
    return pb.ScheduleDefined(**_present({**schedule._asdict(), "job": job}))


def _decode_schedule(message: pb.ScheduleDefined) -> Schedule:
    _check(len(message.job.payload) <= MAX_SCHEDULE_PAYLOAD_BYTES, "payload bytes", len(message.job.payload))
    _check(0 <= message.every_ms <= LAST_MS and 0 <= message.next_ms <= LAST_MS, "every_ms", message.every_ms)
    _check(0 <= message.at_ms <= LAST_MS, "at_ms", message.at_ms)
    kinds_of_times = [message.cron, message.every_ms, message.at_ms]
    _check(sum(map(bool, kinds_of_times)) <= 1, "more than one of cron, every_ms, at_ms", kinds_of_times)
    next_ms = message.next_ms if message.HasField("next_ms") else None
    times = name(message.cron), name(message.zone), message.every_ms, message.at_ms
    return Schedule(name(message.name), _decode_job(message.job), *times, MissedFirings(message.missed), next_ms)


def _decode_job(job: pb.JobsAdded.Job) -> NewJob:
    payload, due_ms, delay_ms, lease_ms = job.payload, job.due_ms, job.delay_ms, job.lease_ms
    _check(len(payload) <= MAX_PAYLOAD_BYTES, "payload bytes", len(payload))
    _check(0 <= due_ms <= LAST_MS, "due_ms", due_ms)
    _check(0 <= delay_ms <= LONGEST_DELAY_MS, "delay_ms", delay_ms)
    _check(MIN_LEASE_MS <= lease_ms <= MAX_LEASE_MS, "lease_ms", lease_ms)
    retries = job.retries if job.HasField("retries") else None
    _check(retries is None or -1 <= retries <= MAX_RETRIES, "retries", retries)
    retry_delay_ms = job.retry_delay_ms if job.HasField("retry_delay_ms") else None
    _check(retry_delay_ms is None or 0 <= retry_delay_ms <= LONGEST_DELAY_MS, "retry_delay_ms", retry_delay_ms)
    return NewJob(
        _topic(job.topic),
        payload,
        name(job.key),
        _PRIORITIES.get(job.priority) or Priority(job.priority),  # raises for a number that no priority has
        due_ms,
        delay_ms,
        retries,
        retry_delay_ms,
        lease_ms,
        name(job.unique),
        name(job.request_id),
        job.keep,
        JobId(job.retry_of) if job.HasField("retry_of") else None,
    )


def _encode_claimed(record: JobsClaimed) -> pb.JobsClaimed:
    return pb.JobsClaimed(worker=record.worker, jobs=record.jobs, sizes=record.sizes)


def _decode_claimed(value: bytes) -> JobsClaimed:
    message = parse(pb.JobsClaimed, value)
    return check_columns(JobsClaimed(name(message.worker), _jobs(message.jobs), list(message.sizes)))


def _encode_renewed(record: LeasesRenewed) -> pb.LeasesRenewed:
    progress = [pb.LeasesRenewed.Progress(place=place, progress=value) for place, value in record.progress]
    return pb.LeasesRenewed(jobs=record.jobs, tokens=record.tokens, progress=progress)


def _decode_renewed(value: bytes) -> LeasesRenewed:
    message = parse(pb.LeasesRenewed, value)
    progress = [(each.place, each.progress) for each in message.progress]
    return check_columns(LeasesRenewed(_jobs(message.jobs), cast("list[Token]", list(message.tokens)), progress))


def _encode_finished(record: JobsFinished) -> pb.JobsFinished:
    message = pb.JobsFinished(jobs=record.jobs, tokens=record.tokens, outcomes=record.outcomes)
    for place, delay_ms, text in record.details:
        # None is a field that is not set.
        message.details.add(place=place, delay_ms=delay_ms, message=cut(text, MAX_MESSAGE_CHARACTERS))
    return message


def _decode_finished(value: bytes) -> JobsFinished:
    message = parse(pb.JobsFinished, value)
    details = [
        ResultDetail(
            each.place, each.delay_ms if each.HasField("delay_ms") else None, cut(each.message, MAX_MESSAGE_CHARACTERS)
        )
        for each in message.details
    ]
    tokens = cast("list[Token]", list(message.tokens))
    return check_columns(JobsFinished(_jobs(message.jobs), tokens, message.outcomes, details))


def check_columns(record: C) -> C:
    """Return a record of columns that fit each other and their bounds. Raises: MessageCorruptError."""
    count = len(record.jobs)
    _check(1 <= count <= MAX_BATCH, "jobs", count)
    if isinstance(record, JobsClaimed):
        _check(min(record.sizes, default=1) >= 1, "size of a call", record.sizes)
        _check(not record.sizes or sum(record.sizes) == count, "jobs of all calls", sum(record.sizes))
        return record
    _check(len(record.tokens) == count, "tokens", len(record.tokens))
    if isinstance(record, LeasesRenewed):
        _check_places([place for place, _ in record.progress], count)
        for _, progress in record.progress:
            _check(len(progress) <= MAX_PROGRESS_BYTES, "progress bytes", len(progress))
        return record
    _check(len(record.outcomes) in (0, count), "outcomes", len(record.outcomes))
    highest = max(record.outcomes, default=0)
    _check(highest <= _LAST_OUTCOME, "outcome", highest)
    if record.details:
        _check_places([each.place for each in record.details], count)
        for each in record.details:
            _check(each.delay_ms is None or 0 <= each.delay_ms <= LONGEST_DELAY_MS, "delay_ms", each.delay_ms)
    return record


def _check_places(places: Sequence[int], count: int) -> None:
    """Places within the columns, each once and ascending."""
    ascend = all(first < second for first, second in pairwise((-1, *places, count)))
    _check(ascend, "places of a column", places)


def _decode_commanded(value: bytes) -> JobsCommanded:
    message = parse(pb.JobsCommanded, value)
    return JobsCommanded(JobAction(message.action), _jobs(message.jobs))


def _encode_queue_commanded(record: QueueCommanded) -> pb.QueueCommanded:
    return pb.QueueCommanded(**_present(record._asdict()))


def _decode_queue_commanded(value: bytes) -> QueueCommanded:
    message = parse(pb.QueueCommanded, value)
    _check(0 <= message.until_ms <= LAST_MS, "until_ms", message.until_ms)
    until_ms = message.until_ms if message.HasField("until_ms") else None
    return QueueCommanded(QueueAction(message.action), name(message.queue), until_ms)


def _decode_defined(value: bytes) -> QueueDefined:
    return QueueDefined(_settings(parse(pb.QueueDefined, value)))


def queue_problem(settings: QueueSettings) -> str | None:
    """Which of the settings is out of bounds, if one is: readers ignore the record of such a queue."""
    checks = (
        (settings.max_parallel == -1 or 1 <= settings.max_parallel <= MAX_LIMIT, "max_parallel", settings.max_parallel),
        (0 <= settings.parallel_percent <= 100, "parallel_percent", settings.parallel_percent),
        (0 <= settings.rate <= MAX_LIMIT, "rate", settings.rate),
        (1 <= settings.rate_period_ms <= MAX_LEASE_MS, "rate_period_ms", settings.rate_period_ms),
        (1 <= settings.merge <= MAX_BATCH, "merge", settings.merge),
        (settings.merge == 1 or settings.kind is QueueKind.PARALLEL, "merge of a queue with an order", settings.merge),
        (0 <= settings.merge_within_ms <= MAX_LEASE_MS, "merge_within_ms", settings.merge_within_ms),
        (-1 <= settings.retries <= MAX_RETRIES, "retries", settings.retries),
        (0 <= settings.retry_delay_ms <= LONGEST_DELAY_MS, "retry_delay_ms", settings.retry_delay_ms),
        (0 <= settings.max_retry_delay_ms <= LONGEST_DELAY_MS, "max_retry_delay_ms", settings.max_retry_delay_ms),
        (0 <= settings.history_ms <= LAST_MS, "history_ms", settings.history_ms),
    )
    return next((f"{name} is {value}" for holds, name, value in checks if not holds), None)


def _settings(message: pb.QueueDefined) -> QueueSettings:
    settings = QueueSettings(
        name(message.name),
        _patterns(message.topics),
        QueueKind(message.kind),
        message.max_parallel,
        message.rate,
        message.rate_period_ms,
        message.merge,
        message.merge_within_ms,
        message.retries,
        message.retry_delay_ms,
        message.max_retry_delay_ms,
        message.history_ms,
        message.parallel_percent,
    )
    if (problem := queue_problem(settings)) is not None:
        raise MessageCorruptError(f"a job record is out of bounds: {problem}")
    return settings


def _decode_worker(value: bytes) -> WorkerSeen:
    message = parse(pb.WorkerSeen, value)
    _check(0 <= message.slots <= MAX_LIMIT, "slots", message.slots)
    _check(0 <= message.rules <= MAX_LIMIT, "rules", message.rules)
    return WorkerSeen(name(message.worker), message.slots, _patterns(message.topics), message.rules)


def encode_checkpoint(
    checkpoint: JobCheckpoint, columns: Iterable[tuple[str, bytes]] | None = None
) -> list[CheckpointPart]:
    """The checkpoint in parts of at most `MAX_PART_BYTES`, to be appended in this order; `columns` replace its own."""
    message = pb.JobCheckpoint(
        now_ms=checkpoint.now_ms,
        topics=checkpoint.topics,
        queues=[_encode_queue_state(state) for state in checkpoint.queues],
        workers=[pb.JobCheckpoint.Worker(**each._asdict()) for each in checkpoint.workers],
        leases=[pb.JobCheckpoint.Lease(**each._asdict()) for each in checkpoint.leases],
        unique=checkpoint.unique,
        requests=checkpoint.requests,
        results={int(job): int(offset) for job, offset in checkpoint.results.items()},
        schedules=map(_encode_schedule, checkpoint.schedules),
        feeds=map(_encode_feed, checkpoint.feeds),
    )
    # Deterministic: readers may find parts of two processes that write the checkpoint of one offset.
    content, cut = bytearray(message.SerializeToString(deterministic=True)), []
    # Framed by hand and cut as it comes: in messages, a column of a million jobs would be there three times.
    for column, values in checkpoint.columns.items() if columns is None else columns:
        entry = b"%b\x12%b" % (framed(b"\x0a", column.encode()), varint(len(values)))
        content += b"\x32%b%b" % (varint(len(entry) + len(values)), entry)
        for begin in range(0, len(values), MAX_PART_BYTES):
            content += values[begin : begin + MAX_PART_BYTES]
            while len(content) > MAX_PART_BYTES:
                cut.append(bytes(content[:MAX_PART_BYTES]))
                del content[:MAX_PART_BYTES]
    cut.append(bytes(content))
    return [CheckpointPart(checkpoint.as_of, place, len(cut), part) for place, part in enumerate(cut)]


def decode_checkpoint(parts: list[CheckpointPart]) -> JobCheckpoint:
    """All parts of a checkpoint, in order, as one; empties the list. Raises: MessageCorruptError."""
    as_of, content = parts[0].as_of, b"".join([part.content for part in parts])
    parts.clear()  # of a million jobs they are 45 MB, and so is each copy
    message = parse(pb.JobCheckpoint, content)
    del content
    try:
        return _checkpoint_of(as_of, message)
    except (ValueError, UsageError) as error:  # an enum without that number; a name that breaks its rule
        raise MessageCorruptError(f"a checkpoint of jobs holds an invalid value: {error}") from error


def _checkpoint_of(as_of: Offset, message: pb.JobCheckpoint) -> JobCheckpoint:
    return JobCheckpoint(
        as_of,
        message.now_ms,
        tuple(map(parse_topic, message.topics)),
        [_decode_queue_state(state) for state in message.queues],
        [
            WorkerEntry(name(each.worker), each.slots, _patterns(each.topics), each.seen_ms, each.rules)
            for each in message.workers
        ],
        [
            LeaseState(
                Token(each.token),
                name(each.worker),
                _jobs(each.jobs),
                each.started_ms,
                each.until_ms,
                each.stop_requested,
                each.progress[:MAX_PROGRESS_BYTES],
            )
            for each in message.leases
        ],
        message.columns,  # each access copies a column; all of them at once take as much as the message
        message.unique,
        message.requests,
        {JobId(job): Offset(offset) for job, offset in message.results.items()},
        [_decode_schedule(schedule) for schedule in message.schedules],
        [_decode_feed(feed) for feed in message.feeds],
    )


def _encode_queue_state(state: QueueCheckpoint) -> pb.JobCheckpoint.Queue:
    settings = pb.QueueDefined(**state.settings._asdict())
    return pb.JobCheckpoint.Queue(**_present({**state._asdict(), "settings": settings}))


def _decode_queue_state(message: pb.JobCheckpoint.Queue) -> QueueCheckpoint:
    return QueueCheckpoint(
        _settings(message.settings),
        message.removed,
        message.suspended_until_ms if message.HasField("suspended_until_ms") else None,
        list(message.starts_ms),
        cast("Sequence[JobId]", array("q", message.chains)),  # of a million, a list of integers takes 44 MB
    )


def _decode_part(value: bytes) -> CheckpointPart:
    message = parse(pb.CheckpointPart, value)
    _check(0 <= message.part < message.parts <= MAX_PARTS, "part of a checkpoint", message.part)
    return CheckpointPart(Offset(message.as_of), message.part, message.parts, message.content)


def _patterns(topics: Sequence[str]) -> Sequence[str]:
    _check(len(topics) <= MAX_PATTERNS, "topic patterns", len(topics))
    return tuple(parse_pattern(topic) for topic in topics)


def _jobs(jobs: Sequence[int]) -> Sequence[JobId]:
    _check(len(jobs) <= MAX_BATCH, "jobs", len(jobs))
    return cast("list[JobId]", list(jobs))


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are set: absent ones stand for the queue's or the job's setting."""
    return {field: value for field, value in fields.items() if value is not None}


def _check(holds: bool, what: str, found: object) -> None:  # noqa: FBT001  # the condition itself
    if not holds:
        raise MessageCorruptError(f"a job record is out of bounds: {what} is {found}")


_ENCODERS: Final[Mapping[type, tuple[int, Callable[[Any], Any]]]] = {
    JobsAdded: (kinds.JOBS_ADDED, _encode_added),
    JobsClaimed: (kinds.JOBS_CLAIMED, _encode_claimed),
    LeasesRenewed: (kinds.LEASES_RENEWED, _encode_renewed),
    JobsFinished: (kinds.JOBS_FINISHED, _encode_finished),
    JobsCommanded: (kinds.JOBS_COMMANDED, lambda r: pb.JobsCommanded(action=r.action, jobs=r.jobs)),
    QueueCommanded: (kinds.QUEUE_COMMANDED, _encode_queue_commanded),
    QueueDefined: (kinds.QUEUE_DEFINED, lambda r: pb.QueueDefined(**r.settings._asdict())),
    QueueRemoved: (kinds.QUEUE_REMOVED, lambda r: pb.QueueRemoved(name=r.name)),
    ScheduleDefined: (kinds.SCHEDULE_DEFINED, lambda r: _encode_schedule(r.schedule)),
    ScheduleRemoved: (kinds.SCHEDULE_REMOVED, lambda r: pb.ScheduleRemoved(name=r.name)),
    WorkerSeen: (kinds.WORKER_SEEN, lambda r: pb.WorkerSeen(**r._asdict())),
    CheckpointPart: (kinds.CHECKPOINT_PART, lambda r: pb.CheckpointPart(**r._asdict())),
}

_HEADERS: Final[Mapping[int, Headers]] = {kind: headers_for(kind) for kind, _ in _ENCODERS.values()}
_KINDS: Final[Mapping[Headers, int]] = {headers: kind for kind, headers in _HEADERS.items()}
"""Headers as this version writes them: a lookup, where others are parsed."""

_DECODERS: Final[Mapping[int, Callable[[bytes], JobRecord]]] = {
    kinds.JOBS_ADDED: _decode_added,
    kinds.JOBS_CLAIMED: _decode_claimed,
    kinds.LEASES_RENEWED: _decode_renewed,
    kinds.JOBS_FINISHED: _decode_finished,
    kinds.JOBS_COMMANDED: _decode_commanded,
    kinds.QUEUE_COMMANDED: _decode_queue_commanded,
    kinds.QUEUE_DEFINED: _decode_defined,
    kinds.QUEUE_REMOVED: lambda value: QueueRemoved(name(parse(pb.QueueRemoved, value).name)),
    kinds.SCHEDULE_DEFINED: lambda value: ScheduleDefined(_decode_schedule(parse(pb.ScheduleDefined, value))),
    kinds.SCHEDULE_REMOVED: lambda value: ScheduleRemoved(name(parse(pb.ScheduleRemoved, value).name)),
    kinds.WORKER_SEEN: _decode_worker,
    kinds.CHECKPOINT_PART: _decode_part,
}
