"""What the pods of agents need, and the users' own containers in them.

A template has the fields that the restricted pod security profile allows and no others: no host, no privileges, no
volumes but those of the same namespace. So a writer of custom resources can start no pod that does more than
that. The agent's own container is not part of it; its image and the pod's service
account are fields of the object, and no token of that account is mounted.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar

from mailboat.frozen import Frozen

from mailboat_operator.definition.fields import Field, Rule, unchangeable
from mailboat_operator.definition.forms import CPU, FOLDER, IMAGE, LABEL, LABEL_KEY, MOUNT_PATH, NAME, SIZE, VARIABLE
from mailboat_operator.definition.metadata import Reference
from mailboat_operator.workload.placement import Placement

AGENT_CONTAINER = "mailboat"
PREPARATION_CONTAINER = "mailboat-seed"
CONTENT_VOLUME = "content"
CONTENT_PATH = "/content"
AGENT_PORT = 8080
"""Where the agent's own HTTP API listens; the containers of a pod share its ports."""


class Amounts(Frozen):
    """CPU and memory."""

    cpu: Annotated[str | None, Field("CPU.", form=CPU)] = None
    memory_bytes: Annotated[int | None, Field("Memory.", form=SIZE)] = None


class Resources(Frozen):
    """What a container is promised, and what it may use."""

    requests: Annotated[Amounts | None, Field("Requests.")] = None
    limits: Annotated[Amounts | None, Field("Limits.")] = None


class Volume(Frozen):
    """A claim for each agent."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
            "size can't be reduced: volumes only grow; make another object",
            ".size",
        ),
        unchangeable("storageClassName", "a claim stays in its class; make another object"),
    )

    size_bytes: Annotated[int, Field("Its size. A larger one enlarges the claims if their class allows it.", form=SIZE)]
    storage_class_name: Annotated[str | None, Field("Its class. Default: the cluster's default.", form=NAME)] = None


class VolumeClaim(Frozen):
    """An existing claim with content."""

    name: Annotated[str, Field("Its name, in the same namespace.", form=NAME)]
    folder: Annotated[str | None, Field("The folder within it. Default: all of it.", form=FOLDER)] = None


AgentImageName = Annotated[
    str | None,
    Field("Image of the agent, of the operator's version. Default: the operator's setting.", form=IMAGE),
]
ServiceAccountName = Annotated[
    str | None,
    Field(
        "Existing service account, for the pods' cloud identity; its Kubernetes token is not mounted. Default: the "
        "namespace's default account.",
        form=NAME,
    ),
]


class KeyReference(Frozen):
    """One entry of a Secret or ConfigMap of the same namespace."""

    name: Annotated[str, Field("Name of the object.", form=NAME)]
    key: Annotated[str, Field("Name of the entry.", max_length=253)]


class VariableSource(Frozen):
    """Where a variable's value comes from."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.secretKeyRef) != has(self.configMapKeyRef)",
            "exactly one of secretKeyRef and configMapKeyRef is required",
            is_kept=lambda one: (one.secret_key_ref is None) != (one.config_map_key_ref is None),
        ),
    )

    secret_key_ref: Annotated[KeyReference | None, Field("An entry of a Secret.")] = None
    config_map_key_ref: Annotated[KeyReference | None, Field("An entry of a ConfigMap.")] = None


class Variable(Frozen):
    """A variable of a container's environment."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.value) && has(self.valueFrom))",
            "value and valueFrom are mutually exclusive",
            is_kept=lambda one: one.value is None or one.value_from is None,
        ),
    )

    name: Annotated[str, Field("Its name.", form=VARIABLE)]
    value: Annotated[str | None, Field("Its value.", max_length=4096)] = None
    value_from: Annotated[VariableSource | None, Field("Where its value comes from.")] = None


class VariablesSource(Frozen):
    """A Secret or ConfigMap whose entries are variables."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.secretRef) != has(self.configMapRef)",
            "exactly one of secretRef and configMapRef is required",
            is_kept=lambda one: (one.secret_ref is None) != (one.config_map_ref is None),
        ),
    )

    secret_ref: Annotated[Reference | None, Field("A Secret.")] = None
    config_map_ref: Annotated[Reference | None, Field("A ConfigMap.")] = None
    prefix: Annotated[str | None, Field("Text before each name.", form=VARIABLE)] = None


class PortProtocol(enum.StrEnum):
    """What is spoken at a port."""

    TCP = "TCP"
    UDP = "UDP"


class Port(Frozen):
    """A port of a container. The first of a template is what the serving Service leads to."""

    container_port: Annotated[int, Field("Its number.", minimum=1, maximum=65_535)]
    name: Annotated[str | None, Field("Its name.", max_length=15)] = None
    protocol: Annotated[PortProtocol, Field("Protocol.")] = PortProtocol.TCP


