"""Which of several JobQueues or JobSchedules of one name owns their record, where their Journals lead to one log.

A record of the log has the name of its object alone. Of objects in several namespaces the oldest owns it: two that
wrote it in turn would never come to rest. One that is deleted leaves it to any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.job_queue.spec import JobQueue
from mailboat_operator.kinds.job_schedule.spec import JobSchedule
from mailboat_operator.kinds.publisher.spec import Publisher

_EVER: Final = datetime.min.replace(tzinfo=UTC)
_Recorded = TypeVar("_Recorded", JobQueue, JobSchedule)


async def owner_of_record(
    reader: ClusterReader,
    resource: _Recorded,
    publisher: Publisher,
    list_all: Callable[[], Awaitable[Sequence[_Recorded]]],
) -> tuple[str, str] | None:
    """Namespace and name of the other object that owns the record; None if this one does."""
    metadata, ours = resource.metadata, await _log_of(reader, publisher)
    if ours is None:
        return None
    found: list[tuple[datetime, str, str]] = []
    for other in await list_all():
        if other.metadata.name != metadata.name or other.metadata.namespace == metadata.namespace:
            continue
        if metadata.is_deleted and other.metadata.is_deleted:
            continue  # both remove it, which may be repeated
        # A younger one that stays would lose the queued jobs: they are dropped with the record.
        is_left = metadata.is_deleted and not other.metadata.is_deleted
        its_publisher = await reader.publisher(other.metadata.namespace, other.spec.publisher_ref.name)
        if its_publisher is not None and await _log_of(reader, its_publisher) == ours:
            # by time, then namespace, since creation times have whole seconds: all objects must name the same owner
            created, namespace = other.metadata.created_at or _EVER, other.metadata.namespace
            if is_left or (created, namespace) < (metadata.created_at or _EVER, metadata.namespace):
                found.append((created, namespace, other.metadata.name))
    first = min(found, default=None)
    hidden = reader.systems.claims.hidden
    if first is None and metadata.is_deleted and hidden is not None:
        return hidden, metadata.name  # perhaps: a record that is dropped is lost
    return None if first is None else first[1:]


async def _log_of(reader: ClusterReader, publisher: Publisher) -> tuple[str, str] | None:
    """The cluster and the prefix of a Publisher's topics; None while its Journal does not know its cluster."""
    journal = await reader.journal(publisher.metadata.namespace, publisher.spec.journal_ref.name)
    if journal is None or journal.status.cluster_id is None:
        return None
    return journal.status.cluster_id, journal.spec.topics.prefix or ""
