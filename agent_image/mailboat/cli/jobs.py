"""`mailboat jobs`: add jobs, show them, their queues and schedules, stop, remove and retry them."""

from __future__ import annotations

import enum
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from mailboat.api.confirmations import CLEAR_JOBS, REMOVE_JOBS, RETRY_JOBS, STOP_JOBS, SUSPEND_JOBS
from mailboat.api.job_control import JobControl, JobFilter
from mailboat.api.job_views import JobQueueView, JobScheduleView, JobStateView, JobView, QueueChangeView
from mailboat.api.records import document_of
from mailboat.cli.confirmation import SureOption, ask
from mailboat.cli.help_page import command_group
from mailboat.cli.options import duration_text, parse_duration_ms, remote_command
from mailboat.cli.output import Report, count_text, seconds_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table, error_style, state_style
from mailboat.clock import SystemClock, milliseconds_of
from mailboat.control.job_service import JobService
from mailboat.errors import MailboatError, UsageError
from mailboat.model.jobs import (
    DEFAULT_LEASE_MS,
    LONGEST_DELAY_MS,
    MAX_BATCH,
    MAX_LEASE_MS,
    UNASSIGNED,
    JobAction,
    JobId,
    MissedFirings,
    NewJob,
    Priority,
    QueueKind,
    QueueSettings,
    Schedule,
    parse_job_id,
    parse_pattern,
    parse_topic,
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
    Column("DUE", is_number=True),
    Column("ACTIVE", is_number=True),
    Column("OLDEST", can_hide=True),
    Column("WORKERS", is_number=True),
    Column("GIVEN-UP", is_number=True),
    Column("LIMITS", can_hide=True),
    Column("TOPICS", can_cut=True, can_hide=True),
)
_MOST_LISTED: Final = 500
_PAGE_JOBS: Final = 500
_LARGEST_INPUT: Final = 1024 * 1024
"""More than the largest payload, so that a larger one is refused and not cut."""

_PARALLEL: Final = re.compile(r"(-1|\d{1,7})(%)?\Z")
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
TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="PATTERN", help="Topics of its jobs; repeatable.")
]
QueueKindOption = Annotated[
    KindOption,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="parallel, ordered (one at a time), keyed (one at a time per key) or fair (keys take turns).",
    ),
]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="A queue's name.")]

app = command_group("jobs")


@contextmanager
def _control(session: Session) -> Iterator[JobControl]:
    """Jobs, of the agent at the URL, else of the home itself."""
    if session.url is not None:
        with session.agent(session.url) as client:
            yield client.jobs
        return
    chance = random.Random()  # noqa: S311  # it spreads the records of workers
    with (
        session.workspace() as workspace,
        closing(JobService(lambda: workspace.journal, SystemClock(), chance)) as jobs,
    ):
        yield jobs


@app.command("add")
@remote_command
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
        str | None,
        typer.Option(
            "--lease", metavar="DURATION", help="Silence of a worker after which it loses the job. Default: 30s."
        ),
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
    payload = sys.stdin.buffer.read(_LARGEST_INPUT) if data == "-" else os.fsencode(data)
    new = NewJob(
        parse_topic(topic),
        payload,
        key=key,
        priority=Priority[priority.name],
        delay_ms=0 if delay is None else parse_duration_ms(delay, LONGEST_DELAY_MS),
        retries=retries,
        lease_ms=DEFAULT_LEASE_MS if lease is None else parse_duration_ms(lease, MAX_LEASE_MS),
        unique=unique,
        request_id=request_id,
        keep=keep,
    )
    with _control(session) as control:
        _show_states(session, control.add([new]))


@app.command("ls")
@remote_command
def list_jobs(
    session: Session,
    state: Annotated[StateOption | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only jobs of this queue.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="PATTERN", help="Only jobs of these topics.")] = None,
    members: Annotated[
        list[str] | None,
        typer.Option("--member", metavar="NAME=VALUE", help="Only jobs with this member in the payload; repeatable."),
    ] = None,
    older: Annotated[
        str | None, typer.Option("--older", metavar="DURATION", help="Only jobs that ended longer ago.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most this many, oldest first.")] = _MOST_LISTED,
) -> None:
    """List queued and running jobs, and those that ended in the last 48 hours (succeeded ones only if kept)."""
    older_seconds = None if older is None else parse_duration_ms(older) / 1000
    wanted = JobFilter(None if state is None else state.value, queue, topic, members or (), older_seconds)
    found: list[JobView] = []
    with _control(session) as control:
        page = control.list_jobs(wanted, None, min(limit, _PAGE_JOBS))
        found += page.items
        while page.next_page is not None and len(found) < limit:
            page = control.list_jobs(wanted, page.next_page, min(limit - len(found), _PAGE_JOBS))
            found += page.items
    empty = "no such jobs" if (state or queue or topic or members or older) else "no jobs"
    table = Table(JOB_COLUMNS, [_row(job) for job in found], empty=empty)
    session.show(Report(document_of(found), [job.job for job in found], lambda: [table]))
    if page.next_page is not None:
        session.note("there are more jobs; see --limit")


