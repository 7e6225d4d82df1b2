"""Jobs of the home or of an agent, and durations, for the commands about jobs."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from mailboat.api.client import HttpControl
from mailboat.api.job_control import JobControl
from mailboat.cli.session import Session
from mailboat.clock import SystemClock
from mailboat.control.job_service import JobService
from mailboat.errors import UsageError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@contextmanager
def open_jobs(session: Session) -> Iterator[JobControl]:
    """Jobs, of the agent at the URL, else of the home itself."""
    if session.url is not None:
        with closing(HttpControl(session.url, session.token)) as client:
            yield client.jobs
        return
    chance = random.Random()  # noqa: S311  # it spreads the records of workers
    with (
        session.workspace() as workspace,
        closing(JobService(lambda: workspace.journal, SystemClock(), chance)) as jobs,
    ):
        yield jobs


def parse_duration_ms(text: str) -> int:
    """Read a duration such as `500ms`, `30s`, `5m`, `2h` or `1d`. Raises: UsageError."""
    found = _DURATION.match(text)
    if found is None:
        raise UsageError(f"{text!r} is not a duration; expected a number with ms, s, m, h or d, such as 30s")
    return int(float(found[1]) * _UNITS_MS[found[2]])
