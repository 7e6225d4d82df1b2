"""What subscribers cost a publisher agent: a hundred that announce, a status of them all, a start over a long log.

Each figure is taken in a process of its own, which is this file: `test_publisher_agent_figures.py FIGURE COUNT FOLDER`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Self

from mailboat.clock import SystemClock
from mailboat.composition.home import Home, create_home
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import Config, PublisherAgentConfig
from mailboat.control.service import ControlService
from mailboat.journal.port import Journal, NewRecord
from mailboat.journal.sqlite_reader import SqliteReader
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.messages import DiscoveryMessage, SubscriberState, TopicRole
from mailboat.model.requests import parse_request
from mailboat.wire.messages import encode_message

AUTHOR = AgentName("author")
SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")
SUBSCRIBERS: Final = 100
PACKAGES_PER_ANNOUNCEMENT: Final = 100
"""A subscriber announces at once when it has caught up, but at most five times a second: at 500 packages a second,
which is more than a publisher makes, each of them announces once in 100 packages."""


def announcement(number: int, last_done: int) -> NewRecord:
    states = (SubscriberState(AUTHOR, last_done),)
    message = DiscoveryMessage(SLING_ID, AgentName(f"edge-{number}"), states, is_editable=True, max_retries=10)
    headers, value = encode_message(message)
    return NewRecord(value, headers, f"{SLING_ID}-edge-{number}".encode())


def opened(folder: Path) -> Workspace:
    site = folder / "site"
    site.mkdir(parents=True)
    (site / "page.html").write_text("<p>a page</p>" * 20)
    home = create_home(folder / "home", Config())
    with initialise(home):
        pass
    return Workspace(home, SystemClock())


def service_of(workspace: Workspace, folder: Path) -> ControlService:
    return ControlService(workspace, [PublisherAgentConfig(AUTHOR, str(folder / "site"))])


def append_announcements(journal: Journal, topic: TopicName, subscribers: int, last_done: int) -> None:
    journal.append(topic, [announcement(number, last_done) for number in range(subscribers)])


def announce_on_demand(subscribers: int, folder: Path) -> dict[str, Any]:
    """Let all subscribers announce for each line on standard input: in a process of its own, as they are."""
    with Workspace(Home(folder / "home"), SystemClock()) as workspace:
        for line in sys.stdin:
            append_announcements(workspace.journal, workspace.topic(TopicRole.DISCOVERY), subscribers, int(line))
    return {}


def publish_with(count: int, folder: Path, subscribers: int) -> int:
    """The calls of an agent that publishes while so many announce."""
    command = [sys.executable, __file__, "announce", str(subscribers), str(folder)]
    calls = CallCounter()
    with opened(folder) as workspace, closing(service_of(workspace, folder)) as service:
        fleet = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, bufsize=1)
        assert fleet.stdin is not None
        demand = fleet.stdin
        threading.setprofile(calls.count)  # of the threads that are started from now on
        service.start()
        threading.setprofile(None)
        demand.write("-1\n")
        await_until(lambda: len(service.status().subscribers) == subscribers)
        order = parse_request("ADD", ("/page.html",), user_id="ann")
        service.distribute(AUTHOR, order)
        calls.total = 0
        for number in range(count):
            with calls:
                service.distribute(AUTHOR, order)
            if number % PACKAGES_PER_ANNOUNCEMENT == PACKAGES_PER_ANNOUNCEMENT - 1:
                demand.write(f"{number}\n")
        heard = (1 + count // PACKAGES_PER_ANNOUNCEMENT) * subscribers
        await_until(lambda: service._journal_state.roster_follower._reader.next_offset == heard)
        demand.close()
        fleet.wait()
        return calls.total


class CallCounter:
    """Counts the functions that are called in this thread while it is entered, and in threads that it was given to."""

    def __init__(self) -> None:
        self.total = 0

    def count(self, _frame: object, event: str, _argument: object) -> None:
        self.total += event in {"call", "c_call"}

    def __enter__(self) -> Self:
        sys.setprofile(self.count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def await_until(is_so: Callable[[], bool]) -> None:
    never = threading.Event()
    while not is_so():
        never.wait(0.005)


def measure_announcing(count: int, folder: Path) -> dict[str, Any]:
    one, many = [publish_with(count, folder / str(number), number) for number in (1, SUBSCRIBERS)]
    return {"ratio": many / one, "calls_per_package": one / count}


def measure_status(count: int, folder: Path) -> dict[str, Any]:
    """The calls that one look at the status takes, for one subscriber and for a hundred."""
    calls = {}
    for subscribers in (1, SUBSCRIBERS):
        place = folder / str(subscribers)
        with opened(place) as workspace, closing(service_of(workspace, place)) as service:
            for number in range(count):
                service.distribute(AUTHOR, parse_request("INVALIDATE", (f"/{number}",)))
            append_announcements(workspace.journal, workspace.topic(TopicRole.DISCOVERY), subscribers, count // 2)
            service.start()
            await_until(lambda service=service, wanted=subscribers: len(service.status().subscribers) == wanted)
            await_until(lambda service=service: all(queue.exact for queue in service.queues(AUTHOR)))

            def look(service: ControlService = service) -> None:
                service.status()
                service.queues(AUTHOR)

            with CallCounter() as counter:
                look()
            calls[subscribers] = counter.total
    return {"ratio": calls[SUBSCRIBERS] / calls[1], "calls": calls[SUBSCRIBERS]}


def measure_restart(count: int, folder: Path) -> dict[str, Any]:
    """An agent starts over a long log and is asked at once for the first page of a subscriber that is far behind."""
    with opened(folder) as workspace:
        with closing(service_of(workspace, folder)) as service:
            service.distribute(AUTHOR, parse_request("ADD", ("/page.html",)))
        record = workspace.journal.record_at(workspace.package_topic, Offset(0))
        assert record is not None
        for begin in range(0, count, 10_000):
            more = [NewRecord(record.value, record.headers)] * min(10_000, count - begin)
            workspace.journal.append(workspace.package_topic, more)
        append_announcements(workspace.journal, workspace.topic(TopicRole.DISCOVERY), SUBSCRIBERS, count // 10)
        read = count_packages_read()
        with closing(service_of(workspace, folder)) as service:
            service.catch_up()
            service._journal_state.start(with_log=False)  # the past is counted beside, by no one who is waited for
            begin_cpu = time.process_time()
            page = service.queue(AUTHOR, "edge-7", max_items=100)
            cpu_seconds = time.process_time() - begin_cpu
    assert [item.offset for item in page.items] == list(range(count // 10 + 1, count // 10 + 101))
    return {"records_read": read["package"], "cpu_ms": cpu_seconds * 1000}


def count_packages_read() -> Counter[str]:
    """How many records are read of each topic from now on."""
    counts: Counter[str] = Counter()
    read = SqliteReader.read

    def counting(self: SqliteReader, *arguments: Any) -> Any:
        batch = read(self, *arguments)
        counts[self._settings.topic] += len(batch.records)
        return batch

    SqliteReader.read = counting  # type: ignore[method-assign]  # in a process of its own
    return counts


def figure(bench: Any, name: str, count: int) -> dict[str, Any]:
    command = [sys.executable, __file__, name, str(count), str(bench.folder(f"publisher-agent-{name}"))]
    result: dict[str, Any] = bench.execute(command)
    return result


def test_a_hundred_subscribers_that_announce_cost_a_publisher_little(bench: Any) -> None:
    count = bench.length(300, 1000)
    found = figure(bench, "announcing", count)
    bench.report_count(
        "publisher-announcing",
        found["ratio"],
        target=1.1,
        unit="ratio of calls",
        packages=count,
        subscribers=SUBSCRIBERS,
        calls_per_package=found["calls_per_package"],
    )


def test_a_status_of_a_hundred_subscribers_costs_at_most_a_hundred_times_one(bench: Any) -> None:
    found = figure(bench, "status", 200)
    value = found["ratio"] / SUBSCRIBERS
    bench.report_count("publisher-status", value, target=1.0, unit="ratio of calls", calls=found["calls"])


def test_the_first_page_of_an_agent_that_starts_over_a_long_log_reads_little_of_it(bench: Any) -> None:
    count = bench.length(50_000, 1_000_000)
    found = figure(bench, "restart", count)
    read, cpu_ms = found["records_read"], found["cpu_ms"]
    bench.report_count("publisher-restart", read, target=512, unit="records", retained=count, cpu_ms=cpu_ms)


if __name__ == "__main__":
    measures: dict[str, Callable[[int, Path], dict[str, Any]]] = {
        "announcing": measure_announcing,
        "announce": announce_on_demand,
        "status": measure_status,
        "restart": measure_restart,
    }
    result = measures[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))
    sys.stdout.write(json.dumps(result) + "\n")
