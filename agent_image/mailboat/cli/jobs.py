"""`mailboat jobs`: add jobs, show them and their queues, stop, remove and retry them."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from mailboat.cli import job_schedules
from mailboat.cli.colours import error_style, state_style
from mailboat.cli.declaring import command
from mailboat.cli.help_page import command_group
from mailboat.cli.job_topic import open_topic, parse_duration_ms
from mailboat.cli.questions import ask
from mailboat.cli.rendering import ABSENT, Column, Report, Table, count_text, time_text
from mailboat.cli.session import Session
from mailboat.clock import moment_of
from mailboat.errors import UsageError
from mailboat.jobs.command import payload_value
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_queue import Queue
from mailboat.jobs.selection import UNASSIGNED, shown_state, why_pending
from mailboat.jobs.topic import JobTopic
from mailboat.model.jobs import (
    DEFAULT_LEASE_MS,
    JobAction,
    JobId,
    JobRecord,
    JobsCommanded,
    JobState,
    NewJob,
    Priority,
    QueueAction,
    QueueCommanded,
    QueueDefined,
    QueueKind,
    QueueRemoved,
    QueueSettings,
    parse_job_id,
    parse_pattern,
    parse_topic,
    show_job_id,
    topic_matches,
)

JOB_COLUMNS: Final = (
    Column("JOB"),
    Column("TOPIC"),
    Column("QUEUE"),
    Column("STATE", style=state_style),
    Column("TRIES", is_number=True),
    Column("DUE"),
    Column("REASON", can_fold=True, style=error_style),
)
QUEUE_COLUMNS: Final = (
    Column("QUEUE"),
    Column("KIND"),
    Column("QUEUED", is_number=True),
    Column("ACTIVE", is_number=True),
    Column("OLDEST"),
    Column("LIMITS"),
    Column("TOPICS", can_cut=True),
)
_MOST_LISTED: Final = 500
_RATE: Final = re.compile(r"(\d+)/(\d+(?:ms|s|m|h|d))\Z")


class StateOption(enum.StrEnum):
    """States to list."""

    QUEUED = "queued"
    UNASSIGNED = UNASSIGNED
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    GIVEN_UP = "given-up"
    ERROR = "error"


class PriorityOption(enum.StrEnum):
    """Priorities of a job."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class KindOption(enum.StrEnum):
    """Kinds of a queue."""

    PARALLEL = "parallel"
    ORDERED = "ordered"
    KEYED = "keyed"
    FAIR = "fair"


JobsArgument = Annotated[list[str], typer.Argument(metavar="JOB", help="Job ids, such as 1042-0.")]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="A queue's name.")]
SureOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = command_group("jobs", "Add jobs for workers; show, stop, remove and retry them.")
    group.command("add")(add)
    group.command("ls")(list_jobs)
    group.command("show")(show)
    group.command("stop")(stop)
    group.command("remove")(remove)
    group.command("retry")(retry)
    group.command("queues")(queues)
    group.command("set-queue")(set_queue)
    group.command("remove-queue")(remove_queue)
    group.command("suspend")(suspend)
    group.command("resume")(resume)
    group.command("clear")(clear)

    group.command("schedule")(job_schedules.schedule)
    group.command("schedules")(job_schedules.schedules)
    group.command("fire")(job_schedules.fire)
    group.command("unschedule")(job_schedules.unschedule)
    app.add_typer(group)


@command
def add(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Names joined by dots, such as purge.cdn.")],
    data: Annotated[str, typer.Option("--data", metavar="TEXT", help="Payload; `-` reads standard input.")] = "",
    key: Annotated[str, typer.Option("--key", help="Order, fairness and merging are by key.")] = "",
    delay: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="Start after this time.")] = None,
    priority: Annotated[
        PriorityOption, typer.Option("--priority", metavar="PRIORITY", help="high, normal or low.")
    ] = PriorityOption.NORMAL,
    retries: Annotated[
        int | None, typer.Option("--retries", min=-1, max=30_000, help="Retries; -1: no limit. Default: the queue's.")
    ] = None,
    lease: Annotated[
        str | None, typer.Option("--lease", metavar="DURATION", help="A silent worker loses the job. Default: 30s.")
    ] = None,
    unique: Annotated[
        str, typer.Option("--unique", metavar="VALUE", help="Do not add while a job with this value is queued.")
    ] = "",
    request_id: Annotated[
        str, typer.Option("--request-id", metavar="ID", help="Idempotency key: reusing it never adds a second job.")
    ] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the job in the history when it succeeded.")] = False,
) -> None:
    """Add a job, and print its id."""
    payload = sys.stdin.buffer.read() if data == "-" else data.encode()
    new = NewJob(
        parse_topic(topic),
        payload,
        key=key,
        priority=Priority[priority.name],
        delay_ms=0 if delay is None else parse_duration_ms(delay),
        retries=retries,
        lease_ms=DEFAULT_LEASE_MS if lease is None else parse_duration_ms(lease),
        unique=unique,
        request_id=request_id,
        keep=keep,
    )
    with open_topic(session) as opened:
        _show_added(session, opened, opened.add([new]))


