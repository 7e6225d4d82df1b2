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
AGENT_SECURITY: Final = MappingProxyType({**CONTAINER_SECURITY, "readOnlyRootFilesystem": True})
POD_SECURITY: Final = MappingProxyType(
    {
        "runAsNonRoot": True,
        "fsGroup": 65532,
        # else the kubelet changes the group of all files of a volume at each start of a pod
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
)
TMP_VOLUME: Final[Mapping[str, Any]] = MappingProxyType({"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}})
TMP_MOUNT: Final[Mapping[str, Any]] = MappingProxyType({"name": "tmp", "mountPath": "/tmp"})  # noqa: S108  # of the pod alone
_CONFIG_ARGUMENTS: Final = ("--config", f"{CONFIG_FOLDER}/{CONFIG_FILE}", "--home", HOME_FOLDER)
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
    """The pod template of a workload of agents."""
    image, template = pod.image.of(pod.spec.image), pod.spec.template
    mounts: list[Mapping[str, Any]] = [
        {"name": pod.volume, "mountPath": HOME_FOLDER},
        {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
        {**TMP_MOUNT},
        *(secret.volume_mount for secret in pod.secrets),
        *pod.agent_mounts,
    ]
    volumes = [
        {"name": "config", "configMap": {"name": pod.owner.name_of(CONFIG_ENDING)}},
        {**TMP_VOLUME},
        *(secret.volume for secret in pod.secrets),
        *pod.volumes,
    ]
    spec: dict[str, Any] = {
        # the grace period includes the preStop hooks, which sleep for the drain
        "terminationGracePeriodSeconds": pod.finish_seconds + _MARGIN_SECONDS + pod.drain_seconds,
        "containers": [
            _agent(pod, image, mounts),
            *(_user_container(container, pod) for container in template.spec.containers),
        ],
        "volumes": volumes,
    }
    if pod.preparation:
        preparation = agent_container(PREPARATION_CONTAINER, image, pod.spec.resources, mounts)
        spec["initContainers"] = [{**preparation, "args": [*pod.preparation, *_CONFIG_ARGUMENTS]}]
    digest, account = digest_of([config_text(pod.config), pod.secrets_digest]), pod.spec.service_account_name
    return restricted_pod(pod.owner, template, spec, digest, account, is_spread=pod.is_spread)


def restricted_pod(
    owner: Owner, template: Template, spec: Mapping[str, Any], digest: str, account: str | None, *, is_spread: bool
) -> dict[str, Any]:
    """A pod template: `spec` has all containers; labels, init containers and volumes of the user's template are added.

    `digest` changes with what our containers read at their start, so that pods are replaced. For `account` and
    `is_spread` see `restricted`.
    """
    before = [*spec.get("initContainers", ()), *map(user_container, template.spec.init_containers)]
    return {
        "metadata": {
            "labels": {**template.metadata.labels, **owner.labels},
            "annotations": {**template.metadata.annotations, CONFIG_DIGEST: digest},
        },
        "spec": {
            **restricted(template.spec, owner.labels, account, is_spread=is_spread),
            **spec,
            **({"initContainers": before} if before else {}),
            "volumes": [*spec["volumes"], *map(_user_volume, template.spec.volumes)],
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


def agent_container(
    name: str, image: AgentImage, resources: Resources, mounts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A container of the agents' image, without what it runs."""
    container: dict[str, Any] = {
        "name": name,
        "image": image.name,
        "resources": encode(promised(resources)),
        "securityContext": {**AGENT_SECURITY},
        "volumeMounts": mounts,
    }
    return container if image.pull_policy is None else {**container, "imagePullPolicy": image.pull_policy}


def _agent(pod: AgentPod, image: AgentImage, mounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    container = {
        **agent_container(AGENT_CONTAINER, image, pod.spec.resources, mounts),
        "args": ["agent", "run", *_CONFIG_ARGUMENTS, *pod.arguments],
        "ports": [{"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        # two minutes to open a large target; until then liveness is not probed
        "startupProbe": {**_probe("/healthz"), "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {**_probe("/healthz"), "periodSeconds": 20, "failureThreshold": 3},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 2, "failureThreshold": 2},
    }
    if any("$(POD_NAME)" in argument for argument in pod.arguments):
        field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
        container["env"] = [{"name": "POD_NAME", "valueFrom": field}]
    return container


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": HTTP_PORT_NAME}, "timeoutSeconds": 2}


def _user_container(container: Container, pod: AgentPod) -> dict[str, Any]:
    document = user_container(container)
    document["volumeMounts"] = [*document["volumeMounts"], *pod.user_mounts]
    if pod.drain_seconds:  # the Service forgets the pod at once, but its clients a moment later
        document["lifecycle"] = {"preStop": {"sleep": {"seconds": pod.drain_seconds}}}
    return document


def user_container(container: InitContainer) -> dict[str, Any]:
    """A container of a template, without the content."""
    document = encode(container)
    mounts = [{**mount, "name": user_volume_name(mount["name"])} for mount in document.get("volumeMounts", ())]
    security = {**document.get("securityContext", {}), **CONTAINER_SECURITY}
    return {**document, "volumeMounts": mounts, "securityContext": security}


def _user_volume(volume: NamedVolume) -> Mapping[str, Any]:
    """A volume of a template."""
    if volume.secret is not None:
        return {"name": user_volume_name(volume.name), "secret": {"secretName": volume.secret.name}}
    return {**encode(volume), "name": user_volume_name(volume.name)}


def user_volume_name(name: str) -> str:
    """What a volume of a template is called in the pod, so that it never has the name of one of ours."""
    return f"u-{name}" if len(name) <= _LONGEST_NAME - 2 else f"u-{name[:40]}-{digest_of(name)}"
