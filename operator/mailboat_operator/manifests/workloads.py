"""The children that publishers and pools have alike: configuration, Services, and a StatefulSet with its claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mailboat.config.document import Config

from mailboat_operator.api.amounts import format_size
from mailboat_operator.api.workload import Volume
from mailboat_operator.manifests.children import Manifest, Owner
from mailboat_operator.manifests.configuration import CONFIG_FILE, HTTP_PORT, config_text
from mailboat_operator.manifests.pods import HTTP_PORT_NAME, AgentPod, pod_template

CONFIG_ENDING = "config"
TOKEN_ENDING = "token"  # noqa: S105  # the end of a name


@dataclass(frozen=True, slots=True)
class Members:
    """The pods of one owner.

    Attributes:
        pod: Each of them.
        replicas: How many.
        service: Name of the headless Service that gives each a name.
        volume: The claim of each.
        when_deleted: What becomes of the claims with the owner: `Retain` or `Delete`.
        when_scaled: And of those of members that are too many.
    """

    pod: AgentPod
    replicas: int
    service: str
    volume: Volume
    when_deleted: str
    when_scaled: str


def config_map(owner: Owner, config: Config) -> Manifest:
    """The agent's configuration; it holds no secret."""
    return owner.child("ConfigMap", CONFIG_ENDING, {"data": {CONFIG_FILE: config_text(config)}})


def token_secret(owner: Owner) -> Manifest:
    """The Secret of the API's token, without its value, which is made where it is written."""
    return owner.child("Secret", TOKEN_ENDING, {"type": "Opaque"})


def agent_service(owner: Owner, ending: str = "", *, is_headless: bool = False) -> Manifest:
    """A Service that leads to the agents' HTTP API; a headless one gives members names, before they are ready too."""
    spec: dict[str, Any] = {
        "selector": owner.selector,
        "ports": [{"name": HTTP_PORT_NAME, "port": HTTP_PORT, "targetPort": HTTP_PORT_NAME, "protocol": "TCP"}],
    }
    if is_headless:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return owner.child("Service", ending, {"spec": spec})


def stateful_set(owner: Owner, members: Members) -> Manifest:
    """Pods that keep their names and claims, and with them what they are to the others."""
    spec = {
        "replicas": members.replicas,
        "serviceName": members.service,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": owner.selector},
        "template": pod_template(members.pod, owner.labels),
        "volumeClaimTemplates": [_claim(owner, members)],
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": members.when_deleted,
            "whenScaled": members.when_scaled,
        },
    }
    return owner.child("StatefulSet", "", {"spec": spec})


def _claim(owner: Owner, members: Members) -> Mapping[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": format_size(members.volume.size_bytes)}},
    }
    if members.volume.storage_class_name is not None:
        spec["storageClassName"] = members.volume.storage_class_name
    return {"metadata": {"name": members.pod.volume, "labels": owner.labels}, "spec": spec}
