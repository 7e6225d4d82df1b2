"""Decides about a topic, and what it holds, when its Topic is deleted.

A Topic whose reclaim policy is Delete has our finalizer from before its topic is made, so that its deletion waits for
us. Only a topic that is known by its id as this object's is deleted, and only where no other Topic claims it; whatever
is in doubt stays on the brokers, and an Event says so. No deletion hangs: policy Retain, of the object or of the
Journal that made it, lets the object go at once, and so does `RECLAIM_SECONDS` without an answer of the brokers.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from mailboat.errors import MailboatError

from mailboat_operator.api.conditions import ReclaimPolicy
from mailboat_operator.api.journal import Journal
from mailboat_operator.api.metadata import Metadata
from mailboat_operator.api.topic import Topic
from mailboat_operator.manifests.names import FINALIZER
from mailboat_operator.plan.actions import DeleteTopic, Hold, Plan, Report, Severity, TopicWanted
from mailboat_operator.plan.conditions import under_way
from mailboat_operator.plan.topic import CompetingTopics, TopicFound, plan_topic_status
from mailboat_operator.plan.workload import is_paused

RECLAIM_SECONDS: Final = 300.0
"""How long a deletion waits for the brokers: a namespace must not hang in Terminating if they never come back."""


def is_held(metadata: Metadata) -> bool:
    """Whether our finalizer is there."""
    return FINALIZER in metadata.finalizers


def plan_hold(topic: Topic, *, is_owner: bool) -> Plan | None:
    """Put the finalizer on, or take it off, before anything else is done; None when it is as it should be."""
    wanted = is_owner and topic.spec.reclaim_policy is ReclaimPolicy.DELETE
    if wanted == is_held(topic.metadata):
        return None
    return Plan((Hold(wanted),), None, again_seconds=0.0)


def is_reclaimed(topic: Topic, journal: Journal) -> bool:
    """Whether the topic is to be deleted with its object.

    The policy of the Journal that made a Topic counts at the moment of the deletion: a Journal that is being deleted
    does not pass a changed policy on.
    """
    policies = [topic.spec.reclaim_policy, *([journal.spec.topics.reclaim_policy] if _is_child(topic, journal) else [])]
    return all(policy is ReclaimPolicy.DELETE for policy in policies)


def _is_child(topic: Topic, journal: Journal) -> bool:
    return topic.metadata.owner_uid == journal.metadata.uid


def reason_to_keep(topic: Topic, *, has_journal: bool, rivals: CompetingTopics) -> str | None:
    """Why the topic of a deleted Topic stays, without asking the brokers; None when they have to be asked."""
    if is_paused(topic.metadata, suspend=topic.spec.suspend):
        return "this object is suspended"
    if not has_journal:
        return "its Journal was deleted"
    if rivals.heir is not None:
        return f"Topic {rivals.heir[1]} claims it too"
    return "it was never owned by this object" if topic.status.topic_id is None else None


def plan_kept(topic: Topic, reason: str | None) -> Plan:
    """Let the object go, and leave the topic; say why where it was to be deleted."""
    if reason is None or topic.spec.reclaim_policy is ReclaimPolicy.RETAIN:
        return Plan((Hold(is_held=False),), None)
    name = topic.status.topic_name or "of this object"
    return Plan(
        (Hold(is_held=False), Report(Severity.WARNING, "TopicRetained", f"topic {name} is kept: {reason}")), None
    )


def plan_reclaimed(topic: Topic, wanted: TopicWanted, found: TopicFound | None) -> Plan:
    """Delete the topic, if it still is this object's, and let the object go."""
    if found is None:
        return Plan((Hold(is_held=False),), None)
    if found.topic_id != topic.status.topic_id:
        return plan_kept(topic, "it was recreated by another client")
    report = Report(Severity.NORMAL, "TopicDeleted", f"topic {wanted.name} and its messages are deleted")
    # the topic before the finalizer: after a crash in between the object is still there, and finds its topic gone
    return Plan((DeleteTopic(wanted.name), Hold(is_held=False), report), None)


def plan_waiting(topic: Topic, journal: Journal, error: MailboatError, now: datetime) -> Plan:
    """Say why the object can't go yet, until when it waits, and how to end that; then keep the topic.

    A live Journal corrects the spec of a Topic that it made, so the message names the field of the Journal.
    """
    asked_at = topic.metadata.deleted_at or now
    until = asked_at + timedelta(seconds=RECLAIM_SECONDS)
    if now >= until:
        return plan_kept(topic, f"{error.message} (waited {RECLAIM_SECONDS:.0f} s)")
    place = f"topics.reclaimPolicy of Journal {journal.metadata.name}" if _is_child(topic, journal) else "reclaimPolicy"
    way_out = f"to keep the topic and release the object at once, set {place} to Retain"
    message = f"{error.message}; waits until {until:%H:%M:%S} UTC and then keeps the topic; {way_out}"
    plan = plan_topic_status(topic, None, None, under_way(error.name, message), now)
    return replace(plan, again_seconds=(until - now).total_seconds())
