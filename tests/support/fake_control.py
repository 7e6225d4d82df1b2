"""An agent in memory, for tests of what stands above it: the HTTP API, its client, the command line.

`FakeControl` keeps one package topic, and subscribers that stand where the test puts them. Commands to editable
subscribers are obeyed at once, and answered so, or (`answers_at_once`) at the next look; `failure` makes calls fail.
Safe to use from several threads.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mailboat.agent.health import LivenessView, ReadinessView
from mailboat.api.archive import (
    BatchRate,
    BlobList,
    BlobTally,
    BlobView,
    CutOffView,
    ExpiryView,
    JournalFigures,
    Latency,
    ProblemView,
    RecordView,
    RestoreView,
    RetainerView,
    RetentionView,
    SettingDifference,
    SnapshotView,
    StoredSnapshotView,
    SweepView,
    TargetSweepView,
    TopicCheck,
    TopicSetup,
    TruncationView,
    VerificationView,
)
from mailboat.api.orders import BenchOrder
from mailboat.api.records import (
    BuildView,
    CauseView,
    CommandView,
    DistributionPage,
    DistributionView,
    FailureView,
    ForgottenView,
    GivenUpPage,
    GivenUpView,
    JournalView,
    PublicationPlan,
    PublisherView,
    QueueItemView,
    QueuePage,
    QueueView,
    StatusView,
    SubscriberStatusView,
    TopicView,
)
from mailboat.clock import moment_of
from mailboat.control.journal_archive import MessageView
from mailboat.control.page_tokens import page_of
from mailboat.errors import (
    AgentMissingError,
    BuildMissingError,
    CommandMissingError,
    DistributionMissingError,
    MailboatError,
    QueueMissingError,
    QueueNotClearableError,
    RequestConflictError,
    UsageError,
)
from mailboat.model.filters import filter_for
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest, add_request

SLING_ID: Final = "11111111-2222-3333-4444-555555555555"
_APPENDED_MS: Final = 1_767_225_600_000


@dataclass
class FakeSubscriber:
    """A subscriber that stands where the test puts it."""

    name: str
    next_offset: int = 0
    is_editable: bool = True
    is_ready: bool = True
    suspended_seconds: float = 0.0
    error: CauseView | None = None
    given_up: dict[int, CauseView] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)

    @property
    def queue_name(self) -> str:
        """The name of its queue."""
        return f"{SLING_ID}-{self.name}"


class FakeControl:
    """See `Control`. The publisher's name is `author` unless the test says otherwise."""

    def __init__(self, *subscribers: FakeSubscriber, publisher: str = "author") -> None:
        """An empty log, and some subscribers."""
        self.failure: MailboatError | None = None
        self.answers_at_once = True
        self.subscribers = {subscriber.name: subscriber for subscriber in subscribers}
        self.ordered: list[DistributionRequest] = []
        self.changed: list[NodePath] = []
        self.known_builds: list[BuildView] = []
        self._publisher = publisher
        self._packages: list[DistributionView] = []
        self._commands: dict[str, CommandView] = {}
        self._lock = threading.RLock()

    def status(self) -> StatusView:
        """See `Control`."""
        with self._entered():
            journal = JournalView("memory", 0, len(self._packages), size_bytes=0)
            members = tuple(self._member(subscriber) for subscriber in self.subscribers.values())
            return StatusView(journal, (PublisherView(self._publisher, "running"),), members)

    def distribute(self, publisher: str, request: DistributionRequest) -> DistributionView:
        """See `Control`."""
        with self._entered(publisher):
            self.ordered.append(request)
            for package in self._packages:
                if request.request_id is not None and package.request_id == request.request_id:
                    if (package.action, package.paths) != (request.action, request.paths):
                        raise RequestConflictError(f"the request id {request.request_id} was used for another request")
                    return replace(self._view(package), repeated=True)
            offset = len(self._packages)
            package_id = f"dstrpck-{_APPENDED_MS + offset}-{offset:08d}-0000-4000-8000-000000000000"
            made = DistributionView(
                publisher,
                package_id,
                offset,
                str(request.action),
                request.paths,
                tuple(sorted(request.deep_paths)),
                request.request_id or f"request-{offset}",
                user_id=request.user_id,
                package_bytes=100,
                published_at=moment_of(_APPENDED_MS + offset),
                path_count=len(request.paths),
            )
            self._packages.append(made)
            return self._view(made)

    def distribute_all(self, publisher: str, requests: Sequence[DistributionRequest]) -> Iterator[DistributionView]:
        return (self.distribute(publisher, request) for request in requests)

    def publish_changed(
        self, publisher: str, paths: Sequence[NodePath], user_id: str | None = None
    ) -> Iterator[DistributionView]:
        """Publish the paths that the test put into `changed`, one package."""
        below = [item for item in self.changed if filter_for(paths, frozenset(paths)).covers(item)]
        self.changed = [item for item in self.changed if item not in below]
        if below:
            yield self.distribute(publisher, add_request(below, user_id=user_id))

    def plan(self, publisher: str, request: DistributionRequest) -> PublicationPlan:
        with self._entered(publisher):
            return PublicationPlan(1, len(request.paths), len(request.paths), first_paths=request.paths)

    def plan_changed(self, publisher: str, paths: Sequence[NodePath]) -> PublicationPlan:
        with self._entered(publisher):
            below = tuple(item for item in self.changed if filter_for(paths, frozenset(paths)).covers(item))
            return PublicationPlan(int(bool(below)), len(below), len(below), first_paths=below)

    def distribution(self, publisher: str, package_id: str, wait_seconds: float = 0.0) -> DistributionView:  # noqa: ARG002  # nothing moves here
        """See `Control`."""
        with self._entered(publisher):
            for package in self._packages:
                if package_id in {package.package_id, package.request_id}:
                    return self._view(package)
            raise DistributionMissingError(f"the log holds no package {package_id}", package=package_id)

    def distributions(self, publisher: str, before: int | None = None, max_items: int = 20) -> DistributionPage:
        """See `Control`."""
        with self._entered(publisher):
            older = [package for package in reversed(self._packages) if before is None or package.offset < before]
            shown = tuple(self._view(item) for item in older[:max_items])
            return DistributionPage(shown, shown[-1].offset if len(older) > max_items else None)

    def builds(self, build_id: str | None = None) -> Sequence[BuildView]:
        """See `Control`: those that the test puts there."""
        with self._entered():
            found = [known_build for known_build in self.known_builds if build_id in {None, known_build.build_id}]
            if build_id is not None and not found:
                raise BuildMissingError(f"the log holds no package of a build {build_id}", build=build_id)
            return found

    def queues(self, publisher: str) -> Sequence[QueueView]:
        """See `Control`."""
        with self._entered(publisher):
            normal = [self._queue(subscriber) for subscriber in self.subscribers.values()]
            return normal + [self._error_queue(subscriber) for subscriber in self.subscribers.values()]

    def queue(self, publisher: str, name: str, from_offset: int = 0, max_items: int = 100) -> QueuePage:
        """See `Control`."""
        with self._entered(publisher):
            owner, is_error_queue = self._owner(name)
            offsets = sorted(owner.given_up) if is_error_queue else self._backlog(owner)
            wanted = [offset for offset in offsets if offset >= from_offset]
            items = tuple(self._item(owner, offset) for offset in wanted[:max_items])
            queue = self._error_queue(owner) if is_error_queue else self._queue(owner)
            return QueuePage(queue, items, wanted[max_items] if len(wanted) > max_items else None)

    def clear(self, publisher: str, name: str, max_items: int | None = None, wait_seconds: float = 0.0) -> CommandView:  # noqa: ARG002  # answered at once
        """See `Control`."""
        with self._entered(publisher):
            owner = self._editable(name)
            return self._drop(owner, self._backlog(owner)[:max_items])

    def remove(self, publisher: str, name: str, item_ids: Sequence[str], wait_seconds: float = 0.0) -> CommandView:  # noqa: ARG002  # answered at once
        """See `Control`."""
        with self._entered(publisher):
            owner = self._editable(name)
            backlog = self._backlog(owner)
            named = [self._offset(item) for item in item_ids]
            if not named or not set(named) <= set(backlog) or (len(named) == 1 and named != backlog[:1]):
                raise UsageError(f"not in the queue of {owner.name}, or not its head: {', '.join(item_ids)}")
            return self._drop(owner, [offset for offset in backlog if offset <= max(named)])

    def command(self, publisher: str | None, command_id: str) -> CommandView:
        """See `Control`."""
        with self._entered(publisher):
            if command_id not in self._commands:
                raise CommandMissingError(f"there is no command {command_id}", command=command_id)
            return self._commands[command_id]

    def errors(self, subscriber: str | None = None, page: str | None = None, max_items: int = 100) -> GivenUpPage:
        """See `Control`."""
        with self._entered():
            found = [
                GivenUpView(
                    item.name,
                    self._publisher,
                    offset,
                    self._packages[offset].package_id,
                    11,
                    None,
                    self._packages[offset].paths,
                    why,
                    len(self._packages[offset].paths),
                )
                for item in self.subscribers.values()
                if subscriber in {None, item.name, item.queue_name}
                for offset, why in item.given_up.items()
            ]
            shown, following = page_of(found, lambda one: (one.subscriber, one.offset), page, max_items)
            return GivenUpPage(tuple(shown), following)

    def redrive(self, subscriber: str, offsets: Sequence[int], wait_seconds: float = 0.0) -> Sequence[CommandView]:  # noqa: ARG002  # answered at once
        """See `Control`."""
        with self._entered():
            owner = self.subscribers.get(subscriber.removeprefix(f"{SLING_ID}-"))
            if owner is None:
                raise AgentMissingError(f"there is no subscriber {subscriber}", subscriber=subscriber)
            missing = sorted(set(offsets) - set(owner.given_up))
            if missing:
                raise UsageError(f"{subscriber} did not give up {missing}", offsets=missing)
            for offset in offsets:
                del owner.given_up[offset]
            return [self._answered("redrive", owner, offset, 0) for offset in offsets]

    def suspend(self, subscriber: str, seconds: float | None = None, wait_seconds: float = 0.0) -> CommandView:  # noqa: ARG002  # answered at once
        """See `Control`."""
        return self._suspended("suspend", subscriber, math.inf if seconds is None else seconds)

    def resume(self, subscriber: str, wait_seconds: float = 0.0) -> CommandView:  # noqa: ARG002  # answered at once
        """See `Control`."""
        return self._suspended("resume", subscriber, 0.0)

    def _suspended(self, verb: str, subscriber: str, seconds: float) -> CommandView:
        with self._entered():
            owner = self.subscribers.get(subscriber.removeprefix(f"{SLING_ID}-"))
            if owner is None:
                raise AgentMissingError(f"there is no subscriber {subscriber}", subscriber=subscriber)
            owner.suspended_seconds = seconds
            return self._answered(verb, owner, -1, 0)

    def forget(self, subscriber: str) -> ForgottenView:
        """See `Control`. No one runs here."""
        with self._entered():
            if subscriber not in self.subscribers:
                raise AgentMissingError(f"there is no subscriber {subscriber}", subscriber=subscriber)
            del self.subscribers[subscriber]
            return ForgottenView(subscriber, registered=False, instances=(SLING_ID,))

    def published(self, offset: int) -> DistributionView:
        """The package at an offset. Raises: DistributionMissingError."""
        with self._entered():
            if not 0 <= offset < len(self._packages):
                raise DistributionMissingError(f"the package topic has no package at offset {offset}", offset=offset)
            return self._packages[offset]

    def give_up(self, subscriber: str, offset: int, cause: CauseView) -> None:
        """Let a subscriber give a package up and go on behind it."""
        with self._lock:
            self.subscribers[subscriber].given_up[offset] = cause
            self.subscribers[subscriber].next_offset = max(self.subscribers[subscriber].next_offset, offset + 1)

    def _entered(self, publisher: str | None = None) -> threading.RLock:
        if self.failure is not None:
            raise self.failure
        if publisher not in {None, self._publisher}:
            raise AgentMissingError(f"there is no publisher {publisher} here", publisher=publisher)
        return self._lock

    def _member(self, one: FakeSubscriber) -> SubscriberStatusView:
        lag = len(self._packages) - one.next_offset
        state = "suspended" if one.suspended_seconds else "retrying" if one.error else "importing" if lag else "current"
        return SubscriberStatusView(
            one.name,
            state,
            SLING_ID,
            one.next_offset,
            lag,
            attempts=3 if one.error else 0,
            given_up=len(one.given_up),
            editable=one.is_editable,
            ready=one.is_ready,
            error=one.error,
            suspended_at=moment_of(_APPENDED_MS) if one.suspended_seconds else None,
            suspended_until=moment_of(_APPENDED_MS + int(one.suspended_seconds * 1000))
            if one.suspended_seconds < math.inf and one.suspended_seconds
            else None,
        )

    def _backlog(self, owner: FakeSubscriber) -> list[int]:
        """The offsets in a queue; a TEST is in no queue."""
        waiting = range(owner.next_offset, len(self._packages))
        return [offset for offset in waiting if self._packages[offset].action != "TEST"]

    def _queue(self, owner: FakeSubscriber) -> QueueView:
        backlog = self._backlog(owner)
        state = "blocked" if owner.error and backlog else "running" if backlog else "idle"
        head = self._item(owner, backlog[0]) if backlog else None
        abilities = ("clearable", "removable") if owner.is_editable else ()
        return QueueView(owner.queue_name, self._publisher, owner.name, state, len(backlog), abilities, head)

    def _error_queue(self, owner: FakeSubscriber) -> QueueView:
        name = f"{owner.queue_name}-error"
        head = self._item(owner, min(owner.given_up)) if owner.given_up else None
        return QueueView(name, self._publisher, owner.name, "passive", len(owner.given_up), head=head)

    def _item(self, owner: FakeSubscriber, offset: int) -> QueueItemView:
        one = self._packages[offset]
        error = owner.given_up.get(offset) or (owner.error if offset == owner.next_offset else None)
        return QueueItemView(
            f"package-0@{offset}",
            offset,
            one.package_id,
            one.action,
            one.package_bytes,
            one.paths[0],
            len(one.paths),
            one.published_at or moment_of(0),
            "error" if error else "queued",
            attempts=3 if error else 0,
            user_id=one.user_id or "",
            error=error,
        )

    def _owner(self, name: str) -> tuple[FakeSubscriber, bool]:
        bare = name.removesuffix("-error")
        for subscriber in self.subscribers.values():
            if bare in {subscriber.name, subscriber.queue_name}:
                return subscriber, bare != name
        raise QueueMissingError(f"there is no queue {name}", queue=name)

    def _editable(self, name: str) -> FakeSubscriber:
        owner, is_error_queue = self._owner(name)
        if is_error_queue or not owner.is_editable:
            raise QueueNotClearableError(f"{owner.name} takes no commands", queue=name)
        return owner

    def _drop(self, owner: FakeSubscriber, offsets: Sequence[int]) -> CommandView:
        if offsets:
            owner.removed.update(offsets)
            owner.next_offset = offsets[-1] + 1
            owner.error = None
        return self._answered("clear", owner, offsets[-1] if offsets else owner.next_offset - 1, len(offsets))

    def _answered(self, verb: str, owner: FakeSubscriber, offset: int, removed: int) -> CommandView:
        publisher = "" if verb in {"suspend", "resume"} else self._publisher
        made = CommandView(f"command-{len(self._commands)}", verb, publisher, owner.name, offset, "done", removed)
        self._commands[made.id] = made
        return made if self.answers_at_once else replace(made, state="sent", removed=None)

    def _offset(self, item_id: str) -> int:
        topic, at, offset = item_id.rpartition("@")
        if not at or topic != "package-0" or not (offset.isascii() and offset.isdecimal()):
            raise UsageError(f"{item_id[:80]!r} is no queue entry")
        return int(offset)

    def _view(self, one: DistributionView) -> DistributionView:
        all_members = self.subscribers.values()
        removed = tuple(member.name for member in all_members if one.offset in member.removed)
        failed = tuple(
            FailureView(member.name, member.given_up[one.offset])
            for member in all_members
            if one.offset in member.given_up
        )
        waiting = tuple(member.name for member in all_members if member.next_offset <= one.offset)
        done = {*removed, *waiting, *(each.subscriber for each in failed)}
        imported = tuple(member.name for member in all_members if member.name not in done)
        state = "queued" if waiting else "failed" if failed else "distributed"
        return replace(one, state=state, imported=imported, waiting=waiting, removed=removed, failed=failed)


