"""The control service over a real Kafka broker: the same verbs, threads and waits."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mailboat.clock import SystemClock
from mailboat.composition.home import create_home
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import Config, PublisherAgentConfig
from mailboat.config.storage import JournalConfig, KafkaConfig
from mailboat.control.service import ControlService
from mailboat.journal.port import NewRecord, records_of
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import (
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    Message,
    ReportStart,
    SubscriberState,
    TopicRole,
)
from mailboat.model.requests import parse_request
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.messages import encode_message, readable_message

AUTHOR, EDGE = AgentName("author"), AgentName("edge")
SLING_ID = SlingId("5a1e0000-0000-4000-8000-000000000001")


@pytest.fixture
def workspace(kafka_broker: Any, tmp_path: Path) -> Iterator[Workspace]:
    kafka = KafkaConfig((kafka_broker.bootstrap_servers,))
    config = Config(journal=JournalConfig(kafka=kafka, topic_prefix=f"{tmp_path.name}-"))
    home = create_home(tmp_path / "home", config)
    with initialise(home):
        pass
    with Workspace(home, SystemClock()) as workspace:
        yield workspace


def append(workspace: Workspace, role: TopicRole, message: Message) -> None:
    headers, value = encode_message(message)
    workspace.journal.append(workspace.topic(role), [NewRecord(value, headers, b"edge")])


def announce(workspace: Workspace, last_done: int) -> None:
    states = (SubscriberState(AUTHOR, last_done, reports=ReportStart(Offset(0), is_first=True)),)
    append(workspace, TopicRole.DISCOVERY, DiscoveryMessage(SLING_ID, EDGE, states, is_editable=True, max_retries=3))


@pytest.mark.parametrize("is_running", [True, False])
def test_packages_queues_waits_and_clears_work_over_kafka(workspace: Workspace, is_running: bool) -> None:
    service = ControlService(workspace, [PublisherAgentConfig(AUTHOR)])
    try:
        if is_running:
            service.start()
        order = parse_request("DELETE", ("/old",), user_id="ann")
        first, *_, last = [service.distribute(AUTHOR, order) for _ in range(4)]
        announce(workspace, 0)
        wait_until(lambda: [subscriber.lag for subscriber in service.status().subscribers] == [3])
        wait_until(lambda: [item.offset for item in service.queue(AUTHOR, "edge").items] == [1, 2, 3])
        wait_until(lambda: service.distribution(AUTHOR, first.package_id).imported == ("edge",))
        with ThreadPoolExecutor(2) as pool:
            clearing = pool.submit(service.clear, AUTHOR, "edge", 2, PATIENCE_SECONDS) if is_running else None
            command = CommandMessage(SLING_ID, EDGE, Offset(service.clear(AUTHOR, "edge", 2).offset), AUTHOR)
            assert command.clear_up_to_offset == 2
            if clearing is not None:
                wait_until(lambda: len(list(records_of(workspace.journal, workspace.topic(TopicRole.COMMAND)))) == 2)
                for record in records_of(workspace.journal, workspace.topic(TopicRole.COMMAND)):
                    answer(workspace, readable_message(record.headers, record.value))
                assert clearing.result(PATIENCE_SECONDS).removed == 2
            waiting = (
                pool.submit(service.distribution, AUTHOR, last.package_id, PATIENCE_SECONDS) if is_running else None
            )
            announce(workspace, 3)
            if waiting is not None:
                assert waiting.result(PATIENCE_SECONDS).state == "distributed"
        wait_until(lambda: service.queue(AUTHOR, "edge").queue.state == "idle")
    finally:
        service.close()


def answer(workspace: Workspace, command: Message | None) -> None:
    assert isinstance(command, CommandMessage)
    assert command.command_id is not None
    result = CommandResult(
        command.command_id,
        SLING_ID,
        EDGE,
        CommandVerb.CLEAR,
        command.clear_up_to_offset,
        CommandState.DONE,
        AUTHOR,
        removed=2,
    )
    append(workspace, TopicRole.STATUS, result)
