"""From what the engine knows to what the control port answers: members, queues, items, causes."""

from __future__ import annotations

from mailboat.api.records import (
    BuildProgressView,
    CauseView,
    HookCallsView,
    QueueItemView,
    QueueView,
    SubscriberStatusView,
)
from mailboat.clock import moment_of
from mailboat.control.subscriber_directory import Member
from mailboat.model.identifiers import AgentName
from mailboat.model.messages import FailureCause, HookCalls
from mailboat.queues.entries import Entry
from mailboat.queues.failures import ErrorItem, ErrorQueue
from mailboat.queues.standing import ItemState
from mailboat.queues.subscriber_queue import QueueItem, SubscriberQueue
from mailboat.subscriber.figures import SubscriberPhase


def cause_view(cause: FailureCause | None) -> CauseView | None:
    """A cause."""
    return (
        None
        if cause is None
        else CauseView(cause.code, cause.message, cause.path, cause.trace_excerpt, cause.is_truncated)
    )


def status_view(one: Member, lag: int | None, build: BuildProgressView | None) -> SubscriberStatusView:
    """A subscriber, as it is now, with so many packages before it, in the middle of that build."""
    rate = one.rate_per_second
    return SubscriberStatusView(
        name=one.name,
        state=_state(one, lag),
        sling_id=one.key.sling_id,
        next_offset=one.next_offset,
        lag=lag,
        rate_per_second=rate,
        eta_seconds=None if not lag or rate is None else lag / rate,
        attempts=one.attempts,
        max_retries=one.max_retries,
        given_up=one.given_up,
        editable=one.is_editable,
        ready=one.is_ready,
        ready_reason=one.ready_reason,
        target=one.target,
        follow=one.follow,
        announced_at=None if one.heard_ms is None else moment_of(one.heard_ms),
        error=cause_view(one.cause),
        build=build,
        after_calls=_calls_view(one.after_calls),
    )


def _calls_view(calls: HookCalls | None) -> HookCallsView | None:
    return None if calls is None else HookCallsView(calls.waiting, calls.set_aside, cause_view(calls.cause))


def _state(one: Member, lag: int | None) -> str:
    """As it said, but that it was current is from before what came since was appended: it is at that now."""
    is_at_it = one.is_running and bool(lag) and one.state == SubscriberPhase.CURRENT
    return str(SubscriberPhase.IMPORTING if is_at_it else one.state)


def queue_view(queue: SubscriberQueue | ErrorQueue, publisher: AgentName, head: QueueItemView | None) -> QueueView:
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


def item_view(item: QueueItem) -> QueueItemView:
    """A package in a queue."""
    return _item_view(str(item.id), item.entry, item.state, item.attempts, cause_view(item.cause))


def error_item_view(item: ErrorItem) -> QueueItemView | None:
    """A package in an error queue; None when the log has lost it a moment ago."""
    if item.entry is None:
        return None
    failed = item.failed
    return _item_view(str(item.id), item.entry, ItemState.ERROR, failed.attempts, cause_view(failed.cause))


def _item_view(name: str, entry: Entry, state: ItemState, attempts: int, error: CauseView | None) -> QueueItemView:
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