class FakeArchive:
    """See `LogArchive`: what a `FakeControl` published."""

    def __init__(self, control: FakeControl) -> None:
        """Nothing of its own."""
        self._control = control
        self.restored = RestoreView("edge-1", "sqlite:/site.db")

    def topics(self) -> Sequence[TopicView]:
        """See `LogArchive`."""
        return [TopicView("package", "package", 0, self._control.status().journal.next_offset, "log-1")]

    def records(self, role: str, from_offset: int | None = None, max_items: int = 20) -> Sequence[RecordView]:
        (topic,) = self.topics()
        end = topic.next_offset if role == "package" else 0
        start = max(0, end - max_items) if from_offset is None else from_offset
        if from_offset is not None and from_offset >= end:
            raise UsageError(f"there is no message at offset {from_offset}")
        return [
            RecordView(offset, moment_of(0), "Package", 100, f"ADD /news/{offset}")
            for offset in range(start, min(end, start + max_items))
        ]

    def verify(self, *, reads_blobs: bool = False) -> VerificationView:
        return VerificationView(3, 1, reads_blobs, 1, (ProblemView("package", 1, "a binary is missing"),))

    def truncate(self, role: str, before: int, *, is_dry_run: bool = True) -> TruncationView:
        (topic,) = self.topics()
        if before > topic.next_offset:
            raise UsageError(f"offset {before} is beyond the end of {role}, {topic.next_offset}")
        return TruncationView(role, before, is_dry_run, before, before, topic.next_offset, (CutOffView("edge-7", 0),))

    def remove_expired(self) -> ExpiryView:
        return ExpiryView(2, automatic=True)

    def retention(self, *, is_applied: bool = False) -> RetentionView:
        retainers = (RetainerView("edge-1", True, 2, moment_of(0), 4.0),)
        return RetentionView(True, is_applied, 0, 3, 2, "the slowest", 200, ("edge-7",), (), retainers)

    def ensure_topics(self, *, is_dry_run: bool = False) -> TopicSetup:
        differences = (SettingDifference("retention", None, "7 days"),)
        state = "different" if is_dry_run else "changed"
        return TopicSetup("sqlite /journal.db", (TopicCheck("package", "package", state, differences),))

    def bench(self, order: BenchOrder) -> JournalFigures:
        latency = Latency(1.0, 2.0, order.rounds)
        rates = (BatchRate(1, 10.0, 10.0 * order.message_bytes, None),)
        return JournalFigures("sqlite /journal.db", order.message_bytes, latency, latency, rates, order.seconds)

    def blobs(self, *, is_removable: bool = False, max_items: int | None = None) -> BlobList:
        found = [
            BlobView("ab" * 32, 1000, moment_of(0), "referenced"),
            BlobView("cd" * 32, 10, moment_of(0), "removable"),
        ]
        wanted = [item for item in found if not is_removable or item.fate == "removable"]
        return BlobList(tuple(wanted[:max_items]), max_items is None or max_items >= len(wanted))

    def sweep(self, *, is_dry_run: bool = True, forget_journal: str | None = None) -> SweepView:
        return SweepView(
            "/blobs" if forget_journal is None else f"/blobs without {forget_journal}",
            is_dry_run,
            3,
            1,
            {"referenced": BlobTally(1, 1000), "removable": BlobTally(1, 10)},
            removed=0 if is_dry_run else 1,
            targets=(TargetSweepView("edge-1", "sqlite:/site.db", 0, "TargetBusy"),),
            grace_seconds=60.0,
        )

    def snapshots(self) -> Sequence[SnapshotView]:
        return [self._snapshot("site", "sqlite:/site.db")]

    def store_snapshot(self, target: str, name: str, *, is_forced: bool = False) -> StoredSnapshotView:
        return StoredSnapshotView(self._snapshot(name, target), stored=is_forced or name != "site")

    def restore_snapshot(self, name: str, target: str, *, is_replacing: bool = False) -> RestoreView:
        """See `Restores`: at once, into the target of edge-1."""
        if name != "site":
            raise UsageError(f"there is no snapshot blob:{name}")
        if target != self.restored.target or not is_replacing:
            raise UsageError(f"no subscriber of this agent imports into {target}, or it has content")
        self.restored = RestoreView("edge-1", target, "done", f"blob:{name}", next_offset=3, given_up=0)
        return self.restored

    def restores(self) -> Sequence[RestoreView]:
        return [self.restored]

    def remove_snapshot(self, name: str) -> None:
        if name != "site":
            raise UsageError(f"there is no snapshot blob:{name}")

    @staticmethod
    def _snapshot(name: str, target: str) -> SnapshotView:
        return SnapshotView(f"blob:{name}", "ab" * 32, 2000, target, moment_of(0), 3, "log-1")

    def message(self, offset: int) -> MessageView:
        """See `LogArchive`."""
        one = self._control.published(offset)
        return MessageView(
            offset,
            one.published_at or moment_of(0),
            one.package_id,
            one.action,
            one.publisher,
            SLING_ID,
            one.paths,
            one.deep_paths,
            "tree",
            one.package_bytes,
            "inline",
            request_id=one.request_id,
        )


@dataclass
class FakeHealth:
    """See `Health`: as the test says."""

    is_alive: LivenessView = field(default_factory=lambda: LivenessView(alive=True))
    is_ready: ReadinessView = field(default_factory=lambda: ReadinessView(ready=True))

    def liveness(self) -> LivenessView:
        """See `Health`."""
        return self.is_alive

    def readiness(self) -> ReadinessView:
        """See `Health`."""
        return self.is_ready
