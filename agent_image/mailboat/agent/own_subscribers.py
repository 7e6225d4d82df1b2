"""The subscribers of one process for its dashboard, where it has no publisher: status, queues, errors and commands.

Error queues and commands are answered by the parts of the control service, which take the subscribers of this process
for those of the journal. The service itself is not used: it loads 1 to 2 MB of code to publish, and follows topics.
Here no topic is followed, so it needs no thread and little memory. Subscribers of other processes are missing, and its
lags count every message after a position, also those of publishers that are not followed. Commands travel on the
command topic, as those of a publisher do, and the status topic is read from there on until they are answered. Called by
the HTTP server, from any thread.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from mailboat.agent.tasks import SubscriberTask, TaskReport
from mailboat.api.records import (
    BuildProgressView,
    CommandView,
    GivenUpPage,
    JournalView,
    PublisherView,
    QueuePage,
    StatusView,
    SubscriberStatusView,
)
from mailboat.clock import Clock, milliseconds_now
from mailboat.composition.workspace import Workspace
from mailboat.config.document import SubscriberAgentConfig
from mailboat.content.locations import opened_ledger
from mailboat.control.builds import BuildProgress
from mailboat.control.command_sender import CommandSender, are_answered
from mailboat.control.journal_state import CommandAnswers, journal_view
from mailboat.control.queue_service import GivenUpPackages, queue_page
from mailboat.control.subscriber_directory import STOPPED, SubscriberStatus, announced_member, status_view
from mailboat.discovery.topology import KnownSubscriber, Rate
from mailboat.errors import (
    AgentMissingError,
    CommandMissingError,
    JournalUnavailableError,
    MailboatError,
    PositionOutOfRangeError,
    QueueMissingError,
)
from mailboat.journal.port import Edge
from mailboat.model.identifiers import AgentName, Offset, parse_agent_name
from mailboat.model.messages import DiscoveryMessage, TopicRole
from mailboat.operations.journal_inspection import RecentPublishers
from mailboat.queues.error_queues import FailedPackages
from mailboat.queues.log_view import LogView
from mailboat.queues.queue_names import QueueName
from mailboat.queues.queue_pages import MAX_PAGE_ENTRIES, PageReader
from mailboat.queues.statuses import StatusFollower
from mailboat.queues.subscriber_queue import SubscriberQueue
from mailboat.subscriber.figures import SubscriberPhase

MAX_REMEMBERED: Final = 100
"""Commands whose outcome can be asked for later, and those of the last request; the oldest are forgotten first."""

_PUBLISHED_SECONDS: Final = 5.0
_SAMPLE_MS: Final = 10_000
"""Between samples of a position that does not move, as announcements come."""


class SentCommands:
    """Commands that were sent together, and what their subscribers answered. Safe to use from several threads."""

    def __init__(self, workspace: Workspace, send: Callable[[CommandSender], list[CommandView]]) -> None:
        """Send them. Raises: as `send`."""
        self._workspace = workspace
        self._answers = CommandAnswers()
        self._sender = CommandSender(workspace, self._answers)
        self._lock = threading.Lock()
        self._follower: StatusFollower | None = None
        # before anything is sent: an answer must not lie before the first status that is read
        self._reads_next = workspace.journal.bounds(workspace.topic(TopicRole.STATUS)).next_offset
        self._views = send(self._sender)

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the commands; none where an empty queue needed no command."""
        return [view.id for view in self.views if view.id]

    @property
    def views(self) -> list[CommandView]:
        """The commands with the answers that were found so far. Reads nothing."""
        return self._views

    def look(self) -> list[CommandView]:
        """The commands with the answers that are there. Raises: JournalUnavailableError."""
        # held while the topic is read: a follower is for one thread, and several requests may wait for one command
        with self._lock:
            if not are_answered(self._views):
                self._follower = self._follower or self._opened()
                while self._follower.follow(0.0):
                    pass
                self._views = self._sender.current(self._views)
            views = self._views
        if are_answered(views):
            self.rest()
        return views

    def rest(self) -> None:
        """Release the reader until the next look: any number of commands may stay without an answer."""
        with self._lock:
            if self._follower is not None:
                self._reads_next = self._follower.next_offset
                self._follower.close()
                self._follower = None

    def _opened(self) -> StatusFollower:
        journal, topic = self._workspace.journal, self._workspace.topic(TopicRole.STATUS)
        try:
            return StatusFollower((self._answers,), journal, topic, self._workspace.clock, self._reads_next)
        except PositionOutOfRangeError:  # retention was faster
            return StatusFollower((self._answers,), journal, topic, self._workspace.clock, Edge.EARLIEST)


