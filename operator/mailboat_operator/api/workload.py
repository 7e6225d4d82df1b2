"""What the pods of agents need, and the users' own containers beside an agent.

A template has the fields that the restricted pod security profile allows and no others: no host, no privileges, no
volume but scratch space, config maps and secrets of the same namespace. So whoever may write a custom resource can
start no pod that does more than that. The agent's own container is not part of it; its image and the pod's service
account are fields of the object, and no token of that account is mounted.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from mailboat_operator.api.fields import Field, Rule
from mailboat_operator.api.forms import CPU, FOLDER, IMAGE, LABEL, LABEL_KEY, MOUNT_PATH, NAME, SIZE, VARIABLE
from mailboat_operator.api.references import ConfigMapReference, SecretReference

AGENT_CONTAINER = "mailboat"
PREPARATION_CONTAINER = "mailboat-seed"
CONTENT_VOLUME = "content"
CONTENT_PATH = "/content"
AGENT_PORT = 8080
"""Where the agent's own HTTP API listens; the containers of a pod share its ports."""


@dataclass(frozen=True)
class Amounts:
    """CPU and memory."""

    cpu: Annotated[str | None, Field("CPU.", form=CPU)] = None
    memory_bytes: Annotated[int | None, Field("Memory.", form=SIZE)] = None


@dataclass(frozen=True)
class Resources:
    """What a container is promised, and what it may use."""

    requests: Annotated[Amounts | None, Field("What it is promised.")] = None
    limits: Annotated[Amounts | None, Field("What it may use.")] = None


@dataclass(frozen=True)
class Volume:
    """A claim for each agent."""

    size_bytes: Annotated[int, Field("Its size.", form=SIZE)]
    storage_class_name: Annotated[str | None, Field("Its class; not said: the cluster's default.", form=NAME)] = None


@dataclass(frozen=True)
class KeyReference:
    """One entry of a Secret or ConfigMap of the same namespace."""

    name: Annotated[str, Field("Name of the object.", form=NAME)]
    key: Annotated[str, Field("Name of the entry.", max_length=253)]


@dataclass(frozen=True)
class VariableSource:
    """Where a variable's value comes from."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.secretKeyRef) != has(self.configMapKeyRef)",
            "exactly one of secretKeyRef and configMapKeyRef must be said",
            is_kept=lambda one: (one.secret_key_ref is None) != (one.config_map_key_ref is None),
        ),
    )

    secret_key_ref: Annotated[KeyReference | None, Field("An entry of a Secret.")] = None
    config_map_key_ref: Annotated[KeyReference | None, Field("An entry of a ConfigMap.")] = None


@dataclass(frozen=True)
class Variable:
    """A variable of a container's environment."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.value) && has(self.valueFrom))",
            "at most one of value and valueFrom can be said",
            is_kept=lambda one: one.value is None or one.value_from is None,
        ),
    )

    name: Annotated[str, Field("Its name.", form=VARIABLE)]
    value: Annotated[str | None, Field("Its value.", max_length=4096)] = None
    value_from: Annotated[VariableSource | None, Field("Where its value comes from.")] = None


class PortProtocol(enum.StrEnum):
    """What is spoken at a port."""

    TCP = "TCP"
    UDP = "UDP"


@dataclass(frozen=True)
class Port:
    """A port of a container. The first of a template is what the serving Service leads to."""

    container_port: Annotated[int, Field("Its number.", minimum=1, maximum=65_535)]
    name: Annotated[str | None, Field("Its name.", max_length=15)] = None
    protocol: Annotated[PortProtocol, Field("What is spoken.")] = PortProtocol.TCP


@dataclass(frozen=True)
class HttpProbe:
    """A GET that must be answered with a status below 400."""

    port: Annotated[int, Field("Where to ask.", minimum=1, maximum=65_535)]
    path: Annotated[str, Field("What to ask for.", max_length=512)] = "/"


