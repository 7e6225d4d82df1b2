"""What a plan asks of the brokers for a Topic; the outcome is part of the status."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mailboat_operator.broker_connections import Connection
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.topic.observe import connect_for
from mailboat_operator.kinds.topic.plan import TopicObservation, plan_made, plan_topic, wanted_topic
from mailboat_operator.kinds.topic.spec import Topic
from mailboat_operator.plan.actions import Plan, TopicAction, TopicFound, TopicWanted
from mailboat_operator.plan.findings import UPSTREAM_ERRORS

# 6.35 seconds in all, far below the time limit of a reconciliation
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


async def act_on_brokers(reader: ClusterReader, topic: Topic, seen: TopicObservation, plan: Plan) -> Plan:
    """Create, extend, configure or delete the topic; the plan for the rest, with what came of it."""
    actions = [action for action in plan.actions if isinstance(action, TopicAction)]
    if seen.journal is None or not actions:
        return plan
    wanted = wanted_topic(topic, seen.journal)
    try:
        brokers = await connect_for(reader, topic, seen.journal)
        for action in actions:
            await brokers.act(action)
        if topic.metadata.is_deleted:
            return plan
        found = await _described(brokers, wanted)
    except UPSTREAM_ERRORS as error:
        return plan_topic(topic, replace(seen, error=error))
    made = plan_made(topic, wanted, found, seen.now)
    return replace(plan, status=made.status, again_seconds=made.again_seconds)


async def _described(brokers: Connection, wanted: TopicWanted) -> TopicFound | None:
    """The topic after a change; brokers may need a moment to describe it with all its partitions."""
    for pause in _PAUSES:
        found = await brokers.topic(wanted.name)
        if found is not None and found.partitions >= wanted.partitions:
            return found
        await brokers.pause(pause)
    return None
