"""Subscribers and their positions: announcements, the home's registry and the targets themselves as one view.

A subscriber that runs announces itself on the discovery topic. One that does not run is known from the registry that
`subscribe` writes, and its position is read from its target.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from mailboat.api.archive import ProblemView
from mailboat.api.records import BuildProgressView, CauseView, ForgottenView, HookCallsView, SubscriberStatusView
from mailboat.clock import milliseconds_now, moment_of
from mailboat.composition.home import RegisteredSubscriber
from mailboat.composition.workspace import Workspace
from mailboat.content.locations import opened_ledger
from mailboat.content.port import Ledger, ReportStarts
from mailboat.discovery.roster import Roster, RosterFollower
from mailboat.discovery.topology import KnownSubscriber
from mailboat.errors import AgentMissingError, MailboatError, SourceMissingError, StopError, UsageError
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, SlingId, natural_key
from mailboat.model.messages import (
    DiscoveryMessage,
    FailureCause,
    HookCalls,
    PoolBacklog,
    ReportStart,
    StatusMessage,
    Suspension,
    TopicRole,
)
from mailboat.model.positions import Bounds, LogIdentity, Position
from mailboat.queues.claims import PositionClaims
from mailboat.queues.queue_names import QueueName
from mailboat.queues.queue_state import QueuePosition
from mailboat.subscriber.continuity import decide_start
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.wire.messages import encode_message

STOPPED: Final = "stopped"
WITHOUT_STATE: Final = "alive"
"""State of a subscriber that announces none, as those of Sling."""

_MOST_UNSENT: Final = 10_000


class Absence(enum.StrEnum):
    """States of a subscriber that it can't announce itself."""

    SILENT = "silent"
    """The subscriber stopped announcing itself without a clean stop: it was killed, or its machine is down.

    Start it again. If it will not come back, deregister it with `mailboat subscribers forget`.
    """

    NEW = "new"
    """The subscriber is registered, but has not imported anything yet."""


@dataclass(frozen=True, slots=True)
class SubscriberStatus:
    """A subscriber as it is known now.

    Attributes:
        queue_name: The instance that it runs in, and its name.
        target: Where it imports into; None where unknown.
        state: One of the subscriber's phases, or `silent`, `new`.
        next_offset: What it reads next; None when it has read nothing.
        identity: The log that the position belongs to, where it is known.
        attempts: How often the current package has failed.
        max_retries: How many attempts after the first it makes; None is without end or unknown.
        cause: Why it is retrying or stopped.
        heard_ms: When it last announced itself, milliseconds since 1970 UTC.
        follow: The publishers that it follows; empty follows all.
        rate_per_second: Packages a second between its last announcements; None where unknown or nothing moves.
        given_up: Packages in its error queue; None where unknown.
        is_editable: Takes clear commands, and confirms every package.
        is_ready: Whether it may serve; None of one that does not say.
        ready_reason: Why, or why not.
        is_alive: It announced itself a short time ago.
        registered_target: The target of one that was started from this home, as its registry has it; else None.
        after_calls: Calls of the hook `after` that are still to be made; None where there are none.
        claims: The positions that it announced, and when; or what its target says.
        report_starts: From where on it reports packages that it passes without importing them.
        suspension: Of one whose imports are suspended.
        backlog: Of a shared pool, as far as it announced itself.
    """

    queue_name: QueueName
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
    is_editable: bool = False
    is_ready: bool | None = None
    ready_reason: str | None = None
    is_alive: bool = False
    registered_target: str | None = None
    after_calls: HookCalls | None = None
    claims: PositionClaims = field(default_factory=PositionClaims)
    report_starts: ReportStarts = field(default_factory=dict)
    suspension: Suspension | None = None
    backlog: PoolBacklog | None = None

    @property
    def name(self) -> AgentName:
        """Its name."""
        return self.queue_name.agent_name

    @property
    def is_running(self) -> bool:
        """Whether it says so itself."""
        return self.state not in {STOPPED, Absence.SILENT, Absence.NEW}

    @property
    def has_queues(self) -> bool:
        """Whether publishers show queues for it: it is alive, or registered in this home."""
        return self.is_alive or self.registered_target is not None

    @property
    def queued(self) -> int:
        """Packages in the queue of a shared pool; 0 for a subscriber with a target of its own."""
        return 0 if self.backlog is None else self.backlog.queued

    @property
    def pending_from(self) -> Offset | None:
        """The offset below which all packages are done, but for a pool's queue; None without a position."""
        return self.next_offset if self.backlog is None else self.backlog.next_offset

    def messages_to(self, end: int) -> int:
        """How many messages it has not passed, up to the end of the log, with the packages in a pool's queue."""
        # Not below 0: while the journal cannot be reached, the end is the last known one, which the position may pass.
        return self.queued + max(0, end - (self.pending_from or 0))

    def follows(self, publisher: AgentName) -> bool:
        """Whether it imports what this publisher publishes."""
        return not self.follow or publisher in self.follow

    def report_start(self, publisher: AgentName) -> ReportStart | None:
        """From where on it reports packages of that publisher; None where it does not say."""
        return self.report_starts.get(publisher, self.report_starts.get(None))

    def standing(self, publisher: AgentName) -> QueuePosition:
        """Where it stands for one publisher, to make a queue of."""
        return QueuePosition(
            self.queue_name,
            publisher,
            -1 if self.next_offset is None else self.next_offset - 1,
            self.attempts,
            self.is_editable,
            self.max_retries,
            self.cause,
        )