@app.command("show")
@remote_command
def show(
    session: Session, job: Annotated[str, typer.Argument(metavar="JOB", help="A job id, such as 1042-0.")]
) -> None:
    """Show a job: its payload, why it is pending or failed, and its worker."""
    number = parse_job_id(job)
    with _control(session) as control:
        found = control.show(number)
    document = document_of(found)
    document = {**document.pop("view"), **document}
    document = {name: value for name, value in document.items() if value not in (None, [])}
    session.show(Report(document, [job], lambda: _detail_lines(document)))


@app.command("stop", asks=STOP_JOBS)
@remote_command
def stop(session: Session, jobs: JobsArgument) -> None:
    """Stop jobs."""
    _command(session, JobAction.STOP, jobs)


@app.command("remove", asks=REMOVE_JOBS)
@remote_command
def remove(session: Session, jobs: JobsArgument) -> None:
    """Remove jobs."""
    _command(session, JobAction.REMOVE, jobs)


@app.command("retry", asks=RETRY_JOBS)
@remote_command
def retry(session: Session, jobs: JobsArgument) -> None:
    """Retry jobs."""
    with _control(session) as control:
        found, error = _in_batches(jobs, control.retry)
    _show_states(session, found, error)


@app.command("queues")
@remote_command
def queues(session: Session) -> None:
    """List the queues with their jobs and limits."""
    with _control(session) as control:
        found = control.queues()
    rows = [_queue_row(queue) for queue in found]
    names = [queue.queue for queue in found]
    session.show(Report(document_of(found), names, lambda: [Table(QUEUE_COLUMNS, rows)]))


@app.command("set-queue")
@remote_command
def set_queue(
    session: Session,
    queue: QueueArgument,
    topics: TopicsOption = None,
    kind: QueueKindOption = KindOption.PARALLEL,
    max_parallel: Annotated[
        str,
        typer.Option(
            "--max-parallel",
            metavar="CALLS",
            help="Calls at the same time, or a share of all slots: 50%; -1: no limit.",
        ),
    ] = "-1",
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Maximum rate of starts, such as 100/1s.")
    ] = None,
    merge: Annotated[
        int, typer.Option("--merge", min=1, max=256, help="Maximum jobs of one topic and key per call.")
    ] = 1,
    merge_within: Annotated[
        str,
        typer.Option("--merge-within", metavar="DURATION", help="Time that the first job of a key waits for others."),
    ] = "2s",
    retries: Annotated[int, typer.Option("--retries", min=-1, max=30_000, help="Retries of a job.")] = 10,
    retry_delay: Annotated[
        str, typer.Option("--retry-delay", metavar="DURATION", help="Pause before the first retry; doubles each time.")
    ] = "2s",
    history: Annotated[
        str, typer.Option("--history", metavar="DURATION", help="How long jobs that ended stay in the list.")
    ] = "48h",
) -> None:
    """Create a queue, or replace its settings. Jobs that it holds stay in it."""
    calls, percent = parse_parallel(max_parallel, queue)
    if merge > 1 and kind is not KindOption.PARALLEL:
        raise UsageError("only parallel queues can merge jobs")
    settings = QueueSettings(
        queue,
        tuple(map(parse_pattern, topics or ())),
        QueueKind[kind.name],
        calls,
        *((0, 1_000) if rate is None else parse_rate(rate)),
        merge,
        parse_duration_ms(merge_within, MAX_LEASE_MS) if merge > 1 else 0,
        retries,
        parse_duration_ms(retry_delay, LONGEST_DELAY_MS),
        history_ms=parse_duration_ms(history),
        parallel_percent=percent,
    )
    with _control(session) as control:
        _show_change(session, control.set_queue(settings), "is set")


@app.command("remove-queue")
@remote_command
def remove_queue(session: Session, queue: QueueArgument) -> None:
    """Remove a queue. It finishes the jobs that it holds; new ones go to other queues."""
    with _control(session) as control:
        _show_change(session, control.remove_queue(queue), "is removed")


@app.command("suspend", asks=SUSPEND_JOBS)
@remote_command
def suspend(
    session: Session,
    queue: QueueArgument,
    duration: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="Resume after this time.")] = None,
) -> None:
    """Suspend a queue."""
    seconds = None if duration is None else parse_duration_ms(duration, LONGEST_DELAY_MS) / 1000
    with _control(session) as control:
        changed = control.suspend(queue, seconds)
    until = "until it is resumed" if changed.until_at is None else f"until {time_text(changed.until_at)}"
    _show_change(session, changed, f"is suspended {until}")


