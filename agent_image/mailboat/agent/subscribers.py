"""Who subscribes, and how far everybody is: announcements, the home's registry and the targets themselves as one view.

A subscriber that runs says so on the discovery topic. One that does not is known from the registry that `subscribe`
writes, and its position is asked of its target, which is where it is kept. Called by `status`, `publish --wait`,
`journal truncate` and `errors`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mailboat.agent.composition import Workspace
from mailboat.agent.home import KnownSubscriber
from mailboat.agent.inspection import Finding, readable, records_of
from mailboat.agent.locations import opened_ledger
from mailboat.discovery.topology import Topology
from mailboat.errors import MailboatError, SourceMissingError, StopError
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import DiscoveryMessage, FailureCause, TopicRole
from mailboat.model.positions import Bounds, LogIdentity, Position
from mailboat.subscriber.continuity import decide_start

RECENT_ANNOUNCEMENTS: Final = 2000
"""How far back the discovery topic is read: everybody alive is in there, a hundred subscribers for three minutes."""

STOPPED: Final = "stopped"


class Absence(enum.StrEnum):
    """States of a subscriber that it can't tell itself."""

    SILENT = "silent"
    """It ran, and did not say that it stops: it was killed, or its machine is gone. Start it again if it should run."""

    NEW = "new"
    """It is known here, but has not imported anything yet."""


@dataclass(frozen=True, slots=True)
class SubscriberView:
    """A subscriber as it is known now.

    Attributes:
        name: Its name.
        target: Where it imports into; None when nobody said.
        state: One of the subscriber's phases, or `silent`, `new`.
        next_offset: What it reads next; None when it has read nothing.
        identity: The log that the position belongs to, where the target was asked.
        attempts: How often the package at hand has failed.
        max_retries: How many attempts after the first it makes; None is without end or unknown.
        cause: Why it is retrying or stopped.
        heard_ms: When it last announced itself, milliseconds since 1970 UTC.
        follow: The publishers that it follows; empty follows all.
        rate_per_second: Packages a second between its last announcements; None where unknown or nothing moved.
        given_up: Packages in its error queue; None where its target can't be asked.
    """

    name: AgentName
    target: str | None = None
    state: str = Absence.NEW
    next_offset: Offset | None = None
    identity: LogIdentity | None = None
    attempts: int = 0
    max_retries: int | None = None
    cause: FailureCause | None = None
    heard_ms: int | None = None
    follow: tuple[AgentName, ...] = ()
    rate_per_second: float | None = None
    given_up: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether it says so itself."""
        return self.state not in {STOPPED, Absence.SILENT, Absence.NEW}

    def lag(self, next_of_log: Offset) -> int | None:
        """Packages between its position and the end of the log; None before it has a position, or beyond that end."""
        if self.next_offset is None or self.next_offset > next_of_log:
            return None
        return next_of_log - self.next_offset

    def follows(self, publisher: AgentName) -> bool:
        """Whether it imports what this publisher publishes."""
        return not self.follow or publisher in self.follow


@dataclass(frozen=True, slots=True)
class Audience:
    """Everybody who is known.

    Attributes:
        views: The subscribers, by name.
        unreadable: How many of the last records of the discovery topic are no message that can be understood.
    """

    views: Sequence[SubscriberView]
    unreadable: int


def subscriber_views(workspace: Workspace) -> Sequence[SubscriberView]:
    """Everybody who is known, by name. A target that can't be asked leaves its position open."""
    return audience(workspace).views


def audience(workspace: Workspace) -> Audience:
    """Everybody who is known, and what could not be understood of the announcements."""
    now_ms = int(workspace.clock.now().timestamp() * 1000)
    announcements, unreadable = recent_announcements(workspace)
    views = {view.name: view for view in _announced(announcements, now_ms)}
    for known in workspace.home.known_subscribers():
        views[known.name] = _with_registry(views.get(known.name), known)
    topic = workspace.package_topic
    identity, bounds = workspace.journal.identity(topic), workspace.journal.bounds(topic)
    return Audience([_judged(views[name], identity, bounds) for name in sorted(views)], unreadable)


def _judged(view: SubscriberView, identity: LogIdentity, bounds: Bounds) -> SubscriberView:
    """Add the named state that one which does not run would stop in if it were started now."""
    if view.is_running or (view.next_offset is None and view.cause is not None):
        return view
    try:
        position = None if view.next_offset is None else Position(view.identity or identity, view.next_offset)
        decide_start(view.name, position, identity, bounds, is_gap_accepted=False)
    except StopError as error:
        return replace(view, cause=FailureCause(error.name, error.message))
    return view


