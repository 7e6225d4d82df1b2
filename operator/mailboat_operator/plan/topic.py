"""What a Topic needs of the brokers: to be there, with as many partitions and the configuration that its spec says.

Only what the spec says is kept as it is there; other configuration is the brokers' or somebody else's. A topic that was
made anew under its name is told by its id. Nothing is ever deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from mailboat_operator.api.conditions import ReclaimPolicy
from mailboat_operator.api.encoding import encode
from mailboat_operator.api.journal import Journal
from mailboat_operator.api.topic import Topic
from mailboat_operator.plan.actions import Action, Configure, CreateTopic, Grow, Plan, Report, Severity, TopicWanted
from mailboat_operator.plan.conditions import Finding, conditions_after, ready, stalled

_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic as it is.

    Attributes:
        topic_id: Given when it was made, and to no other (KIP-516).
        partitions: How many.
        replicas: Of the first.
        config: All its keys.
    """

    topic_id: str
    partitions: int
    replicas: int
    config: Mapping[str, str | None]


def topic_name(topic: Topic, journal: Journal) -> str:
    """What the topic is called on the brokers."""
    if topic.spec.role is None:
        return str(topic.spec.topic_name)
    return f"{journal.spec.topics.prefix or ''}{topic.spec.role}"


def wanted_topic(topic: Topic, journal: Journal) -> TopicWanted:
    """The topic that the spec asks for."""
    spec, retention = topic.spec, topic.spec.retention
    config = dict(spec.config)
    if retention.time_seconds is not None:
        config["retention.ms"] = str(int(retention.time_seconds * _MILLISECONDS))
    if retention.size_bytes is not None:
        config["retention.bytes"] = str(retention.size_bytes)
    return TopicWanted(topic_name(topic, journal), spec.partitions, spec.replicas, config)


def plan_topic(topic: Topic, wanted: TopicWanted, found: TopicFound | None, now: datetime) -> Plan:
    """Decide what to ask of the brokers, and what to say of the topic; its id is known once it was found."""
    if topic.spec.reclaim_policy is ReclaimPolicy.DELETE:
        message = "this version never deletes a topic: say reclaimPolicy Retain, and delete the topic by hand"
        return plan_topic_status(topic, wanted, found, stalled("DeleteUnsupported", message), now)
    if found is None:
        actions: list[Action] = [CreateTopic(wanted)]
        if topic.status.topic_id is not None:
            message = f"topic {wanted.name} was gone, and is made anew: what it held is lost"
            actions.append(Report(Severity.WARNING, "TopicLost", message))
        made = replace(topic.status, topic_id=None)
        plan = plan_topic_status(replace(topic, status=made), wanted, None, ready(f"{wanted.name} is made"), now)
        return replace(plan, actions=tuple(actions))
    findings, actions = _refusal(wanted, found), list(_changes(topic, wanted, found))
    plan = plan_topic_status(topic, wanted, found, findings or ready(f"{wanted.name} is as asked for"), now)
    return replace(plan, actions=tuple(actions))


def plan_topic_status(
    topic: Topic, wanted: TopicWanted | None, found: TopicFound | None, findings: Sequence[Finding], now: datetime
) -> Plan:
    """Say of the topic what was found, and do nothing."""
    metadata, before = topic.metadata, topic.status
    status = replace(
        before,
        observed_generation=metadata.generation,
        conditions=conditions_after(before.conditions, findings, metadata.generation, now),
        topic_name=before.topic_name if wanted is None else wanted.name,
        topic_id=before.topic_id if found is None else found.topic_id,
        partitions=before.partitions if found is None else found.partitions,
        replicas=before.replicas if found is None else found.replicas,
    )
    return Plan((), None if status == before else encode(status))


def _refusal(wanted: TopicWanted, found: TopicFound) -> Sequence[Finding] | None:
    if found.partitions > wanted.partitions:
        message = f"{wanted.name} has {found.partitions} partitions, and can never have fewer"
        return stalled("PartitionsTooMany", message)
    if wanted.replicas is not None and found.replicas != wanted.replicas:
        message = f"{wanted.name} has {found.replicas} replicas: move them by Kafka's own tools, or say so in the spec"
        return stalled("ReplicasDiffer", message)
    return None


def _changes(topic: Topic, wanted: TopicWanted, found: TopicFound) -> Sequence[Action]:
    actions: list[Action] = []
    known = topic.status.topic_id
    if known is not None and known != found.topic_id:
        message = f"topic {wanted.name} was made anew by somebody else: what it held is lost"
        actions.append(Report(Severity.WARNING, "TopicReplaced", message))
    if found.partitions < wanted.partitions:
        actions.append(Grow(wanted.name, wanted.partitions))
    changes = {key: value for key, value in wanted.config.items() if found.config.get(key) != value}
    if changes:
        actions.append(Configure(wanted.name, changes))
        if known == found.topic_id and topic.status.observed_generation == topic.metadata.generation:
            message = f"topic {wanted.name}: somebody else changed {', '.join(sorted(changes))}"
            actions.append(Report(Severity.WARNING, "DriftCorrected", message))
    return actions
