"""What a SubscriberPool needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from mailboat.api.records import StatusView

from mailboat_operator.definition.conditions import ConditionStatus
from mailboat_operator.definition.metadata import Metadata
from mailboat_operator.kinds.journal.spec import Journal, JournalSpec
from mailboat_operator.kinds.subscriber_pool.autoscaler import MEMBERS_ENDING
from mailboat_operator.kinds.subscriber_pool.manifests import owner_of_pool, pool_children
from mailboat_operator.kinds.subscriber_pool.pool_health import (
    followed_publishers,
    health_of,
    shared_identity,
)
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPool
from mailboat_operator.kinds.workload_context import (
    WorkloadContext,
    count_of,
    roll_out,
    usable_journal,
)
from mailboat_operator.plan.actions import Action, Deregister, Plan
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.plan.children import (
    Live,
    is_applied,
    name_conflict,
    plan_children,
    plan_secret,
    plan_unwanted,
    workload_of,
)
from mailboat_operator.plan.findings import Finding, plan_status, ready_since, stalled, trouble_reports, under_way
from mailboat_operator.plan.labels import POOL, selector_text
from mailboat_operator.workload.agent_manifests import TOKEN_ENDING, token_secret
from mailboat_operator.workload.autoscalers import AUTHENTICATION, AUTOSCALER, SCALED_OBJECT, autoscaler_health
from mailboat_operator.workload.fleet import is_gone, ordinal_of, pause_before_asking
from mailboat_operator.workload.mounts import CONFIG_ENDING
from mailboat_operator.workload.volumes import plan_volumes, volume_findings

_SHARED_MODE: Final = "ReadWriteMany"


def pool_keys(pool: SubscriberPool, *, has_keda: bool = False) -> Sequence[ChildKey]:
    """All children that a SubscriberPool may have, where KEDA is installed or not."""
    owner = owner_of_pool(pool)
    return [
        ChildKey("ConfigMap", owner.name_of(CONFIG_ENDING)),
        ChildKey("Secret", owner.name_of(TOKEN_ENDING)),
        ChildKey("Service", owner.name_of(MEMBERS_ENDING)),
        ChildKey("Service", owner.name_of()),
        ChildKey("PodDisruptionBudget", owner.name_of()),
        ChildKey("StatefulSet", owner.name_of()),
        ChildKey("NetworkPolicy", owner.name_of()),
        ChildKey(AUTOSCALER, owner.name_of()),
        *([ChildKey(kind, owner.name_of()) for kind in (SCALED_OBJECT, AUTHENTICATION)] if has_keda else []),
    ]


def plan_pool(pool: SubscriberPool, context: WorkloadContext) -> Plan:
    """Decide the actions for a pool, and its status. Its children are deleted with it."""
    if pool.metadata.is_deleted:
        return Plan((), None)
    spec, metadata = pool.spec, pool.metadata
    journal = usable_journal(metadata, spec.journal_ref.name, context, (), suspend=spec.suspend)
    if not isinstance(journal, Journal):
        return _plan(pool, context, (), journal)
    findings = _staging_problem(pool, context) or _claim_problem(pool, context)
    if findings is not None:
        return _plan(pool, context, (), findings)
    live, fleet = context.children, context.fleet
    children = pool_children(pool, journal.spec, context, spec.replicas)
    # rendered with the wanted number and applied: no step is left. Members of a shared pool can go all at once: each
    # finishes what it has begun, and the content stays where it is
    is_last = spec.is_shared or is_applied(children, live)
    step = Step(spec.replicas, None) if is_last else next_step(pool, live, fleet)
    if step.replicas != spec.replicas:
        children = pool_children(pool, journal.spec, context, step.replicas)
    secret = token_secret(owner_of_pool(pool))
    findings = name_conflict([secret, *children], live, metadata.uid) or shared_identity(pool, fleet)
    if findings is not None:
        return _plan(pool, context, (), findings)
    actions = [
        *plan_unwanted(pool_keys(pool, has_keda=context.has_keda), [secret, *children], live, metadata.uid),
        *plan_secret(secret, live),
        *plan_children(children, live),
    ]
    findings = step.findings or _keda_problem(pool, context) or _seed_problem(pool, journal.spec)
    return _plan(pool, context, actions, findings or roll_out(pool, context, children))


def _claim_problem(pool: SubscriberPool, context: WorkloadContext) -> Sequence[Finding] | None:
    """That members have no claim in common, or one that only one node can mount."""
    wanted = pool.spec.target.store.claim
    if wanted is None:
        return None
    if context.shared_claim is None:
        return stalled("ClaimMissing", f"no PersistentVolumeClaim {wanted.name}")
    modes = context.shared_claim["spec"].get("accessModes") or []
    if _SHARED_MODE in modes:
        return None
    text = f"PersistentVolumeClaim {wanted.name} has {', '.join(modes)}: members on different nodes can't share it"
    return stalled("ClaimNotShared", f"{text}. Use a claim with {_SHARED_MODE}, or delivery broadcast")


def _keda_problem(pool: SubscriberPool, context: WorkloadContext) -> Sequence[Finding] | None:
    wanted = pool.spec.autoscaling
    if wanted is None or wanted.trigger is None or context.has_keda:
        return None
    return stalled(
        "KedaMissing", "autoscaling.trigger requires KEDA, which is not installed or not visible to the operator"
    )


def _seed_problem(pool: SubscriberPool, journal: JournalSpec) -> Sequence[Finding] | None:
    """That a snapshot is asked for, and no bucket can have it: members begin at the journal's beginning."""
    if pool.spec.seed is None or journal.blobs is not None:
        return None
    name = pool.spec.journal_ref.name
    message = f"seed needs a bucket, and Journal {name} has none: give it blobs, or remove seed"
    return stalled("BucketMissing", message)


