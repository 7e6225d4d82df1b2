"""`mailboat jobs schedule`, `schedules`, `fire`, `unschedule`."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from mailboat.cli.job_topic import open_topic, parse_duration_ms
from mailboat.cli.options import command
from mailboat.cli.output import ABSENT, Column, Report, Table
from mailboat.cli.session import Session
from mailboat.clock import SystemClock, moment_of
from mailboat.errors import UsageError
from mailboat.jobs.fold import JobFold
from mailboat.jobs.schedules import MAX_SCHEDULES, check_schedule
from mailboat.model.jobs import Missed, NewJob, Schedule, ScheduleDefined, ScheduleRemoved, parse_topic, show_job_id

_COLUMNS: Final = (Column("SCHEDULE"), Column("TOPIC"), Column("WHEN"), Column("MISSED"), Column("NEXT"))
NameArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="A schedule's name.")]


class MissedOption(enum.StrEnum):
    """What happens to due times that passed while no worker was there."""

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


@command
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
    """Add a job at each due time. Replaces the schedule with this name.

    Live workers fire schedules. Due times more than 30 s in the past were missed.
    """
    if [cron, every, at].count(None) != 2:
        raise UsageError("specify one of --cron, --every and --at")
    job = NewJob(parse_topic(topic), data.encode(), key=key)
    every_ms = 0 if every is None else parse_duration_ms(every)
    if every is not None and every_ms < 1_000:
        raise UsageError("--every must be at least 1s")
    next_ms = None if at is None else parse_time_ms(at)
    wanted = Schedule(name, job, cron or "", zone, every_ms, Missed[missed.name], next_ms)
    with open_topic(session) as opened:
        known = opened.fold.schedules
        if known.find(name) is None and len(known.all()) >= MAX_SCHEDULES:
            raise UsageError(f"there are already {MAX_SCHEDULES} schedules")
        now_ms = max(opened.fold.now_ms, int(SystemClock().now().timestamp() * 1000))
        checked = check_schedule(wanted, now_ms)
        opened.append(ScheduleDefined(checked))
    document = _document(checked)
    session.show(Report(document, [name], lambda: [f"schedule {name} is next due at {document['next_at']}"]))


@command
def schedules(session: Session) -> None:
    """List schedules and their next due time."""
    with open_topic(session) as opened:
        found = [_document(each) for each in opened.fold.schedules.all()]
    rows = [
        [each["schedule"], each["topic"], each["when"], each["missed"], each["next_at"] or ABSENT] for each in found
    ]
    session.show(Report(found, [each["schedule"] for each in found], lambda: [Table(_COLUMNS, rows)]))


@command
def fire(session: Session, name: NameArgument) -> None:
    """Add the job of a schedule now; its next due time stays."""
    with open_topic(session) as opened:
        (job,) = opened.add([_known(opened.fold, name).job])
    session.show(Report({"schedule": name, "job": show_job_id(job)}, [show_job_id(job)], lambda: [show_job_id(job)]))


@command
def unschedule(session: Session, name: NameArgument) -> None:
    """Remove a schedule. Jobs that it added stay."""
    with open_topic(session) as opened:
        _known(opened.fold, name)
        opened.append(ScheduleRemoved(name))
    session.show(Report({"schedule": name}, [name], lambda: [f"schedule {name} is removed"]))


def parse_time_ms(text: str) -> int:
    """Read a time with its offset from UTC. Raises: UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time; expected one such as 2027-01-31T08:00:00+01:00") from error
    if moment.tzinfo is None:
        raise UsageError(f"{text!r} has no offset from UTC", next_step=f"{text}+00:00 is UTC")
    return max(1, int(moment.timestamp() * 1000))


def _known(fold: JobFold, name: str) -> Schedule:
    found = fold.schedules.find(name)
    if found is None:
        raise UsageError(f"there is no schedule {name!r}", next_step="mailboat jobs schedules")
    return found


def _document(schedule: Schedule) -> dict[str, Any]:
    when = f"{schedule.cron} {schedule.zone}" if schedule.cron else f"every {schedule.every_ms / 1000:g} s"
    return {
        "schedule": schedule.name,
        "topic": schedule.job.topic,
        "when": when if schedule.cron or schedule.every_ms else "once",
        "missed": schedule.missed.name.lower(),
        "next_at": None if schedule.next_ms is None else moment_of(schedule.next_ms).isoformat(timespec="seconds"),
    }
