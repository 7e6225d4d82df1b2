"""Runs one subscriber in this process: target, engine, hooks, announcements, and the stop that SIGTERM asks for.

The subscriber's thread is the caller's; announcements, commands and the journal's upkeep have threads of their own.
Several may run in one process. Used by `mailboat subscribe` and by `mailboat agent run`.

A running subscriber holds its name on the home by a lock that the kernel drops when its process ends. The lock of the
target does not keep two subscribers of one name on two targets apart, whose announcements, commands and confirmations
would be indistinguishable.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mailboat.clock import Clock, Deadline, milliseconds_now
from mailboat.composition.configured_jobs import job_rules
from mailboat.composition.places import open_target
from mailboat.composition.workspace import Workspace
from mailboat.config.document import Expose, HooksConfig, SubscriberAgentConfig
from mailboat.content.locations import GENERATIONS, parse_target
from mailboat.content.port import Target
from mailboat.discovery.announcer import announcer, former_states, states_for
from mailboat.errors import MailboatError, RetryableError, StopError, TargetOwnedError, UsageError
from mailboat.folder_handle import PRIVATE_FILE
from mailboat.frozen import Frozen
from mailboat.maintenance.schedule import maintenance_worker, sweep_closed_target
from mailboat.model.identifiers import AgentName, SlingId, parse_agent_name
from mailboat.model.messages import (
    MAX_ANNOUNCED_CALLS,
    AfterCall,
    DiscoveryMessage,
    FailureCause,
    HookCalls,
    TopicRole,
)
from mailboat.model.paths import NodePath, parse_path
from mailboat.operations.journal_inspection import recent_publishers
from mailboat.subscriber.figures import Observer, SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.subscriber import Subscriber, Until
from mailboat.subscriber.subscriber_settings import ImportPorts, Processors, SubscriberSettings

if TYPE_CHECKING:
    from mailboat.agent.command_hooks import Hooks
    from mailboat.agent.observability import Observability
    from mailboat.composition.home import Home
    from mailboat.content.port import HookCallLedger
    from mailboat.model.positions import LogIdentity
    from mailboat.telemetry.subscriber_metrics import SubscriberMetrics


class SubscriberBusyError(StopError):
    """A subscriber with this name already runs on this home, with another target.

    Stop it, or use another name.
    """

    exit_code = 5


class SubscriberLock:
    """An exclusive `flock` on a file, which is never removed. On a home that can't be written nothing is held."""

    def __init__(self, file: Path, name: AgentName) -> None:
        """Hold the name. Raises: SubscriberBusyError."""
        self._handle: int | None = None
        try:
            # O_CLOEXEC: a hook must not inherit the lock, and hold the name after this process has ended.
            self._handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise SubscriberBusyError(
                f"a subscriber {name} runs on this home already, into another target",
                next_step="stop it, or choose another name",
                lock=file,
            ) from error
        # a read-only home: the lock of the target still keeps a second importer out
        except OSError:
            self.release()

    def release(self) -> None:
        """Let others of that name run."""
        handle, self._handle = self._handle, None
        if handle is not None:
            # closing drops the lock; the file stays: with a new file two processes could lock two inodes
            os.close(handle)


Listener = Callable[[SubscriberStatistics], None]

_LOG: Final = logging.getLogger(__name__)
FINAL_SHARE: Final = 0.2
"""This part of the time to stop is kept for what comes after the last batch: confirmations and the last words."""

# Also when the last batch used up the whole time: unsent confirmations would wait for the next start.
_MIN_FINAL_SECONDS: Final = 1.0
_ANNOUNCED_CAUSE_CHARACTERS: Final = 300


class Subscription(SubscriberAgentConfig):
    """What a subscriber is to do: its section with checked names and an absolute target, and what a start decides.

    Attributes:
        name: Its name.
        follow: The publishers that it follows; empty follows all.
        roots: The only paths that packages may change; empty: all.
        durable: Registered: packages are kept for it also while it is away.
        max_retries: Attempts after the first before a package is given up; None is without end.
        is_gap_accepted: Go on over a gap, once.
    """

    name: AgentName
    follow: tuple[AgentName, ...] = ()
    roots: tuple[NodePath, ...] = ()
    durable: bool = False
    max_retries: int | None = None
    is_gap_accepted: bool = False