@command
def list_jobs(
    session: Session,
    state: Annotated[StateOption | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only jobs of this queue.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="PATTERN", help="Only jobs of these topics.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most this many, oldest first.")] = _MOST_LISTED,
) -> None:
    """List jobs that are not over, and those that failed in the last days."""
    pattern = None if topic is None else parse_pattern(topic)
    with open_topic(session) as opened:
        fold = opened.fold
        found: list[dict[str, Any]] = []
        more = 0
        for job in fold.table.all():
            if state is not None and shown_state(fold, job) != state.value:
                continue
            if queue is not None and fold.queue(job).settings.name != queue:
                continue
            if pattern is not None and not topic_matches(pattern, fold.topic(job)):
                continue
            if len(found) == limit:
                more += 1
            else:
                found.append(_document(opened, job))
    empty = "no such jobs" if (state or queue or topic) else "no jobs"
    blocks: list[Table | str] = [Table(JOB_COLUMNS, [_row(one) for one in found], empty=empty)]
    if more:
        blocks.append(f"{count_text(more, 'more job')}; see --limit")
    session.show(Report(found, [one["job"] for one in found], lambda: blocks))


@command
def show(
    session: Session, job: Annotated[str, typer.Argument(metavar="JOB", help="A job id, such as 1042-0.")]
) -> None:
    """Show a job: its payload, why it is pending or failed, and its worker."""
    with open_topic(session) as opened:
        number = _known(opened.fold, job)
        new = opened.job(number)
        document = _document(opened, number)
        document["key"] = "" if new is None else new.key
        document["data"] = None if new is None else payload_value(new.payload)
        lease = opened.fold.leases.get(number)
        if lease is not None:
            document["worker"] = lease.worker
            document["token"] = lease.token
            document["progress"] = lease.progress.decode(errors="replace")
    lines = [f"{name.replace('_', ' '):<10} {value}" for name, value in document.items() if value not in ("", None)]
    session.show(Report(document, [job], lambda: lines))


@command
def stop(session: Session, jobs: JobsArgument) -> None:
    """Stop jobs: queued ones at once, running ones when their handler notices, at the next renewal."""
    _command(session, JobAction.STOP, jobs)


@command
def remove(session: Session, jobs: JobsArgument) -> None:
    """Drop queued jobs, and forget ended ones. Running jobs are left; stop them first."""
    _command(session, JobAction.REMOVE, jobs)


@command
def retry(session: Session, jobs: JobsArgument) -> None:
    """Add jobs that ended again, with new ids and no attempts."""
    with open_topic(session) as opened:
        again = []
        for text in jobs:
            job = _known(opened.fold, text)
            state = opened.fold.table.state(job)
            new = opened.job(job)
            if state is None or not state.final or new is None:
                raise UsageError(f"job {text} is {shown_state(opened.fold, job)}; only jobs that ended can be retried")
            again.append(new._replace(due_ms=0, delay_ms=0, unique="", request_id="", retry_of=job))
        _show_added(session, opened, opened.add(again))


@command
def queues(session: Session) -> None:
    """List the queues with their jobs and limits."""
    with open_topic(session) as opened:
        oldest = _oldest_of(opened.fold)
        found = [
            _queue_document(queue, oldest.get(name), opened.fold.now_ms)
            for name, queue in sorted(opened.fold.queues.items())
        ]
    rows = [_queue_row(one) for one in found]
    session.show(Report(found, [one["queue"] for one in found], lambda: [Table(QUEUE_COLUMNS, rows)]))


