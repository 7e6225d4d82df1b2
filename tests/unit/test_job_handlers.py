"""Handlers in Python: typed payloads, outcomes, progress, and effects that happen exactly once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mailboat.clock import SystemClock
from mailboat.errors import JournalUnavailableError, UsageError
from mailboat.jobs.handlers import Completion, JobCompletedError, JobContext, JobHandlers, WorkerPorts
from mailboat.jobs.job_worker import Call, Result
from mailboat.jobs.progress import MAX_LOG_LINES, AttemptProgress, decode_progress, encode_progress, eta_ms
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import MAX_PROGRESS_BYTES, AttemptOutcome, JobLeaseLostError, NewJob, Token, job_id


@dataclass
class Purge:
    keys: list[str]
    hard: bool = False


class Published:
    """Publishes nothing, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, ...]] = []

    def __call__(self, *request: Any, deep: bool) -> str:
        self.requests.append((*request, deep))
        return "package-1"


def call_of(*payloads: bytes, token: int = 7, attempt: int = 1) -> Call:
    jobs = {job_id(Offset(3), n): NewJob("purge.cdn", payload, "news") for n, payload in enumerate(payloads)}
    return Call(jobs, Token(token), attempt, "1f2e")


def run(handlers: JobHandlers, call: Call, published: Published | None = None) -> Result | Future[Result] | None:
    (handler,) = handlers.for_worker(WorkerPorts(SystemClock(), published or Published())).values()
    return handler(call)


def test_a_payload_is_decoded_to_the_annotated_type() -> None:
    handlers, seen = JobHandlers(), []

    @handlers.job("purge.*")
    def purge(data: Purge, context: JobContext) -> None:
        seen.append((data, context.job, context.key, context.topic, context.token, context.attempt))

    assert run(handlers, call_of(b'{"keys": ["/news"]}')) is None
    assert seen == [(Purge(["/news"]), "3-0", "news", "purge.cdn", 7, 1)]


@pytest.mark.parametrize("payload", [b"", b"{", b'{"keys": "/news"}', b'{"hard": true}', b"[" * 5_000, b"\xff"])
def test_a_payload_of_another_type_ends_the_job_as_error(payload: bytes) -> None:
    handlers = JobHandlers()

    @handlers.job("purge.*")
    def purge(_data: Purge, _context: JobContext) -> None:
        raise AssertionError

    result = run(handlers, call_of(payload))
    assert isinstance(result, Result)
    assert result.outcome is AttemptOutcome.CANCEL
    assert "the payload of job 3-0 is invalid" in result.message


def test_bytes_take_any_payload_and_no_annotation_takes_json() -> None:
    seen: list[object] = []
    for hint in (bytes, None):
        handlers = JobHandlers()

        def keep(data: Any, _context: JobContext) -> None:
            seen.append(data)

        keep.__annotations__ = {} if hint is None else {"data": hint}
        handlers.job("**")(keep)
        run(handlers, call_of(b'{"a": 1}'))
    assert seen == [b'{"a": 1}', {"a": 1}]


def test_merged_jobs_come_as_a_list() -> None:
    handlers, seen = JobHandlers(), []

    @handlers.job("**", merged=True)
    def purge(data: list[Purge], context: JobContext) -> None:
        seen.append((data, context.jobs))

    run(handlers, call_of(b'{"keys": ["/a"]}', b'{"keys": ["/b"]}'))
    assert seen == [([Purge(["/a"]), Purge(["/b"])], ("3-0", "3-1"))]


def test_a_handler_of_single_jobs_refuses_merged_ones() -> None:
    handlers = JobHandlers()
    handlers.job("**")(lambda _data, _context: None)
    result = run(handlers, call_of(b"1", b"2"))
    assert isinstance(result, Result)
    assert "merged=True" in result.message


def test_wrong_handlers_are_refused_where_they_are_declared() -> None:
    handlers = JobHandlers()
    with pytest.raises(UsageError, match="pattern"):
        handlers.job("purge..cdn")
    with pytest.raises(UsageError, match="takes 1 parameters"):
        handlers.job("a")(lambda _data: None)
    handlers.job("a")(lambda _data, _context: None)
    with pytest.raises(UsageError, match="two handlers for a"):
        handlers.job("a")(lambda _data, _context: None)

    def wrong(data: Purge, _context: JobContext) -> None:
        raise AssertionError(data)

    with pytest.raises(UsageError, match="must be a list"):
        handlers.job("b", merged=True)(wrong)


def test_outcomes_are_what_the_context_returns() -> None:
    def outcome(returned: Any) -> Any:
        handlers = JobHandlers()
        handlers.job("**")(lambda _data, context: returned(context))
        return run(handlers, call_of(b"1"))

    assert outcome(lambda context: context.fail("429", after=7)) == Result(AttemptOutcome.FAIL, "429", 7)
    assert outcome(lambda context: context.cancel("no")) == Result(AttemptOutcome.CANCEL, "no")
    assert outcome(lambda context: context.snooze(60)) == Result(AttemptOutcome.SNOOZE, "", 60)
    with pytest.raises(TypeError, match="str, which is not an outcome"):
        outcome(lambda _context: "done")


