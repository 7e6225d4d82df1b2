"""Packages that were given up: from the targets registered in this home, else from the status topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from mailboat.api.records import GivenUpPage, GivenUpView
from mailboat.clock import moment_of
from mailboat.composition.places import opened_ledger
from mailboat.composition.workspace import Workspace
from mailboat.content.port import GivenUp
from mailboat.control.journal_state import JournalState
from mailboat.control.page_tokens import Key, page_of
from mailboat.control.subscriber_directory import SubscriberDirectory, SubscriberStatus, cause_view
from mailboat.errors import AgentMissingError, MailboatError
from mailboat.model.identifiers import AgentName, Offset, natural_key
from mailboat.model.messages import AfterCall, PackageMessage
from mailboat.model.paths import first_paths
from mailboat.operations.journal_inspection import readable
from mailboat.queues.error_queues import FailurePlace
from mailboat.queues.names import QueueName

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


class GivenUpPackages:
    """The error queues of all subscribers. Safe to use from several threads."""

    def __init__(self, workspace: Workspace, journal_state: JournalState, directory: SubscriberDirectory) -> None:
        """Read nothing yet."""
        self._workspace = workspace
        self._journal_state = journal_state
        self._directory = directory

    def page(self, subscriber: str | None, token: str | None, max_items: int) -> GivenUpPage:
        """A page of what one subscriber gave up (by its name, or its queue's), or all; by subscriber and offset.

        Raises:
            AgentMissingError: No subscriber of that name is known.
            UsageError: The token is not one of this list.
        """
        shown, following = page_of(self.places(subscriber), _key_of, token, max_items)
        views = tuple(view for one in shown if (view := self._view(one)) is not None)
        return GivenUpPage(views, following, self._journal_state.failed.forgotten_count)

    def publisher_of(self, place: GivenUpPlace) -> AgentName | None:
        """Who published the package; None where that is not known."""
        if place.publisher is not None or place.call is None:
            return place.publisher
        message = self._message(place.offset)
        return None if message is None else message.pub_agent_name

    def places(self, subscriber: str | None) -> list[GivenUpPlace]:
        """Where the packages stand that one subscriber gave up, or all; in no order. Raises: AgentMissingError."""
        members = self._directory.members()
        wanted = [member for member in members if subscriber in {None, member.name, str(member.queue_name)}]
        if subscriber is not None and not wanted:
            known = ", ".join(dict.fromkeys(member.name for member in members[:10])) or "none"
            raise AgentMissingError(f"no subscriber {subscriber[:120]!r} is known; known: {known}")
        told = self._told_by_targets(wanted)
        names = {one.queue_name for one in wanted} - set(told)
        found = [place for places in told.values() for place in places]
        found += _announced_calls(one for one in wanted if one.queue_name in names)
        return [*found, *self._told_by_statuses(names if subscriber is not None else None, set(told))]

    def _told_by_targets(self, members: Sequence[SubscriberStatus]) -> dict[QueueName, list[GivenUpPlace]]:
        told = {}
        for known in self._workspace.home.known_subscribers():
            queue_name = QueueName(known.pool or self._workspace.home.sling_id, known.name)
            if any(member.queue_name == queue_name for member in members):
                try:
                    with opened_ledger(known.target) as ledger:
                        told[queue_name] = [
                            GivenUpPlace(queue_name, entry.pub_agent_name, entry.offset, entry)
                            for entry in ledger.given_up()
                        ]
                        calls = [
                            *ledger.hook_calls.calls(MAX_CALLS),
                            *ledger.hook_calls.calls(MAX_CALLS, is_set_aside=True),
                        ]
                        told[queue_name] += [
                            GivenUpPlace(queue_name, None, call.offset, call=call) for call in calls if call.attempts
                        ]
                except MailboatError:
                    continue  # its target can't be asked; statuses still tell
        return told

    def _told_by_statuses(self, names: set[QueueName] | None, told: set[QueueName]) -> Iterator[GivenUpPlace]:
        """What the status topic says of some subscribers, or of all but those whose targets were read."""
        earliest = self._workspace.journal.bounds(self._workspace.package_topic).earliest_offset
        for place in self._journal_state.failed.places(earliest):
            is_wanted = place.queue_name not in told if names is None else place.queue_name in names
            if is_wanted:
                yield GivenUpPlace(place.queue_name, place.publisher, place.offset)

    def _view(self, place: GivenUpPlace) -> GivenUpView | None:
        """The package as people see it; None when it has left the queue since."""
        entry = place.entry
        if place.call is not None:
            return self._view_of_call(place, place.call)
        if entry is not None:
            return GivenUpView(
                subscriber=place.queue_name.agent_name,
                publisher=entry.pub_agent_name or "",
                offset=entry.offset,
                package_id=entry.package_id,
                attempts=entry.attempts,
                given_up_at=moment_of(entry.given_up_ms),
                paths=first_paths(entry.paths),
                error=cause_view(entry.cause),
                path_count=len(entry.paths) + entry.more_paths,
            )
        failed = (
            None
            if place.publisher is None
            else self._journal_state.failed.find(FailurePlace(place.publisher, place.queue_name, place.offset))
        )
        if failed is None:
            return None
        paths = self._paths(place.offset)
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

    def _view_of_call(self, place: GivenUpPlace, call: AfterCall) -> GivenUpView:
        message = self._message(place.offset)
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

    def _paths(self, offset: Offset) -> tuple[str, ...]:
        message = self._message(offset)
        return () if message is None else message.paths

    def _message(self, offset: Offset) -> PackageMessage | None:
        record = self._workspace.journal.record_at(self._workspace.package_topic, offset)
        message = None if record is None else readable(record)
        return message if isinstance(message, PackageMessage) else None


def _announced_calls(members: Iterable[SubscriberStatus]) -> Iterator[GivenUpPlace]:
    """The failed calls of a hook that announcements name, of subscribers whose targets cannot be read here."""
    for member in members:
        for call in () if member.after_calls is None else member.after_calls.failed:
            yield GivenUpPlace(member.queue_name, None, call.offset, call=call)


def _key_of(place: GivenUpPlace) -> Key:
    name = place.queue_name.agent_name
    return (
        natural_key(name),
        name,
        place.queue_name.sling_id,
        place.offset,
        place.publisher or "",
        int(place.call is not None),
    )
