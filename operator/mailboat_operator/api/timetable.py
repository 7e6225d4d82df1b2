"""When something is done again and again: five fields as cron has them, in a time zone.

What can't be a time at all is refused with the manifest. A text of the right form that never comes, such as 30
February, is found by the plan, which knows the calendar.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Final

from mailboat_operator.api.fields import Field, Form
from mailboat_operator.api.forms import DURATION

_DAYS: Final = "(?:[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)"
_MONTHS: Final = "(?:0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)"


def _field(value: str) -> str:
    part = rf"(?:\*|{value}(?:-{value})?)(?:/[1-9][0-9]?)?"
    return f"{part}(?:,{part}){{0,30}}"


CRON: Final = Form(
    "^"
    + " ".join(map(_field, ("[0-5]?[0-9]", "(?:[01]?[0-9]|2[0-3])", "(?:0?[1-9]|[12][0-9]|3[01])", _MONTHS, _DAYS)))
    + "$",
    "five fields as cron has them: minute, hour, day of the month, month, day of the week, such as 30 2 * * MON-FRI",
    256,
)
TIME_ZONE: Final = Form(
    r"^[A-Z][A-Za-z0-9_+-]{1,30}(/[A-Z][A-Za-z0-9_+-]{0,30}){0,2}$",
    "a time zone such as Europe/Zurich or Etc/UTC",
    100,
)


class ConcurrencyPolicy(enum.StrEnum):
    """Concurrency policy: treatment of a scheduled time during an earlier run."""

    FORBID = "Forbid"
    REPLACE = "Replace"
    ALLOW = "Allow"


@dataclass(frozen=True)
class Timetable:
    """When to build, again and again."""

    cron: Annotated[str, Field("The times: `30 2 * * MON-FRI`.", form=CRON)]
    time_zone: Annotated[str, Field("The zone that these are of.", form=TIME_ZONE)] = "Etc/UTC"
    concurrency_policy: Annotated[
        ConcurrencyPolicy,
        Field(
            "Concurrency policy for a time during an earlier run: wait for its end (Forbid), "
            "replace it (Replace), or run in parallel (Allow)."
        ),
    ] = ConcurrencyPolicy.FORBID
    starting_deadline_seconds: Annotated[
        float | None,
        Field(
            "Time after which a scheduled run that could not start counts as missed. Default: until the next one.",
            form=DURATION,
        ),
    ] = None
    successful_history_limit: Annotated[int, Field("Number of complete runs to keep.", minimum=0, maximum=100)] = 3
    failed_history_limit: Annotated[int, Field("Number of failed runs to keep.", minimum=0, maximum=100)] = 1
