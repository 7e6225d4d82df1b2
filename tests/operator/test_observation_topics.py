"""A Topic is said to be as asked for when its brokers tell so, and not as soon as they took the request."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from mailboat_operator.api.decoding import decode
from mailboat_operator.brokers import ClusterFound
from mailboat_operator.connections import Connections
from mailboat_operator.observation import topic as observation
from mailboat_operator.observation.topic import look_at_topic
from mailboat_operator.plan.actions import Plan
from mailboat_operator.plan.topic import TopicFound
from mailboat_operator.systems import Systems

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def stored(kind: str, name: str, spec: dict[str, Any]) -> Any:
    head = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1}
    return decode({"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": head, "spec": spec})


JOURNAL = stored("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}})
TOPIC = stored("Topic", "orders", {"journalRef": {"name": "main"}, "topicName": "orders", "partitions": 3})
SMALL = TopicFound("id-1", 1, 1, {})


class LateBrokers:
    """Take every request, and tell of what they did after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks, self.was_asked = looks, False

    async def cluster(self) -> ClusterFound:
        return ClusterFound("one", 3)

    async def topics(self, names: Collection[str]) -> Mapping[str, TopicFound]:
        self.looks -= self.was_asked
        return dict.fromkeys(names, SMALL if self.looks >= 0 else replace(SMALL, partitions=3))

    async def act(self, actions: Mapping[str, object]) -> Mapping[str, None]:
        self.was_asked = True
        return dict.fromkeys(actions)


class Around:
    """What a look at a Topic needs to see."""

    now = NOW

    def __init__(self, brokers: LateBrokers) -> None:
        connections = Connections(nullcontext, lambda *_: brokers)  # type: ignore[arg-type,return-value]  # a stand-in
        self.systems = Systems(connections)

    async def journal(self, *_: str) -> Any:
        return JOURNAL


def plan_with(brokers: LateBrokers) -> Plan:
    return asyncio.run(look_at_topic(Around(brokers), TOPIC))  # type: ignore[arg-type]  # sees as `Sight` does


def told(plan: Plan) -> tuple[Any, str]:
    """The partitions and the reason that the status says."""
    assert plan.status is not None
    return plan.status.get("partitions"), plan.status["conditions"][0]["reason"]


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_topic_that_grows_is_waited_for_until_the_brokers_tell_of_all_its_partitions(looks: int) -> None:
    plan = plan_with(LateBrokers(looks))
    assert (told(plan), plan.again_seconds) == ((3, "AsAskedFor"), None)


def test_a_topic_whose_partitions_nobody_tells_of_is_looked_at_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "_PAUSES", (0.0, 0.0))
    plan = plan_with(LateBrokers(9))
    assert (told(plan), plan.again_seconds) == ((None, "TopicMade"), 2.0)
