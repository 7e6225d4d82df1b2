"""What a Topic needs of the brokers: to be there, with as many partitions and the configuration that its spec says.

Only what the spec says is kept as it is there, and in a topic of a Journal what agents need; other configuration
belongs to the brokers or to others. A topic that this object did not create, one that existed before it or was
recreated under its name, is left alone until an annotation names its id.

A Topic whose reclaim policy is Delete has our finalizer before its topic is created, so its deletion waits for us.
Only a topic that is known by its id as this object's is deleted, and only if no other Topic claims it; otherwise it
stays on the brokers, and an Event gives the reason. No deletion hangs: policy Retain, of the object or of the Journal
that made it, releases the object at once, and so does `RECLAIM_SECONDS` without an answer of the brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

from mailboat.config.topic_settings import (
    JOB_TOPIC_SETTINGS,
    TopicSettings,
    kafka_settings_of,
    largest_message_bytes,
)
from mailboat.errors import MailboatError, SecretMissingError
from mailboat.frozen import Frozen
from mailboat.model.messages import TopicRole

from mailboat_operator.definition.conditions import ReclaimPolicy, condition_of
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.topic.spec import JournalRole, Topic, TopicRetention, TopicStatus
from mailboat_operator.plan.actions import (
    RECLAIM_SECONDS,
    Action,
    Configure,
    CreateTopic,
    DeleteTopic,
    Grow,
    Hold,
    Plan,
    RecordEvent,
    Severity,
    TopicFound,
    TopicWanted,
    is_held,
)
from mailboat_operator.plan.findings import (
    CLUSTER_REPLACED,
    READY,
    Finding,
    is_paused,
    pause_of,
    plan_status,
    problem_of,
    ready,
    stalled,
    suspended,
    under_way,
    whole_seconds,
)
from mailboat_operator.plan.labels import ACCEPTED_TOPIC

_MILLISECONDS: Final = 1000
_REPLACED: Final = "TopicReplaced"
_MADE: Final = "TopicMade"
_OTHER_CLUSTER: Final = "the Journal's brokers belong to another cluster than before; see the Journal"
_MISSING: Final = "TopicMissing"
# Until the next look for a topic that was just created: other brokers learn of it a little later.
_UNSEEN_SECONDS: Final = 2.0
# A topic counts as deleted after this time only: a broker that starts lists its topics late.
_SURE_SECONDS: Final = 10.0
_EXISTS: Final = "TopicExists"


class CompetingTopics(Frozen):
    """Other Topics that claim the same topic of the same brokers, each as namespace and name.

    Attributes:
        owner: The oldest of them, where it is older than the Topic itself; None where the Topic is the owner.
        heir: One of them; None if absent.
    """

    owner: tuple[str, str] | None = None
    heir: tuple[str, str] | None = None


class TopicObservation(Frozen):
    """What was observed around a Topic.

    Attributes:
        now: The time of the observation.
        journal: The Journal that it names; None if absent, or not decodable.
        rivals: Other Topics that claim the same topic.
        found: The topic on the brokers; None if absent, or if the brokers were not asked.
        cluster_id: Of the brokers that answered.
        error: One of `UPSTREAM_ERRORS`, instead of an answer of the brokers.
    """

    now: datetime
    journal: Journal | None
    rivals: CompetingTopics
    found: TopicFound | None = None
    cluster_id: str | None = None
    error: MailboatError | None = None


def topic_name(topic: Topic, journal: Journal) -> str:
    """What the topic is called on the brokers."""
    if topic.spec.role is None:
        return str(topic.spec.topic_name)
    return journal.spec.topics.name_of(topic.spec.role)


def wanted_topic(topic: Topic, journal: Journal) -> TopicWanted:
    """The topic that the spec asks for."""
    spec, retention = topic.spec, topic.spec.retention
    config = dict(spec.config)
    if spec.role is not None and _is_child(topic, journal):
        # The object's own `config` wins over what agents would set.
        config = {**kafka_settings_of(_settings(spec.role, retention), None), **config}
    elif spec.role is JournalRole.JOB:
        # also over the brokers' defaults: checkpoints bound the topic, and a queued job must not expire
        config |= {"retention.ms": "-1", "retention.bytes": "-1"}
    if retention.time_seconds is not None:
        config["retention.ms"] = str(int(retention.time_seconds * _MILLISECONDS))
    if retention.size_bytes is not None:
        config["retention.bytes"] = str(retention.size_bytes)
    return TopicWanted(topic_name(topic, journal), spec.partitions, spec.replicas, config)


def _settings(role: JournalRole, retention: TopicRetention) -> TopicSettings:
    """How a topic that a Journal makes is kept, as agents would make it; its `config` may say otherwise."""
    if role is JournalRole.JOB:
        return JOB_TOPIC_SETTINGS
    return TopicSettings(retention.time_seconds, largest_message_bytes(TopicRole(role)), retention.size_bytes)


def needs_brokers(topic: Topic, seen: TopicObservation) -> bool:
    """Whether the plan depends on what the brokers have."""
    journal, metadata = seen.journal, topic.metadata
    if journal is None:
        return False
    if metadata.is_deleted:
        reason = _reason_to_keep(topic, has_journal=True, rivals=seen.rivals)
        return is_held(metadata) and reason is None and _is_reclaimed(topic, journal)
    if is_paused(metadata, suspend=topic.spec.suspend) or seen.rivals.owner is not None:
        return False
    return _plan_hold(topic, is_owner=True) is None


def plan_topic(topic: Topic, seen: TopicObservation) -> Plan:
    """Decide what to do for a Topic, and what to report of it."""
    metadata, journal, now = topic.metadata, seen.journal, seen.now
    if metadata.is_deleted:
        return _plan_deleted(topic, seen) if is_held(metadata) else Plan((), None)
    if is_paused(metadata, suspend=topic.spec.suspend):
        return plan_topic_status(topic, suspended(suspend=topic.spec.suspend), now)
    if journal is None:
        findings = stalled("JournalMissing", f"no valid Journal {topic.spec.journal_ref.name}")
        return plan_topic_status(topic, findings, now)
    hold = _plan_hold(topic, is_owner=seen.rivals.owner is None)
    return _plan_wanted(topic, journal, seen) if hold is None else hold


def _plan_wanted(topic: Topic, journal: Journal, seen: TopicObservation) -> Plan:
    """Decide about a topic whose object is neither deleted nor paused."""
    wanted, owner, now = wanted_topic(topic, journal), seen.rivals.owner, seen.now
    if owner is not None:
        return _plan_rival(topic, wanted, owner, now)
    if seen.error is not None:
        plan = plan_topic_status(topic, problem_of(seen.error), now, wanted=wanted)
        return replace(plan, again_seconds=pause_of(seen.error))
    if _is_other_cluster(journal, seen):
        return plan_topic_status(topic, stalled(CLUSTER_REPLACED, _OTHER_CLUSTER), now, wanted=wanted)
    if seen.found is not None and _is_of_agents(topic, seen.found) and not _has_topics_of_packages(journal):
        return _plan_unsure(topic, wanted, seen.found, now)
    return plan_found(topic, wanted, seen.found, now)


def _plan_deleted(topic: Topic, seen: TopicObservation) -> Plan:
    journal, error = seen.journal, seen.error
    reason = _reason_to_keep(topic, has_journal=journal is not None, rivals=seen.rivals)
    if journal is None or reason is not None or not _is_reclaimed(topic, journal):
        return _plan_kept(topic, reason)
    # Not waited for: a namespace that is deleted loses its Secrets first, and none can be made in it again.
    if isinstance(error, SecretMissingError):
        return _plan_kept(topic, error.message)
    if error is not None:
        waiting = _plan_waiting(topic, journal, error, seen.now)
        pauses = [pause for pause in (waiting.again_seconds, pause_of(error)) if pause is not None]
        return replace(waiting, again_seconds=min(pauses, default=None))
    if _is_other_cluster(journal, seen):
        return _plan_kept(topic, _OTHER_CLUSTER)
    return _plan_reclaimed(topic, wanted_topic(topic, journal), seen.found)


def _is_other_cluster(journal: Journal, seen: TopicObservation) -> bool:
    """Whether the Journal has not accepted yet that these are its brokers: it decides, and reports it."""
    return journal.status.cluster_id is not None and seen.cluster_id != journal.status.cluster_id


def plan_found(topic: Topic, wanted: TopicWanted, found: TopicFound | None, now: datetime) -> Plan:
    """Decide what to ask of brokers that answered, and what to report of the topic."""
    if found is None:
        return _plan_missing(topic, wanted, now)
    if _is_ours(topic, found):
        return _plan_known(topic, wanted, found, [], now)
    if _is_of_agents(topic, found) or _is_accepted(topic, found):
        message = f"topic {wanted.name}, which this object did not create, is accepted as it is"
        return _plan_known(topic, wanted, found, [RecordEvent(Severity.NORMAL, "TopicAccepted", message)], now)
    return _plan_foreign(topic, wanted, found, now)


def _is_ours(topic: Topic, found: TopicFound) -> bool:
    known = topic.status.topic_id
    # The status announced the creation before it (`_plan_missing`): so the topic is ours, also without its id.
    return known == found.topic_id or (known is None and _has_reason(topic, _MADE))


def _is_accepted(topic: Topic, found: TopicFound) -> bool:
    return found.topic_id in topic.metadata.annotations.get(ACCEPTED_TOPIC, "").split(",")


def _is_of_agents(topic: Topic, found: TopicFound) -> bool:
    """Whether it is a topic of jobs that this object does not know yet: an agent creates it for the first job."""
    is_known = topic.status.topic_id is not None or _is_ours(topic, found) or _is_accepted(topic, found)
    return topic.spec.role is JournalRole.JOB and not is_known


def _has_topics_of_packages(journal: Journal) -> bool:
    """Whether the topics of packages are there, and the Journal's own, as far as it manages them."""
    count = (journal.status.topics_ready or "").partition("/")[0]
    return count.isdecimal() and int(count) >= len(TopicRole)


