"""`ctx.transaction` on a real PostgreSQL: one effect for each job, whatever happens to its attempts."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from mailboat.errors import UsageError
from mailboat.failpoints import Failpoint
from mailboat.jobs.user_transaction import DbConnection, EffectExistsError, TransactionSplitError, commit_once
from mailboat.model.jobs import JobLeaseLostError, Token
from support import job_scenario
from support.postgres_server import PostgresServer

JOB = "1f2e/3-0"
NOW_MS = 1_000_000_000_000
_CHILD_SECONDS = 120


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """For all tests here. Its user must be able to enter the folder, which those of pytest do not allow."""
    with tempfile.TemporaryDirectory(prefix="mailboat-postgres-") as folder:
        server = PostgresServer(Path(folder))
        with server.running("fsync=off"):
            yield server


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    """The address of the database, with an empty table of effects and none of tokens."""
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("CREATE TABLE effect (job text, token bigint)")
        yield server.address
        connection.execute("DROP TABLE IF EXISTS effect, mailboat_job")


def attempt(database: str, token: int, *, fails: bool = False) -> None:
    with closing(psycopg.connect(database)) as connection, commit_once(connection, JOB, Token(token), NOW_MS):
        insert(connection, token)
        if fails:
            raise ValueError("no")


def insert(connection: psycopg.Connection, token: int) -> None:
    connection.execute("INSERT INTO effect VALUES (%s, %s)", (JOB, token))


def rows(database: str, table: str = "effect") -> list[tuple[str, int]]:
    with psycopg.connect(database) as connection:
        return [(str(job), int(token)) for job, token in connection.execute(f"SELECT job, token FROM {table}")]


def test_j13_the_token_is_stored_with_the_effect(database: str) -> None:
    attempt(database, 7)
    assert rows(database) == rows(database, "mailboat_job") == [(JOB, 7)]
    with pytest.raises(EffectExistsError):
        attempt(database, 9)
    assert rows(database) == rows(database, "mailboat_job") == [(JOB, 7)]


@pytest.mark.parametrize("late", [7, 9])
def test_j13_a_lower_or_equal_token_is_refused(database: str, late: int) -> None:
    attempt(database, 9)
    with pytest.raises(JobLeaseLostError):
        attempt(database, late)
    assert rows(database) == [(JOB, 9)]


def test_a_failed_effect_is_rolled_back_with_its_token(database: str) -> None:
    with pytest.raises(ValueError, match="no"):
        attempt(database, 7, fails=True)
    attempt(database, 9)
    assert rows(database) == [(JOB, 9)]


def test_j13_a_second_attempt_waits_for_the_open_transaction_of_the_first(database: str) -> None:
    attempt(database, 1)  # so that the second attempt waits for a row, not for the table
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("TRUNCATE effect, mailboat_job")
    with closing(psycopg.connect(database)) as first, ThreadPoolExecutor(1) as other:
        with commit_once(first, JOB, Token(7), NOW_MS):
            insert(first, 7)
            second = other.submit(attempt, database, 9)
            await_lock(database)
            assert not second.done()
        with pytest.raises(EffectExistsError):
            second.result()
    assert rows(database) == [(JOB, 7)]


def await_lock(database: str) -> None:
    """Until a session waits for another one."""
    never = threading.Event()
    with psycopg.connect(database, autocommit=True) as connection:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while connection.execute(waiting).fetchone() == (0,):
            never.wait(0.01)


def test_sessions_that_need_the_table_at_once_create_it_once(database: str) -> None:
    with closing(psycopg.connect(database)) as first, ThreadPoolExecutor(1) as other:
        with commit_once(first, JOB, Token(7), NOW_MS):
            second = other.submit(attempt_other, database)
            await_lock(database)
            insert(first, 7)
        second.result()
    assert rows(database, "mailboat_job") == [(JOB, 7), ("1f2e/4-0", 8)]


def attempt_other(database: str) -> None:
    with closing(psycopg.connect(database)) as connection, commit_once(connection, "1f2e/4-0", Token(8), NOW_MS):
        pass


def test_a_role_that_may_not_create_tables_uses_the_one_that_is_there(database: str) -> None:
    attempt(database, 7)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("CREATE ROLE app LOGIN; GRANT SELECT, INSERT, DELETE ON effect, mailboat_job TO app")
        with closing(psycopg.connect(database, user="app")) as connection:
            refused(connection, JobLeaseLostError, "attempt 7 of job")
        owner.execute("DROP OWNED BY app; DROP ROLE app")


def test_a_connection_in_autocommit_mode_is_refused(database: str) -> None:
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        refused(connection, TransactionSplitError, "is in autocommit mode")
    assert rows(database) == []


def test_a_transaction_that_is_open_is_refused(database: str) -> None:
    with closing(psycopg.connect(database)) as connection:
        insert(connection, 1)
        refused(connection, UsageError, "is open on the connection")


def refused(connection: DbConnection, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message), commit_once(connection, JOB, Token(7), NOW_MS):
        raise AssertionError


def commit_inside(connection: psycopg.Connection) -> None:
    with commit_once(connection, JOB, Token(7), NOW_MS):
        insert(connection, 7)
        connection.commit()


def test_a_handler_that_commits_itself_is_named(database: str) -> None:
    with closing(psycopg.connect(database)) as connection, pytest.raises(TransactionSplitError, match="the handler"):
        commit_inside(connection)


def test_j13_a_worker_killed_between_effect_and_result_repeats_no_effect(database: str, tmp_path: Path) -> None:
    job_scenario.prepare(tmp_path)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["support.job_scenario"])
    exits = []
    for failpoint in (Failpoint.JOBS_AFTER_HANDLER, None):
        arguments = (str(tmp_path), failpoint, database)
        child = processes.Process(target=job_scenario.work_with_rows, args=arguments)
        child.start()
        child.join(_CHILD_SECONDS)
        exits.append(child.exitcode)
    assert exits == [-signal.SIGKILL, 0]
    ran = [line.split()[0] for line in (tmp_path / "ran").read_text().splitlines()]
    effects = [job for job, _ in rows(database)]
    assert len(set(ran)) == job_scenario.JOBS < len(ran), "an attempt was repeated"
    assert sorted(effects) == sorted(set(ran)), "each job has one row"