class HttpProbe(Frozen):
    """A GET that must be answered with a status below 400."""

    port: Annotated[int, Field("Port.", minimum=1, maximum=65_535)]
    path: Annotated[str, Field("Path.", max_length=512)] = "/"


class TcpProbe(Frozen):
    """A connection that must be accepted."""

    port: Annotated[int, Field("Port.", minimum=1, maximum=65_535)]


class CommandProbe(Frozen):
    """A command in the container that must end with exit code 0."""

    command: Annotated[tuple[str, ...], Field("The command and its arguments.", min_items=1, max_items=50)]


class Probe(Frozen):
    """How to find out whether a container is well."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.httpGet), has(self.tcpSocket), has(self.exec)].filter(one, one).size() == 1",
            "exactly one of httpGet, tcpSocket and exec is required",
            is_kept=lambda one: [one.http_get, one.tcp_socket, one.run].count(None) == 2,
        ),
    )

    http_get: Annotated[HttpProbe | None, Field("A request.")] = None
    tcp_socket: Annotated[TcpProbe | None, Field("A connection.")] = None
    run: Annotated[CommandProbe | None, Field("A command.", name="exec")] = None
    initial_delay_seconds: Annotated[int | None, Field("Pause before the first.", minimum=1, maximum=3600)] = None
    period_seconds: Annotated[int, Field("Pause between requests.", minimum=1, maximum=3600)] = 10
    timeout_seconds: Annotated[int, Field("Time for one.", minimum=1, maximum=3600)] = 1
    failure_threshold: Annotated[int, Field("Failures in a row that count.", minimum=1, maximum=1000)] = 3


class Mount(Frozen):
    """A volume of the template in a container."""

    name: Annotated[str, Field("Name of the volume.", form=LABEL)]
    mount_path: Annotated[str, Field("Where it appears.", form=MOUNT_PATH)]
    sub_path: Annotated[str | None, Field("The part of it that appears there. Default: all.", form=FOLDER)] = None
    read_only: Annotated[bool, Field("Whether it can't be written.")] = False


class ContainerSecurity(Frozen):
    """Under whose id a container runs. The rest of the security context is the restricted profile's."""

    run_as_user: Annotated[
        int | None, Field("User id; set it where the image names no numeric user.", minimum=1, maximum=2**31 - 1)
    ] = None
    run_as_group: Annotated[int | None, Field("Group id.", minimum=1, maximum=2**31 - 1)] = None


_OWN_NAMES = Rule(
    f"!(self.name in ['{AGENT_CONTAINER}', '{PREPARATION_CONTAINER}'])",
    f"name can't be {AGENT_CONTAINER} or {PREPARATION_CONTAINER}: these are the agent's own containers",
    ".name",
    lambda one: one.name not in {AGENT_CONTAINER, PREPARATION_CONTAINER},
)
_OWN_PATH = Rule(
    f"!has(self.volumeMounts) || self.volumeMounts.all(one, !(one.mountPath + '/').startsWith('{CONTENT_PATH}/'))",
    f"volumeMounts can't cover {CONTENT_PATH}: that is where the content is",
    ".volumeMounts",
    lambda one: not any(f"{mount.mount_path}/".startswith(f"{CONTENT_PATH}/") for mount in one.volume_mounts),
)
_ONE_EACH = Rule(
    "!has(self.volumeMounts) || self.volumeMounts.all(one, "
    "self.volumeMounts.exists_one(other, other.mountPath == one.mountPath))",
    "volumeMounts can't use one mountPath twice",
    ".volumeMounts",
    lambda one: len({mount.mount_path for mount in one.volume_mounts}) == len(one.volume_mounts),
)


class InitContainer(Frozen):
    """A container of the user's that runs to its end before the others start, without the content."""

    RULES: ClassVar[tuple[Rule, ...]] = (_OWN_NAMES, _OWN_PATH, _ONE_EACH)

    name: Annotated[str, Field("Its name.", form=LABEL)]
    image: Annotated[str, Field("Its image.", form=IMAGE)]
    command: Annotated[tuple[str, ...], Field("Command instead of the image's entry point.", max_items=50)] = ()
    args: Annotated[tuple[str, ...], Field("Arguments.", max_items=50)] = ()
    env: Annotated[tuple[Variable, ...], Field("Environment.", max_items=50, key="name")] = ()
    env_from: Annotated[
        tuple[VariablesSource, ...], Field("Secrets and ConfigMaps whose entries are variables.", max_items=8)
    ] = ()
    resources: Annotated[Resources, Field("CPU and memory.")] = field(default_factory=Resources)
    volume_mounts: Annotated[tuple[Mount, ...], Field("Volumes of the template.", max_items=20)] = ()
    security_context: Annotated[ContainerSecurity, Field("Its user and group.")] = field(
        default_factory=ContainerSecurity
    )


