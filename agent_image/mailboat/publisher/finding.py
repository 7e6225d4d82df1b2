"""Looks for a publisher's own messages in the log: the judge of what became of an append that nobody answered."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from typing import Final

from mailboat.errors import MessageCorruptError, PathRefusedError
from mailboat.journal.port import Journal, ReadLimits
from mailboat.model.identifiers import AgentName, Offset, PackageId, RequestId, TopicName
from mailboat.model.messages import PackageMessage
from mailboat.wire.messages import decode_package

_READ: Final = ReadLimits(max_records=200)


def find_requests(
    journal: Journal, topic: TopicName, scan_from: Offset, wanted: tuple[AgentName, Collection[RequestId]]
) -> dict[RequestId, tuple[Offset, PackageId]]:
    """Where the messages of some requests of one publisher stand, from `scan_from` (or the head) to the end."""
    publisher, request_ids = wanted
    found: dict[RequestId, tuple[Offset, PackageId]] = {}
    for offset, message in messages_from(journal, topic, scan_from):
        if message.request_id is not None and message.request_id in request_ids and message.pub_agent_name == publisher:
            found.setdefault(message.request_id, (offset, message.package_id))
    return found


def find_packages(
    journal: Journal, topic: TopicName, scan_from: Offset, wanted: Collection[PackageId]
) -> dict[PackageId, Offset]:
    """Where some packages stand, from `scan_from` (or the head) to the end. Raises: the journal's errors."""
    found: dict[PackageId, Offset] = {}
    for offset, message in messages_from(journal, topic, scan_from):
        if message.package_id in wanted:
            found.setdefault(message.package_id, offset)
    return found


def messages_from(journal: Journal, topic: TopicName, scan_from: Offset) -> Iterator[tuple[Offset, PackageMessage]]:
    """The packages from `scan_from` (or the head) to what is the end now, without what can't be understood."""
    bounds = journal.bounds(topic)
    start = max(bounds.earliest_offset, min(scan_from, bounds.next_offset))
    with closing(journal.reader(topic, start)) as reader:
        while reader.next_offset < bounds.next_offset:
            batch = reader.read(_READ, 0.0)
            for record in batch.records:
                try:
                    yield record.offset, decode_package(record.value)
                except (MessageCorruptError, PathRefusedError):
                    continue  # another's, and no matter of ours
            if batch.is_at_end and not batch.records:
                return
