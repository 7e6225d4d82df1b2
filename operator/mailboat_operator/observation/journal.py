"""A Journal: its Topics, and what its brokers say of themselves."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from contextlib import suppress

from mailboat_operator.api.journal import Journal
from mailboat_operator.brokers import Brokers, BrokersRefusedError, BrokersUnreachableError
from mailboat_operator.manifests.children import Manifest
from mailboat_operator.manifests.configuration import journal_mounts
from mailboat_operator.observation.sight import Sight
from mailboat_operator.plan.actions import Plan
from mailboat_operator.plan.journal import BrokersFound, journal_keys, plan_journal
from mailboat_operator.plan.workload import is_paused


async def look_at_journal(sight: Sight, journal: Journal) -> Plan:
    """What to do for a Journal."""
    children = await sight.children(journal.metadata.namespace, journal_keys(journal))
    found = BrokersFound()
    if not is_paused(journal.metadata, suspend=journal.spec.suspend):
        found = await _ask_brokers(sight, journal)
    return plan_journal(journal, found, children, sight.now)


async def connect(sight: Sight, journal: Journal) -> Brokers:
    """A client with the credentials of this moment, so that rotated ones are used at once."""
    namespace = journal.metadata.namespace
    names = [mount.secret for mount in journal_mounts(journal.spec) if mount.folder.startswith("kafka-")]
    found = {name: await sight.cluster.get("Secret", namespace, name) for name in names}
    return Brokers(journal.spec.kafka, {name: _entries(one) for name, one in found.items() if one is not None})


async def _ask_brokers(sight: Sight, journal: Journal) -> BrokersFound:
    try:
        brokers = await connect(sight, journal)
        found = await asyncio.to_thread(brokers.cluster)
    except (BrokersRefusedError, BrokersUnreachableError) as error:
        return BrokersFound(problem=(error.name, error.message))
    return BrokersFound(found.cluster_id, found.brokers)


def _entries(secret: Manifest) -> Mapping[str, str]:
    """A Secret's entries; what is no text can't be a credential, and counts as missing."""
    entries: dict[str, str] = {}
    for name, value in (secret.get("data") or {}).items():
        with suppress(ValueError):
            entries[name] = base64.b64decode(value).decode()
    return entries