@dataclass(frozen=True)
class Probe:
    """How to find out whether a container is well."""

    http_get: Annotated[HttpProbe, Field("A request.")]
    period_seconds: Annotated[int, Field("Pause between requests.", minimum=1, maximum=3600)] = 10
    timeout_seconds: Annotated[int, Field("Time for one.", minimum=1, maximum=3600)] = 1
    failure_threshold: Annotated[int, Field("Failures in a row that count.", minimum=1, maximum=1000)] = 3


@dataclass(frozen=True)
class Mount:
    """A volume of the template in a container."""

    name: Annotated[str, Field("Name of the volume.", form=LABEL)]
    mount_path: Annotated[str, Field("Where it appears.", form=MOUNT_PATH)]
    sub_path: Annotated[str | None, Field("The part of it that appears there; not said: all.", form=FOLDER)] = None
    read_only: Annotated[bool, Field("Whether it can't be written.")] = False


@dataclass(frozen=True)
class ContainerSecurity:
    """Under whose id a container runs. The rest of the security context is the restricted profile's."""

    run_as_user: Annotated[
        int | None, Field("User id; set it where the image names no numeric user.", minimum=1, maximum=2**31 - 1)
    ] = None
    run_as_group: Annotated[int | None, Field("Group id.", minimum=1, maximum=2**31 - 1)] = None


@dataclass(frozen=True)
class Container:
    """A container of the user's, such as a web server: unprivileged, with the content read-only in `/content`."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!(self.name in ['{AGENT_CONTAINER}', '{PREPARATION_CONTAINER}'])",
            f"name can't be {AGENT_CONTAINER} or {PREPARATION_CONTAINER}: these are the agent's own containers",
            ".name",
            lambda one: one.name not in {AGENT_CONTAINER, PREPARATION_CONTAINER},
        ),
        Rule(
            "!has(self.volumeMounts) || "
            f"self.volumeMounts.all(one, !(one.mountPath + '/').startsWith('{CONTENT_PATH}/'))",
            f"volumeMounts can't cover {CONTENT_PATH}: that is where the content is",
            ".volumeMounts",
            lambda one: not any(f"{mount.mount_path}/".startswith(f"{CONTENT_PATH}/") for mount in one.volume_mounts),
        ),
        Rule(
            "!has(self.volumeMounts) || self.volumeMounts.all(one, "
            "self.volumeMounts.exists_one(other, other.mountPath == one.mountPath))",
            "volumeMounts can't use one mountPath twice",
            ".volumeMounts",
            lambda one: len({mount.mount_path for mount in one.volume_mounts}) == len(one.volume_mounts),
        ),
        Rule(
            f"!has(self.ports) || self.ports.all(one, one.containerPort != {AGENT_PORT})",
            f"ports can't use {AGENT_PORT}: the agent listens there in the same pod; use another port",
            ".ports",
            lambda one: all(port.container_port != AGENT_PORT for port in one.ports),
        ),
    )

    name: Annotated[str, Field("Its name.", form=LABEL)]
    image: Annotated[str, Field("Its image.", form=IMAGE)]
    command: Annotated[tuple[str, ...], Field("What to run instead of the image's entry point.", max_items=50)] = ()
    args: Annotated[tuple[str, ...], Field("Arguments.", max_items=50)] = ()
    env: Annotated[tuple[Variable, ...], Field("Environment.", max_items=50, key="name")] = ()
    ports: Annotated[tuple[Port, ...], Field("Ports.", max_items=10)] = ()
    resources: Annotated[Resources, Field("CPU and memory.")] = field(default_factory=Resources)
    volume_mounts: Annotated[tuple[Mount, ...], Field("Volumes of the template.", max_items=20)] = ()
    security_context: Annotated[ContainerSecurity, Field("Its user and group.")] = field(
        default_factory=ContainerSecurity
    )
    readiness_probe: Annotated[Probe | None, Field("Whether it can serve.")] = None
    liveness_probe: Annotated[Probe | None, Field("Whether it should be restarted.")] = None
    startup_probe: Annotated[Probe | None, Field("Whether it has started.")] = None


@dataclass(frozen=True)
class Scratch:
    """Space that lives as long as the pod."""

    size_limit_bytes: Annotated[int | None, Field("How much may be used.", form=SIZE)] = None


@dataclass(frozen=True)
class NamedVolume:
    """A volume for the template's containers."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.emptyDir), has(self.configMap), has(self.secret)].filter(one, one).size() == 1",
            "exactly one of emptyDir, configMap and secret must be said",
            is_kept=lambda one: [one.empty_dir, one.config_map, one.secret].count(None) == 2,
        ),
        Rule(
            f"self.name != '{CONTENT_VOLUME}'",
            f"name can't be {CONTENT_VOLUME}: that is the agent's own volume",
            ".name",
            lambda one: one.name != CONTENT_VOLUME,
        ),
    )

    name: Annotated[str, Field("Its name.", form=LABEL)]
    empty_dir: Annotated[Scratch | None, Field("Space that lives as long as the pod.")] = None
    config_map: Annotated[ConfigMapReference | None, Field("The entries of a ConfigMap as files.")] = None
    secret: Annotated[SecretReference | None, Field("The entries of a Secret as files.")] = None


