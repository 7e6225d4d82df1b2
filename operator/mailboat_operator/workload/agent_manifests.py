"""The children that publishers and pools have alike: configuration, Services, and a StatefulSet with its claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mailboat.config.document import Config
from mailboat.frozen import Frozen

from mailboat_operator.definition.amounts import format_size
from mailboat_operator.plan.child_manifest import Manifest, Owner
from mailboat_operator.workload.mounts import CONFIG_ENDING, CONFIG_FILE, HTTP_PORT, config_text
from mailboat_operator.workload.pods import HTTP_PORT_NAME, AgentPod, pod_template
from mailboat_operator.workload.template import Template, Volume

TOKEN_ENDING = "token"  # noqa: S105  # the end of a name


class AgentPolicy(Frozen):
    """What the operator's settings say of all agents.

    Attributes:
        open_metrics: Whether agents serve metrics without a token.
        ingress: Peers of a NetworkPolicy that may reach the agents' API; None makes no NetworkPolicy.
    """

    open_metrics: bool = False
    ingress: Sequence[Mapping[str, Any]] | None = None

    def applied(self, config: Config) -> Config:
        """A configuration with what the settings say."""
        return replace(config, http=replace(config.http, open_metrics=self.open_metrics))


def config_map(owner: Owner, config: Config) -> Manifest:
    """The agent's configuration; it holds no secret."""
    return owner.child("ConfigMap", CONFIG_ENDING, {"data": {CONFIG_FILE: config_text(config)}})


def token_secret(owner: Owner) -> Manifest:
    """The Secret of the API's token, without its value, which is made where it is written."""
    return owner.child("Secret", TOKEN_ENDING, {"type": "Opaque"})


def agent_service(owner: Owner, ending: str = "", *, is_headless: bool = False) -> Manifest:
    """A Service of the agents' HTTP API; a headless one names members before they are ready, too."""
    spec: dict[str, Any] = {
        "selector": owner.selector,
        "ports": [{"name": HTTP_PORT_NAME, "port": HTTP_PORT, "targetPort": HTTP_PORT_NAME, "protocol": "TCP"}],
    }
    if is_headless:
        # not only ready ones: KEDA reads the lag of members that catch up
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return owner.child("Service", ending, {"spec": spec})


def network_policies(owner: Owner, template: Template, policy: AgentPolicy) -> Sequence[Manifest]:
    """At most one: the agents' API for the peers of the settings, ports of the user's containers for all.

    The policies of a namespace add up, so that users can let more peers in with policies of their own.
    """
    if policy.ingress is None:
        return []
    ports = [
        {"port": port.container_port, "protocol": str(port.protocol)}
        for container in template.spec.containers
        for port in container.ports
    ]
    ingress: list[Manifest] = [{"from": list(policy.ingress), "ports": [{"port": HTTP_PORT, "protocol": "TCP"}]}]
    if ports:
        ingress.append({"ports": ports})
    spec = {"podSelector": {"matchLabels": owner.selector}, "policyTypes": ["Ingress"], "ingress": ingress}
    return [owner.child("NetworkPolicy", "", {"spec": spec})]


def stateful_set(
    pod: AgentPod, replicas: int, service: str, volume: Volume | None, *, when_deleted: str, when_scaled: str = "Retain"
) -> Manifest:
    """Pods that keep their names and claims, and with them what they are to the others.

    Args:
        pod: Each of them.
        replicas: How many.
        service: Name of the headless Service that gives each a name.
        volume: The claim of each; None where they need none.
        when_deleted: Whether the claims outlive the owner: `Retain` or `Delete`.
        when_scaled: And of those of members that are too many.
    """
    owner = pod.owner
    spec: Manifest = {
        "replicas": replicas,
        "serviceName": service,
        # with the default, a member that is never ready would keep those after it from starting
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": owner.selector},
        "template": pod_template(pod),
    }
    if volume is not None:
        spec["volumeClaimTemplates"] = [_claim(pod, volume)]
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": when_deleted, "whenScaled": when_scaled}
    return owner.child("StatefulSet", "", {"spec": spec})


def _claim(pod: AgentPod, volume: Volume) -> Mapping[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": format_size(volume.size_bytes)}},
    }
    if volume.storage_class_name is not None:
        spec["storageClassName"] = volume.storage_class_name
    return {"metadata": {"name": pod.volume, "labels": pod.owner.labels}, "spec": spec}