class Container(InitContainer):
    """A container of the user's, such as a web server: unprivileged, with the content read-only in `/content`."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *InitContainer.RULES,
        Rule(
            f"!has(self.ports) || self.ports.all(one, one.containerPort != {AGENT_PORT})",
            f"ports can't use {AGENT_PORT}: the agent listens there in the same pod; use another port",
            ".ports",
            lambda one: all(port.container_port != AGENT_PORT for port in one.ports),
        ),
    )

    ports: Annotated[tuple[Port, ...], Field("Ports.", max_items=10)] = ()
    readiness_probe: Annotated[Probe | None, Field("Whether it can serve.")] = None
    liveness_probe: Annotated[Probe | None, Field("Whether it should be restarted.")] = None
    startup_probe: Annotated[Probe | None, Field("Whether it has started.")] = None


class Scratch(Frozen):
    """Space that lives as long as the pod."""

    size_limit_bytes: Annotated[int | None, Field("Size limit.", form=SIZE)] = None


class ClaimReference(Frozen):
    """An existing claim of the same namespace."""

    claim_name: Annotated[str, Field("Its name.", form=NAME)]
    read_only: Annotated[bool, Field("Whether it can't be written.")] = False


class CsiVolume(Frozen):
    """A volume that a CSI driver makes for the pod, such as one with secrets of a vault."""

    driver: Annotated[str, Field("Name of the driver.", form=NAME)]
    read_only: Annotated[bool, Field("Whether it can't be written.")] = False
    volume_attributes: Annotated[
        Mapping[str, str], Field("Attributes of the volume, for the driver.", max_items=16)
    ] = field(default_factory=dict)


class NamedVolume(Frozen):
    """A volume for the template's containers."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.emptyDir), has(self.configMap), has(self.secret), has(self.persistentVolumeClaim), "
            "has(self.csi)].filter(one, one).size() == 1",
            "exactly one of emptyDir, configMap, secret, persistentVolumeClaim and csi is required",
            is_kept=lambda one: (
                [one.empty_dir, one.config_map, one.secret, one.persistent_volume_claim, one.csi].count(None) == 4
            ),
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
    config_map: Annotated[Reference | None, Field("The entries of a ConfigMap as files.")] = None
    secret: Annotated[Reference | None, Field("The entries of a Secret as files.")] = None
    persistent_volume_claim: Annotated[ClaimReference | None, Field("An existing claim.")] = None
    csi: Annotated[CsiVolume | None, Field("A volume of a CSI driver.")] = None


class TemplateMetadata(Frozen):
    """Labels and annotations of the pods. Labels of `app.kubernetes.io` and `mailboat.dev` are the operator's own."""

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


def _mounts_known_volumes(name: str) -> Rule:
    """That the containers of a list mount volumes of the template only."""
    attribute = {"containers": "containers", "initContainers": "init_containers"}[name]
    return Rule(
        f"!has(self.{name}) || self.{name}.all(one, !has(one.volumeMounts) || one.volumeMounts.all(mount, "
        "has(self.volumes) && self.volumes.exists(volume, volume.name == mount.name)))",
        "volumeMounts can name the template's own volumes only",
        f".{name}",
        lambda spec: (
            {mount.name for container in getattr(spec, attribute) for mount in container.volume_mounts}
            <= {volume.name for volume in spec.volumes}
        ),
    )


class TemplateSpec(Placement):
    """Additional containers, and placement of the pods."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        _mounts_known_volumes("containers"),
        _mounts_known_volumes("initContainers"),
        Rule(
            "!has(self.containers) || !has(self.initContainers) || self.initContainers.all(one, "
            "!self.containers.exists(other, other.name == one.name))",
            "initContainers can't have the name of one of the containers",
            ".initContainers",
            lambda spec: {container.name for container in spec.init_containers}.isdisjoint(
                container.name for container in spec.containers
            ),
        ),
    )

    init_containers: Annotated[
        tuple[InitContainer, ...],
        Field("The user's containers that run before the agent and the others.", max_items=4, key="name"),
    ] = ()
    containers: Annotated[tuple[Container, ...], Field("The user's containers.", max_items=8, key="name")] = ()
    volumes: Annotated[tuple[NamedVolume, ...], Field("Volumes for them.", max_items=16, key="name")] = ()


class Template(Frozen):
    """A pod template, as far as the restricted profile goes."""

    metadata: Annotated[TemplateMetadata, Field("Labels and annotations.")] = field(default_factory=TemplateMetadata)
    spec: Annotated[TemplateSpec, Field("What runs, and where.")] = field(default_factory=TemplateSpec)
