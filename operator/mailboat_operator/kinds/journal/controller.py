"""A Journal: its Topics, and what its brokers and its bucket say."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from mailboat.errors import (
    SecretMalformedError,
)
from mailboat.model.messages import TopicRole

from mailboat_operator.broker_connections import BrokerConnection
from mailboat_operator.brokers import Credentials, entry_of, word_of
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.journal.agent_config import journal_mounts
from mailboat_operator.kinds.journal.plan import BrokersFound, JournalObservation, journal_keys
from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.plan.child_manifest import Manifest
from mailboat_operator.plan.findings import UPSTREAM_ERRORS, is_paused, pause_of, problem_of


async def observe_journal(reader: ClusterReader, journal: Journal) -> JournalObservation:
    """Read the Topics of a Journal, and ask its brokers and bucket unless it is paused or deleted."""
    metadata = journal.metadata
    children = await reader.children(metadata.namespace, journal_keys(journal))
    reclaimed = reader.systems.claims.reclaimed(journal)
    found = BrokersFound()
    if not metadata.is_deleted and not is_paused(metadata, suspend=journal.spec.suspend):
        found = await _ask(reader, journal)
    return JournalObservation(found, children, reclaimed, reader.now)


async def connect(reader: ClusterReader, journal: Journal) -> BrokerConnection:
    """A connection with the credentials of this moment, so that rotated ones are used at once.

    Raises: SecretMissingError, SecretMalformedError; ClusterUnavailableError, ClusterRefusedError.
    """
    credentials = await _credentials(reader, journal, "kafka-")
    metadata = journal.metadata
    return reader.systems.connections.to(metadata.namespace, metadata.name, journal.spec.kafka, credentials)


async def _ask(reader: ClusterReader, journal: Journal) -> BrokersFound:
    try:
        found = await (await connect(reader, journal)).cluster()
    except UPSTREAM_ERRORS as error:
        return BrokersFound(problem=problem_of(error), again_seconds=pause_of(error))
    around = BrokersFound(found.cluster_id, found.brokers)
    try:
        await _check_bucket(reader, journal)
        if not journal.spec.topics.manage:
            brokers = await connect(reader, journal)
            names = [journal.spec.topics.name_of(role) for role in TopicRole]
            missing = [name for name in names if await brokers.topic(name) is None]
            return replace(around, missing=missing)
    except UPSTREAM_ERRORS as error:
        return replace(around, problem=problem_of(error), again_seconds=pause_of(error))
    return around


async def _check_bucket(reader: ClusterReader, journal: Journal) -> None:
    """With the agents' credentials; an identity of the pods themselves can't be tried from here."""
    s3 = None if journal.spec.blobs is None else journal.spec.blobs.s3
    if s3 is None or s3.credentials_secret_ref is None:
        return
    credentials = await _credentials(reader, journal, "s3-")
    name = s3.credentials_secret_ref.name
    keys = word_of(credentials, name, "accessKeyId"), word_of(credentials, name, "secretAccessKey")
    if not all(key.isascii() for key in keys):
        raise SecretMalformedError(f"Secret {name} holds S3 keys with characters beyond ASCII")
    authority = None if s3.ca_secret_ref is None else entry_of(credentials, s3.ca_secret_ref.name, "ca.crt")
    # the signer's library is a tenth of the operator's start: only the first Journal with a bucket loads it
    from mailboat_operator.buckets import check_bucket  # noqa: PLC0415

    async with reader.systems.waiting():
        await check_bucket(s3, keys, authority)


async def _credentials(reader: ClusterReader, journal: Journal, prefix: str) -> Credentials:
    namespace = journal.metadata.namespace
    names = [mount.secret for mount in journal_mounts(journal.spec) if mount.folder.startswith(prefix)]
    found = {name: await reader.credentials(namespace, name) for name in dict.fromkeys(names)}
    return {name: _entries(one) for name, one in found.items() if one is not None}


def _entries(secret: Manifest) -> Mapping[str, str]:
    """A Secret's entries. Bytes that are not text cannot be a credential, and count as missing."""
    entries: dict[str, str] = {}
    for name, value in (secret.get("data") or {}).items():
        with suppress(ValueError):
            entries[name] = base64.b64decode(value).decode()
    return entries
