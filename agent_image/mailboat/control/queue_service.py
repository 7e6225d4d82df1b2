"""Queues for the control port: what a publisher's queues are at this moment, and what a person may ask of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from mailboat.api.records import CauseView, QueueItemView, QueuePage, QueueView
from mailboat.clock import Clock, moment_of
from mailboat.control.journal_state import JournalState
from mailboat.control.subscriber_directory import SubscriberDirectory, cause_view
from mailboat.errors import QueueNotClearableError
from mailboat.model.identifiers import AgentName
from mailboat.queues.entries import Entry
from mailboat.queues.error_queues import ErrorItem, ErrorQueue
from mailboat.queues.names import parse_entry_id
from mailboat.queues.publisher_queues import PublisherQueues
from mailboat.queues.queue_state import ItemState
from mailboat.queues.subscriber_queue import ClearPlan, QueueItem, SubscriberQueue

MAX_PAGE_ITEMS: Final = 1000
_MOMENT_SECONDS: Final = 0.25


class QueueService:
    """The queues of all publishers of a process. Safe to use from several threads."""

    def __init__(self, journal_state: JournalState, directory: SubscriberDirectory, clock: Clock) -> None:
        """Read nothing yet."""
        self._journal_state = journal_state
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[AgentName, tuple[int, float, PublisherQueues]] = {}

    def of(self, publisher: AgentName, *, is_counted: bool) -> PublisherQueues:
        """The queues of a publisher at this moment; where threads don't, what they need of the past is counted now."""
        if is_counted:
            return self._recent(publisher)
        standings = self._directory.standings(publisher)
        self._journal_state.count_down_to(min((standing.last_done_offset + 1 for standing in standings), default=2**63))
        return PublisherQueues(publisher, self._journal_state.sources, lambda: standings)

    def _recent(self, publisher: AgentName) -> PublisherQueues:
        """Those of a moment ago, if no announcement came since: who lists all queues asks for each of them in turn."""
        # the version is read first: an announcement that comes meanwhile makes this entry outdated, not wrong
        version, now = self._journal_state.roster.version, self._clock.monotonic()
        with self._lock:
            known = self._known.get(publisher)
        if known is not None and known[0] == version and now - known[1] < _MOMENT_SECONDS:
            return known[2]
        # outside of the lock: two threads may compute the same, but none waits for the I/O of the other
        standings = self._directory.standings(publisher)
        made = PublisherQueues(publisher, self._journal_state.sources, lambda: standings)
        with self._lock:
            self._known[publisher] = version, now, made
        return made

    def list(self, queues: PublisherQueues) -> Sequence[QueueView]:
        """All queues with their heads, each error queue after its subscriber's."""
        return [self._with_head(one, queues.publisher) for one in queues.all()]

    def page(self, queues: PublisherQueues, name: str, from_offset: int, max_items: int) -> QueuePage:
        """A piece of a queue. Raises: QueueMissingError."""
        queue = queues.find(name)
        wanted = max(1, min(max_items, MAX_PAGE_ITEMS))
        whole = self._with_head(queue, queues.publisher)
        if isinstance(queue, ErrorQueue):
            found = queue.page(self._journal_state.pages, from_offset, wanted + 1)
            shown = (_view_of_error(one) for one in found[:wanted])
            following = found[wanted].id.offset if len(found) > wanted else None
            return QueuePage(whole, tuple(one for one in shown if one is not None), following)
        page = queue.page(from_offset, wanted)
        return QueuePage(whole, tuple(map(_view_of_item, page.items)), None if page.is_last else page.next_offset)

    def _with_head(self, queue: SubscriberQueue | ErrorQueue, publisher: AgentName) -> QueueView:
        if isinstance(queue, ErrorQueue):
            first = queue.page(self._journal_state.pages, 0, 1)
            return _queue_view(queue, publisher, _view_of_error(first[0]) if first else None)
        head = queue.head()
        return _queue_view(queue, publisher, None if head is None else _view_of_item(head))


def clearable(queues: PublisherQueues, name: str) -> SubscriberQueue:
    """The queue of that name, to clear it. Raises: QueueMissingError, QueueNotClearableError for an error queue."""
    queue = queues.find(name)
    if isinstance(queue, ErrorQueue):
        raise QueueNotClearableError(
            f"{queue.name} holds failed packages, which can only be redriven",
            next_step=f"mailboat errors redrive {queue.queue_name.agent_name} OFFSET",
            queue=queue.name,
        )
    return queue


def plan_removal(queue: SubscriberQueue, item_ids: Sequence[str]) -> ClearPlan | None:
    """What removes these items, and all before the last of them. Raises: as `plan_remove`; UsageError for no id."""
    return queue.plan_remove([parse_entry_id(one) for one in item_ids])


def _queue_view(queue: SubscriberQueue | ErrorQueue, publisher: AgentName, head: QueueItemView | None) -> QueueView:
    """A queue with its first package, if that was asked for."""
    size = queue.size()
    return QueueView(
        name=queue.name,
        publisher=publisher,
        subscriber=queue.queue_name.agent_name,
        state=str(queue.state()),
        count=size.count,
        capabilities=tuple(sorted(map(str, queue.capabilities))),
        head=head,
        exact=size.is_exact,
    )


def _view_of_item(item: QueueItem) -> QueueItemView:
    """A package in a queue."""
    return _item_view(str(item.id), item.entry, item.state, item.attempts, cause_view(item.cause))


def _view_of_error(item: ErrorItem) -> QueueItemView | None:
    """A package in an error queue; None when the log has lost it a moment ago."""
    if item.entry is None:
        return None
    failed = item.failed
    return _item_view(str(item.id), item.entry, ItemState.ERROR, failed.attempts, cause_view(failed.cause))


def _item_view(
    name: str, entry: Entry, state: ItemState, attempts: int | None, error: CauseView | None
) -> QueueItemView:
    return QueueItemView(
        id=name,
        offset=entry.offset,
        package_id=entry.package_id,
        action=str(entry.action),
        size_bytes=entry.length_bytes,
        path=entry.first_path,
        path_count=entry.path_count,
        queued_at=moment_of(entry.appended_ms),
        state=str(state),
        attempts=attempts,
        user_id=entry.user_id,
        error=error,
    )
