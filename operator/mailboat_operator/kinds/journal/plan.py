"""What a Journal needs: brokers that answer, and a Topic for each of the six roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from mailboat.config.topic_settings import JOB_TOPIC_SETTINGS, MIN_INSYNC, TopicSettings, settings_of
from mailboat.frozen import Frozen
from mailboat.model.messages import TopicRole

from mailboat_operator.definition.amounts import writable_duration, writable_size
from mailboat_operator.definition.conditions import ReclaimPolicy
from mailboat_operator.definition.encoder import encode
from mailboat_operator.definition.metadata import Reference
from mailboat_operator.kinds.journal.agent_config import topics_config
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.topic.spec import JournalRole, TopicRetention, TopicSpec
from mailboat_operator.plan.actions import Hold, Plan, is_held
from mailboat_operator.plan.child_manifest import ChildKey, Manifest, Owner, condition_in, key_of
from mailboat_operator.plan.children import Live, controller_uid, deletion, is_applied, name_conflict, plan_children
from mailboat_operator.plan.findings import (
    CLUSTER_REPLACED,
    CONFLICTS,
    READY,
    STALLED,
    TOPICS_NOT_READY,
    Finding,
    is_paused,
    plan_status,
    ready,
    stalled,
    suspended,
    under_way,
)
from mailboat_operator.plan.labels import ACCEPTED_CLUSTER, ACCEPTED_TOPIC

_SOON_SECONDS: Final = 1.0
"""Until the next reconciliation after Topics were changed: no watch reports a change without a new generation."""


class BrokersFound(Frozen):
    """What came of asking the brokers.

    Attributes:
        cluster_id: Their name for their cluster; None when they did not answer.
        brokers: How many they are.
        missing: Topics of packages' roles that do not exist; read only if the Journal does not manage them.
        problem: What to say where they, or the blob store, did not answer as they should; empty when all is well.
        again_seconds: When to ask again after a problem; None leaves it open.
    """

    cluster_id: str | None = None
    brokers: int | None = None
    missing: Sequence[str] = ()
    problem: Sequence[Finding] = ()
    again_seconds: float | None = None


class JournalObservation(Frozen):
    """What was observed around a Journal.

    Attributes:
        brokers: What came of asking them.
        live: The Topics of the six names, whatever made them.
        reclaimed: Topics that need the Journal for the deletion of their topics.
        now: The time of the observation.
    """

    brokers: BrokersFound
    live: Live
    reclaimed: Sequence[str]
    now: datetime


def journal_keys(journal: Journal) -> Sequence[ChildKey]:
    """The six Topics."""
    return [ChildKey("Topic", f"{journal.metadata.name}-{role}") for role in JournalRole]


def plan_journal(journal: Journal, seen: JournalObservation) -> Plan:
    """Decide what to do for a Journal, and what to report."""
    metadata = journal.metadata
    if metadata.is_deleted:
        return _plan_deleted(journal, seen) if is_held(metadata) else Plan((), None)
    if is_paused(metadata, suspend=journal.spec.suspend):
        return _plan(journal, seen, suspended(suspend=journal.spec.suspend))
    # Topics need the address of the brokers for their own deletion, so the Journal goes last
    is_needed = bool(seen.reclaimed) or journal.spec.topics.reclaim_policy is ReclaimPolicy.DELETE
    if is_needed != is_held(metadata):
        return Plan((Hold(is_needed),), None, again_seconds=0.0)
    return _plan_kept(journal, seen)


def _plan_kept(journal: Journal, seen: JournalObservation) -> Plan:
    """What to do for a Journal that is wanted, and not paused."""
    brokers, live = seen.brokers, seen.live
    replaced = _replaced_cluster(journal, brokers)
    if replaced is not None:
        # the status keeps the known cluster: the next reconciliation would take the other one for this Journal's
        before = journal.status
        known = BrokersFound(before.cluster_id, before.brokers)
        return _plan(journal, replace(seen, brokers=known), replaced)
    if brokers.problem:
        return replace(_plan(journal, seen, brokers.problem), again_seconds=brokers.again_seconds)
    if not journal.spec.topics.manage:
        return _plan(journal, seen, _unmanaged(brokers))
    wanted = list(_topics(journal))
    conflict = name_conflict(wanted, live, journal.metadata.uid)
    if conflict is not None:
        return _plan(journal, seen, conflict)
    # those that this plan changes are not ready for it, whatever they say of the spec before
    current = {key_of(child): live[key_of(child)] for child in wanted if is_applied([child], live)}
    count = _ready_count(current)
    text = f"{count} of {len(wanted)} topics ready"
    findings = ready(text) if count == len(wanted) else _trouble_of(live, text)
    plan = _plan(journal, replace(seen, live=current), findings)
    again_seconds = _SOON_SECONDS if len(current) < len(live) else None
    return replace(plan, actions=tuple(plan_children(wanted, live)), again_seconds=again_seconds)


def _replaced_cluster(journal: Journal, brokers: BrokersFound) -> Sequence[Finding] | None:
    """That other brokers answer than those that this Journal used; None if they are the same or accepted."""
    known, found = journal.status.cluster_id, brokers.cluster_id
    if known is None or found is None or known == found:
        return None
    if journal.metadata.annotations.get(ACCEPTED_CLUSTER) == found:
        return None
    message = (
        f"the brokers belong to cluster {found}, and this Journal used cluster {known}; nothing is changed on either. "
        f"Correct spec.kafka.bootstrapServers, or, to start on the other cluster with empty topics, annotate this "
        f"object with {ACCEPTED_CLUSTER}={found}"
    )
    return stalled(CLUSTER_REPLACED, message)


def _unmanaged(brokers: BrokersFound) -> Sequence[Finding]:
    if brokers.missing:
        return under_way("TopicsMissing", f"waits for topics that others manage: {', '.join(brokers.missing)}")
    return ready("the topics exist; this Journal does not manage them")


def _plan_deleted(journal: Journal, seen: JournalObservation) -> Plan:
    """Wait for the Topics that need the brokers' address to delete what is theirs; with Retain for those of others."""
    is_reclaimed = journal.spec.topics.reclaim_policy is ReclaimPolicy.DELETE
    if is_paused(journal.metadata, suspend=journal.spec.suspend):
        return Plan((Hold(is_held=False),), None)
    live = seen.live
    ours = [key for key, child in live.items() if controller_uid(child) == journal.metadata.uid] if is_reclaimed else []
    waited_for = sorted({*(key.name for key in ours), *seen.reclaimed})
    if not waited_for:
        return Plan((Hold(is_held=False),), None)
    message = (
        f"waits for the deletion of {', '.join(waited_for)}; to keep the topics, set topics.reclaimPolicy to Retain"
    )
    plan = _plan(journal, seen, under_way("TopicsGoing", message))
    staying = [key for key in ours if live[key]["metadata"].get("deletionTimestamp") is None]
    return replace(plan, actions=tuple(deletion(key, live) for key in staying))


