"""The messages of the five topics, as the engine sees them.

Each field means what Sling's means (Apache Sling Distribution Journal messages 0.1.x); what we add is
marked. `wire/messages.py` is the only place that encodes them. PackageMessage is a NamedTuple because millions of
them are made on the hot path.
"""

from __future__ import annotations

import enum
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from mailboat.errors import MailboatError
from mailboat.frozen import Frozen
from mailboat.model.identifiers import AgentName, BuildId, Offset, PackageId, RequestId, SlingId, TopicName
from mailboat.model.nodes import Binary
from mailboat.model.paths import NodePath
from mailboat.model.pieces import PieceMessage
from mailboat.model.positions import LogIdentity
from mailboat.model.registrations import RegistryMessage


class Action(enum.StrEnum):
    """What a request asks for."""

    ADD = "ADD"
    DELETE = "DELETE"
    INVALIDATE = "INVALIDATE"
    TEST = "TEST"


class TopicRole(enum.StrEnum):
    """What a topic is for."""

    PACKAGE = "package"
    STATUS = "status"
    DISCOVERY = "discovery"
    COMMAND = "command"
    EVENT = "event"


class BulkPart(NamedTuple):
    """Where a package stands in a build of many packages.

    Attributes:
        build_id: Names the build; the same for all of its packages.
        sequence: From 0 to `total - 1`, in the order of the log.
        total: How many packages the build has.
    """

    build_id: BuildId
    sequence: int
    total: int

    @property
    def is_last(self) -> bool:
        """Whether the build is complete with this package."""
        return self.sequence == self.total - 1


class PackageMessage(NamedTuple):
    """One distribution request on the package topic.

    Attributes:
        pub_sling_id: The publisher's instance.
        package_id: Permanent id of the package.
        action: What to do. INVALIDATE travels as a TEST with a field of ours, since an unknown request type makes the
            message unreadable to Sling.
        package_type: The codec of the payload: `tree`, `filevault`, or another's.
        pub_agent_name: The publisher agent; None in Sling's seeding messages.
        package_length_bytes: Size of the package, inline or not.
        payload: The package inline, or None.
        payload_ref: Where the package is when it is not inline (`blobs/references.py`), or None.
        paths: All paths of the request.
        deep_paths: Those of them whose subtrees are meant.
        user_id: Caller of the request.
        request_id: Ours. The same request id is the same request.
        package_digest: Ours. SHA-256 of the package's bytes, 32 bytes.
        tree_digest: Ours. The canonical digest of the content, 32 bytes; equal for equal content in any format.
        created_ms: Ours. Wall time of the request, milliseconds since 1970 UTC.
        binaries: Ours. The binaries that the package refers to in the shared blob store.
        required_features: Ours. A reader that does not know one of these must stop.
        trace_parent: Ours. W3C trace context.
        bulk: Ours. Its place in a build of many packages, if it is of one.
    """

    pub_sling_id: SlingId
    package_id: PackageId
    action: Action
    package_type: str
    pub_agent_name: AgentName | None = None
    package_length_bytes: int = 0
    payload: bytes | None = None
    payload_ref: str | None = None
    paths: tuple[NodePath, ...] = ()
    deep_paths: tuple[NodePath, ...] = ()
    user_id: str | None = None
    request_id: RequestId | None = None
    package_digest: bytes | None = None
    tree_digest: bytes | None = None
    created_ms: int | None = None
    binaries: tuple[Binary, ...] = ()
    required_features: tuple[str, ...] = ()
    trace_parent: str | None = None
    bulk: BulkPart | None = None

    @property
    def created_at(self) -> datetime | None:
        """When the request was made."""
        return None if self.created_ms is None else datetime.fromtimestamp(self.created_ms / 1000, UTC)


TRACE_CHARACTERS: Final = 2_000
_CAUSE_CHARACTERS: Final = (100, 1_000, 1_000, TRACE_CHARACTERS)
"""Limits of a cause's code, message, path and trace: every subscriber writes them, and every publisher keeps them."""


class PackageStatus(enum.StrEnum):
    """Outcome of a package at one subscriber."""

    REMOVED_FAILED = "REMOVED_FAILED"
    REMOVED = "REMOVED"
    IMPORTED = "IMPORTED"


BLOCKING_FAILURES: Final = 3
"""Failures of one package from which on it blocks: for queues, conditions of pools, readiness and metrics.

Three is Sling's number for queues (SLING-12647). Its metric counts a package at the fifth failure; ours counts it at
the third, so that states and figures agree.
"""