def _plan_unsure(topic: Topic, wanted: TopicWanted, found: TopicFound, now: datetime) -> Plan:
    """Wait with a topic of jobs that may be another Journal's, whose topics of packages would be foreign, too."""
    message = (
        f"topic {wanted.name} exists; it is accepted when the Journal's other topics are ready. "
        f"To manage it as it is, annotate this object with {ACCEPTED_TOPIC}={found.topic_id}"
    )
    return plan_topic_status(topic, under_way(_EXISTS, message), now, wanted=wanted)


def plan_made(topic: Topic, wanted: TopicWanted, found: TopicFound | None, now: datetime) -> Plan:
    """What to say of a topic after the brokers did what the plan asked for; it asks for nothing more."""
    if found is None:
        findings = under_way(_MADE, f"{wanted.name} was created or extended; not yet on all brokers")
        plan = plan_topic_status(topic, findings, now, wanted=wanted)
        return replace(plan, again_seconds=_UNSEEN_SECONDS)
    findings = _refusal(wanted, found) or ready(f"{wanted.name} matches the spec")
    return plan_topic_status(topic, findings, now, wanted=wanted, found=found)


def _plan_rival(topic: Topic, wanted: TopicWanted, owner: tuple[str, str], now: datetime) -> Plan:
    """Report that the topic is an older Topic's. It is not recorded as ours, so it is never deleted."""
    namespace, name = owner
    whose = f"Topic {name}" if namespace == topic.metadata.namespace else "a Topic of another namespace"
    message = f"topic {wanted.name} belongs to {whose}, which is older; two objects never manage one topic"
    return plan_topic_status(topic, stalled("TopicTaken", message), now, wanted=wanted, kept=_forgotten(topic))


