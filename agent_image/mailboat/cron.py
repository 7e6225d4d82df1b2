"""The times of a cron expression in a time zone. Pure.

Five fields follow Debian's cron: a fixed time that the clock skips in spring comes right after the gap, and one that it
repeats in autumn comes once, in the first pass. Wildcards of minutes or hours come in both passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import dropwhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from mailboat.errors import UsageError


def times_after(cron: str, zone: str, moment: datetime) -> Iterator[datetime]:
    """Times later than an aware moment, in UTC, the earliest first; none if none comes within fifty years.

    The iterator raises:
        UsageError: the expression or the name of the zone is not valid.
    """
    # CronSim searches fixed times by the wall clock alone: asked in the second pass of a repeated hour, it begins with
    # times of the first one, which are over.
    return dropwhile(lambda time: time <= moment, _times(cron, zone, moment))


def times_until(cron: str, zone: str, moment: datetime) -> Iterator[datetime]:
    """Times up to an aware moment, this one included, in UTC, the latest first. The iterator raises UsageError."""
    return dropwhile(lambda time: time > moment, _times(cron, zone, moment, is_reverse=True))


def _times(cron: str, zone: str, moment: datetime, *, is_reverse: bool = False) -> Iterator[datetime]:
    try:
        local = moment.replace(microsecond=0).astimezone(_zone(zone))
        if is_reverse:
            # Back from the second pass, the end of the first one would be left out, for the same reason: the search
            # begins as much later as the clock was set back. The second is for CronSim, which leaves out its begin.
            local += _repeated(local) + timedelta(seconds=1)
        # In UTC: datetimes of one zone are compared by the wall clock, without their fold.
        yield from (time.astimezone(UTC) for time in CronSim(cron, local, reverse=is_reverse))
    except CronSimError as error:
        raise UsageError(f"{cron!r} is not a cron expression: {error}") from error
    except OverflowError:
        return  # Python's calendar ends


def _repeated(local: datetime) -> timedelta:
    """By how much the clock was set back, if this is the second pass; otherwise nothing."""
    first, second = local.replace(fold=0).utcoffset(), local.utcoffset()
    return timedelta(0) if first is None or second is None or not local.fold else first - second


def _zone(name: str) -> tzinfo:
    try:
        # Not ZoneInfo("UTC"): CronSim takes a shorter way for this one.
        return UTC if name in ("UTC", "Etc/UTC") else ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        raise UsageError(f"{name!r} is not a time zone; expected a name such as Europe/Berlin") from error