def is_blocking(failures: int) -> bool:
    """Whether a package that failed so often blocks those behind it: no retry will help soon."""
    return failures >= BLOCKING_FAILURES


class FailureCause(Frozen):
    """Why an import failed (ours).

    Attributes:
        code: The error's name, such as `StorageFull`.
        message: One sentence.
        path: The content path or archive entry concerned, when there is one.
        trace_excerpt: The last lines of the trace, at most 2,000 characters.
        is_truncated: Some of the texts were cut to their limits.
    """

    code: str
    message: str
    path: str | None = None
    trace_excerpt: str | None = None
    is_truncated: bool = False

    @classmethod
    def bounded(
        cls,
        code: str,
        message: str,
        path: str | None = None,
        trace_excerpt: str | None = None,
        *,
        is_truncated: bool = False,
    ) -> FailureCause:
        """The cause with every text cut to its limit: of a trace the end is kept, of all else the beginning."""
        texts = (code, message, path or "", trace_excerpt or "")
        is_cut = any(len(text) > limit for text, limit in zip(texts, _CAUSE_CHARACTERS, strict=True))
        if is_cut:
            code, message, whole_path = (
                text[:limit] for text, limit in zip(texts[:3], _CAUSE_CHARACTERS[:3], strict=True)
            )
            path, trace_excerpt = whole_path or None, texts[3][-TRACE_CHARACTERS:] or None
        return cls(code, message, path, trace_excerpt, is_truncated or is_cut)

    @classmethod
    def of_error(cls, error: Exception, package: PackageMessage | None = None) -> FailureCause:
        """The cause to store, announce and confirm: the error's name, message, path and trace.

        Without a path, the archive entry stands there, or else the first path of the package.
        """
        if isinstance(error, MailboatError):
            name, text, path = error.name, error.message, error.where.get("path", error.where.get("entry"))
        else:
            name, text, path = type(error).__name__, str(error) or repr(error), None
        if path is None and package is not None and package.paths:
            path = package.paths[0]
        trace = "".join(traceback.format_exception(error))
        return cls.bounded(name, text, None if path is None else str(path), trace[-TRACE_CHARACTERS:])


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """Outcome of one package at one subscriber, on the status topic.

    Attributes:
        staged_behind: Ours. Of REMOVED: the package was skipped because this golden subscriber did not import it.
    """

    sub_sling_id: SlingId
    sub_agent_name: AgentName
    pub_agent_name: AgentName
    offset: Offset
    status: PackageStatus
    package_id: PackageId | None = None
    cause: FailureCause | None = None
    attempts: int = 0
    created_ms: int | None = None
    staged_behind: AgentName | None = None


class ReportStart(Frozen):
    """From which package on a subscriber reports every package that it passes without importing it (ours).

    Attributes:
        offset: A package at this offset or beyond that was passed without a status was imported.
        is_first: No earlier package of that publisher was imported.
        until: Packages at this offset or beyond are not followed; None while the publisher is followed.
    """

    offset: Offset
    is_first: bool = False
    until: Offset | None = None


class SubscriberState(Frozen):
    """What a subscriber says of itself for one publisher that it follows.

    Attributes:
        offset: Last offset processed; -1 without one.
        retries: How often the package after it has failed.
        reports: Ours. From where on this publisher's packages are reported; None of one that does not say.
    """

    pub_agent_name: AgentName
    offset: int
    retries: int = 0
    reports: ReportStart | None = None


class AfterCall(Frozen):
    """A call of the hook `after` that is still to be made (ours).

    Attributes:
        offset: The package's, which is imported.
        attempts: How often the call was made, and failed.
        cause: Why the last attempt failed.
        is_set_aside: Its attempts are used up; the calls behind it go on.
    """

    offset: Offset
    attempts: int = 0
    cause: FailureCause | None = None
    is_set_aside: bool = False


MAX_ANNOUNCED_CALLS: Final = 20
"""Failed calls of a hook in one announcement: it is sent every ten seconds, and causes have up to some kilobytes."""


class HookCalls(Frozen):
    """Calls of the hook `after` that a subscriber has still to make (ours).

    Attributes:
        waiting: They are made, or tried again.
        set_aside: Their attempts are used up.
        cause: Why the last attempt failed; None when it succeeded.
        failed: Calls that failed, oldest first, those that are set aside last; at most `MAX_ANNOUNCED_CALLS`.
    """

    waiting: int = 0
    set_aside: int = 0
    cause: FailureCause | None = None
    failed: tuple[AfterCall, ...] = ()


