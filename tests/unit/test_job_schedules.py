"""Schedules: due times in time zones, one firing for each, and what happens to missed ones."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import UsageError
from mailboat.jobs.fold import JobFold
from mailboat.jobs.schedules import MAX_MISSED, Schedules, plan_firing, plan_schedule
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import JobsAdded, MissedFirings, NewJob, Schedule, ScheduleDefined, ScheduleRemoved
from mailboat.wire.job_records import (
    MAX_SCHEDULE_PAYLOAD_BYTES,
    decode_checkpoint,
    decode_job_record,
    encode_checkpoint,
    encode_job_record,
)

MINUTE = 60_000
START = 1_700_000_040_000  # a whole minute
JOB = NewJob("report.build", b"{}")
BERLIN = ZoneInfo("Europe/Berlin")


def a_fold(schedule: Schedule, now_ms: int = START) -> JobFold:
    fold = JobFold()
    fold.apply(Offset(0), now_ms, ScheduleDefined(plan_schedule(fold.schedules, schedule, now_ms)))
    return fold


def fired(fold: JobFold, now_ms: int, offset: int = 1) -> int:
    """Fire what is due as three workers do at the same time; how many jobs that adds."""
    list(fold.advance(now_ms))
    plans = [plan_firing(each, now_ms) for each in fold.schedules.due(now_ms)] * 3
    return sum(len(fold.apply(Offset(offset + place), now_ms, plan).added) for place, plan in enumerate(plans))


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1000)


def test_j18_each_due_time_fires_once_with_several_workers() -> None:
    fold = a_fold(Schedule("tick", JOB, every_ms=1_000))
    counts = [fired(fold, START + second * 1_000, offset=10 * second) for second in range(1, 11)]
    assert counts == [1] * 10
    assert fired(fold, START + 10_500, offset=200) == 0


@pytest.mark.parametrize(
    ("missed", "expected"), [(MissedFirings.ONCE, 1), (MissedFirings.SKIP, 0), (MissedFirings.ALL, 10)]
)
@pytest.mark.parametrize("when", [{"cron": "* * * * *"}, {"every_ms": MINUTE}])
def test_j19_missed_due_times_follow_the_policy(missed: MissedFirings, expected: int, when: dict[str, object]) -> None:
    fold = a_fold(Schedule("tick", JOB, missed=missed, **when))  # type: ignore[arg-type]  # one of two settings
    assert fired(fold, START + 10 * MINUTE + MINUTE - 1_000) == expected
    assert fired(fold, START + 11 * MINUTE, offset=20) == 1


def test_missed_due_times_of_a_long_time_are_bounded() -> None:
    fold = a_fold(Schedule("tick", JOB, cron="* * * * *", missed=MissedFirings.ALL))
    assert fired(fold, START + 400 * 24 * 60 * MINUTE) == MAX_MISSED


def test_missed_due_times_that_exceed_a_record_are_fired_by_several() -> None:
    large = JOB._replace(payload=b"x" * MAX_SCHEDULE_PAYLOAD_BYTES)
    fold = a_fold(Schedule("tick", large, every_ms=MINUTE, missed=MissedFirings.ALL))
    now_ms, counts = START + 1_000 * MINUTE, list[int]()
    list(fold.advance(now_ms))
    while due := fold.schedules.due(now_ms):
        plan = plan_firing(due[0], now_ms)
        assert len(encode_job_record(plan)[1]) < TopicSettings().max_message_bytes
        counts.append(len(fold.apply(Offset(len(counts) + 1), now_ms, plan).added))
    assert (sum(counts), len(counts) > 1) == (MAX_MISSED, True)
    assert [each.next_ms for each in fold.schedules.all()] == [now_ms + MINUTE]


def test_a_schedule_at_a_time_fires_once_and_ends() -> None:
    fold = a_fold(Schedule("once", JOB, at_ms=START + MINUTE))
    assert fired(fold, START + MINUTE - 1) == 0
    assert fired(fold, START + MINUTE) == 1
    assert [each.next_ms for each in fold.schedules.all()] == [None]
    assert fold.next_moment_ms() is None


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-28T12:00", ["2026-03-29T03:30", "2026-03-30T03:30"]),
        ("2026-10-24T12:00", ["2026-10-25T03:30", "2026-10-26T03:30"]),
    ],
)
def test_a_daily_job_keeps_its_local_time_across_a_change_of_summer_time(now: str, expected: list[str]) -> None:
    fold = a_fold(Schedule("nightly", JOB, cron="30 3 * * *", zone="Europe/Berlin"), at(now))
    for place, due in enumerate(expected):
        assert fired(fold, at(due) - 1, offset=10 * place + 1) == 0
        assert fired(fold, at(due), offset=10 * place + 5) == 1


@pytest.mark.parametrize("now", ["2026-03-28T12:00", "2026-10-24T12:00"])
def test_a_job_in_the_hour_that_is_skipped_or_repeated_fires_once(now: str) -> None:
    fold = a_fold(Schedule("nightly", JOB, cron="30 2 * * *", zone="Europe/Berlin"), at(now))
    first = at(now)
    assert sum(fired(fold, first + 10 * MINUTE * step, offset=5 * step) for step in range(1, 6 * 22)) == 1


def test_a_nightly_schedule_of_a_repeated_hour_is_due_the_next_night_in_its_second_pass() -> None:
    nightly = Schedule("nightly", JOB, cron="30 2 * * *", zone="Europe/Berlin")
    second_pass, next_night = at("2026-10-25T02:10") + 60 * MINUTE, at("2026-10-26T02:30")
    set_then = plan_schedule(Schedules(), nightly, second_pass)
    assert set_then.next_ms == next_night
    # No worker was there at 02:30 for the first time: one job makes up for it, and the schedule moves on.
    fold = a_fold(nightly, at("2026-10-24T12:00"))
    assert fired(fold, second_pass) == 1
    assert [schedule.next_ms for schedule in fold.schedules.all()] == [next_night]


@pytest.mark.parametrize("when", [{"every_ms": MINUTE}, {"at_ms": START + 1}, {"cron": "* * * * *"}])
def test_a_schedule_that_is_set_again_keeps_its_next_due_time(when: dict[str, int]) -> None:
    wanted = Schedule("tick", JOB, **when)  # type: ignore[arg-type]  # one of several settings
    fold = a_fold(wanted)
    assert fired(fold, START + MINUTE) == 1
    (before,) = fold.schedules.all()
    assert plan_schedule(fold.schedules, wanted, START + MINUTE + 30_000) == before
    changed = plan_schedule(fold.schedules, wanted._replace(job=NewJob("other")), START + MINUTE + 30_000)
    assert changed == before._replace(job=NewJob("other")), "one that fired at its only time stays ended"


def test_a_schedule_whose_times_change_is_due_by_the_new_ones() -> None:
    fold = a_fold(Schedule("tick", JOB, every_ms=MINUTE))
    assert plan_schedule(fold.schedules, Schedule("tick", JOB, every_ms=2 * MINUTE), START + 30_000).next_ms == (
        START + 30_000 + 2 * MINUTE
    )
    assert plan_schedule(fold.schedules, Schedule("tick", JOB, at_ms=START), START + 30_000).next_ms == START


def test_a_firing_for_another_due_time_does_not_count() -> None:
    fold = a_fold(Schedule("tick", JOB, every_ms=MINUTE))
    (schedule,) = fold.schedules.all()
    early = plan_firing(schedule, START + MINUTE)
    assert not fold.apply(Offset(1), START, early).added
    assert fired(fold, START + MINUTE, offset=5) == 1
    assert not fold.apply(Offset(20), START + MINUTE, early).added


def test_schedules_survive_a_checkpoint_and_their_records_the_wire() -> None:
    fold = a_fold(Schedule("nightly", JOB, cron="0 3 * * *", zone="Europe/Berlin", missed=MissedFirings.ALL))
    restored = JobFold(decode_checkpoint(encode_checkpoint(fold.capture(Offset(1)))))
    assert restored.schedules.all() == fold.schedules.all()
    (schedule,) = fold.schedules.all()
    for record in (ScheduleDefined(schedule), ScheduleRemoved("nightly"), plan_firing(schedule, schedule.next_ms or 0)):
        assert decode_job_record(*encode_job_record(record)) == record
    empty = JobsAdded([], plan_firing(schedule, 0).firing)
    assert decode_job_record(*encode_job_record(empty)) == empty


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (Schedule("a", JOB, cron="* * *"), "is not a cron expression"),
        (Schedule("a", JOB, cron="* * * * *", zone="Europe/Atlantis"), "is not a time zone"),
        (Schedule("a", JOB, cron="* * * * *", zone="../etc/passwd"), "is not a time zone"),
        (Schedule("a", JOB), "needs one of cron, every and at"),
        (Schedule("a", JOB, cron="* * * * *", every_ms=MINUTE), "needs one of cron, every and at"),
        (Schedule("a", JOB, every_ms=999), "the shortest is 1 s"),
        (Schedule("a", JOB, cron="0 0 30 2 *"), "is not a cron expression|is never due"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(schedule: Schedule, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        plan_schedule(Schedules(), schedule, START)
