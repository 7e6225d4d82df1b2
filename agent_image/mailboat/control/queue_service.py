"""Queues for the control port: what a publisher's queues are at this moment, and what a person may ask of them.

Failed packages come from the targets registered in this home, else from the status topic.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from mailboat.api.records import CauseView, GivenUpPage, GivenUpView, QueueItemView, QueuePage, QueueView
from mailboat.clock import Clock, moment_of
from mailboat.composition.workspace import Workspace
from mailboat.content.locations import opened_ledger
from mailboat.content.port import GivenUp
from mailboat.control.journal_state import JournalState
from mailboat.control.page_tokens import Key, page_of
from mailboat.control.subscriber_directory import SubscriberDirectory, SubscriberStatus, cause_view
from mailboat.errors import MailboatError
from mailboat.model.identifiers import AgentName, Offset, natural_key
from mailboat.model.messages import AfterCall, PackageMessage
from mailboat.model.paths import first_paths
from mailboat.queues.entries import QueueEntry, readable_package
from mailboat.queues.error_queues import ErrorItem, ErrorQueue, FailedPackages, FailurePlace
from mailboat.queues.publisher_queues import PublisherQueues
from mailboat.queues.queue_names import QueueName
from mailboat.queues.queue_state import ItemState
from mailboat.queues.subscriber_queue import QueueItem, SubscriberQueue

MAX_PAGE_ITEMS: Final = 1000
# A list of all queues asks for each of them in turn, within this time.
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

    def of(self, publisher: AgentName) -> PublisherQueues:
        """The queues of a publisher now; without follower threads, the needed past is counted now."""
        if self._journal_state.is_followed:
            return self._recent(publisher)
        standings = self._directory.standings(publisher)
        self._journal_state.count_down_to(min((standing.last_done_offset + 1 for standing in standings), default=2**63))
        return PublisherQueues(publisher, self._journal_state.sources, standings)

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
        made = PublisherQueues(publisher, self._journal_state.sources, standings)
        with self._lock:
            self._known[publisher] = version, now, made
        return made

    def list(self, queues: PublisherQueues) -> Sequence[QueueView]:
        """All queues with their heads, each error queue after its subscriber's."""
        return [self._with_head(queue, queues.publisher) for queue in queues.all()]

    def page(self, queues: PublisherQueues, name: str, from_offset: int, max_items: int) -> QueuePage:
        """A piece of a queue. Raises: QueueMissingError."""
        queue = queues.find(name)
        wanted = max(1, min(max_items, MAX_PAGE_ITEMS))
        if not isinstance(queue, ErrorQueue):
            return queue_page(queue, from_offset, wanted)
        # one more than is shown: it says where the next page begins
        found = queue.page(self._journal_state.pages, from_offset, wanted + 1)
        shown = (_view_of_error(entry) for entry in found[:wanted])
        following = found[wanted].id.offset if len(found) > wanted else None
        whole = self._with_head(queue, queues.publisher)
        return QueuePage(whole, tuple(item for item in shown if item is not None), following)

    def _with_head(self, queue: SubscriberQueue | ErrorQueue, publisher: AgentName) -> QueueView:
        if isinstance(queue, ErrorQueue):
            first = queue.page(self._journal_state.pages, 0, 1)
            return _queue_view(queue, publisher, _view_of_error(first[0]) if first else None)
        return _view_of_queue(queue)


def queue_page(queue: SubscriberQueue, from_offset: int, max_items: int) -> QueuePage:
    """A piece of a subscriber's queue, with the queue itself. Raises: JournalUnavailableError."""
    page = queue.page(from_offset, max_items)
    following = None if page.is_last else page.next_offset
    return QueuePage(_view_of_queue(queue), tuple(map(_view_of_item, page.items)), following)


def _view_of_queue(queue: SubscriberQueue) -> QueueView:
    head = queue.head()
    return _queue_view(queue, queue.standing.publisher, None if head is None else _view_of_item(head))


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
    name: str, entry: QueueEntry, state: ItemState, attempts: int | None, error: CauseView | None
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


MAX_CALLS: Final = 1_000
"""Failed calls of a hook that are listed, of each subscriber."""


class GivenUpPlace(NamedTuple):
    """A package in an error queue, or whose call of the hook `after` failed.

    `entry` and `call` are what the target says, where it was asked.
    """

    queue_name: QueueName
    publisher: AgentName | None
    offset: Offset
    entry: GivenUp | None = None
    call: AfterCall | None = None


class MemberSource(Protocol):
    """Where subscribers come from: announcements and the registry of a home, or the process that runs them."""

    def members(self) -> Sequence[SubscriberStatus]:
        """All known subscribers."""

    def named(self, name: str) -> Sequence[SubscriberStatus]:
        """The subscribers of that name, or the one of that queue name. Raises: AgentMissingError."""