class Suspension(Frozen):
    """The imports of a subscriber are suspended (ours).

    Attributes:
        since_ms: Wall time of the command, milliseconds since 1970 UTC.
        until_ms: When imports resume; None: when a command resumes them.
    """

    since_ms: int
    until_ms: int | None = None

    def is_over(self, now_ms: int) -> bool:
        """Whether its time has passed."""
        return self.until_ms is not None and self.until_ms <= now_ms


class PoolBacklog(Frozen):
    """The packages of a shared pool that no member has imported (ours).

    Attributes:
        next_offset: Packages from here on are not in the queue of the pool.
        queued: Packages in that queue, also those that a member imports at the moment.
    """

    next_offset: Offset
    queued: int


class DiscoveryMessage(Frozen):
    """A subscriber's announcement, on the discovery topic.

    Attributes:
        is_editable: Takes clear commands and confirms every package.
        max_retries: Attempts after the first; None is without end (-1 on the wire).
        states: One for each publisher followed.
        state: Ours. The named state: `current`, `importing`, `retrying`, `stopped`, …
        cause: Ours. Why it is retrying or stopped.
        announced_ms: Ours. Wall time of the announcement.
        target: Ours. Where it imports into, as the user gave it.
        is_ready: Ours. Whether it may serve; None of one that does not say.
        ready_reason: Ours. Why, or why not.
        is_durable: Ours. Registered: packages are kept for it also while it is away.
        given_up: Ours. Packages in its error queue; None of one that does not say.
        next_offset: Ours. What it reads next; None when it has read nothing.
        log_identity: Ours. The log that `next_offset` belongs to.
        after_calls: Ours. Calls of the hook `after` that are still to be made; None where there are none.
        follows_all: Ours. It imports of every publisher, also of those that no state names yet.
        reports: Ours. From where on packages of publishers that no state names are reported.
        former: Ours. Publishers that were followed, with the last offset while they were; an empty name stands for all
            that no other state names.
        suspension: Ours. Of one whose imports are suspended.
        backlog: Ours. Of a shared pool.
    """

    sub_sling_id: SlingId
    sub_agent_name: AgentName
    states: tuple[SubscriberState, ...]
    is_editable: bool = False
    max_retries: int | None = None
    state: str | None = None
    cause: FailureCause | None = None
    announced_ms: int | None = None
    target: str | None = None
    is_ready: bool | None = None
    ready_reason: str | None = None
    is_durable: bool = False
    given_up: int | None = None
    next_offset: Offset | None = None
    log_identity: LogIdentity | None = None
    follows_all: bool = False
    reports: ReportStart | None = None
    after_calls: HookCalls | None = None
    former: tuple[SubscriberState, ...] = ()
    suspension: Suspension | None = None
    backlog: PoolBacklog | None = None

    @property
    def takes_leave(self) -> bool:
        """Whether the agent left permanently: it follows no publisher any more."""
        return not self.states and not self.follows_all

    @property
    def reads_next(self) -> Offset | None:
        """Announced next offset; None when it has read nothing. Sling announces the last one done."""
        if self.next_offset is not None or not self.states:
            return self.next_offset
        done = min(state.offset for state in self.states)
        return Offset(done + 1) if done >= 0 else None

    def follows(self, publisher: AgentName | None) -> bool:
        """Whether it imports what this publisher publishes."""
        return self.follows_all or publisher in {state.pub_agent_name for state in self.states}

    def reports_of(self, publisher: AgentName) -> ReportStart | None:
        """From where on it reports a publisher's packages; None where it does not say."""
        for state in self.states:
            if state.pub_agent_name == publisher:
                return state.reports
        return self.reports

    def reads_next_of(self, publisher: AgentName) -> Offset:
        """What it says to read next of a publisher that it follows; 0 when it has read nothing."""
        for state in self.states:
            if state.pub_agent_name == publisher:
                return Offset(max(0, state.offset + 1))
        return self.reads_next or Offset(0)


class CommandMessage(Frozen):
    """Clear the queue of one subscriber up to an offset, on the command topic.

    Attributes:
        clear_up_to_offset: The last offset to drop, inclusive.
        pub_agent_name: The publisher whose queue is cleared; None clears for all (Sling before SLING-9385).
        command_id: Ours. Names the command: the same id again is the same command. Sling sends none, and gets
            no answer.
        sent_ms: Ours. Wall time of the command, milliseconds since 1970 UTC.
    """

    sub_sling_id: SlingId
    sub_agent_name: AgentName
    clear_up_to_offset: Offset
    pub_agent_name: AgentName | None = None
    command_id: str | None = None
    sent_ms: int | None = None


