"""Pods of agents: the agent's container, the user's containers, and what the restricted profile asks for.

A template's records have no field for anything privileged; what else the profile requires is set here, for every
container alike, so that nothing of a template can weaken it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Protocol

from mailboat.config.document import Config
from mailboat.frozen import Frozen

from mailboat_operator.definition.encoder import encode, encode_field
from mailboat_operator.definition.fields import keys_of
from mailboat_operator.plan.child_manifest import Owner, digest_of
from mailboat_operator.plan.labels import COMPONENT, CONFIG_DIGEST, INSTANCE, NAME
from mailboat_operator.workload.mounts import (
    CONFIG_ENDING,
    CONFIG_FILE,
    CONFIG_FOLDER,
    HOME_FOLDER,
    HTTP_PORT,
    SecretMount,
    config_text,
)
from mailboat_operator.workload.placement import Placement
from mailboat_operator.workload.template import (
    AGENT_CONTAINER,
    PREPARATION_CONTAINER,
    Amounts,
    Container,
    InitContainer,
    NamedVolume,
    Resources,
    Template,
)

HTTP_PORT_NAME: Final = "mailboat"
STOP_SECONDS: Final = 25
"""In which an agent stops, by its own default: it finishes the current package, and announces its end."""

_MARGIN_SECONDS: Final = 20
"""Between that and SIGKILL."""

CONTAINER_SECURITY: Final = MappingProxyType(
    {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
)
POD_SECURITY: Final = MappingProxyType(
    {
        "runAsNonRoot": True,
        "fsGroup": 65532,
        # else the kubelet changes the group of all files of a volume at each start of a pod
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
)
_OVER_NODES: Final = MappingProxyType(
    {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
)
"""Without leaving a pod unscheduled where there are too few nodes."""
_LEAST: Final = Amounts("20m", 128 * 1024**2)
_LONGEST_NAME: Final = 63


class AgentImage(Frozen):
    """What agents run.

    Attributes:
        name: With registry and tag.
        pull_policy: As Kubernetes calls it; None leaves it to the cluster.
    """

    name: str
    pull_policy: str | None = None

    def of(self, name: str | None) -> AgentImage:
        """The image that an object names; this one where it names none."""
        return self if name is None else replace(self, name=name)


class AgentSpec(Protocol):
    """What the specs of Publishers and SubscriberPools say of their pods."""

    @property
    def image(self) -> str | None: ...
    @property
    def resources(self) -> Resources: ...
    @property
    def template(self) -> Template: ...
    @property
    def service_account_name(self) -> str | None: ...


class AgentPod(Frozen):
    """A pod to render.

    Attributes:
        owner: Whose pod it is.
        spec: Of the owner.
        image: What the agent runs unless the spec names another image.
        config: What the agent reads.
        secrets: That the agent reads.
        secrets_digest: Changes with what is in those that the agent reads at its start.
        volume: Name of the volume with the agent's home.
        arguments: Of `mailboat agent run`, besides configuration and home.
        volumes: More volumes of the pod.
        agent_mounts: Of these, in the agent.
        user_mounts: Of these, in each of the user's containers.
        preparation: Arguments of `mailboat` that run before the agent, with its configuration and home; none: nothing.
        is_spread: Whether members go to different nodes as far as that is possible.
        drain_seconds: The user's containers are stopped so long after the pod was taken out of its Service.
        finish_seconds: In which the agent stops.
    """

    owner: Owner
    spec: AgentSpec
    image: AgentImage
    config: Config
    secrets: Sequence[SecretMount]
    secrets_digest: str
    volume: str
    arguments: Sequence[str] = ()
    volumes: Sequence[Mapping[str, Any]] = ()
    agent_mounts: Sequence[Mapping[str, Any]] = ()
    user_mounts: Sequence[Mapping[str, Any]] = ()
    preparation: Sequence[str] = ()
    is_spread: bool = False
    drain_seconds: int = 0
    finish_seconds: int = STOP_SECONDS


def pod_template(pod: AgentPod) -> dict[str, Any]:
    """The pod template of a workload."""
    wanted, labels, account = pod.spec.template, pod.owner.labels, pod.spec.service_account_name
    before = [*([_preparation(pod)] if pod.preparation else []), *map(init_container, wanted.spec.init_containers)]
    return {
        "metadata": {
            "labels": {**wanted.metadata.labels, **labels},
            "annotations": {
                **wanted.metadata.annotations,
                CONFIG_DIGEST: digest_of([config_text(pod.config), pod.secrets_digest]),
            },
        },
        "spec": {
            **restricted(wanted.spec, labels, account, is_spread=pod.is_spread),
            # the grace period includes the preStop hooks, which sleep for the drain
            "terminationGracePeriodSeconds": pod.finish_seconds + _MARGIN_SECONDS + pod.drain_seconds,
            **({"initContainers": before} if before else {}),
            "containers": [_agent(pod), *(_user_container(container, pod) for container in wanted.spec.containers)],
            "volumes": _volumes(pod),
        },
    }


def restricted(
    placement: Placement, labels: Mapping[str, str], account: str | None, *, is_spread: bool = False
) -> dict[str, Any]:
    """What a pod's spec says of its nodes, its pull secrets, its ids and its account, whose token it does not get.

    Args:
        placement: What the object says.
        labels: Of its pods; constraints without a selector count these.
        account: Name of its service account; None for the default one.
        is_spread: Whether pods go to different nodes as far as that is possible, unless the object says more.
    """
    own = {key: labels[key] for key in (NAME, COMPONENT, INSTANCE)}
    settings = {
        key.name: encode_field(key, getattr(placement, key.attribute))
        for key in keys_of(Placement)
        if getattr(placement, key.attribute)
    }
    settings["securityContext"] = {**POD_SECURITY, **settings["securityContext"]}
    spread = settings.get("topologySpreadConstraints") or ([_OVER_NODES] if is_spread else [])
    if spread:
        settings["topologySpreadConstraints"] = [
            {"labelSelector": {"matchLabels": own}, **constraint} for constraint in spread
        ]
    if account is not None:
        settings["serviceAccountName"] = account
    return {**settings, "automountServiceAccountToken": False, "enableServiceLinks": False}


def promised(resources: Resources) -> Resources:
    """With requests: a BestEffort pod is evicted first. A limit counts as a request."""
    return resources if resources.requests or resources.limits else replace(resources, requests=_LEAST)


def _agent(pod: AgentPod) -> dict[str, Any]:
    config, image = f"{CONFIG_FOLDER}/{CONFIG_FILE}", pod.image.of(pod.spec.image)
    container: dict[str, Any] = {
        "name": AGENT_CONTAINER,
        "image": image.name,
        "args": ["agent", "run", "--config", config, "--home", HOME_FOLDER, *pod.arguments],
        "ports": [{"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        # two minutes to open a large target; until then liveness is not probed
        "startupProbe": {**_probe("/healthz"), "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {**_probe("/healthz"), "periodSeconds": 20, "failureThreshold": 3},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 2, "failureThreshold": 2},
        "resources": encode(promised(pod.spec.resources)),
        "securityContext": {**CONTAINER_SECURITY, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": pod.volume, "mountPath": HOME_FOLDER},
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # a volume of this pod alone, in memory
            *(secret.volume_mount for secret in pod.secrets),
            *pod.agent_mounts,
        ],
    }
    if any("$(POD_NAME)" in argument for argument in pod.arguments):
        field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
        container["env"] = [{"name": "POD_NAME", "valueFrom": field}]
    if image.pull_policy is not None:
        container["imagePullPolicy"] = image.pull_policy
    return container


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": HTTP_PORT_NAME}, "timeoutSeconds": 2}


def _preparation(pod: AgentPod) -> dict[str, Any]:
    """A container of the agent's image, rights and volumes that runs before the agent."""
    agent = _agent(pod)
    shared: dict[str, Any] = {
        name: agent[name] for name in ("image", "imagePullPolicy", "resources", "securityContext") if name in agent
    }
    config = f"{CONFIG_FOLDER}/{CONFIG_FILE}"
    return {
        "name": PREPARATION_CONTAINER,
        **shared,
        "args": [*pod.preparation, "--config", config, "--home", HOME_FOLDER],
        "volumeMounts": agent["volumeMounts"],
    }


