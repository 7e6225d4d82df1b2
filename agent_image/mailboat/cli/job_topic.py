"""The job topic of the home, and durations, for the commands about jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mailboat.cli.session import Session
from mailboat.errors import UsageError
from mailboat.jobs.topic import JobTopic, open_job_topic

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@contextmanager
def open_topic(session: Session) -> Iterator[JobTopic]:
    """The job topic of the home, read to its end; it is created where it is missing."""
    with session.workspace() as workspace:
        topic = open_job_topic(workspace.journal)
        try:
            while not topic.follow():
                pass
            yield topic
        finally:
            topic.close()


def parse_duration_ms(text: str) -> int:
    """Read a duration such as `500ms`, `30s`, `5m`, `2h` or `1d`. Raises: UsageError."""
    found = _DURATION.match(text)
    if found is None:
        raise UsageError(f"{text!r} is not a duration; expected a number with ms, s, m, h or d, such as 30s")
    return int(float(found[1]) * _UNITS_MS[found[2]])