class GivenUpPackages:
    """The error queues of all subscribers. Safe to use from several threads."""

    def __init__(self, workspace: Workspace, failed: FailedPackages, source: MemberSource) -> None:
        """Read nothing yet; `failed` is what statuses said, of subscribers whose targets cannot be read here."""
        self._workspace = workspace
        self._failed = failed
        self._source = source

    def page(self, subscriber: str | None, token: str | None, max_items: int) -> GivenUpPage:
        """A page of the packages that one subscriber (or queue) or all gave up, by subscriber and offset.

        Raises:
            AgentMissingError: No subscriber of that name is known.
            UsageError: The token is not one of this list.
        """
        shown, following = page_of(self.places(subscriber), _key_of_place, token, max_items)
        views = tuple(view for item in shown if (view := self._view(item)) is not None)
        return GivenUpPage(views, following, self._failed.forgotten_count)

    def places(self, subscriber: str | None) -> list[GivenUpPlace]:
        """Places of the packages that one subscriber or all gave up, unordered. Raises: AgentMissingError."""
        wanted = self._source.members() if subscriber is None else self._source.named(subscriber)
        found, read = list[GivenUpPlace](), set[QueueName]()
        for member in wanted:
            told = _told_by_target(member)
            if told is None:  # announcements and statuses say the rest
                calls = () if member.after_calls is None else member.after_calls.failed
                found += [GivenUpPlace(member.queue_name, None, call.offset, call=call) for call in calls]
            else:
                read.add(member.queue_name)
                found += told
        # without statuses the targets are shown also while the journal is unavailable
        if self._failed.size_bytes:
            earliest = self._workspace.journal.bounds(self._workspace.package_topic).earliest_offset
            names = None if subscriber is None else {member.queue_name for member in wanted}
            found += [
                GivenUpPlace(place.queue_name, place.publisher, place.offset)
                for place in self._failed.places(earliest)
                if place.queue_name not in read and (names is None or place.queue_name in names)
            ]
        return found

    def _view(self, place: GivenUpPlace) -> GivenUpView | None:
        """The package as people see it; None when it has left the queue since."""
        if place.entry is not None:
            return _view_of_entry(place.queue_name.agent_name, place.entry)
        message = package_at(self._workspace, place.offset)
        if place.call is not None:
            return _view_of_call(place, place.call, message)
        failed = (
            None
            if place.publisher is None
            else self._failed.find(FailurePlace(place.publisher, place.queue_name, place.offset))
        )
        if failed is None:
            return None
        paths = () if message is None else message.paths
        return GivenUpView(
            subscriber=place.queue_name.agent_name,
            publisher=place.publisher or "",
            offset=place.offset,
            package_id=failed.package_id,
            attempts=failed.attempts,
            given_up_at=None if failed.given_up_ms is None else moment_of(failed.given_up_ms),
            paths=first_paths(paths),
            error=cause_view(failed.cause),
            path_count=len(paths),
        )


def _told_by_target(member: SubscriberStatus) -> list[GivenUpPlace] | None:
    """The error queue in a target, and the failed calls of the hook `after`; None if it cannot be read here."""
    if member.registered_target is None:
        return None
    name = member.queue_name
    try:
        with opened_ledger(member.registered_target) as ledger:
            calls = [*ledger.hook_calls.calls(MAX_CALLS), *ledger.hook_calls.calls(MAX_CALLS, is_set_aside=True)]
            return [
                *(GivenUpPlace(name, entry.pub_agent_name, entry.offset, entry) for entry in ledger.given_up()),
                *(GivenUpPlace(name, None, call.offset, call=call) for call in calls if call.attempts),
            ]
    except MailboatError:  # the subscriber's state says why
        return None


def package_at(workspace: Workspace, offset: Offset) -> PackageMessage | None:
    """The message of a package; None where the log does not hold it any more."""
    return readable_package(workspace.journal.record_at(workspace.package_topic, offset))


def _view_of_call(place: GivenUpPlace, call: AfterCall, message: PackageMessage | None) -> GivenUpView:
    paths = () if message is None else message.paths
    return GivenUpView(
        subscriber=place.queue_name.agent_name,
        publisher="" if message is None else message.pub_agent_name or "",
        offset=place.offset,
        package_id=None if message is None else message.package_id,
        attempts=call.attempts,
        given_up_at=None,
        paths=first_paths(paths),
        error=cause_view(call.cause),
        path_count=len(paths),
        kind="hook" if call.is_set_aside else "hook-retrying",
    )


def _view_of_entry(subscriber: AgentName, entry: GivenUp) -> GivenUpView:
    """A package in the error queue of a target."""
    return GivenUpView(
        subscriber=subscriber,
        publisher=entry.pub_agent_name or "",
        offset=entry.offset,
        package_id=entry.package_id,
        attempts=entry.attempts,
        given_up_at=moment_of(entry.given_up_ms),
        paths=first_paths(entry.paths),
        error=cause_view(entry.cause),
        path_count=len(entry.paths) + entry.more_paths,
    )


def _key_of_place(place: GivenUpPlace) -> Key:
    """The order of error queues: by subscriber and offset."""
    name = place.queue_name.agent_name
    return (
        natural_key(name),
        name,
        place.queue_name.sling_id,
        place.offset,
        place.publisher or "",
        int(place.call is not None),
    )
