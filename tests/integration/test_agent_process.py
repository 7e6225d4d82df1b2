"""The agents of one process: they run, fail and end apart from each other, and one deadline ends them all."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mailboat.agent.process import AgentProcess
from mailboat.api.client import HttpControl
from mailboat.api.orders import BenchOrder
from mailboat.clock import Deadline, SystemClock
from mailboat.composition.home import Home
from mailboat.composition.workspace import prepare
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import (
    AgentsConfig,
    Config,
    HttpConfig,
    PublisherAgentConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
)
from mailboat.config.storage import ConsumptionConfig, ConsumptionPolicy, RetentionConfig
from mailboat.control.journal_archive import AgentArchive
from mailboat.errors import UsageError
from mailboat.http.agent_server import server_of
from mailboat.model.requests import parse_request
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree to publish."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("<p>hello")
    return folder


def made(tmp_path: Path, *subscribers: SubscriberAgentConfig, publisher: PublisherAgentConfig | None = None) -> Home:
    """A new home whose configuration names these agents."""
    agents = AgentsConfig(() if publisher is None else (publisher,), subscribers)
    config = Config(agents=agents, subscriber=SubscriberConfig(announce_seconds=0.5), http=HttpConfig(port=0))
    home = Home(tmp_path / "home", config)
    prepare(home)
    return home


def edge(tmp_path: Path, name: str, **settings: Any) -> SubscriberAgentConfig:
    return SubscriberAgentConfig(name, f"files:{tmp_path / name}", **settings)


def test_a_publisher_and_subscribers_run_in_one_process_and_serve_its_api(tmp_path: Path, source: Path) -> None:
    publisher = PublisherAgentConfig("author", str(source))
    home = made(tmp_path, edge(tmp_path, "edge-1", editable=True), edge(tmp_path, "edge-2"), publisher=publisher)
    with AgentProcess(home) as process:
        process.start()
        control = process.control
        assert control is not None
        archive, server = AgentArchive(process.workspace, process.restores), server_of(process)
        server.start()
        try:
            wait_until(lambda: [subscriber.state for subscriber in control.status().subscribers] == ["current"] * 2)
            with HttpControl(server.url) as control:
                order = parse_request("ADD", ("/index.html",), request_id="first")
                sent = control.distribute("author", order)
                done = control.distribution("author", "first", wait_seconds=PATIENCE_SECONDS)
                assert (done.state, set(done.imported)) == ("distributed", {"edge-1", "edge-2"})
                assert control.distribute("author", order).repeated
                assert {queue.subscriber for queue in control.queues("author")} == {"edge-1", "edge-2"}
                assert [queue.count for queue in control.queues("author") if not queue.name.endswith("-error")] == [
                    0,
                    0,
                ]
                assert archive.message(sent.offset).request_id == "first"
                assert {topic.role for topic in archive.topics()} >= {
                    "package",
                    "status",
                    "discovery",
                    "command",
                    "event",
                }
                assert list(control.topics()) == list(archive.topics())
                assert control.records("package")[0].summary.startswith("ADD /index.html")
                assert control.verify(reads_blobs=True).problems == ()
                assert control.blobs().items == ()
                assert control.sweep().dry_run
                assert (control.truncate("package", 1).removed, control.topics()[0].earliest_offset) == (1, 0)
                assert control.truncate("package", 1, is_dry_run=False).earliest_offset == 1
                assert control.remove_expired().removed == 0
                assert {subscriber.name for subscriber in control.retention().subscribers} == {"edge-1", "edge-2"}
                assert all(topic.is_right for topic in control.ensure_topics().topics)
                assert control.bench(BenchOrder(rounds=10, seconds=0.05)).append.rounds == 10
                with pytest.raises(UsageError, match="no subscriber of this agent imports into"):
                    control.store_snapshot(f"files:{tmp_path}", "stolen")
            assert (tmp_path / "edge-1/index.html").read_text() == "<p>hello"
            assert process.liveness().alive
            wait_until(lambda: process.readiness().ready)
        finally:
            deadline = process.deadline()
            server.stop(deadline)
            assert process.stop(deadline) == 0
        assert not server.is_serving


def test_a_subscriber_that_stops_leaves_the_others_running_and_tells_by_the_exit_code(
    tmp_path: Path, source: Path
) -> None:
    good, bad = edge(tmp_path, "good"), edge(tmp_path, "bad")
    other = AgentProcess(made(tmp_path / "other", replace(edge(tmp_path, "stranger"), target=bad.target)))
    with other:
        other.start()
        wait_until(lambda: other.readiness().agents[0].state == "running")
    home = made(tmp_path, good, bad, publisher=PublisherAgentConfig("author", str(source)))
    with AgentProcess(home) as process:
        process.start()
        stopped = wait_until(lambda: [agent for agent in process.readiness().agents if agent.state == "stopped"])
        assert [(item.name, item.reason) for item in stopped] == [("bad", "TargetOwned")]
        wait_until(lambda: [agent for agent in process.readiness().agents if agent.name == "good" and agent.ready])
        assert not process.readiness().ready
        assert process.liveness().alive
        assert process.stop(process.deadline()) == 5


def test_liveness_watches_every_worker_and_the_log_tells_what_a_stop_waits_for(
    tmp_path: Path, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    retention = RetentionConfig(consumption=ConsumptionConfig(ConsumptionPolicy.DURABLE))
    home = made(tmp_path, edge(tmp_path, "edge", editable=True), publisher=PublisherAgentConfig("author", str(source)))
    home.config = replace(home.config, retention=retention)
    expected = {
        "announcer-edge",
        "commands-edge",
        "events-author",
        "history",
        "jobs",
        "log",
        "log-past",
        "maintainer",
        "maintainer-edge",
        "retention",
        "statuses",
        "subscriber-edge",
        "topology",
    }
    with AgentProcess(home) as process:
        process.start()
        wait_until(lambda: process.readiness().ready)

        def stuck() -> set[str]:
            for item in list(process._pulse._watched.values()):
                item.stall_seconds = -1e9
            return {name.removeprefix("mailboat-") for name in process.liveness().stuck}

        wait_until(lambda: stuck() == expected)

        def scraped() -> str:
            return process.observability.render().content.decode()

        wait_until(lambda: "mailboat_retention_turns_total 1.0" in scraped())
        assert "mailboat_sweep_failures_total 0.0" in scraped()
        assert process.stop(process.deadline()) == 0
        assert process.liveness().alive
    lines = [record.getMessage() for record in caplog.records if record.name == "mailboat.agent.process"]
    assert lines[0].startswith("stopping (deadline ")
    assert "mailboat-subscriber-edge" in lines[0]
    assert lines[1].startswith("stopped cleanly, ")


def test_a_process_whose_agents_have_all_stopped_ends_by_itself(tmp_path: Path) -> None:
    first = AgentProcess(made(tmp_path / "first", edge(tmp_path, "edge")))
    second = AgentProcess(
        made(tmp_path / "second", replace(edge(tmp_path, "edge-2"), target=f"files:{tmp_path / 'edge'}"))
    )
    with first, second:
        first.start()
        wait_until(lambda: first.readiness().agents[0].state == "running")
        second.start()
        (ended,) = second.await_opened()
        assert (ended.reason in {"TargetBusy", "TargetOwned"}, second.is_over) == (True, True)
        second.wait()
        assert second.exit_code == 5
        assert second.readiness().agents[0].reason in {"TargetBusy", "TargetOwned"}
        assert not first.stopping.is_set()


def test_stopping_ends_within_the_deadline_and_is_not_ready_meanwhile(tmp_path: Path, source: Path) -> None:
    publisher = PublisherAgentConfig("author", str(source))
    home = made(tmp_path, *(edge(tmp_path, f"edge-{number}") for number in range(4)), publisher=publisher)
    clock, before = SystemClock(), set(threading.enumerate())
    with AgentProcess(home) as process:
        process.start()
        wait_until(lambda: process.readiness().ready)
        waiting = threading.Thread(target=process.wait)
        waiting.start()
        process.ask_to_stop()
        waiting.join(PATIENCE_SECONDS)
        assert not waiting.is_alive()
        assert not process.readiness().ready
        # before `stop`, which waits until the server has answered its last requests
        wait_until(lambda: [agent.state for agent in process.readiness().agents[1:]] == ["stopped"] * 4)
        deadline = Deadline(clock, PATIENCE_SECONDS)
        assert process.stop(deadline) == 0
        assert not deadline.is_over()
    left = {item.name for item in set(threading.enumerate()) - before if item.name.startswith("mailboat-")}
    assert left == set()


@pytest.mark.parametrize(
    ("agents", "problem"),
    [
        (AgentsConfig(), "names no agents"),
        (AgentsConfig((PublisherAgentConfig("a"), PublisherAgentConfig("a"))), "names a twice"),
        (
            AgentsConfig((), (SubscriberAgentConfig("b", "files:b"), SubscriberAgentConfig("b", "files:c"))),
            "names b twice",
        ),
    ],
)
def test_agents_that_cannot_be_run_are_refused_before_anything_is_opened(
    tmp_path: Path, agents: AgentsConfig, problem: str
) -> None:
    with pytest.raises(ConfigInvalidError, match=problem):
        AgentProcess(Home(tmp_path, Config(agents=agents)))