@app.command("resume")
@remote_command
def resume(session: Session, queue: QueueArgument) -> None:
    """End the suspension of a queue."""
    with _control(session) as control:
        _show_change(session, control.resume(queue), "is resumed")


@app.command("clear", asks=CLEAR_JOBS)
@remote_command
def clear(session: Session, queue: QueueArgument, yes: SureOption = False) -> None:
    """Drop all queued jobs of a queue."""
    with _control(session) as control:
        waiting = next((each.queued for each in control.queues() if each.queue == queue), None)
        if waiting is not None:  # else there is no such queue, which `clear` says
            question = CLEAR_JOBS.question(jobs=count_text(waiting, "queued job"), queue=queue)
            ask(question, "nothing was dropped", is_sure=yes)
        changed = control.clear(queue)
    text = f"{count_text(changed.dropped or 0, 'job')} of {queue} dropped"
    session.show(Report({"queue": queue, "dropped": changed.dropped}, [queue], lambda: [text]))


def parse_parallel(text: str, queue: str) -> tuple[int, int]:
    """Read `8` or `50%`: a limit of calls (-1: none), or a percentage of slots. Raises: UsageError."""
    found = _PARALLEL.match(text)
    if found is None or (found[2] and not 1 <= int(found[1]) <= 100):
        raise UsageError(f"{text!r} is not a limit; expected calls, such as 8, or a share of slots, such as 50%")
    if not int(found[1]):
        raise UsageError("--max-parallel 0 would start nothing", next_step=f"mailboat jobs suspend {queue}")
    return (-1, int(found[1])) if found[2] else (int(found[1]), 0)


def parse_rate(text: str) -> tuple[int, int]:
    """Read a rate such as `100/1s`: starts, and the time in milliseconds. Raises: UsageError."""
    found = _RATE.match(text)
    if found is None or not int(found[1]):
        raise UsageError(f"{text!r} is not a rate; expected starts per time, such as 100/1s")
    return int(found[1]), parse_duration_ms(found[2], MAX_LEASE_MS)


def _row(job: JobView) -> list[str]:
    due = time_text(job.due_at) or ABSENT
    return [job.job, job.topic, job.queue, job.state, str(job.tries), due, job.reason]


def _detail_lines(document: dict[str, Any]) -> list[str]:
    log = document.get("log", ())
    shown = {name: value for name, value in document.items() if value != "" and name not in ("log", "done", "total")}
    if not isinstance(document.get("data", ""), str):
        shown["data"] = json.dumps(document["data"], ensure_ascii=False)  # as `jobs add --data` takes it
    if "total" in document:
        shown["progress"] = f"{document['done']} of {document['total']}"
    return [*(f"{name.replace('_', ' '):<10} {value}" for name, value in shown.items()), *(f"| {line}" for line in log)]


def _queue_row(queue: JobQueueView) -> list[str]:
    limits = [
        "suspended" if queue.suspended else "",
        f"parallel {queue.max_parallel}" if queue.max_parallel >= 0 else "",
        f"parallel {queue.parallel_percent}%" if queue.parallel_percent else "",
        queue.rate or "",
        f"merge {queue.merge}" if queue.merge > 1 else "",
        f"older version: {' '.join(queue.older_workers)}" if queue.older_workers else "",
    ]
    return [
        queue.queue,
        queue.kind,
        str(queue.queued),
        str(queue.due),
        str(queue.active),
        ABSENT if queue.oldest_seconds is None else seconds_text(queue.oldest_seconds),
        str(queue.workers),
        str(queue.given_up),
        ", ".join(filter(None, limits)) or ABSENT,
        ", ".join(queue.topics) or ABSENT,
    ]


def _command(session: Session, action: JobAction, texts: Sequence[str]) -> None:
    with _control(session) as control:
        found, error = _in_batches(texts, lambda jobs: control.command(action, jobs))
    lines = [f"{each.job} {'stop requested' if each.stop_requested else each.state}" for each in found]
    _show_lines(session, found, lines, error)


def _in_batches(
    texts: Sequence[str], do: Callable[[Sequence[JobId]], Sequence[JobStateView]]
) -> tuple[list[JobStateView], MailboatError | None]:
    """Do something with jobs, as many at once as a record of the log holds; what was done, and what ended it.

    Raises: UsageError for an invalid id, before anything is done.
    """
    jobs, found = [parse_job_id(text) for text in texts], list[JobStateView]()
    for begin in range(0, len(jobs), MAX_BATCH):
        try:
            found += do(jobs[begin : begin + MAX_BATCH])
        except MailboatError as error:
            return found, error
    return found, None


