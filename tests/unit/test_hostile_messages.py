"""Memory of a publisher under messages that any subscriber may write: bounded in bytes, and cuts are shown."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mailboat.control.journal_state import CommandAnswers
from mailboat.discovery.topology import Topology
from mailboat.errors import MessageCorruptError
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import (
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    FailureCause,
    Message,
    PackageStatus,
    StatusMessage,
    SubscriberState,
)
from mailboat.model.positions import LogIdentity
from mailboat.queues.announced import MAX_ANNOUNCEMENT_BYTES
from mailboat.queues.error_queues import FailedPackages
from mailboat.wire.messages import decode_message, encode_message

SLING = SlingId("5" * 36)
AUTHOR, EDGE = AgentName("author"), AgentName("edge")
LONG = "x" * 200_000
LOUD = FailureCause(LONG, LONG, LONG, LONG)
STATUS = StatusMessage(SLING, EDGE, AUTHOR, Offset(1), PackageStatus.REMOVED_FAILED, PackageId("p"), LOUD, 4)
ANNOUNCED = DiscoveryMessage(SLING, EDGE, (SubscriberState(AUTHOR, 4),), log_identity=LogIdentity("c", "t"))
RESULT = CommandResult("c1", SLING, EDGE, CommandVerb.CLEAR, Offset(4), CommandState.DONE, AUTHOR, 3)


def received(message: Message) -> Any:
    return decode_message(*encode_message(message))


def test_cause_texts_are_cut_and_say_so() -> None:
    cause = received(STATUS).cause
    assert (len(cause.code), len(cause.message), len(cause.path), len(cause.trace_excerpt)) == (100, 1000, 1000, 2000)
    assert cause.is_truncated
    assert received(replace(STATUS, cause=cause)).cause == cause


def test_the_end_of_a_trace_is_kept() -> None:
    assert FailureCause.bounded("X", "m", None, "first" + LONG + "last").trace_excerpt == ("x" * 1996) + "last"
    assert FailureCause.bounded("X", "m", "/a", "t") == FailureCause("X", "m", "/a", "t")


def test_texts_for_people_are_cut() -> None:
    announced = received(replace(ANNOUNCED, target=LONG, ready_reason=LONG, state=LONG, cause=LOUD))
    assert [len(item) for item in (announced.target, announced.ready_reason, announced.state)] == [1000, 1000, 256]
    assert announced.target.endswith("…")
    assert announced.cause.is_truncated
    assert received(replace(RESULT, message=LONG)).message == "x" * 999 + "…"
    assert len(received(replace(STATUS, package_id=PackageId(LONG))).package_id) == 256


@pytest.mark.parametrize(
    "message",
    [
        replace(STATUS, sub_sling_id=SlingId(LONG)),
        replace(STATUS, sub_agent_name=AgentName(LONG)),
        replace(STATUS, pub_agent_name=AgentName(LONG)),
        replace(ANNOUNCED, states=(SubscriberState(AgentName(LONG), 1),)),
        replace(ANNOUNCED, log_identity=LogIdentity(LONG, "t")),
        replace(RESULT, command_id=LONG),
        CommandMessage(SLING, EDGE, Offset(4), AUTHOR, LONG),
        CommandMessage(SLING, EDGE, Offset(4), AgentName(LONG), "c"),
    ],
)
def test_names_longer_than_any_can_be_are_refused(message: Message) -> None:
    with pytest.raises(MessageCorruptError, match="a name has 200000 characters"):
        received(message)


def test_an_honest_announcement_of_a_hundred_publishers_is_short_enough() -> None:
    cause = received(replace(STATUS, cause=FailureCause("x", "😀" * 5000, "😀" * 5000, "😀" * 5000))).cause
    states = tuple(SubscriberState(AgentName(f"{number:02}" + "p" * 254), 2**62) for number in range(100))
    _, value = encode_message(replace(ANNOUNCED, states=states, cause=cause, target="😀" * 1000))
    assert len(value) <= MAX_ANNOUNCEMENT_BYTES


def _failures(apply: Callable[[Message], None]) -> None:
    text = "y" * 2_000
    for number in range(1_500):
        cause = FailureCause("StorageFull", text, "/a", text)
        apply(received(replace(STATUS, sub_agent_name=AgentName(f"edge-{number % 40}"), cause=cause, offset=number)))


def _answers(apply: Callable[[Message], None]) -> None:
    for number in range(1_500):
        apply(received(replace(RESULT, command_id=f"c{number}", message="y" * 5_000)))


def _announcements(apply: Callable[[Message], None]) -> None:
    states = tuple(SubscriberState(AgentName(f"publisher-{number}"), number) for number in range(40))
    for number in range(300):
        apply(received(replace(ANNOUNCED, sub_agent_name=AgentName(f"edge-{number}"), states=states, cause=LOUD)))


def test_floods_cost_no_more_than_the_bounds() -> None:
    """1 MiB for each fold, whatever is sent; what was dropped is counted."""
    megabyte = 1024**2
    failed, answers, topology = FailedPackages(megabyte), CommandAnswers(megabyte), Topology(max_bytes=megabyte)
    tracemalloc.start()
    try:
        for flood, apply in (
            (_failures, failed.apply),
            (_answers, answers.apply),
            (_announcements, lambda message: topology.apply(message, 1_000)),
        ):
            before = tracemalloc.get_traced_memory()[0]
            flood(apply)
            assert tracemalloc.get_traced_memory()[0] - before < 1.1 * megabyte
    finally:
        tracemalloc.stop()
    assert failed.forgotten_count + len(failed.places(Offset(0))) == 1_500
    assert answers.dropped_count > 0
    assert topology.dropped_count + len(topology.subscribers()) == 300
