"""The Kubernetes API as the tests on pods use it: the official client's, with kinds by their names and waits.

Everything that is read is a plain dictionary, as in a manifest.
"""

from __future__ import annotations

import copy
import io
import json
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias

import kubernetes
import yaml
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient, Resource
from kubernetes.stream import stream
from kubernetes.stream.ws_client import ERROR_CHANNEL, STDERR_CHANNEL, STDIN_CHANNEL, STDOUT_CHANNEL
from websocket import WebSocketConnectionClosedException

Manifest: TypeAlias = dict[str, Any]
Test: TypeAlias = Callable[[Manifest], object]

WAIT_SECONDS = 300.0
OWN = "mailboat.dev/v1alpha1"
API_VERSIONS = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet"), "apps/v1"),
    **dict.fromkeys(("ConfigMap", "Namespace", "Node", "PersistentVolumeClaim", "Pod", "Secret", "Service"), "v1"),
    "ServiceAccount": "v1",
    **dict.fromkeys(("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"), "rbac.authorization.k8s.io/v1"),
    **dict.fromkeys(
        ("Journal", "Topic", "Publisher", "SubscriberPool", "Distribution", "PackageBuild", "JobQueue"), OWN
    ),
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "Lease": "coordination.k8s.io/v1",
    "PersistentVolume": "v1",
    "PodDisruptionBudget": "policy/v1",
    "ScaledObject": "keda.sh/v1alpha1",
    "SparkApplication": "sparkoperator.k8s.io/v1beta2",
}
"""Kind → the API version that it is read and written in."""


class ClusterClient:
    """A connection as the administrator of the cluster. Close it."""

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        """Connect.

        Args:
            kubeconfig: The file.
            folder: Where the client keeps which kinds there are.
        """
        self.kubeconfig = kubeconfig
        self._api = kubernetes.config.new_client_from_config(kubeconfig)
        self._objects = DynamicClient(self._api, cache_file=str(folder / "kinds.json"))
        self.core = kubernetes.client.CoreV1Api(self._api)
        self._streams = kubernetes.config.new_client_from_config(kubeconfig)  # `stream` replaces a method for a while
        self.streaming = kubernetes.client.CoreV1Api(self._streams)

    def close(self) -> None:
        """Disconnect."""
        self._streams.close()
        self._api.close()

    def namespace(self, name: str) -> NamespaceClient:
        """What is in a namespace; that of objects that are in none is empty."""
        return NamespaceClient(self, name)

    def resource(self, kind: str, api_version: str = "") -> Resource:
        return self._objects.resources.get(api_version=api_version or API_VERSIONS[kind], kind=kind)


