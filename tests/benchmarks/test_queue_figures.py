"""What queues cost: a million waiting packages, a hundred subscribers, and a restart over a long log.

Each figure is taken in a process of its own, which is this file: `test_queue_figures.py FIGURE COUNT`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mailboat.clock import SystemClock
from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord, ReadLimits
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.paths import parse_path
from mailboat.model.positions import Bounds
from mailboat.queues.entries import DecodedRecords, QueueEntry
from mailboat.queues.error_queues import FailedPackages
from mailboat.queues.log_view import LogView
from mailboat.queues.publisher_queues import PublisherQueues, QueueSources
from mailboat.queues.queue_names import QueueName
from mailboat.queues.queue_pages import PageReader
from mailboat.queues.queue_state import QueuePosition, decide_agent_state
from mailboat.wire.messages import encode_message

TOPIC, AUTHOR = TopicName("package"), AgentName("author")
SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")
STEP = 500
SUBSCRIBERS = 100


def entry(offset: int) -> QueueEntry:
    package_id = PackageId(f"dstrpck-{1_700_000_000_000 + offset}-{uuid.UUID(int=offset * 7919)}")
    path = f"/content/shop/en/products/line-{offset % 1000}/item-{offset}"
    return QueueEntry(Offset(offset), AUTHOR, package_id, Action.ADD, 1200, 1_700_000_000_000 + offset, path, 3, "ann")


def filled_view(count: int) -> LogView:
    view = LogView(TOPIC, {AUTHOR}, Bounds(Offset(0), Offset(0)), budget_bytes=10**9)
    for begin in range(0, count, STEP):
        end = min(count, begin + STEP)
        view.extend(DecodedRecords([entry(offset) for offset in range(begin, end)], 0), Offset(end))
    return view


def queues_over(view: LogView, subscribers: int, done: int = -1) -> PublisherQueues:
    standings = [
        QueuePosition(QueueName(SLING_ID, AgentName(f"edge-{number}")), AUTHOR, done, max_retries=10)
        for number in range(subscribers)
    ]
    pages = PageReader(view, MemoryJournal(SystemClock()))
    return PublisherQueues(AUTHOR, QueueSources(view, pages, FailedPackages()), standings)


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds_of(calls: Sequence[Callable[[], object]], times: int) -> list[float]:
    """What each of some calls costs when nothing disturbs it: the least of several runs, one of each call in turn."""
    rounds = []
    for _ in range(15):
        found = []
        for call in calls:
            begin = time.process_time()
            for _ in range(times):
                call()
            found.append(time.process_time() - begin)
        rounds.append(found)
    return list(map(min, zip(*rounds, strict=True)))


def measure_memory(count: int) -> dict[str, float]:
    filled_view(1000)
    before = resident_bytes()
    begin = time.process_time()
    view = filled_view(count)
    cpu_seconds = time.process_time() - begin
    queues = queues_over(view, SUBSCRIBERS).subscriber_queues()
    for queue in queues:
        assert queue.size().count == count
        assert len(queue.page(0, 10).items) == 10
    return {
        "bytes_per_entry": (resident_bytes() - before) / count,
        "told_bytes_per_entry": view.size_bytes / count,
        "fill_us_per_entry": cpu_seconds / count * 1e6,
    }


def measure_depth(count: int) -> dict[str, float]:
    def look_at(depth: int) -> Callable[[], None]:
        (queue,) = queues_over(filled_view(depth), 1).subscriber_queues()

        def look() -> None:
            assert queue.size().count == depth
            assert len(queue.page(0, 100).items) == 100

        return look

    short, deep = cpu_seconds_of([look_at(10_000), look_at(count)], 50)
    return {"ratio": deep / short, "us_at_depth": deep / 50 * 1e6}


def measure_status(count: int) -> dict[str, float]:
    view = filled_view(count)

    def status_of(subscribers: int) -> Callable[[], None]:
        queues = queues_over(view, subscribers)

        def look() -> None:
            assert len(queues.all()) == 2 * subscribers
            decide_agent_state(queue.state() for queue in queues.subscriber_queues())
            for queue in queues.subscriber_queues():
                queue.size()

        return look

    many, one = cpu_seconds_of([status_of(SUBSCRIBERS), status_of(1)], 50)
    return {"ratio": many / one / SUBSCRIBERS}


def measure_restart(count: int) -> dict[str, float]:
    """A publisher starts over a long log, and is asked for the first page of a subscriber far behind."""
    message = PackageMessage(
        SLING_ID, PackageId(f"dstrpck-1-{uuid.UUID(int=1)}"), Action.ADD, "tree", AUTHOR, paths=(parse_path("/a"),)
    )
    headers, value = encode_message(message)
    folder = Path(sys.argv[3])
    with SqliteJournal.create(folder / "journal.db", SystemClock()) as journal:
        journal.ensure_topic(TOPIC, TopicSettings(retention_seconds=None))
        for begin in range(0, count, 10_000):
            journal.append(TOPIC, [NewRecord(value, headers)] * min(10_000, count - begin))
        records_read = 0

        class CountingReader:
            def __init__(self, reader: Any) -> None:
                self.reader = reader

            def __getattr__(self, name: str) -> Any:
                return getattr(self.reader, name)

            def read(self, limits: ReadLimits, wait_seconds: float) -> Any:
                nonlocal records_read
                batch = self.reader.read(limits, wait_seconds)
                records_read += len(batch.records)
                return batch

        class CountingJournal:
            def reader(self, topic: TopicName, start: Any) -> CountingReader:
                return CountingReader(journal.reader(topic, start))

        begin_cpu = time.process_time()
        view = LogView(TOPIC, {AUTHOR}, journal.bounds(TOPIC))
        page = PageReader(view, CountingJournal()).page(AUTHOR, count // 10, 100)  # type: ignore[arg-type]
        cpu_seconds = time.process_time() - begin_cpu
    assert [entry.offset for entry in page.entries] == list(range(count // 10, count // 10 + 100))
    return {"records_read": records_read, "cpu_ms": cpu_seconds * 1000}


def figure(bench: Any, name: str, count: int, *arguments: object) -> dict[str, float]:
    result: dict[str, float] = bench.execute([sys.executable, __file__, name, str(count), *map(str, arguments)])
    return result


def test_a_waiting_package_needs_few_bytes_however_many_subscribers_look(bench: Any) -> None:
    count = bench.length(200_000, 1_000_000)
    found = figure(bench, "memory", count)
    facts = {key: found[key] for key in ("told_bytes_per_entry", "fill_us_per_entry")}
    bench.report_count(
        "queue-memory",
        found["bytes_per_entry"],
        target=150,
        unit="bytes",
        count=count,
        subscribers=SUBSCRIBERS,
        **facts,
    )


def test_a_deep_queue_is_looked_at_as_fast_as_a_short_one(bench: Any) -> None:
    count = bench.length(300_000, 1_000_000)
    found = figure(bench, "depth", count)
    bench.report_ratio("queue-depth", [found["ratio"]], target=1.5, depth=count, us_at_depth=found["us_at_depth"])


def test_a_hundred_subscribers_cost_no_more_than_a_hundred_times_one(bench: Any) -> None:
    found = figure(bench, "status", bench.length(100_000, 1_000_000))
    bench.report_ratio("queue-status", [found["ratio"]], target=1.0, subscribers=SUBSCRIBERS)


def test_the_first_page_after_a_restart_reads_little_of_a_long_log(bench: Any) -> None:
    count = bench.length(100_000, 1_000_000)
    found = figure(bench, "restart", count, bench.folder("queue-restart"))
    read, cpu_ms = found["records_read"], found["cpu_ms"]
    bench.report_count("queue-restart", read, target=512, unit="records", retained=count, cpu_ms=cpu_ms)


if __name__ == "__main__":
    measures = {
        "memory": measure_memory,
        "depth": measure_depth,
        "status": measure_status,
        "restart": measure_restart,
    }
    sys.stdout.write(json.dumps(measures[sys.argv[1]](int(sys.argv[2]))) + "\n")
