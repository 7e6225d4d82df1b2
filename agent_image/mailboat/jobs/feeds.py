"""Feeds: how far each shared pool has put the packages of the log into its queue, and which record of it counts. Pure.

A member that reads packages appends a record with jobs for them, and with the sequence of that record in its pool. The
record counts only while its sequence is the next one, and its target that of the pool, so packages get into the queue
once and in their order, however many members append. The queue of a pool has an order by key that no command changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mailboat.errors import JobLogIncompleteError
from mailboat.model.identifiers import AgentName
from mailboat.model.jobs import POOL_QUEUE, Feed, JobId, QueueKind, QueueSettings, pool_topic, show_job_id

MAX_POOLS: Final = 1_000


class Feeds:
    """The feeds of the fold."""

    def __init__(self, feeds: Iterable[Feed] = ()) -> None:
        self._feeds = {each.pool: each for each in feeds}

    def all(self) -> Sequence[Feed]:
        """The last feed of every pool, by name."""
        return [self._feeds[pool] for pool in sorted(self._feeds)]

    def find(self, pool: AgentName) -> Feed | None:
        """The last feed of a pool; None before its first."""
        return self._feeds.get(pool)

    def take(self, feed: Feed) -> bool:
        """Move a pool on; False where the record does not count. Beyond `MAX_POOLS` no pool is added."""
        known = self._feeds.get(feed.pool)
        if feed.sequence != (1 if known is None else known.sequence + 1):
            return False
        # A member of a former begin of the pool was slow to append it: its number may be the next one all the same.
        if known is not None and feed.target != known.target:
            return False
        if known is None and len(self._feeds) >= MAX_POOLS:
            return False
        self._feeds[feed.pool] = feed
        return True

    def forget(self, queue: str) -> bool:
        """Forget the pool of this queue, which may begin again; False for the queue of no pool."""
        pool = next((each.pool for each in self._feeds.values() if each.queue == queue), None)
        return pool is not None and self._feeds.pop(pool, None) is not None


def queue_of(feed: Feed) -> QueueSettings:
    """The queue of a pool, as the fold reads it: a change of it is one of `RULES`."""
    # Retries have no limit here: only a member gives a package up, in a transaction of the target. If the queue gave
    # one up, a late member could import it after newer packages with the same paths.
    return QueueSettings(feed.queue, (pool_topic(feed.pool),), QueueKind.KEYED, retries=-1, retry_delay_ms=1_000)


def is_of_pool(queue: str) -> bool:
    """Whether it is a shared pool's queue: its jobs end by a member's result only."""
    return queue.startswith(POOL_QUEUE)


def lost_package(job: JobId, reason: str) -> JobLogIncompleteError:
    """The error of a member that meets a package in the queue of its pool, and cannot read which one it is."""
    return JobLogIncompleteError(
        f"the topic of jobs lost a package of a pool: {reason}",
        next_step="start the member again: it puts the package into the queue again",
        job=show_job_id(job),
    )
