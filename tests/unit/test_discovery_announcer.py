"""Announcements: at the start, every ten seconds, at once with news, a last time at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from mailboat.config.topic_settings import TopicSettings
from mailboat.discovery.announcer import announcer, former_states, states_for
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import Edge, ReadLimits
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.messages import DiscoveryMessage, ReportStart, SubscriberState
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import wait_until
from mailboat.wire.messages import decode_message

DISCOVERY = TopicName("discovery")
FIRST, LATER = ReportStart(Offset(0), is_first=True), ReportStart(Offset(4))


class Agent:
    """Announces a number that grows."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal(self.clock)
        self.journal.ensure_topic(DISCOVERY, TopicSettings())
        self.made = 0
        self.announcer = announcer(self.journal, DISCOVERY, self.compose, self.clock)

    def compose(self) -> DiscoveryMessage:
        self.made += 1
        return DiscoveryMessage(SlingId("s" * 36), AgentName("edge"), (), announced_ms=self.made)

    def heard(self) -> list[int | None]:
        reader = self.journal.reader(DISCOVERY, Edge.EARLIEST)
        records = reader.read(ReadLimits(), 0.0).records
        assert {record.key for record in records} <= {b"s" * 36 + b"-edge"}
        messages = [decode_message(record.headers, record.value) for record in records]
        return [message.announced_ms for message in messages if isinstance(message, DiscoveryMessage)]


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made
    made.announcer.stop(10.0)


def test_it_announces_at_the_start_and_then_every_period(agent: Agent) -> None:
    agent.announcer.start()
    wait_until(lambda: agent.heard() == [1])
    for expected in (2, 3):
        before = agent.clock.monotonic()

        def waited_for(expected: int = expected) -> bool:
            agent.clock.advance(0.1)
            return len(agent.heard()) >= expected

        wait_until(waited_for)
        assert agent.clock.monotonic() - before > 9.5
    assert agent.heard() == [1, 2, 3]


def test_news_are_announced_at_once_and_those_close_together_as_one(agent: Agent) -> None:
    agent.announcer.start()
    wait_until(lambda: len(agent.heard()) == 1)
    for _ in range(50):
        agent.announcer.wake()
    agent.clock.await_waiters()
    agent.clock.advance(0.2)
    wait_until(lambda: len(agent.heard()) == 2)


def test_it_announces_a_last_time_when_it_is_stopped(agent: Agent) -> None:
    agent.announcer.start()
    wait_until(lambda: len(agent.heard()) == 1)
    agent.announcer.stop(10.0)
    assert len(agent.heard()) == 2
    agent.announcer.stop(10.0)
    assert len(agent.heard()) == 2


def test_a_journal_that_fails_is_counted_and_announced_to_again(agent: Agent) -> None:
    agent.journal.delete_topic(DISCOVERY)
    agent.announcer.start()
    wait_until(lambda: agent.announcer.failures == 1)
    agent.journal.ensure_topic(DISCOVERY, TopicSettings())
    agent.clock.await_waiters()
    agent.clock.advance(0.2)
    agent.announcer.wake()
    wait_until(lambda: len(agent.heard()) == 1)


def test_stop_before_start_is_a_noop(agent: Agent) -> None:
    agent.announcer.stop(10.0)
    assert agent.heard() == []


def test_the_states_tell_the_last_offset_done_for_each_publisher() -> None:
    states = states_for([AgentName("b"), AgentName("a")], 5, 2, None, {None: FIRST, AgentName("b"): LATER})
    assert [(state.pub_agent_name, state.offset, state.retries) for state in states] == [("a", 4, 2), ("b", 4, 2)]
    assert [state.reports for state in states] == [FIRST, LATER]
    assert [item.offset for item in states_for([AgentName("a")], None, 0, None, {})] == [-1]


def test_failures_are_told_of_the_publisher_whose_package_failed() -> None:
    states = states_for([AgentName("one"), AgentName("two")], 5, 3, AgentName("one"), {})
    assert [(state.pub_agent_name, state.retries) for state in states] == [("one", 3), ("two", 0)]


def test_publishers_that_are_not_followed_any_more_are_announced_and_bounded() -> None:
    ended = ReportStart(Offset(0), is_first=True, until=Offset(9))
    states = former_states(
        {AgentName("a"): ended, None: ReportStart(Offset(3), until=Offset(3)), AgentName("b"): FIRST}
    )
    assert [(state.pub_agent_name, state.offset) for state in states] == [("a", 8), ("", 2)]
    many = former_states({AgentName(str(n)): replace(ended, until=Offset(n + 1)) for n in range(200)})
    assert (len(many), many[0].pub_agent_name) == (100, "199")
    assert many[-1] == SubscriberState(AgentName(""), 100, reports=ReportStart(Offset(101), until=Offset(101)))
