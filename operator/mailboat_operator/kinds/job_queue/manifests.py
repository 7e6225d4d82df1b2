"""The workers of a JobQueue: a Deployment, and what scales it by the number of due jobs.

A worker that is removed gets SIGTERM: it claims nothing more, finishes its running jobs, and stops them only after
`workers.finish`. The pod's grace period is longer than that, so scaling down never cuts off a running job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from mailboat_operator.definition.encoder import encode
from mailboat_operator.kinds.job_queue.spec import JobQueue, Workers
from mailboat_operator.plan.child_manifest import ChildKey, Manifest, Owner
from mailboat_operator.plan.labels import PUBLISHER, TOKEN_KEY, WORKERS, selector_labels
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.autoscalers import (
    AUTHENTICATION,
    AUTOSCALER,
    SCALED_OBJECT,
    authentication,
    external_metric,
    fallback,
    metrics_trigger,
)
from mailboat_operator.workload.mounts import HTTP_PORT, service_url
from mailboat_operator.workload.pods import (
    TMP_MOUNT,
    TMP_VOLUME,
    AgentImage,
    agent_container,
    restricted_pod,
    user_container,
    user_volume_name,
)
from mailboat_operator.workload.template import AGENT_CONTAINER

ENDING: Final = "workers"
DUE_METRIC: Final = "mailboat_jobs_due"
"""The metric of agents that a HorizontalPodAutoscaler scales by; an adapter has to serve it as an external metric."""

_MARGIN_SECONDS: Final = 20
"""Between the worker's own deadline and SIGKILL: it stops its calls within five seconds, reports them and leaves."""

_POLL_SECONDS: Final = 10


def owner_of_queue(queue: JobQueue) -> Owner:
    """Whose children these are."""
    return Owner("JobQueue", WORKERS, queue.metadata)


def queue_keys(queue: JobQueue, *, has_keda: bool) -> Sequence[ChildKey]:
    """All children that a JobQueue may have, where KEDA is installed or not."""
    kinds = ["Deployment", "NetworkPolicy", AUTOSCALER, *((SCALED_OBJECT, AUTHENTICATION) if has_keda else ())]
    return [ChildKey(kind, owner_of_queue(queue).name_of(ENDING)) for kind in kinds]


def queue_children(
    queue: JobQueue, workers: Workers, image: AgentImage, token_version: str, *, has_keda: bool, policy: AgentPolicy
) -> Sequence[Manifest]:
    """All children.

    Args:
        queue: The object.
        workers: Of its spec.
        image: What workers run unless the spec names another one.
        token_version: Changes with the token, which workers read at their start.
        has_keda: Whether KEDA is installed.
        policy: What the operator's settings say of all agents.
    """
    workers = replace(workers, max=most_workers(queue, workers))
    children = [_deployment(queue, workers, image.of(workers.image), token_version), *_network_policy(queue, policy)]
    if workers.min == workers.max:
        return children
    if has_keda:
        return [
            *children,
            authentication(owner_of_queue(queue), ENDING, workers.token_secret_ref.name),
            _scaled_object(queue, workers),
        ]
    return [*children, _autoscaler(queue, workers)]


def most_workers(queue: JobQueue, workers: Workers) -> int:
    """How many workers have slots for the calls that the queue lets run at once; at least `min`."""
    limit = queue.spec.max_parallel
    useful = workers.max if limit is None else math.ceil(limit / workers.slots)
    return max(workers.min, min(workers.max, useful))


def _deployment(queue: JobQueue, workers: Workers, image: AgentImage, token_version: str) -> Manifest:
    owner = owner_of_queue(queue)
    spec: Manifest = {
        "selector": {"matchLabels": owner.selector},
        "revisionHistoryLimit": 2,
        "template": _pod(queue, workers, image, token_version),
    }
    if workers.min == workers.max:  # otherwise the autoscaler owns the field, and applying it would undo each step
        spec["replicas"] = workers.max
    return owner.child("Deployment", ENDING, {"spec": spec})


