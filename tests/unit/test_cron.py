"""Times of cron expressions around the nights in which a clock is changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from mailboat.cron import times_after, times_until
from mailboat.errors import UsageError

EXPRESSIONS = ["30 2 * * *", "0 * * * *", "*/10 * * * *", "0,30 2,3 * * *", "15 */2 * * *", "5 2 * * SAT,SUN"]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shown(times: object) -> list[str]:
    return [f"{time:%dT%H:%M}" for time in islice(times, 3)]  # type: ignore[call-overload]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize(
    ("zone", "midnight"),
    [
        ("Europe/Berlin", "2026-10-24T22:00"),
        ("Europe/Berlin", "2026-03-28T22:00"),
        ("Etc/UTC", "2026-10-24T22:00"),
    ],
)
def test_each_moment_of_such_a_night_divides_the_same_times(expression: str, zone: str, midnight: str) -> None:
    begin = at(midnight)
    times = list(islice(times_after(expression, zone, begin - timedelta(days=8)), 2000))
    assert times == sorted(set(times))
    for minutes in range(0, 8 * 60, 5):
        moment = begin + timedelta(minutes=minutes, seconds=minutes % 2)
        assert next(times_after(expression, zone, moment)) == min(time for time in times if time > moment), moment
        assert next(times_until(expression, zone, moment)) == max(time for time in times if time <= moment), moment


def test_a_fixed_time_of_the_repeated_hour_comes_in_its_first_pass_only() -> None:
    before, between = at("2026-10-25T00:20"), at("2026-10-25T01:10")  # 02:20, and 02:10 for the second time
    assert shown(times_after("30 2 * * *", "Europe/Berlin", before)) == ["25T00:30", "26T01:30", "27T01:30"]
    assert shown(times_after("30 2 * * *", "Europe/Berlin", between)) == ["26T01:30", "27T01:30", "28T01:30"]
    assert shown(times_until("30 2 * * *", "Europe/Berlin", between)) == ["25T00:30", "24T00:30", "23T00:30"]


def test_a_clock_may_be_set_back_by_half_an_hour() -> None:
    between = at("2026-04-04T15:10")  # on Lord Howe Island 01:40 for the second time
    assert shown(times_after("45 1 * * *", "Australia/Lord_Howe", between)) == ["05T15:15", "06T15:15", "07T15:15"]
    assert shown(times_until("45 1 * * *", "Australia/Lord_Howe", between)) == ["04T14:45", "03T14:45", "02T14:45"]


def test_an_hourly_time_comes_in_both_passes_of_the_repeated_hour() -> None:
    now = at("2026-10-25T01:00") + timedelta(seconds=30)
    assert shown(times_until("0 * * * *", "Europe/Berlin", now)) == ["25T01:00", "25T00:00", "24T23:00"]


def test_a_fixed_time_that_is_skipped_comes_right_after_the_gap() -> None:
    assert shown(times_after("30 2 * * *", "Europe/Berlin", at("2026-03-29T00:59"))) == [
        "29T01:00",
        "30T00:30",
        "31T00:30",
    ]


def test_a_moment_that_is_a_time_has_come() -> None:
    moment = at("2026-11-28T02:30")
    assert next(times_until("30 2 * * *", "UTC", moment)) == moment
    assert next(times_after("30 2 * * *", "UTC", moment)) == moment + timedelta(days=1)


def test_the_calendar_ends_with_the_year_9999() -> None:
    assert list(times_after("0 0 1 1 *", "Asia/Tokyo", at("9999-12-31T23:00"))) == []


@pytest.mark.parametrize(
    ("expression", "zone", "text"),
    [
        ("61 * * * *", "UTC", "is not a cron expression: Bad minute"),
        ("* * * * *", "Europe/Atlantis", "is not a time zone"),
        ("* * * * *", "../etc/passwd", "is not a time zone"),
    ],
)
def test_what_is_no_expression_or_zone_is_refused(expression: str, zone: str, text: str) -> None:
    for times in (times_after, times_until):
        with pytest.raises(UsageError, match=text):
            next(times(expression, zone, at("2026-11-28T00:00")))