def plan_topic_status(
    topic: Topic,
    findings: Sequence[Finding],
    now: datetime,
    *,
    wanted: TopicWanted | None = None,
    found: TopicFound | None = None,
    kept: TopicStatus | None = None,
) -> Plan:
    """Say of the topic what was found, and do nothing.

    Args:
        topic: The object.
        findings: What to say.
        now: When this is.
        wanted: What it asks for; None when that is not known.
        found: What the brokers have; None when nothing is known of it now.
        kept: What stays of the status before; None: all but since when the topic is missing.
    """
    before = topic.status
    known = replace(before, missing_since=None) if kept is None else kept
    if found is not None:
        known = replace(known, topic_id=found.topic_id, partitions=found.partitions, replicas=found.replicas)
    status = replace(known, topic_name=before.topic_name if wanted is None else wanted.name)
    return plan_status(topic.metadata, before, status, findings, now)


def _forgotten(topic: Topic) -> TopicStatus:
    """The status without what is outdated: the topic is gone, or another object's."""
    return replace(topic.status, topic_id=None, partitions=None, replicas=None, missing_since=None)


def _plan_missing(topic: Topic, wanted: TopicWanted, now: datetime) -> Plan:
    """Create it, or wait for a topic that brokers may not know yet."""
    if topic.status.topic_id is None:
        plan = plan_topic_status(topic, under_way(_MADE, f"{wanted.name} is being created"), now, wanted=wanted)
        # The status says so before the topic is made: after a crash in between, it is known as this object's.
        if _has_reason(topic, _MADE):
            return replace(plan, actions=(CreateTopic(wanted),))
        return replace(plan, again_seconds=0.0)
    known = condition_of(topic.status.conditions, READY)
    # The condition where older definitions of the cluster drop the field; a clock of another replica may be ahead.
    begun = known.last_transition_at if known is not None and known.reason == _MISSING else now
    since = topic.status.missing_since or whole_seconds(begun)
    rest = min(_SURE_SECONDS, _SURE_SECONDS - (now - since).total_seconds())
    if rest > 0:  # a broker that has just started may not know all topics yet
        text = f"{wanted.name} is not on the brokers; it is created again if it is missing for {_SURE_SECONDS:g} s"
        kept = replace(topic.status, missing_since=since)
        plan = plan_topic_status(topic, under_way(_MISSING, text), now, wanted=wanted, kept=kept)
        return replace(plan, again_seconds=rest)
    message = f"topic {wanted.name} was deleted and is created again: its messages are lost"
    plan = plan_topic_status(topic, under_way("TopicLost", message), now, wanted=wanted, kept=_forgotten(topic))
    return replace(plan, actions=(RecordEvent(Severity.WARNING, "TopicLost", message),), again_seconds=0.0)