def _pod(queue: JobQueue, workers: Workers, image: AgentImage, token_version: str) -> Manifest:
    template = workers.template
    spec: dict[str, Any] = {
        # The first process of a PID namespace ignores SIGTERM until it has a handler for it: a worker that is removed
        # while it starts would claim jobs until SIGKILL. It would not reap what commands leave behind, either.
        "shareProcessNamespace": True,
        # the autoscaler removes any pod, also a busy one: https://github.com/kedacore/keda/issues/157
        "terminationGracePeriodSeconds": int(workers.finish_seconds) + _MARGIN_SECONDS,
        "containers": [_worker(queue, workers, image), *map(user_container, template.spec.containers)],
        "volumes": [{**TMP_VOLUME}],
    }
    owner, account = owner_of_queue(queue), workers.service_account_name
    return restricted_pod(owner, template, spec, token_version, account, is_spread=True)


def _worker(queue: JobQueue, workers: Workers, image: AgentImage) -> Manifest:
    own = [
        {"name": "MAILBOAT_URL", "value": _agent_url(queue)},
        {
            "name": "MAILBOAT_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": workers.token_secret_ref.name, "key": TOKEN_KEY}},
        },
    ]
    mounts = [{**encode(mount), "name": user_volume_name(mount.name)} for mount in workers.volume_mounts]
    container: Manifest = {
        **agent_container(AGENT_CONTAINER, image, workers.resources, [{**TMP_MOUNT}, *mounts]),
        **({"command": list(workers.command)} if workers.command else {"args": _arguments(workers)}),
        "env": [*own, *map(encode, workers.env)],
    }
    if workers.env_from:
        container["envFrom"] = [*map(encode, workers.env_from)]
    return container


def _arguments(workers: Workers) -> list[str]:
    handlers = [word for handler in workers.handlers for word in ("--on", f"{handler.topics}={handler.command}")]
    modules = [word for module in workers.modules for word in ("--import", module)]
    limits = ["--slots", str(workers.slots), "--shutdown-seconds", str(int(workers.finish_seconds))]
    return ["worker", "run", *limits, *handlers, *modules]


def _agent_url(queue: JobQueue) -> str:
    return service_url(queue.spec.publisher_ref.name, queue.metadata.namespace)


def _network_policy(queue: JobQueue, policy: AgentPolicy) -> Sequence[Manifest]:
    """Lets the workers reach the Publisher's agent where a policy of the settings closes it for others."""
    if policy.ingress is None:
        return []
    owner = owner_of_queue(queue)
    spec = {
        "podSelector": {"matchLabels": selector_labels(PUBLISHER, queue.spec.publisher_ref.name)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"podSelector": {"matchLabels": owner.selector}}],
                "ports": [{"port": HTTP_PORT, "protocol": "TCP"}],
            }
        ],
    }
    return [owner.child("NetworkPolicy", ENDING, {"spec": spec})]


def _scaled_object(queue: JobQueue, workers: Workers) -> Manifest:
    owner = owner_of_queue(queue)
    spec = {
        "scaleTargetRef": _target(owner),
        "minReplicaCount": workers.min,
        "maxReplicaCount": workers.max,
        "pollingInterval": _POLL_SECONDS,
        "cooldownPeriod": int(workers.scale_down_after_seconds),
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(workers)}},
        # an agent that does not answer must not remove workers: they wait for it, and finish what they run
        "fallback": fallback(workers.min),
        # the larger demand counts: running calls keep their workers while nothing else is due
        "triggers": [
            _trigger(queue, "due", workers.backlog_per_worker),
            _trigger(queue, "active", workers.slots),
        ],
    }
    return owner.child(SCALED_OBJECT, ENDING, {"spec": spec})


def _trigger(queue: JobQueue, member: str, target: int) -> Manifest:
    url = f"{_agent_url(queue)}/api/v1/jobs/queues/{queue.metadata.name}"
    return metrics_trigger(url, member, target, owner_of_queue(queue).name_of(ENDING))


def _autoscaler(queue: JobQueue, workers: Workers) -> Manifest:
    """Without KEDA: at least one worker, since a HorizontalPodAutoscaler does not scale to zero."""
    owner = owner_of_queue(queue)
    spec = {
        "scaleTargetRef": _target(owner),
        "minReplicas": max(workers.min, 1),
        "maxReplicas": workers.max,
        "metrics": [external_metric(DUE_METRIC, {"queue": queue.metadata.name}, workers.backlog_per_worker)],
        "behavior": _behavior(workers),
    }
    return owner.child(AUTOSCALER, ENDING, {"spec": spec})


def _target(owner: Owner) -> Manifest:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner.name_of(ENDING)}


def _behavior(workers: Workers) -> Manifest:
    return {"scaleDown": {"stabilizationWindowSeconds": int(workers.scale_down_after_seconds)}}
