"""Who is there, folded from announcements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.discovery.topology import Topology
from mailboat.model.identifiers import AgentName, Offset, SlingId, natural_key
from mailboat.model.messages import AfterCall, DiscoveryMessage, FailureCause, HookCalls, SubscriberState

SLING = SlingId("s" * 36)


def announcement(name: str, offset: int = 0) -> DiscoveryMessage:
    return DiscoveryMessage(SLING, AgentName(name), (SubscriberState(AgentName("author"), offset),))


def test_the_newest_announcement_counts_also_when_its_offset_is_lower() -> None:
    topology = Topology()
    topology.apply(announcement("edge", 9), 1000)
    topology.apply(announcement("edge", 4), 2000)
    (known,) = topology.subscribers()
    assert (known.announcement.states[0].offset, known.heard_ms) == (4, 2000)


def test_restarted_subscriber_has_no_rate_before_it_imports() -> None:
    topology = Topology()
    topology.apply(announcement("edge", -1), 1000)  # it starts, and has not read its position
    topology.apply(announcement("edge", 1_000_000), 1200)
    topology.apply(announcement("edge", 1_000_000), 11_200)
    assert [known.rate_per_second for known in topology.subscribers()] == [None]
    topology.apply(announcement("edge", 1_000_200), 21_200)
    assert [known.rate_per_second for known in topology.subscribers()] == [pytest.approx(10)]


def test_the_silent_are_alive_for_thirty_seconds_and_removed_after_an_hour() -> None:
    topology = Topology()
    topology.apply(announcement("quiet"), 1000)
    topology.apply(announcement("loud"), 20_000)
    assert [subscriber.is_alive(31_000) for subscriber in topology.subscribers()] == [True, True]
    assert [subscriber.is_alive(31_001) for subscriber in topology.subscribers()] == [True, False]
    assert not topology.remove_expired(3_601_000)
    assert [item.queue_name.agent_name for item in topology.remove_expired(3_601_001)] == ["quiet"]
    assert [subscriber.queue_name.agent_name for subscriber in topology.subscribers()] == ["loud"]


@given(st.lists(st.integers(0, 50), max_size=200))
def test_however_many_announce_the_number_known_is_bounded_and_the_last_ones_are_known(names: list[int]) -> None:
    topology = Topology(max_subscribers=10)
    for time_ms, name in enumerate(names):
        topology.apply(announcement(f"edge-{name}"), time_ms)
    known = [subscriber.queue_name.agent_name for subscriber in topology.subscribers()]
    assert len(known) <= 10
    assert known == sorted(known, key=natural_key)
    assert {f"edge-{name}" for name in names[-10:]} <= set(known)


@pytest.mark.parametrize(
    "details",
    [
        {"states": (SubscriberState(AgentName("author"), 1),) * 1_000},
        {"former": (SubscriberState(AgentName("author"), 1),) * 1_000},
        {"after_calls": HookCalls(failed=(AfterCall(Offset(1), 1, FailureCause("x", "y" * 20_000)),) * 20)},
    ],
    ids=["followed publishers", "former publishers", "failed calls"],
)
def test_the_bytes_of_all_that_is_announced_are_bounded(details: dict[str, Any]) -> None:
    topology = Topology(max_bytes=2_000_000)
    for number in range(20):
        topology.apply(replace(announcement(f"edge-{number}"), **details), number)
    assert 1 <= len(topology.subscribers()) <= 5


def test_subscribers_are_listed_by_the_numbers_in_their_names() -> None:
    topology = Topology()
    for name in ("edge-10", "edge-2", "edge", "edge-02", "a"):
        topology.apply(announcement(name), 0)
    assert [subscriber.queue_name.agent_name for subscriber in topology.subscribers()] == [
        "a",
        "edge",
        "edge-02",
        "edge-2",
        "edge-10",
    ]