def _plan_known(
    topic: Topic, wanted: TopicWanted, found: TopicFound, reports: list[RecordEvent], now: datetime
) -> Plan:
    findings = _refusal(wanted, found) or ready(f"{wanted.name} matches the spec")
    plan = plan_topic_status(topic, findings, now, wanted=wanted, found=found)
    return replace(plan, actions=(*reports, *_changes(topic, wanted, found)))


def _plan_foreign(topic: Topic, wanted: TopicWanted, found: TopicFound, now: datetime) -> Plan:
    """Leave a topic of others alone, and say how to accept it."""
    if topic.status.topic_id is None:
        reason, what = _EXISTS, "exists, and this object did not create it"
    else:
        reason, what = _REPLACED, "was recreated by another client: its messages are lost"
    message = (
        f"topic {wanted.name} {what}; it is not changed. "
        f"To manage it as it is, annotate this object with {ACCEPTED_TOPIC}={found.topic_id}"
    )
    plan = plan_topic_status(topic, stalled(reason, message), now, wanted=wanted)
    known = condition_of(topic.status.conditions, READY)
    is_told = known is not None and known.message == message
    return plan if is_told else replace(plan, actions=(RecordEvent(Severity.WARNING, reason, message),))


def _has_reason(topic: Topic, reason: str) -> bool:
    found = condition_of(topic.status.conditions, READY)
    return found is not None and found.reason == reason


def _refusal(wanted: TopicWanted, found: TopicFound) -> Sequence[Finding] | None:
    if found.partitions > wanted.partitions:
        message = (
            f"{wanted.name} has {found.partitions} partitions, and Kafka cannot reduce them: "
            "set this number in the spec"
        )
        return stalled("PartitionsTooMany", message)
    if wanted.replicas is not None and found.replicas != wanted.replicas:
        message = (
            f"{wanted.name} has {found.replicas} replicas: move them with Kafka's tools, or set this number in the spec"
        )
        return stalled("ReplicasDiffer", message)
    return None


def _changes(topic: Topic, wanted: TopicWanted, found: TopicFound) -> Iterator[Action]:
    if found.partitions < wanted.partitions:
        yield Grow(wanted.name, wanted.partitions)
    changes = {key: value for key, value in wanted.config.items() if not _is_set(value, found.config.get(key))}
    if not changes:
        return
    yield Configure(wanted.name, changes)
    status = topic.status
    if status.topic_id == found.topic_id and status.observed_generation == topic.metadata.generation:
        # the same generation after an upgrade: what the operator derives from a spec may have changed with it
        who = "another client, or an earlier version of the operator"
        message = f"topic {wanted.name}: corrected what {who}, had set: {', '.join(sorted(changes))}"
        yield RecordEvent(Severity.WARNING, "DriftCorrected", message)


