"""Runs one subscriber in this process: target, engine, announcements, and the stop that SIGTERM asks for.

The subscriber's thread is the caller's; announcements and the journal's upkeep have threads of their own. Used by
`mailboat subscribe` and, later, by the agent of a pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mailboat.agent.composition import Workspace
from mailboat.agent.locations import open_target
from mailboat.agent.upkeep import Maintainer
from mailboat.clock import Deadline
from mailboat.discovery.announcer import Announcer, AnnouncerSettings
from mailboat.journal.port import ReadLimits
from mailboat.model.identifiers import AgentName
from mailboat.model.messages import DiscoveryMessage, SubscriberState, TopicRole
from mailboat.subscriber.progress import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.retries import RetryPolicy
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings
from mailboat.subscriber.subscription import Subscriber, Until

if TYPE_CHECKING:
    from mailboat.config.document import SubscriberConfig
    from mailboat.telemetry.subscribers import SubscriberMetrics

Listener = Callable[[SubscriberStatistics], None]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a subscriber is to do.

    Attributes:
        name: Its name.
        target: Where it imports into, such as `files:DIR`.
        follow: The publishers that it follows; empty follows all.
        max_retries: Attempts after the first before a package is given up; None is without end.
        is_gap_accepted: Go on over a gap, once.
    """

    name: AgentName
    target: str
    follow: tuple[AgentName, ...] = ()
    max_retries: int | None = None
    is_gap_accepted: bool = False


class SubscriberProcess:
    """One subscriber, from opening its target to closing it."""

    def __init__(self, workspace: Workspace, subscription: Subscription, listener: Listener) -> None:
        """Open the target. Raises: TargetBusyError, TargetCorruptError, UsageError."""
        self._workspace = workspace
        self._subscription = subscription
        self._listener = listener
        self._target = open_target(subscription.target)
        self._meter: SubscriberMetrics | None = None
        try:
            ports = SubscriberPorts(
                workspace.journal, workspace.blobs, workspace.codecs, self._target, workspace.clock, observer=self
            )
            observed = workspace.observability
            if observed is not None:
                self._meter = observed.subscriber_meter(subscription.name, self.statistics)
                ports = replace(ports, meter=self._meter, tracer=observed.tracer)
            self._subscriber = Subscriber(subscriber_settings(workspace, subscription), ports)
        except BaseException:
            self._target.close()
            raise
        self._maintainer = Maintainer(workspace)
        self._announcer = Announcer(
            workspace.journal,
            self._announcement,
            AnnouncerSettings(workspace.topic(TopicRole.DISCOVERY), workspace.home.config.subscriber.announce_seconds),
            workspace.clock,
        )
        if self._meter is not None:
            self._meter.failed_announcements = lambda: self._announcer.failures

    def claim(self) -> None:
        """Make the target this subscriber's before anybody hears of it. Raises: TargetOwnedError."""
        self._target.ledger.claim(self._subscription.name)

    def run(self, until: Until) -> SubscriberStatistics:
        """Import until caught up, or until stopped. Raises: as `Subscriber.run`."""
        self._announcer.start()
        try:
            statistics = self._subscriber.run(until)
            if statistics.next_offset == statistics.log_next_offset:
                self._maintainer.begin()  # also where there was nothing to import
            return statistics
        finally:
            self._maintainer.stop()
            self._announcer.stop()

    def stop(self) -> None:
        """Finish the batch at hand within the time that the configuration gives, and return from `run`."""
        clock = self._workspace.clock
        self._subscriber.stop(Deadline(clock, self._workspace.home.config.subscriber.shutdown_seconds))

    def close(self) -> None:
        """Release the target."""
        self._target.close()

    def on_progress(self, statistics: SubscriberStatistics) -> None:
        """See `Observer`."""
        if statistics.phase is SubscriberPhase.CURRENT:
            self._maintainer.begin()
        if self._meter is not None:
            self._meter.progressed(statistics)
        self._announcer.announce_soon()
        self._listener(statistics)

    def on_given_up(self, statistics: SubscriberStatistics) -> None:
        """See `Observer`."""
        if self._meter is not None:
            self._meter.given_up(statistics)
        self._announcer.announce_soon()
        self._listener(statistics)

    def statistics(self) -> SubscriberStatistics:
        """The figures of this moment, from any thread."""
        return self._subscriber.statistics()

    def _announcement(self) -> DiscoveryMessage:
        statistics = self._subscriber.statistics()
        subscription = self._subscription
        return DiscoveryMessage(
            sub_sling_id=self._workspace.home.sling_id,
            sub_agent_name=subscription.name,
            states=self._states(statistics),
            max_retries=subscription.max_retries,
            state=statistics.phase,
            cause=statistics.cause,
            announced_ms=int(self._workspace.clock.now().timestamp() * 1000),
            target=subscription.target,
        )

    def _states(self, statistics: SubscriberStatistics) -> tuple[SubscriberState, ...]:
        """One state for each publisher that is followed, all with the same offset: the last one done."""
        last_done = -1 if statistics.next_offset is None else statistics.next_offset - 1
        publishers = self._subscription.follow or self._workspace.publisher_names()
        return tuple(SubscriberState(name, last_done, statistics.attempts) for name in publishers)


def subscriber_settings(workspace: Workspace, subscription: Subscription) -> SubscriberSettings:
    """What the engine is told, from the configuration and the command line."""
    config = workspace.home.config.subscriber
    return SubscriberSettings(
        name=subscription.name,
        sling_id=workspace.home.sling_id,
        follow=frozenset(subscription.follow) or None,
        package_topic=workspace.topic(TopicRole.PACKAGE),
        status_topic=workspace.topic(TopicRole.STATUS),
        retry=retry_policy(config, subscription.max_retries),
        read=ReadLimits(config.max_batch_records, config.max_batch_bytes),
        limits=workspace.limits,
        package_timeout_seconds=config.package_timeout_seconds,
        is_gap_accepted=subscription.is_gap_accepted,
    )


def retry_policy(config: SubscriberConfig, max_retries: int | None) -> RetryPolicy:
    """When a failed package is tried again."""
    return RetryPolicy(max_retries, config.first_pause_seconds, config.longest_pause_seconds)