@command
def set_queue(
    session: Session,
    queue: QueueArgument,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="PATTERN", help="Topics of its jobs; repeatable.")
    ] = None,
    kind: Annotated[
        KindOption, typer.Option("--kind", metavar="KIND", help="parallel, ordered, keyed or fair.")
    ] = KindOption.PARALLEL,
    max_parallel: Annotated[
        int, typer.Option("--max-parallel", min=-1, help="Calls at the same time; -1: no limit.")
    ] = -1,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Starts within a time, such as 100/1s.")
    ] = None,
    merge: Annotated[int, typer.Option("--merge", min=1, max=256, help="Jobs of one key that one call takes.")] = 1,
    merge_within: Annotated[
        str, typer.Option("--merge-within", metavar="DURATION", help="How long the first waits for others.")
    ] = "2s",
    retries: Annotated[int, typer.Option("--retries", min=-1, max=30_000, help="Retries of a job.")] = 10,
    retry_delay: Annotated[
        str, typer.Option("--retry-delay", metavar="DURATION", help="Before the first retry; doubles after that.")
    ] = "2s",
) -> None:
    """Create a queue, or replace its settings. Jobs that it holds stay in it."""
    if max_parallel == 0:
        raise UsageError("--max-parallel 0 would start nothing", next_step=f"mailboat jobs suspend {queue}")
    if merge > 1 and kind is not KindOption.PARALLEL:
        raise UsageError("only parallel queues can merge jobs")
    limit = (0, 1_000) if rate is None else parse_rate(rate)
    settings = QueueSettings(
        queue,
        tuple(parse_pattern(pattern) for pattern in topics or ()),
        QueueKind[kind.name],
        max_parallel,
        *limit,
        merge,
        parse_duration_ms(merge_within) if merge > 1 else 0,
        retries,
        parse_duration_ms(retry_delay),
    )
    _append(session, QueueDefined(settings))
    session.show(Report({"queue": queue}, [queue], lambda: [f"queue {queue} is set"]))


@command
def remove_queue(session: Session, queue: QueueArgument) -> None:
    """Remove a queue. It finishes the jobs that it holds; new ones go to other queues."""
    _queue(session, queue, QueueRemoved(queue), "is removed")


@command
def suspend(
    session: Session,
    queue: QueueArgument,
    duration: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="Resume after this time.")] = None,
) -> None:
    """Start no further jobs of a queue; running ones go on."""
    with open_topic(session) as opened:
        until_ms = None if duration is None else opened.fold.now_ms + parse_duration_ms(duration)
        _check_queue(opened.fold, queue)
        opened.append(QueueCommanded(QueueAction.SUSPEND, queue, until_ms))
    until = "until it is resumed" if until_ms is None else f"until {time_text(moment_of(until_ms))}"
    session.show(
        Report({"queue": queue, "until_ms": until_ms}, [queue], lambda: [f"queue {queue} is suspended {until}"])
    )


@command
def resume(session: Session, queue: QueueArgument) -> None:
    """End the suspension of a queue."""
    _queue(session, queue, QueueCommanded(QueueAction.RESUME, queue), "is resumed")


@command
def clear(session: Session, queue: QueueArgument, yes: SureOption = False) -> None:
    """Drop all queued jobs of a queue; running ones go on."""
    with open_topic(session) as opened:
        _check_queue(opened.fold, queue)
        waiting = opened.fold.queues[queue].queued
        ask(f"Drop {count_text(waiting, 'queued job')} of {queue}?", "nothing was dropped", is_sure=yes)
        (offset,) = opened.append(QueueCommanded(QueueAction.CLEAR, queue))
        dropped = 0

        def count(at: int, applied: Any) -> None:
            nonlocal dropped
            dropped += sum(t.reason == "cleared" for t in applied.transitions) if at == offset else 0

        opened.follow_to(offset, count)
    text = f"{count_text(dropped, 'job')} of {queue} dropped"
    session.show(Report({"queue": queue, "dropped": dropped}, [queue], lambda: [text]))


def parse_rate(text: str) -> tuple[int, int]:
    """Read a rate such as `100/1s`: starts, and the time in milliseconds. Raises: UsageError."""
    found = _RATE.match(text)
    if found is None or not int(found[1]):
        raise UsageError(f"{text!r} is not a rate; expected starts per time, such as 100/1s")
    return int(found[1]), parse_duration_ms(found[2])


def _document(opened: JobTopic, job: JobId) -> dict[str, Any]:
    fold = opened.fold
    state = fold.table.state(job)
    waits = state is JobState.QUEUED
    return {
        "job": show_job_id(job),
        "topic": fold.topic(job),
        "queue": fold.queue(job).settings.name,
        "state": shown_state(fold, job),
        "tries": fold.table.tries(job),
        "due_at": moment_of(fold.table.due_ms(job)).isoformat() if waits else None,
        "reason": why_pending(fold, job) if waits else opened.last_message(job),
    }