class ExternalParts(Frozen):
    """What a program that embeds the subscriber brings itself.

    Attributes:
        target: An open target, which is closed with the subscriber; None opens the one that the subscription names.
        processors: Hooks in place of the subscription's commands.
    """

    target: Target | None = None
    processors: Processors | None = None


def _hooks_of(subscription: Subscription, clock: Clock) -> Hooks | None:
    if subscription.hooks == HooksConfig():
        return None
    # here: subprocess and tempfile cost a tenth of what a restart may cost
    from mailboat.agent.command_hooks import Hooks

    return Hooks(subscription.hooks, subscription.name, clock)


class SubscriberProcess(Observer):
    """One subscriber, from opening its target to closing it."""

    def __init__(
        self,
        workspace: Workspace,
        subscription: Subscription,
        listener: Listener,
        observed: Observability | None = None,
        parts: ExternalParts | None = None,
    ) -> None:
        """Open the target. Raises: TargetBusyError, SubscriberBusyError, TargetCorruptError, UsageError."""
        settings = subscriber_settings(workspace, subscription)
        self._workspace = workspace
        self._subscription = subscription
        self._listener = listener
        own = parts or ExternalParts()
        self._is_target_external = own.target is not None
        self._target = own.target or open_target(subscription.target)
        self._hooks = _hooks_of(subscription, workspace.clock)
        self._deadline: Deadline | None = None
        self._publishers: frozenset[AgentName] = frozenset()
        self._given_up: tuple[tuple[LogIdentity | None, int, int], int] | None = None
        try:
            processors = own.processors or (Processors() if self._hooks is None else self._hooks.processors)
            self._reports = SubscriberReports(
                workspace, subscription.name, self._announcement, self.statistics, observed
            )
            ports = self._reports.import_ports(processors).on(self._target)
            self._subscriber = Subscriber(settings, replace(ports, observer=self))
            # last: a failure after it would leave the name held, since only the target is closed below
            self._hold = SubscriberLock(workspace.home.lock_file(subscription.name), subscription.name)
        except BaseException:
            # it holds the target's lock: the next attempt of this process would find the target busy
            self._target.close()
            raise

    def claim(self) -> SlingId | None:
        """Claim the target for this subscriber, before the first announcement.

        Returns: None: it runs in the instance of its home. Raises: TargetOwnedError, also of a target of a shared pool.
        """
        self._target.ledger.claim(self._subscription.name)
        if self._target.ledger.pool.marker() is not None:
            # alone it would import again what members imported out of the order of the log
            raise TargetOwnedError(
                f"{self._subscription.target} belongs to the shared pool {self._subscription.name}",
                next_step="start it with --shared (`delivery: shared`), or choose another target",
            )
        return None

    def run(self, until: Until) -> SubscriberStatistics:
        """Import until caught up, or until stopped. Raises: as `Subscriber.run`."""
        # no reason to end: `Subscriber.run` waits for the journal
        with suppress(RetryableError):
            self._subscriber.prepare()
            if not self._subscription.follow:  # announced before the first package of them was read
                self._publishers = publishers_found(self._workspace)
        # after `prepare`: a command sent to an announced subscriber must not lie before its stored command position
        self._reports.announcer.start()
        try:
            statistics = self._subscriber.run(until)
            if statistics.next_offset == statistics.log_next_offset:
                self._reports.maintainer.begin()  # also where there was nothing to import
            return statistics
        finally:
            seconds = self._workspace.home.config.subscriber.shutdown_seconds * FINAL_SHARE
            if self._deadline is not None:
                seconds = max(_MIN_FINAL_SECONDS, self._deadline.remaining_seconds())
            self._reports.stop(Deadline(self._workspace.clock, seconds))

    def passed_over(self) -> Sequence[str]:
        """The publishers whose packages were not imported, as they are not followed."""
        return sorted(self._target.ledger.passed_over)

    def stop(self) -> None:
        """Finish the current batch within the time that the configuration gives, and return from `run`."""
        clock, seconds = self._workspace.clock, self._workspace.home.config.subscriber.shutdown_seconds
        self._deadline = self._deadline or Deadline(clock, seconds)  # asked again, it has what is left
        deadline = Deadline(clock, self._deadline.remaining_seconds() - seconds * FINAL_SHARE)
        # hooks first: the batch that has to end may be waiting for one
        if self._hooks is not None:
            self._hooks.stop(deadline)
        self._subscriber.stop(deadline)

    def close(self) -> None:
        """Release the target, and now and then remove the blobs of its own that no node names any more."""
        if self._hooks is not None:
            self._hooks.close()
        self._hold.release()
        self._target.close()
        # after the close: a sweep needs the lock that this subscriber held
        if not self._is_target_external:
            sweep_closed_target(self._workspace, self._subscription.name, self._subscription.target)

    def on_progress(self, statistics: SubscriberStatistics) -> None:
        self._reports.progressed(statistics)
        self._listener(statistics)

    def on_given_up(self, statistics: SubscriberStatistics) -> None:
        self._reports.given_up(statistics)
        self._listener(statistics)

    def statistics(self) -> SubscriberStatistics:
        return self._subscriber.statistics()

    def present(self) -> DiscoveryMessage:
        """What it would announce now, with the error queue as it was last counted. Reads no storage; any thread."""
        statistics = self._subscriber.statistics()
        message = announcement(self._workspace, self._subscription, statistics, self._publishers)
        # counted by the announcer's thread, which a failure wakes
        given_up = None if self._given_up is None else self._given_up[1]
        return replace(message, given_up=given_up, after_calls=statistics.after)

    def _announcement(self) -> DiscoveryMessage:
        statistics = self._subscriber.statistics()
        message = announcement(self._workspace, self._subscription, statistics, self._publishers)
        counts = self._given_up_count(statistics), self._hook_calls(statistics)
        return replace(message, given_up=counts[0], after_calls=counts[1])

    def _given_up_count(self, statistics: SubscriberStatistics) -> int | None:
        """How many packages are in the error queue, counted when it may have changed."""
        figures = statistics.identity, statistics.failed, statistics.redriven  # without an identity it is not opened
        if self._given_up is None or self._given_up[0] != figures:
            with suppress(MailboatError):
                # Counted in the database only after a change: announcements come every ten seconds.
                self._given_up = figures, self._target.ledger.given_up_count
        return None if self._given_up is None else self._given_up[1]

    def _hook_calls(self, statistics: SubscriberStatistics) -> HookCalls | None:
        calls = statistics.after
        # The ledger is read only where a call failed, and an announcement without these details is better than none.
        if calls is not None and (calls.set_aside or calls.cause is not None):
            with suppress(MailboatError):
                return replace(calls, failed=failed_calls(self._target.ledger.hook_calls))
        return calls