def _announced(announcements: Sequence[tuple[DiscoveryMessage, int]], now_ms: int) -> Iterator[SubscriberView]:
    topology = Topology()
    rates = _Rates()
    for message, heard_ms in announcements:
        topology.hear(message, heard_ms)
        rates.hear(message, heard_ms)
    for known in topology.subscribers():
        if known.announcement.states:  # without: it took leave for good
            view = view_of(known.announcement, known.heard_ms, is_alive=known.is_alive(now_ms))
            yield replace(view, rate_per_second=rates.per_second(view.name) if view.is_running else None)


def recent_announcements(workspace: Workspace) -> tuple[Sequence[tuple[DiscoveryMessage, int]], int]:
    """The last announcements with the times at which the log took them, and how many records are no message at all."""
    topic = workspace.topic(TopicRole.DISCOVERY)
    bounds = workspace.journal.bounds(topic)
    start = Offset(max(bounds.earliest_offset, bounds.next_offset - RECENT_ANNOUNCEMENTS))
    found: list[tuple[DiscoveryMessage, int]] = []
    unreadable = 0
    for record in records_of(workspace.journal, topic, start):
        message = readable(record) if record.value else None
        if isinstance(message, DiscoveryMessage):
            found.append((message, record.appended_ms))
        elif message is None and record.value:
            unreadable += 1
    return found, unreadable


def view_of(message: DiscoveryMessage, heard_ms: int, *, is_alive: bool) -> SubscriberView:
    """What an announcement says."""
    state = message.state or "alive"
    done = [one.offset for one in message.states]
    return SubscriberView(
        name=message.sub_agent_name,
        target=message.target,
        state=state if is_alive or state == STOPPED else Absence.SILENT,
        next_offset=Offset(min(done) + 1) if done and min(done) >= 0 else None,
        attempts=max((one.retries for one in message.states), default=0),
        max_retries=message.max_retries,
        cause=message.cause,
        heard_ms=heard_ms,
    )


def _with_registry(view: SubscriberView | None, known: KnownSubscriber) -> SubscriberView:
    """Add what the home knows and what its target says; of one that runs only how many packages it gave up."""
    view = view or SubscriberView(known.name, max_retries=known.max_retries)
    view = replace(view, target=view.target if view.is_running and view.target else known.target, follow=known.follow)
    try:
        with opened_ledger(known.target) as ledger:
            position, attempt, given_up = ledger.position(), ledger.attempt(), len(ledger.given_up())
    except SourceMissingError:
        return view
    except MailboatError as error:
        return view if view.is_running else replace(view, cause=FailureCause(error.name, error.message))
    view = replace(view, given_up=given_up)
    if position is None or view.is_running:
        return view
    return replace(
        view,
        state=STOPPED if view.state == Absence.NEW else view.state,
        next_offset=position.next_offset,
        identity=position.identity,
        attempts=0 if attempt is None else attempt.count,
        cause=view.cause if attempt is None else attempt.cause,
    )


class _Rates:
    """The speed of each subscriber between its first and its last announcement of the last minute."""

    def __init__(self) -> None:
        self._seen: dict[AgentName, list[tuple[int, int]]] = {}

    def hear(self, message: DiscoveryMessage, heard_ms: int) -> None:
        if message.states:
            done = min(one.offset for one in message.states)
            seen = self._seen.setdefault(message.sub_agent_name, [])
            seen.append((heard_ms, done))
            while seen[0][0] < heard_ms - 60_000:
                seen.pop(0)

    def per_second(self, name: AgentName) -> float | None:
        seen: Sequence[tuple[int, int]] = self._seen.get(name, ())
        if len(seen) < 2 or seen[-1][0] == seen[0][0] or seen[-1][1] <= seen[0][1]:
            return None
        return (seen[-1][1] - seen[0][1]) * 1000 / (seen[-1][0] - seen[0][0])


def subscribers_below(workspace: Workspace, before: Offset) -> Sequence[SubscriberView]:
    """Who would lose packages if those before an offset were removed."""
    return [view for view in subscriber_views(workspace) if (view.next_offset or 0) < before]


def identity_findings(workspace: Workspace) -> Sequence[Finding]:
    """Subscribers whose target stands in another log than this one, or beyond its end."""
    topic = workspace.package_topic
    identity, bounds = workspace.journal.identity(topic), workspace.journal.bounds(topic)
    found = []
    for view in subscriber_views(workspace):
        if view.identity is not None and view.identity != identity:
            found.append(Finding(topic, None, f"{view.name} stands in another log: {view.identity}"))
        elif view.next_offset is not None and view.next_offset > bounds.next_offset:
            found.append(Finding(topic, view.next_offset, f"{view.name} stands beyond the end of the log"))
        elif view.next_offset is not None and view.next_offset < bounds.earliest_offset:
            found.append(Finding(topic, view.next_offset, f"{view.name} stands before the oldest package"))
    return found
