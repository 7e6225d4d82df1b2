"""SIGTERM and SIGKILL in the midst of work, in real processes: exit codes, and what the next run finds."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from mailboat.composition.home import Home, create_home
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import (
    AgentsConfig,
    Config,
    HooksConfig,
    HttpConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
)
from mailboat.content.locations import opened_ledger
from mailboat.journal.port import Edge, records_of
from mailboat.model.messages import DiscoveryMessage, Message, PackageStatus, StatusMessage, TopicRole
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.messages import decode_message
from support.engines import page_source
from support.forked_programs import ForkedProgram, start_mailboat

PACKAGES = 200
GATE = """
[ -e "$0/open" ] && exit
read count < "$0/count"
echo $((count + 1)) > "$0/count"
until [ "$count" -lt 20 ] || [ -e "$0/open" ]; do sleep 0.01; done
"""
"""A hook that lets twenty packages of a process pass until the gate is open: its end comes in the midst, if late."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with a backlog, whose configuration runs one editable subscriber in many small commits."""
    hooks = HooksConfig(before=("sh", "-c", GATE, str(tmp_path)))
    edge = SubscriberAgentConfig(name="edge", target="files:edge", editable=True, hooks=hooks)
    config = Config(
        subscriber=SubscriberConfig(max_batch_records=2, shutdown_seconds=60.0),
        agents=AgentsConfig(subscribers=(edge,)),
        http=HttpConfig(port=0),
    )
    made = create_home(tmp_path / "home", config)
    with initialise(made) as workspace:
        publisher = workspace.publisher()
        for number in range(PACKAGES):
            path = f"/page-{number}"
            publisher.publish(add_request([NodePath(path)]), page_source(path))
    return made


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(home: Home, running: ExitStack) -> ForkedProgram:
    (home.path.parent / "count").write_text("0\n")
    words = ["--home", home.path, "agent", "run", "--config", home.path / "mailboat.yaml", "-o", "json"]
    process = start_mailboat(words, errors_of(home))
    running.callback(process.communicate)
    running.callback(process.kill)
    return process


def errors_of(home: Home) -> Path:
    return home.path.parent / "errors"


def open_gate(home: Home) -> None:
    (home.path.parent / "open").touch()


def position(home: Home) -> int:
    target = home.path / "edge"
    if not (target / ".mailboat" / "state.db").is_file():
        return 0
    with opened_ledger(f"files:{target}") as ledger:
        stored = ledger.position()
        return 0 if stored is None else stored.next_offset


def has_passed(home: Home, reached: int) -> bool:
    return position(home) > reached


def messages(home: Home, role: TopicRole) -> list[Message]:
    with Workspace(home) as workspace:
        records = records_of(workspace.journal, workspace.topic(role), Edge.EARLIEST)
        return [decode_message(record.headers, record.value) for record in records]


def statuses(home: Home) -> Mapping[int, PackageStatus]:
    found = [message for message in messages(home, TopicRole.STATUS) if isinstance(message, StatusMessage)]
    told = {int(item.offset): item.status for item in found}
    assert len(told) == len(found), "a package was confirmed twice"
    return told


def test_sigterm_under_load_ends_in_time_with_exit_code_0_and_the_next_run_goes_on(
    home: Home, running: ExitStack
) -> None:
    process = start(home, running)
    wait_until(lambda: position(home) > 0, "the first commit")
    process.send_signal(signal.SIGTERM)
    open_gate(home)
    assert process.wait(PATIENCE_SECONDS) == 0, errors_of(home).read_text()
    reached = position(home)
    assert 0 < reached < PACKAGES, "it was to be stopped in the midst"
    assert statuses(home) == dict.fromkeys(range(reached), PackageStatus.IMPORTED)
    last = messages(home, TopicRole.DISCOVERY)[-1]
    assert isinstance(last, DiscoveryMessage)
    assert (last.state, last.next_offset) == ("stopped", reached)
    start(home, running)
    wait_until(lambda: len(statuses(home)) == PACKAGES, "the last confirmation")
    assert set(statuses(home).values()) == {PackageStatus.IMPORTED}


def test_sigkill_under_load_loses_no_status_and_tells_none_twice(home: Home, running: ExitStack) -> None:
    reached = 0
    for _ in range(3):
        process = start(home, running)
        wait_until(partial(has_passed, home, reached), "a commit")
        process.kill()
        process.wait()
        reached = position(home)
        assert set(statuses(home)) <= set(range(reached))
    open_gate(home)
    start(home, running)
    wait_until(lambda: len(statuses(home)) == PACKAGES, "the last confirmation")
    assert set(statuses(home).values()) == {PackageStatus.IMPORTED}
