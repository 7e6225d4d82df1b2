"""The cluster as all looks see it: objects that can be understood, children by name, Secrets without their values.

Called by the `controller` module of each kind. Every method may raise ClusterUnavailableError or
ClusterRefusedError, as `Cluster` does.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Generic, TypeVar

from mailboat.api.records import StatusView
from mailboat.errors import AgentRefusedError, AgentUnreachableError, ClusterRefusedError, UntrustedInputError

from mailboat_operator.agent_client import AgentAddress, Agents
from mailboat_operator.cluster import Cluster, list_served
from mailboat_operator.definition.amounts import format_size
from mailboat_operator.definition.conditions import Condition, condition_of
from mailboat_operator.kinds.job_queue.spec import JobQueue
from mailboat_operator.kinds.job_schedule.spec import JobSchedule
from mailboat_operator.kinds.journal.agent_config import journal_mounts
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.package_build.spec import PackageBuild
from mailboat_operator.kinds.publisher.manifests import token_secret_name
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.kinds.registry import Resource, decode
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPool
from mailboat_operator.kinds.workload_context import SecretFound, WorkloadContext, is_checked, is_rolled_out
from mailboat_operator.plan.child_manifest import (
    APACHE_APPLICATION,
    KUBEFLOW_APPLICATION,
    ChildKey,
    Manifest,
    digest_of,
)
from mailboat_operator.plan.children import Live, controller_uid
from mailboat_operator.plan.labels import TOKEN_KEY
from mailboat_operator.systems import Systems
from mailboat_operator.workload.pod_failures import Pods, observed, subject_uid
from mailboat_operator.workload.pods import AgentImage
from mailboat_operator.workload.template import Volume
from mailboat_operator.workload.volumes import (
    VOLUMES_RESIZED,
    VolumeClaims,
    is_enlarged,
    members_claims,
    template_bytes,
    too_small,
)

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")


class SharedReads(Generic[K, A]):
    """Reads of one sort, by what is asked for."""

    def __init__(self, read: Callable[[K], Awaitable[A]]) -> None:
        """Read by `read`; what it raises, all waiters of the read get."""
        self._read = read
        self._coming: dict[K, asyncio.Task[A]] = {}
        self._under_way: dict[K, asyncio.Task[A]] = {}

    async def ask(self, key: K) -> A:
        """The answer of a read that begins after this. Raises: what the read does."""
        task = self._coming.get(key)
        if task is None:
            task = self._coming[key] = asyncio.create_task(self._read_after(key, self._under_way.get(key)))
            # asyncio logs an exception that is never retrieved, as when all askers were cancelled
            task.add_done_callback(_heed)
        return await asyncio.shield(task)  # a caller that goes does not end it for others

    async def _read_after(self, key: K, before: asyncio.Task[A] | None) -> A:
        if before is not None:
            # `wait` does not raise: a failure of the earlier read does not concern this one
            await asyncio.wait([before])
        # from here on a question starts another read: the answer of this one may be older
        self._under_way[key] = self._coming.pop(key)
        try:
            return await self._read(key)
        finally:
            del self._under_way[key]


def _heed(task: asyncio.Task[A]) -> None:
    """Retrieve a failure that has no waiter any more."""
    if not task.cancelled():
        task.exception()


_LOG: Final = logging.getLogger("mailboat.operator")
# Each that does not answer costs a timeout, within one reconciliation.
_ASKED: Final = 3
_RUNNING: Final = frozenset({"StatefulSet", APACHE_APPLICATION, KUBEFLOW_APPLICATION})


class ClusterReader:
    """Reads, and never writes."""

    def __init__(
        self, cluster: Cluster, agents: Agents, image: AgentImage, systems: Systems, clock: Callable[[], datetime]
    ) -> None:
        """Read through `cluster`, `agents` and `systems`; `image` is what agents run, `clock` has the time."""
        self.cluster = cluster
        self.agents = agents
        self.systems = systems
        self.image = image
        self._clock = clock
        self._shared = SharedReads[tuple[str, str, str], Manifest | None](lambda key: cluster.get(*key))
        # each of a thousand pools would list and decode all publishers, and each publisher all pools
        self._lists = SharedReads[tuple[str, str], Sequence[Resource]](self._listed)

    @property
    def now(self) -> datetime:
        """The moment of a look."""
        return self._clock()

    async def understood(self, namespace: str, kind: str, name: str) -> Resource | None:
        """An object of ours; None if absent, or not understood."""
        found = await self.cluster.get(kind, namespace, name)
        return None if found is None else _decoded(found)

    async def is_undecodable(self, namespace: str, kind: str, name: str) -> bool:
        """Whether there is an object of ours that cannot be decoded."""
        found = await self.cluster.get(kind, namespace, name)
        return found is not None and _decoded(found) is None

    async def journal(self, namespace: str, name: str) -> Journal | None:
        """A Journal; None if absent, or not understood."""
        manifest = await self._shared.ask(("Journal", namespace, name))
        found = None if manifest is None else _decoded(manifest)
        return found if isinstance(found, Journal) else None

    async def publisher(self, namespace: str, name: str) -> Publisher | None:
        """A Publisher; None if absent, or not understood."""
        found = await self.understood(namespace, "Publisher", name)
        return found if isinstance(found, Publisher) else None

    async def pools(self, namespace: str) -> Sequence[SubscriberPool]:
        """The pools of a namespace that can be understood, by name."""
        found = await self._lists.ask(("SubscriberPool", namespace))
        return [pool for pool in found if isinstance(pool, SubscriberPool)]

    async def publishers(self, namespace: str) -> Sequence[Publisher]:
        """The publishers of a namespace, or of all (`*`), that can be understood, by name."""
        found = await self._lists.ask(("Publisher", namespace))
        return [publisher for publisher in found if isinstance(publisher, Publisher)]

    async def builds(self, namespace: str, owner_uid: str) -> Sequence[PackageBuild]:
        """The builds that a timetable made."""
        found = await self.cluster.list("PackageBuild", namespace)
        made = [_decoded(child) for child in found if controller_uid(child) == owner_uid]
        return [build for build in made if isinstance(build, PackageBuild)]

    async def job_queues(self) -> Sequence[JobQueue]:
        """The JobQueues of the served namespaces that can be decoded."""
        return [queue for queue in await self._served("JobQueue") if isinstance(queue, JobQueue)]

    async def job_schedules(self) -> Sequence[JobSchedule]:
        """The JobSchedules of the served namespaces that can be decoded."""
        return [schedule for schedule in await self._served("JobSchedule") if isinstance(schedule, JobSchedule)]

    async def _served(self, kind: str) -> Sequence[Resource]:
        return await list_served(
            lambda namespace: self._lists.ask((kind, namespace)), self.systems.namespaces or ("*",)
        )

    async def _listed(self, key: tuple[str, str]) -> Sequence[Resource]:
        kind, namespace = key
        found = [_decoded(manifest) for manifest in await self.cluster.list(kind, namespace)]
        return sorted(
            (resource for resource in found if resource is not None), key=lambda resource: resource.metadata.name
        )

    async def agent_of(self, publisher: Publisher) -> AgentAddress:
        """Where a publisher's agent is asked, with the token of this moment.

        Raises: AgentUnreachableError while there is no token, or for one that no request can carry, without quoting it.
        """
        metadata, name = publisher.metadata, token_secret_name(publisher)
        secret = await self.cluster.get("Secret", metadata.namespace, name)
        entry = ((secret or {}).get("data") or {}).get(TOKEN_KEY)
        if entry is None:
            text = "the Secret with the publisher's token does not exist yet"
            raise AgentUnreachableError(text, error="SecretMissing")
        token = base64.b64decode(entry).decode(errors="replace").strip()
        if not token or not token.isascii() or not token.isprintable():  # the HTTP library would quote it in its error
            text = f"the token of Secret {name} is empty, or has characters that no HTTP header can have; correct it"
            raise AgentUnreachableError(text, error="SecretMalformed")
        return AgentAddress(metadata.namespace, metadata.name, token)

    async def fleet(self, publishers: Sequence[Publisher]) -> StatusView | None:
        """The subscribers of a journal, by one of its publishers; None if none of the first few answers."""
        for publisher in publishers[:_ASKED]:
            try:
                return await self.agents.fleet(await self.agent_of(publisher))
            except (AgentUnreachableError, AgentRefusedError) as error:
                _LOG.info("%s: %s", publisher.metadata.name, error)
        return None

    async def children(self, namespace: str, keys: Iterable[ChildKey]) -> Live:
        """Those of the names that exist, also foreign ones."""
        # one by one, by name: a list needs a right over all Secrets, and would not find a foreign object of the name
        found = {key: await self.cluster.get(key.kind, namespace, key.name) for key in keys}
        return {key: child for key, child in found.items() if child is not None}

    async def pods(self, namespace: str, workload: Manifest) -> Pods:
        """The pods of a StatefulSet while not all of them are ready, with the Events of what has not started."""
        # a list of pods and one of Events at each look: only where there is something to explain
        if not workload or is_rolled_out(workload):
            return Pods()
        try:
            labels = workload["spec"]["selector"]["matchLabels"]
            pods = observed(await self.cluster.list("Pod", namespace, labels=labels))
            uid = subject_uid(workload, pods.found)
            events = await self.cluster.list("Event", namespace, fields={"involvedObject.uid": uid}) if uid else []
        except ClusterRefusedError as error:  # rights of an older chart: everything else works without them
            _LOG.info("%s: %s", workload["metadata"]["name"], error)
            return Pods()
        return replace(pods, events=events)

    async def pods_of(self, namespace: str, labels: Mapping[str, str]) -> Pods:
        """The pods with these labels, in order of their names."""
        return observed(await self.cluster.list("Pod", namespace, labels=labels))

    async def claim(self, namespace: str, name: str) -> Manifest | None:
        """A claim of the user's. Operators may list claims, and not get one."""
        found = await self.cluster.list("PersistentVolumeClaim", namespace, fields={"metadata.name": name})
        return next(iter(found), None)

    async def claims(
        self, namespace: str, workload: Manifest, wanted: Volume | None, before: Sequence[Condition] = ()
    ) -> VolumeClaims:
        """The claims of a StatefulSet that are or were smaller than the spec says, and why one may not grow.

        Args:
            namespace: Where they are.
            workload: The StatefulSet, also as `unmade_workload` gives it; empty for a foreign one.
            wanted: What the spec says of each; None where it asks for none.
            before: Conditions of the object: once a claim was too small, all are followed.
        """
        if wanted is None or not workload:
            return VolumeClaims()
        is_followed = is_enlarged(workload, wanted) or condition_of(before, VOLUMES_RESIZED) is not None
        if not is_followed and template_bytes(workload) is not None:
            return VolumeClaims()
        size, labels = format_size(wanted.size_bytes), workload["spec"]["selector"]["matchLabels"]
        try:
            listed = await self.cluster.list("PersistentVolumeClaim", namespace, labels=labels)
        except ClusterRefusedError as error:  # rights of an older chart
            return VolumeClaims(refused=error.message if is_followed else None)
        # Before the StatefulSet is made, of all ordinals: its template will have the new size, so nothing looks later.
        found = listed if template_bytes(workload) is None else members_claims(listed, workload)
        if not is_followed and not any(too_small(found, wanted.size_bytes)):
            return VolumeClaims()
        refusals = (self.systems.refusals.of(claim, size, self.now) for claim in too_small(found, wanted.size_bytes))
        return VolumeClaims(found, next((refusal for refusal in refusals if refusal is not None), None))

    async def credentials(self, namespace: str, name: str) -> Manifest | None:
        """A Secret as it is; only who connects may ask for one."""
        return await self._shared.ask(("Secret", namespace, name))

    async def secret(self, namespace: str, name: str) -> SecretFound | None:
        """A Secret's version and the names of its entries; its values go no further than this."""
        found = await self.credentials(namespace, name)
        if found is None:
            return None
        data = found.get("data") or {}
        # Not the resource version: a new label would roll all pods. The uid is a salt that readers of pods do not know:
        # the digest goes into an annotation, and must not confirm a guessed password.
        return SecretFound(digest_of([found["metadata"]["uid"], data]), frozenset(data))

    async def surroundings(
        self,
        namespace: str,
        journal_name: str,
        children: Iterable[ChildKey],
        own_secrets: Iterable[str] = (),
    ) -> WorkloadContext:
        """What publishers and pools have around them.

        Args:
            namespace: Where the object is.
            journal_name: The Journal that it names.
            children: That it may have.
            own_secrets: Secrets of the user's that its agents need besides those of the journal.
        """
        journal = await self.journal(namespace, journal_name)
        wanted = [*own_secrets, *(() if journal is None else (mount.secret for mount in journal_mounts(journal.spec)))]
        live = await self.children(namespace, children)
        has_agents = any(key.kind in _RUNNING for key in live)
        secrets = {name: await self.secret(namespace, name) for name in dict.fromkeys(wanted)}
        return WorkloadContext(
            journal=journal,
            secrets={name: secret for name, secret in secrets.items() if secret is not None},
            children=live,
            image=self.image,
            now=self.now,
            policy=self.systems.policy,
            is_journal_checked=journal is None or is_checked(journal, has_agents=has_agents),
        )


def _decoded(manifest: Manifest) -> Resource | None:
    try:
        return decode(manifest)
    except UntrustedInputError:  # its own status says so
        return None
