"""Runs one member of a shared pool in this process, as `subscriber.py` runs a subscriber with a target of its own."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mailboat.agent.command_hooks import Hooks
from mailboat.agent.subscriber_process import (
    FINAL_SHARE,
    Listener,
    SubscriberReports,
    Subscription,
    announcement,
    subscriber_settings,
)
from mailboat.clock import Deadline
from mailboat.composition.places import open_target
from mailboat.composition.workspace import Workspace
from mailboat.model.identifiers import SlingId
from mailboat.model.messages import DiscoveryMessage
from mailboat.pools.member import MemberSettings, PoolMember
from mailboat.pools.shared_target import SharedTarget, check_shared
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.subscriber import Until

if TYPE_CHECKING:
    from mailboat.agent.observability import Observability


class PoolMemberProcess:
    """One member, from its start to its end."""

    def __init__(
        self,
        workspace: Workspace,
        subscription: Subscription,
        listener: Listener,
        observed: Observability | None = None,
    ) -> None:
        """Check the settings; the target is opened by `run`. Raises: UsageError."""
        check_shared(subscription)
        self._workspace = workspace
        self._subscription = subscription
        self._listener = listener
        self._stop_by: Deadline | None = None
        self._hooks = Hooks(subscription.hooks, subscription.name, workspace.clock)
        self._reports = SubscriberReports(workspace, subscription.name, self._announcement, self.statistics, observed)
        ports = self._reports.import_ports(self._hooks.processors)
        shared = SharedTarget(partial(open_target, subscription.target), workspace.clock, random.SystemRandom())
        settings = MemberSettings(
            socket.gethostname(), subscription.slots, subscriber_settings(workspace, subscription)
        )
        self._member = PoolMember(settings, ports, shared, self._changed)

    def claim(self) -> SlingId:
        """Claim the target for the pool; the instance that the pool runs in. Raises: TargetOwnedError."""
        return self._member.claim()

    def run(self, until: Until) -> SubscriberStatistics:
        """Import until caught up, or until stopped. Raises: as `PoolMember.run`."""
        try:
            return self._member.run(is_endless=until is Until.FOREVER)
        finally:
            seconds = self._workspace.home.config.subscriber.shutdown_seconds * FINAL_SHARE
            self._reports.stop(Deadline(self._workspace.clock, seconds))

    def stop(self) -> None:
        """Finish the packages that have begun, within the time that the configuration gives."""
        clock, seconds = self._workspace.clock, self._workspace.home.config.subscriber.shutdown_seconds
        # asked again, it has what is left
        self._stop_by = self._stop_by or Deadline(clock, seconds * (1 - FINAL_SHARE))
        # hooks first: the package that has to end may be waiting for one
        self._hooks.stop(self._stop_by)
        self._member.stop(self._stop_by)

    def close(self) -> None:
        self._hooks.close()

    def statistics(self) -> SubscriberStatistics:
        return self._member.statistics

    def passed_over(self) -> Sequence[str]:
        """The publishers whose packages were not imported, as they are not followed."""
        return sorted(self._member.passed_over)

    def _changed(self, statistics: SubscriberStatistics) -> None:
        # not before it has joined: it would announce a subscriber of this home that does not exist
        if self._member.sling_id is not None:
            self._reports.announcer.begin()
        self._reports.progressed(statistics)
        self._listener(statistics)

    def present(self) -> DiscoveryMessage:
        """What it would announce now, under the name of its home until it has joined. Reads no storage; any thread."""
        return self._message(self._member.statistics)

    def _announcement(self) -> DiscoveryMessage:
        statistics = self._member.statistics
        if statistics.phase is SubscriberPhase.STOPPED and statistics.cause is None:
            # one member ended, and the pool goes on
            is_current = statistics.next_offset == statistics.log_next_offset
            phase = SubscriberPhase.CURRENT if is_current else SubscriberPhase.IMPORTING
            statistics = replace(statistics, phase=phase)
        return self._message(statistics)

    def _message(self, statistics: SubscriberStatistics) -> DiscoveryMessage:
        message, sling_id = announcement(self._workspace, self._subscription, statistics), self._member.sling_id
        return message if sling_id is None else replace(message, sub_sling_id=sling_id, given_up=self._member.given_up)
