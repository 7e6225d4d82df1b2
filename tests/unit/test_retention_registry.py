"""Who matters for retention: registered while durable, else while alive."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mailboat.errors import MessageCorruptError
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import DiscoveryMessage, SubscriberState
from mailboat.model.positions import Bounds, LogIdentity
from mailboat.model.registrations import Registration, RegistryMessage
from mailboat.queues.announced import Announced
from mailboat.queues.queue_names import QueueName
from mailboat.retention.registry import Registry
from mailboat.wire.messages import decode_message, encode_message

SLING_ID = SlingId("a" * 36)
LOG = LogIdentity("cluster", "topic")
BOUNDS = Bounds(Offset(10), Offset(100))
DAY_MS = 24 * 3_600_000


def said(name: str, next_offset: int | None = 50, *, is_durable: bool = True) -> DiscoveryMessage:
    return DiscoveryMessage(
        SLING_ID,
        AgentName(name),
        (SubscriberState(AgentName("author"), -1 if next_offset is None else next_offset - 1),),
        is_durable=is_durable,
        next_offset=None if next_offset is None else Offset(next_offset),
        log_identity=LOG,
    )


@pytest.fixture
def registry() -> Registry:
    return Registry(LOG)


def announced(message: DiscoveryMessage, heard_ms: int) -> Announced:
    """As it stands in the discovery topic at that time: offsets and times both grow."""
    return Announced(QueueName(message.sub_sling_id, message.sub_agent_name), Offset(heard_ms), heard_ms, message)


def leave(name: str, heard_ms: int) -> Announced:
    return Announced(QueueName(SLING_ID, AgentName(name)), Offset(heard_ms), heard_ms, None)


def positions(registry: Registry) -> dict[str, int]:
    return {holder.name: holder.next_offset for holder in registry.holders()}


def test_a_durable_subscriber_holds_its_position_while_it_is_away(registry: Registry) -> None:
    registry.apply(announced(said("edge"), 0), BOUNDS)
    assert registry.expire(6 * DAY_MS, 7 * 86_400) == []
    assert positions(registry) == {"edge": 50}


def test_one_that_is_not_durable_counts_while_it_is_alive(registry: Registry) -> None:
    registry.apply(announced(said("edge", is_durable=False), 0), BOUNDS)
    assert registry.expire(30_000, 7 * 86_400) == []
    assert positions(registry) == {"edge": 50}
    assert registry.expire(30_001, 7 * 86_400) == []  # its end is no news
    assert positions(registry) == {}


def test_a_dead_durable_subscriber_is_dropped_after_its_time_and_told(registry: Registry) -> None:
    registry.apply(announced(said("edge"), 0), BOUNDS)
    (dropped,) = registry.expire(7 * DAY_MS + 1, 7 * 86_400)
    assert (dropped.name, dropped.next_offset, dropped.heard_ms) == ("edge", 50, 0)
    assert positions(registry) == {}


def test_without_a_time_limit_no_one_durable_is_dropped(registry: Registry) -> None:
    registry.apply(announced(said("edge"), 0), BOUNDS)
    assert registry.expire(9999 * DAY_MS, None) == []
    assert positions(registry) == {"edge": 50}


def test_the_newest_word_counts_also_when_it_goes_back(registry: Registry) -> None:
    registry.apply(announced(said("edge", 50), 0), BOUNDS)
    registry.apply(announced(said("edge", 20), 1), BOUNDS)
    assert positions(registry) == {"edge": 20}


def test_a_new_subscriber_without_a_position_keeps_what_the_log_holds(registry: Registry) -> None:
    registry.apply(announced(said("edge", None), 0), BOUNDS)
    assert positions(registry) == {"edge": 10}
    registry.apply(announced(said("edge", None), 1), Bounds(Offset(60), Offset(100)))
    assert positions(registry) == {"edge": 10}


def test_who_takes_leave_holds_nothing_any_more(registry: Registry) -> None:
    registry.apply(announced(said("edge"), 0), BOUNDS)
    registry.apply(leave("edge", 1), BOUNDS)
    registry.apply(announced(said("other"), 2), BOUNDS)
    registry.apply(leave("other", 3), BOUNDS)
    registry.apply(leave("nobody", 4), BOUNDS)
    assert positions(registry) == {}


def test_who_says_that_it_is_durable_no_more_counts_while_it_is_alive(registry: Registry) -> None:
    registry.apply(announced(said("edge"), 0), BOUNDS)
    registry.apply(announced(said("edge", is_durable=False), 1), BOUNDS)
    registry.expire(40_000, None)
    assert positions(registry) == {}


def test_who_stands_in_another_log_holds_nothing_of_this_one(registry: Registry) -> None:
    registry.apply(announced(replace(said("edge"), log_identity=LogIdentity("other", "topic")), 0), BOUNDS)
    assert positions(registry) == {}


def test_agents_of_the_original_are_understood(registry: Registry) -> None:
    registry.apply(announced(replace(said("edge"), next_offset=None, log_identity=None), 0), BOUNDS)
    assert positions(registry) == {"edge": 50}


def test_the_registry_is_carried_forward_over_a_new_agent_and_a_log_that_forgot(registry: Registry) -> None:
    registry.apply(announced(said("edge"), 5), BOUNDS)
    registry.apply(announced(said("guest", is_durable=False), 5), BOUNDS)
    fresh = Registry(LOG)
    (message,) = registry.messages(Offset(8))
    carried = decode_message(*encode_message(message))
    assert carried == RegistryMessage(LOG, Offset(8), (Registration(SLING_ID, AgentName("edge"), Offset(50), 5),))
    fresh.apply(announced(said("edge", 70), 9), BOUNDS)
    fresh.hear_registry(carried)
    assert positions(fresh) == {"edge": 70}
    newer = Registry(LOG)
    newer.hear_registry(carried)
    assert positions(newer) == {"edge": 50}
    assert newer.registrations() == [(Registration(SLING_ID, AgentName("edge"), Offset(50), 5), True)]


def test_a_registry_of_another_log_is_not_believed(registry: Registry) -> None:
    other = LogIdentity("cluster", "recreated")
    registry.hear_registry(
        RegistryMessage(other, Offset(8), (Registration(SLING_ID, AgentName("edge"), Offset(50), 5),))
    )
    assert positions(registry) == {}


def test_invented_subscribers_cost_no_more_than_the_bound_and_push_out_no_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = Registry(LOG, max_registrations=10)
    registry.apply(announced(said("edge"), 0), BOUNDS)
    for number in range(1000):
        registry.apply(announced(said(f"forged-{number}"), number), BOUNDS)
    registry.apply(announced(said("edge", 60), 1000), BOUNDS)
    assert len(registry.holders()) == 10
    assert positions(registry)["edge"] == 60
    assert registry.refused == 991
    assert caplog.text.count("packages are not kept for more") == 1


def test_a_position_beyond_the_end_is_not_believed(registry: Registry) -> None:
    registry.apply(announced(said("edge", 50), 0), BOUNDS)
    registry.apply(announced(said("edge", 10**15), 1), BOUNDS)
    registry.apply(announced(said("new", 101), 2), BOUNDS)
    assert positions(registry) == {"edge": 50, "new": 10}


def test_who_left_after_a_registry_was_made_is_not_brought_back_by_it(registry: Registry) -> None:
    registry.apply(announced(said("gone"), 5), BOUNDS)
    (made_before,) = registry.messages(Offset(6))
    registry.apply(leave("gone", 7), BOUNDS)
    registry.hear_registry(made_before)
    assert positions(registry) == {}
    registry.apply(announced(said("gone", 60), 9), BOUNDS)  # and joined again
    registry.hear_registry(made_before)
    assert positions(registry) == {"gone": 60}


def test_a_newer_registry_takes_the_place_of_an_older_one(registry: Registry) -> None:
    edge, ghost = (Registration(SLING_ID, AgentName(name), Offset(50), 5) for name in ("edge", "ghost"))
    registry.hear_registry(RegistryMessage(LOG, Offset(8), (edge, ghost)))
    registry.apply(announced(said("here"), 9), BOUNDS)
    registry.hear_registry(RegistryMessage(LOG, Offset(10), (edge,)))
    registry.hear_registry(RegistryMessage(LOG, Offset(10), (edge._replace(name=AgentName("part-two")),)))
    assert set(positions(registry)) == {"edge", "here", "part-two"}


def test_a_large_registry_is_carried_in_parts_and_is_whole_again() -> None:
    registry, fresh = Registry(LOG), Registry(LOG)
    for number in range(1200):
        registry.apply(announced(said(f"edge-{number}"), number), BOUNDS)
    parts = registry.messages(Offset(2000))
    assert max(len(encode_message(part)[1]) for part in parts) < 64 * 1024
    for part in parts:
        fresh.hear_registry(part)
    assert len(parts) == 3
    assert fresh.durable() == registry.durable()


def test_after_an_outage_no_one_is_dead_for_its_silence(registry: Registry) -> None:
    registry.apply(announced(said("guest", is_durable=False), 0), BOUNDS)
    assert registry.expire(60_000, None, are_all_heard=False) == []
    assert positions(registry) == {"guest": 50}


def test_a_registry_with_impossible_numbers_is_refused() -> None:
    bad = RegistryMessage(LOG, Offset(8), (Registration(SLING_ID, AgentName("edge"), Offset(-1), 5),))
    with pytest.raises(MessageCorruptError):
        decode_message(*encode_message(bad))
