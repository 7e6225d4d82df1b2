"""What a SubscriberPool becomes: members with names and claims of their own, and Services that lead to them.

A member is always named after its pod: its claim holds its content, its position and the id of its instance. Members
of a shared pool mount one claim instead, and are one subscriber with the name of the pool. The user's containers find
the content read-only in `/content`. A pod is ready when its member has caught up and the user's containers are ready,
so the serving Service has no endpoint earlier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from mailboat.config.document import (
    AgentsConfig,
    Config,
    StagingConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
)

from mailboat_operator.kinds.journal.agent_config import agent_config, journal_mounts
from mailboat_operator.kinds.journal.spec import JournalSpec
from mailboat_operator.kinds.subscriber_pool.autoscaler import MEMBERS_ENDING, autoscalers
from mailboat_operator.kinds.subscriber_pool.spec import ServiceType, SubscriberPool, Target
from mailboat_operator.kinds.workload_context import WorkloadContext, secrets_digest
from mailboat_operator.plan.child_manifest import Manifest, Owner
from mailboat_operator.plan.children import workload_of
from mailboat_operator.plan.labels import POOL
from mailboat_operator.workload.agent_manifests import (
    TOKEN_ENDING,
    agent_service,
    config_map,
    network_policies,
    stateful_set,
)
from mailboat_operator.workload.mounts import HOME_FOLDER, token_mount
from mailboat_operator.workload.pods import HTTP_PORT_NAME, STOP_SECONDS, AgentPod
from mailboat_operator.workload.template import CONTENT_PATH, CONTENT_VOLUME, VolumeClaim
from mailboat_operator.workload.volumes import made_volume

_CONTENT_FOLDER: Final = "content"
_HOME_VOLUME: Final = "home"
_SHARED_PATH: Final = f"{HOME_FOLDER}/shared"
_MEMBER: Final = "member"


def owner_of_pool(pool: SubscriberPool) -> Owner:
    """Whose children these are."""
    return Owner("SubscriberPool", POOL, pool.metadata)


def pool_children(
    pool: SubscriberPool, journal: JournalSpec, context: WorkloadContext, replicas: int
) -> Sequence[Manifest]:
    """The children but the token's Secret, in the order of need; `replicas` members run for now."""
    owner, spec = owner_of_pool(pool), pool.spec
    volume, shared, retention = spec.target.store.volume, spec.target.store.claim, spec.volume_retention
    pod = AgentPod(
        owner=owner,
        spec=spec,
        image=context.image,
        config=context.policy.applied(pool_config(pool, journal)),
        secrets=[token_mount(owner.name_of(TOKEN_ENDING)), *journal_mounts(journal)],
        # without the token's Secret: agents read that file again, so no pod is replaced for a new token
        secrets_digest=secrets_digest(journal_mounts(journal), context.secrets),
        volume=CONTENT_VOLUME if shared is None else _HOME_VOLUME,
        arguments=("--subscriber", "$(POD_NAME)") if shared is None else (),
        is_spread=True,
        drain_seconds=int(spec.drain_seconds),
        finish_seconds=_shutdown_seconds(pool),
        preparation=_seeding(pool),
        volumes=[] if shared is None else _shared_volumes(shared),
        agent_mounts=[] if shared is None else [{"name": CONTENT_VOLUME, "mountPath": _SHARED_PATH}],
        user_mounts=[_content_mount(shared)],
    )
    workload = stateful_set(
        pod,
        replicas,
        owner.name_of(MEMBERS_ENDING),
        None if volume is None else made_volume(workload_of(pool.metadata, context.children), volume),
        when_deleted=str(retention.when_deleted),
        when_scaled=str(retention.when_scaled),
    )
    children = [
        config_map(owner, pod.config),
        agent_service(owner, MEMBERS_ENDING, is_headless=True),
        _serving_service(owner, pool),
        _disruption_budget(owner),
        *network_policies(owner, spec.template, context.policy),
        workload,
    ]
    wanted = spec.autoscaling
    if wanted is None or (wanted.trigger is not None and not context.has_keda):
        return children
    return [*children, *autoscalers(owner, wanted, has_keda=context.has_keda)]


