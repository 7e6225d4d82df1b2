"""The records of the job topic, and the names in them.

One record covers up to `MAX_BATCH` jobs. A job is named by the offset of the record that added it and its place there,
so ids grow in the order of the log and are never used twice.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, NewType

from mailboat.errors import PermanentError, UsageError
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.positions import LogIdentity

JobId = NewType("JobId", int)
"""`offset * MAX_BATCH + index`. Written as `OFFSET-INDEX`."""

Token = NewType("Token", int)
"""The fencing token of a lease: the offset of the claim. A later claim of the same job has a higher one."""
MAX_BATCH: Final = 256
_JOB_ID: Final = re.compile(r"(\d{1,15})-(\d{1,3})\Z")

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
_TOPIC: Final = re.compile(rf"{_NAME}(?:\.{_NAME}){{0,9}}\Z")
_PATTERN: Final = re.compile(rf"(?:\*\*|(?:{_NAME}|\*)(?:\.(?:{_NAME}|\*)){{0,8}}(?:\.\*\*)?)\Z")

RESERVED_NAME: Final = "mailboat"
"""The first name of topics whose jobs are the project's own: no pattern matches them that does not begin with it."""

DEFAULT_QUEUE: Final = "default"
"""Takes the jobs that no other queue takes. It is always there."""

POOL_QUEUE: Final = "pool:"
"""Begins the names of the queues of shared pools. No queue of a user can have such a name."""

MIN_LEASE_MS: Final = 1_000
MAX_LEASE_MS: Final = 24 * 3600 * 1000
DEFAULT_LEASE_MS: Final = 30_000
LONGEST_DELAY_MS: Final = (1 << 32) - 1
"""49 days: what the table keeps. A job that is due later names the moment."""
MAX_RETRIES: Final = 30_000
MAX_LIMIT: Final = 1_000_000
"""Of calls at the same time, of starts in a period, and of a worker's slots."""
MAX_PATTERNS: Final = 64
MAX_PROGRESS_BYTES: Final = 4 * 1024


class JobMissingError(UsageError):
    """No job with that id is known: it was never added, or it ended and left the history.

    `mailboat jobs ls` lists the jobs.
    """


class JobQueueMissingError(UsageError):
    """There is no queue of jobs with that name. `mailboat jobs queues` lists the queues."""


class JobScheduleMissingError(UsageError):
    """There is no schedule of jobs with that name. `mailboat jobs schedules` lists the schedules."""


class JobLeaseLostError(PermanentError):
    """The lease of the job is over or belongs to another worker, so its result or transaction does not count.

    The job runs again. Make its effect safe to repeat, renew more often, or give the job a longer lease.
    """


def job_id(offset: Offset, index: int) -> JobId:
    """The id of the job at this place of the record that added it."""
    return JobId(offset * MAX_BATCH + index)