class TolerationOperator(enum.StrEnum):
    """How a taint's value is compared."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TaintEffect(enum.StrEnum):
    """What a taint does to pods."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True)
class Toleration:
    """A taint of nodes that is no hindrance."""

    key: Annotated[str | None, Field("Its key; not said: every taint.", form=LABEL_KEY)] = None
    operator: Annotated[TolerationOperator, Field("How its value is compared.")] = TolerationOperator.EQUAL
    value: Annotated[str | None, Field("Its value.", max_length=63)] = None
    effect: Annotated[TaintEffect | None, Field("What it does; not said: whatever.")] = None


@dataclass(frozen=True)
class TemplateMetadata:
    """What pods carry. Labels of `app.kubernetes.io` and `mailboat.dev` are the operator's own."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.labels) || "
            "self.labels.all(one, !one.startsWith('app.kubernetes.io/') && !one.startsWith('mailboat.dev/'))",
            "labels can't begin with app.kubernetes.io/ or mailboat.dev/: they are the operator's",
            ".labels",
            lambda one: not any(key.startswith(("app.kubernetes.io/", "mailboat.dev/")) for key in one.labels),
        ),
    )

    labels: Annotated[Mapping[str, str], Field("Labels.", form=LABEL_KEY, max_length=63, max_items=32)] = field(
        default_factory=dict
    )
    annotations: Annotated[Mapping[str, str], Field("Annotations.", form=LABEL_KEY, max_length=4096, max_items=32)] = (
        field(default_factory=dict)
    )


@dataclass(frozen=True)
class TemplateSpec:
    """What runs beside the agent, and where pods may run."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.containers) || self.containers.all(one, !has(one.volumeMounts) || one.volumeMounts.all(mount, "
            "has(self.volumes) && self.volumes.exists(volume, volume.name == mount.name)))",
            "volumeMounts can name the template's own volumes only",
            ".containers",
            lambda spec: (
                {mount.name for one in spec.containers for mount in one.volume_mounts}
                <= {volume.name for volume in spec.volumes}
            ),
        ),
    )

    containers: Annotated[tuple[Container, ...], Field("The user's containers.", max_items=8, key="name")] = ()
    volumes: Annotated[tuple[NamedVolume, ...], Field("Volumes for them.", max_items=16, key="name")] = ()
    image_pull_secrets: Annotated[tuple[SecretReference, ...], Field("Secrets to pull images with.", max_items=8)] = ()
    node_selector: Annotated[
        Mapping[str, str], Field("Labels that nodes must have.", form=LABEL_KEY, max_length=63, max_items=32)
    ] = field(default_factory=dict)
    tolerations: Annotated[tuple[Toleration, ...], Field("Taints that are no hindrance.", max_items=32)] = ()
    priority_class_name: Annotated[str | None, Field("Their priority class.", form=NAME)] = None


@dataclass(frozen=True)
class Template:
    """A pod template, as far as the restricted profile goes."""

    metadata: Annotated[TemplateMetadata, Field("What pods carry.")] = field(default_factory=TemplateMetadata)
    spec: Annotated[TemplateSpec, Field("What runs, and where.")] = field(default_factory=TemplateSpec)