def _shutdown_seconds(pool: SubscriberPool) -> int:
    """The agent's time to stop; it keeps a fifth of it for what follows the last package."""
    return math.ceil(pool.spec.finish_seconds * 1.25) if pool.spec.is_shared else STOP_SECONDS


def _shared_volumes(claim: VolumeClaim) -> Sequence[Manifest]:
    """The claim that all members mount, and a home that is gone with the pod: what is to be kept is in the target."""
    return [
        {"name": _HOME_VOLUME, "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": CONTENT_VOLUME, "persistentVolumeClaim": {"claimName": claim.name}},
    ]


def _content_mount(shared: VolumeClaim | None) -> Manifest:
    """The content, in a container of the user's."""
    mount: Manifest = {"name": CONTENT_VOLUME, "mountPath": CONTENT_PATH, "readOnly": True}
    folder = _CONTENT_FOLDER if shared is None else shared.folder
    return mount if folder is None else {**mount, "subPath": folder}


def pool_config(pool: SubscriberPool, journal: JournalSpec) -> Config:
    """Configuration of each member's agent, without its own name."""
    spec = pool.spec
    retries = spec.retries
    member = SubscriberAgentConfig(
        name=pool.metadata.name if spec.is_shared else _MEMBER,
        target=_target(spec.target),
        delivery=spec.delivery,
        slots=spec.slots,
        follow=spec.publishers,
        roots=spec.roots,
        editable=spec.editable,
        staging=None
        if spec.staging is None
        else StagingConfig(golden_member(spec.staging.wait_for.name), spec.staging.timeout_seconds),
    )
    return replace(
        agent_config(journal, token_mount(owner_of_pool(pool).name_of(TOKEN_ENDING))),
        subscriber=SubscriberConfig(
            max_retries=None if retries.unlimited else retries.max,
            first_pause_seconds=retries.first_pause_seconds,
            longest_pause_seconds=retries.longest_pause_seconds,
            shutdown_seconds=float(_shutdown_seconds(pool)),
            expose=spec.expose,
            readiness=spec.readiness,
            pieces=spec.pieces,
        ),
        limits=spec.limits,
        agents=AgentsConfig(subscribers=(member,)),
    )


def golden_member(pool: str) -> str:
    """The member of a pool that others wait for: the first, which is the last to go when a pool shrinks."""
    return f"{pool}-0"


def _target(target: Target) -> str:
    claim = target.store.claim
    place = _CONTENT_FOLDER if claim is None else "/".join([_SHARED_PATH, *filter(None, [claim.folder])])
    if target.generations is not None:
        return f"generations:{place}"
    return f"files:{place}" if target.files is not None else f"sqlite:{place}/content.db"


def _seeding(pool: SubscriberPool) -> Sequence[str]:
    """What runs before the agent of a member with a seed: it restores where that helps, and changes nothing else."""
    if pool.spec.seed is None:
        return ()
    kind, _, place = _target(pool.spec.target).partition(":")
    into = f"{kind}:{HOME_FOLDER}/{place}"
    return ("content", "restore", f"blob:{pool.spec.seed.snapshot}", "--into", into, "--seed")


def _serving_service(owner: Owner, pool: SubscriberPool) -> Manifest:
    """Leads to the first port of the user's first container that has one, else to the agents."""
    ports = [port for container in pool.spec.template.spec.containers for port in container.ports]
    target: Any = ports[0].container_port if ports else HTTP_PORT_NAME
    protocol = str(ports[0].protocol) if ports else "TCP"
    wanted = pool.spec.service
    port = {"name": "content", "port": wanted.port, "targetPort": target, "protocol": protocol}
    spec: Manifest = {"selector": owner.selector, "ports": [port]}
    if wanted.type is not ServiceType.CLUSTER_IP:
        spec["type"] = str(wanted.type)
    return owner.child("Service", "", {"spec": spec}, wanted.annotations)


def _disruption_budget(owner: Owner) -> Manifest:
    """One member at a time, and any that is not ready."""
    spec = {
        # a budget on the number that stays would block the draining of a node for a pool of one
        "maxUnavailable": 1,
        "selector": {"matchLabels": owner.selector},
        # By default a pod that is not ready stays while no other may go: the node of a pool of one could not be drained
        # for as long as its member catches up or is blocked.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return owner.child("PodDisruptionBudget", "", {"spec": spec})