def _show_states(session: Session, found: Sequence[JobStateView], error: MailboatError | None = None) -> None:
    _show_lines(session, found, [f"{each.job}  {each.reason}".rstrip() for each in found], error)


def _show_lines(
    session: Session, found: Sequence[JobStateView], lines: Sequence[str], error: MailboatError | None
) -> None:
    """Print what was done, then raise what ended it."""
    documents = [{"job": each.job, "state": each.state} for each in found]
    if found or error is None:
        session.show(Report(documents, [each.job for each in found], lambda: lines))
    if error is not None:
        raise error


def _show_change(session: Session, changed: QueueChangeView, done: str) -> None:
    document = {name: value for name, value in document_of(changed).items() if value is not None}
    session.show(Report(document, [changed.queue], lambda: [f"queue {changed.queue} {done}"]))


SCHEDULE_COLUMNS: Final = (Column("SCHEDULE"), Column("TOPIC"), Column("WHEN"), Column("MISSED"), Column("NEXT"))
NameArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="A schedule's name.")]


class MissedOption(enum.StrEnum):
    """What happens to due times that passed while no worker was there."""

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


@app.command("schedule")
@remote_command
def schedule(
    session: Session,
    name: NameArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the job.")],
    cron: Annotated[str | None, typer.Option("--cron", metavar="FIELDS", help="Five or six cron fields.")] = None,
    zone: Annotated[str, typer.Option("--zone", metavar="NAME", help="Time zone of --cron.")] = "UTC",
    every: Annotated[str | None, typer.Option("--every", metavar="DURATION", help="Time between two jobs.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="One job, at a time such as 2027-01-31T08:00:00+01:00.")
    ] = None,
    data: Annotated[str, typer.Option("--data", metavar="TEXT", help="Payload, at most 16 KiB.")] = "",
    key: Annotated[str, typer.Option("--key", help="Key of the job.")] = "",
    missed: Annotated[
        MissedOption, typer.Option("--missed", metavar="POLICY", help="once, skip or all (100 at most).")
    ] = MissedOption.ONCE,
) -> None:
    """Add a job at each due time.

    Replaces the schedule with this name. --missed decides about due times more than 30 s in the past.
    """
    if [cron, every, at].count(None) != 2:
        raise UsageError("specify one of --cron, --every and --at")
    every_ms = 0 if every is None else parse_duration_ms(every)
    if every is not None and every_ms < 1_000:
        raise UsageError("--every must be at least 1s")
    times = cron or "", zone, every_ms, 0 if at is None else parse_time_ms(at)
    wanted = Schedule(name, NewJob(parse_topic(topic), os.fsencode(data), key=key), *times, MissedFirings[missed.name])
    with _control(session) as control:
        found = control.set_schedule(wanted)
    line = f"schedule {name} is next due at {time_text(found.next_at)}"
    if found.next_at is None:  # set again after its only due time
        line = f"schedule {name} has ended"
    session.show(Report(document_of(found), [name], lambda: [line]))


@app.command("schedules")
@remote_command
def schedules(session: Session) -> None:
    """List schedules and their next due time."""
    with _control(session) as control:
        found = control.schedules()
    rows = [[each.schedule, each.topic, _when(each), each.missed, time_text(each.next_at) or ABSENT] for each in found]
    table = Table(SCHEDULE_COLUMNS, rows, empty="no schedules")
    session.show(Report(document_of(found), [each.schedule for each in found], lambda: [table]))


@app.command("fire")
@remote_command
def fire(session: Session, name: NameArgument) -> None:
    """Add the job of a schedule now; its next due time stays."""
    with _control(session) as control:
        added = control.fire(name)
    line = f"{added.job}  {added.reason}".rstrip()
    session.show(Report({"schedule": name, "job": added.job}, [added.job], lambda: [line]))


@app.command("unschedule")
@remote_command
def unschedule(session: Session, name: NameArgument) -> None:
    """Remove a schedule. Jobs that it added stay."""
    with _control(session) as control:
        control.remove_schedule(name)
    session.show(Report({"schedule": name}, [name], lambda: [f"schedule {name} is removed"]))


def parse_time_ms(text: str) -> int:
    """Read a time with its offset from UTC. Raises: UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time; expected one such as 2027-01-31T08:00:00+01:00") from error
    if moment.tzinfo is None:
        raise UsageError(f"{text!r} has no offset from UTC", next_step=f"{moment.isoformat()}+00:00 is UTC")
    return max(1, milliseconds_of(moment))


def _when(schedule: JobScheduleView) -> str:
    if schedule.cron:
        return f"{schedule.cron} {schedule.zone}"
    return "once" if schedule.every_seconds is None else f"every {duration_text(schedule.every_seconds)}"