class SubscriberDirectory:
    """All known subscribers: those that announced themselves, and those registered in the home."""

    def __init__(self, workspace: Workspace, roster: Roster) -> None:
        """Ask the roster for announcements, and the home for the rest."""
        self._workspace = workspace
        self._roster = roster

    def members(self) -> Sequence[SubscriberStatus]:
        """All known subscribers, by name. A target that can't be read leaves its position open."""
        now_ms = milliseconds_now(self._workspace.clock)
        found = {known.queue_name: announced_member(known, now_ms) for known in self._roster.subscribers()}
        for registered in self._workspace.home.known_subscribers():
            key = QueueName(registered.pool or self._workspace.home.sling_id, registered.name)
            found[key] = _with_registry(found.get(key), key, registered)
        topic = self._workspace.package_topic
        # after the positions: a subscriber that imports meanwhile must not be judged to be beyond the end
        identity, bounds = self._workspace.journal.identity(topic), self._workspace.journal.bounds(topic)
        judged = [_judged(status, identity, bounds) for status in found.values()]
        return sorted(judged, key=lambda one: (natural_key(one.name), one.name, one.queue_name.sling_id))

    def named(self, name: str) -> Sequence[SubscriberStatus]:
        """The subscribers of that name, one for each instance, or the one of that queue name.

        Raises: AgentMissingError.
        """
        members = self.members()
        found = [member for member in members if name in {member.name, str(member.queue_name)}]
        if not found:
            known = ", ".join(dict.fromkeys(member.name for member in members[:10])) or "none"
            raise AgentMissingError(f"no subscriber {name[:120]!r} is known; known: {known}", subscriber=name[:120])
        return found

    def find(self, name: str) -> SubscriberStatus:
        """The subscriber of that name, to command it. Raises: AgentMissingError, UsageError if several have it."""
        found = self.named(name)
        if len(found) > 1:
            queues = ", ".join(str(status.queue_name) for status in found[:10])
            raise UsageError(f"{len(found)} subscribers have the name {name}", next_step=f"use one of {queues}")
        return found[0]

    def standings(self, publisher: AgentName) -> list[QueuePosition]:
        """The positions, for one publisher, of the subscribers that have queues with it."""
        return [
            member.standing(publisher) for member in self.members() if member.has_queues and member.follows(publisher)
        ]


def announced_member(known: KnownSubscriber, now_ms: int) -> SubscriberStatus:
    """What an announcement says."""
    message, is_alive = known.announcement, known.is_alive(now_ms)
    state = message.state or WITHOUT_STATE
    is_running = is_alive and state != STOPPED
    attempts = max((0, *(state.retries for state in message.states)))
    followed = () if message.follows_all else dict.fromkeys(state.pub_agent_name for state in message.states)
    return SubscriberStatus(
        queue_name=known.queue_name,
        target=message.target,
        state=state if is_alive or state == STOPPED else Absence.SILENT,
        next_offset=message.reads_next,
        identity=message.log_identity,
        attempts=attempts,
        max_retries=message.max_retries,
        cause=message.cause,
        heard_ms=known.heard_ms,
        follow=tuple(followed),
        rate_per_second=known.rate_per_second if is_running and not attempts else None,
        given_up=message.given_up,
        is_editable=message.is_editable,
        is_ready=message.is_ready if is_running else None,
        ready_reason=message.ready_reason if is_running else None,
        is_alive=is_alive,
        after_calls=message.after_calls,
        claims=known.claims,
        report_starts={state.pub_agent_name or None: state.reports for state in message.former}
        | {state.pub_agent_name: state.reports for state in message.states}
        | ({} if message.reports is None else {None: message.reports}),
        suspension=message.suspension if is_running else None,
        backlog=message.backlog,
    )