class OwnSubscribers:
    """The subscribers of a process, each with its configuration."""

    def __init__(
        self, workspace: Workspace, agents: Sequence[tuple[SubscriberAgentConfig, SubscriberTask]], clock: Clock
    ) -> None:
        self._workspace = workspace
        self._agents = agents
        self._clock = clock
        self._builds = BuildProgress(workspace)
        # nothing follows the status topic here: the targets of this process say what failed
        self._given_up = GivenUpPackages(workspace, FailedPackages(), self)
        self._journal: JournalView | None = None
        self._lock = threading.Lock()
        self._rates = defaultdict[QueueName, Rate](Rate)
        self._sent = dict[str, SentCommands]()
        self._recent = RecentPublishers(workspace, clock, _PUBLISHED_SECONDS)

    def status(self) -> StatusView:
        """Journal, followed publishers and subscribers. Raises: JournalUnavailableError if it was never reached."""
        members, journal = self.members(), self._journal
        progress: Mapping[QueueName, BuildProgressView] = {}
        try:
            journal = journal_view(self._workspace)
            progress = self._builds.of(members)
            self._recent.read(journal.next_offset)
        except JournalUnavailableError:
            # a subscriber that waits for the journal is what people look for then
            if journal is None:
                raise
        self._journal, published = journal, self._recent.found
        names = {name for config, _ in self._agents for name in config.follow} | published.keys()
        messages = [message for _, task in self._agents if (message := task.report().message) is not None]
        names |= {state.pub_agent_name for message in messages for state in message.states}
        return StatusView(
            journal=journal,
            publishers=tuple(
                PublisherView(name, last_published_at=published.get(AgentName(name))) for name in sorted(names)
            ),
            subscribers=_views(members, journal, progress),
        )

    def lags(self) -> StatusView:
        """Journal and subscribers, to be sampled: reads no message, as a reader of Kafka is a new connection.

        Raises: JournalUnavailableError.
        """
        journal = journal_view(self._workspace)
        return StatusView(journal, (), _views(self.members(), journal, {}))

    def errors(self, subscriber: str | None, token: str | None, max_items: int) -> GivenUpPage:
        """A page of the error queues. Raises: AgentMissingError; UsageError for a token of another list."""
        return self._given_up.page(subscriber, token, max_items)

    def queue(self, publisher: str, name: str, from_offset: int, max_items: int) -> QueuePage:
        """A page of the packages of a publisher that a subscriber has still to import; their number is at most that.

        Raises: AgentMissingError, QueueMissingError, JournalUnavailableError.
        """
        return queue_page(self._queue(publisher, name), from_offset, max_items)

    def suspend(self, name: str, seconds: float | None) -> SentCommands:
        """Suspend imports, for at most so long. Raises: AgentMissingError, UsageError."""
        queue_name = self._find(name).queue_name
        return self._send(lambda sender: [sender.suspend(queue_name, seconds)])

    def resume(self, name: str) -> SentCommands:
        queue_name = self._find(name).queue_name
        return self._send(lambda sender: [sender.resume(queue_name)])

    def redrive(self, name: str, offsets: Sequence[int]) -> SentCommands:
        """Import failed packages again. Raises: AgentMissingError, UsageError."""
        places = self._given_up.places(name)
        return self._send(lambda sender: sender.redrive(name, places, offsets))

    def clear(self, publisher: str, name: str, max_items: int | None = None) -> SentCommands:
        """Drop the first packages of a publisher, or all that it has published until now.

        Raises: AgentMissingError, QueueMissingError, QueueNotClearableError, UsageError.
        """
        queue = self._queue(publisher, name)
        return self._send(lambda sender: [sender.clear(queue, max_items)])

    def remove(self, publisher: str, name: str, item_ids: Sequence[str]) -> SentCommands:
        """Drop the first package, or all up to the last one named. Raises: as `clear`; RemovalRefusedError."""
        queue = self._queue(publisher, name)
        # its view keeps what this reads: else each id would be looked up with a reader of its own
        queue.page(max_items=MAX_PAGE_ENTRIES)
        return self._send(lambda sender: [sender.remove(queue, item_ids)])

    def command(self, command_id: str) -> SentCommands:
        """A command that was sent a short time ago, with those of the same request. Raises: CommandMissingError."""
        with self._lock:
            found = self._sent.get(command_id)
        if found is None:
            raise CommandMissingError(f"no command {command_id[:80]!r} was sent lately by this agent")
        return found

    def close(self) -> None:
        """Release the readers of commands that are not answered."""
        with self._lock:
            unanswered = list(self._sent.values())
            self._sent.clear()
        for sent in unanswered:
            sent.rest()

    def _queue(self, publisher: str, name: str) -> SubscriberQueue:
        """The queue over a view that has counted nothing: a page reads its stretch of the log, up to a limit."""
        member, author = self._find(name), parse_agent_name(publisher)
        if not member.follows(author):
            raise QueueMissingError(f"{member.name} does not follow {author}", subscriber=member.name)
        if member.next_offset is None:
            member = replace(member, next_offset=_stored_position(member))
        journal, topic = self._workspace.journal, self._workspace.package_topic
        view = LogView(topic, {author}, journal.bounds(topic))
        return SubscriberQueue(member.standing(author), view, PageReader(view, journal))

    def _send(self, send: Callable[[CommandSender], list[CommandView]]) -> SentCommands:
        sent = SentCommands(self._workspace, send)
        forgotten = list[SentCommands]()
        with self._lock:
            self._sent |= dict.fromkeys(sent.ids, sent)
            # Those of one request have one reader, so they are forgotten together; never those of this request.
            while len(self._sent) > MAX_REMEMBERED and (oldest := next(iter(self._sent.values()))) is not sent:
                self._sent = {command_id: one for command_id, one in self._sent.items() if one is not oldest}
                forgotten.append(oldest)
        for old in forgotten:
            old.rest()
        return sent

    def members(self) -> Sequence[SubscriberStatus]:
        """See `MemberSource`: as they would announce themselves now. Reads no storage."""
        now_ms = milliseconds_now(self._clock)
        return [self._member(config, task.report(), now_ms) for config, task in self._agents]

    def named(self, name: str) -> Sequence[SubscriberStatus]:
        """See `MemberSource`."""
        return [self._find(name)]

    def _find(self, name: str) -> SubscriberStatus:
        """The subscriber of that name, or of that queue name. Raises: AgentMissingError."""
        members = self.members()
        for member in members:
            if name in {member.name, str(member.queue_name)}:
                return member
        known = ", ".join(member.name for member in members[:10])
        raise AgentMissingError(f"no subscriber {name[:120]!r} runs here; this process has: {known}")

    def _member(self, config: SubscriberAgentConfig, report: TaskReport, now_ms: int) -> SubscriberStatus:
        """A subscriber as it would announce itself now, or as it ended."""
        home, message = self._workspace.home, report.message
        if message is None:
            known = SubscriberStatus(
                QueueName(home.sling_id, parse_agent_name(config.name)),
                home.resolve(config.target),
                follow=tuple(map(parse_agent_name, config.follow)),
                max_retries=home.config.subscriber.max_retries,
                is_editable=config.editable,
            )
        else:
            key = QueueName(message.sub_sling_id, message.sub_agent_name)
            known = announced_member(KnownSubscriber(key, message, now_ms, self._rate(key, message, now_ms)), now_ms)
        known = replace(known, registered_target=known.target)
        if report.is_running:
            return known
        state = STOPPED if report.is_over else SubscriberPhase.STARTING
        return replace(known, state=str(state), cause=report.cause or known.cause, rate_per_second=None, is_ready=False)

    def _rate(self, key: QueueName, message: DiscoveryMessage, now_ms: int) -> float | None:
        if message.reads_next is None:
            return None
        last_done = message.reads_next - 1
        with self._lock:
            rate = self._rates[key]
            # not with each look: the rate would fall a little each time, and be an event to each open dashboard
            if not rate.is_known_at(last_done, now_ms - _SAMPLE_MS):
                rate.apply(now_ms, last_done)
            return rate.per_second()


def _views(
    members: Sequence[SubscriberStatus], journal: JournalView, progress: Mapping[QueueName, BuildProgressView]
) -> tuple[SubscriberStatusView, ...]:
    end = journal.next_offset
    return tuple(status_view(member, _lag(member, end), end, progress.get(member.queue_name)) for member in members)


def _lag(member: SubscriberStatus, end: int) -> int | None:
    """Records after the position of a subscriber; None before it has one. No thread here reads the log for packages."""
    return None if member.pending_from is None else member.messages_to(end)


def _stored_position(member: SubscriberStatus) -> Offset | None:
    """Where its target stands, for a subscriber that has not opened it: it waits for the lock, or has ended."""
    if member.target is not None:
        with suppress(MailboatError), opened_ledger(member.target) as ledger:
            position = ledger.position()
            return None if position is None else position.next_offset
    return None
