"""A subscriber's queue: the packages of one publisher after its position. A view, made when it is asked for.

It is read page by page; where the subscriber takes commands, it says which command a clear or a removal would
send. Nothing is changed here: commands are sent by the publisher, and confirmed by the subscriber.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from mailboat.errors import QueueNotClearableError, UsageError
from mailboat.model.identifiers import Offset
from mailboat.model.messages import FailureCause
from mailboat.queues.entries import QueueEntry
from mailboat.queues.log_view import LogView
from mailboat.queues.offsets import QueueSize
from mailboat.queues.queue_names import EntryId, QueueName
from mailboat.queues.queue_pages import MAX_PAGE_ENTRIES, PageReader
from mailboat.queues.queue_state import (
    Capability,
    ItemState,
    QueuePosition,
    QueueState,
    decide_item_state,
    decide_queue_state,
)

MAX_REMOVED_ENTRIES: Final = 10_000
"""How many entries one removal may name."""


class RemovalRefusedError(UsageError):
    """The named packages cannot be removed from the queue. Nothing was sent.

    A removal starts at the first entry of the queue and takes everything up to the last one named
    (`mailboat queues show`).
    """


class QueueItem(NamedTuple):
    """An entry as an item of one queue.

    Attributes:
        id: Names the entry in commands.
        entry: What is known of the package.
        state: ERROR while it is being tried again.
        attempts: How often it was tried and failed; only the first item of a queue is ever tried.
        cause: Why the last attempt failed.
    """

    id: EntryId
    entry: QueueEntry
    state: ItemState
    attempts: int
    cause: FailureCause | None


class QueueSlice(NamedTuple):
    """A piece of a queue; `next_offset` and `is_last` are those of `queue_pages.Page`."""

    items: list[QueueItem]
    next_offset: Offset
    is_last: bool


class ClearPlan(NamedTuple):
    """What has to be sent to a subscriber so that entries leave its queue.

    Attributes:
        up_to_offset: The last offset to drop, inclusive.
        size: How many packages that drops.
    """

    up_to_offset: Offset
    size: QueueSize


class SubscriberQueue:
    """The view of one queue at one moment: the subscriber stands where it last announced."""

    def __init__(self, standing: QueuePosition, view: LogView, pages: PageReader) -> None:
        """Show the packages of `standing.publisher` after `standing.last_done_offset`."""
        self.standing = standing
        self._view = view
        self._pages = pages

    @property
    def name(self) -> str:
        """The queue's name."""
        return str(self.standing.queue_name)

    @property
    def queue_name(self) -> QueueName:
        """Whose it is."""
        return self.standing.queue_name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What may be done to it."""
        return self.standing.capabilities

    def size(self) -> QueueSize:
        """How many packages are waiting. Arithmetic; reads nothing."""
        return self._view.size_after(self.standing.publisher, self.standing.last_done_offset)

    def state(self) -> QueueState:
        """The queue's state."""
        return decide_queue_state(self.size().count, self.standing.attempts)

    def head(self) -> QueueItem | None:
        """The package that the subscriber is at; None when the queue is empty."""
        items = self.page(0, 1).items
        return items[0] if items else None

    def page(self, from_offset: int = 0, max_items: int = 100) -> QueueSlice:
        """The items at an offset or after it, in order.

        Raises:
            JournalUnavailableError: Try again.
        """
        begin = max(from_offset, self._first_offset)
        page = self._pages.page(self.standing.publisher, begin, max_items)
        is_head_in_page = begin == self._first_offset
        items = [self._item(entry, is_head_in_page and not place) for place, entry in enumerate(page.entries)]
        return QueueSlice(items, page.next_offset, page.is_last)

    def find(self, entry_id: EntryId) -> QueueItem | None:
        """The item of that id; None when it is not in the queue (any more)."""
        if entry_id.topic != self._view.topic or entry_id.offset < self._first_offset:
            return None
        entry = self._pages.entry(self.standing.publisher, entry_id.offset)
        return None if entry is None else self._item(entry, self._is_head(entry.offset))

    def plan_clear(self, max_entries: int | None = None) -> ClearPlan | None:
        """What drops the first entries, or all that are there now; None when the queue is empty.

        Raises:
            QueueNotClearableError, JournalUnavailableError.
        """
        self._check_editable()
        if max_entries is not None and max_entries <= 0:
            return None
        last = self._last_of(max_entries)
        return None if last is None else self._plan_up_to(last)

    def plan_remove(self, entry_ids: Sequence[EntryId]) -> ClearPlan | None:
        """What removes these entries, and with them all before the last of them. None when none is named.

        One entry alone must be the first of the queue.

        Raises:
            QueueNotClearableError, JournalUnavailableError.
            RemovalRefusedError: Too many, or one that is not in the queue: it left in the meantime, or never was there.
        """
        self._check_editable()
        if len(entry_ids) > MAX_REMOVED_ENTRIES:
            raise RemovalRefusedError(f"one removal may name {MAX_REMOVED_ENTRIES} entries, not {len(entry_ids)}")
        if not entry_ids:
            return None
        different = sorted(set(entry_ids))
        for identifier in different:
            if self.find(identifier) is None:
                raise RemovalRefusedError(
                    f"{identifier} is not in {self.name}: it has left it, or never was there",
                    next_step=self._show_command,
                    entry=identifier,
                )
        last = max(different, key=lambda one: one.offset)
        if len(different) == 1 and not self._is_head(last.offset):
            raise RemovalRefusedError(
                f"{last} is not the first entry of {self.name}",
                next_step=f"name those before it too: {self._show_command}",
                entry=last,
            )
        return self._plan_up_to(last.offset)

    @property
    def _show_command(self) -> str:
        return f"mailboat queues show {self.name}"

    @property
    def _first_offset(self) -> int:
        return self.standing.last_done_offset + 1

    def _is_head(self, offset: int) -> bool:
        head = self.head()
        return head is not None and head.entry.offset == offset

    def _last_of(self, max_entries: int | None) -> Offset | None:
        """The offset of the `max_entries`-th entry, or of the last one."""
        publisher, done = self.standing.publisher, self.standing.last_done_offset
        if max_entries is None:
            return self._view.last_after(publisher, done)
        known = self._view.nth_after(publisher, done, max_entries)
        return known if known is not None else self._walk_to(max_entries)

    def _walk_to(self, max_entries: int) -> Offset | None:
        """Go through pages to the `max_entries`-th entry, or to the last one there is."""
        last: Offset | None = None
        left, position = max_entries, Offset(self._first_offset)
        while left:
            page = self._pages.page(self.standing.publisher, position, min(left, MAX_PAGE_ENTRIES))
            left -= len(page.entries)
            position = page.next_offset
            if page.entries:
                last = page.entries[-1].offset
            if page.is_last:
                break
        return last

    def _plan_up_to(self, last: Offset) -> ClearPlan:
        here = self.size()
        after = self._view.size_after(self.standing.publisher, last)
        return ClearPlan(last, QueueSize(here.count - after.count, here.is_exact and after.is_exact))

    def _item(self, entry: QueueEntry, is_head: bool) -> QueueItem:  # noqa: FBT001 - private
        attempts = self.standing.attempts if is_head else 0
        return QueueItem(
            EntryId(self._view.topic, entry.offset),
            entry,
            decide_item_state(attempts),
            attempts,
            self.standing.cause if attempts else None,
        )

    def _check_editable(self) -> None:
        if not self.standing.is_editable:
            raise QueueNotClearableError(
                f"{self.queue_name.agent_name} is not editable",
                next_step="set `editable: true` for that subscriber, and restart its agent",
                queue=self.name,
            )
