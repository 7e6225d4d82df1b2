"""A Topic: its Journal, its competitors, and the topic on the brokers."""

from __future__ import annotations

from dataclasses import replace

from mailboat.errors import SecretMissingError

from mailboat_operator.broker_connections import Connection
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.journal.observe import connect
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.topic.plan import CompetingTopics, TopicObservation, needs_brokers, topic_name
from mailboat_operator.kinds.topic.spec import Topic
from mailboat_operator.plan.findings import UPSTREAM_ERRORS


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


async def connect_for(reader: ClusterReader, topic: Topic, journal: Journal) -> Connection:
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
