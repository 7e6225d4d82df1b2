"""A Topic: its Journal, its competitors, and the topic on the brokers, which is made and changed here."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mailboat.errors import SecretMissingError

from mailboat_operator.broker_connections import BrokerConnection
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.journal.controller import connect
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.topic.plan import (
    CompetingTopics,
    TopicObservation,
    needs_brokers,
    plan_made,
    topic_name,
    wanted_topic,
)
from mailboat_operator.kinds.topic.spec import Topic
from mailboat_operator.plan.actions import Plan, TopicAction, TopicFound, TopicWanted
from mailboat_operator.plan.findings import UPSTREAM_ERRORS

# 6.35 seconds in all, far below the time limit of a reconciliation
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


async def observe_topic(reader: ClusterReader, topic: Topic) -> TopicObservation:
    """Read what a plan for it needs; the brokers are asked only if the plan depends on them."""
    journal = await reader.journal(topic.metadata.namespace, topic.spec.journal_ref.name)
    rivals = CompetingTopics() if journal is None else reader.systems.claims.rivals(topic, journal)
    seen = TopicObservation(reader.now, journal, rivals)
    if journal is None or not needs_brokers(topic, seen):
        return seen
    try:
        brokers = await connect_for(reader, topic, journal)
        found = await brokers.topic(topic_name(topic, journal))
        return replace(seen, found=found, cluster_id=brokers.cluster_id)
    except UPSTREAM_ERRORS as error:
        return replace(seen, error=error)


async def act_on_brokers(reader: ClusterReader, topic: Topic, seen: TopicObservation, plan: Plan) -> Plan:
    """Create, extend, configure or delete the topic; the plan for the rest, with the result.

    Raises: `UPSTREAM_ERRORS`.
    """
    actions = [action for action in plan.actions if isinstance(action, TopicAction)]
    if seen.journal is None or not actions:
        return plan
    brokers = await connect_for(reader, topic, seen.journal)
    for action in actions:
        await brokers.act(action)
    # nothing to describe: the plan goes on with the finalizer, and an object that goes needs no status
    if topic.metadata.is_deleted:
        return plan
    wanted = wanted_topic(topic, seen.journal)
    made = plan_made(topic, wanted, await _described(brokers, wanted), seen.now)
    return replace(plan, status=made.status, again_seconds=made.again_seconds)


async def _described(brokers: BrokerConnection, wanted: TopicWanted) -> TopicFound | None:
    """The topic after a change; brokers may need a moment to describe it with all its partitions."""
    for pause in _PAUSES:
        found = await brokers.topic(wanted.name)
        if found is not None and found.partitions >= wanted.partitions:
            return found
        await brokers.pause(pause)
    return None


async def connect_for(reader: ClusterReader, topic: Topic, journal: Journal) -> BrokerConnection:
    """A connection with the current Secret; of a deleted Topic the last connection if the Secret is gone.

    Raises: see `connect`.
    """
    try:
        return await connect(reader, journal)
    except SecretMissingError:
        # Secrets have no finalizer: a namespace that is deleted loses them first, and none can be created in it again
        kept = reader.systems.connections.last(journal.metadata.namespace, journal.metadata.name)
        if kept is None or not topic.metadata.is_deleted:
            raise
        return kept
