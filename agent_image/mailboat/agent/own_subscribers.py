"""Status, queues and error queues of the subscribers of one process, for its dashboard where it has no publisher.

Everything comes from the subscribers themselves, their targets and bounded reads of the journal: no topic is followed,
so it needs no thread and little memory. Subscribers of other processes are missing, and its lags count every message
after a position, also those of publishers that are not followed. Called by the HTTP server, from any thread.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

from mailboat.agent.tasks import SubscriberTask, TaskReport
from mailboat.api.records import (
    BuildProgressView,
    GivenUpPage,
    GivenUpView,
    JournalView,
    PublisherView,
    QueuePage,
    QueueView,
    StatusView,
)
from mailboat.clock import Clock, milliseconds_now
from mailboat.composition.workspace import Workspace
from mailboat.config.document import SubscriberAgentConfig
from mailboat.content.locations import opened_ledger
from mailboat.control.builds import BuildProgress
from mailboat.control.journal_state import journal_view
from mailboat.control.page_tokens import Key, page_of
from mailboat.control.queue_service import view_of_given_up, view_of_item
from mailboat.control.subscriber_directory import STOPPED, SubscriberStatus, announced_member, status_view
from mailboat.discovery.topology import AgentKey, KnownSubscriber, Rate
from mailboat.errors import (
    AgentMissingError,
    JournalUnavailableError,
    PositionOutOfRangeError,
    QueueMissingError,
    SourceMissingError,
)
from mailboat.journal.port import ReadLimits
from mailboat.model.identifiers import AgentName, Offset, natural_key, parse_agent_name
from mailboat.model.messages import DiscoveryMessage
from mailboat.queues.entries import Entry, decode_entries
from mailboat.queues.queue_names import EntryId
from mailboat.queues.queue_state import decide_item_state, decide_queue_state
from mailboat.queues.subscriber_queue import QueueItem
from mailboat.subscriber.figures import SubscriberPhase

MAX_READ_RECORDS: Final = 5_000
"""Messages that one page of a queue reads at most; the next page begins where it ended."""

_READ: Final = ReadLimits(max_records=500)
_READ_SECONDS: Final = 5.0
"""For what is known to be there; a log with a network between may need a moment."""


class OwnSubscribers:
    """The subscribers of a process, each with its configuration."""

    def __init__(
        self, workspace: Workspace, agents: Sequence[tuple[SubscriberAgentConfig, SubscriberTask]], clock: Clock
    ) -> None:
        """Read nothing yet."""
        self._workspace = workspace
        self._agents = agents
        self._clock = clock
        self._builds = BuildProgress(workspace)
        self._journal: JournalView | None = None
        self._lock = threading.Lock()
        self._rates = defaultdict[AgentKey, Rate](Rate)

    def status(self) -> StatusView:
        """Journal, followed publishers and subscribers. Raises: JournalUnavailableError if it was never reached."""
        members, journal = self._members(), self._journal
        progress: Mapping[AgentKey, BuildProgressView] = {}
        try:
            journal = journal_view(self._workspace)
            progress = self._builds.of(members)
        except JournalUnavailableError:
            # a subscriber that waits for the journal is what people look for then
            if journal is None:
                raise
        self._journal = journal
        return StatusView(
            journal=journal,
            publishers=tuple(PublisherView(name) for name in sorted(self._publishers())),
            subscribers=tuple(
                status_view(member, _lag(member, journal.next_offset), progress.get(member.key)) for member in members
            ),
        )

    def failed(self, subscriber: str | None, token: str | None, max_items: int) -> GivenUpPage:
        """A page of the error queues. Raises: AgentMissingError; UsageError for a token of another list."""
        members = self._members() if subscriber is None else [self._find(subscriber)]
        found = [view for member in members for view in _given_up_of(member)]
        shown, following = page_of(found, _key_of, token, max_items)
        return GivenUpPage(tuple(shown), following)

    def queue(self, publisher: str, name: str, from_offset: int, max_items: int) -> QueuePage:
        """A page of the packages of a publisher that a subscriber has still to import; their number is at most that.

        Raises: AgentMissingError, QueueMissingError, JournalUnavailableError.
        """
        member, author = self._find(name), parse_agent_name(publisher)
        if not member.follows(author):
            raise QueueMissingError(f"{member.name} does not follow {author}", subscriber=member.name)
        journal = journal_view(self._workspace)
        standing = member.standing(author)
        count = _lag(member, journal.next_offset) or 0
        queue = QueueView(
            name=str(member.queue_name),
            publisher=author,
            subscriber=member.name,
            state=str(decide_queue_state(count, member.attempts)),
            count=count,
            exact=not count,
        )
        first = max(member.pending_from or 0, journal.earliest_offset)
        begin = max(first, from_offset)
        entries, following = self._entries(author, Offset(begin), journal.next_offset, max_items)
        attempts = [standing.attempts if begin == first and not place else 0 for place in range(len(entries))]
        items = [
            QueueItem(
                EntryId(self._workspace.package_topic, entry.offset),
                entry,
                decide_item_state(count),
                count,
                standing.cause if count else None,
            )
            for entry, count in zip(entries, attempts, strict=True)
        ]
        return QueuePage(queue, tuple(map(view_of_item, items)), following)

    def _entries(
        self, publisher: AgentName, begin: Offset, end: int, max_items: int
    ) -> tuple[Sequence[Entry], Offset | None]:
        """The first packages of a publisher from an offset on, and where the next page begins; None: at the end."""
        entries, position = list[Entry](), begin
        if begin >= end:
            return entries, None
        with closing(self._workspace.journal.reader(self._workspace.package_topic, begin)) as reader:
            while position < end and len(entries) < max_items and position - begin < MAX_READ_RECORDS:
                try:
                    batch = reader.read(_READ, _READ_SECONDS)
                except PositionOutOfRangeError:  # retention was faster
                    return entries, None
                entries += decode_entries(batch.records, {publisher}).entries
                position = batch.next_offset
                if batch.is_at_end:
                    break
        if len(entries) > max_items:
            return entries[:max_items], entries[max_items].offset
        return entries, position if position < end else None

    def _members(self) -> list[SubscriberStatus]:
        now_ms = milliseconds_now(self._clock)
        return [self._member(config, task.report(), now_ms) for config, task in self._agents]

    def _member(self, config: SubscriberAgentConfig, report: TaskReport, now_ms: int) -> SubscriberStatus:
        """A subscriber as it would announce itself now, or as it ended."""
        home, message = self._workspace.home, report.message
        if message is None:
            known = SubscriberStatus(
                AgentKey(home.sling_id, parse_agent_name(config.name)),
                home.resolve(config.target),
                follow=tuple(map(parse_agent_name, config.follow)),
                max_retries=home.config.subscriber.max_retries,
                is_editable=config.editable,
            )
        else:
            key = AgentKey(message.sub_sling_id, message.sub_agent_name)
            known = announced_member(KnownSubscriber(key, message, now_ms, self._rate(key, message, now_ms)), now_ms)
        known = replace(known, is_registered=True)
        if report.is_running:
            return known
        state = STOPPED if report.is_over else SubscriberPhase.STARTING
        return replace(known, state=str(state), cause=report.cause or known.cause, rate_per_second=None, is_ready=False)

    def _rate(self, key: AgentKey, message: DiscoveryMessage, now_ms: int) -> float | None:
        with self._lock:
            rate = self._rates[key]
            rate.apply(now_ms, (message.reads_next or 0) - 1)
            return rate.per_second()

    def _publishers(self) -> set[str]:
        """Those that are followed by name, and those of which a package was read."""
        names = {name for config, _ in self._agents for name in config.follow}
        messages = [message for _, task in self._agents if (message := task.report().message) is not None]
        return names | {state.pub_agent_name for message in messages for state in message.states}

    def _find(self, name: str) -> SubscriberStatus:
        """The subscriber of that name, or of that queue name. Raises: AgentMissingError."""
        members = self._members()
        for member in members:
            if name in {member.name, str(member.queue_name)}:
                return member
        known = ", ".join(member.name for member in members[:10])
        raise AgentMissingError(f"no subscriber {name[:120]!r} runs here; this process has: {known}")


def _lag(member: SubscriberStatus, end: int) -> int | None:
    """Messages after the position of a subscriber; None before it has one."""
    start = member.pending_from
    return None if start is None else member.queued + max(0, end - start)


def _given_up_of(member: SubscriberStatus) -> Iterator[GivenUpView]:
    """The error queue in a subscriber's target; nothing before there is a target."""
    if member.target is not None:
        with suppress(SourceMissingError), opened_ledger(member.target) as ledger:
            yield from [view_of_given_up(member.name, entry) for entry in ledger.given_up()]


def _key_of(view: GivenUpView) -> Key:
    return natural_key(view.subscriber), view.subscriber, view.offset
