"""Leader election by a Lease (coordination.k8s.io/v1): of several replicas one acts.

A lease counts as left when its record has not changed for its duration as measured by our own clock, so clocks need not
agree. Its holder stops acting when it could not renew it for a shorter time than that; every write to the API has a
time-out shorter than the difference. So no two act at once, wherever one is cut off or killed. After a newer version
an older one waits longer, so that replicas that are replaced one by one don't undo each other's work in turns. The
lease belongs to its holder's service account, so that it goes with that when the operator is uninstalled. Called by
`main`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from mailboat.errors import ClusterConflictError, ClusterRefusedError, MailboatError
from mailboat.frozen import Frozen

from mailboat_operator.cluster import Cluster
from mailboat_operator.definition import GROUP
from mailboat_operator.plan.child_manifest import Manifest

_LOG: Final = logging.getLogger("mailboat.operator")
_NUMBERS: Final = re.compile(r"\d{1,9}(\.\d{1,9})*")
_VERSION: Final = f"{GROUP}/operator-version"
"""Annotation of the lease."""


class LeaseSettings(Frozen):
    """Which lease, and its times.

    Attributes:
        namespace: Where it is.
        name: What it is called.
        identity: Unique for each process, also after a restart.
        duration_seconds: A lease unchanged for so long is free.
        renew_seconds: A holder who could not renew for so long stops.
        retry_seconds: Pause between looks, and between renewals.
        version: Of the operator, as it releases them.
        patience_seconds: How much longer a lease that a newer version had is left alone.
    """

    namespace: str
    name: str
    identity: str
    duration_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0
    version: str = "0"
    patience_seconds: float = 60.0


class Sighting(Frozen):
    """A lease's record, and when it was first seen like this, by our own clock.

    Attributes:
        record: What the lease says.
        version: The operator's that had it last.
        since: When.
    """

    record: Manifest
    version: str
    since: float


def may_take(sighting: Sighting | None, settings: LeaseSettings, now: float) -> bool:
    """Whether the lease is ours, or free.

    Args:
        sighting: The record; None if absent.
        settings: Of this replica.
        now: By the clock of the sighting.
    """
    if sighting is None:
        return True
    holder = sighting.record.get("holderIdentity")
    if holder == settings.identity:
        return True
    # without a holder it was released, and is free at once
    duration = float(sighting.record.get("leaseDurationSeconds") or 0) if holder else 0.0
    if order_of(sighting.version) > order_of(settings.version):
        duration += settings.patience_seconds
    return now - sighting.since >= duration


def order_of(version: str) -> tuple[int, ...]:
    """What versions are compared by: their leading numbers."""
    match = _NUMBERS.match(version)
    return tuple(int(part) for part in match[0].split(".")) if match is not None else ()


class LeaderLease:
    """Our side of one lease."""

    def __init__(
        self,
        cluster: Cluster,
        settings: LeaseSettings,
        on_answer: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Send no request yet; `on_answer` is called whenever the API answers."""
        self._on_answer = on_answer
        self._cluster = cluster
        self._settings = settings
        self._monotonic = monotonic
        self._sighting: Sighting | None = None
        self._ends_at = 0.0

    async def acquire(self) -> bool:
        """Wait until the lease is ours; True."""
        _LOG.info("%s waits for the lease", self._settings.identity)
        while True:
            if await self._try_safely(self._settings.renew_seconds):
                _LOG.info("%s leads", self._settings.identity)
                return True
            await asyncio.sleep(self._settings.retry_seconds)

    async def hold(self) -> None:
        """Renew the lease once it is acquired; return when it is lost."""
        while (left := self._ends_at - self._monotonic()) > 0:
            await asyncio.sleep(min(self._settings.retry_seconds, left))
            # neither a pause nor a request lasts beyond the end: the lease's duration does not wait for them
            is_renewed = await self._try_safely(self._ends_at - self._monotonic())
            # do not wait for the own time-out when another replica leads
            if not is_renewed and self._is_held_by_another():
                break
        _LOG.warning("%s is no longer the leader", self._settings.identity)

    async def release(self) -> None:
        """Give the lease away at once, if it is ours."""
        try:
            found = await self._look()
            if found is not None and self._is_ours(found["spec"]):
                # the API server refuses a duration of 0; without a holder the lease is free at once all the same
                spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._cluster.replace({**found, "spec": spec})
        except MailboatError as error:
            _LOG.warning("the lease could not be released: %s", error)

    async def try_once(self) -> bool:
        """Take or renew the lease if that may be; whether it is ours now. Raises: ClusterUnavailableError."""
        found = await self._look()
        if not may_take(self._sighting, self._settings, self._monotonic()):
            return False
        try:
            if found is None:
                made = await self._cluster.create(self._manifest(await self._owners(), self._record({})))
            else:
                metadata = {**found["metadata"], "annotations": self._annotations(found)}
                if not self._is_ours(found["spec"]):
                    metadata["ownerReferences"] = await self._owners()
                made = await self._cluster.replace({**found, "metadata": metadata, "spec": self._record(found["spec"])})
        # another replica wrote first: `create` and `replace` are conditional
        except ClusterConflictError:
            return False
        self._see(made)
        return True

    async def _try_safely(self, seconds: float) -> bool:
        """Take or renew the lease within so many seconds; whether it is ours, from then on until `_ends_at`."""
        started = self._monotonic()
        try:
            # half of the time: a request that hangs leaves time for one more attempt
            is_ours = await asyncio.wait_for(self.try_once(), min(seconds, self._settings.renew_seconds / 2))
        except (MailboatError, TimeoutError) as error:
            _LOG.warning("the lease could not be read or renewed: %s", str(error) or "no answer in time")
            return False
        if is_ours:
            # from before the request: the API server stored the renewal some time after that
            self._ends_at = started + self._settings.renew_seconds
        return is_ours

    def _is_held_by_another(self) -> bool:
        return self._sighting is not None and self._sighting.record.get("holderIdentity") != self._settings.identity

    async def _look(self) -> Manifest | None:
        found = await self._cluster.get("Lease", self._settings.namespace, self._settings.name)
        self._on_answer()
        self._see(found)
        return found

    def _see(self, found: Manifest | None) -> None:
        if found is None:
            self._sighting = None
        # only a changed record counts as a renewal, and its time is ours: clocks of replicas may differ
        elif self._sighting is None or self._sighting.record != found["spec"]:
            version = (found["metadata"].get("annotations") or {}).get(_VERSION, "0")
            self._sighting = Sighting(found["spec"], version, self._monotonic())

    async def _owners(self) -> Sequence[Mapping[str, str]]:
        try:
            account = await self._cluster.account(self._settings.namespace)
        except (ClusterConflictError, ClusterRefusedError) as error:
            _LOG.warning("the lease will stay when the operator is uninstalled: %s", error)
            return []
        return [] if account is None else [account]

    def _is_ours(self, record: Manifest) -> bool:
        return record.get("holderIdentity") == self._settings.identity

    def _manifest(self, owners: Sequence[Mapping[str, str]], record: Manifest) -> Manifest:
        metadata = {
            "name": self._settings.name,
            "namespace": self._settings.namespace,
            "annotations": self._annotations({"metadata": {}}),
            "ownerReferences": owners,
        }
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": record}

    def _annotations(self, found: Manifest) -> Mapping[str, str]:
        return {**(found["metadata"].get("annotations") or {}), _VERSION: self._settings.version}

    def _record(self, before: Manifest) -> Manifest:
        # a MicroTime: the API expects six decimals
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_ours = self._is_ours(before)
        transitions = int(before.get("leaseTransitions") or 0)
        record: dict[str, Any] = {
            "holderIdentity": self._settings.identity,
            "leaseDurationSeconds": int(self._settings.duration_seconds),
            "acquireTime": before.get("acquireTime", now) if is_ours else now,
            "renewTime": now,
            "leaseTransitions": transitions if is_ours or not before else transitions + 1,
        }
        return record