def publishers_found(workspace: Workspace) -> frozenset[AgentName]:
    """The publishers that the home and recent messages know of."""
    known = frozenset(workspace.publisher_names())
    try:
        # Also from the log itself: a home lists only the publishers that run or ran in it.
        return known | frozenset(recent_publishers(workspace.journal, workspace.package_topic))
    except MailboatError:  # the import reports what is wrong with the log
        return known


def unknown_publishers(
    workspace: Workspace, follow: Sequence[AgentName]
) -> tuple[Sequence[AgentName], frozenset[AgentName]]:
    """The followed publishers of which neither home nor recent messages know, and those that they know."""
    known = publishers_found(workspace) if follow else frozenset[AgentName]()
    return [publisher for publisher in follow if publisher not in known], known


class StateLogger:
    """Logs each change of one subscriber's state that may need a person's attention; used in its thread.

    Single packages are never logged; success is logged once, when the subscriber has caught up for the first time or
    after trouble. The words are those of the states and of the errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: tuple[object, ...] = ()
        self._is_calm = False

    def progressed(self, statistics: SubscriberStatistics) -> None:
        if statistics.phase is SubscriberPhase.CURRENT:
            if not self._is_calm:
                self._is_calm = True
                _LOG.info("%s has caught up", self._name, extra=self._about(statistics))
            return
        if statistics.phase not in {SubscriberPhase.RETRYING, SubscriberPhase.WAITING}:
            return
        cause = statistics.cause
        news = (statistics.phase, statistics.next_offset, statistics.attempts, None if cause is None else cause.code)
        # A snapshot comes with every change: each attempt and each wait is logged once.
        if news == self._told or cause is None:
            return
        self._told, self._is_calm = news, False
        if statistics.phase is SubscriberPhase.RETRYING:
            text = "%s could not import a package, attempt %d: %s"
            _LOG.warning(text, self._name, statistics.attempts, cause.message, extra=self._about(statistics))
        else:
            _LOG.warning("%s waits: %s", self._name, cause.message, extra=self._about(statistics))

    def given_up(self, statistics: SubscriberStatistics) -> None:
        self._is_calm = False
        cause = "" if statistics.cause is None else statistics.cause.message
        where = self._about(statistics)
        if statistics.next_offset is not None:
            # the position is behind the package that was given up
            where["offset"] = statistics.next_offset - 1
        attempts = "1 attempt" if statistics.attempts == 1 else f"{statistics.attempts} attempts"
        _LOG.warning("%s gave a package up after %s: %s", self._name, attempts, cause, extra=where)

    def _about(self, statistics: SubscriberStatistics) -> dict[str, object]:
        cause = statistics.cause
        return {
            "subscriber": self._name,
            "offset": statistics.next_offset,
            "error": None if cause is None else cause.code,
            "path": None if cause is None else cause.path,
        }


class SubscriberReports:
    """What a subscriber or a member of a pool reports of its imports: metrics, log lines and announcements.

    The upkeep of the journal begins with the report that the subscriber has caught up.
    """

    def __init__(
        self,
        workspace: Workspace,
        name: AgentName,
        compose: Callable[[], DiscoveryMessage],
        statistics: Callable[[], SubscriberStatistics],
        observed: Observability | None,
    ) -> None:
        """Announce nothing yet: its caller starts the announcer, once only this process has the name."""
        self._workspace = workspace
        self._observed = observed
        self._announced: tuple[object, ...] = ()
        self._meter: SubscriberMetrics | None = None
        self._observers: tuple[SubscriberMetrics | StateLogger, ...] = ()
        self.maintainer: Final = maintenance_worker(workspace, name)
        self.announcer: Final = announcer(
            workspace.journal,
            workspace.topic(TopicRole.DISCOVERY),
            compose,
            workspace.clock,
            name,
            workspace.home.config.subscriber.announce_seconds,
        )
        if observed is not None:
            self._meter = observed.subscriber_meter(name, statistics)
            self._meter.watch_announcements(lambda: self.announcer.failures)
            self._observers = self._meter, StateLogger(name)

    def import_ports(self, processors: Processors) -> ImportPorts:
        """What imports work with, measured where there are metrics."""
        stores = self._workspace.journal, self._workspace.blobs, self._workspace.codecs
        ports = ImportPorts(*stores, self._workspace.clock, processors=processors)
        if self._observed is None or self._meter is None:
            return ports
        measured = self._observed.measured(processors, self._meter)
        return replace(ports, meter=self._meter, tracer=self._observed.tracer, processors=measured)

    def progressed(self, statistics: SubscriberStatistics) -> None:
        """Announce a new state, and a queue that was emptied; all else comes with the next regular announcement."""
        if statistics.phase is SubscriberPhase.CURRENT:
            # Not before it is caught up: upkeep must not slow down the import of a backlog.
            self.maintainer.begin()
        for observer in self._observers:
            observer.progressed(statistics)
        emptied_at = statistics.stored_offset if statistics.phase is SubscriberPhase.CURRENT else None
        cause = None if statistics.cause is None else statistics.cause.code
        counts = statistics.attempts, statistics.failed, statistics.redriven
        calls = statistics.after or HookCalls()
        hooks = calls.set_aside, calls.cause is None
        # Not the position: an announcement for each batch would fill the discovery topic.
        news = (statistics.state, cause, statistics.is_ready, emptied_at, statistics.suspension, counts, hooks)
        if news != self._announced:
            self._announced = news
            self.announcer.wake()

    def given_up(self, statistics: SubscriberStatistics) -> None:
        for observer in self._observers:
            observer.given_up(statistics)
        self.announcer.wake()

    def stop(self, deadline: Deadline) -> None:
        """Announce a last time, then end the upkeep."""
        # First: the last announcement says that this subscriber stopped. Upkeep can be continued by another run.
        if self.announcer.is_started:
            self.announcer.stop(deadline.remaining_seconds())
        self.maintainer.stop(deadline.remaining_seconds())


def announcement(
    workspace: Workspace,
    subscription: Subscription,
    statistics: SubscriberStatistics,
    publishers: frozenset[AgentName] = frozenset(),
) -> DiscoveryMessage:
    """What a subscriber announces, without what only its target says."""
    return DiscoveryMessage(
        sub_sling_id=workspace.home.sling_id,
        sub_agent_name=subscription.name,
        states=states_for(
            subscription.follow or publishers | statistics.publishers,
            statistics.next_offset,
            statistics.attempts,
            statistics.failing_publisher,
            statistics.report_starts,
        ),
        is_editable=subscription.editable,
        max_retries=subscription.max_retries,
        state=statistics.state,
        cause=statistics.cause,
        announced_ms=milliseconds_now(workspace.clock),
        target=subscription.target,
        is_ready=statistics.is_ready,
        ready_reason=statistics.ready_reason,
        is_durable=subscription.durable,
        # Not the position in memory: what is below it may be removed, and a kill forgets what is not stored.
        next_offset=statistics.stored_offset,
        log_identity=statistics.identity,
        follows_all=not subscription.follow,
        reports=None if subscription.follow else statistics.report_starts.get(None),
        former=former_states(statistics.report_starts),
        suspension=statistics.suspension,
        backlog=statistics.backlog,
    )


def subscription_of(home: Home, config: SubscriberAgentConfig) -> Subscription:
    """What a subscriber of the configuration is to do. Raises: UsageError for an invalid name."""
    if config.staging is not None:
        parse_agent_name(config.staging.golden)
    names: dict[str, Any] = {
        "name": parse_agent_name(config.name),
        "target": home.resolve(config.target),
        "follow": tuple(map(parse_agent_name, config.follow)),
        "roots": tuple(map(parse_path, config.roots)),
    }
    return Subscription(**{**vars(config), **names}, max_retries=home.config.subscriber.max_retries)


def subscriber_settings(workspace: Workspace, subscription: Subscription) -> SubscriberSettings:
    """The engine's settings, from the configuration and the command line.

    Raises: UsageError where builds are to be shown as a whole in a target that can't do so.
    """
    config = workspace.home.config.subscriber
    expose = subscription.expose or config.expose
    if expose is Expose.BUILD:
        check_exposable(subscription.name, subscription.target)
    return SubscriberSettings(
        name=subscription.name,
        sling_id=workspace.home.sling_id,
        follow=frozenset(subscription.follow) or None,
        roots=subscription.roots,
        package_topic=workspace.topic(TopicRole.PACKAGE),
        status_topic=workspace.topic(TopicRole.STATUS),
        command_topic=workspace.topic(TopicRole.COMMAND),
        discovery_topic=workspace.topic(TopicRole.DISCOVERY),
        is_editable=subscription.editable,
        staging=subscription.staging,
        config=replace(config, max_retries=subscription.max_retries, expose=expose),
        limits=workspace.limits,
        job_rules=job_rules(workspace.home.config).imported,
        is_gap_accepted=subscription.is_gap_accepted,
        spool=workspace.home.spool,
    )


def check_exposable(name: str, target: str) -> None:
    """See that a target can hold a build back from readers until it is whole. Raises: UsageError."""
    location = parse_target(target)
    if location.kind != GENERATIONS:
        raise UsageError(
            f"{name} can't expose builds as a whole: {location.kind}: targets show every package when it is imported",
            next_step=f"import into generations:DIR, which shows whole versions, or set expose: {Expose.PACKAGE}",
        )


def failed_calls(ledger: HookCallLedger) -> tuple[AfterCall, ...]:
    """The calls of the hook `after` that failed, as they are announced: a few, without their traces."""
    waiting = [call for call in ledger.calls(MAX_ANNOUNCED_CALLS) if call.attempts]
    failed = [*waiting, *ledger.calls(MAX_ANNOUNCED_CALLS, is_set_aside=True)][:MAX_ANNOUNCED_CALLS]
    return tuple(replace(call, cause=_announced_cause(call.cause)) for call in failed)


def _announced_cause(cause: FailureCause | None) -> FailureCause | None:
    if cause is None:
        return None
    # Readers drop announcements of more than 64 KiB, so texts are cut, and say so.
    message = cause.message[:_ANNOUNCED_CAUSE_CHARACTERS]
    is_cut = cause.is_truncated or cause.trace_excerpt is not None or message != cause.message
    return FailureCause(cause.code, message, cause.path, None, is_cut)
