"""A Topic: the brokers of its Journal, and the topic as it is there.

What the plan asks of the brokers is done here, while observing, since the status contains the result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mailboat.errors import SecretMissingError

from mailboat_operator.cluster_reader import Sight
from mailboat_operator.connections import Connection
from mailboat_operator.kinds.journal.observe import UPSTREAM_ERRORS, connect, pause_of, problem_of
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.topic.plan import (
    CompetingTopics,
    TopicFound,
    is_held,
    is_reclaimed,
    plan_hold,
    plan_kept,
    plan_made,
    plan_reclaimed,
    plan_rival,
    plan_topic,
    plan_topic_status,
    plan_waiting,
    reason_to_keep,
    wanted_topic,
)
from mailboat_operator.kinds.topic.spec import Topic
from mailboat_operator.plan.actions import Plan, TopicAction, TopicWanted
from mailboat_operator.plan.findings import CLUSTER_REPLACED, stalled, suspended
from mailboat_operator.workload.context import is_paused

_OTHER_CLUSTER: Final = "the Journal's brokers belong to another cluster than before; see the Journal"
# 6.35 seconds in all, far below the time limit of a reconciliation
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_UNSEEN_SECONDS: Final = 2.0


async def look_at_topic(sight: Sight, topic: Topic) -> Plan:
    """What to do for a Topic, after what had to be done on the brokers."""
    metadata, name = topic.metadata, topic.spec.journal_ref.name
    if metadata.is_deleted:
        return await _look_at_deleted(sight, topic) if is_held(metadata) else Plan((), None)
    if is_paused(metadata, suspend=topic.spec.suspend):
        return plan_topic_status(topic, None, None, suspended(suspend=topic.spec.suspend), sight.now)
    journal = await sight.journal(metadata.namespace, name)
    if journal is None:
        findings = stalled("JournalMissing", f"no valid Journal {name}")
        return plan_topic_status(topic, None, None, findings, sight.now)
    owner = sight.systems.claims.rivals(topic, journal).owner
    hold = plan_hold(topic, is_owner=owner is None)
    if hold is not None:
        return hold
    if owner is not None:
        return plan_rival(topic, wanted_topic(topic, journal), owner, sight.now)
    return await _keep(sight, topic, journal)


async def _keep(sight: Sight, topic: Topic, journal: Journal) -> Plan:
    wanted = wanted_topic(topic, journal)
    try:
        brokers = await connect(sight, journal)
        found = await brokers.topic(wanted.name)
        if _is_other_cluster(journal, brokers):
            return plan_topic_status(topic, wanted, None, stalled(CLUSTER_REPLACED, _OTHER_CLUSTER), sight.now)
        plan = plan_topic(topic, wanted, found, sight.now)
        if await _act(brokers, plan):
            found = await _seen(brokers, wanted)
            made = plan_made(topic, wanted, found, sight.now)
            plan = replace(plan, status=made.status, again_seconds=_UNSEEN_SECONDS if found is None else None)
    except UPSTREAM_ERRORS as error:
        plan = plan_topic_status(topic, wanted, None, problem_of(error), sight.now)
        return replace(plan, again_seconds=pause_of(error))
    return plan


async def _look_at_deleted(sight: Sight, topic: Topic) -> Plan:
    metadata = topic.metadata
    journal = await sight.journal(metadata.namespace, topic.spec.journal_ref.name)
    rivals = CompetingTopics() if journal is None else sight.systems.claims.rivals(topic, journal)
    reason = reason_to_keep(topic, has_journal=journal is not None, rivals=rivals)
    if journal is None or reason is not None or not is_reclaimed(topic, journal):
        return plan_kept(topic, reason)
    wanted = wanted_topic(topic, journal)
    try:
        brokers = await _connect_to_delete(sight, journal)
        found = await brokers.topic(wanted.name)
        if _is_other_cluster(journal, brokers):
            return plan_kept(topic, _OTHER_CLUSTER)
        plan = plan_reclaimed(topic, wanted, found)
        await _act(brokers, plan)
    except SecretMissingError as error:
        # Secrets have no finalizer: a namespace that is deleted loses them first, and none can be created in it again
        return plan_kept(topic, error.message)
    except UPSTREAM_ERRORS as error:
        waiting = plan_waiting(topic, journal, error, sight.now)
        pauses = [pause for pause in (waiting.again_seconds, pause_of(error)) if pause is not None]
        return replace(waiting, again_seconds=min(pauses, default=None))
    return plan


def _is_other_cluster(journal: Journal, brokers: Connection) -> bool:
    """Whether the Journal has not accepted yet that these are its brokers: it is the one that decides and says so."""
    return journal.status.cluster_id is not None and brokers.cluster_id != journal.status.cluster_id


async def _connect_to_delete(sight: Sight, journal: Journal) -> Connection:
    """A connection with the Secret of now, or the last connection if the Secret is gone. Raises: see `connect`."""
    try:
        return await connect(sight, journal)
    except SecretMissingError:
        kept = sight.systems.connections.last(journal.metadata.namespace, journal.metadata.name)
        if kept is None:
            raise
        return kept


async def _seen(brokers: Connection, wanted: TopicWanted) -> TopicFound | None:
    """A topic that was just made or changed; brokers may need a moment to describe it with all its partitions."""
    for pause in _PAUSES:
        found = await brokers.topic(wanted.name)
        if found is not None and found.partitions >= wanted.partitions:
            return found
        await brokers.pause(pause)
    return None


async def _act(brokers: Connection, plan: Plan) -> bool:
    """Do what the plan asks of the brokers; whether that was anything."""
    actions = [action for action in plan.actions if isinstance(action, TopicAction)]
    for action in actions:
        await brokers.act(action)
    return bool(actions)