def _row(document: dict[str, Any]) -> list[str]:
    due = document["due_at"]
    return [
        document["job"],
        document["topic"],
        document["queue"],
        document["state"],
        str(document["tries"]),
        ABSENT if due is None else due[:19],
        document["reason"],
    ]


def _oldest_of(fold: JobFold) -> dict[str, int]:
    """When the oldest due job of each queue became due."""
    oldest: dict[str, int] = {}
    for job in fold.table.all():
        if fold.table.is_ready(job, fold.now_ms):
            name = fold.queue(job).settings.name
            oldest[name] = min(oldest.get(name, 1 << 62), fold.table.due_ms(job))
    return oldest


def _queue_document(queue: Queue, oldest_ms: int | None, now_ms: int) -> dict[str, Any]:
    settings = queue.settings
    return {
        "queue": settings.name,
        "kind": settings.kind.name.lower(),
        "queued": queue.queued,
        "active": queue.running,
        "oldest_at": None if oldest_ms is None else moment_of(oldest_ms).isoformat(),
        "oldest_seconds": None if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000,
        "suspended": queue.is_suspended(now_ms),
        "max_parallel": settings.max_parallel,
        "rate": f"{settings.rate}/{settings.rate_period_ms / 1000:g}s" if settings.rate else None,
        "merge": settings.merge,
        "topics": list(settings.topics),
    }


def _queue_row(document: dict[str, Any]) -> list[str]:
    limits = [
        "suspended" if document["suspended"] else "",
        f"parallel {document['max_parallel']}" if document["max_parallel"] >= 0 else "",
        document["rate"] or "",
        f"merge {document['merge']}" if document["merge"] > 1 else "",
    ]
    oldest = document["oldest_seconds"]
    return [
        document["queue"],
        document["kind"],
        str(document["queued"]),
        str(document["active"]),
        ABSENT if oldest is None else f"{oldest:.0f} s",
        ", ".join(filter(None, limits)) or ABSENT,
        ", ".join(document["topics"]) or ABSENT,
    ]


def _known(fold: JobFold, text: str) -> JobId:
    job = parse_job_id(text)
    if fold.table.state(job) is None:
        raise UsageError(f"job {text} is not known", next_step="it ended and left the history; see mailboat jobs ls")
    return job


def _check_queue(fold: JobFold, name: str) -> None:
    if name not in fold.queues:
        raise UsageError(f"there is no queue {name!r}; queues: {', '.join(sorted(fold.queues))}")


def _append(session: Session, record: JobRecord) -> None:
    with open_topic(session) as opened:
        opened.append(record)


def _queue(session: Session, queue: str, record: JobRecord, done: str) -> None:
    with open_topic(session) as opened:
        _check_queue(opened.fold, queue)
        opened.append(record)
    session.show(Report({"queue": queue}, [queue], lambda: [f"queue {queue} {done}"]))


def _command(session: Session, action: JobAction, texts: Sequence[str]) -> None:
    with open_topic(session) as opened:
        jobs = [_known(opened.fold, text) for text in texts]
        active = [show_job_id(job) for job in jobs if opened.fold.table.state(job) is JobState.ACTIVE]
        if active and action is JobAction.REMOVE:
            raise UsageError(f"{', '.join(active)} run", next_step=f"mailboat jobs stop {' '.join(active)}")
        (offset,) = opened.append(JobsCommanded(action, jobs))
        opened.follow_to(offset)
        found = [{"job": show_job_id(job), "state": shown_state(opened.fold, job)} for job in jobs]
        asked = {show_job_id(job) for job in jobs if job in opened.fold.leases}
    lines = [f"{one['job']} {'stop requested' if one['job'] in asked else one['state']}" for one in found]
    session.show(Report(found, texts, lambda: lines))


def _show_added(session: Session, opened: JobTopic, jobs: Sequence[JobId]) -> None:
    names = [show_job_id(job) for job in jobs]
    found = [{"job": name, "state": shown_state(opened.fold, job)} for name, job in zip(names, jobs, strict=True)]
    reasons = [why_pending(opened.fold, job) for job in jobs]
    lines = [f"{name}  {reason}".rstrip() for name, reason in zip(names, reasons, strict=True)]
    session.show(Report(found, names, lambda: lines))
