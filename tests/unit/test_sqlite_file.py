"""Several processes may open a fresh database at once: the second one waits instead of failing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.content.targets.database import connect_database, create_database
from mailboat.errors import MailboatError
from mailboat.folder_handle import FolderHandle
from mailboat.publisher.state_file import open_database
from mailboat.sqlite_file import turn_on_write_ahead_log


def make_target(file: Path) -> None:
    with FolderHandle.open(str(file.parent)) as folder:
        create_database(folder, file.name, "files")


def target(file: Path) -> sqlite3.Connection:
    return connect_database(file, "files:edge")


OPENERS: list[Callable[[Path], sqlite3.Connection]] = [target, open_database]


def connect(file: Path, timeout: float = 5) -> sqlite3.Connection:
    return sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=timeout)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


class TestAnotherWritesAFreshDatabase:
    """Its header still says the older mode, as what the other does is the same switch, or the first table."""

    @pytest.mark.parametrize("opener", OPENERS)
    def test_it_is_opened_as_soon_as_the_other_is_done(
        self, opener: Callable[[Path], sqlite3.Connection], file: Path
    ) -> None:
        make_target(file) if opener is target else file.touch()
        with closing(connect(file)) as other:
            other.execute("BEGIN IMMEDIATE")
            timer = threading.Timer(0.2, lambda: other.execute("COMMIT"))
            timer.start()
            with closing(opener(file)) as connection:
                assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            timer.join()  # it may still be at the other connection, which is closed now

    def test_it_fails_as_busy_when_the_other_is_never_done(self, file: Path) -> None:
        make_target(file)
        with closing(connect(file)) as other, closing(connect(file, timeout=0.01)) as connection:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                turn_on_write_ahead_log(connection)
            assert not connection.in_transaction


def test_many_who_open_a_fresh_database_at_once_all_may_write(file: Path) -> None:
    make_target(file)
    together = threading.Barrier(8)
    failures: list[Exception] = []

    def write(number: int) -> None:
        together.wait()
        try:
            with closing(target(file)) as connection:
                connection.execute("CREATE TABLE " + f"of_{number} (one)")
        except (sqlite3.Error, MailboatError) as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_file_that_is_no_database_is_refused_at_once(file: Path) -> None:
    file.write_bytes(b"no database" * 100)
    with closing(connect(file)) as connection, pytest.raises(sqlite3.DatabaseError, match="not a database"):
        turn_on_write_ahead_log(connection)