def offset_of(job: JobId) -> Offset:
    """The offset of the record that added the job; its payload is there."""
    return Offset(job // MAX_BATCH)


def show_job_id(job: JobId) -> str:
    """The id as users read and write it: `OFFSET-INDEX`."""
    return f"{job // MAX_BATCH}-{job % MAX_BATCH}"


def parse_job_id(text: str) -> JobId:
    """Read `OFFSET-INDEX`. Raises: UsageError."""
    found = _JOB_ID.match(text)
    if found is None or int(found[2]) >= MAX_BATCH:
        raise UsageError(f"{text!r} is not a job id; expected OFFSET-INDEX, such as 1042-0")
    return job_id(Offset(int(found[1])), int(found[2]))


def parse_topic(text: str) -> str:
    """Check a job's topic. Raises: UsageError."""
    if not _TOPIC.match(text):
        raise UsageError(f"{text!r} is not a job topic; expected 1 to 10 names joined by dots, such as purge.cdn")
    return text


def parse_pattern(text: str) -> str:
    """Check a pattern of job topics. Raises: UsageError."""
    if not _PATTERN.match(text):
        raise UsageError(f"{text!r} is not a pattern of job topics; expected names, '*' or a last '**': purge.*")
    return text


def topic_matches(pattern: str, topic: str) -> bool:
    """Whether the topic is one of those that the pattern names; `**` matches one name or more."""
    parts, names = pattern.split("."), topic.split(".")
    if names[0] == RESERVED_NAME and parts[0] != RESERVED_NAME:
        return False
    if parts[-1] == "**":
        parts = parts[:-1]
        if len(names) <= len(parts):
            return False
    elif len(names) != len(parts):
        return False
    return all(part in ("*", name) for part, name in zip(parts, names, strict=False))


def patterns_overlap(first: str, second: str) -> bool:
    """Whether a topic can match both patterns."""
    ours, theirs = first.split("."), second.split(".")
    if (ours[0] == RESERVED_NAME) != (theirs[0] == RESERVED_NAME):
        return False
    while ours and theirs:
        if "**" in (ours[0], theirs[0]):
            return True
        if ours[0] != theirs[0] and "*" not in (ours[0], theirs[0]):
            return False
        ours, theirs = ours[1:], theirs[1:]
    return not ours and not theirs


def any_matches(patterns: Iterable[str], topic: str) -> bool:
    """Whether one of the patterns matches the topic."""
    return any(topic_matches(pattern, topic) for pattern in patterns)


def has_reserved(topics: Iterable[str]) -> bool:
    """Whether one of these topics or patterns is for the project's own jobs."""
    return any(topic.partition(".")[0] == RESERVED_NAME for topic in topics)


class JobState(enum.IntEnum):
    """Where a job is in its life. The numbers are stored in checkpoints."""

    QUEUED = 0
    ACTIVE = 1
    SUCCEEDED = 2
    STOPPED = 3
    GIVEN_UP = 4
    ERROR = 5
    DROPPED = 6

    @property
    def label(self) -> str:
        """The state as users read it, such as `given-up`."""
        return self.name.lower().replace("_", "-")

    @property
    def final(self) -> bool:
        """Whether the job will never run again."""
        return self > JobState.ACTIVE


UNASSIGNED: Final = "unassigned"
"""How users read the state of a queued job that is due while no live worker takes its topic."""


class Priority(enum.IntEnum):
    """Which ready jobs of a queue start first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class AttemptOutcome(enum.IntEnum):
    """What a worker reports of an attempt.

    Attributes:
        OK: The job succeeded.
        FAIL: Retry after the delay; give up when the retries are used up.
        CANCEL: Never retry: the job ends as `error`, or as `stopped` if its stop was requested.
        SNOOZE: Run again after the delay; the attempt is not counted.
    """

    OK = 0
    FAIL = 1
    CANCEL = 2
    SNOOZE = 3


class NewJob(NamedTuple):
    """A job to add.

    Attributes:
        topic: Chooses the queue and the handler: 1 to 10 names joined by dots, such as `purge.cdn`.
        payload: For the handler; the fold does not keep it.
        key: Order, fairness and merging are by key; empty for none.
        due_ms: Start at this moment or later, milliseconds since 1970 UTC; 0 for at once.
        delay_ms: Start this long after the append, or later; only one of both is set.
        retries: How often a failed attempt is repeated; None takes the queue's setting, -1 is without limit.
        retry_delay_ms: Before the first repetition; None takes the queue's.
        lease_ms: A worker that neither renews nor finishes for so long loses the job.
        unique: While a job with the same value is queued, this one is not added; empty for none.
        request_id: Adding it again returns the first job's id; empty for none.
        keep: Whether the job stays in the history when it succeeded.
        retry_of: The job of the history that this one repeats.
    """

    topic: str
    payload: bytes = b""
    key: str = ""
    priority: Priority = Priority.NORMAL
    due_ms: int = 0
    delay_ms: int = 0
    retries: int | None = None
    retry_delay_ms: int | None = None
    lease_ms: int = DEFAULT_LEASE_MS
    unique: str = ""
    request_id: str = ""
    keep: bool = False
    retry_of: JobId | None = None


class Firing(NamedTuple):
    """The due time for which a schedule adds jobs; counts only while it is the schedule's next one.

    Attributes:
        schedule: Its name.
        due_ms: The due time, or the last of several that were missed.
        next_ms: The due time after this one; None ends the schedule.
    """

    schedule: str
    due_ms: int
    next_ms: int | None


class Feed(NamedTuple):
    """How far a shared pool has put the packages of the log into its queue.

    A record with a feed counts only if its sequence is the next one of the pool, so that two members that put in the
    same packages put them in once.

    Attributes:
        pool: The subscriber that the members are.
        sequence: 1 for the first.
        next_offset: Every package below it is in the queue, or was.
        log: The package topic that the offsets are of.
        target: The marker of the one target that all members have open.
    """

    pool: AgentName
    sequence: int
    next_offset: Offset
    log: LogIdentity
    target: str

    @property
    def queue(self) -> str:
        """The queue that holds the packages of the pool."""
        return pool_queue(self.pool)


def pool_queue(pool: AgentName) -> str:
    """The name of the queue of a shared pool."""
    return POOL_QUEUE + pool


def pool_topic(pool: AgentName) -> str:
    """The topic of the jobs of a shared pool."""
    # names of topics have no dots; the digest keeps `a.b` and `a-b` apart
    digest = hashlib.blake2b(pool.encode(), digest_size=4).hexdigest()
    return f"{RESERVED_NAME}.pool.{pool.replace('.', '-')[:50]}-{digest}"


class JobsAdded(NamedTuple):
    """Jobs that a producer, the firing of a schedule, or a member of a shared pool adds."""

    jobs: Sequence[NewJob]
    firing: Firing | None = None
    feed: Feed | None = None


class MissedFirings(enum.IntEnum):
    """What happens to due times that passed while no worker was there."""

    ONCE = 0
    SKIP = 1
    ALL = 2


class Schedule(NamedTuple):
    """A job that is added again and again, or once at a time.

    Attributes:
        job: The job.
        cron: Five or six fields, in the time zone `zone`; empty for `every_ms`, or for one time.
        every_ms: The time between two due times; 0 for none.
        at_ms: The only due time, milliseconds since 1970 UTC; 0 for none.
        missed: Of due times that passed unseen.
        next_ms: The next due time; None when it has ended.
    """

    name: str
    job: NewJob
    cron: str = ""
    zone: str = "UTC"
    every_ms: int = 0
    at_ms: int = 0
    missed: MissedFirings = MissedFirings.ONCE
    next_ms: int | None = None


class ScheduleDefined(NamedTuple):
    """A schedule is made, or replaced."""

    schedule: Schedule


class ScheduleRemoved(NamedTuple):
    """A schedule ends; jobs that it added stay."""

    name: str


class JobsClaimed(NamedTuple):
    """A worker's claim of jobs. A call counts if all of its jobs can start at this place of the log.

    Attributes:
        jobs: Of all calls, one call after another.
        sizes: The number of jobs of each call; empty: each call is of one job.
    """

    worker: str
    jobs: Sequence[JobId]
    sizes: Sequence[int] = ()

    @classmethod
    def of(cls, worker: str, calls: Sequence[Sequence[JobId]]) -> JobsClaimed:
        """The claim of some calls."""
        jobs = [job for call in calls for job in call]
        return cls(worker, jobs, () if len(jobs) == len(calls) else [len(call) for call in calls])

    def calls(self) -> list[tuple[JobId, ...]]:
        """The jobs of each call."""
        jobs = tuple(self.jobs)
        if not self.sizes:
            return list(zip(jobs, strict=True))
        return [jobs[end - size : end] for end, size in zip(accumulate(self.sizes), self.sizes, strict=True)]


class Renewal(NamedTuple):
    """A lease that its holder still needs; `progress` is the worker's report, bounded by `wire`."""

    job: JobId
    token: Token
    progress: bytes = b""


class LeasesRenewed(NamedTuple):
    """Leases that a worker renews: the first job of each call, and the tokens in the same order.

    Attributes:
        progress: Place and progress of the calls that report any.
    """

    jobs: Sequence[JobId]
    tokens: Sequence[Token]
    progress: Sequence[tuple[int, bytes]] = ()

    @classmethod
    def of(cls, renewals: Sequence[Renewal]) -> LeasesRenewed:
        """The record of some renewals."""
        jobs, tokens, reported = zip(*renewals, strict=True) if renewals else [()] * 3
        return cls(list(jobs), list(tokens), [each for each in enumerate(reported) if each[1]])


class JobResult(NamedTuple):
    """How an attempt ended.

    Attributes:
        delay_ms: Before the next attempt, for FAIL and SNOOZE; None takes the job's setting.
        message: The cause, for people; the fold does not keep it.
    """

    job: JobId
    token: Token
    outcome: AttemptOutcome
    delay_ms: int | None = None
    message: str = ""


class ResultDetail(NamedTuple):
    """What the result at a place of `JobsFinished` says besides its outcome; fields as of `JobResult`."""

    place: int
    delay_ms: int | None
    message: str


class JobsFinished(NamedTuple):
    """Attempts that ended. The result of a merged call names one of its jobs, and holds for all of them.

    Attributes:
        tokens: Of the leases of these jobs, in the same order.
        outcomes: One byte for each, an `AttemptOutcome`; empty: all are OK.
    """

    jobs: Sequence[JobId]
    tokens: Sequence[Token]
    outcomes: bytes = b""
    details: Sequence[ResultDetail] = ()

    @classmethod
    def of(cls, results: Sequence[JobResult]) -> JobsFinished:
        """The record of some results."""
        jobs, tokens, outcomes, delays_ms, messages = zip(*results, strict=True) if results else [()] * 5
        has_details = any(messages) or delays_ms.count(None) < len(delays_ms)
        rest = zip(range(len(results)), delays_ms, messages, strict=True) if has_details else ()
        details = [ResultDetail(*each) for each in rest if each[1] is not None or each[2]]
        return cls(list(jobs), list(tokens), bytes(outcomes) if any(outcomes) else b"", details)


class JobAction(enum.IntEnum):
    """What an operator can ask of jobs."""

    STOP = 0
    REMOVE = 1


class JobsCommanded(NamedTuple):
    """A command over jobs: STOP ends running ones, REMOVE drops queued or forgets ended ones."""

    action: JobAction
    jobs: Sequence[JobId]


class QueueAction(enum.IntEnum):
    """What an operator can ask of a queue."""

    SUSPEND = 0
    RESUME = 1
    CLEAR = 2


class QueueCommanded(NamedTuple):
    """An operator's command over a queue; `until_ms` ends a suspension, None leaves it to RESUME."""

    action: QueueAction
    queue: str
    until_ms: int | None = None


class QueueKind(enum.IntEnum):
    """In which order jobs of a queue start.

    Attributes:
        PARALLEL: Each ready job may start.
        ORDERED: One at a time, in the order of the log; a retry holds up those behind it.
        KEYED: As ORDERED within each key; keys run in parallel.
        FAIR: The keys take turns; jobs of one key may run in parallel.
    """

    PARALLEL = 0
    ORDERED = 1
    KEYED = 2
    FAIR = 3


class QueueSettings(NamedTuple):
    """A queue. Its settings are in the log, so that all readers decide by the same ones.

    Attributes:
        topics: Patterns of job topics; the first queue, by name, with a matching pattern takes a job.
        max_parallel: Calls that run at the same time, over all workers; -1 is without limit.
        rate: Starts within `rate_period_ms`; 0 is without limit.
        merge: The most jobs of one topic and key that one call takes; 1 does not merge.
        merge_within_ms: How long the first job of a key waits for others.
        retry_delay_ms: Before the first repetition; each further one doubles it, up to `max_retry_delay_ms`.
        history_ms: How long jobs that ended stay visible.
        parallel_percent: As `max_parallel`, but a share of the slots of live workers that take its topics, at least
            one call; 0 is without this limit.
    """

    name: str
    topics: Sequence[str] = ()
    kind: QueueKind = QueueKind.PARALLEL
    max_parallel: int = -1
    rate: int = 0
    rate_period_ms: int = 1_000
    merge: int = 1
    merge_within_ms: int = 0
    retries: int = 10
    retry_delay_ms: int = 2_000
    max_retry_delay_ms: int = 300_000
    history_ms: int = 48 * 3600 * 1000
    parallel_percent: int = 0

    @property
    def shown_rate(self) -> str | None:
        """The rate as people read it, such as `100/1s`; None for no limit."""
        return f"{self.rate}/{self.rate_period_ms / 1000:g}s" if self.rate else None


class QueueDefined(NamedTuple):
    """A queue is made, or its settings change. Jobs that it holds stay in it."""

    settings: QueueSettings


class QueueRemoved(NamedTuple):
    """A queue goes; the jobs that it holds stay until they end, new ones go elsewhere."""

    name: str


class WorkerSeen(NamedTuple):
    """A worker is there, with this number of slots, for jobs of these topics. Zero slots: it leaves.

    Also the record that moves the time of an idle log, for example past the end of a lease.
    """

    worker: str
    slots: int
    topics: Sequence[str]
    rules: int = 0


class CheckpointPart(NamedTuple):
    """A part of a checkpoint, as one record takes it: number `part` of `parts`, from 0."""

    as_of: Offset
    part: int
    parts: int
    content: bytes


JobRecord = (
    JobsAdded
    | JobsClaimed
    | LeasesRenewed
    | JobsFinished
    | JobsCommanded
    | QueueCommanded
    | QueueDefined
    | QueueRemoved
    | WorkerSeen
    | ScheduleDefined
    | ScheduleRemoved
    | CheckpointPart
)
