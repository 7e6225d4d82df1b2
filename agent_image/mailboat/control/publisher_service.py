"""One publisher agent of the control service: its batcher, its throttle, and its line in the status."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from mailboat.api.records import PublicationPlan, PublisherView
from mailboat.clock import milliseconds_now
from mailboat.composition.source_openers import open_source
from mailboat.composition.workspace import Workspace
from mailboat.config.document import PublisherAgentConfig
from mailboat.content.watched_sources import Phases
from mailboat.control.journal_state import JournalState
from mailboat.control.subscriber_directory import SubscriberStatus
from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName, Offset, parse_agent_name
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.appender import Receipt
from mailboat.publisher.batcher import OpenSource, PublishBatcher
from mailboat.publisher.throttle import Throttle
from mailboat.queues.queue_state import decide_agent_state, decide_queue_state

_ANONYMOUS: Final = "anonymous"
_POLL_SECONDS: Final = 0.25
"""Shortest time between two searches for the slowest subscriber, so that hundreds of them cost a publisher nothing."""


class LocalSource(NamedTuple):
    """The source of a command on a home.

    Attributes:
        open: Opens it.
        phases: Receives the progress of publishing what changed.
    """

    open: OpenSource
    phases: Phases | None = None


class PublisherService:
    """One publisher. Safe to use from several threads."""

    def __init__(
        self,
        workspace: Workspace,
        journal_state: JournalState,
        config: PublisherAgentConfig,
        local: LocalSource | None = None,
    ) -> None:
        """Open nothing yet. `local` replaces the configured source."""
        self.name = parse_agent_name(config.name)
        self._workspace = workspace
        self._journal_state = journal_state
        self._config = config
        self._local = local
        self._throttle = Throttle(workspace.home.config.publisher.throttle, workspace.clock)
        self._opening = threading.Lock()
        self._opened: PublishBatcher | None = None
        self._slowest: tuple[int, float, Offset | None] = (-1, 0.0, None)

    def publish(self, request: DistributionRequest) -> Receipt:
        """Publish one request. Raises: as `Control.distribute`."""
        return self._batcher().publish(self._admitted(request))

    def publish_all(self, requests: Sequence[DistributionRequest]) -> Iterator[Receipt]:
        """Publish requests in order, several an append. Raises: as `Control.distribute_all`."""
        batcher = self._batcher()
        with ExitStack() as opened:
            agent = opened.enter_context(batcher.alone())
            # a deletion needs no source
            reads = any(request.action is Action.ADD for request in requests)
            source = opened.enter_context(closing(batcher.open_source())) if reads else None
            yield from agent.publish_all(map(self._admitted, requests), source)

    def publish_changed(self, paths: Sequence[NodePath], user_id: str | None) -> Iterator[Receipt]:
        """Publish what changed below paths of the source. Raises: as `Control.publish_changed`."""
        # before the source is compared, which may take minutes
        self._throttle.admit(user_id or _ANONYMOUS, self.backlog())
        batcher, phases = self._batcher(), None if self._local is None else self._local.phases
        with batcher.alone() as agent, closing(batcher.open_source()) as source:
            compared = None if phases is None else partial(phases.begin, "publishing")
            yield from agent.publish_changed(source, paths, user_id=user_id, on_compared=compared)

    def _admitted(self, request: DistributionRequest) -> DistributionRequest:
        if request.request_id is None or self.locate(request.request_id) is None:  # a repeat appends nothing
            self._throttle.admit(request.user_id or _ANONYMOUS, self.backlog())
        return request

    def plan(self, request: DistributionRequest) -> PublicationPlan:
        """A dry run of a request. Raises: as `Control.plan`."""
        if request.action is not Action.ADD:
            raise UsageError(f"a plan is of an ADD, not of {request.action}")
        batcher = self._batcher()
        with batcher.alone() as agent, closing(batcher.open_source()) as source:
            return agent.plan(request, source)

    def plan_changed(self, paths: Sequence[NodePath]) -> PublicationPlan:
        """A dry run of `publish_changed`. Raises: as `Control.plan_changed`."""
        batcher = self._batcher()
        with batcher.alone() as agent, closing(batcher.open_source()) as source:
            return agent.plan_changed(source, paths)

    def locate(self, identifier: str) -> Offset | None:
        """Where the package of that id, or of that request id, stands, if this publisher remembers."""
        return self._batcher().locate(identifier)

    def backlog(self) -> int:
        """Packages before the slowest alive subscriber whose queue can be cleared, as far as they are counted."""
        next_offset = self._slowest_position()
        if next_offset is None:
            return 0
        view = self._journal_state.view
        return view.size_after(self.name, max(next_offset, view.known_from) - 1).count

    def view(
        self, members: Iterable[SubscriberStatus], last_published_at: datetime | None, next_of_log: Offset
    ) -> PublisherView:
        """Its line in the status. `running` is said also where only other publishers' packages may be waiting."""
        followers = [member for member in members if member.has_queues and member.follows(self.name)]
        return PublisherView(
            name=self.name,
            state=str(
                decide_agent_state(
                    decide_queue_state(max(0, next_of_log - (one.next_offset or 0)), one.attempts) for one in followers
                )
            ),
            source=self._config.source,
            last_published_at=last_published_at,
            delay_seconds=self._throttle.delay_seconds(self.backlog()),
        )

    def _slowest_position(self) -> Offset | None:
        """What the slowest alive subscriber whose queue can be cleared reads next; None if absent."""
        version, decided_at, slowest = self._slowest
        roster, now = self._journal_state.roster, self._workspace.clock.monotonic()
        # also without news once a second: a subscriber that died silently holds publishers back until then
        if version < 0 or (roster.version != version and now - decided_at >= _POLL_SECONDS) or now - decided_at >= 1.0:
            slowest = self._decide_slowest()
            # one tuple: threads read version, time and value together without a lock
            self._slowest = (roster.version, now, slowest)
        return slowest

    def _decide_slowest(self) -> Offset | None:
        now_ms = milliseconds_now(self._workspace.clock)
        # a suspended subscriber stays behind on purpose: it must not slow publishers down
        reading = [
            known.announcement.reads_next_of(self.name)
            for known in self._journal_state.roster.subscribers()
            if known.announcement.is_editable
            and known.announcement.suspension is None
            and known.is_alive(now_ms)
            and known.announcement.follows(self.name)
        ]
        return min(reading, default=None)

    def _batcher(self) -> PublishBatcher:
        """The batcher, opened with the first request: a publisher's state is one connection."""
        with self._opening:
            if self._opened is None:
                publisher = self._workspace.publisher(self.name)
                self._opened = PublishBatcher(self.name, publisher, self._source_opener())
            return self._opened

    def _source_opener(self) -> OpenSource | None:
        home, configured = self._workspace.home, self._config.source
        if self._local is not None:
            return self._local.open
        if configured is None:
            return None
        return lambda: open_source(home.resolve_source(configured), home.known_files_path)


def publishers_of(
    workspace: Workspace, configured: Sequence[PublisherAgentConfig] | None
) -> dict[AgentName, PublisherAgentConfig]:
    """The publishers to serve: those given, else all of the home."""
    if configured is not None:
        return {parse_agent_name(agent.name): agent for agent in configured}
    known = {name: PublisherAgentConfig(name) for name in workspace.publisher_names()}
    return known | {
        parse_agent_name(publisher.name): publisher for publisher in workspace.home.config.agents.publishers
    }
