"""Observe, plan, act: for one object, whatever the cause, from all that there is.

Nothing is remembered from one time to the next, so a crash between any two writes is put right by the next look. An
object that can't be understood is told so in its own status; no other object learns of it. Called by `workers`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from mailboat.errors import MailboatError, UntrustedInputError

from mailboat_operator.api.decoding import decode
from mailboat_operator.api.journal import Journal
from mailboat_operator.api.kinds import Resource
from mailboat_operator.api.pool import SubscriberPool
from mailboat_operator.api.publisher import Publisher
from mailboat_operator.api.topic import Topic
from mailboat_operator.brokers import Brokers, BrokersRefusedError, BrokersUnreachableError
from mailboat_operator.cluster import Cluster
from mailboat_operator.manifests.children import ChildKey, Manifest
from mailboat_operator.manifests.configuration import journal_mounts
from mailboat_operator.manifests.pods import AgentImage
from mailboat_operator.plan.actions import (
    Action,
    Apply,
    Configure,
    Create,
    CreateTopic,
    Delete,
    Grow,
    Plan,
    Report,
    Severity,
    TopicAction,
)
from mailboat_operator.plan.conditions import stalled, suspended, under_way
from mailboat_operator.plan.invalid import plan_invalid
from mailboat_operator.plan.journal import BrokersFound, journal_keys, plan_journal
from mailboat_operator.plan.pool import plan_pool, pool_keys
from mailboat_operator.plan.publisher import plan_publisher, publisher_keys
from mailboat_operator.plan.topic import plan_topic, plan_topic_status, wanted_topic
from mailboat_operator.plan.workload import GoldenPool, SecretFound, Surroundings, is_paused

_LOG: Final = logging.getLogger("mailboat.operator")
_LONGEST_CHAIN: Final = 20


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Which of our objects."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Reconciler:
    """Brings what there is to what is asked for. Called for several objects at once, never twice for one."""

    def __init__(self, cluster: Cluster, image: AgentImage, on_report: Callable[[str], None]) -> None:
        """Act through `cluster`; `on_report` is told the reason of every Event."""
        self._cluster = cluster
        self._image = image
        self._on_report = on_report

    async def reconcile(self, key: ObjectKey) -> bool:
        """Look at one object and act; whether it is as it should be, so that the next look can wait.

        Raises: ClusterUnavailableError, ClusterConflictError, ClusterRefusedError.
        """
        found = await self._cluster.get(key.kind, key.namespace, key.name)
        if found is None:
            return True
        try:
            plan = await self._plan(decode(found))
        except UntrustedInputError as error:
            plan = plan_invalid(found, error, datetime.now(UTC))
        for action in plan.actions:
            await self._act(found, action)
        if plan.status is not None:
            await self._cluster.write_status(found, plan.status)
        return _is_ready(found.get("status") if plan.status is None else plan.status)

    async def refuse(self, key: ObjectKey, error: MailboatError) -> None:
        """Say in the object's status that the API refused what was planned. Raises: see `reconcile`."""
        found = await self._cluster.get(key.kind, key.namespace, key.name)
        if found is None:
            return
        plan = plan_invalid(found, error, datetime.now(UTC))
        if plan.status is not None:
            await self._cluster.write_status(found, plan.status)

    async def _plan(self, resource: Resource) -> Plan:
        if isinstance(resource, Publisher):
            return plan_publisher(resource, await self._around_publisher(resource))
        if isinstance(resource, SubscriberPool):
            return plan_pool(resource, await self._around_pool(resource))
        if isinstance(resource, Journal):
            return await self._plan_journal(resource)
        if isinstance(resource, Topic):
            return await self._plan_topic(resource)
        return Plan((), None)

    async def _plan_journal(self, journal: Journal) -> Plan:
        namespace = journal.metadata.namespace
        live = {key: await self._cluster.get(key.kind, namespace, key.name) for key in journal_keys(journal)}
        children = {key: child for key, child in live.items() if child is not None}
        found = BrokersFound()
        if not is_paused(journal.metadata, suspend=journal.spec.suspend):
            found = await self._brokers_of(journal)
        return plan_journal(journal, found, children, datetime.now(UTC))

    async def _brokers_of(self, journal: Journal) -> BrokersFound:
        try:
            brokers = await self._connect(journal)
            found = await asyncio.to_thread(brokers.cluster)
        except (BrokersRefusedError, BrokersUnreachableError) as error:
            return BrokersFound(problem=(error.name, error.message))
        return BrokersFound(found.cluster_id, found.brokers)

    async def _plan_topic(self, topic: Topic) -> Plan:
        metadata, now, name = topic.metadata, datetime.now(UTC), topic.spec.journal_ref.name
        if metadata.is_deleted:
            return Plan((), None)
        if is_paused(metadata, suspend=topic.spec.suspend):
            return plan_topic_status(topic, None, None, suspended(), now)
        journal = await self._understood(metadata.namespace, "Journal", name)
        if not isinstance(journal, Journal):
            findings = under_way("JournalMissing", f"there is no Journal {name} that can be understood")
            return plan_topic_status(topic, None, None, findings, now)
        wanted = wanted_topic(topic, journal)
        try:
            brokers = await self._connect(journal)
            found = await asyncio.to_thread(brokers.topic, wanted.name)
            plan = plan_topic(topic, wanted, found, now)
            for action in plan.actions:
                if isinstance(action, TopicAction):
                    await asyncio.to_thread(brokers.act, action)
                    found = await asyncio.to_thread(brokers.topic, wanted.name)
            if found is not None:
                plan = replace(plan, status=plan_topic(topic, wanted, found, now).status)
        except BrokersUnreachableError as error:
            return plan_topic_status(topic, wanted, None, under_way(error.name, error.message), now)
        except BrokersRefusedError as error:
            return plan_topic_status(topic, wanted, None, stalled(error.name, error.message), now)
        return plan

    async def _connect(self, journal: Journal) -> Brokers:
        """A client with the credentials of this moment, so that rotated ones are used at once."""
        namespace = journal.metadata.namespace
        names = [mount.secret for mount in journal_mounts(journal.spec) if mount.folder.startswith("kafka-")]
        found = {name: await self._cluster.get("Secret", namespace, name) for name in names}
        return Brokers(journal.spec.kafka, {name: _entries(one) for name, one in found.items() if one is not None})

    async def _around_publisher(self, publisher: Publisher) -> Surroundings:
        said = publisher.spec.http.token_secret_ref
        return await self._around(
            publisher.metadata.namespace,
            publisher.spec.journal_ref.name,
            publisher_keys(publisher),
            [] if said is None else [said.name],
        )

    async def _around_pool(self, pool: SubscriberPool) -> Surroundings:
        namespace = pool.metadata.namespace
        staging = {} if pool.spec.staging is None else await self._staging(namespace, pool.spec.staging.wait_for.name)
        return await self._around(namespace, pool.spec.journal_ref.name, pool_keys(pool), (), staging)

    async def _around(
        self,
        namespace: str,
        journal_name: str,
        children: Sequence[ChildKey],
        own_secrets: Sequence[str],
        staging: Mapping[str, GoldenPool] | None = None,
    ) -> Surroundings:
        journal = await self._understood(namespace, "Journal", journal_name)
        wanted = list(own_secrets)
        if isinstance(journal, Journal):
            wanted += [mount.secret for mount in journal_mounts(journal.spec)]
        secrets = {name: await self._secret(namespace, name) for name in dict.fromkeys(wanted)}
        live = {key: await self._cluster.get(key.kind, namespace, key.name) for key in children}
        return Surroundings(
            journal=journal if isinstance(journal, Journal) else None,
            secrets={name: secret for name, secret in secrets.items() if secret is not None},
            children={key: child for key, child in live.items() if child is not None},
            image=self._image,
            now=datetime.now(UTC),
            staging={} if staging is None else staging,
        )

    async def _understood(self, namespace: str, kind: str, name: str) -> Resource | None:
        found = await self._cluster.get(kind, namespace, name)
        if found is None:
            return None
        try:
            return decode(found)
        except UntrustedInputError:  # its own status says so
            return None

    async def _secret(self, namespace: str, name: str) -> SecretFound | None:
        """A Secret's version and the names of its entries; its values go no further than this."""
        found = await self._cluster.get("Secret", namespace, name)
        if found is None:
            return None
        return SecretFound(found["metadata"]["resourceVersion"], frozenset(found.get("data") or {}))

    async def _staging(self, namespace: str, name: str) -> Mapping[str, GoldenPool]:
        """The chain of pools that are waited for, as far as it goes."""
        chain: dict[str, GoldenPool] = {}
        while name not in chain and len(chain) < _LONGEST_CHAIN:
            pool = await self._understood(namespace, "SubscriberPool", name)
            if not isinstance(pool, SubscriberPool):
                break
            next_one = pool.spec.staging
            chain[name] = GoldenPool(pool.spec.editable, None if next_one is None else next_one.wait_for.name)
            if next_one is None:
                break
            name = next_one.wait_for.name
        return chain

    async def _act(self, owner: Manifest, action: Action) -> None:
        match action:
            case Apply(manifest):
                await self._cluster.apply(manifest)
            case Create():
                await self._cluster.create_secret(action)
            case Delete(key):
                await self._cluster.delete(owner["metadata"]["namespace"], key)
            case Report():
                self._on_report(action.reason)
                level = logging.WARNING if action.severity is Severity.WARNING else logging.INFO
                _LOG.log(level, "%s %s: %s", owner["kind"], owner["metadata"]["name"], action.message)
                await self._cluster.report(owner, action)
            case CreateTopic() | Grow() | Configure():
                pass  # done while planning, since the status tells what came of it


def _entries(secret: Manifest) -> Mapping[str, str]:
    """A Secret's entries; what is no text can't be a credential, and counts as missing."""
    entries: dict[str, str] = {}
    for name, value in (secret.get("data") or {}).items():
        with suppress(ValueError):
            entries[name] = base64.b64decode(value).decode()
    return entries


def _is_ready(status: Mapping[str, Any] | None) -> bool:
    conditions = (status or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