def _staging_problem(pool: SubscriberPool, context: WorkloadContext) -> Sequence[Finding] | None:
    """Follow the chain of pools that wait for each other: it must exist, and end."""
    if pool.spec.staging is None:
        return None
    passed, name = {pool.metadata.name}, pool.spec.staging.wait_for.name
    while True:
        if name in passed:
            return stalled("StagingCycle", f"the pools {', '.join(sorted(passed))} wait for each other")
        golden = context.staging.get(name)
        if golden is None:
            return stalled("StagingMissing", f"no SubscriberPool {name} to wait for")
        if golden.is_shared:
            return stalled("StagingShared", f"SubscriberPool {name} has delivery shared: no pool can wait for it")
        if not golden.is_editable:
            return stalled("StagingNotEditable", f"SubscriberPool {name} confirms nothing: it must be editable")
        if golden.waits_for is None:
            return None
        passed.add(name)
        name = golden.waits_for


def _plan(
    pool: SubscriberPool, context: WorkloadContext, actions: Sequence[Action], findings: Sequence[Finding]
) -> Plan:
    metadata, live = pool.metadata, context.children
    unanswered = None if context.unanswered_since is None else context.now - context.unanswered_since
    health = health_of(pool, context.fleet, unanswered)
    gone = [Deregister(name, context.answering_names) for name in departed(pool, live, context.fleet)]
    volume = pool.spec.target.store.volume
    ready_count, replicas = count_of(metadata, live, "readyReplicas"), count_of(metadata, live, "replicas")
    caught_up = min(max(_ready_members(pool, context), health.caught_up or 0), pool.spec.replicas)
    other_findings = [
        *([] if pool.spec.autoscaling is None else [autoscaler_health(metadata.name, live)]),
        *followed_publishers(pool, context.publishers, context.fleet),
        *([] if volume is None else volume_findings(context.claims, volume.size_bytes)),
    ]
    all_findings = [*findings, _caught_up(pool.spec.replicas, caught_up), *health.findings, *other_findings]
    status = replace(
        pool.status,
        replicas=replicas,
        ready_replicas=ready_count,
        caught_up_replicas=caught_up,
        selector=selector_text(POOL, metadata.name),
        max_lag=health.max_lag,
        blocked=health.blocked,
        last_error=health.last_error,
        most_replicas=most_replicas(pool, live),
    )
    all_actions = [
        *([] if volume is None else plan_volumes(context.claims, volume.size_bytes)),
        *gone,
        *actions,
        *health.reports,
        *trouble_reports(other_findings, pool.status.conditions),
    ]
    plan = plan_status(metadata, pool.status, status, all_findings, context.now, all_actions)
    plan = replace(plan, figures=health.figures)
    if findings[0].status is not ConditionStatus.TRUE:
        return plan
    pause = pause_before_asking(context.fleet, ready_since(pool.status.conditions, context.now), context.now)
    return replace(plan, again_seconds=pause)


