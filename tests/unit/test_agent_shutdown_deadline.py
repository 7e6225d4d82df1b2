"""An agent's process ends within its deadline whatever is at work, and its upkeep outlives defects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mailboat.agent.process import AgentProcess
from mailboat.cli.agents import stop_both
from mailboat.clock import Deadline, SystemClock
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace, prepare
from mailboat.config.document import AgentsConfig, Config, HttpConfig, PublisherAgentConfig, SubscriberConfig
from mailboat.config.topic_settings import TopicSettings
from mailboat.http.server import HttpServer
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord
from mailboat.maintenance import retention, schedule
from mailboat.maintenance.retention import retention_worker
from mailboat.maintenance.schedule import maintenance_worker
from mailboat.model.identifiers import TopicName
from mailboat.retention.task import RetentionFigures, RetentionSettings, RetentionTask, TurnInterruptedError
from mailboat.testing.clocks import ManualClock, SkippingClock
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS
from support.retention import retention_section


class Stuck:
    """Work that does not end before the test does."""

    def __init__(self) -> None:
        self.began, self.release = threading.Event(), threading.Event()

    def __call__(self, *_: object, **__: object) -> None:
        self.began.set()
        assert self.release.wait(LONG_WAIT_SECONDS)


class Keeper:
    """A keeper whose turn is what the test says."""

    def __init__(self, turn: Callable[..., None]) -> None:
        self.turn = turn
        self.figures = RetentionFigures()

    def await_announcements(self) -> None:
        """It waits for no one."""

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.release.set()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[AgentProcess]:
    agents = AgentsConfig((PublisherAgentConfig("author", str(tmp_path)),))
    home = Home(
        tmp_path / "home", Config(agents=agents, subscriber=SubscriberConfig(shutdown_seconds=LONG_WAIT_SECONDS))
    )
    prepare(home)
    return AgentProcess(home)


def test_the_deadline_of_the_signal_counts_for_all_that_ends(
    process: AgentProcess, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "maintain", stuck)
    monkeypatch.setattr(retention, "retention_keeper", lambda *_, **__: Keeper(stuck))
    process._upkeep.append(retention_worker(process.workspace))
    for worker in process._upkeep:
        worker.start()
    assert stuck.began.wait(PATIENCE_SECONDS)
    began = time.monotonic()
    with process:
        process.stop(Deadline(SystemClock(), 0.5))
    assert time.monotonic() - began < PATIENCE_SECONDS, "one of them had a deadline of its own"


def test_a_keeper_that_reads_a_long_log_can_be_told_to_stop() -> None:
    clock = ManualClock()
    journal, topics = MemoryJournal(clock), (TopicName("package"), TopicName("discovery"))
    for topic in topics:
        journal.ensure_topic(topic, TopicSettings())
    journal.append(topics[0], [NewRecord(b"x")] * 2000)
    keeper = RetentionTask(journal, RetentionSettings(*topics, retention_section(min_seconds=0)), clock)
    asked: list[bool] = []

    def is_stopping() -> bool:
        asked.append(len(asked) == 2)
        return asked[-1]

    with pytest.raises(TurnInterruptedError):
        keeper.turn(is_stopping=is_stopping)
    assert journal.bounds(topics[0]).earliest_offset == 0
    assert keeper.turn().bounds.next_offset == 2000
    keeper.close()


def failing_once(done: threading.Event) -> Callable[..., None]:
    failures = iter([RecursionError("a defect")])

    def work(*_: object, **__: object) -> None:
        for failure in failures:
            raise failure
        done.set()

    return work


class Workplace:
    """As much of a workspace as a thread of the upkeep needs."""

    clock = SkippingClock()


def test_a_defect_does_not_end_the_upkeep_for_good(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done, workspace = threading.Event(), Workplace()
    monkeypatch.setattr(schedule, "maintain", failing_once(done))
    maintainer = maintenance_worker(workspace)  # type: ignore[arg-type]  # it needs no more of it
    maintainer.begin()
    assert done.wait(PATIENCE_SECONDS)
    assert maintainer.stop(PATIENCE_SECONDS)
    assert "a defect" in caplog.text


def test_a_defect_does_not_end_retention_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()
    workspace = Workspace(Home(tmp_path / "home", Config()), SkippingClock())
    monkeypatch.setattr(retention, "retention_keeper", lambda *_, **__: Keeper(failing_once(done)))
    worker = retention_worker(workspace)
    worker.start()
    assert done.wait(PATIENCE_SECONDS)
    assert worker.stop(PATIENCE_SECONDS)
    assert "a defect" in caplog.text


class Delivery:
    """Notes what it is told."""

    def __init__(self, name: str, told: list[str]) -> None:
        self._name, self._told = name, told

    def ask_to_stop(self) -> None:
        self._told.append(f"ask {self._name}")

    def stop(self, timeout_seconds: float) -> None:
        assert timeout_seconds > 0
        self._told.append(f"stop {self._name}")


def test_all_deliveries_are_asked_to_stop_before_one_is_waited_for(process: AgentProcess) -> None:
    told: list[str] = []
    process.observability._running += [Delivery("a", told), Delivery("b", told)]  # type: ignore[list-item]  # enough
    with process:
        process.stop(Deadline(SystemClock(), PATIENCE_SECONDS))
    assert told == ["ask a", "ask b", "stop a", "stop b"]


class Ending:
    """A server and a process, and the time that each was given to end."""

    def __init__(self) -> None:
        self.server_seconds = self.process_seconds = 0.0

    def deadline(self) -> Deadline:
        return Deadline(ManualClock(), 20.0)

    def stop_server(self, deadline: Deadline) -> None:
        self.server_seconds = deadline.remaining_seconds()

    def stop(self, deadline: Deadline) -> int:
        self.process_seconds = deadline.remaining_seconds()
        return 6


def test_the_last_requests_leave_the_process_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ending, server = Ending(), HttpServer(lambda *_: None, HttpConfig())  # type: ignore[arg-type]  # it never serves
    monkeypatch.setattr(server, "stop", ending.stop_server)
    assert stop_both(server, ending) == 6  # type: ignore[arg-type]  # as much of a process as is asked
    assert 0.0 < ending.server_seconds <= 16.0 < ending.process_seconds
