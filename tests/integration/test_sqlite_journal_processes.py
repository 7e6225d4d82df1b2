"""The SQLite journal between processes: appenders, readers, and one that is killed.

The file is also the program that the tests start: `append PATH NAME COUNT`, `follow PATH COUNT` or `batches PATH`.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.port import Edge, NewRecord, ReadLimits
from mailboat.journal.sqlite import SqliteJournal, SqliteSettings
from mailboat.model.identifiers import TopicName
from mailboat.testing.journal_harness import in_background, read_to_end
from mailboat.testing.wait import PATIENCE_SECONDS

TOPIC = TopicName("package")
RECORDS_OF_A_BATCH = 7
NO_FALL_BACK = SqliteSettings(poll_seconds=3600.0)
"""So that a lost wake-up makes a test fail and not only slow."""


def open_journal(path: str | Path) -> SqliteJournal:
    return SqliteJournal(Path(path), SystemClock(), NO_FALL_BACK)


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def append(path: str, name: str, count: str) -> None:
    """Append records that tell who wrote them, one by one."""
    with open_journal(path) as journal:
        for number in range(int(count)):
            journal.append(TOPIC, [NewRecord(f"{name}:{number}".encode())])


def follow(path: str, count: str) -> None:
    """Print the values from the beginning until there were so many; first say that the wait begins."""
    with open_journal(path) as journal:
        reader = journal.reader(TOPIC, Edge.EARLIEST)
        say("ready")
        seen = 0
        while seen < int(count):
            records = reader.read(ReadLimits(), 60.0).records
            seen += len(records)
            say("\n".join(f"{record.value.decode()}@{time.monotonic_ns()}" for record in records))


def batches(path: str) -> None:
    """Append batches for ever; say which are confirmed."""
    with open_journal(path) as journal:
        for number in itertools.count():
            record = NewRecord(b"%d" % number + bytes(2000))
            say(journal.append(TOPIC, [record] * RECORDS_OF_A_BATCH)[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with SqliteJournal.create(path, SystemClock()) as journal:
        journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=None))
    return path


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(processes: ExitStack, *arguments: object) -> subprocess.Popen[str]:
    process = processes.enter_context(
        subprocess.Popen([sys.executable, __file__, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    )
    processes.callback(process.kill)
    return process


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=PATIENCE_SECONDS * 3)
    assert process.returncode == 0
    return output.split()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_all_readers_see_all_records_of_all_appenders_in_one_order(path: Path, processes: ExitStack) -> None:
    readers = [start(processes, "follow", path, 300) for _ in range(3)]
    for reader in readers:
        assert next_line(reader) == "ready"
    appenders = [start(processes, "append", path, name, 100) for name in ("a", "b", "c")]
    seen = [[line.split("@")[0] for line in lines_of(reader)] for reader in readers]
    for appender in appenders:
        lines_of(appender)
    assert seen[0] == seen[1] == seen[2]
    for name in ("a", "b", "c"):
        assert [value for value in seen[0] if value.startswith(name)] == [f"{name}:{number}" for number in range(100)]
    assert len(seen[0]) == 300


def test_each_append_wakes_the_reader_of_another_process(
    path: Path, processes: ExitStack, record_property: pytest.RecordProperty
) -> None:
    """Without the wake-up each of the 100 messages would take an hour. The latency is reported, not judged."""
    reader = start(processes, "follow", path, 100)
    assert next_line(reader) == "ready"
    latencies_ms = []
    with open_journal(path) as journal:
        for number in range(100):
            journal.append(TOPIC, [NewRecord(b"%d" % number)])
            appended_ns = time.monotonic_ns()
            value, seen_ns = next_line(reader).split("@")
            assert value == str(number)
            latencies_ms.append((int(seen_ns) - appended_ns) / 1e6)
    record_property("wake_up_median_ms", statistics.median(latencies_ms))
    record_property("wake_up_max_ms", max(latencies_ms))


def test_space_is_given_back_once_another_process_has_written(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with open_journal(path) as journal, closing(other):
        other.execute("BEGIN IMMEDIATE")
        with in_background(journal.remove_expired) as removing:
            assert not wait([removing], timeout=0.2).done
            other.execute("COMMIT")
            assert removing.result(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("confirmed_batches", [1, 3, 10, 30])
def test_an_appender_that_is_killed_loses_nothing_confirmed_and_leaves_no_part_of_a_batch(
    path: Path, processes: ExitStack, confirmed_batches: int
) -> None:
    appender = start(processes, "batches", path)
    confirmed = [int(next_line(appender)) for _ in range(confirmed_batches)]
    appender.kill()
    output, _ = appender.communicate(timeout=PATIENCE_SECONDS)
    confirmed += [int(line) for line in output.splitlines() if output.endswith("\n")]
    with open_journal(path) as journal:
        records = read_to_end(journal.reader(TOPIC, Edge.EARLIEST))
        assert len(records) % RECORDS_OF_A_BATCH == 0
        assert [record.offset for record in records] == list(range(len(records)))
        found = [record.value[:-2000] for record in records]
        whole = [b"%d" % number for number in range(len(records) // RECORDS_OF_A_BATCH)]
        assert found == [value for value in whole for _ in range(RECORDS_OF_A_BATCH)]
        assert confirmed[-1] + RECORDS_OF_A_BATCH <= len(records)
        assert journal.append(TOPIC, [NewRecord(b"after")]) == [len(records)]
        assert journal.find_damage() == []


def test_a_reader_that_is_killed_leaves_nothing_behind(path: Path, processes: ExitStack) -> None:
    reader = start(processes, "follow", path, 1)
    assert next_line(reader) == "ready"
    folder = path.with_name(path.name + ".wake")
    with open_journal(path) as journal:
        reader.kill()
        reader.wait(PATIENCE_SECONDS)
        left = sorted(folder.iterdir()) if folder.exists() else []
        for number in range(20):
            journal.append(TOPIC, [NewRecord(b"%d" % number)])
    assert len(left) <= 1  # the topic's bell


if __name__ == "__main__":
    {"append": append, "follow": follow, "batches": batches}[sys.argv[1]](*sys.argv[2:])
