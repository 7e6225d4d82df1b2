"""All queues of one publisher agent: one for each subscriber that follows it, and its error queue where it has one.

They are made of the subscribers' positions when they are asked for, so there is no registry of queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mailboat.errors import QueueMissingError, UsageError
from mailboat.model.identifiers import AgentName, natural_key
from mailboat.queues.error_queues import ErrorQueue, FailedPackages
from mailboat.queues.log_view import LogView
from mailboat.queues.queue_names import ERROR_SUFFIX, parse_queue_name
from mailboat.queues.queue_pages import PageReader
from mailboat.queues.queue_state import QueuePosition
from mailboat.queues.subscriber_queue import SubscriberQueue

_SHOWN: Final = 10
_NAME_SHOWN: Final = 120


@dataclass(frozen=True, slots=True)
class QueueSources:
    """What queues are made of.

    Attributes:
        view: The picture of the package topic.
        pages: Reads what the view does not have.
        failed: What subscribers gave up.
    """

    view: LogView
    pages: PageReader
    failed: FailedPackages


class PublisherQueues:
    """The queues of one publisher agent. Safe to use from several threads."""

    def __init__(self, publisher: AgentName, sources: QueueSources, standings: Sequence[QueuePosition]) -> None:
        """Show the queues of those among `standings` that follow `publisher`."""
        self.publisher = publisher
        self._sources = sources
        self._standings = standings

    def subscriber_queues(self) -> list[SubscriberQueue]:
        """The queue of each subscriber, by name; of several standings of one subscriber the last counts."""
        followers = {
            standing.queue_name: standing for standing in self._standings if standing.publisher == self.publisher
        }
        names = sorted(followers, key=lambda one: (natural_key(one.agent_name), one))
        return [SubscriberQueue(followers[name], self._sources.view, self._sources.pages) for name in names]

    def all(self) -> list[SubscriberQueue | ErrorQueue]:
        """All queues by name, each error queue after its subscriber's."""
        queues: list[SubscriberQueue | ErrorQueue] = []
        for queue in self.subscriber_queues():
            queues.append(queue)
            if queue.standing.has_error_queue:
                queues.append(self._error_queue(queue))
        return queues

    def find(self, name: str) -> SubscriberQueue | ErrorQueue:
        """The queue of that name, or of the subscriber of that name where there is only one of it.

        Raises:
            QueueMissingError: No subscriber, or several subscribers have that name.
        """
        queues = self.subscriber_queues()
        short = self._find_short(queues, name)
        if short is not None:
            return short
        try:
            wanted = parse_queue_name(name)
        except UsageError as error:
            raise self._missing(name, queues) from error
        for queue in queues:
            if name == queue.name:  # an agent's name may end in "-error" itself
                return queue
            if queue.standing.queue_name == wanted._replace(is_error_queue=False) and queue.standing.has_error_queue:
                return self._error_queue(queue)
        raise self._missing(name, queues)

    def _find_short(self, queues: Sequence[SubscriberQueue], name: str) -> SubscriberQueue | ErrorQueue | None:
        """The queue of the only subscriber of a name; with `-error` behind the name, its error queue."""
        found = _of_subscriber(queues, name)
        if found is not None:
            return found
        failing = _of_subscriber(queues, name.removesuffix(ERROR_SUFFIX)) if name.endswith(ERROR_SUFFIX) else None
        return None if failing is None or not failing.standing.has_error_queue else self._error_queue(failing)

    def _missing(self, name: str, queues: Sequence[SubscriberQueue]) -> QueueMissingError:
        shown = ", ".join(queue.standing.queue_name.agent_name for queue in queues[:_SHOWN]) or "none"
        return QueueMissingError(
            f"{self.publisher} has no queue {name[:_NAME_SHOWN]!r}; queues: {shown}",
            publisher=self.publisher,
        )

    def _error_queue(self, queue: SubscriberQueue) -> ErrorQueue:
        return ErrorQueue(queue.standing.queue_name, self.publisher, self._sources.failed, self._sources.view)


def _of_subscriber(queues: Sequence[SubscriberQueue], name: str) -> SubscriberQueue | None:
    found = [queue for queue in queues if queue.standing.queue_name.agent_name == name]
    if len(found) > 1:
        names = ", ".join(queue.name for queue in found[:_SHOWN])
        raise QueueMissingError(f"{len(found)} subscribers are called {name}; name the queue: {names}")
    return found[0] if found else None