@pytest.mark.parametrize(
    ("error", "retry_exceptions", "ends"),
    [
        (ValueError("no"), True, False),
        (ValueError("no"), False, True),
        (JournalUnavailableError("down"), False, False),
        (JobLeaseLostError("late"), False, True),
    ],
)
def test_j2_an_exception_is_retried_unless_the_handler_says_no(
    error: Exception, retry_exceptions: bool, ends: bool
) -> None:
    handlers = JobHandlers()

    @handlers.job("**", retry_exceptions=retry_exceptions)
    def fail(_data: object, _context: JobContext) -> None:
        raise error

    if ends:
        assert run(handlers, call_of(b"1")) == Result(AttemptOutcome.CANCEL, f"{type(error).__name__}: {error}")
    else:
        with pytest.raises(type(error)):
            run(handlers, call_of(b"1"))


def test_j37_a_second_completion_is_refused() -> None:
    handlers, completions = JobHandlers(), []

    @handlers.job("**")
    def begin(_data: object, context: JobContext) -> Completion:
        completions.append(context.complete_later())
        return completions[-1]

    result = run(handlers, call_of(b"1"))
    assert isinstance(result, Future)
    assert not result.done()
    completions[0].fail("503", after=3)
    assert result.result() == Result(AttemptOutcome.FAIL, "503", 3)
    for again in (completions[0].ok, completions[0].fail, completions[0].cancel):
        with pytest.raises(JobCompletedError):
            again()


def test_a_publication_has_the_request_id_of_the_job() -> None:
    handlers, published = JobHandlers(), Published()

    @handlers.job("**")
    def render(_data: object, context: JobContext) -> None:
        assert context.publish(["/a"], source="site") == "package-1"
        context.publish(iter(["/b"]), publisher="author", deep=False, part="thumbs")

    run(handlers, call_of(b"1"), published)
    assert published.requests == [
        (("/a",), "site", None, "job-1f2e-3-0", True),
        (("/b",), None, "author", "job-1f2e-3-0-thumbs", False),
    ]


def test_merged_jobs_cannot_publish_or_commit_exactly_once() -> None:
    context = JobContext(call_of(b"1", b"2"), WorkerPorts(SystemClock(), Published()))
    with pytest.raises(UsageError, match="merged"):
        context.publish(["/a"])
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(UsageError, match="merged"),
        context.transaction(connection),
    ):
        raise AssertionError


# Progress


def test_progress_and_log_are_reported_together() -> None:
    call = call_of(b"1")
    context = JobContext(call, WorkerPorts(SystemClock(), Published()))
    seen = []
    for item in context.track(["a", "b", "c"]):
        context.log(f"at {item}")
        seen.append(decode_progress(call.progress))
    assert seen[1] == AttemptProgress(1, 3, ("at a", "at b"))
    assert decode_progress(call.progress) == AttemptProgress(3, 3, ("at a", "at b", "at c"))


def test_track_ends_the_handler_when_a_stop_is_requested() -> None:
    handlers, call, seen = JobHandlers(), call_of(b"1"), list[int]()

    @handlers.job("a")
    def handle(_: int, context: JobContext) -> None:
        for number in context.track(iter(range(10)), total=10):
            seen.append(number)
            if number == 2:
                call.stop()
        seen.append(100)  # as if all were done

    assert run(handlers, call) == Result(AttemptOutcome.SNOOZE, "stopped after 3 of 10 steps", 0.0)
    assert seen == [0, 1, 2]


def test_a_report_is_bounded_and_keeps_the_last_lines() -> None:
    report = encode_progress(AttemptProgress(1, 2, [f"{number} " + "ü" * 1_000 for number in range(50)]))
    assert len(report) <= MAX_PROGRESS_BYTES
    decoded = decode_progress(report)
    assert decoded is not None
    assert decoded.log[-1].startswith("49 ü")
    short = decode_progress(encode_progress(AttemptProgress(log=[str(number) for number in range(50)])))
    assert short == AttemptProgress(log=tuple(str(number) for number in range(50 - MAX_LOG_LINES, 50)))


@pytest.mark.parametrize(
    "report",
    [b"", b"half done", b"3", b"[]", b"{}", b'{"done": ', b"[" * 4_000, b"\xff\xfe"],
)
def test_other_text_is_not_a_report(report: bytes) -> None:
    assert decode_progress(report) is None


@pytest.mark.parametrize("steps", ['"done": 3, "total": 2', '"done": -1, "total": 2', '"done": true, "total": 2', '"done": 1, "total": 1e400', '"done": 1'])  # noqa: E501  # fmt: skip
def test_steps_out_of_bounds_are_dropped(steps: str) -> None:
    assert decode_progress(f'{{{steps}, "log": ["x", 3]}}'.encode()) == AttemptProgress(log=("x",))


