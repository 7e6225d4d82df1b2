"""`mailboat jobs`: durations and times as people type them, what lists show, and more jobs than one record holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from mailboat.api.job_control import JobFilter
from mailboat.api.job_views import JobPage, JobQueueView, JobScheduleView, JobStateView, JobView
from mailboat.cli.jobs import _queue_row, _row, _when, parse_time_ms
from mailboat.cli.main import main
from mailboat.cli.options import duration_text, parse_duration_ms
from mailboat.cli.worker import _handlers
from mailboat.errors import JournalUnavailableError, UsageError
from mailboat.model.jobs import MAX_BATCH, JobAction, JobId, JobMissingError, show_job_id

URL = "http://agent.example:8080"


class Jobs:
    """Jobs of an agent; those from `missing` on are not known to it."""

    def __init__(self, missing: int = 10**6) -> None:
        self.missing = missing
        self.sizes: list[int] = []
        self.cleared: list[str] = []

    def command(self, action: JobAction, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        assert action is JobAction.REMOVE
        return self.retry(jobs)

    def retry(self, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        if max(jobs) >= self.missing:
            raise JobMissingError("there is no such job")
        self.sizes.append(len(jobs))
        return [JobStateView(show_job_id(job), "removed") for job in jobs]

    def queues(self) -> Sequence[JobQueueView]:
        return ()

    def list_jobs(self, wanted: JobFilter, page: str | None, max_items: int) -> JobPage:
        assert (wanted, page) == (JobFilter(None, None, None, (), None), None)
        return JobPage(tuple(JobView(f"{number}-0", "a", "q", "queued", 0) for number in range(max_items)), "more")

    def clear(self, queue: str) -> None:
        raise JournalUnavailableError(f"asked to clear {queue}")


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An agent with jobs."""
    made = SimpleNamespace(jobs=Jobs(), close=lambda: None)
    monkeypatch.setattr("mailboat.api.client.HttpControl", lambda *_: made)
    return made


@pytest.mark.parametrize("verb", ["remove", "retry"])
def test_more_jobs_than_a_record_holds_are_commanded_in_batches(
    agent: Any, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [f"{number}-0" for number in range(600)]
    assert main(["--url", URL, "jobs", verb, *ids, "-o", "name"]) == 0
    assert agent.jobs.sizes == [MAX_BATCH, MAX_BATCH, 600 - 2 * MAX_BATCH]
    assert capsys.readouterr().out.splitlines() == ids


def test_jobs_before_a_failed_batch_are_printed(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent.jobs.missing = 300 * MAX_BATCH
    ids = [f"{number}-0" for number in range(600)]
    assert main(["--url", URL, "jobs", "remove", *ids, "-o", "name"]) == 2
    printed = capsys.readouterr()
    assert (printed.out.splitlines(), "JobMissing" in printed.err) == (ids[:MAX_BATCH], True)


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("form", ["table", "name", "json"])
def test_a_list_of_jobs_that_is_not_all_says_so_in_each_form(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", URL, "jobs", "ls", "--limit", "2", "-o", form]) == 0
    assert capsys.readouterr().err == "there are more jobs; see --limit\n"


def test_unknown_queue_is_not_asked_about(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", URL, "jobs", "clear", "typo"]) == 75
    assert "asked to clear typo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("1.5h", 5_400_000), ("1d", 86_400_000), ("36500d", 3_153_600_000_000)],
)
def test_durations_are_read(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["60", "1w", "-1s", "", "36501d", f"{'9' * 400}d"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a duration|is too long; at most 36500d"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "add", "a", "--in", "60d"),
        ("jobs", "add", "a", "--lease", "2d"),
        ("jobs", "suspend", "cdn", "--for", "60d"),
        ("jobs", "set-queue", "cdn", "--retry-delay", "60d"),
        ("jobs", "set-queue", "cdn", "--rate", "1/60d"),
    ],
)
def test_duration_beyond_its_field_is_named(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", URL, *words]) == 2
    assert "is too long; at most" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "500ms"), (90, "90s"), (5400, "90m"), (7200, "2h"), (2_592_000, "30d"), (86_401, "86401s")],
)
def test_interval_of_a_schedule_is_shown_as_it_is_typed(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
    assert parse_duration_ms(text) == seconds * 1000
    assert _when(JobScheduleView("s", "t", "", "", "UTC", "once", every_seconds=seconds)) == f"every {text}"


def test_times_and_ages_of_jobs_have_their_units() -> None:
    due = datetime(2027, 1, 31, 8, tzinfo=UTC)
    assert _row(JobView("1-0", "a", "default", "queued", 0, due))[5] == "2027-01-31T08:00:00.000Z"
    queue = JobQueueView(
        "cdn", "fair", 1, 1, 0, due, 90_000.0, 0, 0, suspended=False, max_parallel=-1, rate=None, merge=1, topics=()
    )
    assert _queue_row(queue)[5] == "25 h"


def test_time_without_an_offset_is_advised_one_that_is_read() -> None:
    for text in ("2027-01-31", "2027-01-31T08:00"):
        with pytest.raises(UsageError) as caught:
            parse_time_ms(text)
        advised = str(caught.value.next_step).split()[0]
        assert parse_time_ms(advised) == parse_time_ms(f"{text[:10]}T{text[11:] or '00:00'}:00+00:00")
    zone = timezone(timedelta(hours=1))
    assert parse_time_ms("2027-01-31T08:00:00+01:00") == datetime(2027, 1, 31, 8, tzinfo=zone).timestamp() * 1000


def test_a_worker_takes_no_packages_of_a_shared_pool() -> None:
    ports: Any = None  # of handlers in Python
    with pytest.raises(UsageError, match="members of shared pools"):
        _handlers(["purge.*=true", "mailboat.**=true"], [], ports)
