"""What a JobQueue needs: its settings in the journal, through its Publisher's agent, and its workers.

The settings are records of the log: workers with different settings would decide differently. They are written when the
spec changed since they were written last, and when the agent shows other ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Final

from mailboat.api.job_views import JobQueueView
from mailboat.config.section_keys import LARGEST_INTEGER
from mailboat.errors import AgentRefusedError, AgentUnreachableError
from mailboat.frozen import Frozen
from mailboat.model.jobs import DEFAULT_QUEUE, QueueKind, QueueSettings, patterns_overlap

from mailboat_operator.definition.conditions import ConditionStatus, ReclaimPolicy
from mailboat_operator.kinds.agent_obstacles import agent_problem, awaited_error, reason_to_keep
from mailboat_operator.kinds.job_queue.manifests import ENDING, most_workers, owner_of_queue, queue_children, queue_keys
from mailboat_operator.kinds.job_queue.spec import JobQueue, JobQueueStatus, Workers
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.kinds.workload_context import SecretFound
from mailboat_operator.plan.actions import (
    Action,
    Hold,
    Plan,
    RecordEvent,
    RemoveQueue,
    SetQueue,
    Severity,
    SuspendQueue,
    is_held,
)
from mailboat_operator.plan.child_manifest import ChildKey, Manifest, condition_in, digest_of, key_of
from mailboat_operator.plan.children import Live, is_applied, name_conflict, plan_children, plan_unwanted
from mailboat_operator.plan.findings import (
    Finding,
    is_paused,
    is_ready,
    pause_of,
    plan_status,
    ready,
    stalled,
    suspended,
    trouble_reports,
    under_way,
    whole_seconds,
)
from mailboat_operator.plan.labels import TOKEN_KEY
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.autoscalers import autoscaler_health
from mailboat_operator.workload.fleet import coarse
from mailboat_operator.workload.pod_failures import (
    DEADLINE_EXCEEDED,
    MISCONFIGURED,
    PROGRESS_DEADLINE,
    Pods,
    refused_pods,
    trouble_of,
)
from mailboat_operator.workload.pods import AgentImage

FOLLOW_SECONDS: Final = 15.0
"""How often a queue is observed for its counts."""

TOPICS_DISTINCT: Final = "TopicsDistinct"
_SOON_SECONDS: Final = 2.0
_MILLISECONDS: Final = 1000
_SHOWN: Final = 5


class JobQueueObservation(Frozen):
    """What was observed around a JobQueue.

    Attributes:
        now: The time of the observation.
        image: What workers run unless the spec names another image.
        publisher: Its Publisher; None if absent, or not decodable.
        owner: The other JobQueue, by namespace and name, that keeps the queue of this name in the same log.
        queues: All queues of the log; None if the agent was not asked, or gave no answer.
        error: The agent's error instead of an answer.
        token: The workers' Secret; None if it does not exist.
        children: The live children.
        has_keda: Whether KEDA is installed.
        pods: Of the workers, while not all are ready.
        policy: What the operator's settings say of all agents.
    """

    now: datetime
    image: AgentImage
    publisher: Publisher | None = None
    owner: tuple[str, str] | None = None
    queues: Sequence[JobQueueView] | None = None
    error: AgentUnreachableError | AgentRefusedError | None = None
    token: SecretFound | None = None
    children: Live = field(default_factory=dict)
    has_keda: bool = False
    pods: Pods = field(default_factory=Pods)
    policy: AgentPolicy = field(default_factory=AgentPolicy)


def settings_of(queue: JobQueue) -> QueueSettings:
    """The queue as the journal keeps it."""
    spec, retries = queue.spec, queue.spec.retries
    rate, merge = spec.rate, spec.merge
    return QueueSettings(
        name=queue.metadata.name,
        topics=spec.topics,
        kind=QueueKind[spec.type.upper()],
        max_parallel=-1 if spec.max_parallel is None else spec.max_parallel,
        rate=0 if rate is None else rate.starts,
        rate_period_ms=1_000 if rate is None else _milliseconds(rate.period_seconds),
        merge=1 if merge is None else merge.jobs,
        merge_within_ms=0 if merge is None else _milliseconds(merge.within_seconds),
        retries=-1 if retries.unlimited else retries.max,
        retry_delay_ms=_milliseconds(retries.first_pause_seconds),
        max_retry_delay_ms=_milliseconds(retries.longest_pause_seconds),
        history_ms=_milliseconds(spec.history_seconds),
        parallel_percent=spec.parallel_percent or 0,
    )


def plan_job_queue(queue: JobQueue, seen: JobQueueObservation) -> Plan:
    """Decide what to do for a JobQueue, and what to report of it."""
    metadata = queue.metadata
    if metadata.is_deleted:
        return _plan_deleted(queue, seen) if is_held(metadata) else Plan((), None)
    if is_paused(metadata, suspend=False):
        return _plan(queue, seen, (), suspended(suspend=False))
    is_reclaimed = queue.spec.reclaim_policy is ReclaimPolicy.DELETE and seen.owner is None
    if is_reclaimed != is_held(metadata):
        return Plan((Hold(is_reclaimed),), None, again_seconds=0.0)
    problem = _problem(queue, seen)
    if problem is not None:
        return replace(_plan(queue, seen, (), problem), again_seconds=pause_of(seen.error) or FOLLOW_SECONDS)
    return _plan_kept(queue, seen)


def _plan_kept(queue: JobQueue, seen: JobQueueObservation) -> Plan:
    workers, live, uid = queue.spec.workers, seen.children, queue.metadata.uid
    version = "" if seen.token is None else seen.token.version
    children = (
        []
        if workers is None
        else queue_children(queue, workers, seen.image, version, has_keda=seen.has_keda, policy=seen.policy)
    )
    children = [_with_size(child, live) for child in children]
    conflict = name_conflict(children, live, uid)
    if conflict is not None:
        return _plan(queue, seen, (), conflict)
    view = _view(queue, seen)
    changes = [*_changes(queue, view)]
    around = _around(queue, seen)
    actions = [
        *changes,
        *plan_unwanted(queue_keys(queue, has_keda=seen.has_keda), children, live, uid),
        *plan_children(children, live),
        *trouble_reports(around, queue.status.conditions),
    ]
    findings = (
        ready("the queue is in the journal") if workers is None else _workers_ready(queue, workers, seen, children)
    )
    # with the digest as if the changes were made: where one fails, `plan_for` drops this status
    plan = _plan(queue, seen, actions, [*findings, *around], digest_of(settings_of(queue)))
    return replace(plan, again_seconds=_SOON_SECONDS if view is None else FOLLOW_SECONDS)


def _with_size(child: Manifest, live: Live) -> Manifest:
    """A Deployment that an autoscaler scales, with the number of workers that it has; any other child as it is."""
    found = live.get(key_of(child))
    if child["kind"] != "Deployment" or "replicas" in child["spec"] or found is None:
        return child
    # A fixed number that is no longer applied would become 1, the API server's default, until the autoscaler acts.
    return {**child, "spec": {**child["spec"], "replicas": int(found["spec"].get("replicas") or 0)}}


def _problem(queue: JobQueue, seen: JobQueueObservation) -> Sequence[Finding] | None:
    """Why nothing is changed at the moment."""
    workers = queue.spec.workers
    if seen.owner is not None:
        namespace, other = seen.owner
        message = f"queue {other} of this journal belongs to the JobQueue of namespace {namespace}, which is older"
        return stalled("QueueTaken", message)
    if workers is not None and seen.publisher is not None and (seen.token is None or TOKEN_KEY not in seen.token.keys):
        secret = workers.token_secret_ref.name
        return stalled("SecretMissing", f"missing: entry {TOKEN_KEY} of Secret {secret}")
    return agent_problem(queue.spec.publisher_ref.name, seen.publisher, seen.error)


def _changes(queue: JobQueue, view: JobQueueView | None) -> Iterator[Action]:
    wanted, status = settings_of(queue), queue.status
    is_applied = status.applied == digest_of(wanted)
    # Events are for changes by other clients: after a change of the spec the difference is this object's own.
    if view is None or not is_applied or _shown(wanted) != _seen(view):
        yield SetQueue(wanted)
        if view is not None and is_applied:
            message = f"queue {wanted.name}: reverted a change by another client"
            yield RecordEvent(Severity.WARNING, "DriftCorrected", message)
    is_suspended = view is not None and view.suspended
    if queue.spec.suspend and not is_suspended:
        yield SuspendQueue(wanted.name, suspended=True)
    elif is_suspended and status.suspended and not queue.spec.suspend:
        # one that a person suspended with `jobs suspend` stays suspended
        yield SuspendQueue(wanted.name, suspended=False)


def _shown(settings: QueueSettings) -> tuple[object, ...]:
    """The settings that the agent shows of a queue."""
    kind, topics = settings.kind.name.lower(), tuple(settings.topics)
    return kind, topics, settings.max_parallel, settings.parallel_percent, settings.merge, settings.shown_rate


def _seen(view: JobQueueView) -> tuple[object, ...]:
    return view.kind, view.topics, view.max_parallel, view.parallel_percent, view.merge, view.rate


def _around(queue: JobQueue, seen: JobQueueObservation) -> Sequence[Finding]:
    workers = queue.spec.workers
    found = [_distinct(queue, seen.queues or ())]
    if workers is not None and workers.min != most_workers(queue, workers):
        found.append(autoscaler_health(owner_of_queue(queue).name_of(ENDING), seen.children))
    return found


def _distinct(queue: JobQueue, queues: Sequence[JobQueueView]) -> Finding:
    """Whether the patterns of other queues match none of the topics."""
    others = [
        other.queue
        for other in queues
        if other.queue != queue.metadata.name
        and any(patterns_overlap(ours, theirs) for ours in queue.spec.topics for theirs in other.topics)
    ]
    if not others:
        return Finding(TOPICS_DISTINCT, ConditionStatus.TRUE, "NoOverlap", "")
    first = min([queue.metadata.name, *others])
    text = f"patterns overlap with those of {', '.join(others[:_SHOWN])}; {first}, the first by name, gets such jobs"
    return Finding(TOPICS_DISTINCT, ConditionStatus.FALSE, "TopicsOverlap", text)


def _workers_ready(
    queue: JobQueue, workers: Workers, seen: JobQueueObservation, children: Sequence[Manifest]
) -> Sequence[Finding]:
    """Ready while one worker is, or none is wanted, and none is to be replaced; scaling alone changes no condition."""
    found = seen.children.get(ChildKey("Deployment", owner_of_queue(queue).name_of(ENDING)))
    if found is None:
        return under_way("WorkersStarting", "the workers are being created")
    status: Mapping[str, int] = found.get("status") or {}
    wanted, count = int(found["spec"].get("replicas") or 0), int(status.get("readyReplicas") or 0)
    text = f"{count} of {wanted} workers ready"
    if workers.min == 0 and not seen.has_keda:
        text = f"{text}; without KEDA one worker stays"
    trouble = trouble_of(seen.pods, seen.now) or refused_pods(found)
    if trouble is not None and trouble.reason == MISCONFIGURED:
        return stalled(MISCONFIGURED, f"{text}; {trouble.message}")
    is_current = is_applied([child for child in children if child["kind"] == "Deployment"], seen.children)
    is_over = is_current and not _is_rolling_out(found, was_ready=is_ready(queue.status.conditions))
    if wanted == 0 or (count > 0 and is_over):
        return ready(text)
    text = text if trouble is None else f"{text}; {trouble.message}"
    if condition_in(found, "Progressing").get("reason") == DEADLINE_EXCEEDED:  # Kubernetes' default is ten minutes, too
        return stalled(DEADLINE_EXCEEDED, f"{text}. No progress for {PROGRESS_DEADLINE.seconds // 60} minutes")
    if trouble is not None:
        return under_way(trouble.reason, text)
    return under_way("RollingOut" if count > 0 else "PodsNotReady", text)


def _is_rolling_out(deployment: Manifest, *, was_ready: bool) -> bool:
    """Whether workers of an earlier template run, or counts are those of before it."""
    status: Mapping[str, Any] = deployment.get("status") or {}
    if int(status.get("updatedReplicas") or 0) < int(status.get("replicas") or 0):
        return True
    # An autoscaler's step is a generation, too; a template of ours ends Ready before it is applied.
    is_seen = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    return not was_ready and not is_seen


def _plan_deleted(queue: JobQueue, seen: JobQueueObservation) -> Plan:
    """Drop the queued jobs and the queue, unless something is in doubt; no deletion waits longer than the limit."""
    if queue.spec.reclaim_policy is ReclaimPolicy.RETAIN:
        return Plan((Hold(is_held=False),), None)
    name, error = queue.metadata.name, awaited_error(queue, seen.publisher, seen.error, seen.now)
    if error is not None and seen.owner is None:
        text = f"{error.message}; to keep the queue and release the object now, set reclaimPolicy to Retain"
        return replace(_plan(queue, seen, (), under_way("AgentUnreachable", text)), again_seconds=FOLLOW_SECONDS)
    reason = reason_to_keep(queue, seen.publisher, seen.error)
    reason = "another JobQueue keeps it" if seen.owner is not None else reason
    # Before anything is sent: its jobs would be dropped, among them all that no other queue takes.
    reason = "no journal is without its default queue" if name == DEFAULT_QUEUE else reason
    if reason is not None:
        report = RecordEvent(Severity.WARNING, "QueueRetained", f"queue {name} is kept: {reason}")
        return Plan((Hold(is_held=False), report), None)
    if _view(queue, seen) is None:
        return Plan((Hold(is_held=False),), None)
    report = RecordEvent(Severity.NORMAL, "QueueDeleted", f"queue {name} and its queued jobs are deleted")
    return Plan((RemoveQueue(name), Hold(is_held=False), report), None)


def _view(queue: JobQueue, seen: JobQueueObservation) -> JobQueueView | None:
    return next((view for view in seen.queues or () if view.queue == queue.metadata.name), None)


def _plan(
    queue: JobQueue,
    seen: JobQueueObservation,
    actions: Sequence[Action],
    findings: Sequence[Finding],
    applied: str | None = None,
) -> Plan:
    """The plan with its status; `applied` is the digest of settings that its actions leave in the journal."""
    status = _with_counts(queue.status, _view(queue, seen))
    if applied is not None:
        status = replace(status, applied=applied, suspended=queue.spec.suspend or None)
    return plan_status(queue.metadata, queue.status, status, findings, seen.now, actions)


def _with_counts(before: JobQueueStatus, view: JobQueueView | None) -> JobQueueStatus:
    """The counts of the agent, within the bounds of the schema; the last known ones if it gave none."""
    if view is None:
        return before
    return replace(
        before,
        queued=coarse(_bounded(view.queued)),
        due=coarse(_bounded(view.due)),
        active=_bounded(view.active),
        oldest_at=None if view.oldest_at is None else whole_seconds(view.oldest_at),
        workers=_bounded(view.workers),
        given_up=_bounded(view.given_up),
    )


def _bounded(count: int) -> int:
    return min(max(count, 0), LARGEST_INTEGER)  # beyond it, readers of JSON would round


def _milliseconds(seconds: float) -> int:
    return round(seconds * _MILLISECONDS)
