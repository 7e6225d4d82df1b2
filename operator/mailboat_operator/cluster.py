"""The only caller of the Kubernetes API: reads, server-side apply, status, Events and leases.

Objects are plain documents, as the API gives them. Every write is counted, and is made in the name of our field
manager; what others own of an object stays theirs. Every error of the client or the network is mapped here.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from lightkube.config.kubeconfig import KubeConfig
from lightkube.generic_resource import GenericNamespacedResource
from lightkube.types import PatchType
from mailboat.errors import ClusterConflictError, ClusterRefusedError
from mailboat.token_bucket import TokenBucket

from mailboat_operator.definition import API_VERSION
from mailboat_operator.plan.actions import Create, RecordEvent
from mailboat_operator.plan.child_manifest import ChildKey, Manifest, digest_of, kind_of
from mailboat_operator.plan.labels import FIELD_MANAGER, FINALIZER
from mailboat_operator.resources import (
    FAILURES,
    LONGEST_MESSAGE,
    RESOURCES,
    SELF_REVIEW,
    connect,
    delete_exactly,
    is_forbidden,
    is_invalid,
    is_missing,
    is_out_of_sight,
    mapped,
)

T = TypeVar("T")

_TOKEN_BYTES: Final = 32
_LONGEST_PREFIX: Final = 200
# objects in one page of a list, as `kubectl` asks for them
_CHUNK: Final = 500
# tokens of so many seconds are in a full bucket: a thousand objects take ten times as long as a hundred, and a lone
# change waits for nothing
_BURST_SECONDS: Final = 0.25
_AT_ONCE: Final = 16
"""Requests: fewer than the connections that the client keeps. After brokers answer many reconciliations at once each
would open one of its own, and close it again; encrypting it costs more than the request."""


async def list_served(list_one: Callable[[str], Awaitable[Sequence[T]]], namespaces: Sequence[str]) -> list[T]:
    """What `list_one` gives of each namespace, without those that may not be listed.

    A Role goes with its namespace, which must not take the others along. Raises: what `list_one` does; a
    ClusterRefusedError for missing rights where no namespace may be listed.
    """
    found: list[T] = []
    refusals: list[ClusterRefusedError] = []
    for namespace in namespaces:
        try:
            found += await list_one(namespace)
        except ClusterRefusedError as error:
            if not is_forbidden(error.__cause__):
                raise
            refusals.append(error)
    if len(refusals) == len(namespaces):
        raise refusals[0]
    return found


class RequestBudget:
    """How many requests a second the operator sends to the API, however many objects change at once.

    A request waits for a token; waiters go in the order in which they came.
    """

    def __init__(self, per_second: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Begin with a full bucket; `per_second` None sets no limit."""
        self._bucket = None if per_second is None else TokenBucket(per_second, max(1.0, per_second * _BURST_SECONDS))
        self._monotonic = monotonic

    async def take(self) -> None:
        """Wait for a token."""
        if self._bucket is None:
            return
        # reserved before the sleep, so that waiters keep their order
        pause = self._bucket.take(self._monotonic())
        if pause > 0.0:
            await asyncio.sleep(pause)


