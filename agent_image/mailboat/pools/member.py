"""One member of a shared pool: puts packages into the queue of the pool, and imports those that it claims.

The queue is one of durable jobs: a claim wins by its place in the log, its lease is renewed, and a member that dies
loses only the packages that it had begun. One thread follows the job topic, plans and claims; packages are imported in
as many threads as the member has slots. All members do the same, and none leads: which record puts packages into the
queue is decided by its place in the log, too.

Another thread reads the packages that the pool has not put into its queue yet (`package_follower`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from mailboat.clock import Deadline
from mailboat.content.port import Ledger
from mailboat.errors import (
    JobLogIncompleteError,
    MailboatError,
    MessageCorruptError,
    PositionOutOfRangeError,
    RetryableError,
    StopError,
)
from mailboat.failpoints import Failpoint
from mailboat.frozen import Frozen
from mailboat.jobs.feeds import MAX_POOLS, lost_package
from mailboat.jobs.job_queue import Queue
from mailboat.jobs.job_worker import JobWorker, WorkerSettings
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.topic import JobTopic, open_job_topic
from mailboat.model.identifiers import Offset, SlingId, TopicName
from mailboat.model.jobs import (
    DEFAULT_LEASE_MS,
    Feed,
    JobId,
    JobsAdded,
    QueueRemoved,
    any_matches,
    pool_topic,
)
from mailboat.model.messages import JOB_TOPIC, FailureCause, PoolBacklog, Suspension
from mailboat.model.positions import Position
from mailboat.pools.package_follower import FedPackages, PackageFollower, Unfed
from mailboat.pools.package_import import OTHER_TARGET_STEP, PackageImport, PoolTargetDiffersError, PoolView
from mailboat.pools.package_order import OpenPackages, Package, decode_queued, plan_feed
from mailboat.pools.shared_target import SharedTarget, instance_of, marker_of_begin
from mailboat.subscriber.admission import StopAskedError, StopSignal
from mailboat.subscriber.commands import CommandHandler, SubscriberSuspendedError
from mailboat.subscriber.continuity import decide_start, plan_start
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.subscriber_settings import ImportPorts, SubscriberSettings
from mailboat.workers import Worker, WorkerOptions, heartbeat

_FEED_GRACE_SECONDS: Final = 0.5
"""How long packages are left to the member that is preferred for putting them into the queue."""

_EMPTY_FEED_SECONDS: Final = 1.0
"""How often a record is appended that only passes packages which the pool does not follow."""

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 25.0
# How late a command may be noticed; a look asks for the end of the log only.
_COMMAND_SECONDS: Final = 0.5
_TURN_SECONDS: Final = 5.0
"""How long one step may wait for something to do."""

_STORE_SECONDS: Final = 5.0
"""How often the stored position is compared with that of the pool while packages are imported."""

_HELD_TURN_SECONDS: Final = 0.5
"""The same while nothing is claimed: that imports resume does not end the wait."""


class PoolForgottenError(StopError):
    """The pool was removed from the registry, or began again on an older copy of its target. Start the member again."""


class MemberSettings(Frozen):
    """A member.

    Attributes:
        member: Its name in lists.
        slots: Packages that it imports at the same time.
        subscriber: The settings of the pool as a subscriber; they should be the same for all members.
        lease_ms: A member that is silent for so long loses the packages that it has begun.
        job_topic: The topic of the queue.
    """

    member: str
    slots: int
    subscriber: SubscriberSettings
    lease_ms: int = DEFAULT_LEASE_MS
    job_topic: TopicName = JOB_TOPIC


def _queued_package(topic: JobTopic, job: JobId) -> tuple[Package, str]:
    """A package in the queue, and its key. Raises: JobLogIncompleteError: the topic lost it."""
    new = topic.job(job)
    if new is None:
        raise lost_package(job, "its record is gone")
    try:
        return decode_queued(new.payload).package, new.key
    except MessageCorruptError as error:
        raise lost_package(job, error.message) from error


class PoolMember:
    """One member. `run` in one thread, once; `stop` and `statistics` from any."""

    def __init__(
        self,
        settings: MemberSettings,
        ports: ImportPorts,
        shared: SharedTarget,
        when_changed: Callable[[SubscriberStatistics], None],
    ) -> None:
        """Nothing is read or written before `run`. `when_changed` is called in the thread of the member."""
        self._settings = settings
        self._ports = ports
        self._shared = shared
        self._when_changed = when_changed
        self._signal = StopSignal()
        self._unfinished = OpenPackages()
        self._error: MailboatError | None = None
        self._queue: Queue | None = None
        """That of the pool when this member joined it; one that was removed and made again is another object."""
        self._worker: JobWorker | None = None
        self._import: PackageImport | None = None
        self.sling_id: SlingId | None = None
        """The instance that the pool runs in, the same for all members; None before the target was opened."""
        self._suspension: Suspension | None = None
        self._position: Position | None = None
        """That of the target when it was claimed."""
        self._fed_packages = FedPackages(ports.journal, settings.subscriber, self._check_stop)
        self.passed_over: frozenset[str] = frozenset()
        """The publishers whose packages this member has read, and the pool does not follow."""
        self._has_caught_up = False
        self.statistics = SubscriberStatistics()
        """The figures of this moment."""
        self._seen_unfed_at: tuple[int, float] | None = None
        self._fed_at = float("-inf")
        self._commands_end: Offset | None = None
        self._commands_low_water: Offset | None = None
        self._has_commands = True
        self._progress_seen: tuple[Offset, Offset | None] | None = None
        self._stored_at = ports.clock.monotonic()
        self._beat = heartbeat(ports.clock)

    @property
    def given_up(self) -> int | None:
        """How many packages are in the error queue of the target, as this member saw it last."""
        return None if self._import is None else self._import.counts.given_up

    def claim(self) -> SlingId:
        """Claim the target for the pool, and mark it; the instance that the pool runs in. Raises: TargetOwnedError."""
        with self._shared.opened(self._signal.stopping.is_set) as target:
            target.ledger.claim(self._settings.subscriber.name)
            self._position = target.ledger.position()
            marker = target.ledger.pool.marker()
            if marker is None:
                marker = str(uuid.uuid4())
                target.ledger.pool.mark(marker)
            # Before the pool is announced: commands that are sent to it from then on are meant for it.
            with closing(CommandHandler(self._settings.subscriber, self._ports.on(target))) as commands:
                commands.claim_position()
                commands.load(is_read=False)
                self._suspension = commands.suspension()
        return instance_of(marker)

    def run(self, *, is_endless: bool = True) -> SubscriberStatistics:
        """Import until stopped, or until all is done that the log holds now. Raises: MailboatError."""
        try:
            self._run(is_endless=is_endless)
        except StopAskedError:
            pass  # while it waited for the target that another member has
        except MailboatError as error:
            self._show(**self._counted(), phase=SubscriberPhase.STOPPED, cause=FailureCause.of_error(error))
            raise
        # Counted again at the end: packages that had begun end after the last progress was shown.
        stored = {} if self._import is None else {"stored_offset": self._import.stored_offset}
        self._show(**self._counted(), **stored, phase=SubscriberPhase.STOPPED, cause=None)
        return self.statistics

    def stop(self, deadline: Deadline | None) -> None:
        """Ask `run` to return: packages that have begun are finished, or rolled back when the deadline is over."""
        self._signal.stop(deadline)
        if self._worker is not None:
            self._worker.wake()

    # ---------------------------------------------------------------------------------------------------- the start

    def _join(self, source: LogSource) -> tuple[Feed, Position]:
        """Compare the target with that of the pool, and begin the pool if it is new; the target's position, too.

        Raises: named states.
        """
        topic = source.topic
        # Most of what is to be read, before the target is open: meanwhile no other member could import.
        source.catch_up()
        self._read_fed(topic)
        with self._shared.opened(self._signal.stopping.is_set) as target:
            # With the target open: no other member begins the pool at the same time.
            source.catch_up()
            feed = topic.fold.feeds.find(self._settings.subscriber.name)
            start, is_moved = self._start(target.ledger, topic, feed)
            if feed is None or is_moved:
                feed = self._begin(source, target.ledger, feed, start)
            self._queue = topic.fold.queues[feed.queue]
        return feed, start

    def _read_fed(self, topic: JobTopic) -> None:
        """Read the packages between the position and the feed, which may be many while one is tried again for long."""
        feed, position = topic.fold.feeds.find(self._settings.subscriber.name), self._position
        if feed is not None and position is not None and feed.log == position.identity:
            with suppress(PositionOutOfRangeError):  # `_start` names the state
                self._fed_packages.read(position.next_offset, feed.next_offset)

    def _check_stop(self) -> None:
        """Return if the start may go on. Raises: StopAskedError."""
        self._beat(0.0)
        if self._signal.stopping.is_set():
            raise StopAskedError

    def _begin(self, source: LogSource, ledger: Ledger, before: Feed | None, start: Position) -> Feed:
        """Begin the queue of the pool, or begin it again from another offset. Raises: PoolTargetDiffersError."""
        topic = source.topic
        marker = marker_of_begin(ledger.pool.marker() or "", "" if before is None else before.target)
        # First: members that have begun packages of the former queue must not import them before those that come again.
        ledger.pool.mark(marker)
        if before is not None:
            # What is in it comes again from the log: left there, it would be imported before older packages.
            topic.append(QueueRemoved(before.queue))
        feed = Feed(self._settings.subscriber.name, 1, start.next_offset, start.identity, marker)
        (offset,) = topic.append(JobsAdded((), feed=feed))
        topic.follow_to(offset, source.note_log_time)
        # Read back: a member with another target may have been first.
        found = topic.fold.feeds.find(feed.pool)
        if found is None or (found.target, found.log) != (marker, start.identity):
            raise PoolTargetDiffersError(
                f"the pool {feed.pool} began on another target meanwhile, or the journal has {MAX_POOLS} pools",
                next_step="mount one volume in all members, or remove pools (mailboat subscribers forget NAME)",
                subscriber=feed.pool,
            )
        return found

    def _start(self, ledger: Ledger, topic: JobTopic, feed: Feed | None) -> tuple[Position, bool]:
        """Where the pool goes on, and whether that is not where its queue does."""
        settings = self._settings.subscriber
        marker, accepted_gap = ledger.pool.marker(), settings.is_gap_accepted
        is_other = feed is not None and instance_of(marker or "") != instance_of(feed.target)
        if is_other and not accepted_gap:
            raise PoolTargetDiffersError(
                f"the target of this member is not that of the pool {settings.name}",
                next_step=OTHER_TARGET_STEP,
                subscriber=settings.name,
            )
        identity = self._ports.journal.identity(settings.package_topic)
        bounds = self._ports.journal.bounds(settings.package_topic)
        begun = plan_start(settings, ledger, identity, bounds, is_gap_accepted=accepted_gap)
        start = begun.position
        reached = ledger.pool.end() or start.next_offset
        if feed is not None and feed.log == identity and not is_other:
            reached = max(reached, feed.next_offset)
        is_shorter = reached > bounds.next_offset
        if is_shorter:
            # Packages that are done or in the queue must not have become others.
            decide_start(settings.name, Position(identity, reached), identity, bounds, is_gap_accepted=accepted_gap)
        self._show(report_starts=begun.report_starts)
        if begun.stored is not None and (is_shorter or start != begun.stored):
            # Before the position: what is done belongs to the former one, and would count for other packages.
            ledger.pool.forget()
        if begun.is_new:
            ledger.reset_position(start, begun.accepted, begun.report_starts)
        if feed is None:
            return start, False
        is_elsewhere = feed.log != identity or not start.next_offset <= feed.next_offset <= bounds.next_offset
        # A begin of the pool that the target does not have: it is an older copy, or its member died in between.
        return start, marker != feed.target or is_elsewhere or self._lacks_package(ledger, topic, feed, start)

    def _lacks_package(self, ledger: Ledger, topic: JobTopic, feed: Feed, start: Position) -> bool:
        """Whether a package before the feed is neither done nor in the queue: the target is an older copy of itself.

        Notes the publishers that are skipped before the feed: members that read their packages may not have stored it.
        """
        queued = set()
        for job in topic.fold.queues[feed.queue].chained():
            try:
                queued.add(_queued_package(topic, job)[0].offset)
            except JobLogIncompleteError:  # no member can import it, nor end it
                return True
        for offset in map(Offset, self._fed_packages.offsets(start.next_offset, feed.next_offset)):
            self._check_stop()
            if offset not in queued and not ledger.pool.is_done(offset):
                return True
        self.passed_over |= self._fed_packages.passed_over
        return False

    # ----------------------------------------------------------------------------------------------------- the loop

    def _run(self, *, is_endless: bool) -> None:
        settings, ports = self._settings.subscriber, self._ports
        self.claim()
        source = LogSource(
            open_job_topic(ports.journal, topic=self._settings.job_topic), ports.clock, ports.random, ports.failpoints
        )
        try:
            feed, start = self._join(source)
        except BaseException:
            source.close()
            raise
        self.sling_id = instance_of(feed.target)
        settings = replace(settings, sling_id=self.sling_id)
        handler = self._import = PackageImport(settings, feed.target, ports, self._shared, self._signal, self._halt)
        handler.suspend(self._suspension)
        handler.note_stored(start.next_offset)
        workers = WorkerSettings(self._settings.member, self._settings.slots, {pool_topic(settings.name): handler})
        worker = self._worker = JobWorker(source, workers, ports.clock, ports.random, ports.failpoints)
        # `wake` ends the member's wait for jobs: a new package is put into the queue at once, not after a turn.
        follower = PackageFollower(ports.journal, settings, ports.clock, worker.wake)
        commands = Worker(
            f"pool-commands-{settings.name}",
            partial(self._serve_commands, handler, settings),
            ports.clock,
            WorkerOptions(f"serving commands for {settings.name}", longest_pause_seconds=_LONGEST_PAUSE_SECONDS),
        )
        try:
            commands.start()
            follower.start(Position(feed.log, feed.next_offset))
            goal = None if is_endless else ports.journal.bounds(settings.package_topic).next_offset
            self._turns(source, follower, worker, goal)
        finally:
            commands.ask_to_stop()
            try:
                # Also after an error: the packages that have begun end, so that other members get them at once. Before
                # the wait for the other threads, which may last: meanwhile nothing would be renewed.
                with suppress(MailboatError):
                    worker.stop(self._signal.remaining_seconds(_STOP_SECONDS))
            finally:
                commands.join(_STOP_SECONDS)
                follower.close()
        if self._error is not None:
            raise self._error
        # Only after a good end: of a member that stopped in a named state the pool may have begun again.
        deadline = Deadline(ports.clock, _STOP_SECONDS)
        with suppress(MailboatError, StopAskedError):
            handler.store_position(lambda: deadline.is_over() or self._signal.is_overdue)

    def _turns(self, source: LogSource, follower: PackageFollower, worker: JobWorker, goal: Offset | None) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._signal.stopping.is_set() and self._error is None:
            self._beat(_TURN_SECONDS)
            try:
                self._turn(source, follower, worker)
                pause = _FIRST_PAUSE_SECONDS
            except RetryableError as error:
                self._show(phase=SubscriberPhase.WAITING, cause=FailureCause.of_error(error))
                self._beat(pause)
                self._ports.clock.wait(self._signal.stopping, worker.pause_within(pause))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            # Compared with the end at the start of the run: `--until caught-up` ends although publishers go on.
            position = self.statistics.next_offset
            if goal is not None and position is not None and position >= goal:
                return
            if goal is not None and self.statistics.suspension is not None:
                name = self._settings.subscriber.name
                raise SubscriberSuspendedError(
                    f"imports of {name} are suspended", next_step=f"mailboat subscribers resume {name}, then again"
                )

    def _turn(self, source: LogSource, follower: PackageFollower, worker: JobWorker) -> None:
        """Put packages into the queue, then report, claim and wait."""
        topic = source.topic
        feed = topic.fold.feeds.find(self._settings.subscriber.name)
        # By the queue, not by the feed alone: one that began again may have a higher number by now, and this member has
        # forgotten the packages that come again.
        if feed is None or topic.fold.queues.get(feed.queue) is not self._queue:
            raise PoolForgottenError(
                f"the pool {self._settings.subscriber.name} was removed from the registry, or began again",
                next_step="start the member again: the pool then goes on from the position of its target",
                subscriber=self._settings.subscriber.name,
            )
        unfed = follower.unfed(feed.next_offset)
        self._refresh(topic, feed)
        if unfed.next_offset > feed.next_offset:
            feed = self._feed(source, feed, unfed, worker.worker_id)
        low_water = self._unfinished.first_offset()
        low_water = feed.next_offset if low_water is None else low_water
        self.passed_over |= follower.passed_over
        if self._import is not None:
            # Not beyond what was read: the publishers that are skipped are stored with the position.
            self._import.counts.keep_failures(self._unfinished.offsets)
            self._import.show(PoolView(feed.log, min(low_water, unfed.read_offset), self.passed_over))
        is_blocked = source.is_blocked_by_older(worker.worker_id)
        self._show_progress(feed, low_water, unfed, follower, is_blocked=is_blocked)
        # A claim in a suspended pool would end at once, and the next one: two records each, for as long as that lasts.
        is_held = self.statistics.suspension is not None or (self._import is not None and self._import.pause.holds)
        # Packages that are left to another member: that one may be dead, and nothing ends the wait then.
        has_left = self._seen_unfed_at is not None and self._seen_unfed_at[0] == feed.sequence
        seconds = _FEED_GRACE_SECONDS if has_left else _TURN_SECONDS
        worker.turn(_HELD_TURN_SECONDS if is_held else seconds, is_claiming=not is_held)

    def _refresh(self, topic: JobTopic, feed: Feed) -> None:
        """Bring what is known of unfinished packages up to what the fold says."""
        jobs = topic.fold.queues[feed.queue].chained()
        for gone in self._unfinished.jobs - set(jobs):
            self._unfinished.remove(gone)
        for job in jobs:
            if job not in self._unfinished.jobs:
                self._unfinished.add(job, *_queued_package(topic, job))

    def _feed(self, source: LogSource, feed: Feed, unfed: Unfed, worker: str) -> Feed:
        """Append what the queue can take, unless another member does."""
        topic = source.topic
        jobs = plan_feed(feed, self._unfinished, unfed.packages, self._settings.lease_ms)
        rest = unfed.packages[len(jobs) :]
        end = Offset(rest[0].offset) if rest else unfed.next_offset
        now = self._ports.clock.monotonic()
        if end == feed.next_offset or not self._is_turn(topic, feed, worker, now, is_empty=not jobs):
            return feed
        # Several members may append the same number: the fold takes the first in the log and ignores the others.
        added = feed._replace(sequence=feed.sequence + 1, next_offset=end)
        (offset,) = topic.append(JobsAdded(jobs, feed=added))
        self._ports.failpoints.reach(Failpoint.POOL_FED)
        topic.follow_to(offset, source.note_log_time)
        self._fed_at = now
        # Another member may have removed it before that record: the next turn ends this one.
        if topic.fold.queues.get(feed.queue) is not self._queue:
            return feed
        self._refresh(topic, feed)
        return topic.fold.feeds.find(feed.pool) or feed

    def _serve_commands(self, handler: PackageImport, settings: SubscriberSettings) -> float:
        """Take commands, answer those that are done, and store the position after the last import.

        In a thread of its own: it may wait long for the target.
        """
        low_water, topic = handler.low_water, settings.command_topic
        if low_water is None:
            return _COMMAND_SECONDS
        try:
            # Commits alone would leave it at the last package, which retention may remove: the next start would find a
            # gap. Of a busy pool the others' commits are noted: all members announce one position.
            now = self._ports.clock.monotonic()
            is_quiet = (low_water, handler.stored_offset) == self._progress_seen
            if is_quiet or now - self._stored_at >= _STORE_SECONDS:
                handler.store_position(self._signal.stopping.is_set)
                self._stored_at = now
            self._progress_seen = low_water, handler.stored_offset
            if topic is not None:
                self._take_commands(handler, topic, low_water)
        except StopAskedError:
            pass
        except PoolTargetDiffersError as error:
            self._halt(error)
        return _COMMAND_SECONDS

    def _take_commands(self, handler: PackageImport, topic: TopicName, low_water: Offset) -> None:
        end = self._ports.journal.bounds(topic).next_offset
        is_news = end != self._commands_end
        # A suspension holds redrives back for hours, but what began before it may end, and a clear waits for that. That
        # imports resume is news.
        is_due = handler.suspension() is None or low_water != self._commands_low_water
        if is_news or (self._has_commands and is_due):
            self._has_commands = handler.serve_commands(is_read=is_news)
            self._commands_end, self._commands_low_water = end, low_water

    def _is_turn(self, topic: JobTopic, feed: Feed, worker: str, now: float, *, is_empty: bool) -> bool:
        """Whether this member should append: one is preferred, so that not all append the same."""
        if is_empty and now - self._fed_at < _EMPTY_FEED_SECONDS:
            return False
        # The least name is preferred, on which all members agree. After a grace any member appends: it may be dead.
        members = topic.fold.workers.items()
        mine = pool_topic(feed.pool)
        if worker == min((name for name, one in members if any_matches(one.topics, mine)), default=worker):
            return True
        if self._seen_unfed_at is None or self._seen_unfed_at[0] != feed.sequence:
            self._seen_unfed_at = feed.sequence, now
        return now - self._seen_unfed_at[1] >= _FEED_GRACE_SECONDS

    def _halt(self, error: MailboatError) -> None:
        """Stop in a named state, which an import met. From any thread."""
        # The first error is the cause; later ones often follow from it.
        self._error = self._error or error
        if self._worker is not None:
            self._worker.wake()

    # ------------------------------------------------------------------------------------------------------ figures

    def _show_progress(
        self, feed: Feed, low_water: Offset, unfed: Unfed, follower: PackageFollower, *, is_blocked: bool
    ) -> None:
        counts = self._import.counts if self._import is not None else None
        end = max(unfed.next_offset, follower.end)
        is_current = low_water >= end
        attempts, cause = (0, None) if counts is None else counts.failure
        if cause is None and follower.failure is not None:  # else a pool that reads nothing would be current
            cause = FailureCause.of_error(follower.failure)
        phase = SubscriberPhase.CURRENT if is_current else SubscriberPhase.IMPORTING
        if cause is not None:
            phase = SubscriberPhase.RETRYING if attempts else SubscriberPhase.WAITING
        suspension = None if self._import is None else self._import.suspension()
        if suspension is not None:
            phase = SubscriberPhase.SUSPENDED
        self._has_caught_up = self._has_caught_up or is_current
        self._show(
            phase=phase,
            suspension=suspension,
            identity=feed.log,
            backlog=PoolBacklog(feed.next_offset, len(self._unfinished)),
            next_offset=low_water,
            stored_offset=None if self._import is None else self._import.stored_offset,
            log_next_offset=end,
            cause=cause,
            attempts=attempts,
            **self._counted(),
            publishers=follower.publishers,
            # A rollout replaces the next older member only when this one is ready, and this one claims only then.
            is_ready=self._has_caught_up or is_blocked,
            ready_reason="caught-up" if self._has_caught_up else "older-members" if is_blocked else "starting",
        )

    def _counted(self) -> dict[str, object]:
        """The figures of what this member has imported so far."""
        names = ("imported", "dropped", "failed", "put", "removed", "content_bytes", "commits")
        return {} if self._import is None else {name: getattr(self._import.counts, name) for name in names}

    def _show(self, **values: object) -> None:
        before, self.statistics = self.statistics, replace(self.statistics, **values)  # type: ignore[arg-type]  # checked by the record
        if self.statistics != before:
            self._when_changed(self.statistics)