def _user_container(container: Container, pod: AgentPod) -> dict[str, Any]:
    document = init_container(container)
    document["volumeMounts"] = [*document["volumeMounts"], *pod.user_mounts]
    if pod.drain_seconds:  # the Service forgets the pod at once, but its clients a moment later
        document["lifecycle"] = {"preStop": {"sleep": {"seconds": pod.drain_seconds}}}
    return document


def init_container(container: InitContainer) -> dict[str, Any]:
    """A container of a template, without the content."""
    document = encode(container)
    mounts = [{**mount, "name": user_volume_name(mount["name"])} for mount in document.get("volumeMounts", ())]
    security = {**document.get("securityContext", {}), **CONTAINER_SECURITY}
    return {**document, "volumeMounts": mounts, "securityContext": security}


def _volumes(pod: AgentPod) -> list[Mapping[str, Any]]:
    return [
        {"name": "config", "configMap": {"name": pod.owner.name_of(CONFIG_ENDING)}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        *(secret.volume for secret in pod.secrets),
        *pod.volumes,
        *map(user_volume, pod.spec.template.spec.volumes),
    ]


def user_volume(volume: NamedVolume) -> Mapping[str, Any]:
    """A volume of a template."""
    if volume.secret is not None:
        return {"name": user_volume_name(volume.name), "secret": {"secretName": volume.secret.name}}
    return {**encode(volume), "name": user_volume_name(volume.name)}


def user_volume_name(name: str) -> str:
    """What a volume of a template is called in the pod, so that it never has the name of one of ours."""
    return f"u-{name}" if len(name) <= _LONGEST_NAME - 2 else f"u-{name[:40]}-{digest_of(name)}"
