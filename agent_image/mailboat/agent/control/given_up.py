"""The packages that subscribers gave up: from the targets that this home knows, else from the status topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from mailboat.agent.composition import Workspace
from mailboat.agent.control.audience import Audience, Member
from mailboat.agent.control.picture import Picture
from mailboat.agent.control.portraits import cause_view
from mailboat.agent.control.views import GivenUpView
from mailboat.agent.inspection import readable
from mailboat.agent.locations import opened_ledger
from mailboat.content.port import GivenUp
from mailboat.errors import AgentMissingError, MailboatError
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import PackageMessage
from mailboat.queues.failures import FailedPackage, FailurePlace
from mailboat.queues.names import QueueName

MAX_PATHS_READ: Final = 1_000
"""Of so many packages the paths are read from the log; where a target is asked, it knows them itself."""


class GivenUpPlace(NamedTuple):
    """A given-up package as people see it, and whose it is."""

    queue_name: QueueName
    publisher: AgentName | None
    view: GivenUpView


class GivenUpPackages:
    """What was given up, by everybody. Safe to use from several threads."""

    def __init__(self, workspace: Workspace, picture: Picture, audience: Audience) -> None:
        """Read nothing yet."""
        self._workspace = workspace
        self._picture = picture
        self._audience = audience

    def of(self, subscriber: str | None) -> list[GivenUpPlace]:
        """What one subscriber gave up (by its name, or its queue's), or everybody; by subscriber and offset.

        Raises:
            AgentMissingError: Nobody of that name is known.
        """
        members = self._audience.members()
        wanted = [one for one in members if subscriber in {None, one.name, str(one.queue_name)}]
        if subscriber is not None and not wanted:
            known = ", ".join(sorted({one.name for one in members})[:10]) or "nobody"
            raise AgentMissingError(f"no subscriber {subscriber[:120]!r} is known; known are: {known}")
        told = self._told_by_targets(wanted)
        names = {one.queue_name for one in wanted} - set(told)
        found = [place for places in told.values() for place in places]
        found += self._told_by_statuses(names if subscriber is not None else None, set(told))
        return sorted(found, key=lambda one: (one.view.subscriber, one.queue_name.sling_id, one.view.offset))

    def _told_by_targets(self, members: Sequence[Member]) -> dict[QueueName, list[GivenUpPlace]]:
        told = {}
        for known in self._workspace.home.known_subscribers():
            queue_name = QueueName(self._workspace.home.sling_id, known.name)
            if any(one.queue_name == queue_name for one in members):
                try:
                    with opened_ledger(known.target) as ledger:
                        told[queue_name] = [_of_ledger(queue_name, entry) for entry in ledger.given_up()]
                except MailboatError:
                    continue  # its target can't be asked; statuses still tell
        return told

    def _told_by_statuses(self, names: set[QueueName] | None, told: set[QueueName]) -> Iterator[GivenUpPlace]:
        """What the status topic says of some subscribers, or of all but those whose targets told."""
        earliest = self._workspace.journal.bounds(self._workspace.package_topic).earliest_offset
        count = 0
        for place, failed in self._picture.failed.all(earliest):
            is_wanted = place.queue_name not in told if names is None else place.queue_name in names
            if is_wanted:
                paths = self._paths(place.offset) if count < MAX_PATHS_READ else ()
                count += 1
                yield _of_status(place, failed, paths)

    def _paths(self, offset: Offset) -> tuple[str, ...]:
        record = self._workspace.journal.record_at(self._workspace.package_topic, offset)
        message = None if record is None else readable(record)
        return message.paths if isinstance(message, PackageMessage) else ()


def _of_ledger(queue_name: QueueName, entry: GivenUp) -> GivenUpPlace:
    view = GivenUpView(
        subscriber=queue_name.agent_name,
        publisher=entry.pub_agent_name or "",
        offset=entry.offset,
        package_id=entry.package_id,
        attempts=entry.attempts,
        given_up_ms=entry.given_up_ms,
        paths=tuple(entry.paths),
        error=cause_view(entry.cause),
    )
    return GivenUpPlace(queue_name, entry.pub_agent_name, view)


def _of_status(place: FailurePlace, failed: FailedPackage, paths: tuple[str, ...]) -> GivenUpPlace:
    view = GivenUpView(
        subscriber=place.queue_name.agent_name,
        publisher=place.publisher,
        offset=place.offset,
        package_id=failed.package_id,
        attempts=failed.attempts,
        given_up_ms=failed.given_up_ms,
        paths=paths,
        error=cause_view(failed.cause),
    )
    return GivenUpPlace(place.queue_name, place.publisher, view)