@dataclass(frozen=True)
class NamespaceClient:
    """The objects of one namespace; those that are in none, where its name is empty."""

    client: ClusterClient
    name: str

    def get(self, kind: str, name: str) -> Manifest:
        """The object; empty where there is none."""
        try:
            found: Manifest = self.client.resource(kind).get(name=name, **self._place()).to_dict()
        except ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return {}
        return found

    def list(self, kind: str, selector: str = "") -> list[Manifest]:
        """All objects of a kind, or those with the labels."""
        options = {"label_selector": selector} if selector else {}
        found: list[Manifest] = self.client.resource(kind).get(**self._place(), **options).to_dict()["items"]
        return found

    def names(self, *kinds: str) -> set[str]:
        """`Kind/name` of all objects of the kinds."""
        return {f"{kind}/{name_of(found)}" for kind in kinds for found in self.list(kind)}

    def apply(self, *manifests: Manifest) -> None:
        """Apply on the server's side, as the one who decides on what is given."""
        for manifest in manifests:
            resource = self.client.resource(manifest["kind"], manifest["apiVersion"])
            resource.server_side_apply(body=manifest, field_manager="tests", force_conflicts=True, **self._place())

    def apply_text(self, text: str) -> None:
        """Apply the manifests of a YAML file."""
        self.apply(*(manifest for manifest in yaml.safe_load_all(text) if manifest))

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Change an object by a merge patch."""
        body = copy.deepcopy(dict(change))
        self.client.resource(kind).patch(
            body=body, name=name, content_type="application/merge-patch+json", **self._place()
        )

    def scale(self, kind: str, name: str, replicas: int) -> None:
        """Change the number of replicas through the subresource `scale`."""
        body = {"metadata": {"name": name}, "spec": {"replicas": replicas}}
        content_type = "application/merge-patch+json"
        self.client.resource(kind).scale.patch(body=body, name=name, content_type=content_type, **self._place())

    def delete(self, kind: str, *names: str, grace_seconds: int | None = None, cascade: str = "Background") -> None:
        """Ask for the deletion of objects; it is no error if they are gone.

        Args:
            kind: Of all of them.
            names: Which.
            grace_seconds: What a pod is given to end; None leaves that to its specification.
            cascade: `Foreground` keeps an object until those that it owns are gone.
        """
        options: dict[str, Any] = {"propagationPolicy": cascade}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        for name in names:
            try:
                self.client.resource(kind).delete(name=name, body=options, **self._place())
            except ApiException as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise

    def evict(self, pod: str) -> bool:
        """Evict a pod as the draining of a node does; False where its disruption budget forbids that now."""
        eviction = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name=pod))
        try:
            self.client.core.create_namespaced_pod_eviction(pod, self.name, eviction)
        except ApiException as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS:
                raise
            return False
        return True

    def wait(self, kind: str, name: str, test: Test, seconds: float = WAIT_SECONDS) -> Manifest:
        """The object, as soon as the test holds for it. One that does not exist is empty."""
        end = time.monotonic() + seconds
        while not test(found := self.get(kind, name)):
            status = json.dumps(found.get("status", found), indent=1)
            assert time.monotonic() < end, f"{kind} {name} is not as awaited after {seconds:g} s: {status}"
            time.sleep(0.25)  # twenty reads a second cost more CPU than what is waited for
        return found

    def wait_for(self, condition: str, *objects: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until a condition of each of the objects, given as `Kind/name`, is true for its newest specification."""
        for kind, _, name in (item.partition("/") for item in objects):
            self.wait(kind, name, lambda found: has_condition(found, condition), seconds)

    def wait_gone(self, *objects: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until none of the objects, given as `Kind/name`, exists."""
        for kind, _, name in (item.partition("/") for item in objects):
            self.wait(kind, name, lambda found: not found, seconds)

    def run(self, pod: str, *command: str, given: bytes = b"", container: str = "") -> bytes:
        """What a program in a pod prints. A failing one fails the test with its own words."""
        code, output, errors = self.try_to_run(pod, *command, given=given, container=container)
        assert code == 0, f"{command} in {pod}: exit {code}\n{output.decode()}{errors.decode()}"
        return output

    def try_to_run(self, pod: str, *command: str, given: bytes = b"", container: str = "") -> tuple[int, bytes, bytes]:
        """Exit code and both outputs of a program in a pod, by default in its first container."""
        container = container or self.get("Pod", pod)["spec"]["containers"][0]["name"]
        running = stream(
            self.client.streaming.connect_get_namespaced_pod_exec,
            pod,
            self.name,
            command=list(command),
            container=container,
            stdin=bool(given),
            stdout=True,
            stderr=True,
            binary=True,
            _preload_content=False,
        )
        try:
            return _finish(running, given)
        finally:
            running.sock.shutdown()  # its own `close` waits three seconds for an answer, and leaves the socket open

    def write_files(self, pod: str, folder: str, files: Mapping[str, bytes]) -> None:
        """Write files, by their paths below a folder of a pod, which is made where it is missing."""
        self.run(pod, "mkdir", "-p", folder)
        # tar ends at the end of the archive, and the connection with it, maybe before the end of the input was sent;
        # cat waits for that
        self.run(pod, "sh", "-c", 'tar -C "$0" -x -m && cat > /dev/null', folder, given=packed(files))

    def read_files(self, pod: str, folder: str) -> dict[str, bytes]:
        """Path → content of the files below a folder of a pod."""
        return unpacked(self.run(pod, "tar", "-C", folder, "-c", "."))

    def read_url(self, target: str, path: str) -> bytes:
        """What a `Pod/name:port` or `Service/name:port` answers through the API server."""
        kind, _, name = target.partition("/")
        core = self.client.core
        ask = {
            "Pod": core.connect_get_namespaced_pod_proxy_with_path,
            "Service": core.connect_get_namespaced_service_proxy_with_path,
        }[kind]
        answer: bytes = ask(name, self.name, path, _preload_content=False).data
        return answer

    def _place(self) -> dict[str, str]:
        return {"namespace": self.name} if self.name else {}


def _finish(running: Any, given: bytes) -> tuple[int, bytes, bytes]:
    for start in range(0, len(given), 32_768):
        running.write_channel(STDIN_CHANNEL, given[start : start + 32_768])
    if given:
        running.close_channel(STDIN_CHANNEL)
    pieces: dict[int, list[bytes]] = {STDOUT_CHANNEL: [], STDERR_CHANNEL: []}
    end = time.monotonic() + WAIT_SECONDS
    while running.is_open():
        assert time.monotonic() < end, "a program in a pod does not end"
        try:
            running.update(timeout=1)
        except WebSocketConnectionClosedException:  # it did not wait for our close frame
            running.close()
        for channel, found in pieces.items():
            found.append(running.read_channel(channel))
    for channel, found in pieces.items():  # the last read of one channel may have stored frames of the other
        found.append(running.read_channel(channel))
    status = yaml.safe_load(running.read_channel(ERROR_CHANNEL))
    output, errors = (b"".join(found) for found in pieces.values())
    if status["status"] == "Success":
        return 0, output, errors
    causes = status.get("details", {}).get("causes", [])
    code = next((cause["message"] for cause in causes if cause.get("reason") == "ExitCode"), None)
    assert code is not None, status
    return int(code), output, errors


def has_condition(found: Manifest, wanted: str) -> bool:
    """Whether a condition is true for the newest specification."""
    status = found.get("status") or {}
    newest = found.get("metadata", {}).get("generation", 0)
    return any(
        condition["type"] == wanted
        and condition["status"] == "True"
        and condition.get("observedGeneration", newest) >= newest
        for condition in status.get("conditions") or ()
    )


def has_replicas(count: int) -> Test:
    """Whether so many are asked for."""
    return lambda found: found["spec"]["replicas"] == count


def has_started(pod: Manifest) -> bool:
    """Whether all startup probes of a pod succeeded."""
    containers = pod.get("status", {}).get("containerStatuses") or ()
    return bool(containers) and all(item["started"] for item in containers)


def name_of(found: Manifest) -> str:
    name: str = found["metadata"]["name"]
    return name


def packed(files: Mapping[str, bytes]) -> bytes:
    """A tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def unpacked(archive: bytes) -> dict[str, bytes]:
    """Path → content of the files of a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        found = {member.name.removeprefix("./"): opened.extractfile(member) for member in opened}
        return {name: file.read() for name, file in found.items() if file is not None}


def files_of(folder: Path) -> dict[str, bytes]:
    """Path → content of the files of a folder of this machine."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def eventually(test: Callable[[], object], problem: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait until something holds that no single object tells."""
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, problem
        time.sleep(0.25)