def _judged(one: SubscriberStatus, identity: LogIdentity, bounds: Bounds) -> SubscriberStatus:
    """Add the named state that one which does not run would stop in if it were started now."""
    if one.is_running or (one.next_offset is None and one.cause is not None):
        return one
    try:
        position = None if one.next_offset is None else Position(one.identity or identity, one.next_offset)
        decide_start(one.name, position, identity, bounds, is_gap_accepted=False)
    except StopError as error:
        return replace(one, cause=FailureCause(error.name, error.message))
    return one


def _with_registry(one: SubscriberStatus | None, key: QueueName, registered: RegisteredSubscriber) -> SubscriberStatus:
    """Add what the registry has, and what its target says unless it runs; then only what it does not say itself."""
    one = one or SubscriberStatus(key, max_retries=registered.max_retries)
    target = one.target if one.is_running and one.target else registered.target
    one = replace(one, target=target, follow=registered.follow, registered_target=registered.target)
    if one.is_running and one.given_up is not None:
        return one  # it has said all itself
    try:
        with opened_ledger(registered.target) as ledger:
            position, attempt, given_up = ledger.position(), ledger.attempt(), ledger.given_up_count
            report_starts, unsent_at = ledger.report_starts, _unsent_at(ledger)
            after_calls = _calls_in(ledger)
    except SourceMissingError:
        return one  # nothing was imported yet
    except MailboatError as error:
        return one if one.is_running else replace(one, cause=FailureCause(error.name, error.message))
    one = replace(one, given_up=given_up)
    if position is None or one.is_running:
        return one
    return replace(
        one,
        state=STOPPED if one.state == Absence.NEW else one.state,
        next_offset=position.next_offset,
        claims=PositionClaims.certain(
            position.next_offset if unsent_at is None else min(position.next_offset, unsent_at)
        ),
        report_starts=report_starts,
        identity=position.identity,
        attempts=0 if attempt is None else attempt.count,
        after_calls=after_calls,
        cause=one.cause if attempt is None else attempt.cause,
    )


def _unsent_at(ledger: Ledger) -> Offset | None:
    """The first package whose report is stored and not sent, as its subscriber was killed: it is not done."""
    unsent = (status.message for status in ledger.pending_statuses(_MOST_UNSENT))
    return min((message.offset for message in unsent if isinstance(message, StatusMessage)), default=None)


def _calls_in(ledger: Ledger) -> HookCalls | None:
    waiting, set_aside = ledger.hook_calls.counts()
    if not waiting and not set_aside:
        return None
    failed = [*ledger.hook_calls.calls(1), *ledger.hook_calls.calls(1, is_set_aside=True)]
    return HookCalls(waiting, set_aside, failed[0].cause if failed else None)


def directory_of(workspace: Workspace) -> SubscriberDirectory:
    """Return the current directory, for commands that read it once."""
    roster = Roster(workspace.clock)
    follower = RosterFollower(roster, workspace.journal, workspace.topic(TopicRole.DISCOVERY))
    with closing(follower):
        while follower.follow(0.0):
            pass
    return SubscriberDirectory(workspace, roster)


def members_below(workspace: Workspace, before: Offset) -> Sequence[SubscriberStatus]:
    """The subscribers that would lose packages if those before an offset were removed."""
    return [member for member in directory_of(workspace).members() if (member.next_offset or 0) < before]


def position_findings(workspace: Workspace) -> Sequence[ProblemView]:
    """Subscribers whose target stands in another log than this one, or outside of it."""
    topic = workspace.package_topic
    # positions first: one that moves with the log meanwhile would be beyond an end that was read before it
    members = directory_of(workspace).members()
    identity, bounds = workspace.journal.identity(topic), workspace.journal.bounds(topic)
    found = []
    for member in members:
        if member.identity is not None and member.identity != identity:
            found.append(ProblemView(topic, None, f"{member.name} is in another log: {member.identity}"))
        elif member.next_offset is not None and member.next_offset > bounds.next_offset:
            found.append(
                ProblemView(topic, member.next_offset, f"position of {member.name} is beyond the end of the log")
            )
        elif member.next_offset is not None and member.next_offset < bounds.earliest_offset:
            found.append(
                ProblemView(topic, member.next_offset, f"position of {member.name} is before the oldest package")
            )
    return found


