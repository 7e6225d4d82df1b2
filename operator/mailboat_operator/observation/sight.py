"""The cluster as all looks see it: objects that can be understood, children by name, Secrets without their values.

Called by the modules of each kind beside this one. Every method may raise ClusterUnavailableError or
ClusterRefusedError, as `Cluster` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from mailboat.errors import UntrustedInputError

from mailboat_operator.api.decoding import decode
from mailboat_operator.api.journal import Journal
from mailboat_operator.api.kinds import Resource
from mailboat_operator.cluster import Cluster
from mailboat_operator.manifests.children import ChildKey
from mailboat_operator.manifests.configuration import journal_mounts
from mailboat_operator.manifests.pods import AgentImage
from mailboat_operator.plan.children import Live
from mailboat_operator.plan.workload import GoldenPool, SecretFound, Surroundings


class Sight:
    """Reads, and never writes."""

    def __init__(self, cluster: Cluster, image: AgentImage) -> None:
        """Read through `cluster`; `image` is what agents run."""
        self.cluster = cluster
        self._image = image

    @property
    def now(self) -> datetime:
        """The moment of a look."""
        return datetime.now(UTC)

    async def understood(self, namespace: str, kind: str, name: str) -> Resource | None:
        """An object of ours; None where there is none, or none that can be understood."""
        found = await self.cluster.get(kind, namespace, name)
        if found is None:
            return None
        try:
            return decode(found)
        except UntrustedInputError:  # its own status says so
            return None

    async def journal(self, namespace: str, name: str) -> Journal | None:
        """A Journal; None where there is none, or none that can be understood."""
        found = await self.understood(namespace, "Journal", name)
        return found if isinstance(found, Journal) else None

    async def children(self, namespace: str, keys: Iterable[ChildKey]) -> Live:
        """Those of the names that exist, whoever made them."""
        found = {key: await self.cluster.get(key.kind, namespace, key.name) for key in keys}
        return {key: child for key, child in found.items() if child is not None}

    async def secret(self, namespace: str, name: str) -> SecretFound | None:
        """A Secret's version and the names of its entries; its values go no further than this."""
        found = await self.cluster.get("Secret", namespace, name)
        if found is None:
            return None
        return SecretFound(found["metadata"]["resourceVersion"], frozenset(found.get("data") or {}))

    async def surroundings(
        self,
        namespace: str,
        journal_name: str,
        children: Iterable[ChildKey],
        own_secrets: Iterable[str] = (),
        staging: Mapping[str, GoldenPool] | None = None,
    ) -> Surroundings:
        """What publishers and pools have around them.

        Args:
            namespace: Where the object is.
            journal_name: The Journal that it names.
            children: That it may have.
            own_secrets: Secrets of the user's that its agents need beside those of the journal.
            staging: The pools that it waits for.
        """
        journal = await self.journal(namespace, journal_name)
        wanted = [*own_secrets, *(() if journal is None else (one.secret for one in journal_mounts(journal.spec)))]
        secrets = {name: await self.secret(namespace, name) for name in dict.fromkeys(wanted)}
        return Surroundings(
            journal=journal,
            secrets={name: secret for name, secret in secrets.items() if secret is not None},
            children=await self.children(namespace, children),
            image=self._image,
            now=self.now,
            staging={} if staging is None else staging,
        )
