"""Subscribers as a configuration describes them: what they announce, how they obey, how they end."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from mailboat.agent.subscriber_process import SubscriberProcess, Subscription, subscription_of
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace, prepare
from mailboat.config.document import (
    Config,
    HooksConfig,
    ReadinessConfig,
    StagingConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
    Undecodable,
)
from mailboat.errors import MessageUndecodableError
from mailboat.journal.port import Edge, NewRecord, records_of
from mailboat.maintenance import schedule
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import (
    Action,
    CommandMessage,
    CommandResult,
    CommandState,
    DiscoveryMessage,
    Message,
    PackageMessage,
    PackageStatus,
    StatusMessage,
    TopicRole,
)
from mailboat.model.paths import NodePath
from mailboat.model.positions import Position
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.subscriber import Subscriber, Until
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.messages import decode_message, encode_message
from support.engines import page_source

EDGE, GOLDEN, AUTHOR = AgentName("edge"), AgentName("golden"), AgentName("author")


class Agents:
    """A home, and the subscribers that run in this process."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.workspace = Workspace(home)
        self._threads: list[tuple[SubscriberProcess, threading.Thread]] = []

    def start(self, config: SubscriberAgentConfig) -> SubscriberProcess:
        process = SubscriberProcess(self.workspace, subscription_of(self.home, config), lambda _: None)
        process.claim()
        thread = threading.Thread(target=process.run, args=(Until.FOREVER,))
        self._threads.append((process, thread))
        thread.start()
        return process

    def stop(self) -> None:
        for process, _ in self._threads:
            process.stop()
        for process, thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
            process.close()
        self._threads.clear()

    def publish(self, *paths: str, publisher: str | None = None) -> int:
        request = add_request(map(NodePath, paths))
        return self.workspace.publisher(publisher).publish(request, page_source(*paths)).offset

    def poison(self) -> int:
        message = PackageMessage(
            self.home.sling_id, PackageId("poison"), Action.ADD, "tree", AUTHOR, paths=(NodePath("/bad"),)
        )
        self.send(TopicRole.PACKAGE, message._replace(payload_ref=f"sha256:{'22' * 32}:9", package_length_bytes=9))
        return self.workspace.journal.bounds(self.workspace.package_topic).next_offset - 1

    def send(self, role: TopicRole, message: Message) -> None:
        headers, value = encode_message(message)
        self.workspace.journal.append(self.workspace.topic(role), [NewRecord(value, headers)])

    def messages(self, role: TopicRole) -> Sequence[Message]:
        records = records_of(self.workspace.journal, self.workspace.topic(role), Edge.EARLIEST)
        return [decode_message(record.headers, record.value) for record in records]

    def announcements(self, name: AgentName = EDGE) -> Sequence[DiscoveryMessage]:
        found = self.messages(TopicRole.DISCOVERY)
        return [item for item in found if isinstance(item, DiscoveryMessage) and item.sub_agent_name == name]

    def says(self, is_so: Callable[[DiscoveryMessage], bool]) -> bool:
        """Whether its last announcement, if there is one yet, is so."""
        return any(map(is_so, self.announcements()[-1:]))

    def results(self) -> Sequence[CommandResult]:
        return [message for message in self.messages(TopicRole.STATUS) if isinstance(message, CommandResult)]

    def statuses(self) -> dict[tuple[str, int], PackageStatus]:
        found = [message for message in self.messages(TopicRole.STATUS) if isinstance(message, StatusMessage)]
        told = {(str(item.sub_agent_name), int(item.offset)): item.status for item in found}
        assert len(told) == len(found), "a package was confirmed twice"
        return told


def agents_with(tmp_path: Path, config: SubscriberConfig) -> Agents:
    home = Home(tmp_path / "home", Config(subscriber=config))
    prepare(home)
    return Agents(home)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = agents_with(tmp_path, SubscriberConfig(announce_seconds=3600.0, first_pause_seconds=3600.0))
    yield made
    made.stop()


def edge(**values: object) -> SubscriberAgentConfig:
    plain = SubscriberAgentConfig(name="edge", target="sqlite:edge.db", editable=True)
    return replace(plain, **values)  # type: ignore[arg-type]  # checked by the record


def is_current(process: SubscriberProcess) -> bool:
    return process.statistics().phase is SubscriberPhase.CURRENT


# ------------------------------------------------------------------------------------------------------- announcements


def test_an_announcement_says_all_that_a_control_plane_needs(agents: Agents) -> None:
    agents.publish("/page")
    agents.start(edge(durable=True))
    wait_until(lambda: agents.says(lambda one: (one.state, one.next_offset) == ("current", 1)))
    said = agents.announcements()[-1]
    assert (said.is_editable, said.is_durable, said.max_retries, said.given_up) == (True, True, 10, 0)
    assert (said.is_ready, said.ready_reason) == (True, "caught-up")
    assert said.log_identity == agents.workspace.journal.identity(agents.workspace.package_topic)
    assert said.target == f"sqlite:{agents.home.path / 'edge.db'}"
    assert {(state.pub_agent_name, state.offset, state.retries) for state in said.states} == {(AUTHOR, 0, 0)}


