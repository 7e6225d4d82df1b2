"""The only caller of the Kubernetes API: reads, server-side apply, status, Events and leases.

Objects are plain documents, as the API gives them. Every write is counted, and is made in the name of our field
manager; what others own of an object stays theirs. Every error of the client or the network is mapped here.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import httpx2
from lightkube import AsyncClient
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.types import PatchType
from mailboat.errors import MailboatError, PermanentError, RetryableError

from mailboat_operator.api import API_VERSION, GROUP, VERSION
from mailboat_operator.api.kinds import KINDS
from mailboat_operator.manifests.children import ChildKey, Manifest
from mailboat_operator.manifests.names import FIELD_MANAGER
from mailboat_operator.plan.actions import Create, Report

_REQUEST_SECONDS: Final = 4.0
"""Shorter than what a lease outlives its last renewal, so that no write of a leader lands after the next one began."""
_TOKEN_BYTES: Final = 32
_LONGEST_MESSAGE: Final = 1024
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_TOO_MANY: Final = 429
_FAULT: Final = 500
_VERBS: Final = ["delete", "get", "global_list", "list", "patch", "post", "put"]

_RESOURCES: Final[Mapping[str, type[GenericNamespacedResource]]] = MappingProxyType(
    {
        kind: create_namespaced_resource(group, version, kind, plural, verbs=_VERBS)
        for group, version, kind, plural in (
            ("", "v1", "ConfigMap", "configmaps"),
            ("", "v1", "Event", "events"),
            ("", "v1", "Secret", "secrets"),
            ("", "v1", "Service", "services"),
            ("apps", "v1", "StatefulSet", "statefulsets"),
            ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
            ("coordination.k8s.io", "v1", "Lease", "leases"),
            ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            *((GROUP, VERSION, kind.name, kind.plural) for kind in KINDS),
        )
    }
)


class ClusterUnavailableError(RetryableError):
    """The Kubernetes API did not answer, or has too much to do. The operator tries again by itself."""


class ClusterConflictError(RetryableError):
    """Somebody else changed or replaced the object meanwhile. The operator looks at it anew by itself."""


class ClusterRefusedError(PermanentError):
    """The Kubernetes API refused a request: the operator may not do it, or the object is not valid there.

    The message is the API's own. Look at the operator's ClusterRole, at quotas, and at admission policies.
    """


class Cluster:
    """The Kubernetes API. Used from one event loop."""

    def __init__(self, on_write: Callable[[str, str], None], config: KubeConfig | None = None) -> None:
        """Connect by the pod's service account, or by KUBECONFIG.

        Args:
            on_write: Told the verb and the kind of every write, before it is sent.
            config: Where to connect to instead.
        """
        self._on_write = on_write
        self._client = AsyncClient(
            config=config, timeout=httpx2.Timeout(_REQUEST_SECONDS), field_manager=FIELD_MANAGER, trust_env=True
        )

    @property
    def namespace(self) -> str:
        """Where the operator itself lives."""
        return str(self._client.namespace)

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """An object; None when there is none. Raises: ClusterUnavailableError, ClusterRefusedError."""
        try:
            return dict(await self._client.get(_RESOURCES[kind], name, namespace=namespace))
        except (ApiError, httpx2.HTTPError) as error:
            if _code_of(error) == _NOT_FOUND:
                return None
            raise _mapped(error, f"reading {kind} {namespace}/{name}") from error

    async def apply(self, manifest: Manifest) -> None:
        """Make an object as the manifest says, and take back what was changed of it.

        Raises: ClusterUnavailableError, ClusterConflictError, ClusterRefusedError.
        """
        metadata = manifest["metadata"]
        await self._patch(manifest["kind"], metadata["namespace"], metadata["name"], manifest)

    async def create_secret(self, wanted: Create) -> None:
        """Make a Secret with new random values; one that is there stays. Raises: see `apply`."""
        values = {key: secrets.token_urlsafe(_TOKEN_BYTES) for key in wanted.generated}
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        try:
            await self.create({**wanted.manifest, "data": data})
        except ClusterConflictError:
            return

    async def create(self, manifest: Manifest) -> Manifest:
        """Make an object that must not be there yet. Raises: ClusterConflictError when it is; see `apply`."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        resource = _RESOURCES[kind]
        self._on_write("create", kind)
        try:
            return dict(await self._client.create(resource.from_dict(manifest)))
        except (ApiError, httpx2.HTTPError) as error:
            raise _mapped(error, f"making a {kind} in {metadata['namespace']}") from error

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace an object of the very version that the manifest names.

        Raises: ClusterConflictError when it is another by now; see `apply`.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        document: GenericNamespacedResource = _RESOURCES[kind].from_dict(manifest)
        self._on_write("replace", kind)
        try:
            return dict(await self._client.replace(document))
        except (ApiError, httpx2.HTTPError) as error:
            raise _mapped(error, f"replacing {kind} {metadata['namespace']}/{metadata['name']}") from error

    async def delete(self, namespace: str, key: ChildKey) -> None:
        """Remove an object, if it is still there. Raises: see `apply`."""
        self._on_write("delete", key.kind)
        try:
            await self._client.delete(_RESOURCES[key.kind], key.name, namespace=namespace)
        except (ApiError, httpx2.HTTPError) as error:
            if _code_of(error) != _NOT_FOUND:
                raise _mapped(error, f"deleting {key.kind} {namespace}/{key.name}") from error

    async def write_status(self, manifest: Manifest, status: Mapping[str, Any]) -> None:
        """Write the whole status of one of our objects, unless it was replaced by another of its name meanwhile.

        Raises: see `apply`.
        """
        metadata = manifest["metadata"]
        document = {
            "apiVersion": API_VERSION,
            "kind": manifest["kind"],
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
            "status": dict(status),
        }
        await self._patch(manifest["kind"], metadata["namespace"], metadata["name"], document, is_status=True)

    async def report(self, manifest: Manifest, report: Report) -> None:
        """Write an Event about one of our objects. Raises: see `apply`."""
        metadata, now = manifest["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await self.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
                "involvedObject": {
                    "apiVersion": manifest["apiVersion"],
                    "kind": manifest["kind"],
                    "name": metadata["name"],
                    "namespace": metadata["namespace"],
                    "uid": metadata["uid"],
                },
                "type": str(report.severity),
                "reason": report.reason,
                "message": report.message[:_LONGEST_MESSAGE],
                "source": {"component": FIELD_MANAGER},
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }
        )

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.aclose()

    async def _patch(
        self, kind: str, namespace: str, name: str, document: Manifest, *, is_status: bool = False
    ) -> None:
        resource = _RESOURCES[kind]
        self._on_write("status" if is_status else "apply", kind)
        try:
            await self._client.patch(
                resource.Status if is_status else resource,
                name,
                document,
                namespace=namespace,
                patch_type=PatchType.APPLY,
                force=True,
            )
        except (ApiError, httpx2.HTTPError) as error:
            raise _mapped(error, f"applying {kind} {namespace}/{name}") from error


def _code_of(error: Exception) -> int | None:
    return error.status.code if isinstance(error, ApiError) else None


def _mapped(error: Exception, doing: str) -> MailboatError:
    code = _code_of(error)
    if code in {_CONFLICT, _NOT_FOUND}:
        return ClusterConflictError(f"{doing}: {_text_of(error)}")
    if code is None or code == _TOO_MANY or code >= _FAULT:
        return ClusterUnavailableError(f"{doing}: {_text_of(error)}", retry_after_seconds=_retry_after(error))
    return ClusterRefusedError(f"{doing}: {_text_of(error)}")


def _text_of(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_LONGEST_MESSAGE]


def _retry_after(error: Exception) -> float | None:
    details = error.status.details if isinstance(error, ApiError) else None
    return None if details is None or details.retryAfterSeconds is None else float(details.retryAfterSeconds)
