"""Answers of a control port, as records of plain values, which are the JSON documents of the HTTP API.

Offsets are 64 bits. Times are RFC 3339, in UTC (`*_at`). A name with a default may be missing in a
document of an older version.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time; in documents RFC 3339 with its zone, UTC in ours."""


def document_of(record: object) -> Any:
    """A record as JSON and YAML know it."""
    return msgspec.to_builtins(record)


@dataclass(frozen=True, slots=True)
class CauseView:
    """Why something failed.

    Attributes:
        code: The error's name, such as `StorageFull`; see `mailboat explain CODE`.
        message: One sentence.
        path: The content path or archive entry concerned.
        trace: The last lines of the trace.
        truncated: Some of these texts were cut, or dropped, to bound memory.
    """

    code: str
    message: str
    path: str | None = None
    trace: str | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class JournalView:
    """The journal.

    Attributes:
        description: What keeps it, and where.
        earliest_offset: The oldest package message there is.
        next_offset: What the next one will get.
        size_bytes: Size on disk; None if unknown.
        retention_seconds: Retention of packages; None: without limit.
    """

    description: str
    earliest_offset: int
    next_offset: int
    size_bytes: int | None = None
    retention_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic of the journal.

    Attributes:
        role: What it is for: package, status, discovery, command, event or job.
        name: Its name in the journal.
        earliest_offset: The oldest record.
        next_offset: The offset of the next record.
        identity: The log id; a journal that was created again has another one.
    """

    role: str
    name: str
    earliest_offset: int
    next_offset: int
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class JournalDocument:
    """The journal and its topics.

    Attributes:
        journal: What keeps the log, and the bounds of the package topic.
        topics: All topics, each with its bounds.
    """

    journal: JournalView
    topics: tuple[TopicView, ...]


@dataclass(frozen=True, slots=True)
class PublisherView:
    """A publisher agent.

    Attributes:
        name: Its name.
        state: `idle`, `running` or `blocked`: over all its queues. None where no queues are kept.
        source: What its ADD requests read.
        last_published_at: When its newest message among the last ones was appended.
        delay_seconds: How long a request is held up at the moment, because subscribers lag.
    """

    name: str
    state: str | None = None
    source: str | None = None
    last_published_at: Moment | None = None
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BuildProgressView:
    """The bulk build that a subscriber is in the middle of.

    Attributes:
        build_id: The build.
        imported: How many of its packages are before the subscriber's position, by the number of the last one.
        total: How many it has.
    """

    build_id: str
    imported: int
    total: int


@dataclass(frozen=True, slots=True)
class HookCallsView:
    """Calls of a subscriber's hook `after` that are still to be made.

    Attributes:
        waiting: They are made, or tried again after a pause.
        set_aside: Their attempts are used up; a redrive or the subscriber's next start makes them again.
        error: Why the last attempt failed; None when it succeeded.
    """

    waiting: int
    set_aside: int = 0
    error: CauseView | None = None


@dataclass(frozen=True, slots=True)
class SubscriberStatusView:
    """A subscriber, as it is known now.

    Attributes:
        name: Its name.
        sling_id: The instance that it runs in; None of one that never announced itself.
        state: One of the subscriber's phases, or `silent`, `new`.
        next_offset: What it reads next; None when it has read nothing.
        lag: Packages to import, of the publishers that it follows; records up to the end of the log where the agent has
            no publisher.
        rate_per_second: Messages a second, also pieces of packages; None where unknown or nothing moves.
        eta_seconds: Until it has caught up, at that rate.
        attempts: Failed attempts of the current package.
        max_retries: Attempts after the first before a package is given up; None is without end or unknown.
        given_up: Packages in its error queue; None where unknown.
        editable: Takes clear commands, and confirms every package.
        ready: Whether it may serve; None of one that does not say.
        ready_reason: Why, or why not.
        target: Where it imports into.
        follow: The publishers that it follows; empty follows all.
        announced_at: When it last announced itself.
        error: Why it is retrying, waiting or stopped.
        build: The bulk build that it is in the middle of; None where it is in none.
        after_calls: Calls of its hook `after` that are still to be made; None where there are none.
        suspended_at: When its imports were suspended; None where they are not.
        suspended_until: When imports resume without a command. Null: a command has to resume them.
    """

    name: str
    state: str
    sling_id: str | None = None
    next_offset: int | None = None
    lag: int | None = None
    rate_per_second: float | None = None
    eta_seconds: float | None = None
    attempts: int = 0
    max_retries: int | None = None
    given_up: int | None = None
    editable: bool = False
    ready: bool | None = None
    ready_reason: str | None = None
    target: str | None = None
    follow: tuple[str, ...] = ()
    announced_at: Moment | None = None
    error: CauseView | None = None
    build: BuildProgressView | None = None
    after_calls: HookCallsView | None = None
    suspended_at: Moment | None = None
    suspended_until: Moment | None = None


@dataclass(frozen=True, slots=True)
class StatusView:
    """Journal, publishers, and each subscriber's position and lag.

    Attributes:
        journal: The journal.
        publishers: Those of this process, or of this home.
        subscribers: All subscribers that announced themselves.
        unreadable_announcements: How many announcements were dropped because they could not be decoded.
        dropped_subscribers: How many subscribers were dropped from this list to bound the agent's memory.
    """

    journal: JournalView
    publishers: tuple[PublisherView, ...]
    subscribers: tuple[SubscriberStatusView, ...]
    unreadable_announcements: int = 0
    dropped_subscribers: int = 0


@dataclass(frozen=True, slots=True)
class FailureView:
    """A subscriber that gave a package up.

    Attributes:
        subscriber: Its name.
        cause: Why its last attempt failed.
    """

    subscriber: str
    cause: CauseView


@dataclass(frozen=True, slots=True)
class NotImportedView:
    """A subscriber that is past a package and has not imported it, or of which that is not known.

    Attributes:
        subscriber: The subscriber's name.
        reason: Of a skipped package `staged` (its golden subscriber did not import it), `not-followed` (it did not
            follow the publisher) or `joined-later` (it follows the publisher since a later package). Of an unknown one
            `before-reports` (the package is older than its reports, as after a restore), `statuses-gone` (retention
            has removed its statuses, or they were not read) or `no-reports` (it does not report what it skips).
        golden: The subscriber that it is staged behind, where that is the reason.
    """

    subscriber: str
    reason: str
    golden: str | None = None


@dataclass(frozen=True, slots=True)
class DistributionView:
    """A published request and its outcome.

    Attributes:
        publisher: Its publisher.
        package_id: The package.
        offset: Its place on the package topic.
        action: What was asked for.
        paths: The request's paths; in a list the first ones, at most 100 and 16 kB.
        deep_paths: Those of them that mean their whole subtree.
        request_id: The caller's id, or the one that the publisher made; None where the log does not say.
        repeated: Published before: nothing was appended now.
        user_id: Caller of the request.
        package_bytes: Size of the package.
        published_at: When the log took it.
        state: `failed` when a subscriber gave it up, `queued` while one is still to import it, `distributed` when all
            that follow the publisher imported it, `incomplete` when some skipped or dropped it, or that is unknown.
        imported: Subscribers that imported it.
        waiting: Subscribers that are not past it yet, or whose word on it may still come: for a second at most.
        removed: Subscribers whose queue was cleared of it.
        failed: Subscribers that gave it up, with the reason.
        skipped: Subscribers that passed it without an import, with the reason.
        unknown: Subscribers that are past it; whether they imported it cannot be known, with the reason.
        path_count: How many paths the request has.
        paths_truncated: `paths` has not all of them; ask for the request alone.
        nodes: Nodes in the package. This and the next three are known only in the answer to the publish, and only of a
            package that was built for it.
        removed_paths: How many paths the package removes.
        content_bytes: Bytes of values and binaries, wherever they travel.
        inline: Whether the package travels in its message, not through the blob store.
    """

    publisher: str
    package_id: str
    offset: int
    action: str
    paths: tuple[str, ...] = ()
    deep_paths: tuple[str, ...] = ()
    request_id: str | None = None
    repeated: bool = False
    user_id: str | None = None
    package_bytes: int = 0
    published_at: Moment | None = None
    state: str = "queued"
    imported: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: tuple[FailureView, ...] = ()
    skipped: tuple[NotImportedView, ...] = ()
    unknown: tuple[NotImportedView, ...] = ()
    path_count: int = 0
    paths_truncated: bool = False
    nodes: int | None = None
    removed_paths: int | None = None
    content_bytes: int | None = None
    inline: bool | None = None


@dataclass(frozen=True, slots=True)
class QueueItemView:
    """A package in a queue.

    Attributes:
        id: `<topic>-0@<offset>`, what `queues remove` takes.
        offset: Its place on the package topic.
        package_id: The package.
        action: ADD, DELETE or INVALIDATE.
        size_bytes: Size of the package.
        path: The first path of the request, cut where long.
        path_count: How many paths the request has.
        queued_at: When the log took it.
        state: `queued` or `error`.
        attempts: How often it was tried; None in an error queue whose subscriber does not say.
        user_id: Caller of the request.
        error: Why the last attempt failed.
    """

    id: str
    offset: int
    package_id: str
    action: str
    size_bytes: int
    path: str
    path_count: int
    queued_at: Moment
    state: str
    attempts: int | None = 0
    user_id: str = ""
    error: CauseView | None = None


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue: one publisher's packages that a subscriber has still to import, or that it gave up.

    Attributes:
        name: `<sling id>-<agent name>`, with `-error` behind it where it holds what was given up.
        publisher: Whose packages.
        subscriber: The subscriber's name.
        state: `idle`, `running`, `blocked`, or `passive` of an error queue.
        count: How many packages. While it is not exact: the most it can be, of an error queue the least.
        capabilities: `clearable`, `removable`; what may be done to it.
        head: The first package; None if absent, or it was not asked for.
        exact: False for a moment after a start, until the agent has counted the log's past; of an error queue, when
            entries were dropped to bound the agent's memory.
    """

    name: str
    publisher: str
    subscriber: str
    state: str
    count: int
    capabilities: tuple[str, ...] = ()
    head: QueueItemView | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A piece of a queue.

    Attributes:
        queue: The queue that it is of.
        items: The packages, in the order of the log.
        next_offset: Where the next piece begins; None when this was the last.
    """

    queue: QueueView
    items: tuple[QueueItemView, ...]
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class DistributionPage:
    """Some requests of a publisher, the newest first.

    A page may hold fewer than requested: the part of the log that is read for one page is bounded.

    Attributes:
        items: The requests.
        next_before: Where the next page begins; None when this was the last.
    """

    items: tuple[DistributionView, ...]
    next_before: int | None = None


@dataclass(frozen=True, slots=True)
class CommandView:
    """A command to a subscriber: clear its queue, redrive a package, suspend or resume imports.

    Attributes:
        id: Names the command.
        verb: `clear`, `redrive`, `suspend` or `resume`.
        publisher: Whose packages; empty: of all publishers.
        subscriber: The subscriber's name.
        offset: The last offset to drop (clear), or the one to drive again; -1 of the other verbs.
        state: `sent`, then `done` or `refused` as the subscriber answers.
        removed: Packages dropped; None before the answer.
        message: What the subscriber says.
    """

    id: str
    verb: str
    publisher: str
    subscriber: str
    offset: int
    state: str = "sent"
    removed: int | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class GivenUpView:
    """A package that a subscriber gave up.

    Attributes:
        subscriber: The subscriber's name.
        publisher: Its publisher.
        offset: Its place on the package topic.
        package_id: The package; None where the log does not hold its message any more.
        attempts: How often it was tried; None where the subscriber does not say, as those of Sling.
        given_up_at: Time of the failure; None if not reported.
        paths: The first paths of the request, at most 100.
        error: Why the last attempt failed.
        path_count: How many paths the request has; 0 where the log does not hold its message any more.
        kind: `import`: the package was not imported. `hook`: it was, and the attempts of its `after` hook are used up.
            `hook-retrying`: it was, and its `after` hook failed and is called again.
    """

    subscriber: str
    publisher: str
    offset: int
    package_id: str | None
    attempts: int | None
    given_up_at: Moment | None
    paths: tuple[str, ...]
    error: CauseView | None
    path_count: int = 0
    kind: str = "import"


@dataclass(frozen=True, slots=True)
class GivenUpPage:
    """Some packages that were given up, by subscriber and offset.

    Attributes:
        items: The packages.
        next_page: Token of the next page; None when this was the last.
        dropped: How many entries the agent dropped to bound its memory since it started. They are missing here; the
            subscriber's own home lists them.
    """

    items: tuple[GivenUpView, ...]
    next_page: str | None = None
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class CallerView:
    """The caller of a request, and its rights.

    Attributes:
        name: The name of the token; `local` where the agent has no tokens.
        verbs: What the token allows; `admin` allows all.
        scope: `agent`; without a publisher `subscribers`: its own; of the operator `fleet`: the status of all agents.
    """

    name: str
    verbs: tuple[str, ...]
    scope: str = "agent"


@dataclass(frozen=True, slots=True)
class ForgottenView:
    """A subscriber that was deregistered.

    Attributes:
        name: The subscriber's name.
        registered: Whether the home knew its target.
        instances: The instances whose announcement under that name was withdrawn.
        target: Its target, which stays unchanged; None if unknown.
    """

    name: str
    registered: bool
    instances: tuple[str, ...]
    target: str | None = None


@dataclass(frozen=True, slots=True)
class BuildFollowerView:
    """Outcome of a build's packages at a subscriber. Each package in the log is in exactly one count.

    Attributes:
        name: The subscriber.
        imported: Packages that it imported.
        state: One of the subscriber's phases, or `silent`, `new`.
        pending: Packages that it has still to import.
        skipped: Packages that it passed because its golden subscriber did not import them, or that are older than its
            subscription.
        dropped: Packages that a clear command dropped.
        given_up: Packages in its error queue.
        unknown: Packages that it passed, where an import cannot be known.
    """

    name: str
    imported: int
    state: str
    pending: int = 0
    skipped: int = 0
    dropped: int = 0
    given_up: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class BuildView:
    """A bulk build, as found in the log.

    Attributes:
        build_id: The build.
        publisher: Its publisher.
        state: `publishing` until its last package stands in the log, then `published` while a subscriber of the
            publisher has packages to import; then `distributed` if all imported all of them, else `incomplete`.
            `failed` as soon as a subscriber gave up one of them.
        published: How many of its packages stand in the log.
        total: How many it has.
        package_bytes: Of those that stand in the log.
        first_offset: Where the first of them stands.
        last_offset: Where the last of them stands so far.
        first_published_at: When the log took the first one.
        last_published_at: When it took the last one so far.
        subscribers: Outcome at each subscriber that follows the publisher.
    """

    build_id: str
    publisher: str
    state: str
    published: int
    total: int
    package_bytes: int
    first_offset: int
    last_offset: int
    first_published_at: Moment
    last_published_at: Moment
    subscribers: tuple[BuildFollowerView, ...] = ()


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """The result of a dry run: what a publish would send.

    Attributes:
        packages: Number of packages.
        nodes: Number of nodes in them.
        files: Number of these nodes that are files.
        content_bytes: Bytes of their values and binaries.
        deletes: Number of subtrees that would be removed.
        largest_package_bytes: Content bytes of the largest package.
        first_paths: The first root paths, at most 20.
        first_removals: Those of the first root paths that would be removed.
    """

    packages: int = 0
    nodes: int = 0
    files: int = 0
    content_bytes: int = 0
    deletes: int = 0
    largest_package_bytes: int = 0
    first_paths: tuple[str, ...] = ()
    first_removals: tuple[str, ...] = ()