class Cluster:
    """The Kubernetes API. Used from one event loop."""

    def __init__(
        self,
        on_write: Callable[[str, str], None],
        config: KubeConfig | None = None,
        budget: RequestBudget | None = None,
    ) -> None:
        """Connect by the pod's service account, or by KUBECONFIG.

        Args:
            on_write: Receives the verb and the kind of every write, before it is sent.
            config: Where to connect to instead.
            budget: What every request takes a token of; None sets no limit.
        """
        self._on_write = on_write
        self._budget = RequestBudget(None) if budget is None else budget
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._client = connect(config)

    @property
    def namespace(self) -> str:
        """Where the operator itself lives."""
        return str(self._client.namespace)

    async def account(self, namespace: str) -> Mapping[str, str] | None:
        """The operator's service account, for owner references; None where it is not one of the namespace.

        Raises: see `apply`.
        """
        try:
            async with self._turn():
                found = await self._client.create(SELF_REVIEW.from_dict({}))
        except FAILURES as error:
            raise mapped(error, "reading the operator's own identity") from error
        user = found["status"]["userInfo"]
        account, name = user["username"].rpartition(":")[::2]
        if account != f"system:serviceaccount:{namespace}":
            return None
        return {"apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": user["uid"]}

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """An object; None if absent. Raises: ClusterUnavailableError, ClusterRefusedError."""
        try:
            async with self._turn():
                return dict(await self._client.get(RESOURCES[kind], name, namespace=namespace))
        except FAILURES as error:
            if is_missing(error):
                return None
            raise mapped(error, f"reading {kind} {namespace}/{name}") from error

    async def list(
        self,
        kind: str,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Sequence[Manifest]:
        """The objects of a kind in a namespace (`*`: all), selected by `labels` and `fields`.

        Raises: ClusterConflictError where the kind itself is gone, ClusterUnavailableError, ClusterRefusedError.
        """
        found = self._client.list(
            RESOURCES[kind],
            namespace=namespace,
            chunk_size=_CHUNK,
            labels=dict(labels or {}),
            fields=dict(fields or {}),
        )
        try:
            async with self._turn():
                return [dict(manifest) async for manifest in found]
        except FAILURES as error:
            raise mapped(error, f"listing {kind} in {namespace}") from error

    async def has_kind(self, kind: str, namespace: str) -> bool:
        """Whether a foreign kind is installed, and we may see it. Raises: ClusterUnavailableError."""
        try:
            async with self._turn():
                # of any name: a Status with 404 comes from a kind that is served, another answer from a path that is
                # not
                await self._client.get(RESOURCES[kind], "any", namespace=namespace)
        except FAILURES as error:
            if is_out_of_sight(error):
                return False
            if not is_missing(error):
                raise mapped(error, f"checking for the kind {kind}") from error
        return True

    async def apply(self, manifest: Manifest) -> Manifest:
        """Make an object as the manifest says, and undo changes of others; returns the object.

        A foreign entry in a list of ours may make the whole invalid, as two ports of one name do: then the lists
        are replaced as wholes.

        Raises: ClusterUnavailableError, ClusterConflictError, ClusterRefusedError.
        """
        try:
            return await self._send(manifest, manifest, PatchType.APPLY, "apply")
        except ClusterRefusedError as error:
            # ports are merged by number, and names must be unique: https://github.com/kubernetes/kubernetes/issues/131147
            if not is_invalid(error.__cause__):
                raise
            try:
                await self._send(manifest, manifest, PatchType.MERGE, "merge")
            except (ClusterConflictError, ClusterRefusedError):
                raise error from error.__cause__
            return await self._send(manifest, manifest, PatchType.APPLY, "apply")

    async def create_secret(self, wanted: Create) -> None:
        """Make a Secret with new random values; one that is there stays. Raises: see `apply`."""
        values = {key: secrets.token_urlsafe(_TOKEN_BYTES) for key in wanted.generated}
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        try:
            # an existing one stays as it is: pods may have read its token already
            await self.create({**wanted.manifest, "data": data})
        except ClusterConflictError:
            return

    async def create(self, manifest: Manifest) -> Manifest:
        """Make an object that must not be there yet. Raises: ClusterConflictError when it is; see `apply`."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        resource = RESOURCES[kind]
        try:
            async with self._turn():
                self._on_write("create", kind)
                return dict(await self._client.create(resource.from_dict(manifest)))
        except FAILURES as error:
            raise mapped(error, f"making a {kind} in {metadata['namespace']}") from error

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace an object of the very version that the manifest names.

        Raises: ClusterConflictError when it is another by now; see `apply`.
        """
        kind, metadata = kind_of(manifest), manifest["metadata"]
        document: GenericNamespacedResource = RESOURCES[kind].from_dict(manifest)
        try:
            async with self._turn():
                self._on_write("replace", kind)
                return dict(await self._client.replace(document))
        except FAILURES as error:
            raise mapped(error, f"replacing {kind} {metadata['namespace']}/{metadata['name']}") from error

    async def delete(self, namespace: str, key: ChildKey, uid: str) -> None:
        """Remove an object, if it is still there.

        Raises: ClusterConflictError when there is another one of its name by now; see `apply`.
        """
        try:
            async with self._turn():
                self._on_write("delete", key.kind)
                await delete_exactly(self._client, RESOURCES[key.kind], namespace, key.name, uid)
        except FAILURES as error:
            if not is_missing(error):
                raise mapped(error, f"deleting {key.kind} {namespace}/{key.name}") from error

    async def write_status(self, manifest: Manifest, status: Mapping[str, Any]) -> None:
        """Write the whole status of one of our objects, unless another of its name replaced it.

        Raises: see `apply`.
        """
        metadata = manifest["metadata"]
        document = {
            "apiVersion": API_VERSION,
            "kind": manifest["kind"],
            # the API server refuses the write (409) if another object has the name by now, with another uid
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
            "status": dict(status),
        }
        await self._send(manifest, document, PatchType.APPLY, "status", is_status=True)

    async def report(self, manifest: Manifest, report: RecordEvent) -> None:
        """Write an Event about one of our objects, or count one that says the same. Raises: see `apply`."""
        metadata, now = manifest["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        # named by its content, so that a repetition finds it: each would be a line of `kubectl describe` for an hour
        digest = digest_of([metadata["uid"], str(report.severity), report.reason, report.message])
        name = f"{metadata['name'][:_LONGEST_PREFIX].rstrip('-.')}.{digest}"
        event: Manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": manifest["apiVersion"],
                "kind": manifest["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": str(report.severity),
            "reason": report.reason,
            "message": report.message[:LONGEST_MESSAGE],
            "source": {"component": FIELD_MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self.create(event)
        except ClusterConflictError:
            found = await self.list("Event", metadata["namespace"], fields={"metadata.name": name})
            if not found:
                raise
            change = {"count": int(found[0].get("count") or 0) + 1, "lastTimestamp": now}
            await self._send(event, change, PatchType.MERGE, "repeat")

    async def hold(self, manifest: Manifest, *, is_held: bool) -> Manifest:
        """Add or remove our finalizer of one of our objects, and return the object after that.

        Raises: ClusterConflictError when the object was changed since `manifest` was read; see `apply`.
        """
        metadata = manifest["metadata"]
        others = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != FINALIZER]
        document = {
            "metadata": {
                "uid": metadata["uid"],
                # makes the merge patch conditional (409): it replaces the whole list, also the finalizers of others
                "resourceVersion": metadata["resourceVersion"],
                "finalizers": [*others, FINALIZER] if is_held else others,
            }
        }
        return await self._send(manifest, document, PatchType.MERGE, "hold" if is_held else "release")

    async def enlarge(self, claim: Manifest, size: str) -> None:
        """Ask for a larger volume of a claim.

        Raises: ClusterRefusedError if its storage class does not allow it; see `apply`.
        """
        named = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim["metadata"]}
        document = {
            "metadata": {"uid": claim["metadata"]["uid"]},
            "spec": {"resources": {"requests": {"storage": size}}},
        }
        await self._send(named, document, PatchType.MERGE, "enlarge")

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.aclose()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """For one request."""
        # before the semaphore: a request that waits for its token keeps no connection from others
        await self._budget.take()
        async with self._turns:
            yield

    async def _send(
        self, named: Manifest, document: Manifest, patch_type: PatchType, verb: str, *, is_status: bool = False
    ) -> Manifest:
        kind, metadata = kind_of(named), named["metadata"]
        resource: type[GenericNamespacedResource] = RESOURCES[kind]
        try:
            async with self._turn():
                self._on_write(verb, kind)
                made = await self._client.patch(
                    resource.Status if is_status else resource,
                    metadata["name"],
                    document,
                    namespace=metadata["namespace"],
                    patch_type=patch_type,
                    force=True,  # heeded by server-side apply alone
                )
        except FAILURES as error:
            raise mapped(error, f"applying {kind} {metadata['namespace']}/{metadata['name']}") from error
        return dict(made)
