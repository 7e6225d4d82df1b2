"""The control service: answers the control port from the journal itself.

On a home it is one-shot: each verb first reads what is new on the topics that it needs. In an agent `start` makes
threads that keep the state current, and no verb waits for any of them but those that drop what is in a queue. Called
by the command line and the HTTP server.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

from mailboat.api.records import (
    BuildView,
    CommandView,
    DistributionPage,
    DistributionView,
    ForgottenView,
    GivenUpPage,
    PublicationPlan,
    PublisherView,
    QueuePage,
    QueueView,
    StatusView,
)
from mailboat.clock import Deadline
from mailboat.composition.workspace import Workspace
from mailboat.config.document import PublisherAgentConfig, Transfer, transfer_of
from mailboat.control.builds import BuildProgress, BuildsSeen
from mailboat.control.command_sender import CommandSender, are_answered
from mailboat.control.distribution_lookup import Distributions
from mailboat.control.job_service import JobService
from mailboat.control.journal_state import MAX_BYTES as MAX_ANSWERS_BYTES
from mailboat.control.journal_state import JournalState, journal_view
from mailboat.control.publisher_service import LocalSource, PublisherService, publishers_of
from mailboat.control.queue_service import GivenUpPackages, QueueService
from mailboat.control.subscriber_directory import (
    SubscriberDirectory,
    SubscriberStatus,
    forget_subscriber,
    status_view,
)
from mailboat.errors import AgentMissingError, MailboatError, QueueNotClearableError
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest
from mailboat.operations.journal_inspection import RecentPublishers
from mailboat.publisher.appender import Receipt
from mailboat.queues.error_queues import MAX_BYTES as MAX_FAILED_BYTES
from mailboat.queues.error_queues import ErrorQueue
from mailboat.queues.log_follower import LogFollower, count_past
from mailboat.queues.log_view import LogView
from mailboat.queues.publisher_queues import PublisherQueues
from mailboat.queues.subscriber_queue import SubscriberQueue
from mailboat.telemetry.memory_accounts import MemoryAccounts

_LOG: Final = logging.getLogger(__name__)
MOST_COUNTED: Final = 5_000
"""Messages of the past that are read to count packages; a larger lag is an upper bound."""
MAX_LISTED: Final = 100
MAX_ERRORS: Final = 1_000
_CATCH_UP_SECONDS: Final = 10.0
"""How long a clear waits for the thread that follows the log, which is milliseconds behind it."""

_T = TypeVar("_T")


class ForeignLag:
    """Counts packages of publishers of other processes, in the last part of the log. Thread-safe.

    The log is first read when a subscriber follows such a publisher.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._followed: tuple[LogView, LogFollower] | None = None

    def count_from(self, offset: Offset, publishers: AbstractSet[AgentName], known: AbstractSet[AgentName]) -> int:
        """The number of packages of some publishers from an offset on, which is near the end of the log.

        Args:
            offset: A subscriber's position.
            publishers: The publishers that it follows.
            known: Those that any subscriber follows: one view counts them all.
        """
        # held while the log is read: the follower is for one thread at a time
        with self._lock:
            view, follower = self._followed_of(publishers | known)
            while follower.follow(0.0):
                pass
            while view.known_from > max(offset, view.bounds.earliest_offset):
                if not count_past(view, self._workspace.journal):
                    break
            return sum(view.size_after(name, offset - 1).count for name in publishers)

    def close(self) -> None:
        """Release the reader."""
        with self._lock:
            followed, self._followed = self._followed, None
        if followed is not None:
            followed[1].close()

    def _followed_of(self, wanted: AbstractSet[AgentName]) -> tuple[LogView, LogFollower]:
        if self._followed is not None:
            if self._followed[0].publishers >= wanted:
                return self._followed
            self._followed[1].close()
        journal, topic = self._workspace.journal, self._workspace.package_topic
        view = LogView(topic, wanted, journal.bounds(topic), self._workspace.home.config.publisher.queue_cache_bytes)
        self._followed = view, LogFollower(view, journal)
        return self._followed


