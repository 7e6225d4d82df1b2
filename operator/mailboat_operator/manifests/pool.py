"""What a SubscriberPool becomes: members with names and claims of their own, and Services that lead to them.

A member is called as its pod, for ever: its claim holds its content, its position and the id of its instance. The
user's containers find the content read-only in `/content`. A pod is ready when its member has caught up and the user's
containers are ready, so the serving Service leads to nobody earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from mailboat.config.document import (
    AgentsConfig,
    Config,
    ReadinessConfig,
    StagingConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
)

from mailboat_operator.api import API_VERSION
from mailboat_operator.api.journal import JournalSpec
from mailboat_operator.api.pool import Autoscaling, SubscriberPool, Target
from mailboat_operator.api.workload import CONTENT_PATH, CONTENT_VOLUME
from mailboat_operator.manifests.children import Manifest, Owner, digest_of
from mailboat_operator.manifests.configuration import (
    agent_config,
    config_text,
    journal_mounts,
    token_mount,
)
from mailboat_operator.manifests.names import POOL
from mailboat_operator.manifests.pods import HTTP_PORT_NAME, AgentImage, AgentPod
from mailboat_operator.manifests.workloads import (
    CONFIG_ENDING,
    TOKEN_ENDING,
    Members,
    agent_service,
    config_map,
    stateful_set,
)

MEMBERS_ENDING: Final = "members"
SERVING_PORT: Final = 80
REQUESTS_METRIC: Final = "http_requests_per_second"
"""The pods' metric that `requestsPerSecond` scales on; an adapter of the custom metrics API has to give it."""

_CONTENT_FOLDER: Final = "content"
_MEMBER: Final = "member"


def owner_of_pool(pool: SubscriberPool) -> Owner:
    """Whose children these are."""
    return Owner("SubscriberPool", POOL, pool.metadata)


def pool_children(
    pool: SubscriberPool, journal: JournalSpec, image: AgentImage, secrets_digest: str, replicas: int | None = None
) -> Sequence[Manifest]:
    """All children but the token's Secret, in the order in which they are needed.

    Args:
        pool: The object.
        journal: What its members read.
        image: What their agents run.
        secrets_digest: Changes with what is in the Secrets that the agents read at their start.
        replicas: Members that run for now; None for those that the spec wants.
    """
    owner = owner_of_pool(pool)
    config = pool_config(pool, journal)
    spec = pool.spec
    pod = AgentPod(
        image=image,
        config_map=owner.name_of(CONFIG_ENDING),
        config_digest=digest_of([config_text(config), secrets_digest]),
        secrets=[token_mount(owner.name_of(TOKEN_ENDING)), *journal_mounts(journal)],
        volume=CONTENT_VOLUME,
        arguments=("--subscriber", "$(POD_NAME)"),
        resources=spec.resources,
        template=spec.template,
        user_mounts=[{"name": CONTENT_VOLUME, "mountPath": CONTENT_PATH, "subPath": _CONTENT_FOLDER, "readOnly": True}],
    )
    retention = spec.volume_retention
    members = Members(
        pod=pod,
        replicas=spec.replicas if replicas is None else replicas,
        service=owner.name_of(MEMBERS_ENDING),
        volume=spec.target.store.volume,
        when_deleted=str(retention.when_deleted),
        when_scaled=str(retention.when_scaled),
    )
    children = [
        config_map(owner, config),
        agent_service(owner, MEMBERS_ENDING, is_headless=True),
        _serving_service(owner, pool),
        _disruption_budget(owner),
        stateful_set(owner, members),
    ]
    return children if spec.autoscaling is None else [*children, _autoscaler(owner, spec.autoscaling)]


def pool_config(pool: SubscriberPool, journal: JournalSpec) -> Config:
    """What each member's agent reads; its own name it is told beside."""
    spec = pool.spec
    retries, readiness = spec.retries, spec.readiness
    member = SubscriberAgentConfig(
        name=_MEMBER,
        target=_target(spec.target),
        follow=spec.publishers,
        is_editable=spec.editable,
        staging=None
        if spec.staging is None
        else StagingConfig(golden_member(spec.staging.wait_for.name), spec.staging.timeout_seconds),
    )
    return replace(
        agent_config(journal, token_mount(owner_of_pool(pool).name_of(TOKEN_ENDING))),
        subscriber=SubscriberConfig(
            max_retries=None if retries.is_endless else retries.max,
            first_pause_seconds=retries.first_pause_seconds,
            longest_pause_seconds=retries.longest_pause_seconds,
            readiness=ReadinessConfig(
                max_latency_seconds=readiness.max_latency_seconds,
                force_seconds=readiness.force_seconds,
                idle_seconds=readiness.idle_seconds,
                max_lag_seconds=readiness.max_lag_seconds,
            ),
        ),
        agents=AgentsConfig(subscribers=(member,)),
    )


def golden_member(pool: str) -> str:
    """The member of a pool that others wait for: the first, which is the last to go when a pool shrinks."""
    return f"{pool}-0"


def _target(target: Target) -> str:
    if target.generations is not None:
        return f"generations:{_CONTENT_FOLDER}"
    if target.files is not None:
        return f"files:{_CONTENT_FOLDER}"
    return f"sqlite:{_CONTENT_FOLDER}/content.db"


def _serving_service(owner: Owner, pool: SubscriberPool) -> Manifest:
    """Leads to the first port of the user's first container that has one, else to the agents."""
    ports = [port for container in pool.spec.template.spec.containers for port in container.ports]
    target: Any = ports[0].container_port if ports else HTTP_PORT_NAME
    protocol = str(ports[0].protocol) if ports else "TCP"
    port = {"name": "content", "port": SERVING_PORT, "targetPort": target, "protocol": protocol}
    return owner.child("Service", "", {"spec": {"selector": owner.selector, "ports": [port]}})


def _disruption_budget(owner: Owner) -> Manifest:
    """One at a time: a budget on the number that stays would block the draining of a node for a pool of one."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": owner.selector}}
    return owner.child("PodDisruptionBudget", "", {"spec": spec})


def _autoscaler(owner: Owner, wanted: Autoscaling) -> Manifest:
    """Scales the pool itself, so that nobody else decides on the number of pods. Unknown metrics change nothing."""
    target = {"apiVersion": API_VERSION, "kind": owner.kind, "name": owner.metadata.name}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": wanted.min_replicas,
        "maxReplicas": wanted.max_replicas,
        "metrics": [_metric(wanted)],
        "behavior": {
            "scaleDown": {
                "stabilizationWindowSeconds": int(wanted.scale_down_after_seconds),
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
            }
        },
    }
    return owner.child("HorizontalPodAutoscaler", "", {"spec": spec})


def _metric(wanted: Autoscaling) -> Manifest:
    if wanted.cpu_percent is not None:
        target = {"type": "Utilization", "averageUtilization": wanted.cpu_percent}
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    if wanted.external is not None:
        metric: Manifest = {"name": wanted.external.name}
        if wanted.external.match_labels:
            metric["selector"] = {"matchLabels": dict(wanted.external.match_labels)}
        average = {"type": "AverageValue", "averageValue": str(wanted.external.target_average_value)}
        return {"type": "External", "external": {"metric": metric, "target": average}}
    average = {"type": "AverageValue", "averageValue": str(wanted.requests_per_second)}
    return {"type": "Pods", "pods": {"metric": {"name": REQUESTS_METRIC}, "target": average}}
