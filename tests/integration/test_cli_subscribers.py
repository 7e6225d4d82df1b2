"""`subscribers forget`: who will not come back counts no more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import DiscoveryMessage, SubscriberState, TopicRole
from mailboat.wire.messages import encode_message


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("<h1>Ferries</h1>")
    return folder


def names(boat: Any) -> list[str]:
    return [subscriber["name"] for subscriber in boat.json("status")["subscribers"]]


def announce(boat: Any, state: str) -> None:
    """As one of another instance does."""
    with Workspace(Home(boat.home)) as workspace:
        message = DiscoveryMessage(
            SlingId("1" * 36), AgentName("far"), (SubscriberState(AgentName("author"), 0),), state=state
        )
        headers, value = encode_message(message)
        workspace.journal.append(
            workspace.topic(TopicRole.DISCOVERY), [NewRecord(value, headers, f"{'1' * 36}-far".encode())]
        )
        assert workspace.journal.bounds(workspace.topic(TopicRole.DISCOVERY)).next_offset > Offset(0)


def test_a_forgotten_subscriber_is_waited_for_no_more(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/")
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    shutil.copytree(tmp_path / "web", tmp_path / "kept")
    assert names(boat) == ["web"]
    assert boat.do("subscribers", "forget", "web").lines == [
        f"web is forgotten; its target files:{tmp_path / 'web'} is untouched"
    ]
    assert names(boat) == []
    assert (tmp_path / "web" / "index.html").exists()
    ran = boat.run("publish", site, "/", "--wait", "5")
    assert (ran.code, ran.lines[-1]) == (3, "no subscriber is known; nothing to wait for")


def test_a_forgotten_subscriber_may_come_back_with_its_target(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/")
    words = ("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    boat.do(*words)
    boat.do("subscribers", "forget", "web")
    boat.do("publish", site, "/")
    assert boat.do(*words).lines == ["web: 1 package imported, at offset 2"]
    assert names(boat) == ["web"]


def test_one_that_runs_or_is_not_known_is_not_forgotten(boat: Any) -> None:
    announce(boat, "current")
    ran = boat.run("subscribers", "forget", "far")
    assert (ran.code, "error: Usage: far is current: a running subscriber would" in ran.err) == (2, True)
    assert boat.run("subscribers", "forget", "nobody").code == 2
    assert names(boat) == ["far"]


def test_an_announcement_of_another_instance_is_withdrawn(boat: Any) -> None:
    announce(boat, "stopped")
    document = boat.json("subscribers", "forget", "far")
    assert document == {"name": "far", "registered": False, "target": None, "instances": ["1" * 36]}
    assert names(boat) == []
