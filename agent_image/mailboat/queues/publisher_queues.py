"""All queues of one publisher agent: one for each subscriber that follows it, and its error queue where it has one.

Who the subscribers are is asked anew each time, so nobody registers or forgets queues here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName
from mailboat.queues.failures import ErrorQueue, FailedPackages
from mailboat.queues.log_view import LogView
from mailboat.queues.names import parse_queue_name
from mailboat.queues.pages import PageReader
from mailboat.queues.standing import QueueState, Standing, decide_agent_state
from mailboat.queues.subscriber_queue import SubscriberQueue


class QueueMissingError(UsageError):
    """The publisher has no queue of that name: the subscriber is unknown, silent for too long, or never gives up.

    `mailboat queue ls` lists the queues there are.
    """


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

    def __init__(
        self, publisher: AgentName, sources: QueueSources, standings: Callable[[], Sequence[Standing]]
    ) -> None:
        """Show the queues of those among `standings()` that follow `publisher`."""
        self._publisher = publisher
        self._sources = sources
        self._standings = standings

    def subscriber_queues(self) -> list[SubscriberQueue]:
        """The queue of each subscriber, by name; of several standings of one subscriber the last counts."""
        followers = {one.queue_name: one for one in self._standings() if one.publisher == self._publisher}
        return [SubscriberQueue(followers[name], self._sources.view, self._sources.pages) for name in sorted(followers)]

    def names(self) -> list[str]:
        """The names of all queues, each error queue after its subscriber's."""
        names = []
        for queue in self.subscriber_queues():
            names.append(queue.name)
            if queue.standing.has_error_queue:
                names.append(self._error_queue(queue).name)
        return names

    def find(self, name: str) -> SubscriberQueue | ErrorQueue:
        """The queue of that name. Raises: QueueMissingError, UsageError when it can't be a queue's name."""
        wanted = parse_queue_name(name)
        for queue in self.subscriber_queues():
            if name == queue.name:  # an agent's name may end in "-error" itself
                return queue
            if queue.standing.queue_name == wanted._replace(is_error_queue=False) and queue.standing.has_error_queue:
                return self._error_queue(queue)
        raise QueueMissingError(f"{self._publisher} has no queue {name}", publisher=self._publisher)

    def state(self) -> QueueState:
        """The state of the agent."""
        return decide_agent_state(queue.state() for queue in self.subscriber_queues())

    def _error_queue(self, queue: SubscriberQueue) -> ErrorQueue:
        return ErrorQueue(queue.standing.queue_name, self._publisher, self._sources.failed, self._sources.view)