def cause_view(cause: FailureCause | None) -> CauseView | None:
    """A cause."""
    return (
        None
        if cause is None
        else CauseView(cause.code, cause.message, cause.path, cause.trace_excerpt, cause.is_truncated)
    )


def status_view(
    one: SubscriberStatus, lag: int | None, end: int, build: BuildProgressView | None
) -> SubscriberStatusView:
    """A subscriber, as it is now, with so many packages before it in a log that ends there, in that build."""
    rate = one.rate_per_second
    return SubscriberStatusView(
        name=one.name,
        state=_state(one, lag),
        sling_id=one.queue_name.sling_id,
        next_offset=one.next_offset,
        lag=lag,
        rate_per_second=rate,
        # by messages, as the rate is: of a package in pieces each piece counts
        eta_seconds=None if not lag or rate is None or _is_held(one.state) else one.messages_to(end) / rate,
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
        suspended_at=None if one.suspension is None else moment_of(one.suspension.since_ms),
        suspended_until=None
        if one.suspension is None or one.suspension.until_ms is None
        else moment_of(one.suspension.until_ms),
    )


def _calls_view(calls: HookCalls | None) -> HookCallsView | None:
    return None if calls is None else HookCallsView(calls.waiting, calls.set_aside, cause_view(calls.cause))


def _state(one: SubscriberStatus, lag: int | None) -> str:
    """As it said, but that it was current is from before what came since was appended: it is at that now."""
    is_at_it = one.is_running and bool(lag) and one.state == SubscriberPhase.CURRENT
    return str(SubscriberPhase.IMPORTING if is_at_it else one.state)


def _is_held(state: str) -> bool:
    """Whether the end of a wait, not the rate of imports, decides when it is current; the golden's name may follow."""
    return state.split(" ", 1)[0] in {SubscriberPhase.WAITING_FOR, SubscriberPhase.SUSPENDED, SubscriberPhase.STOPPED}


def forget_subscriber(
    workspace: Workspace, name: str, forget_pool: Callable[[AgentName, Collection[SlingId]], None]
) -> ForgottenView:
    """Remove a subscriber from the home's registry and from discovery; its target stays as it is.

    Until then `publish --wait` waits for it, `status` shows it, and its position may hold back retention.

    Args:
        workspace: The home, or what an agent runs in.
        name: The subscriber's, or that of its queue, which means one of several instances.
        forget_pool: Removes the queue of the shared pool of that name, if it is one of these instances.

    Raises:
        AgentMissingError: No subscriber of that name is known.
        UsageError: It runs; it would announce itself again.
    """
    members = directory_of(workspace).named(name)
    agent = members[0].name
    running = next((member for member in members if member.is_running), None)
    if running is not None:
        others = ", ".join(str(member.queue_name) for member in members if not member.is_running)
        raise UsageError(
            f"{agent} is {running.state}: a running subscriber would announce itself again",
            next_step=f"stop it first, or name one that does not run: {others}" if others else "stop it first",
        )
    instances = tuple(member.queue_name.sling_id for member in members if member.heard_ms is not None)
    # first: a subscriber that is no longer known cannot be forgotten again after a crash
    forget_pool(agent, [member.queue_name.sling_id for member in members])
    for instance in instances:
        _withdraw(workspace, instance, agent)
    is_ours = any(member.registered_target is not None for member in members)
    was_registered = is_ours and workspace.home.forget_subscriber(agent)
    target = next((member.target for member in members if member.target is not None), None)
    return ForgottenView(agent, was_registered, instances, target)


def _withdraw(workspace: Workspace, instance: SlingId, name: AgentName) -> None:
    """Append an announcement without states, which deregisters the subscriber."""
    now_ms = milliseconds_now(workspace.clock)
    headers, value = encode_message(DiscoveryMessage(instance, name, (), announced_ms=now_ms))
    topic = workspace.topic(TopicRole.DISCOVERY)
    workspace.journal.append(topic, [NewRecord(value, headers, f"{instance}-{name}".encode())])
