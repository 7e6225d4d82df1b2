"""`mailboat jobs schedule`, `schedules`, `fire`, `unschedule`."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated, Final

import typer

from mailboat.api.job_records import JobScheduleView
from mailboat.api.records import document_of
from mailboat.cli.job_access import open_jobs, parse_duration_ms
from mailboat.cli.options import remote_command
from mailboat.cli.output import Report, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.clock import milliseconds_of
from mailboat.errors import UsageError
from mailboat.model.jobs import Missed, NewJob, Schedule, parse_topic

_COLUMNS: Final = (Column("SCHEDULE"), Column("TOPIC"), Column("WHEN"), Column("MISSED"), Column("NEXT"))
NameArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="A schedule's name.")]


class MissedOption(enum.StrEnum):
    """What happens to due times that passed while no worker was there."""

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


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
    wanted = Schedule(name, NewJob(parse_topic(topic), data.encode(), key=key), *times, Missed[missed.name])
    with open_jobs(session) as control:
        found = control.set_schedule(wanted)
    session.show(Report(document_of(found), [name], lambda: [_next_line(found)]))


@remote_command
def schedules(session: Session) -> None:
    """List schedules and their next due time."""
    with open_jobs(session) as control:
        found = control.schedules()
    rows = [[each.schedule, each.topic, _when(each), each.missed, time_text(each.next_at) or ABSENT] for each in found]
    table = Table(_COLUMNS, rows, empty="no schedules")
    session.show(Report(document_of(found), [each.schedule for each in found], lambda: [table]))


@remote_command
def fire(session: Session, name: NameArgument) -> None:
    """Add the job of a schedule now; its next due time stays."""
    with open_jobs(session) as control:
        added = control.fire(name)
    line = f"{added.job}  {added.reason}".rstrip()
    session.show(Report({"schedule": name, "job": added.job}, [added.job], lambda: [line]))


@remote_command
def unschedule(session: Session, name: NameArgument) -> None:
    """Remove a schedule. Jobs that it added stay."""
    with open_jobs(session) as control:
        control.remove_schedule(name)
    session.show(Report({"schedule": name}, [name], lambda: [f"schedule {name} is removed"]))


def parse_time_ms(text: str) -> int:
    """Read a time with its offset from UTC. Raises: UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time; expected one such as 2027-01-31T08:00:00+01:00") from error
    if moment.tzinfo is None:
        raise UsageError(f"{text!r} has no offset from UTC", next_step=f"{text}+00:00 is UTC")
    return max(1, milliseconds_of(moment))


def _when(schedule: JobScheduleView) -> str:
    if schedule.cron:
        return f"{schedule.cron} {schedule.zone}"
    return "once" if schedule.every_seconds is None else f"every {schedule.every_seconds:g} s"


def _next_line(schedule: JobScheduleView) -> str:
    if schedule.next_at is None:  # set again after its only due time
        return f"schedule {schedule.schedule} has ended"
    return f"schedule {schedule.schedule} is next due at {time_text(schedule.next_at)}"