def _plan(journal: Journal, seen: JournalObservation, findings: Sequence[Finding]) -> Plan:
    before, brokers = journal.status, seen.brokers
    status = replace(
        before,
        cluster_id=before.cluster_id if brokers.cluster_id is None else brokers.cluster_id,
        brokers=before.brokers if brokers.brokers is None else brokers.brokers,
        topics_ready=_topics_ready(journal, brokers, seen.live),
    )
    return plan_status(journal.metadata, before, status, findings, seen.now)


def _topics_ready(journal: Journal, brokers: BrokersFound, live: Live) -> str | None:
    if journal.spec.topics.manage:
        return f"{_ready_count(live)}/{len(JournalRole)}"
    if brokers.cluster_id is None:
        return journal.status.topics_ready
    return f"{len(TopicRole) - len(brokers.missing)}/{len(TopicRole)}"


def _topics(journal: Journal) -> Iterator[Manifest]:
    topics = journal.spec.topics
    owner = Owner("Journal", "journal", journal.metadata)
    ids = journal.metadata.annotations.get(ACCEPTED_TOPIC)
    accepted = None if ids is None else {ACCEPTED_TOPIC: ids}
    config = topics_config(journal.spec)
    for role in JournalRole:
        # the limits that an agent would make the topic with: agents never correct a topic that exists
        settings = JOB_TOPIC_SETTINGS if role is JournalRole.JOB else settings_of(TopicRole(role), config)
        spec = TopicSpec(
            journal_ref=Reference(journal.metadata.name),
            role=role,
            replicas=topics.replicas,
            retention=_retention(settings),
            config={} if topics.min_insync_replicas is None else {MIN_INSYNC: str(topics.min_insync_replicas)},
            reclaim_policy=topics.reclaim_policy,
        )
        yield owner.child("Topic", str(role), {"spec": encode(spec)}, accepted)


def _retention(settings: TopicSettings) -> TopicRetention:
    seconds, size_bytes = settings.retention_seconds, settings.retention_bytes
    return TopicRetention(
        None if seconds is None else writable_duration(seconds),
        None if size_bytes is None else writable_size(size_bytes),
    )


def _trouble_of(live: Live, text: str) -> Sequence[Finding]:
    """What the Topics that are not ready say; the Journal is stalled if one of them is."""
    found = [(key.name, condition_in(manifest, READY)) for key, manifest in sorted(live.items())]
    reasons = [
        f"{name}: {condition.get('reason')}: {condition.get('message')}"
        for name, condition in found
        if condition.get("reason") and condition.get("status") != "True"
    ]
    message = "; ".join([text, *reasons[:1]])
    standings = [condition_in(manifest, STALLED) for manifest in live.values()]
    stuck = [condition["reason"] for condition in standings if condition.get("status") == "True"]
    if not stuck:
        return under_way(TOPICS_NOT_READY, message)
    conflicts = [reason for reason in stuck if reason in CONFLICTS]
    return stalled(conflicts[0] if conflicts else TOPICS_NOT_READY, message)


def _ready_count(live: Live) -> int:
    """How many Topics are ready, by a condition that speaks of their present spec."""
    found = ((manifest["metadata"], condition_in(manifest, READY)) for manifest in live.values())
    return sum(
        condition.get("status") == "True" and condition.get("observedGeneration", 0) >= metadata.get("generation", 0)
        for metadata, condition in found
    )