def _is_set(wanted: str, found: str | None) -> bool:
    """Whether a key has a value. Brokers show a list without blanks, and numbers and truths in a form of their own."""
    return wanted == found or (found is not None and _entries_of(wanted) == _entries_of(found))


def _entries_of(value: str) -> Sequence[Decimal | str]:
    return [_number_of(entry.strip().lower()) for entry in value.split(",")]


def _number_of(entry: str) -> Decimal | str:
    try:
        return Decimal(entry)
    except InvalidOperation:
        return entry


def _plan_hold(topic: Topic, *, is_owner: bool) -> Plan | None:
    """Put the finalizer on, or take it off, before anything else is done; None when it is as it should be."""
    wanted = is_owner and topic.spec.reclaim_policy is ReclaimPolicy.DELETE
    if wanted == is_held(topic.metadata):
        return None
    return Plan((Hold(wanted),), None, again_seconds=0.0)


def _is_reclaimed(topic: Topic, journal: Journal) -> bool:
    """Whether the topic is to be deleted with its object."""
    # the Journal's policy of this moment, too: a Journal that is being deleted does not pass a changed one on
    policies = [topic.spec.reclaim_policy, *([journal.spec.topics.reclaim_policy] if _is_child(topic, journal) else [])]
    return all(policy is ReclaimPolicy.DELETE for policy in policies)


def _is_child(topic: Topic, journal: Journal) -> bool:
    # by uid: a Journal that was recreated under the same name did not make this Topic.
    return topic.metadata.owner_uid == journal.metadata.uid


def _reason_to_keep(topic: Topic, *, has_journal: bool, rivals: CompetingTopics) -> str | None:
    """Why the topic of a deleted Topic stays, without asking the brokers; None when they have to be asked."""
    if is_paused(topic.metadata, suspend=topic.spec.suspend):
        return "this object is suspended"
    if not has_journal:
        return f"no valid Journal {topic.spec.journal_ref.name}"
    if rivals.heir is not None:
        return f"Topic {rivals.heir[1]} claims it too"
    return "it was never owned by this object" if topic.status.topic_id is None else None


def _plan_kept(topic: Topic, reason: str | None) -> Plan:
    """Let the object go, and leave the topic; say why where it was to be deleted."""
    if reason is None or topic.spec.reclaim_policy is ReclaimPolicy.RETAIN:
        return Plan((Hold(is_held=False),), None)
    name = topic.status.topic_name or "of this object"
    return Plan(
        (Hold(is_held=False), RecordEvent(Severity.WARNING, "TopicRetained", f"topic {name} is kept: {reason}")), None
    )


def _plan_reclaimed(topic: Topic, wanted: TopicWanted, found: TopicFound | None) -> Plan:
    """Delete the topic, if it still is this object's, and let the object go."""
    if found is None:
        return Plan((Hold(is_held=False),), None)
    if found.topic_id != topic.status.topic_id:
        return _plan_kept(topic, "it was recreated by another client")
    report = RecordEvent(Severity.NORMAL, "TopicDeleted", f"topic {wanted.name} and its messages are deleted")
    # the topic before the finalizer: after a crash in between the object is still there, and finds its topic gone
    return Plan((DeleteTopic(wanted.name), Hold(is_held=False), report), None)


def _plan_waiting(topic: Topic, journal: Journal, error: MailboatError, now: datetime) -> Plan:
    """Say why the object can't go yet, until when it waits, and how to end that; then keep the topic.

    A live Journal corrects the spec of a Topic that it made, so the message names the field of the Journal.
    """
    asked_at = topic.metadata.deleted_at or now
    until = asked_at + timedelta(seconds=RECLAIM_SECONDS)
    if now >= until:
        return _plan_kept(topic, f"{error.message} (waited {RECLAIM_SECONDS:.0f} s)")
    place = f"topics.reclaimPolicy of Journal {journal.metadata.name}" if _is_child(topic, journal) else "reclaimPolicy"
    way_out = f"to keep the topic and release the object at once, set {place} to Retain"
    message = f"{error.message}; waits until {until:%H:%M:%S} UTC and then keeps the topic; {way_out}"
    plan = plan_topic_status(topic, under_way(error.name, message), now)
    return replace(plan, again_seconds=(until - now).total_seconds())
