"""What publishers and pools have alike: what must be there before children are made, and when these are ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Final

from mailboat.api.records import StatusView
from mailboat.frozen import Frozen

from mailboat_operator.definition.conditions import ConditionStatus, condition_of
from mailboat_operator.definition.metadata import Metadata
from mailboat_operator.kinds.journal.agent_config import journal_mounts
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPool
from mailboat_operator.plan.child_manifest import Manifest, digest_of
from mailboat_operator.plan.children import Live, is_applied, workload_of
from mailboat_operator.plan.findings import (
    CONFLICTS,
    FORMER_CHILD_EXISTS,
    NAME_TAKEN,
    NOT_OBSERVED,
    READY,
    STALLED,
    SUSPENDED,
    TOPICS_NOT_READY,
    Finding,
    is_paused,
    ready,
    stalled,
    suspended,
    under_way,
)
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.mounts import SecretMount
from mailboat_operator.workload.pod_failures import (
    DEADLINE_EXCEEDED,
    MISCONFIGURED,
    PROGRESS_DEADLINE,
    Pods,
    is_progress_over,
    trouble_of,
)
from mailboat_operator.workload.pods import AgentImage
from mailboat_operator.workload.volumes import VolumeClaims

_WITHOUT_TOPICS: Final = frozenset({TOPICS_NOT_READY, FORMER_CHILD_EXISTS})
_NOT_CHECKED: Final = "JournalNotChecked"


class SecretFound(Frozen):
    """A Secret, without what it holds.

    Attributes:
        version: Changes with its content, and when it is made again; with no label or annotation.
        keys: The names of its entries.
    """

    version: str
    keys: frozenset[str]


class GoldenPool(Frozen):
    """A pool that another one waits for.

    Attributes:
        is_editable: Whether it confirms each package.
        waits_for: The pool that it waits for itself; None for no pool.
        is_shared: Whether its members share their work.
    """

    is_editable: bool
    waits_for: str | None
    is_shared: bool = False


class WorkloadContext(Frozen):
    """What was observed around a publisher or a pool.

    Attributes:
        journal: The Journal that it names; None if absent, or not understood.
        secrets: Those that the agents need, as far as they exist.
        children: Those of the names that are wanted, also foreign ones.
        image: What agents run.
        now: When this was observed.
        staging: The pools that are waited for, and those that they wait for, as far as they exist.
        fleet: All subscribers of the journal; None where no agent answered.
        has_keda: Whether KEDA is installed.
        pools: The pools on a publisher's journal.
        undecodable_pools: Names of pools that the publisher's status has, and that exist but cannot be decoded.
        publishers: Names of the Publishers on a pool's journal.
        unanswered_since: Since when none of them is ready to be asked for figures; None if one is.
        pods: Those of the workload; none while all are ready.
        claims: Those of the workload; none unless its volumes were enlarged since it was made.
        shared_claim: The claim that all members of a pool mount; None if absent, or none was asked for.
        is_journal_checked: Whether agents may start or change, see `is_checked`.
        answering: Publishers of the journal that are ready, through which members can be deregistered.
        policy: What the operator's settings say of all agents.
    """

    journal: Journal | None
    secrets: Mapping[str, SecretFound]
    children: Live
    image: AgentImage
    now: datetime
    staging: Mapping[str, GoldenPool] = field(default_factory=dict)
    fleet: StatusView | None = None
    has_keda: bool = False
    pools: Sequence[SubscriberPool] = ()
    undecodable_pools: frozenset[str] = frozenset()
    publishers: frozenset[str] = frozenset()
    unanswered_since: datetime | None = None
    pods: Pods = field(default_factory=Pods)
    claims: VolumeClaims = field(default_factory=VolumeClaims)
    shared_claim: Manifest | None = None
    answering: Sequence[Publisher] = ()
    is_journal_checked: bool = True
    policy: AgentPolicy = field(default_factory=AgentPolicy)

    @property
    def answering_names(self) -> Sequence[str]:
        """Names of the publishers that are ready."""
        return [publisher.metadata.name for publisher in self.answering]


def usable_journal(
    metadata: Metadata,
    journal_name: str,
    context: WorkloadContext,
    mounts: Sequence[SecretMount],
    *,
    suspend: bool,
) -> Journal | Sequence[Finding]:
    """The Journal of an object, or why nothing is made for the object at the moment.

    Args:
        metadata: Of the object.
        journal_name: The Journal that it names.
        context: What was observed.
        mounts: Secrets of the user's that the agents need besides those of the journal.
        suspend: What its spec says.
    """
    if is_paused(metadata, suspend=suspend):
        return suspended(suspend=suspend)
    if context.journal is None:
        return stalled("JournalMissing", f"no valid Journal {journal_name}")
    conflict = _conflict_of(context.journal)
    if conflict is not None:
        return conflict
    # an agent that starts on topics of another Journal would append to a foreign log
    if not context.is_journal_checked:
        text = f"waiting for Journal {journal_name}: agents start or change after its brokers and topics are checked"
        return under_way(_NOT_CHECKED, text)
    missing = list(_missing_entries([*mounts, *journal_mounts(context.journal.spec)], context.secrets))
    return stalled("SecretMissing", f"missing: {', '.join(missing)}") if missing else context.journal


def is_checked(journal: Journal, *, has_agents: bool) -> bool:
    """Whether the operator has checked the Journal's spec: a conflict over its cluster would show.

    New agents start on topics that are the Journal's. Agents that run stay while topics are not ready. Brokers that do
    not answer count as checked: the agents wait for them too.
    """
    observed = journal.status.observed_generation
    if observed is not None and observed < (journal.metadata.generation or 0):
        return False
    if has_agents:
        return True
    found, stuck = (condition_of(journal.status.conditions, name) for name in (READY, STALLED))
    if found is None or stuck is None or found.reason in {NAME_TAKEN, *NOT_OBSERVED}:  # its topics may not be made
        return False
    if found.reason == SUSPENDED:  # perhaps before its topics were looked for
        count, _, total = (journal.status.topics_ready or "0/1").partition("/")
        return count == total
    return found.reason not in _WITHOUT_TOPICS or stuck.holds


def _conflict_of(journal: Journal) -> Sequence[Finding] | None:
    """That the topics are not the Journal's: agents would publish into the log of others."""
    found = condition_of(journal.status.conditions, STALLED)
    if found is None or not found.holds or found.reason not in CONFLICTS:
        return None
    return stalled(found.reason, f"Journal {journal.metadata.name}: {found.message}")