class RedriveMessage(Frozen):
    """Import a package after all that one subscriber gave up, on the command topic (ours).

    Attributes:
        offset: The package's.
        pub_agent_name: Its publisher; None where unknown.
        command_id: Names the command, as in `CommandMessage`.
        sent_ms: Wall time of the command, milliseconds since 1970 UTC.
    """

    sub_sling_id: SlingId
    sub_agent_name: AgentName
    offset: Offset
    pub_agent_name: AgentName | None = None
    command_id: str | None = None
    sent_ms: int | None = None


class SuspendMessage(Frozen):
    """Suspend or resume the imports of one subscriber, on the command topic (ours).

    Attributes:
        suspended: False resumes.
        until_ms: When imports resume, milliseconds since 1970 UTC; None: when a command resumes them.
        command_id: Names the command, as in `CommandMessage`.
        sent_ms: Wall time of the command, milliseconds since 1970 UTC.
    """

    sub_sling_id: SlingId
    sub_agent_name: AgentName
    suspended: bool
    until_ms: int | None = None
    command_id: str | None = None
    sent_ms: int | None = None

    @property
    def verb(self) -> CommandVerb:
        """What it asks for."""
        return CommandVerb.SUSPEND if self.suspended else CommandVerb.RESUME

    @property
    def pub_agent_name(self) -> None:
        """It is about packages of all publishers."""
        return None


class CommandVerb(enum.StrEnum):
    """What a command asks for."""

    CLEAR = "clear"
    REDRIVE = "redrive"
    SUSPEND = "suspend"
    RESUME = "resume"


class CommandState(enum.StrEnum):
    """How a command ended."""

    DONE = "done"
    REFUSED = "refused"


class CommandResult(Frozen):
    """Result of a command that has an id, on the status topic (ours).

    Attributes:
        command_id: The command's.
        verb: What it asked for.
        offset: The last offset that it dropped (clear), the package's (redrive), or the one to read next (suspend,
            resume).
        state: How it ended.
        pub_agent_name: The publisher that it named.
        removed: Packages that it dropped, or took out of the error queue.
        message: One sentence for people; of a refusal the reason.
        created_ms: Wall time of the end, milliseconds since 1970 UTC.
    """

    command_id: str
    sub_sling_id: SlingId
    sub_agent_name: AgentName
    verb: CommandVerb
    offset: Offset
    state: CommandState
    pub_agent_name: AgentName | None = None
    removed: int = 0
    message: str | None = None
    created_ms: int | None = None


class PingMessage(Frozen):
    """Sling's probe, without content."""


class MissedReason(enum.StrEnum):
    """Why a subscriber does not have the content of a package that counts as distributed (ours)."""

    REMOVED = "removed"
    """A person cleared its queue."""

    FAILED = "failed"
    """It gave the package up."""

    ABSENT = "absent"
    """It was silent for longer than it is waited for."""

    SKIPPED = "skipped"
    """It passed the package without an import: its golden subscriber did not import it, or it joined later."""

    UNKNOWN = "unknown"
    """It is past the package; whether it imported it cannot be known."""


class Missed(NamedTuple):
    """A subscriber that lacks a distributed package (ours); `subscriber`: `<sling id>-<agent name>`."""

    subscriber: str
    reason: MissedReason


class DistributedEvent(Frozen):
    """All subscribers that count have processed the package, on the event topic, as JSON.

    Attributes:
        missed: Ours. Those among them that do not have its content, with the reason.
        trace_parent: Ours. W3C trace context of the package.
    """

    pub_agent_name: AgentName
    package_id: PackageId
    offset: Offset
    paths: tuple[NodePath, ...] = ()
    deep_paths: tuple[NodePath, ...] = ()
    missed: tuple[Missed, ...] = ()
    trace_parent: str | None = None


Message = (
    PackageMessage
    | StatusMessage
    | DiscoveryMessage
    | CommandMessage
    | RedriveMessage
    | SuspendMessage
    | CommandResult
    | PingMessage
    | PieceMessage
    | RegistryMessage
)

KNOWN_FEATURES: Final[frozenset[str]] = frozenset()
"""The required features that this version understands."""


PACKAGE_TOPIC: Final = TopicName(TopicRole.PACKAGE)
STATUS_TOPIC: Final = TopicName(TopicRole.STATUS)
DISCOVERY_TOPIC: Final = TopicName(TopicRole.DISCOVERY)
EVENT_TOPIC: Final = TopicName(TopicRole.EVENT)
JOB_TOPIC: Final = TopicName("job")
"""The log of durable jobs. It is created when it is first used, and never expires by time: checkpoints bound it."""