class ControlService:
    """See `Control`. Close it when done. Safe to use from several threads once it is started."""

    def __init__(
        self,
        workspace: Workspace,
        publishers: Sequence[PublisherAgentConfig] | None = None,
        local: LocalSource | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            workspace: The home, or what an agent runs in.
            publishers: The publishers of this agent; None takes all of the home, which is for commands on it.
            local: The source of a command on the home, instead of those that the configuration names.
        """
        self._workspace = workspace
        configs = publishers_of(workspace, publishers)
        self._journal_state = JournalState(workspace, configs)
        self._foreign_lag = ForeignLag(workspace)
        self._directory = SubscriberDirectory(workspace, self._journal_state.roster)
        self._services = {
            name: PublisherService(workspace, self._journal_state, one, local) for name, one in configs.items()
        }
        self._queues = QueueService(self._journal_state, self._directory, workspace.clock)
        self._distributions = Distributions(workspace, self._journal_state, self._directory)
        self._progress = BuildProgress(workspace)
        self._recent = RecentPublishers(workspace, workspace.clock)
        self._builds = BuildsSeen(workspace, self._journal_state, self._directory)
        self._commands = CommandSender(workspace, self._journal_state.answers)
        self._given_up = GivenUpPackages(workspace, self._journal_state.failed, self._directory)
        chance = random.Random()  # noqa: S311  # it spreads the records of workers
        self.jobs = JobService(lambda: workspace.journal, workspace.clock, chance)
        """Jobs of the journal; nothing of them is read before the first request."""

    def start(self) -> None:
        """Keep everything current from now on. Raises: as opening the journal."""
        self._journal_state.start()

    def stop(self, deadline: Deadline) -> None:
        """End the threads within the deadline."""
        self._journal_state.stop(deadline)

    def catch_up(self) -> None:
        """Read what is new on all topics. Verbs do so as far as they need it, unless threads do."""
        self._journal_state.hear_announcements()
        self._journal_state.hear_statuses()
        # the log last: a position that was announced before does not lie beyond the end that queues count to
        self._journal_state.hear_packages()

    def close(self) -> None:
        """End what was started, and release the readers."""
        self.jobs.close()
        self._foreign_lag.close()
        self._journal_state.close()

    def account_for(self, memory: MemoryAccounts) -> None:
        """Add what this service holds of the journal, once it is started."""
        known, settings = self._journal_state, self._workspace.home.config.publisher
        memory.add("queues", lambda: known.view.size_bytes, settings.queue_cache_bytes)
        memory.add("error-queues", lambda: known.failed.size_bytes, MAX_FAILED_BYTES)
        memory.add("command-answers", lambda: known.answers.size_bytes, MAX_ANSWERS_BYTES)
        memory.add("jobs", lambda: self.jobs.size_bytes, None)

    def status(self) -> StatusView:
        self._journal_state.hear_announcements()
        # positions first: an end that was read before them could lie below one, which would have no lag
        members, journal = self._directory.members(), journal_view(self._workspace)
        end = Offset(journal.next_offset)
        progress = self._progress.of(members)
        published = self._recent.read(end)
        known = frozenset(name for member in members for name in member.follow)
        ours = [service.view(members, published.get(name), end) for name, service in self._services.items()]
        others = [
            PublisherView(name, last_published_at=at) for name, at in published.items() if name not in self._services
        ]
        return StatusView(
            journal=journal,
            publishers=tuple(sorted([*ours, *others], key=lambda one: one.name)),
            subscribers=tuple(
                status_view(member, self._lag(member, end, known), end, progress.get(member.queue_name))
                for member in members
            ),
            unreadable_announcements=self._journal_state.roster.unreadable,
            dropped_subscribers=self._journal_state.roster.dropped,
        )

    def distribute(self, publisher: str, request: DistributionRequest) -> DistributionView:
        service = self._service(publisher)
        return self._distributions.published(service.name, service.publish(request), request.user_id)

    def distribute_all(self, publisher: str, requests: Sequence[DistributionRequest]) -> Iterator[DistributionView]:
        service = self._service(publisher)
        users = (request.user_id for request in requests)
        return self._published(service.name, zip(service.publish_all(requests), users, strict=True))

    def publish_changed(
        self, publisher: str, paths: Sequence[NodePath], user_id: str | None = None
    ) -> Iterator[DistributionView]:
        service = self._service(publisher)
        return self._published(service.name, ((one, user_id) for one in service.publish_changed(paths, user_id)))

    def _published(
        self, publisher: AgentName, receipts: Iterable[tuple[Receipt, str | None]]
    ) -> Iterator[DistributionView]:
        count = 0
        try:
            for receipt, user_id in receipts:
                count += 1
                yield self._distributions.published(publisher, receipt, user_id)
        except MailboatError as error:
            # these stay published: a caller that goes on after the error must not begin again
            if count:
                error.with_facts(published_before=count)
            raise

    def plan(self, publisher: str, request: DistributionRequest) -> PublicationPlan:
        return self._service(publisher).plan(request)

    def plan_changed(self, publisher: str, paths: Sequence[NodePath]) -> PublicationPlan:
        return self._service(publisher).plan_changed(paths)

    def distribution(self, publisher: str, package_id: str, wait_seconds: float = 0.0) -> DistributionView:
        service = self._service(publisher)
        found = self._distributions.find(service.name, package_id, service.locate(package_id))

        def read() -> DistributionView:
            return self._distributions.view(service.name, found)

        return self._await(read, lambda one: not one.waiting, wait_seconds)

    def distributions(self, publisher: str, before: int | None = None, max_items: int = 20) -> DistributionPage:
        service = self._service(publisher)
        self._journal_state.hear_announcements()
        self._journal_state.hear_statuses()
        return self._distributions.page(service.name, before, max(1, min(max_items, MAX_LISTED)))

    def builds(self, build_id: str | None = None) -> Sequence[BuildView]:
        self._journal_state.hear_announcements()
        self._journal_state.hear_statuses()
        return self._builds.list() if build_id is None else [self._builds.find(build_id)]

    def queues(self, publisher: str) -> Sequence[QueueView]:
        return self._queues.list(self._queues_of(publisher))

    def queue(self, publisher: str, name: str, from_offset: int = 0, max_items: int = 100) -> QueuePage:
        return self._queues.page(self._queues_of(publisher), name, from_offset, max_items)

    def clear(self, publisher: str, name: str, max_items: int | None = None, wait_seconds: float = 0.0) -> CommandView:
        sent = self._commands.clear(self._clearable(publisher, name), max_items)
        return self._answers_to([sent], wait_seconds)[0]

    def remove(self, publisher: str, name: str, item_ids: Sequence[str], wait_seconds: float = 0.0) -> CommandView:
        sent = self._commands.remove(self._clearable(publisher, name), item_ids)
        return self._answers_to([sent], wait_seconds)[0]

    def command(self, publisher: str | None, command_id: str) -> CommandView:
        # of any publisher: a redrive may be of a package of another process
        self._journal_state.hear_statuses()
        return self._commands.find(publisher, command_id)

    def errors(self, subscriber: str | None = None, page: str | None = None, max_items: int = 100) -> GivenUpPage:
        self._journal_state.hear_announcements()
        self._journal_state.hear_statuses()
        return self._given_up.page(subscriber, page, max(1, min(max_items, MAX_ERRORS)))

    def redrive(self, subscriber: str, offsets: Sequence[int], wait_seconds: float = 0.0) -> Sequence[CommandView]:
        self._journal_state.hear_announcements()
        self._journal_state.hear_statuses()
        places = self._given_up.places(subscriber)
        return self._answers_to(self._commands.redrive(subscriber, places, offsets), wait_seconds)

    def suspend(self, subscriber: str, seconds: float | None = None, wait_seconds: float = 0.0) -> CommandView:
        found = self._subscriber(subscriber)
        return self._answers_to([self._commands.suspend(found.queue_name, seconds)], wait_seconds)[0]

    def resume(self, subscriber: str, wait_seconds: float = 0.0) -> CommandView:
        found = self._subscriber(subscriber)
        return self._answers_to([self._commands.resume(found.queue_name)], wait_seconds)[0]

    def forget(self, subscriber: str) -> ForgottenView:
        return forget_subscriber(self._workspace, subscriber, self.jobs.forget_pool)

    def _lag(self, one: SubscriberStatus, end: Offset, known: AbstractSet[AgentName]) -> int | None:
        """Packages that it has still to import; None before it has a position, or beyond the end of the log."""
        start = one.pending_from
        if start is None or start > end:
            return None
        return one.queued + (self._pending(one, start, end, known) if start < end else 0)

    def _pending(self, one: SubscriberStatus, start: Offset, end: Offset, known: AbstractSet[AgentName]) -> int:
        """Packages of the log from an offset on, without those of publishers that it does not follow.

        The log is read for that: on a home where it may hold pieces or packages of such publishers, and in an agent
        for publishers of other processes. `known` are the publishers that any subscriber follows.
        """
        count, view, follow = end - start, self._journal_state.view, frozenset(one.follow)
        # the view counts publishers of this process only
        if not follow <= view.publishers:
            if count > MOST_COUNTED:
                return count
            return min(count, self._foreign_lag.count_from(start, follow, known))
        if not self._journal_state.is_followed:  # nothing has read the log of this home
            # where all publishers are followed and no package comes in pieces, each message is a package to import
            may_count_less = follow or transfer_of(self._workspace.home.config) is Transfer.CHUNKS
            if not may_count_less or count > MOST_COUNTED:
                return count
            self._journal_state.hear_packages()
            self._journal_state.count_down_to(start)
        if follow:
            return min(count, sum(view.size_after(name, start - 1).count for name in follow))
        return min(count, view.messages_from(start))

    def _subscriber(self, name: str) -> SubscriberStatus:
        self._journal_state.hear_announcements()
        return self._directory.find(name)

    def _service(self, publisher: str) -> PublisherService:
        service = self._services.get(AgentName(publisher))
        if service is not None:
            return service
        known = ", ".join(self._services) or "none"
        raise AgentMissingError(f"there is no publisher {publisher[:120]!r} here; publishers: {known}")

    def _queues_of(self, publisher: str) -> PublisherQueues:
        name = self._service(publisher).name
        self.catch_up()
        return self._queues.of(name)

    def _clearable(self, publisher: str, name: str) -> SubscriberQueue:
        """A queue with all that was published before the call, also by this process and a moment ago."""
        self._journal_state.hear_packages(_CATCH_UP_SECONDS)
        queue = self._queues_of(publisher).find(name)
        if isinstance(queue, ErrorQueue):
            raise QueueNotClearableError(
                f"{queue.name} holds failed packages, which can only be redriven",
                next_step=f"mailboat errors redrive {queue.queue_name.agent_name} OFFSET",
                queue=queue.name,
            )
        return queue

    def _answers_to(self, sent: Sequence[CommandView], wait_seconds: float) -> list[CommandView]:
        try:
            return self._await(lambda: self._commands.current(sent), are_answered, wait_seconds)
        except MailboatError as error:
            # They are in the log: after an error a caller would send them again, and a clear would drop more.
            _LOG.warning("commands were sent, and answers to them cannot be read: %s", error)
            return list(sent)

    def _await(self, read: Callable[[], _T], is_enough: Callable[[_T], bool], wait_seconds: float) -> _T:
        return self._journal_state.wait_until(read, is_enough, max(0.0, wait_seconds))