def _ready_members(pool: SubscriberPool, context: WorkloadContext) -> int:
    """How many members that stay have a ready pod; while others go, as many as are certain."""
    metadata, wanted = pool.metadata, pool.spec.replicas
    going = max(0, count_of(metadata, context.children, "replicas") - wanted)
    named = sum((ordinal_of(pod, metadata.name) or 0) < wanted for pod in context.pods.ready_names) if going else 0
    return max(count_of(metadata, context.children, "readyReplicas") - going, named)


def _caught_up(replicas: int, count: int) -> Finding:
    """A member has caught up when it says so, and when its pod is ready, which takes it."""
    holds = count >= replicas
    reason = "AllMembers" if holds else "MembersBehind"
    return Finding(
        "CaughtUp", ConditionStatus.TRUE if holds else ConditionStatus.FALSE, reason, f"{count} of {replicas} members"
    )


class Step(NamedTuple):
    """How many members run now.

    Attributes:
        replicas: So many.
        findings: What the pool waits for before the next one goes; None when nothing is on its way down.
    """

    replicas: int
    findings: Sequence[Finding] | None


def next_step(pool: SubscriberPool, live: Live, fleet: StatusView | None) -> Step:
    """The next step towards `spec.replicas`, from what the workload was asked for last."""
    metadata, wanted = pool.metadata, pool.spec.replicas
    current = _asked_for(metadata, live)
    if current is None or current <= wanted:
        return Step(wanted, None)
    going = under_way("ScalingDown", f"{current} members, on the way to {wanted}")
    # the StatefulSet still removes the member before: members go one at a time
    if count_of(metadata, live, "replicas") > current:
        return Step(current, going)
    if _may_go(pool, current, count_of(metadata, live, "readyReplicas"), fleet):
        return Step(current - 1, going)
    ready_count = count_of(metadata, live, "readyReplicas")
    text = f"{current} members, on the way to {wanted}; only {ready_count} are ready: the next goes when more are"
    return Step(current, under_way("ScaleDownWaits", text))


def departed(pool: SubscriberPool, live: Live, fleet: StatusView | None) -> Sequence[str]:
    """Members that were scaled away, whose pods are gone, and that publishers still know.

    A name beyond those that the pool ever had is foreign, and left alone.
    """
    name, most = pool.metadata.name, pool.status.most_replicas or 0
    if fleet is None or pool.metadata.is_deleted or pool.spec.is_shared:
        return ()
    if shared_identity(pool, fleet) is not None:  # a name that we no longer use may be a member of the other pool
        return ()
    kept = max(pool.spec.replicas, _asked_for(pool.metadata, live) or 0, count_of(pool.metadata, live, "replicas"))
    members = [(ordinal_of(subscriber.name, name), subscriber) for subscriber in fleet.subscribers]
    return sorted(
        {one.name for number, one in members if number is not None and kept <= number < most and is_gone(one)}
    )


def most_replicas(pool: SubscriberPool, live: Live) -> int:
    """How many members the pool ever had or was about to have."""
    metadata = pool.metadata
    return max(pool.status.most_replicas or 0, _asked_for(metadata, live) or 0, count_of(metadata, live, "replicas"))


def _may_go(pool: SubscriberPool, current: int, ready_count: int, fleet: StatusView | None) -> bool:
    """Whether the highest member can go: it does not serve anyway, or enough others do."""
    if ready_count == 0 or ready_count > pool.spec.replicas:
        return True
    # unknown: the highest member may be the only one that serves
    if fleet is None:
        return False
    highest = f"{pool.metadata.name}-{current - 1}"
    return not any(subscriber.name == highest and subscriber.ready for subscriber in fleet.subscribers)


def _asked_for(metadata: Metadata, live: Live) -> int | None:
    replicas = (workload_of(metadata, live).get("spec") or {}).get("replicas")
    return None if replicas is None else int(replicas)