def test_a_new_state_and_an_emptied_queue_are_announced_at_once_and_progress_is_not(agents: Agents) -> None:
    process = agents.start(edge())
    wait_until(lambda: is_current(process) and agents.says(lambda one: one.state == "current"))
    agents.publish("/page")
    wait_until(lambda: agents.says(lambda one: one.next_offset == 1))
    agents.poison()
    wait_until(lambda: agents.says(lambda one: one.state == "retrying"))
    said = agents.announcements()[-1]
    assert (said.states[0].retries, said.cause and said.cause.code) == (1, "BlobMissing")
    assert len(agents.announcements()) < 12


def test_a_backlog_of_many_commits_costs_few_announcements(tmp_path: Path) -> None:
    agents = agents_with(tmp_path, SubscriberConfig(announce_seconds=3600.0, max_batch_records=1))
    for number in range(60):
        agents.publish(f"/page-{number}")
    process = agents.start(edge())
    wait_until(lambda: is_current(process))
    agents.stop()
    assert process.statistics().commits >= 60
    assert len(agents.announcements()) < 12


def test_the_last_announcement_says_that_it_stopped(agents: Agents) -> None:
    process = agents.start(edge())
    wait_until(lambda: is_current(process))
    agents.stop()
    said = agents.announcements()[-1]
    assert (said.state, said.is_ready, said.ready_reason) == ("stopped", False, "stopped")
    assert (process.statistics().is_ready, process.statistics().ready_reason) == (False, "stopped")


def test_one_that_follows_all_announces_itself_to_those_it_hears_of(agents: Agents) -> None:
    agents.publish("/page-0", publisher="first")
    process = agents.start(edge())
    wait_until(lambda: is_current(process))
    agents.publish("/page-1", publisher="second")
    both = {"first", "second"}
    wait_until(lambda: agents.says(lambda said: both <= {state.pub_agent_name for state in said.states}))


def test_several_run_in_one_process_and_a_staged_one_follows_the_golden_one(agents: Agents) -> None:
    golden = SubscriberAgentConfig(name="golden", target="sqlite:golden.db", editable=True)
    staged = edge(staging=StagingConfig("golden"))
    agents.start(staged)
    offset = agents.publish("/page")
    wait_until(lambda: agents.says(lambda one: one.state == "waiting-for golden"))
    agents.start(golden)
    wait_until(lambda: len(agents.statuses()) == 2)
    assert agents.statuses() == {
        ("golden", offset): PackageStatus.IMPORTED,
        ("edge", offset): PackageStatus.IMPORTED,
    }


def test_a_golden_one_that_died_before_it_told_tells_at_its_start(agents: Agents) -> None:
    """Nothing more is published, so only the start can send what is pending."""
    golden = SubscriberAgentConfig(name="golden", target="sqlite:golden.db", editable=True)
    offset = agents.publish("/page")
    plain = SubscriberProcess(agents.workspace, subscription_of(agents.home, golden), lambda _: None)
    with closing(plain):
        plain.claim()
        target = plain._target  # what a crash leaves is made by hand
        with target.batch() as batch:
            batch.add_status(
                StatusMessage(agents.home.sling_id, GOLDEN, AUTHOR, Offset(offset), PackageStatus.IMPORTED)
            )
            batch.commit(position_at(agents, offset + 1))
    process = agents.start(edge(staging=StagingConfig("golden")))
    wait_until(lambda: process.statistics().phase is SubscriberPhase.WAITING_FOR)
    agents.start(golden)
    wait_until(lambda: is_current(process))


def has_begun(process: SubscriberProcess) -> bool:
    return process.statistics().imported > 0 or is_current(process)


def position_at(agents: Agents, next_offset: int) -> Position:
    return Position(agents.workspace.journal.identity(agents.workspace.package_topic), Offset(next_offset))


# ------------------------------------------------------------------------------------------------------------ commands


def test_a_clear_frees_a_subscriber_that_is_stuck(agents: Agents) -> None:
    process = agents.start(edge())
    offset = agents.poison()
    agents.publish("/behind")
    wait_until(lambda: process.statistics().phase is SubscriberPhase.RETRYING)
    agents.send(TopicRole.COMMAND, CommandMessage(agents.home.sling_id, EDGE, Offset(offset), AUTHOR, "clear-1"))
    wait_until(lambda: len(agents.results()) == 1)
    wait_until(lambda: len(agents.statuses()) == 2)
    assert agents.statuses() == {("edge", 0): PackageStatus.REMOVED, ("edge", 1): PackageStatus.IMPORTED}
    assert [(result.state, result.removed) for result in agents.results()] == [(CommandState.DONE, 1)]


# --------------------------------------------------------------------------------------------------------------- hooks