def test_j17_the_eta_follows_the_speed_so_far() -> None:
    assert eta_ms(AttemptProgress(4, 10), started_ms=1_000, reported_ms=5_000) == 11_000
    assert eta_ms(AttemptProgress(0, 10), 1_000, 5_000) is None
    assert eta_ms(AttemptProgress(), 1_000, 5_000) is None


# Transactions


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[tuple[sqlite3.Connection, sqlite3.Connection]]:
    with (
        closing(sqlite3.connect(tmp_path / "user.db")) as first,
        closing(sqlite3.connect(tmp_path / "user.db", timeout=0.01)) as second,
    ):
        first.execute("CREATE TABLE effect (token INTEGER)")
        yield first, second


def effect_of(connection: sqlite3.Connection, *, fails: bool = False) -> JobHandlers:
    handlers = JobHandlers()

    @handlers.job("**")
    def write(_data: object, context: JobContext) -> None:
        with context.transaction(connection):
            connection.execute("INSERT INTO effect VALUES (?)", (context.token,))
            if fails:
                raise ValueError("no")

    return handlers


def effects(connection: sqlite3.Connection) -> list[int]:
    return [token for (token,) in connection.execute("SELECT token FROM effect ORDER BY token")]


def test_j13_a_later_attempt_finds_the_effect_and_succeeds(connections: Any) -> None:
    first, second = connections
    assert run(effect_of(first), call_of(b"1", token=7)) is None
    assert run(effect_of(second), call_of(b"1", token=9, attempt=2)) == Result()
    assert effects(first) == [7]


@pytest.mark.parametrize("late", [7, 9])
def test_j13_a_lower_or_equal_token_is_refused(connections: Any, late: int) -> None:
    first, second = connections
    run(effect_of(first), call_of(b"1", token=9, attempt=2))
    with pytest.raises(JobLeaseLostError):
        run(effect_of(second), call_of(b"1", token=late))
    assert effects(first) == [9]
    assert not second.in_transaction


def test_a_failed_effect_is_rolled_back_with_its_token(connections: Any) -> None:
    first, _ = connections
    with pytest.raises(ValueError, match="no"):
        run(effect_of(first, fails=True), call_of(b"1", token=7))
    assert effects(first) == []
    run(effect_of(first), call_of(b"1", token=9, attempt=2))
    assert effects(first) == [9]


def test_jobs_of_another_log_with_the_same_id_are_other_jobs(connections: Any) -> None:
    first, _ = connections
    run(effect_of(first), call_of(b"1", token=7))
    call = call_of(b"1", token=9)
    run(effect_of(first), Call(call.jobs, call.token, 1, "another"))
    assert effects(first) == [7, 9]


def test_a_transaction_that_the_handler_began_is_refused(connections: Any) -> None:
    first, _ = connections
    first.execute("INSERT INTO effect VALUES (1)")
    with pytest.raises(UsageError, match="is open on the connection"):
        run(effect_of(first), call_of(b"1"))


class AutocommitConnection(sqlite3.Connection):
    """As connections of Python 3.12 with autocommit=True, and those of psycopg."""

    autocommit = True


def test_a_connection_in_autocommit_mode_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "user.db", factory=AutocommitConnection)) as connection:
        result = run(effect_of(connection), call_of(b"1"))
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    assert isinstance(result, Result)
    assert (result.outcome, "is in autocommit mode" in result.message) == (AttemptOutcome.CANCEL, True)


def test_a_connection_without_implicit_transactions_commits_token_and_effect_together(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "user.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE effect (token INTEGER)")
        with pytest.raises(ValueError, match="no"):
            run(effect_of(connection, fails=True), call_of(b"1", token=7))
        assert effects(connection) == []
        run(effect_of(connection), call_of(b"1", token=9, attempt=2))
        assert (effects(connection), connection.in_transaction) == ([9], False)


def test_a_handler_that_commits_itself_ends_its_job_as_error(connections: Any) -> None:
    first, _ = connections
    handlers = JobHandlers()

    @handlers.job("**")
    def write(_data: object, context: JobContext) -> None:
        with context.transaction(first):
            first.executescript("INSERT INTO effect VALUES (1); INSERT INTO effect VALUES (2);")

    result = run(handlers, call_of(b"1"))
    assert isinstance(result, Result)
    assert (result.outcome, "committed inside of ctx.transaction" in result.message) == (AttemptOutcome.CANCEL, True)


def test_rows_that_no_attempt_can_need_are_removed(connections: Any) -> None:
    first, _ = connections
    run(effect_of(first), call_of(b"1"))
    first.execute("INSERT INTO mailboat_job VALUES ('old', 1, 1000)")
    first.commit()
    call = call_of(b"1")
    run(effect_of(first), Call(call.jobs, call.token, 1, "another"))
    assert [job for (job,) in first.execute("SELECT job FROM mailboat_job")] == ["1f2e/3-0", "another/3-0"]


def test_what_is_no_database_connection_is_refused() -> None:
    context = JobContext(call_of(b"1"), WorkerPorts(SystemClock(), Published()))
    with pytest.raises(UsageError, match="not a database driver"), context.transaction(Path()):  # type: ignore[arg-type]
        raise AssertionError