def _missing_entries(mounts: Sequence[SecretMount], found: Mapping[str, SecretFound]) -> Iterator[str]:
    for mount in mounts:
        secret = found.get(mount.secret)
        if secret is None:
            yield f"Secret {mount.secret}"
        else:
            yield from (f"entry {key} of Secret {mount.secret}" for key in mount.keys if key not in secret.keys)


def secrets_digest(mounts: Sequence[SecretMount], found: Mapping[str, SecretFound]) -> str:
    """Changes with the content of the Secrets, so that agents are restarted with new credentials."""
    return digest_of({mount.secret: found[mount.secret].version for mount in mounts if mount.secret in found})


def roll_out(
    resource: Publisher | SubscriberPool, context: WorkloadContext, wanted: Sequence[Manifest]
) -> Sequence[Finding]:
    """How far the pods are, and why they are no further; `wanted` are the children that the plan applies."""
    is_pool = isinstance(resource, SubscriberPool)
    replicas = resource.spec.replicas if isinstance(resource, SubscriberPool) else 1
    workload = workload_of(resource.metadata, context.children)
    status = workload.get("status") or {}
    count = int(status.get("readyReplicas") or 0)
    text = f"{count} of {replicas} {'members' if is_pool else 'publisher'} ready"
    if is_rolled_out(workload, replicas):
        # else the pods are of the StatefulSet before: `kubectl wait` would end before the roll-out begins
        is_current = is_applied([child for child in wanted if child["kind"] == "StatefulSet"], context.children)
        return ready(text) if is_current else under_way("RollingOut", text)
    trouble, going = trouble_of(context.pods, context.now), int(status.get("replicas") or 0) - replicas
    if trouble is None and count >= replicas and going > 0:  # no deadline: a member has `finish` for its packages
        return under_way("ScalingDown", f"scaling down to {replicas} members; {going} still stopping")
    cause = _journal_cause(context.journal) if trouble is None else trouble.message
    text = text if cause is None else f"{text}; {cause}"
    if trouble is not None and trouble.reason == MISCONFIGURED:
        return stalled(*trouble._replace(message=text))
    # the members that there are may catch up for as long as they need; one that is missing has the deadline
    can_catch_up = is_pool and trouble is None
    if workload and is_progress_over(context.pods, resource.status.conditions, context.now, can_catch_up=can_catch_up):
        return stalled(DEADLINE_EXCEEDED, f"{text}. No progress for {PROGRESS_DEADLINE.seconds // 60} minutes")
    if trouble is not None:
        return under_way(*trouble._replace(message=text))
    is_short = count < replicas or int(status.get("replicas") or 0) != replicas
    return under_way("PodsNotReady" if is_short else "RollingOut", text)


def _journal_cause(journal: Journal | None) -> str | None:
    """That agents wait for the Journal; None if it is ready. Its own message may change at each look: not repeated."""
    found = None if journal is None else condition_of(journal.status.conditions, READY)
    if journal is None or found is None or found.status is not ConditionStatus.FALSE:
        return None
    return f"waiting for Journal {journal.metadata.name}: {found.reason}"


def is_rolled_out(workload: Manifest, replicas: int | None = None) -> bool:
    """Whether all pods of a StatefulSet are ready and of its present template.

    Args:
        workload: The StatefulSet; empty if absent.
        replicas: How many there should be; None takes what the StatefulSet says.
    """
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    wanted = int(spec.get("replicas") or 0) if replicas is None else replicas
    # until the StatefulSet's controller has seen the present template, its counts are those of the one before
    is_seen = status.get("observedGeneration", 0) >= workload.get("metadata", {}).get("generation", 1)
    is_current = status.get("updateRevision") == status.get("currentRevision")
    has_all = int(status.get("readyReplicas") or 0) >= wanted and int(status.get("replicas") or 0) == wanted
    return bool(workload) and is_seen and is_current and has_all


def count_of(metadata: Metadata, live: Live, key: str) -> int:
    """A number of the status of the object's StatefulSet."""
    status: Mapping[str, Any] = workload_of(metadata, live).get("status") or {}
    return int(status.get(key) or 0)