def test_an_invalidation_runs_the_command_that_is_configured(agents: Agents, tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    command = (sys.executable, "-S", "-c", code)
    hooks = HooksConfig(
        before=(*command, str(tmp_path / "before")),
        after=(*command, str(tmp_path / "after")),
        invalidate=(*command, str(tmp_path / "invalidate")),
    )
    process = agents.start(edge(hooks=hooks))
    agents.publish("/page")
    agents.workspace.publisher().publish(DistributionRequest(Action.INVALIDATE, (NodePath("/page"),)), None)
    wait_until(lambda: process.statistics().imported == 2 and is_current(process))
    told = {name: (tmp_path / name).read_text().splitlines() for name in ("before", "after", "invalidate")}
    actions = {name: [json.loads(line)["action"] for line in lines] for name, lines in told.items()}
    assert actions == {"before": ["ADD"], "after": ["ADD"], "invalidate": ["INVALIDATE"]}


# ------------------------------------------------------------------------------------------------------------ stopping


def test_a_hook_that_hangs_does_not_hold_up_the_end_and_nothing_is_counted(tmp_path: Path) -> None:
    agents = agents_with(tmp_path, SubscriberConfig(shutdown_seconds=2.0))
    hang = (sys.executable, "-S", "-c", f"open({str(tmp_path / 'begun')!r}, 'w'); import time; time.sleep(600)")
    process = agents.start(edge(hooks=HooksConfig(before=hang, timeout_seconds=600.0)))
    agents.publish("/page")
    wait_until((tmp_path / "begun").exists)
    began = time.monotonic()
    agents.stop()
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert (process.statistics().attempts, process.statistics().next_offset) == (0, 0)


def test_a_stop_under_load_leaves_what_the_next_run_just_goes_on_from(tmp_path: Path) -> None:
    agents = agents_with(tmp_path, SubscriberConfig(max_batch_records=5))
    for number in range(120):
        agents.publish(f"/page-{number}")
    for _ in range(4):
        process = agents.start(edge())
        wait_until(partial(has_begun, process))
        agents.stop()
    process = agents.start(edge())
    wait_until(lambda: is_current(process))
    agents.stop()
    assert agents.statuses() == {("edge", offset): PackageStatus.IMPORTED for offset in range(120)}


# ------------------------------------------------------------------------------------------------------- configuration


def test_what_is_no_message_stops_a_subscriber_that_is_told_so(tmp_path: Path) -> None:
    agents = agents_with(tmp_path, SubscriberConfig(undecodable=Undecodable.STOP))
    agents.workspace.journal.append(agents.workspace.package_topic, [NewRecord(b"\xff")])
    process = SubscriberProcess(agents.workspace, subscription_of(agents.home, edge()), lambda _: None)
    with closing(process), pytest.raises(MessageUndecodableError):
        process.run(Until.CAUGHT_UP)
    assert agents.announcements()[-1].cause is not None


def test_readiness_follows_the_policy_of_the_configuration(tmp_path: Path) -> None:
    policy = ReadinessConfig(force_seconds=0.0)
    agents = agents_with(tmp_path, SubscriberConfig(readiness=policy, first_pause_seconds=3600.0))
    agents.poison()
    process = agents.start(edge())
    wait_until(lambda: process.statistics().phase is SubscriberPhase.RETRYING)
    assert (process.statistics().is_ready, process.statistics().ready_reason) == (True, "forced")
    agents.stop()


def test_a_subscription_needs_nothing_but_a_name_and_a_target(agents: Agents, tmp_path: Path) -> None:
    seen: list[SubscriberStatistics] = []
    process = SubscriberProcess(agents.workspace, Subscription(EDGE, f"sqlite:{tmp_path / 'x.db'}"), seen.append)
    with closing(process):
        agents.publish("/page")
        assert process.run(Until.CAUGHT_UP).imported == 1
    assert seen


def test_what_is_announced_is_what_a_killed_subscriber_goes_on_from(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention removes what is below it, so it must not run ahead by messages that were only skipped."""
    was_looked_at, store = threading.Event(), Subscriber._commit_skipped
    monkeypatch.setattr(Subscriber, "_commit_skipped", lambda run: store(run) if was_looked_at.is_set() else None)
    offset = agents.publish("/a")
    process = agents.start(SubscriberAgentConfig("edge", "sqlite:edge.db", follow=("author",), durable=True))
    wait_until(lambda: process.statistics().next_offset == offset + 1)
    last = agents.publish("/b", publisher="other") + 1
    wait_until(lambda: process.statistics().next_offset == last)
    announced, stored = process._announcement().next_offset, process._target.ledger.position()
    assert stored is not None
    assert announced is not None
    assert announced <= stored.next_offset
    assert announced < last
    was_looked_at.set()
    wait_until(lambda: agents.says(lambda one: one.next_offset == last))


def test_a_process_that_only_subscribes_does_not_sweep_the_shared_store(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(schedule, "maintain", lambda _, sweep, _figures: asked.append(sweep))
    agents.start(edge())
    wait_until(lambda: asked)
    assert asked == [None]
