"""Distributed events as messages of chat systems, and the filters of webhooks."""

from __future__ import annotations

import json

import pytest
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import DistributedEvent, Missed, MissedReason
from mailboat.model.path_patterns import parse_subtree
from mailboat.model.paths import NodePath
from mailboat.telemetry.webhook import EventFilter, encode_chat_message

MISSED = Missed("5a1e-edge-3", MissedReason.FAILED)


def event(*paths: str, missed: tuple[Missed, ...] = (), deep: tuple[str, ...] = ()) -> DistributedEvent:
    nodes, deep_nodes = tuple(map(NodePath, paths)), tuple(map(NodePath, deep))
    return DistributedEvent(AgentName("author"), PackageId("p1"), Offset(41), nodes, deep_nodes, missed=missed)


def text_of(sent: DistributedEvent) -> str:
    document = json.loads(encode_chat_message(sent))
    assert list(document) == ["text"]
    text: str = document["text"]
    return text


def test_message_names_publisher_paths_and_offset() -> None:
    text = text_of(event(*(f"/news/{n}" for n in range(7))))
    assert text.startswith("author: `/news/0`, `/news/1`")
    assert text.endswith("and 2 more (offset 41) is distributed to all subscribers")


def test_message_of_a_missed_package_names_subscriber_and_reason() -> None:
    assert (
        text_of(event("/a", missed=(MISSED,)))
        == ":warning: author: `/a` (offset 41) is missing at 5a1e-edge-3 (failed)"
    )
    assert text_of(event("/a", missed=(MISSED,) * 9)).endswith("and 4 more")


@pytest.mark.parametrize(
    "hostile", ["/<!channel>", "/@all", "/`x`", "/<https://evil.example|ok>", "/a\nb", "/" + "x" * 5000]
)
def test_hostile_paths_are_no_markup(hostile: str) -> None:
    text = text_of(event(hostile))
    assert "<" not in text
    assert "@all" not in text
    assert "\n" not in text
    assert text.count("`") == 2
    assert len(text) < 500


@pytest.mark.parametrize(
    ("paths", "deep", "is_posted"),
    [
        (("/news/1",), (), True),
        (("/en",), (), False),
        (("/",), ("/",), True),
        (("/",), (), False),
        (("/x", "/news"), (), True),
    ],
)
def test_filter_by_paths(
    paths: tuple[str, ...], deep: tuple[str, ...], is_posted: bool
) -> None:  # a parameter of the table
    chosen = EventFilter(patterns=(parse_subtree("/news/**"),))
    assert chosen.accepts(event(*paths, deep=deep)) is is_posted


def test_filter_by_outcome() -> None:
    chosen = EventFilter(is_missed_only=True)
    assert not chosen.accepts(event("/a"))
    assert chosen.accepts(event("/a", missed=(MISSED,)))
