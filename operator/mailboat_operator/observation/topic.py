"""A Topic: the brokers of its Journal, and the topic as it is there.

What the plan asks of the brokers is done here, while looking, since the status tells what came of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from mailboat_operator.api.topic import Topic
from mailboat_operator.brokers import BrokersRefusedError, BrokersUnreachableError
from mailboat_operator.observation.journal import connect
from mailboat_operator.observation.sight import Sight
from mailboat_operator.plan.actions import Plan, TopicAction
from mailboat_operator.plan.conditions import stalled, suspended, under_way
from mailboat_operator.plan.topic import plan_topic, plan_topic_status, wanted_topic
from mailboat_operator.plan.workload import is_paused


async def look_at_topic(sight: Sight, topic: Topic) -> Plan:
    """What to do for a Topic, after what had to be done on the brokers."""
    metadata, now, name = topic.metadata, sight.now, topic.spec.journal_ref.name
    if metadata.is_deleted:
        return Plan((), None)
    if is_paused(metadata, suspend=topic.spec.suspend):
        return plan_topic_status(topic, None, None, suspended(), now)
    journal = await sight.journal(metadata.namespace, name)
    if journal is None:
        findings = under_way("JournalMissing", f"there is no Journal {name} that can be understood")
        return plan_topic_status(topic, None, None, findings, now)
    wanted = wanted_topic(topic, journal)
    try:
        brokers = await connect(sight, journal)
        found = await asyncio.to_thread(brokers.topic, wanted.name)
        plan = plan_topic(topic, wanted, found, now)
        for action in plan.actions:
            if isinstance(action, TopicAction):
                await asyncio.to_thread(brokers.act, action)
                found = await asyncio.to_thread(brokers.topic, wanted.name)
        if found is not None:
            plan = replace(plan, status=plan_topic(topic, wanted, found, now).status)
    except BrokersUnreachableError as error:
        return plan_topic_status(topic, wanted, None, under_way(error.name, error.message), now)
    except BrokersRefusedError as error:
        return plan_topic_status(topic, wanted, None, stalled(error.name, error.message), now)
    return plan
