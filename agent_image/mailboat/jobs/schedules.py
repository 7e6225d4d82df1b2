"""Schedules: their due times, and which firing counts. Pure.

The fold keeps the next due time of each schedule. A worker that sees it pass appends a record with the jobs, that due
time and the one after it. The record counts only while its due time is the next one, so each due time fires once,
however many workers append it. Time zones and cron expressions are evaluated where the record is made, not in the fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Final

from mailboat.clock import milliseconds_of
from mailboat.cron import times_after, times_until
from mailboat.errors import UsageError
from mailboat.model.jobs import Firing, JobsAdded, MissedFirings, Schedule, ScheduleDefined, ScheduleRemoved
from mailboat.wire.job_records import encode_job_record

MAX_SCHEDULES: Final = 1_000
MAX_MISSED: Final = 100
"""Firings that make up for missed due times; older ones are dropped."""

_SHORTEST_EVERY_MS: Final = 1_000
_MAX_FIRED_BYTES: Final = 900_000
"""Of the jobs in one record: what every broker takes by default."""

MISSED_AFTER_MS: Final = 30_000
"""A due time that a worker sees so late was missed: none was there, or the journal was not available."""


class Schedules:
    """The schedules of the fold."""

    def __init__(self, schedules: Iterable[Schedule] = ()) -> None:
        self._schedules = {each.name: each for each in schedules}

    def all(self) -> Sequence[Schedule]:
        """Every schedule, by name."""
        return [self._schedules[name] for name in sorted(self._schedules)]

    def find(self, name: str) -> Schedule | None:
        """The schedule with this name."""
        return self._schedules.get(name)

    def moments_ms(self) -> Iterator[int]:
        """The next due times."""
        return (each.next_ms for each in self._schedules.values() if each.next_ms is not None)

    def due(self, now_ms: int) -> Sequence[Schedule]:
        """The schedules whose due time has come."""
        return [each for each in self.all() if each.next_ms is not None and each.next_ms <= now_ms]

    def change(self, record: ScheduleDefined | ScheduleRemoved) -> None:
        """Add, replace or remove a schedule; beyond `MAX_SCHEDULES` none is added."""
        if isinstance(record, ScheduleRemoved):
            self._schedules.pop(record.name, None)
            return
        schedule = record.schedule
        if schedule.name in self._schedules or len(self._schedules) < MAX_SCHEDULES:
            self._schedules[schedule.name] = schedule

    def fire(self, firing: Firing, now_ms: int) -> bool:
        """Move a schedule on; False where the firing does not count."""
        schedule = self._schedules.get(firing.schedule)
        # By the time of the log: a worker whose clock is ahead fires nothing too early.
        if schedule is None or schedule.next_ms != firing.due_ms or firing.due_ms > now_ms:
            return False
        # It would be due again at once, without end.
        if firing.next_ms is not None and firing.next_ms <= firing.due_ms:
            return False
        self._schedules[schedule.name] = schedule._replace(next_ms=firing.next_ms)
        return True


def plan_schedule(known: Schedules, wanted: Schedule, now_ms: int) -> Schedule:
    """Check a schedule, and set its first due time; one that is there keeps it where its times are the same.

    Raises: UsageError.
    """
    times = [bool(wanted.cron), bool(wanted.every_ms), bool(wanted.at_ms)]
    if sum(times) != 1:
        raise UsageError(f"schedule {wanted.name} needs one of cron, every and at")
    if 0 < wanted.every_ms < _SHORTEST_EVERY_MS:
        raise UsageError(f"schedule {wanted.name} has an interval of {wanted.every_ms} ms; the shortest is 1 s")
    found = known.find(wanted.name)
    if found is None and len(known.all()) >= MAX_SCHEDULES:
        raise UsageError(
            f"there are already {MAX_SCHEDULES} schedules",
            next_step="remove one, also those that have ended count: mailboat jobs unschedule NAME",
        )
    if found is not None and _times_of(found) == _times_of(wanted):
        # An interval must not begin again each time that it is set, as it would never be due. What was due at its only
        # time and fired must not fire again, as it gets another job.
        wanted = wanted._replace(next_ms=found.next_ms)
        if wanted == found or found.at_ms or found.next_ms is not None:
            return wanted
    next_ms = wanted.at_ms or _next_ms(wanted, now_ms)
    if next_ms is None:
        raise UsageError(f"schedule {wanted.name} is never due")
    return wanted._replace(next_ms=next_ms)


def _times_of(schedule: Schedule) -> tuple[str, str, int, int]:
    return schedule.cron, schedule.zone, schedule.every_ms, schedule.at_ms


def plan_firing(schedule: Schedule, now_ms: int) -> JobsAdded:
    """The record that fires a schedule, which is due: jobs for its due times, fewer where it was missed.

    Where not all fit into a record, the schedule is due again at once for the others.
    """
    first_ms = schedule.next_ms or 0
    newest = list(islice(takewhile(lambda due_ms: due_ms > first_ms, _before(schedule, now_ms)), MAX_MISSED))
    times = [*newest, first_ms][:MAX_MISSED]
    on_time = [due_ms for due_ms in times if due_ms > now_ms - MISSED_AFTER_MS]
    missed = [due_ms for due_ms in times if due_ms <= now_ms - MISSED_AFTER_MS]
    if schedule.missed is MissedFirings.ONCE:
        missed = [] if on_time else missed[:1]
    elif schedule.missed is MissedFirings.SKIP:
        missed = []
    fired = sorted([*on_time, *missed])
    # Without its request id: the jobs of later firings would count as repetitions of the first.
    job = schedule.job._replace(request_id="", due_ms=0, delay_ms=0)
    most = _MAX_FIRED_BYTES // len(encode_job_record(JobsAdded([job]))[1])
    next_ms = fired[most] if len(fired) > most else _next_ms(schedule, now_ms)
    return JobsAdded([job] * min(len(fired), most), Firing(schedule.name, first_ms, next_ms))


def _next_ms(schedule: Schedule, now_ms: int) -> int | None:
    """The first due time after now."""
    if schedule.cron:
        times = times_after(schedule.cron, schedule.zone, _moment(now_ms))
        return next(map(milliseconds_of, times), None)
    if schedule.every_ms:
        first_ms = now_ms if schedule.next_ms is None else schedule.next_ms
        return first_ms + ((now_ms - first_ms) // schedule.every_ms + 1) * schedule.every_ms
    return None


def _before(schedule: Schedule, now_ms: int) -> Iterator[int]:
    """Due times up to now, newest first."""
    if schedule.cron:
        yield from map(milliseconds_of, times_until(schedule.cron, schedule.zone, _moment(now_ms)))
    elif schedule.every_ms and schedule.next_ms is not None:
        count = (now_ms - schedule.next_ms) // schedule.every_ms
        yield from (schedule.next_ms + place * schedule.every_ms for place in range(count, -1, -1))


def _moment(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms // 1000, UTC)
