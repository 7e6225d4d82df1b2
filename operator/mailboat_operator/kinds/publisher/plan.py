"""What a Publisher needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from mailboat.api.records import StatusView, SubscriberStatusView

from mailboat_operator.definition.conditions import ConditionStatus
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.publisher.manifests import (
    owner_of_publisher,
    publisher_children,
    user_mounts,
)
from mailboat_operator.kinds.publisher.spec import MOST_KNOWN_POOLS, KnownPool, Publisher, PublisherStatus
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPool
from mailboat_operator.kinds.workload_context import (
    WorkloadContext,
    roll_out,
    usable_journal,
)
from mailboat_operator.plan.actions import Action, Deregister, Plan
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.plan.children import name_conflict, plan_children, plan_secret, plan_unwanted
from mailboat_operator.plan.findings import Finding, plan_status, ready_since, trouble_reports, whole_seconds
from mailboat_operator.workload.agent_manifests import TOKEN_ENDING, token_secret
from mailboat_operator.workload.fleet import (
    coarse,
    followers,
    is_gone,
    max_lag,
    pause_before_asking,
    published_at,
    subscribers_of,
)
from mailboat_operator.workload.mounts import CONFIG_ENDING, service_url
from mailboat_operator.workload.volumes import plan_volumes, volume_findings

GOING_SECONDS: Final = 5.0
"""How often to look while pods of a deleted pool end."""


def publisher_keys(publisher: Publisher) -> Sequence[ChildKey]:
    """All children that a Publisher may have."""
    owner = owner_of_publisher(publisher)
    return [
        ChildKey("ConfigMap", owner.name_of(CONFIG_ENDING)),
        ChildKey("Secret", owner.name_of(TOKEN_ENDING)),
        ChildKey("Service", owner.name_of()),
        ChildKey("StatefulSet", owner.name_of()),
        ChildKey("NetworkPolicy", owner.name_of()),
    ]


def plan_publisher(publisher: Publisher, context: WorkloadContext) -> Plan:
    """Decide the actions for a Publisher, and its status. Its children are deleted with it."""
    if publisher.metadata.is_deleted:
        return Plan((), None)
    spec, metadata = publisher.spec, publisher.metadata
    mounts = user_mounts(publisher)
    journal = usable_journal(metadata, spec.journal_ref.name, context, mounts, suspend=spec.suspend)
    if not isinstance(journal, Journal):
        return _plan(publisher, context, (), journal)
    children = publisher_children(publisher, journal.spec, context)
    owner = owner_of_publisher(publisher)
    secrets = [token_secret(owner)] if spec.http.token_secret_ref is None else []
    findings = name_conflict([*secrets, *children], context.children, metadata.uid)
    if findings is not None:
        return _plan(publisher, context, (), findings)
    live = context.children
    policy = ChildKey("NetworkPolicy", owner.name_of())
    actions = [
        *plan_unwanted([policy], children, live, metadata.uid),
        *(action for secret in secrets for action in plan_secret(secret, live)),
        *plan_children(children, live),
    ]  # a token of ours that is unused goes with the Publisher: no right to delete Secrets is needed
    return _plan(publisher, context, actions, roll_out(publisher, context, children))


def _plan(
    publisher: Publisher, context: WorkloadContext, actions: Sequence[Action], findings: Sequence[Finding]
) -> Plan:
    metadata = publisher.metadata
    pools = known_pools(publisher.status.pools, context.pools, context.fleet, context.undecodable_pools)
    # a stricter version of the definitions deletes no pool: its members run on, and stay registered
    there = {pool.metadata.name for pool in context.pools} | context.undecodable_pools
    size_bytes = publisher.spec.volume.size_bytes
    volumes = volume_findings(context.claims, size_bytes)
    gone = [
        Deregister(name, context.answering_names) for name in left_behind(publisher.status.pools, there, context.fleet)
    ]
    before = publisher.status
    status = replace(
        _with_figures(before, metadata.name, context.fleet),
        url=service_url(metadata.name, metadata.namespace),
        pools=tuple(pools),
    )
    all_actions = [
        *plan_volumes(context.claims, size_bytes),
        *gone,
        *actions,
        *trouble_reports(volumes, before.conditions),
    ]
    plan = plan_status(metadata, before, status, [*findings, *volumes], context.now, all_actions)
    if findings[0].status is not ConditionStatus.TRUE:
        return plan
    pause = pause_before_asking(context.fleet, ready_since(before.conditions, context.now), context.now)
    # publishers wait for registered members, so the members of a deleted pool are removed soon
    return replace(plan, again_seconds=GOING_SECONDS if are_going(pools, there) else pause)


def _with_figures(before: PublisherStatus, name: str, fleet: StatusView | None) -> PublisherStatus:
    """The figures of its agent; the last known ones where it did not answer."""
    if fleet is None:
        return before
    following, last_at = followers(fleet, name), published_at(fleet).get(name, before.last_published_at)
    return replace(
        before,
        next_offset=fleet.journal.next_offset,
        subscribers=len({member.name for member in following}),
        max_lag=coarse(max_lag(following)),
        last_published_at=None if last_at is None else whole_seconds(last_at),
    )


def known_pools(
    before: Sequence[KnownPool],
    pools: Sequence[SubscriberPool],
    fleet: StatusView | None,
    undecodable: Collection[str] = (),
) -> list[KnownPool]:
    """What to note: existing pools, and deleted ones as long as a member is registered; at most MOST_KNOWN_POOLS."""
    known = {pool.name: pool for pool in before}
    for pool in pools:
        name, most = pool.metadata.name, max(pool.spec.replicas, pool.status.most_replicas or 0)
        most = max(most, known[name].members) if name in known else most
        known[name] = KnownPool(name, most, pool.spec.is_shared)
    there = {pool.metadata.name for pool in pools} | {*undecodable}
    # A finalizer on pools would hang where the operator is uninstalled first; so the status names the pools whose
    # members are to be deregistered, also after a restart of the operator.
    kept = [pool for pool in known.values() if pool.name in there or fleet is None or any(_of(pool, fleet))]
    # Deleted pools are listed first: the members of one that is cut off are never deregistered, and publishers wait for
    # them until they forget them, an hour later. So it is with an existing pool that is deleted while it is cut off.
    return sorted(kept, key=lambda pool: (pool.name in there, pool.name))[:MOST_KNOWN_POOLS]


def left_behind(known: Sequence[KnownPool], there: Collection[str], fleet: StatusView | None) -> list[str]:
    """Members of deleted pools none of whose members runs any longer; `there` are the names of those that exist."""
    deleted = [[*_of(pool, fleet)] for pool in known if pool.name not in there]
    # While one runs, the names may be those of another namespace's pool, whose members restart now and then: what a
    # deregistered member has not read may be removed from the journal.
    return sorted({member.name for members in deleted if all(map(is_gone, members)) for member in members})


def are_going(known: Sequence[KnownPool], there: Collection[str]) -> bool:
    """Whether a deleted pool still has registered members."""
    return any(pool.name not in there for pool in known)


def _of(pool: KnownPool, fleet: StatusView | None) -> Iterator[SubscriberStatusView]:
    """The pool's subscribers; a name beyond those that the pool ever had is foreign."""
    names = {*subscribers_of(pool.name, pool.members, is_shared=pool.shared)}
    return (subscriber for subscriber in (() if fleet is None else fleet.subscribers) if subscriber.name in names)
